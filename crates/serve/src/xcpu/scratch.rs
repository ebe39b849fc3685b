//! Where sessions have their directories.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A directory of this process alone, below the system's directory for temporary files. It is removed when
/// this is dropped, and by the next start of the node where there was no time for that.
pub(super) struct Scratch {
    dir: PathBuf,
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
        let dir = above.join(format!("{node}-{}", std::process::id()));
        sweep(&above, node);
        make(&dir)?;
        Ok(Scratch { dir })
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

/// Removes what earlier processes of the node have left.
fn sweep(above: &Path, node: &str) {
    for entry in fs::read_dir(above).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(node)?.strip_prefix('-'));
        let Some(number) = number.and_then(|number| number.parse::<u32>().ok()) else { continue };
        if covey_io::os::process::Process::now(number).is_none() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
