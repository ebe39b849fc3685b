//! Real programs on two mounts: the script of `make workloads`, in its short form.

use crate::support::{has_program, no_fuse, run_within, skip};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// A bound for what must end, far above what it takes.
const LIMIT: Duration = Duration::from_secs(900);

#[track_caller]
fn workloads(steps: &[&str], programs: &[&str]) {
    workloads_with(&["--short"], steps, programs);
}

#[track_caller]
fn workloads_with(options: &[&str], steps: &[&str], programs: &[&str]) {
    if let Some(reason) = no_fuse() {
        return skip(reason);
    }
    if let Some(missing) = programs.iter().find(|program| !has_program(program)) {
        return skip(format!("needs {missing}"));
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../workloads/run");
    let mut command = Command::new(script);
    command.env("COVEY", env!("CARGO_BIN_EXE_covey")).args(options).args(steps);
    let done = run_within(command, LIMIT);
    assert!(done.ok, "workloads: {done}");
    let verified = done.stdout.lines().filter(|line| line.starts_with("verified ")).count();
    assert_eq!(verified, steps.len(), "{done}");
}

#[test]
fn a_random_tester_finds_no_difference_to_memory_on_one_and_on_two_mounts() {
    workloads(&["fsx"], &["cc"]);
}

#[test]
fn git_clones_checks_and_changes_a_repository() {
    workloads(&["git"], &["git"]);
}

#[test]
fn make_builds_what_is_needed_and_no_more() {
    workloads(&["build"], &["make", "cc"]);
}

#[test]
fn sqlite_loses_nothing_from_four_processes_on_two_mounts() {
    workloads(&["sqlite"], &["sqlite3"]);
}

#[test]
fn a_second_rsync_moves_nothing() {
    workloads(&["rsync"], &["rsync"]);
}

#[test]
fn tar_keeps_attributes_links_and_holes() {
    workloads(&["tar"], &["tar", "setfattr"]);
}

#[test]
fn sixteen_processes_append_to_one_log_and_four_count_under_a_lock() {
    workloads(&["append", "lock"], &["flock"]);
}

#[test]
fn sparse_files_and_full_directories_are_as_they_were_made() {
    workloads(&["sparse", "many"], &["python3"]);
}

#[test]
fn programs_that_open_after_a_close_agree_in_close_to_open() {
    let steps = ["build", "sqlite", "append", "lock"];
    let programs = ["make", "cc", "sqlite3", "flock"];
    workloads_with(&["--short", "--close-to-open"], &steps, &programs);
}
