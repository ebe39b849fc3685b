//! The frames of a lane, and what two sides say to each other about it over their stream.
//!
//! ```text
//!   frame    number u32 | lane u32 | key u64 | sequence u32 | expected u32 | after u32 | bytes u16 | kind u8 | 0 | packets
//!   packet   bytes u16 | head bytes u8 | head | payload                                           little endian
//! ```

use covey_wire::transport::HEAD_BYTES_MAX;

/// Before the packets of a frame.
pub const HEADER_BYTES: usize = 32;
/// Before the head of each packet in a frame.
pub(super) const PREFIX_BYTES: usize = 3;
/// Where a wire finds its peer.
pub const PLACE_BYTES: usize = 10;

/// What a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It has packets.
    Packets,
    /// Only `expected` counts.
    Ack,
    /// The same; later frames have come, and the expected one has not.
    Gap,
    /// Wants an acknowledgement at once.
    Ask,
    /// Wants a `Pong` of the same sequence.
    Ping,
    Pong,
}

const KINDS: [Kind; 6] = [Kind::Packets, Kind::Ack, Kind::Gap, Kind::Ask, Kind::Ping, Kind::Pong];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Of the receiving socket, which drops all others.
    pub number: u32,
    /// The receiver's number of the pair, and what only the two know.
    pub lane: u32,
    pub key: u64,
    /// Of this frame, and of the one that its sender expects next.
    pub sequence: u32,
    pub expected: u32,
    /// How many packets its sender had sent by the stream before.
    pub after: u32,
    pub kind: Kind,
}

impl Header {
    /// Writes it to the front of a frame, whose packets follow it already.
    pub fn put(&self, frame: &mut [u8]) {
        let bytes = (frame.len() - HEADER_BYTES) as u16;
        let fields: [&[u8]; 8] = [
            &self.number.to_le_bytes(),
            &self.lane.to_le_bytes(),
            &self.key.to_le_bytes(),
            &self.sequence.to_le_bytes(),
            &self.expected.to_le_bytes(),
            &self.after.to_le_bytes(),
            &bytes.to_le_bytes(),
            &[self.kind as u8, 0],
        ];
        let mut rest = frame;
        for field in fields {
            let (place, after) = rest.split_at_mut(field.len());
            place.copy_from_slice(field);
            rest = after;
        }
    }

    /// A frame and its packets; none where it is no frame. What a card adds to a short one is left out.
    pub fn of(frame: &[u8]) -> Option<(Header, Packets<'_>)> {
        let (number, rest) = frame.split_first_chunk()?;
        let (lane, rest) = rest.split_first_chunk()?;
        let (key, rest) = rest.split_first_chunk()?;
        let (sequence, rest) = rest.split_first_chunk()?;
        let (expected, rest) = rest.split_first_chunk()?;
        let (after, rest) = rest.split_first_chunk()?;
        let (bytes, rest) = rest.split_first_chunk()?;
        let (&[kind, zero], rest) = rest.split_first_chunk()?;
        let packets = Packets(rest.get(..usize::from(u16::from_le_bytes(*bytes)))?);
        let header = Header {
            number: u32::from_le_bytes(*number),
            lane: u32::from_le_bytes(*lane),
            key: u64::from_le_bytes(*key),
            sequence: u32::from_le_bytes(*sequence),
            expected: u32::from_le_bytes(*expected),
            after: u32::from_le_bytes(*after),
            kind: *KINDS.get(usize::from(kind))?,
        };
        (zero == 0 && packets.are_whole()).then_some((header, packets))
    }
}

/// The packets of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packets<'a>(pub &'a [u8]);

impl<'a> Packets<'a> {
    /// Those of memory that was checked before.
    pub fn each(self, mut deliver: impl FnMut(&[u8], &[u8])) {
        let mut rest = self.0;
        while let Some((head, payload, after)) = first(rest) {
            deliver(head, payload);
            rest = after;
        }
    }

    fn are_whole(self) -> bool {
        let mut rest = self.0;
        while !rest.is_empty() {
            let Some((_, _, after)) = first(rest) else { return false };
            rest = after;
        }
        true
    }
}

fn first(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (&head, rest) = rest.split_first()?;
    if usize::from(head) > HEAD_BYTES_MAX {
        return None;
    }
    let (head, rest) = rest.split_at_checked(usize::from(head))?;
    let (payload, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
    Some((head, payload, rest))
}

/// Adds a packet to a frame.
pub(super) fn add(frame: &mut Vec<u8>, head: &[u8], bytes: usize, fill: impl FnOnce(&mut [u8])) {
    frame.extend_from_slice(&(bytes as u16).to_le_bytes());
    frame.push(head.len() as u8);
    frame.extend_from_slice(head);
    let payload = frame.len();
    frame.resize(payload + bytes, 0);
    fill(&mut frame[payload..]);
}

/// Begins the head of a packet of the stream that is about the lane, and for no engine: the heads of those begin
/// with small numbers.
pub(super) const ABOUT: u8 = 0xc0;

/// What a side says about the lane over the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum About {
    /// Where, and under which names, frames reach its sender, and how long they may be.
    Offer(Offer),
    /// Wants a `Pong`.
    Ping,
    Pong,
    /// The lane is to be used.
    Use,
    /// A frame again, as it was sent.
    Resent(Vec<u8>),
    /// Its sender expects this frame next.
    Ack(u32),
    /// Nothing arrives by the lane: it is not to be used.
    Stop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    pub place: [u8; PLACE_BYTES],
    pub number: u32,
    pub lane: u32,
    pub key: u64,
    pub frame_bytes_max: u16,
    /// Frames that may be without acknowledgement.
    pub window: u16,
}

