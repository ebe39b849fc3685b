//! Errors as 9P2000.L sends them.

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
    ($($name:ident = $code:literal $text:literal;)*) => {
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
    };
}
errnos! {
    EPERM = 1 "operation not permitted";
    ENOENT = 2 "no such file or directory";
    EINTR = 4 "interrupted";
    EIO = 5 "input/output error";
    ENXIO = 6 "no such device or address";
    E2BIG = 7 "argument list too long";
    EBADF = 9 "bad file descriptor";
    EAGAIN = 11 "try again";
    ENOMEM = 12 "out of memory";
    EACCES = 13 "permission denied";
    EBUSY = 16 "busy";
    EEXIST = 17 "file exists";
    EXDEV = 18 "across file systems";
    ENODEV = 19 "no such device";
    ENOTDIR = 20 "not a directory";
    EISDIR = 21 "is a directory";
    EINVAL = 22 "invalid argument";
    EMFILE = 24 "too many open files";
    EFBIG = 27 "file too large";
    ENOSPC = 28 "no space left";
    ESPIPE = 29 "illegal seek";
    EROFS = 30 "read-only file system";
    EMLINK = 31 "too many links";
    EPIPE = 32 "broken pipe";
    ERANGE = 34 "out of range";
    EDEADLK = 35 "would deadlock";
    ENAMETOOLONG = 36 "name too long";
    ENOLCK = 37 "no locks available";
    ENOSYS = 38 "not implemented";
    ENOTEMPTY = 39 "directory not empty";
    ELOOP = 40 "too many symbolic links";
    ENODATA = 61 "no data";
    EPROTO = 71 "protocol error";
    EOVERFLOW = 75 "value too large";
    EOPNOTSUPP = 95 "operation not supported";
    ETIMEDOUT = 110 "timed out";
    ESTALE = 116 "stale file handle";
    EDQUOT = 122 "quota exceeded";
    ECANCELED = 125 "cancelled";
}

impl Errno {
    /// An error with a reason.
    pub fn because(code: u32, reason: impl Into<String>) -> Self {
        Errno { code, reason: reason.into() }
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
        match self.reason.is_empty() {
            true => f.write_str(self.text()),
            false => write!(f, "{}: {}", self.text(), self.reason),
        }
    }
}

impl std::error::Error for Errno {}

/// A result of a tree's method.
pub type Result<T> = std::result::Result<T, Errno>;
