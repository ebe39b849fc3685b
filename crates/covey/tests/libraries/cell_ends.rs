//! How workers, their host and its node end, and what the others learn of it.

use super::cell::{Bench, Running};
use crate::support::{Cluster, Finished, covey, run, until};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// `covey 9p` at a node.
fn client(cluster: &Cluster, node: &str, words: &[&str]) -> Command {
    let mut command = covey();
    let address = format!("unix!{}", cluster.socket(node).display());
    command.arg("9p").arg(words[0]).arg(address).args(&words[1..]);
    command
}

fn listed(cluster: &Cluster, path: &str) -> String {
    run(client(cluster, "io1", &["ls", path])).stdout
}

/// Workers of the program `trouble` on node io1, whose host keeps its socket in a directory of its own.
fn start(bench: &Bench, cluster: &Cluster, options: &[&str], what: &str) -> (Running, PathBuf) {
    let trouble = bench.program("trouble", &["-Wno-unused-result"]);
    let place = bench.dir.path().join("place");
    let _ = fs::create_dir(&place);
    let options = [&["--node", "io1"], options].concat();
    let mut command = bench.command(&options, &trouble, &[what]);
    command.env("COVEY_CONFIG", cluster.config()).env("TMPDIR", &place);
    (Running::start(command), place)
}

/// Somebody who writes a line into the reader's pipe, by way of a node, and may write more.
fn writer(cluster: &Cluster, node: &str) -> Child {
    let path = if node == "io1" { "/cell/p/words" } else { "/n/io1/cell/p/words" };
    let mut command = client(cluster, node, &["write", path]);
    let mut child = command.stdin(Stdio::piped()).spawn().expect("covey starts");
    child.stdin.as_mut().expect("a pipe").write_all(b"a word\n").expect("written");
    child
}

#[test]
fn one_of_three_writers_from_elsewhere_that_is_lost_is_an_error_behind_the_others() {
    let Some(bench) = Bench::new() else { return };
    let cluster = Cluster::up(2);
    let ways = ["io1", "io2", "io2"];
    for lost in [None, Some(0), Some(1)] {
        let (mut running, _) = start(&bench, &cluster, &[], "nothing");
        assert_eq!(running.line(), "ready\n");
        let mut writers = ways.map(|node| writer(&cluster, node));
        for _ in &writers {
            assert_eq!(running.line(), "a word\n");
        }
        if let Some(lost) = lost {
            writers[lost].kill().expect("it runs");
        }
        for mut writer in writers {
            drop(writer.stdin.take());
            writer.wait().expect("it ends");
        }
        let end = if lost.is_some() { "error 32\n" } else { "end\n" };
        assert_eq!(running.line(), end, "lost: {lost:?}");
        assert!(running.child.wait().expect("it ends").success());
    }
}

#[test]
fn what_a_worker_makes_is_its_user_s_alone_unless_it_says_otherwise() {
    let Some(bench) = Bench::new() else { return };
    let cluster = Cluster::up(1);
    let (mut running, place) = start(&bench, &cluster, &[], "busy-read");
    assert_eq!(running.line(), "ready\n");
    let mode = |path: &str| {
        let mut command = client(&cluster, "io1", &["stat", path]);
        command.arg("--json");
        let done = run(command);
        let stat: serde_json::Value = serde_json::from_str(&done.stdout).expect("JSON");
        stat["mode"].as_str().expect("a mode").to_owned()
    };
    assert_eq!(mode("/cell/p/words"), "0600");
    until("the region is there", || listed(&cluster, "/cell/r") == "board\n");
    assert_eq!(mode("/cell/r/board"), "0600");
    use std::os::unix::fs::PermissionsExt;
    let own = fs::read_dir(place).expect("listed").next().expect("its directory").expect("found");
    let mode = |path: &Path| fs::metadata(path).expect("found").permissions().mode() & 0o777;
    assert_eq!((mode(&own.path()), mode(&own.path().join("host"))), (0o700, 0o600));
    run_end(&cluster);
    running.child.wait().expect("it ends");
}

