//! What a client does to a file that it alone knows, said late and in one request.
//!
//! Who makes a file most often writes it, sets its times, owner and mode, and closes it: four requests
//! and more, of which nobody else could see anything but the first and the last. So the metadata
//! server leaves the maker *alone* with the new file ([`crate::meta::lease`]): nobody else is told of
//! it before the maker was asked what it has done. What it does meanwhile is kept here and sent as
//! one [`Op::Amend`]:
//!
//! - when the file is closed or synced, and before any other request of this client that could tell of it,
//! - when the server takes the lease back, before that is acknowledged,
//! - after [`AGE_MAX`].
//!
//! Only what cannot be refused, but for want of space or of the server, is kept: whether it was done is
//! told by the next sync or close.
//!
//! Where it is alone with the directory the making itself is kept, and said with the rest as one [`Op::Make`]: see
//! [`dirs`].

mod alone;
mod calls;
mod concern;
mod dirs;
mod kept;
mod links;
mod made_dirs;
mod removals;
mod settings;

use super::wire::Wire;
use super::{Answered, Change, Opened, Task};
use crate::client::{BoxFuture, Error, Result};
use crate::meta::access;
use crate::meta::lease::LEASE_TIME;
use crate::ops::{Caller, Id, Inode, Lease, Op, Reply, set};
use alone::Alone;
use concern::{Concern, concern};
use covey_wire::Name;
use dirs::Dir;
use futures_util::future::{FutureExt, Shared, join_all};
use kept::{Kept, PRIVILEGE, amendment, may_set};
pub use kept::{Set, Write};
use made_dirs::MadeDirs;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How long anything is kept.
pub const AGE_MAX: Duration = Duration::from_millis(5);
/// Files that are kept track of. Beyond, all is said at once.
const FILES_MAX: usize = 1024;
/// What must be left of the lease: much more than [`AGE_MAX`], so that a slow machine does not matter.
const MARGIN: Duration = Duration::from_millis(400);
/// How long an error is kept that nobody asks for, of a file that nobody has open any more.
const ERROR_KEPT: Duration = Duration::from_secs(60);
/// Attributes that may be set late.
const MASK: u32 =
    set::MODE | set::UID | set::GID | set::ATIME | set::MTIME | set::ATIME_NOW | set::MTIME_NOW;
/// Bytes of a request around its data.
const REQUEST_BYTES: u32 = 1024;

/// What is to be said of all such files.
pub(super) struct Late {
    wire: Arc<Wire>,
    is_on: bool,
    removes: bool,
    state: Mutex<State>,
    /// Files that the server has yet to be told of.
    unmade: AtomicUsize,
    /// Requests that remove names that are being gathered, or on their way.
    removing: AtomicUsize,
}

#[derive(Default)]
struct State {
    /// The last revocation that was heard of.
    revoked: u64,
    files: HashMap<Id, Alone>,
    dirs: HashMap<Id, Dir>,
    made_dirs: MadeDirs,
    /// How many greetings had begun when it was looked last.
    greetings: u64,
    /// The server leaves nobody alone with a directory until then.
    refused_until: Option<Instant>,
    /// The same with files that are to be removed.
    takes_refused_until: Option<Instant>,
    /// Files that were made without a lease, with their directories, and when.
    bare: Vec<(Id, Id, Instant)>,
    /// Directories that this client is changing, or one name in them, and how many changes may be of any.
    changing: Vec<(Id, Option<Name>)>,
    changes_any: usize,
    /// Bytes that are kept of files that were closed.
    closed_bytes: usize,
    /// How many files more this client stays alone with when they are closed.
    linkers: u8,
    /// The server knows [`Op::Names`]; none where it was not asked.
    knows_names: Option<bool>,
    /// Somebody looks after what gets old.
    is_watched: bool,
}

/// Completes when something was said, or has failed.
type Going = Shared<BoxFuture<()>>;

impl Late {
    pub fn new(wire: Arc<Wire>, is_on: bool, removes: bool) -> Arc<Late> {
        let is_on = is_on && wire.cache.is_on();
        let (state, unmade, removing) = Default::default();
        Arc::new(Late { wire, is_on, removes, state, unmade, removing })
    }

    /// The bit with which a file is created, to be alone with it.
    pub fn access(&self) -> u8 {
        if self.is_on { access::ALONE } else { 0 }
    }

