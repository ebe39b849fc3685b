//! Names that talk to a terminal, and pipes that nobody reads.

use crate::support::{Cluster, covey, has_program, run, skip, until};
use std::ffi::OsStr;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

/// Sets a terminal's title, ends the line, and erases the screen.
const NAME: &[u8] = b"a\x1b]0;owned\x07\n\xc2\x9b2Jb";
const QUOTED: &str = r"a\033]0;owned\007\n\302\2332Jb'";

fn path(name: &[u8]) -> std::ffi::OsString {
    OsStr::from_bytes(&[b"/", name].concat()).to_owned()
}

/// What a command says on a terminal.
fn on_terminal(cluster: &Cluster, words: &str) -> String {
    piped_on_terminal(cluster, "", words)
}

/// The same with something before it in a line of the shell.
fn piped_on_terminal(cluster: &Cluster, before: &str, words: &str) -> String {
    let mut command = Command::new("script");
    let config = cluster.config();
    let program = env!("CARGO_BIN_EXE_covey");
    let line = format!("{before}{program} --config {} {words}", config.display());
    command.args(["-qec", &line, "/dev/null"]).current_dir("/");
    let done = run(command);
    assert!(done.ok, "{words}: {done}");
    done.stdout.replace("\r\n", "\n")
}

#[test]
fn a_name_reaches_a_terminal_quoted_and_a_pipe_as_it_is() {
    if !has_program("script") {
        return skip("needs script");
    }
    let cluster = Cluster::up(1);
    let on = |words: &[&str], name: &[u8]| {
        let mut command = covey();
        command.arg("--config").arg(cluster.config()).args(words).arg(path(name));
        run(command)
    };
    assert!(on(&["touch"], NAME).ok);
    let linked = on(&["ln", "-s", OsStr::from_bytes(b"to\x1b[2J").to_str().unwrap()], b"link");
    assert!(linked.ok, "{linked}");
    let socket = format!("unix!{}", cluster.socket("io1").display());
    for words in ["ls /", "ls -l /", "ls -R /", "du -a /", &format!("9p ls {socket} /fs")] {
        let said = on_terminal(&cluster, words);
        let is_harmless = |one: char| one == '\n' || one == '\t' || !one.is_control();
        assert!(said.contains(QUOTED) && said.contains("$'"), "{words}: {said:?}");
        assert!(said.chars().all(is_harmless), "{words}: {said:?}");
    }
    let listed = cluster.covey(&["ls", "/"]);
    assert!(listed.as_bytes().windows(NAME.len()).any(|part| part == NAME), "{listed:?}");
    let data: serde_json::Value =
        serde_json::from_str(&cluster.covey(&["--json", "ls", "/"])).expect("JSON");
    assert_eq!(data[0]["path"].as_str().map(str::as_bytes), Some(&[b"/", NAME].concat()[..]));
    // A message is one line, wherever it goes.
    let gone = [NAME, b"\nhint: run as root"].concat();
    for words in [&["rm"][..], &["ls"], &["cat"], &["stat"], &["mkdir", "-p", "/no/"]] {
        let said = on(words, &gone).stderr;
        let lines: Vec<&str> = said.lines().collect();
        assert!(!said.contains('\x1b') && !said.contains('\u{9b}'), "{words:?}: {said:?}");
        assert!(!lines.contains(&"hint: run as root"), "{words:?}: {said}");
    }
}

#[test]
fn a_bar_shows_a_share_only_of_a_total_that_is_known() {
    if !has_program("script") {
        return skip("needs script");
    }
    let cluster = Cluster::up(1);
    let said = piped_on_terminal(&cluster, "(sleep 1; echo all) | ", "cp - :/copy");
    let shares = ["0 B/0 B", "4 B/0 B", "4 B/4 B"];
    assert!(said.contains("4 B"), "{said:?}");
    assert!(shares.iter().all(|share| !said.contains(share)), "{said:?}");
}

/// How a command ends whose output nobody reads, and what it says on stderr.
fn unread(cluster: &Cluster, words: &[&str]) -> (Option<i32>, String) {
    let (ours, theirs) = UnixStream::pair().expect("a socket");
    drop(theirs);
    let mut command = covey();
    command.arg("--config").arg(cluster.config()).args(words);
    let stdout = Stdio::from(OwnedFd::from(ours));
    let done = command.stdin(Stdio::null()).stdout(stdout).stderr(Stdio::piped()).output();
    let done = done.expect("covey ends");
    (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
}

#[test]
fn a_pipe_that_nobody_reads_takes_no_exit_code_away() {
    let cluster = Cluster::up(2);
    let text = cluster.scratch("text");
    fs::write(&text, "x".repeat(1 << 20)).expect("written");
    cluster.covey(&["cp", text.to_str().expect("a plain name"), ":/text"]);
    let code = |words: &[&str]| unread(&cluster, words).0;
    assert_eq!(code(&["ls", "/"]), Some(0));
    assert_eq!(code(&["cat", "/text"]), Some(0));
    assert_eq!(code(&["stats", "--watch", "--interval", "0.1"]), Some(0), "it ends");
    assert_eq!(code(&["--json", "stats", "--watch", "--interval", "0.1"]), Some(0), "it ends");
    assert_eq!(code(&["ls", "/none", "/"]), Some(1));
    assert_eq!(code(&["cat", "/none", "/text"]), Some(1));
    assert_eq!(code(&["stat", "/none", "/text"]), Some(1));
    cluster.kill("io2");
    for words in [&["ping"][..], &["--json", "ping"], &["fsck"], &["--json", "fsck"]] {
        let (code, said) = unread(&cluster, words);
        assert_eq!(code, Some(1), "{words:?}: {said}");
    }
    let (code, said) = unread(&cluster, &["fsck"]);
    assert!(code == Some(1) && said.contains("not every I/O server answers"), "{said}");
}

#[test]
fn a_server_whose_output_nobody_reads_serves() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("file"), "text").expect("written");
    let socket = format!("unix!{}", dir.path().join("socket").display());
    let (ours, theirs) = UnixStream::pair().expect("a socket");
    drop(theirs);
    let mut export = covey();
    export.arg("export").arg(dir.path()).args(["--listen", &socket]);
    export.stdout(Stdio::from(OwnedFd::from(ours))).stdin(Stdio::null()).stderr(Stdio::null());
    let mut export = export.spawn().expect("it starts");
    let read = || {
        let mut cat = covey();
        cat.args(["9p", "cat", &socket, "/file"]);
        run(cat).stdout == "text"
    };
    until("the export", || read() || export.try_wait().expect("a child").is_some());
    let ended = export.try_wait().expect("a child");
    let _ = export.kill();
    let _ = export.wait();
    assert!(ended.is_none(), "it has ended: {ended:?}");
}
