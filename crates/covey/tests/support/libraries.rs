//! The libraries for C, built as the test was.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// A library of a package. Whoever has built all of the workspace says so by `COVEY_TEST_BUILT`; else cargo
/// is asked, once per package and test program. Asked for one package it chooses features for that one alone,
/// and so builds much of what it depends on again.
pub fn built(package: &str, file: &str) -> PathBuf {
    static BUILT: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let covey = Path::new(env!("CARGO_BIN_EXE_covey"));
    let profile = covey.parent().expect("a binary lies in a directory");
    {
        let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
        if std::env::var_os("COVEY_TEST_BUILT").is_none() && !built.contains(package) {
            build(package, profile.ends_with("release"));
            built.insert(package.to_owned());
        }
    }
    let library = profile.join(file);
    assert!(library.exists(), "there is no {}", library.display());
    library
}

fn build(package: &str, is_release: bool) {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--locked", "-p", package]);
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    if is_release {
        cargo.arg("--release");
    }
    let status = cargo.status().expect("cargo runs");
    assert!(status.success(), "{package} cannot be built");
}

/// A place in the sources.
pub fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}
