//! What peers ask of registered memory. Each packet is checked by itself, so that a revoked registration is not
//! touched any more from one packet to the next, and nothing is kept between them.

use crate::Fault;
use crate::api::{Access, Rights};
use crate::atomics::Asked;
use crate::core::Core;
use crate::forms::Committed;
use crate::numbers::Wire;
use crate::packet::{Head, PLAIN};
use crate::peers::{Answer, Job, REPLIES_MAX, REPLY_BYTES_MAX, REQUESTS_MAX};
use covey_layout::{Layout, Op, View, ViewMut};
use covey_wire::{Memory, Peer, Span};
use std::rc::Rc;

/// Memory of ours that a peer's request is about.
pub(crate) struct Place {
    span: Span,
    origin: usize,
    form: Option<Rc<Committed>>,
}

/// Which memory a request names.
#[derive(Clone, Copy)]
pub(crate) struct Named {
    pub slot: u16,
    /// The layout whose elements the packed bytes are.
    pub types: u16,
    pub key: u64,
    pub at: u64,
    pub total: u64,
}

impl<M: Memory> Core<M> {
    /// A request of a peer, for our memory.
    pub fn serve(&mut self, peer: Peer, request: Head, payload: &[u8]) {
        match request {
            Head::Put { op, last, slot, types, key, at, packed, total } => {
                let named = Named { slot, types, key, at, total };
                let result = self.put_here(peer, named, packed, payload);
                self.report(peer, named, (last != 0, Access::Write), result);
                self.answer(peer, op, last, result);
            }
            Head::Accumulate { op, last, what, slot, types, key, at, packed, total } => {
                let named = Named { slot, types, key, at, total };
                let result = self.combine_here(peer, named, what, packed, payload, None);
                self.report(peer, named, (last != 0, Access::Write), result);
                self.answer(peer, op, last, result);
            }
            Head::Fetch { op, what, slot, types, key, at, packed, total } => {
                let named = Named { slot, types, key, at, total };
                let mut before = vec![0; payload.len()];
                let result =
                    self.combine_here(peer, named, what, packed, payload, Some(&mut before));
                let is_last = packed.checked_add(before.len() as u64) == Some(total);
                self.report(peer, named, (is_last, Access::Read), result);
                self.answer_with(peer, op, packed, before, result);
            }
            Head::Swap { op, slot, types, key, at } => {
                let named = Named { slot, types, key, at, total: payload.len() as u64 / 2 };
                let mut before = vec![0; payload.len() / 2];
                let result = self.swap_here(peer, named, payload, &mut before);
                self.report(peer, named, (true, Access::Read), result);
                self.answer_with(peer, op, 0, before, result);
            }
            Head::Get { op, slot, key, at, total } => {
                self.read_here(peer, op, Named { slot, types: PLAIN, key, at, total });
            }
            Head::Atomic { op, kind, what, element, key, at } => {
                self.serve_atomic(peer, Asked { op, kind, what, element, key, at }, payload);
            }
            _ => self.violation(peer),
        }
    }

    /// Reports an access whose last part was done well.
    fn report(
        &mut self,
        peer: Peer,
        named: Named,
        (is_last, access): (bool, Access),
        result: Result<(), Fault>,
    ) {
        if is_last && result.is_ok() {
            self.accessed(peer, named.key, access, named.total);
        }
    }

    fn answer(&mut self, peer: Peer, op: Wire, last: u8, result: Result<(), Fault>) {
        if last != 0 || result.is_err() {
            let fault = result.map_or_else(Fault::number, |()| 0);
            self.reply(peer, Head::Ack { op, fault }, Vec::new());
        }
    }

    fn answer_with(
        &mut self,
        peer: Peer,
        op: Wire,
        at: u64,
        bytes: Vec<u8>,
        result: Result<(), Fault>,
    ) {
        match result {
            Ok(()) => self.reply(peer, Head::Data { op, at }, bytes),
            Err(_) => self.answer(peer, op, 1, result),
        }
    }

    /// Answers a peer. One that asks and never takes the answers is let go.
    pub fn reply(&mut self, peer: Peer, head: Head, bytes: Vec<u8>) {
        let state = &mut self.peers[peer.0 as usize];
        state.reply(head, bytes);
        if state.replies.len() > REPLIES_MAX || state.reply_bytes > REPLY_BYTES_MAX {
            return self.violation(peer);
        }
        self.enqueue(peer);
    }

    pub fn place_of(&mut self, peer: Peer, named: Named, right: Rights) -> Result<Place, Fault> {
        let form = self.peers[peer.0 as usize].known.find(named.slot)?;
        self.translate(form, named.key, named.at, named.total, right)
    }

    fn translate(
        &mut self,
        form: Option<Rc<Committed>>,
        key: u64,
        at: u64,
        total: u64,
        right: Rights,
    ) -> Result<Place, Fault> {
        let hull = match &form {
            Some(form) if form.plan.size() != total => return Err(Fault::Sizes),
            Some(form) => whole(form.plan.hull()),
            None => (0, i64::try_from(total).map_err(|_| Fault::OutOfRange)?),
        };
        let span = self.table.translate(key, right, at, hull)?;
        Ok(Place { span, origin: hull.0.unsigned_abs() as usize, form })
    }

