//! The memory of simulated processes.

use super::{Carriers, Memories};
use covey_wire::transport::{Refused, Transfer};
use covey_wire::{Memory, NoMemory, Span};
use std::cell::RefCell;

/// The memory of one process. What it maps of others is at their addresses.
#[derive(Debug)]
pub struct SimMemory {
    pub(super) memories: Memories,
    pub(super) me: usize,
    pub(super) is_mapped: bool,
}

impl SimMemory {
    fn owner(&self, span: Span) -> Result<usize, NoMemory> {
        let owner = (span.address >> 40).checked_sub(1).map(|owner| owner as usize);
        let is_ours = |owner: &usize| *owner == self.me || self.is_mapped;
        let owner = owner.filter(|owner| *owner < self.memories.len() && is_ours(owner));
        owner.ok_or(NoMemory::Outside(span))
    }
}

impl Memory for SimMemory {
    fn read<R>(&self, from: Span, with: impl FnOnce(&[u8]) -> R) -> Result<R, NoMemory> {
        let owner = self.owner(from)?;
        let memory = self.memories[owner].borrow();
        part(&memory, owner, from).map(with).ok_or(NoMemory::Outside(from))
    }

    fn write<R>(&mut self, to: Span, with: impl FnOnce(&mut [u8]) -> R) -> Result<R, NoMemory> {
        let owner = self.owner(to)?;
        let mut memory = self.memories[owner].borrow_mut();
        part_mut(&mut memory, owner, to).map(with).ok_or(NoMemory::Outside(to))
    }

    fn both<R>(
        &mut self,
        from: Span,
        to: Span,
        with: impl FnOnce(&[u8], &mut [u8]) -> R,
    ) -> Result<R, NoMemory> {
        if from.overlaps(to) {
            return Err(NoMemory::Overlap(from, to));
        }
        let source = self.read(from, <[u8]>::to_vec)?;
        self.write(to, |target| with(&source, target))
    }

    fn scratch(&mut self, bytes: u64) -> Option<Span> {
        // The last part of its memory, which no test uses.
        let all = self.memories[self.me].borrow().len() as u64;
        let start = all.checked_sub(bytes).filter(|start| *start >= all / 2)?;
        Some(Span::new(Carriers::address(self.me) + start, bytes))
    }
}

pub(in crate::sim) fn part(memory: &[u8], owner: usize, span: Span) -> Option<&[u8]> {
    let at = usize::try_from(span.address.checked_sub(Carriers::address(owner))?).ok()?;
    memory.get(at..at.checked_add(usize::try_from(span.bytes).ok()?)?)
}

pub(in crate::sim) fn part_mut(memory: &mut [u8], owner: usize, span: Span) -> Option<&mut [u8]> {
    let at = usize::try_from(span.address.checked_sub(Carriers::address(owner))?).ok()?;
    memory.get_mut(at..at.checked_add(usize::try_from(span.bytes).ok()?)?)
}

pub(super) fn with_own(
    memory: &RefCell<Vec<u8>>,
    me: usize,
    span: Span,
    with: impl FnOnce(&mut [u8]),
) -> Result<Transfer, Refused> {
    part_mut(&mut memory.borrow_mut(), me, span).map(with).ok_or(Refused::Fault)?;
    Ok(Transfer::Done)
}
