//! Measurements of networks, in labs and on this machine.

use crate::support::command::covey;
use crate::support::lab::Lab;
use crate::support::{run, until};
use serde_json::Value;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};

/// `covey tune serve` at a port of its own.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start() -> Server {
        // Free a moment ago.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = format!("127.0.0.1:{port}");
        let mut command = covey();
        command.args(["tune", "serve", "--listen", &address]);
        let child = command.spawn().unwrap();
        until("the server", || TcpStream::connect(&address).is_ok());
        Server { child, address }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_measurement_is_told_in_words_as_json_csv_and_in_netpipes_form() {
    let server = Server::start();
    let dir = tempfile::tempdir().unwrap();
    let (csv, np) = (dir.path().join("a.csv"), dir.path().join("a.np"));
    let short = ["tune", "net", &server.address, "--budget", "1", "--up-to", "256KiB"];
    // A machine with other things to do may take longer for short blocks than for long ones: such a
    // measurement has no bandwidth, which is told, and is made again.
    let measure = || -> Option<(Value, Value)> {
        let mut command = covey();
        command.arg("--json").args(short).arg("--csv").arg(&csv).arg("--netpipe").arg(&np);
        let done = run(command);
        assert!(done.ok, "{done}");
        let told: Value = serde_json::from_str(&done.stdout).unwrap();
        let mut command = covey();
        command.args(["--json", "tune", "read"]).arg(&np);
        let read = run(command);
        if !read.ok {
            assert!(read.stderr.contains("longer blocks take no longer"), "{read}");
            return None;
        }
        let read = serde_json::from_str(&read.stdout).unwrap();
        (!told["typical"].is_null() && !told["best"].is_null()).then_some((told, read))
    };
    let (told, read) = (0..10).find_map(|_| measure()).expect("one of ten is fit for use");
    let sizes = told["points"].as_array().unwrap().len();
    assert!(told["typical"]["latency_s"]["value"].as_f64().unwrap() > 0.0, "{told:#}");
    assert_eq!(told["wait"], "blocking");
    assert_eq!(fs::read_to_string(&csv).unwrap().lines().count(), 1 + sizes);
    assert_eq!(read[0]["sizes"], sizes);
    // Means are not less than the least.
    let ratio = read[0]["typical"]["latency_s"]["value"].as_f64().unwrap()
        / told["best"]["latency_s"]["value"].as_f64().unwrap();
    assert!(ratio > 0.99, "{ratio}");
    let mut command = covey();
    command.args(short).args(["--graph", "signature"]);
    let done = run(command);
    assert!(done.stdout.contains("DEFINITION") && done.stdout.contains('*'), "{done}");
}

#[test]
fn wrong_words_and_absent_hosts_are_told() {
    let refused = |words: &[&str]| {
        let mut command = covey();
        command.arg("tune").args(words);
        run(command)
    };
    refused(&["net", "no-such-host.invalid"]).says(&["cannot find host no-such-host.invalid"]);
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    refused(&["net", &format!("127.0.0.1:{port}")]).says(&["covey tune serve"]);
    refused(&["net", "n1", "n2", "--lab", "never-up"]).says(&["it is not up"]);
    assert_eq!(refused(&["net"]).code, Some(2));
    assert_eq!(refused(&["net", "n1", "--up-to", "1"]).code, Some(2));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("quail.np");
    fs::write(&file, "quail\n").unwrap();
    refused(&["read", file.to_str().unwrap()]).says(&["line 1"]);
}

fn tune(lab: &Lab, words: &[&str]) -> crate::support::Finished {
    let name = lab.lab("status", &[])["lab"].as_str().unwrap().to_string();
    let mut command = covey();
    command.args(["--json", "tune", "net", "--lab", &name]).args(words);
    run(command)
}

