//! Cutting the stream of a connection into messages, for both machines.

use crate::message::{Dialect, HEADER_BYTES, Message};
use crate::tree::Result as Answer;
use covey_wire::{Blame, Bytes, BytesMut, FileRange, Loan, Reader, Segments};

/// One whole message, header included, sharing the buffer that it arrived in.
#[derive(Clone)]
pub(crate) struct Frame {
    pub number: u8,
    pub tag: u16,
    bytes: Bytes,
    /// Its last bytes, where they came in memory of their own.
    tail: Option<Bytes>,
}

impl Frame {
    /// The message.
    pub fn message(self, dialect: Dialect) -> Result<Message, Blame> {
        let from = Reader::with_tail(self.bytes, self.tail);
        Ok(Message::read_from(from, dialect)?.1)
    }
}

/// Takes the next message off `input` and, behind that, off `placed`, which came in memory of its own; `None` while it is
/// not all there, and then all is in `input`. A message that ends in `placed` is not copied.
pub(crate) fn next(
    input: &mut BytesMut,
    placed: &mut Bytes,
    msize: u32,
) -> Result<Option<Frame>, Blame> {
    // A message that lies in `placed` as a whole is taken from there; a header in two pieces is put together.
    let is_placed = input.is_empty();
    if !is_placed && input.len() < HEADER_BYTES {
        input.extend_from_slice(&placed.split_to(placed.len().min(HEADER_BYTES - input.len())));
    }
    let Some(header) = (if is_placed { &placed[..] } else { &input[..] }).first_chunk() else {
        return Ok(wait(input, placed));
    };
    let (size, number, tag) = read_header(header, msize)?;
    if size > input.len() + placed.len() {
        return Ok(wait(input, placed));
    }
    let tail_bytes = size.saturating_sub(input.len());
    let (bytes, tail) = match (is_placed, tail_bytes) {
        (true, _) => (placed.split_to(size), None),
        (false, 0) => (input.split_to(size).freeze(), None),
        (false, tail_bytes) => (input.split().freeze(), Some(placed.split_to(tail_bytes))),
    };
    Ok(Some(Frame { number, tag, bytes, tail }))
}

/// The rest of the message is still to come.
fn wait(input: &mut BytesMut, placed: &mut Bytes) -> Option<Frame> {
    input.extend_from_slice(placed);
    placed.clear();
    None
}

/// Whether the message at the front of `input` is no longer than `msize`.
pub(crate) fn is_within(input: &[u8], msize: u32) -> bool {
    input.first_chunk().is_some_and(|size| u32::from_le_bytes(*size) <= msize)
}

/// Size, number and tag of a message that begins so.
#[inline]
pub(crate) fn header(message: &[u8]) -> Option<(u32, u8, u16)> {
    let &[a, b, c, d, number, e, f] = message.first_chunk()?;
    Some((u32::from_le_bytes([a, b, c, d]), number, u16::from_le_bytes([e, f])))
}

/// The same, with a size that a message may have.
fn read_header(message: &[u8; HEADER_BYTES], msize: u32) -> Result<(usize, u8, u16), Blame> {
    let (size, number, tag) = header(message).expect("it is as long as a header");
    if size < HEADER_BYTES as u32 {
        return Err(Blame::Malformed(format!("message of {size} bytes, a header is 7")));
    }
    if size > msize {
        let what = format!("message {number} of {size} bytes is over the msize of {msize}");
        return Err(Blame::Malformed(what));
    }
    Ok((size as usize, number, tag))
}

/// What a Tread is, and a Twrite before its data.
pub(crate) struct DataHead {
    pub tag: u16,
    pub fid: u32,
    pub offset: u64,
    pub count: u32,
}

impl DataHead {
    /// The message of this number, or its beginning where `follow` bytes come behind it.
    pub fn encode(self, number: u8, follow: u32) -> [u8; DATA_HEAD_BYTES] {
        let mut head = [0; DATA_HEAD_BYTES];
        head[..4].copy_from_slice(&(DATA_HEAD_BYTES as u32 + follow).to_le_bytes());
        let [a, b] = self.tag.to_le_bytes();
        head[4..HEADER_BYTES].copy_from_slice(&[number, a, b]);
        head[HEADER_BYTES..HEADER_BYTES + 4].copy_from_slice(&self.fid.to_le_bytes());
        head[HEADER_BYTES + 4..HEADER_BYTES + 12].copy_from_slice(&self.offset.to_le_bytes());
        head[HEADER_BYTES + 12..].copy_from_slice(&self.count.to_le_bytes());
        head
    }
}

