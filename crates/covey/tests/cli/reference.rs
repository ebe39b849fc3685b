//! The whole command line as one reviewed file, and what a wrong command is told.
//!
//! `COVEY_UPDATE=1 cargo test -p covey --test cli_reference` writes the file anew.

use crate::home::Home;
use std::path::Path;

/// The help of a command and of all its subcommands.
fn reference(home: &Home, words: &[&str], out: &mut String) {
    let help = home.run(words.iter().chain(&["--help"])).ok().stdout;
    let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
    out.push_str(&format!("## covey {}\n\n{}\n\n", words.join(" "), lines.join("\n").trim_end()));
    let mut is_list = false;
    for line in lines {
        is_list = if line.ends_with(':') { line == "Commands:" } else { is_list };
        let name = line.split_whitespace().next().unwrap_or_default();
        let is_entry = line.starts_with("  ") && !line.starts_with("   ") && name != "help";
        if is_list && is_entry {
            reference(home, &[words, &[name]].concat(), out);
        }
    }
}

#[test]
fn the_command_line_is_as_the_reviewed_file_says() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli-reference.txt");
    let mut now = String::new();
    reference(&Home::new(), &[], &mut now);
    if std::env::var_os("COVEY_UPDATE").is_some() {
        std::fs::write(&file, &now).unwrap();
    }
    let reviewed = std::fs::read_to_string(&file).unwrap_or_default();
    for (index, (is, was)) in now.lines().zip(reviewed.lines()).enumerate() {
        assert_eq!(
            is,
            was,
            "line {} of cli-reference.txt; COVEY_UPDATE=1 writes it anew",
            index + 1
        );
    }
    assert_eq!(
        now.lines().count(),
        reviewed.lines().count(),
        "COVEY_UPDATE=1 writes cli-reference.txt anew"
    );
}

#[test]
fn flags_and_values_with_one_meaning_have_one_name() {
    let mut reviewed = String::new();
    reference(&Home::new(), &[], &mut reviewed);
    let flags = [
        ("--node", &["NODE"][..]),
        ("--lab", &["LAB"]),
        ("--config", &["FILE"]),
        ("--budget", &["SECONDS"]),
        ("--consistency", &["MODE"]),
        // Numbers only; names as well; 9P's own form.
        ("--listen", &["ADDRESS:PORT", "HOST:PORT", "ADDR"]),
    ];
    for part in reviewed.split("## covey ").skip(1) {
        let command = part.lines().next().unwrap_or_default();
        for line in part.lines().map(str::trim_start).filter(|line| line.contains("--")) {
            let mut words = line.split_whitespace();
            let Some(flag) = words.find(|word| word.starts_with("--")) else { continue };
            let Some(value) = words.next().and_then(|word| word.strip_prefix('<')) else {
                continue;
            };
            let value = value.trim_end_matches('>');
            if let Some((_, names)) = flags.iter().find(|(name, _)| *name == flag) {
                assert!(names.contains(&value), "covey {command}: {flag} <{value}>");
            }
            let is_lab = command.starts_with("lab") && flag == "--name";
            assert!(!is_lab && value != "LAB" || flag == "--lab", "covey {command}: {line}");
        }
    }
}

#[test]
fn every_command_has_a_help_with_examples() {
    let mut reviewed = String::new();
    reference(&Home::new(), &[], &mut reviewed);
    for part in reviewed.split("## covey ").skip(2) {
        let name = part.lines().next().unwrap_or_default();
        // Subcommands of a command share the examples of that one.
        assert!(name.contains(' ') || part.contains("EXAMPLES"), "{name} has no examples");
    }
}

#[test]
fn a_wrong_command_is_told_with_a_hint_and_code_2() {
    let home = Home::new();
    let message = "cannot understand the command: unrecognized subcommand 'pign'";
    home.run(["pign"]).fails(2, message, "ping");
    let message = "cannot guess what to do: a command is missing";
    home.run(["-v"]).fails(2, message, "covey help");
    let message = "cannot understand the command: unexpected argument '--fast' found";
    home.run(["ping", "--fast"]).fails(2, message, "--help");
}

#[test]
fn covey_alone_shows_what_there_is() {
    let done = Home::new().run::<&str>([]);
    assert_eq!(
        (done.code, done.stdout.as_str()),
        (2, ""),
        "a script is told that it asked for nothing"
    );
    assert!(done.stderr.contains("\nCommands:\n  up "), "{done:?}");
}

#[test]
fn a_wrong_command_is_json_when_asked_for() {
    let done = Home::new().run(["--json", "pign"]);
    let error: serde_json::Value = serde_json::from_str(&done.stderr).unwrap();
    assert_eq!((done.code, error["error"]["kind"].as_str()), (2, Some("user")));
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    use std::io::Read;
    let home = Home::new();
    let mut child = crate::home::command(&home.path(""))
        .args(["completions", "zsh"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((child.wait().unwrap().code(), said.as_str()), (Some(0), ""));
}
