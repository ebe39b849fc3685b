//! Reading and writing.
//!
//! Nothing is kept back and nothing is kept: a write has reached its servers when it returns, a read
//! asks them. The program's bytes are copied once, into or out of the messages.

use crate::boundary::{Result, Stop, export, refuse};
use crate::client::{caller, client, wait};
use crate::descriptors::size;
use crate::open::Open;
use crate::real;
use crate::report::COUNTS;
use bytes::Bytes;
use covey_ninep::tree::{Errno, SetAttr};
use covey_stripe::client::Seek;
use covey_wire::Payload;
use libc::{c_int, c_uint, c_void, iovec, off_t, size_t, ssize_t};
use std::sync::atomic::Ordering;

/// Memory of the program, as its call vouches for it: so what takes spans need not be unsafe.
#[derive(Clone, Copy)]
pub struct Span {
    base: *mut u8,
    length: usize,
}

impl Span {
    /// Without a byte.
    pub const EMPTY: Span = Span { base: std::ptr::null_mut(), length: 0 };

    /// # Safety
    ///
    /// Until the call is done its bytes can be read, and be written if the call writes to them.
    pub unsafe fn new(base: *mut u8, length: usize) -> Span {
        Span { base, length }
    }

    /// Its first byte.
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Its bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Takes bytes off its front: no more than it has.
    pub fn split_to(&mut self, length: usize) -> Span {
        assert!(length <= self.length, "{length} bytes of {}", self.length);
        let front = Span { base: self.base, length };
        // SAFETY: within the span.
        self.base = unsafe { self.base.add(length) };
        self.length -= length;
        front
    }
}

// SAFETY: the caller vouches for its memory, on whatever thread it is used.
unsafe impl Send for Span {}

/// The spans of an iovec.
///
/// # Safety
///
/// `iov` points to `count` entries.
pub unsafe fn spans(iov: *const iovec, count: c_int) -> Result<Vec<Span>> {
    let count = usize::try_from(count).ok().filter(|count| *count <= IOV_MAX);
    let count = count.ok_or(Stop::from(Errno::EINVAL))?;
    // SAFETY: the caller's promise.
    let span = |at| unsafe {
        let entry = *iov.add(at);
        Span { base: entry.iov_base.cast(), length: entry.iov_len }
    };
    Ok((0..count).map(span).collect())
}

/// # Safety
///
/// Its bytes are the program's: readable, and writable if the call writes to them.
unsafe fn one(base: *const c_void, length: size_t) -> [Span; 1] {
    [Span { base: base.cast_mut().cast(), length }]
}

/// Copies bytes from the program.
///
/// # Safety
///
/// The span is the program's and readable.
pub unsafe fn taken(span: Span) -> Bytes {
    match span.length {
        0 => Bytes::new(),
        // SAFETY: the caller's promise.
        length => unsafe { Bytes::copy_from_slice(std::slice::from_raw_parts(span.base, length)) },
    }
}

/// Copies bytes to the program's spans, in order.
///
/// # Safety
///
/// The spans are the program's and writable, and hold at least as much.
pub unsafe fn given(data: &Payload, spans: &[Span]) {
    let mut spans = spans.iter().filter(|span| span.length > 0);
    let mut room = Span::EMPTY;
    for piece in data.pieces() {
        let mut piece = &piece[..];
        while !piece.is_empty() {
            if room.length == 0 {
                let Some(next) = spans.next() else { return };
                room = *next;
            }
            let step = room.split_to(room.length.min(piece.len()));
            // SAFETY: the span has these bytes.
            unsafe { std::ptr::copy_nonoverlapping(piece.as_ptr(), step.base, step.length) };
            piece = &piece[step.length..];
        }
    }
}

/// Cuts spans into runs of at most [`CHUNK_BYTES`].
fn chunks(spans: &[Span]) -> Vec<Vec<Span>> {
    let mut out = vec![Vec::new()];
    let mut room = CHUNK_BYTES;
    for span in spans {
        let mut span = *span;
        while span.length > 0 {
            if room == 0 {
                out.push(Vec::new());
                room = CHUNK_BYTES;
            }
            let front = span.split_to(span.length.min(room));
            out.last_mut().expect("never empty").push(front);
            room -= front.length;
        }
    }
    out
}

fn total(spans: &[Span]) -> usize {
    spans.iter().map(|span| span.length).sum()
}

