//! Disks that are replaced, emptied or swapped behind a server's back.

use crate::support::bytes::noise;
use crate::support::{Cluster, covey, run, skip, until};
use covey_io::disk::Disk;
use covey_io::os::disk::OsDisk;
use covey_io::os::kv::{Kv, NO_LIMIT};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

const FILES: u64 = 12;

fn content(index: u64) -> Vec<u8> {
    noise(index, 300_000)
}

/// A cluster with files on each of its servers, one with two names.
fn filled() -> Cluster {
    with_content(Cluster::up(3))
}

fn with_content(cluster: Cluster) -> Cluster {
    let local = cluster.scratch("local");
    cluster.covey(&["mkdir", "/dir"]);
    for index in 0..FILES {
        fs::write(&local, content(index)).unwrap();
        cluster.covey(&["cp", local.to_str().unwrap(), &format!(":/dir/f{index}")]);
    }
    cluster.covey(&["ln", "/dir/f0", "/dir/g0"]);
    cluster
}

/// Stops a server and puts a new, formatted disk where its store was; the old one goes to `aside`.
fn replace(cluster: &Cluster, node: &str, aside: &Path) {
    cluster.kill(node);
    fs::rename(cluster.store(node), aside).unwrap();
    cluster.covey(&["init", "--node", node]);
}

/// Paths of the files that cannot be read; those that can are right.
fn unreadable(cluster: &Cluster) -> BTreeSet<String> {
    let mut refused = BTreeSet::new();
    let out = cluster.scratch("out");
    for index in 0..FILES {
        let path = format!("/dir/f{index}");
        let _ = fs::remove_file(&out);
        let done = cluster.try_covey(&["cp", &format!(":{path}"), out.to_str().unwrap()]);
        if done.ok {
            assert!(fs::read(&out).unwrap() == content(index), "{path} reads as garbage")
        } else {
            assert!(done.stderr.contains("io2"), "{done}");
            refused.insert(path);
        }
    }
    refused
}

fn state(cluster: &Cluster, node: &str) -> String {
    let status: Value = serde_json::from_str(&cluster.covey(&["--json", "status"])).unwrap();
    let nodes = status["nodes"].as_array().unwrap();
    let row = nodes.iter().find(|row| row["node"] == node).unwrap();
    row["state"].as_str().unwrap().to_owned()
}

fn json(cluster: &Cluster, words: &[&str]) -> Value {
    let done = cluster.try_covey(&[&["--json"], words].concat());
    serde_json::from_str(&done.stdout).unwrap_or_else(|_| panic!("{done}"))
}

/// The store and the generation of each of three chains, which have one member.
fn chains(cluster: &Cluster) -> [(String, u64); 3] {
    let shown = json(cluster, &["server", "chains"]);
    let chain = |at: usize| {
        let (chain, server) = (&shown[at], format!("io{}", at + 1));
        let [member] = &chain["members"].as_array().unwrap()[..] else { panic!("{chain}") };
        assert_eq!((&member["server"], &member["state"]), (&server.into(), &"serving".into()));
        (member["store"].as_str().unwrap().to_owned(), chain["generation"].as_u64().unwrap())
    };
    [chain(0), chain(1), chain(2)]
}

fn paths_of(list: &Value) -> BTreeSet<String> {
    let text = |path: &Value| path.as_str().unwrap().to_owned();
    let entries = list.as_array().unwrap().iter();
    entries.flat_map(|one| one["paths"].as_array().unwrap().iter().map(text)).collect()
}

#[test]
fn a_replaced_disk_serves_nothing_until_its_loss_is_accepted() {
    let cluster = filled();
    replace(&cluster, "io2", &cluster.scratch("old"));
    cluster.restart();
    until("the strange store is seen", || state(&cluster, "io2") == "unknown store");
    let lost = unreadable(&cluster);
    assert!(!lost.is_empty() && lost.len() < FILES as usize, "{lost:?}");

    let status = cluster.covey(&["status"]);
    assert!(status.contains("covey server replace io2"), "{status}");
    for words in [&["fsck"][..], &["fsck", "--repair"]] {
        let done = cluster.refused(words);
        assert!(!done.stdout.contains("clean"), "{done}");
    }
    assert_eq!(unreadable(&cluster), lost, "a repair has changed nothing");
    cluster.refused(&["fsck", "--accept-loss", "io1"]).says(&["io1", "store"]);
    cluster.refused(&["fsck", "--accept-loss", "io9"]).says(&["io9", "io1, io2, io3"]);

    let accepted = json(&cluster, &["fsck", "--accept-loss", "io2"]);
    let mut named = paths_of(&accepted["files"]);
    if lost.contains("/dir/f0") {
        assert!(named.remove("/dir/g0"), "both names are told");
    }
    assert_eq!(named, lost, "what is lost is told by path");
    until("it serves again", || state(&cluster, "io2") == "up");

    // The loss still shows, and a repair names what it turns into holes.
    let found = json(&cluster, &["fsck"]);
    assert_eq!(found["clean"], false);
    let repaired = json(&cluster, &["fsck", "--repair", "--tell", "1"]);
    let mut named = paths_of(&repaired["findings"]);
    named.remove("/dir/g0");
    assert_eq!(named, lost);
    assert_eq!(json(&cluster, &["fsck"])["clean"], true);

    let local = cluster.scratch("local");
    fs::write(&local, content(99)).unwrap();
    for path in &lost {
        cluster.covey(&["cp", local.to_str().unwrap(), &format!(":{path}")]);
    }
    cluster.kill("io2");
    cluster.restart();
    cluster.covey(&["cat", lost.first().unwrap()]);
}

