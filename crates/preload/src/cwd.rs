//! The working directory, when it is one of ours.
//!
//! The kernel cannot stand in a directory that it does not know. While the working directory is ours
//! the kernel's is a place under /proc where nothing can be made, so that what gets past us fails
//! instead of touching the wrong file. Programs that are started learn of it through COVEY_PRELOAD_CWD.

use crate::boundary::{self, Result, export, is_inside, refuse, serve, set_errno};
use crate::client::{caller, client, wait};
use crate::place::{Where, below_prefix, locate_path};
use crate::walk::{Follow, resolve};
use crate::{open, real, table};
use covey_io::boundary::variable;
use covey_ninep::tree::Errno;
use covey_stripe::ops::{Id, Inode};
use libc::{c_char, c_int, size_t};
use std::ffi::CString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Tells a started program where it is.
pub const VARIABLE: &std::ffi::CStr = c"COVEY_PRELOAD_CWD";
const NOWHERE: &std::ffi::CStr = c"/proc/self/task";

/// The directory, and its path.
pub type Cwd = (Id, Vec<u8>);

static IS_OURS: AtomicBool = AtomicBool::new(false);
static CWD: Mutex<Option<Cwd>> = Mutex::new(None);

/// The working directory if it is ours.
pub fn of_ours() -> Option<Cwd> {
    if !IS_OURS.load(Ordering::Acquire) {
        return None;
    }
    boundary::lock(&CWD).clone()
}

/// For the time of a fork.
pub fn lock() -> std::sync::MutexGuard<'static, Option<Cwd>> {
    CWD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes up the working directory of the program that started this one.
pub fn inherit() {
    let Some(path) = variable(VARIABLE) else { return };
    let Some(place) = below_prefix(&path) else { return };
    if let Ok(node) = resolve(&place, Follow::Last).and_then(|found| found.node()) {
        let _ = set(&node, place.shown);
    }
}

fn set(node: &Inode, path: Vec<u8>) -> Result<c_int> {
    if !node.is_dir() {
        return refuse(libc::ENOTDIR);
    }
    if !open::permits(node, &caller(), 1) {
        return refuse(libc::EACCES);
    }
    // SAFETY: the path is a constant.
    unsafe { real::chdir()(NOWHERE.as_ptr()) };
    if let Ok(text) = CString::new(path.clone()) {
        // SAFETY: both strings end with a zero and are copied.
        unsafe { libc::setenv(VARIABLE.as_ptr(), text.as_ptr(), 1) };
    }
    *lock() = Some((node.id, path));
    IS_OURS.store(true, Ordering::Release);
    Ok(0)
}

/// The working directory is the kernel's again.
fn leave(done: c_int) -> c_int {
    if done == 0 && IS_OURS.swap(false, Ordering::AcqRel) {
        *lock() = None;
        // SAFETY: the name ends with a zero.
        unsafe { libc::unsetenv(VARIABLE.as_ptr()) };
    }
    done
}

export! {
    fn chdir(path: *const c_char) -> c_int {
        // SAFETY: the program's own pointer.
        match unsafe { locate_path(path) } {
            // SAFETY: the same pointer, or one of ours.
            Where::Real(path) => leave(unsafe { real::chdir()(path.pointer()) }),
            Where::Ours(place) => serve(|| {
                let node = resolve(&place, Follow::Last)?.node()?;
                set(&node, place.shown.clone())
            }),
        }
    }
}

export! {
    fn fchdir(fd: c_int) -> c_int {
        match table::find(fd) {
            // SAFETY: no pointers.
            None => leave(unsafe { real::fchdir()(fd) }),
            Some(open) => serve(|| {
                let client = client()?;
                let node = wait(&client, client.inode(open.id()))?;
                set(&node, open.path())
            }),
        }
    }
}

export! {
    fn getcwd(buffer: *mut c_char, size: size_t) -> *mut c_char {
        let Some((_, path)) = of_ours().filter(|_| !is_inside()) else {
            // SAFETY: the program's own buffer.
            return unsafe { real::getcwd()(buffer, size) };
        };
        // SAFETY: the program's buffer has `size` bytes, or is null and becomes malloc's.
        unsafe { hand_out(&path, buffer, size) }
    }
}

// The working directory in a buffer of malloc's.
export! {
    named("get_current_dir_name") fn current_dir_name() -> *mut c_char {
        // SAFETY: without a buffer one is made.
        unsafe { getcwd(std::ptr::null_mut(), 0) }
    }
}

/// Copies a path to a buffer, or to one of malloc's, as getcwd(3) and realpath(3) do.
///
/// # Safety
///
/// `buffer` is null or has `size` bytes.
pub unsafe fn hand_out(path: &[u8], buffer: *mut c_char, size: size_t) -> *mut c_char {
    let needed = path.len() + 1;
    if (!buffer.is_null() || size != 0) && size < needed {
        set_errno(if size == 0 { Errno::EINVAL as i32 } else { libc::ERANGE });
        return std::ptr::null_mut();
    }
    // SAFETY: malloc gives at least `needed` bytes or null; the program's buffer has them.
    unsafe {
        let to = if buffer.is_null() { libc::malloc(size.max(needed)).cast() } else { buffer };
        if !to.is_null() {
            std::ptr::copy_nonoverlapping(path.as_ptr().cast(), to, path.len());
            *to.add(path.len()) = 0;
        }
        to
    }
}
