//! How a file answers later: a reader waits at a bell until a writer rings it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// Wakes those who wait for something to change. Clones are the same bell.
#[derive(Clone, Debug, Default)]
pub struct Bell(Rc<Waiters>);

#[derive(Debug, Default)]
struct Waiters {
    wakers: RefCell<BTreeMap<u64, Waker>>,
    number_next: Cell<u64>,
}

impl Bell {
    /// Has everyone who waits look again.
    pub fn ring(&self) {
        // Taken off first: a waker may come back here.
        let wakers = self.0.wakers.take();
        wakers.into_values().for_each(Waker::wake);
    }

    /// What `look` finds, as soon as it finds something: now, or after a ring. Dropping the future
    /// ends the wait and leaves nothing behind.
    pub fn wait<T, L: FnMut() -> Option<T>>(
        &self,
        mut look: L,
    ) -> impl Future<Output = T> + use<T, L> {
        let place = Place { bell: self.clone(), number: self.0.number_next.get() };
        self.0.number_next.set(place.number + 1);
        poll_fn(move |context| match look() {
            Some(found) => Poll::Ready(found),
            None => {
                place.bell.0.wakers.borrow_mut().insert(place.number, context.waker().clone());
                Poll::Pending
            }
        })
    }
}

/// A place in the queue.
struct Place {
    bell: Bell,
    number: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.bell.0.wakers.borrow_mut().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::Context;

    #[test]
    fn a_wait_ends_when_a_ring_finds_something_and_leaves_nothing_behind() {
        let (bell, door) = (Bell::default(), Cell::new(None));
        let mut context = Context::from_waker(Waker::noop());
        let waiting = || bell.0.wakers.borrow().len();
        {
            let mut wait = pin!(bell.wait(|| door.get()));
            assert_eq!(wait.as_mut().poll(&mut context), Poll::Pending);
            assert_eq!(wait.as_mut().poll(&mut context), Poll::Pending);
            assert_eq!(waiting(), 1);
            door.set(Some(7));
            bell.ring();
            assert_eq!(waiting(), 0);
            assert_eq!(wait.as_mut().poll(&mut context), Poll::Ready(7));
            door.set(None);
            let mut dropped = Box::pin(bell.wait(|| door.get()));
            assert_eq!(dropped.as_mut().poll(&mut context), Poll::Pending);
            assert_eq!(waiting(), 1);
        }
        assert_eq!(waiting(), 0);
    }
}
