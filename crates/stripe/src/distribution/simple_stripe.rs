//! simple_stripe: strips of one size, dealt round robin.

use super::{Distribution, Spot};

/// Strips dealt round robin, all of one size (PVFS2 simple_stripe). With one slot it is PVFS2's
/// basic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimpleStripe {
    strip: u64,
    slots: usize,
}

impl SimpleStripe {
    /// `strip_bytes` per slot and turn over `slots` slots.
    pub fn new(strip_bytes: u32, slots: usize) -> Self {
        assert!(strip_bytes > 0 && slots > 0, "a layout is checked before it is used");
        SimpleStripe { strip: u64::from(strip_bytes), slots }
    }

    fn stripe(&self) -> u64 {
        self.strip * self.slots as u64
    }
}

impl Distribution for SimpleStripe {
    fn slots(&self) -> usize {
        self.slots
    }

    fn locate(&self, logical: u64) -> Spot {
        if self.slots == 1 {
            let run = (u64::MAX - logical).max(1);
            return Spot { slot: 0, physical: logical, run };
        }
        let (turn, within) = (logical / self.stripe(), logical % self.stripe());
        let in_strip = within % self.strip;
        Spot {
            slot: (within / self.strip) as usize,
            physical: turn * self.strip + in_strip,
            run: self.strip - in_strip,
        }
    }

    fn physical_size(&self, slot: usize, logical_size: u64) -> u64 {
        let (turns, within) = (logical_size / self.stripe(), logical_size % self.stripe());
        let before = slot as u64 * self.strip;
        turns * self.strip + within.saturating_sub(before).min(self.strip)
    }

    fn logical(&self, slot: usize, physical: u64) -> u64 {
        let (turn, in_strip) = (physical / self.strip, physical % self.strip);
        turn * self.stripe() + slot as u64 * self.strip + in_strip
    }
}