#[test]
fn with_a_disk_replaced_what_was_lost_is_an_error_until_it_is_put_back_removed_or_accepted() {
    let mut cluster = filled();
    let Some(mount) = cluster.mount() else { return };
    cluster.refused(&["server", "replace", "io2"]).says(&["its store is the one that it had"]);
    let [(_, one), (before, two), (_, three)] = chains(&cluster);
    assert_eq!([one, two, three], [1; 3]);
    replace(&cluster, "io2", &cluster.scratch("old"));
    cluster.refused(&["server", "replace", "io2"]);
    cluster.restart();
    until("the strange store is seen", || state(&cluster, "io2") == "unknown store");
    let lost = unreadable(&cluster);
    assert!(lost.len() >= 4, "{lost:?}");

    let mut named = paths_of(&json(&cluster, &["server", "replace", "io2"])["files"]);
    named.remove("/dir/g0");
    assert_eq!(named, lost, "what is lost is told by path");
    until("it serves again", || state(&cluster, "io2") == "up");
    let [(_, one), (after, two), (_, three)] = chains(&cluster);
    assert_eq!([one, two, three], [1, 2, 1], "what was sent to the lost disk is refused");
    assert_ne!(before, after);
    assert_eq!(unreadable(&cluster), lost, "no zeros in place of what was lost");
    // New files lie there, also what is made meanwhile.
    let mut made = 0;
    until("it gets new files", || {
        made += 1;
        let new = mount.join(format!("dir/new{made}"));
        fs::write(&new, content(99)).unwrap();
        assert!(fs::read(&new).unwrap() == content(99));
        let there = paths_of(&json(&cluster, &["files", "--on", "io2"])["files"]);
        there.contains(&format!("/dir/new{made}"))
    });

    let left = |cluster: &Cluster| {
        let mut left = paths_of(&json(cluster, &["files", "--on", "io2", "--lost"])["files"]);
        left.remove("/dir/g0");
        left
    };
    assert_eq!(left(&cluster), lost);
    let found = json(&cluster, &["fsck", "--repair"]);
    assert_eq!(found["clean"], false, "{found}");
    assert_eq!(left(&cluster), lost, "a repair accepts nothing");

    let mut lost: Vec<String> = lost.into_iter().collect();
    let at = |path: &str| mount.join(&path[1..]);
    // A start forgets nothing of it.
    cluster.kill("io2");
    cluster.restart();
    until("it serves again", || state(&cluster, "io2") == "up");
    let error = |path: &str| fs::read(at(path)).unwrap_err().raw_os_error();
    until("it is an error", || lost.iter().all(|path| error(path) == Some(5)));
    // Written over as programs do: emptied first.
    let written = lost.pop().unwrap();
    fs::write(at(&written), content(7)).unwrap();
    assert!(fs::read(at(&written)).unwrap() == content(7));
    let removed = lost.pop().unwrap();
    fs::remove_file(at(&removed)).unwrap();
    let accepted = lost.pop().unwrap();
    cluster.covey(&["server", "accept-loss", "io2", &accepted]);
    // The first 64 KiB lie with the metadata.
    let index: u64 = accepted.trim_start_matches("/dir/f").parse().unwrap();
    let mut left_of_it = content(index);
    left_of_it[64 << 10..].fill(0);
    assert!(fs::read(at(&accepted)).unwrap() == left_of_it);
    cluster.refused(&["server", "accept-loss", "io2", &accepted]).says(&["nothing of it is lost"]);
    // A part of it is no new content.
    let cut = &lost[0];
    fs::File::options().write(true).open(at(cut)).unwrap().set_len(299_999).unwrap();
    assert_eq!(error(cut), Some(5));
    until("the removed one is gone", || left(&cluster) == lost.iter().cloned().collect());

    cluster.covey(&["server", "accept-loss", "io2", "--all"]);
    assert!(left(&cluster).is_empty());
    assert!(lost.iter().all(|path| fs::read(at(path)).is_ok()));
    assert!(fs::read(at(&written)).unwrap() == content(7));
    cluster.covey(&["fsck"]);
}

