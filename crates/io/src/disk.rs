//! What a server's storage asks of a disk: files and directories, and what of them survives.
//!
//! [`os::disk`](crate::os::disk) answers with the system's; a simulator with a disk that loses
//! what was not synced. Calls may block, but for those that end in `_now`: they go through
//! [`task::blocking`].

use crate::task;
use bytes::Bytes;
use covey_wire::FileRange;
use std::ffi::OsString;
use std::fmt::Debug;
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Directories and names.
pub trait Disk: Send + Sync + Debug {
    /// Opens a file for reading and writing; only its owner may.
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn DiskFile>>;
    /// Removes a file's name.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Renames a file; what had the new name is gone.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Makes a directory and those above it.
    fn make_dir(&self, dir: &Path) -> io::Result<()>;
    /// Removes a directory; one that is not there, or not empty, is fine.
    fn remove_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }
    /// The names in a directory, in no order.
    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>>;
    /// A file's state, by name.
    fn stat(&self, path: &Path) -> io::Result<FileStat>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Space of the file system that `dir` is on.
    fn space(&self, dir: &Path) -> io::Result<Space>;
    /// Which start of the machine this is, and since it, which mount of the file system that `dir` is
    /// on: when it changes, what was written and not synced may be lost.
    fn machine_start(&self, dir: &Path) -> u64;
    /// The start of the machine alone, whatever is mounted: what stores noted before they knew of mounts.
    fn machine_boot(&self) -> u64;
    /// A number that nobody else gets, from whichever disk: what is marked with it can be told from
    /// everything else.
    fn mark(&self) -> io::Result<[u8; 16]>;
    /// How long ago that start was, or less; as long as can be where nobody knows.
    fn machine_age(&self) -> Duration;
}

/// How to open a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// It must be there.
    Existing,
    /// It is made when missing.
    Create,
    /// It is made when missing, and empty.
    Truncate,
}

/// What of a file is brought to stable storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// Its content, and as much else as it takes to find that again: fdatasync(2).
    Data,
    /// Its times, too: fsync(2).
    All,
}

