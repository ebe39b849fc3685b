//! Where sessions have their directories.

use covey_io::os::lock;
use covey_io::os::remove::remove_tree;
use std::cell::RefCell;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A directory of this process alone, below the system's directory for temporary files or for shared memory. It is removed when
/// this is dropped, and by the next start of the node where there was no time for that.
pub(super) struct Scratch {
    above: PathBuf,
    node: String,
    current: RefCell<Locked>,
}

/// A directory that nobody else uses.
struct Locked {
    dir: PathBuf,
    /// Locked for as long as the directory is in use. The number of a process says nothing of that: another
    /// node may see other numbers, in a container with the same directory for temporary files.
    lock: File,
}

impl Scratch {
    /// For files.
    pub fn open(node: &str) -> io::Result<Scratch> {
        Scratch::below(std::env::temp_dir(), node)
    }

    /// For memory that programs share; None where the machine has no place for it.
    pub fn memory(node: &str) -> Option<Scratch> {
        Scratch::below(PathBuf::from("/dev/shm"), node).ok()
    }

    fn below(above: PathBuf, node: &str) -> io::Result<Scratch> {
        let current = RefCell::new(make(&above, node)?);
        Ok(Scratch { above, node: node.to_owned(), current })
    }

    /// Where it is. Somebody who cleans up may have removed it, or have put something else there: then it is made anew.
    pub fn path(&self) -> io::Result<PathBuf> {
        let mut current = self.current.borrow_mut();
        if !current.is_there() {
            *current = make(&self.above, &self.node)?;
            tracing::warn!(
                "the directory of sessions was removed; now they are in {}",
                current.dir.display()
            );
        }
        Ok(current.dir.clone())
    }
}

impl Locked {
    fn is_there(&self) -> bool {
        let id = |found: fs::Metadata| (found.dev(), found.ino());
        let named = fs::symlink_metadata(&self.dir).map(id);
        matches!((named, self.lock.metadata().map(id)), (Ok(named), Ok(locked)) if named == locked)
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        if self.is_there() {
            // What is left then, the next start sweeps away.
            let _ = remove_tree(&self.dir, PATIENCE_AT_END);
        }
    }
}

fn make(above: &Path, node: &str) -> io::Result<Locked> {
    let own = rustix::process::geteuid().as_raw();
    let prefix = format!("covey-xcpu-{own}-{node}-");
    for number in 0..NAMES_MAX {
        let dir = above.join(format!("{prefix}{}-{number}", std::process::id()));
        let taking = taking();
        // Others may go through it to their own directories, and see nothing else.
        match DirBuilder::new().mode(0o711).create(&dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            made => made?,
        }
        // Another node may have swept it away before it was locked.
        let locked = lock::directory(&dir);
        drop(taking);
        match locked {
            Ok(Some(lock)) if dir.exists() => {
                // Only now: what is not locked would be swept.
                sweep_beside(above, &prefix, own);
                return Ok(Locked { dir, lock });
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    let what =
        format!("{NAMES_MAX} names that begin with {prefix} are taken in {}", above.display());
    Err(io::Error::other(what))
}

/// Sweeps on a thread of its own: programs may have left more than anybody waits for.
fn sweep_beside(above: &Path, prefix: &str, own: u32) {
    let (above, prefix) = (above.to_owned(), prefix.to_owned());
    let work = move || {
        covey_io::os::place::everywhere();
        sweep(&above, &prefix, own)
    };
    if let Err(error) = std::thread::Builder::new().name("sweep".into()).spawn(work) {
        tracing::warn!("what earlier sessions left is not removed: no thread: {error}");
    }
}

/// Removes what earlier processes of the node have left: directories of this user that nobody has locked.
fn sweep(above: &Path, prefix: &str, own: u32) {
    for entry in fs::read_dir(above).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_numbers = |rest: &str| rest.chars().all(|c| c.is_ascii_digit() || c == '-');
        let is_ours =
            name.to_str().and_then(|name| name.strip_prefix(prefix)).is_some_and(is_numbers)
                && fs::symlink_metadata(entry.path())
                    .is_ok_and(|it| it.is_dir() && it.uid() == own);
        let is_left = || {
            let _taking = taking();
            matches!(lock::directory(&entry.path()), Ok(Some(_)))
        };
        if is_ours && is_left() {
            let dir = entry.path();
            if let Err(error) = remove_tree(&dir, PATIENCE) {
                tracing::warn!(
                    "cannot remove {}, left by earlier sessions: {error}",
                    dir.display()
                );
            }
        }
    }
}

/// Held while a directory is made and locked, and while one is judged: this process's own sweep finds none in between.
fn taking() -> MutexGuard<'static, ()> {
    static TAKING: Mutex<()> = Mutex::new(());
    TAKING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long the removal of what a program has left may take: some ten million files.
pub(super) const PATIENCE: Duration = Duration::from_secs(600);
/// The same while somebody waits for the node to end.
const PATIENCE_AT_END: Duration = Duration::from_secs(2);

/// A user who takes names in advance costs a node that many attempts.
const NAMES_MAX: u32 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_was_removed_or_replaced_is_made_anew() {
        let above = tempfile::tempdir().unwrap();
        let scratch = Scratch::below(above.path().to_owned(), "n1").unwrap();
        let first = scratch.path().unwrap();
        assert_eq!(scratch.path().unwrap(), first);
        fs::remove_dir(&first).unwrap();
        assert_eq!(scratch.path().unwrap(), first);
        fs::rename(&first, above.path().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink("elsewhere", &first).unwrap();
        let second = scratch.path().unwrap();
        assert!(second != first && scratch.path().unwrap() == second);
        drop(scratch);
        assert!(!second.exists() && first.is_symlink(), "another's is left");
    }

    #[test]
    fn only_what_nobody_uses_is_swept() {
        let above = tempfile::tempdir().unwrap();
        let names = ["x-n1-1-0", "x-n1-2-0", "x-n1-x", "x-n11-1-0"];
        names.iter().for_each(|name| fs::create_dir(above.path().join(name)).unwrap());
        let held = lock::directory(&above.path().join("x-n1-2-0")).unwrap();
        assert!(
            held.is_some() && lock::directory(&above.path().join("x-n1-2-0")).unwrap().is_none()
        );
        let own = rustix::process::geteuid().as_raw();
        sweep(above.path(), "x-n1-", own + 1);
        assert!(above.path().join(names[0]).exists(), "another user's");
        sweep(above.path(), "x-n1-", own);
        let left = names.map(|name| above.path().join(name).exists());
        assert_eq!(left, [false, true, true, true]);
    }
}
