//! What the libraries for C share: the fence that no panic passes, and what the environment says.
//!
//! ```text
//!   C ──► exported function ── fence ──► a library's own answer: errno, a number, a handle
//! ```

use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A panic that was stopped: it has been reported on stderr, and C cannot be given more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Panicked;

/// Does the work of an exported function: a panic ends here and never unwinds into C.
///
/// What the work was changing may be left half changed; a library answers its "internal error".
pub fn fence<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| Panicked)
}

/// A variable of the environment, without the lock that Rust's own way takes: a program in C may hold it.
pub fn variable(name: &CStr) -> Option<Vec<u8>> {
    // SAFETY: the name ends with a zero; what comes back is copied at once.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value).to_bytes().to_vec())
    }
}

/// Whether a variable says yes: it is there, not empty and not `0`.
pub fn is_on(name: &CStr) -> bool {
    variable(name).is_some_and(|value| !value.is_empty() && value != b"0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_ends_at_the_fence() {
        assert_eq!(fence(|| 7), Ok(7));
        assert_eq!(fence(|| -> u8 { panic!("on purpose") }), Err(Panicked));
    }

    #[test]
    fn what_is_not_there_is_off() {
        assert_eq!(variable(c"COVEY_NO_SUCH_VARIABLE"), None);
        assert!(!is_on(c"COVEY_NO_SUCH_VARIABLE"));
        assert!(is_on(c"PATH"));
    }
}
