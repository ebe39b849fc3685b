//! Debian's iscsi-test-cu, all 230 tests, against volumes of every kind. It ends with 0 whatever it found, so its lines are
//! counted.

use crate::initiator::{export, free_address, has_libiscsi, libiscsi};
use crate::support::Cluster;
use std::fmt::Write;
use std::time::Duration;

/// How many tests the suite has.
const TESTS: usize = 230;
/// How many of them may find that what they are about is not there.
const SKIPPED_MAX: usize = 20;
/// How long all of them may take on a machine that is busy.
const LIMIT: Duration = Duration::from_secs(200);

/// What was found of one test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Passed,
    Failed,
    Skipped,
    /// It has begun and nobody has heard of its end.
    Unknown,
}

/// What the suite's lines say of each test, as `SUITE.TEST`, with its lines. Before the first suite it only looks at the unit.
fn results(text: &str) -> Vec<(String, Found, String)> {
    let mut all: Vec<(String, Found, String)> = Vec::new();
    let mut suite = "";
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("Suite: ") {
            suite = name.trim();
            continue;
        }
        if let Some(rest) = line.trim_start().strip_prefix("Test: ").filter(|_| !suite.is_empty()) {
            let name = rest.split_whitespace().next().unwrap_or_default();
            all.push((format!("{suite}.{name}"), Found::Unknown, String::new()));
        }
        if let Some((_, found, lines)) = all.last_mut() {
            *found = verdict(line, *found);
            let _ = writeln!(lines, "{line}");
        }
    }
    all
}

/// CUnit says `passed` or `FAILED` at the end of a line; what stands in brackets are the test's own words.
fn verdict(line: &str, before: Found) -> Found {
    let line = line.trim_end();
    match before {
        _ if line.ends_with("FAILED") && !line.ends_with("[FAILED]") => Found::Failed,
        Found::Unknown if line.contains("[SKIPPED]") => Found::Skipped,
        Found::Unknown if line.ends_with("passed") => Found::Passed,
        // The next suite's connection may talk on the same line.
        Found::Unknown if line.contains("...passed") => Found::Passed,
        Found::Unknown if line.contains("...FAILED") => Found::Failed,
        other => other,
    }
}

#[track_caller]
fn check(all: &[(String, Found, String)]) {
    let of = |wanted: Found| -> Vec<&(String, Found, String)> {
        all.iter().filter(|(_, found, _)| *found == wanted).collect()
    };
    let names = |found| of(found).iter().map(|one| one.0.clone()).collect::<Vec<_>>().join(" ");
    let wrong: String = [Found::Failed, Found::Unknown]
        .iter()
        .flat_map(|found| of(*found))
        .map(|one| one.2.as_str())
        .collect();
    assert!(wrong.is_empty(), "of {} tests these went wrong:\n{wrong}", all.len());
    assert_eq!(all.len(), TESTS, "tests were left out");
    let skipped = of(Found::Skipped).len();
    assert!(skipped <= SKIPPED_MAX, "{skipped} skipped: {}", names(Found::Skipped));
    println!("{} passed, {skipped} skipped: {}", of(Found::Passed).len(), names(Found::Skipped));
}

/// Every test once, each in a place where it finds what it is about: MultipathIO with two paths, SANITIZE where it is allowed,
/// ReadOnly on a volume that nobody may write, everything else on one that can be ejected. Sanitize.Reset is left in the run
/// that does not allow it: it wants to see a unit that takes seconds.
fn suite(create: &[&str], left_out: &str) {
    if !has_libiscsi() {
        return;
    }
    let cluster = Cluster::up(2);
    let make = |name: &str, more: &[&str]| {
        let file = cluster.scratch(&format!("{name}.img"));
        let file = file.to_str().expect("scratch directories have plain names");
        let create: Vec<&str> =
            create.iter().map(|word| if *word == "FILE" { file } else { word }).collect();
        let begin = ["volume", "create", name, "--size", "64M"];
        cluster.covey(&[&begin, &create[..], more].concat());
    };
    make("disk", &["--removable"]);
    make("fixed", &["--read-only"]);
    let (one, two) = (free_address(), free_address());
    let paths = [export(&cluster, "disk", &one), export(&cluster, "disk", &two)];
    let fixed = export(&cluster, "fixed", &one);
    let mut all = run(&["-t", "ALL", &paths[0]]);
    let mut again = run(&["-t", "ALL.MultipathIO", &paths[0], &paths[1]]);
    again.extend(run(&["-t", "ALL.ReadOnly", &fixed]));
    for test in SANITIZE {
        again.extend(run(&["--allow-sanitize", "-t", &format!("ALL.Sanitize.{test}"), &paths[0]]));
    }
    for one in again {
        let same = all.iter_mut().find(|other| other.0 == one.0);
        *same.expect("it was there in the run of all") = one;
    }
    // What is left out is counted as skipped.
    let of_tool =
        |one: &&mut (String, Found, String)| !left_out.is_empty() && one.0.starts_with(left_out);
    all.iter_mut().filter(of_tool).for_each(|one| one.1 = Found::Skipped);
    check(&all);
}

fn run(arguments: &[&str]) -> Vec<(String, Found, String)> {
    let arguments = [&["--dataloss", "-v"], arguments].concat();
    results(&libiscsi("iscsi-test-cu", &arguments, LIMIT).stdout)
}

/// All of that suite but Reset.
const SANITIZE: [&str; 10] = [
    "BlockErase",
    "BlockEraseReserved",
    "CryptoErase",
    "CryptoEraseReserved",
    "ExitFailureMode",
    "InvalidServiceAction",
    "Overwrite",
    "OverwriteReserved",
    "Readonly",
    "Reservations",
];

#[test]
fn a_volume_in_a_file_passes() {
    suite(&["--file", "FILE"], "");
}

#[test]
fn a_striped_volume_passes() {
    suite(&[], "");
}

/// With larger blocks the tests of what a reservation lets through do not know how large a block is: they write 512 bytes.
#[test]
fn a_volume_with_large_blocks_passes() {
    suite(&["--block", "4096", "--file", "FILE"], "ProutReserve.Access");
}

#[test]
fn lines_are_counted_as_they_are_meant() {
    let text = "[SKIPPED] before\n\nSuite: A\n  Test: One ...passed\n  Test: Two ...\n    [SKIPPED] not here\npassed\n\
        Suite: B\n  Test: One ...FAILED\n    1. x.c:3\n  Test: Three ...";
    let found: Vec<_> = results(text).into_iter().map(|(name, found, _)| (name, found)).collect();
    let expected = [
        ("A.One", Found::Passed),
        ("A.Two", Found::Skipped),
        ("B.One", Found::Failed),
        ("B.Three", Found::Unknown),
    ];
    assert_eq!(found, expected.map(|(name, found)| (name.to_owned(), found)));
}
