//! A real cluster for a test: the binary as users run it, in a directory of its own.
//!
//! Everything that waits is bounded: commands by [`run`], file operations on a mount by the
//! watchdog of [`Cluster`], which kills the mounts of a test that takes too long, so that what hangs
//! fails instead. Dropping a cluster leaves no process, mount or file behind, whatever happened.
//!
//! What this machine does not permit (FUSE, root, namespaces) is no failure: [`skip`] says so where
//! the totals of `make test` see it, and the test returns.

// Each test file uses its own part of this.
#![allow(dead_code, unused_imports)]

pub mod bytes;
pub mod command;
pub mod lab;
pub mod libraries;
pub mod network;
pub mod packages;
pub mod preload;
pub mod uml;
pub mod valgrind;
pub mod wheels;

pub use command::{Finished, covey, run, run_within};
pub use covey_harness::skip;
pub use packages::{has_file, has_program};

use covey_io::os::kv::{Kv, NO_LIMIT};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a test may use a cluster.
const TEST_LIMIT: Duration = Duration::from_secs(240);
/// How long something that must come true may take; never the thing that is measured.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Why FUSE cannot be used here, if it cannot.
pub fn no_fuse() -> Option<String> {
    if let Err(error) = fs::File::options().read(true).write(true).open("/dev/fuse") {
        return Some(format!("needs FUSE: /dev/fuse: {error}"));
    }
    (!is_root() && !has_program("fusermount3")).then(|| "needs fusermount3 or root".to_owned())
}

