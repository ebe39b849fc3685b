//! One simulated file.

use super::{Fate, Rng, SimDisk, State};
use crate::disk::{DiskFile, FileStat, Flush};
use crate::task;
use bytes::Bytes;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Bytes that are written together or not at all.
const SECTOR_BYTES: usize = 512;
/// Bytes of a page: most often they share their fate.
const PAGE_BYTES: usize = 4096;

/// A file's content as everybody sees it, and what the disk holds of it.
#[derive(Debug)]
pub struct Inode {
    content: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<Unsynced>,
    modified: Duration,
    /// How far space was taken ahead of what is written.
    reserved: u64,
    pub(super) is_named: bool,
    /// Write-backs that have failed, and whether any open file has reported the last of them.
    failures: u64,
    is_reported: bool,
}

#[derive(Debug)]
enum Unsynced {
    Write(u64, Vec<u8>),
    /// A truncation, with its number among the changes of names.
    Length(u64, u64),
    /// Pages from one place up to another that were freed, with the number likewise.
    Punch(u64, u64, u64),
}

impl Inode {
    pub fn new() -> Inode {
        Inode {
            content: Vec::new(),
            durable: Vec::new(),
            unsynced: Vec::new(),
            modified: task::wall(),
            reserved: 0,
            is_named: true,
            failures: 0,
            is_reported: true,
        }
    }

    /// Whether anything waits to be written back.
    pub fn is_dirty(&self) -> bool {
        self.unsynced.iter().any(|change| matches!(change, Unsynced::Write(..)))
    }

    /// Whether a write-back of it has ever failed.
    pub fn has_failed(&self) -> bool {
        self.failures > 0
    }

    /// A write-back fails: any sectors of what was written have reached the disk, and the system takes the
    /// pages for clean. Whoever reads sees them until they leave the cache, at once or never. Truncations
    /// are in the journal and not lost.
    pub fn fail_write_back(&mut self, rng: &mut Rng) {
        self.failures += 1;
        self.is_reported = false;
        let changes = std::mem::take(&mut self.unsynced);
        let (writes, kept): (Vec<_>, Vec<_>) =
            changes.into_iter().partition(|change| matches!(change, Unsynced::Write(..)));
        self.unsynced = kept;
        for change in writes {
            if let Unsynced::Write(offset, bytes) = change {
                survive(&mut self.durable, offset as usize, &bytes, rng);
            }
        }
        if rng.chance(500) {
            self.evict();
        }
    }

    /// The cache is read anew from the disk. The length stays: it is the open file's.
    fn evict(&mut self) {
        let length = self.content.len();
        self.content.clone_from(&self.durable);
        for change in &self.unsynced {
            match *change {
                Unsynced::Length(length, _) => self.content.resize(length as usize, 0),
                Unsynced::Punch(start, end, _) => zero(&mut self.content, start, end),
                Unsynced::Write(..) => {}
            }
        }
        self.content.resize(length, 0);
    }

    pub fn len(&self) -> u64 {
        self.content.len() as u64
    }

    /// Bytes that it takes of the disk.
    pub fn space(&self) -> u64 {
        self.len().max(self.reserved)
    }

    pub fn stat(&self) -> FileStat {
        let blocks = self.len().div_ceil(PAGE_BYTES as u64) * (PAGE_BYTES / SECTOR_BYTES) as u64;
        FileStat { bytes: self.len(), blocks, modified: self.modified }
    }

    pub fn rot(&mut self, rng: &mut Rng) -> bool {
        if self.content.is_empty() {
            return false;
        }
        let at = rng.index(self.content.len());
        let bit = 1 << rng.index(8);
        self.content[at] ^= bit;
        if let Some(byte) = self.durable.get_mut(at) {
            *byte ^= bit;
        }
        true
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        put(&mut self.content, offset, bytes);
        self.unsynced.push(Unsynced::Write(offset, bytes.to_vec()));
        self.modified = task::wall();
    }

    /// The range reads as zeros, as far as the file goes. Whole pages are freed in one change of this
    /// number; what is left at both ends is written like other data.
    fn punch(&mut self, start: u64, end: u64, number: u64) {
        let end = end.min(self.len());
        let page = PAGE_BYTES as u64;
        let (first, last) = (start.next_multiple_of(page), end / page * page);
        if start >= end {
            return;
        }
        if first >= last {
            return self.write(start, &vec![0; (end - start) as usize]);
        }
        for (start, end) in [(start, first), (last, end)].into_iter().filter(|(a, b)| a < b) {
            self.write(start, &vec![0; (end - start) as usize]);
        }
        self.content[first as usize..last as usize].fill(0);
        self.unsynced.push(Unsynced::Punch(first, last, number));
    }

