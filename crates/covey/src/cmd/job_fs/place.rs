//! The directory of a job on this node.
//!
//! ```text
//!   PARENT/covey-job-ID-UID-NODE/    0700; PARENT is --dir, $TMPDIR or /tmp; `ID+RUN` where the job was started again
//!     job.json      whose it is: the first file in it, and the last but one to go
//!     lock          held by up and down
//!     unsaved       a stage-out has begun and has not come to a good end
//!     staged-out    what has been staged out: down goes on from here
//!     met           the file system was reached from here: it may hold files
//!     in-doubt      it could not be learned whether results were staged out
//!     the rest      as of any cluster that `covey up` keeps
//! ```

use super::plan::Plan;
use super::trust::{check_parent, own_uid, user};
use super::which::{self, Which, host};
use crate::cmd::cluster::{Cluster, Lock, Process, make_dir, mounts};
use crate::config::random_hex;
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
/// What is removed last, in this order.
const LAST: [&str; 3] = [RECORD, super::down::STAGED_OUT, LOCK];

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
    /// Which run of it.
    pub run: u32,
    /// This machine's name: directories of several nodes may lie together.
    pub host: String,
    /// This node among `nodes`.
    pub node: String,
    /// All nodes, the first one with the metadata.
    pub nodes: Vec<String>,
    /// The key's file that all nodes see, where it is this node's to remove.
    pub shared_key: Option<PathBuf>,
    /// Directories that were made for mounts.
    pub made_for_mounts: Vec<PathBuf>,
}

/// A directory of ours, and what its name says.
#[derive(Clone, Debug)]
pub struct Found {
    /// It.
    pub dir: JobDir,
    /// The run.
    pub run: u32,
    /// The node.
    pub node: String,
}

impl Record {
    /// What is known from the start.
    pub fn of(plan: &Plan) -> Record {
        Record {
            job: plan.job.clone(),
            run: plan.run,
            host: host(),
            node: plan.me.clone(),
            nodes: plan.nodes.clone(),
            shared_key: None,
            made_for_mounts: Vec::new(),
        }
    }
}

impl JobDir {
    /// Those of a job on this machine that are this user's, of every run and node. Directories of other users and machines
    /// are passed over.
    pub fn all(parent: Option<&Path>, which: &Which) -> Result<Vec<Found>> {
        let parent = parent_dir(parent)?;
        check_parent(&parent)?;
        let entries = fs::read_dir(&parent).cannot(|| format!("read {}", parent.display()))?;
        let mut all = Vec::new();
        for entry in entries {
            let entry = entry.cannot(|| format!("read {}", parent.display()))?;
            let name = entry.file_name();
            let Some((run, node)) =
                name.to_str().and_then(|name| which::read_name(name, &which.job))
            else {
                continue;
            };
            let found = Found { dir: JobDir { cluster: Cluster { dir: entry.path() } }, run, node };
            // What others may only read is ours to remove, and nothing in it is theirs.
            if found.dir.check(0o022).is_ok() && found.is_here(which) {
                all.push(found);
            }
        }
        Ok(all)
    }

    /// The one that is meant: of the run that is named, else of the latest.
    pub fn find(parent: Option<&Path>, which: &Which) -> Result<Option<JobDir>> {
        Ok(Found::meant(JobDir::all(parent, which)?, which)?.map(|found| found.dir))
    }

    /// The directory of this node of the plan, made where there is none. A name that another user has taken is left to
    /// him: letters that he could not foresee stand behind ours then.
    pub fn make_for(parent: Option<&Path>, plan: &Plan, output: &Output) -> Result<JobDir> {
        let which = Which::new(plan.job.clone(), Some(plan.run), Some(plan.me.as_str()));
        let ours = || -> Result<Vec<JobDir>> {
            let all = JobDir::all(parent, &which)?.into_iter();
            let ours = all.filter(|found| found.run == plan.run && found.node == plan.me);
            Ok(ours.map(|found| found.dir).collect())
        };
        let name = which::name(&plan.job, plan.run, &plan.me);
        let plain = JobDir { cluster: Cluster { dir: parent_dir(parent)?.join(&name) } };
        loop {
            if let Some(dir) = ours()?.into_iter().next() {
                dir.make()?;
                return Ok(dir);
            }
            if plain.owner().is_none_or(|owner| owner == own_uid()) {
                match plain.make() {
                    Err(_) if plain.owner().is_some_and(|owner| owner != own_uid()) => {}
                    made => return made.map(|()| plain),
                }
            }
            let beside = format!("{name}~{}", random_hex(4)?);
            let beside = JobDir { cluster: Cluster { dir: plain.path().with_file_name(beside) } };
            beside.make()?;
            // Another `covey up` of ours may do the same at the same time: one of the two goes.
            let others = ours()?.into_iter().any(|other| other.path() != beside.path());
            if others && fs::remove_dir(beside.path()).is_ok() {
                continue;
            }
            let owner = plain.owner().map(user).unwrap_or_default();
            output.say(format!("{} is taken by {owner}: using {}", plain.shown(), beside.shown()));
            return Ok(beside);
        }
    }

