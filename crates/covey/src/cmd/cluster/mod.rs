//! The cluster that `covey up` keeps on this machine: its directory, its lock and its processes.
//!
//! ```text
//!   DIR/covey.toml   the configuration       DIR/store/NODE   objects and metadata
//!   DIR/lock         held by up and down     DIR/log/NODE.log what each process said
//!   DIR/run/NODE.sock, NODE.pid              DIR/run/mount-*.pid, one per mount
//! ```
//!
//! A pid file holds the process's start time and the boot it belongs to as well, so a number that
//! the kernel has given to someone else since is never signalled; nor is a process that is not of the
//! user whom the file belongs to.

mod daemon;
mod make;
pub mod mounts;
mod trust;

pub use covey_io::os::process::Process;
pub use daemon::{Daemon, detach, log_tail, spawn};
pub use make::{Made, Shape, is_short_socket_dir, make};
pub use trust::{Recorded, records};

use crate::config::{Config, embedded_dir, load};
use crate::error::{Cannot, Error, Result};
use crate::output::Output;
use rustix::fs::{FlockOperation, OFlags, flock};
use std::fs::{DirBuilder, File, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long another `covey up` or `covey down` is waited for.
const LOCK_WAIT: Duration = Duration::from_secs(90);

/// Where a cluster of this machine lives.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Its directory, absolute.
    pub dir: PathBuf,
}

impl Cluster {
    /// The one in `dir`, or the user's default.
    pub fn at(dir: Option<&Path>) -> Result<Cluster> {
        let dir = dir.map(Path::to_path_buf).or_else(embedded_dir).ok_or_else(|| {
            Error::user("cannot choose a directory for the cluster: HOME is not set")
                .hint("--dir DIR names one")
        })?;
        let dir = std::path::absolute(&dir).cannot(|| format!("find {}", dir.display()))?;
        Ok(Cluster { dir })
    }

    /// The directory of the one that `--config` or COVEY_CONFIG names, if any does.
    pub fn named_by(context: &super::Context) -> Result<Option<PathBuf>> {
        let Some(file) = &context.config_file else { return Ok(None) };
        let absolute = std::path::absolute(file).cannot(|| format!("find {}", file.display()))?;
        match absolute.parent() {
            Some(dir) if dir.join("lock").is_file() => Ok(Some(dir.to_path_buf())),
            _ => Err(Error::user(format!(
                "cannot use {}: `covey up` did not make that cluster",
                file.display()
            ))
            .hint(
                "--dir DIR names one that it made or shall make; else \
                   leave out --config and COVEY_CONFIG",
            )
            .hint(
                "nodes of a cluster that `covey genconfig` described are started \
                   with `covey serve`",
            )),
        }
    }

    /// The one whose configuration file this is, if `covey up` made it.
    pub fn of(config: &Config) -> Option<Cluster> {
        let dir = std::path::absolute(&config.file).ok()?.parent()?.to_path_buf();
        (dir.join("lock").is_file() && dir.join("run").is_dir()).then_some(Cluster { dir })
    }

    /// The configuration file.
    pub fn config_file(&self) -> PathBuf {
        self.dir.join("covey.toml")
    }

    /// Where sockets and pid files are.
    pub fn run_dir(&self) -> PathBuf {
        self.dir.join("run")
    }

    /// What a process said.
    pub fn log_file(&self, name: &str) -> PathBuf {
        self.dir.join("log").join(format!("{name}.log"))
    }

    /// Which process runs.
    pub fn pid_file(&self, name: &str) -> PathBuf {
        self.run_dir().join(format!("{name}.pid"))
    }

    /// Where a node keeps its data.
    pub fn store(&self, name: &str) -> PathBuf {
        self.dir.join("store").join(name)
    }

    /// Whether there is a cluster.
    pub fn exists(&self) -> bool {
        self.config_file().exists()
    }

    /// Its configuration.
    pub fn config(&self) -> Result<Config> {
        load(&self.config_file())
    }

    /// The running process of a node.
    pub fn process(&self, name: &str) -> Option<Process> {
        Process::read(&self.pid_file(name)).filter(Process::is_alive)
    }

