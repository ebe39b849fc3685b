//! A storage directory's identity: whose it is, in which format, and that nobody else uses it.
//!
//! ```text
//!   DIR/covey.store     format 1 | cluster ID | node NAME | role ROLE     (one per line)
//!   DIR/covey.lock      held while a server runs, with its process id
//! ```
//!
//! A server opens its directory by saying what it expects to find. Anything else is an error that
//! leaves the directory as it was.

use super::disk::OsDisk;
use super::lock::{LockError, LockFile};
use super::net::error_text;
use crate::disk::Disk;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The format of what this version writes.
pub const FORMAT: u32 = 1;

/// Whose directory it is. Each value is one line of text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster's id.
    pub cluster: String,
    /// The node's name.
    pub node: String,
    /// What is kept here: `meta`, `data`.
    pub role: String,
}

/// A storage directory in use by this process; dropping it lets others in.
#[derive(Debug)]
pub struct StoreDir {
    path: PathBuf,
    identity: Identity,
    _lock: LockFile,
}

/// Why a storage directory cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum DirectoryError {
    /// There is no such directory, or it was never made a storage directory.
    Missing(PathBuf),
    /// It is to be made, but other things lie in it.
    NotEmpty(PathBuf),
    /// It is to be made, but it is one already.
    Exists(PathBuf, Identity),
    /// It belongs to another cluster, node or role.
    NotOurs {
        /// The directory.
        path: PathBuf,
        /// `cluster`, `node` or `role`.
        what: &'static str,
        /// What its identity file says.
        found: String,
        /// What was expected.
        wanted: String,
    },
    /// A newer version of Covey has written it.
    Newer {
        /// The directory.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format that this version knows.
        known: u32,
    },
    /// Another server uses it.
    InUse(PathBuf, Option<u32>),
    /// It cannot be written.
    ReadOnly(PathBuf, io::Error),
    /// Its identity file makes no sense.
    Damaged(PathBuf, String),
    /// Something else failed.
    Io(PathBuf, io::Error),
}

impl StoreDir {
    /// Makes `path` a storage directory, with its parents; it must be empty if it is there.
    pub fn create(path: &Path, identity: &Identity) -> Result<StoreDir, DirectoryError> {
        let failed = |error| DirectoryError::from_io(path, error);
        fs::create_dir_all(path).map_err(failed)?;
        if let Some(found) = read_if_any(path)? {
            return Err(DirectoryError::Exists(path.to_owned(), found));
        }
        check_empty(path)?;
        let lock = take_lock(path)?;
        write_identity(path, identity).map_err(failed)?;
        Ok(StoreDir { path: path.to_owned(), identity: identity.clone(), _lock: lock })
    }

    /// Opens the storage directory `path`, which must be of this identity and a known format.
    pub fn open(path: &Path, wanted: &Identity) -> Result<StoreDir, DirectoryError> {
        let found = Identity::read(path)?;
        found.check(path, wanted)?;
        let lock = take_lock(path)?;
        Ok(StoreDir { path: path.to_owned(), identity: found, _lock: lock })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whose it is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }
}

impl Identity {
    /// The identity of the storage directory `path`, without using the directory.
    pub fn read(path: &Path) -> Result<Identity, DirectoryError> {
        read_if_any(path)?.ok_or_else(|| DirectoryError::Missing(path.to_owned()))
    }

    fn check(&self, path: &Path, wanted: &Identity) -> Result<(), DirectoryError> {
        let pairs = [
            ("cluster", &self.cluster, &wanted.cluster),
            ("node", &self.node, &wanted.node),
            ("role", &self.role, &wanted.role),
        ];
        match pairs.into_iter().find(|(_, found, wanted)| found != wanted) {
            None => Ok(()),
            Some((what, found, wanted)) => Err(DirectoryError::NotOurs {
                path: path.to_owned(),
                what,
                found: found.clone(),
                wanted: wanted.clone(),
            }),
        }
    }

    fn text(&self) -> String {
        let Identity { cluster, node, role } = self;
        format!(
            "# A storage directory of Covey. Do not change it by hand.\n\
             format {FORMAT}\ncluster {cluster}\nnode {node}\nrole {role}\n"
        )
    }