/// Whether this is root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Opens a file for reading and writing; it is made when missing.
pub fn open(path: &Path) -> fs::File {
    let mut options = fs::File::options();
    options.read(true).write(true).create(true).truncate(false);
    options.open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A cluster with two mounts: two clients that know nothing of each other.
pub fn two_mounts(io_servers: usize) -> Option<(Cluster, PathBuf, PathBuf)> {
    let mut cluster = Cluster::up(io_servers);
    let (one, two) = (cluster.mount()?, cluster.mount()?);
    Some((cluster, one, two))
}

/// Waits until something is so.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what} did not come true within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A cluster of this machine, up.
pub struct Cluster {
    /// Its directory.
    pub dir: PathBuf,
    mounts: Vec<PathBuf>,
    scratch: TempDir,
    watchdog: Option<(mpsc::Sender<()>, JoinHandle<()>)>,
}

impl Cluster {
    /// Starts one with some I/O servers.
    pub fn up(io_servers: usize) -> Cluster {
        Cluster::up_with(&["-n", &io_servers.to_string()])
    }

    /// Starts one with options of `covey up`.
    pub fn up_with(options: &[&str]) -> Cluster {
        let cluster = Cluster::planned();
        let up = cluster.start(options);
        assert!(up.ok, "covey up: {up}");
        cluster
    }

    /// One as earlier versions made it, with one chain on each I/O server.
    pub fn up_older(io_servers: usize) -> Cluster {
        let mut cluster = Cluster::up(io_servers);
        cluster.down();
        let mut kv = Kv::open(&cluster.store("meta").join("meta"), NO_LIMIT).unwrap();
        // Nobody has met the stores yet.
        for word in ["sper-server", "sstores"] {
            assert!(kv.delete(word.as_bytes()).unwrap(), "no {word}");
        }
        for chain in 0..16 * io_servers as u16 {
            let key = [&b"schain"[..], &[(chain >> 8) as u8, chain as u8]].concat();
            assert!(kv.delete(&key).unwrap(), "no chain {chain}");
        }
        kv.checkpoint().unwrap();
        drop(kv);
        for server in 1..=io_servers {
            fs::remove_dir_all(cluster.store(&format!("io{server}")).join("objects")).unwrap();
        }
        cluster.restart();
        cluster
    }

    /// A place for one; nothing runs yet.
    pub fn planned() -> Cluster {
        let scratch = TempDir::with_prefix("covey-test-").expect("a directory for the test");
        Cluster::within(scratch.path().join("c"), scratch)
    }

    /// One that lives elsewhere than in its scratch directory.
    pub fn within(dir: PathBuf, scratch: TempDir) -> Cluster {
        let watchdog = Some(watch(dir.clone()));
        Cluster { dir, mounts: Vec::new(), scratch, watchdog }
    }

    /// `covey up`, which also starts again what has died.
    pub fn start(&self, options: &[&str]) -> Finished {
        let mut command = covey();
        command.arg("up").arg("--dir").arg(&self.dir).args(options);
        run(command)
    }

    /// Starts again what has died.
    pub fn restart(&self) {
        let up = self.start(&[]);
        assert!(up.ok, "covey up: {up}");
    }

    /// Stops the servers; the data stays.
    pub fn down(&mut self) {
        self.mounts.clear();
        let mut command = covey();
        command.arg("down").arg("--dir").arg(&self.dir);
        let down = run(command);
        assert!(down.ok, "covey down: {down}");
    }

    /// Runs a command of `covey` on this cluster.
    pub fn try_covey(&self, arguments: &[&str]) -> Finished {
        let mut command = covey();
        command.arg("--config").arg(self.config()).args(arguments);
        run(command)
    }

    /// Runs a command that must succeed; answers its stdout.
    pub fn covey(&self, arguments: &[&str]) -> String {
        let done = self.try_covey(arguments);
        assert!(done.ok, "covey {}: {done}", arguments.join(" "));
        done.stdout
    }

    /// Runs a command that must fail.
    pub fn refused(&self, arguments: &[&str]) -> Finished {
        let done = self.try_covey(arguments);
        assert!(!done.ok, "covey {} should have failed: {done}", arguments.join(" "));
        done
    }

    /// Mounts the file system once more. None, with the reason told, where that is not permitted.
    pub fn mount(&mut self) -> Option<PathBuf> {
        self.mount_with(&[])
    }

    /// Mounts with options of `covey mount`.
    pub fn mount_with(&mut self, options: &[&str]) -> Option<PathBuf> {
        if let Some(reason) = no_fuse() {
            skip(reason);
            return None;
        }
        let mountpoint = self.scratch.path().join(format!("m{}", self.mounts.len()));
        let path = mountpoint.to_str().expect("scratch directories have plain names");
        let done = self.try_covey(&[&["mount", path], options].concat());
        if !done.ok && done.stderr.contains("not permitted") {
            skip(format!("needs a FUSE mount: {}", done.stderr.trim()));
            return None;
        }
        assert!(done.ok, "covey mount: {done}");
        self.mounts.push(mountpoint.clone());
        Some(mountpoint)
    }

    /// Unmounts; must succeed, and soon.
    pub fn umount(&mut self, mountpoint: &Path) {
        let mut command = covey();
        command.arg("umount").arg(mountpoint);
        let done = run(command);
        assert!(done.ok, "covey umount: {done}");
        self.mounts.retain(|other| other != mountpoint);
    }

    /// The configuration file.
    pub fn config(&self) -> PathBuf {
        self.dir.join("covey.toml")
    }

    /// A node's store.
    pub fn store(&self, node: &str) -> PathBuf {
        self.dir.join("store").join(node)
    }

    /// A node's unix socket.
    pub fn socket(&self, node: &str) -> PathBuf {
        self.dir.join("run").join(format!("{node}.sock"))
    }

    /// A place for files of the test.
    pub fn scratch(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// A node's process.
    pub fn pid(&self, node: &str) -> Pid {
        let file = self.dir.join("run").join(format!("{node}.pid"));
        read_pid(&file).unwrap_or_else(|| panic!("{} names no process", file.display()))
    }

    /// Sends a node a signal.
    pub fn signal(&self, node: &str, signal: Signal) {
        kill_process(self.pid(node), signal).unwrap_or_else(|error| panic!("{node}: {error}"));
    }

    /// Kills a node with -9 and waits until it has ended, so that it can be started again.
    pub fn kill(&self, node: &str) {
        let pid = self.pid(node);
        self.signal(node, Signal::KILL);
        let process = PathBuf::from(format!("/proc/{}", pid.as_raw_nonzero()));
        // The first thread may be dead while another one holds the store and the sockets.
        until("the end of a killed node", || {
            fs::read_to_string(process.join("stat")).map_or(true, |text| text.contains(") Z "))
                && fs::read_dir(process.join("task")).map_or(true, |tasks| tasks.count() <= 1)
        });
    }

    /// Kills the process that serves a mount, as the end of its machine would.
    pub fn kill_mount(&self, mountpoint: &Path) {
        let serves = |file: &PathBuf| {
            let text = fs::read_to_string(file).unwrap_or_default();
            text.lines().nth(1) == mountpoint.to_str()
        };
        let files = pid_files(&self.dir);
        let file = files.iter().find(|file| serves(file)).expect("a mount has a pid file");
        let pid = read_pid(file).expect("it names a process");
        kill_process(pid, Signal::KILL).expect("the mount runs");
    }

    /// The files of the objects of an I/O server, on all its chains.
    pub fn objects_of(&self, node: &str) -> Vec<PathBuf> {
        fn below(dir: &Path, found: &mut Vec<PathBuf>) {
            for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() { below(&path, found) } else { found.push(path) }
            }
        }
        let (objects, mut found) = (self.store(node).join("objects"), Vec::new());
        below(&objects, &mut found);
        // The store's identity is a file there.
        found.retain(|path| path.parent() != Some(&objects));
        found
    }

    /// How many objects lie in the stores of all I/O servers.
    pub fn objects(&self) -> usize {
        let stores = fs::read_dir(self.dir.join("store")).expect("a cluster has stores");
        let stores = stores.map(|store| store.expect("an entry").path().join("objects"));
        let entries = stores.flat_map(|objects| fs::read_dir(objects).into_iter().flatten());
        // A file there is the store's identity.
        let directories =
            entries.map(|entry| entry.expect("an entry").path()).filter(|path| path.is_dir());
        directories.map(|directory| bytes::files_below(&directory)).sum()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.watchdog.take() {
            drop(stop);
            let _ = thread.join();
        }
        for mountpoint in std::mem::take(&mut self.mounts) {
            let _ = covey().arg("umount").arg("--lazy").arg(mountpoint).output();
        }
        let pids: Vec<Pid> =
            pid_files(&self.dir).iter().filter_map(|file| read_pid(file)).collect();
        for pid in pids.iter().filter(|pid| is_covey(**pid)) {
            // A stopped process would keep `down` waiting.
            let _ = kill_process(*pid, Signal::CONT);
        }
        let _ = covey().arg("down").arg("--dir").arg(&self.dir).output();
        for pid in pids.iter().filter(|pid| is_covey(**pid)) {
            let _ = kill_process(*pid, Signal::KILL);
        }
        if std::thread::panicking() {
            tell_logs(&self.dir);
        }
    }
}

/// Kills the mounts and wakes the servers of a test that takes too long: what hangs fails.
fn watch(dir: PathBuf) -> (mpsc::Sender<()>, JoinHandle<()>) {
    let (stop, stopped) = mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        if stopped.recv_timeout(TEST_LIMIT) != Err(mpsc::RecvTimeoutError::Timeout) {
            return;
        }
        eprintln!("the test has taken {TEST_LIMIT:?}: killing its mounts");
        let is_mount = |file: &&PathBuf| file.to_string_lossy().contains("/mount-");
        for file in pid_files(&dir).iter().filter(is_mount) {
            if let Some(pid) = read_pid(file).filter(|pid| is_covey(*pid)) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    });
    (stop, thread)
}

fn pid_files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir.join("run")).into_iter().flatten().flatten();
    let files = entries.map(|entry| entry.path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "pid")).collect()
}

fn read_pid(file: &Path) -> Option<Pid> {
    let text = fs::read_to_string(file).ok()?;
    Pid::from_raw(text.split_whitespace().next()?.parse().ok()?)
}

/// The kernel may have given the number to someone else since.
fn is_covey(pid: Pid) -> bool {
    let link = fs::read_link(format!("/proc/{}/exe", pid.as_raw_nonzero()));
    link.is_ok_and(|program| program.starts_with(env!("CARGO_BIN_EXE_covey")))
}

fn tell_logs(dir: &Path) {
    let entries = fs::read_dir(dir.join("log")).into_iter().flatten().flatten();
    for file in entries.map(|entry| entry.path()) {
        let text = fs::read_to_string(&file).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(8)..].join("\n  ");
        eprintln!("{}:\n  {tail}", file.display());
    }
}
