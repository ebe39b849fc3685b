//! A node's namespace from outside: a tree that is bound by one line is seen by every way in, a node's tree is
//! seen through another's `/n`, and users have their own rights everywhere.

use crate::support::command::copy_program;
use crate::support::{Cluster, Finished, covey, is_root, no_fuse, run, skip, until};
use rustix::process::Signal;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// A process that ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A cluster of `meta` (with the names), `io1` and `io2`, where io2 serves the clock besides.
fn cluster() -> (Cluster, Ended) {
    let cluster = Cluster::up(2);
    cluster.kill("io2");
    let program = std::env::current_exe().unwrap();
    let node =
        crate::clock::serve::node_with_a_clock(&program, &cluster.config(), "io2").spawn().unwrap();
    let node = Ended(node);
    until("io2 serves the clock", || client(&cluster, "io2", "ls", "/time").ok);
    (cluster, node)
}

fn client(cluster: &Cluster, node: &str, verb: &str, path: &str) -> Finished {
    let mut command = covey();
    command.args(["9p", verb, &address(cluster, node), path]);
    run(command)
}

pub fn address(cluster: &Cluster, node: &str) -> String {
    format!("unix!{}", cluster.socket(node).display())
}

#[test]
fn a_tree_bound_by_one_line_is_seen_by_covey_9p_by_another_node_and_mounted() {
    let (cluster, _node) = cluster();
    for (node, path) in [("io2", "/time"), ("io1", "/n/io2/time")] {
        assert_eq!(client(&cluster, node, "ls", path).stdout, "now\nzone\n", "{path}");
        assert_eq!(client(&cluster, node, "cat", &format!("{path}/zone")).stdout, "UTC\n");
        let now = client(&cluster, node, "cat", &format!("{path}/now")).stdout;
        assert!(now.trim().parse::<u64>().is_ok_and(|now| now > 1_700_000_000), "{now}");
    }
    let root = client(&cluster, "io1", "ls", "/").stdout;
    for name in
        ["fs", "data", "stats", "config", "version", "ctl", "slow", "times", "space", "store", "n"]
    {
        assert!(root.lines().any(|line| line == name), "{name}: {root}");
    }
    assert!(!root.contains("time\n"), "only io2 has a clock: {root}");
    let refused = client(&cluster, "io1", "ls", "/n/io2/n");
    assert!(!refused.ok, "a node's neighbours are not shown by its neighbours: {refused}");

    let Some(mounted) = Mounted::at(&cluster, "io1", &[]) else { return };
    assert_eq!(fs::read_to_string(mounted.path("n/io2/time/zone")).unwrap(), "UTC\n");
    let now = || fs::read_to_string(mounted.path("n/io2/time/now")).unwrap();
    let before = now();
    until("the clock goes on", || now() != before);
    let refused = fs::write(mounted.path("n/io2/time/zone"), "CET\n").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EROFS));
}

#[test]
fn a_mount_of_any_tree_does_what_the_tree_can() {
    let cluster = Cluster::up(2);
    let Some(mounted) = Mounted::at(&cluster, "io1", &[]) else { return };
    let at = |name: &str| mounted.path("n/io2/fs").join(name);
    fs::create_dir(at("d")).unwrap();
    let long: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    fs::write(at("d/file"), &long).unwrap();
    assert!(fs::read(at("d/file")).unwrap() == long);
    assert!(fs::read(mounted.path("fs/d/file")).unwrap() == long, "seen from this node, too");
    fs::rename(at("d/file"), at("moved")).unwrap();
    assert!(fs::metadata(at("d/file")).is_err());
    fs::File::options().write(true).open(at("moved")).unwrap().set_len(5).unwrap();
    assert_eq!(fs::read(at("moved")).unwrap(), long[..5]);
    fs::hard_link(at("moved"), at("hard")).unwrap();
    std::os::unix::fs::symlink("hard", at("soft")).unwrap();
    assert_eq!(fs::read(at("soft")).unwrap(), long[..5]);
    let append = |text: &str| {
        use std::io::Write;
        fs::File::options().append(true).open(at("hard")).unwrap().write_all(text.as_bytes())
    };
    append("one").unwrap();
    append("two").unwrap();
    assert_eq!(fs::read(at("moved")).unwrap(), [&long[..5], b"onetwo"].concat());
    set_xattr(&at("moved"), "user.colour", "blue");
    assert_eq!(xattr(&at("hard"), "user.colour"), "blue");
    let mut names: Vec<_> = fs::read_dir(at("."))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["d", "hard", "moved", "soft"]);
    assert!(fs::remove_file(at("d")).is_err() && fs::remove_dir(at("hard")).is_err());
    fs::remove_dir(at("d")).unwrap();
    for name in ["hard", "soft", "moved"] {
        fs::remove_file(at(name)).unwrap();
    }
    assert_eq!(fs::read_dir(at(".")).unwrap().count(), 0);
}

