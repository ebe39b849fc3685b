//! What is moved, and the thread that frees it when it does not do well there.
//!
//! A thread with the policy SCHED_IDLE cannot notice that it does not get to run. So a guard of the
//! usual policy looks after it, as long as there is one to look after.

use super::thread::{self, Bound};
use super::{RESCUED, count};
use rustix::thread::{Pid, gettid};
use std::fs;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// The place of one thread.
pub struct Seat {
    tid: Pid,
    /// Requests so far: whether the thread gets on.
    served: AtomicU64,
    /// For a cheap look; the truth is `moved`.
    is_moved: AtomicBool,
    moved: Mutex<Option<Bound>>,
    found: AtomicU8,
}

/// Why the guard has set a thread free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nobody asked it any more.
    Paused,
    /// It wanted to run and did not get to.
    Starved,
}

impl Seat {
    pub fn of_this_thread() -> Seat {
        Seat {
            tid: gettid(),
            served: AtomicU64::new(0),
            is_moved: AtomicBool::new(false),
            moved: Mutex::new(None),
            found: AtomicU8::new(0),
        }
    }

    /// A request came.
    pub fn served(&self) {
        // Only its own thread writes it.
        self.served.store(self.served.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Why it was set free, once.
    pub fn found(&self) -> Option<Found> {
        match self.found.load(Ordering::Relaxed) {
            0 => None,
            found => {
                self.found.store(0, Ordering::Relaxed);
                Some(if found == PAUSED { Found::Paused } else { Found::Starved })
            }
        }
    }

    /// Binds the calling thread, the seat's own, to `cpu`, if that is one of its own, and has it make
    /// way for the caller.
    fn join(&self, cpu: usize) -> io::Result<()> {
        let mut moved = self.lock();
        if !thread::is_normal() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let bound = Bound::to(cpu)?;
        if let Err(error) = thread::yield_to_all(0) {
            bound.release(None);
            return Err(error);
        }
        *moved = Some(bound);
        self.is_moved.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Goes where the caller is now; whether it has moved.
    pub fn follow(&self, cpu: usize) -> bool {
        self.lock().as_mut().is_some_and(|bound| bound.follow(cpu))
    }

    /// As it was before; whether it was not. May be called by any thread.
    pub fn leave(&self) -> bool {
        if !self.is_moved.load(Ordering::Relaxed) {
            return false;
        }
        let Some(bound) = self.lock().take() else { return false };
        self.is_moved.store(false, Ordering::Relaxed);
        if let Err(error) = thread::be_normal(self.tid.as_raw_nonzero().get()) {
            tracing::warn!("place: cannot take the usual policy again: {error}");
        }
        bound.release(Some(self.tid));
        true
    }

    fn set_free(&self, found: Found) {
        if !self.leave() {
            return;
        }
        match found {
            Found::Paused => self.found.store(PAUSED, Ordering::Relaxed),
            Found::Starved => {
                self.found.store(STARVED, Ordering::Relaxed);
                count(&RESCUED);
            }
        }
    }

    /// How long it has waited for a CPU in all.
    fn waited(&self) -> Duration {
        let file = format!("/proc/self/task/{}/schedstat", self.tid.as_raw_nonzero());
        let text = fs::read_to_string(file).unwrap_or_default();
        let field = text.split_ascii_whitespace().nth(1);
        Duration::from_nanos(field.and_then(|word| word.parse().ok()).unwrap_or_default())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Bound>> {
        self.moved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Joins a caller on `cpu`, under the eyes of the guard until the seat is free again.
pub fn join(seat: &Arc<Seat>, cpu: usize) -> io::Result<()> {
    static GUARD: OnceLock<Option<Arc<Guard>>> = OnceLock::new();
    // Before the move, which its thread would inherit.
    let guard = GUARD.get_or_init(|| Guard::start().ok());
    let guard = guard.as_ref().ok_or(io::ErrorKind::OutOfMemory)?;
    seat.join(cpu)?;
    guard.add(seat.clone());
    Ok(())
}

#[derive(Default)]
struct Guard {
    seats: Mutex<Vec<Arc<Seat>>>,
    more: Condvar,
}

impl Guard {
    fn start() -> io::Result<Arc<Guard>> {
        let guard = Arc::new(Guard::default());
        let watching = guard.clone();
        std::thread::Builder::new().name("place".into()).spawn(move || watching.run())?;
        Ok(guard)
    }

    fn add(&self, seat: Arc<Seat>) {
        let mut seats = self.lock();
        if !seats.iter().any(|known| Arc::ptr_eq(known, &seat)) {
            seats.push(seat);
        }
        self.more.notify_one();
    }

    fn run(&self) {
        let mut watched = Vec::new();
        loop {
            self.take_over(&mut watched);
            std::thread::sleep(EVERY);
            watched.retain_mut(Watched::look);
        }
    }

    /// Takes what was added; waits for it where there is nothing else to do.
    fn take_over(&self, watched: &mut Vec<Watched>) {
        let mut seats = self.lock();
        while watched.is_empty() && seats.is_empty() {
            seats = self.more.wait(seats).unwrap_or_else(PoisonError::into_inner);
        }
        for seat in seats.drain(..) {
            if !watched.iter().any(|known| Arc::ptr_eq(&known.seat, &seat)) {
                let (served, waited) = (seat.served.load(Ordering::Relaxed), seat.waited());
                watched.push(Watched { seat, served, waited });
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Seat>>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A seat, and how it was at the last look.
struct Watched {
    seat: Arc<Seat>,
    served: u64,
    waited: Duration,
}

impl Watched {
    /// Whether it is to be looked at again.
    fn look(&mut self) -> bool {
        let (served, waited) = (self.seat.served.load(Ordering::Relaxed), self.seat.waited());
        let since = (served.wrapping_sub(self.served), waited.saturating_sub(self.waited));
        if let Some(found) = judge(since.0, since.1) {
            self.seat.set_free(found);
        }
        (self.served, self.waited) = (served, waited);
        self.seat.is_moved.load(Ordering::Relaxed)
    }
}

/// What is wrong with a thread that has been asked so often and has waited so long since the last look. One that does well is
/// asked hundreds of times, and waits each time until its caller sleeps: nearly half of the time, where both work equally long.
fn judge(served: u64, waited: Duration) -> Option<Found> {
    if served < SERVED_MIN && waited > EVERY / 2 {
        Some(Found::Starved)
    } else if served == 0 {
        Some(Found::Paused)
    } else {
        None
    }
}

/// How often it looks. A conversation is hundreds of requests in this time.
const EVERY: Duration = Duration::from_millis(5);
/// Who is asked so often between two looks gets to run.
const SERVED_MIN: u64 = 64;

const PAUSED: u8 = 1;
const STARVED: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::CpuSet;

    #[test]
    fn who_waits_for_a_caller_that_works_as_long_is_not_starved() {
        let wait = |micros| Duration::from_micros(micros);
        assert_eq!(judge(245, wait(2050)), None);
        // A look that came late, and one that met a caller with more to do.
        assert_eq!(judge(450, wait(4200)), None);
        assert_eq!(judge(SERVED_MIN, wait(2600)), None);
        assert_eq!(judge(SERVED_MIN - 1, wait(2600)), Some(Found::Starved));
        assert_eq!(judge(0, wait(4900)), Some(Found::Starved));
        // A slow conversation, and none.
        assert_eq!(judge(25, wait(300)), None);
        assert_eq!(judge(0, wait(0)), Some(Found::Paused));
    }

    /// Runs `body` on a thread of its own with all its CPUs and one of them, where it may be tried.
    fn on_a_thread(body: impl FnOnce(Arc<Seat>, CpuSet, usize) + Send + 'static) {
        let run = || {
            let all = thread::allowed(None).unwrap();
            let Some(cpu) = (0..CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)) else { return };
            if all.count() < 2 || !thread::can_yield() {
                return covey_harness::skip("needs two CPUs and CAP_SYS_NICE");
            }
            body(Arc::new(Seat::of_this_thread()), all, cpu);
        };
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        std::thread::Builder::new().name(name).spawn(run).unwrap().join().unwrap();
    }

    #[test]
    fn who_leaves_is_as_before() {
        on_a_thread(|seat, all, cpu| {
            seat.join(cpu).unwrap();
            assert_eq!(thread::allowed(None).unwrap(), thread::just(cpu));
            assert!(!thread::is_normal());
            assert!(seat.leave());
            assert_eq!(thread::allowed(None).unwrap(), all);
            assert!(thread::is_normal());
            assert!(!seat.leave(), "once is enough");
        });
    }

    #[test]
    fn nobody_goes_where_it_was_not_let() {
        on_a_thread(|seat, all, cpu| {
            assert!(seat.join(CpuSet::MAX_CPU + 3).is_err());
            let mut others = all;
            others.unset(cpu);
            thread::allow(None, &others).unwrap();
            assert!(seat.join(cpu).is_err());
            assert_eq!(thread::allowed(None).unwrap(), others);
            assert!(thread::is_normal());
        });
    }

    #[test]
    fn a_mask_that_somebody_else_has_set_meanwhile_stays() {
        on_a_thread(|seat, all, cpu| {
            seat.join(cpu).unwrap();
            let other = (0..CpuSet::MAX_CPU).rev().find(|cpu| all.is_set(*cpu)).unwrap();
            thread::allow(None, &thread::just(other)).unwrap();
            seat.leave();
            assert_eq!(thread::allowed(None).unwrap(), thread::just(other));
        });
    }

    #[test]
    fn the_guard_frees_who_is_not_asked_any_more() {
        on_a_thread(|seat, all, cpu| {
            join(&seat, cpu).unwrap();
            while seat.found().is_none() {
                std::thread::sleep(EVERY);
            }
            assert_eq!(thread::allowed(None).unwrap(), all);
            assert!(thread::is_normal());
        });
    }

    #[test]
    fn the_guard_frees_who_does_not_get_to_run() {
        on_a_thread(|seat, all, cpu| {
            // Somebody who never sleeps, on the same CPU.
            let stop = Arc::new(AtomicBool::new(false));
            let stopped = stop.clone();
            let hog = std::thread::spawn(move || {
                thread::allow(None, &thread::just(cpu)).unwrap();
                while !stopped.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            join(&seat, cpu).unwrap();
            // It is never asked either: what counts is that it is free, and soon has a CPU again.
            while seat.found().is_none() {
                std::hint::spin_loop();
            }
            assert_eq!(thread::allowed(None).unwrap(), all);
            stop.store(true, Ordering::Relaxed);
            hog.join().unwrap();
        });
    }
}
