//! varstrip: a round of strips, each with its own server and size, over and over.

use super::{Distribution, Spot};

/// PVFS2 varstrip: `strips` of one round in order, each (slot, bytes). A slot may have several in a
/// round, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Varstrip {
    strips: Vec<Strip>,
    /// Bytes of one round.
    round: u64,
    /// Bytes of one round on each slot.
    slot_rounds: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Strip {
    slot: usize,
    bytes: u64,
    /// Where it begins in the round.
    start: u64,
    /// Where it begins in its slot's part of the round.
    physical: u64,
}

impl Varstrip {
    /// A round of strips over `slots` slots.
    pub fn new(strips: impl Iterator<Item = (u32, u32)>, slots: usize) -> Self {
        let mut slot_rounds = vec![0; slots];
        let mut round = 0;
        let mut place = |(slot, bytes): (u32, u32)| {
            let (slot, bytes) = (slot as usize, u64::from(bytes));
            let strip = Strip { slot, bytes, start: round, physical: slot_rounds[slot] };
            round += bytes;
            slot_rounds[slot] += bytes;
            strip
        };
        let strips: Vec<Strip> = strips.map(&mut place).collect();
        assert!(round > 0, "a layout is checked before it is used");
        Varstrip { strips, round, slot_rounds }
    }
}

impl Distribution for Varstrip {
    fn slots(&self) -> usize {
        self.slot_rounds.len()
    }

    fn locate(&self, logical: u64) -> Spot {
        let (turn, within) = (logical / self.round, logical % self.round);
        let strip = self.strips[self.strips.partition_point(|strip| strip.start <= within) - 1];
        let in_strip = within - strip.start;
        let physical = turn * self.slot_rounds[strip.slot] + strip.physical + in_strip;
        Spot { slot: strip.slot, physical, run: strip.bytes - in_strip }
    }

    fn physical_size(&self, slot: usize, logical_size: u64) -> u64 {
        let (turns, within) = (logical_size / self.round, logical_size % self.round);
        let mine = self.strips.iter().filter(|strip| strip.slot == slot);
        let last: u64 = mine.map(|strip| within.saturating_sub(strip.start).min(strip.bytes)).sum();
        turns * self.slot_rounds[slot] + last
    }

    fn logical(&self, slot: usize, physical: u64) -> u64 {
        let Some(turn) = physical.checked_div(self.slot_rounds[slot]) else { return u64::MAX };
        let within = physical % self.slot_rounds[slot];
        let mut mine = self.strips.iter().filter(|strip| strip.slot == slot);
        let strip = mine.rfind(|strip| strip.physical <= within).expect("the slot has a strip");
        turn * self.round + strip.start + (within - strip.physical)
    }
}
