//! Work that goes on when nobody waits for it any more.
//!
//! A future of this client may be dropped at any time: a signal ends the wait of a process. What a
//! server grants meanwhile, an open or a place for an append, must not get lost on the way: it is
//! asked for by a task of its own, which gives it back when nobody takes it.

use super::{Error, Net, Result};
use covey_ninep::tree::Errno;
use futures_channel::oneshot;
use std::future::Future;
use std::sync::{Arc, Weak};

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
/// goes on, and its result is dropped. A task that ends early, as tasks of a runtime that ends do, is
/// an error.
pub async fn beside<T, F>(net: &dyn Net, work: impl FnOnce(Asker) -> F) -> Result<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
{
    let waits = Arc::new(());
    let work = work(Asker(Arc::downgrade(&waits)));
    let (promise, result) = oneshot::channel();
    net.spawn(Box::pin(async move {
        // Where nobody takes it, it is dropped here.
        let _ = promise.send(work.await);
    }));
    let ended = |_| Error::because(Errno::EIO, "the client is ending");
    let result = result.await.map_err(ended)?;
    drop(waits);
    result
}
