//! What is moved, and the thread that frees it when it does not do well there.
//!
//! A thread with the policy SCHED_IDLE cannot notice that it does not get to run. So a guard of the
//! usual policy looks after it, as long as there is one to look after.

use super::thread::{self, Bound};
use super::{RESCUED, at_start, count};
use rustix::thread::{CpuSet, Pid, gettid};
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
        let moves = self.lock().as_mut().is_some_and(|bound| bound.follow(cpu));
        if moves && let Some(guard) = guard() {
            guard.make_room([cpu]);
        }
        moves
    }

    /// Answers a caller, who is woken where the seat is: its thread is let run there only until it has been woken. The
    /// seat's own thread runs before all others meanwhile, so that the caller does not: what it started would stay there.
    pub fn answer(&self, caller: Pid, answer: impl FnOnce()) {
        let moved = self.lock();
        let fetched = moved.as_ref().and_then(|bound| Fetched::new(caller, bound.cpu()));
        answer();
        drop(fetched);
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

    /// Where it is bound.
    fn cpu(&self) -> Option<usize> {
        self.lock().as_ref().map(Bound::cpu)
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

/// A caller that may run in one place only, until this is dropped. To be held by a thread that has joined its caller.
struct Fetched {
    caller: Pid,
    before: CpuSet,
    cpu: usize,
}

impl Fetched {
    fn new(caller: Pid, cpu: usize) -> Option<Fetched> {
        let before = thread::allowed(Some(caller)).ok()?;
        if !thread::has(&before, cpu) || before.count() < 2 {
            return None;
        }
        thread::run_first().ok()?;
        // From here on the policy has to be taken back.
        let fetched = Fetched { caller, before, cpu };
        thread::allow(Some(caller), &thread::just(cpu)).ok()?;
        Some(fetched)
    }
}

impl Drop for Fetched {
    fn drop(&mut self) {
        // Who has set other CPUs meanwhile has the last word.
        if thread::allowed(Some(self.caller)).is_ok_and(|set| set == thread::just(self.cpu)) {
            let _ = thread::allow(Some(self.caller), &self.before);
        }
        let _ = thread::yield_to_all(0);
    }
}

/// Joins a caller on `cpu`, under the eyes of the guard until the seat is free again.
pub fn join(seat: &Arc<Seat>, cpu: usize) -> io::Result<()> {
    // Before the move, which its thread would inherit.
    let guard = guard().ok_or(io::ErrorKind::OutOfMemory)?;
    seat.join(cpu)?;
    guard.make_room([cpu]);
    guard.add(seat.clone());
    Ok(())
}

/// The one of this process.
fn guard() -> Option<&'static Arc<Guard>> {
    static GUARD: OnceLock<Option<Arc<Guard>>> = OnceLock::new();
    GUARD.get_or_init(|| Guard::start().ok()).as_ref()
}

#[derive(Default)]
struct Guard {
    tid: OnceLock<Pid>,
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
        let _ = self.tid.set(gettid());
        let mut watched = Vec::new();
        loop {
            self.take_over(&mut watched);
            self.make_room(watched.iter().filter_map(|one: &Watched| one.seat.cpu()));
            std::thread::sleep(EVERY);
            watched.retain_mut(Watched::look);
        }
    }

    /// Keeps the guard away from the CPUs of the watched: a caller that is woken while it runs there would go to another
    /// one. Called by whoever moves as well, since the guard may be late.
    fn make_room(&self, cpus: impl IntoIterator<Item = usize>) {
        let (Some(mut others), Some(tid)) = (at_start().copied(), self.tid.get()) else { return };
        cpus.into_iter().filter(|cpu| *cpu < CpuSet::MAX_CPU).for_each(|cpu| others.unset(cpu));
        if others.count() > 0 && thread::allowed(Some(*tid)).is_ok_and(|now| now != others) {
            let _ = thread::allow(Some(*tid), &others);
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
                watched.push(Watched { seat, served, waited, pauses: 0 });
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
    /// Looks since the last request.
    pauses: u32,
}

impl Watched {
    /// Whether it is to be looked at again.
    fn look(&mut self) -> bool {
        let (served, waited) = (self.seat.served.load(Ordering::Relaxed), self.seat.waited());
        let (asked, wanted) =
            (served.wrapping_sub(self.served), waited.saturating_sub(self.waited));
        self.pauses = if asked == 0 { self.pauses + 1 } else { 0 };
        if is_starved(asked, wanted) {
            self.seat.set_free(Found::Starved);
        } else if self.pauses >= PAUSE {
            self.seat.set_free(Found::Paused);
        }
        (self.served, self.waited) = (served, waited);
        self.seat.is_moved.load(Ordering::Relaxed)
    }
}

/// Whether a thread that has been asked so often, and has waited for its CPU so long since the last look, does not get to run.
/// One that does well is asked dozens of times, and waits each time until its caller sleeps: most of the time, where that has more
/// to do.
fn is_starved(asked: u64, waited: Duration) -> bool {
    asked < ASKED_MIN && waited > EVERY / 2
}

/// How often it looks. A conversation is hundreds of requests in this time.
const EVERY: Duration = Duration::from_millis(5);
/// Who is asked so often between two looks gets to run.
const ASKED_MIN: u64 = 16;
/// Looks without a request that end it.
const PAUSE: u32 = 4;

const PAUSED: u8 = 1;
const STARVED: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_a_caller_that_works_as_long_is_not_starved() {
        let wait = |micros| Duration::from_micros(micros);
        assert!(!is_starved(245, wait(2050)));
        // A look that came late, and one that met a caller with more to do.
        assert!(!is_starved(450, wait(4200)));
        assert!(!is_starved(ASKED_MIN, wait(4200)));
        assert!(is_starved(ASKED_MIN - 1, wait(2600)));
        assert!(is_starved(0, wait(4900)));
        // A slow conversation, and none.
        assert!(!is_starved(10, wait(300)));
        assert!(!is_starved(0, wait(0)));
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
    fn who_is_answered_is_woken_here_and_may_run_everywhere() {
        on_a_thread(|seat, all, cpu| {
            if !thread::can_run_first() {
                return covey_harness::skip("needs CAP_SYS_NICE");
            }
            let (answer, answers) = std::sync::mpsc::channel::<()>();
            let (say, said) = std::sync::mpsc::channel();
            let caller = std::thread::spawn(move || {
                let other = (0..CpuSet::MAX_CPU).rev().find(|cpu| all.is_set(*cpu)).unwrap();
                thread::allow(None, &thread::just(other)).unwrap();
                thread::allow(None, &all).unwrap();
                say.send((gettid(), all, other)).unwrap();
                while answers.recv().is_ok() {
                    let woken = (gettid(), thread::allowed(None).unwrap());
                    say.send((woken.0, woken.1, rustix::thread::sched_getcpu())).unwrap();
                }
            });
            let (tid, ..) = said.recv().unwrap();
            seat.join(cpu).unwrap();
            let mut here = 0;
            for round in 0..50 {
                // Most often it sleeps then.
                std::thread::sleep(Duration::from_micros(200));
                seat.answer(tid, || answer.send(()).unwrap());
                let (_, may_run, runs) = said.recv().unwrap();
                assert_eq!(may_run, all, "round {round}");
                here += u32::from(runs == cpu);
            }
            assert!(here > 0, "it never came");
            assert!(!thread::is_normal(), "the seat makes way again");
            drop(answer);
            caller.join().unwrap();
            seat.leave();
            assert!(thread::is_normal());
        });
    }

    #[test]
    fn who_may_not_run_here_is_answered_where_it_is() {
        on_a_thread(|seat, all, cpu| {
            seat.join(cpu).unwrap();
            let mut others = all;
            others.unset(cpu);
            let (tell, told) = std::sync::mpsc::channel();
            let (end, ended) = std::sync::mpsc::channel::<()>();
            let caller = std::thread::spawn(move || {
                thread::allow(None, &others).unwrap();
                tell.send(gettid()).unwrap();
                let _ = ended.recv();
            });
            let tid = told.recv().unwrap();
            let mut answered = false;
            seat.answer(tid, || answered = true);
            assert!(answered);
            assert_eq!(thread::allowed(Some(tid)).unwrap(), others);
            // Nor is it in the way that somebody is gone.
            drop(end);
            caller.join().unwrap();
            seat.answer(tid, || answered = false);
            assert!(!answered && !thread::is_normal());
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
