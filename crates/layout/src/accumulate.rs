//! Arithmetic between packed bytes and what a target has.

use crate::kernels::{self, ViewMut};
use crate::{ByteOrder, Element, Error, Signature, Target};
use std::fmt;

/// What is done with two elements: MPI's predefined operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Op {
    /// The sum; integers wrap around.
    Sum,
    /// The product; integers wrap around.
    Prod,
    /// The smaller one. Of numbers that do not compare, the target's.
    Min,
    /// The larger one. Of numbers that do not compare, the target's.
    Max,
    /// Whether both are not 0, as 0 or 1.
    Land,
    /// Whether one of them is not 0.
    Lor,
    /// Whether exactly one of them is not 0.
    Lxor,
    /// Bitwise and.
    Band,
    /// Bitwise or.
    Bor,
    /// Bitwise exclusive or.
    Bxor,
    /// What comes replaces what was there.
    Replace,
    /// What was there stays.
    NoOp,
}

impl Op {
    /// Every operation.
    pub const ALL: [Op; 12] = {
        use Op::*;
        [Sum, Prod, Min, Max, Land, Lor, Lxor, Band, Bor, Bxor, Replace, NoOp]
    };

    /// Whether MPI defines it: bits of bytes and integers, truth of integers, sums and order of numbers,
    /// replacing of anything.
    pub fn is_defined_for(self, element: Element) -> bool {
        let is_number = element != Element::Byte;
        let is_float = matches!(element, Element::F32 | Element::F64);
        match self {
            Op::Sum | Op::Prod | Op::Min | Op::Max => is_number,
            Op::Land | Op::Lor | Op::Lxor => is_number && !is_float,
            Op::Band | Op::Bor | Op::Bxor => !is_float,
            Op::Replace | Op::NoOp => true,
        }
    }

    /// Combines elements in a row, of the machine's own byte order: `into = into op from`. Both have the same whole number
    /// of them.
    pub fn apply(self, element: Element, into: &mut [u8], from: &[u8]) -> Result<(), Error> {
        let (source, target) = (from.len() as u64, into.len() as u64);
        if source != target || !source.is_multiple_of(element.bytes()) {
            return Err(Error::Sizes { source, target });
        }
        if !self.is_defined_for(element) {
            return Err(Error::Operation { op: self, element });
        }
        kernels::combine(self, element, into, from);
        Ok(())
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Op::Sum => "sum",
            Op::Prod => "product",
            Op::Min => "minimum",
            Op::Max => "maximum",
            Op::Land => "logical and",
            Op::Lor => "logical or",
            Op::Lxor => "logical exclusive or",
            Op::Band => "bitwise and",
            Op::Bor => "bitwise or",
            Op::Bxor => "bitwise exclusive or",
            Op::Replace => "replace",
            Op::NoOp => "no operation",
        })
    }
}

impl Target {
    /// Combines all of `packed`, which are the packed bytes from `at` on, with what is there. `signature` is
    /// the layout's own; the range must begin and end between elements. Not atomic: the caller
    /// sees to that.
    ///
    /// What does not lie in one run is gathered, combined and put back in steps of 64 KiB, so that the
    /// kernels of packing do it.
    pub fn accumulate<'a>(
        &self,
        op: Op,
        signature: &Signature,
        packed: &[u8],
        at: u64,
        into: impl Into<ViewMut<'a>>,
    ) -> Result<(), Error> {
        self.accumulate_in(ByteOrder::NATIVE, op, signature, packed, at, into)
    }

    /// The same where both sides are in `order`, which may not be the machine's own.
    pub fn accumulate_in<'a>(
        &self,
        order: ByteOrder,
        op: Op,
        signature: &Signature,
        packed: &[u8],
        at: u64,
        into: impl Into<ViewMut<'a>>,
    ) -> Result<(), Error> {
        if signature.size() != self.plan().size() {
            return Err(Error::Sizes { source: signature.size(), target: self.plan().size() });
        }
        if let Some(element) = signature.elements().find(|one| !op.is_defined_for(*one)) {
            return Err(Error::Operation { op, element });
        }
        signature.check(at, packed.len() as u64)?;
        let into = into.into();
        into.check(self.plan().hull())?;
        if op == Op::NoOp {
            return Ok(());
        }
        if op == Op::Replace {
            let range = at..at + packed.len() as u64;
            self.unpack_from(&packed.into(), 0, range, &into);
            return Ok(());
        }
        let mut here = vec![0; packed.len().min(STEP_BYTES)];
        let (mut start, end) = (at, at + packed.len() as u64);
        while start < end {
            let stop = signature.boundary(end.min(start + STEP_BYTES as u64));
            let there = &packed[(start - at) as usize..(stop - at) as usize];
            let here = &mut here[..there.len()];
            self.plan().pack_into(&into.read(), start..stop, &ViewMut::from(&mut *here), 0);
            if order == ByteOrder::NATIVE {
                combine(op, signature, start, here, there);
            } else {
                let mut there = there.to_vec();
                signature.swap(&mut there, start)?;
                signature.swap(here, start)?;
                combine(op, signature, start, here, &there);
                signature.swap(here, start)?;
            }
            self.unpack_from(&(&*here).into(), 0, start..stop, &into);
            start = stop;
        }
        Ok(())
    }
}

/// Combines packed bytes that begin at `at`.
fn combine(op: Op, signature: &Signature, at: u64, into: &mut [u8], from: &[u8]) {
    let mut runs = signature.typed(at, at + into.len() as u64);
    while let Some((run, element)) = runs.take_next(u64::MAX) {
        let start = (run.packed - at) as usize;
        let range = start..start + run.bytes as usize;
        kernels::combine(op, element, &mut into[range.clone()], &from[range]);
    }
}

/// Packed bytes that are combined at once.
const STEP_BYTES: usize = 64 << 10;
