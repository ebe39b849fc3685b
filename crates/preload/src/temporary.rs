//! mkstemp(3) and its kin, which libc answers with calls inside itself.

use crate::boundary::{errno, export, fail};
use crate::place::{Where, locate_path};
use crate::{names, opening, real};
use libc::{c_char, c_int};
use std::ffi::CStr;

/// Tries names until one is free.
///
/// # Safety
///
/// `template` is the program's own and writable.
unsafe fn try_names(template: *mut c_char, suffix: c_int, make: impl Fn() -> c_int) -> c_int {
    // SAFETY: the caller's promise.
    let length = unsafe { CStr::from_ptr(template) }.to_bytes().len();
    let Some(end) = length.checked_sub(suffix.max(0) as usize).filter(|end| *end >= MARK.len())
    else {
        return fail(libc::EINVAL);
    };
    // SAFETY: within the string.
    let mark = unsafe {
        std::slice::from_raw_parts_mut(template.cast::<u8>().add(end - MARK.len()), MARK.len())
    };
    if mark != MARK {
        return fail(libc::EINVAL);
    }
    for _ in 0..TRIES {
        let mut random = [0_u8; MARK.len()];
        // SAFETY: the buffer has the length that is passed.
        unsafe { libc::getrandom(random.as_mut_ptr().cast(), random.len(), 0) };
        for (letter, random) in mark.iter_mut().zip(random) {
            *letter = LETTERS[usize::from(random) % LETTERS.len()];
        }
        let made = make();
        if made >= 0 || errno() != libc::EEXIST {
            return made;
        }
    }
    fail(libc::EEXIST)
}

unsafe fn is_ours(template: *const c_char) -> bool {
    // SAFETY: the program's own string.
    unsafe { matches!(locate_path(template), Where::Ours(_)) }
}

export! { fn mkostemps | mkostemps64(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        if !is_ours(template) {
            return real::mkostemps()(template, suffix, flags);
        }
        let flags = flags & !libc::O_ACCMODE | libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
        try_names(template, suffix, || opening::open(template, flags, 0o600))
    }
} }
export! { fn mkostemp | mkostemp64(template: *mut c_char, flags: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { mkostemps(template, 0, flags) }
} }
export! { fn mkstemps | mkstemps64(template: *mut c_char, suffix: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { mkostemps(template, suffix, 0) }
} }
export! { fn mkstemp | mkstemp64(template: *mut c_char) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { mkostemps(template, 0, 0) }
} }
export! { fn mkdtemp(template: *mut c_char) -> *mut c_char {
    // SAFETY: the program's own arguments.
    unsafe {
        if !is_ours(template) {
            return real::mkdtemp()(template);
        }
        match try_names(template, 0, || names::mkdir(template, 0o700)) {
            0 => template,
            _ => std::ptr::null_mut(),
        }
    }
} }

const MARK: &[u8; 6] = b"XXXXXX";
const LETTERS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const TRIES: usize = 1000;
