//! A striped volume and several nodes: one serves it, another stands by and takes its place.

use crate::attach::Attached;
use crate::initiator::{export, free_address, has_libiscsi, libiscsi};
use crate::support::bytes::noise;
use crate::support::{Cluster, is_root, no_fuse, skip, until};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

const MIB: usize = 1 << 20;
const SOON: Duration = Duration::from_secs(30);

/// A volume that io1 serves, and io2 when io1 is gone; the URLs.
fn volume(cluster: &Cluster) -> [String; 2] {
    cluster.covey(&["volume", "create", "disk", "--size", "64M", "--node", "gw1"]);
    let first = export(cluster, "disk", &free_address());
    let listen = free_address();
    let second = cluster.covey(&["volume", "export", "disk", "--listen", &listen, "--node", "gw2"]);
    [first, second.trim().to_owned()]
}

/// What the nodes that answer say.
fn states(cluster: &Cluster) -> Vec<(String, bool)> {
    let listed = cluster.try_covey(&["--json", "volume", "ls"]);
    let list: Value = serde_json::from_str(&listed.stdout).unwrap();
    let list = list.as_array().unwrap();
    let state = |one: &Value| (one["node"].as_str().unwrap().to_owned(), one["closed"].is_null());
    list.iter().map(state).collect()
}

fn is_served_by(cluster: &Cluster, node: &str) -> bool {
    states(cluster).iter().any(|(name, is_open)| name == node && *is_open)
}

/// Initiators that know only the one that stands by find the one that serves, and both are named when they ask.
#[test]
fn a_node_that_stands_by_leads_to_the_one_that_serves() {
    if !has_libiscsi() {
        return;
    }
    let cluster = with_gateways(2);
    let [first, second] = volume(&cluster);
    assert_eq!(states(&cluster), [("gw1".to_owned(), true), ("gw2".to_owned(), false)]);
    for url in [&first, &second] {
        let done = libiscsi("iscsi-inq", &[url], SOON);
        assert!(done.ok && done.stdout.contains("COVEY"), "{done}");
    }
    let portal = first.strip_prefix("iscsi://").unwrap().split('/').next().unwrap();
    let other = second.strip_prefix("iscsi://").unwrap().split('/').next().unwrap();
    for asked in [portal, other] {
        until("both addresses", || {
            let listed = libiscsi("iscsi-ls", &[&format!("iscsi://{asked}")], SOON);
            listed.stdout.contains(portal) && listed.stdout.contains(other)
        });
    }
    // Who may use it is changed where it is served, and heard of by the others.
    cluster.covey(&["volume", "acl", "disk", "--allow", "iqn.2026-01.a:b"]);
    until("the other node's list", || {
        let kept = std::fs::read_to_string(cluster.store("gw2").join("volumes").join("list"));
        kept.unwrap().contains("iqn.2026-01.a:b")
    });
    // One command takes it away from both, unless it is refused: then both have it still.
    cluster.refused(&["volume", "rm", "disk"]).says(&["is exported", "unexport disk"]);
    assert_eq!(states(&cluster), [("gw1".to_owned(), true), ("gw2".to_owned(), false)]);
    cluster.covey(&["volume", "unexport", "disk"]);
    cluster.covey(&["volume", "rm", "disk"]);
    assert!(states(&cluster).is_empty());
}

/// The node is killed while it is written to; every byte that was synced is there, read at the node that has taken over.
#[test]
fn another_node_takes_over_and_nothing_synced_is_lost() {
    let Some(cluster) = with_fuse() else { return };
    let urls = volume(&cluster);
    let attached = Attached::new(&cluster, "disk", &[]);
    let file = attached.open();
    let blocks: Vec<Vec<u8>> = (0..40u8).map(|at| noise(u64::from(at), MIB / 4)).collect();
    let mut synced = 0;
    for (at, block) in blocks.iter().enumerate() {
        file.write_all_at(block, (at * MIB / 4) as u64).unwrap();
        file.sync_data().unwrap();
        synced += 1;
        if at == 12 {
            cluster.kill("gw1");
        }
    }
    assert_eq!(synced, blocks.len());
    check(&file, &blocks);
    assert!(is_served_by(&cluster, "gw2"));
    // The first one, back again, stands by.
    cluster.restart();
    until("the first node's place", || states(&cluster).contains(&("gw1".to_owned(), false)));
    drop(file);
    attached.detach();
    let again = Attached::new(&cluster, "disk", &[]);
    check(&again.open(), &blocks);
    drop(urls);
}

