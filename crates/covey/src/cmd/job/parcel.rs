//! Files of this machine on their way to sessions: what [`super::spread`] spreads.

use crate::error::{Cannot, Error, Result};
use covey_launch::spawn::flow::{Later, Source};
use covey_launch::spawn::manifest::{Entry, EntryKind, Manifest};
use covey_launch::spawn::message::{Hash, hash};
use covey_ninep::tree::Errno;
use covey_wire::Bytes;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Files, which are read when their bytes are sent.
#[derive(Default)]
pub struct Parcel {
    entries: Vec<Entry>,
    /// Where each is here.
    paths: Vec<PathBuf>,
}

impl Parcel {
    /// Adds the program that a session runs.
    pub fn add_program(&mut self, path: &Path) -> Result<()> {
        self.add(EntryKind::Program, b"", path, 0o700)
    }

    /// Adds a file under a name in the session's directory.
    pub fn add_file(&mut self, name: &str, path: &Path, mode: u32) -> Result<()> {
        self.add(EntryKind::File, name.as_bytes(), path, mode)
    }

    fn add(&mut self, kind: EntryKind, name: &[u8], path: &Path, mode: u32) -> Result<()> {
        let bytes = readable(path)?;
        self.put(Entry { kind, path: name.to_owned(), mode, bytes }, path)
    }

    fn put(&mut self, entry: Entry, path: &Path) -> Result<()> {
        self.entries.push(entry);
        self.paths.push(path.to_owned());
        // Refused here rather than after the walk through a whole disk.
        let so_far = Manifest { entries: std::mem::take(&mut self.entries), ..Manifest::default() };
        let checked = so_far.check();
        self.entries = so_far.entries;
        checked.map_err(|error| Error::user(format!("cannot copy {}: {error}", path.display())))
    }

    /// Adds what is in a directory. What is neither file, directory nor link is left out.
    pub fn add_directory(&mut self, dir: &Path) -> Result<()> {
        self.add_below(dir, Path::new(""))
    }

    fn add_below(&mut self, dir: &Path, below: &Path) -> Result<()> {
        let what = || format!("read the directory {}", dir.display());
        let mut found: Vec<_> =
            fs::read_dir(dir).and_then(Iterator::collect::<std::io::Result<_>>).cannot(what)?;
        found.sort_by_key(fs::DirEntry::file_name);
        for one in found {
            let (path, name) = (one.path(), below.join(one.file_name()));
            let meta =
                fs::symlink_metadata(&path).cannot(|| format!("look at {}", path.display()))?;
            let (kind, bytes) = match meta.file_type() {
                kind if kind.is_dir() => (EntryKind::Directory, 0),
                kind if kind.is_file() => (EntryKind::File, readable(&path)?),
                kind if kind.is_symlink() => {
                    let target =
                        fs::read_link(&path).cannot(|| format!("read {}", path.display()))?;
                    (EntryKind::Link(target.into_os_string().into_vec()), 0)
                }
                _ => continue,
            };
            let is_dir = kind == EntryKind::Directory;
            let (mode, place) = (meta.mode() & 0o777, name.as_os_str().as_bytes().to_vec());
            self.put(Entry { kind, path: place, mode, bytes }, &path)?;
            if is_dir {
                self.add_below(&path, &name)?;
            }
        }
        Ok(())
    }

    /// The bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.entries.iter().map(|entry| entry.bytes).sum()
    }

    /// Closed, as something to be sent.
    pub fn close(self) -> Rc<dyn Source> {
        let manifest = Manifest { entries: self.entries, ..Manifest::default() };
        Rc::new(Closed { manifest: Rc::new(manifest), paths: self.paths })
    }
}

/// The length of a file that can be read: that it cannot is no node's fault, and is said before any is asked.
fn readable(path: &Path) -> Result<u64> {
    let file = File::open(path).cannot(|| format!("read {}", path.display()))?;
    Ok(file.metadata().cannot(|| format!("look at {}", path.display()))?.len())
}

struct Closed {
    manifest: Rc<Manifest>,
    paths: Vec<PathBuf>,
}

impl Source for Closed {
    fn manifest(&self) -> Rc<Manifest> {
        self.manifest.clone()
    }

    fn chunk(&self, index: usize) -> Later<covey_ninep::tree::Result<(Hash, Bytes)>> {
        let pieces = self.manifest.pieces(index).into_iter();
        let pieces: Vec<_> =
            pieces.map(|(at, from, count)| (self.paths[at].clone(), from, count)).collect();
        Box::pin(async move {
            // Beside the network: the hash takes as long as the disk.
            let read = tokio::task::spawn_blocking(move || {
                let data = read(&pieces)?;
                Ok((hash(&data), data.into()))
            });
            read.await.unwrap_or_else(|_| Err(Errno::because(Errno::EIO, "reading has panicked")))
        })
    }
}

fn read(pieces: &[(PathBuf, u64, usize)]) -> covey_ninep::tree::Result<Vec<u8>> {
    let mut data = Vec::new();
    for (path, offset, count) in pieces {
        let begin = data.len();
        data.resize(begin + count, 0);
        let read =
            File::open(path).and_then(|file| file.read_exact_at(&mut data[begin..], *offset));
        read.map_err(|error| {
            let why = match error.kind() {
                std::io::ErrorKind::UnexpectedEof => {
                    "it became shorter while it was sent".to_owned()
                }
                _ => error.to_string(),
            };
            Errno::because(Errno::EIO, format!("{}: {why}", path.display()))
        })?;
    }
    Ok(data)
}

/// The names of a path, for the session's directory.
pub fn is_name_inside(path: &str) -> bool {
    covey_launch::spawn::manifest::is_inside(OsStr::new(path).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[tokio::test]
    async fn a_directory_goes_with_all_that_is_in_it() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("b")).unwrap();
        fs::write(dir.path().join("b/two"), "22").unwrap();
        fs::write(dir.path().join("a"), "1").unwrap();
        symlink("b/two", dir.path().join("c")).unwrap();
        let mut parcel = Parcel::default();
        parcel.add_directory(dir.path()).unwrap();
        assert_eq!(parcel.bytes(), 3);
        let source = parcel.close();
        let manifest = source.manifest();
        let names: Vec<_> =
            manifest.entries.iter().map(|entry| String::from_utf8_lossy(&entry.path)).collect();
        assert_eq!(names, ["a", "b", "b/two", "c"]);
        assert_eq!(manifest.entries[3].kind, EntryKind::Link(b"b/two".to_vec()));
        assert_eq!(source.chunk(0).await.unwrap(), (hash(b"122"), Bytes::from_static(b"122")));
        fs::write(dir.path().join("b/two"), "").unwrap();
        let error = source.chunk(0).await.unwrap_err();
        assert!(error.reason.contains("b/two: it became shorter"), "{error}");
    }
}
