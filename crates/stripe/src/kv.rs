//! The ordered map that the metadata lives in. LMDB in production, a `BTreeMap` in tests.

use covey_ninep::tree::Errno;
use std::collections::BTreeMap;

/// An ordered map of bytes, written inside one open transaction.
///
/// Keys are at most 511 bytes (LMDB). An error leaves the transaction unusable: the caller rolls back
/// to the last checkpoint and replays its log.
pub trait Kv {
    /// The value of `key`.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Errno>;

    /// Sets `key`.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Errno>;

    /// Removes `key`; whether it was there.
    fn delete(&mut self, key: &[u8]) -> Result<bool, Errno>;

    /// Visits keys from `from` on in order, until `visit` answers false.
    fn scan(&self, from: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), Errno>;
}

/// The toy store: everything in memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryKv {
    map: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Kv for MemoryKv {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
        Ok(self.map.get(key).cloned())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Errno> {
        self.map.insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool, Errno> {
        Ok(self.map.remove(key).is_some())
    }

    fn scan(&self, from: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), Errno> {
        for (key, value) in self.map.range(from.to_vec()..) {
            if !visit(key, value) {
                break;
            }
        }
        Ok(())
    }
}
