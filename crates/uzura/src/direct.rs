//! Transfers that one side does alone: it looks into the peer's memory where that is mapped, or has the transport
//! copy it. Scattered memory is moved by the kernels of layouts; memory that is not mapped is copied as a whole
//! before, where it is dense enough.

use crate::Fault;
use crate::api::Local;
use crate::core::Core;
use crate::forms::Committed;
use crate::numbers::Wire;
use crate::serve::whole;
use covey_layout::{Strips, View, ViewMut};
use covey_wire::transport::{OneCopy, Refused, Transfer};
use covey_wire::{Memory, Peer, Span, Transport};
use std::rc::Rc;

/// Memory of a peer.
#[derive(Clone, Debug)]
pub(crate) struct Far {
    pub peer: Peer,
    /// Where displacement 0 lies, in the peer's addresses.
    pub origin: u64,
    pub form: Option<Rc<Committed>>,
    pub bytes: u64,
}

/// How far a message was fetched out of its sender's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fetched {
    Whole,
    /// The transport goes on, and tells the end.
    Later,
    /// That cannot be done from here.
    Not,
}

impl Fetched {
    pub fn of(is_read: bool) -> Fetched {
        if is_read { Fetched::Whole } else { Fetched::Not }
    }
}

/// Names of a message that is fetched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fetch {
    /// What the transport is to call it.
    pub token: u64,
    /// What its sender calls it.
    pub message: Wire,
}

impl Far {
    /// All bytes that may be touched, and where in them displacement 0 lies.
    fn hull(&self) -> Option<(Span, usize)> {
        let (begin, end) = match &self.form {
            Some(form) => whole(form.plan.hull()),
            None => (0, i64::try_from(self.bytes).ok()?),
        };
        let address = self.origin.checked_add_signed(begin)?;
        let span = Span::new(address, end.checked_sub(begin)?.unsigned_abs());
        Some((span, begin.unsigned_abs() as usize))
    }

    /// Whether its runs are so long that listing them is cheap.
    fn is_coarse(&self, form: &Committed) -> bool {
        form.plan.run_count().saturating_mul(RUN_BYTES_MIN) <= self.bytes
    }

    /// The places of its runs, if they are few, or at least so long on the whole.
    pub fn worth_naming(&self, few: u64, bytes_min: u64) -> Option<Vec<(u64, Span)>> {
        match &self.form {
            None => Some(vec![(0, Span::new(self.origin, self.bytes))]),
            Some(form) => {
                let runs = form.plan.run_count();
                let is_long = runs <= LIST_MAX as u64 && runs * bytes_min <= self.bytes;
                (is_long || runs <= few).then(|| self.runs(form)).flatten()
            }
        }
    }

    /// The places of its runs.
    fn runs(&self, form: &Committed) -> Option<Vec<(u64, Span)>> {
        let runs = form.plan.runs(0..self.bytes).ok()?;
        runs.map(|run| {
            let address = self.origin.checked_add_signed(run.offset)?;
            Some((run.packed, Span::new(address, run.bytes)))
        })
        .collect()
    }
}

impl<M: Memory> Core<M> {
    /// Fetches a message that lies in one piece into memory in one piece.
    pub fn fetch_far<T: Transport>(
        &mut self,
        transport: &mut T,
        fetch: Fetch,
        far: &Far,
        local: &Local,
        at: u64,
    ) -> Result<Fetched, Fault> {
        let from = Span::new(far.origin, far.bytes);
        if let Some(seen) = transport.view(far.peer, from) {
            return self.copy_in(far, seen, 0, local, at).map(Fetched::of);
        }
        if transport.one_copy(far.peer) != OneCopy::AtOnce {
            return Ok(Fetched::Not);
        }
        let into = local.span.part(at, far.bytes).ok_or(Fault::OutOfRange)?;
        self.stats.bytes_copied += far.bytes;
        match transport.fetch(fetch.token, far.peer, fetch.message.0, from, into) {
            Ok(Transfer::Started) => Ok(Fetched::Later),
            result => is_done(result).map(Fetched::of),
        }
    }

