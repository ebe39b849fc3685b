//! The same wire through MPI and PVM, between nodes of a lab and on this machine.

use crate::support::command::covey;
use crate::support::lab::Lab;
use crate::support::{Finished, has_file, has_program, run, skip, until};
use serde_json::Value;
use std::process::{Command, Stdio};

fn lab(name: &str) -> Option<(Lab, String)> {
    let lab = Lab::up(name, &["2", "--link", "fast-ethernet", "--topology", "direct"])?;
    let name = lab.lab("status", &[])["lab"].as_str().unwrap().to_string();
    Some((lab, name))
}

fn needs(programs: &[&str]) -> bool {
    let missing: Vec<&&str> = programs.iter().filter(|name| !has_program(name)).collect();
    if !missing.is_empty() {
        skip(format!("needs {missing:?}"));
    }
    missing.is_empty()
}

/// A short measurement of one level.
fn tune(words: &[&str]) -> Command {
    let mut command = covey();
    command.args(["--json", "tune"]).args(words);
    command.args(["--budget", "1", "--up-to", "4KiB", "--perturbation", "0"]);
    command
}

fn told(done: &Finished) -> Value {
    assert!(done.ok, "{done}");
    serde_json::from_str(&done.stdout).unwrap()
}

/// What the wire forbids is not seen, however busy this machine is.
fn is_of_fast_ethernet(level: &Value) {
    assert_eq!(level["points"].as_array().unwrap().len(), 24, "{level:#}");
    for point in level["points"].as_array().unwrap() {
        let bytes = point["bytes"].as_f64().unwrap();
        let least = point["min_s"].as_f64().unwrap();
        assert!(least > bytes * 8.0 / 100e6, "{point}");
    }
}

#[test]
fn open_mpi_is_measured_between_nodes_with_tcp_beside_it() {
    if !needs(&["mpiexec.openmpi", "mpicc.openmpi"]) {
        return;
    }
    let Some((_lab, name)) = lab("openmpi") else { return };
    let words = ["mpi", "n1", "n2", "--lab", &name, "--mpi", "openmpi"];
    let told = told(&run(tune(&words)));
    let levels = told["levels"].as_array().unwrap();
    assert_eq!(levels[0]["protocol"], "TCP");
    assert!(levels[1]["protocol"].as_str().unwrap().starts_with("Open MPI"), "{told:#}");
    assert_eq!(levels[1]["wait"], "blocking");
    levels.iter().for_each(is_of_fast_ethernet);
}

#[test]
fn mpich_is_measured_between_nodes() {
    if !needs(&["mpiexec.mpich", "mpicc.mpich"]) {
        return;
    }
    let Some((_lab, name)) = lab("mpich") else { return };
    let words = ["mpi", "n1", "n2", "--lab", &name, "--mpi", "mpich", "--alone"];
    let told = told(&run(tune(&words)));
    assert_eq!(told["levels"].as_array().unwrap().len(), 1);
    is_of_fast_ethernet(&told["levels"][0]);
}

#[test]
fn pvm_is_measured_between_nodes_and_leaves_no_daemon() {
    if !needs(&["pvmd", "pvm", "cc"]) || !has_file("/usr/include/pvm3.h") {
        return;
    }
    let Some((lab, name)) = lab("pvm") else { return };
    let told = told(&run(tune(&["pvm", "n1", "n2", "--lab", &name, "--alone"])));
    assert_eq!(told["levels"][0]["protocol"], "PVM 3.4");
    is_of_fast_ethernet(&told["levels"][0]);
    let running = || lab.exec("n1", &["sh", "-c", "cat /proc/[0-9]*/comm"]);
    until("the end of the daemons", || !running().contains("pvmd"));
}

/// The nodes of the lab as those of a cluster: they are reached by its jobs, not by the lab.
#[test]
fn pvm_is_measured_between_machines_by_jobs() {
    if !needs(&["pvmd", "pvm", "cc"]) || !has_file("/usr/include/pvm3.h") {
        return;
    }
    let Some((lab, _)) = lab("pvm-jobs") else { return };
    let covey = env!("CARGO_BIN_EXE_covey");
    let up: serde_json::Value =
        serde_json::from_str(&lab.exec("n1", &[covey, "--json", "up"])).unwrap();
    let file = up["config"].as_str().expect("the cluster's file");
    let words = ["--json", "--config", file, "tune", "pvm", "n1", "n2", "--alone"];
    let short = ["--budget", "1", "--up-to", "4KiB", "--perturbation", "0"];
    let told = told(&lab.try_exec("n1", &[&[covey], &words[..], &short].concat()));
    assert_eq!(told["levels"][0]["protocol"], "PVM 3.4");
    is_of_fast_ethernet(&told["levels"][0]);
    for node in ["n1", "n2"] {
        let running = || lab.exec(node, &["sh", "-c", "cat /proc/[0-9]*/comm"]);
        until("the end of the daemons", || !running().contains("pvmd"));
    }
    lab.exec("n1", &[covey, "down"]);
}

#[test]
fn two_ranks_of_this_machine_talk_by_memory() {
    for (library, launcher) in [("openmpi", "mpiexec.openmpi"), ("mpich", "mpiexec.mpich")] {
        if !needs(&[launcher]) {
            continue;
        }
        let told = told(&run(tune(&["mpi", "--mpi", library, "--alone"])));
        assert_eq!(told["levels"][0]["wait"], "polling");
    }
}

#[test]
fn a_killed_rank_leaves_what_was_measured_and_an_error() {
    if !needs(&["mpiexec.openmpi", "mpicc.openmpi"]) {
        return;
    }
    let Some((lab, name)) = lab("killedrank") else { return };
    let mut command = covey();
    command.args(["--json", "tune", "mpi", "n1", "n2", "--lab", &name, "--mpi", "openmpi"]);
    command.args(["--alone", "--budget", "60", "--up-to", "64KiB"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let frames = || {
        let status = lab.lab("status", &[]);
        status["links"][0]["ways"][0]["counts"]["frames"].as_u64().unwrap()
    };
    // All ranks of a lab are seen on each node; the one of this node shares its network.
    let to_rank = |action: &str| {
        let script = format!(
            "mine=$(readlink /proc/self/ns/net); for dir in /proc/[0-9]*; do \
             case $(readlink $dir/exe)$(readlink $dir/ns/net) in \
             */blocks-mpi-*\"$mine\") {action} ${{dir#/proc/}} && echo done ;; esac; done; true"
        );
        lab.exec("n2", &["sh", "-c", &script]).trim().to_string()
    };
    // Before the ranks are there, the lab has frames of its own.
    until("a rank", || to_rank("kill -0") == "done");
    let before = frames();
    until("some blocks", || frames() > before + 3_000);
    assert_eq!(to_rank("kill -9"), "done");
    let done = child.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(1));
    let told: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert!(!told["levels"][0]["points"].as_array().unwrap().is_empty());
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(said.contains("to the end"), "{said}");
}

#[test]
fn what_is_missing_is_named() {
    let without = |words: &[&str]| {
        let mut command = covey();
        command.env("PATH", "/nowhere").arg("tune").args(words);
        run(command)
    };
    let done = without(&["mpi"]);
    done.says(&["no MPI is installed", "apt-get install"]);
    assert_eq!(done.code, Some(1));
    let done = without(&["pvm"]);
    done.says(&["there is no pvmd", "apt-get install pvm"]);
    assert_eq!(done.code, Some(1));
    without(&["mpi", "n1", "n2", "--lab", "never-up"]).says(&["it is not up"]);
}
