//! What the manual and the README say to type, typed: blocks behind a line `<!-- run -->` work as pasted, one after the other
//! in one shell. Behind `<!-- run: fuse -->` they need a mount.
//!
//! Root's cluster lives in /var/lib/covey; for these tests that, and /mnt, are in memory and seen by nobody else.

use crate::home::Home;
use crate::layers::{read, workspace};
use crate::support::{Finished, has_program, is_root, no_fuse, run, skip};
use std::os::unix::fs::symlink;
use std::process::Command;

const RUN: &str = "<!-- run -->";
const RUN_FUSE: &str = "<!-- run: fuse -->";

#[test]
fn installing_is_checked_as_pasted() {
    recipe("docs/manual/install.md", "");
}

#[test]
fn one_machine_works_as_pasted() {
    recipe("docs/manual/one-machine.md", "");
}

#[test]
fn files_without_a_mount_work_as_pasted() {
    let before =
        "covey up -n 2; mkdir results; echo text >results/README; covey cp -r results :/doc";
    recipe("docs/manual/files-without-a-mount.md", before);
}

#[test]
fn layouts_work_as_pasted() {
    recipe("docs/manual/layouts.md", "covey up; covey mkdir /results /logs");
}

#[test]
fn checking_works_as_pasted() {
    recipe("docs/manual/checking.md", "covey up -n 2; echo text >f; covey cp f :/f");
}

#[test]
fn watching_works_as_pasted() {
    recipe("docs/manual/watching.md", "covey up -n 2; echo text >f; covey cp f :/f");
}

#[test]
fn a_client_of_9p_works_as_pasted() {
    let address = "tcp!127.0.0.1!5640";
    let before = format!(
        "mkdir data; echo text >data/file; chmod 666 data/file\n\
         covey export data >/dev/null 2>&1 &\ntrap \"kill $!\" EXIT\n\
         for i in $(seq 100); do covey 9p ls '{address}' / >/dev/null 2>&1 && break; sleep 0.1; done"
    );
    recipe("docs/manual/9p.md", &before);
}

#[test]
fn quotas_work_as_pasted() {
    // A user and a group of these names, for this shell alone.
    let before = "(cat /etc/passwd; echo alice:x:61001:61001::/:/bin/sh) >users\n\
         (cat /etc/group; echo students:x:61002:) >groups\n\
         mount --bind users /etc/passwd; mount --bind groups /etc/group; covey up -n 1";
    recipe("docs/manual/quotas.md", before);
}

#[test]
fn a_takeover_works_as_pasted() {
    recipe("docs/manual/upgrading.md", "covey up -n 1 --mount /mnt/covey");
}

#[test]
fn the_session_of_the_readme_works_as_pasted() {
    recipe("README.md", "");
}

/// Types a page's blocks, after some preparation.
fn recipe(page: &str, before: &str) {
    let text = read(&workspace().join(page));
    let needs_fuse = text.contains(RUN_FUSE);
    if let Some(why) = no_fuse().filter(|_| needs_fuse) {
        return skip(why);
    }
    if !is_root() || !has_program("unshare") {
        return skip("needs root and unshare, so that root's own cluster is not met");
    }
    let typed = typed(&text);
    assert!(!typed.is_empty(), "{page} has no block to run");
    let script = format!(
        "set -eu\ntrap 'covey down >/dev/null 2>&1 || true' EXIT\nexec </dev/null\n{before}\n{}",
        typed.join("\n")
    );
    let done = in_a_shell(&script);
    assert!(done.ok, "{page}:\n{script}\n{done}");
}

fn in_a_shell(script: &str) -> Finished {
    let home = Home::new();
    std::fs::create_dir(home.path("bin")).unwrap();
    symlink(env!("CARGO_BIN_EXE_covey"), home.path("bin/covey")).unwrap();
    let apart = "mount -t tmpfs none /var/lib && mount -t tmpfs none /mnt && exec bash -c \"$0\"";
    let mut shell = Command::new("unshare");
    shell.args(["--mount", "--propagation", "private", "sh", "-c", apart]);
    let path = format!("{}:{}", home.path("bin").display(), std::env::var("PATH").unwrap());
    shell.arg(script).env("HOME", home.path("")).env("PATH", path).env("USER", "me");
    for variable in ["COVEY_CONFIG", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"] {
        shell.env_remove(variable);
    }
    shell.current_dir(home.path(""));
    run(shell)
}

/// The command lines of the blocks that are marked.
fn typed(text: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if ![RUN, RUN_FUSE].contains(&line) {
            continue;
        }
        while lines.next_if(|line| line.is_empty()).is_some() {}
        let mut block = Vec::new();
        if lines.next_if(|line| line.starts_with("```")).is_some() {
            block.extend(lines.by_ref().take_while(|line| *line != "```"));
        } else {
            while let Some(line) = lines.next_if(|line| line.starts_with("    ") || line.is_empty())
            {
                block.push(line.strip_prefix("    ").unwrap_or(line));
            }
        }
        assert!(!block.is_empty(), "a marked block has no lines");
        all.extend(if block.iter().any(|line| line.starts_with("$ ")) {
            session(&block)
        } else {
            block.into_iter().map(until_interrupted).collect()
        });
    }
    all
}

/// A line as it is, of what goes on until Ctrl-C its first seconds.
fn until_interrupted(line: &str) -> String {
    let goes_on = ["--watch", "covey dash", "--listen"].iter().any(|word| line.contains(word));
    let command = line.split(" #").next().unwrap_or(line).trim_end();
    if goes_on { format!("timeout -s INT 5 {command} || [ $? = 124 ]") } else { line.to_owned() }
}

/// The commands of a session, which are shown with their output. One that is shown to fail must fail.
fn session(block: &[&str]) -> Vec<String> {
    let mut all = Vec::new();
    let mut lines = block.iter().peekable();
    while let Some(line) = lines.next() {
        let Some(command) = line.strip_prefix("$ ") else { continue };
        let output = std::iter::from_fn(|| lines.next_if(|line| !line.starts_with("$ ")));
        let fails = output.into_iter().any(|line| line.ends_with(" error"));
        // Whose number is not known before.
        let command = match command.split_once(" # io3 dies") {
            Some(_) => {
                "kill -9 $(covey --json status | tr -d ' \\n' | grep -o '\"node\":\"io3\"[^}]*' | \
                grep -o '\"pid\":[0-9]*' | cut -d : -f 2)"
                    .to_owned()
            }
            None => command.to_owned(),
        };
        all.push(if fails { format!("if {command}; then exit 9; fi") } else { command });
    }
    all
}

#[test]
fn a_marked_block_is_typed_and_others_are_not() {
    let page = "text\n\n    not this\n\n<!-- run -->\n\n    a b\n    c\n\ntext\n<!-- run: fuse -->\n```console\n\
        $ one\noutput\n$ two\ncat: error\n$ three\ncat: an error\n```\n    nor this\n";
    let typed = typed(page);
    let typed: Vec<&str> =
        typed.iter().map(String::as_str).filter(|line| !line.is_empty()).collect();
    assert_eq!(typed, ["a b", "c", "one", "if two; then exit 9; fi", "if three; then exit 9; fi"]);
}
