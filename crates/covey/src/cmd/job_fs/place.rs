//! The directory of a job on this node.
//!
//! ```text
//!   PARENT/covey-job-ID-UID-NODE/    0700; PARENT is --dir, $TMPDIR or /tmp
//!     job.json      whose it is: the first file in it, and the last but one to go
//!     lock          held by up and down
//!     unsaved       a stage-out has begun and has not come to a good end
//!     staged-out    what has been staged out: down goes on from here
//!     met           the file system was reached from here: it may hold files
//!     the rest      as of any cluster that `covey up` keeps
//! ```

use crate::cmd::cluster::{Cluster, Lock, Process, make_dir, mounts};
use crate::error::{Cannot, Error, Result};
use crate::output::Output;
use covey_io::os::mount::{self, Mounted};
use rustix::process::Signal;
use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a server that no pid file names may take to end.
const END_WAIT: Duration = Duration::from_secs(5);

const RECORD: &str = "job.json";
const LOCK: &str = "lock";

/// A job's directory, as a cluster that `covey up` keeps.
#[derive(Clone, Debug)]
pub struct JobDir {
    /// Its files.
    pub cluster: Cluster,
}

/// Whose directory it is.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Record {
    /// The job.
    pub job: String,
    /// This machine's name: directories of several nodes may lie together.
    pub host: String,
    /// This node among `nodes`.
    pub node: String,
    /// All nodes, the first one with the metadata.
    pub nodes: Vec<String>,
    /// The key's file that all nodes see, where we made it.
    pub shared_key: Option<PathBuf>,
    /// Directories that were made for mounts.
    pub made_for_mounts: Vec<PathBuf>,
}

impl JobDir {
    /// That of a node of a job.
    pub fn of(parent: Option<&Path>, job: &str, node: &str) -> Result<JobDir> {
        let dir = parent_dir(parent)?.join(format!("{}{node}", prefix(job)));
        Ok(JobDir { cluster: Cluster { dir } })
    }

    /// That of a job on this machine, if there is one. Directories of other users and machines are passed over.
    pub fn find(parent: Option<&Path>, job: &str) -> Result<Option<JobDir>> {
        let parent = parent_dir(parent)?;
        check_parent(&parent)?;
        let prefix = prefix(job);
        let entries = fs::read_dir(&parent).cannot(|| format!("read {}", parent.display()))?;
        for entry in entries {
            let entry = entry.cannot(|| format!("read {}", parent.display()))?;
            let name = entry.file_name();
            let Some(node) = name.to_str().and_then(|name| name.strip_prefix(&prefix)) else {
                continue;
            };
            let dir = JobDir { cluster: Cluster { dir: entry.path() } };
            let is_here = || match dir.record() {
                Some(record) => record.job == job && record.host == host(),
                // Its `covey up` was ended before it wrote a thing.
                None => own_names().iter().any(|own| own == node),
            };
            // What others may only read is ours to remove, and nothing in it is theirs.
            if dir.check(0o022).is_ok() && is_here() {
                return Ok(Some(dir));
            }
        }
        Ok(None)
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.cluster.dir
    }

