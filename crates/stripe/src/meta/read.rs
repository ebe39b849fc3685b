//! Operations that change nothing: walks, listings, totals.

use super::fault::{Fault, refuse};
use super::keys::{self, Listed, Named};
use super::names::{COOKIE_FIRST, ENTRY_BYTES, check_name, must_be_dir};
use super::permission::{access, check, may};
use super::{Applied, Store};
use crate::kv::Kv;
use crate::ops::{BY_NAME, Caller, Content, DirEntry, Id, Inode, Op, Reply, Request};
use covey_ninep::tree::Errno;
use covey_wire::{Field, List, Name};

/// Names of one walk.
const WALK_NAMES_MAX: usize = 2048;

/// Entries of one listing, whatever room there is.
const ENTRIES_MAX: usize = 16 * 1024;

/// Entries that come with a name, at most; bytes for each, and for all.
const AHEAD_MAX: u32 = 256;
const AHEAD_BYTES: usize = 512;
const AHEAD_BYTES_MAX: usize = 128 << 10;

/// Bytes of content that come with a name, at most: with the entries less than a message has.
const CONTENT_BYTES_MAX: usize = 512 << 10;

/// What is sent of each file's content around that.
const CONTENT_HEAD_BYTES: usize = 12;

impl<K: Kv> Store<K> {
    /// Down the names. Where a later one cannot be followed the walk ends early; the first failing
    /// is an error.
    pub(super) fn walk(&self, caller: &Caller, from: Id, names: &[Name]) -> Result<Applied, Fault> {
        if names.len() > WALK_NAMES_MAX {
            let text = format!("{} names in one walk, limit is {WALK_NAMES_MAX}", names.len());
            return refuse(Errno::E2BIG, text);
        }
        let mut here = self.stored(from)?.inode;
        let mut inodes: Vec<Inode> = Vec::with_capacity(names.len());
        for name in names {
            match self.step(caller, &here, name) {
                Ok(next) => here = next,
                Err(Fault::Refused(_)) if !inodes.is_empty() => break,
                Err(fault) => return Err(fault),
            }
            inodes.push(here.clone());
        }
        Ok(Applied::Reply(Reply::Nodes { inodes: List(inodes) }))
    }

    /// One name, and what comes after it in the directory: whoever asks for one file after another asks in the order of
    /// listings most often, or in that of names.
    pub(super) fn lookup(
        &self,
        caller: &Caller,
        parent: Id,
        name: &Name,
        (ahead, content): (u32, bool),
    ) -> Result<Applied, Fault> {
        check_name(name)?;
        let dir = self.dir_to_search(parent, caller)?.inode;
        let (inode, cookie) = match name.as_bytes() {
            b"." => (Some(dir.clone()), None),
            b".." => (Some(self.stored(dir.parent)?.inode), None),
            _ => match self.named(parent, name)? {
                Some(named) => (Some(self.entry_inode(&named)?.inode), Some(named.cookie)),
                None => (None, None),
            },
        };
        let by_name = ahead & BY_NAME != 0;
        let ahead = (ahead & !BY_NAME).min(AHEAD_MAX);
        let mut page = Page { entries: Vec::new(), room: 0, plus: true };
        let is_small = dir.size / ENTRY_BYTES <= u64::from(ahead);
        let mut complete = false;
        page.room = AHEAD_BYTES_MAX.min(ahead as usize * AHEAD_BYTES);
        if ahead == 0 {
            // Nothing but the name.
        } else if is_small {
            complete = self.list(&mut page, parent, COOKIE_FIRST - 1, u64::MAX)?;
        } else if by_name {
            self.list_by_name(&mut page, parent, name)?;
        } else if let Some(cookie) = cookie {
            self.list(&mut page, parent, cookie, u64::MAX)?;
        }
        let contents = if content {
            let mut order: Vec<&DirEntry> = page.entries.iter().collect();
            if by_name {
                order.sort_unstable_by(|one, other| one.name.cmp(&other.name));
            }
            let comes_before = |entry: &&DirEntry| {
                let is_before = cookie.is_some_and(|cookie| entry.cookie <= cookie);
                if by_name { entry.name <= *name } else { is_before }
            };
            // Those before it, which come only with the whole of a small directory, are the least likely to be read.
            let before = order.partition_point(comes_before);
            order.rotate_left(before);
            let following = order.into_iter().filter_map(|entry| entry.inode.as_ref());
            self.contents(inode.iter().chain(following), CONTENT_BYTES_MAX)?
        } else {
            Vec::new()
        };
        let (entries, contents) = (List(page.entries), List(contents));
        Ok(Applied::Reply(Reply::Found { dir, inode, entries, complete, contents }))
    }