/// The message at the front of `input` if it is a whole Tread: the most frequent one, and so short that to
/// share its buffer and to keep its fields in a [`Message`] takes as long as the rest of its answer.
pub(crate) fn front_read(input: &[u8]) -> Option<DataHead> {
    const TREAD: u8 = 116;
    let (size, number, head) = data_head(input)?;
    (number == TREAD && size as usize == DATA_HEAD_BYTES).then_some(head)
}

/// What `message` is if it is a whole Twrite, and its data.
pub(crate) fn whole_write(message: &[u8]) -> Option<(DataHead, &[u8])> {
    let head = write_head(message, u32::MAX)?;
    let data = message.get(DATA_HEAD_BYTES..)?;
    (data.len() == head.count as usize).then_some((head, data))
}

/// What `head`, of [`DATA_HEAD_BYTES`] bytes, begins, if that is a Twrite within `msize`.
pub(crate) fn write_head(head: &[u8], msize: u32) -> Option<DataHead> {
    const TWRITE: u8 = 118;
    let (size, number, head) = data_head(head)?;
    let is_whole = size.checked_sub(head.count) == Some(DATA_HEAD_BYTES as u32) && size <= msize;
    (number == TWRITE && is_whole).then_some(head)
}

/// The header of the message at the front of `input` if it is an Rread that is not all there, and the length of its
/// payload.
pub(crate) fn begun_read(input: &[u8], msize: u32) -> Option<(u16, usize)> {
    let (head, rest) = input.split_first_chunk::<RREAD_PAYLOAD_AT>()?;
    let &[a, b, c, d, RREAD, e, f, l, m, n, o] = head else { return None };
    let (size, length) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([l, m, n, o]));
    let is_sound = size <= msize && size.checked_sub(length) == Some(RREAD_PAYLOAD_AT as u32);
    let is_begun = is_sound && rest.len() < length as usize;
    is_begun.then_some((u16::from_le_bytes([e, f]), length as usize))
}

/// Size and number of the message at the front of `input`, and its fields as if it had these.
fn data_head(input: &[u8]) -> Option<(u32, u8, DataHead)> {
    let (head, _) = input.split_first_chunk::<DATA_HEAD_BYTES>()?;
    let [a, b, c, d, number, e, f, rest @ ..] = head;
    let (fid, rest) = rest.split_first_chunk()?;
    let (offset, count) = rest.split_first_chunk()?;
    let head = DataHead {
        tag: u16::from_le_bytes([*e, *f]),
        fid: u32::from_le_bytes(*fid),
        offset: u64::from_le_bytes(*offset),
        count: u32::from_le_bytes(count.try_into().ok()?),
    };
    Some((u32::from_le_bytes([*a, *b, *c, *d]), *number, head))
}

/// How many bytes the message at the front of `input` still needs.
pub(crate) fn bytes_wanted(input: &[u8], msize: u32) -> usize {
    let Some(&[a, b, c, d, ..]) = input.first_chunk::<HEADER_BYTES>() else {
        return HEADER_BYTES - input.len();
    };
    // A size over msize ends the connection in `next`: nobody must make room for it.
    let size = u32::from_le_bytes([a, b, c, d]).min(msize);
    (size as usize).saturating_sub(input.len())
}

/// Bytes that a request keeps in memory on the server until it is answered: its payload, or the
/// payload of its answer.
pub(crate) fn weight(request: &Message, msize: u32) -> usize {
    match request {
        Message::Twrite { data, .. } => data.len(),
        Message::Tcall { body, .. } => body.len(),
        Message::Twriteview { view, data, .. } => view.len() + data.len(),
        Message::Treadview { view, count, .. } => view.len() + (*count).min(msize) as usize,
        Message::Tread { count, .. } | Message::Treaddir { count, .. } => {
            (*count).min(msize) as usize
        }
        _ => 0,
    }
}

