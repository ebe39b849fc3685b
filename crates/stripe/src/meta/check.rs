//! The server's half of a check: rows are judged here, where nothing changes between a look and the
//! next. What needs more than a page (links, totals) is counted here and put together by
//! [`crate::check`].
//!
//! **Totals** are counted while the cluster works: a [`Running`] census remembers how far it has come,
//! and every inode behind that point which is saved or dropped meanwhile is counted anew. So it is
//! exact whenever it arrives, and costs nothing while there is none.

mod row;

use super::fault::Fault;
use super::keys::{self, Stored};
use super::owned::{Sum, Who, owner};
use super::{Applied, Store};
use crate::kv::Kv;
use crate::ops::check::{Brief, Census, Class, Finding, Looked, Page, Row, Tally, table};
use crate::ops::{Id, Nanos, Op, Reply, Request};
use covey_wire::{Field, List, Name, Payload, Reader};
use std::collections::BTreeMap;

/// Rows of one page, whatever was asked for.
const ROWS_MAX: u32 = 4096;
/// Bytes of one page of raw rows; a single row may be longer.
const BYTES_MAX: u32 = 512 << 10;
/// Longest value that a raw row is sent with; a longer one is sent empty.
const VALUE_BYTES_MAX: usize = 768 << 10;

/// A census under way.
#[derive(Debug, Default)]
pub(super) struct Running {
    /// Inodes up to this one were counted.
    passed: Id,
    files: u64,
    bytes: u64,
    /// What users, groups and projects own of these.
    owned: BTreeMap<Who, Sum>,
}

impl Running {
    fn owns(&mut self, stored: &Stored, count: impl Fn(&mut Sum)) {
        owner(stored).each().for_each(|who| count(self.owned.entry(who).or_default()));
    }
}

/// A row that was asked for.
pub(super) enum Peek<T> {
    Missing,
    Damaged,
    Found(T),
}

impl<T> Peek<T> {
    pub(super) fn found(self) -> Option<T> {
        match self {
            Peek::Found(value) => Some(value),
            Peek::Missing | Peek::Damaged => None,
        }
    }
}

/// A page being made.
pub(super) struct Window {
    pub(super) page: Page,
    low: Id,
    high: Id,
    /// A row came that is behind the window.
    is_past: bool,
}

impl Window {
    fn holds(&self, id: Id) -> bool {
        (self.low..self.high).contains(&id)
    }
}

type RawRow = (Vec<u8>, Vec<u8>);

impl<K: Kv> Store<K> {
    pub(super) fn check(&mut self, request: &Request) -> Result<Applied, Fault> {
        let Op::Check { table, ref after, rows_max, low, high } = request.op else {
            return super::refuse(covey_ninep::tree::Errno::EINVAL, "not a check");
        };
        let count_max = rows_max.clamp(1, ROWS_MAX) as usize;
        let mut window = Window { page: Page::default(), low, high, is_past: false };
        let prefix: Vec<u8> = match table {
            table::ALL => Vec::new(),
            table::LINKS => b"n".to_vec(),
            table::TALLY => keys::numbered(b'n', low),
            _ => b"i".to_vec(),
        };
        let from = match (after.is_empty(), table) {
            (true, table::BRIEFS | table::FILES | table::HELD) => keys::inode(low),
            // Keys are never empty, not even one that only says where to begin.
            (true, table::ALL) => vec![0],
            (true, _) => prefix.clone(),
            (false, _) => [after.as_bytes(), &[0]].concat(),
        };
        if table == table::ALL && after.is_empty() {
            self.census = Some(Running::default());
        }
        let (rows, end) = self.page_of(&prefix, &from, count_max)?;
        window.page.end = end;
        window.page.rows = rows.len() as u64;
        window.page.next = rows.last().map_or(Name::EMPTY, |(key, _)| Name::from(&key[..]));
        for (key, value) in rows {
            match table {
                table::ALL => self.check_row(&key, value, &mut window.page)?,
                table::LINKS => count_link(value, &mut window),
                table::TALLY => self.tally(low, value, &mut window.page)?,
                table::BRIEFS => brief(&key, value, &mut window),
                _ => file(&key, value, table == table::HELD, &mut window),
            }
            if window.is_past {
                window.page.end = true;
                break;
            }
        }
        if table == table::ALL && window.page.end {
            self.census_over(&mut window.page);
        }
        window.page.id_next = self.counters.id_next;
        window.page.now = request.now;
        Ok(Applied::Reply(Reply::Checked { page: window.page }))
    }