    /// The first run of pages at or after `offset` that are not all zeros.
    fn extent(&self, offset: u64) -> Option<(u64, u64)> {
        let (page, length) = (PAGE_BYTES as u64, self.len());
        if offset >= length {
            return None;
        }
        let is_data = |&at: &u64| {
            let end = length.min((at + 1) * page) as usize;
            self.content[(at * page) as usize..end].iter().any(|&byte| byte != 0)
        };
        let pages = length.div_ceil(page);
        let first = (offset / page..pages).find(is_data)?;
        let end = (first..pages).find(|at| !is_data(at)).unwrap_or(pages);
        Some((offset.max(first * page), length.min(end * page)))
    }

    /// Brings everything to the disk; the number of its last truncation.
    fn sync(&mut self) -> u64 {
        let mut last = 0;
        for change in std::mem::take(&mut self.unsynced) {
            match change {
                Unsynced::Write(offset, bytes) => put(&mut self.durable, offset, &bytes),
                Unsynced::Length(length, number) => {
                    self.durable.resize(length as usize, 0);
                    last = number;
                }
                Unsynced::Punch(start, end, number) => {
                    zero(&mut self.durable, start, end);
                    last = number;
                }
            }
        }
        last
    }

    /// What is left of it without power: truncations up to the change `kept`, and any sectors of
    /// what was written.
    pub fn lose_power(&mut self, kept: u64, rng: &mut Rng) {
        let unsynced = std::mem::take(&mut self.unsynced);
        // The length grows when data is written back: with any of the writes, in their order.
        let grown = rng.index(unsynced.len() + 1);
        let mut length = self.durable.len();
        for (at, change) in unsynced.into_iter().enumerate() {
            match change {
                Unsynced::Length(to, number) if number <= kept => {
                    self.durable.resize(to as usize, 0);
                    length = to as usize;
                }
                Unsynced::Punch(start, end, number) if number <= kept => {
                    zero(&mut self.durable, start, end);
                }
                Unsynced::Length(..) | Unsynced::Punch(..) => {}
                Unsynced::Write(offset, bytes) => {
                    survive(&mut self.durable, offset as usize, &bytes, rng);
                    if at < grown {
                        length = length.max(offset as usize + bytes.len());
                    }
                }
            }
        }
        self.durable.resize(length, 0);
        self.content = self.durable.clone();
        self.reserved = 0;
        self.is_reported = true;
    }
}

fn put(into: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let (start, end) = (offset as usize, offset as usize + bytes.len());
    if into.len() < end {
        into.resize(end, 0);
    }
    into[start..end].copy_from_slice(bytes);
}

fn zero(into: &mut [u8], start: u64, end: u64) {
    let end = into.len().min(end as usize);
    into[end.min(start as usize)..end].fill(0);
}

/// Writes the sectors that were lucky.
fn survive(into: &mut Vec<u8>, offset: usize, bytes: &[u8], rng: &mut Rng) {
    let unit = if rng.chance(800) { PAGE_BYTES } else { SECTOR_BYTES };
    let luck = *rng.pick(&[0, 100, 500, 900, 1000]);
    let mut at = 0;
    while at < bytes.len() {
        let end = ((offset + at) / unit + 1) * unit - offset;
        let end = end.min(bytes.len());
        if rng.chance(luck) {
            put(into, (offset + at) as u64, &bytes[at..end]);
        }
        at = end;
    }
}

/// An open file.
#[derive(Debug)]
pub struct SimFile {
    disk: SimDisk,
    inode: u64,
    /// The last failed write-back that it knows of: it reports each later one once.
    failures_known: AtomicU64,
}

impl SimFile {
    pub fn new(disk: &SimDisk, inode: u64) -> SimFile {
        let state = disk.lock();
        // A failure that nobody has reported is reported to who comes later, too.
        let known = state
            .inodes
            .get(&inode)
            .map_or(0, |inode| if inode.is_reported { inode.failures } else { inode.failures - 1 });
        drop(state);
        SimFile { disk: disk.clone(), inode, failures_known: AtomicU64::new(known) }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Inode, &mut Rng) -> T) -> io::Result<T> {
        let mut state = self.disk.lock();
        let State { inodes, rng, .. } = &mut *state;
        // A process that has lost its power may still be told to run its destructors.
        let inode = inodes.get_mut(&self.inode).ok_or_else(gone)?;
        Ok(act(inode, rng))
    }
}

fn gone() -> io::Error {
    io::Error::from_raw_os_error(libc::EIO)
}

impl State {
    /// Writes, as far as there is room.
    fn write(&mut self, number: u64, offset: u64, mut bytes: &[u8]) -> io::Result<usize> {
        let inode = self.inodes.get_mut(&number).ok_or_else(gone)?;
        let grows = (offset + bytes.len() as u64).saturating_sub(inode.space());
        let room = self.profile.capacity.saturating_sub(self.used);
        if grows > room {
            let fits = (bytes.len() as u64).saturating_sub(grows - room) as usize;
            if fits == 0 || offset > inode.space() + room {
                return Err(io::Error::from_raw_os_error(libc::ENOSPC));
            }
            bytes = &bytes[..fits];
        }
        let before = inode.space();
        inode.write(offset, bytes);
        if inode.is_named {
            self.used += inode.space() - before;
        }
        Ok(bytes.len())
    }
}

