//! Clusters that are made in the wrong place, or do not come up.

use crate::support::{Cluster, covey, run, until};
use rustix::process::Signal;
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Ports of which the first is taken.
fn taken() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    (listener, port)
}

#[test]
fn a_first_up_that_fails_leaves_no_cluster_behind() {
    let cluster = Cluster::planned();
    let (_listener, port) = taken();
    let failed = cluster.start(&["-n", "4", "--tcp", &port]);
    failed.says(&["cannot start node meta"]);
    assert!(!cluster.config().exists(), "what never ran is no cluster");
    // Another shape, and no port: nothing of the first is in the way.
    let up = cluster.start(&["-n", "1"]);
    assert!(up.ok, "{up}");
    assert!(!fs::read_to_string(cluster.config()).unwrap().contains("tcp!"));
    cluster.covey(&["mkdir", "/d"]);
}

#[test]
fn an_up_that_fails_at_a_port_leaves_the_cluster_as_it_was() {
    let mut cluster = Cluster::up(1);
    cluster.covey(&["mkdir", "/kept"]);
    cluster.down();
    let before = fs::read_to_string(cluster.config()).unwrap();
    let (_listener, port) = taken();
    cluster.start(&["--tcp", &port]).says(&["cannot start node meta"]);
    assert_eq!(fs::read_to_string(cluster.config()).unwrap(), before);
    cluster.restart();
    assert!(cluster.covey(&["ls", "/"]).contains("kept"));
}

/// As the first process of a container it must not end before its servers.
#[test]
fn an_up_in_the_foreground_ends_when_the_last_node_is_down() {
    let cluster = Cluster::planned();
    let mut up = covey();
    up.arg("up").arg("--dir").arg(&cluster.dir).args(["-n", "2", "--foreground"]);
    let mut up = up.stdout(Stdio::null()).spawn().unwrap();
    until("the cluster", || cluster.config().exists() && cluster.try_covey(&["ping"]).ok);
    let down = |words: &[&str]| {
        let mut command = covey();
        command.arg("down").arg("--dir").arg(&cluster.dir).args(words);
        let down = run(command);
        assert!(down.ok, "{down}");
    };
    down(&["io1"]);
    // It looks three times a second.
    std::thread::sleep(Duration::from_secs(2));
    assert!(up.try_wait().unwrap().is_none(), "it has ended with the first node");
    cluster.signal("io2", Signal::CONT);
    cluster.signal("meta", Signal::CONT);
    down(&[]);
    assert!(up.wait().unwrap().success());
}

#[test]
fn a_port_that_cannot_be_is_refused_before_a_cluster_is_made() {
    let cluster = Cluster::planned();
    cluster.start(&["-n", "4", "--tcp", "65534"]).says(&["65534"]);
    let up = cluster.start(&["-n", "1"]);
    assert!(up.ok, "{up}");
}

#[test]
fn the_store_of_another_machines_node_is_not_formatted_here() {
    let cluster = Cluster::up(1);
    let (dir, file) = (cluster.scratch("far"), cluster.scratch("far.toml"));
    // 192.0.2.0/24 is for documentation: no machine has it.
    let text = fs::read_to_string(cluster.config()).unwrap();
    let listen = text.lines().find(|line| line.starts_with("listen")).unwrap();
    // As `covey genconfig` writes it.
    let far = text
        .replace(listen, "listen = [\"unix!/run/covey/meta.sock\", \"tcp!192.0.2.1!5640\"]")
        .replace("[cluster]\n", "[cluster]\nkey_file = \"/nowhere/key\"\n")
        .replace(&cluster.store("meta").display().to_string(), &dir.display().to_string());
    fs::write(&file, far).unwrap();
    let init = |words: &[&str]| {
        let mut command = covey();
        command.arg("--config").arg(&file).arg("init").args(words);
        run(command)
    };
    init(&["--node", "meta"]).says(&["meta", "192.0.2.1", "not this machine"]);
    init(&["--all"]).says(&["192.0.2.1"]);
    assert!(!dir.exists(), "nothing was made");
    let done = init(&["--node", "meta", "--here"]);
    assert!(done.ok, "{done}");
    assert!(dir.join("covey.store").exists());
}

#[test]
fn a_log_that_grows_too_large_is_put_aside_while_its_server_runs() {
    let cluster = Cluster::up(1);
    let log = cluster.dir.join("log/io1.log");
    let (aside, was) = (log.with_extension("log.1"), fs::metadata(&log).unwrap());
    // As a server says it that warns for months.
    let mut file = fs::File::options().append(true).open(&log).unwrap();
    for _ in 0..9 {
        file.write_all(&vec![b'w'; 1 << 20]).unwrap();
    }
    until("a new log", || aside.exists() && log.exists());
    assert_eq!(fs::metadata(&aside).unwrap().ino(), was.ino());
    assert_eq!(fs::metadata(&log).unwrap().mode(), was.mode());
    // What the server says comes into the new one.
    cluster.signal("io1", Signal::TERM);
    until("its last word", || fs::read_to_string(&log).is_ok_and(|text| text.contains("io1")));
}

/// A monitor that looks at once finds nothing that is down.
#[test]
fn up_returns_when_every_server_serves() {
    let mut cluster = Cluster::planned();
    let at_once =
        "\"$0\" up --dir \"$1\" -n 12 >&2 && exec \"$0\" --config \"$1/covey.toml\" metrics";
    for _ in 0..6 {
        let mut shell = Command::new("sh");
        shell.args(["-c", at_once, env!("CARGO_BIN_EXE_covey")]).arg(&cluster.dir);
        let metrics = run(shell).stdout;
        let ups: Vec<_> = metrics.lines().filter(|line| line.starts_with("covey_up{")).collect();
        assert_eq!(ups.len(), 13, "{metrics}");
        assert!(ups.iter().all(|line| line.ends_with(" 1")), "{ups:?}");
        cluster.down();
    }
}
