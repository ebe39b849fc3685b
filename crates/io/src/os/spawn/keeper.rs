//! The process that keeps one program: starts it, says when it ended, and ends everything that came of it.

use super::child::Prepared;
use super::family;
use super::request::Request;
use super::talk::{Event, Order, PACKET, Stage, Word};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{FromRawFd, OwnedFd};

/// A keeper's whole life, with the descriptors that the daemon sent.
pub(super) fn keep(fds: Vec<OwnedFd>) {
    let mut fds = fds.into_iter();
    let Some(daemon) = fds.next() else { return };
    let mut start = |daemon| {
        let signals = watch_children()?;
        let _ = rustix::process::set_child_subreaper(rustix::process::Pid::from_raw(1));
        let (program, exec) = fork(prepare(&mut fds)?)?;
        let exec = Some(exec);
        Ok::<_, io::Error>(Family {
            daemon,
            signals,
            exec,
            program,
            is_over: false,
            is_ending: false,
            refusals: 0,
        })
    };
    // Kept for the answer to a start that fails.
    let Ok(other) = daemon.try_clone() else { return };
    match start(daemon) {
        Ok(family) => {
            drop((fds, other));
            family.live();
        }
        Err(error) => say(&other, failed(&error, Stage::Process)),
    }
}

fn failed(error: &io::Error, stage: Stage) -> Event {
    Event::Failed(error.raw_os_error().unwrap_or(libc::EIO), stage)
}

fn prepare(fds: &mut impl Iterator<Item = OwnedFd>) -> io::Result<Prepared> {
    let mut text = Vec::new();
    let memory = fds.next().ok_or(io::ErrorKind::UnexpectedEof)?;
    File::from(memory).read_to_end(&mut text)?;
    let request = Request::decode(&text)?;
    let stdio: Vec<OwnedFd> = fds.by_ref().take(3).collect();
    if stdio.len() < 3 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let cgroup = if request.has_cgroup { fds.next() } else { None };
    Prepared::new(request, stdio, cgroup)
}

/// Forks the program's process. Answers its number, and a pipe that says why it failed, or closes.
fn fork(prepared: Prepared) -> io::Result<(i32, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    // SAFETY: this process has one thread.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let (stage, error) = prepared.become_program();
            let _ = rustix::io::write(&write, &failed(&error, stage).encode());
            // SAFETY: ends the process; nothing that its parent registered is to run.
            unsafe { libc::_exit(127) }
        }
        pid => Ok((pid, read)),
    }
}

/// A descriptor that is readable when a child has ended.
fn watch_children() -> io::Result<OwnedFd> {
    // SAFETY: calls on a set of this frame; the descriptor is new and ours. The default action of the signal
    // is what lets children be waited for.
    unsafe {
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        match libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

struct Family {
    daemon: OwnedFd,
    signals: OwnedFd,
    /// Open until the program has been exec'ed or has failed to be.
    exec: Option<OwnedFd>,
    program: i32,
    /// The program has ended.
    is_over: bool,
    /// Everything is to end.
    is_ending: bool,
    /// How many times in a row the kernel has refused to kill some of it.
    refusals: u32,
}

impl Family {
    fn live(mut self) {
        loop {
            if self.is_ending {
                self.end();
            }
            if !self.reap() {
                return;
            }
            self.wait();
        }
    }

    /// Kills what is left. What cannot be killed is said once, and waited for: it may end without that.
    fn end(&mut self) {
        let Some(pid) = family::kill() else { return self.refusals = 0 };
        self.refusals = self.refusals.saturating_add(1);
        if self.refusals == REFUSALS_MAX {
            say(&self.daemon, Event::Refused(pid));
        }
    }

    /// Waits for something to happen; while everything ends, for a moment only, since a process may have
    /// had children that were not seen.
    fn wait(&mut self) {
        let (tv_sec, tv_nsec) = match self.refusals {
            0..REFUSALS_MAX => (0, 10_000_000),
            _ => (1, 0),
        };
        let timeout = rustix::time::Timespec { tv_sec, tv_nsec };
        let timeout = self.is_ending.then_some(&timeout);
        let ready = {
            let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
            // Once the daemon is gone there is nothing more to be heard.
            if !self.is_ending {
                fds.push(PollFd::new(&self.daemon, PollFlags::IN));
            }
            fds.extend(self.exec.iter().map(|exec| PollFd::new(exec, PollFlags::IN)));
            match poll(&mut fds, timeout) {
                Ok(_) => fds.iter().map(|fd| !fd.revents().is_empty()).collect(),
                Err(_) => Vec::new(),
            }
        };
        let is = |at: usize| ready.get(at).copied().unwrap_or(false);
        if is(0) {
            let mut drained = [0u8; 128 * 8];
            let _ = rustix::io::read(&self.signals, &mut drained);
        }
        let exec_at = if self.is_ending { 1 } else { 2 };
        if is(exec_at) {
            self.exec_done();
        }
        if !self.is_ending && is(1) {
            self.listen();
        }
    }

    /// The program's process has become the program, or has said why not.
    fn exec_done(&mut self) {
        let Some(exec) = self.exec.take() else { return };
        let mut packet = [0; PACKET];
        match rustix::io::read(&exec, &mut packet) {
            Ok(PACKET) => {
                let _ = rustix::net::send(&self.daemon, &packet, rustix::net::SendFlags::NOSIGNAL);
                self.is_over = true;
            }
            _ => say(&self.daemon, Event::Started(self.program.cast_unsigned())),
        }
    }

    fn listen(&mut self) {
        let mut packet = [0; PACKET];
        match rustix::io::read(&self.daemon, &mut packet) {
            Ok(PACKET) => match Order::decode(packet) {
                Order::Kill => self.is_ending = true,
                Order::Signal(signal) => {
                    let errno = self.signal(signal).err();
                    let errno = errno.map_or(0, |error| error.raw_os_error().unwrap_or(libc::EIO));
                    tell(&self.daemon, Word::Signalled(errno));
                }
            },
            Err(Errno::INTR | Errno::AGAIN) => {}
            _ => self.is_ending = true,
        }
    }

    /// A program that has ended misses a signal.
    fn signal(&self, signal: i32) -> io::Result<()> {
        if self.is_over {
            return Ok(());
        }
        // Not waited for yet, so the number is still the program's.
        // SAFETY: a plain system call.
        match unsafe { libc::kill(-self.program, signal) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Waits for all children that have ended. False when none is left.
    fn reap(&mut self) -> bool {
        loop {
            let mut status = 0;
            // SAFETY: there is a place for the status.
            match unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) } {
                0 => return true,
                -1 => return io::Error::last_os_error().raw_os_error() == Some(libc::EINTR),
                pid if pid == self.program => {
                    // What it said last comes before its end.
                    self.exec_done();
                    if !std::mem::replace(&mut self.is_over, true) {
                        say(&self.daemon, Event::Ended(status));
                    }
                }
                _ => {}
            }
        }
    }
}

/// One that has just ended may be refused, too, until it was waited for.
const REFUSALS_MAX: u32 = 10;

fn say(daemon: &OwnedFd, event: Event) {
    tell(daemon, Word::Event(event));
}

fn tell(daemon: &OwnedFd, word: Word) {
    let _ = rustix::net::send(daemon, &word.encode(), rustix::net::SendFlags::NOSIGNAL);
}
