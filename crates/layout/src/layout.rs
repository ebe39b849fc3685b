//! The description: what MPI's type constructors say, nested at will.
//!
//! A layout is immutable and cheap to clone. Its constructors check everything that can be checked
//! without a buffer, so a `Layout` that exists has bounds, a size and a description within the limits.

use crate::bounds::{Hull, Measure, fits};
use crate::{Bounds, Element, Error, OFFSET_MAX};
use std::sync::Arc;

/// Most levels of nesting.
pub const DEPTH_MAX: usize = 32;

/// Most entries of a description: listed pieces and levels, with everything that is used twice counted
/// twice. Bounds the time and memory that anything done with a layout takes, apart from its data.
pub const ENTRIES_MAX: u64 = 1 << 18;

/// Which bytes of a buffer are meant, and in which order.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout(Arc<Tree>);

#[derive(Debug, PartialEq)]
pub(crate) struct Tree {
    pub form: Form,
    pub measure: Measure,
    pub depth: usize,
    pub entries: u64,
}

/// What all constructors come down to. Strides and displacements are in bytes.
#[derive(Debug, PartialEq)]
pub(crate) enum Form {
    Element(Element),
    /// `count` blocks `stride` bytes apart, each of `block` copies in a row.
    Strided {
        count: u64,
        block: u64,
        stride: i64,
        inner: Layout,
    },
    Blocks {
        blocks: Vec<Block>,
        inner: Layout,
    },
    Struct {
        members: Vec<Member>,
    },
    Resized {
        lower: i64,
        extent: i64,
        inner: Layout,
    },
}

/// Some copies in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Copies.
    pub count: u64,
    /// Where the first one's origin lies: extents for `indexed`, bytes for `hindexed`.
    pub displacement: i64,
}

/// A member of a struct.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Copies in a row.
    pub count: u64,
    /// Where the first one's origin lies, in bytes.
    pub displacement: i64,
    /// What they are copies of.
    pub layout: Layout,
}

/// An axis of an array, and the part of it that is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Elements of the array along this axis.
    pub size: u64,
    /// First element of the part.
    pub start: u64,
    /// Elements of the part.
    pub part: u64,
}

/// Which axis of an array varies fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The last one.
    C,
    /// The first one.
    Fortran,
}

impl Layout {
    /// One element.
    pub fn element(element: Element) -> Layout {
        let measure = Measure::of_element(element.bytes());
        Layout(Arc::new(Tree { form: Form::Element(element), measure, depth: 1, entries: 1 }))
    }

    /// `count` bytes.
    pub fn bytes(count: u64) -> Result<Layout, Error> {
        Layout::contiguous(count, &Layout::element(Element::Byte))
    }

    /// `count` copies, each an extent after the one before.
    pub fn contiguous(count: u64, inner: &Layout) -> Result<Layout, Error> {
        strided("contiguous", 1, count, 0, inner)
    }

    /// `count` blocks of `block` copies, each block `stride` extents after the one before.
    pub fn vector(count: u64, block: u64, stride: i64, inner: &Layout) -> Result<Layout, Error> {
        let bytes = i128::from(stride) * i128::from(inner.bounds().extent());
        strided("vector", count, block, fits("vector", bytes)?, inner)
    }

    /// Like [`Layout::vector`], with the stride in bytes.
    pub fn hvector(count: u64, block: u64, stride: i64, inner: &Layout) -> Result<Layout, Error> {
        strided("hvector", count, block, fits("hvector", stride.into())?, inner)
    }

    /// Blocks of copies, displacements in extents.
    pub fn indexed(blocks: &[Block], inner: &Layout) -> Result<Layout, Error> {
        let extent = i128::from(inner.bounds().extent());
        let scaled = blocks.iter().map(|block| {
            let bytes = i128::from(block.displacement) * extent;
            Ok(Block { displacement: fits("indexed", bytes)?, ..*block })
        });
        listed("indexed", scaled.collect::<Result<_, _>>()?, inner)
    }

    /// Blocks of copies, displacements in bytes.
    pub fn hindexed(blocks: &[Block], inner: &Layout) -> Result<Layout, Error> {
        for block in blocks {
            fits("hindexed", block.displacement.into())?;
        }
        listed("hindexed", blocks.to_vec(), inner)
    }

    /// Members of different layouts, displacements in bytes.
    pub fn structure(members: &[Member]) -> Result<Layout, Error> {
        let mut hull = Hull::default();
        let (mut depth, mut entries) = (0, 1u64);
        for Member { count, displacement, layout } in members {
            let at = fits("struct", i128::from(*displacement))?;
            hull.add(&layout.0.measure, at.into(), *count, layout.bounds().extent().into());
            depth = depth.max(layout.depth());
            entries = entries.saturating_add(layout.0.entries + 1);
        }
        let measure = hull.measure("struct")?;
        Layout::checked(Form::Struct { members: members.to_vec() }, measure, depth + 1, entries)
    }

