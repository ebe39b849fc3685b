//! Starting our own program in the background, and hearing why it ended if it did.

use super::{Process, make_dir};
use crate::error::{Cannot, Error, Result};
use crate::output::unstamped;
use covey_lab::enter::Way;
use rustix::fs::FileType;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A log that is larger than this, in bytes, is put aside: at a start, and while its process runs.
const LOG_BYTES_MAX: u64 = 8 << 20;
/// How often a process looks at its own.
const LOOK_PAUSE: Duration = Duration::from_secs(10);
/// How much of a log is shown after a failure.
const TAIL_LINES: usize = 12;
const TAIL_BYTES: u64 = 8 << 10;

/// A process we started.
#[derive(Debug)]
pub struct Daemon {
    /// How to name it later.
    pub process: Process,
    child: Child,
    log: PathBuf,
    log_from: u64,
}

/// Starts `covey ARGUMENTS` with its output in `log`, on a node of a lab if `place` is the way to one.
/// The arguments must lead to [`detach`].
pub fn spawn(arguments: &[OsString], log: &Path, place: Option<Way>) -> Result<Daemon> {
    let what = || format!("start `covey {}`", arguments[0].to_string_lossy());
    make_dir(log.parent().unwrap_or(Path::new("/")), 0o700)?;
    put_aside(log);
    // What root says is not written to where a link leads that another user has put there.
    let flags = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    let file = File::options().create(true).append(true).custom_flags(flags).open(log);
    let file = file.cannot(|| format!("open {}", log.display())).map_err(|error| {
        error.hint("a log is a file: where it is a link, remove that; mounts and volumes can stay in the foreground")
    })?;
    let log_from = file.metadata().map_or(0, |meta| meta.len());
    let again = file.try_clone().cannot(what)?;
    let mut command = Command::new(std::env::current_exe().cannot(what)?);
    command.args(arguments).stdin(Stdio::null()).stdout(file).stderr(again).current_dir("/");
    if let Some(place) = place {
        place.prepare(&mut command);
    }
    let mut child = command.spawn().cannot(what)?;
    let Some(process) = Process::now(child.id()) else {
        let _ = child.kill();
        return Err(Error::work(format!("cannot {}: /proc is not mounted", what()))
            .hint("mount proc at /proc: processes are told apart by it"));
    };
    Ok(Daemon { process, child, log: log.to_path_buf(), log_from })
}

/// Leaves the terminal's session: called first thing by a program that [`spawn`] started. What it says in years does not fill
/// the disk: its log is put aside as it grows.
pub fn detach() {
    crate::output::becomes_log();
    // Fails only for the leader of a process group, which has been detached by someone else.
    let _ = rustix::process::setsid();
    tokio::task::spawn_local(async {
        loop {
            tokio::time::sleep(LOOK_PAUSE).await;
            // Told nowhere: there is only the log, which goes on as it is.
            let _ = put_own_aside();
        }
    });
}

fn put_aside(log: &Path) {
    if std::fs::metadata(log).is_ok_and(|meta| meta.len() > LOG_BYTES_MAX) {
        let _ = std::fs::rename(log, aside(log));
    }
}

fn aside(log: &Path) -> PathBuf {
    log.with_extension("log.1")
}

/// Begins a new log in the place of this process's own, if that is a file which has its name still and is too large.
fn put_own_aside() -> std::io::Result<()> {
    let own = rustix::fs::fstat(rustix::stdio::stderr())?;
    if !FileType::from_raw_mode(own.st_mode).is_file() || own.st_size as u64 <= LOG_BYTES_MAX {
        return Ok(());
    }
    let log = std::fs::read_link("/proc/self/fd/2")?;
    let there = log.symlink_metadata()?;
    if (there.dev(), there.ino()) != (own.st_dev, own.st_ino) {
        return Ok(());
    }
    std::fs::rename(&log, aside(&log))?;
    let new = File::options().create_new(true).append(true).mode(there.mode() & 0o777).open(&log);
    let new = new.inspect_err(|_| {
        let _ = std::fs::rename(aside(&log), &log);
    })?;
    rustix::stdio::dup2_stdout(&new)?;
    Ok(rustix::stdio::dup2_stderr(&new)?)
}

impl Daemon {
    /// How it ended, if it did.
    pub fn ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok().flatten()?;
        Some(match status.code() {
            Some(code) => format!("it ended with code {code}"),
            None => format!("it was ended by {status}"),
        })
    }

    /// What it said since it was started.
    pub fn tail(&self) -> String {
        log_tail(&self.log, self.log_from)
    }

    /// The error that it has told in the form of all commands, with its hints; else an error of these words.
    pub fn told(&self, else_what: impl FnOnce() -> String) -> Error {
        let tail = self.tail();
        let lines = || tail.lines().map(unstamped);
        let told = lines().filter_map(|line| line.strip_prefix("covey: ")).next_back();
        let hints = lines().filter_map(|line| line.strip_prefix("hint: "));
        let message = told.map_or_else(else_what, str::to_owned);
        hints.fold(Error::work(message), |error, hint| error.hint(hint))
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The last lines of a log from a position on.
pub fn log_tail(log: &Path, from: u64) -> String {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(log)?;
        let end = file.metadata()?.len();
        file.seek(SeekFrom::Start(from.max(end.saturating_sub(TAIL_BYTES))))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let text = read().unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_says_goes_through_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let (log, other) = (dir.path().join("a.log"), dir.path().join("other"));
        std::fs::write(&other, "another file\n").unwrap();
        std::os::unix::fs::symlink(&other, &log).unwrap();
        let refused = spawn(&["version".into()], &log, None).unwrap_err();
        assert!(refused.message.contains("cannot open"), "{}", refused.message);
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "another file\n");
    }

    #[test]
    fn the_tail_is_the_last_lines_after_the_start() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("a.log");
        std::fs::write(&log, "old\nnew 1\nnew 2\n").unwrap();
        assert_eq!(log_tail(&log, 4), "new 1\nnew 2");
        assert_eq!(log_tail(&dir.path().join("none"), 0), "");
        std::fs::write(&log, "x\n".repeat(100)).unwrap();
        assert_eq!(log_tail(&log, 0).lines().count(), TAIL_LINES);
    }
}
