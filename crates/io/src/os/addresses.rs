//! The memory of this process, by its addresses.

use covey_wire::{Memory, NoMemory, Span};
use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};

/// All memory of this process, as an engine is given it.
#[derive(Debug, Default)]
pub struct Addresses {
    scratch: Vec<u8>,
}

impl Addresses {
    /// The memory of this process.
    ///
    /// # Safety
    ///
    /// It lends whatever it is asked for. Who has it sees to it that every span that reaches it, by operations of the
    /// engine and by registrations, is memory of this process that can be read, and written where it is written
    /// to, until the operation has ended or the registration is revoked; and that no reference of the
    /// program's own to it is used meanwhile.
    pub unsafe fn new() -> Addresses {
        Addresses::default()
    }

    /// Whether it is scratch memory.
    pub(super) fn is_scratch(&self, span: Span) -> bool {
        let start = self.scratch.as_ptr() as u64;
        let at = span.address.wrapping_sub(start);
        at <= self.scratch.len() as u64 && span.bytes <= self.scratch.len() as u64 - at
    }
}

/// Where a span lies, if there can be such memory.
#[inline]
fn whole(span: Span) -> Result<(usize, usize), NoMemory> {
    let (address, bytes) = (usize::try_from(span.address), usize::try_from(span.bytes));
    match (address, bytes, span.end()) {
        (Ok(address), Ok(bytes), Some(_)) if address != 0 && bytes <= isize::MAX as usize => {
            Ok((address, bytes))
        }
        (_, Ok(0), _) => Ok((1, 0)),
        _ => Err(NoMemory::Outside(span)),
    }
}

impl Memory for Addresses {
    #[inline(always)]
    fn read<R>(&self, from: Span, with: impl FnOnce(&[u8]) -> R) -> Result<R, NoMemory> {
        let (address, bytes) = whole(from)?;
        // SAFETY: `new`'s caller promised that the span is readable memory; it is not null.
        let lent = unsafe { std::slice::from_raw_parts(with_exposed_provenance(address), bytes) };
        Ok(with(lent))
    }

    #[inline(always)]
    fn write<R>(&mut self, to: Span, with: impl FnOnce(&mut [u8]) -> R) -> Result<R, NoMemory> {
        let (address, bytes) = whole(to)?;
        let pointer = with_exposed_provenance_mut(address);
        // SAFETY: `new`'s caller promised that the span is writable memory; it is not null.
        let lent = unsafe { std::slice::from_raw_parts_mut(pointer, bytes) };
        Ok(with(lent))
    }

    #[inline]
    fn both<R>(
        &mut self,
        from: Span,
        to: Span,
        with: impl FnOnce(&[u8], &mut [u8]) -> R,
    ) -> Result<R, NoMemory> {
        if from.overlaps(to) {
            return Err(NoMemory::Overlap(from, to));
        }
        let ((source, source_bytes), (target, target_bytes)) = (whole(from)?, whole(to)?);
        let target = with_exposed_provenance_mut(target);
        // SAFETY: `new`'s caller promised that both are memory, readable and writable; they do not overlap.
        let (source, target) = unsafe {
            (
                std::slice::from_raw_parts(with_exposed_provenance(source), source_bytes),
                std::slice::from_raw_parts_mut(target, target_bytes),
            )
        };
        Ok(with(source, target))
    }

    fn scratch(&mut self, bytes: u64) -> Option<Span> {
        let wanted = usize::try_from(bytes).ok()?;
        if self.scratch.len() < wanted {
            self.scratch.clear();
            self.scratch.try_reserve_exact(wanted).ok()?;
            self.scratch.resize(wanted, 0);
        }
        Some(Span::new(self.scratch.as_mut_ptr().expose_provenance() as u64, bytes))
    }
}

/// Where bytes of ours lie. What is done with the span is bound by the promise of [`Addresses::new`].
pub fn span_of(bytes: &mut [u8]) -> Span {
    Span::new(bytes.as_mut_ptr().expose_provenance() as u64, bytes.len() as u64)
}
