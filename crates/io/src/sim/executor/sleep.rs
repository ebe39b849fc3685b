//! Sleep in virtual time.

use super::{Event, What, World, with_world, world};
use std::cmp::Reverse;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// Nothing but numbers, so that it may go wherever its task goes.
struct Sleep {
    end: u64,
    number: Option<u64>,
}

impl World {
    pub(super) fn sleep(&self, time: Duration) -> impl Future<Output = ()> + Send + use<> {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Sleep { end: self.now.get().saturating_add(nanos), number: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let world = world();
        if world.now.get() >= self.end {
            return Poll::Ready(());
        }
        let end = self.end;
        let number = *self.number.get_or_insert_with(|| {
            let event = Event { at: end, number: world.number(), what: What::Ring };
            let number = event.number;
            world.events.borrow_mut().push(Reverse(event));
            number
        });
        world.sleepers.borrow_mut().insert(number, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            with_world(|world| world.sleepers.borrow_mut().remove(&number));
        }
    }
}
