//! Cutting the stream of a connection into messages, for both machines.

use crate::message::{HEADER_BYTES, Message};
use crate::runs;
use crate::tree::Result as Answer;
use covey_wire::{Blame, Bytes, BytesMut, FileRange, Loan, Reader, Segments};

/// One whole message, header included, sharing the buffer that it arrived in.
pub(crate) struct Frame {
    pub number: u8,
    pub tag: u16,
    pub bytes: Bytes,
}

/// Takes the message at the front of `input` off it; `None` while it is not all there.
pub(crate) fn next(input: &mut BytesMut, msize: u32) -> Result<Option<Frame>, Blame> {
    let Some(&[a, b, c, d, number, e, f]) = input.first_chunk::<HEADER_BYTES>() else {
        return Ok(None);
    };
    let (size, tag) = (u32::from_le_bytes([a, b, c, d]), u16::from_le_bytes([e, f]));
    if size < HEADER_BYTES as u32 {
        return Err(Blame::Malformed(format!("message of {size} bytes, a header is 7")));
    }
    if size > msize {
        let what = format!("message {number} of {size} bytes is over the msize of {msize}");
        return Err(Blame::Malformed(what));
    }
    if input.len() < size as usize {
        return Ok(None);
    }
    Ok(Some(Frame { number, tag, bytes: input.split_to(size as usize).freeze() }))
}

/// A Tread, as it lies in the stream.
pub(crate) struct ReadFrame {
    pub tag: u16,
    pub fid: u32,
    pub offset: u64,
    pub count: u32,
}

/// The message at the front of `input` if it is a whole Tread: the most frequent one, and so short that to
/// share its buffer and to keep its fields in a [`Message`] takes as long as the rest of its answer.
pub(crate) fn front_read(input: &[u8]) -> Option<ReadFrame> {
    const TREAD: u8 = 116;
    let (frame, _) = input.split_first_chunk::<READ_FRAME_BYTES>()?;
    let [a, b, c, d, TREAD, e, f, rest @ ..] = frame else { return None };
    let (fid, rest) = rest.split_first_chunk()?;
    let (offset, count) = rest.split_first_chunk()?;
    let is_whole = u32::from_le_bytes([*a, *b, *c, *d]) as usize == READ_FRAME_BYTES;
    is_whole.then_some(ReadFrame {
        tag: u16::from_le_bytes([*e, *f]),
        fid: u32::from_le_bytes(*fid),
        offset: u64::from_le_bytes(*offset),
        count: u32::from_le_bytes(count.try_into().ok()?),
    })
}

/// A Twrite without its data.
pub(crate) struct WriteHead {
    pub tag: u16,
    pub fid: u32,
    pub offset: u64,
    pub count: u32,
}

/// What `head`, of [`WRITE_HEAD_BYTES`] bytes, begins, if that is a Twrite within `msize`.
pub(crate) fn write_head(head: &[u8], msize: u32) -> Option<WriteHead> {
    const TWRITE: u8 = 118;
    let mut from = Reader::new(Bytes::copy_from_slice(head));
    let (size, number) = (from.u32().ok()?, from.u8().ok()?);
    let tag = from.u16().ok()?;
    let (fid, offset, count) = (from.u32().ok()?, from.u64().ok()?, from.u32().ok()?);
    let is_whole = size.checked_sub(count) == Some(WRITE_HEAD_BYTES as u32) && size <= msize;
    (number == TWRITE && is_whole).then_some(WriteHead { tag, fid, offset, count })
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
        Message::Twritelist { data, .. } => data.len(),
        Message::Treadlist { runs, .. } => runs::total(&runs.0).min(msize.into()) as usize,
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
/// nothing when `read` fails or declines.
pub(crate) fn put_rread(
    tag: u16,
    count: u32,
    out: &mut Segments,
    read: impl FnOnce(&mut Vec<u8>) -> Option<Answer<()>>,
) -> Option<Answer<()>> {
    out.append_with(RREAD_PAYLOAD_AT + count as usize, |out| {
        let start = out.len();
        let payload_at = start + RREAD_PAYLOAD_AT;
        out.resize(payload_at, 0);
        let answer = read(out);
        if !matches!(answer, Some(Ok(()))) {
            out.truncate(start);
            return answer;
        }
        out.truncate(payload_at + count as usize);
        let header = rread_header(tag, (out.len() - payload_at) as u32);
        out[start..payload_at].copy_from_slice(&header);
        answer
    })
}

/// What comes before the payload of an Rread.
fn rread_header(tag: u16, length: u32) -> [u8; RREAD_PAYLOAD_AT] {
    const RREAD: u8 = 117;
    let mut header = [0; RREAD_PAYLOAD_AT];
    let [a, b] = tag.to_le_bytes();
    header[..4].copy_from_slice(&(length + RREAD_PAYLOAD_AT as u32).to_le_bytes());
    header[4..HEADER_BYTES].copy_from_slice(&[RREAD, a, b]);
    header[HEADER_BYTES..].copy_from_slice(&length.to_le_bytes());
    header
}

const RREAD_PAYLOAD_AT: usize = HEADER_BYTES + 4;
/// Header, fid, offset and count.
pub(crate) const READ_FRAME_BYTES: usize = HEADER_BYTES + 4 + 8 + 4;
/// Header, fid, offset and count: the data follows.
pub(crate) const WRITE_HEAD_BYTES: usize = HEADER_BYTES + 4 + 8 + 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Dialect;
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
                Some(Ok(()))
            });
            assert_eq!(put, Some(Ok(())));
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
        assert!(front_read(&bytes[..READ_FRAME_BYTES - 1]).is_none(), "not all there");
        assert!(front_read(&bytes[READ_FRAME_BYTES..]).is_none(), "another");
        let long = [&[24], &bytes[1..], &[0; 9]].concat();
        assert!(front_read(&long).is_none(), "a length that no read has is told by the decoder");
    }

    #[test]
    fn more_than_was_asked_for_is_cut_off() {
        let mut out = Segments::new();
        let put = put_rread(9, 3, &mut out, |out| {
            out.extend_from_slice(b"abcdef");
            Some(Ok(()))
        });
        assert_eq!(put, Some(Ok(())));
        assert_eq!(bytes(out), b"\x0e\0\0\0\x75\x09\0\x03\0\0\0abc");
    }

    #[test]
    fn a_read_that_fails_or_declines_leaves_no_trace() {
        let mut out = Segments::new();
        let mut read = |answer: Option<Answer<()>>| {
            put_rread(9, 3, &mut out, |out| {
                out.push(1);
                answer
            })
        };
        assert_eq!(read(Some(Err(Errno::EIO.into()))), Some(Err(Errno::EIO.into())));
        assert_eq!(read(None), None);
        assert!(out.is_empty());
    }
}
