//! Errors that speak to a person: what could not be done, why, and what to type next.
//!
//! The kind decides the exit code. A message reads `cannot X: reason`; hints are whole suggestions.
//! This is the one error of the crate: what a server answered keeps its number. Other crates answer
//! `anyhow` errors; one that holds an [`Error`] keeps its kind and hints on the way up.

use covey_ninep::client::CallError;
use covey_ninep::tree::Errno;
use covey_stripe::client;
use std::fmt;

/// What every command answers.
pub type Result<T> = std::result::Result<T, Error>;

/// Whose mistake it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The command was wrong: nothing was tried. Exit code 2.
    User,
    /// The configuration is wrong or missing: nothing was tried. Exit code 2.
    Config,
    /// The work failed. Exit code 1.
    Work,
    /// Failures were told one by one as they happened; nothing is left to say. Exit code 1.
    Told,
    /// A program that was run ended with this exit code, which becomes ours. It has said what there is to say.
    Program(u8),
    /// Whoever read our output has gone. Exit code 0.
    BrokenPipe,
}

impl Kind {
    /// The process's exit code.
    pub fn exit_code(self) -> u8 {
        match self {
            Kind::BrokenPipe => 0,
            Kind::Work | Kind::Told => 1,
            Kind::User | Kind::Config => 2,
            Kind::Program(code) => code,
        }
    }

    /// The word in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Kind::User => "user",
            Kind::Config => "config",
            Kind::Work | Kind::Told => "work",
            Kind::Program(_) => "program",
            Kind::BrokenPipe => "broken-pipe",
        }
    }
}

/// An error with what to do about it.
#[derive(Clone, Debug)]
pub struct Error {
    /// Whose mistake.
    pub kind: Kind,
    /// `cannot X: reason`, lower case, no full stop.
    pub message: String,
    /// What to try, each a line of its own.
    pub hints: Vec<String>,
    /// The number that a server answered with, as in errno(3).
    code: Option<u32>,
    /// The message is a reason only: it does not say yet what could not be done.
    is_bare: bool,
}

impl Error {
    /// The command was wrong.
    pub fn user(message: impl Into<String>) -> Self {
        Error::new(Kind::User, message)
    }

    /// The configuration was wrong.
    pub fn config(message: impl Into<String>) -> Self {
        Error::new(Kind::Config, message)
    }

    /// The work failed.
    pub fn work(message: impl Into<String>) -> Self {
        Error::new(Kind::Work, message)
    }

    /// Everything was told already.
    pub fn told() -> Self {
        Error::new(Kind::Told, "")
    }

    /// A program ended with this exit code.
    pub fn program(code: u8) -> Self {
        Error::new(Kind::Program(code), "")
    }

    /// An operation on a path of the file system failed.
    pub fn errno(what: impl fmt::Display, errno: Errno) -> Self {
        let mut error = if says_all(errno.code) {
            Error::work(format!("cannot {what}: {}", errno.text()))
        } else {
            Error::work(format!("cannot {what}: {errno}"))
        };
        error.code = Some(errno.code);
        match errno_hint(errno.code) {
            Some(hint) => error.hint(hint),
            None => error,
        }
    }

    /// Adds a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    fn new(kind: Kind, message: impl Into<String>) -> Self {
        let (hints, code, is_bare) = (Vec::new(), None, false);
        Error { kind, message: message.into(), hints, code, is_bare }
    }

    /// Adds the number that stands for it, as in errno(3).
    #[must_use]
    pub(crate) fn coded(mut self, code: u32) -> Self {
        self.code = Some(code);
        self
    }

    /// The number that a server answered with, as in errno(3); none where nobody was asked.
    pub fn code(&self) -> Option<u32> {
        self.code
    }

    /// What a server said, or why none did, without what was being done.
    pub(crate) fn bare(code: u32, reason: impl Into<String>) -> Self {
        Error { code: Some(code), is_bare: true, ..Error::work(reason) }
    }

    /// The error as the JSON that goes to stderr.
    pub fn json(&self) -> serde_json::Value {
        serde_json::json!({ "error": {
            "kind": self.kind.word(), "message": self.message, "hints": self.hints,
        }})
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Self {
        Error::bare(errno.code, errno.to_string())
    }
}

impl From<CallError> for Error {
    fn from(error: CallError) -> Self {
        Errno::from(error).into()
    }
}

impl From<client::Error> for Error {
    fn from(error: client::Error) -> Self {
        Errno::from(error).into()
    }
}

impl From<anyhow::Error> for Error {
    fn from(error: anyhow::Error) -> Self {
        match error.downcast::<Error>() {
            Ok(own) => own,
            Err(other) => Error::work(format!("{other:#}")),
        }
    }
}

/// Writing our own output failed.
impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Error::new(Kind::BrokenPipe, "broken pipe"),
            _ => Error::work(format!("cannot write the output: {}", reason(&error))),
        }
    }
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        std::io::Error::from(error).into()
    }
}

/// Turns a failure into `cannot X: reason`.
pub trait Cannot<T> {
    /// Names what was being done.
    fn cannot<D: fmt::Display>(self, what: impl FnOnce() -> D) -> Result<T>;
}

impl<T> Cannot<T> for std::io::Result<T> {
    fn cannot<D: fmt::Display>(self, what: impl FnOnce() -> D) -> Result<T> {
        self.map_err(|error| {
            let text = Error::work(format!("cannot {}: {}", what(), reason(&error)));
            match hint_of(&error) {
                Some(hint) => text.hint(hint),
                None => text,
            }
        })
    }
}

