//! A map that changes by whole checkpoints, as LMDB's does.

use super::SimDisk;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// An open map: what was changed since the last checkpoint goes with its process.
#[derive(Debug)]
pub struct SimMap {
    disk: SimDisk,
    path: PathBuf,
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    changed: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

impl SimDisk {
    /// Opens the map called `path`, as of its last checkpoint.
    pub fn map(&self, path: &Path) -> SimMap {
        let rows = self.lock().maps.entry(path.to_owned()).or_default().clone();
        SimMap { disk: self.clone(), path: path.to_owned(), rows, changed: BTreeMap::new() }
    }
}

impl SimMap {
    /// The value of `key`.
    pub fn value(&self, key: &[u8]) -> Option<&[u8]> {
        self.rows.get(key).map(Vec::as_slice)
    }

    /// Sets `key`.
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        self.rows.insert(key.to_vec(), value.to_vec());
        self.changed.insert(key.to_vec(), Some(value.to_vec()));
    }

    /// Removes `key`; whether it was there.
    pub fn delete(&mut self, key: &[u8]) -> bool {
        let was_there = self.rows.remove(key).is_some();
        if was_there {
            self.changed.insert(key.to_vec(), None);
        }
        was_there
    }

    /// Visits keys from `from` on in order, until `visit` answers false.
    pub fn scan(&self, from: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) {
        for (key, value) in self.rows.range(from.to_vec()..) {
            if !visit(key, value) {
                break;
            }
        }
    }

    /// Makes every change durable, all or none. After an error it is back at the last checkpoint.
    pub fn checkpoint(&mut self) -> io::Result<()> {
        let changed = std::mem::take(&mut self.changed);
        let done = self.disk.change(|state, fate| {
            if !state.is_done(fate) {
                return Ok(());
            }
            if state.sync_fails() {
                return Err(io::Error::from_raw_os_error(libc::EIO));
            }
            let rows = state.maps.entry(self.path.clone()).or_default();
            for (key, value) in changed {
                match value {
                    Some(value) => drop(rows.insert(key, value)),
                    None => drop(rows.remove(&key)),
                }
            }
            Ok(())
        });
        if done.is_err() {
            self.rows = self.disk.lock().maps.get(&self.path).cloned().unwrap_or_default();
        }
        done
    }
}