/// Puts an Rread whose payload is a range of a file.
pub(crate) fn put_rread_range(tag: u16, range: FileRange, out: &mut Segments) {
    let length = range.length as u32;
    out.small(|out| out.extend_from_slice(&rread_header(tag, length)));
    out.file_range(range);
}

/// Puts an Rread whose payload a file lends.
pub(crate) fn put_rread_loan(tag: u16, loan: Loan, out: &mut Segments) {
    let length = loan.length as u32;
    out.loan_message(&rread_header(tag, length), loan);
}

/// Puts an Rread whose payload, at most `count` bytes, `read` appends to the output itself. Puts
/// nothing when `read` fails or answers false.
pub(crate) fn put_rread(
    tag: u16,
    count: u32,
    out: &mut Segments,
    read: impl FnOnce(&mut Vec<u8>) -> Answer<bool>,
) -> Answer<bool> {
    out.append_with(RREAD_PAYLOAD_AT + count as usize, |out| {
        let start = out.len();
        let payload_at = start + RREAD_PAYLOAD_AT;
        out.resize(payload_at, 0);
        match read(out) {
            Ok(true) => {
                out.truncate(payload_at + count as usize);
                let length = (out.len() - payload_at) as u32;
                put_rread_header(&mut out[start..payload_at], tag, length);
                Ok(true)
            }
            other => {
                out.truncate(start);
                other
            }
        }
    })
}

/// What comes before the payload of an Rread.
fn rread_header(tag: u16, length: u32) -> [u8; RREAD_PAYLOAD_AT] {
    let mut header = [0; RREAD_PAYLOAD_AT];
    put_rread_header(&mut header, tag, length);
    header
}

/// Each field goes where it stays: put together elsewhere, the header would be read back before its parts
/// have left the processor's store buffer.
fn put_rread_header(to: &mut [u8], tag: u16, length: u32) {
    let [a, b] = tag.to_le_bytes();
    to[..4].copy_from_slice(&(length + RREAD_PAYLOAD_AT as u32).to_le_bytes());
    to[4..HEADER_BYTES].copy_from_slice(&[RREAD, a, b]);
    to[HEADER_BYTES..].copy_from_slice(&length.to_le_bytes());
}