    /// A part of an array of `inner`, with the extent of the whole array. Displacements count from the
    /// array's first element.
    pub fn subarray(axes: &[Axis], order: Order, inner: &Layout) -> Result<Layout, Error> {
        for (axis, &Axis { size, start, part }) in axes.iter().enumerate() {
            if start.checked_add(part).is_none_or(|end| end > size) {
                return Err(Error::Subarray { axis, size, start, part });
            }
        }
        // From the fastest axis to the slowest.
        let fastest_first: Vec<Axis> = match order {
            Order::C => axes.iter().rev().copied().collect(),
            Order::Fortran => axes.to_vec(),
        };
        let mut layout = inner.clone();
        let (mut stride, mut start) = (i128::from(inner.bounds().extent()), 0i128);
        for axis in fastest_first {
            layout = strided("subarray", axis.part, 1, fits("subarray", stride)?, &layout)?;
            start = start.saturating_add(stride.saturating_mul(axis.start.into()));
            stride = stride.saturating_mul(axis.size.into());
        }
        let block = Block { count: 1, displacement: fits("subarray", start)? };
        let placed = listed("subarray", vec![block], &layout)?;
        Layout::resized(inner.bounds().lower, fits("subarray", stride)?, &placed)
    }

    /// The same data with another lower bound and extent.
    pub fn resized(lower: i64, extent: i64, inner: &Layout) -> Result<Layout, Error> {
        let measure = inner.0.measure.resized(lower, extent)?;
        let form = Form::Resized { lower, extent, inner: inner.clone() };
        Layout::checked(form, measure, inner.depth() + 1, inner.0.entries + 1)
    }

    /// Its bounds.
    pub fn bounds(&self) -> &Bounds {
        &self.0.measure.bounds
    }

    /// Bytes of data.
    pub fn size(&self) -> u64 {
        self.0.measure.size
    }

    /// Levels of nesting; 1 for an element.
    pub fn depth(&self) -> usize {
        self.0.depth
    }

    /// Entries of the description, see [`ENTRIES_MAX`].
    pub fn entries(&self) -> u64 {
        self.0.entries
    }

    pub(crate) fn form(&self) -> &Form {
        &self.0.form
    }

    /// Equal for what is the same description in memory.
    pub(crate) fn identity(&self) -> *const () {
        Arc::as_ptr(&self.0).cast()
    }

    fn checked(form: Form, measure: Measure, depth: usize, entries: u64) -> Result<Layout, Error> {
        if depth > DEPTH_MAX {
            return Err(Error::TooDeep { depth, limit: DEPTH_MAX });
        }
        if entries > ENTRIES_MAX {
            return Err(Error::TooLarge { entries, limit: ENTRIES_MAX });
        }
        Ok(Layout(Arc::new(Tree { form, measure, depth, entries })))
    }
}

/// Blocks at equal distances.
pub(crate) fn strided(
    what: &'static str,
    count: u64,
    block: u64,
    stride: i64,
    inner: &Layout,
) -> Result<Layout, Error> {
    let row = repeated(what, block, inner.bounds().extent(), &inner.0.measure)?;
    // A block is no layout of its own: only its data counts, and the marks.
    let measure = repeated(what, count, stride, &row)?;
    let form = Form::Strided { count, block, stride, inner: inner.clone() };
    Layout::checked(form, measure, inner.depth() + 1, inner.0.entries + 1)
}

fn repeated(what: &'static str, count: u64, stride: i64, part: &Measure) -> Result<Measure, Error> {
    let mut hull = Hull::default();
    hull.add(part, 0, count, stride.into());
    hull.measure(what)
}

/// Blocks at displacements in bytes.
pub(crate) fn listed(
    what: &'static str,
    blocks: Vec<Block>,
    inner: &Layout,
) -> Result<Layout, Error> {
    let entries = (blocks.len() as u64).saturating_mul(inner.0.entries).saturating_add(1);
    let mut hull = Hull::default();
    for block in &blocks {
        let extent = inner.bounds().extent().into();
        hull.add(&inner.0.measure, block.displacement.into(), block.count, extent);
    }
    let form = Form::Blocks { blocks, inner: inner.clone() };
    Layout::checked(form, hull.measure(what)?, inner.depth() + 1, entries)
}

const _: () = assert!(OFFSET_MAX.is_power_of_two());
