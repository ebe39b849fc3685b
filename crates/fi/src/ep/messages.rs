//! Messages, with and without tags: what both kinds of entry points do.

use super::progress::Ended;
use super::{Endpoint, EpObject, Op, Queues, Room};
use crate::abi::{self, CqEntry, FiAddr};
use crate::av::Av;
use crate::boundary::{Errno, Result};
use crate::cq::Entry;
use crate::info::{EP, TX};
use crate::slab::Slab;
use covey_uzura::{Done, Fault, Local, Match, Message, Source, Started};
use covey_wire::{Peer, Span};
use libc::iovec;
use std::ffi::c_void;

/// A message to be sent.
#[derive(Clone, Copy)]
pub struct Outgoing<'a> {
    pub pieces: Pieces<'a>,
    pub to: FiAddr,
    /// None for a message without one.
    pub tag: Option<u64>,
    /// Its flags in a queue.
    pub kind: u64,
    pub flags: Flags,
    /// A word for the receiver's queue.
    pub data: Option<u64>,
    pub context: *mut c_void,
}

/// A message to be received.
#[derive(Clone, Copy)]
pub struct Incoming<'a> {
    pub pieces: Pieces<'a>,
    pub from: FiAddr,
    pub which: Match,
    pub kind: u64,
    pub flags: Flags,
    pub context: *mut c_void,
}

/// Memory of the program.
#[derive(Clone, Copy)]
pub enum Pieces<'a> {
    One(*mut c_void, usize),
    Many(&'a [iovec]),
}

/// Those of the call, or those of the endpoint.
#[derive(Clone, Copy)]
pub enum Flags {
    OfCall(u64),
    OfEndpoint,
    /// Those of the endpoint; the memory is the program's again when the call returns, and nothing is reported.
    Injected,
}

impl Flags {
    /// The flags that hold, those of the endpoint being known, and whether the memory is injected.
    #[inline]
    pub fn of(self, endpoint: u64) -> (u64, bool) {
        match self {
            Flags::OfCall(flags) => (flags, flags & abi::INJECT != 0),
            Flags::OfEndpoint => (endpoint, endpoint & abi::INJECT != 0),
            Flags::Injected => (0, true),
        }
    }
}

impl<'a> Pieces<'a> {
    /// # Safety
    ///
    /// As many entries as it says.
    pub unsafe fn of(list: *const iovec, count: usize) -> Result<Pieces<'a>> {
        if count > TX.iov_limit {
            return Err(Errno(libc::EINVAL));
        }
        // SAFETY: the caller's promise.
        let list = unsafe { crate::boundary::list(list, count) }?;
        Ok(match list {
            [] => Pieces::One(std::ptr::null_mut(), 0),
            [one] => Pieces::One(one.iov_base, one.iov_len),
            many => Pieces::Many(many),
        })
    }

    pub fn bytes(&self) -> usize {
        match self {
            Pieces::One(_, bytes) => *bytes,
            Pieces::Many(many) => many.iter().map(|one| one.iov_len).sum(),
        }
    }

    /// A copy of them, one after the other.
    pub fn gather(&self, into: &mut Vec<u8>) {
        into.clear();
        let mut add = |base: *mut c_void, bytes: usize| {
            if bytes > 0 && !base.is_null() {
                // SAFETY: the program says that so many bytes are there.
                into.extend_from_slice(unsafe { std::slice::from_raw_parts(base.cast(), bytes) });
            }
        };
        match self {
            Pieces::One(base, bytes) => add(*base, *bytes),
            Pieces::Many(many) => many.iter().for_each(|one| add(one.iov_base, one.iov_len)),
        }
    }
}

/// Memory as an engine knows it.
pub fn span(base: *mut c_void, bytes: usize) -> Span {
    Span::new(base.expose_provenance() as u64, bytes as u64)
}

/// What a refusal of the engine is to a program.
pub fn errno(fault: Fault) -> Errno {
    Errno(match fault {
        Fault::Busy => libc::EAGAIN,
        Fault::PeerDead => libc::ECONNRESET,
        Fault::Truncated => abi::ETRUNC,
        Fault::Cancelled => libc::ECANCELED,
        Fault::WrongKey | Fault::Revoked => abi::ENOKEY,
        Fault::Denied => libc::EACCES,
        Fault::OutOfRange | Fault::NoMemory => libc::EFAULT,
        Fault::TooLong => libc::EMSGSIZE,
        Fault::NoPeer => libc::EINVAL,
        _ => libc::EIO,
    })
}

