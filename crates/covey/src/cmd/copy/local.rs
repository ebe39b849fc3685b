//! This machine's files, from the blocking pool.

use super::tree::Place;
use crate::error::{Cannot, Error, Result};
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

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

/// Makes a file that was not there; what an earlier try left of it goes.
pub async fn create_anew(path: &Path, mode: u32) -> Result<File> {
    let path = path.to_path_buf();
    blocking(move || {
        let create = || {
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            File::options().write(true).create_new(true).mode(mode).open(&path)
        };
        create().cannot(|| format!("write {}", path.display()))
    })
    .await
}

/// The name under which a file is written until it is whole: it fits where any name fits.
pub fn beside(path: &Path, tag: &str) -> PathBuf {
    let name = path.file_name().unwrap_or(OsStr::new("")).as_bytes();
    let hash = covey_wire::fnv1a(&[tag.as_bytes(), b"/", name].concat());
    path.with_file_name(format!(".covey-part-{hash:016x}"))
}

/// Gives a file its name when it is durable and has all its bytes.
pub async fn settle(file: Arc<File>, part: &Place, to: &Place, bytes: u64) -> Result<()> {
    let (Place::Local(part), Place::Local(to)) = (part.clone(), to.clone()) else { return Ok(()) };
    blocking(move || {
        let what = || format!("write {}", to.display());
        file.sync_all().cannot(what)?;
        let found = file.metadata().cannot(what)?.len();
        if found != bytes {
            let why = format!("cannot {}: {found} bytes of {bytes} came", what());
            return Err(Error::work(why).hint("did a program write to it meanwhile? try again"));
        }
        std::fs::rename(&part, &to).cannot(what)
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_beside_is_short_and_depends_on_file_and_tag() {
        let long = format!("/d/{}", "x".repeat(255));
        let names = [("/d/a", "1"), ("/d/b", "1"), ("/d/a", "2"), (&long, "1")]
            .map(|(path, tag)| beside(Path::new(path), tag));
        for (index, name) in names.iter().enumerate() {
            assert!(name.starts_with("/d") && name.file_name().unwrap().len() < 40);
            assert!(!names[index + 1..].contains(name));
        }
    }
}
