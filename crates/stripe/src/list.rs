//! Noncontiguous ranges of a file, and what they become on each of its servers.
//!
//! A list of logical [`Run`]s is dealt by the file's distribution. What falls on one slot is put
//! together into [`Batch`]es of one message each, and pieces of one size at equal distances are
//! folded again: a column of a matrix stays a few numbers on its way.
//!
//! ```text
//!   runs of the file ──► pieces ──► distribution ──► pieces of slot 0 ──► runs of its object
//!                                                └─► pieces of slot 1 ──► ...
//! ```

use crate::distribution::{Distribution, INLINE, Spot};
use covey_ninep::runs::{self, PIECES_MAX, RUNS_MAX};
use covey_ninep::tree::Errno;
use covey_wire::{Bytes, Payload};

/// Pieces of one size at equal distances in a file: `count` pieces of `bytes` bytes, each
/// `stride` bytes after the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Where the first piece begins.
    pub offset: u64,
    /// Bytes of each piece.
    pub bytes: u64,
    /// From the beginning of a piece to that of the next, at least `bytes`.
    pub stride: u64,
    /// Pieces.
    pub count: u64,
}

impl Run {
    /// One contiguous range.
    pub fn one(offset: u64, bytes: u64) -> Run {
        Run { offset, bytes, stride: bytes, count: 1 }
    }

    /// Bytes of all pieces together. Of runs that were checked.
    pub fn total(&self) -> u64 {
        self.bytes * self.count
    }

    /// Where each piece begins, and its bytes.
    pub(crate) fn pieces(self) -> impl Iterator<Item = (u64, u64)> {
        (0..self.count).map(move |at| (self.offset + at * self.stride, self.bytes))
    }

    /// The end of the last piece; None when no file reaches there.
    fn end(&self) -> Option<u64> {
        let last = self.count.checked_sub(1)?.checked_mul(self.stride)?;
        let end = self.offset.checked_add(last)?.checked_add(self.bytes)?;
        (end <= i64::MAX as u64).then_some(end)
    }
}

/// What a list comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes of all pieces.
    pub total: usize,
    /// The first byte.
    pub start: u64,
    /// The end of the furthest piece.
    pub end: u64,
}

/// The extent of a list; runs without bytes do not count.
///
/// EINVAL for pieces of a run that overlap, EFBIG for a list that no file has room for.
pub fn extent(list: &[Run]) -> Result<Extent, Errno> {
    let (mut total, mut start, mut end) = (0usize, u64::MAX, 0);
    for run in list.iter().filter(|run| run.bytes > 0 && run.count > 0) {
        if run.count > 1 && run.stride < run.bytes {
            let what = format!("pieces of {} bytes every {} bytes overlap", run.bytes, run.stride);
            return Err(Errno::because(Errno::EINVAL, what));
        }
        let too_big = || Errno::because(Errno::EFBIG, format!("{run:?} reaches too far"));
        end = run.end().ok_or_else(too_big)?.max(end);
        start = run.offset.min(start);
        let bytes = run.bytes.checked_mul(run.count).and_then(|n| usize::try_from(n).ok());
        total = bytes.and_then(|bytes| total.checked_add(bytes)).ok_or_else(too_big)?;
    }
    Ok(Extent { total, start: start.min(end), end })
}

/// A piece of the caller's data: where it begins there, and its bytes.
pub type Place = (usize, u32);

/// One message to one slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Index into the striping's servers; [`INLINE`] for the metadata server.
    pub slot: usize,
    /// What of the object, in the order of the data.
    pub runs: Vec<runs::Run>,
    /// The same pieces in the caller's data.
    pub places: Vec<Place>,
    /// Bytes in all.
    pub bytes: u32,
    /// Pieces of all runs.
    pieces: u64,
}

impl Batch {
    fn new(slot: usize) -> Batch {
        Batch { slot, runs: Vec::new(), places: Vec::new(), bytes: 0, pieces: 0 }
    }

    /// How much of a next piece has room in a message with `payload_max` bytes of payload.
    fn room(&self, payload_max: u32) -> u32 {
        let heads = (self.runs.len() + 1) * runs::Run::WIRE_BYTES;
        if self.runs.len() >= RUNS_MAX || self.pieces >= PIECES_MAX {
            return 0;
        }
        let used = heads as u64 + u64::from(self.bytes);
        u64::from(payload_max).saturating_sub(used) as u32
    }

    fn push(&mut self, physical: u64, at: usize, bytes: u32) {
        if !self.runs.last_mut().is_some_and(|run| lengthen(run, physical, bytes)) {
            self.runs.push(runs::Run::one(physical, bytes));
        }
        // At most one per piece: one that goes on where the last run ends adds none.
        self.pieces += 1;
        self.bytes += bytes;
        match self.places.last_mut() {
            Some((start, length)) if *start + *length as usize == at => *length += bytes,
            _ => self.places.push((at, bytes)),
        }
    }

