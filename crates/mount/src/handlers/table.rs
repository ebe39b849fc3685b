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

    /// A thing that another process has given this handle.
    pub fn insert_at(&self, handle: u64, thing: T) {
        self.last.fetch_max(handle, Ordering::Relaxed);
        self.entries
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(handle, Arc::new(thing));
    }

    /// Handles up to this one are used up.
    pub fn skip_to(&self, handle: u64) {
        self.last.fetch_max(handle, Ordering::Relaxed);
    }

    /// The last handle, and all that is open, in the order of the handles.
    pub fn all(&self) -> (u64, Vec<(u64, Arc<T>)>) {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = entries.iter().map(|(&fh, thing)| (fh, thing.clone())).collect();
        all.sort_unstable_by_key(|(fh, _)| *fh);
        (self.last.load(Ordering::Relaxed), all)
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
    fn what_comes_from_another_process_keeps_its_handle_and_later_ones_are_new() {
        let table = Table::default();
        table.insert_at(7, 'a');
        table.insert_at(3, 'b');
        table.skip_to(9);
        assert_eq!(table.find(3).as_deref(), Ok(&'b'));
        assert_eq!(table.insert('c'), 10);
        let (last, all) = table.all();
        assert_eq!((last, all.iter().map(|(fh, _)| *fh).collect::<Vec<_>>()), (10, vec![3, 7, 10]));
    }

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
