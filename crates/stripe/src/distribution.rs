//! Distributions: which byte of a file lies where. Pure functions, as in PVFS2.
//!
//! A file's logical bytes are dealt to *slots*, one per I/O server of its layout; each slot has an
//! object of *physical* bytes. A distribution is a bijection between logical offsets and
//! (slot, physical offset), fixed when the file is created.
//!
//! ```text
//!   logical   |A A A A|B B B B|C C C C|D D D D|E E E E|F F         strip_bytes = 4, 3 slots
//!   slot 0    |A A A A|D D D D|
//!   slot 1    |B B B B|E E E E|
//!   slot 2    |C C C C|F F
//! ```

use crate::ops::Layout;
use covey_ninep::tree::Errno;

/// Smallest strip that is accepted, in bytes.
pub const STRIP_BYTES_MIN: u32 = 4 << 10;
/// Largest strip that is accepted, in bytes.
pub const STRIP_BYTES_MAX: u32 = 64 << 20;
/// The strip used when nobody says otherwise: PVFS2's 64 KiB.
pub const STRIP_BYTES_DEFAULT: u32 = 64 << 10;

/// Number of the simple_stripe distribution in a [`Layout`].
pub const SIMPLE_STRIPE: u8 = 1;

/// Where a logical byte lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// Index into the layout's servers.
    pub slot: usize,
    /// Offset in the slot's object.
    pub physical: u64,
    /// How many bytes from here on lie one after another on that slot and in the file, at least 1.
    pub run: u64,
}

/// The mapping of one file.
pub trait Distribution {
    /// How many slots there are.
    fn slots(&self) -> usize;

    /// Where the byte at `logical` lies.
    fn locate(&self, logical: u64) -> Spot;

    /// How long the object of `slot` is when the file is `logical_size` bytes and has no holes.
    fn physical_size(&self, slot: usize, logical_size: u64) -> u64;

    /// The logical offset of a byte of an object: the inverse of `locate`.
    fn logical(&self, slot: usize, physical: u64) -> u64;
}

/// Strips dealt round robin, all of one size (PVFS2 simple_stripe).
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
        let (turn, within) = (logical / self.stripe(), logical % self.stripe());
        let in_strip = within % self.strip;
        let run = if self.slots == 1 { u64::MAX - logical } else { self.strip - in_strip };
        Spot {
            slot: (within / self.strip) as usize,
            physical: turn * self.strip + in_strip,
            run: run.max(1),
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

/// The distribution that a layout names.
///
/// Fails with EIO on a kind this version does not know and on impossible numbers, which only a
/// newer or damaged metadata store can hold.
pub fn of(layout: &Layout) -> Result<SimpleStripe, Errno> {
    let slots = layout.servers.0.len();
    match layout.kind {
        SIMPLE_STRIPE if slots > 0 && layout.strip_bytes > 0 => {
            Ok(SimpleStripe::new(layout.strip_bytes, slots))
        }
        SIMPLE_STRIPE => Err(Errno::because(Errno::EIO, "layout has no servers or an empty strip")),
        kind => Err(Errno::because(
            Errno::EIO,
            format!("layout kind {kind} is not known to this version; hint: upgrade covey"),
        )),
    }
}

/// What one slot contributes to a logical range: one physical range, and the pieces of the file it
/// carries in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Index into the layout's servers.
    pub slot: usize,
    /// First byte in the slot's object.
    pub physical: u64,
    /// Bytes in all.
    pub length: u64,
    /// (offset from the start of the logical range, bytes), in physical order.
    pub pieces: Vec<(u64, u64)>,
}

/// Splits `length` bytes from `offset` into parts of one contiguous physical range each: one request
/// per server, not one per strip. Parts are cut at `part_bytes_max`.
pub fn parts(map: &impl Distribution, offset: u64, length: u64, part_bytes_max: u64) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::with_capacity(map.slots().min(16));
    let mut open: Vec<Option<usize>> = vec![None; map.slots()];
    let mut done = 0;
    while done < length {
        let spot = map.locate(offset + done);
        let mut step = spot.run.min(length - done);
        let joined = open[spot.slot].filter(|&at| {
            let part: &Part = &parts[at];
            part.physical + part.length == spot.physical && part.length < part_bytes_max
        });
        let at = joined.unwrap_or_else(|| {
            parts.push(Part {
                slot: spot.slot,
                physical: spot.physical,
                length: 0,
                pieces: vec![],
            });
            parts.len() - 1
        });
        open[spot.slot] = Some(at);
        let part = &mut parts[at];
        step = step.min(part_bytes_max - part.length);
        part.pieces.push((done, step));
        part.length += step;
        done += step;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_picture_of_the_module_holds() {
        let map = SimpleStripe::new(4, 3);
        assert_eq!(map.locate(13), Spot { slot: 0, physical: 5, run: 3 });
        assert_eq!(map.physical_size(0, 22), 8);
        assert_eq!(map.physical_size(2, 22), 6);
        assert_eq!(map.logical(2, 5), 21);
    }

    #[test]
    fn a_range_becomes_one_request_per_server() {
        let map = SimpleStripe::new(4, 3);
        let parts = parts(&map, 2, 20, u64::MAX);
        assert_eq!(parts.len(), 3);
        assert_eq!(parts[0].pieces, [(0, 2), (10, 4)]);
        assert_eq!(parts[0].physical, 2);
    }

    proptest! {
        #[test]
        fn locate_and_logical_are_inverse(strip in 1u32..9000, slots in 1usize..9, at in 0u64..1 << 40) {
            let map = SimpleStripe::new(strip, slots);
            let spot = map.locate(at);
            prop_assert_eq!(map.logical(spot.slot, spot.physical), at);
            prop_assert!(map.physical_size(spot.slot, at) <= spot.physical);
            prop_assert!(map.physical_size(spot.slot, at + 1) == spot.physical + 1);
        }

        #[test]
        fn sizes_of_the_objects_add_up(strip in 1u32..9000, slots in 1usize..9, size in 0u64..1 << 30) {
            let map = SimpleStripe::new(strip, slots);
            let sum: u64 = (0..slots).map(|slot| map.physical_size(slot, size)).sum();
            prop_assert_eq!(sum, size);
        }

        #[test]
        fn parts_cover_each_byte_once(
            strip in 1u32..500, slots in 1usize..6, offset in 0u64..5000, length in 0u64..5000,
            most in 1u64..3000,
        ) {
            let map = SimpleStripe::new(strip, slots);
            let mut seen = vec![0u8; length as usize];
            for part in parts(&map, offset, length, most) {
                prop_assert!(part.length <= most);
                let mut physical = part.physical;
                for (from, bytes) in part.pieces {
                    for at in from..from + bytes {
                        let spot = map.locate(offset + at);
                        prop_assert_eq!((spot.slot, spot.physical), (part.slot, physical));
                        seen[at as usize] += 1;
                        physical += 1;
                    }
                }
            }
            prop_assert!(seen.iter().all(|&count| count == 1));
        }
    }
}
