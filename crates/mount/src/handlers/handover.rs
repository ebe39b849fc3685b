//! A mount in another process: what the process before writes down, and what its successor makes of it.

use super::dirs::Reached;
use super::init::misses;
use super::modes::Usage;
use super::{OpenDir, OpenFile, Session, locked};
use crate::MountOptions;
use crate::kernel::{Kernel, PageState};
use crate::takeover::state::{Asker, Dir, DirMode, File, Many, State, Untold};
use covey_ninep::tree::Errno;
use covey_stripe::client::{self, Fs, Opened};
use covey_stripe::ops::{Consistency, Id, Inode};
use futures_util::future::join_all;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// What each file that is open was opened as, by its id.
type ById = BTreeMap<Id, client::File>;

impl Session<Fs> {
    /// With no request in progress: what was done for programs and not said yet is said. An error that a program has yet to
    /// hear is kept for it.
    ///
    /// # Errors
    ///
    /// A server does not answer.
    pub async fn settle_for_handover(&self) -> Result<(), String> {
        self.behind.settle_all().await;
        let lost = self.behind.take_errors();
        locked(&self.untold).extend(lost.into_iter().map(|(id, error)| (id, error.code)));
        let files: Vec<_> = self.files_open(true).into_iter().collect();
        let mut away = None;
        for files in files.chunks(AT_ONCE) {
            let flushed = files.iter().map(async |(id, file)| (*id, file.flush().await));
            for (id, flushed) in join_all(flushed).await {
                // Whichever process goes on, a program has yet to hear it.
                if let Err(error) = flushed {
                    locked(&self.untold).insert(id, error.code());
                    away = away.or_else(|| error.is_away().then(|| error.to_string()));
                }
            }
            if away.is_some() {
                break;
            }
        }
        away.map_or(Ok(()), Err)?;
        // Only this process can tell.
        self.files.settle().await.map_err(|error| format!("a change was refused: {error}"))
    }

    /// Whether nothing goes on beside the requests.
    pub fn is_idle(&self) -> bool {
        Arc::strong_count(&self.aside) == 1
    }

    /// The files of open handles, of those only that may write if so asked.
    fn files_open(&self, writable: bool) -> ById {
        let (_, files) = self.open.all();
        let files = files.into_iter().filter(|(_, open)| open.writable || !writable);
        files.map(|(_, open)| (open.id, open.file.clone())).collect()
    }

    /// All that the successor needs to know, but for what the transport and the session's client do.
    pub fn hand_over(&self) -> State {
        let (file_last, files) = self.open.all();
        let (dir_last, dirs) = self.dirs.all();
        let file = |(fh, open): (u64, Arc<OpenFile<client::File>>)| File {
            fh,
            id: open.id,
            is_writable: open.writable,
            mode: open.usage.mode.number(),
            is_direct: open.usage.direct,
            who: open.file.opener().clone(),
        };
        let dir = |(fh, open): (u64, Arc<OpenDir<client::File>>)| Dir {
            fh,
            id: open.id,
            limit: locked(&open.reached).limit,
            who: open.who.clone(),
        };
        let of = |(id, owner, fh)| Asker { id, owner, fh };
        State {
            kernel: self.settled.get().copied(),
            has_kept: self.has_kept.load(Ordering::Relaxed),
            file_last,
            dir_last,
            files: files.into_iter().map(file).collect(),
            dirs: dirs.into_iter().map(dir).collect(),
            unsynced: self.files_open(false).values().filter_map(client::File::unsynced).collect(),
            askers: locked(&self.askers).all().map(of).collect(),
            dir_modes: locked(&self.dir_modes)
                .iter()
                .map(|(&id, mode)| DirMode { id, mode: mode.number() })
                .collect(),
            privileged: locked(&self.privileged).iter().copied().collect(),
            places: Many(self.kernel.places_out()),
            untold: locked(&self.untold).iter().map(|(&id, &code)| Untold { id, code }).collect(),
            ..State::default()
        }
    }

