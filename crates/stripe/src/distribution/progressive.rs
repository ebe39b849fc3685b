//! The progressive striping, Covey's default: as a file grows, its new bytes go to more servers.
//!
//! ```text
//!   0          inline         single
//!   |--inline----|---slot 0------|-1-|-2-|-0-|-1-|-2-|...      3 slots
//! ```
//!
//! Small files cost one server and no object at all, large ones have every server, and nobody has to
//! choose. Where each byte lies depends on its offset alone, so growth moves none.

use super::{Distribution, INLINE, SimpleStripe, Spot};

/// The first bytes with the metadata, then on slot 0, then striped over all, from slot 1 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progressive {
    inline: u64,
    single: u64,
    stripe: SimpleStripe,
}

impl Progressive {
    /// `inline_bytes` with the metadata, up to `single_bytes` on slot 0, then `stripe`.
    pub fn new(inline_bytes: u32, single_bytes: u32, stripe: SimpleStripe) -> Self {
        assert!(inline_bytes <= single_bytes, "a layout is checked before it is used");
        Progressive { inline: u64::from(inline_bytes), single: u64::from(single_bytes), stripe }
    }

    /// Where the striped part begins.
    pub fn single_bytes(&self) -> u64 {
        self.single
    }

    /// Bytes of `slot` that lie before its strips.
    fn head(&self, slot: usize) -> u64 {
        if slot == 0 { self.single - self.inline } else { 0 }
    }

    /// A slot's place in the striped part, which begins with slot 1: slot 0 has had its share.
    fn turned(&self, slot: usize) -> usize {
        let slots = self.stripe.slots();
        (slot + slots - 1) % slots
    }
}

impl Distribution for Progressive {
    fn slots(&self) -> usize {
        self.stripe.slots()
    }

    fn locate(&self, logical: u64) -> Spot {
        if logical < self.inline {
            return Spot { slot: INLINE, physical: logical, run: self.inline - logical };
        }
        if logical < self.single {
            let physical = logical - self.inline;
            return Spot { slot: 0, physical, run: self.single - logical };
        }
        let spot = self.stripe.locate(logical - self.single);
        let slot = (spot.slot + 1) % self.stripe.slots();
        Spot { slot, physical: self.head(slot) + spot.physical, run: spot.run }
    }

    fn physical_size(&self, slot: usize, logical_size: u64) -> u64 {
        let head = logical_size.saturating_sub(self.inline).min(self.head(slot));
        let striped = logical_size.saturating_sub(self.single);
        head + self.stripe.physical_size(self.turned(slot), striped)
    }

    fn logical(&self, slot: usize, physical: u64) -> u64 {
        match physical.checked_sub(self.head(slot)) {
            None => self.inline + physical,
            Some(striped) => self.single + self.stripe.logical(self.turned(slot), striped),
        }
    }

    fn inline_bytes(&self) -> u64 {
        self.inline
    }
}
