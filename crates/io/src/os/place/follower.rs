//! A server whose clients are fronts.

use super::{JOINED, at_start, count, thread};
use crate::place::LOOK;
use rustix::thread::CpuSet;

/// Joins a front that has joined its own caller, for as long as nobody else is served.
pub struct Follower {
    client: Option<u32>,
    /// The client's thread that was seen as a front.
    front: Option<i32>,
    /// Requests of this client since somebody else's.
    count: u32,
    moved: Option<(usize, CpuSet)>,
}

impl Follower {
    /// For the calling thread; None where there is nothing to choose.
    pub fn new() -> Option<Follower> {
        at_start()?;
        Some(Follower { client: None, front: None, count: 0, moved: None })
    }

    /// A small request of a process on this machine came, and nobody else waits.
    pub fn alone(&mut self, pid: u32) {
        if self.client.replace(pid) != Some(pid) {
            self.front = None;
            return self.crowd();
        }
        self.count = self.count.wrapping_add(1);
        if self.count.is_multiple_of(LOOK) {
            match self.look(pid) {
                Some(cpu) => self.join(cpu),
                None => self.leave(),
            }
        }
    }

    /// Where the client's front has joined its own caller.
    fn look(&mut self, pid: u32) -> Option<usize> {
        if self.front.is_none() {
            self.front = thread::front_of(pid);
        }
        thread::cpu_of_front(self.front?)
    }

    /// Another request came.
    pub fn crowd(&mut self) {
        self.count = 0;
        self.leave();
    }

    fn join(&mut self, cpu: usize) {
        let before = match &self.moved {
            Some((at, _)) if *at == cpu => return,
            Some((_, before)) => *before,
            None => match thread::allowed(None) {
                Ok(before) if before.count() > 1 => before,
                _ => return,
            },
        };
        if thread::has(&before, cpu) && thread::allow(None, &thread::just(cpu)).is_ok() {
            self.moved = Some((cpu, before));
            count(&JOINED);
        }
    }

    fn leave(&mut self) {
        let Some((cpu, before)) = self.moved.take() else { return };
        // Who has changed it meanwhile has the last word.
        if thread::allowed(None).is_ok_and(|set| set == thread::just(cpu)) {
            let _ = thread::allow(None, &before);
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.leave();
    }
}
