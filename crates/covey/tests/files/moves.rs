//! Drains and rebalances that go on in the servers, whoever has asked for them.

use crate::support::bytes::{assert_same, noise};
use crate::support::command::as_stranger;
use crate::support::{Cluster, covey, run, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::FileExt;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Of each file: some pieces of a copy.
const BYTES: usize = 3 << 20;
/// Slow enough that whoever looks finds it in the middle.
const SLOW: &str = "2M";
const FAST: &str = "4G";

/// A cluster with files on all its I/O servers, each on one.
fn with_files(io_servers: usize, count: u64) -> Cluster {
    let cluster = Cluster::up(io_servers);
    cluster.covey(&["layout", "set", "--servers", "1", "/"]);
    let dir = cluster.scratch("dir");
    fs::create_dir(&dir).unwrap();
    for index in 0..count {
        fs::write(dir.join(index.to_string()), noise(index, BYTES)).unwrap();
    }
    cluster.covey(&["cp", "-r", dir.to_str().unwrap(), ":/"]);
    cluster
}

/// Copies all files out, and compares them.
fn check_files(cluster: &Cluster, count: u64, out: &str) {
    let out = cluster.scratch(out);
    cluster.covey(&["cp", "-r", ":/dir", out.to_str().unwrap()]);
    for index in 0..count {
        let found = fs::read(out.join(index.to_string())).unwrap();
        assert_same(&found, &noise(index, BYTES), &format!("file {index}"));
    }
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// What `covey server moves` says of a task; Null where it says nothing.
fn task(cluster: &Cluster, name: &str) -> Value {
    let all = json(&cluster.covey(&["--json", "server", "moves"]));
    let found = all.as_array().unwrap().iter().find(|one| one["task"] == name);
    found.cloned().unwrap_or(Value::Null)
}

fn is_on(cluster: &Cluster, name: &str) -> bool {
    task(cluster, name)["state"] == "moves"
}

fn copied(cluster: &Cluster, name: &str) -> u64 {
    task(cluster, name)["bytes_copied"].as_u64().unwrap_or(0)
}

fn files_on(cluster: &Cluster, node: &str) -> usize {
    let said = json(&cluster.covey(&["--json", "files", "--on", node]));
    said["files"].as_array().unwrap().len()
}

/// A command that goes on beside the test.
fn begin(cluster: &Cluster, arguments: &[&str]) -> Child {
    let mut command = covey();
    command.arg("--config").arg(cluster.config()).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn end(child: Child) -> (Option<i32>, String) {
    let ended = child.wait_with_output().unwrap();
    (ended.status.code(), String::from_utf8_lossy(&ended.stderr).into_owned())
}

/// Chains that are being received: directories that no identity names.
fn staged(cluster: &Cluster) -> usize {
    let stores = fs::read_dir(cluster.dir.join("store")).into_iter().flatten().flatten();
    let unnamed = |store: fs::DirEntry| {
        let objects = store.path().join("objects");
        let identity = fs::read_to_string(objects.join("identity")).unwrap_or_default();
        let names = fs::read_dir(objects).into_iter().flatten().flatten();
        let is_unnamed = |entry: &fs::DirEntry| {
            let name = entry.file_name().into_string().unwrap_or_default();
            let stay = name.strip_prefix('c').and_then(|name| name.split_once('.'));
            stay.is_some_and(|(chain, stay)| !identity.contains(&format!("chain {chain} {stay} ")))
        };
        names.filter(is_unnamed).count()
    };
    stores.map(unnamed).sum()
}

#[test]
fn a_drain_goes_on_when_its_command_was_interrupted_and_the_metadata_server_killed() {
    let cluster = with_files(3, 12);
    let before = files_on(&cluster, "io2");
    assert!(before >= 3, "{before} files on io2");
    let command = begin(&cluster, &["server", "drain", "io2", "--rate", SLOW]);
    until("files move", || copied(&cluster, "drain io2") > 0);
    kill_process(Pid::from_child(&command), Signal::INT).unwrap();
    let (code, said) = end(command);
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("the servers go on"), "{said}");
    let then = copied(&cluster, "drain io2");
    until("more is copied", || copied(&cluster, "drain io2") > then);
    let listed = cluster.covey(&["server", "ls"]);
    assert!(listed.contains("drain io2: ") && listed.contains(" left"), "{listed}");

    cluster.kill("meta");
    cluster.restart();
    until("it goes on", || is_on(&cluster, "drain io2"));
    // Given again, the command changes the rate and waits.
    let done = json(&cluster.covey(&["--json", "server", "drain", "io2", "--rate", FAST]));
    assert_eq!((&done["state"], &done["left"]), (&"done".into(), &serde_json::json!([])));
    assert_eq!(files_on(&cluster, "io2"), 0);
    check_files(&cluster, 12, "out");
    cluster.covey(&["fsck"]);
    until("nothing is left of copies", || staged(&cluster) == 0);
    // What lies there is found once: each file has one object, and what has left is empty.
    cluster.kill("io2");
    check_files(&cluster, 12, "without");
}

#[test]
fn a_pause_holds_in_the_middle_of_a_file_and_across_a_restart() {
    let cluster = with_files(2, 6);
    cluster.covey(&["server", "drain", "io1", "--rate", "1M", "--detach"]);
    until("a file is under way", || staged(&cluster) > 0 && copied(&cluster, "drain io1") > 0);
    cluster.covey(&["server", "drain", "io1", "--pause"]);
    assert!(cluster.covey(&["server", "ls"]).contains("; paused"));
    until("what was begun is put away", || staged(&cluster) == 0);
    let then = task(&cluster, "drain io1");
    cluster.refused(&["server", "drain", "io1"]).says(&["it is paused", "--resume"]);
    cluster.kill("meta");
    cluster.restart();
    // Longer than a task takes to begin.
    std::thread::sleep(std::time::Duration::from_secs(2));
    let now = task(&cluster, "drain io1");
    assert_eq!((&now["state"], &now["files_moved"]), (&"paused".into(), &then["files_moved"]));
    assert_eq!(staged(&cluster), 0);
    assert!(files_on(&cluster, "io1") > 0);
    cluster.covey(&["server", "drain", "io1", "--resume", "--rate", FAST]);
    assert_eq!(task(&cluster, "drain io1")["state"], "done");
    assert_eq!(files_on(&cluster, "io1"), 0);
    check_files(&cluster, 6, "out");
    cluster.covey(&["fsck"]);
}

#[test]
fn a_drain_waits_for_a_server_that_has_died_says_so_and_goes_on_when_it_is_back() {
    let cluster = with_files(2, 8);
    let command = begin(&cluster, &["server", "drain", "io2", "--rate", "1M"]);
    until("files move", || copied(&cluster, "drain io2") > 0);
    cluster.kill("io2");
    let (code, said) = end(command);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(": io2 does not serve"), "{said}");
    let listed = cluster.covey(&["server", "ls"]);
    assert!(listed.contains("; waits: io2 does not serve"), "{listed}");
    cluster.restart();
    until("it is back", || is_on(&cluster, "drain io2"));
    cluster.covey(&["server", "drain", "io2", "--rate", FAST]);
    assert_eq!(files_on(&cluster, "io2"), 0);
    check_files(&cluster, 8, "out");
    cluster.covey(&["fsck"]);
}

#[test]
fn a_drain_ends_when_it_is_stopped_or_its_server_opened_and_not_before() {
    let cluster = with_files(3, 9);
    let nothing = cluster.refused(&["server", "drain", "io1", "--pause"]);
    nothing.says(&["cannot pause: drain io1", "none is under way"]);
    cluster.refused(&["server", "rebalance", "--resume"]).says(&["none is under way"]);
    cluster.covey(&["server", "drain", "io1", "--rate", "1M", "--detach"]);
    cluster.covey(&["server", "drain", "io1", "--stop"]);
    assert_eq!(task(&cluster, "drain io1")["state"], "stopped");
    assert!(cluster.covey(&["server", "ls"]).contains("no: closed"), "it gets no new files");
    assert!(!cluster.covey(&["server", "ls"]).contains("drain io1"));
    until("what was begun is put away", || staged(&cluster) == 0);
    let left = files_on(&cluster, "io1");
    assert!(left > 0);

    cluster.covey(&["server", "drain", "io2", "--rate", "1M", "--detach"]);
    cluster.covey(&["server", "open", "io2"]);
    assert_eq!(task(&cluster, "drain io2")["state"], "stopped");
    // Somebody who waits for it hears that it is over.
    let waiting = begin(&cluster, &["server", "drain", "io2", "--rate", "1M"]);
    until("it has begun", || is_on(&cluster, "drain io2"));
    cluster.covey(&["server", "drain", "io2", "--stop"]);
    let (code, said) = end(waiting);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("drain io2 was ended"), "{said}");
    assert_eq!(files_on(&cluster, "io1"), left, "a stopped drain moves nothing");
    check_files(&cluster, 9, "out");
}

