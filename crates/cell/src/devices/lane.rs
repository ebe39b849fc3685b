//! The order in which a worker's files of the host are used: one after another, however long each takes.
//!
//! A file of the host may make its user wait: on a disk, on another machine. Then others go on, and what the same worker asks
//! for meanwhile waits behind it, so that a program that writes a file and reads it again finds what it wrote.

use covey_ninep::tree::{Bell, Outcome};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::{Rc, Weak};

/// How a host names its workers to its devices.
pub fn worker_name(number: u32) -> String {
    format!("{WORKER}{number}")
}

const WORKER: &str = "worker ";

/// The lanes of a host: one for each of its workers, and one for each other visitor.
#[derive(Default)]
pub struct Lanes(RefCell<HashMap<String, Weak<Lane>>>);

/// One of them.
#[derive(Default)]
pub(super) struct Lane {
    /// Who works, and who waits for that.
    queue: RefCell<VecDeque<u64>>,
    number: Cell<u64>,
    bell: Bell,
}

/// A place in the queue.
struct Ticket {
    lane: Rc<Lane>,
    number: u64,
}

impl Lanes {
    /// The lane of whoever is called so.
    pub(super) fn of(&self, visitor: &str) -> Rc<Lane> {
        if !visitor.starts_with(WORKER) {
            return Rc::default();
        }
        let mut lanes = self.0.borrow_mut();
        if let Some(lane) = lanes.get(visitor).and_then(Weak::upgrade) {
            return lane;
        }
        let lane = Rc::<Lane>::default();
        lanes.insert(visitor.to_owned(), Rc::downgrade(&lane));
        lane
    }
}

impl Lane {
    /// Whether nothing is done or waits.
    pub fn is_idle(&self) -> bool {
        self.queue.borrow().is_empty()
    }

    /// Does the work when all is done that was asked for before it: at once where nothing is left. Dropped, it is not done, or
    /// its end is not waited for.
    pub fn run<T: 'static>(
        self: &Rc<Lane>,
        work: impl FnOnce() -> Outcome<T> + 'static,
    ) -> Outcome<T> {
        let is_idle = self.is_idle();
        let ticket = Ticket::take(self);
        if !is_idle {
            return Outcome::later(async move {
                ticket.turn().await;
                work().wait().await
            });
        }
        match work() {
            Outcome::Now(result) => Outcome::Now(result),
            Outcome::Later(later) => Outcome::later(async move {
                let _ticket = ticket;
                later.await
            }),
        }
    }
}

impl Ticket {
    fn take(lane: &Rc<Lane>) -> Ticket {
        let number = lane.number.get();
        lane.number.set(number + 1);
        lane.queue.borrow_mut().push_back(number);
        Ticket { lane: lane.clone(), number }
    }

    async fn turn(&self) {
        let is_first = || (self.lane.queue.borrow().front() == Some(&self.number)).then_some(());
        self.lane.bell.wait(is_first).await;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.lane.queue.borrow_mut().retain(|number| *number != self.number);
        self.lane.bell.ring();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    type Work = Pin<Box<dyn Future<Output = u32>>>;

    /// Work that ends when its gate is opened, and notes when it begins.
    fn work(
        lane: &Rc<Lane>,
        number: u32,
        gates: &Rc<RefCell<Vec<bool>>>,
        begun: &Rc<RefCell<Vec<u32>>>,
    ) -> Work {
        let (gates, begun) = (gates.clone(), begun.clone());
        let outcome = lane.run(move || {
            begun.borrow_mut().push(number);
            Outcome::later(std::future::poll_fn(move |_| {
                let is_open = gates.borrow()[number as usize];
                if is_open { Poll::Ready(Ok(number)) } else { Poll::Pending }
            }))
        });
        Box::pin(async move { outcome.wait().await.expect("it never fails") })
    }

    fn poll(work: &mut Work) -> Option<u32> {
        match work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(number) => Some(number),
            Poll::Pending => None,
        }
    }

    #[test]
    fn work_is_done_in_the_order_in_which_it_was_asked_for_and_who_gives_up_is_passed() {
        let lanes = Lanes::default();
        let lane = lanes.of(&worker_name(1));
        assert!(Rc::ptr_eq(&lane, &lanes.of(&worker_name(1))));
        assert!(!Rc::ptr_eq(&lane, &lanes.of(&worker_name(2))));
        assert!(!Rc::ptr_eq(&lanes.of("unix"), &lanes.of("unix")));
        let (gates, begun) = (Rc::new(RefCell::new(vec![false, true, true, true])), Rc::default());
        let mut all: Vec<_> = (0..4).map(|number| work(&lane, number, &gates, &begun)).collect();
        for work in &mut all {
            assert_eq!(poll(work), None);
        }
        assert_eq!(*begun.borrow(), [0]);
        drop(all.remove(2));
        gates.borrow_mut()[0] = true;
        assert_eq!(poll(&mut all[2]), None, "it is behind another one");
        assert_eq!(poll(&mut all[0]), Some(0));
        assert_eq!(poll(&mut all[1]), Some(1));
        assert_eq!(poll(&mut all[2]), Some(3));
        assert_eq!(*begun.borrow(), [0, 1, 3]);
        drop(all);
        assert!(lane.queue.borrow().is_empty());
        // What is done at once is done at once where nothing waits.
        let now = lane.run(|| Ok(7).into());
        assert!(matches!(now, Outcome::Now(Ok(7))));
    }
}
