//! stdio: streams of ours are made of callbacks that go by descriptor.
//!
//! libc's own streams make their system calls inside libc, where nobody can stand before them. So a
//! stream on a file of ours is a fopencookie(3) stream. And when descriptor 0, 1 or 2 becomes ours, by
//! redirection, `stdin`, `stdout` or `stderr` is replaced by a stream that asks each time whose the
//! descriptor is; it stays in place when the descriptor is somebody else's again.

use crate::boundary::{errno, export, fail, is_inside, serve_or, set_errno};
use crate::opening::open_place;
use crate::place::{Where, locate_path};
use crate::{data, descriptors, real, table};
use libc::{FILE, c_char, c_int, c_void, mode_t, off_t, size_t, ssize_t};
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How a standard stream gathers what is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Buffer {
    /// As for a file.
    Whole,
    /// As for a terminal, which it may become again.
    Lines,
}

struct Cookie {
    fd: c_int,
    stream: *mut FILE,
    buffer: Vec<u8>,
}

/// The descriptors of our streams.
static STREAMS: Mutex<BTreeMap<usize, c_int>> = Mutex::new(BTreeMap::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// For the time of a fork.
pub type Held = MutexGuard<'static, BTreeMap<usize, c_int>>;

/// For the time of a fork.
pub fn lock() -> Held {
    STREAMS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[repr(C)]
struct Callbacks {
    read: unsafe extern "C" fn(*mut c_void, *mut c_char, size_t) -> ssize_t,
    write: unsafe extern "C" fn(*mut c_void, *const c_char, size_t) -> ssize_t,
    seek: unsafe extern "C" fn(*mut c_void, *mut off_t, c_int) -> c_int,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
}

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, how: Callbacks) -> *mut FILE;
    static mut stdin: *mut FILE;
    static mut stdout: *mut FILE;
    static mut stderr: *mut FILE;
}

export! { callback fn read_cookie(cookie: *mut c_void, to: *mut c_char, count: size_t) -> ssize_t {
    // SAFETY: the cookie is the one that the stream was made with.
    unsafe { data::read((*cookie.cast::<Cookie>()).fd, to.cast(), count) }
} }

// A stream takes 0 as an error, and -1 as a bug.
export! { failing(0) callback fn write_cookie(
    cookie: *mut c_void, from: *const c_char, count: size_t
) -> ssize_t {
    // SAFETY: the cookie is the one that the stream was made with.
    let done = unsafe { data::write((*cookie.cast::<Cookie>()).fd, from.cast(), count) };
    done.max(0)
} }

export! { callback fn seek_cookie(cookie: *mut c_void, offset: *mut off_t, whence: c_int) -> c_int {
    // SAFETY: the cookie is the one that the stream was made with, and the offset is libc's own.
    unsafe {
        let to = data::lseek((*cookie.cast::<Cookie>()).fd, *offset, whence);
        if to < 0 {
            return -1;
        }
        *offset = to;
        0
    }
} }

export! { callback fn close_cookie(cookie: *mut c_void) -> c_int {
    // SAFETY: the stream's last call: the cookie is ours again.
    unsafe {
        let cookie = Box::from_raw(cookie.cast::<Cookie>());
        lock().remove(&(cookie.stream as usize));
        COUNT.fetch_sub(1, Ordering::Relaxed);
        let done = descriptors::close(cookie.fd);
        // libc still holds the buffer until it has freed the stream.
        std::mem::forget(cookie.buffer);
        done
    }
} }

/// A stream on a descriptor; null when there is no memory.
fn stream(fd: c_int, mode: &CStr, buffering: c_int) -> *mut FILE {
    let how = Callbacks {
        read: read_cookie,
        write: write_cookie,
        seek: seek_cookie,
        close: close_cookie,
    };
    let buffer = if buffering == libc::_IONBF { Vec::new() } else { vec![0; BUFFER_BYTES] };
    let cookie = Box::into_raw(Box::new(Cookie { fd, stream: std::ptr::null_mut(), buffer }));
    // SAFETY: the cookie lives until the stream's close.
    unsafe {
        let made = fopencookie(cookie.cast(), mode.as_ptr(), how);
        if made.is_null() {
            drop(Box::from_raw(cookie));
            return made;
        }
        (*cookie).stream = made;
        let at = (*cookie).buffer.as_mut_ptr();
        libc::setvbuf(made, at.cast(), buffering, (*cookie).buffer.len());
        lock().insert(made as usize, fd);
        COUNT.fetch_add(1, Ordering::Relaxed);
        made
    }
}

