//! `covey cell` where something is full, gone, or does not listen.

use crate::cell::Bench;
use crate::support::{has_program, run, skip};
use std::process::Command;

/// The same command where a directory is a file system of a mebibyte, with a file `file` of eight.
fn on_a_small_disk(command: &Command, directory: &str) -> Option<Command> {
    const HERE: &str = "mount -t tmpfs -o size=1m none \"$0\" || exit 77
        truncate -s 8m \"$0/file\" && exec \"$@\"";
    if !has_program("unshare") {
        skip("needs unshare");
        return None;
    }
    let mut apart = Command::new("unshare");
    apart.args(["-rm", "sh", "-c", HERE, directory]).arg(command.get_program());
    apart.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => apart.env(name, value),
            None => apart.env_remove(name),
        };
    }
    Some(apart)
}

#[test]
fn a_full_disk_below_a_mapped_file_is_an_error_that_says_so() {
    let Some(bench) = Bench::new() else { return };
    let program = bench.program("files", &[]);
    let disk = bench.dir.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let (disk, file) = (disk.display().to_string(), disk.join("file").display().to_string());
    let command = bench.command(&["--alone"], &program, &["fill", &file]);
    let Some(command) = on_a_small_disk(&command, &disk) else { return };
    let done = run(command);
    if done.code == Some(77) || done.stderr.contains("unshare") {
        return skip("needs a tmpfs of its own, which is not permitted here");
    }
    assert!(done.ok, "{done}");
    assert_eq!(done.stdout, "mapped\nerror 28\nkept 1\nbehind it 1\n", "{done}");
}