#[test]
fn drains_and_a_rebalance_at_once_move_each_file_once() {
    let cluster = with_files(4, 16);
    cluster.covey(&["server", "drain", "io1", "--rate", "8M", "--detach"]);
    cluster.covey(&["server", "drain", "io2", "--rate", "8M", "--detach"]);
    cluster.covey(&["server", "rebalance", "--rate", "8M", "--detach"]);
    let twice = begin(&cluster, &["server", "drain", "io1"]);
    until("both are drained", || {
        ["drain io1", "drain io2"].iter().all(|name| task(&cluster, name)["state"] == "done")
    });
    let (code, said) = end(twice);
    assert_eq!(code, Some(0), "{said}");
    until("it is balanced", || task(&cluster, "rebalance")["state"] == "done");
    assert_eq!((files_on(&cluster, "io1"), files_on(&cluster, "io2")), (0, 0));
    assert_eq!(files_on(&cluster, "io3") + files_on(&cluster, "io4"), 16);
    check_files(&cluster, 16, "out");
    cluster.covey(&["fsck"]);
}

#[test]
fn a_user_of_the_machine_neither_drains_nor_pauses() {
    let cluster = with_files(2, 4);
    cluster.covey(&["server", "drain", "io1", "--rate", "64K", "--detach"]);
    for words in [&["rebalance"][..], &["drain", "io2"], &["drain", "io1", "--pause"], &["moves"]] {
        let Some(mut stranger) = as_stranger(&cluster) else { return };
        stranger.arg("--config").arg(cluster.config()).arg("server").args(words);
        let refused = run(stranger);
        assert!(!refused.ok, "{words:?}: {refused}");
    }
    assert!(is_on(&cluster, "drain io1"));
    assert_eq!(
        (task(&cluster, "rebalance"), task(&cluster, "drain io2")),
        (Value::Null, Value::Null)
    );
}

