//! A copy between two layouts, cut into parts of which each reads a short stretch of the source.
//!
//! Who has to bring the source near before it can be rearranged, out of another process's memory say, brings one
//! strip at a time: it is still in a near cache when it is rearranged, and what it is brought to can be small.

use crate::kernels::{self, Joint, View, ViewMut};
use crate::program::Part;
use crate::target::refine;
use crate::{Element, Error, Plan, Target};

/// The parts of a copy, in the order of their loop. See the module's page.
#[derive(Clone, Debug)]
pub struct Strips {
    /// The loop that is cut is the outermost one.
    joint: Joint,
    /// Where the loops begin, from the origin of the source and from that of the target.
    from: i64,
    to: i64,
    rounds_each: usize,
    done: usize,
}

/// A part of a copy.
#[derive(Clone, Debug)]
pub struct Strip {
    joint: Joint,
    from: i64,
    to: i64,
}

impl Strips {
    /// The copy of all packed bytes of `source` to `target`, where `None` is contiguous bytes, in parts that read
    /// some `bytes_max` each. `None` where there are no such parts: the two have no loops in common, or what a round of the
    /// loop with the longest steps reads reaches into the next one.
    pub fn new(source: Option<&Plan>, target: Option<&Target>, bytes_max: u64) -> Option<Strips> {
        let target = target.map(Target::plan);
        let bytes = source.or(target)?.size();
        if [source, target].into_iter().flatten().any(|plan| plan.size() != bytes) {
            return None;
        }
        let plain = Part::block(0, bytes, Element::Byte);
        let source = source.map_or(Some(&plain), Plan::nest)?;
        let target = target.map_or(Some(&plain), Plan::nest)?;
        let mut joint = refine(source, target)?;
        let step = joint.cut()?.unsigned_abs() as u64;
        let (begin, end) = joint.first(1).reads();
        if end.abs_diff(begin) > step {
            return None;
        }
        let rounds_each = match (bytes_max / step).max(1) as usize {
            fitting if fitting >= joint.rounds() => joint.rounds(),
            // Whole vectors of short elements, and whole lines of a cache.
            fitting if fitting > EVEN => fitting / EVEN * EVEN,
            fitting => fitting,
        };
        Some(Strips { joint, from: source.offset, to: target.offset, rounds_each, done: 0 })
    }

    /// The most bytes that one of them reads.
    pub fn bytes_max(&self) -> u64 {
        let (begin, end) = self.joint.first(self.rounds_each).reads();
        end.abs_diff(begin)
    }
}

impl Iterator for Strips {
    type Item = Strip;

    fn next(&mut self) -> Option<Strip> {
        let rounds = self.rounds_each.min(self.joint.rounds() - self.done);
        if rounds == 0 {
            return None;
        }
        let (from, to) = self.joint.begin(self.done);
        self.done += rounds;
        let joint = self.joint.first(rounds);
        Some(Strip { joint, from: self.from + from, to: self.to + to })
    }
}

impl Strip {
    /// First byte of the source that it reads and the one behind the last, from the source's origin.
    pub fn reads(&self) -> (i64, i64) {
        let (begin, end) = self.joint.reads();
        (self.from + begin, self.from + end)
    }

    /// Copies it out of `from`, which has what it [`reads`](Strip::reads) and nothing before that.
    pub fn copy<'a, 'b>(
        self,
        from: impl Into<View<'b>>,
        into: impl Into<ViewMut<'a>>,
    ) -> Result<(), Error> {
        let (from, into) = (from.into(), into.into());
        let ((begin, end), (first, last)) = (self.joint.reads(), self.joint.writes());
        from.check((0, end - begin))?;
        into.check((self.to + first, self.to + last))?;
        kernels::copy(self.joint, &from, -begin, &into, self.to);
        Ok(())
    }
}

/// Rounds of a strip are a multiple of this, where it has more.
const EVEN: usize = 16;
