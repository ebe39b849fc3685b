//! Memory of a process that an engine may touch and nothing else: for programs that make no promises about addresses.

use super::addresses::Addresses;
use super::shm::SharedHeap;
use covey_wire::{Memory, NoMemory, Span};

/// Buffers, and the heap of a transport. What lies in none of them is no memory.
#[derive(Debug)]
pub struct Buffers {
    addresses: Addresses,
    spans: Vec<Span>,
    scratch: Span,
    heaps: Vec<SharedHeap>,
    own: Vec<Buffer>,
}

/// Memory that is only ever reached through addresses.
#[derive(Debug)]
struct Buffer(*mut [u8]);

// SAFETY: it belongs to the process, not to a thread, and is reached only while all buffers are borrowed.
unsafe impl Send for Buffer {}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: it was a box, and is given back once.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

impl Default for Buffers {
    fn default() -> Buffers {
        // SAFETY: it is asked only for spans that `check` has found within memory that lives as long as `self`.
        let addresses = unsafe { Addresses::new() };
        let (heaps, own) = (Vec::new(), Vec::new());
        Buffers { addresses, spans: Vec::new(), scratch: Span::default(), heaps, own }
    }
}

impl Buffers {
    /// A new buffer, of zeroes. It lives as long as all of them.
    pub fn add(&mut self, bytes: usize) -> Span {
        let buffer = Box::into_raw(vec![0u8; bytes].into_boxed_slice());
        let span = Span::new(buffer.cast::<u8>().expose_provenance() as u64, bytes as u64);
        self.own.push(Buffer(buffer));
        self.spans.push(span);
        span
    }

    /// Permits a transport's heap too.
    pub fn share(&mut self, heap: SharedHeap) {
        self.spans.push(heap.span());
        self.heaps.push(heap);
    }

    #[inline]
    fn check(&self, span: Span) -> Result<(), NoMemory> {
        let holds = |all: &Span| {
            let at = span.address.wrapping_sub(all.address);
            at <= all.bytes && span.bytes <= all.bytes - at
        };
        match span.bytes == 0 || self.spans.iter().any(holds) || holds(&self.scratch) {
            true => Ok(()),
            false => Err(NoMemory::Outside(span)),
        }
    }
}

impl Memory for Buffers {
    #[inline]
    fn read<R>(&self, from: Span, with: impl FnOnce(&[u8]) -> R) -> Result<R, NoMemory> {
        self.check(from)?;
        self.addresses.read(from, with)
    }

    #[inline]
    fn write<R>(&mut self, to: Span, with: impl FnOnce(&mut [u8]) -> R) -> Result<R, NoMemory> {
        self.check(to)?;
        self.addresses.write(to, with)
    }

    #[inline]
    fn both<R>(
        &mut self,
        from: Span,
        to: Span,
        with: impl FnOnce(&[u8], &mut [u8]) -> R,
    ) -> Result<R, NoMemory> {
        self.check(from)?;
        self.check(to)?;
        self.addresses.both(from, to, with)
    }

    fn scratch(&mut self, bytes: u64) -> Option<Span> {
        self.scratch = self.addresses.scratch(bytes)?;
        Some(self.scratch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_added_is_memory() {
        let mut buffers = Buffers::default();
        let (first, second) = (buffers.add(100), buffers.add(50));
        buffers.write(first, |bytes| bytes.fill(7)).unwrap();
        let part = first.part(90, 10).unwrap();
        assert_eq!(buffers.read(part, |bytes| bytes.to_vec()).unwrap(), [7; 10]);
        let target = second.part(0, 10).unwrap();
        buffers.both(part, target, |from, to| to.copy_from_slice(from)).unwrap();
        for (address, bytes) in [
            (first.address, 101),
            (first.address + 100, 1),
            (first.address - 1, 1),
            (first.address, u64::MAX),
            (0, 1),
            (u64::MAX, 1),
        ] {
            let outside = Span::new(address, bytes);
            assert_eq!(buffers.read(outside, |_| ()), Err(NoMemory::Outside(outside)));
        }
        assert!(buffers.both(first, first, |_, _| ()).is_err(), "the two sides overlap");
        let scratch = buffers.scratch(1000).unwrap();
        buffers.write(scratch, |bytes| bytes.fill(1)).unwrap();
    }
}
