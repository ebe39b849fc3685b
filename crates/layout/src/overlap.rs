//! Whether a layout names any byte twice, which one that is written to must not.
//!
//! Most layouts are decided from their loops alone: sorted by stride, each loop steps over all that is
//! inside it (`nested`), or pieces that interleave stay in different residues of their strides' common
//! divisor (`apart`: the members of an array of structures, described member by member). What is
//! left is written out and sorted, up to [`PIECES_CHECKED_MAX`] pieces, and refused beyond. So the check takes
//! O(entries log entries) time in general, and O(n log n) for n pieces up to that limit.

use crate::Error;
use crate::program::{Body, Dim, Part};

/// Most interleaving pieces that are compared one by one.
pub const PIECES_CHECKED_MAX: u64 = 1 << 20;

/// Refuses a part that names a byte twice.
pub(crate) fn check(part: &Part) -> Result<(), Error> {
    check_from(part, 0)
}

/// Offsets of the part count from `base`.
fn check_from(part: &Part, base: i64) -> Result<(), Error> {
    check_body(part, base + part.offset)?;
    let (low, high) = part.body_hull();
    if nested(part.dims.iter().copied(), (high - low) as u64) {
        return Ok(());
    }
    check_mixed(std::slice::from_ref(part), base)
}

fn check_body(part: &Part, base: i64) -> Result<(), Error> {
    match &part.body {
        Body::Block(_) => Ok(()),
        Body::Spans(spans) => {
            let ends = spans.iter().map(|span| (span.offset, span.offset + span.bytes as i64));
            check_sorted(ends.collect()).map_err(|at| Error::Overlap { offset: base + at })
        }
        Body::Parts(parts) => {
            parts.iter().try_for_each(|(_, inner)| check_from(inner, base))?;
            let mut order: Vec<_> = parts.iter().map(|(_, inner)| (inner.hull(), inner)).collect();
            order.sort_by_key(|(hull, _)| *hull);
            // Only groups whose hulls reach into each other need a closer look.
            let mut group: Vec<Part> = Vec::new();
            let mut end = i64::MIN;
            for ((low, high), inner) in order {
                if low >= end {
                    check_group(&group, base)?;
                    group.clear();
                }
                group.push(inner.clone());
                end = end.max(high);
            }
            check_group(&group, base)
        }
    }
}

fn check_group(group: &[Part], base: i64) -> Result<(), Error> {
    if group.len() < 2 { Ok(()) } else { check_mixed(group, base) }
}

/// Of parts that interleave, or of one with loops that do.
fn check_mixed(parts: &[Part], base: i64) -> Result<(), Error> {
    if apart(parts) {
        return Ok(());
    }
    let pieces = parts.iter().fold(0u64, |all, part| all.saturating_add(part.runs()));
    if pieces > PIECES_CHECKED_MAX {
        return Err(Error::Entangled { pieces, limit: PIECES_CHECKED_MAX });
    }
    let mut ends = Vec::with_capacity(pieces as usize);
    for part in parts {
        let runs = crate::Runs::new(Some(part), 0..part.size());
        ends.extend(runs.map(|run| (run.offset, run.offset + run.bytes as i64)));
    }
    check_sorted(ends).map_err(|at| Error::Overlap { offset: base + at })
}

fn check_sorted(mut ends: Vec<(i64, i64)>) -> Result<(), i64> {
    ends.sort_unstable();
    match ends.windows(2).find(|pair| pair[1].0 < pair[0].1) {
        Some(pair) => Err(pair[1].0),
        None => Ok(()),
    }
}

/// Whether the loops, from the smallest stride to the largest, each step over all inside them.
fn nested(dims: impl Iterator<Item = Dim>, bytes: u64) -> bool {
    let mut strides: Vec<(u64, u64)> =
        dims.map(|dim| (dim.stride.unsigned_abs(), dim.count)).collect();
    strides.sort_unstable();
    let mut span = u128::from(bytes);
    strides.into_iter().all(|(stride, count)| {
        let is_clear = u128::from(stride) >= span;
        span += u128::from(stride) * u128::from(count - 1);
        is_clear
    })
}

/// Whether every block, with all the loops around it, is clear of itself, and no two of them
/// meet in the residues of the greatest common divisor of all strides.
fn apart(parts: &[Part]) -> bool {
    let mut blocks = Vec::new();
    for part in parts {
        collect(part, part.offset, &mut Vec::new(), &mut blocks);
    }
    let strides = blocks.iter().flat_map(|(_, _, dims)| dims.iter().map(|dim| dim.stride));
    let divisor = strides.fold(0, |divisor, stride| gcd(divisor, stride.unsigned_abs()));
    if divisor == 0 || !blocks.iter().all(|(_, bytes, dims)| nested(dims.iter().copied(), *bytes)) {
        return false;
    }
    let residue = |offset: i64| i128::from(offset).rem_euclid(i128::from(divisor)) as i64;
    let mut ends: Vec<(i64, i64)> =
        blocks.iter().map(|(at, bytes, _)| (residue(*at), residue(*at) + *bytes as i64)).collect();
    let Some(first) = ends.iter().min().copied() else { return true };
    // Around the end, back to the first.
    let wrap = first.0 + divisor as i64;
    ends.iter().all(|(_, end)| *end <= wrap) && {
        ends.push((wrap, wrap));
        check_sorted(ends).is_ok()
    }
}

/// The blocks of a part with all loops around each.
fn collect(part: &Part, offset: i64, outer: &mut Vec<Dim>, into: &mut Vec<(i64, u64, Box<[Dim]>)>) {
    let depth = outer.len();
    outer.extend_from_slice(&part.dims);
    match &part.body {
        Body::Block(_) => into.push((offset, part.each, outer.as_slice().into())),
        Body::Spans(spans) => into.extend(
            spans.iter().map(|span| (offset + span.offset, span.bytes, outer.as_slice().into())),
        ),
        Body::Parts(parts) => {
            for (_, inner) in parts {
                collect(inner, offset + inner.offset, outer, into);
            }
        }
    }
    outer.truncate(depth);
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
