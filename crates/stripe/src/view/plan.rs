//! Which requests a view takes: those of one slot follow each other in its packed bytes.

use super::deal::{BEYOND, Deal, STEPS_MAX, Step};
use super::head::Head;
use super::{Piece, View};
use crate::distribution::{Distribution, INLINE};
use crate::ops::Striping;
use covey_layout::{Block, Element, Layout, Plan};
use covey_ninep::tree::View as Asked;
use covey_wire::{Bytes, Field, Payload};

/// A piece of the caller's data: where it begins there, and its bytes.
pub type Place = (usize, u32);

/// One request to one slot.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Index into the striping's servers; [`INLINE`] for the metadata server.
    pub slot: usize,
    /// Where its data lies in the caller's.
    pub places: Vec<Place>,
    /// Bytes in all.
    pub bytes: u32,
    /// What of the object, where that is said piece by piece.
    pub pieces: Vec<Piece>,
    /// What of the object, if it is one range.
    pub only: Option<Piece>,
    /// Of the object: no byte lies before the first, or behind the second.
    range: (u64, u64),
    /// Which packed bytes of the view it goes through, with those of other slots.
    packed: (u64, u64),
    /// Steps at its begin.
    steps: u64,
}

impl Batch {
    fn new(slot: usize, packed: u64, steps: u64) -> Batch {
        Batch {
            slot,
            places: Vec::new(),
            bytes: 0,
            pieces: Vec::new(),
            only: None,
            range: (u64::MAX, 0),
            packed: (packed, packed),
            steps,
        }
    }

