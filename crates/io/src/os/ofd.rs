//! Byte-range locks that belong to an open file, not to a process (F_OFD_SETLK of fcntl(2)).
//!
//! They stand in the way of the locks of other open files and of other processes' fcntl locks, and end
//! when the file is closed: what a server needs that locks on behalf of many clients.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// What kind of lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Shared with other readers.
    Read,
    /// Alone.
    Write,
    /// None: gives it back.
    Unlock,
}

/// Which bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First byte.
    pub start: u64,
    /// Count; 0 is to the end of the file, however it grows.
    pub length: u64,
}

/// A lock that stands in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// Its kind.
    pub kind: LockKind,
    /// Its bytes.
    pub range: Range,
    /// The process that holds it; `None` when it belongs to an open file.
    pub pid: Option<u32>,
}

/// Sets or gives back a lock without waiting; false when another's is in the way. A read lock needs a
/// file open for reading, a write lock one open for writing.
pub fn try_lock(file: impl AsFd, kind: LockKind, range: Range) -> io::Result<bool> {
    match call(&file, libc::F_OFD_SETLK, &mut record(kind, range)?) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => Ok(false),
        Err(error) => Err(error),
    }
}

/// What would stand in the way of such a lock; nothing ever does of giving one back.
pub fn obstacle(file: impl AsFd, kind: LockKind, range: Range) -> io::Result<Option<Obstacle>> {
    if kind == LockKind::Unlock {
        // Linux before 6.6 refuses the question; since then it answers with the asker's own locks.
        return Ok(None);
    }
    let mut record = record(kind, range)?;
    call(&file, libc::F_OFD_GETLK, &mut record)?;
    let kind = match i32::from(record.l_type) {
        libc::F_UNLCK => return Ok(None),
        libc::F_RDLCK => LockKind::Read,
        _ => LockKind::Write,
    };
    let [start, length] = [record.l_start, record.l_len].map(|n| u64::try_from(n).unwrap_or(0));
    let pid = u32::try_from(record.l_pid).ok();
    Ok(Some(Obstacle { kind, range: Range { start, length }, pid }))
}

fn record(kind: LockKind, range: Range) -> io::Result<libc::flock> {
    let invalid = |_| io::Error::from_raw_os_error(libc::EINVAL);
    let kind = match kind {
        LockKind::Read => libc::F_RDLCK,
        LockKind::Write => libc::F_WRLCK,
        LockKind::Unlock => libc::F_UNLCK,
    };
    Ok(libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: range.start.try_into().map_err(invalid)?,
        l_len: range.length.try_into().map_err(invalid)?,
        l_pid: 0,
    })
}

fn call(file: &impl AsFd, what: i32, record: &mut libc::flock) -> io::Result<()> {
    // SAFETY: both commands take a `struct flock`, which outlives the call, and do not wait.
    match unsafe { libc::fcntl(file.as_fd().as_raw_fd(), what, record) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;

    #[test]
    fn two_open_files_stand_in_each_others_way_until_one_is_closed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || OpenOptions::new().read(true).write(true).open(file.path()).unwrap();
        let (one, two) = (open(), open());
        let range = Range { start: 10, length: 5 };
        let beside = Range { start: 15, length: 0 };
        assert!(try_lock(&one, LockKind::Write, range).unwrap());
        assert!(!try_lock(&two, LockKind::Read, range).unwrap());
        assert!(try_lock(&two, LockKind::Write, beside).unwrap());
        let found = obstacle(&two, LockKind::Read, Range { start: 0, length: 0 }).unwrap();
        assert_eq!(found, Some(Obstacle { kind: LockKind::Write, range, pid: None }));
        assert_eq!(obstacle(&two, LockKind::Unlock, range).unwrap(), None);
        assert_eq!(obstacle(&one, LockKind::Unlock, range).unwrap(), None);
        drop(one);
        assert!(try_lock(&two, LockKind::Read, range).unwrap());
        assert_eq!(obstacle(open(), LockKind::Read, range).unwrap(), None);
    }

    #[test]
    fn ranges_beyond_the_largest_file_are_invalid() {
        let file = tempfile::tempfile().unwrap();
        let range = Range { start: u64::MAX, length: 0 };
        let error = try_lock(&file, LockKind::Write, range).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    }
}
