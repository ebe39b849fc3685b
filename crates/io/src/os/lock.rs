//! A lock file: who holds the lock on it owns the directory it lies in.
//!
//! The lock is the kernel's (flock), so it ends with its holder, however that ends. The file holds
//! the holder's process id, for the error that a second one gets.

use rustix::fs::{FlockOperation, flock};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

/// A held lock; dropping it lets go. The file stays.
#[derive(Debug)]
pub struct LockFile {
    _file: File,
}

/// Why a lock was not had.
#[derive(Debug)]
#[non_exhaustive]
pub enum LockError {
    /// Another process holds it: this one, if it wrote its id.
    InUse(Option<u32>),
    /// The file cannot be opened or locked.
    Io(io::Error),
}

impl LockFile {
    /// Takes the lock on `path`, making the file if need be. Never waits.
    pub fn take(path: &Path) -> Result<LockFile, LockError> {
        let open =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let mut file = open.map_err(LockError::Io)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(LockError::InUse(holder(&mut file))),
            Err(error) => return Err(LockError::Io(error.into())),
        }
        let sign = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        sign.map_err(LockError::Io)?;
        Ok(LockFile { _file: file })
    }
}

/// Locks a directory itself, in which there is to be no such file: None where somebody else has it. Closing the file lets go.
pub fn directory(dir: &Path) -> io::Result<Option<File>> {
    let file = File::open(dir)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LockError::InUse(Some(pid)) => write!(f, "in use by process {pid}"),
            LockError::InUse(None) => f.write_str("in use by another process"),
            LockError::Io(error) => f.write_str(&super::net::error_text(error)),
        }
    }
}

impl std::error::Error for LockError {}

impl From<LockError> for io::Error {
    fn from(error: LockError) -> io::Error {
        match error {
            LockError::Io(error) => error,
            held => io::Error::new(io::ErrorKind::ResourceBusy, held.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_holder_learns_who_the_first_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let first = LockFile::take(&path).unwrap();
        let error = LockFile::take(&path).unwrap_err();
        assert_eq!(error.to_string(), format!("in use by process {}", std::process::id()));
        drop(first);
        LockFile::take(&path).unwrap();
    }
}
