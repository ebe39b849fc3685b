//! The commands of volumes, and what a node keeps of them when it ends.

use crate::initiator::{export, free_address, has_libiscsi, libiscsi};
use crate::support::{Cluster, is_root, skip, until};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(30);

/// The volume as `covey --json volume show` tells of it.
pub fn shown(cluster: &Cluster, name: &str) -> serde_json::Value {
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
fn of_two_who_make_a_volume_of_one_name_one_does() {
    let cluster = Cluster::up(1);
    for round in 0..10 {
        let name = format!("disk{round}");
        let file = |who: usize| cluster.scratch(&format!("{name}-{who}"));
        let make = |who: usize| {
            let file = file(who);
            let file = file.to_str().unwrap();
            cluster.try_covey(&["volume", "create", &name, "--size", "4M", "--file", file])
        };
        let made = std::thread::scope(|scope| {
            let makers = [0, 1, 2].map(|who| scope.spawn(move || make(who)));
            makers.map(|maker| maker.join().unwrap())
        });
        let winners: Vec<usize> = (0..3).filter(|who| made[*who].ok).collect();
        assert_eq!(winners.len(), 1, "{} {} {}", made[0], made[1], made[2]);
        for loser in made.iter().filter(|made| !made.ok) {
            let told = ["already", "of this name"].iter().any(|words| loser.stderr.contains(words));
            assert!(told, "{loser}");
        }
        // Nothing is left of the others', and the one that is there works.
        let left: Vec<usize> = (0..3).filter(|who| file(*who).exists()).collect();
        assert_eq!(left, winners);
        let shown = shown(&cluster, &name);
        assert!(shown["closed"].is_null(), "{shown}");
        cluster.covey(&["volume", "rm", &name]);
    }
}

#[test]
fn a_secret_is_asked_for_and_not_shown() {
    let cluster = Cluster::up(1);
    cluster.covey(&["volume", "create", "disk", "--size", "1M"]);
    let secret = cluster.scratch("secret");
    std::fs::write(&secret, "not-very-secret\n").unwrap();
    let secret = secret.to_str().unwrap();
    for (bad, why) in [("two lines\nhere", "one line"), (&"x".repeat(300), "up to 255 bytes")] {
        let file = cluster.scratch("bad");
        std::fs::write(&file, bad).unwrap();
        let file = file.to_str().unwrap();
        let words = ["volume", "acl", "disk", "--chap", "alice", "--secret-file", file];
        let refused = cluster.refused(&words);
        assert!(refused.says(&[why]).stderr.find("two lines").is_none(), "{refused}");
    }
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

/// A volume at a loopback address is not every local user's: the kernel says who comes.
#[test]
fn other_users_of_the_machine_need_a_secret() {
    if !is_root() {
        return skip("needs root, to be another user");
    }
    if !has_libiscsi() {
        return;
    }
    let cluster = Cluster::up(1);
    cluster.covey(&["volume", "create", "disk", "--size", "1M"]);
    let url = export(&cluster, "disk", &free_address());
    let nobody = |url: &str| {
        let user = ["--reuid=65534", "--regid=65534", "--clear-groups", "iscsi-inq", url];
        libiscsi("setpriv", &user, SOON)
    };
    assert!(libiscsi("iscsi-inq", &[&url], SOON).ok);
    let refused = nobody(&url);
    assert!(!refused.ok && !refused.stdout.contains("COVEY"), "{refused}");
    let secret = cluster.scratch("secret");
    std::fs::write(&secret, "not-very-secret\n").unwrap();
    let secret = secret.to_str().unwrap();
    cluster.covey(&["volume", "acl", "disk", "--chap", "alice", "--secret-file", secret]);
    let with = url.replace("iscsi://", "iscsi://alice%not-very-secret@");
    let done = nobody(&with);
    assert!(done.ok && done.stdout.contains("COVEY"), "{done}");
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
    let again = cluster.refused(&["volume", "acl", "disk", "--deny", "iqn.2026-01.a:b"]);
    again.says(&["iqn.2026-01.a:b is not among the initiators", "volume show"]);
}

#[test]
fn a_volume_grows_is_copied_and_goes() {
    let cluster = Cluster::up(2);
    cluster.covey(&["volume", "create", "disk", "--size", "1M"]);
    cluster.covey(&["volume", "resize", "disk", "3M"]);
    assert_eq!(shown(&cluster, "disk")["bytes"], 3 << 20);
    cluster.refused(&["volume", "resize", "disk", "1M"]).says(&["--shrink"]);
    let nowhere = ["volume", "clone", "disk", "copy", "--path", "volumes/copy"];
    cluster.refused(&nowhere).says(&["\"volumes/copy\"", "begin it with a slash"]);
    cluster.covey(&["volume", "clone", "disk", "copy"]);
    assert_eq!(shown(&cluster, "copy")["bytes"], 3 << 20);
    assert_ne!(shown(&cluster, "copy")["iqn"], shown(&cluster, "disk")["iqn"]);
    let address = free_address();
    export(&cluster, "copy", &address);
    cluster.refused(&["volume", "rm", "copy"]).says(&["unexport"]);
    cluster.covey(&["volume", "resize", "copy", "1M", "--shrink"]);
    cluster.covey(&["volume", "resize", "copy", "2M"]);
    assert_eq!(shown(&cluster, "copy")["bytes"], 2 << 20);
    cluster.covey(&["volume", "unexport", "copy"]);
    cluster.covey(&["volume", "rm", "copy"]);
    cluster.covey(&["volume", "rm", "disk", "--keep"]);
    assert_eq!(cluster.covey(&["ls", "/volumes"]).trim(), "disk");
    // What was kept becomes a volume again, and was there before it.
    cluster.covey(&["volume", "create", "disk"]);
    assert_eq!(shown(&cluster, "disk")["bytes"], 3 << 20);
    cluster.covey(&["volume", "rm", "disk"]);
    assert_eq!(cluster.covey(&["ls", "/volumes"]).trim(), "disk");
    cluster.refused(&["volume", "show", "nothing"]).says(&["volume ls"]);
    cluster.refused(&["volume", "create", "Disk", "--size", "1M"]).says(&["small letters"]);
    let above = ["volume", "create", "disk", "--size", "1M", "--striped", "/volumes/../disk"];
    cluster.refused(&above).says(&["\"..\" is no name of a file"]);
}

/// What is saved of reservations may be spoiled: the volume is not lost by that.
#[test]
fn saved_reservations_that_cannot_be_read_can_be_made_void() {
    let cluster = Cluster::up(1);
    let file = cluster.scratch("disk.img").display().to_string();
    cluster.covey(&["volume", "create", "disk", "--size", "1M", "--file", &file]);
    let node = shown(&cluster, "disk")["node"].as_str().unwrap().to_owned();
    let state = cluster.store(&node).join("volumes").join("disk.state");
    // Before there are any, it is no error.
    cluster.covey(&["volume", "clear-reservations", "disk"]);
    for torn in [&b"covey reservations 1\nkey 00 of whom\n"[..], b"\xff\xfe\x00"] {
        cluster.kill(&node);
        std::fs::write(&state, torn).unwrap();
        cluster.restart();
        until("the volume to be tried", || {
            let shown = shown(&cluster, "disk");
            shown["closed"].as_str().is_some_and(|why| why.contains("reservations"))
        });
        let closed = shown(&cluster, "disk")["closed"].as_str().unwrap().to_owned();
        assert!(closed.contains("covey volume clear-reservations disk"), "{closed}");
        cluster.covey(&["volume", "clear-reservations", "disk"]);
        assert!(shown(&cluster, "disk")["closed"].is_null());
    }
    cluster.kill(&node);
    cluster.restart();
    until("the volume", || shown(&cluster, "disk")["closed"].is_null());
}

/// What is wrong with the volumes is no reason for a node to be without its other services.
#[test]
fn a_list_that_cannot_be_read_is_kept_and_the_node_serves_what_else_it_has() {
    let cluster = Cluster::up(1);
    cluster.covey(&["volume", "create", "disk", "--size", "1M"]);
    let node = shown(&cluster, "disk")["node"].as_str().unwrap().to_owned();
    let list = cluster.store(&node).join("volumes").join("list");
    cluster.kill(&node);
    std::fs::write(&list, "covey reservations 1\n").unwrap();
    cluster.restart();
    cluster.covey(&["ls", "/"]);
    let refused = cluster.refused(&["volume", "create", "more", "--size", "1M", "--node", &node]);
    refused.says(&["volumes/list", "cannot be read"]);
    // What is shown is not all there is.
    let listed = cluster.refused(&["volume", "ls"]);
    listed.says(&["volumes/list", &format!("no list of {node}")]);
    assert_eq!(std::fs::read_to_string(&list).unwrap(), "covey reservations 1\n");
}

/// In an attribute of the file stands what the volume is, with its secrets: nobody else may read or write that.
#[test]
fn a_file_that_others_may_use_is_no_volume() {
    let cluster = Cluster::up(1);
    let adopt = ["volume", "create", "disk", "--striped", "/file", "--node", "io1"];
    cluster.covey(&["touch", "/file"]);
    cluster.covey(&["truncate", "--size", "1M", "/file"]);
    cluster.covey(&["chmod", "640", "/file"]);
    cluster.refused(&adopt).says(&["/file", "0640", "chmod 600"]);
    cluster.covey(&["chmod", "600", "/file"]);
    if is_root() {
        cluster.covey(&["chown", "1000", "/file"]);
        cluster.refused(&adopt).says(&["/file", "user 1000"]);
        cluster.covey(&["chown", "0", "/file"]);
    }
    cluster.covey(&adopt);
    // It is looked at each time.
    cluster.covey(&["chmod", "644", "/file"]);
    cluster.kill("io1");
    cluster.restart();
    until("the volume is closed", || !shown(&cluster, "disk")["closed"].is_null());
    cluster.covey(&["chmod", "600", "/file"]);
    until("the volume is open", || shown(&cluster, "disk")["closed"].is_null());
}

/// What cannot be kept is not done: what is served is what the commands show.
#[test]
fn a_change_that_cannot_be_kept_is_not_made() {
    let cluster = Cluster::up(1);
    cluster.covey(&["volume", "create", "disk", "--size", "1M"]);
    let url = export(&cluster, "disk", &free_address());
    let before = shown(&cluster, "disk");
    let node = before["node"].as_str().unwrap().to_owned();
    let secret = cluster.scratch("secret");
    std::fs::write(&secret, "not-very-secret").unwrap();
    let secret = secret.to_str().unwrap();
    let (file, address) = (cluster.scratch("more.img"), free_address());
    let file = file.to_str().unwrap();
    let changes = [
        vec!["volume", "acl", "disk", "--chap", "alice", "--secret-file", secret],
        vec!["volume", "unexport", "disk"],
        vec!["volume", "export", "disk", "--listen", &address],
        vec!["volume", "create", "more", "--size", "1M", "--file", file, "--node", &node],
    ];
    // Not even root writes a file in its place.
    let in_the_way = cluster.store(&node).join("volumes").join("list.new");
    std::fs::create_dir(&in_the_way).unwrap();
    for words in &changes {
        cluster.refused(words).says(&["volumes/list.new"]);
        assert_eq!(shown(&cluster, "disk"), before, "{words:?}");
    }
    assert!(!std::path::Path::new(file).exists());
    if has_libiscsi() {
        assert!(libiscsi("iscsi-inq", &[&url], SOON).ok, "it is exported still");
        let nowhere = url.replace(url.split('/').nth(2).unwrap(), &address);
        assert!(!libiscsi("iscsi-inq", &[&nowhere], SOON).ok);
    }
    std::fs::remove_dir(&in_the_way).unwrap();
    for words in changes {
        cluster.covey(&words);
    }
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

/// Commands name a volume of the cluster: a second one of the same name at another node would be out of their reach, or be
/// removed in place of the first.
#[test]
fn a_name_is_taken_whichever_node_has_it() {
    let cluster = Cluster::up(2);
    let file = cluster.scratch("disk.img");
    let file = file.to_str().unwrap();
    cluster.covey(&["volume", "create", "disk", "--size", "1M", "--file", file, "--node", "io2"]);
    for node in [&[][..], &["--node", "io1"], &["--node", "io2"]] {
        let create = ["volume", "create", "disk", "--size", "1M"];
        cluster.refused(&[&create[..], node].concat()).says(&["node io2 has one", "show disk"]);
    }
    cluster.covey(&["volume", "create", "other", "--size", "1M", "--node", "io1"]);
    cluster.refused(&["volume", "clone", "other", "disk"]).says(&["node io2 has one"]);
}

/// What a node has that does not answer nobody knows. Where two nodes have volumes of one name after all, no command takes
/// either by chance.
#[test]
fn a_name_is_not_taken_for_free_while_a_node_does_not_answer() {
    let cluster = Cluster::up(2);
    let [one, two] = ["one.img", "two.img"].map(|name| cluster.scratch(name));
    let (one, two) = (one.to_str().unwrap(), two.to_str().unwrap());
    cluster.covey(&["volume", "create", "disk", "--size", "1M", "--file", one, "--node", "io1"]);
    cluster.covey(&["volume", "create", "other", "--size", "1M", "--node", "io2"]);
    cluster.kill("io1");
    let create = ["volume", "create", "disk", "--size", "2M", "--file", two, "--node", "io2"];
    cluster.refused(&create).says(&["io1: no answer", "--force"]);
    cluster.refused(&["volume", "clone", "other", "disk"]).says(&["io1: no answer", "--force"]);
    // Other commands need not know.
    cluster.covey(&["volume", "resize", "other", "2M"]);
    cluster.covey(&[&create[..], &["--force"]].concat());
    cluster.restart();
    let at = |node: &str| {
        let text = cluster.covey(&["--json", "volume", "show", "disk", "--node", node]);
        serde_json::from_str::<serde_json::Value>(&text).unwrap()
    };
    until("the other volume", || at("io1")["closed"].is_null());
    for words in [
        &["volume", "show", "disk"][..],
        &["volume", "stats", "disk"],
        &["volume", "resize", "disk", "4M"],
        &["volume", "acl", "disk", "--no-chap"],
        &["volume", "clone", "disk", "copy"],
        &["volume", "unexport", "disk"],
        &["volume", "clear-reservations", "disk"],
        &["volume", "attach", "disk", "disk.img"],
        &["volume", "rm", "disk"],
    ] {
        cluster.refused(words).says(&["nodes io1 and io2", "--node NODE"]);
    }
    cluster.covey(&["volume", "resize", "disk", "4M", "--node", "io2"]);
    assert_eq!(
        [at("io1"), at("io2")].map(|one| one["bytes"].as_u64()),
        [Some(1 << 20), Some(4 << 20)]
    );
    cluster.covey(&["volume", "rm", "disk", "--node", "io1"]);
    assert_eq!(shown(&cluster, "disk")["node"], "io2");
    assert!(!std::path::Path::new(one).exists() && std::path::Path::new(two).exists());
}
