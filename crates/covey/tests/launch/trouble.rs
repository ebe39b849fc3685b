//! Machines that are cut off, disks that are full, daemons that start again.

use crate::run::{Beside, cluster, started};
use crate::support::bytes::noise;
use crate::support::lab::Lab;
use crate::support::{Cluster, covey, is_root, skip, until};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// Runs until it is killed; nothing else on the machine sleeps as long.
fn sleepers(seconds: &str) -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let words = processes.filter_map(|one| fs::read(one.path().join("cmdline")).ok());
    words.filter(|words| words == format!("sleep\0{seconds}\0").as_bytes()).count()
}

/// What another machine asked for ends with it, also when that machine says nothing any more.
#[test]
fn the_sessions_of_a_machine_that_is_cut_off_end_on_every_node() {
    if !is_root() {
        return skip("needs root");
    }
    let Some(lab) = Lab::up("cut", &["3"]) else { return };
    let program = env!("CARGO_BIN_EXE_covey");
    lab.exec("n1", &[program, "up"]);
    let seconds = format!("79{:05}", std::process::id() % 100_000);
    let mut command = covey();
    command.args(["lab", "exec", "--name", lab.name(), "n1", "--", program]);
    command.args(["run", "-w", "n[2-3]", "--ppn", "2", "--local", "sleep", &seconds]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut beside = command.spawn().unwrap();
    until("the programs run", || sleepers(&seconds) == 4);
    lab.lab("set", &["n1-sw1", "state", "down"]);
    let cut = Instant::now();
    until("nothing runs any more", || sleepers(&seconds) == 0);
    println!("gone on two nodes after {:?}", cut.elapsed());
    lab.lab("set", &["n1-sw1", "state", "up"]);
    let _ = beside.kill();
    let _ = beside.wait();
    lab.exec("n1", &[program, "down"]);
}

#[test]
fn a_daemon_that_starts_again_in_the_middle_has_lost_its_ranks_and_takes_new_ones() {
    let cluster = cluster(2);
    let flag = cluster.scratch("go");
    let script = "echo $$; while [ ! -e $0 ]; do sleep 0.1; done";
    let words = ["run", "-w", "io[1-2]", "--local", "sh", "-c", script, flag.to_str().unwrap()];
    let mut beside = Beside::covey(&cluster, &words);
    let pids: Vec<String> = (0..2).map(|_| beside.line()).collect();
    cluster.kill("io1");
    cluster.restart();
    until("what the killed daemon ran is gone", || {
        pids.iter().filter(|pid| Path::new("/proc").join(pid).exists()).count() == 1
    });
    let done = started(&cluster, &["-w", "io[1-2]", "--local", "--label", "echo", "new"]);
    assert!(done.ok && done.stdout.contains("io1: new\n"), "{done}");
    fs::write(&flag, "").unwrap();
    assert_eq!(beside.code(), Some(254));
    let said = beside.said();
    assert!(said.contains("io1") && !said.contains("io2"), "{said}");
}

/// A directory with little space, while this lives.
struct Small(PathBuf);

impl Small {
    fn mounted(dir: PathBuf) -> Small {
        fs::create_dir(&dir).unwrap();
        mount("none", &dir, "tmpfs", MountFlags::empty(), Some(c"size=2m,mode=1777")).unwrap();
        Small(dir)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// A node whose sessions are in a small directory, in the place of the one that runs.
struct Cramped(Child);

impl Cramped {
    fn node(cluster: &Cluster, node: &str, dir: &Path) -> Cramped {
        cluster.kill(node);
        let mut command = covey();
        command.arg("--config").arg(cluster.config()).args(["serve", "--node", node]);
        command.env("TMPDIR", dir).stdout(Stdio::null()).stderr(Stdio::null());
        let child = Cramped(command.spawn().unwrap());
        until("the node serves", || started(cluster, &["-w", node, "--local", "true"]).ok);
        child
    }
}

impl Drop for Cramped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_node_whose_disk_is_full_is_named_and_nothing_is_left_of_the_rest() {
    if !is_root() {
        return skip("needs root, to mount a small directory");
    }
    let cluster = cluster(3);
    let small = Small::mounted(cluster.scratch("small"));
    let node = Cramped::node(&cluster, "io2", &small.0);
    let program = cluster.scratch("long");
    let mut text = b"#!/bin/sh\necho $COVEY_NODE; exit 0\n".to_vec();
    text.extend(noise(1, 5_000_000));
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let program = program.to_str().unwrap();
    let done = started(&cluster, &["-w", "io[1-3]", "--fan-out", "1", program]);
    let mut lines: Vec<&str> = done.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!((done.code, lines), (Some(254), vec!["io1", "io3"]), "{done}");
    assert!(done.stderr.contains("io2") && done.stderr.contains("o space left"), "{done}");

    let to = cluster.scratch("copy").display().to_string();
    let pushed = cluster.refused(&["push", "--to", &to, program, "io[1-3]"]);
    pushed.says(&["io2", "o space left"]);
    assert_eq!(fs::read(&to).unwrap(), fs::read(program).unwrap(), "the others have it");
    // Small programs run there again: what did not fit is gone.
    until("nothing is left of it", || {
        let sessions = fs::read_dir(&small.0).unwrap().next().unwrap().unwrap().path();
        fs::read_dir(sessions).unwrap().count() == 0
    });
    drop(node);

    let images = small.0.join("images");
    let words = ["boot", "add", "disk", program, "--arch", "any", "--dir"];
    let mut command = covey();
    command.args(words).arg(&images);
    crate::support::run(command).says(&["o space left"]);
    let mut command = covey();
    command.args(["boot", "ls", "--dir"]).arg(&images);
    let listed = crate::support::run(command);
    assert!(!listed.stdout.contains("disk"), "{listed}");
    let used = Command::new("du").arg("-s").arg(&small.0).output().unwrap();
    let kib: u64 =
        String::from_utf8_lossy(&used.stdout).split('\t').next().unwrap().parse().unwrap();
    assert!(kib < 200, "{kib} KiB are left of what did not fit");
}

/// The nodes have one name, and in both labs their processes have the same numbers.
#[test]
fn nodes_of_one_name_do_not_end_each_others_programs() {
    if !is_root() {
        return skip("needs root");
    }
    let Some(one) = Lab::up("one", &["2"]) else { return };
    let Some(other) = Lab::up("other", &["2"]) else { return };
    let covey = env!("CARGO_BIN_EXE_covey");
    one.exec("n1", &[covey, "up"]);
    other.exec("n1", &[covey, "up"]);
    let night = ["run", "-w", "n1", "--detach", "--job", "night", "--local", "sleep", "1000"];
    one.exec("n1", &[&[covey], &night[..]].concat());
    for _ in 0..3 {
        other.exec("n1", &[covey, "run", "-w", "n1", "--local", "true"]);
    }
    let shown = one.exec("n1", &[covey, "ps"]);
    assert!(shown.contains("sleep 1000"), "{shown}");
    one.exec("n1", &[covey, "down"]);
    other.exec("n1", &[covey, "down"]);
}

#[test]
fn a_node_that_cannot_be_reached_is_named_with_the_reason() {
    let cluster = cluster(2);
    cluster.kill("io2");
    for words in [&["ps"][..], &["nodes"]] {
        let done = cluster.try_covey(words);
        assert_eq!(done.code, Some(1), "{done}");
        let said = done.stdout.clone() + &done.stderr;
        let socket = cluster.socket("io2");
        let why = format!("cannot reach node io2: cannot connect to unix!{}", socket.display());
        assert!(said.contains(&why), "{done}");
    }
}
