//! What goes on in an endpoint, and what is reported of it.

use super::{COUNTED, Endpoint, Op, Queues, Room, messages};
use crate::abi::{self, CqEntry, FiAddr};
use crate::av::Av;
use crate::cq::Entry;
use crate::slab::Slab;
use covey_uzura::{Access, Completion, End, Fault, Probe, Short};
use covey_wire::transport::Glance;
use covey_wire::{Peer, Transport};
use libc::iovec;
use std::ffi::c_void;

/// What is told of the end of an operation.
pub struct Ended {
    pub result: Result<(), Fault>,
    pub peer: Option<Peer>,
    pub tag: u64,
    pub bytes: u64,
    pub data: Option<u64>,
}

impl Ended {
    #[inline]
    pub fn of(done: &Completion) -> Ended {
        let Completion { result, peer, tag, bytes, data, .. } = *done;
        Ended { result, peer: Some(peer), tag, bytes, data }
    }

    /// One of which nothing is to be told.
    pub fn of_nothing() -> Ended {
        Ended { result: Ok(()), peer: None, tag: 0, bytes: 0, data: None }
    }
}

impl Endpoint {
    /// Goes on, and reports what has ended.
    #[inline(never)]
    pub(super) fn progress(&mut self, avs: &Slab<Av>, queues: &mut Queues<'_>) {
        if self.sleeps {
            self.sleeps = false;
            self.engine.transport().woke();
        }
        self.engine.poll();
        self.drain(avs, queues);
    }

    /// Looks for a message that has come, where that takes least, and gives the end of its receive to `with`.
    #[inline(always)]
    pub(super) fn glance(
        &mut self,
        avs: &Slab<Av>,
        queues: &mut Queues<'_>,
        cq: usize,
        mut with: impl FnMut(CqEntry),
    ) -> Glance {
        let is_plain = !self.sleeps && !self.is_counted && self.late.is_empty();
        if !is_plain || self.rx.cq != Some(cq) {
            return Glance::Unknown;
        }
        let Endpoint { engine, ops, .. } = self;
        let mut other = None;
        let glance = engine.glance(|got| {
            let number = got.context as usize;
            match ops.look(number) {
                Some(&Op { context, kind, reports: true, memory: None, .. }) => {
                    ops.remove(number);
                    with(entry_of(context, kind, got.bytes, got.tag, got.data));
                }
                _ => other = Some(got),
            }
        });
        let Some(Short { context, peer, tag, bytes, data }) = other else { return glance };
        let ended = Ended { result: Ok(()), peer: Some(peer), tag, bytes, data };
        self.ended(avs, queues, context as usize, &ended);
        Glance::Unknown
    }

    /// Reports what has ended.
    #[inline(always)]
    pub(super) fn drain(&mut self, avs: &Slab<Av>, queues: &mut Queues<'_>) {
        while let Some(done) = self.late.front().filter(|_| self.has_room(queues)).copied() {
            self.late.pop_front();
            self.written(avs, queues, done);
        }
        while let Some(done) = self.engine.completion_ahead() {
            if done.end == End::Operation {
                // Field by field, as they were written just now: see `Entry::put`.
                let (number, ended) = (done.context as usize, Ended::of(done));
                self.engine.completion_kept();
                self.ended(avs, queues, number, &ended);
            } else if let Some(done) = self.engine.completion_kept() {
                self.happened(avs, queues, done);
            }
        }
    }

    /// Reports anything but the end of an operation.
    #[inline(never)]
    fn happened(&mut self, avs: &Slab<Av>, queues: &mut Queues<'_>, done: Completion) {
        match done.end {
            End::Part => self.part(avs, queues, done),
            End::Released => self.released(queues, done),
            // Peers decide how many of these come: their window is full before memory is.
            End::Written if !self.late.is_empty() || !self.has_room(queues) => {
                self.late.push_back(done);
            }
            End::Written => self.written(avs, queues, done),
            End::Accessed(access) => self.accessed(queues, access, done.context),
            _ => {}
        }
    }

    /// Reports the end of an operation that had not ended in its call.
    #[inline(always)]
    fn ended(&mut self, avs: &Slab<Av>, queues: &mut Queues<'_>, number: usize, done: &Ended) {
        match self.ops.look(number) {
            // Most have nothing that is to be given back.
            Some(op) if op.memory.is_none() => {
                let of = op.names();
                self.ops.remove(number);
                self.report(avs, queues, of, done);
            }
            _ => {
                if let Some(op) = self.ops.remove(number) {
                    self.finish(avs, queues, op, done);
                }
            }
        }
    }

