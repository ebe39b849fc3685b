//! Directories that this client makes: it is alone with them from then on.
//!
//! Who makes a directory most often fills it next, and sets its attributes when that is done. So the request that makes it
//! leaves the client alone with it as well ([`Op::MakeDir`]), and brings numbers for the files. Where others want it before
//! anything was done in it, that was in vain: then directories are made as anything else is, for a while.

use super::dirs::{NUMBERS_FIRST, Rest};
use super::{Answered, Error, Late, Result};
use crate::client::session::{REFUSED, Session, unexpected};
use crate::meta::lease::LEASE_TIME;
use crate::ops::{Caller, Id, Inode, Op, Reply};
use covey_wire::Name;
use std::time::Instant;

/// When directories are not made so.
#[derive(Default)]
pub(super) struct MadeDirs {
    rest: Rest,
    /// The server does not know the request.
    refused_until: Option<Instant>,
}

impl MadeDirs {
    fn may_be_asked_for(&self, now: Instant) -> bool {
        self.rest.is_over(now) && self.refused_until.is_none_or(|until| until <= now)
    }

    /// One was taken back in which something was done.
    pub fn has_paid(&mut self) {
        self.rest.has_paid();
    }

    /// One was taken back before anything was done in it, or was not this client's alone to begin with. Several at a time count
    /// once.
    pub fn was_in_vain(&mut self, now: Instant) {
        if self.rest.is_over(now) {
            self.rest.begin(now);
        }
    }
}

impl Session {
    /// Makes a directory, as Create does, and is alone with it then, if that may be. None where it is to be made otherwise.
    pub async fn make_dir(
        &self,
        caller: &Caller,
        parent: Id,
        name: &Name,
        mode: u32,
    ) -> Result<Option<Inode>> {
        if !self.late.may_make_dirs() {
            return Ok(None);
        }
        let (name, gid, count) = (name.clone(), caller.gid, NUMBERS_FIRST);
        let op = Op::MakeDir { parent, name, mode, gid, count };
        let mut task = self.task(caller, op);
        match self.send(&mut task).await {
            Ok(answered) => self.late.has_made_dir(answered).map(Some),
            // By a server that does not know it, or it says the same of Create. What was not sent has met with what became of
            // something done before, which nobody says again.
            Err(error) if task.sent > 0 && error.is_unknown() => {
                let until = self.wire.net.now() + REFUSED;
                self.late.lock().made_dirs.refused_until = Some(until);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

impl Late {
    fn may_make_dirs(&self) -> bool {
        if !self.is_on {
            return false;
        }
        let (now, mut state) = (self.wire.net.now(), self.lock());
        let is_refused = state.refused_until.is_some_and(|until| now < until);
        !is_refused && state.made_dirs.may_be_asked_for(now) && state.has_room_for_dirs(now)
    }

    fn has_made_dir(&self, answered: Answered) -> Result<Inode> {
        let (now, mut state) = (self.wire.net.now(), self.lock());
        state.meet_greeting(&self.wire);
        let is_granted = state.is_granted(&self.wire, &answered);
        if !is_granted {
            state.made_dirs.was_in_vain(now);
        }
        let Reply::Alone { dir: made, first, stripings, now: time } = answered.reply else {
            return Err(unexpected(&answered.reply));
        };
        if first == 0 {
            state.refused_until = Some(now + REFUSED);
        }
        let most = u64::from(NUMBERS_FIRST);
        let is_odd = stripings.0.len() as u64 > most || first.checked_add(most).is_none();
        if !made.is_dir() || is_odd {
            let text = format!("directory {} came with impossible numbers", made.id);
            return Err(Error::Odd(text));
        }
        // Another of this client may have been told of it meanwhile, and be changing it.
        let is_as_made = |known: Inode| known.version == made.version;
        let is_known = self.wire.cache.inode(made.id, now).is_some_and(is_as_made);
        if is_granted && is_known && !state.is_file_changing(made.id) && !stripings.0.is_empty() {
            let numbers = (first..).zip(stripings.0);
            let until = answered.asked + LEASE_TIME;
            state.is_made_dir(made.clone(), numbers, (until, now, time));
        }
        Ok(made)
    }
}
