//! Short reads and writes as bytes, for a peer that has a place of its own for each message: there a [`Conn`] takes longer
//! than everything else about them.
//!
//! ```text
//!   Asked ──► Tread, or a Twrite up to its data ──► server ──► Rread, Rwrite, Rlerror ──► Said
//! ```
//!
//! The messages are those of the table, in 9P2000.L and Covey's own dialect. Their tags are the caller's, from [`TAGS`]; who
//! uses them beside a connection keeps the order between the two.
//!
//! [`Conn`]: crate::client::Conn

use crate::frame::{self, DATA_HEAD_BYTES, DataHead, RREAD, RREAD_PAYLOAD_AT};
use crate::message::NOTAG;
use std::ops::Range;

/// Tags that no connection uses.
pub const TAGS: Range<u16> = 0xffe0..NOTAG;
/// A Tread, and a Twrite up to its data, in bytes.
pub const HEAD_BYTES: usize = DATA_HEAD_BYTES;
/// Where in an Rread its data begins.
pub const DATA_AT: usize = RREAD_PAYLOAD_AT;

/// A range of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// From [`TAGS`].
    pub tag: u16,
    /// The open file.
    pub fid: u32,
    /// The first byte.
    pub offset: u64,
    /// How many bytes.
    pub count: u32,
}

impl Asked {
    /// The Tread.
    #[inline]
    pub fn read(self) -> [u8; HEAD_BYTES] {
        self.head().encode(TREAD, 0)
    }

    /// The Twrite up to its data, `count` bytes of which follow.
    #[inline]
    pub fn write(self) -> [u8; HEAD_BYTES] {
        self.head().encode(TWRITE, self.count)
    }

    fn head(self) -> DataHead {
        let Asked { tag, fid, offset, count } = self;
        DataHead { tag, fid, offset, count }
    }
}

/// What a reply says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// So many bytes of data follow, at [`DATA_AT`].
    Data(u32),
    /// So many bytes were written.
    Written(u32),
    /// The number of an error.
    Refused(u32),
}

impl Said {
    /// What a whole message says; `None` if it is no reply to a read or a write, or not as long as it should be.
    #[inline]
    pub fn of(reply: &[u8]) -> Option<Said> {
        let (&[a, b, c, d, number, _, _, e, f, g, h], data) =
            reply.split_first_chunk::<RREAD_PAYLOAD_AT>()?;
        let size = u32::from_le_bytes([a, b, c, d]) as usize;
        let value = u32::from_le_bytes([e, f, g, h]);
        match number {
            _ if size != reply.len() => None,
            RREAD if data.len() == value as usize => Some(Said::Data(value)),
            RWRITE if data.is_empty() => Some(Said::Written(value)),
            RLERROR if data.is_empty() => Some(Said::Refused(value)),
            _ => None,
        }
    }
}

/// The tag of a message.
#[inline]
pub fn tag(message: &[u8]) -> Option<u16> {
    frame::header(message).map(|(_, _, tag)| tag)
}

const TREAD: u8 = 116;
const TWRITE: u8 = 118;
const RWRITE: u8 = 119;
const RLERROR: u8 = 7;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Dialect, Message};
    use covey_wire::{Bytes, Segments};

    fn bytes(message: Message, tag: u16) -> Vec<u8> {
        let mut out = Segments::new();
        message.put(tag, Dialect::Covey, &mut out);
        out.runs().flatten().copied().collect()
    }

    #[test]
    fn requests_are_those_of_the_table() {
        let (tag, fid, offset) = (0xffe3, 0x0102_0304, 0x1122_3344_5566_7788);
        let asked = Asked { tag, fid, offset, count: 5 };
        assert_eq!(asked.read()[..], bytes(Message::Tread { fid, offset, count: 5 }, tag));
        let data = Bytes::from_static(b"quail").into();
        let whole = bytes(Message::Twrite { fid, offset, data }, tag);
        assert_eq!([&asked.write()[..], b"quail"].concat(), whole);
    }

    #[test]
    fn replies_are_those_of_the_table_and_others_are_none() {
        let read = bytes(Message::Rread { data: Bytes::from_static(b"quail").into() }, 0xffe3);
        assert_eq!((tag(&read), Said::of(&read)), (Some(0xffe3), Some(Said::Data(5))));
        assert_eq!(&read[DATA_AT..], b"quail");
        let written = bytes(Message::Rwrite { count: 9 }, 1);
        assert_eq!(Said::of(&written), Some(Said::Written(9)));
        let refused = bytes(Message::Rlerror { ecode: 28 }, 1);
        assert_eq!(Said::of(&refused), Some(Said::Refused(28)));
        for other in [Message::Rclunk {}, Message::Rflush {}, Message::Tclunk { fid: 3 }] {
            assert_eq!(Said::of(&bytes(other, 1)), None);
        }
        for reply in [read, written, refused] {
            for at in [0, 1, 7, 8, 10] {
                let mut wrong = reply.clone();
                wrong[at] ^= 0x40;
                let says_other_number = at > 6 && reply[4] != RREAD;
                assert_eq!(Said::of(&wrong).is_some(), says_other_number, "{reply:?} at {at}");
            }
            (0..reply.len()).for_each(|end| assert_eq!(Said::of(&reply[..end]), None));
            assert_eq!(Said::of(&[&reply[..], &[0]].concat()), None);
        }
    }
}
