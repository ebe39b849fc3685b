//! This machine's files, from the blocking pool.

use crate::error::{Cannot, Error, Result};
use std::fs::{File, Metadata};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Runs something that may block.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(value) => value,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// Attributes of a path, and the target if it is a symbolic link.
pub async fn look(path: &Path, follow: bool) -> Result<(Metadata, Option<PathBuf>)> {
    let path = path.to_path_buf();
    blocking(move || {
        let look = || -> std::io::Result<_> {
            let meta = if follow { path.metadata()? } else { path.symlink_metadata()? };
            let target = meta.is_symlink().then(|| std::fs::read_link(&path)).transpose()?;
            Ok((meta, target))
        };
        look().cannot(|| format!("read {}", path.display()))
    })
    .await
}

/// The names in a directory.
pub async fn names(dir: &Path) -> Result<Vec<std::ffi::OsString>> {
    let dir = dir.to_path_buf();
    blocking(move || {
        let list = || std::fs::read_dir(&dir)?.map(|entry| Ok(entry?.file_name())).collect();
        let names: std::io::Result<Vec<_>> = list();
        names.cannot(|| format!("list {}", dir.display()))
    })
    .await
}

/// Opens a file to read. Opening never waits, as it would for the other end of a fifo that has
/// taken the file's place.
pub async fn open(path: &Path) -> Result<File> {
    let path = path.to_path_buf();
    blocking(move || {
        let nonblock = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let file = File::options().read(true).custom_flags(nonblock).open(&path);
        file.cannot(|| format!("read {}", path.display()))
    })
    .await
}

/// Makes a file to write, or empties the one that is there unless it is the one with this identity.
pub async fn create(path: &Path, mode: u32, not: Option<(u64, u64)>) -> Result<File> {
    let path = path.to_path_buf();
    blocking(move || {
        let what = || format!("write {}", path.display());
        match File::options().write(true).create_new(true).mode(mode).open(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            other => return other.cannot(what),
        }
        let file = File::options().write(true).open(&path).cannot(what)?;
        let meta = file.metadata().cannot(what)?;
        if not == Some((meta.dev(), meta.ino())) {
            return Err(Error::work(format!("cannot {}: it is the file that is read", what())));
        }
        file.set_len(0).cannot(what)?;
        Ok(file)
    })
    .await
}