/// A file that is open, and written all the time until it is told to stop: block by block, each with the number of its round.
/// Answers what each block holds at the end.
fn write_all_the_time(path: std::path::PathBuf, stop: Arc<AtomicBool>) -> Vec<u64> {
    let file =
        fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    let file = file.unwrap();
    let mut rounds = vec![0_u64; 96];
    for round in 1.. {
        for (at, held) in rounds.iter_mut().enumerate() {
            let block = vec![(round as u8) ^ (at as u8); 64 << 10];
            file.write_all_at(&block, (at as u64) * (64 << 10)).unwrap();
            *held = round;
            let mut back = vec![0; 64 << 10];
            file.read_exact_at(&mut back, (at as u64) * (64 << 10)).unwrap();
            assert_eq!(back, block, "block {at} in round {round}");
            if at % 32 == 0 {
                file.sync_all().unwrap();
            }
            if stop.load(Ordering::Relaxed) && round > 1 {
                return rounds;
            }
        }
    }
    unreachable!("it goes on until it is told")
}

#[test]
fn a_server_is_drained_while_its_files_are_open_and_written() {
    let mut cluster = with_files(3, 6);
    let Some(mount) = cluster.mount() else { return };
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..3)
        .map(|at| {
            let (path, stop) = (mount.join(format!("dir/busy{at}")), stop.clone());
            std::thread::spawn(move || write_all_the_time(path, stop))
        })
        .collect();
    until("they have written", || {
        fs::metadata(mount.join("dir/busy2")).is_ok_and(|f| f.len() > 1 << 20)
    });
    cluster.covey(&["server", "drain", "io2"]);
    cluster.covey(&["server", "drain", "io1"]);
    assert_eq!((files_on(&cluster, "io1"), files_on(&cluster, "io2")), (0, 0));
    cluster.covey(&["server", "open", "io1"]);
    cluster.covey(&["server", "rebalance"]);
    stop.store(true, Ordering::Relaxed);
    for (at, writer) in writers.into_iter().enumerate() {
        let rounds = writer.join().expect("nothing has failed");
        let found = fs::read(mount.join(format!("dir/busy{at}"))).unwrap();
        for (block, round) in rounds.iter().enumerate() {
            let wanted = (*round as u8) ^ (block as u8);
            let found = &found[block * (64 << 10)..][..64 << 10];
            assert!(found.iter().all(|&byte| byte == wanted), "block {block} of busy{at}");
        }
    }
    cluster.covey(&["server", "remove", "io2"]);
    cluster.kill("io2");
    check_files(&cluster, 6, "out");
    cluster.covey(&["fsck"]);
}