    /// Reads all of `far` into local memory, from its packed offset `at` on. False where that cannot be done from here.
    pub fn read_far<T: Transport>(
        &mut self,
        transport: &mut T,
        far: &Far,
        local: &Local,
        at: u64,
    ) -> Result<bool, Fault> {
        let Some((theirs, origin)) = far.hull() else { return Ok(false) };
        if let Some(seen) = transport.view(far.peer, theirs) {
            return self.copy_in(far, seen, origin, local, at);
        }
        if transport.one_copy(far.peer) != OneCopy::AtOnce {
            return Ok(false);
        }
        match (&far.form, local.form) {
            (None, None) => {
                let part = local.span.part(at, far.bytes).ok_or(Fault::OutOfRange)?;
                self.stats.bytes_copied += far.bytes;
                is_done(transport.read(0, far.peer, &[theirs], part))
            }
            (None, Some(_)) => match self.read_strips(transport, far, local, at)? {
                Some(is_read) => Ok(is_read),
                None => self.read_steps(transport, far, local, at),
            },
            (Some(form), None) if far.is_coarse(form) => {
                let Some(runs) = far.runs(form) else { return Ok(false) };
                self.stats.bytes_copied += far.bytes;
                each_list(&runs, |packed, spans, bytes| {
                    let part = local.span.part(at + packed, bytes).ok_or(Fault::OutOfRange)?;
                    is_done(transport.read(0, far.peer, spans, part))
                })
            }
            (Some(_), _) => {
                if theirs.bytes > 2 * far.bytes {
                    return Ok(false);
                }
                if let Some(is_read) = self.read_strips(transport, far, local, at)? {
                    return Ok(is_read);
                }
                let fits = theirs.bytes <= SCRATCH_BYTES_MAX;
                let Some(held) = fits.then(|| self.memory.scratch(theirs.bytes)).flatten() else {
                    return Ok(false);
                };
                self.stats.bytes_held += theirs.bytes;
                Ok(is_done(transport.read(0, far.peer, &[theirs], held))?
                    && self.copy_in(far, held, origin, local, at)?)
            }
        }
    }

    /// Scattered memory on either side, by way of memory of our own, a strip at a time: what was brought is put in place
    /// while it is near. `None` where the two sides have no strips.
    fn read_strips<T: Transport>(
        &mut self,
        transport: &mut T,
        far: &Far,
        local: &Local,
        at: u64,
    ) -> Result<Option<bool>, Fault> {
        let ours = local.form.map(|form| self.forms.find(form).cloned()).transpose()?;
        if ours.as_ref().is_some_and(|ours| at != 0 || ours.plan.size() != far.bytes) {
            return Ok(None);
        }
        let target = match &ours {
            Some(ours) => Some(ours.target().ok_or(Fault::Layout)?),
            None => None,
        };
        let plan = far.form.as_ref().map(|form| &form.plan);
        let Some(strips) = Strips::new(plan, target, STEP_BYTES) else { return Ok(None) };
        let (into, here) = match ours {
            Some(_) => (local.span, local.origin as usize),
            None => (local.span.part(at, far.bytes).ok_or(Fault::OutOfRange)?, 0),
        };
        let bytes_max = strips.bytes_max();
        let fits = bytes_max <= SCRATCH_BYTES_MAX;
        let Some(held) = fits.then(|| self.memory.scratch(bytes_max)).flatten() else {
            return Ok(None);
        };
        for strip in strips {
            let (begin, end) = strip.reads();
            let address = far.origin.checked_add_signed(begin).ok_or(Fault::OutOfRange)?;
            let bytes = end.abs_diff(begin);
            let held = Span::new(held.address, bytes);
            if !is_done(transport.read(0, far.peer, &[Span::new(address, bytes)], held))? {
                return Ok(Some(false));
            }
            self.stats.bytes_held += bytes;
            let copied = self.memory.both(held, into, |from, into| {
                ViewMut::at(into, here).and_then(|into| strip.copy(from, into))
            });
            copied??;
        }
        self.stats.bytes_copied += far.bytes;
        Ok(Some(true))
    }

    /// Contiguous memory into scattered, by way of memory of our own.
    fn read_steps<T: Transport>(
        &mut self,
        transport: &mut T,
        far: &Far,
        local: &Local,
        at: u64,
    ) -> Result<bool, Fault> {
        let step = far.bytes.min(STEP_BYTES);
        let Some(held) = self.memory.scratch(step) else { return Ok(false) };
        let mut done = 0;
        while done < far.bytes {
            let bytes = step.min(far.bytes - done);
            let theirs = Span::new(far.origin + done, bytes);
            let held = Span::new(held.address, bytes);
            if !is_done(transport.read(0, far.peer, &[theirs], held))? {
                return Ok(false);
            }
            self.stats.bytes_held += bytes;
            let part = Far { form: None, bytes, ..far.clone() };
            self.copy_in(&part, held, 0, local, at + done)?;
            done += bytes;
        }
        Ok(true)
    }

    /// Copies memory of a peer that can be read at `seen` into local memory.
    fn copy_in(
        &mut self,
        far: &Far,
        seen: Span,
        origin: usize,
        local: &Local,
        at: u64,
    ) -> Result<bool, Fault> {
        self.stats.bytes_copied += far.bytes;
        let ours = local.form.map(|form| self.forms.find(form)).transpose()?;
        let theirs = far.form.as_deref();
        let is_whole = at == 0 && ours.is_some_and(|ours| ours.plan.size() == far.bytes);
        if ours.is_some() && theirs.is_some() && !is_whole {
            return Ok(false);
        }
        let here = local.origin as usize;
        let into = match ours {
            None => local.span.part(at, far.bytes).ok_or(Fault::OutOfRange)?,
            Some(_) => local.span,
        };
        let copied = self.memory.both(seen, into, |from, into| match (theirs, ours) {
            (None, None) => {
                into.copy_from_slice(from);
                Ok(())
            }
            (Some(theirs), None) => Ok(theirs.plan.pack(View::at(from, origin)?, 0, into)?),
            (None, Some(ours)) => {
                let target = ours.target().ok_or(Fault::Layout)?;
                Ok(target.unpack(from, at, ViewMut::at(into, here)?)?)
            }
            (Some(theirs), Some(ours)) => {
                let target = ours.target().ok_or(Fault::Layout)?;
                let (into, from) = (ViewMut::at(into, here)?, View::at(from, origin)?);
                Ok(target.copy_from(into, &theirs.plan, from)?)
            }
        });
        copied?.map(|()| true)
    }

