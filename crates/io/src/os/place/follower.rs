//! A server whose clients are fronts.

use super::thread::{self, Bound};
use super::{JOINED, at_start, count};
use crate::place::LOOK;

/// Joins a front that has joined its own caller, for as long as nobody else is served.
pub struct Follower {
    client: Option<u32>,
    /// The client's thread that was seen as a front.
    front: Option<i32>,
    /// Requests of this client since somebody else's.
    count: u32,
    moved: Option<Bound>,
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
        let has_moved = match &mut self.moved {
            Some(bound) => bound.follow(cpu),
            None => {
                self.moved = Bound::to(cpu).ok();
                self.moved.is_some()
            }
        };
        if has_moved {
            count(&JOINED);
        }
    }

    fn leave(&mut self) {
        if let Some(bound) = self.moved.take() {
            bound.release(None);
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.leave();
    }
}
