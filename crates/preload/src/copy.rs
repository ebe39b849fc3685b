//! sendfile, copy_file_range and splice: copies that the kernel would make.

use crate::boundary::{Result, export, fail, refuse, serve};
use crate::{data, real, table};
use libc::{c_int, c_uint, off_t, size_t, ssize_t};
use std::sync::atomic::Ordering;

/// Where a copy reads or writes: the caller's offset, or the description's.
struct At<'a> {
    given: *mut off_t,
    open: &'a crate::open::Open,
}

impl At<'_> {
    /// # Safety
    ///
    /// What was given is null or an offset that nobody else uses during the call.
    unsafe fn offset(&self) -> Result<u64> {
        // SAFETY: the caller's promise.
        let offset = match unsafe { self.given.as_ref() } {
            Some(offset) => *offset,
            None => self.open.page().offset.load(Ordering::Acquire),
        };
        if offset < 0 { refuse(libc::EINVAL) } else { Ok(offset as u64) }
    }

    /// # Safety
    ///
    /// As `offset` asks for it.
    unsafe fn advance(&self, count: isize) {
        // SAFETY: the caller's promise.
        match unsafe { self.given.as_mut() } {
            Some(offset) => *offset += count as off_t,
            None => drop(self.open.page().offset.fetch_add(count as i64, Ordering::AcqRel)),
        }
    }
}

export! { fn copy_file_range(
    from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, count: size_t, flags: c_uint
) -> ssize_t {
    match (table::find(from), table::find(to)) {
        // SAFETY: the program's own arguments.
        (None, None) => unsafe { real::copy_file_range()(from, from_at, to, to_at, count, flags) },
        (Some(source), Some(target)) => serve(|| {
            if flags != 0 {
                return refuse(libc::EINVAL);
            }
            if target.flags() & libc::O_APPEND != 0 {
                return refuse(libc::EBADF);
            }
            let source_at = At { given: from_at, open: &source };
            let target_at = At { given: to_at, open: &target };
            // SAFETY: the program's own offsets.
            let (start, end) = unsafe { (source_at.offset()?, target_at.offset()?) };
            let apart = start.abs_diff(end) >= count as u64;
            if source.id() == target.id() && !apart {
                return refuse(libc::EINVAL);
            }
            let done = data::copy(&source, start, &target, end, count.min(COPY_BYTES_MAX))?;
            // SAFETY: the program's own offsets.
            unsafe {
                source_at.advance(done);
                target_at.advance(done);
            }
            Ok(done)
        }),
        // As between file systems: programs go on with read and write.
        _ => fail(libc::EXDEV),
    }
} }

export! { fn sendfile | sendfile64(to: c_int, from: c_int, from_at: *mut off_t, count: size_t) -> ssize_t {
    let (source, target) = (table::find(from), table::find(to));
    if source.is_none() && target.is_none() {
        // SAFETY: the program's own arguments.
        return unsafe { real::sendfile()(to, from, from_at, count) };
    }
    let mut buffer = vec![0_u8; count.min(SEND_BYTES_MAX)];
    // SAFETY: the buffer is ours, the offset null or the program's own; our own entry points tell
    // whose each descriptor is.
    unsafe {
        let at = buffer.as_mut_ptr();
        let got = if from_at.is_null() {
            data::read(from, at.cast(), buffer.len())
        } else {
            data::pread(from, at.cast(), buffer.len(), *from_at)
        };
        if got <= 0 {
            return got;
        }
        let sent = data::write(to, at.cast(), got as usize);
        match from_at.as_mut() {
            Some(offset) => *offset += sent.max(0) as off_t,
            // What was not taken is read again.
            None if sent < got => drop(data::lseek(from, sent.max(0) as off_t - got as off_t, libc::SEEK_CUR)),
            None => {}
        }
        sent
    }
} }

export! { fn splice(
    from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, count: size_t, flags: c_uint
) -> ssize_t {
    if table::is_ours(from) || table::is_ours(to) {
        return fail(libc::EINVAL);
    }
    // SAFETY: the program's own arguments.
    unsafe { real::splice()(from, from_at, to, to_at, count, flags) }
} }

/// Most bytes of one call.
const COPY_BYTES_MAX: usize = 256 << 20;
const SEND_BYTES_MAX: usize = 4 << 20;