impl<T> Cannot<T> for rustix::io::Result<T> {
    fn cannot<D: fmt::Display>(self, what: impl FnOnce() -> D) -> Result<T> {
        self.map_err(std::io::Error::from).cannot(what)
    }
}

impl<T> Cannot<T> for std::result::Result<T, Errno> {
    fn cannot<D: fmt::Display>(self, what: impl FnOnce() -> D) -> Result<T> {
        self.map_err(|errno| Error::errno(what(), errno))
    }
}

impl<T> Cannot<T> for client::Result<T> {
    fn cannot<D: fmt::Display>(self, what: impl FnOnce() -> D) -> Result<T> {
        self.map_err(|error| Error::errno(what(), error.into()))
    }
}

/// An error that names what could not be done stays as it is.
impl<T> Cannot<T> for Result<T> {
    fn cannot<D: fmt::Display>(self, what: impl FnOnce() -> D) -> Result<T> {
        self.map_err(|mut error| {
            if std::mem::take(&mut error.is_bare) {
                error.message = format!("cannot {}: {}", what(), error.message);
            }
            error
        })
    }
}

impl<T> Cannot<T> for anyhow::Result<T> {
    fn cannot<D: fmt::Display>(self, what: impl FnOnce() -> D) -> Result<T> {
        self.map_err(|error| match error.downcast::<Error>() {
            Ok(own) => Err::<T, _>(own).cannot(what).err().expect("it is an error"),
            Err(other) => {
                let (why, code) = words(&other);
                let text = if why.starts_with("cannot ") {
                    Error::work(why)
                } else {
                    Error::work(format!("cannot {}: {why}", what()))
                };
                match code.and_then(|code| local_hint(code as u32)) {
                    Some(hint) => text.hint(hint),
                    None => text,
                }
            }
        })
    }
}

/// An error and its causes, one after the other, and the system's number if one of them has it.
fn words(error: &anyhow::Error) -> (String, Option<i32>) {
    let mut code = None;
    let causes = error.chain().map(|cause| {
        let number = cause.downcast_ref::<rustix::io::Errno>().map(|one| (*one).into());
        match cause.downcast_ref::<std::io::Error>().or(number.as_ref()) {
            Some(error) => {
                code = code.or(error.raw_os_error());
                reason(error)
            }
            None => cause.to_string(),
        }
    });
    (causes.collect::<Vec<_>>().join(": "), code)
}

/// The system's words, without Rust's "(os error 2)" and in lower case.
pub fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_lowercase().chain(letters).collect(),
        None => "unknown reason".to_string(),
    }
}

/// Errors about names: the path was told, and the server's reason speaks of numbers.
fn says_all(code: u32) -> bool {
    [Errno::ENOENT, Errno::EEXIST, Errno::ENOTDIR, Errno::EISDIR, Errno::ENOTEMPTY].contains(&code)
}

/// What to do about an error of the local system, where more can be said than it says itself.
pub fn hint_of(error: &std::io::Error) -> Option<&'static str> {
    local_hint(error.raw_os_error()? as u32)
}

fn local_hint(code: u32) -> Option<&'static str> {
    Some(match code {
        Errno::EACCES | Errno::EPERM => {
            "run as the owner, or choose another place; `ls -ld` shows who may write there"
        }
        Errno::ENOSPC => "`df` shows which local file system is full",
        Errno::EROFS => "the local file system is mounted read-only: choose another place",
        _ => return None,
    })
}

fn errno_hint(code: u32) -> Option<&'static str> {
    Some(match code {
        Errno::ENOENT => "`covey ls` on the directory above shows what is there",
        Errno::EACCES | Errno::EPERM => "`covey stat` shows owner and mode",
        Errno::EIO | Errno::ETIMEDOUT => "`covey ping` shows which servers are dead",
        Errno::ENOSPC => "`covey df` shows what is free; deleting works on a full file system",
        Errno::EROFS => "the server was started read-only",
        Errno::EEXIST => "choose another name, or remove what is there",
        Errno::ENOTEMPTY => "`covey rm -r` removes a directory with everything in it",
        Errno::EISDIR => "it is a directory: most commands take -r for that",
        Errno::ELOOP => "a symbolic link leads to itself; `covey stat` shows each link's target",
        Errno::ENAMETOOLONG => "a name may have 255 bytes",
        Errno::ESTALE => "someone removed the file meanwhile: try again",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_0_for_a_broken_pipe_1_for_work_2_for_a_wrong_command() {
        let codes = [Kind::BrokenPipe, Kind::Work, Kind::Told, Kind::User, Kind::Config];
        assert_eq!(codes.map(Kind::exit_code), [0, 1, 1, 2, 2]);
    }

    #[test]
    fn an_error_keeps_its_kind_and_hints_through_anyhow() {
        let inner = Error::config("cannot read x: it is torn").hint("write it again");
        let outer: Error = anyhow::Error::from(inner).into();
        assert_eq!(outer.kind, Kind::Config);
        assert_eq!(outer.hints, ["write it again"]);
    }

    #[test]
    fn system_reasons_are_lower_case_and_without_numbers() {
        let error = std::io::Error::from_raw_os_error(2);
        assert_eq!(reason(&error), "no such file or directory");
    }
}
