//! The fence between C and us: every function that C can call is made here.

use covey_io::boundary;
use std::ffi::{c_char, c_int};

/// Why a call was refused: a positive number of errno.h, or of libfabric's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

/// What the inside of an entry point answers.
pub type Result<T> = std::result::Result<T, Errno>;

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Errno {
        Errno(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

/// What C is answered.
pub trait Answer: Sized {
    /// A refusal.
    fn refused(errno: Errno) -> Self;
}

impl Answer for c_int {
    fn refused(errno: Errno) -> c_int {
        -errno.0
    }
}

impl Answer for isize {
    fn refused(errno: Errno) -> isize {
        -(errno.0 as isize)
    }
}

impl Answer for u64 {
    fn refused(_: Errno) -> u64 {
        0
    }
}

impl Answer for *const c_char {
    fn refused(_: Errno) -> *const c_char {
        c"a panic in libcovey-fi".as_ptr()
    }
}

/// Serves a call.
pub fn fence<T: Answer>(work: impl FnOnce() -> Result<T>) -> T {
    let fenced = boundary::fence(|| work().unwrap_or_else(T::refused));
    fenced.unwrap_or_else(|_| T::refused(Errno(crate::abi::EOTHER)))
}

/// Serves a call that answers nothing.
pub fn quietly(work: impl FnOnce()) {
    // A panic has been reported on stderr, and C cannot be told more.
    let _ = boundary::fence(work);
}

/// Makes a function for C, the whole body within the fence: `entry` one that is named in a table, `quiet` one that answers
/// nothing, `export` one that is found by its name.
macro_rules! call {
    (entry $name:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty $body:block) => {
        #[allow(clippy::too_many_arguments, unused_unsafe)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> $result {
            // One pointer passes the fence: the processor waits where many words are written one by one and then moved
            // together.
            let arguments = &($($arg,)*);
            $crate::boundary::fence(move || {
                let ($($arg,)*) = *arguments;
                // SAFETY: the contract of libfabric's manual: objects are ours and open, lists have their entries, memory
                // is there.
                unsafe { $body }
            })
        }
    };
    (quiet $name:ident() $body:block) => {
        pub unsafe extern "C" fn $name() {
            $crate::boundary::quietly(|| $body)
        }
    };
    (export $name:ident() -> $result:ty, otherwise $otherwise:expr, $body:block) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() -> $result {
            covey_io::boundary::fence(|| $body).unwrap_or($otherwise)
        }
    };
}
pub(crate) use call;

call! {
    entry refused() -> isize { Err(Errno(libc::ENOSYS)) }
}

/// An object of ours, by the pointer that C has.
///
/// # Safety
///
/// It begins with what the pointer points to, was made by [`give`] and is open.
pub unsafe fn object<'a, T, F>(fid: *mut F) -> Result<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { fid.cast::<T>().as_ref() }.ok_or(Errno(libc::EINVAL))
}

/// Gives C an object.
///
/// # Safety
///
/// `place` is null or a place for a pointer; `T` begins with an `F`.
pub unsafe fn give<T, F>(place: *mut *mut F, object: T) -> Result<c_int> {
    if place.is_null() {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: not null; the rest is the caller's promise.
    unsafe { place.write(Box::into_raw(Box::new(object)).cast()) };
    Ok(0)
}

/// Takes an object back.
///
/// # Safety
///
/// It was given by [`give`], and nobody uses it any more.
pub unsafe fn take<T, F>(fid: *mut F) -> Result<Box<T>> {
    if fid.is_null() {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { Box::from_raw(fid.cast::<T>()) })
}

/// A list of the caller's.
///
/// # Safety
///
/// Null, or the first of `count` entries that nobody changes during the call.
pub unsafe fn list<'a, T>(first: *const T, count: usize) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if first.is_null() || !first.is_aligned() || count > isize::MAX as usize / size_of::<T>() {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: not null, aligned, no longer than memory can be; the rest is the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(first, count) })
}

/// What the caller points to.
///
/// # Safety
///
/// Null, or something that nobody changes during the call.
pub unsafe fn held<'a, T>(pointer: *const T) -> Result<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or(Errno(libc::EINVAL))
}

/// Gives the caller a value, where there is a place for it.
///
/// # Safety
///
/// Null, or a place that can be written to.
pub unsafe fn put<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: not null; the rest is the caller's promise.
        unsafe { place.write_unaligned(value) };
    }
}

/// Gives the caller as many bytes as there is room for.
///
/// # Safety
///
/// Null, or room for `room` bytes.
pub unsafe fn put_bytes(place: *mut u8, room: usize, bytes: &[u8]) {
    if !place.is_null() {
        let count = room.min(bytes.len());
        // SAFETY: as many as there is room for; the rest is the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, count) };
    }
}
