//! The fence between C and a worker: every function that C calls is made by [`export!`] and asks within it.

use covey_cell::coroutine::{on_large_stack, suspend};
use covey_cell::worker::{Answer, Request};
use covey_io::boundary;
use covey_ninep::tree::Errno;
use covey_wire::Span;
use std::ffi::{c_char, c_void};
use std::ptr;

/// Asks for something on behalf of the coroutine that runs: a number, or that of an error.
#[inline]
pub fn ask(request: Request) -> Result<i64, u32> {
    // SAFETY: all coroutines of a worker's thread are those of its worker.
    let answer = unsafe { suspend::<Request, Answer>(request) };
    answer.map_or(Err(Errno::EPERM), Answer::result)
}

/// What the coroutine has done by itself, or else the answer to what is to be asked, or -1.
#[inline(always)]
pub fn settled(done: Result<u64, Request>) -> i64 {
    done.map_or_else(|request| ask(request).unwrap_or(-1), |count| count as i64)
}

/// Does work that needs a large stack.
pub fn apart<R>(work: impl FnOnce() -> R) -> R {
    on_large_stack(work)
}

/// The answer to what the work makes of a call, or -1.
#[inline]
pub fn fence(work: impl FnOnce() -> Request) -> i64 {
    quietly(|| ask(work()).unwrap_or(-1), -1)
}

/// What the work answers, or `otherwise` after a panic.
#[inline]
pub fn quietly<T>(work: impl FnOnce() -> T, otherwise: T) -> T {
    boundary::fence(work).unwrap_or(otherwise)
}

/// An address from an answer: null for -1.
pub fn pointer(answer: i64) -> *mut c_void {
    let address = usize::try_from(answer).unwrap_or_default();
    ptr::with_exposed_provenance_mut(address)
}

/// Memory of the caller, as a span of the local store.
pub fn memory<T>(address: *const T, bytes: u64) -> Span {
    Span::new(address.expose_provenance() as u64, bytes)
}

/// The bytes of a text without its end.
///
/// # Safety
///
/// Null, or a text that ends with a zero.
pub unsafe fn text(text: *const c_char) -> Span {
    if text.is_null() {
        return Span::default();
    }
    // SAFETY: promised by the caller.
    memory(text, unsafe { libc::strlen(text) } as u64)
}

/// Exports functions under their names in C, the whole body within the fence. A body makes a request, whose answer is the
/// function's; that of a `free` one answers by itself, or with what stands behind `else` after a panic.
macro_rules! export {
    ($(#[$meta:meta])* fn $name:ident ($($arg:ident: $type:ty),*) -> $answer:ty $body:block) => {
        $(#[$meta])*
        #[unsafe(no_mangle)]
        #[allow(clippy::missing_safety_doc, clippy::unnecessary_cast, unused_unsafe)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> $answer {
            // SAFETY: the contract of `covey_cell.h`: texts end, memory is there and nobody else's.
            $crate::boundary::fence(move || unsafe { $body }) as $answer
        }
    };
    ($(#[$meta:meta])* memory fn $name:ident ($($arg:ident: $type:ty),*) $body:block) => {
        $(#[$meta])*
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($arg: $type),*) -> *mut std::ffi::c_void {
            $crate::boundary::pointer($crate::boundary::fence(move || $body))
        }
    };
    ($(#[$meta:meta])* free fn $name:ident ($($arg:ident: $type:ty),*) $(-> $answer:ty)? $body:block else $otherwise:expr) => {
        $(#[$meta])*
        #[unsafe(no_mangle)]
        #[allow(clippy::missing_safety_doc, unused_unsafe)]
        pub unsafe extern "C" fn $name($($arg: $type),*) $(-> $answer)? {
            // SAFETY: the contract of `covey_cell.h`: texts end, memory is there and nobody else's.
            $crate::boundary::quietly(move || unsafe { $body }, $otherwise)
        }
    };
}
pub(crate) use export;

/// Makes a function of a worker's number and its words the program of this library. When it panics its worker ends with
/// an error.
#[macro_export]
macro_rules! program {
    ($main:path) => {
        /// The entry of the program.
        ///
        /// # Safety
        ///
        /// Called by a worker, with a list of texts.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn cormain(
            worker: u64,
            words: $crate::Words,
            _: $crate::Words,
        ) {
            // SAFETY: promised by the caller.
            let words = unsafe { $crate::api::texts(words) };
            $main(worker, words)
        }
    };
}
