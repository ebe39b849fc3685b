//! Names that this client gives to files of its own making, in a directory that it is alone with: said late.
//!
//! Git, rsync and many others write a file by a name that nobody looks for, and give it its own name when it is whole: a link
//! and the removal of the first name. Where a client does so it stays alone with the next files that it makes when they
//! are closed, and both are answered here: nobody else knows the file by any name before the directory is taken back. They are
//! said in their order with others of the directory, as one [`Op::Names`].
//!
//! What could refuse a link is known here but for want of space: for that a server that has become full keeps some room, and
//! takes the directories back at once.

use super::removals::Step;
use super::{Late, Result, State};
use crate::client::session::{Answered, Change, Session, Task};
use crate::meta::{LINKS_MAX, access, may};
use crate::ops::{Caller, Id, Inode, Op, Reply, step};
use covey_wire::{List, Name};
use std::sync::Arc;
use std::time::Instant;

/// How many files this client stays alone with when they are closed, none of which gets another name.
const LINKERS: u8 = 16;

impl Session {
    /// Gives a file another name late, if that may be: the inode that comes of it.
    pub async fn link_late(
        &self,
        caller: &Caller,
        id: Id,
        parent: Id,
        name: &Name,
    ) -> Result<Option<Inode>> {
        self.late.link(caller, id, parent, name).await
    }
}

impl State {
    /// A file of this client's own making that has got a name since, of which the server has yet to be told.
    pub(super) fn linked(&self, id: Id, now: Instant) -> Option<Inode> {
        let file = self.files.get(&id).filter(|file| file.is_linked && file.is_known(now))?;
        Some(file.inode.clone())
    }

    /// Whether this client stays alone with a file that is closed: it is about to get another name.
    pub(super) fn stays_alone(&mut self, id: Id, now: Instant) -> bool {
        let Some(file) = self.files.get(&id) else { return false };
        let has_room = self.dirs.get(&file.home).is_some_and(|dir| dir.takes_links(now));
        let stays = has_room && !file.is_linked && (file.only_names || self.linkers > 0);
        self.linkers -= u8::from(stays && !file.only_names);
        stays
    }
}

impl Late {
    async fn link(
        self: &Arc<Self>,
        caller: &Caller,
        id: Id,
        parent: Id,
        name: &Name,
    ) -> Result<Option<Inode>> {
        if !(self.is_on && self.removes) {
            return Ok(None);
        }
        self.lock().removals_failed(parent)?;
        // One that was closed late is told of first.
        self.is_made(id).await?;
        let may_link = self.may_link(id, parent) && self.knows_names().await?;
        Ok(if may_link { self.link_now(caller, id, parent, name) } else { None })
    }

    /// Whether a file may get a name in a directory here, as far as both are concerned.
    fn may_link(&self, id: Id, parent: Id) -> bool {
        let now = self.wire.net.now();
        let mut state = self.lock();
        state.meet_greeting(&self.wire);
        if !state.dirs.get(&parent).is_some_and(|dir| dir.takes_links(now)) {
            return false;
        }
        // The next ones may be.
        state.linkers = LINKERS;
        state.files.get(&id).is_some_and(|file| file.is_at_home(parent) && file.is_known(now))
    }

    /// Whether the server knows [`Op::Names`]: it is asked once.
    pub(super) async fn knows_names(&self) -> Result<bool> {
        let known = {
            let mut state = self.lock();
            state.meet_greeting(&self.wire);
            state.knows_names
        };
        if let Some(known) = known {
            return Ok(known);
        }
        let (dirs, ids) = (List(Vec::new()), List(Vec::new()));
        let op = Op::Names { dirs, steps: List(Vec::new()), ids, names: List(Vec::new()) };
        let change = Some(Change::new(&self.wire.memory));
        let mut task = Task::new(Caller::default(), op, change, None);
        let answered = self.wire.send(&mut task).await;
        let (known, greetings) = match answered {
            Ok(Answered { reply: Reply::Steps { .. }, greetings, .. }) => (true, greetings),
            Err(error) if error.is_away() => return Err(error),
            Err(error) if error.is_unknown() => (false, self.wire.memory.greetings()),
            _ => return Ok(false),
        };
        let mut state = self.lock();
        state.meet_greeting(&self.wire);
        // Another server may have greeted since.
        if greetings == self.wire.memory.greetings() {
            state.knows_names = Some(known);
        }
        Ok(known)
    }

    fn link_now(
        self: &Arc<Self>,
        caller: &Caller,
        id: Id,
        parent: Id,
        name: &Name,
    ) -> Option<Inode> {
        let now = self.wire.net.now();
        let mut state = self.lock();
        state.meet_greeting(&self.wire);
        let is_changing = state.is_changing(parent, name) || state.is_file_changing(id);
        let is_elsewhere = state.is_elsewhere(id, parent);
        if is_changing || is_elsewhere || !self.leads_nowhere(caller, parent, name) {
            return None;
        }
        let State { dirs, files, .. } = &mut *state;
        let file =
            files.get_mut(&id).filter(|file| file.is_at_home(parent) && file.is_known(now))?;
        let dir = dirs.get_mut(&parent).filter(|dir| dir.takes_links(now))?;
        let within = dir.inode()?;
        let may_enter = may(caller, within, access::WRITE | access::EXECUTE);
        if file.has_to_say() || !may_enter || !(1..LINKS_MAX).contains(&file.inode.nlink) {
            return None;
        }
        let at = dir.time(now);
        let step = Step { step: step::LINK, id, name: name.clone() };
        if !self.gather(dir, parent, caller, step, now) {
            return None;
        }
        (file.is_linked, file.only_names) = (true, true);
        (file.inode.nlink, file.inode.ctime) = (file.inode.nlink + 1, at);
        let inode = file.inode.clone();
        self.watch(&mut state);
        Some(inode)
    }
}
