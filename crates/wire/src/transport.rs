//! The contract between a message engine and what carries its packets.
//!
//! A transport carries packets between this process and its peers, and may be able to reach into a peer's memory
//! itself. It knows nothing of messages. What it promises:
//!
//! - **Packets arrive once, whole and in the order in which they were sent to that peer**, until the peer
//!   is dead. One that is refused was not sent. Whoever carries packets over a wire that loses them
//!   sees to it below this contract.
//! - **A dead peer is told once** ([`Sink::dead`]), after its last packet. From then on everything for it is
//!   refused with [`Refused::Dead`], and its number is not given out again.
//! - **Nothing waits.** Every call returns at once; what cannot be done now is refused with [`Refused::Full`] and can
//!   be tried again after a [`Transport::poll`].
//! - **Progress is the caller's**: packets arrive, and posted operations end, while it polls.
//!
//! ```text
//!   engine ── send(head, fill) ──► room of the transport, filled in place     small: copied once
//!          ── post(head, span) ──► the span is read until Sink::sent          large: not copied
//!          ── poll(sink) ────────► Sink::packet(head, payload)                lent for the call
//!                                  Sink::place(head, bytes) -> span           read where it belongs
//!          ── view, read, write ─► the peer's own memory                      where it can be reached
//!          ── fetch(from, into) ─► the same of a message that waits           both ends copy, if both poll
//! ```
//!
//! How others fit: *verbs* sends from registered memory (`post`), receives into buffers that it posted itself (lent
//! by `packet`, and posted again after it; without one the sender finds no room), tells its peers of keys with
//! `publish`, and reads and writes by `read` and `write`, which then answer [`Transfer::Started`] and end with
//! [`Sink::done`], in any order: under the key that was entered when they were posted, which its owner's card checks
//! when their turn comes. What `enter` shows may then be older than what the owner has; [`Refused::Key`] in the end says
//! so. A message that waits has no key: `is_reachable` is false, and its receiver asks for it. The simulated card
//! (`covey_io::sim`) behaves like this. *raw Ethernet* loses frames: `covey_io::lane`
//! lays it beside a transport that does not, for short packets.

use crate::Span;
use std::time::Duration;

/// How long an access of a peer is waited for, where nothing else is said: as long as a copy takes, and as its process is
/// kept from a CPU.
pub const ACCESS: Duration = Duration::from_secs(2);

/// A peer of a transport: numbers count up from 0 in the order in which peers joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Peer(pub u32);

/// Longest head of a packet, in bytes.
pub const HEAD_BYTES_MAX: usize = 48;

/// Most registrations that a transport publishes: slots are below this.
pub const PUBLISHED_MAX: u32 = 1024;

/// Why a transport did not take something. It had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// No room now: poll, and try again.
    Full,
    /// The peer is dead, or there never was one.
    Dead,
    /// This transport, or this peer's machine, has no such thing. Another way will do.
    Unsupported,
    /// The peer's memory has not these bytes, or the system forbids it.
    Fault,
    /// The peer has no registration of this key.
    Key,
}

/// How far a posted operation got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// It is done, and nothing more will be said of it.
    Done,
    /// It goes on: [`Sink::sent`] or [`Sink::done`] tells its end. Until then its memory is in use.
    Started,
}

/// Whether a transport copies between the memories of two processes itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OneCopy {
    /// No: packets only.
    None,
    /// Yes, before the call returns.
    AtOnce,
    /// Yes, later: [`Transfer::Started`].
    Posted,
}

/// A registration as its owner publishes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// The key that a peer must name; never 0.
    pub key: u64,
    /// The memory, in the owner's addresses.
    pub span: Span,
    /// Which accesses are permitted: bits that mean something to the engines only.
    pub rights: u32,
}

/// What a glance has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Glance {
    /// A packet, which was taken.
    Taken,
    /// That nothing has come.
    Nothing,
    /// Only a poll can tell.
    Unknown,
}

/// Carries packets, and reaches into peers' memory where it can. See the [module](self)'s promises.
pub trait Transport {
    /// Longest payload of a packet to a peer, in bytes.
    fn packet_bytes_max(&self, peer: Peer) -> usize;