impl Endpoint {
    #[inline(always)]
    pub(super) fn send(
        &mut self,
        avs: &Slab<Av>,
        queues: &mut Queues<'_>,
        message: Outgoing<'_>,
    ) -> Result<()> {
        let (flags, is_injected) = message.flags.of(self.tx_flags);
        if flags & !SEND_FLAGS != 0 {
            return Err(Errno(abi::EBADFLAGS));
        }
        let bytes = message.pieces.bytes();
        if bytes > if is_injected { TX.inject_size } else { EP.max_msg_size } {
            return Err(Errno(libc::EMSGSIZE));
        }
        self.check_room(self.tx.cq, avs, queues)?;
        let peer = self.peer(avs, message.to)?;
        let is_delivered = flags & (abi::DELIVERY_COMPLETE | abi::MATCH_COMPLETE) != 0;
        let done = if is_delivered { Done::Delivered } else { Done::Sent };
        let envelope = Message { tag: message.tag, data: message.data, done, header: &[] };
        if let (true, Pieces::One(base, bytes)) = (is_injected && bytes > 0, message.pieces)
            && self
                .engine
                .send_at_once(peer, &envelope, Local::bytes(span(base, bytes)))
                .map_err(errno)?
        {
            // The usual end of it: nothing of the program's has to be kept.
            self.count(queues, message.kind, true);
            if self.reports(message.flags, flags) {
                self.injected(queues, message);
            }
            return Ok(());
        }
        self.send_kept(avs, queues, message, (flags, is_injected), (peer, envelope))
    }

