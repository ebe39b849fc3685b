//! A layout made ready to be written to.

use crate::kernels::{self, Joint, View, ViewMut};
use crate::plan::joint;
use crate::program::Part;
use crate::{Error, Layout, Plan, overlap};
use std::ops::Range;

/// A plan of which no byte is named twice: it can be written to, in any order.
#[derive(Clone, Debug, PartialEq)]
pub struct Target(Plan);

impl Target {
    /// `count` copies of `layout`, each an extent after the one before.
    ///
    /// Refuses what [`Plan::new`] refuses, layouts that overlap themselves, and those that it would
    /// take too long to know it of.
    pub fn new(layout: &Layout, count: u64) -> Result<Target, Error> {
        Target::try_from(Plan::new(layout, count)?)
    }

    /// To read from it.
    pub fn plan(&self) -> &Plan {
        &self.0
    }

    /// Puts all of `packed`, which are the packed bytes from `at` on, in their places.
    pub fn unpack<'a>(
        &self,
        packed: &[u8],
        at: u64,
        into: impl Into<ViewMut<'a>>,
    ) -> Result<(), Error> {
        let range = self.0.checked(at, packed.len() as u64)?;
        let into = into.into();
        into.check(self.0.hull())?;
        self.unpack_from(&View::from(packed), 0, range, &into);
        Ok(())
    }

    /// Copies what `plan` means in `from` to what this means in `into`: the packed order of one is the packed
    /// order of the other. Nothing is packed in between.
    pub fn copy_from<'a, 'b>(
        &self,
        into: impl Into<ViewMut<'a>>,
        plan: &Plan,
        from: impl Into<View<'b>>,
    ) -> Result<(), Error> {
        if plan.size() != self.0.size() {
            return Err(Error::Sizes { source: plan.size(), target: self.0.size() });
        }
        let (into, from) = (into.into(), from.into());
        into.check(self.0.hull())?;
        from.check(plan.hull())?;
        if let (Some(source), Some(target)) = (plan.nest(), self.0.nest())
            && let Some(joint) = refine(source, target)
        {
            kernels::copy(joint, &from, source.offset, &into, target.offset);
        } else if self.0.run_count() <= plan.run_count() {
            for run in crate::Runs::new(self.0.root(), 0..self.0.size()) {
                plan.pack_into(&from, run.packed..run.packed + run.bytes, &into, run.offset);
            }
        } else {
            for run in crate::Runs::new(plan.root(), 0..plan.size()) {
                let range = run.packed..run.packed + run.bytes;
                self.unpack_from(&from, run.offset, range, &into);
            }
        }
        Ok(())
    }

    /// Unpacks a range that was checked from `at` in a view that has it.
    pub(crate) fn unpack_from(
        &self,
        from: &View<'_>,
        at: i64,
        range: Range<u64>,
        into: &ViewMut<'_>,
    ) {
        let start = range.start;
        self.0.each_piece(range, |piece| {
            let at = at + (piece.packed - start) as i64;
            kernels::copy(joint(&piece, true), from, at, into, piece.offset);
        });
    }
}

impl TryFrom<Plan> for Target {
    type Error = Error;

    fn try_from(plan: Plan) -> Result<Target, Error> {
        plan.root().map_or(Ok(()), overlap::check)?;
        Ok(Target(plan))
    }
}

/// The loops of both as one set of loops, where their counts divide each other.
pub(crate) fn refine(source: &Part, target: &Part) -> Option<Joint> {
    let mut from = Digits::new(source);
    let mut to = Digits::new(target);
    let (mut a, mut b) = (from.next(), to.next());
    // From the innermost outwards; a joint wants the outermost first.
    let mut digits = Vec::new();
    while let (Some(x), Some(y)) = (a, b) {
        let count = x.0.min(y.0);
        if x.0 % count != 0 || y.0 % count != 0 {
            return None;
        }
        digits.push((count, x.1, y.1));
        a = left(x, count).or_else(|| from.next());
        b = left(y, count).or_else(|| to.next());
    }
    let (&(bytes, ..), loops) = digits.split_first()?;
    let mut joint = Joint::new(bytes);
    loops.iter().rev().for_each(|&(count, from, to)| joint.push(count, from, to));
    Some(joint)
}

/// What is left of a digit (count and stride) behind a smaller one.
fn left((count, stride): (u64, i64), taken: u64) -> Option<(u64, i64)> {
    (count > taken).then(|| (count / taken, stride * taken as i64))
}

/// The loops of a part, the bytes of its block first.
struct Digits<'a> {
    part: &'a Part,
    next: usize,
}

impl<'a> Digits<'a> {
    fn new(part: &'a Part) -> Digits<'a> {
        Digits { part, next: 0 }
    }

    fn next(&mut self) -> Option<(u64, i64)> {
        let at = self.next;
        self.next += 1;
        if at == 0 {
            return Some((self.part.each, 1));
        }
        let dim = self.part.dims.get(self.part.dims.len().checked_sub(at)?)?;
        Some((dim.count, dim.stride))
    }
}