    /// Sends a packet: a head of at most [`HEAD_BYTES_MAX`] bytes and a payload of `bytes`, which `fill` writes in
    /// its place (all of it). `fill` is called before this returns, or not at all when it is refused.
    fn send(
        &mut self,
        peer: Peer,
        head: &[u8],
        bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), Refused>;

    /// Whether packets that are sent from now on may be kept back, so that many leave together. All that was kept
    /// back leaves with the next poll, and before a call with false returns: whoever says true says false before it
    /// hands control to somebody who may not poll for long.
    fn gather(&mut self, may_gather: bool) {
        let _ = may_gather;
    }

    /// Longest payload that `post` takes for this peer, in bytes; 0 where it takes none.
    fn post_bytes_max(&self, peer: Peer) -> usize {
        let _ = peer;
        0
    }

    /// Sends a packet whose payload is read from memory of ours, without a copy where that is possible. It may be
    /// longer than [`Transport::packet_bytes_max`], and arrives as one packet. The memory is in use until
    /// [`Sink::sent`] says `token`.
    fn post(
        &mut self,
        token: u64,
        peer: Peer,
        head: &[u8],
        payload: Span,
    ) -> Result<Transfer, Refused> {
        let _ = (token, peer, head, payload);
        Err(Refused::Unsupported)
    }

    /// Gives `sink` what has happened, some `budget` packets at most; with a budget of 0 only who has joined. Says how
    /// many things that were.
    fn poll(&mut self, budget: usize, sink: &mut impl Sink) -> usize;

    /// Looks for a packet where that takes least, and gives one to `with` at most.
    #[inline]
    fn glance(&mut self, with: impl FnMut(Peer, &[u8], &[u8])) -> Glance {
        let _ = with;
        Glance::Unknown
    }

    /// Whether the peer may be able to reach our memory by `view` or `read`, so that it is worth telling it where data
    /// lies.
    fn is_reachable(&self, peer: Peer) -> bool {
        let _ = peer;
        false
    }

    /// Where memory of the peer is mapped in this process, so that it can be read and written right there; `None`
    /// where it is not. Memory stays mapped until its peer's [`Sink::dead`].
    fn view(&mut self, peer: Peer, theirs: Span) -> Option<Span> {
        let _ = (peer, theirs);
        None
    }

    /// Whether `read` and `write` work with this peer.
    fn one_copy(&self, peer: Peer) -> OneCopy {
        let _ = peer;
        OneCopy::None
    }

    /// Copies memory of the peer, piece after piece, into memory of ours: `from` has as many bytes as `into`.
    fn read(
        &mut self,
        token: u64,
        peer: Peer,
        from: &[Span],
        into: Span,
    ) -> Result<Transfer, Refused> {
        let _ = (token, peer, from, into);
        Err(Refused::Unsupported)
    }

    /// Copies what a message of the peer has at `from`, which waits for it, into memory of ours: like `read` of one
    /// piece, and the peer may do a part of it while it polls ([`Sink::lends`]). `message` is what the peer calls it.
    ///
    /// One that was started is told of by [`Sink::done`] in any case, before its peer's [`Sink::dead`] if that comes;
    /// until then `into` may be written. A peer that stops in the middle of its part holds up this one transfer.
    fn fetch(
        &mut self,
        token: u64,
        peer: Peer,
        message: u32,
        from: Span,
        into: Span,
    ) -> Result<Transfer, Refused> {
        let _ = message;
        self.read(token, peer, &[from], into)
    }

    /// Copies memory of ours into memory of the peer, piece after piece.
    fn write(
        &mut self,
        token: u64,
        peer: Peer,
        from: Span,
        to: &[Span],
    ) -> Result<Transfer, Refused> {
        let _ = (token, peer, from, to);
        Err(Refused::Unsupported)
    }

    /// Publishes a registration in `slot` (below [`PUBLISHED_MAX`]), or with `None` takes it back. When it
    /// was taken back, no peer begins to access that memory by this key any more: see [`Transport::settle`] for those that
    /// have begun. An access that was posted and whose turn has not come is refused.
    fn publish(&mut self, slot: u32, what: Option<Published>) {
        let _ = (slot, what);
    }