/// An open file.
pub trait DiskFile: Send + Sync + Debug {
    /// Up to `length` bytes from `offset`, fewer only at the end of the file; `None` when the disk
    /// would have to be waited for.
    fn read_now(&self, offset: u64, length: usize) -> io::Result<Option<Bytes>>;
    /// Like `read_now`, but appends to `out`; false when the disk would have to be waited for, and
    /// then, as after an error, `out` is as it was.
    fn append_now(&self, offset: u64, length: usize, out: &mut Vec<u8>) -> io::Result<bool> {
        let found = self.read_now(offset, length)?;
        out.extend_from_slice(found.as_deref().unwrap_or_default());
        Ok(found.is_some())
    }
    /// What a read would answer, to be sent from where it lies; `None` where that is not to be had.
    fn range(&self, _offset: u64, _length: usize) -> io::Result<Option<FileRange>> {
        Ok(None)
    }
    /// The same, copied as it is sent. For a peer on this machine that is faster than the pages themselves, which it
    /// copies one by one; it takes more of this side's time.
    fn range_by_copy(&self, offset: u64, length: usize) -> io::Result<Option<FileRange>> {
        self.range(offset, length)
    }
    /// Writes what can be written without waiting: `None` when nothing can. The count is short only
    /// when the file system is full.
    fn write_now(&self, offset: u64, slices: &[IoSlice<'_>]) -> io::Result<Option<usize>>;
    /// Like `read_now`, but waits.
    fn read_blocking(&self, offset: u64, length: usize) -> io::Result<Bytes>;
    /// Writes all of `slices`; the count is short only when something failed after a part was
    /// written. Whoever writes the rest gets the error.
    fn write_all_blocking(&self, offset: u64, slices: &[IoSlice<'_>]) -> io::Result<usize>;
    /// The bytes of all pieces in order, cut after the last one that is in the file; zeros stand
    /// for what is not there before it. `None` when the disk would have to be waited for.
    fn read_list_now(&self, _pieces: &[Piece]) -> io::Result<Option<Bytes>> {
        Ok(None)
    }
    /// Like `read_list_now`, but waits. The default reads piece by piece.
    fn read_list_blocking(&self, pieces: &[Piece]) -> io::Result<Bytes> {
        let (mut all, mut end) = (Vec::new(), 0);
        for &(offset, bytes) in pieces {
            let read = self.read_blocking(offset, bytes as usize)?;
            let next = all.len() + bytes as usize;
            all.extend_from_slice(&read);
            end = if read.is_empty() { end } else { all.len() };
            all.resize(next, 0);
        }
        all.truncate(end);
        Ok(all.into())
    }
    /// Writes a list if that cannot block; see `write_list_blocking`.
    fn write_list_now(&self, _pieces: &[Piece], _data: &[u8]) -> io::Result<Option<usize>> {
        Ok(None)
    }
    /// Writes the pieces from `data`, which has their bytes one after another. The count is short
    /// only when something failed after a part was written.
    fn write_list_blocking(&self, pieces: &[Piece], data: &[u8]) -> io::Result<usize> {
        let mut done = 0;
        for &(offset, bytes) in pieces {
            let Some(piece) = data.get(done..done + bytes as usize) else {
                return Err(io::ErrorKind::InvalidInput.into());
            };
            match self.write_all_blocking(offset, &[IoSlice::new(piece)]) {
                Ok(count) if count == piece.len() => done += count,
                Ok(count) => return Ok(done + count),
                Err(_) if done > 0 => return Ok(done),
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }
    /// Makes the file `length` bytes long.
    fn set_length(&self, length: u64) -> io::Result<()>;
    /// Takes space from the disk for `length` bytes at `offset`, without changing what is read. EOPNOTSUPP where
    /// the file system cannot say ahead of time.
    fn reserve(&self, offset: u64, length: u64) -> io::Result<()>;
    /// Allocates `length` bytes at `offset`, and makes the file longer when they lie beyond its end.
    fn allocate(&self, _offset: u64, _length: u64) -> io::Result<()> {
        Err(unsupported())
    }
    /// Frees a range, which then reads as zeros; the length stays.
    fn punch(&self, _offset: u64, _length: u64) -> io::Result<()> {
        Err(unsupported())
    }
    /// The first run of data at or after `offset`: its first byte and the byte after its last.
    fn extent(&self, _offset: u64) -> io::Result<Option<(u64, u64)>> {
        Err(unsupported())
    }
    /// Fails where the system could not write back what it had taken, and nobody has been told through this file. Nothing is
    /// written for it.
    fn check_written_back(&self) -> io::Result<()> {
        Ok(())
    }
    /// Brings the content to stable storage.
    fn sync_blocking(&self, what: Flush) -> io::Result<()>;
    /// The file's state.
    fn stat(&self) -> io::Result<FileStat>;
}

fn unsupported() -> io::Error {
    rustix::io::Errno::OPNOTSUPP.into()
}
/// A piece of a list: offset and bytes.
pub type Piece = (u64, u32);

/// A file's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileStat {
    /// Length in bytes.
    pub bytes: u64,
    /// Allocated, in units of 512 bytes.
    pub blocks: u64,
    /// When content last changed, since 1970.
    pub modified: Duration,
}

/// A file system's space, as statvfs(3) tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Bytes per unit of the three numbers below.
    pub unit: u64,
    /// Units in all.
    pub units: u64,
    /// Units that are free.
    pub free: u64,
    /// Units that are free to everyone.
    pub available: u64,
    /// Inodes in all.
    pub files: u64,
    /// Inodes that are free.
    pub files_free: u64,
    /// Which file system.
    pub id: u64,
    /// Longest name in bytes.
    pub name_bytes_max: u64,
}

impl Space {
    /// Bytes that are free to everyone.
    pub fn bytes_available(&self) -> u64 {
        self.available * self.unit
    }

    /// Bytes in all.
    pub fn bytes_total(&self) -> u64 {
        self.units * self.unit
    }
}

/// Space of an ordered map that is changed by whole checkpoints, in bytes. What a checkpoint replaces is
/// free two checkpoints later, so that a crash finds the one before it whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapSpace {
    /// What all rows take, with the changes since the last checkpoint.
    pub used: u64,
    /// What the next checkpoint writes to space that must be free, at most.
    pub dirty: u64,
    /// What the last checkpoint replaced and nobody may use yet, at most.
    pub pending: u64,
    /// What the map has of its disk: used, free, and kept ahead.
    pub held: u64,
    /// What it is allowed to grow to; the disk may have less.
    pub limit: u64,
}

impl MapSpace {
    /// What it can grow to where the disk has so many bytes more for it.
    pub fn capacity(&self, disk: u64) -> u64 {
        self.held.saturating_add(disk).min(self.limit)
    }

    /// What is free for this checkpoint and those after it.
    pub fn room(&self, disk: u64) -> u64 {
        self.capacity(disk).saturating_sub(self.used).saturating_sub(self.pending)
    }

    /// Bytes that a map keeps of a disk, or of a limit, of this size: a full store must still be able to write what
    /// deletes change.
    pub fn reserve(total: u64) -> u64 {
        (total / 20).min(RESERVE_BYTES_MAX)
    }
}

/// More than this is not kept.
const RESERVE_BYTES_MAX: u64 = 32 << 20;

/// Reads beside the tasks.
pub async fn read(file: Arc<dyn DiskFile>, offset: u64, length: usize) -> io::Result<Bytes> {
    task::blocking(move || file.read_blocking(offset, length)).await
}

/// Writes beside the tasks.
pub async fn write(file: Arc<dyn DiskFile>, offset: u64, data: Bytes) -> io::Result<usize> {
    task::blocking(move || file.write_all_blocking(offset, &[IoSlice::new(&data)])).await
}

/// Reads a list beside the tasks.
pub async fn read_list(file: Arc<dyn DiskFile>, pieces: Vec<Piece>) -> io::Result<Bytes> {
    task::blocking(move || file.read_list_blocking(&pieces)).await
}

/// Writes a list beside the tasks.
pub async fn write_list(
    file: Arc<dyn DiskFile>,
    pieces: Vec<Piece>,
    data: Bytes,
) -> io::Result<usize> {
    task::blocking(move || file.write_list_blocking(&pieces, &data)).await
}