#[test]
fn a_disk_that_comes_back_in_time_brings_everything_back() {
    let cluster = filled();
    let old = cluster.scratch("old");
    replace(&cluster, "io2", &old);
    cluster.restart();
    assert!(!unreadable(&cluster).is_empty());
    cluster.kill("io2");
    fs::remove_dir_all(cluster.store("io2")).unwrap();
    fs::rename(&old, cluster.store("io2")).unwrap();
    cluster.restart();
    assert_eq!(unreadable(&cluster), BTreeSet::new());
    assert_eq!(json(&cluster, &["fsck"])["clean"], true);
}

#[test]
fn objects_that_are_wiped_are_missed_although_the_store_is_still_marked() {
    let cluster = filled();
    cluster.kill("io2");
    fs::remove_dir_all(cluster.store("io2").join("objects")).unwrap();
    cluster.restart();
    assert!(!unreadable(&cluster).is_empty());
}

#[test]
fn objects_whose_directories_are_wiped_are_missed_although_their_identity_is_left() {
    let cluster = filled();
    cluster.kill("io2");
    for entry in fs::read_dir(cluster.store("io2").join("objects")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap();
        }
    }
    for _ in 0..2 {
        cluster.restart();
        until("the loss is seen", || state(&cluster, "io2") == "unknown store");
        assert!(!unreadable(&cluster).is_empty(), "EIO, not zeros");
        cluster.kill("io2");
    }
    cluster.restart();
    until("the loss is seen", || state(&cluster, "io2") == "unknown store");
    assert!(!paths_of(&json(&cluster, &["fsck", "--accept-loss", "io2"])["files"]).is_empty());
    until("it serves again", || state(&cluster, "io2") == "up");
}

#[test]
fn objects_that_are_wiped_within_their_directory_are_missed() {
    let cluster = filled();
    cluster.kill("io2");
    let objects = cluster.store("io2").join("objects");
    for entry in fs::read_dir(&objects).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap()
        } else {
            fs::remove_file(path).unwrap()
        }
    }
    for _ in 0..2 {
        cluster.restart();
        until("the strange store is seen", || state(&cluster, "io2") == "unknown store");
        assert!(!unreadable(&cluster).is_empty());
        let status = cluster.covey(&["status"]);
        assert!(status.contains("covey server replace io2"), "{status}");
        cluster.kill("io2");
    }
}

/// Makes a cluster what an older version has left: no store has an identity.
fn forget_identities(cluster: &Cluster) {
    for node in ["io1", "io2", "io3"] {
        fs::remove_file(cluster.store(node).join("objects/identity")).unwrap();
    }
    let mut kv = Kv::open(&cluster.store("meta").join("meta"), NO_LIMIT).unwrap();
    assert!(kv.delete(b"sstores").unwrap() && kv.delete(b"gidentity").unwrap());
    kv.checkpoint().unwrap();
}

#[test]
fn a_cluster_of_an_older_version_goes_on_and_learns_its_stores() {
    let mut cluster = with_content(Cluster::up_older(3));
    cluster.down();
    for node in ["io1", "io2", "io3"] {
        let store = cluster.store(node);
        fs::rename(store.join("objects/identity"), store.join("objects.identity")).unwrap();
    }
    cluster.restart();
    assert_eq!(unreadable(&cluster), BTreeSet::new(), "they lay beside the objects");
    cluster.down();
    forget_identities(&cluster);
    cluster.restart();
    assert_eq!(unreadable(&cluster), BTreeSet::new());
    let old = cluster.scratch("old");
    replace(&cluster, "io2", &old);
    cluster.restart();
    assert!(!unreadable(&cluster).is_empty(), "from then on a replaced disk is noticed");
}

#[test]
fn a_disk_that_is_replaced_while_the_version_changes_is_missed() {
    let mut cluster = with_content(Cluster::up_older(3));
    cluster.down();
    forget_identities(&cluster);
    fs::remove_dir_all(cluster.store("io2")).unwrap();
    cluster.covey(&["init", "--node", "io2"]);
    cluster.restart();
    assert!(!unreadable(&cluster).is_empty());
}