impl DiskFile for SimFile {
    fn read_now(&self, offset: u64, length: usize) -> io::Result<Option<Bytes>> {
        let is_cached = {
            let mut state = self.disk.lock();
            let cached = state.profile.cached_permille;
            state.rng.chance(cached)
        };
        if is_cached { self.read_blocking(offset, length).map(Some) } else { Ok(None) }
    }

    fn write_now(&self, offset: u64, slices: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        let takes = self.disk.lock().profile.takes_writes;
        if takes { self.write_all_blocking(offset, slices).map(Some) } else { Ok(None) }
    }

    fn read_blocking(&self, offset: u64, length: usize) -> io::Result<Bytes> {
        self.with(|inode, _| {
            let start = inode.content.len().min(offset as usize);
            let end = inode.content.len().min(start.saturating_add(length));
            Bytes::copy_from_slice(&inode.content[start..end])
        })
    }

    fn write_all_blocking(&self, offset: u64, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut bytes = slices.iter().flat_map(|slice| slice.iter().copied()).collect::<Vec<_>>();
        if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > LENGTH_MAX) {
            return Err(io::Error::from_raw_os_error(libc::EFBIG));
        }
        self.disk.change(|state, fate| {
            if fate == Fate::Crash {
                // The system copies page by page, and the process may end between two.
                let pages = bytes.len().div_ceil(PAGE_BYTES) as u64;
                let kept = state.rng.below(pages + 1) as usize * PAGE_BYTES;
                bytes.truncate(kept);
            }
            state.write(self.inode, offset, &bytes)
        })
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        if length > LENGTH_MAX {
            return Err(io::Error::from_raw_os_error(libc::EFBIG));
        }
        self.disk.change(|state, fate| {
            if !state.is_done(fate) {
                return Ok(());
            }
            state.changes += 1;
            let number = state.changes;
            let inode = state.inodes.get_mut(&self.inode).ok_or_else(gone)?;
            let before = inode.space();
            inode.content.resize(length as usize, 0);
            inode.reserved = inode.reserved.min(length);
            inode.unsynced.push(Unsynced::Length(length, number));
            inode.modified = task::wall();
            if inode.is_named {
                state.used = state.used - before + length;
            }
            Ok(())
        })
    }

    fn reserve(&self, offset: u64, length: u64) -> io::Result<()> {
        let mut state = self.disk.lock();
        let room = state.profile.capacity.saturating_sub(state.used);
        let inode = state.inodes.get_mut(&self.inode).ok_or_else(gone)?;
        let grows = (offset + length).saturating_sub(inode.space());
        if grows > room {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        inode.reserved = inode.reserved.max(offset + length);
        if inode.is_named {
            state.used += grows;
        }
        Ok(())
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        self.reserve(offset, length)?;
        if self.stat()?.bytes >= offset + length {
            return Ok(());
        }
        self.set_length(offset + length)
    }

    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        self.disk.change(|state, fate| {
            if state.is_done(fate) {
                state.changes += 1;
                let number = state.changes;
                let inode = state.inodes.get_mut(&self.inode).ok_or_else(gone)?;
                inode.punch(offset, offset.saturating_add(length), number);
            }
            Ok(())
        })
    }

    fn extent(&self, offset: u64) -> io::Result<Option<(u64, u64)>> {
        self.with(|inode, _| inode.extent(offset))
    }

    fn check_written_back(&self) -> io::Result<()> {
        let mut state = self.disk.lock();
        let inode = state.inodes.get_mut(&self.inode).ok_or_else(gone)?;
        let known = self.failures_known.swap(inode.failures, Ordering::Relaxed);
        let reports = known != inode.failures;
        inode.is_reported |= reports;
        if reports { Err(gone()) } else { Ok(()) }
    }

    fn sync_blocking(&self, _: Flush) -> io::Result<()> {
        self.disk.change(|state, fate| {
            if state.is_done(fate) {
                let inode = state.inodes.get(&self.inode).ok_or_else(gone)?;
                let fails = inode.is_dirty() && state.sync_fails();
                let State { inodes, rng, .. } = state;
                let inode = inodes.get_mut(&self.inode).expect("it was there");
                if fails {
                    inode.fail_write_back(rng);
                }
                let known = self.failures_known.swap(inode.failures, Ordering::Relaxed);
                let reports = known != inode.failures;
                inode.is_reported |= reports;
                if !fails {
                    // What was written since a failure is brought to the disk even when that is reported.
                    let last = inode.sync();
                    state.make_durable(last);
                }
                if reports {
                    return Err(gone());
                }
            }
            Ok(())
        })
    }

    fn stat(&self) -> io::Result<FileStat> {
        self.with(|inode, _| inode.stat())
    }
}

/// Nobody simulates with longer files.
const LENGTH_MAX: u64 = 64 << 20;
