//! Whether a layout names any byte twice, which one that is written to must not.
//!
//! Most layouts are decided from their loops alone: sorted by stride, each loop steps over all that is
//! inside it (`nested`), or pieces that interleave stay in different residues of their strides' common
//! divisor (`are_apart`: the members of an array of structures, described member by member). What is
//! left is written out and sorted, up to [`PIECES_CHECKED_MAX`] pieces in all, and refused beyond. So the check
//! takes O(entries log entries) time for each level of nesting, and O(n log n) for n pieces written out.

use crate::Error;
use crate::program::{Body, Dim, Part, Span};

/// Most interleaving pieces of a layout that are compared one by one.
pub const PIECES_CHECKED_MAX: u64 = 1 << 20;

/// Refuses a part that names a byte twice.
pub(crate) fn check(part: &Part) -> Result<(), Error> {
    Check { pieces: 0, room: PIECES_CHECKED_MAX }.part(part, 0)
}

/// Counts the pieces that have been written out, so that many small knots do not cost more than a large one.
struct Check {
    /// Compared one by one.
    pieces: u64,
    /// How many more rounds of short loops may be written out.
    room: u64,
}

impl Check {
    /// Offsets of the part count from `base`.
    fn part(&mut self, part: &Part, base: i64) -> Result<(), Error> {
        self.body(part, base + part.offset)?;
        let (low, high) = part.body_hull();
        if nested(&part.dims, (high - low) as u64) {
            return Ok(());
        }
        self.mixed(&[part], base)
    }

    fn body(&mut self, part: &Part, base: i64) -> Result<(), Error> {
        match &part.body {
            Body::Block(_) => Ok(()),
            Body::Spans(spans) => {
                let ends = spans.iter().map(|span| (span.offset, span.offset + span.bytes as i64));
                check_sorted(ends.collect()).map_err(|at| Error::Overlap { offset: base + at })
            }
            Body::Parts(parts) => {
                parts.iter().try_for_each(|(_, inner)| self.part(inner, base))?;
                self.neighbours(parts, base)
            }
        }
    }

    /// Parts that are clear of themselves: only those whose hulls reach into each other need a closer look.
    fn neighbours(&mut self, parts: &[(u64, Part)], base: i64) -> Result<(), Error> {
        let mut order: Vec<_> = parts.iter().map(|(_, inner)| (inner.hull(), inner)).collect();
        order.sort_by_key(|(hull, _)| *hull);
        let mut group: Vec<&Part> = Vec::new();
        let mut end = i64::MIN;
        for ((low, high), inner) in order {
            if low >= end {
                self.group(&group, base)?;
                group.clear();
            }
            group.push(inner);
            end = end.max(high);
        }
        self.group(&group, base)
    }

    fn group(&mut self, group: &[&Part], base: i64) -> Result<(), Error> {
        if group.len() < 2 { Ok(()) } else { self.mixed(group, base) }
    }

    /// Of parts that interleave, or of one with loops that do.
    fn mixed(&mut self, parts: &[&Part], base: i64) -> Result<(), Error> {
        if self.are_apart(parts) {
            return Ok(());
        }
        let pieces = parts.iter().fold(0u64, |all, part| all.saturating_add(part.runs()));
        self.pieces = self.pieces.saturating_add(pieces);
        if self.pieces > PIECES_CHECKED_MAX {
            return Err(Error::Entangled { pieces: self.pieces, limit: PIECES_CHECKED_MAX });
        }
        let mut ends = Vec::with_capacity(pieces as usize);
        for part in parts {
            let runs = crate::Runs::new(Some(part), 0..part.size());
            ends.extend(runs.map(|run| (run.offset, run.offset + run.bytes as i64)));
        }
        check_sorted(ends).map_err(|at| Error::Overlap { offset: base + at })
    }

