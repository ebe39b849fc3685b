//! The commands of volumes, and what a node keeps of them when it ends.

use crate::initiator::{export, free_address, has_libiscsi, libiscsi};
use crate::support::{Cluster, until};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(30);

/// The volume as `covey --json volume show` tells of it.
fn shown(cluster: &Cluster, name: &str) -> serde_json::Value {
    let text = cluster.covey(&["--json", "volume", "show", name]);
    serde_json::from_str(&text).expect("JSON was asked for")
}

#[test]
fn a_volume_is_there_again_after_a_kill() {
    let cluster = Cluster::up(2);
    cluster.covey(&["volume", "create", "disk", "--size", "32M", "--block", "4096"]);
    let address = free_address();
    let url = export(&cluster, "disk", &address);
    let before = shown(&cluster, "disk");
    let node = before["node"].as_str().unwrap().to_owned();
    cluster.kill(&node);
    cluster.restart();
    until("the volume", || shown(&cluster, "disk")["closed"].is_null());
    assert_eq!(shown(&cluster, "disk"), before);
    if has_libiscsi() {
        let inquiry = || libiscsi("iscsi-inq", &[&url], SOON);
        until("the target", || inquiry().ok);
        assert!(inquiry().stdout.contains("COVEY"), "{}", inquiry());
    }
    let list = cluster.store(&node).join("volumes");
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&list), 0o700);
}

#[test]
fn a_secret_is_asked_for_and_not_shown() {
    let cluster = Cluster::up(1);
    cluster.covey(&["volume", "create", "disk", "--size", "1M"]);
    let secret = cluster.scratch("secret");
    std::fs::write(&secret, "not-very-secret\n").unwrap();
    let secret = secret.to_str().unwrap();
    cluster.covey(&["volume", "acl", "disk", "--chap", "alice", "--secret-file", secret]);
    let url = export(&cluster, "disk", &free_address());
    assert_eq!(shown(&cluster, "disk")["chap"], "alice");
    let node = shown(&cluster, "disk")["node"].as_str().unwrap().to_owned();
    let kept = cluster.store(&node).join("volumes").join("list");
    assert!(std::fs::read_to_string(&kept).unwrap().contains("not-very-secret"));
    assert_eq!(kept.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    if has_libiscsi() {
        assert!(!libiscsi("iscsi-inq", &[&url], SOON).ok);
        let with = url.replace("iscsi://", "iscsi://alice%not-very-secret@");
        let done = libiscsi("iscsi-inq", &[&with], SOON);
        assert!(done.ok && done.stdout.contains("COVEY"), "{done}");
        let wrong = url.replace("iscsi://", "iscsi://alice%not-the-secret-no@");
        assert!(!libiscsi("iscsi-inq", &[&wrong], SOON).ok);
    }
}

#[test]
fn beyond_this_machine_nobody_is_let_in_by_mistake() {
    let cluster = Cluster::up(1);
    cluster.covey(&["volume", "create", "disk", "--size", "1M"]);
    let port = free_address().rsplit_once(':').unwrap().1.to_owned();
    let everywhere = format!("0.0.0.0:{port}");
    let refused = cluster.refused(&["volume", "export", "disk", "--listen", &everywhere]);
    refused.says(&["need not prove who they are", "--chap"]);
    cluster.covey(&["volume", "acl", "disk", "--allow", "iqn.2026-01.a:b"]);
    cluster.refused(&["volume", "export", "disk", "--listen", &everywhere]);
    cluster.covey(&["volume", "acl", "disk", "--trust-initiator-names"]);
    cluster.covey(&["volume", "export", "disk", "--listen", &everywhere]);
    // What made it right cannot be taken away meanwhile.
    cluster.refused(&["volume", "acl", "disk", "--deny", "iqn.2026-01.a:b"]);
    cluster.covey(&["volume", "unexport", "disk"]);
    cluster.covey(&["volume", "acl", "disk", "--deny", "iqn.2026-01.a:b"]);
}

#[test]
fn a_volume_grows_is_copied_and_goes() {
    let cluster = Cluster::up(2);
    cluster.covey(&["volume", "create", "disk", "--size", "1M"]);
    cluster.covey(&["volume", "resize", "disk", "3M"]);
    assert_eq!(shown(&cluster, "disk")["bytes"], 3 << 20);
    cluster.refused(&["volume", "resize", "disk", "1M"]).says(&["--shrink"]);
    cluster.covey(&["volume", "clone", "disk", "copy"]);
    assert_eq!(shown(&cluster, "copy")["bytes"], 3 << 20);
    assert_ne!(shown(&cluster, "copy")["iqn"], shown(&cluster, "disk")["iqn"]);
    let address = free_address();
    export(&cluster, "copy", &address);
    cluster.refused(&["volume", "rm", "copy"]).says(&["unexport"]);
    cluster.covey(&["volume", "unexport", "copy"]);
    cluster.covey(&["volume", "rm", "copy"]);
    cluster.covey(&["volume", "rm", "disk", "--keep"]);
    assert_eq!(cluster.covey(&["ls", "/volumes"]).trim(), "disk");
    // What was kept becomes a volume again.
    cluster.covey(&["volume", "create", "disk"]);
    assert_eq!(shown(&cluster, "disk")["bytes"], 3 << 20);
    cluster.refused(&["volume", "show", "nothing"]).says(&["volume ls"]);
    cluster.refused(&["volume", "create", "Disk", "--size", "1M"]).says(&["small letters"]);
}

/// Two nodes never serve the same file.
#[test]
fn a_volume_has_one_node_at_a_time() {
    let cluster = Cluster::up(2);
    cluster.covey(&["volume", "create", "disk", "--size", "1M", "--node", "io1"]);
    let again = ["volume", "create", "other", "--striped", "/volumes/disk", "--node", "io2"];
    cluster.refused(&again).says(&["another node serves this volume"]);
    cluster.covey(&["volume", "rm", "disk", "--keep"]);
    until("the other node's turn", || cluster.try_covey(&again).ok);
}
