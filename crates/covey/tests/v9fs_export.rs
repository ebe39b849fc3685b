//! Linux's own 9P client against `covey export`: a User-Mode Linux kernel boots on this machine's root
//! file system, starts the export inside, mounts it twice and runs `v9fs/export.sh`.
//!
//! Needs the Debian package `user-mode-linux` and root (the guest sees this machine's files); says so
//! and passes where they are not there.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[test]
fn linux_mounts_an_export_and_finds_a_file_system() {
    if !Path::new("/usr/bin/linux.uml").exists() || !rustix::process::geteuid().is_root() {
        return eprintln!("not tested: needs root and the package user-mode-linux");
    }
    let work = tempfile::tempdir().unwrap();
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/v9fs");
    let said = boot(work.path(), &scripts.join("export.sh"), &scripts.join("init.sh"));
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
    let output = Command::new("timeout")
        .args(["-k", "5", "240", "linux.uml", "mem=512M", "umid=v9fs"])
        .arg(format!("uml_dir={}/", work.display()))
        .args(["rootfstype=hostfs", "rootflags=/", "rw"])
        .arg(format!("init={}", here("init").display()))
        .args(["con=null", "con0=fd:0,fd:1", "quiet", "loglevel=1"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}
