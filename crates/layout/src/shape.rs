//! What a layout turned out to be.

use crate::program::{Body, Part};

/// The pattern of a normal form: what decides which kernel moves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shape {
    /// No byte at all.
    Empty,
    /// One run.
    Contiguous {
        /// Its bytes.
        bytes: u64,
    },
    /// Blocks at equal distances: a vector.
    Strided {
        /// Blocks.
        count: u64,
        /// Bytes from one to the next.
        stride: i64,
        /// Bytes of a block.
        block: u64,
    },
    /// A vector of vectors: a plane of a box, a part of a matrix.
    Strided2 {
        /// Rows: count and stride.
        outer: (u64, i64),
        /// Blocks of a row: count and stride.
        inner: (u64, i64),
        /// Bytes of a block.
        block: u64,
    },
    /// A matrix by columns: what is packed next to each other lies `pitch` bytes apart, and
    /// what lies next to each other is packed `rows` elements apart.
    Transposed {
        /// Elements of a column.
        rows: u64,
        /// Columns.
        columns: u64,
        /// Bytes from one row to the next.
        pitch: i64,
        /// Bytes of an element.
        element: u64,
    },
    /// More loops around one block.
    Nested {
        /// How many loops.
        loops: usize,
        /// Bytes of a block.
        block: u64,
    },
    /// Blocks without one pattern.
    Listed {
        /// Runs of contiguous bytes, all in all.
        runs: u64,
    },
}

impl Shape {
    pub(crate) fn of(part: Option<&Part>) -> Shape {
        let Some(part) = part else { return Shape::Empty };
        let block = part.each;
        if !matches!(part.body, Body::Block(_)) {
            return Shape::Listed { runs: part.runs() };
        }
        match part.dims[..] {
            [] => Shape::Contiguous { bytes: block },
            [only] => Shape::Strided { count: only.count, stride: only.stride, block },
            [outer, inner] if outer.stride == block as i64 => Shape::Transposed {
                rows: inner.count,
                columns: outer.count,
                pitch: inner.stride,
                element: block,
            },
            [outer, inner] => Shape::Strided2 {
                outer: (outer.count, outer.stride),
                inner: (inner.count, inner.stride),
                block,
            },
            _ => Shape::Nested { loops: part.dims.len(), block },
        }
    }
}
