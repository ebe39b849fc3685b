//! What is known of one file.

use super::ahead::Ahead;
use crate::distribution::INLINE_BYTES_DEFAULT;
use crate::ops::{Id, Inode};
use covey_wire::{Bytes, Name};
use std::collections::HashMap;
use std::time::Instant;

pub(super) struct Known {
    /// The end of the lease on what it is and holds, unless it was taken back.
    pub until: Option<Instant>,
    /// The same for where a directory is.
    pub place_until: Option<Instant>,
    /// Type, owner and permission bits hold throughout the lease. So does all else while it is exact.
    pub inode: Inode,
    /// When the attributes were learnt; 0 when they have changed since.
    exact: u64,
    /// All that lies with the inode, while the attributes are exact.
    content: Option<Bytes>,
    /// Where it was found last.
    pub found: Option<Found>,
    pub names: Names,
}

/// A name by which a file was found.
#[derive(Clone)]
pub(super) struct Found {
    pub dir: Id,
    pub name: Name,
    /// It was read since.
    pub is_read: bool,
}

/// A directory's names, as far as they are known.
#[derive(Default)]
pub(super) struct Names {
    entries: HashMap<Name, Option<Id>>,
    /// Names that this client is changing, and whether it began another change of the same one meanwhile.
    unsure: Vec<(Name, bool)>,
    /// Names that are not there do not exist.
    pub is_complete: bool,
    /// Whether it was before the last change ended.
    was_complete: bool,
    pub ahead: Ahead,
}

impl Found {
    pub fn new(dir: Id, name: &Name) -> Found {
        Found { dir, name: name.clone(), is_read: false }
    }
}

impl Known {
    pub fn new(until: Instant, inode: &Inode, clock: u64) -> Known {
        let (until, names) = (Some(until), Names::default());
        let inode = inode.clone();
        let (content, found) = (None, None);
        Known { until, place_until: until, inode, exact: clock, content, found, names }
    }

    pub fn is_held(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// What was known before holds on only if its lease has never run out.
    pub fn renew(&mut self, now: Instant, until: Instant, inode: &Inode, clock: u64) {
        if !self.is_held(now) {
            (self.names, self.content) = (Names::default(), None);
        }
        // The version counts changes.
        if self.inode.version != inode.version || self.inode.size != inode.size {
            self.content = None;
        }
        self.until = self.until.max(Some(until));
        self.place_until = self.place_until.max(Some(until));
        self.inode.clone_from(inode);
        self.exact = clock;
    }

    pub fn is_exact(&self, all_changed: u64) -> bool {
        self.exact > 0 && self.exact >= all_changed
    }

    /// Some attribute has changed.
    pub fn forget_exact(&mut self) {
        (self.exact, self.content) = (0, None);
    }

    /// Whether anything can lie with the inode.
    pub fn has_content(&self) -> bool {
        self.inode.size <= u64::from(INLINE_BYTES_DEFAULT) || self.inode.inline_max() > 0
    }

    /// What the file holds came with the attributes that were just learnt. Less than all that lies with the inode is
    /// not kept.
    pub fn hold(&mut self, content: &Bytes) {
        let (bytes, size) = (content.len() as u64, self.inode.size);
        let is_head = (1..size).contains(&bytes) && bytes == self.inode.inline_max();
        if self.exact > 0 && (bytes == size || is_head) {
            // Not a part of a message, which would stay as a whole.
            self.content = Some(Bytes::copy_from_slice(content));
        }
    }

    /// What lies with the inode, if that is known and the attributes are exact.
    pub fn content(&self) -> Option<&Bytes> {
        self.content.as_ref()
    }

    /// The lease was taken back.
    pub fn forget(&mut self) {
        (self.until, self.exact, self.names) = (None, 0, Names::default());
        self.content = None;
    }

    pub fn forget_place(&mut self) {
        self.place_until = None;
    }
}

impl Names {
    /// Those of a directory that was just made.
    pub fn complete() -> Names {
        Names { is_complete: true, ..Names::default() }
    }

    /// None: not known.
    pub fn find(&self, name: &Name) -> Option<Option<Id>> {
        match self.entries.get(name) {
            Some(id) => Some(*id),
            None if self.is_complete && !self.is_unsure(name) => Some(None),
            None => None,
        }
    }

    /// False when that was one name too many: then nothing else is known any more.
    pub fn insert(&mut self, name: &Name, id: Option<Id>) -> bool {
        let has_room = self.entries.len() < NAMES_MAX;
        if !has_room {
            self.entries = HashMap::new();
            self.is_complete = false;
        }
        // That a name of a complete directory is not there goes without saying.
        if id.is_none() && self.is_complete {
            self.entries.remove(name);
        } else {
            self.entries.insert(name.clone(), id);
        }
        has_room
    }

    /// The name is being changed.
    pub fn begin(&mut self, name: &Name) {
        self.entries.remove(name);
        let mut others = self.unsure.iter_mut().filter(|(unsure, _)| unsure == name);
        let mut is_met = false;
        for (_, is_other_met) in &mut others {
            (*is_other_met, is_met) = (true, true);
        }
        self.unsure.push((name.clone(), is_met));
    }

    fn is_unsure(&self, name: &Name) -> bool {
        self.unsure.iter().any(|(unsure, _)| unsure == name)
    }

    /// The change is over; what came of it is not known unless [`Names::settle`] follows. Whether another one of the
    /// same name was under way with it, so that their order is not known: true as well where it is not known when it began.
    pub fn end(&mut self, name: &Name) -> bool {
        self.entries.remove(name);
        let at = self.unsure.iter().position(|(unsure, _)| unsure == name);
        at.is_none_or(|at| self.unsure.swap_remove(at).1)
    }

    /// All names of a change have ended.
    pub fn ended(&mut self) {
        self.was_complete = std::mem::take(&mut self.is_complete);
    }

    /// Files that some names are known to lead to.
    pub fn ids(&self) -> impl Iterator<Item = Id> {
        self.entries.values().filter_map(|id| *id)
    }

    /// What came of the change that has just ended.
    pub fn settle(&mut self, name: &Name, id: Option<Id>) {
        self.is_complete = self.was_complete;
        if !self.is_unsure(name) {
            self.insert(name, id);
        }
    }
}

/// Names known of one directory.
pub(super) const NAMES_MAX: usize = 64 * 1024;