    /// Reports the end of an operation.
    #[inline(never)]
    pub(super) fn finish(
        &mut self,
        avs: &Slab<Av>,
        queues: &mut Queues<'_>,
        mut op: Op,
        done: &Ended,
    ) {
        let of = op.names();
        match op.memory.as_deref() {
            Some(Room::Scattered(bytes, places)) => scatter(bytes, places),
            Some(Room::All(all)) => all.iter().for_each(|one| {
                if let Room::Scattered(bytes, places) = one {
                    scatter(bytes, places);
                }
            }),
            Some(Room::Copied(copy)) if copy.capacity() <= SPARE_BYTES_MAX => {
                self.spare = op.memory.take();
            }
            _ => {}
        }
        self.report(avs, queues, of, done);
    }

    #[inline(always)]
    fn report(&mut self, avs: &Slab<Av>, queues: &mut Queues<'_>, op: Names, done: &Ended) {
        let is_well = done.result.is_ok();
        self.count(queues, op.kind, is_well);
        let is_received = op.kind & abi::RECV != 0;
        let report = if is_received { self.rx } else { self.tx };
        let Some(cq) = report.cq.filter(|_| op.reports || !is_well) else { return };
        let (mut entry, source) = if is_received {
            self.received(avs, op, done)
        } else {
            (CqEntry::of(op.context, op.kind), abi::ADDR_UNSPEC)
        };
        let failed = done.result.err().map(|fault| {
            let lost = if fault == Fault::Truncated { op.lost(done.bytes) } else { 0 };
            entry.len -= lost.min(entry.len);
            (messages::errno(fault).0, lost)
        });
        if let Some(cq) = queues.cqs.find(cq) {
            cq.push(Entry { entry, source, failed });
        }
    }

    /// The end of a receive, and whose message it was.
    #[inline(always)]
    fn received(&mut self, avs: &Slab<Av>, op: Names, done: &Ended) -> (CqEntry, FiAddr) {
        let entry = entry_of(op.context, op.kind, done.bytes, done.tag, done.data);
        let peer = done.peer.filter(|_| done.result.is_ok());
        (entry, peer.map_or(abi::ADDR_UNSPEC, |peer| self.number(avs, peer)))
    }

    /// Whether the queue takes more of what peers have written here.
    fn has_room(&self, queues: &Queues<'_>) -> bool {
        let cq = self.rx.cq.and_then(|cq| queues.cqs.look(cq));
        !cq.is_some_and(crate::cq::Cq::is_full)
    }

    /// Reports what a peer has written here and told.
    #[inline(never)]
    fn written(&mut self, avs: &Slab<Av>, queues: &mut Queues<'_>, done: Completion) {
        self.engine.taken(&done);
        let kind = abi::RMA | abi::REMOTE_WRITE;
        // Where accesses are reported, bytes were when they came.
        if !self.reports_access || done.bytes == 0 {
            self.count(queues, kind, true);
        }
        let entry = CqEntry {
            len: done.bytes as usize,
            data: done.data.unwrap_or(0),
            ..CqEntry::of(std::ptr::null_mut(), kind | abi::REMOTE_CQ_DATA)
        };
        let source = self.number(avs, done.peer);
        if let Some(cq) = self.rx.cq.and_then(|cq| queues.cqs.find(cq)) {
            cq.push(Entry { entry, source, failed: None });
        }
    }

    /// Counts what a peer has read or written here.
    #[cold]
    fn accessed(&mut self, queues: &mut Queues<'_>, access: Access, key: u64) {
        let kind = match access {
            Access::Read => abi::REMOTE_READ,
            Access::Write => abi::REMOTE_WRITE,
        };
        self.count(queues, kind, true);
        let counter = queues.regions.each().find_map(|(_, region)| region.counter(key, kind));
        if let Some(cntr) = counter.and_then(|counter| queues.cntrs.find(counter)) {
            cntr.count(true);
        }
    }

