//! What an engine knows of each peer, and what waits to be sent to it.

use crate::forms::{Committed, Known, Told};
use crate::numbers::{OpIndex, Wire};
use crate::packet::Head;
use std::collections::VecDeque;
use std::rc::Rc;

/// A peer.
#[derive(Debug)]
pub(crate) struct PeerState {
    /// Not known to be dead.
    pub alive: bool,
    /// It has told its window, so that messages may be sent.
    pub open: bool,
    pub said_hello: bool,
    /// Its memory has the other byte order.
    pub is_foreign: bool,
    /// Bytes of messages that it will still take.
    pub room: u64,
    /// Bytes of messages that it has sent and was not given back, and those to be given back next.
    pub held: u64,
    pub owed: u64,
    /// Operations that wait for room, in order.
    pub backlog: VecDeque<OpIndex>,
    /// Long transfers, each a packet at a time.
    pub jobs: VecDeque<Job>,
    pub replies: VecDeque<Reply>,
    pub reply_bytes: usize,
    /// Requests of ours that it has not answered.
    pub requests: u32,
    /// Messages of ours that it has not received, and whose end at it is waited for.
    pub deliveries: u32,
    pub told: Told,
    pub telling: Option<Telling>,
    pub known: Known,
    /// The receive into which the transport reads a message of it.
    pub placing: Option<Wire>,
    /// It is among those that have something to be sent.
    pub is_queued: bool,
    /// Its transport had no room when we last tried.
    pub is_full: bool,
}

impl PeerState {
    pub fn new() -> PeerState {
        PeerState {
            alive: true,
            open: false,
            said_hello: false,
            is_foreign: false,
            room: 0,
            held: 0,
            owed: 0,
            backlog: VecDeque::new(),
            jobs: VecDeque::new(),
            replies: VecDeque::new(),
            reply_bytes: 0,
            requests: 0,
            deliveries: 0,
            told: Told::default(),
            telling: None,
            known: Known::default(),
            placing: None,
            is_queued: false,
            is_full: false,
        }
    }

    /// Whether a message may go right away, before nothing else. Our first packet may still wait for room, though the peer
    /// has sent its own: without it the peer would not know which byte order the message has.
    #[inline]
    pub fn is_clear(&self) -> bool {
        self.open && self.said_hello && self.backlog.is_empty()
    }

    /// Whether it may go without a word about its elements too.
    #[inline]
    pub fn is_clear_and_alike(&self) -> bool {
        self.is_clear() && !self.is_foreign
    }

    /// Whether something is to be sent, credit from `quarter` bytes on included.
    pub fn has_work(&self, quarter: u64) -> bool {
        let waits = !self.backlog.is_empty() || !self.jobs.is_empty() || !self.replies.is_empty();
        self.alive && (waits || !self.said_hello || self.owed >= quarter)
    }

    pub fn reply(&mut self, head: Head, bytes: Vec<u8>) {
        self.reply_bytes += bytes.len();
        self.replies.push_back(Reply { head, bytes });
    }
}

/// A packet that answers one of the peer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub head: Head,
    pub bytes: Vec<u8>,
}

/// A layout that is being described.
#[derive(Debug)]
pub(crate) struct Telling {
    pub id: u64,
    pub slot: u16,
    pub clear: Vec<u16>,
    pub at: usize,
}

/// A transfer that takes several packets.
#[derive(Debug)]
pub(crate) enum Job {
    /// The body of a message, for a receive of the peer.
    Message { op: OpIndex, generation: u16, into: Wire, at: u64 },
    /// The bytes of a put, an accumulate or a fetch.
    Update {
        op: OpIndex,
        generation: u16,
        form: Option<Rc<Committed>>,
        types: Option<Rc<Committed>>,
        at: u64,
    },
    /// What a get of the peer asked for.
    Answer(Answer),
}

/// What a get of the peer asked for.
#[derive(Debug)]
pub(crate) struct Answer {
    pub op: Wire,
    pub key: u64,
    pub place: u64,
    pub form: Option<Rc<Committed>>,
    pub at: u64,
    pub total: u64,
}

/// What every message is charged beside its bytes: about what keeping it takes.
pub(crate) const ENVELOPE_BYTES: u64 = 64;
/// Requests to a peer that may be under way.
pub(crate) const REQUESTS_MAX: u32 = 256;
/// Messages to a peer that may be on their way while their end at it is waited for: each is answered, and answers that
/// wait are bounded.
pub(crate) const DELIVERIES_MAX: u32 = REPLIES_MAX as u32 / 2;
/// Answers that may wait for a peer that does not take them: in number, and in bytes.
pub(crate) const REPLIES_MAX: usize = 8192;
pub(crate) const REPLY_BYTES_MAX: usize = 16 << 20;
/// Bytes of a fetch that may be on their way: their answers are kept by the peer until we take them.
pub(crate) const FETCH_BYTES_MAX: u64 = 256 << 10;
