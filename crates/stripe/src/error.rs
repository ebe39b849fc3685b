//! Why a call of the client or of a check has failed: by what a caller can do about it, with the number
//! that a program is told.

use covey_ninep::client::CallError;
use covey_ninep::tree::Errno;
use std::fmt;
use std::time::Duration;

/// Why a call has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// A server is not reachable, and has not been for as long as a request may wait.
    Down {
        /// Its name.
        server: String,
        /// How it went away, or how the last attempt to reach it ended.
        why: Away,
    },
    /// The connection was lost with the request on its way, and there is no time to ask again. Whether
    /// it was done is not known.
    Lost {
        /// The server.
        server: String,
        /// How the connection ended.
        why: String,
    },
    /// A server is alive and has not answered in time.
    Slow {
        /// Its name.
        server: String,
        /// How long it had.
        limit: Duration,
    },
    /// The metadata server has given up this client's session meanwhile. Whether it was done is not
    /// known.
    Forgotten,
    /// A server's machine has started anew: what was written before and not synced may be lost. Told
    /// once.
    Unsynced {
        /// The server; none for the metadata server.
        server: Option<String>,
    },
    /// The user may not do this.
    Denied(Errno),
    /// Something was truncated or removed meanwhile: what was known of it holds no more.
    Stale(Errno),
    /// There is no space left.
    Full(Errno),
    /// A server's answer does not fit the request: it is broken, or newer.
    Odd(String),
    /// Any other refusal, by a server or by the client itself.
    Refused(Errno),
}

/// Why a server counts as away.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Away {
    /// It has not answered yet.
    #[default]
    Unanswered,
    /// It was silent for too long.
    Silent,
    /// Its connection ended.
    Lost,
    /// It could not be reached, or has refused us.
    Dial(Errno),
}

/// What every call answers.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The number, as in errno(3).
    pub fn code(&self) -> u32 {
        match self {
            Error::Down { .. }
            | Error::Lost { .. }
            | Error::Slow { .. }
            | Error::Forgotten
            | Error::Unsynced { .. } => Errno::EIO,
            Error::Odd(_) => Errno::EPROTO,
            Error::Denied(errno)
            | Error::Stale(errno)
            | Error::Full(errno)
            | Error::Refused(errno) => errno.code,
        }
    }

    /// An error with a number and a reason.
    pub fn because(code: u32, reason: impl Into<String>) -> Error {
        Errno::because(code, reason).into()
    }

    /// The server is away: it may answer later, and may have done what was asked.
    pub fn is_away(&self) -> bool {
        matches!(self, Error::Down { .. } | Error::Lost { .. })
    }

    /// An older server does not know what was asked; or it was not right.
    pub fn is_unknown(&self) -> bool {
        matches!(self.code(), Errno::EINVAL | Errno::EOPNOTSUPP)
    }

    /// A server has not let us connect.
    pub fn is_shut_out(&self) -> bool {
        matches!(self, Error::Down { why: Away::Dial(errno), .. } if is_denial(errno.code))
    }
}

fn is_denial(code: u32) -> bool {
    matches!(code, Errno::EACCES | Errno::EPERM)
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Error {
        match errno.code {
            code if is_denial(code) => Error::Denied(errno),
            Errno::ESTALE => Error::Stale(errno),
            Errno::ENOSPC | Errno::EDQUOT => Error::Full(errno),
            _ => Error::Refused(errno),
        }
    }
}

impl From<u32> for Error {
    fn from(code: u32) -> Error {
        Errno::from(code).into()
    }
}

/// For callers that have asked no server by name.
impl From<CallError> for Error {
    fn from(error: CallError) -> Error {
        Errno::from(error).into()
    }
}

impl From<Error> for Errno {
    fn from(error: Error) -> Errno {
        let code = error.code();
        match error {
            Error::Denied(errno)
            | Error::Stale(errno)
            | Error::Full(errno)
            | Error::Refused(errno) => errno,
            Error::Down { server, why } => {
                Errno::because(code, format!("server {server} is not reachable: {why}"))
            }
            Error::Lost { server, why } => Errno::because(code, format!("server {server}: {why}")),
            Error::Slow { server, limit } => {
                let limit = limit.as_secs();
                let what = format!("server {server}: alive, but no answer within {limit} s");
                Errno::because(code, what)
            }
            Error::Forgotten => Errno::because(code, FORGOTTEN),
            Error::Unsynced { server: Some(server) } => {
                Errno::because(code, format!("server {server}: its {UNSYNCED}"))
            }
            Error::Unsynced { server: None } => {
                Errno::because(code, format!("the metadata server's {UNSYNCED}"))
            }
            Error::Odd(what) => Errno::because(code, what),
        }
    }
}

const FORGOTTEN: &str = "the metadata server has given up this client's session meanwhile; whether it \
    was done is not known";
const UNSYNCED: &str =
    "machine has started anew, and what was written before and not synced may be lost";

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Errno::from(self.clone()).fmt(f)
    }
}

impl std::error::Error for Error {}

impl fmt::Display for Away {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Away::Unanswered => f.write_str("no answer"),
            Away::Silent => f.write_str("it has been silent for too long"),
            Away::Lost => f.write_str("connection lost"),
            Away::Dial(errno) => errno.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_becomes_the_kind_that_a_caller_asks_for_and_comes_back() {
        let kind = |code| Error::from(Errno::because(code, "why"));
        assert!(matches!(kind(Errno::EACCES), Error::Denied(_)));
        assert!(matches!(kind(Errno::EPERM), Error::Denied(_)));
        assert!(matches!(kind(Errno::ESTALE), Error::Stale(_)));
        assert!(matches!(kind(Errno::ENOSPC), Error::Full(_)));
        assert!(matches!(kind(Errno::ENOENT), Error::Refused(_)));
        for code in [Errno::EACCES, Errno::ESTALE, Errno::EDQUOT, Errno::ENOTEMPTY, Errno::EIO] {
            assert_eq!(kind(code).code(), code);
            assert_eq!(Errno::from(kind(code)), Errno::because(code, "why"));
        }
    }

    #[test]
    fn a_server_that_refuses_us_is_down_and_says_who_was_shut_out() {
        let down = |why| Error::Down { server: "a".into(), why };
        let refused = down(Away::Dial(Errno::because(Errno::EACCES, "another key")));
        assert_eq!(refused.code(), Errno::EIO, "for a program the server is away");
        assert!(refused.is_away() && refused.is_shut_out());
        assert!(!down(Away::Dial(Errno::EIO.into())).is_shut_out());
        assert_eq!(
            refused.to_string(),
            "input/output error: server a is not reachable: permission denied: another key"
        );
    }

    #[test]
    fn only_a_server_that_is_away_may_have_done_it() {
        let slow = Error::Slow { server: "a".into(), limit: Duration::from_secs(30) };
        assert!(!slow.is_away());
        assert!(Error::Lost { server: "a".into(), why: "torn".into() }.is_away());
        assert_eq!(
            slow.to_string(),
            "input/output error: server a: alive, but no answer within 30 s"
        );
    }
}