#[test]
fn a_wire_is_found_in_the_lab_that_has_it() {
    let words = ["2", "--link", "fast-ethernet", "--topology", "direct"];
    let Some(lab) = Lab::up("tune", &words) else { return };
    let done = tune(&lab, &["n1", "n2", "--budget", "4", "--up-to", "64KiB"]);
    assert!(done.ok, "{done}");
    let told: Value = serde_json::from_str(&done.stdout).unwrap();
    let best = |name: &str| told["best"][name]["value"].as_f64().unwrap();
    // The wire gives nothing for free, however busy this machine is: that holds from above.
    assert!(best("peak_bits_per_s") < 94.2e6, "{}", best("peak_bits_per_s"));
    let small = told["points"][0]["min_s"].as_f64().unwrap();
    assert!(small > 91.0 * 8.0 / 100e6, "{small}");
    assert_eq!((&told["from"], &told["to"]), (&"n1".into(), &"n2".into()));
    for words in [&["n1", "n9"][..], &["n9", "n1"], &["n1", "n1"], &["--crowd", "n1"]] {
        let done = tune(&lab, words);
        assert_eq!(done.code, Some(2), "{done}");
        assert!(done.stdout.is_empty() && done.stderr.contains("hint"), "{done}");
    }
}

fn pairs(told: &Value) -> Vec<String> {
    let name = |pair: &Value| format!("{}-{}", pair["from"], pair["to"]).replace('"', "");
    told["pairs"].as_array().unwrap().iter().map(name).collect()
}

#[test]
fn all_pairs_are_measured_one_after_another() {
    let Some(lab) = Lab::up("pairs", &["3", "--link", "fast-ethernet"]) else { return };
    let done = tune(&lab, &["--all", "--budget", "1", "--up-to", "4KiB", "--perturbation", "0"]);
    assert!(done.ok, "{done}");
    let told: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(pairs(&told), ["n1-n2", "n1-n3", "n2-n3"]);
    assert_eq!(told["crowds"].as_array().unwrap().len(), 3);
    assert_eq!(told["rounds"][0], serde_json::json!([["n1", "n2"]]));
}

/// A measurement that would take long, of two nodes, and has begun.
fn measuring(lab: &Lab) -> Child {
    measuring_with(lab, &["n1", "n2", "--budget", "60"], 5_000)
}

/// A measurement that has sent so many frames.
fn measuring_with(lab: &Lab, words: &[&str], sent: u64) -> Child {
    let name = lab.lab("status", &[])["lab"].as_str().unwrap().to_string();
    let mut command = covey();
    command.args(["--json", "tune", "net", "--lab", &name]).args(words);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let frames = || {
        let status = lab.lab("status", &[]);
        status["links"][0]["ways"][0]["counts"]["frames"].as_u64().unwrap()
    };
    let before = frames();
    until("some frames", || frames() > before + sent);
    child
}

/// How it ended: exit code 1, what there was as JSON, and what was said.
fn broken_off(child: Child) -> (Value, String) {
    let done = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(1), "{said}");
    let told: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert!(!told["points"].as_array().unwrap().is_empty());
    assert!(told["verdict"].get("not-trustworthy").is_some(), "{told:#}");
    assert!(told["failure"].as_str().unwrap().contains("bytes"), "{told:#}");
    (told, said)
}

/// Kills what runs on a node with these words in its command line. Answers how many there were.
fn kill(lab: &Lab, node: &str, words: &str) -> usize {
    // The pattern does not find itself.
    let (first, rest) = words.split_at(1);
    let script = format!(
        "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline 2>/dev/null | grep -q '[{first}]{rest}' \
         && kill -9 ${{p#/proc/}} && echo; done; true"
    );
    lab.exec(node, &["sh", "-c", &script]).lines().count()
}

const PAIR: [&str; 5] = ["2", "--link", "fast-ethernet", "--topology", "direct"];

#[test]
fn a_cable_that_goes_down_in_mid_run_leaves_what_was_measured_and_an_error() {
    let Some(lab) = Lab::up("midrun", &PAIR) else { return };
    let child = measuring(&lab);
    lab.lab("set", &["n1-n2", "state", "down"]);
    let (_, said) = broken_off(child);
    assert!(said.contains("to the end") && said.contains("covey lab status"), "{said}");
}

