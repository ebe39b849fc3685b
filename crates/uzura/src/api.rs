//! What operations are made of: places, peers, tags, completions.

use crate::Fault;
use crate::envelope::{Envelope, Traits};
use crate::matching::Early;
use covey_layout::ByteOrder;
use covey_wire::{Peer, Span};

/// A layout that was made ready by [`Engine::commit`](crate::Engine::commit).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Form(pub(crate) u32);

impl Form {
    /// Its number, for a caller in C.
    pub fn number(self) -> u32 {
        self.0
    }

    /// The form of a number; an operation on one that never was ends with [`Fault::NoSuch`].
    pub fn of_number(number: u32) -> Form {
        Form(number)
    }
}

/// The key of a registration. Who has it may access the memory as far as its rights go. One that the engine chose cannot be
/// guessed from other keys but with the luck of one in a million.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key(pub u64);

/// An operation under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpId(pub(crate) u64);

impl OpId {
    /// Its number, for a caller in C.
    pub fn number(self) -> u64 {
        self.0
    }

    /// The operation of a number, which may never have been.
    pub fn of_number(number: u64) -> OpId {
        OpId(number)
    }
}

/// Memory of ours that an operation reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Local {
    /// All that may be touched.
    pub span: Span,
    /// Where in it the layout's displacement 0 lies, in bytes.
    pub origin: u64,
    /// Which bytes are meant; all of the span, in order, without.
    pub form: Option<Form>,
}

impl Local {
    /// All bytes of a span.
    pub fn bytes(span: Span) -> Local {
        Local { span, origin: 0, form: None }
    }

    /// What a layout means whose displacement 0 lies at the beginning of a span.
    pub fn laid(span: Span, form: Form) -> Local {
        Local { span, origin: 0, form: Some(form) }
    }
}

/// Memory that a peer registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Whose.
    pub peer: Peer,
    /// Its registration.
    pub key: Key,
    /// Where in it the layout's displacement 0 lies, in bytes from the registration's beginning; an address where it was
    /// registered [by address](Rights::BY_ADDRESS).
    pub at: u64,
    /// Which bytes are meant; as many as the local side has, in a row, without. The peer needs to know nothing of it:
    /// the description travels there and is run there.
    pub form: Option<Form>,
}

/// Whose messages are received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Anybody's.
    Any,
    /// Those of one peer.
    From(Peer),
}

/// Which tags are received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The tag.
    pub value: u64,
    /// Bits of it that do not matter.
    pub ignore: u64,
}

impl Tag {
    /// Any tag.
    pub const ANY: Tag = Tag { value: 0, ignore: u64::MAX };

    /// One tag.
    pub fn exact(value: u64) -> Tag {
        Tag { value, ignore: 0 }
    }

    /// Whether a message's tag is meant.
    pub fn takes(self, tag: u64) -> bool {
        (tag ^ self.value) & !self.ignore == 0
    }
}

/// Which messages are received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// Those with such a tag.
    Tagged(Tag),
    /// Those without a tag. They never match a receive of tags, nor the other way round.
    Untagged,
}

impl From<Tag> for Match {
    #[inline]
    fn from(tag: Tag) -> Match {
        Match::Tagged(tag)
    }
}

impl Match {
    #[inline]
    pub(crate) fn parts(self) -> (Traits, Tag) {
        match self {
            Match::Tagged(tag) => (Traits::default(), tag),
            Match::Untagged => (Traits::UNTAGGED, Tag::exact(0)),
        }
    }
}

/// A message to be sent, without its memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Message<'a> {
    /// Its tag; without one it goes to receives of [`Match::Untagged`].
    pub tag: Option<u64>,
    /// What it begins with, before the memory: at most [`HEADER_BYTES_MAX`] bytes.
    pub header: &'a [u8],
    /// A word that the receiver finds in its completion, beside the bytes.
    pub data: Option<u64>,
    /// When it is done.
    pub done: Done,
}

