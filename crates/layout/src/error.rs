//! Why a layout or an operation on one was refused.

use crate::{Element, Op};
use covey_wire::Blame;
use std::fmt;

/// Why something was refused. Nothing was touched: every check comes before the first byte.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The layout touches bytes that the buffer does not have. Relative to the buffer's origin.
    OutOfBounds {
        /// First byte of the layout, and the one behind its last.
        layout: (i64, i64),
        /// First byte of the buffer, and the one behind its last.
        buffer: (i64, i64),
    },
    /// The origin of a buffer lies behind its end.
    Origin {
        /// The origin given.
        origin: usize,
        /// Bytes of the buffer.
        bytes: usize,
    },
    /// A layout to be written to names a byte twice, so its content would depend on the order.
    Overlap {
        /// A byte that is named twice, or one where a piece begins that is.
        offset: i64,
    },
    /// Pieces interleave so that the check for overlap would take too long.
    Entangled {
        /// Pieces that would have to be compared.
        pieces: u64,
        /// Most that are.
        limit: u64,
    },
    /// A number of the description leaves the range of offsets.
    Overflow {
        /// Which constructor found it.
        what: &'static str,
        /// Offsets and sizes stay below this in magnitude.
        limit: u64,
    },
    /// Layouts are nested too deeply.
    TooDeep {
        /// Levels asked for.
        depth: usize,
        /// Most levels.
        limit: usize,
    },
    /// The description is too large, written out.
    TooLarge {
        /// Listed pieces and levels, with everything that is used twice counted twice.
        entries: u64,
        /// Most of them.
        limit: u64,
    },
    /// The encoded description is too long.
    TooLong {
        /// Bytes of the encoding.
        bytes: usize,
        /// Most bytes.
        limit: usize,
    },
    /// A subarray does not lie in its array.
    Subarray {
        /// Index of the axis.
        axis: usize,
        /// Elements of the axis.
        size: u64,
        /// First element of the part.
        start: u64,
        /// Elements of the part.
        part: u64,
    },
    /// A range of the packed bytes reaches beyond their end.
    Packed {
        /// First byte asked for.
        at: u64,
        /// Bytes asked for.
        bytes: u64,
        /// Packed bytes in all.
        size: u64,
    },
    /// Two sides that must have the same packed size do not.
    Sizes {
        /// Packed bytes of the source.
        source: u64,
        /// Packed bytes of the target.
        target: u64,
    },
    /// A range of the packed bytes cuts an element.
    Split {
        /// Where it cuts.
        at: u64,
        /// What it cuts.
        element: Element,
    },
    /// An operation that is not defined for an element.
    Operation {
        /// The operation.
        op: Op,
        /// The element.
        element: Element,
    },
    /// The bytes are no description.
    Malformed(Blame),
    /// A description of a version that this side does not speak.
    Version {
        /// The version it has.
        version: u8,
        /// The version spoken here.
        known: u8,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use Error::*;
        match self {
            OutOfBounds { layout: (from, to), buffer: (begin, end) } => {
                write!(f, "layout touches bytes {from} to {to}, buffer has {begin} to {end}")
            }
            Origin { origin, bytes } => {
                write!(f, "origin {origin} lies behind a buffer of {bytes} bytes")
            }
            Overlap { offset } => {
                write!(f, "layout to write to names bytes at offset {offset} twice")
            }
            Entangled { pieces, limit } => write!(
                f,
                "{pieces} pieces interleave, limit for the check of overlaps is {limit}: \
                 describe them as nested vectors"
            ),
            Overflow { what, limit } => {
                write!(f, "{what}: an offset or a size reaches {limit} bytes")
            }
            TooDeep { depth, limit } => write!(f, "layout nests {depth} deep, limit is {limit}"),
            TooLarge { entries, limit } => {
                write!(f, "layout lists {entries} pieces, limit is {limit}")
            }
            TooLong { bytes, limit } => {
                write!(f, "layout takes {bytes} bytes encoded, limit is {limit}")
            }
            Subarray { axis, size, start, part } => write!(
                f,
                "subarray: axis {axis} has {size} elements, part begins at {start} and has {part}"
            ),
            Packed { at, bytes, size } => {
                write!(f, "{bytes} packed bytes at {at}: there are {size}")
            }
            Sizes { source, target } => {
                write!(f, "source packs to {source} bytes, target to {target}")
            }
            Split { at, element } => write!(f, "packed offset {at} is inside of an {element}"),
            Operation { op, element } => write!(f, "{op} is not defined for {element}"),
            Malformed(blame) => write!(f, "layout: {blame}"),
            Version { version, known } => {
                write!(f, "layout has version {version}, known is {known}")
            }
        }
    }
}

impl std::error::Error for Error {}
