//! Who has written what may not be on stable storage yet, and must hear of it if that is lost.
//!
//! A store reports a failed sync once, to one caller, and takes what was lost for written from then on. So it counts its
//! losses ([`Store::losses`](crate::store::Store::losses)). A port remembers the count of when it first wrote since its last
//! sync: if the count is another one when it syncs next, something that it wrote may be lost, whoever was told before.

use super::Nexus;
use super::reservations::Port;
use super::unit::Unit;
use std::collections::{BTreeMap, VecDeque};

/// The count of losses at the first write of each port since its last sync.
#[derive(Default)]
pub(super) struct Unsynced {
    by_nexus: BTreeMap<u64, (Port, u64)>,
    /// What a nexus was told of by its last sync. It has not heard of that if it is lost before it asks for another one.
    told: BTreeMap<u64, (Port, u64)>,
    /// Of nexuses that are gone. Their ports may come back and sync.
    departed: VecDeque<(Port, u64)>,
    /// Syncs that have begun.
    syncs: u64,
}

/// What a write that is under way was noted with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Noted {
    losses: u64,
    syncs: u64,
}

impl Unsynced {
    /// This nexus is about to write.
    pub(super) fn note(&mut self, nexus: &Nexus, losses: u64) -> Noted {
        self.by_nexus.entry(nexus.number).or_insert_with(|| (Port::of(nexus), losses));
        Noted { losses, syncs: self.syncs }
    }

    /// It has written. A sync that began meanwhile did not speak for these bytes, but the next one does.
    pub(super) fn wrote(&mut self, nexus: &Nexus, noted: Noted) {
        if self.syncs == noted.syncs {
            return;
        }
        match self.by_nexus.get_mut(&nexus.number) {
            Some((_, losses)) => *losses = noted.losses.min(*losses),
            // It may be gone by now.
            None => self.remember(Port::of(nexus), noted.losses),
        }
    }

    /// A sync begins, which speaks for what this nexus and its port have written so far.
    pub(super) fn take(&mut self, nexus: &Nexus) -> Option<u64> {
        self.syncs += 1;
        self.told.remove(&nexus.number);
        let ours = self.by_nexus.remove(&nexus.number).map(|(_, losses)| losses);
        let port = Port::of(nexus);
        let before = self.departed.iter().position(|(other, _)| *other == port);
        let before = before.and_then(|at| self.departed.remove(at)).map(|(_, losses)| losses);
        // Counts only grow: the older write is the one that may have lost more.
        ours.into_iter().chain(before).min()
    }

    /// A nexus is no more.
    pub(super) fn depart(&mut self, nexus: u64) {
        let told = self.told.remove(&nexus);
        for (port, losses) in self.by_nexus.remove(&nexus).into_iter().chain(told) {
            self.remember(port, losses);
        }
    }

    /// The next sync of this port speaks for what it wrote at this count.
    fn remember(&mut self, port: Port, losses: u64) {
        match self.departed.iter_mut().find(|(other, _)| *other == port) {
            Some((_, before)) => *before = losses.min(*before),
            None => {
                if self.departed.len() == DEPARTED_MAX {
                    self.departed.pop_front();
                }
                self.departed.push_back((port, losses));
            }
        }
    }
}

/// A sync on behalf of a nexus. One that is given up midway has said nothing to anybody.
pub(super) struct Syncing<'a> {
    unit: &'a Unit,
    nexus: &'a Nexus,
    since: Option<u64>,
}

impl<'a> Syncing<'a> {
    pub(super) fn begin(unit: &'a Unit, nexus: &'a Nexus) -> Syncing<'a> {
        let since = unit.lock().unsynced.take(nexus);
        Syncing { unit, nexus, since }
    }

    /// The store has answered, well or not. Whether all that the nexus wrote before is on stable storage.
    pub(super) fn end(mut self, is_good: bool) -> bool {
        let Some(since) = self.since else { return is_good };
        let is_lost = self.unit.losses() != since;
        if is_good || is_lost {
            // What is to be said of those writes is said now.
            self.since = None;
        }
        if is_lost {
            let told = (Port::of(self.nexus), since);
            self.unit.lock().unsynced.told.insert(self.nexus.number, told);
        }
        is_good && !is_lost
    }
}

impl Drop for Syncing<'_> {
    fn drop(&mut self) {
        if let Some(since) = self.since {
            self.unit.lock().unsynced.remember(Port::of(self.nexus), since);
        }
    }
}

/// How many ports are remembered that have written, and left without a sync.
const DEPARTED_MAX: usize = 256;
