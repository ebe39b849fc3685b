//! The initiator of the Linux kernel, with open-iscsi, against targets of Covey's: a User-Mode Linux kernel boots on this
//! machine's root file system and runs a script of `linux/`.
//!
//! Needs root, user-mode-linux and open-iscsi; says so where they are not there.

use crate::support::{has_program, skip, uml};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[test]
fn linux_logs_in_formats_trims_grows_and_survives_the_death_of_the_target() {
    run_in_guest("initiator.sh");
}

#[test]
fn linux_is_led_to_another_node_when_one_dies() {
    run_in_guest("takeover.sh");
}

#[test]
fn two_kernels_share_a_volume_and_reserve_it() {
    if !is_possible() || !has_program("sg_persist") || !has_program("ip") {
        return skip("needs root, user-mode-linux, open-iscsi, sg3-utils and iproute2");
    }
    let work = tempfile::tempdir().unwrap();
    for guest in ["1", "2"] {
        std::fs::create_dir(work.path().join(guest)).unwrap();
        prepare(&work.path().join(guest), "reservations.sh");
    }
    let mut both = Command::new("unshare");
    uml::prepare(&mut both, work.path());
    let both = both.args(["--net", "bash"]).arg(scripts().join("two.sh")).arg(work.path());
    let output = both.arg(env!("CARGO_BIN_EXE_covey")).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "the guests said:\n{said}");
}

fn is_possible() -> bool {
    uml::is_there() && has_program("iscsid") && has_program("mkfs.ext4")
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/volumes/linux")
}

/// Puts what a guest begins with into a directory.
fn prepare(work: &Path, script: &str) {
    std::fs::copy(scripts().join("init.sh"), work.join("init")).unwrap();
    std::fs::copy(scripts().join(script), work.join("script")).unwrap();
    std::fs::copy(env!("CARGO_BIN_EXE_covey"), work.join("covey")).unwrap();
}

fn run_in_guest(script: &str) {
    if !is_possible() {
        return skip("needs root, user-mode-linux, open-iscsi and e2fsprogs");
    }
    let work = tempfile::tempdir().unwrap();
    prepare(work.path(), script);
    let mut guest = Command::new("timeout");
    uml::prepare(&mut guest, work.path());
    let output = guest
        .args(["-k", "5", "540", "linux.uml", "mem=768M", "umid=guest"])
        .arg(format!("uml_dir={}/", work.path().display()))
        .args(["rootfstype=hostfs", "rootflags=/", "rw"])
        .arg(format!("init={}", work.path().join("init").display()))
        .args(["con=null", "con0=fd:0,fd:1", "quiet", "loglevel=1"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let status = std::fs::read_to_string(work.path().join("status")).unwrap_or_default();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(status.trim(), "0", "the guest said:\n{said}");
}