    fn put_here(&mut self, peer: Peer, named: Named, at: u64, bytes: &[u8]) -> Result<(), Fault> {
        let place = self.place_of(peer, named, Rights::WRITE)?;
        self.stats.bytes_copied += bytes.len() as u64;
        let bytes = self.turned(peer, named.types, named.total, at, bytes)?;
        self.write_place(&place, at, &bytes)
    }

    pub fn write_place(&mut self, place: &Place, at: u64, bytes: &[u8]) -> Result<(), Fault> {
        let Some(form) = &place.form else {
            let part = place.span.part(at, bytes.len() as u64).ok_or(Fault::OutOfRange)?;
            return Ok(self.memory.write(part, |into| into.copy_from_slice(bytes))?);
        };
        let target = form.target().ok_or(Fault::Layout)?;
        let unpacked = self.memory.write(place.span, |into| {
            let into = ViewMut::at(into, place.origin)?;
            target.unpack(bytes, at, into)
        });
        Ok(unpacked??)
    }

    pub fn read_place(&self, place: &Place, at: u64, into: &mut [u8]) -> Result<(), Fault> {
        let Some(form) = &place.form else {
            let part = place.span.part(at, into.len() as u64).ok_or(Fault::OutOfRange)?;
            return Ok(self.memory.read(part, |from| into.copy_from_slice(from))?);
        };
        let packed = self.memory.read(place.span, |from| {
            View::at(from, place.origin).and_then(|from| form.plan.pack(from, at, into))
        });
        Ok(packed??)
    }

    fn combine_here(
        &mut self,
        peer: Peer,
        named: Named,
        what: u8,
        at: u64,
        bytes: &[u8],
        before: Option<&mut Vec<u8>>,
    ) -> Result<(), Fault> {
        let op = op_of(what).ok_or(Fault::Operation)?;
        let mut place = self.place_of(peer, named, Rights::ATOMIC)?;
        let bytes = &*self.turned(peer, named.types, named.total, at, bytes)?;
        if let Some(before) = before {
            self.read_place(&place, at, before)?;
        }
        self.stats.bytes_copied += bytes.len() as u64;
        // Contiguous bytes have elements too, to be combined.
        let form = match place.form.take() {
            Some(form) => form,
            None => Rc::new(Committed::new(0, Layout::bytes(named.total)?)?),
        };
        let target = form.target().ok_or(Fault::Layout)?;
        let signature = form.signature().ok_or(Fault::Layout)?;
        let order = self.config.order;
        let combined = self.memory.write(place.span, |into| {
            let into = ViewMut::at(into, place.origin)?;
            target.accumulate_in(order, op, signature, bytes, at, into)
        });
        Ok(combined??)
    }

    fn swap_here(
        &mut self,
        peer: Peer,
        named: Named,
        payload: &[u8],
        before: &mut [u8],
    ) -> Result<(), Fault> {
        let place = self.place_of(peer, named, Rights::ATOMIC)?;
        let (expected, new) = payload.split_at(payload.len() / 2);
        if expected.len() != new.len() {
            return Err(Fault::Sizes);
        }
        let half = |bytes| self.turned(peer, named.types, named.total, 0, bytes);
        let (expected, new) = (half(expected)?, half(new)?);
        self.read_place(&place, 0, before)?;
        if *before == *expected { self.write_place(&place, 0, &new) } else { Ok(()) }
    }

    fn read_here(&mut self, peer: Peer, op: Wire, named: Named) {
        let place = self.place_of(peer, named, Rights::READ);
        let form = match place {
            Ok(place) => place.form,
            Err(fault) => return self.answer(peer, op, 1, Err(fault)),
        };
        let Named { key, at: place, total, .. } = named;
        let answer = Answer { op, key, place, form, at: 0, total };
        let jobs = &mut self.peers[peer.0 as usize].jobs;
        jobs.push_back(Job::Answer(answer));
        let answers = jobs.iter().filter(|job| matches!(job, Job::Answer(_))).count();
        if answers > REQUESTS_MAX as usize {
            return self.violation(peer);
        }
        self.enqueue(peer);
    }

    /// The next bytes of what a get asked for.
    pub fn answer_part(&mut self, answer: &Answer, into: &mut [u8]) -> Result<(), Fault> {
        let Answer { key, place, total, .. } = *answer;
        let place = self.translate(answer.form.clone(), key, place, total, Rights::READ)?;
        self.stats.bytes_copied += into.len() as u64;
        self.read_place(&place, answer.at, into)
    }

    /// Whether a get may still be answered.
    pub fn may_answer(&mut self, answer: &Answer) -> Result<(), Fault> {
        let Answer { key, place, total, .. } = *answer;
        self.translate(answer.form.clone(), key, place, total, Rights::READ).map(drop)
    }
}

/// A hull with the origin in it, which a view of it starts from.
pub(crate) fn whole((begin, end): (i64, i64)) -> (i64, i64) {
    (begin.min(0), end.max(0))
}

/// The operation of a number of the wire.
pub(crate) fn op_of(number: u8) -> Option<Op> {
    Op::ALL.get(usize::from(number)).copied()
}

/// The number of an operation.
pub(crate) fn number_of(op: Op) -> u8 {
    Op::ALL.iter().position(|one| *one == op).unwrap_or(0) as u8
}
