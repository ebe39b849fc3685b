//! The file system from the command line, with no mount at all, and `covey export` with its plain
//! client. Needs neither root nor FUSE.

use crate::support::bytes::{assert_same, describe, make_tree, noise};
use crate::support::{Cluster, Finished, covey, run, until};
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Child, Stdio};

fn text(path: &Path) -> &str {
    path.to_str().expect("scratch directories have plain names")
}

#[test]
fn a_tree_copied_in_and_out_is_the_same() {
    let cluster = Cluster::up(4);
    let (source, copy) = (cluster.scratch("source"), cluster.scratch("copy"));
    make_tree(&source);
    cluster.covey(&["cp", "-rp", text(&source), ":/tree"]);
    cluster.covey(&["cp", "-rp", ":/tree", text(&copy)]);
    assert_eq!(describe(&copy), describe(&source));
    cluster.covey(&["cp", "-rp", ":/tree", ":/second"]);
    let second = cluster.scratch("second");
    cluster.covey(&["cp", "-rp", ":/second", text(&second)]);
    assert_eq!(describe(&second), describe(&source));
    cluster.covey(&["rm", "-r", "/tree", "/second"]);
    assert_eq!(cluster.covey(&["ls", "/"]).trim(), "");
    until("the end of all objects", || cluster.objects() == 0);
}