impl About {
    /// The head and the payload of its packet.
    pub fn encode(&self) -> ([u8; 2], Vec<u8>) {
        let (kind, payload) = match self {
            About::Offer(offer) => (0, offer.encode()),
            About::Ping => (1, Vec::new()),
            About::Pong => (2, Vec::new()),
            About::Use => (3, Vec::new()),
            About::Resent(frame) => (4, frame.clone()),
            About::Ack(expected) => (5, expected.to_le_bytes().to_vec()),
            About::Stop => (6, Vec::new()),
        };
        ([ABOUT, kind], payload)
    }

    pub fn decode(head: &[u8], payload: &[u8]) -> Option<About> {
        let [ABOUT, kind] = head else { return None };
        match (kind, payload) {
            (0, payload) => Offer::decode(payload).map(About::Offer),
            (1, []) => Some(About::Ping),
            (2, []) => Some(About::Pong),
            (3, []) => Some(About::Use),
            (4, frame) => Some(About::Resent(frame.to_vec())),
            (5, expected) => Some(About::Ack(u32::from_le_bytes(expected.try_into().ok()?))),
            (6, []) => Some(About::Stop),
            _ => None,
        }
    }
}

impl Offer {
    fn encode(&self) -> Vec<u8> {
        [
            &self.place[..],
            &self.number.to_le_bytes(),
            &self.lane.to_le_bytes(),
            &self.key.to_le_bytes(),
            &self.frame_bytes_max.to_le_bytes(),
            &self.window.to_le_bytes(),
        ]
        .concat()
    }

    fn decode(bytes: &[u8]) -> Option<Offer> {
        let (place, rest) = bytes.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let (lane, rest) = rest.split_first_chunk()?;
        let (key, rest) = rest.split_first_chunk()?;
        let (frame_bytes_max, rest) = rest.split_first_chunk()?;
        let window = u16::from_le_bytes(rest.try_into().ok()?);
        Some(Offer {
            place: *place,
            number: u32::from_le_bytes(*number),
            lane: u32::from_le_bytes(*lane),
            key: u64::from_le_bytes(*key),
            frame_bytes_max: u16::from_le_bytes(*frame_bytes_max),
            window,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_these_bytes() {
        let mut frame = vec![0; HEADER_BYTES];
        add(&mut frame, b"\x02tag", 3, |place| place.copy_from_slice(b"abc"));
        add(&mut frame, b"\x07", 0, |_| ());
        let header = Header {
            number: 0x0403_0201,
            lane: 5,
            key: 0x0807_0605_0403_0201,
            sequence: 6,
            expected: 7,
            after: 8,
            kind: Kind::Packets,
        };
        header.put(&mut frame);
        let expected =
            [
                &[
                    1, 2, 3, 4, 5, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 6, 0, 0, 0, 7, 0, 0, 0, 8, 0,
                    0, 0,
                ][..],
                &[14, 0, 0, 0],
                b"\x03\0\x04\x02tagabc\0\0\x01\x07",
            ]
            .concat();
        assert_eq!(frame, expected);
        // A card makes short frames longer.
        let longer = [&frame[..], &[0; 20]].concat();
        let (found, packets) = Header::of(&longer).expect("a frame");
        let mut said = Vec::new();
        packets.each(|head, payload| said.push((head.to_vec(), payload.to_vec())));
        assert_eq!(found, header);
        assert_eq!(said, [(b"\x02tag".to_vec(), b"abc".to_vec()), (vec![7], vec![])]);
        for bytes in 0..frame.len() {
            assert_eq!(Header::of(&frame[..bytes]), None);
        }
        frame[28] -= 1;
        assert_eq!(Header::of(&frame), None, "a packet is cut");
    }

    #[test]
    fn what_is_said_about_a_lane_comes_back() {
        let (place, frame_bytes_max) = ([7; PLACE_BYTES], 1500);
        let offer = Offer { place, number: 1, lane: 2, key: 3, frame_bytes_max, window: 8 };
        let (head, payload) = About::Offer(offer).encode();
        assert_eq!(head, [0xc0, 0]);
        let expected =
            [&[7; 10][..], &[1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0xdc, 5, 8, 0]];
        assert_eq!(payload, expected.concat());
        let all = [
            About::Offer(offer),
            About::Ping,
            About::Pong,
            About::Use,
            About::Resent(vec![1, 2]),
            About::Ack(9),
            About::Stop,
        ];
        for (kind, about) in (0..).zip(all) {
            let (head, payload) = about.encode();
            assert_eq!(head, [ABOUT, kind]);
            assert_eq!(About::decode(&head, &payload), Some(about));
        }
        assert_eq!(About::decode(&[ABOUT, 7], &[]), None);
        assert_eq!(About::decode(&[ABOUT, 1], &[0]), None);
        assert_eq!(About::decode(&[ABOUT, 5], &[0]), None);
    }
}