/// When a message that is sent is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Done {
    /// When its memory may be used again.
    #[default]
    Sent,
    /// When it has been received and lies in the memory that it was received into, or was discarded.
    Delivered,
}

impl Message<'_> {
    #[inline]
    pub(crate) fn envelope(&self) -> Envelope {
        let if_so = |is: bool, traits| if is { traits } else { Traits::default() };
        let traits = if_so(self.tag.is_none(), Traits::UNTAGGED)
            .with(if_so(self.data.is_some(), Traits::DATA))
            .with(if_so(self.done == Done::Delivered, Traits::DELIVERED));
        let (tag, data) = (self.tag.unwrap_or(0), self.data.unwrap_or(0));
        Envelope { traits, tag, data, ..Envelope::default() }
    }
}

/// A message that was claimed: nobody else receives it. It takes room in the window until
/// [`Engine::receive_claimed`](crate::Engine::receive_claimed) or [`Engine::discard`](crate::Engine::discard).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Claim(pub(crate) u64);

impl Claim {
    /// Its number, for a caller in C.
    pub fn number(self) -> u64 {
        self.0
    }

    /// The claim of a number, which may never have been.
    pub fn of_number(number: u64) -> Claim {
        Claim(number)
    }
}

/// What a registration permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights(pub(crate) u32);

impl Rights {
    /// Get.
    pub const READ: Rights = Rights(1);
    /// Put.
    pub const WRITE: Rights = Rights(2);
    /// Accumulate, fetch-and-op, compare-and-swap.
    pub const ATOMIC: Rights = Rights(4);
    /// Every access.
    pub const ALL: Rights = Rights(7);
    /// Peers say where by addresses of the memory instead of offsets in the registration: [`Remote::at`] is one.
    pub const BY_ADDRESS: Rights = Rights(8);
    /// Atomic operations that bring nothing back. Reading atomically needs [`READ`](Rights::READ) only.
    pub const UPDATE: Rights = Rights(16);
    /// Each access of a peer is a completion here ([`End::Accessed`]). Peers then ask this engine for everything, also where
    /// they can reach the memory.
    pub const REPORTED: Rights = Rights(32);

    /// Both.
    pub const fn and(self, other: Rights) -> Rights {
        Rights(self.0 | other.0)
    }

    /// The numbers of a C caller: 1 read, 2 write, 4 atomic; other bits are dropped.
    pub const fn of_bits(bits: u32) -> Rights {
        Rights(bits & 7)
    }

    /// Whether all of `other` is permitted.
    pub const fn permit(self, other: Rights) -> bool {
        self.0 & other.0 == other.0
    }
}

/// How far a call got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Started {
    /// It is done already; nothing more will be said of it.
    Done(Completion),
    /// It goes on; its completion comes to the queue.
    Pending(OpId),
}

/// What a completion tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// An operation of ours has ended.
    Operation,
    /// A message has come into a buffer for many ([`Engine::receive_many`](crate::Engine::receive_many)), at [`Completion::at`].
    Part,
    /// Such a buffer is used no more: it is full, or was cancelled. `bytes` of it were filled.
    Released,
    /// A peer has put memory here and told it ([`Engine::put_telling`](crate::Engine::put_telling)); there is no context.
    Written,
    /// A peer has accessed memory that was [registered so](Rights::REPORTED). The context is the key.
    Accessed(Access),
}

/// What a peer has done to memory here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It has got it, before or instead of changing it.
    Read,
    /// It has put it, or changed it without getting it.
    Write,
}

/// The end of an operation, or what a peer has done here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// What this is.
    pub end: End,
    /// What the caller gave with it.
    pub context: u64,
    /// How it ended.
    pub result: Result<(), Fault>,
    /// Whose message it was, or whose memory.
    pub peer: Peer,
    /// The message's tag; 0 for one-sided operations.
    pub tag: u64,
    /// Bytes of the message, however many of them there was room for; bytes moved by a one-sided operation.
    pub bytes: u64,
    /// The word that a received message, or a put of a peer, came with.
    pub data: Option<u64>,
    /// Where a message begins in its buffer for many, in bytes; otherwise 0.
    pub at: u64,
}