    /// Waits, for so long at most, until the accesses have ended that had begun by a key that was taken back; false when one
    /// has not: its peer is stopped, or starved, and the memory may change when it goes on.
    fn settle(&mut self, key: u64, patience: Duration) -> bool {
        let _ = (key, patience);
        true
    }

    /// Begins an access of ours to memory that the peer published: until [`Transport::leave`] it stays
    /// published. Refused with [`Refused::Unsupported`] where peers' registrations cannot be seen, with
    /// [`Refused::Key`] where the slot has not this key.
    fn enter(&mut self, peer: Peer, slot: u32, key: u64) -> Result<Published, Refused> {
        let _ = (peer, slot, key);
        Err(Refused::Unsupported)
    }

    /// Ends the access that `enter` began. What was posted in between goes on, and ends by itself.
    fn leave(&mut self, peer: Peer) {
        let _ = peer;
    }

    /// The caller has let a peer go that broke the rules, or that a send has found dead. From now on nothing is read into
    /// places that were given for its payloads, and nothing that was posted to it is read; the sink may be told that it is
    /// dead. Where transfers end by themselves there is nothing to do.
    fn end(&mut self, peer: Peer) {
        let _ = peer;
    }

    /// A descriptor that becomes readable when there is something to poll, for a caller that wants to sleep.
    /// Only after [`Transport::prepare_sleep`].
    fn sleep_on(&self) -> Option<i32> {
        None
    }

    /// Asks peers to wake us from now on. False when there already is something to poll: do not sleep.
    fn prepare_sleep(&mut self) -> bool {
        true
    }

    /// Ends what `prepare_sleep` began.
    fn woke(&mut self) {}
}

/// What an engine does with what a transport brings.
pub trait Sink {
    /// A peer can be sent to.
    fn joined(&mut self, peer: Peer) {
        let _ = peer;
    }

    /// A packet arrived. Both parts are lent for the call.
    fn packet(&mut self, peer: Peer, head: &[u8], payload: &[u8]);

    /// Whether it takes more packets in this poll. False when what the last one brought is better done first: the rest
    /// is given to it in the next poll. Not every transport asks.
    fn wants_more(&self) -> bool {
        true
    }

    /// The head of a packet arrived, whose payload of `bytes` is still to be read. `Some`: read it there, then
    /// call [`Sink::placed`]. `None`: read it anywhere, and call [`Sink::packet`]. Not every transport asks.
    fn place(&mut self, peer: Peer, head: &[u8], bytes: usize) -> Option<Span> {
        let _ = (peer, head, bytes);
        None
    }

    /// The payload of that packet is where `place` wanted it.
    fn placed(&mut self, peer: Peer, head: &[u8], bytes: usize) {
        let _ = (peer, head, bytes);
    }

    /// Whether a message of ours, which the peer was told of under this name and waits for, has this memory: then it is
    /// the peer's to see, and the transport may hand it over.
    fn lends(&self, peer: Peer, message: u32, span: Span) -> bool {
        let _ = (peer, message, span);
        false
    }

    /// Whether that memory is there as long as the message waits, so that the transport may read it by itself. Of a mapped
    /// file, from which others may cut what is mapped, only the kernel may.
    fn lends_memory(&self, peer: Peer, message: u32) -> bool {
        let _ = (peer, message);
        true
    }

    /// A posted packet was read from its memory.
    fn sent(&mut self, token: u64) {
        let _ = token;
    }

    /// A read or write that was started has ended: its memory is in use no more. [`Refused::Key`] when the registration was
    /// taken back meanwhile: then nothing was touched. Several may have one token, and end in any order. Each is told of in any
    /// case, before its peer's [`Sink::dead`] if that comes.
    fn done(&mut self, token: u64, result: Result<(), Refused>) {
        let _ = (token, result);
    }

    /// The peer is dead. Nothing comes from it any more; packets that were posted to it will not be told of.
    fn dead(&mut self, peer: Peer);
}
