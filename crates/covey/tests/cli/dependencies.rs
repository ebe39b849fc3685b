//! What the crates depend on: nothing that is not used, nothing pinned without a reason, and no licence
//! that a binary distribution could not meet.

use crate::layers::{crates, manifest, name_of, read, sources, workspace};
use std::path::Path;
use std::process::Command;

/// Licences that ask for no more than their text beside the binary.
const LICENCES: [&str; 12] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "MIT",
    "OFL-1.1",
    "Ubuntu-font-1.0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];
/// Packages whose crate has a name of its own.
const CALLED_OTHERWISE: [(&str, &str); 1] = [("md-5", "md5")];

#[test]
fn every_dependency_is_used() {
    let mut used = Vec::new();
    let harness = ["harness", "harness/macro"].map(|folder| workspace().join(folder));
    for folder in crates().into_iter().chain(harness) {
        let text = |parts: &[&str]| -> String {
            let files = parts.iter().flat_map(|part| sources(&folder.join(part)));
            files.map(|file| read(&file)).collect()
        };
        let own = text(&["src"]);
        let all = own.clone() + &text(&["tests", "examples", "benches"]);
        let manifest = manifest(&folder);
        for (section, text) in [("dependencies", &own), ("dev-dependencies", &all)] {
            let Some(list) = manifest.get(section).and_then(|list| list.as_table()) else {
                continue;
            };
            for package in list.keys() {
                let name = name_of(&folder);
                assert!(
                    names(text, package),
                    "crates/{name} has {package} in {section}: for what?"
                );
                used.push(package.clone());
            }
        }
    }
    let all: toml::Table = read(&workspace().join("Cargo.toml")).parse().expect("it is TOML");
    for package in all["workspace"]["dependencies"].as_table().expect("a table").keys() {
        assert!(used.contains(package), "no crate uses {package} of the workspace's dependencies");
    }
}

/// Whether the package's name stands in the text as a word.
fn names(text: &str, package: &str) -> bool {
    let other = CALLED_OTHERWISE.iter().find(|(name, _)| *name == package);
    let name = other.map_or_else(|| package.replace('-', "_"), |(_, name)| (*name).to_owned());
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    text.match_indices(&name).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + name.len()..].chars().next();
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

#[test]
fn a_pinned_version_says_why() {
    let files = crates().into_iter().map(|folder| folder.join("Cargo.toml"));
    for file in files.chain([workspace().join("Cargo.toml")]) {
        for (at, is_explained) in pinned(&read(&file)) {
            assert!(is_explained, "{}:{at}: a comment above says why", file.display());
        }
    }
    let two = "# Because.\na = \"=1\"\nb = { version = \"= 2.0\" }\nc = \"3\"\n";
    assert_eq!(pinned(two), [(2, true), (3, false)]);
}

/// The lines that pin a version, and whether a comment stands above.
fn pinned(text: &str) -> Vec<(usize, bool)> {
    let lines: Vec<&str> = text.lines().collect();
    let is_pin = |line: &str| !line.starts_with('#') && line.contains("\"=");
    let at = (0..lines.len()).filter(|&at| is_pin(lines[at]));
    at.map(|at| (at + 1, at > 0 && lines[at - 1].starts_with('#'))).collect()
}

#[test]
fn every_package_has_a_licence_that_we_can_meet_and_comes_from_the_registry() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // Cargo has fetched what this platform needs, and nothing else.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let asked = Command::new(cargo)
        .args(["metadata", "--locked", "--offline", "--format-version", "1"])
        .args(["--filter-platform", &platform])
        .current_dir(workspace())
        .output()
        .expect("cargo runs: it runs this test");
    let told = String::from_utf8_lossy(&asked.stderr);
    assert!(asked.status.success(), "{told}");
    let all: serde_json::Value = serde_json::from_slice(&asked.stdout).expect("it is JSON");
    let packages = all["packages"].as_array().expect("packages");
    assert!(packages.len() > 100, "only {} packages", packages.len());
    for package in packages {
        let (name, licence) = (&package["name"], package["license"].as_str().unwrap_or("none"));
        assert!(can_meet(licence), "{name}: the licence {licence} is not in the list");
        let is_ours =
            package["manifest_path"].as_str().is_some_and(|file| is_inside(file.as_ref()));
        let source = package["source"].as_str().unwrap_or_default();
        assert!(is_ours || source.starts_with("registry+"), "{name} comes from {source:?}");
    }
}

fn is_inside(file: &Path) -> bool {
    file.starts_with(workspace())
}

/// Whether one choice that the expression leaves has only licences of the list. Brackets stand around a
/// choice that is part of a sum.
fn can_meet(expression: &str) -> bool {
    let known = |licence: &str| LICENCES.contains(&licence.trim_matches(['(', ')', ' ']));
    // How it was written before there was a syntax for it.
    let expression = expression.replace('/', " OR ");
    if expression.contains('(') {
        return expression.split(" AND ").all(|part| part.split(" OR ").any(known));
    }
    expression.split(" OR ").any(|choice| choice.split(" AND ").all(known))
}

#[test]
fn a_licence_that_asks_for_the_source_is_refused() {
    assert!(can_meet("MIT") && can_meet("MIT OR GPL-3.0") && can_meet("MIT/Apache-2.0"));
    assert!(can_meet("(MIT OR Apache-2.0) AND Unicode-3.0"));
    assert!(!can_meet("GPL-3.0") && !can_meet("MIT AND GPL-3.0") && !can_meet("none"));
    assert!(!can_meet("(MIT OR Apache-2.0) AND GPL-3.0"));
}
