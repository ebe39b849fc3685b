//! Scattered data of a file: a layout, and how the file is striped.
//!
//! A [`View`] names bytes of a file by a [`Layout`]. It travels as such, in a few dozen bytes, to each server
//! that has some of them, and is walked there: every step of the walk is a piece of one slot. The client
//! takes the same walk to know which of the data belongs to whom.
//!
//! ```text
//!   layout of the file ──walk──► steps ──distribution──► slot 0: pieces of its object, places in the data
//!                                                    └─► slot 1: ...
//! ```
//!
//! On the wire (`body` of Treadview and Twriteview, `docs/protocol/metadata.md`):
//!
//! ```text
//!   kind[1] strip[4] params[2]([4]) slots[2] slot[2]   the striping, and whose part is meant
//!   origin[8] limit[8] from[8] to[8]                   where the layout lies, and which of its packed bytes
//!   layout                                             docs/protocol/layout.md
//! ```
//!
//! What has no short description travels as ranges of one object: the same, with the striping `basic`.

mod deal;
mod head;
mod plan;

#[cfg(test)]
mod tests;

pub use deal::{STEPS_MAX, walk};
pub use plan::{Batch, Place};
pub(crate) use plan::{behind, plan};

use covey_layout::{Block, Element, Error, Layout, Plan};
use covey_ninep::tree::{Errno, Result};
use covey_wire::Bytes;
use std::ops::Range;

/// A piece of an object: its first byte, and how many there are.
pub type Piece = (u64, u32);

/// Most entries of a layout that a server walks: see [`Layout::entries`].
pub const ENTRIES_MAX: u64 = 64 * 1024;

/// Most levels of a layout that a server walks: each of them may be passed at every step.
pub const DEPTH_MAX: usize = 16;

/// Some bytes of a file, in an order.
#[derive(Clone, Debug)]
pub struct View {
    plan: Plan,
    /// The same with the first byte as its origin, as it travels; None for what has no description that is worth it.
    layout: Option<Bytes>,
    /// From an offset of the plan to the file's.
    origin: i128,
    /// The first packed byte's offset in the plan.
    first: i64,
    /// Which of the packed bytes.
    range: Range<u64>,
    extent: (u64, u64),
}

impl View {
    /// `count` copies of a layout, an extent apart, in a file from byte `origin` on.
    ///
    /// EFBIG where that leaves the range of offsets of a file, EINVAL for a layout that is too large.
    pub fn new(layout: &Layout, count: u64, origin: u64) -> Result<View> {
        let plan = Plan::new(layout, count).map_err(refused)?;
        let (low, high) = plan.hull();
        let Some(extent) = within(origin.into(), (low, high)) else {
            return Err(too_far(origin, (low, high)));
        };
        let is_walked =
            |short: &Layout| short.entries() <= ENTRIES_MAX && short.depth() <= DEPTH_MAX;
        let short = plan.describe().ok().filter(|(_, short)| is_walked(short));
        let layout = short.and_then(|(_, short)| short.encode().ok()).map(Bytes::from);
        let range = 0..plan.size();
        let first = plan.runs(range.clone()).map_err(refused)?.next().map_or(0, |run| run.offset);
        Ok(View { plan, layout, origin: origin.into(), first, range, extent })
    }

    /// `count` pieces of `bytes` bytes, each `stride` bytes after the one before: a column.
    pub fn column(offset: u64, bytes: u64, stride: u64, count: u64) -> Result<View> {
        let stride = i64::try_from(stride).map_err(|_| Errno::from(Errno::EFBIG))?;
        let byte = Layout::element(Element::Byte);
        let column = Layout::hvector(count, bytes, stride, &byte).map_err(refused)?;
        View::new(&column, 1, offset)
    }

    /// Ranges by first byte and length, in this order.
    pub fn of_ranges(ranges: impl IntoIterator<Item = (u64, u64)>) -> Result<View> {
        let ranges: Vec<_> = ranges.into_iter().filter(|(_, bytes)| *bytes > 0).collect();
        let origin = ranges.iter().map(|&(offset, _)| offset).min().unwrap_or(0);
        let block = |&(offset, bytes): &(u64, u64)| {
            let displacement = i64::try_from(offset - origin);
            let displacement = displacement.map_err(|_| Errno::from(Errno::EFBIG))?;
            Ok(Block { count: bytes, displacement })
        };
        let blocks = ranges.iter().map(block).collect::<Result<Vec<_>>>()?;
        let byte = Layout::element(Element::Byte);
        View::new(&Layout::hindexed(&blocks, &byte).map_err(refused)?, 1, origin)
    }

    /// Some of the packed bytes of this view. EINVAL where it has fewer.
    pub fn part(mut self, range: Range<u64>) -> Result<View> {
        if range.start > range.end || range.end > self.bytes() {
            let what = format!("bytes {range:?} of a view of {}", self.bytes());
            return Err(Errno::because(Errno::EINVAL, what));
        }
        if range.end - range.start < self.bytes() {
            let start = self.range.start;
            self.range = start + range.start..start + range.end;
            let ends =
                |all: (u64, u64), (start, end): (u64, u64)| (all.0.min(start), all.1.max(end));
            let extent = self.ranges().fold((u64::MAX, 0), ends);
            self.extent = (extent.0.min(extent.1), extent.1);
        }
        Ok(self)
    }

    /// Bytes of data.
    pub fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// The first byte of the file that is meant, and the end of the last one.
    pub fn extent(&self) -> (u64, u64) {
        self.extent
    }

    /// The ranges of the file in the order of the data, as (first byte, end).
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let runs = self.plan.runs(self.range.clone()).expect("the range was checked");
        runs.map(move |run| {
            let start = (self.origin + i128::from(run.offset)) as u64;
            (start, start + run.bytes)
        })
    }

    /// How many there are.
    pub fn range_count(&self) -> u64 {
        if self.range == (0..self.plan.size()) {
            return self.plan.run_count();
        }
        self.ranges().count() as u64
    }

    /// Whether it is one range of the file, or none.
    pub fn is_one(&self) -> bool {
        self.ranges().nth(1).is_none()
    }
}

/// The hull of a plan whose origin lies at byte `origin` of a file; None where no file reaches.
fn within(origin: i128, (low, high): (i64, i64)) -> Option<(u64, u64)> {
    let place = |at: i64| u64::try_from(origin + i128::from(at)).ok();
    let is_wide = i128::from(high) - i128::from(low) >= i128::from(covey_layout::OFFSET_MAX);
    Some((place(low)?, place(high)?)).filter(|(_, end)| *end <= OFFSET_MAX && !is_wide)
}

fn too_far(origin: u64, (low, high): (i64, i64)) -> Errno {
    let what = format!("a view from {origin} on takes bytes {low} to {high} from there");
    Errno::because(Errno::EFBIG, what)
}

fn refused(error: Error) -> Errno {
    let code = if matches!(error, Error::Overflow { .. }) { Errno::EFBIG } else { Errno::EINVAL };
    Errno::because(code, error.to_string())
}

/// Offsets are signed on Linux.
const OFFSET_MAX: u64 = i64::MAX as u64;
