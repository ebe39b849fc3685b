//! twod_stripe: the servers in groups; some stripes over one group, then as many over the next.
//!
//! ```text
//!   4 slots in 2 groups, factor 2:    |0 1|0 1|2 3|2 3|0 1|0 1|2 3|...
//! ```
//!
//! A transfer of a few strips then meets one group only: with many clients each server hears from
//! fewer of them at once.

use super::{Distribution, SimpleStripe, Spot};

/// PVFS2 twod_stripe. Where the slots do not divide evenly the last group has the rest, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TwodStripe {
    strip_bytes: u32,
    slots: usize,
    groups: usize,
    factor: u64,
}

impl TwodStripe {
    /// `factor` stripes of `strip_bytes` per slot over each of `groups` groups in turn.
    pub fn new(strip_bytes: u32, slots: usize, groups: usize, factor: u32) -> Self {
        let is_possible = strip_bytes > 0 && groups > 0 && groups <= slots && factor > 0;
        assert!(is_possible, "a layout is checked before it is used");
        TwodStripe { strip_bytes, slots, groups, factor: u64::from(factor) }
    }

    /// Slots of each group but the last.
    fn small(&self) -> usize {
        self.slots / self.groups
    }

    fn first_slot(&self, group: usize) -> usize {
        group * self.small()
    }

    /// The stripe within a group.
    fn within(&self, group: usize) -> SimpleStripe {
        let is_last = group + 1 == self.groups;
        let slots = if is_last { self.slots - self.first_slot(group) } else { self.small() };
        SimpleStripe::new(self.strip_bytes, slots)
    }

    fn group_of(&self, slot: usize) -> usize {
        (slot / self.small()).min(self.groups - 1)
    }

    /// Bytes of a slot in one turn of all groups.
    fn slot_turn(&self) -> u64 {
        u64::from(self.strip_bytes) * self.factor
    }

    /// Bytes of all slots in one turn of all groups.
    fn turn(&self) -> u64 {
        self.slot_turn() * self.slots as u64
    }

    /// Where a group's bytes begin within a turn.
    fn start(&self, group: usize) -> u64 {
        self.first_slot(group) as u64 * self.slot_turn()
    }

    /// Bytes of a group in one turn.
    fn group_turn(&self, group: usize) -> u64 {
        self.within(group).slots() as u64 * self.slot_turn()
    }
}

impl Distribution for TwodStripe {
    fn slots(&self) -> usize {
        self.slots
    }

    fn locate(&self, logical: u64) -> Spot {
        let (turn, within) = (logical / self.turn(), logical % self.turn());
        let group = self.group_of((within / self.slot_turn()) as usize);
        let in_group = within - self.start(group);
        let spot = self.within(group).locate(in_group);
        Spot {
            slot: self.first_slot(group) + spot.slot,
            physical: turn * self.slot_turn() + spot.physical,
            // A group of one slot has no end of its own.
            run: spot.run.min(self.group_turn(group) - in_group),
        }
    }

    fn physical_size(&self, slot: usize, logical_size: u64) -> u64 {
        let (turns, within) = (logical_size / self.turn(), logical_size % self.turn());
        let group = self.group_of(slot);
        let in_group = within.saturating_sub(self.start(group)).min(self.group_turn(group));
        let last = self.within(group).physical_size(slot - self.first_slot(group), in_group);
        turns * self.slot_turn() + last
    }

    fn logical(&self, slot: usize, physical: u64) -> u64 {
        let (turn, within) = (physical / self.slot_turn(), physical % self.slot_turn());
        let group = self.group_of(slot);
        let in_group = self.within(group).logical(slot - self.first_slot(group), within);
        turn * self.turn() + self.start(group) + in_group
    }
}