    /// Sends a message of which something has to be kept, or may have to be.
    #[inline(never)]
    fn send_kept(
        &mut self,
        avs: &Slab<Av>,
        queues: &mut Queues<'_>,
        message: Outgoing<'_>,
        (flags, is_injected): (u64, bool),
        (peer, envelope): (Peer, Message<'_>),
    ) -> Result<()> {
        let bytes = message.pieces.bytes();
        let (memory, local) = match message.pieces {
            Pieces::One(base, bytes) if !is_injected || bytes == 0 => (None, span(base, bytes)),
            pieces => Room::copied(&pieces, self.spare.take()),
        };
        let op = Op {
            context: message.context,
            kind: message.kind,
            reports: self.reports(message.flags, flags),
            id: None,
            memory,
            room: bytes,
        };
        let token = self.ops.next() as u64;
        let begun = self.engine.send_message(peer, &envelope, Local::bytes(local), token);
        self.message_begun(avs, queues, op, begun)
    }

    #[inline(always)]
    pub(super) fn receive(
        &mut self,
        avs: &Slab<Av>,
        queues: &mut Queues<'_>,
        message: Incoming<'_>,
    ) -> Result<()> {
        let flags = match message.flags {
            Flags::OfCall(flags) => flags,
            _ => self.rx_flags,
        };
        if flags & !RECEIVE_FLAGS != 0 {
            return Err(Errno(abi::EBADFLAGS));
        }
        self.check_room(self.rx.cq, avs, queues)?;
        if flags & (abi::PEEK | abi::CLAIM | abi::DISCARD | abi::MULTI_RECV) == 0
            && let Pieces::One(base, bytes) = message.pieces
        {
            return self.receive_plain(avs, queues, message, flags, span(base, bytes));
        }
        self.receive_other(avs, queues, message, flags)
    }

    /// Whose messages a receive takes.
    #[inline]
    fn source(&mut self, avs: &Slab<Av>, from: FiAddr) -> Result<Source> {
        match from {
            abi::ADDR_UNSPEC => Ok(Source::Any),
            _ if self.caps & abi::DIRECTED_RECV == 0 => Ok(Source::Any),
            from => self.peer(avs, from).map(Source::From),
        }
    }

    /// Receives one message into memory in one piece.
    #[inline(always)]
    fn receive_plain(
        &mut self,
        avs: &Slab<Av>,
        queues: &mut Queues<'_>,
        message: Incoming<'_>,
        flags: u64,
        into: Span,
    ) -> Result<()> {
        let from = self.source(avs, message.from)?;
        let token = self.ops.next() as u64;
        let begun = self.engine.receive(from, message.which, Local::bytes(into), token);
        let reports = self.reports_received(flags);
        let op = |id| Op {
            context: message.context,
            kind: message.kind,
            reports,
            id,
            memory: None,
            room: into.bytes as usize,
        };
        match begun {
            Ok(Started::Pending(id)) => {
                self.ops.add(op(Some(id)));
                Ok(())
            }
            begun => self.message_begun(avs, queues, op(None), begun),
        }
    }

    /// Receives many messages, or one that was claimed, or into several places; or looks whether there is one.
    #[inline(never)]
    fn receive_other(
        &mut self,
        avs: &Slab<Av>,
        queues: &mut Queues<'_>,
        message: Incoming<'_>,
        flags: u64,
    ) -> Result<()> {
        if flags & (abi::PEEK | abi::CLAIM | abi::DISCARD) == abi::CLAIM | abi::DISCARD {
            return self.discard(avs, queues, message);
        }
        let from = self.source(avs, message.from)?;
        if flags & abi::PEEK != 0 {
            return self.peek(avs, queues, message, from, flags);
        }
        let is_for_many = flags & abi::MULTI_RECV != 0 && message.which == Match::Untagged;
        let (memory, local) = match message.pieces {
            Pieces::One(base, bytes) if is_for_many => {
                (Some(Box::new(Room::ForMany(base))), span(base, bytes))
            }
            Pieces::Many(_) if is_for_many => return Err(Errno(libc::EINVAL)),
            Pieces::One(base, bytes) => (None, span(base, bytes)),
            Pieces::Many(many) => Room::scattered(many),
        };
        let reports = self.reports_received(flags);
        let room = message.pieces.bytes();
        let op =
            Op { context: message.context, kind: message.kind, reports, id: None, memory, room };
        let token = self.ops.next() as u64;
        let begun = if is_for_many {
            let left_min = self.min_multi_recv as u64;
            self.engine.receive_many(from, local, left_min, token).map(Started::Pending)
        } else if flags & abi::CLAIM == 0 {
            self.engine.receive(from, message.which, Local::bytes(local), token)
        } else {
            let at = self.claimed(message.context)?;
            let begun = self.engine.receive_claimed(self.claims[at].1, Local::bytes(local), token);
            // One that is refused stays claimed.
            if begun.is_ok() {
                self.claims.swap_remove(at);
            }
            begun
        };
        self.message_begun(avs, queues, op, begun)
    }

    /// Keeps an operation that goes on, and reports one that has ended.
    #[inline(never)]
    pub(super) fn message_begun(
        &mut self,
        avs: &Slab<Av>,
        queues: &mut Queues<'_>,
        op: Op,
        begun: std::result::Result<Started, Fault>,
    ) -> Result<()> {
        match begun {
            Ok(Started::Done(done)) => self.finish(avs, queues, op, &Ended::of(&done)),
            Ok(Started::Pending(id)) => {
                self.ops.add(Op { id: Some(id), ..op });
            }
            Err(fault) => return Err(self.refused(avs, queues, fault)),
        }
        Ok(())
    }

    /// Reports a message that has left in the call that sent it.
    #[inline(never)]
    fn injected(&mut self, queues: &mut Queues<'_>, message: Outgoing<'_>) {
        let entry = CqEntry::of(message.context, message.kind);
        if let Some(cq) = self.tx.cq.and_then(|cq| queues.cqs.find(cq)) {
            cq.push(Entry { entry, source: abi::ADDR_UNSPEC, failed: None });
        }
    }

    /// Reports the message that a receive would get, or that there is none; claims it, or drops it.
    fn peek(
        &mut self,
        avs: &Slab<Av>,
        queues: &mut Queues<'_>,
        message: Incoming<'_>,
        from: Source,
        flags: u64,
    ) -> Result<()> {
        self.progress(avs, queues);
        let found = if flags & (abi::CLAIM | abi::DISCARD) == 0 {
            self.engine.probe(from, message.which)
        } else {
            self.engine.claim(from, message.which).map(|(claim, found)| {
                if flags & abi::DISCARD == 0 {
                    self.claims.push((message.context, claim, found));
                } else {
                    // It was claimed just now.
                    let _ = self.engine.discard(claim);
                }
                found
            })
        };
        self.found(avs, queues, message.kind, message.context, found);
        Ok(())
    }

    /// Drops the message that was claimed with a context, and reports which it was.
    fn discard(
        &mut self,
        avs: &Slab<Av>,
        queues: &mut Queues<'_>,
        message: Incoming<'_>,
    ) -> Result<()> {
        let at = self.claimed(message.context)?;
        self.engine.discard(self.claims[at].1).map_err(errno)?;
        let (_, _, found) = self.claims.swap_remove(at);
        self.found(avs, queues, message.kind, message.context, Some(found));
        self.count(queues, message.kind, true);
        Ok(())
    }

    /// Where the message is that was claimed with a context.
    fn claimed(&self, context: *mut c_void) -> Result<usize> {
        let at = self.claims.iter().position(|(other, ..)| *other == context);
        at.ok_or(Errno(libc::EINVAL))
    }

    pub(super) fn cancel(
        &mut self,
        avs: &Slab<Av>,
        queues: &mut Queues<'_>,
        context: *mut c_void,
    ) -> Result<()> {
        let is_it = |op: &&Op| op.context == context && op.kind & abi::RECV != 0;
        let op = self.ops.each().map(|(_, op)| op).find(is_it).and_then(|op| op.id);
        if !op.is_some_and(|op| self.engine.cancel(op)) {
            return Err(Errno(libc::ENOENT));
        }
        self.drain(avs, queues);
        Ok(())
    }

    /// Whether the end of an operation with such flags is reported to the queue.
    #[inline]
    pub(super) fn reports(&self, of: Flags, flags: u64) -> bool {
        !matches!(of, Flags::Injected) && (!self.tx.is_selective || flags & abi::COMPLETION != 0)
    }

    /// The same of a receive.
    #[inline]
    fn reports_received(&self, flags: u64) -> bool {
        !self.rx.is_selective || flags & abi::COMPLETION != 0
    }

    /// Refuses an operation whose end could not be reported.
    #[inline]
    pub(super) fn check_room(
        &mut self,
        cq: Option<usize>,
        avs: &Slab<Av>,
        queues: &mut Queues<'_>,
    ) -> Result<()> {
        if !self.is_enabled {
            return Err(Errno(abi::EOPBADSTATE));
        }
        let is_full = cq.and_then(|cq| queues.cqs.look(cq)).is_some_and(crate::cq::Cq::is_full);
        if is_full {
            return Err(self.refused(avs, queues, Fault::Busy));
        }
        Ok(())
    }

    /// A refusal. Who is to try again finds that something has gone on.
    #[cold]
    pub(super) fn refused(
        &mut self,
        avs: &Slab<Av>,
        queues: &mut Queues<'_>,
        fault: Fault,
    ) -> Errno {
        if fault == Fault::Busy {
            self.progress(avs, queues);
        }
        errno(fault)
    }
}

// Within the functions that C calls, so that what each of them says of its message is known there: most of what a message
// could have is looked for in none of them.
impl EpObject {
    #[inline(always)]
    pub fn send(&self, message: Outgoing<'_>) -> Result<()> {
        let mut turn = self.shared.gate.turn();
        let (endpoint, avs, mut queues) = turn.endpoint(self.number)?;
        endpoint.send(avs, &mut queues, message)
    }

    #[inline(always)]
    pub fn receive(&self, message: Incoming<'_>) -> Result<()> {
        let mut turn = self.shared.gate.turn();
        let (endpoint, avs, mut queues) = turn.endpoint(self.number)?;
        endpoint.receive(avs, &mut queues, message)
    }
}

const SEND_FLAGS: u64 = abi::COMPLETION
    | abi::INJECT
    | abi::INJECT_COMPLETE
    | abi::TRANSMIT_COMPLETE
    | abi::DELIVERY_COMPLETE
    | abi::MATCH_COMPLETE
    | abi::REMOTE_CQ_DATA
    | abi::MORE;
const RECEIVE_FLAGS: u64 =
    abi::COMPLETION | abi::MORE | abi::PEEK | abi::CLAIM | abi::DISCARD | abi::MULTI_RECV;
