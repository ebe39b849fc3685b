//! The Python package: its own tests, in a clean environment.

use crate::support::libraries::source;
use crate::support::{run_within, skip};
use std::process::Command;
use std::time::Duration;

#[test]
fn the_wheel_of_the_python_package_passes_its_tests() {
    let Some(wheel) = std::env::var_os("COVEY_PYTHON") else {
        return skip("COVEY_PYTHON names no wheel; `scripts/python wheel` builds one");
    };
    let mut tests = Command::new(source("scripts/python"));
    tests.env("COVEY", env!("CARGO_BIN_EXE_covey")).env("WHEEL", wheel);
    let done = run_within(tests, Duration::from_secs(300));
    if let Some((_, why)) = done.stderr.split_once("scripts/python: skipped: ") {
        return skip(why.trim_end());
    }
    assert!(done.ok, "{done}");
}
