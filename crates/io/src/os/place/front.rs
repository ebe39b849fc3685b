//! A thread that answers programs.

use super::guard::{self, Found, Seat};
use super::{JOINED, at_start, count, thread};
use crate::place::{Act, Placement};
use std::sync::Arc;
use std::time::Instant;

/// Decides for the thread that it is used on, and moves it. See the [module](super).
pub struct Front {
    placement: Placement,
    seat: Arc<Seat>,
}

impl Front {
    /// For the calling thread; None where there is nothing to choose.
    pub fn new() -> Option<Front> {
        at_start()?;
        Some(Front { placement: Placement::default(), seat: Arc::new(Seat::of_this_thread()) })
    }

    /// A request of `caller` has come, and nobody else waits. `find` says where the caller runs; it
    /// is asked once in a while.
    pub fn alone(&mut self, caller: u64, find: impl Fn() -> Option<usize>) {
        self.seat.served();
        self.learn();
        match self.placement.alone(caller, Instant::now) {
            Act::Stay => {}
            Act::Leave => drop(self.seat.leave()),
            // Where none is idle nobody is woken on it, and who yields to all may wait for long.
            Act::Join if !thread::has_idle_cpu() => self.placement.paused(),
            Act::Join => {
                let joined = thread::can_yield()
                    && find().is_some_and(|cpu| guard::join(&self.seat, cpu).is_ok());
                if !joined {
                    self.placement.refused(Instant::now());
                }
                self.note_move(joined, "joined");
            }
            Act::Follow => {
                let moved = find().is_some_and(|cpu| self.seat.follow(cpu));
                self.note_move(moved, "followed");
            }
        }
    }

    /// The request has, or its answer had, more than [`SMALL_BYTES`](super::SMALL_BYTES).
    pub fn large(&mut self) {
        if self.placement.large() == Act::Leave {
            self.seat.leave();
        }
    }

    /// A request has come while another one waits.
    pub fn crowd(&mut self) {
        self.seat.served();
        if self.placement.crowd() == Act::Leave {
            self.seat.leave();
        }
    }

    fn note_move(&self, moved: bool, what: &str) {
        if moved {
            count(&JOINED);
            tracing::trace!("place: {what} the caller on its CPU");
        }
    }

    /// What the guard has done meanwhile.
    fn learn(&mut self) {
        match self.seat.found() {
            None => {}
            Some(Found::Paused) => self.placement.paused(),
            Some(Found::Starved) => self.placement.refused(Instant::now()),
        }
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.seat.leave();
    }
}
