//! Errors that begin with whose fault it is.

use std::fmt;

/// What went wrong, by whose doing. The text is lower case, the fact before the cause.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Blame {
    /// The bytes are no message. The connection cannot go on.
    Malformed(String),
    /// The peer sent a message that the rules forbid here. The connection cannot go on.
    Violation(String),
    /// The peer asked for something this side does not speak. Only that request fails.
    Unsupported(String),
    /// Our own caller asked for something impossible. Only that call fails.
    Misuse(String),
    /// The world failed: a socket, a disk, a dead peer.
    Io(String),
}

impl fmt::Display for Blame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (who, what) = match self {
            Blame::Malformed(what) => ("malformed", what),
            Blame::Violation(what) => ("protocol violation", what),
            Blame::Unsupported(what) => ("unsupported", what),
            Blame::Misuse(what) => ("misuse", what),
            Blame::Io(what) => ("i/o", what),
        };
        write!(f, "{who}: {what}")
    }
}

impl std::error::Error for Blame {}
