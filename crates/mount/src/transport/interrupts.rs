//! Requests that a signal may end, by their `unique`, for all threads of a mount.
//!
//! INTERRUPT may be read from another clone of the device than its request, and before its request
//! is registered. The protocol's answer to that, EAGAIN, is only taken on the clone that holds the
//! request, which is not known; so an early interrupt is remembered instead. One that comes late,
//! after the reply, is remembered in vain: `unique` is never used again.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The requests in progress.
#[derive(Default)]
pub struct Interrupts {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    waiting: HashMap<u64, Arc<Notify>>,
    early: VecDeque<u64>,
}

impl Interrupts {
    /// A request begins. Its interrupt may be there already.
    pub fn enter(self: &Arc<Self>, unique: u64) -> Interrupted {
        let signal = Arc::new(Notify::new());
        let mut table = self.table();
        if let Some(at) = table.early.iter().position(|&early| early == unique) {
            table.early.remove(at);
            signal.notify_one();
        }
        table.waiting.insert(unique, signal.clone());
        Interrupted { unique, signal, interrupts: self.clone() }
    }

    /// A signal came for the process that waits for `unique`.
    pub fn interrupt(&self, unique: u64) {
        let mut table = self.table();
        if let Some(signal) = table.waiting.get(&unique) {
            return signal.notify_one();
        }
        if table.early.len() == EARLY_MAX {
            table.early.pop_front();
        }
        table.early.push_back(unique);
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request's place in the table; dropped when the request is over.
pub struct Interrupted {
    unique: u64,
    signal: Arc<Notify>,
    interrupts: Arc<Interrupts>,
}

impl Interrupted {
    /// Completes when the request is interrupted.
    pub async fn wait(&self) {
        self.signal.notified().await;
    }
}

impl Drop for Interrupted {
    fn drop(&mut self) {
        self.interrupts.table().waiting.remove(&self.unique);
    }
}

/// Early interrupts remembered. Only as many can matter as threads are between a read and `enter`.
const EARLY_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn is_interrupted(request: &Interrupted) -> bool {
        request.wait().now_or_never().is_some()
    }

    #[test]
    fn an_interrupt_reaches_its_request_and_no_other() {
        let interrupts = Arc::new(Interrupts::default());
        let (one, two) = (interrupts.enter(2), interrupts.enter(4));
        interrupts.interrupt(4);
        assert!(!is_interrupted(&one));
        assert!(is_interrupted(&two));
    }

    #[test]
    fn an_interrupt_that_comes_before_its_request_is_remembered() {
        let interrupts = Arc::new(Interrupts::default());
        interrupts.interrupt(2);
        assert!(is_interrupted(&interrupts.enter(2)));
        assert!(!is_interrupted(&interrupts.enter(4)));
    }

    #[test]
    fn interrupts_after_the_reply_take_bounded_room() {
        let interrupts = Arc::new(Interrupts::default());
        for unique in 0..10 * EARLY_MAX as u64 {
            drop(interrupts.enter(unique));
            interrupts.interrupt(unique);
        }
        let table = interrupts.table();
        assert_eq!((table.waiting.len(), table.early.len()), (0, EARLY_MAX));
    }
}
