//! Cutting the stream of a connection into PDUs, and putting them on it.
//!
//! ```text
//!   header[48] additional headers[4 n] (header digest[4]) data[m] zeros[to 4] (data digest[4])      RFC 7143, 11.1
//! ```
//!
//! Data shares the buffer that it arrived in: it is never copied here.

use crate::digest::{DIGEST_BYTES, crc32c, of_data, padding};
use crate::message::{HEADER_BYTES, Header, IMMEDIATE, Lengths, OPCODE};
use covey_wire::{Blame, Bytes, BytesMut, Payload, Segments};

/// Which parts carry digests (RFC 7143, 13.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    /// Headers do.
    pub header: bool,
    /// Data does.
    pub data: bool,
}

/// What this side takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// MaxRecvDataSegmentLength: bytes of data in one PDU.
    pub data_bytes_max: u32,
    /// The digests agreed on.
    pub digests: Digests,
}

/// A PDU that has arrived.
#[derive(Clone, Debug, PartialEq)]
pub struct Pdu {
    /// Whether it is for immediate delivery.
    pub is_immediate: bool,
    /// Its header, or its opcode where there is no such PDU.
    pub header: Result<Header, u8>,
    /// The header as it came, for a Reject.
    pub raw: Bytes,
    /// The additional headers.
    pub ahs: Bytes,
    /// The data, without padding.
    pub data: Bytes,
    /// Whether the data is what was sent.
    pub is_sound: bool,
}

/// Where the parts of a PDU lie.
struct Shape {
    ahs: usize,
    header_digest: usize,
    data: usize,
    padding: usize,
    data_digest: usize,
}

impl Shape {
    fn of(header: &[u8], limits: Limits) -> Result<Shape, Blame> {
        let Some(&[opcode, _, _, _, ahs, a, b, c]) = header.first_chunk() else {
            return Err(Blame::Malformed("a header is cut off".into()));
        };
        let data = u32::from(a) << 16 | u32::from(b) << 8 | u32::from(c);
        if data > limits.data_bytes_max {
            let (opcode, most) = (opcode & OPCODE, limits.data_bytes_max);
            let what =
                format!("PDU {opcode:#04x} has {data} bytes of data, at most {most} are taken");
            return Err(Blame::Violation(what));
        }
        let data = data as usize;
        let Digests { header, data: on_data } = limits.digests;
        Ok(Shape {
            ahs: usize::from(ahs) * 4,
            header_digest: if header { DIGEST_BYTES } else { 0 },
            data,
            padding: padding(data),
            data_digest: if on_data && data > 0 { DIGEST_BYTES } else { 0 },
        })
    }

    fn head_bytes(&self) -> usize {
        HEADER_BYTES + self.ahs + self.header_digest
    }

    fn bytes(&self) -> usize {
        self.head_bytes() + self.data + self.padding + self.data_digest
    }
}

/// How many bytes the PDU at the front of `input` still needs.
pub fn bytes_wanted(input: &[u8], limits: Limits) -> usize {
    if input.len() < HEADER_BYTES {
        return HEADER_BYTES - input.len();
    }
    // A PDU that is too long ends the connection in `next`: nobody must make room for it.
    Shape::of(input, limits).map_or(0, |shape| shape.bytes().saturating_sub(input.len()))
}

/// How many bytes are needed next: to the end of a header, or of the PDU whose header is all there.
pub(crate) fn head_bytes_wanted(input: &[u8], limits: Limits) -> usize {
    let digest = if limits.digests.header { DIGEST_BYTES } else { 0 };
    match (HEADER_BYTES + digest).saturating_sub(input.len()) {
        0 => bytes_wanted(input, limits),
        missing => missing,
    }
}

