//! The walk: a layout's runs, cut where they pass from one slot to the next.

use super::head::Head;
use super::{DEPTH_MAX, ENTRIES_MAX, Piece, View, refused, too_far, within};
use crate::distribution::{self, Distribution, Spot};
use covey_layout::{Plan, Run, Runs};
use covey_ninep::tree::{Errno, Result, View as Asked};

/// Most steps of a walk in one request, with those to other slots' pieces. They take some milliseconds, in which nobody
/// else is served.
pub const STEPS_MAX: u64 = 128 * 1024;

/// The slot of what lies behind the limit.
pub(super) const BEYOND: usize = usize::MAX - 1;

/// Contiguous bytes on one slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// [`distribution::INLINE`] and [`BEYOND`] are no slots.
    pub slot: usize,
    pub physical: u64,
    /// Of the first byte in the packed bytes.
    pub packed: u64,
    pub bytes: u64,
}

/// The steps of a walk.
pub(super) struct Deal<'a, D> {
    map: &'a D,
    runs: Runs<'a>,
    /// What is left of the run that we are at.
    rest: Run,
    /// From an offset of the runs to the file's.
    origin: i128,
    limit: u64,
    /// Where the last step's strip lies: small pieces mostly lie in the strip of the one before.
    spot: Spot,
    spot_of: u64,
}

impl<'a, D: Distribution> Deal<'a, D> {
    /// Of a plan that was checked to lie within a file from `origin` on.
    fn new(map: &'a D, runs: Runs<'a>, origin: i128, limit: u64) -> Deal<'a, D> {
        let rest = Run { offset: 0, bytes: 0, packed: 0 };
        let spot = Spot { slot: 0, physical: 0, run: 0 };
        Deal { map, runs, rest, origin, limit, spot, spot_of: u64::MAX }
    }

    /// Of a client's view.
    pub fn of_view(map: &'a D, view: &'a View, limit: u64) -> Deal<'a, D> {
        let runs = view.plan.runs(view.range.clone()).expect("the range was checked");
        Deal::new(map, runs, view.origin, limit)
    }

    /// Passes what follows in the strip of the last step, which is somebody else's.
    fn pass_strip(&mut self) {
        let start = i128::from(self.spot_of) - self.origin;
        let end = start + i128::from(self.spot.run);
        if self.rest.bytes == 0
            && let (Ok(start), Ok(end)) = (start.try_into(), end.try_into())
        {
            self.runs.pass(start..end);
        }
    }

    fn spot(&mut self, offset: u64) -> Spot {
        if offset < self.spot_of || offset - self.spot_of >= self.spot.run {
            (self.spot, self.spot_of) = (self.map.locate(offset), offset);
        }
        let ahead = offset - self.spot_of;
        let Spot { slot, physical, run } = self.spot;
        Spot { slot, physical: physical + ahead, run: run - ahead }
    }
}

impl<D: Distribution> Iterator for Deal<'_, D> {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        if self.rest.bytes == 0 {
            self.rest = self.runs.next()?;
        }
        let Run { offset, bytes, packed } = self.rest;
        let at = (self.origin + i128::from(offset)) as u64;
        let step = if at >= self.limit {
            Step { slot: BEYOND, physical: 0, packed, bytes }
        } else {
            let Spot { slot, physical, run } = self.spot(at);
            Step { slot, physical, packed, bytes: bytes.min(run).min(self.limit - at) }
        };
        self.rest = Run {
            offset: offset + step.bytes as i64,
            bytes: bytes - step.bytes,
            packed: packed + step.bytes,
        };
        Some(step)
    }
}

/// The pieces of an object that a peer's view names, in the order of its data.
///
/// Takes at most [`STEPS_MAX`] steps and memory for as many pieces, whatever the view says. EINVAL for what
/// makes no sense, has another number of bytes than was announced or reaches out of its range, E2BIG for what is over a
/// limit, EFBIG for offsets that no file has.
pub fn walk(view: &Asked) -> Result<Vec<Piece>> {
    let (head, layout) = Head::split(&view.body)?;
    if layout.entries() > ENTRIES_MAX {
        return Err(too_much(layout.entries(), "entries", ENTRIES_MAX));
    }
    if layout.depth() > DEPTH_MAX {
        return Err(too_much(layout.depth() as u64, "levels", DEPTH_MAX as u64));
    }
    let invalid = |what| Errno::because(Errno::EINVAL, what);
    let (slots, slot) = (usize::from(head.slots), usize::from(head.slot));
    let map = distribution::of_numbers(head.kind, head.strip_bytes, &head.params.0, slots);
    let map = map.map_err(|what| invalid(format!("the striping of a view: {what}")))?;
    if slot >= map.slots() {
        return Err(invalid(format!("slot {slot} of {} in a view", map.slots())));
    }
    let plan = Plan::new(&layout, 1).map_err(refused)?;
    let origin = i128::from(head.origin);
    if within(origin, plan.hull()).is_none() {
        return Err(too_far(head.origin, plan.hull()));
    }
    if head.from > head.to {
        return Err(invalid(format!("bytes {} to {} of a view", head.from, head.to)));
    }
    let runs = plan.runs(head.from..head.to).map_err(refused)?;
    let mut found = Found::default();
    let mut deal = Deal::new(&map, runs, origin, head.limit);
    let mut count = 0;
    while let Some(step) = deal.next() {
        count += 1;
        if count > STEPS_MAX {
            return Err(too_much(count, "steps", STEPS_MAX));
        }
        if step.slot == slot {
            found.add(step, view)?;
        } else if step.slot != BEYOND {
            deal.pass_strip();
        }
    }
    if found.bytes != view.bytes {
        let what = format!("a view of {} bytes, {} were announced", found.bytes, view.bytes);
        return Err(invalid(what));
    }
    Ok(found.pieces)
}

#[derive(Default)]
struct Found {
    pieces: Vec<Piece>,
    bytes: u32,
}

impl Found {
    fn add(&mut self, step: Step, view: &Asked) -> Result<()> {
        let Step { physical, bytes, .. } = step;
        let end = physical + bytes;
        if physical < view.start || end > view.end {
            let (from, to) = (view.start, view.end);
            let what =
                format!("a view of {physical} to {end} of an object, {from} to {to} was said");
            return Err(Errno::because(Errno::EINVAL, what));
        }
        let room = view.bytes - self.bytes;
        if bytes > u64::from(room) {
            let what = format!("a view of more than the {} bytes announced", view.bytes);
            return Err(Errno::because(Errno::EINVAL, what));
        }
        let bytes = bytes as u32;
        self.bytes += bytes;
        if let Some((start, length)) = self.pieces.last_mut()
            && *start + u64::from(*length) == physical
        {
            *length += bytes;
            return Ok(());
        }
        self.pieces.push((physical, bytes));
        Ok(())
    }
}

fn too_much(count: u64, what: &str, limit: u64) -> Errno {
    Errno::because(Errno::E2BIG, format!("a view of {count} {what}, limit is {limit}"))
}