    fn parse(path: &Path, text: &str) -> Result<Identity, DirectoryError> {
        let damaged = |what: String| DirectoryError::Damaged(path.to_owned(), what);
        let value = |key: &str| {
            let found = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
            found.map(str::to_owned).ok_or_else(|| damaged(format!("has no {key}")))
        };
        let format = value("format")?;
        let format: u32 =
            format.parse().map_err(|_| damaged(format!("has format {format:?}, no number")))?;
        if format > FORMAT {
            let path = path.to_owned();
            return Err(DirectoryError::Newer { path, found: format, known: FORMAT });
        }
        Ok(Identity { cluster: value("cluster")?, node: value("node")?, role: value("role")? })
    }
}

impl DirectoryError {
    fn from_io(path: &Path, error: io::Error) -> Self {
        use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
        match error.kind() {
            PermissionDenied | ReadOnlyFilesystem => {
                DirectoryError::ReadOnly(path.to_owned(), error)
            }
            _ => DirectoryError::Io(path.to_owned(), error),
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            DirectoryError::Missing(_) => {
                "make it with `covey init`, or check the path in covey.toml"
            }
            DirectoryError::NotEmpty(_) => "choose an empty or new directory",
            DirectoryError::Exists(..) => {
                "to use what is there, serve it; to begin anew, remove it"
            }
            DirectoryError::NotOurs { .. } => {
                "check the directory in covey.toml, and that its disk is mounted where it should be"
            }
            DirectoryError::Newer { .. } => "run the newer version of covey on it",
            DirectoryError::InUse(..) => "stop the other server first, with `covey down` or kill",
            DirectoryError::ReadOnly(..) => {
                "run as the directory's owner, and check that its disk is mounted for writing"
            }
            DirectoryError::Damaged(..) => "restore covey.store from a backup",
            DirectoryError::Io(..) => "check the disk and the path",
        }
    }
}

impl fmt::Display for DirectoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DirectoryError::Missing(path) => {
                write!(f, "{} is not a storage directory", path.display())
            }
            DirectoryError::NotEmpty(path) => write!(f, "{} is not empty", path.display()),
            DirectoryError::Exists(path, of) => {
                let Identity { node, cluster, .. } = of;
                let path = path.display();
                write!(
                    f,
                    "{path} is a storage directory already, of node {node}, cluster {cluster}"
                )
            }
            DirectoryError::NotOurs { path, what, found, wanted } => {
                write!(f, "{} belongs to {what} {found}, not {wanted}", path.display())
            }
            DirectoryError::Newer { path, found, known } => {
                let path = path.display();
                write!(f, "{path} has format {found}, this version knows up to {known}")
            }
            DirectoryError::InUse(path, Some(pid)) => {
                write!(f, "{} is in use by process {pid}", path.display())
            }
            DirectoryError::InUse(path, None) => {
                write!(f, "{} is in use by another process", path.display())
            }
            DirectoryError::ReadOnly(path, error) => {
                write!(f, "{} cannot be written: {}", path.display(), error_text(error))
            }
            DirectoryError::Damaged(path, what) => {
                write!(f, "{} {what}", path.join(IDENTITY_FILE).display())
            }
            DirectoryError::Io(path, error) => {
                write!(f, "{} cannot be used: {}", path.display(), error_text(error))
            }
        }
    }
}

impl std::error::Error for DirectoryError {}

fn read_if_any(path: &Path) -> Result<Option<Identity>, DirectoryError> {
    match fs::read_to_string(path.join(IDENTITY_FILE)) {
        Ok(text) => Identity::parse(path, &text).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Err(DirectoryError::Damaged(path.to_owned(), "is no text".into()))
        }
        Err(error) => Err(DirectoryError::from_io(path, error)),
    }
}

fn check_empty(path: &Path) -> Result<(), DirectoryError> {
    let failed = |error| DirectoryError::from_io(path, error);
    for entry in fs::read_dir(path).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        // A fresh disk has lost+found; an attempt that was cut off leaves the other two.
        if ![LOCK_FILE, IDENTITY_FILE_NEW, "lost+found"].iter().any(|known| name == *known) {
            return Err(DirectoryError::NotEmpty(path.to_owned()));
        }
    }
    Ok(())
}

