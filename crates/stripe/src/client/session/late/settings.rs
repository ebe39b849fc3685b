//! Attributes of directories that this client is alone with: set late, as those of files of its own making.
//!
//! Who copies a tree sets owner, times and mode of each directory when all that belongs there is in it: three requests that
//! nobody else sees anything of. They are kept as one, which is said after all names that were changed in the directory
//! before, since those change its times; names that are changed there after that are changed at once, when it was said.
//! A server that does not know that this client is alone refuses it: it may have started anew, or the client was cut off.
//! Then they are set if the directory is what it was here before.

use super::{
    Alone, Answered, Concern, Dir, ERROR_KEPT, Going, Late, Result, Set, State, Wire, may_set,
};
use crate::client::Error;
use crate::client::session::{Change, Task, unexpected};
use crate::ops::{Caller, Id, Inode, Op, Reply, set};
use covey_ninep::tree::Errno;
use std::sync::Arc;
use std::time::Instant;

/// Of an amendment that is to be refused to whoever is not alone: no file has this version.
const NO_VERSION: u64 = u64::MAX;

/// What is set of one directory.
#[derive(Default)]
pub(super) struct Settings {
    is_kept: bool,
    /// What became of it, untold.
    pub failed: Option<(Error, Instant)>,
}

impl Settings {
    pub fn are_kept(&mut self) {
        self.is_kept = true;
    }

    pub fn take_failed(&mut self) -> Option<(Error, Instant)> {
        self.failed.take()
    }

    /// Whether there is nothing to remember of it.
    pub fn is_over(&self, now: Instant) -> bool {
        let is_kept = |(_, at): &(Error, Instant)| now.duration_since(*at) < ERROR_KEPT;
        !self.is_kept && !self.failed.as_ref().is_some_and(is_kept)
    }
}

impl State {
    /// Takes a directory among the files of which something is kept, if it is one whose attributes may be set here so.
    pub(super) fn enter_dir(
        &mut self,
        late: &Late,
        caller: &Caller,
        id: Id,
        new: &Set,
        now: Instant,
    ) -> Option<()> {
        if !late.removes {
            return None;
        }
        self.meet_greeting(&late.wire);
        let dir = self.dirs.get(&id)?;
        let until = dir.takes_settings(now)?;
        let inode = dir.inode().filter(|inode| may_set(caller, inode, new))?.clone();
        if self.is_file_changing(id) || self.changes_any > 0 || !self.has_room(late) {
            return None;
        }
        self.dirs.get_mut(&id).into_iter().for_each(Dir::is_used);
        let inode = Inode { version: NO_VERSION, ..inode };
        self.files.insert(id, Alone::new(inode, id, Some(until)));
        Some(())
    }

    /// What was said of a directory is done, or is not: whoever changes a name in it next, or syncs it, hears of that.
    pub(super) fn dir_was_said(
        &mut self,
        wire: &Wire,
        id: Id,
        said: Result<Answered>,
        now: Instant,
    ) {
        self.files.remove(&id);
        let Some(dir) = self.dirs.get_mut(&id) else { return };
        dir.settings.is_kept = false;
        match said {
            Ok(answered) => {
                if let Reply::Node { inode } = &answered.reply {
                    dir.is_told(inode.clone());
                }
                self.renewed(wire, id, &answered);
            }
            Err(error) => {
                dir.settings.failed = Some((error, now));
                dir.forget();
            }
        }
    }

    /// What came of attributes that were set here. Files that are made in a directory go by what it has now.
    pub(super) fn was_set(&mut self, inode: Inode) -> Inode {
        let dir = self.dirs.get_mut(&inode.id).filter(|_| inode.is_dir());
        let known = dir.and_then(|dir| dir.is_set(&inode));
        known.cloned().unwrap_or(inode)
    }
}

impl Late {
    /// The mode of a file that this client is alone with.
    pub fn mode(&self, id: Id) -> Option<u32> {
        let now = self.wire.net.now();
        let state = self.lock();
        let file = state.files.get(&id).filter(|file| file.is_quiet(now))?;
        Some(file.inode.mode)
    }

    /// Says what is kept of a file, or a directory; whether anything was.
    pub async fn tell(self: &Arc<Self>, id: Id) -> bool {
        let has_to_say = self.is_on && self.lock().files.get(&id).is_some_and(Alone::has_to_say);
        if has_to_say {
            self.settle(&Concern::One(id)).await;
        }
        has_to_say
    }

    /// Sets attributes of a directory that this client was alone with when it was asked to, and is not any more, as was said.
    /// ESTALE where somebody else has changed it since.
    pub(super) async fn set_again(
        &self,
        said: Result<Answered>,
        task: &Task,
        before: &Inode,
    ) -> Result<Answered> {
        let &Op::Amend { id, mask, mode, atime, mtime, .. } = &task.op else { return said };
        if !said.as_ref().is_err_and(|error| error.code() == Errno::ESTALE) {
            return said;
        }
        let mut look = Task::new(Caller::default(), Op::Getattr { id }, None, None);
        let answered = self.wire.send(&mut look).await?;
        let Reply::Node { inode } = &answered.reply else {
            return Err(unexpected(&answered.reply));
        };
        if (inode.mode, inode.uid, inode.gid) != (before.mode, before.uid, before.gid) {
            let text = format!("directory {id} was changed before what was set of it was told");
            return Err(Error::because(Errno::ESTALE, text));
        }
        let mask = mask & !set::AT_VERSION;
        let op = Op::Setattr { id, mask, mode, uid: 0, gid: 0, size: 0, atime, mtime };
        let change = Some(Change::new(&self.wire.memory));
        self.wire.send(&mut Task::new(task.caller.clone(), op, change, None)).await
    }

    /// Says what is to be done in a directory before its attributes are set.
    pub(super) fn say_before(self: &Arc<Self>, state: &mut State, id: Id) -> Vec<Going> {
        if !state.files.get(&id).is_some_and(|file| file.inode.is_dir()) {
            return Vec::new();
        }
        let is_in = |file: &Alone| file.place.as_ref().is_some_and(|(dir, _)| *dir == id);
        let made = state.files.iter().filter(|(_, file)| is_in(file) && file.has_to_say());
        let made: Vec<Id> = made.map(|(id, _)| *id).collect();
        let mut going = self.say_names(state, &[id]);
        going.extend(made.into_iter().filter_map(|id| self.say(state, id, false)));
        going
    }
}

/// Bits of an amendment by which it is applied only to what has this version, or whoever asks is alone with.
pub(super) fn at_version(mask: u32) -> u32 {
    // The owner stays who it is.
    mask & !(set::UID | set::GID) | set::AT_VERSION
}
