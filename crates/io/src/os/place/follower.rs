//! A server whose clients are fronts.

use super::thread::{self, Bound};
use super::{JOINED, at_start, count};
use crate::place::{CALM, Disturbance, LOOK};

/// Joins a front that has joined its own caller, for as long as nobody else is served.
pub struct Follower {
    client: Option<u32>,
    /// The client's thread that was seen as a front.
    front: Option<i32>,
    /// Requests of this client since somebody else's.
    count: u32,
    /// Nobody else has come yet.
    is_lone: bool,
    disturbance: Disturbance,
    moved: Option<Bound>,
}

impl Follower {
    /// For the calling thread; None where there is nothing to choose.
    pub fn new() -> Option<Follower> {
        at_start()?;
        let disturbance = Disturbance::default();
        let (client, front, moved) = (None, None, None);
        Some(Follower { client, front, count: 0, is_lone: true, disturbance, moved })
    }

    /// A small request of a process on this machine came, and nobody else waits.
    pub fn alone(&mut self, pid: u32) {
        if let Some(before) = self.client.replace(pid)
            && before != pid
        {
            (self.is_lone, self.front) = (false, None);
            return self.part();
        }
        self.count = self.count.wrapping_add(1);
        self.disturbance.in_turn();
        // Of several I/O servers each is asked now and then only.
        let is_early = self.is_lone && self.count < CALM && self.count.is_power_of_two();
        let every = if self.moved.is_some() { LOOK } else { CALM };
        if is_early || self.count.is_multiple_of(every) {
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

    /// A large request came, or one while another one waits: often, that is no conversation.
    pub fn crowd(&mut self) {
        if self.disturbance.grows(1) {
            self.part();
        }
    }

    fn part(&mut self) {
        (self.count, self.disturbance) = (0, Disturbance::default());
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
