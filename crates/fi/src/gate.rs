//! Lets one thread in at a time, where a program may have several at once.

use std::cell::UnsafeCell;
use std::sync::{Mutex, PoisonError};

/// A value of which threads take turns.
#[derive(Debug)]
pub struct Gate<T> {
    /// False where the program promises that its threads take turns anyway (`FI_THREAD_DOMAIN`).
    locks: bool,
    mutex: Mutex<()>,
    value: UnsafeCell<T>,
}

// SAFETY: one thread at a time reaches the value: by the lock, or by the program's promise. What the value shares within
// itself without atomics (the engine's reference counts) never leaves it.
unsafe impl<T> Send for Gate<T> {}
// SAFETY: a reference to the gate gives the value to one thread at a time only.
unsafe impl<T> Sync for Gate<T> {}

impl<T> Gate<T> {
    pub fn new(locks: bool, value: T) -> Gate<T> {
        Gate { locks, mutex: Mutex::new(()), value: UnsafeCell::new(value) }
    }

    /// Does the work when it is this thread's turn. The work must not come here again.
    #[inline(always)]
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let _turn = self.locks.then(|| self.mutex.lock().unwrap_or_else(PoisonError::into_inner));
        // SAFETY: it is this thread's turn, and its work does not come here again.
        work(unsafe { &mut *self.value.get() })
    }
}
