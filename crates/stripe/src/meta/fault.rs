//! Why an operation did not succeed: it was refused, or the map under it failed.

use covey_ninep::tree::Errno;

/// Refused is an answer like any other and nothing was written; broken ends the transaction.
#[derive(Debug)]
pub(super) enum Fault {
    Refused(Errno),
    Broken(Errno),
}

impl Fault {
    /// The error without whose fault it is, for calls outside `apply`.
    pub(super) fn into_errno(self) -> Errno {
        match self {
            Fault::Refused(error) | Fault::Broken(error) => error,
        }
    }
}

/// A refusal with its reason.
pub(super) fn refuse<T>(code: u32, reason: impl Into<String>) -> Result<T, Fault> {
    Err(Fault::Refused(Errno::because(code, reason)))
}
