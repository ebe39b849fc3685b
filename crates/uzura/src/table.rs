//! Registrations, and the two tables that a key is looked up in.
//!
//! The near table is bounded and holds what is used most; the host table holds everything. As on the paper's card
//! the near one is 4 MB unless told otherwise. An entry is a registration: inside of it addresses are the
//! process's own, whose pages the machine translates.

mod near;

use crate::Fault;
use crate::api::{Key, Rights};
use covey_wire::Span;
use covey_wire::transport::PUBLISHED_MAX;
use near::Near;
use std::collections::HashMap;

/// Memory that peers may access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Registration {
    pub key: u64,
    pub span: Span,
    pub rights: u32,
}

/// A registration, and what only its owner knows.
#[derive(Clone, Copy, Debug)]
struct Entry {
    registration: Registration,
    /// Its user chose the key.
    is_chosen: bool,
    /// Where it is published.
    slot: Option<u32>,
}

/// All registrations of an engine.
#[derive(Debug)]
pub(crate) struct Table {
    near: Near,
    host: HashMap<u64, Entry>,
    /// Which slots a transport publishes.
    published: Vec<bool>,
    /// Indices that are free, and what their keys count up to.
    free: Vec<u32>,
    serials: Vec<u32>,
    seed: u64,
    pub hits: u64,
    pub misses: u64,
}

impl Table {
    pub fn new(near_bytes: usize, seed: u64) -> Table {
        Table {
            near: Near::new(near_bytes),
            host: HashMap::new(),
            published: vec![false; PUBLISHED_MAX as usize],
            free: Vec::new(),
            serials: Vec::new(),
            seed,
            hits: 0,
            misses: 0,
        }
    }

    /// Adds one. `None` when there are too many.
    pub fn add(&mut self, span: Span, rights: Rights) -> Option<Registration> {
        loop {
            let index = match self.free.pop() {
                Some(index) => index,
                None if self.serials.len() < REGISTRATIONS_MAX => {
                    self.serials.push(0);
                    self.serials.len() as u32 - 1
                }
                None => return None,
            };
            let serial = &mut self.serials[index as usize];
            *serial += 1;
            let key = key(self.seed, index, *serial);
            if !self.host.contains_key(&key) {
                return Some(self.insert(Registration { key, span, rights: rights.0 }, false));
            }
            // Somebody chose the same one.
            self.free(index);
        }
    }

    /// Adds one whose key its user chose.
    pub fn add_as(&mut self, key: u64, span: Span, rights: Rights) -> Result<Registration, Fault> {
        self.check(key)?;
        Ok(self.insert(Registration { key, span, rights: rights.0 }, true))
    }

    /// Whether a registration may have this key.
    pub fn check(&self, key: u64) -> Result<(), Fault> {
        if self.host.contains_key(&key) {
            return Err(Fault::KeyTaken);
        }
        if self.host.len() >= REGISTRATIONS_MAX {
            return Err(Fault::Busy);
        }
        Ok(())
    }

    fn insert(&mut self, registration: Registration, is_chosen: bool) -> Registration {
        let entry = Entry { registration, is_chosen, slot: None };
        self.host.insert(registration.key, entry);
        registration
    }

    /// The slot that a registration is to be published in, if one of those that peers look at is free.
    pub fn publish(&mut self, key: u64) -> Option<u32> {
        let free = |slot: &u32| !self.published[*slot as usize];
        let slot = slots(key).find(free)?;
        self.host.get_mut(&key)?.slot = Some(slot);
        self.published[slot as usize] = true;
        Some(slot)
    }

    /// Takes one back, at once and in both tables. Answers the slot that it was published in.
    pub fn remove(&mut self, key: Key) -> Result<Option<u32>, Fault> {
        let entry = self.host.remove(&key.0).ok_or_else(|| self.fault(key.0))?;
        self.near.remove(key.0);
        if !entry.is_chosen {
            self.free(index(key.0));
        }
        if let Some(slot) = entry.slot {
            self.published[slot as usize] = false;
        }
        Ok(entry.slot)
    }

