//! Whole listings of directories, and which ones will be wanted next.
//!
//! Of a listing its names, numbers and cookies are kept: they hold for as long as the directory's lease does and this
//! client changes nothing there. The inodes are those that are known when it is used, each under a lease of
//! its own; where one is not, the server is asked.
//!
//! Who lists a directory and then one that was found in it walks over a tree: those in it come next, then those that
//! follow it. Their listings are asked for before anybody wants them, and for as long as enough of them are used.

use super::{Cache, Known, Learning, State};
use crate::client::Page;
use crate::meta::{ENTRY_BYTES, access, is_dots, may};
use crate::ops::{Caller, DirEntry, Id, Op, Reply};
use covey_wire::{Field, List};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A listing that has come as a whole.
pub(super) struct Listed {
    /// Without inodes.
    entries: Vec<DirEntry>,
    limit: u64,
    /// The count of own changes when it was asked for.
    clock: u64,
}

/// How many listings may be asked for that nobody wants yet.
pub(super) struct Credit(u32);

impl Default for Credit {
    fn default() -> Self {
        Credit(CREDIT_FIRST)
    }
}

impl Cache {
    /// A listing from its beginning to its end, as `who` would be told, if it has room and its leases last for a while.
    pub fn listing(&self, who: &Caller, id: Id, bytes_max: u32, now: Instant) -> Option<Page> {
        if !self.is_on() {
            return None;
        }
        let mut state = self.lock();
        let all_changed = state.all_changed;
        let dir = state.find(id, now + LEFT_MIN)?;
        let listed = dir.listed.clone().filter(|listed| listed.clock >= all_changed)?;
        if !may(who, &dir.inode, access::READ | access::EXECUTE) {
            return None;
        }
        let mut room = bytes_max as usize;
        let mut entries = Vec::with_capacity(listed.entries.len());
        for entry in &listed.entries {
            let known = state.find(entry.id, now + LEFT_MIN);
            let known = known.filter(|known| known.is_exact(all_changed));
            let inode = known.map(|known| known.inode.clone());
            if inode.is_none() && !is_dots(&entry.name) {
                return None;
            }
            let entry = DirEntry { inode, ..entry.clone() };
            room = room.checked_sub(entry.size(()))?;
            entries.push(entry);
        }
        if let Some(known) = state.find(id, now)
            && std::mem::take(&mut known.is_ahead)
        {
            state.credit.0 = (state.credit.0 + 2).min(CREDIT_MAX);
        }
        Some(Page { entries, end: true, limit: listed.limit })
    }

    /// The directories whose listings are to be asked for ahead, where this one was listed just now.
    pub fn list_ahead(&self, id: Id, now: Instant) -> Vec<Id> {
        if !self.is_on() {
            return Vec::new();
        }
        let mut state = self.lock();
        // Whoever lists one directory alone will not list those in it.
        let Some(next) = state.next_of(id, now) else { return Vec::new() };
        let children = state.dirs_of(id, None, now);
        state.credit.0 = state.credit.0.max(1);
        let mut ahead = state.missing(children, now);
        ahead.extend(state.missing(next, now));
        ahead.truncate(state.credit.0 as usize);
        ahead
    }

    /// So many listings are asked for ahead.
    pub fn asks_ahead(&self, count: usize) {
        let credit = &mut self.lock().credit.0;
        *credit = credit.saturating_sub(count as u32);
    }

    /// A listing that was asked for ahead has come.
    pub fn came_ahead(&self, id: Id) {
        if let Some(known) = self.lock().known(id) {
            known.is_ahead = known.listed.is_some();
        }
    }
}