    /// Whether every block, with all the loops around it, is clear of itself, and no two of them
    /// meet in the residues of the greatest common divisor of all strides.
    fn are_apart(&mut self, parts: &[&Part]) -> bool {
        let mut blocks = Blocks { blocks: Vec::new(), divisor: 0, room: self.room };
        let is_clear = parts.iter().all(|part| blocks.add(part, part.offset, &mut Vec::new()));
        self.room = blocks.room;
        is_clear && blocks.are_apart()
    }
}

fn check_sorted(mut ends: Vec<(i64, i64)>) -> Result<(), i64> {
    ends.sort_unstable();
    match ends.windows(2).find(|pair| pair[1].0 < pair[0].1) {
        Some(pair) => Err(pair[1].0),
        None => Ok(()),
    }
}

/// Whether the loops, from the smallest stride to the largest, each step over all inside them.
fn nested(dims: &[Dim], bytes: u64) -> bool {
    let mut strides: Vec<(u64, u64)> =
        dims.iter().map(|dim| (dim.stride.unsigned_abs(), dim.count)).collect();
    strides.sort_unstable();
    let mut span = u128::from(bytes);
    strides.into_iter().all(|(stride, count)| {
        let is_clear = u128::from(stride) >= span;
        span += u128::from(stride) * u128::from(count - 1);
        is_clear
    })
}

/// Blocks without the loops around them, apart from those that were written out.
struct Blocks {
    /// Offset and bytes of each.
    blocks: Vec<(i64, u64)>,
    /// Of all other strides.
    divisor: u64,
    /// As in [`Check`].
    room: u64,
}

impl Blocks {
    /// Takes in the blocks of a part; false when one is not clear of itself, or there are too many.
    fn add(&mut self, part: &Part, offset: i64, outer: &mut Vec<Dim>) -> bool {
        let depth = outer.len();
        outer.extend_from_slice(&part.dims);
        let is_clear = match &part.body {
            Body::Block(_) => self.add_blocks(&[(offset, part.each)], outer),
            Body::Spans(spans) => {
                let place = |span: &Span| (offset + span.offset, span.bytes);
                self.add_blocks(&spans.iter().map(place).collect::<Vec<_>>(), outer)
            }
            Body::Parts(parts) => {
                parts.iter().all(|(_, inner)| self.add(inner, offset + inner.offset, outer))
            }
        };
        outer.truncate(depth);
        is_clear
    }

    /// Blocks with the same loops around each. Short loops that reach into others are written out.
    fn add_blocks(&mut self, blocks: &[(i64, u64)], loops: &[Dim]) -> bool {
        let longest = blocks.iter().map(|block| block.1).max().unwrap_or(0);
        let mut loops = loops.to_vec();
        let mut blocks = blocks.to_vec();
        while !nested(&loops, longest) {
            let shortest = (0..loops.len()).min_by_key(|&at| loops[at].count);
            let Some(dim) = shortest.map(|at| loops.swap_remove(at)) else { return false };
            let written = dim.count.saturating_mul(blocks.len() as u64);
            let Some(room) = self.room.checked_sub(written) else { return false };
            self.room = room;
            let rounds = 0..dim.count as i64;
            let round = |at| blocks.iter().map(move |block| (block.0 + dim.stride * at, block.1));
            blocks = rounds.flat_map(round).collect();
        }
        let strides = loops.iter().map(|dim| dim.stride.unsigned_abs());
        self.divisor = strides.fold(self.divisor, gcd);
        self.blocks.extend(blocks);
        true
    }

    fn are_apart(&self) -> bool {
        let divisor = self.divisor as i64;
        if divisor == 0 {
            return false;
        }
        let residue = |&(offset, bytes): &(i64, u64)| {
            let start = offset.rem_euclid(divisor);
            (start, start + bytes as i64)
        };
        let mut ends: Vec<(i64, i64)> = self.blocks.iter().map(residue).collect();
        let Some(first) = ends.iter().min().copied() else { return true };
        // Around the end, back to the first.
        let wrap = first.0 + divisor;
        ends.iter().all(|(_, end)| *end <= wrap) && {
            ends.push((wrap, wrap));
            check_sorted(ends).is_ok()
        }
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
