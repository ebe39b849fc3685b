//! Memory of the shared file that a program allocates for its messages.

use covey_wire::Span;
use std::collections::BTreeMap;

/// Free and taken parts of one span.
#[derive(Debug)]
pub(super) struct Heap {
    /// Bytes, by address. Neighbours are joined.
    free: BTreeMap<u64, u64>,
    taken: BTreeMap<u64, u64>,
}

impl Heap {
    pub fn new(all: Span) -> Heap {
        Heap { free: BTreeMap::from([(all.address, all.bytes)]), taken: BTreeMap::new() }
    }

    /// The first free part of this many bytes, at a page where it is a page or more, else at a cache line.
    pub fn allocate(&mut self, bytes: u64) -> Option<Span> {
        self.allocate_at(bytes, 0)
    }

    /// The same, at a multiple of `align` as well, which is a power of two.
    pub fn allocate_at(&mut self, bytes: u64, align: u64) -> Option<Span> {
        let align = align.max(if bytes >= 4096 { 4096 } else { 64 });
        let room = bytes.max(1).checked_next_multiple_of(align)?;
        let (address, length, start) = self.free.iter().find_map(|(&address, &length)| {
            let start = address.checked_next_multiple_of(align)?;
            let fits = start.checked_add(room)? <= address + length;
            fits.then_some((address, length, start))
        })?;
        self.free.remove(&address);
        if start > address {
            self.free.insert(address, start - address);
        }
        let left = address + length - (start + room);
        if left > 0 {
            self.free.insert(start + room, left);
        }
        self.taken.insert(start, room);
        Some(Span::new(start, bytes))
    }

    /// Gives back what was allocated. False when it was not.
    pub fn release(&mut self, address: u64) -> bool {
        let Some(mut bytes) = self.taken.remove(&address) else { return false };
        let mut start = address;
        if let Some((&before, &length)) = self.free.range(..address).next_back()
            && before + length == address
        {
            self.free.remove(&before);
            (start, bytes) = (before, bytes + length);
        }
        if let Some(length) = self.free.remove(&(start + bytes)) {
            bytes += length;
        }
        self.free.insert(start, bytes);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_never_overlap_and_all_comes_back() {
        let all = Span::new(1 << 20, 1 << 20);
        let mut heap = Heap::new(all);
        let mut random = crate::sim::Rng::new(7);
        let mut taken: Vec<Span> = Vec::new();
        for _ in 0..10_000 {
            if random.chance(550)
                && let Some(span) = heap.allocate(random.below(20_000))
            {
                assert!(taken.iter().all(|other| !span.overlaps(*other)), "{span:?}");
                assert!(span.address >= all.address && span.end() <= all.end());
                taken.push(span);
            } else if !taken.is_empty() {
                let span = taken.swap_remove(random.index(taken.len()));
                assert!(heap.release(span.address));
                assert!(!heap.release(span.address), "once only");
            }
        }
        for span in taken {
            assert!(heap.release(span.address));
        }
        assert_eq!(heap.allocate(all.bytes), Some(all));
    }
}