    /// Makes it, or takes the one that is there if it is ours.
    pub fn make(&self) -> Result<()> {
        let what = || format!("make directory {}", self.path().display());
        check_parent(self.path().parent().unwrap_or(Path::new("/")))?;
        match DirBuilder::new().mode(0o700).create(self.path()) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(error).cannot(what);
            }
            _ => {}
        }
        self.check(0o077)
    }

    /// Makes the directories in it.
    pub fn make_inner(&self) -> Result<()> {
        ["run", "log", "store"].iter().try_for_each(|name| make_dir(&self.path().join(name), 0o700))
    }

    /// Refuses what another user has put in its place, or whose mode lets others do too much.
    fn check(&self, others_may_not: u32) -> Result<()> {
        let dir = self.path().display();
        let meta = fs::symlink_metadata(self.path()).cannot(|| format!("look at {dir}"))?;
        let own = rustix::process::geteuid().as_raw();
        let why = match () {
            () if meta.is_symlink() => "it is a symbolic link".to_string(),
            () if !meta.is_dir() => "it is no directory".to_string(),
            () if meta.uid() != own => format!("it belongs to uid {}", meta.uid()),
            () if meta.mode() & others_may_not != 0 => {
                format!("other users may enter it: its mode is {:04o}", meta.mode() & 0o7777)
            }
            () => return Ok(()),
        };
        Err(Error::work(format!("cannot use {dir} for the job: {why}"))
            .hint("--dir DIR puts the job's directory elsewhere, on every node alike"))
    }

    /// Takes the lock. None where the directory went while it was waited for.
    pub async fn lock(&self, output: &Output) -> Result<Option<Lock>> {
        self.cluster.lock_if_there(output).await
    }

    fn shown(&self) -> String {
        self.path().display().to_string()
    }

    /// What is on record.
    pub fn record(&self) -> Option<Record> {
        serde_json::from_slice(&fs::read(self.path().join(RECORD)).ok()?).ok()
    }

    /// Puts it on record.
    pub fn set_record(&self, record: &Record) -> Result<()> {
        let text = serde_json::to_vec(record)?;
        self.put(RECORD, &text)
    }

    /// Writes a small file in one step.
    pub fn put(&self, name: &str, content: &[u8]) -> Result<()> {
        let (file, new) = (self.path().join(name), self.path().join(format!("{name}.new")));
        let written = covey_io::os::directory::write_durably(&new, &file, content);
        written.cannot(|| format!("write {}", file.display()))
    }

    /// Reads a small file, if there is one.
    pub fn read(&self, name: &str) -> Option<Vec<u8>> {
        fs::read(self.path().join(name)).ok()
    }

    /// Gives a small file another name.
    pub fn rename(&self, from: &str, to: &str) -> Result<()> {
        fs::rename(self.path().join(from), self.path().join(to))
            .cannot(|| format!("write {}", self.path().join(to).display()))
    }

    /// Removes a small file, if there is one.
    pub fn forget(&self, name: &str) {
        let _ = fs::remove_file(self.path().join(name));
    }

    /// What an `up` left that did not come to the cluster's configuration: it never held a file.
    pub fn remove_unfinished(&self) -> Result<()> {
        let store = self.path().join("store");
        let removed = match fs::remove_dir_all(&store) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed,
        };
        removed.cannot(|| format!("remove {}", store.display()))?;
        self.forget("key");
        Ok(())
    }

    /// Ends servers and mounts of this directory that no pid file names: their `covey up` was killed as it
    /// started them. A mount that a pid file names is in use, whatever has become of the server.
    pub async fn end_strays(&self) -> Result<()> {
        let named = mounts::of(&self.cluster).into_iter().map(|(_, process)| process.pid);
        let named: Vec<_> = named.collect();
        let mut strays = processes_of(&self.cluster.config_file());
        strays.retain(|process| !named.contains(&process.pid));
        for process in &strays {
            process.signal(Signal::TERM).cannot(|| format!("end pid {}", process.pid))?;
        }
        for process in strays {
            if process.wait(END_WAIT).await {
                continue;
            }
            process.signal(Signal::KILL).cannot(|| format!("end pid {}", process.pid))?;
            if !process.wait(END_WAIT).await {
                return Err(Error::work(format!("cannot end pid {}", process.pid))
                    .hint("it waits inside the kernel, mostly for a disk; try again later"));
            }
        }
        Ok(())
    }

    /// Removes everything, the record last, so that an end in the middle is gone on with.
    pub fn remove(&self, _lock: &Lock) -> Result<()> {
        self.nothing_mounted()?;
        let remove = || -> std::io::Result<()> {
            for entry in fs::read_dir(self.path())? {
                let entry = entry?;
                if entry.file_name() == RECORD || entry.file_name() == LOCK {
                    continue;
                }
                if entry.file_type()?.is_dir() {
                    fs::remove_dir_all(entry.path())?;
                } else {
                    fs::remove_file(entry.path())?;
                }
            }
            for name in [RECORD, LOCK] {
                match fs::remove_file(self.path().join(name)) {
                    Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
            fs::remove_dir(self.path())
        };
        remove()
            .cannot(|| format!("remove {}", self.shown()))
            .map_err(|error| error.hint("the same command tries again"))
    }

    /// What is mounted below would be emptied.
    fn nothing_mounted(&self) -> Result<()> {
        let mounts = mount::mounts().cannot(|| "read /proc/self/mountinfo")?;
        match mounted_below(&mounts, self.path()) {
            None => Ok(()),
            Some(place) => {
                let place = place.display();
                Err(Error::work(format!("cannot remove {}: {place} is mounted", self.shown()))
                    .hint(format!("`umount {place}`, then the same command again")))
            }
        }
    }
}

/// Where the jobs' directories are.
fn parent_dir(parent: Option<&Path>) -> Result<PathBuf> {
    let from_env = || std::env::var_os("TMPDIR").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let parent = parent.map(Path::to_path_buf).or_else(from_env).unwrap_or("/tmp".into());
    parent
        .canonicalize()
        .cannot(|| format!("find {}", parent.display()))
        .map_err(|error| error.hint("--dir names a directory that each node has, on its own disk"))
}

fn prefix(job: &str) -> String {
    format!("covey-job-{job}-{}-", rustix::process::geteuid().as_raw())
}

/// Another user who may rename a directory on the way can put another in its place.
fn check_parent(parent: &Path) -> Result<()> {
    parent.ancestors().try_for_each(check_above)
}

fn check_above(above: &Path) -> Result<()> {
    let meta = fs::metadata(above).cannot(|| format!("look at {}", above.display()))?;
    let own = rustix::process::geteuid().as_raw();
    let is_shared = meta.mode() & 0o022 != 0 && meta.mode() & 0o1000 == 0;
    let why = match () {
        () if is_shared => "other users may rename what lies there".to_string(),
        () if meta.uid() != 0 && meta.uid() != own => format!("it belongs to uid {}", meta.uid()),
        () => return Ok(()),
    };
    Err(Error::work(format!("cannot keep a job's directory below {}: {why}", above.display()))
        .hint("--dir names one of root or your own that others may not write, or a sticky one"))
}

/// What this machine is called.
pub fn host() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    host.trim().to_string()
}

