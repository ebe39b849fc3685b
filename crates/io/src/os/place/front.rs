//! A thread that answers programs.

use super::guard::{self, Found, Seat};
use super::scout::{self, Answer};
use super::{JOINED, at_start, count, thread};
use crate::place::{Act, Placement};
use rustix::thread::Pid;
use std::sync::Arc;
use std::time::Instant;

/// Where a caller runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// On this CPU.
    Cpu(usize),
    /// Where this thread, of whatever process, runs.
    OfThread(u32),
    /// This thread waits for the answer, and can be woken where the front is.
    Waits(u32),
    /// Nobody knows.
    Unknown,
}

/// Decides for the thread that it is used on, and moves it. See the [module](super).
pub struct Front {
    placement: Placement,
    seat: Arc<Seat>,
    /// The move that is to come as soon as it is known where to.
    asked: Option<(Move, Answer)>,
    /// Who is to be woken here.
    meets: Option<u32>,
}

/// A caller that is to be woken where the front is.
pub struct Meeting {
    seat: Arc<Seat>,
    caller: Pid,
}

impl Meeting {
    /// Answers the caller; to be called by the front's own thread.
    pub fn answer(self, answer: impl FnOnce()) {
        self.seat.answer(self.caller, answer);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    Join,
    Follow,
}

impl Front {
    /// For the calling thread; None where there is nothing to choose.
    pub fn new() -> Option<Front> {
        at_start()?;
        let seat = Arc::new(Seat::of_this_thread());
        Some(Front { placement: Placement::default(), seat, asked: None, meets: None })
    }

    /// A request of `caller` has come, after it was looked for in vain or not, and nobody else waits. `place` says where
    /// the caller runs; it is asked once in a while.
    pub fn alone(&mut self, caller: u64, was_awaited: bool, place: impl Fn() -> Whereabouts) {
        self.seat.served();
        self.learn();
        self.hear();
        match self.placement.alone(caller, was_awaited, Instant::now) {
            Act::Stay => {}
            Act::Leave => self.leave(),
            // Where none is idle nobody is woken on it, and who yields to all may wait for long.
            Act::Join if !thread::has_idle_cpu() => self.placement.paused(),
            Act::Join if !thread::can_yield() => self.make(Move::Join, None),
            Act::Join => self.plan(Move::Join, place()),
            Act::Meet if self.asked.is_none() => self.plan(Move::Follow, place()),
            Act::Meet => {}
        }
    }

    /// The caller that is to be woken here with the answer to its request.
    pub fn meets(&mut self) -> Option<Meeting> {
        let caller = Pid::from_raw(self.meets.take()?.try_into().ok()?)?;
        Some(Meeting { seat: self.seat.clone(), caller })
    }

    /// The request has, or its answer had, more than [`SMALL_BYTES`](super::SMALL_BYTES).
    pub fn large(&mut self) {
        if self.placement.large() == Act::Leave {
            self.leave();
        }
    }

    /// A request has come while another one waits.
    pub fn crowd(&mut self) {
        self.seat.served();
        if self.placement.crowd() == Act::Leave {
            self.leave();
        }
    }

    fn plan(&mut self, what: Move, to: Whereabouts) {
        match to {
            Whereabouts::Cpu(cpu) => self.make(what, Some(cpu)),
            Whereabouts::Unknown => self.make(what, None),
            Whereabouts::Waits(tid) if thread::can_run_first() => {
                if what == Move::Join {
                    self.make(what, Some(rustix::thread::sched_getcpu()));
                }
                self.meets = Some(tid);
            }
            Whereabouts::OfThread(tid) | Whereabouts::Waits(tid) => match scout::ask(tid) {
                Some(answer) => self.asked = Some((what, answer)),
                None => self.make(what, None),
            },
        }
    }

    /// Goes where it wanted to, once that is known: a few requests later.
    fn hear(&mut self) {
        let Some((what, answer)) = &self.asked else { return };
        let (what, Some(cpu)) = (*what, answer.get()) else { return };
        self.asked = None;
        self.make(what, cpu);
    }

    fn make(&mut self, what: Move, cpu: Option<usize>) {
        let (moved, how) = match what {
            Move::Join => (cpu.is_some_and(|cpu| guard::join(&self.seat, cpu).is_ok()), "joined"),
            Move::Follow => (cpu.is_some_and(|cpu| self.seat.follow(cpu)), "followed"),
        };
        if moved {
            count(&JOINED);
            tracing::trace!("place: {how} the caller on its CPU");
        } else if what == Move::Join {
            self.placement.refused(Instant::now());
        }
    }

    fn leave(&mut self) {
        self.asked = None;
        self.seat.leave();
    }

    /// What the guard has done meanwhile.
    fn learn(&mut self) {
        match self.seat.found() {
            None => {}
            Some(Found::Paused) => self.placement.paused(),
            Some(Found::Starved) => self.placement.starved(Instant::now()),
        }
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.seat.leave();
    }
}
