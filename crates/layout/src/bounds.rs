//! Where a layout begins and ends, in MPI's sense (MPI-4, section 5.1).

use crate::Error;

/// Offsets and sizes stay below this in magnitude, so that sums of a few of them fit an `i64`.
pub const OFFSET_MAX: u64 = 1 << 60;

/// A layout's bounds, in bytes from its origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Bounds {
    /// Lower bound: what `resized` said, else the first byte.
    pub lower: i64,
    /// Upper bound: what `resized` said, else the end of the data, rounded up so that the extent is a
    /// multiple of the largest element's alignment.
    pub upper: i64,
    /// The first byte of the data.
    pub true_lower: i64,
    /// The end of the data.
    pub true_upper: i64,
}

impl Bounds {
    /// The distance from one copy to the next where several lie in a row.
    pub fn extent(&self) -> i64 {
        self.upper - self.lower
    }

    /// The bytes that the data spans, holes included.
    pub fn true_extent(&self) -> i64 {
        self.true_upper - self.true_lower
    }
}

/// What a layout takes of its parts while it is put together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hull {
    /// Of all data.
    data: Option<(i128, i128)>,
    /// Of the bounds that were set by `resized`, here or further in: these win.
    marks: Option<(i128, i128)>,
    /// The largest alignment of an element.
    align: u64,
    size: u128,
}

/// What is kept of a hull.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Measure {
    pub bounds: Bounds,
    pub size: u64,
    pub align: u64,
    /// Whether the bounds come from `resized`.
    pub marked: bool,
}

impl Measure {
    pub fn of_element(bytes: u64) -> Measure {
        let end = bytes as i64;
        let bounds = Bounds { lower: 0, upper: end, true_lower: 0, true_upper: end };
        Measure { bounds, size: bytes, align: bytes, marked: false }
    }

    /// The same data with other bounds.
    pub fn resized(mut self, lower: i64, extent: i64) -> Result<Measure, Error> {
        let upper = i128::from(lower) + i128::from(extent);
        (self.bounds.lower, self.bounds.upper) =
            (fits("resized", lower.into())?, fits("resized", upper)?);
        self.marked = true;
        Ok(self)
    }
}

impl Hull {
    /// Takes in `count` copies, the first at `at`, each `stride` bytes after the one before.
    pub fn add(&mut self, part: &Measure, at: i128, count: u64, stride: i128) {
        if count == 0 {
            return;
        }
        // Linear in between: the ends are the extremes. Counts and strides are at most 2^64.
        let last = at.saturating_add(stride.saturating_mul(i128::from(count - 1)));
        let (low, high) = (at.min(last), at.max(last));
        let Bounds { lower, upper, true_lower, true_upper } = part.bounds;
        if part.marked {
            let start = low.saturating_add(lower.into());
            join(&mut self.marks, start, high.saturating_add(upper.into()));
        }
        if part.size > 0 {
            let end = high.saturating_add(true_upper.into());
            join(&mut self.data, low.saturating_add(true_lower.into()), end);
            self.align = self.align.max(part.align);
            self.size = self.size.saturating_add(u128::from(part.size) * u128::from(count));
        }
    }

    /// The measure of all that was added; an error names the constructor.
    pub fn measure(&self, what: &'static str) -> Result<Measure, Error> {
        let (true_lower, true_upper) = self.data.unwrap_or((0, 0));
        let align = i128::from(self.align.max(1));
        let natural = (true_upper.saturating_sub(true_lower).saturating_add(align - 1)) / align;
        let rounded = (true_lower, true_lower.saturating_add(natural * align));
        let (lower, upper) = self.marks.unwrap_or(rounded);
        let bounds = Bounds {
            lower: fits(what, lower)?,
            upper: fits(what, upper)?,
            true_lower: fits(what, true_lower)?,
            true_upper: fits(what, true_upper)?,
        };
        let size = fits(what, i128::try_from(self.size).unwrap_or(i128::MAX))? as u64;
        Ok(Measure { bounds, size, align: self.align.max(1), marked: self.marks.is_some() })
    }
}

pub(crate) fn fits(what: &'static str, value: i128) -> Result<i64, Error> {
    if value.unsigned_abs() < u128::from(OFFSET_MAX) {
        Ok(value as i64)
    } else {
        Err(Error::Overflow { what, limit: OFFSET_MAX })
    }
}

fn join(into: &mut Option<(i128, i128)>, low: i128, high: i128) {
    let (a, b) = into.unwrap_or((low, high));
    *into = Some((a.min(low), b.max(high)));
}