    /// A request was answered: it may have made a file.
    pub fn learn(&self, op: &Op, answered: &Answered) {
        let Op::Create { parent, access: asked, .. } = op else { return };
        let Reply::Created { inode, created: true } = &answered.reply else { return };
        let is_asked = asked & access::ALONE != 0 && answered.grant > 0 && inode.is_regular();
        let mut state = self.lock();
        if !is_asked || answered.grant < state.revoked {
            return;
        }
        if state.has_room(self) {
            let until = Some(answered.asked + LEASE_TIME);
            state.files.insert(inode.id, Alone::new(inode.clone(), *parent, until));
        }
    }

    /// A change was made at once, and answered: the files of which it may tell have another version.
    pub fn changed(&self, task: &Task, answered: &Answered) {
        if !self.is_on || task.change.is_none() {
            return;
        }
        let makes = matches!(task.op, Op::Create { .. } | Op::CreateWrite { .. });
        let told = match &answered.reply {
            Reply::Node { inode } | Reply::Created { inode, .. } => Some(inode),
            _ => None,
        };
        let mut state = self.lock();
        if let Op::Link { parent, .. } | Op::Unlink { parent, .. } = task.op {
            state.renewed(&self.wire, parent, answered);
        }
        let (concern, moves) = (concern(&task.op), matches!(task.op, Op::Rename { .. }));
        // Of a directory only that is said which nobody else may have changed.
        for (id, file) in state.files.iter_mut().filter(|(_, file)| !file.inode.is_dir()) {
            // Which one, is not known.
            file.is_moved |= moves;
            let is_meant = match concern {
                Concern::Nothing | Concern::Being(_) | Concern::Name(..) => false,
                Concern::One(one) => one == *id,
                Concern::All => !makes,
            };
            match told.filter(|inode| inode.id == *id) {
                Some(inode) if inode.version < file.inode.version => {}
                // It does not tell of what was done here since.
                Some(inode) if file.has_to_say() || inode.nlink < file.inode.nlink => {
                    file.inode.version = inode.version;
                }
                Some(inode) => file.inode = inode.clone(),
                // Which one, nobody has said.
                None if is_meant => file.inode.version = 0,
                None => {}
            }
        }
    }

    /// Keeps a write, of `data` at its piece; false when it has to be said at once.
    pub fn write(self: &Arc<Self>, caller: &Caller, id: Id, new: Write, data: &[u8]) -> bool {
        if !self.is_on {
            return false;
        }
        let now = self.wire.net.now();
        let mut state = self.lock();
        let Some(file) = state.files.get_mut(&id) else { return false };
        let has_room = file.kept_bytes() + data.len() <= self.bytes_max();
        // One that is made is made with what lies with it.
        let inline = file.inode.inline_max();
        let is_beyond = file.place.is_some() && (new.end > inline || new.piece.bytes == 0);
        if !has_room || is_beyond || !file.takes(caller, now) || new.epoch != file.inode.epoch {
            return false;
        }
        match file.kept.as_ref().map(|kept| (&kept.write, kept.set.mask)) {
            None | Some((None, 0)) => {}
            // It goes on where the last one ended.
            Some((Some(write), 0)) if write.is_followed_by(&new) || write.is_grown_by(&new) => {}
            Some(_) => return false,
        }
        file.inode.size = file.inode.size.max(new.end);
        file.is_closed = false;
        let kept = self.kept(file, caller, id, now);
        match &mut kept.write {
            Some(write) => write.follow(&new),
            none => *none = Some(new),
        }
        kept.data.extend_from_slice(data);
        self.watch(&mut state);
        true
    }

    /// Bytes of one file that are kept: what one request holds.
    fn bytes_max(&self) -> usize {
        self.wire.link.payload_max().saturating_sub(REQUEST_BYTES) as usize
    }

    /// Keeps attributes; the inode that comes of it but for its times, none when they have to be set
    /// at once.
    pub fn set(
        self: &Arc<Self>,
        caller: &Caller,
        id: Id,
        new: Set,
        is_open: bool,
    ) -> Option<Inode> {
        if !self.is_on || new.mask == 0 || new.mask & !MASK != 0 {
            return None;
        }
        let now = self.wire.net.now();
        let mut state = self.lock();
        if !state.files.contains_key(&id) {
            state.enter_dir(self, caller, id, &new, now)?;
        }
        let file = state.files.get_mut(&id).filter(|file| file.takes(caller, now))?;
        if !(is_open || file.inode.is_dir()) || !may_set(caller, &file.inode, &new) {
            return None;
        }
        if new.mask & set::MODE != 0 {
            file.inode.mode = file.inode.type_bits() | new.mode & !PRIVILEGE;
        }
        let given = |field, present| new.mask & (field | present) == field;
        if given(set::ATIME, set::ATIME_NOW) {
            file.inode.atime = new.atime;
        }
        if given(set::MTIME, set::MTIME_NOW) {
            file.inode.mtime = new.mtime;
        }
        let inode = file.inode.clone();
        self.kept(file, caller, id, now).set.add(new);
        let inode = state.was_set(inode);
        self.watch(&mut state);
        Some(inode)
    }

