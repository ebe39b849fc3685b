//! I/O servers that get no new files: because they are away, and because somebody has said so.

use crate::support::bytes::{assert_same, noise};
use crate::support::{Cluster, until};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// More than what lies with the metadata.
const BYTES: usize = 100_000;
/// Beyond what is on one server.
const STRIPED: usize = 6 << 20;

/// What `covey server ls` says of a server.
fn server(cluster: &Cluster, name: &str) -> Value {
    let all: Value = serde_json::from_str(&cluster.covey(&["--json", "server", "ls"])).unwrap();
    all.as_array().unwrap().iter().find(|one| one["server"] == name).unwrap().clone()
}

fn gets_new_files(cluster: &Cluster, name: &str) -> bool {
    server(cluster, name)["new_files"] == true
}

/// The paths of the files that have bytes on a server.
fn files_on(cluster: &Cluster, name: &str) -> BTreeSet<String> {
    let said: Value =
        serde_json::from_str(&cluster.covey(&["--json", "files", "--on", name])).unwrap();
    let files = said["files"].as_array().unwrap();
    let paths = files.iter().flat_map(|file| file["paths"].as_array().unwrap());
    paths.map(|path| path.as_str().unwrap().to_owned()).collect()
}

/// Files whose bytes are acknowledged by fsync; every fourth is striped.
fn write_files(dir: &Path, count: u64) {
    fs::create_dir(dir).unwrap();
    for index in 0..count {
        let mut file = File::create(dir.join(index.to_string())).unwrap();
        file.write_all(&content(index)).unwrap_or_else(|error| panic!("file {index}: {error}"));
        file.sync_all().unwrap_or_else(|error| panic!("file {index}: {error}"));
    }
}

fn content(index: u64) -> Vec<u8> {
    noise(index, if index.is_multiple_of(4) { STRIPED } else { BYTES })
}

fn check_files(dir: &Path, count: u64) {
    for index in 0..count {
        let found = fs::read(dir.join(index.to_string())).unwrap();
        assert_same(&found, &content(index), &format!("file {index}"));
    }
}

#[test]
fn with_a_server_dead_new_files_are_made_on_the_others_and_on_it_again_when_it_is_back() {
    let mut cluster = Cluster::up(3);
    let Some(mount) = cluster.mount() else { return };
    write_files(&mount.join("before"), 12);
    assert!(files_on(&cluster, "io2").iter().any(|path| path.starts_with("/before/")));

    cluster.kill("io2");
    until("the dead server is seen", || !gets_new_files(&cluster, "io2"));
    let seen = server(&cluster, "io2");
    assert_eq!((&seen["serving"], &seen["reasons"]), (&false.into(), &serde_json::json!(["away"])));
    assert!(cluster.covey(&["server", "ls"]).contains("no: away"));
    write_files(&mount.join("during"), 24);
    check_files(&mount.join("during"), 24);
    let there = files_on(&cluster, "io2");
    assert!(there.iter().all(|path| path.starts_with("/before/")), "{there:?}");

    cluster.restart();
    until("it gets new files again", || gets_new_files(&cluster, "io2"));
    write_files(&mount.join("after"), 12);
    assert!(files_on(&cluster, "io2").iter().any(|path| path.starts_with("/after/")));
    ["before", "during", "after"].iter().for_each(|dir| check_files(&mount.join(dir), 12));
    cluster.covey(&["fsck"]);
}