fn check(file: &File, blocks: &[Vec<u8>]) {
    for (at, block) in blocks.iter().enumerate() {
        let mut found = vec![0; block.len()];
        file.read_exact_at(&mut found, (at * block.len()) as u64).unwrap();
        assert!(found == *block, "block {at}");
    }
}

/// A cluster with two nodes more, which keep no data, so that they may die alone.
fn with_gateways(io_servers: usize) -> Cluster {
    let mut cluster = Cluster::up(io_servers);
    cluster.down();
    let file = cluster.config();
    let mut text = std::fs::read_to_string(&file).unwrap();
    let nodes = format!("nodes = {}", io_servers + 1);
    assert!(text.contains(&nodes), "{text}");
    text = text.replace(&nodes, &format!("nodes = {}", io_servers + 3));
    for name in ["gw1", "gw2"] {
        let (socket, store) = (cluster.socket(name), cluster.store(name));
        std::fs::create_dir_all(&store).unwrap();
        text += &format!(
            "\n[[node]]\nname = \"{name}\"\nroles = [\"launch\"]\nlisten = [\"unix!{}\"]\nstore = {store:?}\n",
            socket.display()
        );
    }
    std::fs::write(&file, text).unwrap();
    cluster.restart();
    cluster
}

fn with_fuse() -> Option<Cluster> {
    match no_fuse() {
        None if is_root() => Some(with_gateways(3)),
        None => {
            skip("needs root");
            None
        }
        Some(why) => {
            skip(why);
            None
        }
    }
}

/// A node that was stopped for longer than its lease and goes on: what it had in hand changes nothing, and it leads to the one
/// that serves now.
#[test]
fn a_node_that_was_stopped_writes_no_more() {
    let Some(cluster) = with_fuse() else { return };
    volume(&cluster);
    let attached = Attached::new(&cluster, "disk", &[]);
    let file = attached.open();
    file.write_all_at(&vec![1; 8 * MIB], 0).unwrap();
    file.sync_data().unwrap();
    cluster.signal("gw1", Signal::STOP);
    // The new node has the volume as soon as the old one's lease is over.
    until("the other node's turn", || is_served_by(&cluster, "gw2"));
    file.write_all_at(&vec![2; 8 * MIB], 0).unwrap();
    file.sync_data().unwrap();
    cluster.signal("gw1", Signal::CONT);
    until("the first node's insight", || states(&cluster).contains(&("gw1".to_owned(), false)));
    let mut found = vec![0; 8 * MIB];
    file.read_exact_at(&mut found, 0).unwrap();
    assert!(found.iter().all(|byte| *byte == 2), "something came late");
}

/// Several nodes see at the same time that the one which serves is silent: one of them has the volume in the end.
#[test]
fn of_many_nodes_that_stand_by_one_takes_over() {
    let cluster = with_gateways(3);
    volume(&cluster);
    for node in ["io1", "io2", "io3"] {
        let listen = free_address();
        cluster.covey(&["volume", "export", "disk", "--listen", &listen, "--node", node]);
    }
    cluster.signal("gw1", Signal::STOP);
    let open = || states(&cluster).into_iter().filter(|(node, is_open)| *is_open && node != "gw1");
    until("another node's turn", || open().count() > 0);
    let mut alone = 0;
    until("one node alone", || {
        alone = if open().count() == 1 { alone + 1 } else { 0 };
        std::thread::sleep(Duration::from_secs(1));
        alone == 5
    });
    cluster.signal("gw1", Signal::CONT);
    until("the first node's insight", || states(&cluster).contains(&("gw1".to_owned(), false)));
    // On a busy machine another one may have taken it for silent meanwhile; the earlier one finds out within seconds.
    until("one node alone again", || open().count() == 1);
}