#[test]
fn a_command_that_fails_is_found_in_words_by_who_wrote_it() {
    let cluster = Cluster::up(1);
    let Some(mounted) = Mounted::at(&cluster, "io1", &[]) else { return };
    let ctl = mounted.path("ctl");
    fs::write(&ctl, "slow 25\n").unwrap();
    assert!(fs::read_to_string(&ctl).unwrap().starts_with("slow 25\n"));
    let refused = fs::write(&ctl, "jump\n").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
    let text = fs::read_to_string(&ctl).unwrap();
    assert!(text.contains("last error: jump: there is no command"), "{text}");
    fs::write(&ctl, "slow off\n").unwrap();
    assert!(!fs::read_to_string(&ctl).unwrap().contains("last error"));
}

#[test]
fn a_user_has_no_more_rights_on_another_node_than_on_its_own() {
    if !is_root() {
        return skip("needs root to be other users");
    }
    const STRANGER: u32 = 54321;
    let cluster = Cluster::up(2);
    let program = for_strangers(&cluster);
    let client = |verb: &str, path: &str| {
        let mut command = Command::new(&program);
        command.args(["9p", verb, &address(&cluster, "io1"), path]).uid(STRANGER).gid(STRANGER);
        run(command)
    };
    assert!(client("ls", "/n/io2/fs").ok, "{}", client("ls", "/n/io2/fs"));
    assert_eq!(client("cat", "/n/io2/version").stdout, client("cat", "/version").stdout);
    for path in ["/data", "/stats", "/ctl"] {
        for path in [path.to_owned(), format!("/n/io2{path}")] {
            let verb = if path.ends_with("data") { "ls" } else { "cat" };
            assert!(!client(verb, &path).ok, "{path} is not for strangers");
        }
    }
    let root = crate::support::run({
        let mut command = covey();
        command.args(["9p", "cat", &address(&cluster, "io1"), "/n/io2/stats"]);
        command
    });
    assert!(root.stdout.contains("node io2"), "root is root there, too: {root}");
}

/// Lets everybody reach the sockets, and answers a copy of the program that everybody may run.
pub fn for_strangers(cluster: &Cluster) -> PathBuf {
    fs::set_permissions(&cluster.dir, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let open = |dir: &Path| {
        fs::set_permissions(dir, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    };
    cluster.dir.ancestors().skip(1).take(1).for_each(open);
    open(&cluster.dir.join("run"));
    let program = cluster.scratch("covey");
    copy_program(&program);
    program
}

/// `covey 9p mount` of a node, which ends with the test.
pub struct Mounted {
    process: Child,
    at: PathBuf,
}

impl Mounted {
    pub fn at(cluster: &Cluster, node: &str, options: &[&str]) -> Option<Mounted> {
        Mounted::by(covey(), cluster, node, options)
    }

    /// The same by this command, which may run as somebody else.
    pub fn by(
        mut command: Command,
        cluster: &Cluster,
        node: &str,
        options: &[&str],
    ) -> Option<Mounted> {
        if let Some(reason) = no_fuse() {
            skip(reason);
            return None;
        }
        let at = cluster.scratch("any");
        fs::create_dir(&at).unwrap();
        fs::set_permissions(&at, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        command.args(["9p", "mount"]).args(options).arg(address(cluster, node)).arg(&at);
        let mut process = command.spawn().unwrap();
        let is_there = || {
            let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
            mounts.lines().any(|line| line.split(' ').nth(1) == at.to_str())
        };
        until("the mount is there or has failed", || {
            is_there() || process.try_wait().unwrap().is_some()
        });
        if !is_there() {
            skip("needs a FUSE mount, which is not permitted here");
            return None;
        }
        Some(Mounted { process, at })
    }

    /// Ends it as power does.
    pub fn kill(&self) {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, Signal::KILL).unwrap();
        let _ = rustix::mount::unmount(&self.at, rustix::mount::UnmountFlags::DETACH);
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.at.join(name)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.process);
        let _ = rustix::process::kill_process(pid, Signal::TERM);
        let _ = self.process.wait();
    }
}

fn set_xattr(file: &Path, name: &str, value: &str) {
    let flags = rustix::fs::XattrFlags::CREATE;
    rustix::fs::setxattr(file, name, value.as_bytes(), flags).unwrap();
}

fn xattr(file: &Path, name: &str) -> String {
    let mut value = [0; 100];
    let length = rustix::fs::getxattr(file, name, &mut value[..]).unwrap();
    String::from_utf8_lossy(&value[..length]).into_owned()
}
