//! The processes of this node, as XCPU lists them: one line of names, then one S-expression for each process.

use std::collections::HashMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// The file `procs` of a node whose sessions are below `sessions`. Other nodes on this machine list theirs.
pub(super) fn text(sessions: &Path) -> String {
    let mut text = format!("({})\n", FIELDS.join(" "));
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut numbers: Vec<u32> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    numbers.sort_unstable();
    for pid in numbers {
        if let Some(line) = line(pid, sessions) {
            text += &line;
        }
    }
    text
}

/// One process; none for one that is gone meanwhile.
fn line(pid: u32, sessions: &Path) -> Option<String> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let begin = stat.iter().position(|byte| *byte == b'(')?;
    let end = stat.windows(2).rposition(|two| two == b") ")?;
    let name = String::from_utf8_lossy(&stat[begin + 1..end]).into_owned();
    let rest = String::from_utf8_lossy(&stat[end + 2..]).into_owned();
    // From field 3 of proc_pid_stat(5) on.
    let field: Vec<&str> = rest.split_whitespace().collect();
    let at = |number: usize| field.get(number - 3).copied().unwrap_or("0");
    let milliseconds = |number: usize| at(number).parse::<u64>().unwrap_or(0) * 1000 / TICKS;
    let status = status(pid);
    let ids = |key: &str, which: usize| {
        let line = status.get(key).map_or("", String::as_str);
        line.split_whitespace().nth(which).unwrap_or("0").to_owned()
    };
    let bytes = |key: &str| {
        let kib = status.get(key).and_then(|line| line.split_whitespace().next()?.parse().ok());
        kib.unwrap_or(0u64) * 1024
    };
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let command = String::from_utf8_lossy(&command).trim_end_matches('\0').replace('\0', " ");
    let command = if command.is_empty() { format!("[{name}]") } else { command };
    let (session, job) = session_of(pid, sessions).unwrap_or_default();
    let mut out = format!("({pid} ({}) {}", quoted(&command), at(3));
    for number in [4, 5, 6, 7, 8] {
        let _ = write!(out, " {}", at(number));
    }
    for number in [14, 15, 22] {
        let _ = write!(out, " {}", milliseconds(number));
    }
    let _ = write!(out, " {} {} {}", at(18), at(19), at(35));
    for (key, which) in [("Uid", 1), ("Uid", 2), ("Uid", 3), ("Gid", 1), ("Gid", 2), ("Gid", 3)] {
        let _ = write!(out, " {}", ids(key, which));
    }
    for key in ["VmSize", "VmRSS", "RssShmem", "VmExe", "VmData"] {
        let _ = write!(out, " {}", bytes(key));
    }
    let _ = writeln!(out, " {} {} )", word(&session), word(&job));
    Some(out)
}

fn status(pid: u32) -> HashMap<String, String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.map(|(key, value)| (key.to_owned(), value.trim().to_owned())).collect()
}

/// The session and the job that a process belongs to, which all that came of a program inherit.
fn session_of(pid: u32, sessions: &Path) -> Option<(String, String)> {
    let env = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let value = |name: &[u8]| {
        let words = env.split(|byte| *byte == 0);
        let mut values = words.filter_map(|word| word.strip_prefix(name));
        values.next().map(|value| String::from_utf8_lossy(value).into_owned())
    };
    if !Path::new(&value(b"XCPUPATH=")?).starts_with(sessions) {
        return None;
    }
    Some((value(b"XCPUSID=")?, value(b"XCPUJID=").unwrap_or_default()))
}

/// Brackets in a command would end it early.
fn quoted(text: &str) -> String {
    let one_line = text.replace(char::is_control, " ");
    one_line.replace('\\', "\\\\").replace('(', "\\(").replace(')', "\\)")
}

fn word(text: &str) -> String {
    let is_plain = |c: char| !c.is_whitespace() && !"()".contains(c) && !c.is_control();
    if text.is_empty() {
        "-".to_owned()
    } else {
        text.chars().map(|c| if is_plain(c) { c } else { '_' }).collect()
    }
}

const FIELDS: [&str; 27] = [
    "pid", "cmdline", "state", "ppid", "pgrp", "psid", "tty", "tpgid", "utime", "stime", "etime",
    "priority", "nice", "wchan", "euid", "suid", "fsuid", "egid", "sgid", "fsgid", "vmsize",
    "rssize", "shsize", "txtsize", "datsize", "xcpusid", "xcpujid",
];
/// Clock ticks in a second: what Linux shows to programs on every architecture.
const TICKS: u64 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_listed_with_all_fields() {
        let text = text(Path::new("/"));
        let own = text.lines().find(|line| line.starts_with(&format!("({} (", std::process::id())));
        let own = own.expect("this process");
        let (_, after) = own.rsplit_once(") ").expect("the end of the command");
        let after = after.strip_suffix(" )").expect("the end of the list");
        assert_eq!(after.split_whitespace().count(), FIELDS.len() - 2, "{own}");
        assert!(text.starts_with("(pid cmdline state ppid "));
    }

    #[test]
    fn a_command_cannot_end_its_own_brackets() {
        assert_eq!(quoted("a (b) \\ c\nd"), "a \\(b\\) \\\\ c d");
        assert_eq!(word("job 1/(2)"), "job_1/_2_");
    }
}