/// A dead I/O server costs the blocks that it has, with an error that says what failed, and no others. They are back with it.
#[test]
fn a_dead_io_server_costs_only_its_own_blocks() {
    const BLOCK: usize = 64 << 10;
    if let Some(why) = no_fuse() {
        return skip(why);
    }
    let cluster = Cluster::up(3);
    cluster.covey(&["volume", "create", "disk", "--size", "16M"]);
    export(&cluster, "disk", &free_address());
    let attached = Attached::new(&cluster, "disk", &[]);
    let file = attached.open();
    let bytes = noise(9, 16 * MIB);
    file.write_all_at(&bytes, 0).unwrap();
    file.sync_data().unwrap();
    cluster.kill("io2");
    let read = |at: usize| {
        let mut found = vec![0; BLOCK];
        let read = file.read_exact_at(&mut found, (at * BLOCK) as u64);
        read.map(|()| assert!(found == bytes[at * BLOCK..][..BLOCK], "block {at}"))
    };
    let failed: Vec<usize> = (0..bytes.len() / BLOCK).filter(|at| read(*at).is_err()).collect();
    // 12 MiB are striped over three servers; the first 4 MiB are on one of them.
    assert!((48..=192).contains(&failed.len()), "{failed:?}");
    let log = std::fs::read_dir(cluster.dir.join("log")).unwrap();
    let told = log.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap_or_default());
    assert!(told.into_iter().any(|text| text.contains("the medium failed (3h/11h/00h)")));
    let alive = (0..bytes.len() / BLOCK).find(|at| !failed.contains(at)).unwrap();
    file.write_all_at(&bytes[alive * BLOCK..][..BLOCK], (alive * BLOCK) as u64).unwrap();
    cluster.restart();
    until("the blocks' return", || read(failed[0]).is_ok());
    (0..bytes.len() / BLOCK).for_each(|at| read(at).unwrap());
    drop(file);
    attached.detach();
}

/// The node that serves is an I/O server, too: its blocks go with it until it is back, and no others.
#[test]
fn the_volume_of_a_dead_io_server_is_taken_over_without_its_blocks() {
    const BLOCK: usize = 64 << 10;
    if let Some(why) = no_fuse() {
        return skip(why);
    }
    let cluster = Cluster::up(3);
    cluster.covey(&["volume", "create", "disk", "--size", "16M", "--node", "io1"]);
    export(&cluster, "disk", &free_address());
    let listen = free_address();
    cluster.covey(&["volume", "export", "disk", "--listen", &listen, "--node", "io2"]);
    let attached = Attached::new(&cluster, "disk", &[]);
    let file = attached.open();
    let bytes = noise(9, 16 * MIB);
    file.write_all_at(&bytes, 0).unwrap();
    file.sync_data().unwrap();
    cluster.kill("io1");
    until("the other node's turn", || is_served_by(&cluster, "io2"));
    let read = |at: usize| {
        let mut found = vec![0; BLOCK];
        let read = file.read_exact_at(&mut found, (at * BLOCK) as u64);
        read.map(|()| assert!(found == bytes[at * BLOCK..][..BLOCK], "block {at}"))
    };
    let failed: Vec<usize> = (0..bytes.len() / BLOCK).filter(|at| read(*at).is_err()).collect();
    assert!((48..=192).contains(&failed.len()), "{failed:?}");
    let alive = (0..bytes.len() / BLOCK).find(|at| !failed.contains(at)).unwrap();
    file.write_all_at(&bytes[alive * BLOCK..][..BLOCK], (alive * BLOCK) as u64).unwrap();
    // What the dead one had not synced is not on stable storage.
    file.sync_data().unwrap_err();
    cluster.restart();
    until("the blocks' return", || read(failed[0]).is_ok());
    file.sync_data().unwrap();
    (0..bytes.len() / BLOCK).for_each(|at| read(at).unwrap());
    assert!(is_served_by(&cluster, "io2"));
    drop(file);
    attached.detach();
}