    /// Up to `count_max` rows that begin with `prefix`, and whether these were the last.
    fn page_of(
        &self,
        prefix: &[u8],
        from: &[u8],
        count_max: usize,
    ) -> Result<(Vec<RawRow>, bool), Fault> {
        let (mut rows, mut end) = (Vec::new(), true);
        let mut visit = |key: &[u8], value: &[u8]| {
            if !key.starts_with(prefix) {
                return false;
            }
            if rows.len() == count_max {
                end = false;
                return false;
            }
            rows.push((key.to_vec(), value.to_vec()));
            true
        };
        self.kv.scan(from, &mut visit).map_err(Fault::Broken)?;
        Ok((rows, end))
    }

    /// A row that may be damaged.
    pub(super) fn peek<T: Field>(&self, key: &[u8]) -> Result<Peek<T>, Fault> {
        let value = self.kv.get(key).map_err(Fault::Broken)?;
        Ok(match value.map(read) {
            None => Peek::Missing,
            Some(None) => Peek::Damaged,
            Some(Some(row)) => Peek::Found(row),
        })
    }

    /// Counts an entry of a directory.
    pub(super) fn tally(&self, dir: Id, value: Vec<u8>, page: &mut Page) -> Result<(), Fault> {
        let Some(named) = read::<keys::Named>(value) else { return Ok(()) };
        if page.tallies.0.last().is_none_or(|tally| tally.id != dir) {
            let Some(stored) = self.peek::<Stored>(&keys::inode(dir))?.found() else {
                return Ok(());
            };
            let (size, nlink, version) =
                (stored.inode.size, stored.inode.nlink, stored.inode.version);
            page.tallies.0.push(Tally { id: dir, entries: 0, dirs: 0, size, nlink, version });
        }
        let tally = page.tallies.0.last_mut().expect("it was pushed");
        tally.entries += 1;
        tally.dirs += u64::from(named.is_dir());
        Ok(())
    }

    pub(super) fn look(&self, ids: &[Id], now: Nanos) -> Result<Applied, Fault> {
        let mut files = Vec::with_capacity(ids.len());
        for &id in ids {
            let stored = self.peek::<Stored>(&keys::inode(id))?.found();
            let reclaim = self.last_epoch(b'r', id)?;
            files.push(Looked {
                id,
                tail: stored.as_ref().map_or(0, |stored| stored.tail),
                inode: stored.map(|stored| stored.inode),
                is_open: self.is_open(id),
                cut_pending: self.last_epoch(b't', id)?.is_some(),
                reclaim,
            });
        }
        Ok(Applied::Reply(Reply::Looked { files: List(files), now }))
    }

    fn last_epoch(&self, table: u8, id: Id) -> Result<Option<u32>, Fault> {
        let prefix = keys::numbered(table, id);
        let mut last = None;
        let mut visit = |key: &[u8], _: &[u8]| {
            let rest = key.strip_prefix(&prefix[..]).and_then(|rest| rest.try_into().ok());
            last = rest.map(u32::from_be_bytes).or(last);
            rest.is_some()
        };
        self.kv.scan(&prefix, &mut visit).map_err(Fault::Broken)?;
        Ok(last)
    }

    /// Rows as they are. Counters and sessions are brought into the map first, where they would
    /// otherwise be at the next checkpoint.
    pub(super) fn raw_rows(&mut self, from: &Name, bytes_max: u32) -> Result<Applied, Fault> {
        self.save_replies().map_err(Fault::Broken)?;
        let room = bytes_max.clamp(1, BYTES_MAX) as usize;
        let (mut rows, mut bytes, mut end) = (Vec::new(), 0, true);
        let mut visit = |key: &[u8], value: &[u8]| {
            let size = key.len() + value.len();
            if !rows.is_empty() && (bytes + size > room || rows.len() >= ROWS_MAX as usize) {
                end = false;
                return false;
            }
            bytes += size;
            let value = if value.len() > VALUE_BYTES_MAX { &[] } else { value };
            rows.push(Row { key: Name::from(key), value: Payload::from(value.to_vec()) });
            true
        };
        let from = if from.is_empty() { &[0] } else { from.as_bytes() };
        self.kv.scan(from, &mut visit).map_err(Fault::Broken)?;
        Ok(Applied::Reply(Reply::Rows { rows: List(rows), end }))
    }

