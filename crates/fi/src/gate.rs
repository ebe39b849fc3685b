//! Lets one thread in at a time, where a program may have several at once.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

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
    #[inline]
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        work(&mut self.turn())
    }

    /// Waits for this thread's turn, which lasts as long as what is returned. The thread must not come here again meanwhile.
    #[inline(always)]
    pub fn turn(&self) -> Turn<'_, T> {
        let lock = if self.locks { Some(self.lock()) } else { None };
        // SAFETY: it is this thread's turn, and it does not come here again.
        Turn { value: unsafe { &mut *self.value.get() }, _lock: lock }
    }

    #[inline(never)]
    fn lock(&self) -> MutexGuard<'_, ()> {
        self.mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread's turn with a value.
pub struct Turn<'a, T> {
    value: &'a mut T,
    _lock: Option<MutexGuard<'a, ()>>,
}

impl<T> Deref for Turn<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        self.value
    }
}

impl<T> DerefMut for Turn<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        self.value
    }
}
