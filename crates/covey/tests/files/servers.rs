//! I/O servers that get no new files: because they are away, and because somebody has said so.

use crate::support::bytes::{assert_same, noise};
use crate::support::{Cluster, until};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

/// More than what lies with the metadata.
const BYTES: usize = 40_000;
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
