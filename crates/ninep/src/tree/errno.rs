//! Errors: numbers in 9P2000.L, words in 9P2000, both in 9P2000.u.

use std::fmt;

/// A Linux error number with an optional reason for the log (9P2000.L sends the number only).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Errno {
    /// The number, as in errno(3).
    pub code: u32,
    /// Why, for logs and for the text of 9P2000's Rerror.
    pub reason: String,
}

macro_rules! errnos {
    ($($name:ident = $code:literal $text:literal $ename:literal;)*) => {
        #[allow(missing_docs)]
        impl Errno {
            $(pub const $name: u32 = $code;)*
        }
        fn text(code: u32) -> &'static str {
            match code {
                $($code => $text,)*
                _ => "unknown error",
            }
        }
        /// The numbers with what Unix calls them: what 9P2000 sends.
        const ENAMES: &[(u32, &str)] = &[$(($code, $ename)),*];
    };
}
errnos! {
    EPERM = 1 "operation not permitted" "Operation not permitted";
    ENOENT = 2 "no such file or directory" "No such file or directory";
    EINTR = 4 "interrupted" "Interrupted system call";
    EIO = 5 "input/output error" "Input/output error";
    ENXIO = 6 "no such device or address" "No such device or address";
    E2BIG = 7 "argument list too long" "Argument list too long";
    EBADF = 9 "bad file descriptor" "Bad file descriptor";
    EAGAIN = 11 "try again" "Resource temporarily unavailable";
    ENOMEM = 12 "out of memory" "Cannot allocate memory";
    EACCES = 13 "permission denied" "Permission denied";
    EBUSY = 16 "busy" "Device or resource busy";
    EEXIST = 17 "file exists" "File exists";
    EXDEV = 18 "across file systems" "Invalid cross-device link";
    ENODEV = 19 "no such device" "No such device";
    ENOTDIR = 20 "not a directory" "Not a directory";
    EISDIR = 21 "is a directory" "Is a directory";
    EINVAL = 22 "invalid argument" "Invalid argument";
    EMFILE = 24 "too many open files" "Too many open files";
    EFBIG = 27 "file too large" "File too large";
    ENOSPC = 28 "no space left" "No space left on device";
    ESPIPE = 29 "illegal seek" "Illegal seek";
    EROFS = 30 "read-only file system" "Read-only file system";
    EMLINK = 31 "too many links" "Too many links";
    EPIPE = 32 "broken pipe" "Broken pipe";
    ERANGE = 34 "out of range" "Numerical result out of range";
    EDEADLK = 35 "would deadlock" "Resource deadlock avoided";
    ENAMETOOLONG = 36 "name too long" "File name too long";
    ENOLCK = 37 "no locks available" "No locks available";
    ENOSYS = 38 "not implemented" "Function not implemented";
    ENOTEMPTY = 39 "directory not empty" "Directory not empty";
    ELOOP = 40 "too many symbolic links" "Too many levels of symbolic links";
    ENODATA = 61 "no data" "No data available";
    EPROTO = 71 "protocol error" "Protocol error";
    EOVERFLOW = 75 "value too large" "Value too large for defined data type";
    EREMCHG = 78 "remote address changed" "Remote address changed";
    EOPNOTSUPP = 95 "operation not supported" "Operation not supported";
    ETIMEDOUT = 110 "timed out" "Connection timed out";
    ESTALE = 116 "stale file handle" "Stale file handle";
    EDQUOT = 122 "quota exceeded" "Disk quota exceeded";
    ECANCELED = 125 "cancelled" "Operation canceled";
}

impl Errno {
    /// An error with a reason.
    pub fn because(code: u32, reason: impl Into<String>) -> Self {
        Errno { code, reason: reason.into() }
    }

    /// The error that 9P2000 calls `ename`: one with its number when the words are known ones, else
    /// EIO with the words as its reason.
    pub fn from_ename(ename: &str) -> Self {
        /// What Plan 9's own servers say.
        const PLAN9: [(u32, &str); 8] = [
            (Errno::ENOENT, "file does not exist"),
            (Errno::ENOENT, "file not found"),
            (Errno::EEXIST, "file already exists"),
            (Errno::EACCES, "permission denied"),
            (Errno::ENOTDIR, "not a directory"),
            (Errno::EISDIR, "file is a directory"),
            (Errno::ENOTEMPTY, "directory is not empty"),
            (Errno::EBADF, "unknown fid"),
        ];
        let known = ENAMES.iter().chain(&PLAN9).find(|(_, words)| *words == ename);
        known.map_or_else(|| Errno::because(Errno::EIO, ename), |(code, _)| Errno::from(*code))
    }

    /// What 9P2000 calls the error: the words that every Unix has for it, which clients turn back into
    /// its number.
    pub fn ename(&self) -> &'static str {
        let known = ENAMES.iter().find(|(code, _)| *code == self.code);
        known.map_or("Input/output error", |(_, words)| words)
    }

    /// The number's own words.
    pub fn text(&self) -> &'static str {
        text(self.code)
    }
}

impl From<u32> for Errno {
    fn from(code: u32) -> Self {
        Errno { code, reason: String::new() }
    }
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Self {
        let code = error.raw_os_error().map_or(Errno::EIO, |code| code as u32);
        Errno::because(code, error.to_string())
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.reason.is_empty() {
            f.write_str(self.text())
        } else {
            write!(f, "{}: {}", self.text(), self.reason)
        }
    }
}

impl std::error::Error for Errno {}

/// A result of a tree's method.
pub type Result<T> = std::result::Result<T, Errno>;
