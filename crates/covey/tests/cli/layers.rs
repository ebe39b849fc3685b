//! The table of who may import whom, and the few rules of form that no lint knows.
//!
//! Every crate below `crates/` stands in [`TABLE`]; a new crate fails here until it does.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A crate, the crates of ours that it may import, and what it may do that others may not.
pub(crate) struct Rule {
    pub(crate) name: &'static str,
    pub(crate) may_import: &'static [&'static str],
    unsafe_code: bool,
    /// It owns a part of the world: sockets, files, clocks, threads.
    world: bool,
    /// It may use tokio.
    runtime: bool,
}

const fn pure(name: &'static str, may_import: &'static [&'static str]) -> Rule {
    Rule { name, may_import, unsafe_code: false, world: false, runtime: false }
}

const fn worldly(name: &'static str, may_import: &'static [&'static str]) -> Rule {
    Rule { world: true, runtime: true, ..pure(name, may_import) }
}

/// A library for C: what C gives it is checked by nobody else.
const fn library(name: &'static str, may_import: &'static [&'static str]) -> Rule {
    Rule { unsafe_code: true, runtime: false, ..worldly(name, may_import) }
}

/// All machines, and more.
macro_rules! machines {
    ($($more:literal),*) => {
        &[
            "wire", "layout", "ninep", "stripe", "iscsi", "uzura", "launch", "cell", "tune",
            $($more),*
        ]
    };
}

pub(crate) const MACHINES: &[&str] = machines![];

pub(crate) const TABLE: &[Rule] = &[
    pure("wire", &[]),
    Rule { unsafe_code: true, ..pure("layout", &["wire"]) },
    pure("ninep", &["wire"]),
    pure("stripe", &["ninep", "layout", "wire"]),
    pure("iscsi", &["wire"]),
    pure("uzura", &["layout", "wire"]),
    pure("launch", &["ninep", "wire"]),
    Rule { unsafe_code: true, ..pure("cell", &["ninep", "wire"]) },
    pure("tune", &["wire"]),
    pure("plot", &["tune"]),
    Rule { unsafe_code: true, ..worldly("io", &["wire"]) },
    worldly("cluster", &["stripe", "ninep", "tune", "io", "wire"]),
    worldly("serve", machines!["cluster", "io"]),
    worldly("mount", &["stripe", "ninep", "cluster", "io", "wire"]),
    worldly("lab", &["cluster", "io", "tune", "wire"]),
    worldly("measure", machines!["lab", "plot", "cluster", "io"]),
    worldly("covey", machines!["serve", "mount", "lab", "measure", "plot", "cluster", "io"]),
    Rule {
        runtime: true,
        ..library("preload", &["cluster", "stripe", "ninep", "layout", "io", "wire"])
    },
    library("capi", &["uzura", "layout", "io", "wire"]),
    library("fi", &["uzura", "layout", "io", "wire"]),
    library("spc", &["cell", "ninep", "io", "wire"]),
    Rule {
        unsafe_code: true,
        ..worldly("python", &["cluster", "stripe", "ninep", "layout", "wire"])
    },
    worldly("bootget", &["launch", "ninep", "io", "wire"]),
];

/// What only a worldly crate may name.
const WORLD: [&str; 9] = [
    "std::fs",
    "std::net",
    "std::os",
    "std::process",
    "std::thread",
    "Instant::now",
    "SystemTime::now",
    "rustix::",
    "libc::",
];

/// A longer file hides two ideas; tests stand one after another and may have some more.
const LINES_MAX: usize = 600;
const LINES_OF_TESTS_MAX: usize = 700;

#[test]
fn every_crate_stands_in_the_table_under_its_package_name() {
    for folder in crates() {
        let name = name_of(&folder);
        assert!(TABLE.iter().any(|rule| rule.name == name), "crates/{name} is not in the table");
        let package = manifest(&folder)["package"]["name"].as_str().expect("a name").to_owned();
        let expected = if name == "covey" { name.clone() } else { format!("covey-{name}") };
        assert_eq!(package, expected, "crates/{name}/Cargo.toml");
    }
}

#[test]
fn a_crate_imports_only_what_the_table_permits() {
    for (folder, rule) in ruled() {
        for dependency in dependencies(&folder) {
            let Some(ours) = ours(&dependency) else { continue };
            assert!(
                rule.may_import.contains(&ours.as_str()),
                "crates/{} imports {ours}; it may import {:?}",
                rule.name,
                rule.may_import
            );
        }
    }
}

#[test]
fn tokio_appears_only_where_the_world_is() {
    for (folder, rule) in ruled() {
        let tokio = dependencies(&folder).iter().any(|name| name.starts_with("tokio"));
        assert!(rule.runtime || !tokio, "crates/{} depends on tokio", rule.name);
    }
}

#[test]
fn a_protocol_crate_never_touches_sockets_files_clocks_or_threads() {
    for (folder, rule) in ruled().into_iter().filter(|(_, rule)| !rule.world) {
        for file in sources(&folder.join("src")) {
            for (number, line) in code(&file) {
                let world = WORLD.iter().find(|word| line.contains(*word));
                assert!(
                    world.is_none(),
                    "{}:{number} names {}: crates/{} does no I/O",
                    file.display(),
                    world.unwrap_or(&""),
                    rule.name
                );
            }
        }
    }
}

#[test]
fn unsafe_code_is_forbidden_except_where_the_table_permits_it() {
    for (folder, _) in ruled().into_iter().filter(|(_, rule)| !rule.unsafe_code) {
        for root in ["src/lib.rs", "src/main.rs"].map(|root| folder.join(root)) {
            let Ok(text) = fs::read_to_string(&root) else { continue };
            assert!(
                text.lines().any(|line| line.trim() == "#![forbid(unsafe_code)]"),
                "{} does not forbid unsafe code",
                root.display()
            );
        }
    }
}

#[test]
fn no_crate_holds_more_than_a_quarter_of_all_lines() {
    let lines = |folder: &PathBuf| -> usize {
        sources(folder).iter().map(|file| read(file).lines().count()).sum()
    };
    let counted: Vec<(String, usize)> =
        crates().iter().map(|folder| (name_of(folder), lines(folder))).collect();
    let all: usize = counted.iter().map(|(_, lines)| lines).sum();
    for (name, lines) in counted {
        assert!(
            lines * 4 <= all,
            "crates/{name} has {lines} of {all} lines: which part stands alone?"
        );
    }
}

#[test]
fn no_source_file_grows_beyond_its_limit() {
    for file in crates().iter().flat_map(|folder| files(folder, &["rs", "c", "h"])) {
        let lines = read(&file).lines().count();
        let is_test = file.iter().any(|part| part == "tests" || part == "tests.rs");
        let limit = if is_test { LINES_OF_TESTS_MAX } else { LINES_MAX };
        assert!(lines <= limit, "{} has {lines} lines, limit is {limit}: split it", file.display());
    }
}

#[test]
fn no_function_is_named_get() {
    // In one piece it would find itself.
    let word = ["fn", "get_"].join(" ");
    for file in crates().iter().flat_map(|folder| sources(folder)) {
        for (number, line) in code(&file) {
            assert!(
                !line.contains(&word),
                "{}:{number}: name it for what it answers, without get_",
                file.display()
            );
        }
    }
}

#[test]
fn what_c_calls_is_made_by_the_macro_that_fences_it() {
    let defines = |line: &str| {
        let line = line.trim_start();
        // Types of functions have no name after `fn`.
        let is_function = line.contains("extern \"") && line.contains("\" fn ");
        let names = ["no_mangle", "export_name"].iter().any(|word| line.contains(word));
        !line.starts_with("//") && (is_function || names)
    };
    let fences = ["fenced(", "::fence(", "::quietly(", "::say(", "{ $name("];
    for folder in ["preload", "capi", "fi", "spc"]
        .map(|name| workspace().join("crates").join(name).join("src"))
    {
        let mut fenced = 0;
        for file in sources(&folder) {
            let text = read(&file);
            let lines: Vec<&str> = text.lines().collect();
            for at in (0..lines.len()).filter(|at| defines(lines[*at])) {
                let (place, number) = (file.display(), at + 1);
                assert!(file == folder.join("boundary.rs"), "{place}:{number}: make it by export!");
                if lines[at].contains("\" fn ") {
                    let body = &lines[at + 1..(at + 5).min(lines.len())];
                    // Who is called by Rust may unwind to it, and says so by its ABI.
                    let may_unwind = lines[at].contains("extern \"C-unwind\"");
                    let is_fenced = may_unwind
                        || body.iter().any(|line| fences.iter().any(|f| line.contains(f)));
                    assert!(is_fenced, "{place}:{number}: not within the fence");
                    fenced += 1;
                }
            }
        }
        assert!(fenced >= 3, "only {fenced} forms of functions in {}", folder.display());
    }
}

#[test]
fn every_safety_comment_gives_its_own_reason() {
    // In pieces they would find themselves.
    let elsewhere = ["above", "below", "before", "in `", "of `"].map(|word| format!(": as {word}"));
    for file in crates().iter().flat_map(|folder| sources(folder)) {
        for (index, line) in read(&file).lines().enumerate() {
            let points =
                line.contains("SAFETY") && elsewhere.iter().any(|word| line.contains(word));
            assert!(!points, "{}:{}: say why, not where it is said", file.display(), index + 1);
        }
    }
}

#[test]
fn every_test_that_the_semantics_name_exists() {
    let text = read(&workspace().join("docs/semantics.md"));
    // Named in brackets and backquotes: (`a_test_name`).
    let named = text.split("(`").skip(1).filter_map(|rest| rest.split_once("`)"));
    let named: Vec<&str> = named.map(|(name, _)| name).collect();
    assert!(named.len() >= 5, "only {} examples in docs/semantics.md", named.len());
    let tests: String =
        crates().iter().flat_map(|folder| sources(folder)).map(|file| read(&file)).collect();
    for name in named {
        assert!(tests.contains(&format!("fn {name}()")), "docs/semantics.md names {name}");
    }
}

#[test]
fn every_design_note_has_a_number_of_its_own_and_stands_in_the_list() {
    let list = read(&workspace().join("docs/README.md"));
    let mut numbers = BTreeSet::new();
    for entry in fs::read_dir(workspace().join("docs/design")).expect("there are notes") {
        let name = entry.expect("a note").file_name().to_string_lossy().into_owned();
        let (number, _) = name.split_once('-').expect("a note's name begins with its number");
        assert!(numbers.insert(number.to_owned()), "two design notes have the number {number}");
        assert!(list.contains(&format!("(design/{name})")), "docs/README.md does not list {name}");
    }
}

pub(crate) fn workspace() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("crates/covey lies in the workspace").to_owned()
}

pub(crate) fn crates() -> Vec<PathBuf> {
    let parent = workspace().join("crates");
    let entries = fs::read_dir(&parent).expect("crates/ can be read");
    let folders = entries.map(|entry| entry.expect("an entry").path());
    let mut found: Vec<_> = folders.filter(|path| path.join("Cargo.toml").is_file()).collect();
    found.sort();
    assert!(found.len() >= 5, "only {} crates in {}", found.len(), parent.display());
    found
}

fn ruled() -> Vec<(PathBuf, &'static Rule)> {
    let rule = |name: &str| TABLE.iter().find(|rule| rule.name == name);
    crates()
        .into_iter()
        .filter_map(|folder| Some((folder.clone(), rule(&name_of(&folder))?)))
        .collect()
}

pub(crate) fn name_of(folder: &Path) -> String {
    folder.file_name().expect("a folder has a name").to_string_lossy().into_owned()
}

pub(crate) fn manifest(folder: &Path) -> toml::Table {
    let file = folder.join("Cargo.toml");
    read(&file).parse().unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Names of all crates it depends on: for use, for building, and for one platform only. What only its
/// tests use is no arrow.
fn dependencies(folder: &Path) -> BTreeSet<String> {
    let manifest = manifest(folder);
    let mut found = BTreeSet::new();
    collect(&manifest, &mut found);
    if let Some(targets) = manifest.get("target").and_then(|target| target.as_table()) {
        targets.values().filter_map(|one| one.as_table()).for_each(|one| collect(one, &mut found));
    }
    found
}

fn collect(table: &toml::Table, found: &mut BTreeSet<String>) {
    for section in ["dependencies", "build-dependencies"] {
        let Some(list) = table.get(section).and_then(|list| list.as_table()) else { continue };
        for (name, value) in list {
            // `short = { package = "covey-ninep" }` must not slip through.
            let package = value.get("package").and_then(|package| package.as_str());
            found.insert(package.unwrap_or(name).to_owned());
        }
    }
}

/// The folder of one of our own crates.
fn ours(package: &str) -> Option<String> {
    match package {
        "covey" => Some("covey".to_owned()),
        other => other.strip_prefix("covey-").map(str::to_owned),
    }
}

pub(crate) fn sources(folder: &Path) -> Vec<PathBuf> {
    files(folder, &["rs"])
}

/// Files with these extensions.
fn files(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(folder) else { return found };
    for path in entries.map(|entry| entry.expect("an entry").path()) {
        let extension = path.extension().and_then(|extension| extension.to_str());
        if path.is_dir() {
            found.extend(files(&path, extensions));
        } else if extension.is_some_and(|extension| extensions.contains(&extension)) {
            found.push(path);
        }
    }
    found
}

/// Lines that are not comments, numbered from 1, up to the unit tests at the bottom.
fn code(file: &Path) -> Vec<(usize, String)> {
    let text = read(file);
    let numbered = text.lines().enumerate().map(|(index, line)| (index + 1, line.to_owned()));
    let is_tests = file.file_name().is_some_and(|name| name == "tests.rs");
    numbered
        .take_while(|(_, line)| !is_tests && line.trim() != "#[cfg(test)]")
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
        .collect()
}

pub(crate) fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}
