//! `covey cell` where something is full, gone, or does not listen.

use crate::cell::{Bench, Running};
use crate::support::{has_program, run, skip};
use std::fs::{self, OpenOptions};
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
    fs::create_dir(&disk).unwrap();
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

#[test]
fn coroutines_on_small_stacks_copy_from_a_file_that_is_cut_off_again_and_again() {
    let Some(bench) = Bench::new() else { return };
    let program = bench.program("cut", &[]);
    let [file, control] = ["file", "control"].map(|name| bench.dir.path().join(name));
    let words = [&file, &control].map(|file| format!("#U{}", file.display()));
    for threads in [&[][..], &["--threads"]] {
        fs::write(&file, [b'x'; 128 << 10]).unwrap();
        fs::write(&control, [0; 16]).unwrap();
        let options = [&["--alone", "-s", "2"], threads].concat();
        let words = words.each_ref().map(String::as_str);
        let mut running = Running::start(bench.command(&options, &program, &words));
        running.line_with("copies");
        let cut = OpenOptions::new().write(true).open(&file).unwrap();
        for turn in 0..5_000 {
            cut.set_len(turn % 5 * 20_000).unwrap();
            std::thread::yield_now();
            cut.set_len(128 << 10).unwrap();
        }
        fs::write(&control, [1; 16]).unwrap();
        for _ in 0..2 {
            assert_eq!(running.line_with("0 "), "0 strange bytes\n", "{threads:?}");
        }
        assert!(running.child.wait().unwrap().success(), "{threads:?}");
    }
}
