//! The order of a unit's commands (SAM-5, 8.9): one that is ORDERED begins when all before it have ended, and those behind it
//! begin when it has ended. One at the HEAD OF QUEUE waits for nobody.
//!
//! ORDERED commands are rare. Without one a command only counts itself, at its begin and at its end.

use super::TaskAttribute;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The commands of one unit.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// How many commands are at work, and whether there is an ORDERED one, at work or not: then the queue is looked at.
    at_work: AtomicU64,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    next: u64,
    /// Whether the command at work, HEAD OF QUEUE aside, is ORDERED.
    is_alone: bool,
    /// Those that wait, in order of arrival.
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    is_ordered: bool,
    waker: Option<Waker>,
}

/// A command's place among others, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    order: Arc<Order>,
    /// Of one that had to wait.
    number: Option<u64>,
    is_ordered: bool,
}

impl Order {
    /// A command has come.
    pub(super) fn enter(self: &Arc<Self>, attribute: TaskAttribute) -> Place {
        let is_ordered = attribute == TaskAttribute::Ordered;
        let mut place = Place { order: self.clone(), number: None, is_ordered };
        if !is_ordered {
            let before = self.at_work.fetch_add(1, Ordering::SeqCst);
            if before & HELD == 0 || attribute == TaskAttribute::HeadOfQueue {
                return place;
            }
        }
        let mut queue = self.lock();
        if is_ordered {
            self.at_work.fetch_or(HELD, Ordering::SeqCst);
        } else {
            // It is not at work yet.
            self.at_work.fetch_sub(1, Ordering::SeqCst);
        }
        let number = queue.next;
        queue.next += 1;
        place.number = Some(number);
        queue.waiting.push_back(Waiting { number, is_ordered, waker: None });
        let woken = self.grant(&mut queue);
        drop(queue);
        woken.into_iter().for_each(Waker::wake);
        place
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets those begin whose turn it is; who is to be woken.
    fn grant(&self, queue: &mut Queue) -> Vec<Waker> {
        let mut woken = Vec::new();
        while let Some(first) = queue.waiting.front() {
            let is_busy = self.at_work.load(Ordering::SeqCst) & !HELD > 0;
            if queue.is_alone || (first.is_ordered && is_busy) {
                return woken;
            }
            queue.is_alone = first.is_ordered;
            self.at_work.fetch_add(1, Ordering::SeqCst);
            woken.extend(queue.waiting.pop_front().and_then(|first| first.waker));
        }
        if !queue.is_alone {
            self.at_work.fetch_and(!HELD, Ordering::SeqCst);
        }
        woken
    }
}

impl Queue {
    fn position(&self, number: u64) -> Option<usize> {
        self.waiting.binary_search_by_key(&number, |one| one.number).ok()
    }
}

impl Place {
    /// Whether it may begin; if not yet, the context is woken when it may.
    pub(super) fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        let Some(number) = self.number else { return Poll::Ready(()) };
        let mut queue = self.order.lock();
        let Some(at) = queue.position(number) else { return Poll::Ready(()) };
        queue.waiting[at].waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// Whether it may begin.
    pub(super) fn may_begin(&self) -> bool {
        self.number.is_none_or(|number| self.order.lock().position(number).is_none())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let order = &self.order;
        if self.number.is_none() && order.at_work.fetch_sub(1, Ordering::SeqCst) & HELD == 0 {
            return;
        }
        let mut queue = order.lock();
        let mut own = None;
        if let Some(number) = self.number {
            match queue.position(number) {
                // Whoever waits for it is told that there is nothing to wait for.
                Some(at) => own = queue.waiting.remove(at).and_then(|own| own.waker),
                None => {
                    order.at_work.fetch_sub(1, Ordering::SeqCst);
                    queue.is_alone &= !self.is_ordered;
                }
            }
        }
        let woken = order.grant(&mut queue);
        drop(queue);
        woken.into_iter().chain(own).for_each(Waker::wake);
    }
}

/// The bit that says that there is an ORDERED command.
const HELD: u64 = 1 << 63;

#[cfg(test)]
mod tests {
    use super::*;
    use TaskAttribute::{HeadOfQueue, Ordered, Simple};

    fn begun(places: &[&Place]) -> Vec<bool> {
        places.iter().map(|place| place.may_begin()).collect()
    }

    #[test]
    fn an_ordered_command_is_alone_between_those_before_and_those_behind() {
        let order = Arc::new(Order::default());
        let enter = |attribute| order.enter(attribute);
        let (one, two, ordered) = (enter(Simple), enter(Simple), enter(Ordered));
        let (three, next, four) = (enter(Simple), enter(Ordered), enter(Simple));
        let first = enter(HeadOfQueue);
        assert_eq!(
            begun(&[&one, &two, &ordered, &three, &next, &four]),
            [true, true, false, false, false, false]
        );
        assert!(first.may_begin());
        drop((one, first));
        assert!(!ordered.may_begin());
        drop(two);
        assert_eq!(begun(&[&ordered, &three, &next]), [true, false, false]);
        drop(ordered);
        assert_eq!(begun(&[&three, &next, &four]), [true, false, false]);
        drop(three);
        assert_eq!(begun(&[&next, &four]), [true, false]);
        drop((next, four));
        assert_eq!(order.at_work.load(Ordering::SeqCst), 0, "all is as at the beginning");
    }

    #[test]
    fn a_command_that_is_given_up_holds_up_nobody() {
        let order = Arc::new(Order::default());
        let (one, ordered) = (order.enter(Simple), order.enter(Ordered));
        let behind = order.enter(Simple);
        drop(ordered);
        assert!(behind.may_begin());
        drop((one, behind));
        assert_eq!(order.at_work.load(Ordering::SeqCst), 0);
    }

    /// Threads that come and go: whoever is ordered is alone.
    #[test]
    fn nobody_is_beside_an_ordered_command() {
        let order = Arc::new(Order::default());
        let at_work = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (order, at_work) = (&order, &at_work);
                scope.spawn(move || {
                    for turn in 0..2000 {
                        let is_ordered = (turn + thread) % 7 == 0;
                        let place = order.enter(if is_ordered { Ordered } else { Simple });
                        while !place.may_begin() {
                            std::thread::yield_now();
                        }
                        let step = if is_ordered { 1 << 32 } else { 1 };
                        let others = at_work.fetch_add(step, Ordering::SeqCst);
                        assert!(others >> 32 == 0 && (!is_ordered || others == 0), "{others:x}");
                        at_work.fetch_sub(step, Ordering::SeqCst);
                        drop(place);
                    }
                });
            }
        });
        assert_eq!(order.at_work.load(Ordering::SeqCst), 0);
    }
}
