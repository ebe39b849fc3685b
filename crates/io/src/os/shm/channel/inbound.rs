//! What the peer has sent.

use super::landing::{Far, Landing};
use super::packet::{Credit, Head};
use super::{COPIED, Peer};
use bytes::{Bytes, BytesMut};
use covey_wire::transport::{HEAD_BYTES_MAX, Sink};
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
    /// What a reader left of either.
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

/// Takes packets.
pub(super) struct Inbound<'a> {
    /// Where bytes go, as long as nothing waits before them.
    pub input: Option<&'a mut BytesMut>,
    pub arrived: &'a mut VecDeque<Arrival>,
    pub landing: &'a Arc<Landing>,
    pub far: &'a mut Far,
    pub credit: &'a mut Credit,
    pub end: &'a mut Option<End>,
    /// Bytes that went to `input`.
    pub taken: usize,
}

impl Inbound<'_> {
    fn take(&mut self, head: Option<Head>, payload: &[u8]) -> Result<(), &'static str> {
        match head.ok_or("peer sent what is no packet")? {
            Head::Bytes => {
                self.admit(payload.len())?;
                self.take_bytes(payload);
            }
            Head::Landed { block, bytes } => {
                self.admit(0)?;
                let landed = self.landing.take(block, bytes as usize);
                let landed = landed.ok_or("peer filled a block that was not its to fill")?;
                self.arrived.push_back(Arrival::Placed(landed));
            }
            Head::Free => {
                for number in payload.chunks_exact(4) {
                    let block = number.try_into().map(u32::from_le_bytes).unwrap_or(u32::MAX);
                    if !self.far.give(block) {
                        return Err("peer gave back a block that it did not have");
                    }
                }
            }
            Head::Credit { bytes } => {
                if !self.credit.refund(bytes) {
                    return Err("peer took more than it was sent");
                }
            }
        }
        Ok(())
    }

    fn admit(&mut self, bytes: usize) -> Result<(), &'static str> {
        self.credit.receive(bytes).then_some(()).ok_or("peer sent more than it was permitted")
    }

    fn take_bytes(&mut self, payload: &[u8]) {
        COPIED.by_us.fetch_add(payload.len() as u64, Ordering::Relaxed);
        match &mut self.input {
            Some(input) if self.arrived.is_empty() => {
                input.extend_from_slice(payload);
                self.credit.take(payload.len());
                self.taken += payload.len();
            }
            _ => self.arrived.push_back(Arrival::Bytes(Bytes::copy_from_slice(payload))),
        }
    }
}

impl Sink for Inbound<'_> {
    fn packet(&mut self, _: Peer, head: &[u8], payload: &[u8]) {
        if self.end.is_some() {
            return;
        }
        // The peer could still write there: what is looked at is a copy.
        let mut copy = [0; HEAD_BYTES_MAX];
        copy[..head.len()].copy_from_slice(head);
        if let Err(what) = self.take(Head::decode(&copy[..head.len()]), payload) {
            *self.end = Some(End::Broken(what));
        }
    }

    fn dead(&mut self, _: Peer) {
        self.end.get_or_insert(End::Closed);
    }
}
