//! The memory that operations are about, named by addresses.

use std::fmt;

/// Some bytes at an address of one process.
///
/// It is numbers, not a reference: it can be sent to a peer, kept while an operation lasts, and asked of a
/// [`Memory`], which knows whether there is such memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Span {
    /// Of the first byte.
    pub address: u64,
    /// How many.
    pub bytes: u64,
}

impl Span {
    /// `bytes` bytes at `address`.
    pub const fn new(address: u64, bytes: u64) -> Span {
        Span { address, bytes }
    }

    /// `bytes` of it from `at` on; `None` when it has not that many.
    pub fn part(self, at: u64, bytes: u64) -> Option<Span> {
        let end = at.checked_add(bytes)?;
        let address = self.address.checked_add(at)?;
        (end <= self.bytes).then_some(Span { address, bytes })
    }

    /// The address behind its last byte; `None` when there is no such address.
    pub fn end(self) -> Option<u64> {
        self.address.checked_add(self.bytes)
    }

    /// Whether the two have a byte in common.
    pub fn overlaps(self, other: Span) -> bool {
        let starts_before = |a: Span, b: Span| a.end().is_none_or(|end| b.address < end);
        let has_bytes = self.bytes > 0 && other.bytes > 0;
        has_bytes && starts_before(self, other) && starts_before(other, self)
    }
}

/// A memory has not the bytes that were asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoMemory {
    /// It does not have all of this.
    Outside(Span),
    /// What is read and what is written overlap.
    Overlap(Span, Span),
}

impl fmt::Display for NoMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoMemory::Outside(span) => {
                write!(f, "{} bytes at {:#x} are no memory of ours", span.bytes, span.address)
            }
            NoMemory::Overlap(from, to) => write!(
                f,
                "{} bytes at {:#x} and {} at {:#x} overlap",
                from.bytes, from.address, to.bytes, to.address
            ),
        }
    }
}

impl std::error::Error for NoMemory {}

/// Memory that an engine may touch: that of a process, or one that a test keeps in a vector.
///
/// The bytes are lent for the length of a call, so that nothing holds on to memory whose owner takes it back.
/// What a process shares with others may change while it is looked at.
pub trait Memory {
    /// Lends bytes to read.
    fn read<R>(&self, from: Span, with: impl FnOnce(&[u8]) -> R) -> Result<R, NoMemory>;

    /// Lends bytes to read and write.
    fn write<R>(&mut self, to: Span, with: impl FnOnce(&mut [u8]) -> R) -> Result<R, NoMemory>;

    /// Lends bytes to read and others to write: nothing is copied in between.
    fn both<R>(
        &mut self,
        from: Span,
        to: Span,
        with: impl FnOnce(&[u8], &mut [u8]) -> R,
    ) -> Result<R, NoMemory>;

    /// Memory of this many bytes that is the engine's own until it asks for other scratch memory: what it
    /// held is gone then. `None` when there is none.
    fn scratch(&mut self, bytes: u64) -> Option<Span>;
}

/// As `copy_from_slice`, for bytes of which there are mostly few: up to 64 are copied by two words that may overlap, without
/// a call.
#[inline(always)]
pub fn copy_short(into: &mut [u8], from: &[u8]) {
    assert_eq!(into.len(), from.len(), "as many bytes as there is room for");
    match from.len() {
        4..8 => copy_ends::<4>(into, from),
        8..17 => copy_ends::<8>(into, from),
        17..33 => copy_ends::<16>(into, from),
        33..65 => copy_ends::<32>(into, from),
        _ => into.copy_from_slice(from),
    }
}

#[inline(always)]
fn copy_ends<const BYTES: usize>(into: &mut [u8], from: &[u8]) {
    if let (Some(first), Some(last)) = (from.first_chunk::<BYTES>(), from.last_chunk::<BYTES>()) {
        let (first, last) = (*first, *last);
        if let Some(place) = into.first_chunk_mut() {
            *place = first;
        }
        if let Some(place) = into.last_chunk_mut() {
            *place = last;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_bytes_are_copied_as_many_are() {
        let from: Vec<u8> = (1..=200).collect();
        for bytes in 0..=200 {
            let mut into = vec![0; bytes];
            copy_short(&mut into, &from[..bytes]);
            assert_eq!(into, from[..bytes]);
        }
    }
}
