//! Linux's own 9P client against `covey export` and against the `/fs` of a cluster's nodes: a
//! User-Mode Linux kernel boots on this machine's root file system, starts the servers inside, mounts
//! them and runs a script of `v9fs/`.
//!
//! Needs the Debian package `user-mode-linux` and root (the guest sees this machine's files); says so
//! and passes where they are not there.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[test]
fn linux_mounts_an_export_and_finds_a_file_system() {
    run_in_guest("export.sh");
}

#[test]
fn linux_mounts_two_nodes_of_a_cluster_and_finds_one_file_system() {
    run_in_guest("cluster.sh");
}

#[test]
fn linux_speaks_the_older_dialects_with_both() {
    run_in_guest("dialects.sh");
}

#[test]
fn linux_sees_a_tree_that_a_node_binds_and_another_node_s_tree() {
    run_in_guest("clock.sh");
}

#[test]
fn linux_runs_programs_by_nothing_but_files() {
    run_in_guest("xcpu.sh");
}

fn run_in_guest(script: &str) {
    if !crate::support::uml::is_there() {
        return crate::support::skip("needs root and the package user-mode-linux");
    }
    let work = tempfile::tempdir().unwrap();
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/v9fs");
    let said = boot(work.path(), &scripts.join(script), &scripts.join("init.sh"));
    let status = std::fs::read_to_string(work.path().join("status")).unwrap_or_default();
    assert_eq!(status.trim(), "0", "the guest said:\n{said}");
}

/// Runs the script in a guest; what it wrote to its console.
fn boot(work: &Path, script: &Path, init: &Path) -> String {
    // The kernel's command line is short: the guest finds what it needs beside its init.
    let here = |name: &str| -> PathBuf { work.join(name) };
    std::fs::copy(init, here("init")).unwrap();
    std::fs::copy(script, here("script")).unwrap();
    std::fs::copy(env!("CARGO_BIN_EXE_covey"), here("covey")).unwrap();
    // With [`serve`] in it.
    std::fs::copy(std::env::current_exe().unwrap(), here("node")).unwrap();
    let mut guest = Command::new("timeout");
    crate::support::uml::prepare(&mut guest, work);
    let output = guest
        .args(["-k", "5", "540", "linux.uml", "mem=512M", "umid=guest"])
        .arg(format!("uml_dir={}/", work.display()))
        .args(["rootfstype=hostfs", "rootflags=/", "rw"])
        .arg(format!("init={}", here("init").display()))
        .args(["con=null", "con0=fd:0,fd:1", "quiet", "loglevel=1"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}