#[test]
fn a_worker_whose_requests_another_one_erases_ends_with_an_error_and_waits_for_nothing() {
    let Some(bench) = Bench::new() else { return };
    let trouble = bench.program("trouble", &["-Wno-unused-result"]);
    for _ in 0..3 {
        let done = bench.run(&["--alone", "-s", "2"], &trouble, &["erase"]);
        assert!(done.code == Some(1), "{done}");
        assert!(done.stderr.contains("message box is broken"), "{done}");
        assert!(!done.stderr.contains("panicked"), "{done}");
    }
}

/// Writes a line into a control file.
fn tell(cluster: &Cluster, node: &str, path: &str, line: &str) {
    let mut command = client(cluster, node, &["write", path]);
    let mut child = command.stdin(Stdio::piped()).spawn().expect("covey starts");
    child.stdin.take().expect("a pipe").write_all(line.as_bytes()).expect("written");
    assert!(child.wait().expect("it ends").success(), "{path}: {line}");
}

fn run_end(cluster: &Cluster) -> Finished {
    cluster.try_covey(&["cell", "end", "--node", "io1"])
}

#[test]
fn a_host_is_ended_by_its_user_in_every_way_there_is_and_leaves_nothing_behind() {
    let Some(bench) = Bench::new() else { return };
    let cluster = Cluster::up(2);
    let refused = run_end(&cluster);
    assert!(refused.code == Some(1) && refused.stderr.contains("end your workers"), "{refused}");
    for how in ["command", "named", "file", "signal"] {
        let (mut running, place) = start(&bench, &cluster, &["-s", "2"], "wait");
        let line = running.line_with("waits");
        let worker = line.trim().rsplit(' ').next().expect("a number").to_owned();
        let control = run(client(&cluster, "io1", &["cat", "/cell/ctl"])).stdout;
        let host = control.lines().find_map(|line| line.strip_prefix("host ")).expect("a host");
        let done = match how {
            "command" => Some(run_end(&cluster)),
            "named" => Some(cluster.try_covey(&["cell", "end", "--node", "io1", host])),
            "file" => {
                tell(&cluster, "io2", "/n/io1/cell/ctl", &format!("end {host}\n"));
                None
            }
            _ => {
                let host = Pid::from_raw(running.child.id() as i32).expect("a process");
                kill_process(host, Signal::TERM).expect("it runs");
                None
            }
        };
        assert!(done.as_ref().is_none_or(|done| done.ok), "{how}: {}", done.expect("it failed"));
        if how != "signal" {
            // It has ended when this is answered.
            assert!(!Path::new(&format!("/proc/{worker}")).exists(), "{how}");
        }
        assert_eq!(running.child.wait().expect("it ends").code(), Some(1), "{how}");
        assert!(!Path::new(&format!("/proc/{worker}")).exists(), "{how}");
        assert_eq!(fs::read_dir(&place).expect("listed").count(), 0, "{how}");
        until("the node shows no more", || listed(&cluster, "/cell/p").is_empty());
    }
}

#[test]
fn workers_are_below_cell_again_when_their_node_has_been_away() {
    let Some(bench) = Bench::new() else { return };
    let cluster = Cluster::up(2);
    let (mut running, _) = start(&bench, &cluster, &[], "nothing");
    assert_eq!(running.line(), "ready\n");
    let control = || run(client(&cluster, "io1", &["cat", "/cell/ctl"])).stdout;
    for _ in 0..2 {
        assert_eq!(listed(&cluster, "/cell/p"), "words\n");
        let host = control().lines().find(|line| line.starts_with("host ")).map(str::to_owned);
        tell(&cluster, "io1", "/cell/ctl", &(host.expect("a host") + "\n"));
        assert_eq!(control().lines().filter(|line| line.starts_with("host ")).count(), 1);
        cluster.kill("io1");
        cluster.restart();
        until("the node shows them again", || listed(&cluster, "/cell/p") == "words\n");
    }
    let mut last = writer(&cluster, "io2");
    assert_eq!(running.line(), "a word\n");
    drop(last.stdin.take());
    assert!(last.wait().expect("it ends").success());
    assert_eq!(running.line(), "end\n");
    assert!(running.child.wait().expect("it ends").success());
}