#[test]
fn stdin_and_stdout_are_files_too() {
    let cluster = Cluster::up(3);
    let bytes = noise(1, 3_000_017);
    let mut command = covey();
    command.arg("--config").arg(cluster.config()).args(["cp", "-", ":/from-stdin"]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    assert!(child.wait().unwrap().success());
    for arguments in [["cp", ":/from-stdin", "-"].as_slice(), &["cat", "/from-stdin"]] {
        let mut command = covey();
        command.arg("--config").arg(cluster.config()).args(arguments);
        let output = command.output().unwrap();
        assert!(output.status.success());
        assert_same(&output.stdout, &bytes, arguments[0]);
    }
}

#[test]
fn names_modes_sizes_and_links_can_be_changed_without_a_mount() {
    let cluster = Cluster::up(2);
    cluster.covey(&["mkdir", "/d"]);
    let file = cluster.scratch("file");
    fs::write(&file, noise(2, 100_000)).unwrap();
    cluster.covey(&["cp", text(&file), ":/d/a"]);
    cluster.covey(&["mv", "/d/a", "/d/b"]);
    cluster.covey(&["ln", "/d/b", "/hard"]);
    cluster.covey(&["ln", "-s", "d/b", "/soft"]);
    cluster.covey(&["chmod", "600", "/hard"]);
    cluster.covey(&["truncate", "-s", "70000", "/soft"]);
    cluster.covey(&["touch", "/d/new"]);
    let listed = cluster.covey(&["ls", "-l", "/"]);
    assert!(listed.contains("-rw-------") && listed.contains("70000"), "{listed}");
    assert!(listed.contains("soft -> d/b"), "{listed}");
    let stat = cluster.covey(&["--json", "stat", "/d/b"]);
    let stat: serde_json::Value = serde_json::from_str(&stat).unwrap();
    assert_eq!(stat[0]["size"], 70_000, "{stat}");
    let copy = cluster.scratch("copy");
    cluster.covey(&["cp", ":/soft", text(&copy)]);
    assert_same(&fs::read(&copy).unwrap(), &noise(2, 70_000), "through the symbolic link");
    let names = cluster.covey(&["ls", "/d"]);
    assert_eq!(names.split_whitespace().collect::<Vec<_>>(), ["b", "new"]);
    for gone in [&["cat", "/d/a"][..], &["rm", "/nothing"], &["mkdir", "/d"], &["rm", "/d"]] {
        let refused = cluster.refused(gone);
        assert_eq!(refused.code, Some(1), "{refused}");
        assert!(refused.stderr.starts_with("covey: cannot "), "{refused}");
    }
}

#[test]
fn space_and_layout_are_shown_and_a_layout_can_be_set() {
    let cluster = Cluster::up(4);
    assert!(cluster.covey(&["df"]).contains('%'));
    cluster.covey(&["mkdir", "/one"]);
    cluster.covey(&["layout", "set", "--servers", "1", "/one"]);
    let file = cluster.scratch("file");
    fs::write(&file, noise(2, 1 << 20)).unwrap();
    cluster.covey(&["cp", text(&file), ":/one/f"]);
    assert_eq!(cluster.objects(), 1, "one server, one object");
    cluster.covey(&["mkdir", "/striped"]);
    let set = ["layout", "set", "--kind", "simple_stripe", "/striped"];
    cluster.covey(&set);
    cluster.covey(&["cp", text(&file), ":/striped/all"]);
    assert_eq!(cluster.objects(), 5, "four servers, four objects");
    let layout = cluster.covey(&["layout", "/striped/all"]);
    for server in ["io1", "io2", "io3", "io4"] {
        assert!(layout.contains(server), "{layout}");
    }
    let du = cluster.covey(&["--json", "du", "/one"]);
    assert!(du.contains("1048576") || du.contains("105"), "{du}");
}

#[test]
fn a_second_up_changes_nothing_and_a_second_down_is_no_error() {
    let mut cluster = Cluster::up(2);
    let before: Vec<_> = ["meta", "io1", "io2"].map(|node| cluster.pid(node)).to_vec();
    cluster.restart();
    let after: Vec<_> = ["meta", "io1", "io2"].map(|node| cluster.pid(node)).to_vec();
    assert_eq!(before, after);
    cluster.start(&["-n", "3"]).says(&["2"]);
    assert!(cluster.covey(&["ping"]).contains("io2"));
    cluster.down();
    cluster.down();
    let ping = cluster.refused(&["ping"]);
    assert_eq!(ping.code, Some(1), "{ping}");
    ping.says(&["it is stopped", "covey up"]);
}

#[test]
fn one_server_is_stopped_by_name_and_what_is_stopped_is_not_called_dead() {
    let mut cluster = Cluster::up(2);
    let dir = text(&cluster.dir).to_string();
    assert!(cluster.covey(&["down", "--dir", &dir, "io2"]).starts_with("stopped 1 server;"));
    cluster.refused(&["ping"]).says(&["1 of 3 servers is stopped"]);
    let status = cluster.covey(&["status"]);
    assert!(status.contains("io2 is stopped: `covey up` starts it"), "{status}");
    cluster.refused(&["down", "--dir", &dir, "io9"]).says(&["cannot find node io9"]);
    cluster.down();
    let status = cluster.covey(&["status"]);
    assert_eq!(status.matches("is stopped").count(), 1, "said once, not for each server: {status}");
    assert!(status.lines().skip(1).all(|line| line.len() <= 80), "{status}");
    assert!(!status.contains("dead"), "{status}");
    cluster.restart();
    cluster.kill("io1");
    let status = cluster.covey(&["status"]);
    assert!(status.contains("io1 is dead"), "who died is not called stopped: {status}");
    // Where its log is, whichever command finds it dead; each line there has its time.
    let log = cluster.dir.join("log/io1.log");
    let place = format!("log of io1: {}", log.display());
    assert!(status.contains(&place), "{status}");
    assert!(cluster.refused(&["ping"]).stdout.contains(&place));
    let ping: serde_json::Value =
        serde_json::from_str(&cluster.refused(&["--json", "ping"]).stdout).unwrap();
    let ping = |node: &str| {
        ping.as_array().unwrap().iter().find(|one| one["node"] == node).unwrap().clone()
    };
    assert_eq!(
        (&ping("io1")["log"], &ping("io1")["state"]),
        (&log.display().to_string().into(), &"dead".into())
    );
    assert_eq!((&ping("io2")["up"], &ping("io2")["state"]), (&true.into(), &"up".into()));
    let log = fs::read_to_string(log).unwrap();
    for line in log.lines() {
        let time = line.get(.."2026-11-28T01:02:03.".len()).unwrap_or_default();
        assert!(time.starts_with("20") && time.contains('T') && time.ends_with('.'), "{line}");
    }
    assert!(log.contains("covey: io1 serves"), "{log}");
}

/// A directory served by `covey export` until the end of the test.
struct Export {
    address: String,
    child: Child,
}

impl Export {
    fn new(cluster: &Path, dir: &Path, options: &[&str]) -> Export {
        let socket = cluster.join(format!("export-{}.sock", options.len()));
        let address = format!("unix!{}", socket.display());
        let mut command = covey();
        command.arg("export").arg(dir).args(["--listen", &address]).args(options);
        let child = command.stdout(Stdio::null()).spawn().unwrap();
        let export = Export { address, child };
        until("the export", || export.client(&["ls"], "/").ok);
        export
    }

    fn client(&self, verb: &[&str], path: &str) -> Finished {
        let mut command = covey();
        command.arg("9p").args(verb).arg(&self.address).arg(path);
        run(command)
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_plain_client_reads_and_writes_an_export() {
    let scratch = tempfile::tempdir().unwrap();
    let served = scratch.path().join("served");
    make_tree(&served);
    let export = Export::new(scratch.path(), &served, &[]);
    let listed = export.client(&["ls"], "/a");
    assert!(listed.ok && listed.stdout.contains("size-65537"), "{listed}");
    fs::write(served.join("plain"), "hello\n").unwrap();
    assert_eq!(export.client(&["cat"], "/plain").stdout, "hello\n");
    assert!(export.client(&["stat"], "/plain").stdout.contains('6'));
    assert!(export.client(&["rm"], "/plain").ok);
    assert!(!served.join("plain").exists());
    let mut command = covey();
    command.args(["9p", "write", "--create", &export.address, "/written"]).stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"by hand").unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(fs::read_to_string(served.join("written")).unwrap(), "by hand");
}

#[test]
fn nothing_outside_an_export_can_be_reached() {
    let scratch = tempfile::tempdir().unwrap();
    let served = scratch.path().join("served");
    fs::create_dir(&served).unwrap();
    fs::write(scratch.path().join("secret"), "secret").unwrap();
    symlink("../secret", served.join("up")).unwrap();
    symlink(scratch.path().join("secret"), served.join("absolute")).unwrap();
    symlink("..", served.join("parent")).unwrap();
    let export = Export::new(scratch.path(), &served, &[]);
    for path in ["/up", "/absolute", "/parent/secret", "/../secret", "/../../etc/passwd"] {
        let tried = export.client(&["cat"], path);
        assert!(!tried.ok && tried.stdout.is_empty(), "{path}: {tried}");
    }
}

#[test]
fn a_read_only_export_refuses_every_change() {
    let scratch = tempfile::tempdir().unwrap();
    let served = scratch.path().join("served");
    fs::create_dir(&served).unwrap();
    fs::write(served.join("f"), "kept").unwrap();
    fs::set_permissions(served.join("f"), fs::Permissions::from_mode(0o666)).unwrap();
    let export = Export::new(scratch.path(), &served, &["--read-only"]);
    assert_eq!(export.client(&["cat"], "/f").stdout, "kept");
    assert!(!export.client(&["rm"], "/f").ok);
    let written = export.client(&["write"], "/f");
    assert!(!written.ok, "{written}");
    assert_eq!(fs::read_to_string(served.join("f")).unwrap(), "kept");
}

#[test]
fn any_9p_client_sees_the_files_and_the_state_of_a_node() {
    let cluster = Cluster::up(2);
    let file = cluster.scratch("file");
    fs::write(&file, "by hand\n").unwrap();
    cluster.covey(&["cp", text(&file), ":/f"]);
    let address = format!("unix!{}", cluster.socket("io1").display());
    let client = |verb: &str, path: &str| {
        let mut command = covey();
        command.args(["9p", verb, &address, path]);
        run(command)
    };
    assert_eq!(client("cat", "/fs/f").stdout, "by hand\n");
    let root = client("ls", "/");
    for name in ["fs", "data", "stats", "config"] {
        assert!(root.stdout.contains(name), "{root}");
    }
    assert!(client("cat", "/stats").stdout.contains("node io1"));
}

#[test]
fn a_server_of_another_cluster_is_not_taken_for_ours() {
    let cluster = Cluster::up(2);
    let text = fs::read_to_string(cluster.config()).unwrap();
    let other = cluster.scratch("other.toml");
    let refused = |arguments: &[&str], text: &str| {
        fs::write(&other, text).unwrap();
        let mut command = covey();
        command.arg("--config").arg(&other).args(arguments);
        let done = run(command);
        assert!(!done.ok, "{done}");
        done
    };

    // The same places, another cluster.
    let id = text.lines().find(|line| line.starts_with("id = ")).unwrap();
    let theirs = text.replace(id, &format!("id = \"{}\"", "0".repeat(32)));
    for arguments in [&["ping"][..], &["ls", "/"], &["stats", "io1"]] {
        let done = refused(arguments, &theirs);
        let all = format!("{}{}", done.stdout, done.stderr);
        assert!(all.contains("another cluster's server listens there"), "{done}");
    }

    // The same cluster, two servers in each other's places.
    let sockets = ["io1.sock", "io2.sock", "ioX.sock"];
    let swapped = text.replace(sockets[0], sockets[2]).replace(sockets[1], sockets[0]);
    let done = refused(&["ping"], &swapped.replace(sockets[2], sockets[1]));
    assert!(done.stdout.contains("or another node"), "{done}");
    assert!(done.stderr.contains("2 of 3 servers"), "{done}");
}

#[test]
fn up_says_that_a_port_is_taken_whoever_answers_there() {
    let cluster = Cluster::up(1);
    let port = (20_000..30_000)
        .step_by(7)
        .find(|&port| {
            let free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
            free(port) && free(port + 1)
        })
        .unwrap()
        .to_string();
    let first = Cluster::up_with(&["-n", "1", "--tcp", &port]);
    let second = Cluster::planned();
    let up = second.start(&["-n", "1", "--tcp", &port]);
    assert!(!up.ok, "{up}");
    assert!(up.stderr.contains(&format!("port {port} is in use")), "{up}");
    drop((cluster, first));
}
