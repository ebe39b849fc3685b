//! The heads of packets: a kind and its fields in order, little-endian. `docs/protocol/uzura.md` says what they mean.

use crate::numbers::Wire;
use covey_layout::ByteOrder;
use covey_wire::transport::HEAD_BYTES_MAX;

/// A head on its way. It is written in whole words, so that whoever copies it word by word finds each of them in the
/// processor's queue of stores; one that was written in pieces has to reach the cache first.
#[repr(align(8))]
pub(crate) struct Encoded {
    bytes: [u8; HEAD_BYTES_MAX],
    len: usize,
}

/// The words of a head to which fields are added.
struct Words {
    words: [u64; HEAD_BYTES_MAX / 8],
    len: usize,
}

impl Words {
    #[inline(always)]
    fn add<const BYTES: usize>(&mut self, field: [u8; BYTES]) {
        const { assert!(BYTES <= 8) };
        let mut wide = [0; 8];
        wide[..BYTES].copy_from_slice(&field);
        let (word, at, shift) = (u64::from_le_bytes(wide), self.len / 8, self.len % 8 * 8);
        self.words[at] |= word << shift;
        if shift + BYTES * 8 > 64 {
            self.words[at + 1] |= word >> (64 - shift);
        }
        self.len += BYTES;
    }

    #[inline(always)]
    fn encoded(&self) -> Encoded {
        let mut bytes = [0; HEAD_BYTES_MAX];
        for (place, word) in bytes.as_chunks_mut().0.iter_mut().zip(self.words) {
            *place = word.to_le_bytes();
        }
        Encoded { bytes, len: self.len }
    }
}