fn take_lock(path: &Path) -> Result<LockFile, DirectoryError> {
    LockFile::take(&path.join(LOCK_FILE)).map_err(|error| match error {
        LockError::InUse(pid) => DirectoryError::InUse(path.to_owned(), pid),
        LockError::Io(error) => DirectoryError::from_io(path, error),
    })
}

fn write_identity(path: &Path, identity: &Identity) -> io::Result<()> {
    let new = path.join(IDENTITY_FILE_NEW);
    write_durably(&new, &path.join(IDENTITY_FILE), identity.text().as_bytes())
}

/// Writes a file under the name `new` and renames it: all of it or nothing, also over a power cut.
pub fn write_durably(new: &Path, file: &Path, content: &[u8]) -> io::Result<()> {
    let mut out = File::create(new)?;
    out.write_all(content)?;
    out.sync_all()?;
    fs::rename(new, file)?;
    sync_names(file.parent().unwrap_or(Path::new("/")))
}

/// Makes the names in a directory, and its own, durable.
pub fn sync_names(path: &Path) -> io::Result<()> {
    OsDisk.sync_dir(path)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.map_or(Ok(()), |parent| OsDisk.sync_dir(parent))
}

/// Whose directory it is, written once.
pub const IDENTITY_FILE: &str = "covey.store";
const IDENTITY_FILE_NEW: &str = "covey.store.new";
const LOCK_FILE: &str = "covey.lock";

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity { cluster: "c0ffee".into(), node: "io1".into(), role: "data".into() }
    }

    fn made() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/store");
        StoreDir::create(&path, &identity()).unwrap();
        (dir, path)
    }

    #[test]
    fn what_was_created_opens_with_the_same_identity_only() {
        let (_dir, path) = made();
        assert_eq!(StoreDir::open(&path, &identity()).unwrap().identity(), &identity());
        let other = Identity { node: "io2".into(), ..identity() };
        let error = StoreDir::open(&path, &other).unwrap_err();
        assert!(error.to_string().ends_with("belongs to node io1, not io2"), "{error}");
    }

    #[test]
    fn a_directory_in_use_names_its_user() {
        let (_dir, path) = made();
        let _first = StoreDir::open(&path, &identity()).unwrap();
        let error = StoreDir::open(&path, &identity()).unwrap_err();
        let expected = format!("is in use by process {}", std::process::id());
        assert!(error.to_string().ends_with(&expected), "{error}");
    }

    #[test]
    fn a_newer_format_is_refused_with_both_numbers() {
        let (_dir, path) = made();
        fs::write(path.join(IDENTITY_FILE), "format 7\nnew thing\n").unwrap();
        let error = StoreDir::open(&path, &identity()).unwrap_err();
        assert!(error.to_string().ends_with("has format 7, this version knows up to 1"), "{error}");
        assert_eq!(fs::read(path.join(IDENTITY_FILE)).unwrap(), b"format 7\nnew thing\n");
    }

    #[test]
    fn a_directory_with_other_things_is_not_taken() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("thesis.tex"), "").unwrap();
        let error = StoreDir::create(dir.path(), &identity()).unwrap_err();
        assert!(matches!(error, DirectoryError::NotEmpty(_)), "{error}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing was left there");
    }

    #[test]
    fn a_directory_is_created_once() {
        let (_dir, path) = made();
        let error = StoreDir::create(&path, &identity()).unwrap_err();
        assert!(matches!(error, DirectoryError::Exists(..)), "{error}");
    }

    #[test]
    fn missing_and_damaged_directories_say_so() {
        let (dir, path) = made();
        let error = StoreDir::open(&dir.path().join("nowhere"), &identity()).unwrap_err();
        assert!(error.to_string().ends_with("nowhere is not a storage directory"), "{error}");
        fs::write(path.join(IDENTITY_FILE), "format 1\ncluster x\n").unwrap();
        let error = StoreDir::open(&path, &identity()).unwrap_err();
        assert!(error.to_string().ends_with("covey.store has no node"), "{error}");
    }
}