#[test]
fn a_node_that_is_killed_in_mid_run_leaves_what_was_measured_and_an_error() {
    let Some(lab) = Lab::up("killed", &PAIR) else { return };
    let child = measuring(&lab);
    assert_eq!(kill(&lab, "n2", "tune serve"), 1);
    let (told, said) = broken_off(child);
    assert!(said.contains("cannot measure n1 to n2 to the end"), "{said}");
    assert_eq!((&told["from"], &told["to"]), (&"n1".into(), &"n2".into()));
    // The other end, and then the measuring program itself, which had handed over what it had.
    let child = measuring(&lab);
    assert_eq!(kill(&lab, "n1", "tune net"), 1);
    let (told, _) = broken_off(child);
    assert!(told["failure"].as_str().unwrap().contains("on n1 was ended"), "{told:#}");
    assert!(told["environment"]["seconds"].as_f64().unwrap() > 0.0, "{told:#}");
    assert_eq!(kill(&lab, "n2", "tune"), 0, "nothing is left");
}

#[test]
fn a_lab_that_dies_in_mid_run_leaves_what_was_measured_and_an_error() {
    let Some(lab) = Lab::up("gone", &PAIR) else { return };
    let child = measuring(&lab);
    let keeper = lab.lab("status", &[])["keeper"].as_i64().unwrap();
    let keeper = rustix::process::Pid::from_raw(i32::try_from(keeper).unwrap()).unwrap();
    rustix::process::kill_process(keeper, rustix::process::Signal::KILL).unwrap();
    let (told, _) = broken_off(child);
    assert!(told["failure"].as_str().unwrap().contains("went down meanwhile"), "{told:#}");
}

#[test]
fn a_measurement_that_is_interrupted_tells_what_there_was() {
    let Some(lab) = Lab::up("ctrlc", &PAIR) else { return };
    let child = measuring(&lab);
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let (told, _) = broken_off(child);
    assert!(told["failure"].as_str().unwrap().contains("interrupted"), "{told:#}");
    assert_eq!(kill(&lab, "n1", "tune") + kill(&lab, "n2", "tune"), 0, "nothing is left");
}

#[test]
fn all_pairs_and_a_crowd_that_are_interrupted_tell_what_there_was() {
    let Some(lab) = Lab::up("ctrlall", &["3", "--link", "fast-ethernet"]) else { return };
    let interrupted = |words: &[&str], sent| {
        let child = measuring_with(&lab, words, sent);
        let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        let done = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.code() == Some(1) && said.contains("it was interrupted"), "{said}");
        (serde_json::from_slice::<Value>(&done.stdout).ok(), said)
    };
    let (told, said) = interrupted(&["--all", "--budget", "60"], 5_000);
    let told = told.expect("what there was");
    let pairs = told["pairs"].as_array().unwrap();
    assert_eq!((pairs.len(), told["rounds"].as_array().unwrap().len()), (1, 1), "{told:#}");
    assert!(pairs[0]["failure"].as_str().unwrap().contains("interrupted"), "{told:#}");
    assert!(said.contains("cannot measure all of lab"), "{said}");
    // Nothing, or some of it, by how long a node has talked. All of it is over in some seconds, in which a machine that has
    // much else to do sends few frames.
    let (told, _) = interrupted(&["--crowd", "n3"], 200);
    if let Some(told) = told {
        assert!(!told["alone"].as_array().unwrap().is_empty(), "{told:#}");
        assert!(told["verdict"].get("not-trustworthy").is_some(), "{told:#}");
    }
    let left: usize = ["n1", "n2", "n3"].iter().map(|node| kill(&lab, node, "tune")).sum();
    assert_eq!(left, 0, "nothing is left");
}

#[test]
fn a_measurement_that_is_killed_leaves_nothing_on_the_nodes() {
    let Some(lab) = Lab::up("orphan", &PAIR) else { return };
    let mut child = measuring(&lab);
    child.kill().unwrap();
    child.wait().unwrap();
    let running = || {
        let all = lab.exec("n1", &["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"]);
        all.contains("tune serve") || all.contains("tune net")
    };
    until("the end of both ends", || !running());
}

/// Packets that vanish vanish on a busy machine too, so this fault is named there as well.
#[test]
fn an_mtu_black_hole_is_named_with_its_evidence() {
    let words = ["2", "--link", "fast-ethernet", "--topology", "direct"];
    let Some(lab) = Lab::up("hole", &words) else { return };
    lab.lab("set", &["n1-n2", "mtu", "1400"]);
    let done = tune(&lab, &["n1", "n2", "--budget", "2", "--up-to", "16KiB"]);
    assert_eq!(done.code, Some(1), "{done}");
    let told: Value = serde_json::from_str(&done.stdout).unwrap();
    let finding = &told["verdict"]["faults"][0];
    assert_eq!(finding["cause"], "mtu-black-hole", "{told:#}");
    let evidence = finding["evidence"].as_str().unwrap();
    assert!(evidence.contains("blocks up to 1027 bytes pass, blocks of 1533"), "{evidence}");
}

