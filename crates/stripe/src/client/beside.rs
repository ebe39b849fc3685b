//! Work that goes on when nobody waits for it any more.
//!
//! A future of this client may be dropped at any time: a signal ends the wait of a process. What a
//! server grants meanwhile, an open or a place for an append, must not get lost on the way: it is
//! asked for by a task of its own, which gives it back when nobody takes it.

use super::{Net, Result};
use covey_ninep::tree::Errno;
use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Poll, Waker};

/// Tells the work whether anybody still waits for it.
#[derive(Clone)]
pub struct Asker(Weak<()>);

impl Asker {
    /// Nobody waits any more.
    pub fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }
}

/// Runs `work` beside everything else and waits for its result. When the wait is dropped the work
/// goes on, and its result is dropped.
pub async fn beside<T, F>(net: &dyn Net, work: impl FnOnce(Asker) -> F) -> Result<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
{
    let waits = Arc::new(());
    let work = work(Asker(Arc::downgrade(&waits)));
    let place = Arc::new(Place(Mutex::new(Inner { state: State::Running, waker: None })));
    let promise = Promise(place.clone());
    net.spawn(Box::pin(async move {
        let result = work.await;
        promise.0.put(State::Done(result));
    }));
    let result = poll_fn(|context| {
        let mut inner = place.lock();
        match std::mem::replace(&mut inner.state, State::Taken) {
            State::Running => {
                inner.state = State::Running;
                inner.waker = Some(context.waker().clone());
                Poll::Pending
            }
            State::Done(result) => Poll::Ready(result),
            State::Taken => Poll::Ready(Err(Errno::because(Errno::EIO, "the client is ending"))),
        }
    })
    .await;
    drop(waits);
    result
}

struct Place<T>(Mutex<Inner<T>>);

struct Inner<T> {
    state: State<T>,
    waker: Option<Waker>,
}

enum State<T> {
    Running,
    Done(Result<T>),
    /// Taken, or never to come.
    Taken,
}

impl<T> Place<T> {
    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, state: State<T>) {
        let waker = {
            let mut inner = self.lock();
            inner.state = state;
            inner.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }
}

/// The task's hold on the place: a task that ends early, as tasks of a runtime that ends do, must
/// not leave anyone waiting.
struct Promise<T>(Arc<Place<T>>);

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        let is_running = matches!(self.0.lock().state, State::Running);
        if is_running {
            self.0.put(State::Taken);
        }
    }
}