    /// The batch's bytes out of the caller's data.
    pub fn gather(&self, data: &Bytes) -> Payload {
        let slice = |&(at, bytes): &Place| data.slice(at..at + bytes as usize);
        if self.places.len() <= SLICES_MAX {
            return Payload::gather(self.places.iter().map(slice).collect());
        }
        let mut all = Vec::with_capacity(self.bytes as usize);
        for &(at, bytes) in &self.places {
            all.extend_from_slice(&data[at..at + bytes as usize]);
        }
        all.into()
    }

    /// Puts what was read of the batch in its places.
    pub fn scatter(&self, mut read: &[u8], into: &mut [u8]) {
        for &(at, bytes) in &self.places {
            let (here, rest) = read.split_at(read.len().min(bytes as usize));
            into[at..at + here.len()].copy_from_slice(here);
            read = rest;
        }
    }

    /// What is left of the runs behind the first `done` bytes.
    pub fn runs_behind(&self, mut done: u64) -> Vec<runs::Run> {
        let mut left: Vec<runs::Run> = Vec::new();
        for (offset, bytes) in runs::pieces(&self.runs) {
            let skipped = done.min(u64::from(bytes));
            done -= skipped;
            let (offset, bytes) = (offset + skipped, bytes - skipped as u32);
            if bytes > 0 && !left.last_mut().is_some_and(|run| lengthen(run, offset, bytes)) {
                left.push(runs::Run::one(offset, bytes));
            }
        }
        left
    }
}

/// Takes a piece into a run that it continues: right behind it, or at its stride.
fn lengthen(run: &mut runs::Run, offset: u64, bytes: u32) -> bool {
    if run.count == 1 && offset == run.end() {
        let Some(joined) = run.bytes.checked_add(bytes) else { return false };
        (run.bytes, run.stride) = (joined, u64::from(joined));
        return true;
    }
    if run.bytes != bytes || offset < run.end() {
        return false;
    }
    let stride = if run.count == 1 { offset - run.offset } else { run.stride };
    if offset - run.offset != stride.saturating_mul(u64::from(run.count)) {
        return false;
    }
    run.stride = stride;
    run.count += 1;
    true
}

/// The messages that carry a list, which was checked with [`extent`]: all that a slot has goes into
/// one, but for what `payload_max` cuts. Bytes at `limit` or beyond are left out.
pub fn plan(map: &impl Distribution, list: &[Run], limit: u64, payload_max: u32) -> Vec<Batch> {
    let mut planner = Planner {
        batches: Vec::new(),
        open: vec![None; map.slots() + 1],
        payload_max: payload_max.max(runs::Run::WIRE_BYTES as u32 * 2),
    };
    let mut at = 0;
    let mut spot = Spot { slot: 0, physical: 0, run: 0 };
    let mut spot_of = u64::MAX;
    for (mut offset, mut bytes) in list.iter().flat_map(|run| run.pieces()) {
        let next = at + bytes as usize;
        bytes = bytes.min(limit.saturating_sub(offset));
        while bytes > 0 {
            // Small pieces mostly lie in the strip of the one before.
            if offset < spot_of || offset - spot_of >= spot.run {
                (spot, spot_of) = (map.locate(offset), offset);
            }
            let ahead = offset - spot_of;
            let step = bytes.min(spot.run - ahead);
            planner.add(spot.slot, spot.physical + ahead, at, step);
            (offset, at, bytes) = (offset + step, at + step as usize, bytes - step);
        }
        at = next;
    }
    planner.batches
}

struct Planner {
    batches: Vec<Batch>,
    /// The batch that each slot fills, by slot; the last for what is inline.
    open: Vec<Option<usize>>,
    payload_max: u32,
}

impl Planner {
    fn add(&mut self, slot: usize, mut physical: u64, mut at: usize, mut bytes: u64) {
        let index = if slot == INLINE { self.open.len() - 1 } else { slot };
        while bytes > 0 {
            let batch = *self.open[index].get_or_insert_with(|| {
                self.batches.push(Batch::new(slot));
                self.batches.len() - 1
            });
            let room = u64::from(self.batches[batch].room(self.payload_max));
            let step = bytes.min(room);
            // A piece that has no room as a whole goes whole into the next, if it fits there.
            if step == 0 || (step < bytes && step < u64::from(self.payload_max) / 2) {
                self.open[index] = None;
                continue;
            }
            self.batches[batch].push(physical, at, step as u32);
            (physical, at, bytes) = (physical + step, at + step as usize, bytes - step);
        }
    }
}

/// Slices sent as they lie; more are copied together.
const SLICES_MAX: usize = 32;

#[cfg(test)]
mod tests;
