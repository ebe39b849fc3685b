//! What operations are made of: places, peers, tags, completions.

use crate::Fault;
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

/// The key of a registration. Who has it may access the memory as far as its rights go; it cannot be guessed
/// from other keys but with the luck of one in a million.
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
    /// Where in it the layout's displacement 0 lies, in bytes from the registration's beginning.
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
    /// Everything.
    pub const ALL: Rights = Rights(7);

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

/// The end of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
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
}

/// A message that nobody has received yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// From whom.
    pub peer: Peer,
    /// Its tag.
    pub tag: u64,
    /// Its bytes.
    pub bytes: u64,
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
