//! The text of a node's `procs`: a list of the fields' names, then one list for each process, in round brackets.

use std::collections::HashMap;

/// What is shown of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Whose it is.
    pub uid: u32,
    /// One letter, as in /proc.
    pub state: String,
    /// CPU time it has used, its own and the kernel's for it.
    pub cpu_ms: u64,
    /// The job's part it belongs to, `JOB/RANK`; empty is none.
    pub job: String,
    /// Its program and arguments.
    pub command: String,
}

impl Process {
    /// Whether it belongs to a job.
    pub fn is_of(&self, job: &str) -> bool {
        self.job.split('/').next() == Some(job)
    }

    /// For scripts.
    pub fn json(&self, node: &str) -> serde_json::Value {
        serde_json::json!({
            "node": node, "pid": self.pid, "uid": self.uid, "state": self.state,
            "cpu_ms": self.cpu_ms, "job": self.job, "command": self.command,
        })
    }
}

/// The processes in a text. What cannot be read is left out.
pub fn parse(text: &str) -> Vec<Process> {
    let mut lists = text.lines().map(words);
    let names: Vec<String> = lists.next().unwrap_or_default();
    lists
        .filter_map(|values| {
            let of: HashMap<&str, &str> =
                names.iter().map(String::as_str).zip(values.iter().map(String::as_str)).collect();
            let number = |name: &str| of.get(name).and_then(|value| value.parse::<u64>().ok());
            let text =
                |name: &str| of.get(name).map(|value| (*value).to_owned()).unwrap_or_default();
            Some(Process {
                pid: number("pid")? as u32,
                uid: number("euid").unwrap_or(0) as u32,
                state: text("state"),
                cpu_ms: number("utime").unwrap_or(0) + number("stime").unwrap_or(0),
                // Of no job.
                job: Some(text("xcpujid")).filter(|job| job != "-").unwrap_or_default(),
                command: text("cmdline"),
            })
        })
        .collect()
}

/// The words of one list; a list within is one word, its own words with blanks between.
fn words(line: &str) -> Vec<String> {
    let line = line.trim();
    let inner = line.strip_prefix('(').and_then(|line| line.strip_suffix(')')).unwrap_or(line);
    let (mut words, mut word, mut depth, mut is_quoted) = (Vec::new(), None::<String>, 0, false);
    let mut rest = inner.chars().peekable();
    while let Some(next) = rest.next() {
        match next {
            '\'' if is_quoted && rest.peek() == Some(&'\'') => {
                rest.next();
                word.get_or_insert_default().push('\'');
            }
            '\'' => {
                is_quoted = !is_quoted;
                word.get_or_insert_default();
            }
            '(' if !is_quoted => {
                depth += 1;
                word.get_or_insert_default();
            }
            ')' if !is_quoted => depth = (depth - 1).max(0),
            next if next.is_whitespace() && !is_quoted && depth == 0 => words.extend(word.take()),
            next => word.get_or_insert_default().push(next),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_found_by_the_names_of_the_first_list() {
        let text = "(pid cmdline state euid utime stime xcpusid xcpujid)\n\
                    (12 (sh -c 'echo it''s (1)') S 0 1500 500 3 j1/0)\n\
                    (13 () R 1000 0 0 - -)\nbroken\n";
        let found = parse(text);
        assert_eq!(found.len(), 2);
        let expected = Process {
            pid: 12,
            uid: 0,
            state: "S".into(),
            cpu_ms: 2000,
            job: "j1/0".into(),
            command: "sh -c echo it's (1)".into(),
        };
        assert_eq!(found[0], expected);
        assert!(found[0].is_of("j1") && !found[0].is_of("j") && !found[1].is_of("j1"));
        assert_eq!(
            (found[1].uid, found[1].job.as_str(), found[1].command.as_str()),
            (1000, "", "")
        );
    }
}
