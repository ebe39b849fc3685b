//! What root's `covey up` and `covey down` do in a directory that another user keeps: nothing but to that user's own.

use crate::support::{Cluster, Finished, covey, is_root, no_fuse, run, skip};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use tempfile::TempDir;

const MALLORY: u32 = 61_003;

/// A directory that looks like a cluster's, all of it mallory's.
struct Theirs {
    dir: PathBuf,
    _above: TempDir,
}

impl Theirs {
    fn new() -> Theirs {
        let above = tempfile::tempdir().expect("a directory");
        fs::set_permissions(above.path(), fs::Permissions::from_mode(0o755)).expect("a mode");
        let dir = above.path().join("cluster");
        fs::create_dir_all(dir.join("run")).expect("a directory");
        fs::write(dir.join("lock"), "").expect("a file");
        for part in ["", "run", "lock"] {
            give(&dir.join(part));
        }
        Theirs { dir, _above: above }
    }

    /// A record of a process, with a mount's directory or without.
    fn record(&self, name: &str, pid: u32, note: &str) {
        let file = self.dir.join("run").join(format!("{name}.pid"));
        fs::write(&file, record(pid, note)).expect("a file");
        give(&file);
    }

    fn down(&self) -> Finished {
        let mut command = covey();
        command.arg("down").arg("--dir").arg(&self.dir);
        run(command)
    }
}

fn give(path: &Path) {
    chown(path, Some(MALLORY), Some(MALLORY)).expect("root gives away");
}

/// The text of a pid file. Its second word is the start time, the 22nd of the process's own line.
fn record(pid: u32, note: &str) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let (_, rest) = stat.rsplit_once(") ").expect("a name in brackets");
    let started = rest.split(' ').nth(19).expect("52 words");
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("a boot");
    format!("{pid} {started} {}\n{note}\n", boot.trim())
}

/// A process that only waits. It ends with the test.
struct Sleeper(Child);

impl Sleeper {
    fn of(uid: u32) -> Sleeper {
        let mut command = Command::new("sleep");
        Sleeper(command.arg("600").uid(uid).gid(uid).spawn().expect("sleep runs"))
    }

    fn is_alive(&mut self) -> bool {
        self.0.try_wait().expect("a child").is_none()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_record_of_another_user_ends_nothing_of_roots() {
    if !is_root() {
        return skip("needs root to be several users");
    }
    let (theirs, mut roots, mut own) = (Theirs::new(), Sleeper::of(0), Sleeper::of(MALLORY));
    theirs.record("io1", own.0.id(), "");
    theirs.record("io2", roots.0.id(), "");
    let refused = theirs.down();
    assert_eq!(refused.code, Some(1), "{refused}");
    refused.says(&["io2.pid belongs to uid 61003", "does not", "remove the file"]);
    assert!(roots.is_alive() && own.is_alive(), "{refused}");
    // The same by a name of root's own record: a link, or another name for it.
    let (file, other) = (theirs.dir.join("run/io2.pid"), theirs.dir.with_file_name("roots.pid"));
    fs::write(&other, record(roots.0.id(), "")).expect("a file");
    fs::remove_file(&file).expect("it was there");
    symlink(&other, &file).expect("a link");
    let down = theirs.down();
    assert!(down.ok && down.stdout.contains("stopped 1 server"), "{down}");
    assert!(roots.is_alive(), "{down}");
    assert!(!own.is_alive(), "what is theirs is ended: {down}");
    fs::remove_file(&file).expect("it was there");
    fs::hard_link(&other, &file).expect("a name");
    let down = theirs.down();
    assert!(down.ok && roots.is_alive(), "{down}");
}

#[test]
fn records_elsewhere_are_not_those_of_the_cluster() {
    if !is_root() {
        return skip("needs root to be several users");
    }
    let (theirs, mut roots) = (Theirs::new(), Sleeper::of(0));
    let elsewhere = theirs.dir.with_file_name("elsewhere");
    fs::create_dir(&elsewhere).expect("a directory");
    fs::write(elsewhere.join("io1.pid"), record(roots.0.id(), "")).expect("a file");
    fs::remove_dir(theirs.dir.join("run")).expect("it was empty");
    symlink(&elsewhere, theirs.dir.join("run")).expect("a link");
    let down = theirs.down();
    assert!(down.ok && roots.is_alive() && elsewhere.join("io1.pid").exists(), "{down}");
}

#[test]
fn root_starts_nothing_that_another_user_has_described() {
    if !is_root() {
        return skip("needs root to be several users");
    }
    let mut cluster = Cluster::up(1);
    cluster.down();
    give(&cluster.config());
    let refused = cluster.start(&["-n", "1"]);
    assert_eq!(refused.code, Some(2), "{refused}");
    refused.says(&["as root: it belongs to uid 61003", "start it as that user"]);
    chown(cluster.config(), Some(0), Some(0)).expect("root takes it back");
    cluster.restart();
}

#[test]
fn a_lock_that_leads_elsewhere_makes_no_file_there() {
    let cluster = Cluster::planned();
    let elsewhere = cluster.scratch("nologin");
    fs::create_dir_all(&cluster.dir).expect("a directory");
    symlink(&elsewhere, cluster.dir.join("lock")).expect("a link");
    let refused = cluster.start(&["-n", "1"]);
    assert!(!refused.ok, "{refused}");
    refused.says(&["cannot open", "lock"]);
    assert!(!elsewhere.exists(), "{refused}");
}

#[test]
fn a_mount_of_roots_stays_though_another_users_record_names_it() {
    if let Some(reason) = no_fuse() {
        return skip(reason);
    }
    if !is_root() {
        return skip("needs root to be several users");
    }
    let mut cluster = Cluster::up(1);
    let Some(mount) = cluster.mount() else { return };
    fs::write(mount.join("file"), "1").expect("the mount works");
    let (theirs, own) = (Theirs::new(), Sleeper::of(MALLORY));
    theirs.record("mount-x", own.0.id(), mount.to_str().expect("a path in words"));
    let down = theirs.down();
    assert!(down.ok, "{down}");
    assert_eq!(fs::read_to_string(mount.join("file")).expect("it is still there"), "1");
}

/// A server that was killed a moment ago still runs for that moment: `covey up` starts it, instead of waiting for its answer.
#[test]
fn a_server_that_is_about_to_end_is_started_again() {
    let mut cluster = Cluster::up(1);
    cluster.down();
    let mut ending = Command::new("sleep").arg("1").spawn().expect("sleep runs");
    let file = cluster.dir.join("run/meta.pid");
    fs::write(&file, record(ending.id(), "")).expect("a file");
    let started = cluster.start(&["-n", "1"]);
    assert!(started.ok, "{started}");
    ending.wait().expect("a child");
    let now = fs::read_to_string(&file).expect("a file");
    assert!(!now.starts_with(&format!("{} ", ending.id())), "{now}");
}
