//! Programs under `libcovey-preload.so`, and C programs of the tests.

use super::command::{Finished, run};
use super::libraries::built;
use super::{Cluster, has_program, skip};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Where the tests see Covey's files.
pub const PREFIX: &str = "/covey";

/// The preload library.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| built("covey-preload", "libcovey_preload.so"))
}

/// A program that reaches the cluster's files below [`PREFIX`] without a mount.
pub fn preloaded(cluster: &Cluster, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", library()).env("COVEY_CONFIG", cluster.config());
    command.env_remove("COVEY_PRELOAD_REPORT").env("COVEY_PRELOAD_PREFIX", PREFIX);
    command.env("LC_ALL", "C").current_dir("/");
    command
}

/// A C program of the tests. None, with the reason told, where there is no compiler.
pub fn compile(cluster: &Cluster, source: &str, compiler: &str) -> Option<PathBuf> {
    if !has_program(compiler) {
        skip(format!("needs {compiler}"));
        return None;
    }
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(source);
    let stem = from.file_stem().expect("a source has a name").to_string_lossy().into_owned();
    let program = cluster.scratch(&format!("{stem}-{compiler}"));
    let mut command = Command::new(compiler);
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../preload/include");
    command.args(["-O1", "-Wall", "-Wno-unused-result", "-pthread", "-I"]).arg(include);
    command.arg("-o").arg(&program).arg(&from).arg("-ldl").env_remove("LD_PRELOAD");
    let done = run(command);
    assert!(done.ok, "{compiler} {source}: {done}");
    Some(program)
}

/// Asserts that a program has worked.
#[track_caller]
pub fn worked(done: &Finished) -> &str {
    assert!(done.ok, "{done}");
    &done.stdout
}
