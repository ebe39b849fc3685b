//! Ranges of files that are sent from where they lie, with sendfile(2): nothing is copied on this side.
//!
//! Only files in memory are sent so, because whoever sends must not wait for a disk. The length was
//! told to the peer before: when the file has become shorter by the time of the sending, zeros stand
//! for what is gone. The pages themselves are on the way, not copies of them, so the peer sees them as
//! they are when it takes them.

use super::{DataFile, FileKind, Inner, append_full};
use covey_wire::{FileRange, RANGE_BYTES_MIN};
use rustix::fs::sendfile;
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;

/// What stands for bytes that are gone.
static ZEROS: [u8; 16 << 10] = [0; 16 << 10];

impl DataFile {
    /// What a read of up to `length` bytes from `offset` would answer, to be sent from where it lies;
    /// `None` when that is not worth it, or sending might have to wait for the disk.
    pub fn range(&self, offset: u64, length: usize) -> io::Result<Option<FileRange>> {
        if length < RANGE_BYTES_MIN || self.kind() != FileKind::Memory {
            return Ok(None);
        }
        let there = self.file().metadata()?.len().saturating_sub(offset);
        let length = usize::try_from(there).map_or(length, |there| there.min(length));
        let range = || FileRange { file: self.inner.clone(), offset, length };
        Ok((length >= RANGE_BYTES_MIN).then(range))
    }
}

impl DataFile {
    /// Where `length` bytes that are to be written at `offset` may be put straight from a stream; `None` when that is not
    /// worth it, or writing might have to wait for the disk. The file must be open for writing, and not
    /// for appending.
    pub fn place(&self, offset: u64, length: usize) -> Option<FileRange> {
        let is_worth = length >= RANGE_BYTES_MIN && self.kind() == FileKind::Memory;
        is_worth.then(|| FileRange { file: self.inner.clone(), offset, length })
    }
}

/// As [`DataFile::range`], of any file: what is not in memory is read first, which may wait. The
/// bytes are there then, unless memory is so short that they are let go at once.
pub fn range_blocking(
    file: &DataFile,
    offset: u64,
    length: usize,
) -> io::Result<Option<FileRange>> {
    if file.kind() == FileKind::Memory || length < RANGE_BYTES_MIN {
        return file.range(offset, length);
    }
    let Some(there) = bring(file.as_fd(), offset, length)? else { return Ok(None) };
    let range = || FileRange { file: file.inner.clone(), offset, length: there };
    Ok((there >= RANGE_BYTES_MIN).then(range))
}

/// Waits until a range of a file is in memory; how many bytes of it there are. `None` when the file
/// system has no way to send from there.
fn bring(file: BorrowedFd<'_>, offset: u64, length: usize) -> io::Result<Option<usize>> {
    static NOWHERE: OnceLock<File> = OnceLock::new();
    let nowhere = match NOWHERE.get() {
        Some(nowhere) => nowhere,
        None => {
            let opened = File::options().write(true).open("/dev/null")?;
            NOWHERE.get_or_init(|| opened)
        }
    };
    let (mut at, mut done) = (offset, 0);
    while done < length {
        match sendfile(nowhere, file, Some(&mut at), length - done) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(Errno::INVAL | Errno::OPNOTSUPP) if done == 0 => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Some(done))
}

/// Sends what the socket takes of `range`, without waiting.
pub(super) fn send_range(socket: BorrowedFd<'_>, range: &FileRange) -> io::Result<usize> {
    let mut offset = range.offset;
    match sendfile(socket, file_of(range)?.file.as_fd(), Some(&mut offset), range.length) {
        Ok(0) => {
            let count = range.length.min(ZEROS.len());
            Ok(send(socket, &ZEROS[..count], SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?)
        }
        sent => Ok(sent?),
    }
}

/// The first bytes of `range` in memory, at least one of them, for a stream that is no socket.
pub(crate) fn read_range(range: &FileRange) -> io::Result<Vec<u8>> {
    let count = range.length.min(ZEROS.len());
    let mut bytes = Vec::new();
    append_full(file_of(range)?.file.as_fd(), range.offset, count, &mut bytes, 0)?;
    bytes.resize(count, 0);
    Ok(bytes)
}

pub(super) fn file_of(range: &FileRange) -> io::Result<&Inner> {
    // Only this module makes ranges that reach a loop.
    Ok(range.file.downcast_ref().ok_or(Errno::BADF)?)
}
