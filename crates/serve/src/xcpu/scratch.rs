//! Where sessions have their directories.

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A directory of this process alone, below the system's directory for temporary files. It is removed when
/// this is dropped, and by the next start of the node where there was no time for that.
pub(super) struct Scratch {
    dir: PathBuf,
    /// Locked for as long as the directory is in use. The number of a process says nothing of that: another
    /// node may see other numbers, in a container with the same directory for temporary files.
    _lock: File,
}

impl Scratch {
    pub fn open(node: &str) -> io::Result<Scratch> {
        let own = rustix::process::geteuid().as_raw();
        let above = std::env::temp_dir().join(format!("covey-xcpu-{own}"));
        make(&above)?;
        // Nobody else may have put it there, or may write in it: names in it are trusted.
        let found = fs::symlink_metadata(&above)?;
        if !found.is_dir() || found.uid() != own || found.mode() & 0o022 != 0 {
            let what = format!(
                "{} is not a directory that only user {own} writes; hint: remove it",
                above.display()
            );
            return Err(io::Error::other(what));
        }
        sweep(&above, node);
        for number in 0u64.. {
            let dir = above.join(format!("{node}-{}-{number}", std::process::id()));
            match DirBuilder::new().mode(0o711).create(&dir) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made?,
            }
            // Another node may have swept it away before it was locked.
            match lock(&dir) {
                Ok(Some(lock)) if dir.exists() => return Ok(Scratch { dir, _lock: lock }),
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        unreachable!("there are more numbers than directories")
    }

    pub fn path(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Others may go through it to their own directories, and see nothing else.
fn make(dir: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o711).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Locks a directory, if nobody else has.
fn lock(dir: &Path) -> io::Result<Option<File>> {
    let file = File::open(dir)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Removes what earlier processes of the node have left: what nobody has locked.
fn sweep(above: &Path, node: &str) {
    for entry in fs::read_dir(above).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let rest = name.to_str().and_then(|name| name.strip_prefix(node)?.strip_prefix('-'));
        let is_numbers = |rest: &str| rest.chars().all(|c| c.is_ascii_digit() || c == '-');
        if rest.is_some_and(is_numbers) && matches!(lock(&entry.path()), Ok(Some(_))) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_uses_is_swept() {
        let above = tempfile::tempdir().unwrap();
        let names = ["n1-1-0", "n1-2-0", "n1-x", "n11-1-0"];
        names.iter().for_each(|name| fs::create_dir(above.path().join(name)).unwrap());
        let held = lock(&above.path().join("n1-2-0")).unwrap();
        assert!(held.is_some() && lock(&above.path().join("n1-2-0")).unwrap().is_none());
        sweep(above.path(), "n1");
        let left = names.map(|name| above.path().join(name).exists());
        assert_eq!(left, [false, true, true, true]);
    }
}