#[test]
fn a_server_is_drained_while_programs_work_and_then_nobody_misses_it() {
    let mut cluster = Cluster::up_older(4);
    let Some(mount) = cluster.mount() else { return };
    write_files(&mount.join("before"), 24);
    // A hole in the middle, and a file without bytes.
    let sparse = File::create(mount.join("sparse")).unwrap();
    sparse.write_all_at(b"begin", 0).unwrap();
    sparse.write_all_at(b"end", 30 << 20).unwrap();
    sparse.sync_all().unwrap();
    drop(sparse);
    File::create(mount.join("empty")).unwrap();
    // Who has a file open keeps it where it is.
    let held = File::options().read(true).write(true).open(mount.join("before/8")).unwrap();
    held.write_all_at(b"x", 0).unwrap();

    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let dir = mount.join(format!("turn{turn}"));
                write_files(&dir, 5);
                check_files(&dir, 5);
                check_files(&mount.join("before"), 8);
            }
        });
        let refused = cluster.refused(&["server", "drain", "io2"]);
        assert!(refused.stdout.contains("left: \"/before/8\""), "{refused}");
        assert!(refused.stderr.contains("1 file still is on io2"), "{refused}");
        held.write_all_at(b"y", 1).unwrap();
        held.sync_all().unwrap();
        drop(held);
        until("all is moved", || cluster.try_covey(&["server", "drain", "io2"]).ok);
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(files_on(&cluster, "io2"), BTreeSet::new());
    cluster.covey(&["fsck"]);

    cluster.kill("io2");
    until("the dead server is seen", || server(&cluster, "io2")["serving"] == false);
    let mut eighth = content(8);
    eighth[..2].copy_from_slice(b"xy");
    for index in (0..24).filter(|index| *index != 8) {
        let found = fs::read(mount.join("before").join(index.to_string())).unwrap();
        assert_same(&found, &content(index), &format!("file {index}"));
    }
    assert_same(&fs::read(mount.join("before/8")).unwrap(), &eighth, "the held file");
    let sparse = fs::read(mount.join("sparse")).unwrap();
    assert_eq!(
        (sparse.len(), &sparse[..5], &sparse[30 << 20..]),
        ((30 << 20) + 3, &b"begin"[..], &b"end"[..])
    );
    assert!(sparse[5..30 << 20].iter().all(|byte| *byte == 0));
    let blocks = fs::metadata(mount.join("sparse")).unwrap().blocks();
    assert!(blocks * 512 < 1 << 20, "the hole has become {blocks} blocks");
    // What moved is written as before.
    fs::write(mount.join("before/0"), content(4)).unwrap();
    assert_same(
        &fs::read(mount.join("before/0")).unwrap(),
        &content(4),
        "a file that was written again",
    );
}

#[test]
fn a_drained_server_is_switched_off_and_who_was_idle_meanwhile_loses_nothing() {
    let mut cluster = Cluster::up(3);
    let Some(mount) = cluster.mount() else { return };
    write_files(&mount.join("before"), 12);
    let open =
        |index| File::options().read(true).write(true).open(mount.join(format!("before/{index}")));
    let held: Vec<File> = (0..12).map(|index| open(index).unwrap()).collect();
    for file in &held {
        file.write_all_at(b"unsynced", 1 << 20).unwrap();
    }
    // Nothing is asked through the mount while the chains leave, and after that for longer than a lease lasts.
    cluster.covey(&["server", "drain", "io2"]);
    assert_eq!(files_on(&cluster, "io2"), BTreeSet::new());
    std::thread::sleep(Duration::from_secs(2));
    cluster.kill("io2");
    for (index, file) in held.iter().enumerate() {
        file.write_all_at(b"and more", (1 << 20) + 8)
            .unwrap_or_else(|error| panic!("{index}: {error}"));
        file.sync_all().unwrap_or_else(|error| panic!("{index}: {error}"));
        let mut found = [0; 16];
        file.read_exact_at(&mut found, 1 << 20).unwrap();
        assert_eq!(&found, b"unsyncedand more");
    }
    cluster.covey(&["fsck"]);
}

