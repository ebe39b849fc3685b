//! The libraries for C, built as the test was.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A library of a package. Cargo builds it beside the tests when it runs them all; a test that is run
/// alone asks for it.
pub fn built(package: &str, file: &str) -> PathBuf {
    let covey = Path::new(env!("CARGO_BIN_EXE_covey"));
    let profile = covey.parent().expect("a binary lies in a directory");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--locked", "-p", package]);
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    let status = cargo.status().expect("cargo runs");
    assert!(status.success(), "{package} cannot be built");
    let library = profile.join(file);
    assert!(library.exists(), "there is no {}", library.display());
    library
}

/// A place in the sources.
pub fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}
