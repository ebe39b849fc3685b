//! A range of the packed bytes as whole loops around blocks, which kernels run.
//!
//! A range that begins and ends anywhere is a broken round, whole rounds, and a broken round, for each
//! loop: at most two pieces for each level, and one for each entry of a list. A loop around a list of blocks, an
//! array of structures, is a loop around each of its blocks, some rounds at a time: so its pieces are not in
//! packed order.

use crate::program::{Body, Dim, Part, Span};
use std::ops::Range;

/// Loops around a block, all rounds whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece<'a> {
    /// Of the first block.
    pub offset: i64,
    /// Packed offset of the first block.
    pub packed: u64,
    /// Bytes of a block.
    pub bytes: u64,
    /// The outermost loop.
    pub first: Option<Dim>,
    /// The loops inside it, the outermost first.
    pub rest: &'a [Dim],
}

/// Calls `emit` for the pieces of `range` of the packed bytes.
pub(crate) fn pieces(root: &Part, range: Range<u64>, emit: &mut dyn FnMut(Piece<'_>)) {
    if !range.is_empty() {
        rounds(root, 0, root.offset, 0, range, emit);
    }
}

/// Of a round below the first `level` loops, which lies at `offset` and `packed`. The range is in packed
/// bytes of the whole, not empty, and lies within the round.
fn rounds(
    part: &Part,
    level: usize,
    offset: i64,
    packed: u64,
    range: Range<u64>,
    emit: &mut dyn FnMut(Piece<'_>),
) {
    let Some((dim, rest)) = part.dims[level..].split_first() else {
        return body(part, offset, packed, range, emit);
    };
    let round = |index: u64| (offset + dim.stride * index as i64, packed + dim.each * index);
    let (mut at, end) = (range.start - packed, range.end - packed);
    while at < end {
        let index = at / dim.each;
        let whole = (end / dim.each).saturating_sub(index);
        let (offset, packed) = round(index);
        let is_whole = at % dim.each == 0 && whole > 0;
        if is_whole && matches!(part.body, Body::Block(_)) {
            let first = Some(Dim { count: whole, ..*dim });
            emit(Piece { offset, packed, bytes: part.each, first, rest });
            at += whole * dim.each;
        } else if let Body::Spans(spans) = &part.body
            && is_whole
            && rest.is_empty()
        {
            let count = whole.min((NEAR_BYTES / dim.each).max(1));
            let first = Some(Dim { count, ..*dim });
            for Span { offset: by, bytes, start, .. } in spans {
                let (offset, packed) = (offset + by, packed + start);
                emit(Piece { offset, packed, bytes: *bytes, first, rest });
            }
            at += count * dim.each;
        } else {
            let stop = end.min((index + 1) * dim.each);
            let range = packed + at % dim.each..packed + (stop - index * dim.each);
            rounds(part, level + 1, offset, packed, range, emit);
            at = stop;
        }
    }
}

fn body(part: &Part, offset: i64, packed: u64, range: Range<u64>, emit: &mut dyn FnMut(Piece<'_>)) {
    match &part.body {
        Body::Block(_) => {
            emit(Piece {
                offset: offset + (range.start - packed) as i64,
                packed: range.start,
                bytes: range.end - range.start,
                first: None,
                rest: &[],
            });
        }
        Body::Spans(spans) => {
            let first = spans.partition_point(|span| packed + span.start <= range.start) - 1;
            let spans = spans[first..].iter();
            for span in spans.take_while(|span| packed + span.start < range.end) {
                let start = range.start.max(packed + span.start);
                let end = range.end.min(packed + span.start + span.bytes);
                emit(Piece {
                    offset: offset + span.offset + (start - packed - span.start) as i64,
                    packed: start,
                    bytes: end - start,
                    first: None,
                    rest: &[],
                });
            }
        }
        Body::Parts(parts) => {
            let first = parts.partition_point(|(start, _)| packed + start <= range.start) - 1;
            let parts = parts[first..].iter();
            for (start, inner) in parts.take_while(|(start, _)| packed + start < range.end) {
                let begin = packed + start;
                let range = range.start.max(begin)..range.end.min(begin + inner.size());
                rounds(inner, 0, offset + inner.offset, begin, range, emit);
            }
        }
    }
}

/// Packed bytes of an array of structures that are taken member by member: they stay in the nearest
/// cache.
const NEAR_BYTES: u64 = 16 << 10;