/// Takes the next PDU off `input`; `None` while it is not all there. An error ends the connection: what follows cannot be
/// told from data.
pub fn next(input: &mut BytesMut, limits: Limits) -> Result<Option<Pdu>, Blame> {
    if input.len() < HEADER_BYTES {
        return Ok(None);
    }
    let shape = Shape::of(input, limits)?;
    let checked = HEADER_BYTES + shape.ahs;
    // A header is checked before anything in it is believed, its length above all.
    //= rfc7143#7.7
    // A header digest error at level 0 ends the connection.
    if shape.header_digest > 0 && input.len() >= shape.head_bytes() {
        let digest = &input[checked..shape.head_bytes()];
        if crc32c([&input[..checked]]) != digest {
            return Err(Blame::Malformed("the digest of a header is wrong".into()));
        }
    }
    if input.len() < shape.bytes() {
        return Ok(None);
    }
    let whole = input.split_to(shape.bytes()).freeze();
    cut(whole, &shape).map(Some)
}

/// Takes the PDU whose header is `head`, and whose data is `placed`, in memory of its own. `None`, and `head` as it was, where
/// the two are not one PDU without digests and padding.
pub fn next_placed(
    head: &mut BytesMut,
    placed: &Bytes,
    limits: Limits,
) -> Result<Option<Pdu>, Blame> {
    if head.len() != HEADER_BYTES {
        return Ok(None);
    }
    let shape = Shape::of(head, limits)?;
    let is_bare = shape.head_bytes() == HEADER_BYTES && shape.bytes() == HEADER_BYTES + shape.data;
    if !is_bare || shape.data != placed.len() {
        return Ok(None);
    }
    let whole = head.split_to(HEADER_BYTES).freeze();
    let bare = Shape { data: 0, padding: 0, ..shape };
    cut(whole, &bare).map(|pdu| Some(Pdu { data: placed.clone(), ..pdu }))
}

fn cut(whole: Bytes, shape: &Shape) -> Result<Pdu, Blame> {
    let data_at = shape.head_bytes();
    let padded_end = data_at + shape.data + shape.padding;
    let digest = &whole[padded_end..];
    let is_sound = digest.is_empty() || crc32c([&whole[data_at..padded_end]]) == digest;
    let raw = whole.slice(..HEADER_BYTES);
    let (is_immediate, header) = match Header::take(raw.clone()) {
        Ok((is_immediate, header)) => (is_immediate, Ok(header)),
        Err(Blame::Unsupported(_)) => (raw[0] & IMMEDIATE != 0, Err(raw[0] & OPCODE)),
        Err(blame) => return Err(blame),
    };
    Ok(Pdu {
        is_immediate,
        header,
        ahs: whole.slice(HEADER_BYTES..HEADER_BYTES + shape.ahs),
        data: whole.slice(data_at..data_at + shape.data),
        raw,
        is_sound,
    })
}

/// Puts a PDU without data.
pub fn put(header: &Header, is_immediate: bool, digests: Digests, out: &mut Segments) {
    out.small(|out| put_head(header, is_immediate, digests, out));
}

fn put_head(header: &Header, is_immediate: bool, digests: Digests, out: &mut Vec<u8>) {
    let start = out.len();
    header.put(is_immediate, out);
    debug_assert_eq!(out.len() - start, HEADER_BYTES, "{}", header.name());
    if digests.header {
        let digest = crc32c([&out[start..]]);
        out.extend_from_slice(&digest);
    }
}

/// Puts a PDU with data, whose length the header has. Data in files must not need a digest.
pub fn put_with_data(
    header: &Header,
    is_immediate: bool,
    data: &Payload,
    digests: Digests,
    out: &mut Segments,
) {
    put(header, is_immediate, digests, out);
    data.send(out);
    let zeros = padding(data.len());
    if zeros > 0 {
        out.small(|out| out.extend_from_slice(&[0; 3][..zeros]));
    }
    if digests.data && !data.is_empty() {
        let digest = of_data(data.pieces());
        out.small(|out| out.extend_from_slice(&digest));
    }
}

/// The lengths of a PDU with this data.
pub fn lengths(data: &Payload) -> Lengths {
    Lengths::of_data(data.len())
}

/// Whether a digest of the data can be made: none of it lies in a file.
pub fn is_in_memory(data: &Payload) -> bool {
    data.pieces().iter().map(Bytes::len).sum::<usize>() == data.len()
}

#[cfg(test)]
mod tests;
