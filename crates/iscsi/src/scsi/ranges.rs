//! Who works on which blocks of a unit: what keeps commands that must be atomic apart from all others on the same
//! blocks.
//!
//! Every command that touches the medium claims its range when it begins, shared or exclusive. A claim is granted as soon as
//! no earlier claim conflicts with it, so that nobody is overtaken for ever. It ends when its last [`Claim`] is dropped: the
//! task has one, and so has the store while it works, because a task may go before its work does.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Whether others may work on the same blocks at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Others may too, unless they are exclusive.
    Shared,
    /// Nobody else may.
    Exclusive,
}

/// The claims on one unit, in order of arrival.
#[derive(Debug, Default)]
pub(super) struct Ranges(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    next: u64,
    claims: Vec<Waiting>,
    exclusive: usize,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    range: Range<u64>,
    access: Access,
    granted: bool,
    waker: Option<Waker>,
}

/// A place in the queue; the range is free for others once it is dropped.
#[derive(Debug)]
pub(super) struct Claim {
    ranges: Arc<Ranges>,
    number: u64,
}

impl Ranges {
    /// A claim on `range`, granted at once where nobody is in the way.
    pub(super) fn claim(self: &Arc<Self>, range: Range<u64>, access: Access) -> Claim {
        let mut queue = self.lock();
        let number = queue.next;
        queue.next += 1;
        queue.exclusive += usize::from(access == Access::Exclusive);
        let granted = queue.is_free(&range, access, queue.claims.len());
        queue.claims.push(Waiting { number, range, access, granted, waker: None });
        Claim { ranges: self.clone(), number }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    /// Whether no claim among the first `earlier` conflicts.
    fn is_free(&self, range: &Range<u64>, access: Access, earlier: usize) -> bool {
        if access == Access::Shared && self.exclusive == 0 {
            return true;
        }
        self.claims[..earlier].iter().all(|other| {
            let both_shared = access == Access::Shared && other.access == Access::Shared;
            both_shared || other.range.start >= range.end || other.range.end <= range.start
        })
    }

    /// Grants what can be granted; who is to be woken.
    fn grant(&mut self) -> Vec<Waker> {
        let mut woken = Vec::new();
        for at in 0..self.claims.len() {
            let claim = &self.claims[at];
            if !claim.granted && self.is_free(&claim.range, claim.access, at) {
                self.claims[at].granted = true;
                woken.extend(self.claims[at].waker.take());
            }
        }
        woken
    }

    fn at(&mut self, number: u64) -> &mut Waiting {
        let at = self.claims.binary_search_by_key(&number, |claim| claim.number);
        &mut self.claims[at.expect("a claim is queued until it is dropped")]
    }
}

impl Claim {
    /// Whether its range may be worked on; if not yet, the context is woken when it may.
    pub(super) fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut queue = self.ranges.lock();
        let waiting = queue.at(self.number);
        if waiting.granted {
            return Poll::Ready(());
        }
        waiting.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// Whoever it was for is gone, and the store still works for it: nobody works on its range any more until that is over. A
    /// command that is sent again would otherwise be overtaken by what is left of the first one.
    pub(super) fn orphan(&self) {
        let mut queue = self.ranges.lock();
        let waiting = queue.at(self.number);
        if waiting.access == Access::Shared {
            waiting.access = Access::Exclusive;
            queue.exclusive += 1;
        }
    }

    /// Whether its range may be worked on now.
    pub(super) fn is_granted(&self) -> bool {
        self.ranges.lock().at(self.number).granted
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut queue = self.ranges.lock();
        let at = queue.claims.binary_search_by_key(&self.number, |claim| claim.number);
        let gone = queue.claims.remove(at.expect("a claim is queued until it is dropped"));
        queue.exclusive -= usize::from(gone.access == Access::Exclusive);
        let woken =
            if queue.claims.iter().all(|claim| claim.granted) { Vec::new() } else { queue.grant() };
        drop(queue);
        woken.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(claims: &[&Claim]) -> Vec<bool> {
        claims.iter().map(|claim| claim.is_granted()).collect()
    }

    #[test]
    fn exclusive_work_waits_for_what_is_there_and_holds_up_what_comes() {
        let ranges = Arc::new(Ranges::default());
        let first = ranges.claim(0..10, Access::Shared);
        let second = ranges.claim(5..6, Access::Shared);
        let atomic = ranges.claim(8..12, Access::Exclusive);
        let after = ranges.claim(11..13, Access::Shared);
        let elsewhere = ranges.claim(12..20, Access::Shared);
        assert_eq!(
            granted(&[&first, &second, &atomic, &after, &elsewhere]),
            [true, true, false, false, true]
        );
        drop(second);
        assert_eq!(granted(&[&atomic, &after]), [false, false]);
        drop(first);
        assert_eq!(granted(&[&atomic, &after]), [true, false]);
        drop(atomic);
        assert_eq!(granted(&[&after]), [true]);
    }

    #[test]
    fn a_claim_that_is_given_up_is_not_waited_for() {
        let ranges = Arc::new(Ranges::default());
        let first = ranges.claim(0..1, Access::Exclusive);
        let second = ranges.claim(0..1, Access::Exclusive);
        let third = ranges.claim(0..1, Access::Exclusive);
        drop(second);
        assert!(!third.is_granted());
        drop(first);
        assert!(third.is_granted());
    }

    #[test]
    fn who_waits_is_woken() {
        let ranges = Arc::new(Ranges::default());
        let first = ranges.claim(0..1, Access::Exclusive);
        let second = ranges.claim(0..1, Access::Shared);
        struct Flag(std::sync::atomic::AtomicBool);
        impl std::task::Wake for Flag {
            fn wake(self: Arc<Self>) {
                self.0.store(true, std::sync::atomic::Ordering::SeqCst);
            }
        }
        let flag = Arc::new(Flag(false.into()));
        let waker = Waker::from(flag.clone());
        assert_eq!(second.poll(&mut Context::from_waker(&waker)), Poll::Pending);
        drop(first);
        assert!(flag.0.load(std::sync::atomic::Ordering::SeqCst));
        assert_eq!(second.poll(&mut Context::from_waker(&waker)), Poll::Ready(()));
    }
}