#[test]
fn objects_survive_a_metadata_server_whose_disk_was_replaced() {
    let cluster = filled();
    cluster.covey(&["stats", "--set", "copy", "meta"]);
    let stores = ["io1", "io2", "io3"].map(|node| cluster.store(node));
    until("two copies of the metadata", || {
        stores.iter().filter(|store| store.join("metadata.copy").exists()).count() == 2
    });
    let mut cluster = cluster;
    cluster.down();
    fs::remove_dir_all(cluster.store("meta")).unwrap();
    cluster.covey(&["init", "--node", "meta"]);
    cluster.restart();
    for node in ["io1", "io2", "io3"] {
        until("it is refused", || state(&cluster, node) == "unknown store");
        cluster.refused(&["fsck", "--accept-loss", node]);
    }
    cluster.down();
    let out = cluster.scratch("salvaged");
    let mut command = covey();
    command.args(["salvage", "--to"]).arg(&out).args(&stores);
    let done = run(command);
    assert!(done.ok, "{done}");
    for index in 0..FILES {
        assert!(fs::read(out.join(format!("dir/f{index}"))).unwrap() == content(index), "{index}");
    }
}

#[test]
fn a_metadata_store_from_before_the_identities_is_restored_and_its_servers_are_adopted() {
    let mut cluster = filled();
    let (meta, copy) = (cluster.store("meta"), cluster.scratch("copy"));
    cluster.down();
    let copied = Command::new("cp").arg("-a").arg(&meta).arg(&copy).status();
    assert!(copied.unwrap().success());
    let mut kv = Kv::open(&copy.join("meta"), NO_LIMIT).unwrap();
    assert!(kv.delete(b"sstores").unwrap() && kv.delete(b"gidentity").unwrap());
    kv.checkpoint().unwrap();
    drop(kv);
    cluster.restart();
    let local = cluster.scratch("local");
    fs::write(&local, content(77)).unwrap();
    cluster.covey(&["cp", local.to_str().unwrap(), ":/newer"]);
    cluster.refused(&["fsck", "--adopt", "io1"]).says(&["io1", "store"]);
    cluster.down();
    fs::remove_dir_all(&meta).unwrap();
    fs::rename(&copy, &meta).unwrap();
    cluster.restart();
    for node in ["io1", "io2", "io3"] {
        until("it is refused", || state(&cluster, node) == "unknown store");
        cluster.refused(&["fsck", "--accept-loss", node]);
        assert!(cluster.covey(&["status"]).contains(&format!("covey fsck --adopt {node}")));
        cluster.covey(&["fsck", "--adopt", node]);
        until("it serves again", || state(&cluster, node) == "up");
    }
    assert_eq!(unreadable(&cluster), BTreeSet::new());
    // What is made now is nothing of what was made after the copy.
    fs::write(&local, content(78)).unwrap();
    cluster.covey(&["cp", local.to_str().unwrap(), ":/again"]);
    let out = cluster.scratch("again");
    cluster.covey(&["cp", ":/again", out.to_str().unwrap()]);
    assert!(fs::read(&out).unwrap() == content(78));
    cluster.down();
    cluster.restart();
    assert_eq!(unreadable(&cluster), BTreeSet::new(), "they have been adopted for good");
}

/// A mount that goes with its test.
struct Mounted(std::path::PathBuf);

impl Mounted {
    fn new(image: &Path, at: &Path) -> Option<Mounted> {
        let mount = Command::new("mount").args(["-o", "loop"]).arg(image).arg(at).output().ok()?;
        mount.status.success().then(|| Mounted(at.to_owned()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_file_system_that_is_mounted_anew_has_another_start() {
    let scratch = tempfile::tempdir().unwrap();
    let (image, at) = (scratch.path().join("image"), scratch.path().join("mnt"));
    fs::create_dir(&at).unwrap();
    fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
    let made = Command::new("mkfs.ext4").arg("-q").arg(&image).status();
    if !made.is_ok_and(|status| status.success()) {
        return skip("needs mkfs.ext4");
    }
    let Some(first) = Mounted::new(&image, &at) else {
        return skip("needs to mount a loop device");
    };
    let here = OsDisk.machine_start(scratch.path());
    let (store, below) = (OsDisk.machine_start(&at), at.join("store"));
    fs::create_dir(&below).unwrap();
    assert_eq!(OsDisk.machine_start(&below), store);
    // A second look at the same mount is no other mount: a service in a namespace of its own.
    let bound = scratch.path().join("bound");
    fs::create_dir(&bound).unwrap();
    if Command::new("mount").arg("--bind").arg(&at).arg(&bound).status().unwrap().success() {
        let bound = Mounted(bound);
        assert_eq!(OsDisk.machine_start(&bound.0), store);
    }
    drop(first);
    let _again = Mounted::new(&image, &at).expect("it could be mounted a moment ago");
    assert_ne!(OsDisk.machine_start(&at), store, "what was not synced may be lost");
    assert_eq!(OsDisk.machine_start(scratch.path()), here, "other disks are where they were");
}
