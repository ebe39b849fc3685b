//! A map that changes by whole checkpoints, as LMDB's does, and becomes full as it does: what is changed needs
//! space beside what it replaces, which is free two checkpoints later. It has its space from the disk
//! and keeps some of it ahead. It fails at twice its limit, as there is twice the address space.

use super::{SimDisk, State};
use crate::disk::MapSpace;
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
    /// Bytes of the rows now, and at the last checkpoint.
    used: u64,
    used_before: u64,
    dirty: u64,
    pending: u64,
}

/// What the disk has of a map.
#[derive(Debug)]
pub struct Durable {
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(super) held: u64,
    /// What it may take of the disk.
    limit: u64,
}

impl Default for Durable {
    fn default() -> Durable {
        Durable { rows: BTreeMap::new(), held: 0, limit: u64::MAX }
    }
}

/// What a row takes beside its bytes.
const ROW_BYTES: u64 = 32;

fn bytes_of(key: &[u8], value: &[u8]) -> u64 {
    (key.len() + value.len()) as u64 + ROW_BYTES
}

impl SimDisk {
    /// Opens the map called `path`, as of its last checkpoint.
    pub fn map(&self, path: &Path) -> SimMap {
        let mut state = self.lock();
        let durable = state.maps.entry(path.to_owned()).or_default();
        let rows = durable.rows.clone();
        let used = rows.iter().map(|(key, value)| bytes_of(key, value)).sum();
        state.keep_ahead(path, used);
        drop(state);
        let (disk, path, changed) = (self.clone(), path.to_owned(), BTreeMap::new());
        SimMap { disk, path, rows, changed, used, used_before: used, dirty: 0, pending: 0 }
    }

    /// Sets how much of the disk a map may take; it keeps what it has. None: as much as there is.
    pub fn limit_map(&self, path: &Path, limit: Option<u64>) {
        self.lock().maps.entry(path.to_owned()).or_default().limit = limit.unwrap_or(u64::MAX);
    }

    /// Bytes of a map's rows at its last checkpoint.
    pub fn map_used(&self, path: &Path) -> u64 {
        let state = self.lock();
        let rows = state.maps.get(path).into_iter().flat_map(|map| &map.rows);
        rows.map(|(key, value)| bytes_of(key, value)).sum()
    }
}

impl State {
    /// Takes space of the disk for a map, until it has so much; whether it has.
    fn hold(&mut self, path: &Path, wanted: u64) -> bool {
        let room = self.profile.capacity.saturating_sub(self.used);
        let durable = self.maps.entry(path.to_owned()).or_default();
        let grows = wanted.saturating_sub(durable.held);
        let fits = grows <= room;
        if fits {
            durable.held += grows;
            self.used += grows;
        }
        fits
    }

    /// Takes space for what comes after a checkpoint, where the disk has it.
    fn keep_ahead(&mut self, path: &Path, used: u64) {
        let limit = self.maps.get(path).map_or(u64::MAX, |durable| durable.limit);
        let reserve = MapSpace::reserve(self.profile.capacity.min(limit));
        self.hold(path, used + reserve);
    }
}

impl SimMap {
    /// The value of `key`.
    pub fn value(&self, key: &[u8]) -> Option<&[u8]> {
        self.rows.get(key).map(Vec::as_slice)
    }

    /// Sets `key`. ENOSPC when the map is full: then it is as it was at the last checkpoint only.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.change(key, Some(value)).map(drop)
    }

    /// Removes `key`; whether it was there. ENOSPC as for `put`.
    pub fn delete(&mut self, key: &[u8]) -> io::Result<bool> {
        self.change(key, None)
    }

    /// Whether the key was there. What is changed is written to another place, and so is its
    /// neighbourhood.
    fn change(&mut self, key: &[u8], value: Option<&[u8]>) -> io::Result<bool> {
        let adds = value.map_or(0, |value| bytes_of(key, value));
        let space = self.space();
        if self.used_before + self.dirty + adds + self.pending > space.limit.saturating_mul(2) {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        let before = match value {
            Some(value) => self.rows.insert(key.to_vec(), value.to_vec()),
            None => self.rows.remove(key),
        };
        let removes = before.as_ref().map_or(0, |before| bytes_of(key, before));
        if value.is_some() || before.is_some() {
            self.changed.insert(key.to_vec(), value.map(<[u8]>::to_vec));
            self.used = self.used + adds - removes;
            self.dirty += adds.max(removes) + ROW_BYTES;
        }
        Ok(before.is_some())
    }

    /// What it uses, and what it has for more.
    pub fn space(&self) -> MapSpace {
        let state = self.disk.lock();
        let (held, limit) =
            state.maps.get(&self.path).map_or((0, u64::MAX), |map| (map.held, map.limit));
        MapSpace { used: self.used, dirty: self.dirty, pending: self.pending, held, limit }
    }

    /// Visits keys from `from` on in order, until `visit` answers false.
    pub fn scan(&self, from: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) {
        for (key, value) in self.rows.range(from.to_vec()..) {
            if !visit(key, value) {
                break;
            }
        }
    }

    /// Makes every change durable, all or none. After an error (EIO, ENOSPC) it is back at the last
    /// checkpoint.
    pub fn checkpoint(&mut self) -> io::Result<()> {
        let changed = std::mem::take(&mut self.changed);
        let wanted = self.used_before + self.dirty + self.pending;
        let used = self.used;
        let done = self.disk.change(|state, fate| {
            if !state.is_done(fate) {
                return Ok(());
            }
            if !state.hold(&self.path, wanted) {
                return Err(io::Error::from_raw_os_error(libc::ENOSPC));
            }
            if state.sync_fails() {
                return Err(io::Error::from_raw_os_error(libc::EIO));
            }
            let rows = &mut state.maps.entry(self.path.clone()).or_default().rows;
            for (key, value) in changed {
                match value {
                    Some(value) => drop(rows.insert(key, value)),
                    None => drop(rows.remove(&key)),
                }
            }
            state.keep_ahead(&self.path, used);
            Ok(())
        });
        match &done {
            Ok(()) => (self.used_before, self.pending) = (self.used, self.dirty),
            Err(_) => {
                let state = self.disk.lock();
                self.rows =
                    state.maps.get(&self.path).map(|map| map.rows.clone()).unwrap_or_default();
                self.used = self.used_before;
            }
        }
        self.dirty = 0;
        done
    }
}