impl State {
    pub(super) fn learn_page(&mut self, lease: &Learning, op: &Op, reply: &Reply) {
        let (
            &Op::Readdir { id, cookie, limit, .. },
            &Reply::Entries { entries: List(ref entries), end, limit: last },
        ) = (op, reply)
        else {
            return;
        };
        let own = entries.iter().find(|entry| entry.cookie == OWN_COOKIE);
        let own = own.and_then(|entry| entry.inode.as_ref());
        own.into_iter().for_each(|inode| self.learn_inode(lease, inode));
        self.learn_entries(lease, id, entries, cookie == 0 && end);
        if (cookie, limit) == (0, 0) && end {
            self.learn_listing(lease, id, (entries, last));
        }
    }

    fn learn_listing(&mut self, lease: &Learning, id: Id, page: (&[DirEntry], u64)) {
        let (entries, limit) = page;
        let has_inodes = entries.iter().all(|entry| entry.inode.is_some());
        if !has_inodes || !self.is_quiet(lease, id) {
            return;
        }
        if let Some(known) = self.find(id, lease.now) {
            let entries = entries.iter().map(|entry| DirEntry { inode: None, ..entry.clone() });
            let (entries, clock) = (entries.collect(), lease.clock);
            known.listed = Some(Arc::new(Listed { entries, limit, clock }));
            known.order = known.listed.clone();
            known.is_ahead = false;
        }
    }

    /// The directories that follow this one where it was found, if that was listed.
    fn next_of(&mut self, id: Id, now: Instant) -> Option<Vec<Id>> {
        let parent = self.find(id, now)?.found.as_ref()?.dir;
        self.find(parent, now)?.order.as_ref()?;
        Some(self.dirs_of(parent, Some(id), now))
    }

    /// Directories that were in a listed one, after one of them, as many as are worth looking at.
    fn dirs_of(&mut self, id: Id, after: Option<Id>, now: Instant) -> Vec<Id> {
        let order = self.find(id, now).and_then(|known| known.order.clone());
        let Some(order) = order else { return Vec::new() };
        let mut entries = order.entries.iter();
        if let Some(after) = after {
            entries.find(|entry| entry.id == after && !is_dots(&entry.name));
        }
        let dirs = entries.filter(|entry| entry.kind == DIRECTORY && !is_dots(&entry.name));
        dirs.take(AHEAD_MAX).map(|entry| entry.id).collect()
    }

    /// Those of directories that are wanted next whose listings are to be asked for: none as long as
    /// there are enough.
    fn missing(&mut self, next: Vec<Id>, now: Instant) -> Vec<Id> {
        let mut has = |id: &Id| self.find(*id, now + LEFT_MIN).is_some_and(|k| k.listed.is_some());
        let there = next.iter().take_while(|id| has(id)).count();
        if there * 2 >= AHEAD_MAX || there == next.len() {
            return Vec::new();
        }
        let all_changed = self.all_changed;
        let (mut room, mut asked) = (AHEAD_ENTRIES, Vec::new());
        for id in next.into_iter().skip(there) {
            let is_there = |known: &Known| known.listed.is_some() && known.is_held(now + LEFT_MIN);
            let known = self.find(id, now).filter(|known| known.is_exact(all_changed));
            let Some(known) = known.filter(|known| !is_there(known)) else { continue };
            let entries = known.inode.size / ENTRY_BYTES;
            if entries > ENTRIES_MAX {
                continue;
            }
            let Some(left) = room.checked_sub(entries) else { break };
            room = left;
            asked.push(id);
        }
        asked
    }
}

/// What must be left of the leases that a listing is under: who is told of it uses it for a while.
const LEFT_MIN: Duration = Duration::from_millis(600);

/// Directories that are asked for ahead at once, and the entries of all of them and of one.
const AHEAD_MAX: usize = 16;
const AHEAD_ENTRIES: u64 = 512;
const ENTRIES_MAX: u64 = 128;

const CREDIT_FIRST: u32 = 16;
const CREDIT_MAX: u32 = 64;

/// The cookie of `.`.
const OWN_COOKIE: u64 = 1;

/// S_IFDIR, as [`DirEntry::kind`] has it.
const DIRECTORY: u8 = 4;
