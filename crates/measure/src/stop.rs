//! Measurements that can be interrupted: a signal asks them to end, and they then clear up and answer what
//! there is. Without this, Ctrl-C would leave files and programs behind.

use crate::error::{Cannot, Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::signal::unix::{SignalKind, signal};

/// Why a measurement ended that was asked to.
pub const INTERRUPTED: &str = "it was interrupted";

/// Whether to end.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Whether somebody has asked.
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Asks.
    pub fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Does blocking work on a thread of its own, and asks it to stop when a signal comes that would end this
/// process.
pub async fn interruptible<T: Send + 'static>(
    work: impl FnOnce(&Stop) -> Result<T> + Send + 'static,
) -> Result<T> {
    let what = || "wait for signals";
    let mut interrupt = signal(SignalKind::interrupt()).cannot(what)?;
    let mut terminate = signal(SignalKind::terminate()).cannot(what)?;
    let mut hang_up = signal(SignalKind::hangup()).cannot(what)?;
    let stop = Stop::default();
    let theirs = stop.clone();
    let (tell, mut told) = tokio::sync::oneshot::channel();
    let worker = std::thread::Builder::new().name("measure".into());
    let worker = worker.spawn(move || {
        // Nobody listens only when this process is ending.
        let _ = tell.send(work(&theirs));
    });
    worker.cannot(|| "start to measure")?;
    loop {
        tokio::select! {
            result = &mut told => {
                return result.unwrap_or_else(|_| Err(Error::work("cannot measure: it panicked")));
            }
            _ = interrupt.recv() => stop.ask(),
            _ = terminate.recv() => stop.ask(),
            _ = hang_up.recv() => stop.ask(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_is_done_elsewhere_and_a_panic_is_an_error() {
        assert_eq!(interruptible(|_| Ok(7)).await.unwrap(), 7);
        let panicked = interruptible(|_| -> Result<()> { panic!("on purpose") }).await;
        assert!(panicked.unwrap_err().message.contains("panicked"));
    }

    #[tokio::test]
    async fn a_signal_asks_it_to_stop() {
        let outcome = interruptible(|stop| {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM)
                .unwrap();
            while !stop.is_asked() {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            Ok("cleared up")
        });
        assert_eq!(outcome.await.unwrap(), "cleared up");
    }
}
