//! Which elements the packed bytes of a layout are.

use crate::normal::{Space, normal};
use crate::program::{Body, Part};
use crate::{Element, Error, Layout, Runs, kernels};

/// The elements of packed bytes, in order: what MPI calls a type signature. Wherever the data lies in memory, its
/// packed bytes only depend on this.
#[derive(Clone, Debug, PartialEq)]
pub struct Signature {
    root: Option<Part>,
    /// A bit for the number of each element in it.
    elements: u16,
}

impl Signature {
    /// The elements of `count` copies of `layout`. Refuses what [`Plan::new`](crate::Plan::new) refuses.
    pub fn new(layout: &Layout, count: u64) -> Result<Signature, Error> {
        let root = normal(Space::Packed, layout, count)?;
        let elements = root.as_ref().map_or(0, elements);
        Ok(Signature { root, elements })
    }

    /// Packed bytes.
    pub fn size(&self) -> u64 {
        self.root.as_ref().map_or(0, Part::size)
    }

    /// The elements in it.
    pub fn elements(&self) -> impl Iterator<Item = Element> {
        let bits = self.elements;
        Element::ALL.iter().copied().filter(move |element| bits >> element.number() & 1 == 1)
    }

    /// Whether it says anything of elements: one of bytes only does not.
    pub fn is_typed(&self) -> bool {
        self.elements & !(1 << Element::Byte.number()) != 0
    }

    /// Whether its elements from packed offset `from` on have the sizes of those that `other` has from `to` on,
    /// for `bytes` bytes or to the end of the shorter one. An element that one of them cuts there is none of the
    /// other's.
    pub fn agrees(&self, from: u64, other: &Signature, to: u64, bytes: u64) -> bool {
        let left = |of: &Signature, at: u64| of.size().saturating_sub(at);
        let bytes = bytes.min(left(self, from)).min(left(other, to));
        if bytes == 0 {
            return true;
        }
        if self.boundary(from) != from || other.boundary(to) != to {
            return false;
        }
        let (mut ours, mut theirs) = (self.typed(from, from + bytes), other.typed(to, to + bytes));
        let (mut here, mut there) = (ours.take_next(u64::MAX), theirs.take_next(u64::MAX));
        while let (Some((a, of_a)), Some((b, of_b))) = (&mut here, &mut there) {
            if of_a.bytes() != of_b.bytes() {
                return false;
            }
            let both = a.bytes.min(b.bytes);
            (a.bytes, b.bytes) = (a.bytes - both, b.bytes - both);
            let (is_a_done, is_b_done) = (a.bytes == 0, b.bytes == 0);
            if is_a_done {
                here = ours.take_next(u64::MAX);
            }
            if is_b_done {
                there = theirs.take_next(u64::MAX);
            }
        }
        true
    }

    /// The last boundary between elements at or before a packed offset: where a message may be cut that is
    /// swapped or accumulated piece by piece.
    pub fn boundary(&self, at: u64) -> u64 {
        let size = self.size();
        if at >= size {
            return size;
        }
        let Some((_, element)) = self.typed(at, at + 1).take_next(1) else { return at };
        // Backwards from here: the run is the block's beginning, and blocks are whole elements.
        let begin = self.typed(0, at + 1).next_back().map_or(at, |run| run.packed);
        at - (at - begin) % element.bytes()
    }

    /// Converts the packed bytes from `at` on between byte orders, in place. They must begin and end
    /// between elements.
    pub fn swap(&self, packed: &mut [u8], at: u64) -> Result<(), Error> {
        self.check(at, packed.len() as u64)?;
        let mut runs = self.typed(at, at + packed.len() as u64);
        while let Some((run, element)) = runs.take_next(u64::MAX) {
            let start = (run.packed - at) as usize;
            kernels::swap(&mut packed[start..start + run.bytes as usize], element.bytes());
        }
        Ok(())
    }

    /// Refuses a range that is not of whole elements.
    pub(crate) fn check(&self, at: u64, bytes: u64) -> Result<(), Error> {
        let size = self.size();
        let end = at.checked_add(bytes).filter(|end| *end <= size);
        let end = end.ok_or(Error::Packed { at, bytes, size })?;
        for cut in [at, end] {
            if self.boundary(cut) != cut {
                let element = self.typed(cut, cut + 1).take_next(1).map(|(_, element)| element);
                return Err(Error::Split { at: cut, element: element.unwrap_or(Element::Byte) });
            }
        }
        Ok(())
    }

    /// Runs of one element each; offsets are packed offsets.
    pub(crate) fn typed(&self, from: u64, to: u64) -> Runs<'_> {
        Runs::new(self.root.as_ref(), from..to)
    }
}

fn elements(part: &Part) -> u16 {
    match &part.body {
        Body::Block(element) => 1 << element.number(),
        Body::Spans(spans) => spans.iter().fold(0, |all, span| all | 1 << span.element.number()),
        Body::Parts(parts) => parts.iter().fold(0, |all, (_, part)| all | elements(part)),
    }
}
