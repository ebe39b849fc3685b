//! Files in memory that are mapped, for many small reads: the socket copies from the mapping, and no page is
//! looked up or copied before.
//!
//! What always holds:
//! - only the kernel touches a mapping, in system calls that are given its addresses: what the file has
//!   lost by then is an error of the call (EFAULT), never a signal. No reference into a mapping is ever made;
//! - a mapping stays as long as its file is open here, so that an address cannot come to mean anything else;
//! - a file with holes is not lent: to read a hole of a mapped file takes a page for it;
//! - a file is mapped after some reads, so that one that is opened and read once is not. All mappings
//!   together stay below a limit in bytes, as they take tables and count as this process's memory, and in
//!   number, as the kernel has a limit there.

use super::{DataFile, FileKind, Inner, append_full};
use covey_wire::{Blame, Lender, Loan};
use rustix::fs::fstat;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::fs::File;
use std::os::fd::AsFd;
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Shorter reads are copied: that is cheap.
pub(super) const LOAN_BYTES_MIN: usize = 512;
/// A file is mapped after so many reads.
const READS_BEFORE: u32 = 64;
/// Most bytes in mappings.
const MAPPED_BYTES_MAX: usize = 1 << 30;
/// Most mappings.
const MAPPINGS_MAX: usize = 1024;

static MAPPED_BYTES: AtomicUsize = AtomicUsize::new(0);
static MAPPINGS: AtomicUsize = AtomicUsize::new(0);

/// What is known of a file that may be mapped.
#[derive(Debug, Default)]
pub(super) struct Mapping {
    reads: AtomicU32,
    map: OnceLock<Map>,
    /// How much may be lent, and the moment when that was looked up.
    looked: AtomicU64,
    lendable: AtomicU64,
}

/// All of a file, as long as it was when it was mapped. What it has grown by since is not in it.
#[derive(Debug)]
struct Map {
    at: NonNull<c_void>,
    length: usize,
}

// SAFETY: the mapping is at the same place for every thread, and no thread reads or writes it.
unsafe impl Send for Map {}
// SAFETY: the mapping is at the same place for every thread, and no thread reads or writes it.
unsafe impl Sync for Map {}

impl DataFile {
    /// What a read of exactly `length` bytes from `offset` would answer, to be copied from the file's mapping as it is sent;
    /// `None` where that is not to be had. The size of the file is looked up once for each `moment`, so
    /// whoever asks takes a new one whenever something arrived or was changed.
    pub fn lend(&self, offset: u64, length: usize, moment: u64) -> Option<Loan> {
        if self.kind() != FileKind::Memory || length < LOAN_BYTES_MIN {
            return None;
        }
        let map = self.inner.mapping.map.get().or_else(|| self.map())?;
        let end = offset.checked_add(length as u64)?;
        let is_there = end <= map.length as u64 && end <= self.lendable(moment);
        is_there.then(|| Loan { lender: self.inner.clone(), offset, length })
    }

    /// Whether the file is mapped and has no holes: to read those by way of the mapping would fill them.
    pub(super) fn is_mapped(&self) -> bool {
        let map = self.inner.mapping.map.get().or_else(|| self.map());
        map.is_some() && whole_bytes(self.file()).is_some()
    }

    /// Maps the file when it has been read from often enough.
    #[cold]
    fn map(&self) -> Option<&Map> {
        let Mapping { reads, map, .. } = &self.inner.mapping;
        if reads.fetch_add(1, Ordering::Relaxed) < READS_BEFORE {
            return None;
        }
        // If it cannot be mapped, another try is worth as many reads again.
        reads.store(0, Ordering::Relaxed);
        let new = Map::new(self.file())?;
        Some(map.get_or_init(|| new))
    }

    /// How much of the file there is to lend now. Whoever has cut it or made a hole in it may be
    /// anybody, so it is asked again at each moment.
    fn lendable(&self, moment: u64) -> u64 {
        let Mapping { looked, lendable, .. } = &self.inner.mapping;
        if looked.load(Ordering::Acquire) == moment {
            return lendable.load(Ordering::Relaxed);
        }
        let bytes = whole_bytes(self.file()).unwrap_or(0);
        lendable.store(bytes, Ordering::Relaxed);
        looked.store(moment, Ordering::Release);
        bytes
    }
}

/// The size of a file without holes.
fn whole_bytes(file: &File) -> Option<u64> {
    let found = fstat(file).ok()?;
    let size = u64::try_from(found.st_size).ok()?;
    (found.st_blocks as u64 >= size.div_ceil(512)).then_some(size)
}

impl Inner {
    /// Where a range of the file is mapped, for the kernel to read from. The address is good as long as `self`; what is
    /// there may be gone.
    pub(super) fn mapped(&self, offset: u64, length: usize) -> Option<*const c_void> {
        let map = self.mapping.map.get()?;
        let offset = usize::try_from(offset).ok()?;
        let end = offset.checked_add(length)?;
        (end <= map.length).then(|| map.at.as_ptr().wrapping_byte_add(offset).cast_const())
    }
}

impl Lender for Inner {
    fn copy(&self, offset: u64, length: usize, out: &mut Vec<u8>) -> Result<(), Blame> {
        let before = out.len();
        append_full(self.file.as_fd(), offset, length, out, 0)
            .map_err(|error| Blame::Io(format!("cannot read what was lent of a file: {error}")))?;
        // The file had these bytes when the read was answered, and has been cut since, before the peer
        // could know the answer: a read that meets a truncation may see zeros there, as pread(2) does.
        out.resize(before + length, 0);
        Ok(())
    }
}

impl Map {
    fn new(file: &File) -> Option<Map> {
        let length = usize::try_from(whole_bytes(file)?).ok().filter(|length| *length > 0)?;
        let is_small = add_within(&MAPPED_BYTES, length, MAPPED_BYTES_MAX);
        let is_one_of_few = is_small && add_within(&MAPPINGS, 1, MAPPINGS_MAX);
        if !is_one_of_few {
            MAPPED_BYTES.fetch_sub(if is_small { length } else { 0 }, Ordering::Relaxed);
            return None;
        }
        // SAFETY: a new mapping at a place of the kernel's choice, over nothing that is there.
        let at = unsafe { mmap(null_mut(), length, ProtFlags::READ, MapFlags::SHARED, file, 0) };
        let Some(at) = at.ok().and_then(NonNull::new) else {
            give_back(length);
            return None;
        };
        Some(Map { at, length })
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` has made, of that length; nobody has an address in it any more, as
        // those who asked for one hold the file that it goes with.
        let _ = unsafe { munmap(self.at.as_ptr(), self.length) };
        give_back(self.length);
    }
}

/// Adds to a counter that must not pass `max`; whether it was added.
fn add_within(counter: &AtomicUsize, more: usize, max: usize) -> bool {
    let add = |now: usize| now.checked_add(more).filter(|sum| *sum <= max);
    counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
}

fn give_back(length: usize) {
    MAPPED_BYTES.fetch_sub(length, Ordering::Relaxed);
    MAPPINGS.fetch_sub(1, Ordering::Relaxed);
}