/// A short message that was received as most are, with what a [`Completion`] would say of it.
#[derive(Clone, Copy, Debug)]
pub struct Short {
    /// What the caller gave with the receive.
    pub context: u64,
    /// Whose message it was.
    pub peer: Peer,
    /// Its tag.
    pub tag: u64,
    /// Its length.
    pub bytes: u64,
    /// The word that it came with.
    pub data: Option<u64>,
}

impl Completion {
    /// An operation that has ended well.
    #[inline]
    pub(crate) fn well(context: u64, peer: Peer, tag: u64, bytes: u64) -> Completion {
        let (end, result, data, at) = (End::Operation, Ok(()), None, 0);
        Completion { end, context, result, peer, tag, bytes, data, at }
    }
}

/// A message that nobody has received yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// From whom.
    pub peer: Peer,
    /// Its tag; 0 without one.
    pub tag: u64,
    /// Its bytes.
    pub bytes: u64,
    /// The word that it comes with.
    pub data: Option<u64>,
}

impl Probe {
    pub(crate) fn of(early: &Early) -> Probe {
        let Early { peer, envelope, .. } = *early;
        Probe { peer, tag: envelope.tag, bytes: early.body.bytes(), data: envelope.word() }
    }
}

/// Headers of a form, and where the payload behind one goes: see [`Engine::place`](crate::Engine::place).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule<'a> {
    /// Whose messages.
    pub from: Source,
    /// Which of them.
    pub tag: Tag,
    /// Bits of the header that matter; the header is as long as this, [`HEADER_BYTES_MAX`] at most.
    pub mask: &'a [u8],
    /// What those bits are.
    pub value: &'a [u8],
    /// Where the header goes.
    pub header: Span,
    /// Where what follows it goes.
    pub payload: Local,
}

/// Longest header that a rule looks at and a sender may put before its data, in bytes.
pub const HEADER_BYTES_MAX: usize = 256;

/// The sizes of an engine.
#[derive(Clone, Debug)]
pub struct Config {
    /// Longest message that is sent at once, in bytes; longer ones wait for their receiver.
    pub eager_bytes_max: usize,
    /// The same where the transport sends from where the message lies, and only packets reach the receiver: there to ask
    /// for it takes longer than a copy.
    pub eager_posted_bytes_max: usize,
    /// Shorter ones are copied also there, so that they leave together with others.
    pub copied_bytes_max: usize,
    /// Memory for messages that nobody has received yet, for each peer. A sender knows it and waits, so it is never
    /// exceeded.
    pub window_bytes: u64,
    /// Operations under way at most.
    pub operations_max: usize,
    /// Memory of the near translation table.
    pub near_table_bytes: usize,
    /// Where keys begin: a random number, or any one in a test.
    pub seed: u64,
    /// The byte order of the elements in its memory: the machine's own, but in a test.
    pub order: ByteOrder,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            eager_bytes_max: 4 << 10,
            eager_posted_bytes_max: 64 << 10,
            copied_bytes_max: 4 << 10,
            window_bytes: 1 << 20,
            operations_max: 1 << 16,
            near_table_bytes: 4 << 20,
            seed: 0,
            order: ByteOrder::NATIVE,
        }
    }
}

/// What an engine has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Translations that the near table answered.
    pub near_hits: u64,
    /// Translations that took the host table.
    pub near_misses: u64,
    /// Messages sent at once.
    pub eager: u64,
    /// Messages that waited for their receiver.
    pub rendezvous: u64,
    /// Messages that came before somebody received them.
    pub unexpected: u64,
    /// Bytes of such messages that are held now.
    pub unexpected_bytes: u64,
    /// Payload bytes copied by this side, whoever asked for it: a message that is received directly counts once.
    pub bytes_copied: u64,
    /// Of these, bytes that were copied into memory of the engine's own, to be copied again.
    pub bytes_held: u64,
    /// Transfers that reached into a peer's memory without its help.
    pub direct: u64,
}