    /// Makes the directories.
    pub fn make_dirs(&self) -> Result<()> {
        make_dir(&self.dir, 0o755)?;
        make_dir(&self.run_dir(), 0o755)?;
        make_dir(&self.dir.join("log"), 0o700)?;
        make_dir(&self.dir.join("store"), 0o700)
    }

    /// Removes the directories again, as far as there is nothing in them: a first `covey up` that failed
    /// leaves no trace. Whoever waits for the lock meanwhile notices that it is gone.
    pub fn remove_empty_dirs(&self) {
        for name in ["run", "log", "store"] {
            let _ = std::fs::remove_dir(self.dir.join(name));
        }
        let left = std::fs::read_dir(&self.dir).into_iter().flatten().flatten();
        if left.map(|entry| entry.file_name()).eq(["lock"]) {
            let _ = std::fs::remove_file(self.lock_file());
            let _ = std::fs::remove_dir(&self.dir);
        }
    }

    fn lock_file(&self) -> PathBuf {
        self.dir.join("lock")
    }

    fn open_lock(&self) -> Result<File> {
        let path = self.lock_file();
        let open = open_lock_at(&path).cannot(|| format!("open {}", path.display()));
        open.map_err(|error| {
            error.hint("whose cluster it is starts and stops it, or root; where the lock is a link, remove that")
        })
    }

    /// Keeps other `covey up` and `covey down` out until the lock is dropped.
    pub async fn lock(&self, output: &Output) -> Result<Lock> {
        let mut file = self.open_lock()?;
        loop {
            if let Some(lock) = self.lock_file_open(file, output).await? {
                return Ok(lock);
            }
            // A first `covey up` that failed took it away while it was waited for.
            self.make_dirs()?;
            file = self.open_lock()?;
        }
    }

    /// The lock of a cluster that may be removed: None where it is gone.
    pub async fn lock_if_there(&self, output: &Output) -> Result<Option<Lock>> {
        let path = self.lock_file();
        loop {
            let file = match open_lock_at(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                file => file.cannot(|| format!("open {}", path.display()))?,
            };
            if let Some(lock) = self.lock_file_open(file, output).await? {
                return Ok(Some(lock));
            }
        }
    }

    /// Waits for the lock of this open file; None where its holder has removed it meanwhile.
    async fn lock_file_open(&self, file: File, output: &Output) -> Result<Option<Lock>> {
        let path = self.lock_file();
        let begin = Instant::now();
        let mut told = false;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(is_file_at(&file, &path).then_some(Lock { _file: file })),
                Err(rustix::io::Errno::WOULDBLOCK) => {}
                Err(error) => return Err(error).cannot(|| format!("lock {}", path.display())),
            }
            if begin.elapsed() > LOCK_WAIT {
                return Err(self.locked());
            }
            if !std::mem::replace(&mut told, true) {
                output
                    .say(format!("waiting for another covey up or down in {}", self.dir.display()));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn locked(&self) -> Error {
        let seconds = LOCK_WAIT.as_secs();
        Error::work(format!(
            "cannot change the cluster in {}: another covey up or down has been at it for \
             {seconds} s",
            self.dir.display()
        ))
        .hint(format!("`fuser -v {}/lock` shows who holds the lock", self.dir.display()))
    }
}

/// The cluster is ours to change while this lives.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Through no link: another user's could have root make a file anywhere, and a pipe would keep it waiting.
fn open_lock_at(path: &Path) -> std::io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    File::options().create(true).truncate(false).write(true).custom_flags(flags).open(path)
}

fn is_file_at(file: &File, path: &Path) -> bool {
    let identity = |found: std::io::Result<Metadata>| found.ok().map(|is| (is.dev(), is.ino()));
    identity(file.metadata()) == identity(std::fs::metadata(path))
}

/// Makes a directory and those above it, if missing.
pub fn make_dir(dir: &Path, mode: u32) -> Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    let made = DirBuilder::new().recursive(true).mode(mode).create(dir);
    made.cannot(|| format!("make directory {}", dir.display()))
        .map_err(|error| error.hint("--dir DIR chooses another place"))
}
