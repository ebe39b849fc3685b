//! A process that can be named again later without mistaking another for it.

use procfs_core::FromRead;
use procfs_core::process::Stat;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// A process by number, start time and boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Clock ticks from boot to its start, as /proc/PID/stat has it.
    started: u64,
    /// Which boot.
    boot: String,
    /// What else the pid file says: a mount's directory.
    pub note: String,
}

impl Process {
    /// The process that has this number now.
    pub fn now(pid: u32) -> Option<Process> {
        let started = stat(pid)?.starttime;
        Some(Process { pid, started, boot: boot_id(), note: String::new() })
    }

    /// What a pid file says. A file that is torn or missing says nothing.
    pub fn read(file: &Path) -> Option<Process> {
        let text = std::fs::read_to_string(file).ok()?;
        let (first, note) = text.split_once('\n')?;
        let mut words = first.split(' ');
        let pid = words.next()?.parse().ok()?;
        let started = words.next()?.parse().ok()?;
        let boot = words.next()?.to_string();
        Some(Process { pid, started, boot, note: note.trim_end_matches('\n').to_string() })
    }

    /// Writes the pid file in one step. Links that somebody has put in its place are not followed.
    pub fn write(&self, file: &Path) -> io::Result<()> {
        let text = format!("{} {} {}\n{}\n", self.pid, self.started, self.boot, self.note);
        let new = file.with_extension("pid.new");
        // Left by one that was killed.
        let _ = std::fs::remove_file(&new);
        let made = std::fs::File::options().write(true).create_new(true).open(&new);
        let written = made
            .and_then(|made| made.write_all_at(text.as_bytes(), 0))
            .and_then(|()| std::fs::rename(&new, file));
        if written.is_err() {
            let _ = std::fs::remove_file(&new);
        }
        match written {
            // Where the disk is full there is the room of the one before.
            Err(error) if error.kind() == io::ErrorKind::StorageFull && file.exists() => {
                let old = std::fs::File::options()
                    .write(true)
                    .custom_flags(libc::O_NOFOLLOW)
                    .open(file)?;
                old.write_all_at(text.as_bytes(), 0)?;
                old.set_len(text.len() as u64)
            }
            written => written,
        }
    }

    /// Whether that very process still runs. One that has ended and was not yet waited for does
    /// not; one whose first thread has ended does, until the others have, too: they hold files and sockets.
    pub fn is_alive(&self) -> bool {
        let has_ended = |now: &Stat| matches!(now.state, 'Z' | 'X') && now.num_threads <= 1;
        let runs = |now: Stat| now.starttime == self.started && !has_ended(&now);
        stat(self.pid).is_some_and(runs) && self.boot == boot_id()
    }

    /// Sends a signal to that very process: the descriptor is taken before the check.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else { return Ok(()) };
        let Ok(descriptor) = pidfd_open(pid, PidfdFlags::empty()) else { return Ok(()) };
        if !self.is_alive() {
            return Ok(());
        }
        match pidfd_send_signal(&descriptor, signal) {
            Err(rustix::io::Errno::SRCH) => Ok(()),
            other => Ok(other?),
        }
    }

    /// Waits for its end; false when `limit` passed first.
    pub async fn wait(&self, limit: Duration) -> bool {
        let begin = Instant::now();
        while self.is_alive() {
            if begin.elapsed() > limit {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        true
    }
}

/// Copies memory of a process from `address` on, and answers how many bytes it has there: `into` is full, or
/// what follows is not mapped.
pub fn read_memory(pid: i32, address: u64, into: &mut [u8]) -> io::Result<usize> {
    let ours = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let iov_base = std::ptr::without_provenance_mut(address as usize);
    let theirs = libc::iovec { iov_base, iov_len: into.len() };
    // SAFETY: the kernel writes to `into` only, and checks what is the other's.
    let count = unsafe { libc::process_vm_readv(pid, &raw const ours, 1, &raw const theirs, 1, 0) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// What the kernel tells of a process or thread, if there is one of this number.
pub fn stat(number: u32) -> Option<Stat> {
    Stat::from_file(format!("/proc/{number}/stat")).ok()
}

/// Which boot of which machine this is.
pub fn boot_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive_and_survives_its_pid_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("me.pid");
        let mut me = Process::now(std::process::id()).unwrap();
        me.note = "/mnt/with blank".to_string();
        me.write(&file).unwrap();
        let back = Process::read(&file).unwrap();
        assert_eq!(back, me);
        assert!(back.is_alive());
    }

    #[test]
    fn a_pid_file_is_written_through_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let (file, other) = (dir.path().join("me.pid"), dir.path().join("other"));
        std::fs::write(&other, "another file").unwrap();
        for link in [&file, &dir.path().join("me.pid.new")] {
            std::os::unix::fs::symlink(&other, link).unwrap();
        }
        let me = Process::now(std::process::id()).unwrap();
        me.write(&file).unwrap();
        assert_eq!(Process::read(&file), Some(me));
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "another file");
    }

    #[test]
    fn a_number_that_was_given_to_another_is_not_alive() {
        let me = Process::now(std::process::id()).unwrap();
        assert!(!Process { started: me.started + 1, ..me.clone() }.is_alive());
        assert!(!Process { boot: "another boot".into(), ..me }.is_alive());
    }

    #[test]
    fn a_child_that_ended_is_dead_before_it_is_waited_for() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let process = Process::now(child.id()).unwrap();
        let wait = process.wait(Duration::from_secs(10));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        assert!(runtime.block_on(wait));
        assert!(process.signal(Signal::KILL).is_ok());
        child.wait().unwrap();
    }

    #[test]
    fn a_process_is_found_whatever_its_name_is() {
        // The name may hold blanks, brackets, and bytes that are no text.
        let numbers = (4..=52).map(|field| field.to_string()).collect::<Vec<_>>().join(" ");
        let line = [b"12 (a) \xff ( c)) S ", numbers.as_bytes(), b"\n"].concat();
        let stat = Stat::from_read(line.as_slice()).unwrap();
        assert_eq!((stat.pid, stat.state, stat.ppid), (12, 'S', 4));
        assert_eq!((stat.starttime, stat.processor), (22, Some(39)));
        assert!(Stat::from_read(&b"12 (short) S 1 2"[..]).is_err());
    }

    #[test]
    fn a_torn_pid_file_says_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("torn.pid");
        for text in ["", "12", "12 34", "12 34 boot", "a b c\n"] {
            std::fs::write(&file, text).unwrap();
            assert_eq!(Process::read(&file), None, "{text:?}");
        }
    }
}