    fn kept<'a>(&self, file: &'a mut Alone, caller: &Caller, id: Id, now: Instant) -> &'a mut Kept {
        file.kept.get_or_insert_with(|| Kept {
            caller: caller.clone(),
            made: None,
            write: None,
            data: Vec::new(),
            set: Set::default(),
            sent: self.wire.cache.sending(&amendment(id, None, Vec::new(), Set::default()), now),
            since: now,
        })
    }

    /// Whether something has to be said before an operation.
    pub fn has_to_say_before(&self, op: &Op) -> bool {
        self.is_on && {
            let state = self.lock();
            let concern = concern(op);
            let is_any = |(id, file): (&Id, &Alone)| file.has_to_say() && file.is_in(*id, &concern);
            state.files.iter().any(is_any) || !state.removing(&concern).is_empty()
        }
    }

    /// Says what has to be said before an operation.
    pub async fn before(self: &Arc<Self>, op: &Op) -> Result<()> {
        if !self.is_on {
            return Ok(());
        }
        let concern = concern(op);
        self.settle(&concern).await;
        self.names_failed(op)?;
        self.was_made(&match (op, concern) {
            // A directory that was synced has all names that were made in it.
            (Op::Fsync { id }, _) => Concern::One(*id),
            (_, Concern::One(id) | Concern::Being(id)) => Concern::Being(id),
            _ => Concern::Nothing,
        })
    }

    /// Refuses what is the first to tell what became of names in its directories that were answered before.
    fn names_failed(&self, op: &Op) -> Result<()> {
        let changes = op.changes();
        let synced = if let Op::Fsync { id } = op { Some(*id) } else { None };
        let named = changes.made.iter().chain(&changes.moved).map(|(dir, _)| *dir);
        let mut dirs = named.chain(synced).peekable();
        if dirs.peek().is_none() {
            return Ok(());
        }
        let mut state = self.lock();
        dirs.try_for_each(|dir| state.removals_failed(dir))?;
        // What was refused may have been the other name of what this takes away.
        if matches!(op, Op::Unlink { .. } | Op::Rename { .. }) {
            state.any_failed()
        } else {
            Ok(())
        }
    }

    /// The last handle was closed of a file that was not made.
    pub fn is_closed(&self, id: Id) {
        let mut state = self.lock();
        if state.files.get(&id).is_some_and(|file| file.was_refused().is_some()) {
            state.files.remove(&id);
            self.unmade.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// The server has been told of the file: so there is something for the I/O servers to hold.
    pub async fn is_made(self: &Arc<Self>, id: Id) -> Result<()> {
        if self.unmade.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        self.settle(&Concern::Being(id)).await;
        self.was_made(&Concern::Being(id))
    }

    /// Refuses what concerns a file that was not made after all: nobody else can say why.
    fn was_made(&self, concern: &Concern<'_>) -> Result<()> {
        if self.unmade.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let state = self.lock();
        let refused = match concern {
            Concern::Being(id) => state.files.get(id).and_then(Alone::was_refused),
            concern => {
                let mut files = state.files.iter();
                files.find_map(|(id, file)| file.was_refused().filter(|_| file.is_in(*id, concern)))
            }
        };
        refused.map_or(Ok(()), Err)
    }

    /// Says what is kept of these files.
    async fn settle(self: &Arc<Self>, concern: &Concern<'_>) {
        let going: Vec<Going> = {
            let mut state = self.lock();
            let ids = match concern {
                Concern::Nothing => return,
                Concern::Being(id) => vec![*id],
                // Most often there is nothing in it.
                Concern::One(id) if self.unmade.load(Ordering::Acquire) == 0 => vec![*id],
                _ => state.concerned(concern),
            };
            let mut going = self.say_names_of(&mut state, concern);
            going.extend(ids.into_iter().filter_map(|id| self.say(&mut state, id, false)));
            going
        };
        join_all(going).await;
    }

    /// Says all that is kept.
    pub async fn settle_all(self: &Arc<Self>) {
        self.settle(&Concern::All).await;
    }

    /// The file is closed or synced: all of it is said, and whether all of that was done.
    pub async fn finish(self: &Arc<Self>, id: Id) -> Result<()> {
        if !self.is_on {
            return Ok(());
        }
        // Nothing may be kept any more before what is kept has gone.
        let going = {
            let mut state = self.lock();
            let is_kept = state.stays_alone(id, self.wire.net.now());
            let Some(file) = state.files.get_mut(&id) else { return Ok(()) };
            file.until = file.until.filter(|_| is_kept);
            file.only_names |= is_kept;
            self.say(&mut state, id, !is_kept)
        };
        if let Some(going) = going {
            going.await;
        }
        let mut state = self.lock();
        let Some(file) = state.files.get_mut(&id) else { return Ok(()) };
        if let Some(error) = file.was_refused() {
            return Err(error);
        }
        let failed = file.failed.take();
        if file.is_over() {
            state.files.remove(&id);
        }
        failed.map_or(Ok(()), |(error, _)| Err(error))
    }

    /// Leases are taken back: says what was done under them. Answers what else others may change from then on, although no lease
    /// on it was granted: the files that were made in these directories.
    pub async fn revoke(self: &Arc<Self>, number: u64, leases: &[Lease]) -> Vec<Lease> {
        let mut made = Vec::new();
        let said: Vec<Going> = {
            let (now, mut state) = (self.wire.net.now(), self.lock());
            state.revoked = state.revoked.max(number);
            let mut said = Vec::new();
            let revoked = leases.iter().filter(|lease| !lease.place).map(|lease| lease.id);
            let revoked: HashSet<Id> = revoked.collect();
            revoked.iter().for_each(|id| state.take_back(*id, now));
            let bare = state.bare.iter().filter(|(_, dir, _)| revoked.contains(dir));
            let is_in = |id: &Id, file: &Alone| {
                revoked.contains(id)
                    || file.place.as_ref().is_some_and(|(dir, _)| revoked.contains(dir))
            };
            let files = state.files.iter().filter(|(id, file)| is_in(id, file)).map(|(id, _)| *id);
            let files: Vec<Id> = files.collect();
            made.extend(bare.map(|(id, ..)| *id).chain(files.iter().copied()));
            let dirs = state.take_back_removals(&revoked, now);
            said.extend(self.say_names(&mut state, &dirs));
            for id in files {
                state.files.get_mut(&id).into_iter().for_each(|file| file.until = None);
                said.extend(self.say(&mut state, id, true));
            }
            said
        };
        join_all(said).await;
        made.into_iter().map(|id| Lease { id, place: false }).collect()
    }

    /// Sends what is kept of a file, beside whoever waits for it: that may be given up.
    fn say(self: &Arc<Self>, state: &mut State, id: Id, is_last: bool) -> Option<Going> {
        let before = self.say_before(state, id);
        let file = state.files.get_mut(&id)?;
        let Some(kept) = file.kept.take() else { return file.going.clone() };
        state.closed_bytes -= std::mem::take(&mut file.closed_bytes);
        let is_last = is_last || file.is_closed;
        if is_last {
            file.until = None;
        }
        let mut op = match &kept.made {
            Some(made) => made.op(kept.write, kept.data, kept.set),
            None => amendment(id, kept.write, kept.data, kept.set),
        };
        match &mut op {
            Op::Amend { last, mask, uid, gid, .. } => {
                *last = is_last;
                if file.inode.version != 0 {
                    *mask = settings::at_version(*mask);
                    (*uid, *gid) = set::in_fields(file.inode.version);
                }
            }
            Op::Make { last, .. } => *last = is_last,
            _ => {}
        }
        let change = Some(Change::new(&self.wire.memory));
        let mut task = Task { begun: Some(kept.sent), ..Task::new(kept.caller, op, change, None) };
        let (late, opened) = (self.clone(), kept.made.map(|made| made.opened));
        let as_before = file.dir_before();
        let saying: BoxFuture<()> = Box::pin(async move {
            join_all(before).await;
            let mut said = late.wire.send(&mut task).await;
            // A greeting that has begun since did not tell of the open: then it is said again.
            while let (Ok(answered), Some(opened)) = (&said, &opened)
                && !opened.is_counted(answered.greetings)
            {
                match late.wire.send(&mut task).await {
                    Ok(again) => said = Ok(again),
                    Err(_) => {
                        // It is made.
                        opened.is_to_be_told();
                        break;
                    }
                }
            }
            if let Some(before) = &as_before {
                said = late.set_again(said, &task, before).await;
            }
            // It was not even sent.
            task.begun.take().into_iter().for_each(|sent| late.wire.cache.failed(sent));
            let may_be_made = match &said {
                Ok(_) | Err(Error::Forgotten) => true,
                Err(error) => task.sent > 0 && task.may_be_done(error),
            };
            if let (Err(_), true, Some(opened)) = (&said, may_be_made, &opened) {
                opened.is_to_be_told();
            }
            late.was_said(id, said, may_be_made);
            // Not before: whoever has closed it meanwhile leaves that to be told.
            drop(opened);
        });
        let going = saying.shared();
        file.going = Some(going.clone());
        self.wire.net.spawn(Box::pin(going.clone()));
        Some(going)
    }

    /// What was said of a file is done, or is not.
    fn was_said(&self, id: Id, said: Result<Answered>, may_be_made: bool) {
        let now = self.wire.net.now();
        let mut state = self.lock();
        let (revoked, greetings) = (state.revoked, self.wire.memory.greetings());
        if state.files.get(&id).is_some_and(|file| file.inode.is_dir()) {
            return state.dir_was_said(&self.wire, id, said, now);
        }
        let Some(file) = state.files.get_mut(&id) else { return };
        file.going = None;
        // From here on the server says whether there is such a file.
        let dir = file.place.take_if(|_| may_be_made).map(|(dir, _)| dir);
        self.unmade.fetch_sub(usize::from(dir.is_some()), Ordering::AcqRel);
        match said {
            Ok(Answered { reply: Reply::Node { inode }, .. }) => file.inode = inode,
            Ok(Answered { reply: Reply::Created { inode, .. }, grant, asked, greetings: then }) => {
                let is_granted = grant > 0 && grant >= revoked;
                file.until = file.until.and(is_granted.then_some(asked + LEASE_TIME));
                file.inode = inode.clone();
                match dir {
                    Some(dir) if !is_granted => {
                        state.bare.retain(|(.., at)| now.duration_since(*at) < LEASE_TIME);
                        state.bare.push((id, dir, now));
                    }
                    Some(dir) if then == greetings => state.renew_dir(dir, asked, now, &inode),
                    _ => {}
                }
            }
            Ok(answered) => file.failed = Some((super::unexpected(&answered.reply), now)),
            Err(error) => {
                file.failed = Some((error.clone(), now));
                // Nobody is left to close it, or to sync it.
                let home = file.home;
                if file.is_closed
                    && let Some(dir) = state.dir(home, now)
                {
                    dir.removals.fail(error, now);
                }
            }
        }
    }

    /// Has what is kept said when it is old enough.
    fn watch(self: &Arc<Self>, state: &mut State) {
        if std::mem::replace(&mut state.is_watched, true) {
            return;
        }
        let late = Arc::downgrade(self);
        let net = self.wire.net.clone();
        self.wire.net.spawn(Box::pin(async move {
            loop {
                net.sleep(AGE_MAX).await;
                let Some(late) = late.upgrade() else { return };
                if !late.look() {
                    return;
                }
            }
        }));
    }

    /// Says what is old, and forgets what is over; whether to look again.
    fn look(self: &Arc<Self>) -> bool {
        let now = self.wire.net.now();
        let mut state = self.lock();
        let is_old = |kept: &Kept| now.duration_since(kept.since) >= AGE_MAX / 2;
        let old = state.files.iter().filter(|(_, file)| file.kept.as_ref().is_some_and(is_old));
        let old: Vec<Id> = old.map(|(id, _)| *id).collect();
        for id in old {
            self.say(&mut state, id, false);
        }
        state.forget_ended(self, now);
        let is_removing = self.look_at_removals(&mut state, now);
        state.is_watched = is_removing || state.files.values().any(|file| file.kept.is_some());
        state.is_watched
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }
}

impl State {
    /// Whether one more file can be kept track of.
    fn has_room(&mut self, late: &Late) -> bool {
        if self.files.len() >= FILES_MAX {
            self.forget_ended(late, late.wire.net.now());
        }
        self.files.len() < FILES_MAX
    }

    /// The files that an operation concerns.
    fn concerned(&self, concern: &Concern<'_>) -> Vec<Id> {
        let files = self.files.iter().filter(|(id, file)| file.is_in(**id, concern));
        files.map(|(id, _)| *id).collect()
    }

    /// Forgets files that this client is alone with no longer, and of which nothing is left to say.
    fn forget_ended(&mut self, late: &Late, now: Instant) {
        let is_open = |id: &Id| late.wire.memory.is_open(*id);
        self.files.retain(|id, file| {
            file.until = file.until.filter(|&until| now < until);
            // One that was not made goes with its handle.
            let is_used = is_open(id) || file.place.is_some();
            let is_kept =
                |(_, at): &(Error, Instant)| is_used || now.duration_since(*at) < ERROR_KEPT;
            file.failed = file.failed.take().filter(is_kept);
            !file.is_over()
        });
        let unmade = self.files.values().filter(|file| file.place.is_some());
        late.unmade.store(unmade.count(), Ordering::Release);
    }
}
