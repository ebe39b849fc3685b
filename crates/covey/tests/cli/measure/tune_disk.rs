//! Measurements of directories and devices, and of what fits a budget.

use crate::support::command::covey;
use crate::support::{Finished, has_program, is_root, run, skip, until};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A tiny measurement that leaves the caches of this machine to others.
fn tune(verb: &str, words: &[&str]) -> Finished {
    let mut command = covey();
    command.args(["--json", "tune", verb, "--keep-caches"]).args(words);
    run(command)
}

fn told(done: &Finished) -> Value {
    assert!(done.ok, "{done}");
    serde_json::from_str(&done.stdout).unwrap()
}

fn files_in(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn a_directory_is_measured_and_left_as_it_was() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (place, csv) = (dir.path().to_str().unwrap(), other.path().join("rates.csv"));
    let words = ["--size", "2MiB", "--threads", "2", "--budget", "1", "--repetitions", "2"];
    let csv_words = ["--csv", csv.to_str().unwrap(), place];
    let report = told(&tune("disk", &[&words[..], &csv_words[..]].concat()));
    assert_eq!(report["kind"], "disk");
    assert_eq!((&report["size_bytes"], &report["threads"]), (&(2 << 20).into(), &2.into()));
    assert_eq!(report["verified"], true);
    assert!(report["failure"].is_null(), "{report:#}");
    let rates = report["rates"].as_array().unwrap();
    // Four passes for each of three records; letters; small files; blocks anywhere, once or twice.
    let direct = if report["direct_refused"].is_null() { 4 } else { 2 };
    assert_eq!(rates.len(), 12 + 2 + 5 + direct, "{report:#}");
    for rate in rates {
        let number = |name: &str| rate["rate"][name].as_f64().unwrap();
        assert!(number("low") > 0.0, "{rate}");
        assert!(number("low") <= number("value") && number("value") <= number("high"), "{rate}");
        assert!(rate["amount"].as_u64().unwrap() > 0, "{rate}");
        assert_ne!(rate["caches"], "dropped", "{rate}");
    }
    assert!(report["notes"].to_string().contains("all that was read was what had been written"));
    assert_eq!(fs::read_to_string(&csv).unwrap().lines().count(), 1 + rates.len());
    assert_eq!(files_in(dir.path()), Vec::<PathBuf>::new());
}

#[test]
fn without_a_size_it_fits_the_budget_and_is_told_as_a_table() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = covey();
    command.args(["tune", "disk", "--keep-caches", "--budget", "1", "--record", "64KiB"]);
    let done = run({
        command.arg(dir.path());
        command
    });
    assert!(done.ok, "{done}");
    for words in ["write per character", "files: unlink", "LEAST TO GREATEST", "include fsync"] {
        assert!(done.stdout.contains(words), "{words}: {done}");
    }
    assert_eq!(files_in(dir.path()), Vec::<PathBuf>::new());
}

#[test]
fn an_interrupted_measurement_tells_what_there_was_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::TERM] {
        let mut command = covey();
        command.args(["--json", "tune", "disk", "--keep-caches", "--budget", "600"]);
        command.arg(dir.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        until("its files", || !files_in(dir.path()).is_empty());
        // Somewhere in the midst of a pass.
        std::thread::sleep(std::time::Duration::from_millis(200));
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, signal).unwrap();
        let done = child.wait_with_output().unwrap();
        assert_eq!(done.status.code(), Some(1), "{done:?}");
        let report: Value = serde_json::from_slice(&done.stdout).unwrap();
        assert_eq!(report["failure"], "it was interrupted");
        assert!(String::from_utf8_lossy(&done.stderr).contains("it was interrupted"), "{done:?}");
        assert_eq!(files_in(dir.path()), Vec::<PathBuf>::new());
    }
}

#[test]
fn what_cannot_be_measured_is_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "x").unwrap();
    let (dir, file) = (dir.path().to_str().unwrap(), file.to_str().unwrap());
    let refused = |words: &[&str], code: i32, says: &[&str]| {
        let mut command = covey();
        command.args(["tune", "disk", "--keep-caches"]).args(words);
        let done = run(command);
        assert_eq!(done.code, Some(code), "{done}");
        for word in says {
            assert!(done.stderr.contains(word), "`{word}` is not in: {done}");
        }
    };
    refused(&["/no/such/quail"], 2, &["no such file or directory", "hint: name a directory"]);
    refused(&[file], 2, &["it is a file, not a directory", "hint: "]);
    refused(&["/dev/null"], 2, &["it is something else", "hint: "]);
    refused(&[dir, "--size", "4096TiB"], 2, &["free are ", "hint: --size takes up to "]);
    refused(&[dir, "--record", "5000"], 2, &["no power of two from 4 KiB to 16 MiB"]);
    refused(&[dir, "--size", "100"], 2, &["limit of 4 KiB"]);
    refused(&[dir, "--threads", "65"], 2, &["64"]);
    if is_root() {
        skip("root may write everywhere");
    } else {
        refused(&["/"], 1, &["permission denied", "hint: "]);
    }
    assert_eq!(files_in(Path::new(dir)).len(), 1);
}

