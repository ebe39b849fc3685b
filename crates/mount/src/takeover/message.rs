//! What two mount processes say to each other.
//!
//! ```text
//!   successor                       mount
//!   Hello    ─────────────────────►            which formats it reads, and which version of Covey it is
//!            ◄─────────────────────  Welcome   the format of what follows, and what must stay as it is
//!   Begin    ─────────────────────►            the mount stops reading requests
//!            ◄─────────────────────  State     all that it knows, and its devices beside
//!   Ready    ─────────────────────►            all of that has found its place
//!            ◄─────────────────────  Go        the mount will not go on, unless the next does not come
//!   Mine     ─────────────────────►            the successor serves
//! ```
//!
//! In place of any answer the mount may say Refused, and goes on as before.

use crate::abi::Rest;
use covey_wire::{Blame, Bytes, Name, Reader, messages, record};

messages! {
    /// A message between mount processes.
    pub enum Message for () {
        /// a successor, which reads the formats from `oldest` to `newest`
        1 Hello { magic: u64, oldest: u16, newest: u16, version: Name },
        /// the process that serves the mount
        2 Welcome { format: u16, pid: u32, version: Name, about: About },
        /// why the mount goes on as it is
        3 Refused { reason: Name },
        /// hand over
        4 Begin {},
        /// [`super::state::State`]; so many devices come beside
        5 State { devices: u16, state: Rest },
        /// all is there
        6 Ready {},
        /// it is yours
        7 Go {},
        /// it is served
        8 Mine {},
    }
}

record! {
    /// What of a mount must stay as it is, and what stays unless somebody wants it otherwise.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct About for () {
        /// The cluster's name.
        pub cluster: Name,
        /// The cluster's id.
        pub cluster_id: Name,
        /// Other users may use it.
        pub allow_other: bool,
        /// Nothing may be changed.
        pub read_only: bool,
        /// The mode of files that have none, by number.
        pub consistency: u8,
        /// What is done to new files is said late.
        pub delegations: bool,
        /// Dead servers are waited for.
        pub hard: bool,
        /// Threads that serve it.
        pub threads: u16,
        /// A service manager looks after the process, and takes its end for that of the mount.
        pub is_kept: bool,
    }
}

/// Bytes before a message's body: its length, and its number.
pub const HEAD_BYTES: usize = 5;

/// Begins every Hello: `covey/to`.
pub const MAGIC: u64 = 0x6f74_2f79_6576_6f63;

/// The formats of what is handed over that this version reads and writes.
pub const FORMATS: std::ops::RangeInclusive<u16> = 1..=1;

/// The longest body but for a State.
const SMALL_BYTES_MAX: usize = 4096;
/// The longest State: some millions of open files.
const STATE_BYTES_MAX: usize = 512 << 20;
const STATE: u8 = 5;

impl Message {
    /// With its head.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let length = u32::try_from(self.body_size(())).unwrap_or(u32::MAX);
        out.extend_from_slice(&length.to_le_bytes());
        out.push(self.number());
        self.put_body((), &mut out);
        out
    }

    /// The number and the length of the body that a head names.
    pub fn head(head: [u8; HEAD_BYTES]) -> Result<(u8, usize), Blame> {
        let [a, b, c, d, number] = head;
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        let most = if number == STATE { STATE_BYTES_MAX } else { SMALL_BYTES_MAX };
        if length > most {
            let what = format!("message number {number} of {length} bytes, limit is {most}");
            return Err(Blame::Malformed(what));
        }
        Ok((number, length))
    }

    /// From its number and body.
    pub fn decode(number: u8, body: Bytes) -> Result<Message, Blame> {
        let mut from = Reader::new(body);
        let message = Message::take_body(number, (), &mut from)?;
        from.finish()?;
        Ok(message)
    }
}

/// The newest format that two ranges have in common.
pub fn common(oldest: u16, newest: u16) -> Option<u16> {
    let format = newest.min(*FORMATS.end());
    (format >= oldest && format >= *FORMATS.start()).then_some(format)
}

/// As much of a reason as a message takes.
pub fn reason(text: &str) -> Name {
    let end = (0..=text.len().min(1024)).rev().find(|&end| text.is_char_boundary(end));
    Name::from(&text[..end.unwrap_or(0)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_as_they_went_and_long_ones_are_refused() {
        let about = About { cluster: "c".into(), threads: 3, is_kept: true, ..About::default() };
        let state = Rest(Bytes::from_static(b"state"));
        for message in [
            Message::Hello { magic: MAGIC, oldest: 1, newest: 4, version: "1.0".into() },
            Message::Welcome { format: 1, pid: 7, version: "0.9".into(), about },
            Message::Refused { reason: reason("busy") },
            Message::State { devices: 2, state },
            Message::Mine {},
        ] {
            let bytes = Bytes::from(message.encode());
            let head = *bytes.first_chunk::<HEAD_BYTES>().expect("a head");
            let (number, length) = Message::head(head).expect("a good one");
            assert_eq!(length, bytes.len() - HEAD_BYTES);
            assert_eq!(Message::decode(number, bytes.slice(HEAD_BYTES..)), Ok(message));
        }
        assert!(Message::head([1, 0x10, 0, 0, 1]).is_err(), "4097 bytes of Hello");
        assert!(Message::head([0, 0x10, 0, 0, 1]).is_ok());
        assert!(Message::head([1, 0, 0, 0x20, STATE]).is_err());
        assert!(Message::decode(99, Bytes::new()).is_err());
        assert!(Message::decode(4, Bytes::from_static(b"x")).is_err());
    }

    #[test]
    fn the_newest_common_format_is_taken() {
        assert_eq!(common(1, 1), Some(1));
        assert_eq!(common(1, 9), Some(1));
        assert_eq!(common(0, 1), Some(1));
        assert_eq!(common(2, 9), None);
        assert_eq!(common(0, 0), None);
    }

    #[test]
    fn a_long_reason_is_cut_between_letters() {
        assert_eq!(reason(&"é".repeat(600)).len(), 1024);
        assert_eq!(reason(&format!("x{}", "é".repeat(600))).len(), 1023);
    }
}