    /// The census comes by an inode.
    fn census_counts(&mut self, stored: &Stored) {
        if let Some(census) = &mut self.census {
            census.passed = stored.inode.id;
            census.files += 1;
            census.bytes = census.bytes.wrapping_add(counted_bytes(stored));
            census.owns(stored, |sum| sum.add(stored));
        }
    }

    /// The census has come by all inodes: those to come are counted when they are saved.
    fn census_passes_inodes(&mut self) {
        if let Some(census) = &mut self.census {
            census.passed = Id::MAX;
        }
    }

    /// An inode is about to be saved: one that was counted is counted anew.
    pub(super) fn census_saves(&mut self, stored: &Stored) -> Result<(), Fault> {
        let id = stored.inode.id;
        if self.census.as_ref().is_none_or(|census| id > census.passed) {
            return Ok(());
        }
        let before = self.peek::<Stored>(&keys::inode(id))?.found();
        if let Some(census) = &mut self.census {
            census.files += u64::from(before.is_none());
            if let Some(before) = &before {
                census.owns(before, |sum| sum.take(before));
            }
            census.owns(stored, |sum| sum.add(stored));
            let before = before.as_ref().map_or(0, counted_bytes);
            census.bytes = census.bytes.wrapping_sub(before).wrapping_add(counted_bytes(stored));
        }
        Ok(())
    }

    /// An inode is about to go.
    pub(super) fn census_drops(&mut self, stored: &Stored) {
        let id = stored.inode.id;
        if let Some(census) = self.census.as_mut().filter(|census| id <= census.passed) {
            census.files -= 1;
            census.bytes = census.bytes.wrapping_sub(counted_bytes(stored));
            census.owns(stored, |sum| sum.take(stored));
        }
    }

    fn census_over(&mut self, page: &mut Page) {
        let Some(Running { files, bytes, owned, .. }) = self.census.take() else { return };
        let (files_kept, bytes_kept) = (self.counters.files, self.counters.bytes);
        page.census = Some(Census { files, bytes, files_kept, bytes_kept });
        let wrong = self.wrongly_owned(&owned).into_iter().take(ROWS_MAX as usize);
        page.findings.0.extend(wrong.map(|((kind, id), found, wanted)| {
            let (class, id, parent) = (Class::WrongQuota as u8, id.into(), kind.into());
            Finding { class, id, parent, found, wanted, ..Finding::default() }
        }));
    }
}

fn counted_bytes(stored: &Stored) -> u64 {
    if stored.inode.is_regular() { stored.inode.size } else { 0 }
}

fn count_link(value: Vec<u8>, window: &mut Window) {
    if let Some(named) = read::<keys::Named>(value).filter(|named| window.holds(named.id)) {
        window.page.links.0.push(named.id);
    }
}

/// The inode of a row within the window; the window's end ends the page.
fn inode_within(key: &[u8], value: Vec<u8>, window: &mut Window) -> Option<Stored> {
    let id = keys::number_of(&key[1..]).ok()?;
    if !window.holds(id) {
        window.is_past |= id >= window.high;
        return None;
    }
    read::<Stored>(value)
}

fn brief(key: &[u8], value: Vec<u8>, window: &mut Window) {
    if let Some(Stored { inode, .. }) = inode_within(key, value, window) {
        let (id, nlink, is_dir, version) = (inode.id, inode.nlink, inode.is_dir(), inode.version);
        window.page.briefs.0.push(Brief { id, nlink, is_dir, version });
    }
}

fn file(key: &[u8], value: Vec<u8>, with_sparse: bool, window: &mut Window) {
    let stored = inode_within(key, value, window);
    let full = stored.filter(|Stored { inode, .. }| {
        let may_have_holes = inode.sparse;
        let has_bytes = inode.size > 0 && !may_have_holes;
        inode.is_regular() && (has_bytes || with_sparse) && inode.striping.is_some()
    });
    window.page.files.0.extend(full.map(|stored| stored.inode));
}

/// A row's record, unless its bytes make no sense.
pub(super) fn read<T: Field>(value: Vec<u8>) -> Option<T> {
    let mut reader = Reader::new(value.into());
    if reader.u8().ok()? != keys::ROW_VERSION {
        return None;
    }
    let record = T::get((), &mut reader).ok()?;
    reader.finish().ok()?;
    Some(record)
}

#[cfg(test)]
mod tests;