    /// What lies with the inodes of files, in their order until it is enough.
    fn contents<'a>(
        &self,
        of: impl Iterator<Item = &'a Inode>,
        mut room: usize,
    ) -> Result<Vec<Content>, Fault> {
        let mut contents: Vec<Content> = Vec::new();
        for inode in of.filter(|inode| self.content_bytes(inode) > 0) {
            // As it is sent, with its number and length.
            let bytes = self.content_bytes(inode) + CONTENT_HEAD_BYTES;
            if bytes > room {
                break;
            }
            room -= bytes;
            if contents.first().is_none_or(|first| first.id != inode.id) {
                contents.push(Content { id: inode.id, data: self.content(inode)?.into() });
            }
        }
        Ok(contents)
    }

    pub(super) fn step(&self, caller: &Caller, dir: &Inode, name: &Name) -> Result<Inode, Fault> {
        check_name(name)?;
        must_be_dir(dir)?;
        check(caller, dir, access::EXECUTE)?;
        Ok(match name.as_bytes() {
            b"." => dir.clone(),
            b".." => self.stored(dir.parent)?.inode,
            _ => self.existing(dir.id, name)?.1.inode,
        })
    }

    /// Entries after a cookie, in the order of cookies.
    pub(super) fn readdir(&self, request: &Request) -> Result<Applied, Fault> {
        let (id, cookie, limit, bytes_max, plus, contents) = match request.op {
            Op::Readdir { id, cookie, limit, bytes_max, plus } => {
                (id, cookie, limit, bytes_max, plus, None)
            }
            Op::ListContents { id, cookie, limit, bytes_max, contents } => {
                (id, cookie, limit, bytes_max, true, Some(contents as usize))
            }
            _ => return refuse(Errno::EINVAL, "not a listing"),
        };
        let dir = self.dir(id)?;
        check(&request.caller, &dir.inode, access::READ)?;
        let limit = if limit == 0 { dir.cookie_next - 1 } else { limit };
        // Attributes need the right to search, names only the right to read.
        let plus = plus && may(&request.caller, &dir.inode, access::EXECUTE);
        let mut page = Page { entries: Vec::new(), room: bytes_max as usize, plus };
        let end = self.list_dots(&mut page, &dir.inode, cookie)?
            && self.list(&mut page, id, cookie.max(COOKIE_FIRST - 1), limit)?;
        let entries = List(page.entries);
        let Some(room) = contents else {
            return Ok(Applied::Reply(Reply::Entries { entries, end, limit }));
        };
        let listed = entries.0.iter().filter(|entry| entry.cookie >= COOKIE_FIRST);
        let files = listed.filter_map(|entry| entry.inode.as_ref());
        // The head of a larger one is wanted less often.
        let files = files.filter(|inode| self.content_bytes(inode) as u64 == inode.size);
        let contents = List(self.contents(files, room.min(CONTENT_BYTES_MAX))?);
        Ok(Applied::Reply(Reply::Listed { entries, end, limit, contents }))
    }

    /// `.` and `..`; whether both had room.
    fn list_dots(&self, page: &mut Page, dir: &Inode, cookie: u64) -> Result<bool, Fault> {
        if cookie < 1 && !page.add(self, dir.kind(), Name::from("."), dir.id, 1)? {
            return Ok(false);
        }
        Ok(cookie >= 2 || page.add(self, dir.kind(), Name::from(".."), dir.parent, 2)?)
    }

    /// Entries above `cookie` and not above `limit`; whether all had room.
    fn list(&self, page: &mut Page, dir: Id, cookie: u64, limit: u64) -> Result<bool, Fault> {
        let prefix = keys::numbered(b'c', dir);
        let mut after = cookie;
        loop {
            let Some(from) = after.checked_add(1) else { return Ok(true) };
            let rows = self.rows::<Listed>(&prefix, &keys::cookie(dir, from), page.rows_max())?;
            if rows.is_empty() {
                return Ok(true);
            }
            for (rest, listed) in rows {
                after = keys::number_of(&rest)?;
                if after > limit {
                    return Ok(true);
                }
                if !page.add(self, listed.kind, listed.name, listed.id, after)? {
                    return Ok(false);
                }
            }
        }
    }

    /// Entries whose names come after this one, no more than there is room for.
    fn list_by_name(&self, page: &mut Page, dir: Id, name: &Name) -> Result<(), Fault> {
        let mut after = keys::name(dir, name.as_bytes());
        after.push(0);
        let prefix = keys::name(dir, b"");
        for (rest, named) in self.rows::<Named>(&prefix, &after, page.rows_max())? {
            let name = Name::from(&rest[..]);
            if !page.add(self, named.kind, name, named.id, named.cookie)? {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn statfs(&self) -> Applied {
        let (files, bytes) = (self.counters.files, self.counters.bytes);
        Applied::Reply(Reply::Totals { files, bytes })
    }

    pub(super) fn cluster(&self) -> Applied {
        let superblock = &self.superblock;
        let (id, servers) = (superblock.cluster.clone(), superblock.servers.clone());
        Applied::Reply(Reply::Cluster { id, servers })
    }

    /// Those of the ids that exist, unlinked ones that are still open included.
    pub(super) fn exist(&self, ids: &[Id]) -> Result<Applied, Fault> {
        let mut found = Vec::new();
        for id in ids {
            if self.exists(*id)? {
                found.push(*id);
            }
        }
        Ok(Applied::Reply(Reply::Ids { ids: List(found) }))
    }
}

/// A listing being filled.
struct Page {
    entries: Vec<DirEntry>,
    /// Bytes left.
    room: usize,
    plus: bool,
}

impl Page {
    /// Adds an entry if it has room; the first one always has, or the listing would never end.
    fn add<K: Kv>(
        &mut self,
        store: &Store<K>,
        kind: u8,
        name: Name,
        id: Id,
        cookie: u64,
    ) -> Result<bool, Fault> {
        let inode = if self.plus { Some(store.stored(id)?.inode) } else { None };
        let entry = DirEntry { id, kind, cookie, name, inode };
        let size = entry.size(());
        let full = size > self.room || self.entries.len() == ENTRIES_MAX;
        if full && !self.entries.is_empty() {
            return Ok(false);
        }
        self.room = self.room.saturating_sub(size);
        self.entries.push(entry);
        Ok(true)
    }

    /// How many rows are worth reading at once: an entry has some thirty bytes, and with its inode some 130.
    fn rows_max(&self) -> usize {
        let bytes = if self.plus { 128 } else { 32 };
        (self.room / bytes).clamp(1, 1024)
    }
}