#[test]
fn a_drained_server_is_removed_for_good_and_one_with_files_is_not() {
    let mut cluster = Cluster::up_older(4);
    let Some(mount) = cluster.mount() else { return };
    write_files(&mount.join("before"), 12);
    // A file without bytes would grow there.
    cluster.covey(&["layout", "set", "--kind", "simple_stripe", "--servers", "4", "/"]);
    File::create(mount.join("empty")).unwrap();
    let refused = cluster.refused(&["server", "remove", "io2"]);
    refused.says(&["cannot remove io2", "/before/", "covey server drain io2"]);
    assert!(gets_new_files(&cluster, "io2"), "it stays as it was");
    until("all is moved", || cluster.try_covey(&["server", "drain", "io2"]).ok);
    cluster.covey(&["server", "remove", "io2"]);

    // Nobody asks it for anything, be it there or not.
    let is_shown = |cluster: &Cluster| cluster.covey(&["server", "ls"]).contains("io2");
    assert!(!is_shown(&cluster));
    cluster.refused(&["server", "open", "io2"]).says(&["io1, io3, io4"]);
    write_files(&mount.join("after"), 12);
    cluster.kill("io2");
    cluster.covey(&["fsck"]);
    assert_eq!(cluster.covey(&["--json", "df"]).matches("io2").count(), 0);
    let chains = cluster.covey(&["server", "chains"]);
    assert!(chains.contains("removed"), "{chains}");
    write_files(&mount.join("later"), 12);

    // A metadata server that starts anew takes the configuration as it was, and as it is to be.
    cluster.kill("meta");
    cluster.restart();
    assert!(!is_shown(&cluster));
    check_files(&mount.join("later"), 12);
    let config = fs::read_to_string(cluster.config()).unwrap();
    let (head, rest) = config.split_once("[[node]]\nname = \"io2\"").expect("io2 has its node");
    let rest = rest.split_once("[[node]]").map_or("", |(_, rest)| rest);
    let head = head.replace("nodes = 5", "nodes = 4");
    fs::write(cluster.config(), format!("{head}[[node]]{rest}")).unwrap();
    cluster.kill("meta");
    cluster.restart();
    for dir in ["before", "after", "later"] {
        check_files(&mount.join(dir), 12);
    }
    write_files(&mount.join("last"), 12);
    cluster.covey(&["fsck"]);
    let (io1, io3) = (files_on(&cluster, "io1"), files_on(&cluster, "io3"));
    assert!(!io1.is_empty() && !io3.is_empty());
}

#[test]
fn a_loss_is_not_moved_away_and_a_dead_server_is_not_drained() {
    let mut cluster = Cluster::up_older(3);
    let Some(mount) = cluster.mount() else { return };
    write_files(&mount.join("dir"), 1);
    let object = File::options().write(true).open(&cluster.objects_of("io2")[0]).unwrap();
    object.set_len(object.metadata().unwrap().len() - 1).unwrap();
    let refused = cluster.refused(&["server", "drain", "io2"]);
    assert!(refused.stderr.contains("\"/dir/0\""), "{refused}");
    assert!(refused.stderr.contains("io2 has"), "{refused}");
    let lost = cluster.refused(&["fsck"]);
    assert!(lost.stdout.contains("short-object"), "{lost}");

    cluster.kill("io2");
    until("the dead server is seen", || server(&cluster, "io2")["serving"] == false);
    let refused = cluster.refused(&["server", "drain", "io2"]);
    assert!(refused.stderr.contains("it does not serve"), "{refused}");
    cluster.restart();
    until("it is back", || server(&cluster, "io2")["serving"] == true);
    assert_eq!(files_on(&cluster, "io2").len(), 1, "nothing waits for it");
}

#[test]
fn a_layout_is_set_as_often_as_one_likes_before_and_after_a_file_has_moved() {
    let mut cluster = Cluster::up(3);
    let Some(mount) = cluster.mount() else { return };
    let path = mount.join("f");
    let set = |cluster: &Cluster, servers: &str| {
        cluster.covey(&["layout", "set", "--servers", servers, "/f"]);
        // What was there goes within a second or two.
        std::thread::sleep(Duration::from_millis(2500));
    };
    let check = |index| {
        fs::write(&path, content(index)).unwrap();
        assert_same(&fs::read(&path).unwrap(), &content(index), "after its layout was set");
        File::create(&path).unwrap();
    };
    File::create(&path).unwrap();
    for servers in ["1", "3", "1", "3"] {
        set(&cluster, servers);
    }
    check(0);
    fs::write(&path, content(4)).unwrap();
    until("it is moved", || cluster.try_covey(&["server", "drain", "io2"]).ok);
    assert_same(&fs::read(&path).unwrap(), &content(4), "after it was moved");
    cluster.covey(&["server", "open", "io2"]);
    File::create(&path).unwrap();
    set(&cluster, "3");
    check(8);
    set(&cluster, "1");
    set(&cluster, "3");
    check(12);
    cluster.covey(&["fsck"]);
    fs::remove_file(&path).unwrap();
    until("nothing is left of it", || cluster.objects() == 0);
}

