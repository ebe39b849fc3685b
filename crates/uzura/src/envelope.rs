//! What a message says of itself beside its bytes.

use crate::numbers::Wire;

/// A message without its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub traits: Traits,
    pub tag: u64,
    /// A word for the receiver; 0 without [`Traits::DATA`].
    pub data: u64,
    /// What its sender calls it.
    pub op: Wire,
}

impl Envelope {
    /// A message with a tag and nothing else.
    #[inline]
    pub fn tagged(tag: u64) -> Envelope {
        Envelope { tag, ..Envelope::default() }
    }

    /// The word for the receiver, if there is one.
    #[inline]
    pub fn word(&self) -> Option<u64> {
        self.traits.has(Traits::DATA).then_some(self.data)
    }
}

/// Bits that a packet has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traits(u8);

impl Traits {
    /// It has no tag, and goes to receives of such messages.
    pub const UNTAGGED: Traits = Traits(1);
    /// It has a word for the receiver.
    pub const DATA: Traits = Traits(2);
    /// Its sender waits until it is in the receiver's memory.
    pub const DELIVERED: Traits = Traits(4);
    /// Of a posted receive: its buffer takes many messages. Never sent.
    pub const MANY: Traits = Traits(0x80);
    /// Of the receive of one message in such a buffer. Never sent.
    pub const PART: Traits = Traits(0x40);
    const ALL: Traits = Traits(7);

    /// The traits of a packet; `None` with a bit that has no meaning.
    pub fn of_bits(bits: u8) -> Option<Traits> {
        (bits & !Traits::ALL.0 == 0).then_some(Traits(bits))
    }

    pub fn bits(self) -> u8 {
        self.0
    }

    #[inline]
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    #[inline]
    pub fn has(self, other: Traits) -> bool {
        self.0 & other.0 != 0
    }

    pub fn with(self, other: Traits) -> Traits {
        Traits(self.0 | other.0)
    }

    pub fn only(self, other: Traits) -> Traits {
        Traits(self.0 & other.0)
    }

    pub fn without(self, other: Traits) -> Traits {
        Traits(self.0 & !other.0)
    }

    /// Which of [`QUEUES`] it belongs to.
    #[inline]
    pub fn queue(self) -> usize {
        usize::from(self.0 & Traits::UNTAGGED.0)
    }
}

/// Messages with tags match receives of tags, messages without match receives without.
pub(crate) const QUEUES: usize = 2;