/// The number of an Rread.
pub(crate) const RREAD: u8 = 117;
/// Header and length: what comes before the payload of an Rread.
pub(crate) const RREAD_PAYLOAD_AT: usize = HEADER_BYTES + 4;
/// Header, fid, offset and count; behind those of a Twrite its data follows.
pub(crate) const DATA_HEAD_BYTES: usize = HEADER_BYTES + 4 + 8 + 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Errno;

    fn bytes(mut out: Segments) -> Vec<u8> {
        out.runs().flatten().copied().collect()
    }

    #[test]
    fn a_payload_that_was_read_in_place_makes_the_same_message() {
        let (mut direct, mut encoded) = (Segments::new(), Segments::new());
        for length in [0, 1, 5000] {
            let data = vec![length as u8; length];
            let message = Message::Rread { data: data.clone().into() };
            message.put(9, Dialect::Linux, &mut encoded);
            let put = put_rread(9, 5000, &mut direct, |out| {
                out.extend_from_slice(&data);
                Ok(true)
            });
            assert_eq!(put, Ok(true));
        }
        assert!(bytes(direct) == bytes(encoded));
    }

    #[test]
    fn a_read_is_known_where_it_lies() {
        let mut out = Segments::new();
        let read =
            Message::Tread { fid: 0x0102_0304, offset: 0x1122_3344_5566_7788, count: 0xa0b0 };
        read.put(0x0909, Dialect::Linux, &mut out);
        Message::Tclunk { fid: 1 }.put(2, Dialect::Linux, &mut out);
        let bytes = bytes(out);
        let found = front_read(&bytes).expect("it is a read");
        assert_eq!((found.tag, found.fid), (0x0909, 0x0102_0304));
        assert_eq!((found.offset, found.count), (0x1122_3344_5566_7788, 0xa0b0));
        assert!(front_read(&bytes[..DATA_HEAD_BYTES - 1]).is_none(), "not all there");
        assert!(front_read(&bytes[DATA_HEAD_BYTES..]).is_none(), "another");
        let long = [&[24], &bytes[1..], &[0; 9]].concat();
        assert!(front_read(&long).is_none(), "a length that no read has is told by the decoder");
    }

    #[test]
    fn more_than_was_asked_for_is_cut_off() {
        let mut out = Segments::new();
        let put = put_rread(9, 3, &mut out, |out| {
            out.extend_from_slice(b"abcdef");
            Ok(true)
        });
        assert_eq!(put, Ok(true));
        assert_eq!(bytes(out), b"\x0e\0\0\0\x75\x09\0\x03\0\0\0abc");
    }

    #[test]
    fn a_read_that_fails_or_declines_leaves_no_trace() {
        let mut out = Segments::new();
        let mut read = |answer: Answer<bool>| {
            put_rread(9, 3, &mut out, |out| {
                out.push(1);
                answer
            })
        };
        assert_eq!(read(Err(Errno::EIO.into())), Err(Errno::EIO.into()));
        assert_eq!(read(Ok(false)), Ok(false));
        assert!(out.is_empty());
    }

    /// A few messages, one after the other, and where the payload of the last one begins.
    fn stream() -> (Vec<u8>, usize) {
        let mut out = Segments::new();
        let messages = [
            Message::Rwrite { count: 5 },
            Message::Rread { data: vec![1; 300].into() },
            Message::Rclunk {},
            Message::Rread { data: vec![2; 500].into() },
        ];
        for message in messages {
            message.put(7, Dialect::Linux, &mut out);
        }
        let bytes = bytes(out);
        let payload_at = bytes.len() - 500;
        (bytes, payload_at)
    }

    #[test]
    fn messages_are_the_same_wherever_placed_memory_begins_and_ends() {
        let (bytes, _) = stream();
        for begin in 0..=bytes.len() {
            for end in [begin, begin + 1, begin + 6, begin + 11, begin + 300, bytes.len()] {
                let end = end.min(bytes.len());
                let mut input = BytesMut::from(&bytes[..begin]);
                let mut placed = Bytes::copy_from_slice(&bytes[begin..end]);
                let (mut out, mut found) = (Segments::new(), 0);
                for rest in [&[][..], &bytes[end..]] {
                    input.extend_from_slice(rest);
                    while let Some(frame) = next(&mut input, &mut placed, 4096).unwrap() {
                        frame.message(Dialect::Linux).unwrap().put(7, Dialect::Linux, &mut out);
                        found += 1;
                    }
                    assert!(placed.is_empty(), "what is left of it waits in the input");
                }
                assert_eq!((found, input.len()), (4, 0), "{begin} {end}");
                assert!(self::bytes(out) == bytes, "{begin} {end}");
            }
        }
    }

    #[test]
    fn a_payload_that_was_placed_stays_where_it_is() {
        let (bytes, payload_at) = stream();
        let placed = Bytes::copy_from_slice(&bytes[payload_at..]);
        let (mut input, mut rest) = (BytesMut::from(&bytes[..payload_at]), placed.clone());
        let mut last = None;
        while let Some(frame) = next(&mut input, &mut rest, 4096).unwrap() {
            last = Some(frame.message(Dialect::Linux).unwrap());
        }
        let Some(Message::Rread { data }) = last else { panic!("the last one is an Rread") };
        assert_eq!(data.into_bytes().as_ptr(), placed.as_ptr());
    }

    #[test]
    fn odd_sizes_are_refused_in_placed_memory_too() {
        for size in [0_u32, 6, 4097, u32::MAX] {
            let bytes = [&size.to_le_bytes()[..], &[117, 0, 0]].concat();
            for begin in 0..=bytes.len() {
                let mut input = BytesMut::from(&bytes[..begin]);
                let mut placed = Bytes::copy_from_slice(&bytes[begin..]);
                assert!(next(&mut input, &mut placed, 4096).is_err(), "{size} {begin}");
            }
        }
    }
}