#[test]
fn a_server_that_was_added_gets_its_share_of_the_old_files_while_they_are_read() {
    let mut cluster = Cluster::up(4);
    let Some(mount) = cluster.mount() else { return };
    cluster.covey(&["server", "close", "io4"]);
    write_files(&mount.join("old"), 60);
    assert_eq!(files_on(&cluster, "io4"), BTreeSet::new());
    cluster.covey(&["server", "open", "io4"]);
    let is_over = AtomicBool::new(false);
    let said = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                check_files(&mount.join("old"), 60);
            }
        });
        // Whoever reads a file keeps it where it is; a few times are enough.
        let mut said = Value::Null;
        until("each has its share", || {
            let out = cluster.covey(&["--json", "server", "rebalance", "--rate", "1G"]);
            said = serde_json::from_str(&out).unwrap();
            let is_right = |load: &Value| {
                let of = |what: &str| load[what].as_u64().unwrap();
                of("bytes").abs_diff(of("share")) * 10 <= of("share")
            };
            said["servers"].as_array().unwrap().iter().all(is_right)
        });
        is_over.store(true, Ordering::Relaxed);
        said
    });
    assert_eq!(said["servers"].as_array().unwrap().len(), 4, "{said}");
    assert_eq!(said["errors"], serde_json::json!([]));
    assert!(!files_on(&cluster, "io4").is_empty());
    check_files(&mount.join("old"), 60);
    cluster.covey(&["fsck"]);
    let again: Value =
        serde_json::from_str(&cluster.covey(&["--json", "server", "rebalance"])).unwrap();
    assert_eq!(again["bytes_copied"], 0, "it stays as it is: {again}");
}

#[test]
fn a_closed_server_gets_no_new_files_until_it_is_opened_and_keeps_those_that_it_has() {
    let mut cluster = Cluster::up(3);
    let Some(mount) = cluster.mount() else { return };
    write_files(&mount.join("before"), 12);
    let before = files_on(&cluster, "io1");
    assert!(!before.is_empty());
    cluster.covey(&["server", "close", "io1"]);
    assert_eq!(server(&cluster, "io1")["reasons"], serde_json::json!(["closed"]));
    write_files(&mount.join("during"), 12);
    assert_eq!(files_on(&cluster, "io1"), before);

    // It stays closed when its node and the metadata server start anew.
    cluster.kill("meta");
    cluster.kill("io1");
    cluster.restart();
    until("all serve", || {
        ["io1", "io2", "io3"].iter().all(|name| server(&cluster, name)["serving"] == true)
    });
    assert!(!gets_new_files(&cluster, "io1"));
    write_files(&mount.join("later"), 12);
    assert_eq!(files_on(&cluster, "io1"), before);
    check_files(&mount.join("before"), 12);

    cluster.covey(&["server", "close", "io2"]);
    let last = cluster.refused(&["server", "close", "io3"]);
    assert!(last.stderr.contains("no other I/O server is open to new files"), "{last}");
    let none = cluster.refused(&["server", "close", "io9"]);
    assert!(none.stderr.contains("the I/O servers are io1, io2, io3"), "{none}");
    cluster.covey(&["server", "open", "io1"]);
    write_files(&mount.join("after"), 12);
    assert!(files_on(&cluster, "io1").iter().any(|path| path.starts_with("/after/")));
    assert!(files_on(&cluster, "io2").iter().all(|path| !path.starts_with("/after/")));
}
