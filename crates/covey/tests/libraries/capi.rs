//! `libcovey.so` as a program in C uses it: plain, under valgrind, and with gcc's sanitizers.

use crate::support::libraries::{built, source};
use crate::support::valgrind::VALGRIND;
use crate::support::{has_program, run, skip};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

const SANITIZERS: [&str; 2] = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

/// A program of the tests, linked with the library as users do. None where there is no compiler.
fn program(dir: &Path, name: &str, options: &[&str]) -> Option<PathBuf> {
    if !has_program("gcc") {
        skip("needs gcc");
        return None;
    }
    let library = built("covey-capi", "libcovey_capi.so");
    for name in ["libcovey.so", "libcovey.so.0"] {
        std::os::unix::fs::symlink(&library, dir.join(name)).expect("a link can be made");
    }
    let program = dir.join(name);
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=c99", "-D_GNU_SOURCE", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]);
    gcc.args(options).arg("-I").arg(source("crates/capi/include")).arg("-o").arg(&program);
    gcc.arg(source(&format!("crates/covey/tests/capi/{name}.c"))).arg("-L").arg(dir).arg("-lcovey");
    gcc.arg(format!("-Wl,-rpath,{}", dir.display()));
    let done = run(gcc);
    assert!(done.ok, "{done}");
    Some(program)
}

#[track_caller]
fn is_right(command: Command) {
    let done = run(command);
    assert!(done.ok && done.stdout.ends_with("right\n"), "{done}");
}

#[test]
fn a_program_in_c_does_everything_that_layouts_can() {
    let dir = TempDir::new().expect("a directory");
    let Some(program) = program(dir.path(), "layouts", &[]) else { return };
    is_right(Command::new(program));
}

#[test]
fn a_program_in_c_touches_and_loses_no_memory_under_valgrind() {
    if !has_program("valgrind") {
        return skip("needs valgrind");
    }
    let dir = TempDir::new().expect("a directory");
    let Some(program) = program(dir.path(), "layouts", &[]) else { return };
    let mut command = Command::new(VALGRIND[0]);
    command.args(&VALGRIND[1..]).arg(program);
    is_right(command);
}

#[test]
fn a_program_in_c_is_clean_under_the_sanitizers() {
    let dir = TempDir::new().expect("a directory");
    let Some(program) = program(dir.path(), "layouts", &SANITIZERS) else { return };
    is_right(Command::new(program));
}

/// How two endpoints meet.
const MEETINGS: [&[&str]; 4] = [&[], &["tcp"], &["adopt"], &["tcp", "adopt"]];

/// Two processes in each way, below what is put before them.
#[track_caller]
fn endpoints_are_right(options: &[&str], before: &[&str]) {
    for meeting in MEETINGS {
        let dir = TempDir::new().expect("a directory");
        let Some(program) = program(dir.path(), "endpoint", options) else { return };
        let mut command = Command::new(before.first().map_or(program.as_os_str(), OsStr::new));
        if let Some((_, arguments)) = before.split_first() {
            command.args(arguments).arg(&program);
        }
        command.arg(dir.path()).args(meeting);
        is_right(command);
    }
}

#[test]
fn two_processes_in_c_do_everything_that_endpoints_can() {
    endpoints_are_right(&[], &[]);
}

#[test]
fn two_processes_in_c_are_clean_under_the_sanitizers() {
    endpoints_are_right(&SANITIZERS, &[]);
}

#[test]
fn two_processes_in_c_touch_and_lose_no_memory_under_valgrind() {
    if !has_program("valgrind") {
        return skip("needs valgrind");
    }
    endpoints_are_right(&[], &VALGRIND);
}

#[test]
fn the_header_is_good_in_cpp_too() {
    if !has_program("g++") {
        return skip("needs g++");
    }
    let mut command = Command::new("g++");
    command.args(["-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-xc++"]);
    command.arg(source("crates/capi/include/covey.h"));
    let done = run(command);
    assert!(done.ok, "{done}");
}