#[test]
fn a_file_system_that_is_read_only_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new("unshare");
    let script =
        "mount -t tmpfs -o ro,size=64m quail \"$1\" || exit 77; exec \"$0\" tune disk \"$1\"";
    command.args(["-rm", "sh", "-c", script, env!("CARGO_BIN_EXE_covey")]).arg(dir.path());
    if !has_program("unshare") {
        return skip("needs unshare");
    }
    let done = run(command);
    if done.code == Some(77) || done.stderr.contains("unshare") {
        return skip("needs a mount namespace");
    }
    assert_eq!(done.code, Some(1), "{done}");
    done.says(&["read-only file system", "choose another place"]);
}

/// A device made of a file, if this machine permits it.
struct Loop(String);

impl Loop {
    fn of(file: &Path) -> Option<Loop> {
        let tried = Command::new("losetup").args(["-f", "--show"]).arg(file).output();
        let made = tried.ok().filter(|made| made.status.success())?;
        Some(Loop(String::from_utf8_lossy(&made.stdout).trim().to_string()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

#[test]
fn a_device_is_only_read_unless_it_may_be_destroyed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("device");
    let content = crate::support::bytes::noise(7, 8 << 20);
    fs::write(&file, &content).unwrap();
    let Some(device) = Loop::of(&file) else { return skip("needs loop devices") };
    let words = ["--size", "2MiB", "--budget", "1", "--repetitions", "1", "--threads", "2"];
    let report = told(&tune("disk", &[&words[..], &[&device.0]].concat()));
    assert_eq!((&report["place"]["kind"], &report["verified"]), (&"device".into(), &false.into()));
    let tests = |report: &Value| -> Vec<String> {
        let rates = report["rates"].as_array().unwrap();
        rates.iter().map(|rate| rate["test"].as_str().unwrap().to_string()).collect()
    };
    assert!(!tests(&report).iter().any(|test| test.contains("write")), "{report:#}");
    assert!(fs::read(&file).unwrap() == content, "it was written to");
    let report = told(&tune("disk", &[&words[..], &["--destroy", &device.0]].concat()));
    assert_eq!(report["verified"], true);
    assert!(tests(&report).contains(&"random-write".to_string()), "{report:#}");
    assert!(fs::read(&file).unwrap() != content, "it was not written to");
}

#[test]
fn what_fits_a_budget_is_measured_and_what_does_not_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().to_str().unwrap();
    let all = told(&tune("all", &["--budget", "3", "--dir", place]));
    assert_eq!(all["kind"], "all");
    assert_eq!(all["results"].as_array().unwrap().len(), 1, "{all:#}");
    assert_eq!(all["results"][0]["kind"], "disk");
    assert_eq!(all["spent"][0]["part"], "disk");
    let left_out = all["left_out"].as_array().unwrap();
    let why = |part: &str| {
        let found = left_out.iter().find(|one| one["what"] == part);
        found.unwrap_or_else(|| panic!("{part}: {all:#}"))["why"].as_str().unwrap()
    };
    assert_eq!(why("net"), "no host was named");
    for part in ["mpi", "pvm"] {
        assert!(why(part).contains("budget") || why(part).contains("installed"), "{all:#}");
    }
    let json = dir.path().join("all.json");
    fs::write(&json, all.to_string()).unwrap();
    let mut command = covey();
    command.args(["tune", "report"]).arg(&json).arg("-o").arg(dir.path().join("page.html"));
    let done = run(command);
    assert!(done.ok, "{done}");
    assert_eq!(files_in(dir.path()).len(), 2);
}

#[test]
fn a_budget_for_nothing_and_places_that_do_not_exist_are_refused() {
    let refused = |words: &[&str], says: &str| {
        let done = tune("all", words);
        assert_eq!(done.code, Some(2), "{done}");
        assert!(done.stderr.contains(says), "{done}");
    };
    refused(&["--budget", "1", "--dir", "/tmp"], "cannot measure anything");
    refused(&["--budget", "9", "--dir", "/no/such/quail"], "no such file or directory");
    refused(&["--budget", "9", "--lab", "no-such-lab-quail", "n1", "n2"], "lab");
}