/// Reads at an offset; fewer bytes at the end only.
fn read_at(open: &Open, spans: &[Span], offset: u64) -> Result<usize> {
    let (client, file) = open.to_read()?;
    let mut done = 0;
    for chunk in chunks(spans) {
        let wanted = total(&chunk);
        let data = match wait(&client, file.read_at(offset + done as u64, wanted)) {
            Ok(data) => data,
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        };
        // SAFETY: the program's own spans.
        unsafe { given(&data, &chunk) };
        done += data.len();
        if data.len() < wanted {
            break;
        }
    }
    COUNTS.reads.add(1);
    COUNTS.read_bytes.add(done as u64);
    Ok(done)
}

/// Writes at an offset, or at the end when the file was opened for that; answers how much, and where
/// it ended.
fn write_at(open: &Open, spans: &[Span], offset: u64, flags: c_int) -> Result<(usize, u64)> {
    let (client, file) = open.to_write()?;
    let (mut done, mut at) = (0, offset);
    for chunk in chunks(spans) {
        // SAFETY: the program's own spans.
        let pieces = chunk.iter().map(|span| unsafe { taken(*span) }).collect();
        let (data, count) = (Payload::gather(pieces), total(&chunk));
        let written = if flags & libc::O_APPEND != 0 {
            wait(&client, file.append(data))
        } else {
            wait(&client, file.write_at(at, data)).map(|()| at)
        };
        match written {
            Ok(start) => at = start + count as u64,
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
        done += count;
    }
    if flags & (libc::O_DSYNC | libc::O_SYNC) != 0 {
        wait(&client, file.fsync())?;
    }
    COUNTS.writes.add(1);
    COUNTS.written_bytes.add(done as u64);
    Ok((done, at))
}

/// Reads at the description's offset and moves it.
fn read_here(open: &Open, spans: &[Span]) -> Result<isize> {
    let _position = open.position();
    let offset = open.page().offset.load(Ordering::Acquire);
    let done = read_at(open, spans, offset as u64)?;
    open.page().offset.fetch_add(done as i64, Ordering::AcqRel);
    Ok(done as isize)
}

/// Writes at the description's offset and moves it first, so that processes that share it do not
/// write over each other.
fn write_here(open: &Open, spans: &[Span]) -> Result<isize> {
    let _position = open.position();
    let (length, flags) = (total(spans) as i64, open.flags());
    let offset = &open.page().offset;
    if flags & libc::O_APPEND != 0 {
        let (done, end) = write_at(open, spans, 0, flags)?;
        offset.store(end as i64, Ordering::Release);
        return Ok(done as isize);
    }
    let at = offset.fetch_add(length, Ordering::AcqRel);
    let outcome = write_at(open, spans, at as u64, flags);
    let done = outcome.as_ref().map_or(0, |(done, _)| *done as i64);
    offset.fetch_sub(length - done, Ordering::AcqRel);
    Ok(outcome?.0 as isize)
}

fn checked(offset: off_t) -> Result<u64> {
    u64::try_from(offset).map_err(|_| Errno::EINVAL.into())
}

fn read_there(open: &Open, spans: &[Span], offset: off_t) -> Result<isize> {
    Ok(read_at(open, spans, checked(offset)?)? as isize)
}

fn write_there(open: &Open, spans: &[Span], offset: off_t, more: c_int) -> Result<isize> {
    Ok(write_at(open, spans, checked(offset)?, open.flags() | more)?.0 as isize)
}

/// The open flags that stand for the flags of preadv2 and pwritev2.
fn as_open_flags(flags: c_int) -> Result<c_int> {
    const KNOWN: c_int = libc::RWF_DSYNC | libc::RWF_SYNC | libc::RWF_APPEND | libc::RWF_HIPRI;
    if flags & !KNOWN != 0 {
        return refuse(libc::EOPNOTSUPP);
    }
    let bit = |flag: c_int, open: c_int| if flags & flag != 0 { open } else { 0 };
    Ok(bit(libc::RWF_APPEND, libc::O_APPEND) | bit(libc::RWF_DSYNC | libc::RWF_SYNC, libc::O_DSYNC))
}

export! { fn read(fd: c_int, to: *mut c_void, count: size_t) -> ssize_t {
    by_fd!(fd, real::read()(fd, to, count), |open| read_here(&open, &one(to, count)))
} }
export! { fn __read(fd: c_int, to: *mut c_void, count: size_t) -> ssize_t {
    by_fd!(fd, real::read()(fd, to, count), |open| read_here(&open, &one(to, count)))
} }
export! { fn __read_chk(fd: c_int, to: *mut c_void, count: size_t, _room: size_t) -> ssize_t {
    by_fd!(fd, real::read()(fd, to, count), |open| read_here(&open, &one(to, count)))
} }
export! { fn write(fd: c_int, from: *const c_void, count: size_t) -> ssize_t {
    by_fd!(fd, real::write()(fd, from, count), |open| write_here(&open, &one(from, count)))
} }
export! { fn __write(fd: c_int, from: *const c_void, count: size_t) -> ssize_t {
    by_fd!(fd, real::write()(fd, from, count), |open| write_here(&open, &one(from, count)))
} }
export! { fn pread | pread64(fd: c_int, to: *mut c_void, count: size_t, offset: off_t) -> ssize_t {
    by_fd!(fd, real::pread()(fd, to, count, offset), |open| {
        read_there(&open, &one(to, count), offset)
    })
} }
export! { fn __pread_chk | __pread64_chk(
    fd: c_int, to: *mut c_void, count: size_t, offset: off_t, _room: size_t
) -> ssize_t {
    // SAFETY: the program's own arguments.
    unsafe { pread(fd, to, count, offset) }
} }
export! { fn pwrite | pwrite64(fd: c_int, from: *const c_void, count: size_t, offset: off_t) -> ssize_t {
    by_fd!(fd, real::pwrite()(fd, from, count, offset), |open| {
        write_there(&open, &one(from, count), offset, 0)
    })
} }
export! { fn readv(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
    by_fd!(fd, real::readv()(fd, iov, count), |open| read_here(&open, &spans(iov, count)?))
} }
export! { fn writev(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
    by_fd!(fd, real::writev()(fd, iov, count), |open| write_here(&open, &spans(iov, count)?))
} }
export! { fn preadv | preadv64(fd: c_int, iov: *const iovec, count: c_int, offset: off_t) -> ssize_t {
    by_fd!(fd, real::preadv()(fd, iov, count, offset), |open| {
        read_there(&open, &spans(iov, count)?, offset)
    })
} }
export! { fn pwritev | pwritev64(fd: c_int, iov: *const iovec, count: c_int, offset: off_t) -> ssize_t {
    by_fd!(fd, real::pwritev()(fd, iov, count, offset), |open| {
        write_there(&open, &spans(iov, count)?, offset, 0)
    })
} }
export! { fn preadv2 | preadv64v2(
    fd: c_int, iov: *const iovec, count: c_int, offset: off_t, flags: c_int
) -> ssize_t {
    by_fd!(fd, real::preadv2()(fd, iov, count, offset, flags), |open| {
        as_open_flags(flags)?;
        match offset {
            -1 => read_here(&open, &spans(iov, count)?),
            _ => read_there(&open, &spans(iov, count)?, offset),
        }
    })
} }
export! { fn pwritev2 | pwritev64v2(
    fd: c_int, iov: *const iovec, count: c_int, offset: off_t, flags: c_int
) -> ssize_t {
    by_fd!(fd, real::pwritev2()(fd, iov, count, offset, flags), |open| {
        let more = as_open_flags(flags)?;
        match offset {
            -1 => write_here(&open, &spans(iov, count)?),
            _ => write_there(&open, &spans(iov, count)?, offset, more),
        }
    })
} }

export! { fn lseek | lseek64(fd: c_int, offset: off_t, whence: c_int) -> off_t {
    by_fd!(fd, real::lseek()(fd, offset, whence), |open| seek(&open, offset, whence))
} }

/// Moves the description's offset.
fn seek(open: &Open, offset: off_t, whence: c_int) -> Result<off_t> {
    let _position = open.position();
    let here = &open.page().offset;
    let to = match whence {
        libc::SEEK_SET => Some(offset),
        libc::SEEK_CUR => here.load(Ordering::Acquire).checked_add(offset),
        libc::SEEK_END => (size(open)? as i64).checked_add(offset),
        libc::SEEK_DATA | libc::SEEK_HOLE => {
            let (client, file) = open.file()?;
            let from = u64::try_from(offset).map_err(|_| Stop::from(Errno::ENXIO))?;
            let what = if whence == libc::SEEK_HOLE { Seek::Hole } else { Seek::Data };
            Some(wait(&client, file.seek(from, what))? as i64)
        }
        _ => return refuse(libc::EINVAL),
    };
    let to = to.filter(|to| *to >= 0).ok_or(Stop::from(Errno::EINVAL))?;
    here.store(to, Ordering::Release);
    Ok(to)
}

/// Sets the size of what is open for writing, whatever its mode is by now.
fn cut(open: &Open, size: off_t) -> Result<c_int> {
    if open.access() & 2 == 0 || open.is_dir() {
        return refuse(libc::EINVAL);
    }
    let client = client()?;
    let set = SetAttr { size: Some(checked(size)?), ..SetAttr::default() };
    wait(&client, client.setattr_open(&caller(), open.id(), set))?;
    Ok(0)
}

fn sync(open: &Open) -> Result<c_int> {
    if open.is_dir() {
        let client = client()?;
        wait(&client, client.sync(open.id()))?;
        return Ok(0);
    }
    let (client, file) = open.file()?;
    wait(&client, file.fsync())?;
    Ok(0)
}

fn allocate(open: &Open, mode: c_int, offset: off_t, length: off_t) -> Result<c_int> {
    if offset < 0 || length <= 0 {
        return refuse(libc::EINVAL);
    }
    let (client, file) = open.to_write()?;
    let (mode, offset, length) = (mode as u32, offset as u64, length as u64);
    wait(&client, file.fallocate(&caller(), mode, offset, length))?;
    Ok(0)
}

export! { fn ftruncate | ftruncate64(fd: c_int, size: off_t) -> c_int {
    by_fd!(fd, real::ftruncate()(fd, size), |open| cut(&open, size))
} }
export! { fn fsync(fd: c_int) -> c_int {
    by_fd!(fd, real::fsync()(fd), |open| sync(&open))
} }
export! { fn fdatasync(fd: c_int) -> c_int {
    by_fd!(fd, real::fdatasync()(fd), |open| sync(&open))
} }
export! { fn syncfs(fd: c_int) -> c_int {
    by_fd!(fd, real::syncfs()(fd), |open| sync(&open))
} }
export! { fn sync_file_range(fd: c_int, offset: off_t, count: off_t, flags: c_uint) -> c_int {
    // Nothing waits here to be written.
    by_fd!(fd, real::sync_file_range()(fd, offset, count, flags), |_open| Ok(0))
} }
export! { fn readahead(fd: c_int, offset: off_t, count: size_t) -> ssize_t {
    by_fd!(fd, real::readahead()(fd, offset, count), |_open| Ok(0))
} }
export! { failing(libc::EIO) fn posix_fadvise | posix_fadvise64(fd: c_int, offset: off_t, count: off_t, advice: c_int) -> c_int {
    by_fd!(fd, real::posix_fadvise()(fd, offset, count, advice), |_open| Ok(0))
} }
export! { fn fallocate | fallocate64(fd: c_int, mode: c_int, offset: off_t, length: off_t) -> c_int {
    by_fd!(fd, real::fallocate()(fd, mode, offset, length), |open| {
        allocate(&open, mode, offset, length)
    })
} }
export! { failing(libc::EIO) fn posix_fallocate | posix_fallocate64(fd: c_int, offset: off_t, length: off_t) -> c_int {
    // This one answers the error itself.
    by_fd!(fd, real::posix_fallocate()(fd, offset, length), |open| {
        match allocate(&open, 0, offset, length) {
            Err(Stop::Errno(error)) => Ok(error.code as c_int),
            other => other,
        }
    })
} }

/// As in limits.h.
const IOV_MAX: usize = 1024;
/// Most bytes that are copied at once.
const CHUNK_BYTES: usize = 16 << 20;

/// Fills memory from a file, for a private mapping; what lies beyond the end stays as it is.
///
/// # Safety
///
/// `to` has `length` bytes that can be written.
pub unsafe fn fill(open: &Open, to: *mut u8, length: usize, offset: off_t) -> Result<isize> {
    read_there(open, &[Span { base: to, length }], offset)
}

/// Copies between two files of ours, within the client.
pub fn copy(from: &Open, from_at: u64, to: &Open, to_at: u64, count: usize) -> Result<isize> {
    let ((client, source), (_, target)) = (from.to_read()?, to.to_write()?);
    let mut done = 0;
    while done < count {
        let wanted = (count - done).min(CHUNK_BYTES);
        let data = wait(&client, source.read_at(from_at + done as u64, wanted))?;
        let got = data.len();
        wait(&client, target.write_at(to_at + done as u64, data))?;
        done += got;
        if got < wanted {
            break;
        }
    }
    Ok(done as isize)
}