impl std::ops::Deref for Encoded {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

macro_rules! heads {
    ($($(#[$doc:meta])* $number:literal $name:ident { $($field:ident : $type:ty),* $(,)? })*) => {
        /// What a packet is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Head {
            $($(#[$doc])* $name { $($field: $type),* },)*
        }

        impl Head {
            /// The bytes of it. Where the kind is known so is the length.
            #[inline(always)]
            pub fn encode(&self) -> Encoded {
                let mut words = Words { words: [0; HEAD_BYTES_MAX / 8], len: 0 };
                match *self {
                    $(Head::$name { $($field),* } => {
                        words.add([$number]);
                        $(words.add($field.to_le_bytes());)*
                    })*
                }
                words.encoded()
            }

            /// What the bytes are; `None` when they are no head.
            #[inline(always)]
            pub fn decode(bytes: &[u8]) -> Option<Head> {
                match *bytes.first()? {
                    $($number => {
                        const BYTES: usize = 1 $(+ size_of::<$type>())*;
                        // One look at the length is enough for all fields.
                        let rest: &[u8] = <&[u8; BYTES]>::try_from(bytes).ok()?;
                        let (_, rest) = rest.split_first()?;
                        $(
                            let (field, rest) = rest.split_first_chunk()?;
                            let $field = <$type>::from_le_bytes(*field);
                        )*
                        debug_assert!(rest.is_empty());
                        Some(Head::$name { $($field),* })
                    })*
                    _ => None,
                }
            }
        }
    };
}

impl Head {
    /// The tag, and the word, of a message that has no more than that; `None` where it is not one. The same as
    /// [`Head::decode`] says, without the other kinds.
    #[inline(always)]
    pub fn short(bytes: &[u8]) -> Option<(u64, Option<u64>)> {
        if let Ok(message) = <&[u8; Head::MESSAGE_BYTES]>::try_from(bytes) {
            let word =
                |at: usize| message[at..].first_chunk().map(|word| u64::from_le_bytes(*word));
            let is_it = (message[0], message[5]) == (14, 2) && message[22..24] == [0xff; 2];
            return if is_it { Some((word(6)?, word(14))) } else { None };
        }
        let eager = <&[u8; Head::EAGER_BYTES]>::try_from(bytes).ok()?;
        let tag = eager.last_chunk()?;
        (eager[0] == 2).then(|| (u64::from_le_bytes(*tag), None))
    }

    /// Bytes of a message's head that has a tag only.
    pub const EAGER_BYTES: usize = 9;
    /// Those of one that has more.
    pub const MESSAGE_BYTES: usize = 26;
}

heads! {
    /// The first packet of either side.
    1 Hello { version: u8, order: u8, window: u64 }
    /// A message. Payload: all of it.
    2 Eager { tag: u64 }
    /// A message that waits. Payload: its header.
    3 Ready { op: Wire, traits: u8, slot: u16, tag: u64, data: u64, bytes: u64, address: u64 }
    /// Asks for the rest of such a message, up to `bytes` of it.
    4 Pull { op: Wire, into: Wire, bytes: u64 }
    /// Bytes for an operation, from its packed offset `at` on. Payload: the bytes.
    5 Data { op: Wire, at: u64 }
    /// An operation of the receiver of this has ended, well where `fault` is 0.
    6 Ack { op: Wire, fault: u8 }
    /// The sender of this holds so many bytes of messages less.
    7 Credit { bytes: u64 }
    /// A part of a layout's description. Payload: its bytes.
    8 Define { slot: u16, at: u32, total: u32 }
    /// Writes to registered memory. Payload: packed bytes from `packed` on.
    9 Put { op: Wire, last: u8, slot: u16, types: u16, key: u64, at: u64, packed: u64, total: u64 }
    /// Combines with registered memory. Payload: the same.
    10 Accumulate { op: Wire, last: u8, what: u8, slot: u16, types: u16, key: u64, at: u64, packed: u64, total: u64 }
    /// The same, and what was there comes back.
    11 Fetch { op: Wire, what: u8, slot: u16, types: u16, key: u64, at: u64, packed: u64, total: u64 }
    /// Compares registered memory with the first half of the payload, and replaces it by the second.
    12 Swap { op: Wire, slot: u16, types: u16, key: u64, at: u64 }
    /// Asks for registered memory.
    13 Get { op: Wire, slot: u16, key: u64, at: u64, total: u64 }
    /// A message that has more than a tag. Its elements are those of the layout of `types`, behind so many bytes of header.
    14 Message { op: Wire, traits: u8, tag: u64, data: u64, types: u16, header: u16 }
    /// A put of `bytes` has taken place, and its origin tells it.
    15 Written { data: u64, bytes: u64 }
    /// An atomic operation on elements. Payload: those to combine, or those expected and then the new ones.
    16 Atomic { op: Wire, kind: u8, what: u8, element: u8, key: u64, at: u64 }
}

/// The version of the protocol.
pub(crate) const VERSION: u8 = 2;
/// The number of a byte order.
pub(crate) const fn number_of(order: ByteOrder) -> u8 {
    match order {
        ByteOrder::Little => 0,
        ByteOrder::Big => 1,
    }
}

/// The byte order of a number.
pub(crate) const fn order_of(number: u8) -> Option<ByteOrder> {
    match number {
        0 => Some(ByteOrder::Little),
        1 => Some(ByteOrder::Big),
        _ => None,
    }
}

/// The slot of contiguous bytes.
pub(crate) const PLAIN: u16 = u16::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_these_bytes() {
        let eager = Head::Eager { tag: 0x0102 };
        assert_eq!(*eager.encode(), [2, 2, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(eager.encode().len(), Head::EAGER_BYTES);
        let ready = Head::Ready {
            op: Wire(7),
            traits: 1,
            slot: PLAIN,
            tag: 1,
            data: 2,
            bytes: 0x1_0000,
            address: 0x7f00,
        };
        #[rustfmt::skip]
        assert_eq!(*ready.encode(), [
            3, 7, 0, 0, 0, 1, 0xff, 0xff, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0,
            0, 0, 1, 0, 0, 0, 0, 0, 0, 0x7f, 0, 0, 0, 0, 0, 0,
        ]);
        for (order, byte) in [(ByteOrder::Little, 0), (ByteOrder::Big, 1)] {
            let order = number_of(order);
            let hello = Head::Hello { version: VERSION, order, window: 1 << 20 };
            // The head itself has one order, whatever it says of data.
            assert_eq!(*hello.encode(), [1, 2, byte, 0, 0, 16, 0, 0, 0, 0, 0]);
        }
        assert_eq!(order_of(2), None);
        let put = Head::Put {
            op: Wire(1),
            last: 1,
            slot: 2,
            types: PLAIN,
            key: 3,
            at: 4,
            packed: 5,
            total: 6,
        };
        assert_eq!(put.encode().len(), 42);
        assert_eq!(put.encode()[..10], [9, 1, 0, 0, 0, 1, 2, 0, 0xff, 0xff]);
        let message =
            Head::Message { op: Wire(4), traits: 1, tag: 5, data: 6, types: 2, header: 3 };
        #[rustfmt::skip]
        assert_eq!(*message.encode(), [
            14, 4, 0, 0, 0, 1, 5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 2, 0, 3, 0,
        ]);
        assert_eq!(message.encode().len(), Head::MESSAGE_BYTES);
    }

    #[test]
    fn every_head_comes_back_as_it_went_and_no_shorter_or_longer_one_does() {
        let (key, at, packed, total) = (u64::MAX, 1 << 40, 77, 1 << 33);
        let heads = [
            Head::Hello { version: 1, order: 0, window: 9 },
            Head::Eager { tag: u64::MAX },
            Head::Ready { op: Wire(1), traits: 1, slot: 2, tag: 3, data: 6, bytes: 4, address: 5 },
            Head::Pull { op: Wire(1), into: Wire(2), bytes: 3 },
            Head::Data { op: Wire(9), at: 10 },
            Head::Ack { op: Wire(9), fault: 3 },
            Head::Credit { bytes: 5 },
            Head::Define { slot: 63, at: 1, total: 2 },
            Head::Put { op: Wire(1), last: 0, slot: 2, types: 3, key, at, packed, total },
            Head::Accumulate {
                op: Wire(1),
                last: 0,
                what: 11,
                slot: 2,
                types: 3,
                key,
                at,
                packed,
                total,
            },
            Head::Fetch { op: Wire(1), what: 11, slot: 2, types: 3, key, at, packed, total },
            Head::Swap { op: Wire(1), slot: 2, types: 3, key, at },
            Head::Get { op: Wire(1), slot: 2, key, at, total },
            Head::Message { op: Wire(1), traits: 1, tag: 1, data: 3, types: 2, header: 256 },
            Head::Message { op: Wire(1), traits: 2, tag: 1, data: 3, types: 2, header: 0 },
            Head::Message { op: Wire(1), traits: 3, tag: 1, data: 3, types: PLAIN, header: 0 },
            Head::Message {
                op: Wire(1),
                traits: 2,
                tag: 1 << 40,
                data: 3,
                types: PLAIN,
                header: 0,
            },
            Head::Written { data: u64::MAX, bytes: 9 },
            Head::Atomic { op: Wire(1), kind: 2, what: 3, element: 4, key, at },
        ];
        for head in heads {
            let bytes = head.encode();
            let short = match head {
                Head::Eager { tag } => Some((tag, None)),
                Head::Message { traits: 2, tag, data, types: PLAIN, .. } => Some((tag, Some(data))),
                _ => None,
            };
            assert_eq!(Head::short(&bytes), short);
            assert_eq!(Head::decode(&bytes), Some(head));
            assert_eq!(Head::decode(&bytes[..bytes.len() - 1]), None, "{head:?}");
            assert_eq!(Head::decode(&[&*bytes, &[0]].concat()), None, "{head:?}");
        }
        assert_eq!(Head::decode(&[]), None);
        assert_eq!(Head::decode(&[99]), None);
    }
}
