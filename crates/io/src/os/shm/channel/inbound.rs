//! What the peer has sent.

use super::landing::{BLOCK_BYTES, Far, Landing};
use super::packet::{Credit, Head};
use super::pull::Lent;
use super::{COPIED, Peer};
use bytes::{Bytes, BytesMut};
use covey_wire::Span;
use covey_wire::transport::{HEAD_BYTES_MAX, Refused, Sink};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A part of the stream that nobody has asked for yet.
#[derive(Debug)]
pub(super) enum Arrival {
    /// Of a packet.
    Bytes(Bytes),
    /// In one of our blocks.
    Placed(Bytes),
    /// In memory of the peer, lent by this number.
    Lies(u32, Span),
    /// What a reader left of any of them.
    Rest(Bytes),
}

/// Why the stream is over.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    /// The peer has closed it, or has ended.
    Closed,
    /// The peer has done what it must not.
    Broken(&'static str),
}

impl End {
    /// For whoever goes on.
    pub fn error(&self) -> io::Error {
        match self {
            End::Closed => io::ErrorKind::BrokenPipe.into(),
            End::Broken(what) => io::Error::new(io::ErrorKind::InvalidData, *what),
        }
    }
}

/// What both sides know of each other.
#[derive(Debug)]
pub(super) struct State {
    pub arrived: VecDeque<Arrival>,
    pub landing: Arc<Landing>,
    pub far: Far,
    pub lent: Lent,
    pub credit: Credit,
    /// The peer can copy from our memory.
    pub peer_fetches: bool,
    /// What became of a copy of which the peer did a part.
    pub copied: Option<Result<(), Refused>>,
    /// Whether the rest of what we fetch is gone, once the peer has said so.
    pub rest: Option<bool>,
    /// The same, to be said to the peer.
    pub answers: Vec<bool>,
    pub end: Option<End>,
}

impl State {
    pub fn new(landing: Landing, far: Far) -> State {
        State {
            arrived: VecDeque::new(),
            landing: Arc::new(landing),
            far,
            lent: Lent::default(),
            credit: Credit::default(),
            peer_fetches: false,
            copied: None,
            rest: None,
            answers: Vec::new(),
            end: None,
        }
    }

    fn land(&mut self, block: u32, bytes: u32) -> Result<(), &'static str> {
        let landed = self.landing.take(block, bytes as usize);
        let landed = landed.ok_or("peer filled a block that was not its to fill")?;
        self.arrived.push_back(Arrival::Placed(landed));
        Ok(())
    }

    fn free(&mut self, payload: &[u8]) -> Result<(), &'static str> {
        for number in payload.chunks_exact(4) {
            let block = number.try_into().map_or(u32::MAX, u32::from_le_bytes);
            if !self.far.give(block) {
                return Err("peer gave back a block that it did not have");
            }
        }
        Ok(())
    }

    fn fetched(&mut self, index: u32, is_whole: bool) -> Result<(), &'static str> {
        let range = self.lent.take(index).ok_or("peer fetched what was not lent")?;
        if !is_whole {
            let is_cut = range.is_cut();
            self.answers.push(is_cut);
            if !is_cut {
                self.lent.keep(index, range);
            }
        }
        Ok(())
    }

    fn admit(&mut self, bytes: usize) -> Result<(), &'static str> {
        self.credit.receive(bytes).then_some(()).ok_or("peer sent more than it was permitted")
    }
}

/// Takes packets.
pub(super) struct Inbound<'a> {
    pub state: &'a mut State,
    /// Where bytes go, as long as nothing waits before them.
    pub input: Option<&'a mut BytesMut>,
    /// Bytes that went there.
    pub taken: usize,
}

impl Inbound<'_> {
    fn take(&mut self, head: Option<Head>, payload: &[u8]) -> Result<(), &'static str> {
        match head.ok_or("peer sent what is no packet")? {
            Head::Bytes => {
                self.state.admit(payload.len())?;
                self.take_bytes(payload);
            }
            Head::Landed { block, bytes } => {
                self.state.admit(0)?;
                self.state.land(block, bytes)?;
            }
            Head::Free => self.state.free(payload)?,
            Head::Credit { bytes } if self.state.credit.refund(bytes) => {}
            Head::Credit { .. } => return Err("peer took more than it was sent"),
            Head::Fetches => self.state.peer_fetches = true,
            Head::Lies { index, bytes, address } if bytes as usize <= BLOCK_BYTES => {
                self.state.admit(0)?;
                let span = Span::new(address, bytes.into());
                self.state.arrived.push_back(Arrival::Lies(index, span));
            }
            Head::Lies { .. } => return Err("peer lends more than a message"),
            Head::Fetched { index, is_whole } => self.state.fetched(index, is_whole)?,
            Head::Rest { is_cut } => self.state.rest = Some(is_cut),
        }
        Ok(())
    }

    fn take_bytes(&mut self, payload: &[u8]) {
        COPIED.by_us.fetch_add(payload.len() as u64, Ordering::Relaxed);
        match &mut self.input {
            Some(input) if self.state.arrived.is_empty() => {
                input.extend_from_slice(payload);
                self.state.credit.take(payload.len());
                self.taken += payload.len();
            }
            _ => self.state.arrived.push_back(Arrival::Bytes(Bytes::copy_from_slice(payload))),
        }
    }
}

impl Sink for Inbound<'_> {
    fn packet(&mut self, _: Peer, head: &[u8], payload: &[u8]) {
        if self.state.end.is_some() {
            return;
        }
        // The peer could still write there: what is looked at is a copy.
        let mut copy = [0; HEAD_BYTES_MAX];
        copy[..head.len()].copy_from_slice(head);
        if let Err(what) = self.take(Head::decode(&copy[..head.len()]), payload) {
            self.state.end = Some(End::Broken(what));
        }
    }

    fn lends(&self, _: Peer, index: u32, span: Span) -> bool {
        self.state.lent.has(index, span)
    }

    fn lends_memory(&self, _: Peer, index: u32) -> bool {
        self.state.lent.is_memory(index)
    }

    fn done(&mut self, _: u64, result: Result<(), Refused>) {
        self.state.copied = Some(result);
    }

    fn dead(&mut self, _: Peer) {
        self.state.end.get_or_insert(End::Closed);
    }
}
