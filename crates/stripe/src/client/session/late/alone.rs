//! A file of this client's own making that nobody else knows.

use super::kept::{Kept, is_same};
use super::{Concern, Going, MARGIN};
use crate::client::Error;
use crate::ops::{Caller, Id, Inode};
use covey_wire::Name;
use std::time::Instant;

/// A file of this client's own making.
pub(super) struct Alone {
    /// This client is alone with it until then; none when that is over.
    pub until: Option<Instant>,
    pub inode: Inode,
    /// The directory that it was made in.
    pub home: Id,
    /// Of a directory: its mode before anything was set here.
    pub mode_before: u32,
    /// It was closed, or has got other names since: nothing else of it changes late any more.
    pub only_names: bool,
    /// It has got other names since.
    pub is_linked: bool,
    /// It may be in another directory by now.
    pub is_moved: bool,
    /// It was closed, and that was answered, before the server was told of it.
    pub is_closed: bool,
    /// Bytes of it that count as kept of a closed file.
    pub closed_bytes: usize,
    /// The directory and name of one that the server has yet to be told of, or has refused.
    pub place: Option<(Id, Name)>,
    pub kept: Option<Kept>,
    /// What is being said.
    pub going: Option<Going>,
    /// What became of it, untold.
    pub failed: Option<(Error, Instant)>,
}

impl Alone {
    pub fn new(inode: Inode, home: Id, until: Option<Instant>) -> Alone {
        let (place, kept, going, failed) = Default::default();
        let (only_names, is_linked, is_moved, is_closed, closed_bytes) = Default::default();
        let mode_before = inode.mode;
        Alone {
            until,
            inode,
            home,
            mode_before,
            only_names,
            is_linked,
            is_moved,
            is_closed,
            closed_bytes,
            place,
            kept,
            going,
            failed,
        }
    }

    /// A directory as it was before anything was set here.
    pub fn dir_before(&self) -> Option<Inode> {
        let before = || Inode { mode: self.mode_before, ..self.inode.clone() };
        self.inode.is_dir().then(before)
    }

    /// Whether something more may be kept on behalf of the caller.
    pub fn takes(&self, caller: &Caller, now: Instant) -> bool {
        let is_same = self.kept.as_ref().is_none_or(|kept| is_same(&kept.caller, caller));
        is_same && !self.only_names && self.is_quiet(now)
    }

    /// Whether it was made in this directory, and was not moved.
    pub fn is_at_home(&self, dir: Id) -> bool {
        self.home == dir && !self.is_moved
    }

    /// Whether this client is alone with it, and knows all of it.
    pub fn is_known(&self, now: Instant) -> bool {
        // Something else of this client's may have changed it since where the version is not known.
        self.is_quiet(now) && self.inode.version != 0
    }

    /// Whether this client is alone with it, and nothing of it is being said.
    pub fn is_quiet(&self, now: Instant) -> bool {
        let is_alone = self.until.is_some_and(|until| now + MARGIN < until);
        is_alone && self.going.is_none() && self.failed.is_none()
    }

    /// Why it was not made.
    pub fn was_refused(&self) -> Option<Error> {
        let (error, _) = self.failed.as_ref().filter(|_| self.place.is_some())?;
        Some(error.clone())
    }

    pub fn has_to_say(&self) -> bool {
        self.kept.is_some() || self.going.is_some()
    }

    /// Whether this is one of the files that an operation concerns.
    pub fn is_in(&self, id: Id, concern: &Concern<'_>) -> bool {
        let place = self.place.as_ref();
        match *concern {
            Concern::Nothing => false,
            Concern::Being(one) => one == id && place.is_some(),
            Concern::Name(dir, name) => {
                // What is set of a directory decides what is made in it.
                let is_dir = id == dir && self.inode.is_dir();
                is_dir || place.is_some_and(|(within, made)| *within == dir && made == name)
            }
            Concern::One(one) => one == id || place.is_some_and(|(within, _)| *within == one),
            Concern::All => true,
        }
    }

    pub fn kept_bytes(&self) -> usize {
        self.kept.as_ref().map_or(0, |kept| kept.data.len())
    }

    pub fn is_over(&self) -> bool {
        let is_idle = self.kept.is_none() && self.going.is_none();
        self.until.is_none() && is_idle && self.failed.is_none()
    }
}