/// Who has an address is no question of time.
#[test]
fn an_address_that_two_nodes_have_is_named_with_both_cards() {
    let Some(lab) = Lab::up("twice", &["3", "--link", "fast-ethernet"]) else { return };
    lab.lab("set", &["n3", "address", "10.24.1.2"]);
    let done = tune(&lab, &["n1", "n2", "--budget", "1"]);
    assert!(done.ok, "{done}");
    let told: Value = serde_json::from_str(&done.stdout).unwrap();
    let finding = &told["verdict"]["faults"][0];
    assert_eq!(finding["cause"], "duplicate-address", "{told:#}");
    let evidence = finding["evidence"].as_str().unwrap();
    let both = ["02:c0:7e:00:01:02", "02:c0:7e:00:01:03", "10.24.1.2"];
    assert!(both.iter().all(|word| evidence.contains(word)), "{evidence}");
    lab.refused("set", &["n3", "address", "here"]).says(&["`here` is no IPv4 address"]);
    lab.refused("set", &["n3", "speed", "1"]).says(&["no such key", "offloads"]);
}

#[test]
fn the_node_that_all_bad_pairs_have_in_common_is_named() {
    let Some(lab) = Lab::up("common", &["4", "--link", "fast-ethernet"]) else { return };
    lab.lab("set", &["n3", "offloads", "off"]);
    assert_eq!(lab.lab("status", &[])["nodes"]["n3"]["offloads"], "off");
    let words = ["--all", "--at-once", "--anyway", "--budget", "1", "--up-to", "4KiB"];
    let done = tune(&lab, &[&words[..], &["--perturbation", "0"]].concat());
    assert!(done.ok, "{done}");
    let told: Value = serde_json::from_str(&done.stdout).unwrap();
    let mut pairs = pairs(&told);
    pairs.sort();
    assert_eq!(pairs, ["n1-n2", "n1-n3", "n1-n4", "n2-n3", "n2-n4", "n3-n4"]);
    assert_eq!(told["rounds"].as_array().unwrap().len(), 3);
    let found = told["suspicions"].as_array().unwrap().iter();
    let found = found.filter(|one| one["cause"] == "offloads-off").collect::<Vec<_>>();
    assert_eq!(found.len(), 1, "{:#}", told["suspicions"]);
    let mut suspects: Vec<&str> =
        found[0]["suspects"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
    suspects.sort_unstable();
    assert_eq!(suspects, ["n3", "n3-sw1"]);
}

#[test]
fn a_card_that_collapses_in_a_crowd_is_named() {
    let Some(lab) = Lab::up("crowd", &["3", "--link", "fast-ethernet"]) else { return };
    lab.lab("set", &["n3-sw1", "crowd-loss", "20%"]);
    let done = tune(&lab, &["--crowd", "n3", "--anyway"]);
    assert!(done.ok, "{done}");
    let told: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(told["verdict"]["faults"][0]["cause"], "crowd-collapse", "{told:#}");
    assert_eq!(told["together"][0]["senders"], serde_json::json!(["n1", "n2"]));
}

#[test]
fn a_sound_cable_has_no_fault_or_the_machine_is_too_busy_to_say() {
    let words = ["2", "--link", "fast-ethernet", "--topology", "direct"];
    let Some(lab) = Lab::up("sound", &words) else { return };
    let done = tune(&lab, &["n1", "n2", "--budget", "2", "--up-to", "64KiB", "--expect", "94mbit"]);
    assert!(done.ok, "{done}");
    let told: Value = serde_json::from_str(&done.stdout).unwrap();
    let verdict = &told["verdict"];
    assert!(*verdict == "no-fault" || verdict.get("not-trustworthy").is_some(), "{verdict}");
    // No direction exceeds the wire.
    let fastest = told["streams"].as_array().unwrap().iter().map(|rate| rate.as_f64().unwrap());
    assert!(fastest.fold(0.0, f64::max) < 94.5e6, "{told:#}");
}
