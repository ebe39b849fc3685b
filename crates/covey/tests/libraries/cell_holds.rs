//! What one worker, or who should read its log, does not hold up; and what a program cannot have unnoticed.

use super::cell::{Bench, Running, is_running};
use crate::support::until;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::Read;
use std::process::Stdio;

#[test]
fn a_log_that_nobody_reads_holds_up_who_writes_it_and_nobody_else_and_no_end() {
    let Some(bench) = Bench::new() else { return };
    let program = bench.program("unread", &[]);
    let file = bench.dir.path().join("progress");
    let mut command =
        bench.command(&["--alone", "-s", "2"], &program, &[&format!("#U{}", file.display())]);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("covey starts");
    let bytes = || fs::metadata(&file).map_or(0, |found| found.len());
    // The pipe is full long before.
    until("the other worker goes on", || bytes() > 20_000);
    let host = Pid::from_raw(child.id() as i32).expect("a process");
    kill_process(host, Signal::TERM).expect("it runs");
    assert_eq!(child.wait().expect("it ends").code(), Some(1));
}

#[test]
fn all_of_a_log_is_there_and_in_its_order_for_a_reader_who_comes_late() {
    let Some(bench) = Bench::new() else { return };
    let program = bench.program("unread", &[]);
    let mut command = bench.command(&["--alone"], &program, &["-", "20000"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("covey starts");
    std::thread::sleep(std::time::Duration::from_millis(300));
    let mut text = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut text).expect("read");
    assert!(child.wait().expect("it ends").success());
    let numbers: Vec<usize> =
        text.lines().map(|line| line[..8].parse().expect("a number")).collect();
    assert!(numbers.len() == 20_000 && numbers.is_sorted(), "{}", numbers.len());
}

#[test]
fn workers_that_talk_through_a_pipe_do_the_same_in_a_replay() {
    let Some(bench) = Bench::new() else { return };
    let program = bench.program("talk", &["-D_GNU_SOURCE"]);
    let trace = bench.dir.path().join("trace").display().to_string();
    for turn in 0..5 {
        let done = bench.run(&["--alone", "-s", "2", "--trace", &trace], &program, &[]);
        assert!(done.ok && done.stdout == "200 bytes\n", "{turn}: {done}");
        for _ in 0..3 {
            let done = bench.run(&["--alone", "-s", "2", "--replay", &trace], &program, &[]);
            assert!(done.ok && done.stdout == "200 bytes\n", "{turn}: {done}");
        }
    }
}

#[test]
fn what_a_program_holds_is_counted_whatever_it_is() {
    let Some(bench) = Bench::new() else { return };
    let program = bench.program("wide", &[]);
    let done = bench.run(&["--alone"], &program, &[]);
    let told = "the first stack: refused\n16\nallocations of nothing: counted\n";
    assert!(done.ok && done.stdout == told, "{done}");
    let program = bench.program("wide", &["-DTHREADS"]);
    let done = bench.run(&["--alone"], &program, &[]);
    assert!(
        !done.ok && done.stderr.contains("a segment of the program of 1048576 bytes"),
        "{done}"
    );
}

#[test]
fn a_descriptor_for_writing_is_not_read_and_a_file_that_may_not_be_read_is_written() {
    let Some(bench) = Bench::new() else { return };
    use std::os::unix::fs::PermissionsExt;
    let program = bench.program("modes", &[]);
    let files = ["plain", "hidden"].map(|name| bench.dir.path().join(name));
    files.iter().for_each(|file| fs::write(file, "secret, 16 bytes and more").expect("written"));
    fs::set_permissions(&files[1], PermissionsExt::from_mode(0o200)).expect("changed");
    let words = files.each_ref().map(|file| format!("#U{}", file.display()));
    let done = bench.run(&["--alone"], &program, &words.each_ref().map(String::as_str));
    assert!(done.ok && done.stdout == "write 16\naligned -1\nother -1\nhidden 16\n", "{done}");
}

#[test]
fn a_stopped_worker_ends_with_its_killed_host() {
    let Some(bench) = Bench::new() else { return };
    let trouble = bench.program("trouble", &["-Wno-unused-result"]);
    let mut running = Running::start(bench.command(&["--alone", "-s", "2"], &trouble, &["wait"]));
    let line = running.line_with("waits");
    let worker = line.trim().rsplit(' ').next().expect("a number");
    let pid = Pid::from_raw(worker.parse().expect("a number")).expect("a process");
    kill_process(pid, Signal::STOP).expect("it runs");
    let host = Pid::from_raw(running.child.id() as i32).expect("a process");
    kill_process(host, Signal::KILL).expect("it runs");
    until("the worker has ended", || !is_running(worker));
}
