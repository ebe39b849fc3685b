//! The near translation table: a bounded part of the registrations, those that are used most.
//!
//! A key has one set of four entries that it can be in. A newcomer takes the place of the one that was used least,
//! and all uses of the set are halved, so that what was used long ago does not stay for ever.

use super::Registration;

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    registration: Registration,
    uses: u32,
}

#[derive(Debug)]
pub(super) struct Near {
    sets: Vec<[Entry; WAYS]>,
}

impl Near {
    /// As many sets as `bytes` have room for; none when that is less than one.
    pub fn new(bytes: usize) -> Near {
        let sets = bytes / size_of::<[Entry; WAYS]>();
        let sets = if sets == 0 { 0 } else { 1 << sets.ilog2() };
        Near { sets: vec![Default::default(); sets] }
    }

    pub fn find(&mut self, key: u64) -> Option<Registration> {
        // Places without a registration have key 0; one that really has it is looked for in the host's table.
        let is_it = |entry: &&mut Entry| key != 0 && entry.registration.key == key;
        let entry = self.set(key)?.iter_mut().find(is_it)?;
        entry.uses = entry.uses.saturating_add(1);
        Some(entry.registration)
    }

    pub fn insert(&mut self, registration: Registration) {
        let Some(set) = self.set(registration.key).filter(|_| registration.key != 0) else {
            return;
        };
        let Some(least) = (0..WAYS).min_by_key(|way| set[*way].uses) else { return };
        set.iter_mut().for_each(|entry| entry.uses /= 2);
        set[least] = Entry { registration, uses: 1 };
    }

    pub fn remove(&mut self, key: u64) {
        let entries = self.set(key).into_iter().flatten();
        for entry in entries.filter(|entry| entry.registration.key == key) {
            *entry = Entry::default();
        }
    }

    fn set(&mut self, key: u64) -> Option<&mut [Entry; WAYS]> {
        let at = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let mask = (self.sets.len() as u64).checked_sub(1)?;
        self.sets.get_mut((at & mask) as usize)
    }
}

const WAYS: usize = 4;
