//! Memory that an engine may touch, without a promise of its user: it owns all of it.

use super::addresses::{Addresses, span_of};
use covey_wire::{Memory, NoMemory, Span};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Memory that lives as long as others use it: a mapping.
pub(super) trait Mapped: Send + Sync + fmt::Debug {
    /// What of it may be lent.
    fn span(&self) -> Span;
}

/// What is mapped, and grows.
pub(super) type Mappings = Arc<Mutex<Vec<Arc<dyn Mapped>>>>;

/// Blocks of memory, and what a transport shares with its peers. It lends these bytes and no others.
#[derive(Debug)]
pub struct Own {
    addresses: Addresses,
    /// What is looked at first: the heap of the transport, then blocks in the order in which they were made.
    spans: Vec<Span>,
    blocks: Vec<Box<[u8]>>,
    mappings: Mappings,
}

impl Default for Own {
    fn default() -> Own {
        Own::new(Mappings::default())
    }
}

impl Own {
    /// Nothing but what is mapped, of which the first is ours.
    pub(super) fn new(mappings: Mappings) -> Own {
        // SAFETY: it is asked only for what `has` has found to be ours.
        let addresses = unsafe { Addresses::new() };
        let first = mappings.lock().unwrap_or_else(PoisonError::into_inner);
        let spans = first.iter().take(1).map(|mapped| mapped.span()).collect();
        drop(first);
        Own { addresses, spans, blocks: Vec::new(), mappings }
    }

    /// A block of zeros, which stays as long as this.
    pub fn block(&mut self, bytes: usize) -> Span {
        let mut block = vec![0; bytes].into_boxed_slice();
        let span = span_of(&mut block);
        self.blocks.push(block);
        self.spans.push(span);
        span
    }

    #[inline]
    fn has(&self, wanted: Span) -> Result<(), NoMemory> {
        if wanted.bytes == 0 || self.spans.iter().any(|span| contains(*span, wanted)) {
            return Ok(());
        }
        self.has_mapped(wanted)
    }

    #[cold]
    fn has_mapped(&self, wanted: Span) -> Result<(), NoMemory> {
        let mappings = self.mappings.lock().unwrap_or_else(PoisonError::into_inner);
        let has = mappings.iter().any(|mapped| contains(mapped.span(), wanted));
        if has || self.addresses.is_scratch(wanted) {
            Ok(())
        } else {
            Err(NoMemory::Outside(wanted))
        }
    }
}

#[inline]
fn contains(span: Span, wanted: Span) -> bool {
    let at = wanted.address.wrapping_sub(span.address);
    at <= span.bytes && wanted.bytes <= span.bytes - at
}

impl Memory for Own {
    #[inline]
    fn read<R>(&self, from: Span, with: impl FnOnce(&[u8]) -> R) -> Result<R, NoMemory> {
        self.has(from)?;
        self.addresses.read(from, with)
    }

    #[inline]
    fn write<R>(&mut self, to: Span, with: impl FnOnce(&mut [u8]) -> R) -> Result<R, NoMemory> {
        self.has(to)?;
        self.addresses.write(to, with)
    }

    #[inline]
    fn both<R>(
        &mut self,
        from: Span,
        to: Span,
        with: impl FnOnce(&[u8], &mut [u8]) -> R,
    ) -> Result<R, NoMemory> {
        self.has(from)?;
        self.has(to)?;
        self.addresses.both(from, to, with)
    }

    fn scratch(&mut self, bytes: u64) -> Option<Span> {
        self.addresses.scratch(bytes)
    }
}