/// The names by which a list of nodes may mean this one, the surest first.
pub fn own_names() -> Vec<String> {
    let host = host();
    let short = host.split('.').next().unwrap_or_default().to_string();
    let slurm = std::env::var("SLURMD_NODENAME").ok().filter(|name| !name.is_empty());
    slurm.into_iter().chain([host, short]).collect()
}

/// Processes of this user that serve or mount what this configuration describes.
fn processes_of(config: &Path) -> Vec<Process> {
    let own = rustix::process::geteuid().as_raw();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_ours = |pid: &u32| {
        let dir = PathBuf::from(format!("/proc/{pid}"));
        fs::metadata(&dir).is_ok_and(|meta| meta.uid() == own)
            && fs::read(dir.join("cmdline")).is_ok_and(|words| serves(&words, config))
    };
    pids.filter(is_ours).filter_map(Process::now).filter(Process::is_alive).collect()
}

fn serves(words: &[u8], config: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
    // Mounts in the foreground are the user's own: no `covey up` has started them.
    let is_daemon = match words.get(3) {
        Some(word) if *word == b"serve" => true,
        Some(word) if *word == b"mount" => words.contains(&&b"--detached"[..]),
        _ => false,
    };
    is_daemon && words[1] == b"--config" && words[2] == config.as_os_str().as_bytes()
}

/// A mountpoint at or below a directory.
fn mounted_below<'a>(mounts: &'a [Mounted], dir: &Path) -> Option<&'a Path> {
    mounts.iter().map(|mounted| &*mounted.target).find(|place| place.starts_with(dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_not_ours_alone_is_refused() {
        let above = tempfile::tempdir().unwrap();
        let dir = JobDir::of(Some(above.path()), "7", "n1").unwrap();
        dir.make().unwrap();
        dir.make().unwrap();
        fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o750))
            .unwrap();
        assert!(dir.make().unwrap_err().message.contains("other users may enter it"));
        fs::remove_dir(dir.path()).unwrap();
        std::os::unix::fs::symlink("/etc", dir.path()).unwrap();
        assert!(dir.make().unwrap_err().message.contains("symbolic link"));
        fs::set_permissions(above.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777))
            .unwrap();
        assert!(dir.make().unwrap_err().message.contains("other users may rename"));
        // The directory above the parent counts as well.
        let parent = above.path().join("parent");
        fs::create_dir(&parent).unwrap();
        let dir = JobDir::of(Some(&parent), "7", "n1").unwrap();
        assert!(dir.make().unwrap_err().message.contains("other users may rename"));
        assert!(JobDir::find(Some(&parent), "7").is_err());
    }

    #[test]
    fn mounts_below_are_seen_and_names_that_only_begin_alike_are_not() {
        let (device, kind, source) = <(String, String, String)>::default();
        let named = Mounted { target: PathBuf::new(), device, kind, source };
        let at = |target: &str| Mounted { target: target.into(), ..named.clone() };
        let mounts = ["/", "/t/a b/m"].map(at);
        assert_eq!(mounted_below(&mounts, Path::new("/t/a b")), Some(Path::new("/t/a b/m")));
        assert_eq!(mounted_below(&mounts, Path::new("/t/a")), None);
    }

    #[test]
    fn only_servers_and_mounts_of_the_configuration_are_strays() {
        let config = Path::new("/t/covey.toml");
        assert!(serves(b"covey\0--config\0/t/covey.toml\0serve\0--node\0n1\0", config));
        assert!(!serves(b"covey\0--config\0/t/covey.toml\0ls\0", config));
        let mount = b"covey\0--config\0/t/covey.toml\0mount\0--foreground\0--detached\0--\0/m\0";
        assert!(serves(mount, config));
        assert!(!serves(b"covey\0--config\0/t/covey.toml\0mount\0--foreground\0/m\0", config));
        assert!(!serves(b"vi\0/t/covey.toml\0", config));
        assert!(!serves(b"covey\0--config\0/u/covey.toml\0serve\0", config));
    }
}
