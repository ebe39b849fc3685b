//! What is open, by handle number. Numbers are never used twice, so that a stale one finds nothing.

use covey_ninep::tree::Errno;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// Open things of one kind.
pub struct Table<T> {
    last: AtomicU64,
    entries: RwLock<HashMap<u64, Arc<T>>>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table { last: AtomicU64::new(0), entries: RwLock::default() }
    }
}

impl<T> Table<T> {
    /// Adds a thing and answers its handle, which is never 0.
    pub fn insert(&self, thing: T) -> u64 {
        let handle = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        entries.insert(handle, Arc::new(thing));
        handle
    }

    /// The thing of a handle, else EBADF.
    pub fn find(&self, handle: u64) -> Result<Arc<T>, Errno> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let found = entries.get(&handle).cloned();
        found.ok_or_else(|| Errno::because(Errno::EBADF, format!("handle {handle} is not open")))
    }

    /// Takes a thing out. It goes when the last request that uses it is done.
    pub fn remove(&self, handle: u64) -> Option<Arc<T>> {
        self.entries.write().unwrap_or_else(PoisonError::into_inner).remove(&handle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_handle_is_never_given_out_again() {
        let table = Table::default();
        let first = table.insert('a');
        assert_ne!(first, 0);
        assert_eq!(table.find(first).as_deref(), Ok(&'a'));
        table.remove(first);
        let second = table.insert('b');
        assert_ne!(first, second);
        assert_eq!(table.find(first).map_err(|error| error.code), Err(Errno::EBADF));
    }
}