    /// Writes all of local memory to `far`. False where that cannot be done from here.
    pub fn write_far<T: Transport>(
        &mut self,
        transport: &mut T,
        local: &Local,
        far: &Far,
    ) -> Result<bool, Fault> {
        let Some((theirs, origin)) = far.hull() else { return Ok(false) };
        if let Some(seen) = transport.view(far.peer, theirs) {
            return self.copy_out(local, far, seen, origin);
        }
        if transport.one_copy(far.peer) != OneCopy::AtOnce {
            return Ok(false);
        }
        self.stats.bytes_copied += far.bytes;
        match (local.form, &far.form) {
            (None, None) => {
                let part = local.span.part(0, far.bytes).ok_or(Fault::OutOfRange)?;
                is_done(transport.write(0, far.peer, part, &[theirs]))
            }
            (None, Some(form)) if far.is_coarse(form) => {
                form.target().ok_or(Fault::Layout)?;
                let Some(runs) = far.runs(form) else { return Ok(false) };
                each_list(&runs, |packed, spans, bytes| {
                    let part = local.span.part(packed, bytes).ok_or(Fault::OutOfRange)?;
                    is_done(transport.write(0, far.peer, part, spans))
                })
            }
            (_, form) => {
                // Bytes between its runs are not ours to write.
                let is_dense = form.is_none() || theirs.bytes == far.bytes;
                let fits = theirs.bytes <= SCRATCH_BYTES_MAX;
                let held = (is_dense && fits).then(|| self.memory.scratch(theirs.bytes)).flatten();
                let Some(held) = held else { return Ok(false) };
                self.stats.bytes_held += theirs.bytes;
                Ok(self.copy_out(local, far, held, origin)?
                    && is_done(transport.write(0, far.peer, held, &[theirs]))?)
            }
        }
    }

    /// Copies local memory to memory of a peer that can be written at `seen`.
    fn copy_out(
        &mut self,
        local: &Local,
        far: &Far,
        seen: Span,
        origin: usize,
    ) -> Result<bool, Fault> {
        self.stats.bytes_copied += far.bytes;
        let ours = local.form.map(|form| self.forms.find(form)).transpose()?;
        let theirs = far.form.as_deref();
        let here = local.origin as usize;
        let copied = self.memory.both(local.span, seen, |from, into| match (ours, theirs) {
            (None, None) => {
                into.copy_from_slice(from);
                Ok(())
            }
            (Some(ours), None) => Ok(ours.plan.pack(View::at(from, here)?, 0, into)?),
            (None, Some(theirs)) => {
                let target = theirs.target().ok_or(Fault::Layout)?;
                Ok(target.unpack(from, 0, ViewMut::at(into, origin)?)?)
            }
            (Some(ours), Some(theirs)) => {
                let target = theirs.target().ok_or(Fault::Layout)?;
                let (into, from) = (ViewMut::at(into, origin)?, View::at(from, here)?);
                Ok(target.copy_from(into, &ours.plan, from)?)
            }
        });
        copied?.map(|()| true)
    }
}

/// What a transport made of it. One that cannot do it leaves it to the packets.
pub(crate) fn is_done(result: Result<Transfer, Refused>) -> Result<bool, Fault> {
    match result {
        Ok(Transfer::Done) => Ok(true),
        Err(Refused::Fault) => Err(Fault::NoMemory),
        Err(Refused::Dead) => Err(Fault::PeerDead),
        _ => Ok(false),
    }
}

/// Calls with lists of pieces that follow each other: their packed offset, and their bytes.
fn each_list(
    runs: &[(u64, Span)],
    mut with: impl FnMut(u64, &[Span], u64) -> Result<bool, Fault>,
) -> Result<bool, Fault> {
    for part in runs.chunks(LIST_MAX) {
        let spans: Vec<Span> = part.iter().map(|(_, span)| *span).collect();
        let bytes = spans.iter().map(|span| span.bytes).sum();
        if !with(part[0].0, &spans, bytes)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Naming a piece costs some 300 ns, as much as copying 4 KiB.
const RUN_BYTES_MIN: u64 = 4 << 10;
/// Pieces named at once: what Linux takes.
const LIST_MAX: usize = 1024;
/// Most memory of our own that scattered bytes pass through, and at a time where they can be cut.
const SCRATCH_BYTES_MAX: u64 = 64 << 20;
const STEP_BYTES: u64 = 256 << 10;
