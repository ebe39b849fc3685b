//! Glimpses: what the kernel may use for a moment, without a way to take it back.
//!
//! A name of a file cannot be taken back from the kernel without the lock of its directory, whose holder
//! may wait for our own answer; nor can the attributes of an inode that the kernel is about to make.
//! Both can be waited for. So the kernel is told names and attributes for [`LASTS`], under the lease of
//! the directory or file, and a lease that is taken back is given up when that moment is over. A walk
//! over a tree then asks for each directory, not for each file.
//!
//! That wait is somebody else's change. Where it happens no more glimpses are granted for a while, for
//! longer each time: where clients meet, next to nothing is lost.

use covey_stripe::ops::{Id, Lease};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What was told of which files, and when.
#[derive(Default)]
pub struct Glimpses(Mutex<State>);

#[derive(Default)]
struct State {
    /// Files by when they were told of last, in two generations.
    young: HashMap<Id, Instant>,
    old: HashMap<Id, Instant>,
    turned_at: Option<Instant>,
    /// When another process may have told of any file last.
    all_at: Option<Instant>,
    /// Counts what was taken back.
    taken_back: u64,
    rest: Rest,
}

/// While this lasts nothing is told.
#[derive(Default)]
struct Rest {
    until: Option<Instant>,
    length: Duration,
}

/// A moment before something was asked for.
#[derive(Clone, Copy)]
pub struct Asked(u64);

impl Glimpses {
    /// Something is about to be asked for of which the kernel will be told.
    pub fn asking(&self) -> Asked {
        Asked(self.lock().taken_back)
    }

    /// The kernel is about to be told of a file, what was asked for since `asked`: for how long it may
    /// use it. `left`: of the file's lease, now.
    pub fn tell(&self, id: Id, asked: Asked, left: impl FnOnce() -> Duration) -> Duration {
        let now = Instant::now();
        if !self.lock().note(id, now) {
            return Duration::ZERO;
        }
        // Looked at when it is noted: whoever takes the lease back from here on waits. What was
        // taken back since it was asked for may have changed.
        let is_held = left() > OVER && self.lock().taken_back == asked.0;
        if is_held { LASTS } else { Duration::ZERO }
    }

    /// Leases are taken back: until when they are not to be given up.
    pub fn take_back(&self, leases: &[Lease]) -> Option<Instant> {
        let mut state = self.lock();
        state.taken_back += 1;
        let ids = leases.iter().filter(|lease| !lease.place).map(|lease| lease.id);
        let now = Instant::now();
        let until = ids.filter_map(|id| state.told_at(id)).max()? + OVER;
        if until <= now {
            return None;
        }
        state.rest.begin(now);
        Some(until)
    }

    /// Another process, which has ended, may have told of anything.
    pub fn take_over(&self) {
        self.lock().all_at = Some(Instant::now());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// False where nothing is told.
    fn note(&mut self, id: Id, now: Instant) -> bool {
        if self.rest.lasts(now) {
            return false;
        }
        if now.duration_since(*self.turned_at.get_or_insert(now)) >= OVER {
            self.old = std::mem::take(&mut self.young);
            self.turned_at = Some(now);
        }
        self.young.insert(id, now);
        true
    }

    fn told_at(&self, id: Id) -> Option<Instant> {
        self.young.get(&id).or_else(|| self.old.get(&id)).copied().max(self.all_at)
    }
}

impl Rest {
    fn lasts(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    fn begin(&mut self, now: Instant) {
        let is_soon = self.until.is_some_and(|until| now < until + self.length);
        let length = if is_soon { self.length * 2 } else { REST_MIN };
        self.length = length.min(REST_MAX);
        self.until = Some(now + self.length);
    }
}

/// How long the kernel may use it.
pub const LASTS: Duration = Duration::from_millis(100);

/// When nobody uses it any more, after it was told: an answer may take a while until the process that
/// waits for it has noted it, and the kernel rounds up to a tick of its clock.
const OVER: Duration = Duration::from_millis(130);

const REST_MIN: Duration = Duration::from_secs(1);
const REST_MAX: Duration = Duration::from_secs(16);

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(1);

    fn content(id: Id) -> [Lease; 1] {
        [Lease { id, place: false }]
    }

    #[test]
    fn what_was_told_is_given_up_when_its_moment_is_over() {
        let glimpses = Glimpses::default();
        assert_eq!(glimpses.tell(7, glimpses.asking(), || LEASE), LASTS);
        assert_eq!(glimpses.take_back(&content(8)), None, "nothing was told of it");
        assert_eq!(glimpses.take_back(&[Lease { id: 7, place: true }]), None);
        let until = glimpses.take_back(&content(7)).expect("it was told");
        assert!(until > Instant::now() + LASTS - OVER / 2, "it is not over");
    }

    #[test]
    fn nothing_is_told_without_a_lease_that_outlasts_it() {
        let glimpses = Glimpses::default();
        assert_eq!(glimpses.tell(7, glimpses.asking(), || OVER), Duration::ZERO);
        assert_eq!(glimpses.tell(7, glimpses.asking(), || LEASE), LASTS);
    }

    #[test]
    fn what_was_asked_for_before_something_was_taken_back_is_not_told() {
        let glimpses = Glimpses::default();
        let asked = glimpses.asking();
        glimpses.take_back(&content(8));
        assert_eq!(glimpses.tell(7, asked, || LEASE), Duration::ZERO);
    }

    #[test]
    fn a_lease_that_is_taken_back_while_it_is_told_waits_for_it() {
        let glimpses = Glimpses::default();
        let asked = glimpses.asking();
        let mut until = None;
        let left = || {
            until = glimpses.take_back(&content(7));
            LEASE
        };
        assert_eq!(glimpses.tell(7, asked, left), Duration::ZERO);
        assert!(until.is_some());
    }

    #[test]
    fn where_clients_meet_less_and_less_is_told() {
        let glimpses = Glimpses::default();
        glimpses.tell(7, glimpses.asking(), || LEASE);
        assert!(glimpses.take_back(&content(7)).is_some());
        assert_eq!(glimpses.tell(9, glimpses.asking(), || LEASE), Duration::ZERO, "it rests");
        let (mut rest, mut now) = (Rest::default(), Instant::now());
        let mut lengths = Vec::new();
        for _ in 0..6 {
            rest.begin(now);
            lengths.push(rest.length.as_secs());
            now += rest.length;
        }
        assert_eq!(lengths, [1, 2, 4, 8, 16, 16]);
        rest.begin(now + REST_MAX * 2);
        assert_eq!(rest.length, REST_MIN, "they have met long ago");
    }

    #[test]
    fn what_a_process_before_has_told_is_waited_for() {
        let glimpses = Glimpses::default();
        glimpses.take_over();
        assert!(glimpses.take_back(&content(7)).is_some());
    }
}
