//! A measuring program that runs, and the lines it writes to a file meanwhile.

use super::stop::{INTERRUPTED, Stop};
use crate::error::{Cannot, Result};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How often its file is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// The last line of a program that has measured everything; not all write one.
const DONE: &str = "end\n";
/// How long it may take to end when it is asked to, or has measured everything.
const GRACE: Duration = Duration::from_secs(4);

/// What it is given.
#[derive(Debug)]
pub struct Watched<'a> {
    /// Where it writes.
    pub records: &'a Path,
    /// Where its output goes: among its talk, or it is what it writes.
    pub output: &'a Path,
    /// Where its talk goes: its end explains a failure.
    pub talk: &'a Path,
    /// How long it may write nothing.
    pub silence: Duration,
    /// How long it may take altogether.
    pub limit: Duration,
}

/// Runs a program to its end. `take` is given what is new in its file and says how much of it was used. Answers why
/// it failed, if it did.
pub fn run(
    mut command: Command,
    watched: &Watched<'_>,
    stop: &Stop,
    mut take: impl FnMut(&str) -> std::result::Result<usize, String>,
) -> Result<Option<String>> {
    let name = command.get_program().to_string_lossy().into_owned();
    let talk = File::create(watched.talk).cannot(|| format!("write {}", watched.talk.display()))?;
    let output = if watched.output == watched.talk {
        talk.try_clone().cannot(|| format!("write {}", watched.talk.display()))?
    } else {
        File::create(watched.output).cannot(|| format!("write {}", watched.output.display()))?
    };
    command.stdin(Stdio::null()).stdout(output).stderr(talk);
    let child = command.spawn().cannot(|| format!("run {name}"))?;
    let mut child = Running(child);
    let mut file = Tail { offset: 0, rest: String::new() };
    let (begin, mut last) = (Instant::now(), Instant::now());
    let mut done: Option<Instant> = None;
    loop {
        let status = child.0.try_wait().cannot(|| format!("wait for {name}"))?;
        if file.more(watched.records) {
            last = Instant::now();
            if file.is_done() {
                done = Some(last);
            }
            match take(&file.rest) {
                Ok(used) => drop(file.rest.drain(..used)),
                Err(why) => return Ok(Some(why)),
            }
        }
        if let Some(status) = status {
            return Ok(ended(status, watched.talk));
        }
        // MPICH over UCX does not always come back from MPI_Finalize.
        if done.is_some_and(|done| done.elapsed() > GRACE) {
            return Ok(None);
        }
        if stop.is_asked() {
            return Ok(Some(INTERRUPTED.to_string()));
        }
        if last.elapsed() > watched.silence {
            let seconds = watched.silence.as_secs();
            return Ok(Some(format!("nothing came back within {seconds} s")));
        }
        if begin.elapsed() > watched.limit {
            return Ok(Some(format!("it took longer than {} s", watched.limit.as_secs())));
        }
        std::thread::sleep(LOOK);
    }
}

fn ended(status: ExitStatus, talk: &Path) -> Option<String> {
    if status.success() {
        return None;
    }
    let said = std::fs::read(talk).unwrap_or_default();
    Some(match complaint(&String::from_utf8_lossy(&said)) {
        Some(line) => line,
        None => format!("the program ended with {status}"),
    })
}

/// The line that says most of what launchers of parallel programs say when one goes wrong.
fn complaint(said: &str) -> Option<String> {
    let telling = ["exited on signal", "KILLED", "rror", "cannot", "exited with", "lost", "not "];
    let lines = || {
        let lines = said.lines().map(|line| line.trim_matches([' ', '=', '-', '|', '\t']));
        lines.filter(|line| !line.is_empty())
    };
    let find = |word: &&str| lines().find(|line| line.contains(*word));
    let line = telling.iter().find_map(find).or_else(|| lines().next_back())?;
    let mut line: String = line.chars().take(200).collect();
    if line.ends_with('.') {
        line.pop();
    }
    Some(line)
}

/// A file that grows.
struct Tail {
    offset: u64,
    rest: String,
}

impl Tail {
    /// Reads what is new; whether there is anything.
    fn more(&mut self, path: &Path) -> bool {
        let Ok(mut file) = File::open(path) else { return false };
        let mut bytes = Vec::new();
        let read =
            file.seek(SeekFrom::Start(self.offset)).and_then(|_| file.read_to_end(&mut bytes));
        if read.is_err() || bytes.is_empty() {
            return false;
        }
        self.offset += bytes.len() as u64;
        self.rest.push_str(&String::from_utf8_lossy(&bytes));
        true
    }

    /// Takes the last line away, if that is what came.
    fn is_done(&mut self) -> bool {
        let is_done = self.rest == DONE || self.rest.ends_with(&format!("\n{DONE}"));
        if is_done {
            self.rest.truncate(self.rest.len() - DONE.len());
        }
        is_done
    }
}

/// Ends with its owner: asked first, so that a launcher can end what it has started elsewhere.
pub(super) struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        if !matches!(self.0.try_wait(), Ok(None)) {
            return;
        }
        if let Some(pid) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let begin = Instant::now();
        while begin.elapsed() < GRACE {
            if !matches!(self.0.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(LOOK / 5);
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn shell(text: &str) -> (Option<String>, String) {
        watch(text, Duration::from_secs(20), &Stop::default())
    }

    fn watch(text: &str, silence: Duration, stop: &Stop) -> (Option<String>, String) {
        let scratch = Scratch::new().unwrap();
        let (records, talk) = (scratch.file("records"), scratch.file("talk"));
        let mut command = Command::new("/bin/sh");
        command.args(["-c", text, "sh"]).arg(&records);
        let limit = Duration::from_secs(60);
        let watched = Watched { records: &records, output: &talk, talk: &talk, silence, limit };
        let mut all = String::new();
        let failure = run(command, &watched, stop, |new| {
            let used = new.rfind('\n').map_or(0, |end| end + 1);
            all.push_str(&new[..used]);
            Ok(used)
        });
        (failure.unwrap(), all)
    }

    #[test]
    fn lines_are_taken_as_they_come_and_nothing_is_lost_at_the_end() {
        let text = "printf 'one\\ntw' > $1; sleep 0.3; printf 'o\\nthree\\n' >> $1";
        assert_eq!(shell(text), (None, "one\ntwo\nthree\n".to_string()));
    }

    #[test]
    fn one_that_has_measured_everything_and_does_not_end_has_not_failed() {
        let text = "printf '1\\n2\\nend\\n' > $1; exec sleep 1000";
        assert_eq!(shell(text), (None, "1\n2\n".to_string()));
    }

    #[test]
    fn a_failure_is_explained_by_what_was_said() {
        let text = "echo 1 > $1; echo '====='; echo '=   cannot find the other one'; exit 3";
        let (failure, all) = shell(text);
        assert_eq!(failure.unwrap(), "cannot find the other one");
        assert_eq!(all, "1\n");
        assert!(shell("exit 3").0.unwrap().contains("3"));
    }

    #[test]
    fn one_that_is_silent_or_unwanted_is_ended() {
        let (failure, _) = watch("exec sleep 1000", Duration::from_millis(50), &Stop::default());
        assert!(failure.unwrap().contains("nothing came back"));
        let stop = Stop::default();
        stop.ask();
        let (failure, _) = watch("exec sleep 1000", Duration::from_secs(50), &stop);
        assert_eq!(failure.unwrap(), INTERRUPTED);
    }
}
