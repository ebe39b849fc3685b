//! The fence between C and us: every entry point goes through it, and what C gives is checked here.

use crate::results::{Number, Refusal, tell};
use covey_io::boundary;
use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;

/// What the inside of an entry point answers.
pub type Result<T> = std::result::Result<T, Refusal>;

/// Serves a call: 0, or a negative number whose text is kept for `covey_last_error`.
pub fn fence(work: impl FnOnce() -> Result<()>) -> c_int {
    let panicked = || tell(Refusal::of(Number::Internal, "a panic in libcovey".to_owned()));
    let number = boundary::fence(|| match work() {
        Ok(()) => Number::Ok as c_int,
        Err(refusal) => tell(refusal),
    });
    number.or_else(|_| boundary::fence(panicked)).unwrap_or(Number::Internal as c_int)
}

/// Serves a call that answers a text that nobody frees.
pub fn say(work: impl FnOnce() -> *const c_char) -> *const c_char {
    boundary::fence(work).unwrap_or(c"a panic in libcovey".as_ptr())
}

/// Serves a call that cannot be refused: freeing.
pub fn quietly(work: impl FnOnce()) {
    // A panic has been told on stderr, and C cannot be told more.
    let _ = boundary::fence(work);
}

/// What a handle points to.
///
/// # Safety
///
/// Null, or a pointer that this library gave and that has not been freed.
pub unsafe fn held<'a, T>(handle: *const T, what: &str) -> Result<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { handle.as_ref() }.ok_or_else(|| Refusal::argument(format!("{what} is null")))
}

/// What a handle points to, to be changed.
///
/// # Safety
///
/// As of `held`, and no other thread uses it during the call.
pub unsafe fn held_mut<'a, T>(handle: *mut T, what: &str) -> Result<&'a mut T> {
    // SAFETY: the caller's promise.
    unsafe { handle.as_mut() }.ok_or_else(|| Refusal::argument(format!("{what} is null")))
}

/// A list of the caller's.
///
/// # Safety
///
/// Null, or the first of `count` entries that nobody changes during the call.
pub unsafe fn list<'a, T>(first: *const T, count: usize, what: &str) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    check_list(first, count, what)?;
    // SAFETY: not null, aligned, no longer than memory can be; the rest is the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(first, count) })
}

/// Room of the caller's, to be written to.
///
/// # Safety
///
/// Null, or the first of `count` entries that nobody else uses during the call.
pub unsafe fn room<'a, T>(first: *mut T, count: usize, what: &str) -> Result<&'a mut [T]> {
    if count == 0 {
        return Ok(&mut []);
    }
    check_list(first, count, what)?;
    // SAFETY: not null, aligned, no longer than memory can be; the rest is the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts_mut(first, count) })
}

fn check_list<T>(first: *const T, count: usize, what: &str) -> Result<()> {
    if first.is_null() || !first.is_aligned() {
        let fault = if first.is_null() { "null" } else { "not aligned" };
        return Err(Refusal::argument(format!("{what}, {count} entries, is {fault}")));
    }
    match count.checked_mul(size_of::<T>()) {
        Some(bytes) if bytes <= isize::MAX as usize => Ok(()),
        _ => Err(Refusal::argument(format!("{what} has {count} entries: no memory has"))),
    }
}

/// A place of the caller's for a result. What changes something asks for it first: with nowhere to tell the result, it
/// must not have been done.
///
/// # Safety
///
/// Null, or a place that can be written to and that nobody else uses during the call.
pub unsafe fn place<'a, T>(place: *mut T) -> Result<&'a mut MaybeUninit<T>> {
    if place.is_null() || !place.is_aligned() {
        let fault = if place.is_null() { "null" } else { "not aligned" };
        return Err(Refusal::argument(format!("the place for the result is {fault}")));
    }
    // SAFETY: not null, aligned; the rest is the caller's promise.
    Ok(unsafe { &mut *place.cast() })
}

/// Gives the caller a value in a place of his.
///
/// # Safety
///
/// As of `place`.
pub unsafe fn give<T>(into: *mut T, value: T) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { place(into) }?.write(value);
    Ok(())
}

/// Gives the caller a handle of something new.
///
/// # Safety
///
/// As of `give`.
pub unsafe fn give_new<T>(place: *mut *mut T, value: T) -> Result<()> {
    if place.is_null() {
        return Err(Refusal::argument("the place for the handle is null".to_owned()));
    }
    // SAFETY: the caller's promise.
    unsafe { give(place, Box::into_raw(Box::new(value))) }
}

/// Frees what a handle points to.
///
/// # Safety
///
/// Null, or a handle that is not used any more.
pub unsafe fn free<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: made by `give_new`, and freed once.
        drop(unsafe { Box::from_raw(handle) });
    }
}

/// Exports functions under their names in C, the whole body within the fence. Those that can be refused answer a
/// number; `free` frees a handle, `text` answers a text.
macro_rules! export {
    ($(#[$meta:meta])* fn $name:ident ($($arg:ident: $type:ty),* $(,)?) $body:block) => {
        $(#[$meta])*
        #[unsafe(no_mangle)]
        #[allow(clippy::missing_safety_doc, clippy::too_many_arguments)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> std::ffi::c_int {
            // SAFETY: the contract of `covey.h`: handles are ours, lists have their entries, memory
            // is there.
            $crate::boundary::fence(move || unsafe { $body })
        }
    };
    ($(#[$meta:meta])* free fn $name:ident ($handle:ident: $type:ty)) => {
        $(#[$meta])*
        #[unsafe(no_mangle)]
        #[allow(clippy::missing_safety_doc)]
        pub unsafe extern "C" fn $name($handle: $type) {
            // SAFETY: the contract of `covey.h`: the handle is ours and used no more.
            $crate::boundary::quietly(move || unsafe { $crate::boundary::free($handle) })
        }
    };
    ($(#[$meta:meta])* text fn $name:ident ($($arg:ident: $type:ty),*) -> *const c_char $body:block) => {
        $(#[$meta])*
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($arg: $type),*) -> *const std::ffi::c_char {
            $crate::boundary::say(move || $body)
        }
    };
}
pub(crate) use export;