/// Open flags and the plain mode of a mode string; none for what fopen(3) refuses.
///
/// # Safety
///
/// `mode` ends with a zero.
unsafe fn parse(mode: *const c_char) -> Option<(c_int, &'static CStr)> {
    // SAFETY: the caller's promise.
    let mode = unsafe { CStr::from_ptr(mode) }.to_bytes();
    let mode = mode.split(|byte| *byte == b',').next()?;
    let both = mode.contains(&b'+');
    let (flags, plain) = match (mode.first()?, both) {
        (b'r', false) => (libc::O_RDONLY, c"r"),
        (b'r', true) => (libc::O_RDWR, c"r+"),
        (b'w', false) => (libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC, c"w"),
        (b'w', true) => (libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC, c"w+"),
        (b'a', false) => (libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND, c"a"),
        (b'a', true) => (libc::O_RDWR | libc::O_CREAT | libc::O_APPEND, c"a+"),
        _ => return None,
    };
    let bit = |byte: u8, flag: c_int| if mode.contains(&byte) { flag } else { 0 };
    Some((flags | bit(b'x', libc::O_EXCL) | bit(b'e', libc::O_CLOEXEC), plain))
}

const MODE: mode_t = 0o666;

export! { fn fopen | fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the program's own arguments.
    match unsafe { locate_path(path) } {
        // SAFETY: the program's own arguments.
        Where::Real(path) => unsafe { real::fopen()(path.pointer(), mode) },
        Where::Ours(place) => {
            // SAFETY: the program's own string.
            let Some((flags, plain)) = (unsafe { parse(mode) }) else { return fail(libc::EINVAL) };
            let fd = serve_or(
                || open_place(&place, flags, MODE),
                // SAFETY: the path lives through the call.
                |outside| unsafe { real::open()(outside.as_ptr(), flags, MODE) },
            );
            if fd < 0 { std::ptr::null_mut() } else { stream(fd, plain, libc::_IOFBF) }
        }
    }
} }

export! { fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    if !table::is_ours(fd) || is_inside() {
        // SAFETY: the program's own arguments.
        return unsafe { real::fdopen()(fd, mode) };
    }
    // SAFETY: the program's own string.
    match unsafe { parse(mode) } {
        Some((_, plain)) => stream(fd, plain, libc::_IOFBF),
        None => fail(libc::EINVAL),
    }
} }

export! { fn freopen | freopen64(path: *const c_char, mode: *const c_char, old: *mut FILE) -> *mut FILE {
    // SAFETY: the program's own arguments.
    unsafe {
        let fd = fileno(old);
        let known = lock().contains_key(&(old as usize));
        let ours = !path.is_null() && matches!(locate_path(path), Where::Ours(_));
        if !known && !ours {
            return real::freopen()(path, mode, old);
        }
        let Some((flags, _)) = parse(mode) else { return fail(libc::EINVAL) };
        let is_standard = (0..=2).contains(&fd) && old == *standard(fd);
        if path.is_null() || !(known || is_standard) {
            // The stream would have to stay where it is and become another one.
            return fail(libc::EOPNOTSUPP);
        }
        libc::fflush(old);
        let opened = crate::opening::open(path, flags, MODE);
        if opened < 0 || descriptors::dup2(opened, fd) < 0 {
            return std::ptr::null_mut();
        }
        descriptors::close(opened);
        libc::clearerr(old);
        if known { old } else { *standard(fd) }
    }
} }

export! { fn fileno | fileno_unlocked(stream: *mut FILE) -> c_int {
    if COUNT.load(Ordering::Relaxed) > 0 && let Some(fd) = lock().get(&(stream as usize)) {
        return *fd;
    }
    // SAFETY: the program's own stream.
    unsafe { real::fileno()(stream) }
} }

/// The variable of a standard stream.
fn standard(fd: c_int) -> *mut *mut FILE {
    match fd {
        0 => &raw mut stdin,
        1 => &raw mut stdout,
        _ => &raw mut stderr,
    }
}

/// A descriptor has become ours: a standard stream on it must go through us.
pub fn became_ours(fd: c_int, buffer: Buffer) {
    if !(0..=2).contains(&fd) || is_inside() {
        return;
    }
    let before = errno();
    // SAFETY: libc's own variables.
    unsafe {
        let at = standard(fd);
        if lock().contains_key(&(*at as usize)) {
            return;
        }
        libc::fflush(*at);
        let buffering = match (fd, buffer) {
            (2, _) => libc::_IONBF,
            (1, Buffer::Lines) => libc::_IOLBF,
            _ => libc::_IOFBF,
        };
        let made = stream(fd, if fd == 0 { c"r" } else { c"w" }, buffering);
        if !made.is_null() {
            *at = made;
        }
    }
    set_errno(before);
}

/// Takes up standard streams that this program was started with.
pub fn inherit() {
    (0..=2).filter(|fd| table::is_ours(*fd)).for_each(|fd| became_ours(fd, Buffer::Whole));
}

/// What a stream gathers before it asks the servers.
const BUFFER_BYTES: usize = crate::stats::IO_BLOCK_BYTES as usize;
