//! What a loss of power leaves.

use super::{SimDisk, State};
use crate::task;
use std::collections::BTreeSet;
use std::path::Path;

impl SimDisk {
    /// The power goes: what the disk does not hold is lost.
    pub fn lose_power(&self) {
        let mut state = self.lock();
        let state = &mut *state;
        state.crash_after = None;
        state.failing_syncs = 0;
        state.starts += 1;
        state.started_at = Some(task::now());
        let kept = state.rng.within(state.durable_changes..state.changes + 1);
        state.make_durable(kept);
        state.journal.clear();
        state.names = state.durable_names.clone();
        // Names that are back have their directories.
        let back: Vec<_> = state.names.keys().filter_map(|path| path.parent()).collect();
        state.dirs.extend(back.into_iter().flat_map(Path::ancestors).map(Path::to_owned));
        let named: BTreeSet<u64> = state.names.values().copied().collect();
        state.inodes.retain(|number, _| named.contains(number));
        state.used = state.maps.values().map(|map| map.held).sum();
        // In the order of their numbers, or the same seed would not do the same.
        for number in named {
            let inode = state.inodes.get_mut(&number).expect("names lead to inodes");
            inode.is_named = true;
            inode.lose_power(kept, &mut state.rng);
            state.used += inode.len();
        }
        (state.changes, state.durable_changes) = (0, 0);
    }
}

impl State {
    /// Changes of names up to `number` are on the disk from now on.
    pub(super) fn make_durable(&mut self, number: u64) {
        self.durable_changes = self.durable_changes.max(number);
        let later = self.journal.partition_point(|change| change.number <= number);
        for change in self.journal.drain(..later) {
            for (path, inode) in change.sets {
                match inode {
                    Some(inode) => drop(self.durable_names.insert(path, inode)),
                    None => drop(self.durable_names.remove(&path)),
                }
            }
        }
    }
}
