//! The runs of contiguous bytes, in packed order or backwards, from any packed offset.
//!
//! Finding a packed offset takes a division for each loop and a binary search for each list: O(depth log
//! entries), whatever the counts are. From there on, blocks of one loop or list follow each other
//! without another search.

use crate::Element;
use crate::program::{Body, Part, Span};
use std::iter::FusedIterator;
use std::ops::Range;

/// Contiguous bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Of the first byte, from the layout's origin.
    pub offset: i64,
    /// Bytes.
    pub bytes: u64,
    /// Packed offset of the first byte.
    pub packed: u64,
}

/// An iterator over [`Run`]s; `rev` goes backwards.
#[derive(Clone, Debug)]
pub struct Runs<'a> {
    root: Option<&'a Part>,
    rest: Range<u64>,
    front: Option<Row<'a>>,
    back: Option<Row<'a>>,
}

impl<'a> Runs<'a> {
    /// Runs of a range of the packed bytes, which must lie within them.
    pub(crate) fn new(root: Option<&'a Part>, range: Range<u64>) -> Runs<'a> {
        Runs { root, rest: range, front: None, back: None }
    }

    /// The next run, at most `limit` bytes of it, and its element.
    pub(crate) fn take_next(&mut self, limit: u64) -> Option<(Run, Element)> {
        let at = self.rest.start;
        if self.rest.is_empty() {
            return None;
        }
        if !self.front.as_mut().is_some_and(|row| row.reaches(at)) {
            self.front = Some(Row::find(self.root?, at));
        }
        let (whole, element) = self.front.as_ref()?.block();
        let ahead = at - whole.packed;
        let bytes = (whole.bytes - ahead).min(self.rest.end - at).min(limit);
        self.rest.start += bytes;
        Some((Run { offset: whole.offset + ahead as i64, bytes, packed: at }, element))
    }

    /// Passes the next runs that lie in a range of offsets, as many as one division finds: the rest of an innermost
    /// loop, at most.
    pub fn pass(&mut self, range: Range<i64>) {
        if let Some(row) = &mut self.front {
            let at = row.pass(self.rest.start, range);
            self.rest.start = at.clamp(self.rest.start, self.rest.end);
        }
    }
}

impl Iterator for Runs<'_> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        self.take_next(u64::MAX).map(|(run, _)| run)
    }
}

impl DoubleEndedIterator for Runs<'_> {
    fn next_back(&mut self) -> Option<Run> {
        if self.rest.is_empty() {
            return None;
        }
        let last = self.rest.end - 1;
        if !self.back.as_mut().is_some_and(|row| row.reaches(last)) {
            self.back = Some(Row::find(self.root?, last));
        }
        let (whole, _) = self.back.as_ref()?.block();
        let packed = whole.packed.max(self.rest.start);
        let run = Run {
            offset: whole.offset + (packed - whole.packed) as i64,
            bytes: self.rest.end - packed,
            packed,
        };
        self.rest.end = packed;
        Some(run)
    }
}

impl FusedIterator for Runs<'_> {}

/// The blocks of an innermost loop or of a list, and which one we are at.
#[derive(Clone, Debug)]
struct Row<'a> {
    offset: i64,
    packed: u64,
    blocks: Blocks<'a>,
    index: u64,
}

#[derive(Clone, Copy, Debug)]
enum Blocks<'a> {
    Loop { count: u64, stride: i64, bytes: u64, element: Element },
    List(&'a [Span]),
}

impl<'a> Row<'a> {
    /// The row that has packed offset `at`, at the block that has it.
    fn find(mut part: &'a Part, at: u64) -> Row<'a> {
        let (mut offset, mut packed) = (part.offset, 0);
        loop {
            let is_block = matches!(part.body, Body::Block(_));
            let outer = part.dims.len() - usize::from(is_block && !part.dims.is_empty());
            for dim in &part.dims[..outer] {
                let round = (at - packed) / dim.each;
                offset += dim.stride * round as i64;
                packed += dim.each * round;
            }
            let blocks = match &part.body {
                Body::Parts(parts) => {
                    let ahead = at - packed;
                    let index = parts.partition_point(|(start, _)| *start <= ahead) - 1;
                    let (start, inner) = &parts[index];
                    (offset, packed) = (offset + inner.offset, packed + start);
                    part = inner;
                    continue;
                }
                Body::Block(element) => {
                    let (count, stride) =
                        part.dims.get(outer).map_or((1, 0), |dim| (dim.count, dim.stride));
                    Blocks::Loop { count, stride, bytes: part.each, element: *element }
                }
                Body::Spans(spans) => Blocks::List(spans),
            };
            let ahead = at - packed;
            let index = match blocks {
                Blocks::Loop { bytes, .. } => ahead / bytes,
                Blocks::List(spans) => spans.partition_point(|span| span.start <= ahead) as u64 - 1,
            };
            return Row { offset, packed, blocks, index };
        }
    }

    /// Goes past the blocks from packed offset `at` on that lie in a range; answers the packed offset behind them.
    fn pass(&mut self, at: u64, range: Range<i64>) -> u64 {
        let Blocks::Loop { count, stride, bytes, .. } = self.blocks else { return at };
        let next = (at - self.packed).div_ceil(bytes);
        let start = i128::from(self.offset) + i128::from(stride) * i128::from(next);
        let room = i128::from(range.end) - start - i128::from(bytes);
        // Those that follow begin further on, as only a loop forwards has it.
        if stride <= 0 || start < i128::from(range.start) || room < 0 || next >= count {
            return at;
        }
        let passed = (room as u64 / stride as u64 + 1).min(count - next);
        self.index = (next + passed).min(count - 1);
        self.packed + bytes * (next + passed)
    }

    fn block(&self) -> (Run, Element) {
        match self.blocks {
            Blocks::Loop { stride, bytes, element, .. } => {
                let offset = self.offset + stride * self.index as i64;
                (Run { offset, bytes, packed: self.packed + bytes * self.index }, element)
            }
            Blocks::List(spans) => {
                let Span { offset, bytes, start, element } = spans[self.index as usize];
                let run = Run { offset: self.offset + offset, bytes, packed: self.packed + start };
                (run, element)
            }
        }
    }

    /// Goes to the block that has packed offset `at` if it is this one or a neighbour.
    fn reaches(&mut self, at: u64) -> bool {
        let count = match self.blocks {
            Blocks::Loop { count, .. } => count,
            Blocks::List(spans) => spans.len() as u64,
        };
        let here = self.block().0;
        if at < here.packed {
            let Some(index) = self.index.checked_sub(1) else { return false };
            self.index = index;
        } else if at >= here.packed + here.bytes {
            if self.index + 1 == count {
                return false;
            }
            self.index += 1;
        }
        let here = self.block().0;
        (here.packed..here.packed + here.bytes).contains(&at)
    }
}
