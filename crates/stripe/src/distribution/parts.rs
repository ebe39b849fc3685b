//! A logical range as requests: one physical range for each slot, not one for each strip.

use super::Distribution;

/// What one slot contributes to a logical range: one physical range, and the pieces of the file it
/// carries in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Index into the striping's servers.
    pub slot: usize,
    /// First byte in the slot's object.
    pub physical: u64,
    /// Bytes in all.
    pub length: u64,
    /// (offset from the start of the logical range, bytes), in physical order.
    pub pieces: Vec<(u64, u64)>,
}

/// Splits `length` bytes from `offset` into parts of one contiguous physical range each: one request
/// per server, not one per strip. Parts are cut at `part_bytes_max`. Bytes that lie with the metadata
/// are the caller's to leave out.
pub fn parts(map: &impl Distribution, offset: u64, length: u64, part_bytes_max: u64) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::with_capacity(map.slots().min(16));
    let mut open: Vec<Option<usize>> = vec![None; map.slots()];
    let mut done = 0;
    while done < length {
        let spot = map.locate(offset + done);
        assert!(spot.slot < map.slots(), "inline bytes have no part");
        let mut step = spot.run.min(length - done);
        let joined = open[spot.slot].filter(|&at| {
            let part: &Part = &parts[at];
            part.physical + part.length == spot.physical && part.length < part_bytes_max
        });
        let at = joined.unwrap_or_else(|| {
            parts.push(Part {
                slot: spot.slot,
                physical: spot.physical,
                length: 0,
                pieces: vec![],
            });
            parts.len() - 1
        });
        open[spot.slot] = Some(at);
        let part = &mut parts[at];
        step = step.min(part_bytes_max - part.length);
        part.pieces.push((done, step));
        part.length += step;
        done += step;
    }
    parts
}
