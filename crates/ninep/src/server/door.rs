//! What a peer may use before anybody knows who it is, and afterwards.
//!
//! Anyone who reaches the socket can begin a connection, so until its first attach succeeds the peer
//! is a stranger: its messages are short and few, and its time is short. That bounds what one
//! connection holds before any proof; how many strangers there may be is the shell's to decide, which
//! also hears, by its [`Door`], whom the first attach has made known. What a known peer holds is
//! bounded by its [`Share`].

use super::Session;
use crate::frame;
use crate::tree::{Peer, Result, Tree};
use covey_wire::Blame;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

/// The longest message before the first attach, in bytes: a Tattach with a long path fits.
pub const STRANGER_MESSAGE_BYTES_MAX: u32 = 8 << 10;
/// Most messages before the first attach, so that what a stranger never reads stays small. A client
/// that proves a key needs seven, and a few to show that it is alive.
pub const STRANGER_MESSAGES_MAX: u32 = 64;

/// What a connection may hold in the memory of the server. Connections of one user share one, and it
/// shrinks as they become more. What they hold is counted together: the share is what each may have, the
/// total what all may, whoever came first.
#[derive(Debug)]
pub struct Share {
    bytes: Cell<usize>,
    held: Cell<usize>,
    held_most: Cell<usize>,
    held_max: usize,
}

impl Share {
    /// The greatest share, in bytes: what a connection gets whose user has few.
    pub const BYTES_MAX: usize = 64 << 20;

    /// A share of so many bytes for each connection.
    pub fn new(bytes: usize) -> Share {
        Share::with_total(bytes, usize::MAX)
    }

    /// The same, of which all connections together hold at most `held_max`.
    pub fn with_total(bytes: usize, held_max: usize) -> Share {
        Share {
            bytes: Cell::new(bytes),
            held: Cell::default(),
            held_most: Cell::default(),
            held_max,
        }
    }

    /// A connection that held `before` holds `now`, in bytes.
    pub(super) fn charge(&self, before: usize, now: usize) {
        self.held.set(self.held.get() - before + now);
        self.held_most.set(self.held_most.get().max(self.held.get()));
    }

    /// The most that the connections have held together, in bytes.
    pub fn held_most(&self) -> usize {
        self.held_most.get()
    }

    /// Whether the connections together may hold more. One that holds nothing may always be served.
    pub(super) fn has_room(&self) -> bool {
        self.held.get() < self.held_max
    }

    /// Changes it for all connections that have it. What they hold above it they keep, and get no more.
    pub fn set(&self, bytes: usize) {
        self.bytes.set(bytes);
    }

    /// Payload that was received, is asked for or is to be sent, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// Output that the loop holds, in bytes.
    pub(super) fn output_bytes(&self) -> usize {
        self.bytes() / 16
    }

    /// Extended attributes, in bytes.
    pub(super) fn xattr_bytes(&self) -> usize {
        self.bytes() / 4
    }

    /// How many fids.
    pub(super) fn fids(&self) -> usize {
        self.bytes() / 1024
    }
}

impl Default for Share {
    fn default() -> Self {
        Share::new(Share::BYTES_MAX)
    }
}

/// The shell's part in how a connection begins.
pub trait Door {
    /// The peer's first attach has succeeded: by the kernel's word for its user, or by the cluster key.
    /// Answers its share; an error refuses the attach.
    fn admit(&self, peer: &Peer) -> Result<Rc<Share>>;

    /// The peer was shown our proof of the cluster key. One that leaves after that has another key.
    fn asked(&self) {}

    /// An attach or a proof of a peer that is not known yet was refused, for this reason.
    fn refused(&self, why: &crate::tree::Errno) {
        let _ = why;
    }
}

/// Everyone may stay, with the greatest share.
impl Door for () {
    fn admit(&self, _peer: &Peer) -> Result<Rc<Share>> {
        Ok(Rc::default())
    }
}

/// A peer that has not attached yet.
#[derive(Debug)]
pub(super) struct Stranger {
    messages: u32,
    attach_by: Option<Instant>,
}

impl Stranger {
    pub fn new(attach_by: Option<Instant>) -> Stranger {
        Stranger { messages: 0, attach_by }
    }
}

impl<T: Tree> Session<T> {
    /// The longest message that the peer may send now. While an attach is under way, what follows it
    /// may be here already.
    pub(super) fn message_bytes_max(&self) -> u32 {
        match &self.stranger {
            Some(_) if self.requests.is_empty() => self.msize.min(STRANGER_MESSAGE_BYTES_MAX),
            _ => self.msize,
        }
    }

    /// Says of a message that would be short enough for a known peer why it is not.
    pub(super) fn too_early(&self, blame: Blame, input: &[u8]) -> Blame {
        match blame {
            Blame::Malformed(what)
                if self.stranger.is_some() && frame::is_within(input, self.msize) =>
            {
                Blame::Violation(format!("{what}, which holds before an attach"))
            }
            blame => blame,
        }
    }

    /// How many messages have come from a stranger.
    pub(super) fn messages_so_far(&self) -> u32 {
        self.stranger.as_ref().map_or(0, |stranger| stranger.messages)
    }

    /// So many came before.
    pub(super) fn has_said(&mut self, messages: u32) {
        if let Some(stranger) = &mut self.stranger {
            stranger.messages = messages;
        }
    }

    /// One more message has come.
    pub(super) fn count_message(&mut self) -> std::result::Result<(), Blame> {
        let Some(stranger) = &mut self.stranger else { return Ok(()) };
        stranger.messages += 1;
        if stranger.messages <= STRANGER_MESSAGES_MAX {
            return Ok(());
        }
        let what = format!("{STRANGER_MESSAGES_MAX} messages and no attach");
        Err(Blame::Violation(what))
    }

    /// An attach has succeeded.
    pub(super) fn let_in(&mut self, peer: &Peer) -> Result<()> {
        if self.stranger.is_some() {
            let share = self.door.admit(peer)?;
            // What the stranger held is counted with the rest from the next message on.
            self.charged.set(0);
            self.share = share;
            self.stranger = None;
        }
        Ok(())
    }

    /// An attach or a proof has failed.
    pub(super) fn note_refusal<A>(&self, outcome: Result<A>) -> Result<A> {
        if let (Err(error), Some(_)) = (&outcome, &self.stranger) {
            self.door.refused(error);
        }
        outcome
    }

    /// By when the peer must have attached.
    pub(super) fn attach_by(&self) -> Option<Instant> {
        self.stranger.as_ref().and_then(|stranger| stranger.attach_by)
    }

    /// Its time has passed, unless there was none.
    pub(super) fn check_attached(&self, now: Instant) -> std::result::Result<(), Blame> {
        match self.attach_by() {
            Some(by) if now >= by => Err(Blame::Violation("no attach in the time for it".into())),
            _ => Ok(()),
        }
    }
}
