//! Programs and files of Debian packages that a test uses where they are installed.
//!
//! `scripts/packages` lists them, and `scripts/prepare` installs that list: a test that asks for anything
//! else fails wherever it runs, and not only on the machine that lacks it.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// Whether a program is on this machine.
///
/// # Panics
///
/// When no line of `scripts/packages` for `test` names the program.
pub fn has_program(name: &str) -> bool {
    assert!(is_listed(name), "scripts/packages has no line for the program {name}");
    find(name).is_some()
}

/// Whether a file is on this machine; `@` stands for the machine's triplet, as in `scripts/packages`.
///
/// # Panics
///
/// When no line of `scripts/packages` for `test` names the file.
pub fn has_file(path: &str) -> bool {
    assert!(is_listed(path), "scripts/packages has no line for the file {path}");
    let triplet = format!("{}-linux-gnu", std::env::consts::ARCH);
    Path::new(&path.replace('@', &triplet)).exists()
}

/// Where a program is; `/usr/sbin` is not on every user's path.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(more).map(|dir| dir.join(name)).find(|path| path.is_file())
}

fn is_listed(name: &str) -> bool {
    static LISTED: LazyLock<Vec<&str>> = LazyLock::new(|| listed_for("test").collect());
    LISTED.contains(&name)
}

/// The programs and files that a target of the Makefile finds installed.
fn listed_for(target: &str) -> impl Iterator<Item = &'static str> {
    let lines = include_str!("../../../../scripts/packages").lines();
    let rows = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    rows.flat_map(move |line| {
        let mut words = line.split_whitespace().skip(1);
        let targets = [words.next(), words.next()].map(|word| word.unwrap_or_default().split(','));
        let is_for = targets.into_iter().flatten().any(|one| one == target);
        words.filter(move |_| is_for)
    })
}