    /// A mount as another process has left it; `opened` are its opens, in the order of [`State::opens`].
    ///
    /// # Errors
    ///
    /// The state is of a version that knows more, or a server does not answer.
    pub async fn taken_over(
        files: Arc<Fs>,
        options: MountOptions,
        kernel: Arc<Kernel>,
        state: &State,
        opened: Vec<Opened>,
    ) -> Result<Self, String> {
        if let Some(why) = state.kernel.and_then(misses) {
            return Err(why);
        }
        let inodes = inodes(&files, state).await?;
        let session = Session::new(files, options, kernel);
        let mut opened = opened.into_iter();
        for file in &state.files.0 {
            session.reopen(file, &inodes, opened.next()).await?;
        }
        for dir in &state.dirs.0 {
            session.reopen_dir(dir, &inodes, opened.next()).await?;
        }
        session.remember(state)?;
        Ok(session)
    }

    async fn reopen(
        &self,
        file: &File,
        inodes: &HashMap<Id, Inode>,
        opened: Option<Opened>,
    ) -> Result<(), String> {
        let (inode, opened) = inodes.get(&file.id).zip(opened).ok_or("a file has no open")?;
        let mode = Consistency::from_number(file.mode).ok_or("a consistency mode is unknown")?;
        let reopened = self.files.reopen(&file.who, inode, opened).await;
        let reopened = reopened.map_err(|error| error.to_string())?;
        let direct = file.is_direct;
        let gathers = mode != Consistency::Strict && !direct;
        let usage = Usage { mode, direct, gathers };
        let open = OpenFile { id: file.id, file: reopened, writable: file.is_writable, usage };
        self.count(&open);
        if mode == Consistency::Strict && !usage.direct {
            self.kernel.pages_in(open.id, PageState::Unknown);
            locked(&self.paged).insert(open.id, open.file.clone());
        }
        self.open.insert_at(file.fh, open);
        Ok(())
    }

    async fn reopen_dir(
        &self,
        dir: &Dir,
        inodes: &HashMap<Id, Inode>,
        opened: Option<Opened>,
    ) -> Result<(), String> {
        let (inode, opened) = inodes.get(&dir.id).zip(opened).ok_or("a directory has no open")?;
        let reopened = self.files.reopen(&dir.who, inode, opened).await;
        let file = reopened.map_err(|error| error.to_string())?;
        let reached = Mutex::new(Reached { limit: dir.limit, end: None });
        let who = dir.who.clone();
        self.kernel.handle_in(dir.fh, dir.id);
        self.dirs.insert_at(dir.fh, OpenDir { id: dir.id, _file: file, who, reached });
        Ok(())
    }

    fn remember(&self, state: &State) -> Result<(), String> {
        let files = self.files_open(false);
        for unsynced in &state.unsynced.0 {
            files.get(&unsynced.id).into_iter().for_each(|file| file.owe(unsynced));
        }
        self.open.skip_to(state.file_last);
        self.dirs.skip_to(state.dir_last);
        self.has_kept.store(state.has_kept, Ordering::Relaxed);
        state.kernel.map(|settled| self.settled.set(settled));
        for asker in &state.askers.0 {
            locked(&self.askers).note(asker.id, asker.owner, asker.fh);
            locked(&self.quiet).share(asker.id);
        }
        for own in &state.dir_modes.0 {
            let mode = Consistency::from_number(own.mode).ok_or("a consistency mode is unknown")?;
            locked(&self.dir_modes).insert(own.id, mode);
        }
        locked(&self.privileged).extend(&state.privileged.0);
        locked(&self.untold).extend(state.untold.0.iter().map(|untold| (untold.id, untold.code)));
        Ok(())
    }
}

impl State {
    /// The opens of the session, which the server counts.
    pub fn opens(&self) -> Vec<Id> {
        let files = self.files.0.iter().map(|file| file.id);
        files.chain(self.dirs.0.iter().map(|dir| dir.id)).collect()
    }
}

/// The files that are open, as the server has them now. Some have no name.
async fn inodes(fs: &Fs, state: &State) -> Result<HashMap<Id, Inode>, String> {
    let mut ids = state.opens();
    ids.sort_unstable();
    ids.dedup();
    let mut inodes = HashMap::new();
    for ids in ids.chunks(AT_ONCE) {
        for inode in join_all(ids.iter().map(|&id| fs.inode_now(id))).await {
            match inode {
                Ok(inode) => drop(inodes.insert(inode.id, inode)),
                Err(error) if error.code() == Errno::ESTALE => {
                    return Err(format!("an open file is gone: {error}"));
                }
                Err(error) => return Err(error.to_string()),
            }
        }
    }
    Ok(inodes)
}

/// Requests that are sent together.
const AT_ONCE: usize = 64;
