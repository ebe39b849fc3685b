//! From the normal form back to a description: the shortest one that names the same bytes in the same order.
//!
//! Elements are lost on the way. It is for data whose elements nobody asks about, as in a file.

use crate::layout::{Block, Layout, Member};
use crate::program::{Body, Dim, Part, Span};
use crate::{Element, Error, Plan};

impl Plan {
    /// Where the first packed byte lies, and a layout of bytes that has it as its origin.
    ///
    /// Means the same as the layouts that this plan was made of, in as few nodes as were found. Refuses what has
    /// more entries than a layout may.
    pub fn describe(&self) -> Result<(i64, Layout), Error> {
        let Some(root) = self.root() else { return Ok((0, Layout::bytes(0)?)) };
        let first = root.offset + root.first();
        let layout = placed(root.offset - first, of_part(root)?)?;
        Ok((first, layout))
    }
}

impl Part {
    /// The first packed byte, from the part's offset.
    fn first(&self) -> i64 {
        match &self.body {
            Body::Block(_) => 0,
            Body::Spans(spans) => spans[0].offset,
            Body::Parts(parts) => parts[0].1.offset + parts[0].1.first(),
        }
    }
}

/// A part with its offset as the origin.
fn of_part(part: &Part) -> Result<Layout, Error> {
    let byte = Layout::element(Element::Byte);
    let (body, outer) = match (&part.body, part.dims.split_last()) {
        // The innermost loop and its block are one level.
        (Body::Block(_), Some((inner, outer))) => {
            (Layout::hvector(inner.count, part.each, inner.stride, &byte)?, outer)
        }
        (Body::Block(_), None) => (Layout::bytes(part.each)?, &[][..]),
        (Body::Spans(spans), _) => (of_spans(spans, &byte)?, &part.dims[..]),
        (Body::Parts(parts), _) => (of_parts(parts)?, &part.dims[..]),
    };
    let repeated = |inner, dim: &Dim| Layout::hvector(dim.count, 1, dim.stride, &inner);
    outer.iter().rev().try_fold(body, repeated)
}

fn of_spans(spans: &[Span], byte: &Layout) -> Result<Layout, Error> {
    let block = |span: &Span| Block { count: span.bytes, displacement: span.offset };
    Layout::hindexed(&spans.iter().map(block).collect::<Vec<_>>(), byte)
}

fn of_parts(parts: &[(u64, Part)]) -> Result<Layout, Error> {
    let member = |(_, part): &(u64, Part)| {
        Ok(Member { count: 1, displacement: part.offset, layout: of_part(part)? })
    };
    Layout::structure(&parts.iter().map(member).collect::<Result<Vec<_>, Error>>()?)
}

fn placed(displacement: i64, layout: Layout) -> Result<Layout, Error> {
    if displacement == 0 {
        return Ok(layout);
    }
    Layout::hindexed(&[Block { count: 1, displacement }], &layout)
}
