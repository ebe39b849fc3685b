//! Ranges of files that are sent from where they lie, with sendfile(2): nothing is copied on this side.
//!
//! Only files in memory are sent so, because whoever sends must not wait for a disk. The length was
//! told to the peer before: when the file has become shorter by the time of the sending, zeros stand
//! for what is gone. The pages themselves are on the way, not copies of them, so the peer sees them as
//! they are when it takes them.

use super::{DataFile, FileKind, Inner, append_full, last_errno};
use covey_wire::{FileRange, RANGE_BYTES_MIN};
use rustix::fs::sendfile;
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Arc, OnceLock};

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

    /// As [`DataFile::range`], but that its bytes are copied from the file's mapping as it is sent, where there is one.
    pub fn range_by_copy(&self, offset: u64, length: usize) -> io::Result<Option<FileRange>> {
        let range = self.range(offset, length)?;
        let by_copy = |range| {
            if self.is_mapped() {
                FileRange { file: Arc::new(ByCopy(self.inner.clone())), ..range }
            } else {
                range
            }
        };
        Ok(range.map(by_copy))
    }

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
    let mut bytes = Vec::new();
    append_range(range, ZEROS.len(), &mut bytes)?;
    Ok(bytes)
}

/// Appends the first bytes of `range`, at most so many.
pub(super) fn append_range(
    range: &FileRange,
    bytes_max: usize,
    out: &mut Vec<u8>,
) -> io::Result<()> {
    let (begin, count) = (out.len(), range.length.min(bytes_max));
    append_full(file_of(range)?.file.as_fd(), range.offset, count, out, 0)?;
    out.resize(begin + count, 0);
    Ok(())
}

/// Reads the first `count` bytes of `range` to `place`; zeros stand for what its file has lost.
///
/// # Safety
///
/// `place` is memory of `count` bytes that may be written to, and nobody else looks at it meanwhile.
pub(crate) unsafe fn read_range_into(
    range: &FileRange,
    place: *mut u8,
    count: usize,
) -> io::Result<()> {
    let file = file_of(range)?;
    let mut done = 0;
    while done < count {
        let offset = i64::try_from(range.offset + done as u64).map_err(|_| Errno::INVAL)?;
        // SAFETY: the kernel writes to what is left of the caller's memory.
        let got = unsafe {
            libc::pread(file.file.as_raw_fd(), place.add(done).cast(), count - done, offset)
        };
        match usize::try_from(got) {
            Ok(0) => break,
            Ok(got) => done += got,
            Err(_) if last_errno() == Errno::INTR => {}
            Err(_) => return Err(last_errno().into()),
        }
    }
    // SAFETY: what is left of it.
    unsafe { place.add(done).write_bytes(0, count - done) };
    Ok(())
}

pub(super) fn file_of(range: &FileRange) -> io::Result<&Inner> {
    let by_copy = || Some(&*range.file.downcast_ref::<ByCopy>()?.0);
    // Only this module makes ranges that reach a loop.
    Ok(range.file.downcast_ref().or_else(by_copy).ok_or(Errno::BADF)?)
}

/// A file whose ranges are sent by way of its mapping.
struct ByCopy(Arc<Inner>);

/// Where a range is mapped that is to be copied from there.
pub(super) fn mapped(range: &FileRange) -> Option<*const c_void> {
    range.file.downcast_ref::<ByCopy>()?.0.mapped(range.offset, range.length)
}