    /// An index is used again. One whose numbers are used up stays unused: a key is never given out twice.
    fn free(&mut self, index: u32) {
        if self.serials[index as usize] < SERIAL_MAX {
            self.free.push(index);
        }
    }

    /// What a key stands for.
    pub fn find(&mut self, key: u64) -> Result<Registration, Fault> {
        if let Some(found) = self.near.find(key) {
            self.hits += 1;
            return Ok(found);
        }
        self.misses += 1;
        let found = self.host.get(&key).ok_or_else(|| self.fault(key))?.registration;
        self.near.insert(found);
        Ok(found)
    }

    /// Memory that a key permits to be accessed: `hull` around `at`. Answers the span and where in it displacement
    /// 0 lies.
    pub fn translate(
        &mut self,
        key: u64,
        right: Rights,
        at: u64,
        hull: (i64, i64),
    ) -> Result<Span, Fault> {
        let found = self.find(key)?;
        permitted(&found, right, at, hull)
    }

    /// A key of ours that is no longer one, or one that never was.
    fn fault(&self, key: u64) -> Fault {
        let (index, serial) = (index(key), serial(key));
        let given = self.serials.get(index as usize).is_some_and(|last| serial <= *last);
        let is_ours = given && serial > 0 && self::key(self.seed, index, serial) == key;
        if is_ours { Fault::Revoked } else { Fault::WrongKey }
    }
}

/// The part of a registration that an access is about.
pub(crate) fn permitted(
    found: &Registration,
    right: Rights,
    at: u64,
    (begin, end): (i64, i64),
) -> Result<Span, Fault> {
    if !Rights(found.rights).permit(right) {
        return Err(Fault::Denied);
    }
    let at = offset(found, at).ok_or(Fault::OutOfRange)?;
    let from = at.checked_add_signed(begin).ok_or(Fault::OutOfRange)?;
    let to = at.checked_add_signed(end).ok_or(Fault::OutOfRange)?;
    found.span.part(from, to.saturating_sub(from)).ok_or(Fault::OutOfRange)
}

/// How far in a registration lies what a peer means by `at`.
pub(crate) fn offset(found: &Registration, at: u64) -> Option<u64> {
    let is_address = Rights(found.rights).permit(Rights::BY_ADDRESS);
    if is_address { at.checked_sub(found.span.address) } else { Some(at) }
}

/// Where a key may be published: at its index, as most of those that the engine chose, or at a place of the second half that
/// all of its bits decide. None for 0, which is no key there.
pub(crate) fn slots(key: u64) -> impl Iterator<Item = u32> {
    let half = PUBLISHED_MAX / 2;
    let mixed = half + (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u32 % half;
    let first = Some(index(key)).filter(|index| *index < PUBLISHED_MAX && *index != mixed);
    first.into_iter().chain(Some(mixed)).filter(move |_| key != 0)
}

/// The place in the list of registrations that a key names.
fn index(key: u64) -> u32 {
    (key & (REGISTRATIONS_MAX as u64 - 1)) as u32
}

fn serial(key: u64) -> u32 {
    (key >> 20 & u64::from(SERIAL_MAX)) as u32
}

/// 20 bits of index, 20 bits of serial number, 24 bits that a stranger has to guess.
fn key(seed: u64, index: u32, serial: u32) -> u64 {
    let low = u64::from(index) | u64::from(serial) << 20;
    let mut mix = seed ^ low.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mix = (mix ^ (mix >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mix = (mix ^ (mix >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    low | (mix ^ (mix >> 31)) >> 40 << 40
}

const REGISTRATIONS_MAX: usize = 1 << 20;
const SERIAL_MAX: u32 = (1 << 20) - 1;

#[cfg(test)]
mod tests;