    /// Reports a message in a buffer for many.
    fn part(&mut self, avs: &Slab<Av>, queues: &mut Queues<'_>, done: Completion) {
        let Some(op) = self.ops.look(done.context as usize) else { return };
        let Some(&Room::ForMany(base)) = op.memory.as_deref() else { return };
        let (op_context, flags) = (op.context, op.kind);
        let left = op.room.saturating_sub(done.at as usize);
        self.count(queues, flags, done.result.is_ok());
        let lost = (done.bytes as usize).saturating_sub(left);
        let entry = CqEntry {
            op_context,
            flags: flags | if done.data.is_some() { abi::REMOTE_CQ_DATA } else { 0 },
            len: done.bytes as usize - lost,
            buf: base.wrapping_byte_add(done.at as usize),
            data: done.data.unwrap_or(0),
            tag: 0,
        };
        let source = self.number(avs, done.peer);
        let failed = done.result.err().map(|fault| (messages::errno(fault).0, lost));
        if let Some(cq) = self.rx.cq.and_then(|cq| queues.cqs.find(cq)) {
            cq.push(Entry { entry, source, failed });
        }
    }

    /// Reports that a buffer for many messages is the program's again.
    fn released(&mut self, queues: &mut Queues<'_>, done: Completion) {
        let Some(op) = self.ops.remove(done.context as usize) else { return };
        let entry = CqEntry::of(op.context, abi::MULTI_RECV);
        let failed = done.result.err().map(|fault| (messages::errno(fault).0, 0));
        if let Some(cq) = self.rx.cq.and_then(|cq| queues.cqs.find(cq)) {
            cq.push(Entry { entry, source: abi::ADDR_UNSPEC, failed });
        }
    }

    /// Reports what a look for a message has found.
    pub(super) fn found(
        &mut self,
        avs: &Slab<Av>,
        queues: &mut Queues<'_>,
        kind: u64,
        context: *mut c_void,
        found: Option<Probe>,
    ) {
        let data = found.and_then(|found| found.data);
        let entry = CqEntry {
            op_context: context,
            flags: kind | if data.is_some() { abi::REMOTE_CQ_DATA } else { 0 },
            len: found.map_or(0, |found| found.bytes as usize),
            buf: std::ptr::null_mut(),
            data: data.unwrap_or(0),
            tag: found.map_or(0, |found| found.tag),
        };
        let source = found.map_or(abi::ADDR_UNSPEC, |found| self.number(avs, found.peer));
        let failed = found.is_none().then_some((libc::ENOMSG, 0));
        if let Some(cq) = self.rx.cq.and_then(|cq| queues.cqs.find(cq)) {
            cq.push(Entry { entry, source, failed });
        }
    }

    #[inline]
    pub(super) fn count(&self, queues: &mut Queues<'_>, kind: u64, is_well: bool) {
        if self.is_counted {
            self.count_each(queues, kind, is_well);
        }
    }

    #[cold]
    fn count_each(&self, queues: &mut Queues<'_>, kind: u64, is_well: bool) {
        for (counted, cntr) in COUNTED.iter().zip(&self.counters) {
            if let Some(cntr) = cntr
                && kind & counted != 0
                && let Some(cntr) = queues.cntrs.find(*cntr)
            {
                cntr.count(is_well);
            }
        }
    }
}

/// The end of a receive.
#[inline(always)]
fn entry_of(context: *mut c_void, kind: u64, bytes: u64, tag: u64, data: Option<u64>) -> CqEntry {
    let flags = kind | if data.is_some() { abi::REMOTE_CQ_DATA } else { 0 };
    let (len, data) = (bytes as usize, data.unwrap_or(0));
    CqEntry { len, data, tag, ..CqEntry::of(context, flags) }
}

/// What is reported of an operation.
#[derive(Clone, Copy)]
struct Names {
    context: *mut c_void,
    kind: u64,
    reports: bool,
    room: usize,
}

impl Op {
    #[inline]
    fn names(&self) -> Names {
        Names { context: self.context, kind: self.kind, reports: self.reports, room: self.room }
    }
}

impl Names {
    /// Bytes of a message that there was no room for.
    fn lost(&self, bytes: u64) -> usize {
        (bytes as usize).saturating_sub(self.room)
    }
}

/// Longer memory is not kept for the next copy.
const SPARE_BYTES_MAX: usize = 64 << 10;

/// Puts what was received where it belongs.
fn scatter(bytes: &[u8], places: &[iovec]) {
    let mut rest = bytes;
    for place in places {
        let (part, after) = rest.split_at(place.iov_len.min(rest.len()));
        if !part.is_empty() {
            // SAFETY: the program says that so many bytes are there, and waits for the end of the operation.
            unsafe {
                std::ptr::copy_nonoverlapping(part.as_ptr(), place.iov_base.cast(), part.len())
            };
        }
        rest = after;
    }
}