    fn owner(&self) -> Option<u32> {
        Some(fs::symlink_metadata(self.path()).ok()?.uid())
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
            () if meta.uid() != own => format!("it belongs to {}", user(meta.uid())),
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
        let named = mounts::of(&self.cluster).into_iter().map(|record| record.process.pid);
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

    /// Removes everything, what says how far the job was last, so that an end in the middle is gone on with.
    pub fn remove(&self, _lock: &Lock) -> Result<()> {
        self.nothing_mounted()?;
        let remove = || -> std::io::Result<()> {
            for entry in fs::read_dir(self.path())? {
                let entry = entry?;
                if LAST.iter().any(|name| entry.file_name() == *name) {
                    continue;
                }
                if entry.file_type()?.is_dir() {
                    fs::remove_dir_all(entry.path())?;
                } else {
                    fs::remove_file(entry.path())?;
                }
            }
            for name in LAST {
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

impl Found {
    /// Whether it was made on this machine.
    fn is_here(&self, which: &Which) -> bool {
        match self.dir.record() {
            Some(record) => record.job == which.job && record.host == host(),
            // Its `covey up` was ended before it wrote a thing.
            None => which.own.contain(&self.node),
        }
    }

    /// Whether it is this node's; None where its list of nodes does not tell.
    fn is_own(&self, which: &Which) -> Option<bool> {
        match self.dir.record() {
            Some(record) => match which.own.among(&record.nodes) {
                Ok(node) => Some(node == self.node),
                Err(_) => which.own.is_sure().then_some(false),
            },
            None => Some(which.own.contain(&self.node)),
        }
    }

    /// The one of these that is meant.
    fn meant(all: Vec<Found>, which: &Which) -> Result<Option<Found>> {
        let own = |sure: bool| -> Vec<&Found> {
            let fits = |found: &&Found| {
                found.is_own(which).map_or(!sure, |is_own| is_own)
                    && which.run.is_none_or(|run| run == found.run)
            };
            all.iter().filter(fits).collect()
        };
        let mut meant = own(true);
        if meant.is_empty() {
            meant = own(false);
        }
        let latest = meant.iter().map(|found| found.run).max();
        meant.retain(|found| Some(found.run) == latest);
        let Some(first) = meant.first() else { return Ok(None) };
        if meant.iter().any(|found| found.node != first.node) {
            let nodes = meant.iter().map(|found| found.node.as_str());
            return Err(which::several_fit(&host(), nodes));
        }
        Ok(Some((*first).clone()))
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
    use crate::cmd::job_fs::which::OwnNames;

    const QUIET: Output = Output { json: true, verbose: 0 };

    #[test]
    fn a_directory_that_is_not_ours_alone_is_refused() {
        let above = tempfile::tempdir().unwrap();
        let dir = JobDir::make_for(Some(above.path()), &plan("n1", 0), &QUIET).unwrap();
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
        let refused = JobDir::make_for(Some(&parent), &plan("n1", 0), &QUIET).unwrap_err();
        assert!(refused.message.contains("other users may rename"), "{refused}");
        assert!(JobDir::find(Some(&parent), &which("n1", None)).is_err());
    }

    fn which(node: &str, run: Option<u32>) -> Which {
        Which::new("7".into(), run, Some(node))
    }

    /// A plan of which only the names matter.
    fn plan(me: &str, run: u32) -> Plan {
        let nodes = vec!["n1".to_string(), "n2".to_string()];
        Plan::new(("7".into(), run), nodes, None, &which(me, None).own).unwrap()
    }

    fn made(above: &Path, me: &str, run: u32) -> JobDir {
        let plan = plan(me, run);
        let dir = JobDir::make_for(Some(above), &plan, &QUIET).unwrap();
        dir.set_record(&Record::of(&plan)).unwrap();
        dir
    }

    #[test]
    fn each_run_and_each_node_of_one_host_has_its_own_directory() {
        let above = tempfile::tempdir().unwrap();
        let at = above.path();
        let (first, second) = (made(at, "n1", 0), made(at, "n2", 0));
        let again = made(at, "n1", 2);
        let paths = [&first, &second, &again].map(JobDir::path);
        assert!(paths[0] != paths[1] && paths[0] != paths[2], "{paths:?}");
        let found = |node, run| JobDir::find(Some(at), &which(node, run)).unwrap();
        assert_eq!(found("n2", None).unwrap().path(), second.path());
        assert_eq!(found("n1", None).unwrap().path(), again.path(), "the latest");
        assert_eq!(found("n1", Some(0)).unwrap().path(), first.path());
        assert!(found("n1", Some(1)).is_none() && found("n3", None).is_none());
        // The name of the host alone does not say which of its nodes is meant.
        let host = Which { own: OwnNames::of_host("elsewhere"), ..which("n1", Some(0)) };
        let error = JobDir::find(Some(at), &host).unwrap_err();
        assert!(
            error.message.contains("n1 or n2") || error.message.contains("n2 or n1"),
            "{error}"
        );
        fs::remove_dir_all(second.path()).unwrap();
        assert_eq!(JobDir::find(Some(at), &host).unwrap().unwrap().path(), first.path());
    }

    #[test]
    fn a_name_that_another_user_has_taken_is_left_to_him() {
        if own_uid() != 0 {
            return; // Only root can give a directory away.
        }
        let above = tempfile::tempdir().unwrap();
        let at = above.path();
        let taken = at.join(which::name("7", 0, "n1"));
        fs::create_dir(&taken).unwrap();
        std::os::unix::fs::chown(&taken, Some(65_534), None).unwrap();
        let dir = made(at, "n1", 0);
        assert!(dir.path() != taken && dir.path().parent() == taken.parent());
        assert_eq!(made(at, "n1", 0).path(), dir.path(), "the same one again");
        let found = JobDir::find(Some(at), &which("n1", None)).unwrap().unwrap();
        assert_eq!(found.path(), dir.path());
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
