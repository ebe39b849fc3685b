//! `covey fsck` and `covey fs-dump` on a real cluster: damage is planted in the stores, found, repaired,
//! and not found again.

use crate::support::bytes::noise;
use crate::support::{Cluster, until};
use covey_io::os::kv::{Kv, NO_LIMIT};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// A cluster with a few files, striped and small.
fn filled() -> Cluster {
    let cluster = Cluster::up(3);
    let local = cluster.scratch("local");
    for (index, size) in [0, 100_000, 300_000, 2 << 20].into_iter().enumerate() {
        fs::write(&local, noise(index as u64, size)).unwrap();
        cluster.covey(&["cp", local.to_str().unwrap(), &format!(":/f{index}")]);
    }
    cluster.covey(&["mkdir", "/dir"]);
    cluster.covey(&["cp", local.to_str().unwrap(), ":/dir/below"]);
    cluster
}

/// The classes that a check finds, in order.
fn classes(cluster: &Cluster, options: &[&str]) -> Vec<String> {
    let done = cluster.try_covey(&[&["--json", "fsck"], options].concat());
    let value: Value = serde_json::from_str(&done.stdout).unwrap_or_else(|_| panic!("{done}"));
    assert_eq!(done.ok, value["left"] == 0, "{done}");
    let classes = value["classes"].as_array().unwrap();
    classes.iter().map(|one| one["class"].as_str().unwrap().to_owned()).collect()
}

fn with_rows(store: &Path, change: impl FnOnce(&mut Kv)) {
    let mut kv = Kv::open(&store.join("meta"), NO_LIMIT).unwrap();
    change(&mut kv);
    kv.checkpoint().unwrap();
}

fn repairs(cluster: &Cluster, wanted: &[&str]) {
    assert_eq!(classes(cluster, &[]), wanted);
    classes(cluster, &["--repair"]);
    assert_eq!(classes(cluster, &[]), [""; 0], "after the repair");
}

#[test]
fn damage_is_found_and_repaired_while_the_cluster_serves() {
    let cluster = filled();
    assert_eq!(classes(&cluster, &[]), [""; 0]);

    // The metadata server looks for such objects too when it meets a server, and may be faster.
    let ghost = cluster.store("io2").join("objects/ff/0000000000000fff");
    until("a check finds an object without a file", || {
        fs::write(&ghost, "ghost").unwrap();
        classes(&cluster, &[]) == ["orphan-object"]
    });
    classes(&cluster, &["--repair"]);
    assert_eq!(classes(&cluster, &[]), [""; 0]);
    assert!(!ghost.exists());

    let object = cluster.objects_of("io1").pop().unwrap();
    let bytes = fs::read(&object).unwrap();
    fs::write(&object, &bytes[..bytes.len() - 1]).unwrap();
    repairs(&cluster, &["short-object"]);

    fs::write(&object, [&bytes[..], &[7; 100_000]].concat()).unwrap();
    let done = cluster.try_covey(&["fsck"]);
    assert!(done.ok && done.stdout.contains("long-object"), "a note is told: {done}");
    repairs(&cluster, &["long-object"]);
}

#[test]
fn damaged_metadata_is_found_offline_and_repaired_online() {
    let mut cluster = filled();
    cluster.down();
    let store = cluster.store("meta");
    with_rows(&store, |kv| {
        let mut rows = Vec::new();
        kv.scan(b"n", &mut |key, _| {
            rows.push(key.to_vec());
            true
        })
        .unwrap();
        let key = rows.into_iter().find(|key| key.ends_with(b"below")).unwrap();
        assert!(kv.delete(&key).unwrap());
    });
    let wanted = ["stray-listing", "unreachable", "wrong-entries"];
    assert_eq!(classes(&cluster, &["--store", store.to_str().unwrap()]), wanted);
    cluster.restart();
    repairs(&cluster, &wanted);
    let listed = cluster.covey(&["ls", "/lost+found"]);
    assert_eq!(listed.lines().count(), 1, "{listed}");
    let found = format!(":/lost+found/{}", listed.trim());
    let local = cluster.scratch("found");
    cluster.covey(&["cp", &found, local.to_str().unwrap()]);
    assert_eq!(fs::read(local).unwrap(), noise(3, 2 << 20));
}

#[test]
fn a_store_that_is_served_is_not_checked_behind_its_server() {
    let cluster = Cluster::up(1);
    let store = cluster.store("meta");
    let done = cluster.refused(&["fsck", "--store", store.to_str().unwrap()]);
    assert!(done.stderr.contains("in use by process"), "{done}");
}

#[test]
fn a_dump_is_the_same_from_the_server_and_from_its_store() {
    let mut cluster = filled();
    let types = |text: &str| -> Vec<String> {
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let stays =
            |one: &Value| !["boot", "session", "counters"].contains(&one["type"].as_str().unwrap());
        lines.filter(stays).map(|one| one.to_string()).collect()
    };
    let online = types(&cluster.covey(&["fs-dump"]));
    assert!(online.iter().any(|line| line.contains("\"name\":\"below\"")), "{online:?}");
    assert!(!online.iter().any(|line| line.contains("unknown")), "{online:?}");
    cluster.down();
    let store = cluster.store("meta");
    let offline = types(&cluster.covey(&["fs-dump", "--store", store.to_str().unwrap()]));
    assert_eq!(online, offline);
}

#[test]
fn nothing_is_found_while_files_come_and_go() {
    let cluster = filled();
    let local = cluster.scratch("tree");
    fs::create_dir(&local).unwrap();
    for index in 0..60 {
        fs::write(local.join(format!("{index}")), noise(index, 1000 * index as usize)).unwrap();
    }
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                cluster.covey(&["cp", "-r", local.to_str().unwrap(), ":/busy"]);
                cluster.covey(&["rm", "-r", "/busy"]);
            }
        });
        let found: Vec<_> = (0..4).map(|_| cluster.try_covey(&["fsck"])).collect();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        found.iter().for_each(|check| assert!(check.stdout.contains(": clean"), "{check}"));
    });
    until("the end of all that is pending", || classes(&cluster, &[]).is_empty());
}