    fn push(&mut self, step: Step, at: usize, is_listed: bool) {
        let (physical, bytes) = (step.physical, step.bytes as u32);
        if self.bytes == 0 {
            self.only = Some((physical, bytes));
        } else if let Some((start, length)) = &mut self.only {
            if *start + u64::from(*length) == physical {
                *length += bytes;
            } else {
                self.only = None;
            }
        }
        if is_listed {
            push_piece(&mut self.pieces, physical, bytes);
        }
        self.bytes += bytes;
        self.range = (self.range.0.min(physical), self.range.1.max(physical + step.bytes));
        self.packed.1 = step.packed + step.bytes;
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

    /// Puts what was read of the batch in its places, and zeros where it is short.
    pub fn scatter(&self, mut read: &[u8], into: &mut [u8]) {
        for &(at, bytes) in &self.places {
            let place = &mut into[at..at + bytes as usize];
            let (here, rest) = read.split_at(read.len().min(place.len()));
            place[..here.len()].copy_from_slice(here);
            place[here.len()..].fill(0);
            read = rest;
        }
    }

    /// What the slot's server is asked for, where that is more than one range.
    pub fn asked(&self, view: &View, striping: &Striping, limit: u64) -> Asked {
        let (start, end) = self.range;
        let body = match &view.layout {
            Some(layout) if self.pieces.is_empty() => {
                let mut head = Head::of_file(striping, self.slot);
                // Of the first packed byte, which is in the file.
                head.origin = (view.origin + i128::from(view.first)) as u64;
                head.limit = limit;
                (head.from, head.to) = self.packed;
                head.with(layout)
            }
            _ => of_pieces(&self.pieces),
        };
        Asked { start, end, bytes: self.bytes, body }
    }
}

/// What follows of a batch behind the first `done` bytes of its data, piece by piece: as much as one message holds.
pub(crate) fn behind(pieces: &[Piece], mut done: u32, payload_max: u32) -> Asked {
    let mut left = Vec::new();
    let mut room = u64::from(payload_max.max(PAYLOAD_MIN)) - FIELDS_BYTES - LIST_BYTES;
    for &(offset, bytes) in pieces {
        let skipped = done.min(bytes);
        done -= skipped;
        let fits = room.saturating_sub(PIECE_BYTES).min(u64::from(bytes - skipped)) as u32;
        if skipped == bytes {
            continue;
        }
        if fits > 0 {
            left.push((offset + u64::from(skipped), fits));
            room -= PIECE_BYTES + u64::from(fits);
        }
        if fits < bytes - skipped || left.len() >= LISTED_MAX {
            break;
        }
    }
    let start = left.iter().map(|(offset, _)| *offset).min().unwrap_or(0);
    let end = left.iter().map(|(offset, bytes)| offset + u64::from(*bytes)).max().unwrap_or(0);
    let bytes = left.iter().map(|(_, bytes)| *bytes).sum();
    Asked { start, end, bytes, body: of_pieces(&left) }
}

/// A view of these pieces of an object.
fn of_pieces(pieces: &[Piece]) -> Bytes {
    let origin = pieces.first().map_or(0, |(offset, _)| *offset);
    let block = |&(offset, bytes): &Piece| {
        let displacement = offset.wrapping_sub(origin).cast_signed();
        Block { count: bytes.into(), displacement }
    };
    let blocks: Vec<Block> = pieces.iter().map(block).collect();
    let list = Layout::hindexed(&blocks, &Layout::element(Element::Byte));
    let plan = list.and_then(|list| Plan::new(&list, 1));
    // Both are within the limits: a batch has few pieces, and its file lies in the range of offsets.
    let (_, short) = plan.and_then(|plan| plan.describe()).expect("a batch is within the limits");
    let layout = short.encode().expect("a batch is within the limits").into();
    let total: u64 = blocks.iter().map(|block| block.count).sum();
    let head = Head { origin, from: 0, to: total, ..Head::of_object() };
    head.with(&layout)
}

/// The requests of a view: what a slot has goes into one, but for what a message or a server's limits cut. Bytes at
/// `limit` or beyond are left out.
pub(crate) fn plan(
    map: &impl Distribution,
    striping: &Striping,
    view: &View,
    limit: u64,
    payload_max: u32,
) -> Vec<Batch> {
    let payload_max = u64::from(payload_max.max(PAYLOAD_MIN));
    let head = |layout: &Bytes| (Head::of_file(striping, 0).size(()) + layout.len()) as u64;
    let head = view.layout.as_ref().map_or(u64::MAX, head);
    let is_short = head <= HEAD_MAX || head <= view.bytes() / 32;
    let is_walked = is_short && head <= payload_max / 4;
    let mut planner = Planner {
        batches: Vec::new(),
        open: vec![None; map.slots() + 1],
        room: payload_max - FIELDS_BYTES - if is_walked { head } else { 0 },
        is_walked,
        first: view.range.start,
        steps: 0,
    };
    for step in Deal::of_view(map, view, limit) {
        if step.slot != BEYOND {
            planner.add(step);
        }
        planner.steps += 1;
    }
    planner.batches
}

struct Planner {
    batches: Vec<Batch>,
    /// The batch that each slot fills, by slot; the last for what is inline.
    open: Vec<Option<usize>>,
    /// Bytes of data and of pieces in one message.
    room: u64,
    /// Servers walk the view; else they are sent their pieces.
    is_walked: bool,
    /// The first packed byte.
    first: u64,
    steps: u64,
}

impl Planner {
    fn add(&mut self, mut step: Step) {
        let index = if step.slot == INLINE { self.open.len() - 1 } else { step.slot };
        while step.bytes > 0 {
            let (slot, packed, steps) = (step.slot, step.packed, self.steps);
            let batch = *self.open[index].get_or_insert_with(|| {
                self.batches.push(Batch::new(slot, packed, steps));
                self.batches.len() - 1
            });
            let batch = &mut self.batches[batch];
            let is_listed = !self.is_walked || slot == INLINE;
            let room = room(batch, self.room, is_listed, self.steps);
            let bytes = step.bytes.min(room);
            // A piece that has no room as a whole goes whole into the next, if it fits there.
            if bytes == 0 || (bytes < step.bytes && bytes < self.room / 2) {
                self.open[index] = None;
                continue;
            }
            batch.push(Step { bytes, ..step }, (packed - self.first) as usize, is_listed);
            step.physical += bytes;
            step.packed += bytes;
            step.bytes -= bytes;
        }
    }
}

/// How much of a next piece a batch has room for.
fn room(batch: &Batch, room: u64, is_listed: bool, steps: u64) -> u64 {
    let listed = batch.pieces.len() as u64;
    let is_full = if is_listed {
        batch.pieces.len() >= LISTED_MAX
    } else {
        steps - batch.steps >= STEPS_MAX / 2
    };
    let list = if is_listed { (listed + 1) * PIECE_BYTES + LIST_BYTES } else { 0 };
    if is_full { 0 } else { room.saturating_sub(u64::from(batch.bytes) + list) }
}

fn push_piece(pieces: &mut Vec<Piece>, offset: u64, bytes: u32) {
    match pieces.last_mut() {
        Some((start, length)) if *start + u64::from(*length) == offset => *length += bytes,
        _ => pieces.push((offset, bytes)),
    }
}

/// Slices sent as they lie; more are copied together.
const SLICES_MAX: usize = 32;
/// A view that takes no more than this is always sent as it is.
const HEAD_MAX: u64 = 1024;
/// Most pieces that are sent one by one.
const LISTED_MAX: usize = 16 * 1024;
/// What a piece that is sent takes at most, and what precedes the pieces.
const PIECE_BYTES: u64 = 24;
const LIST_BYTES: u64 = 64;
/// Fields of Twriteview that Twrite has not.
const FIELDS_BYTES: u64 = 16;
/// Messages have at least so much room.
const PAYLOAD_MIN: u32 = 256;
