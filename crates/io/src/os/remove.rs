//! Removes a directory with all that is in it, whoever filled it.
//!
//! What a program of another user has left may be any number of levels deep, and may still be changed by that user.
//! So nothing here recurses, two directories are open at a time, and none is emptied before it was taken from its
//! owner. A directory inside an inner one is renamed into the outermost and waits there for its turn:
//!
//! ```text
//!   top/a/b/c/d      rename top/a/b to top/-1, remove top/a
//!   top/-1/c/d       rename top/-1/c to top/-2, remove top/-1, and so on
//! ```

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, RenameFlags, ResolveFlags, Uid, chmodat,
    fchmod, fchown, openat, openat2, renameat_with, unlinkat,
};
use rustix::io::{Errno, Result};
use std::ffi::CStr;
use std::fmt::Write;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// Removes `dir` and all below it, but nothing that is mounted there and nothing that links lead to. TimedOut once `patience` is over;
/// then a part is left. A directory that does not exist is removed.
pub fn remove_tree(dir: &Path, patience: Duration) -> io::Result<()> {
    let top = match openat(CWD, dir, DIRECTORY, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        opened => opened?,
    };
    take(top.as_fd());
    let mut removal = Removal { top, until: Instant::now() + patience, names: 0 };
    while removal.pass()? {}
    Ok(unlinkat(CWD, dir, AtFlags::REMOVEDIR)?)
}

struct Removal {
    top: OwnedFd,
    until: Instant,
    /// Names given to directories that were renamed.
    names: u64,
}

impl Removal {
    /// Goes once over what is in the outermost directory; whether there was anything.
    fn pass(&mut self) -> io::Result<bool> {
        let (mut removed, mut failed) = (0, None);
        for entry in Dir::read_from(&self.top)? {
            let entry = entry?;
            let name = entry.file_name();
            if is_dots(name) {
                continue;
            }
            match self.remove(name, entry.file_type()) {
                Ok(()) => removed += 1,
                // Somebody else did, or put something into it.
                Err(Errno::NOENT | Errno::NOTEMPTY) => removed += 1,
                Err(error) => failed = Some(error),
            }
            if Instant::now() > self.until {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        match failed {
            Some(error) if removed == 0 => Err(error.into()),
            _ => Ok(removed > 0),
        }
    }

    /// Removes an entry of the outermost directory, whose inner directories then stand beside it.
    fn remove(&mut self, name: &CStr, kind: FileType) -> Result<()> {
        match unlink(self.top.as_fd(), name, kind) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            result => return result,
        }
        let dir = self.open(name)?;
        take(dir.as_fd());
        for entry in Dir::read_from(&dir)? {
            let entry = entry?;
            if !is_dots(entry.file_name()) {
                self.remove_inner(dir.as_fd(), entry.file_name(), entry.file_type())?;
            }
            if Instant::now() > self.until {
                return Ok(());
            }
        }
        unlinkat(&self.top, name, AtFlags::REMOVEDIR)
    }

    fn remove_inner(&mut self, dir: BorrowedFd<'_>, name: &CStr, kind: FileType) -> Result<()> {
        match unlink(dir, name, kind) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => self.bring_up(dir, name),
            result => result,
        }
    }

    /// Renames a directory into the outermost one.
    fn bring_up(&mut self, dir: BorrowedFd<'_>, name: &CStr) -> Result<()> {
        let mut fresh = String::new();
        loop {
            self.names += 1;
            fresh.clear();
            write!(fresh, "-{}", self.names).expect("text");
            match renameat_with(dir, name, &self.top, &*fresh, RenameFlags::NOREPLACE) {
                Err(Errno::EXIST) => {}
                result => return result,
            }
        }
    }

    /// Opens a directory, but none that is mounted here.
    fn open(&self, name: &CStr) -> Result<OwnedFd> {
        match self.try_open(name) {
            // Its owner has shut it for everybody, and we are that owner.
            Err(Errno::ACCESS) => {
                chmodat(&self.top, name, Mode::RWXU, AtFlags::empty())?;
                self.try_open(name)
            }
            result => result,
        }
    }

    fn try_open(&self, name: &CStr) -> Result<OwnedFd> {
        let resolve = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
        match openat2(&self.top, name, DIRECTORY, Mode::empty(), resolve) {
            // Old kernels, and containers that do not know it.
            Err(Errno::NOSYS | Errno::PERM) => openat(&self.top, name, DIRECTORY, Mode::empty()),
            result => result,
        }
    }
}

/// Removes what is no directory, or an empty one.
fn unlink(dir: BorrowedFd<'_>, name: &CStr, kind: FileType) -> Result<()> {
    if kind != FileType::Directory {
        match unlinkat(dir, name, AtFlags::empty()) {
            Err(Errno::ISDIR) => {}
            result => return result,
        }
    }
    unlinkat(dir, name, AtFlags::REMOVEDIR)
}

/// Takes a directory from its owner, who then changes nothing in it. Who is not root has only own ones, and makes sure
/// that they can be written.
fn take(dir: BorrowedFd<'_>) {
    if rustix::process::geteuid().is_root() {
        let _ = fchown(dir, Some(Uid::ROOT), Some(Gid::ROOT));
    }
    let _ = fchmod(dir, Mode::RWXU);
}

fn is_dots(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::mkdirat;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    const LONG: Duration = Duration::from_secs(100);

    /// Directories inside each other, deeper than any path can say.
    fn dig(top: &Path, levels: usize) {
        let mut at = openat(CWD, top, DIRECTORY, Mode::empty()).unwrap();
        for _ in 0..levels {
            mkdirat(&at, "d", Mode::RWXU).unwrap();
            at = openat(&at, "d", DIRECTORY, Mode::empty()).unwrap();
        }
    }

    #[test]
    fn a_deep_tree_needs_no_deep_stack() {
        // In memory: ext4 takes seconds to make so many where as many were removed just before.
        let above = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let dir = above.path().join("top");
        fs::create_dir(&dir).unwrap();
        dig(&dir, 10_000);
        let inside = dir.clone();
        let remove = move || remove_tree(&inside, LONG);
        let small = std::thread::Builder::new().stack_size(64 << 10).spawn(remove).unwrap();
        small.join().unwrap().unwrap();
        assert!(!dir.exists());
    }

    #[test]
    fn everything_goes_but_not_what_links_lead_to() {
        let above = tempfile::tempdir().unwrap();
        let (dir, kept) = (above.path().join("top"), above.path().join("kept"));
        fs::create_dir_all(dir.join("a/b/c")).unwrap();
        fs::create_dir_all(dir.join("shut/in")).unwrap();
        fs::create_dir(&kept).unwrap();
        for file in ["-1", "x", "a/x", "a/b/x", "a/b/c/x", "shut/in/x", "../kept/x"] {
            fs::write(dir.join(file), file).unwrap();
        }
        for link in ["l", "a/l", "a/b/l"] {
            symlink(&kept, dir.join(link)).unwrap();
        }
        fs::set_permissions(dir.join("shut"), fs::Permissions::from_mode(0o0)).unwrap();
        remove_tree(&dir, LONG).unwrap();
        assert!(!dir.exists() && kept.join("x").exists());
    }

    #[test]
    fn no_patience_leaves_a_part_and_says_so() {
        let above = tempfile::tempdir().unwrap();
        dig(above.path(), 100);
        let error = remove_tree(above.path(), Duration::ZERO).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        remove_tree(above.path(), LONG).unwrap();
        assert!(!above.path().exists());
    }
}
