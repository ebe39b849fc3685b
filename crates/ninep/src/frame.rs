//! Cutting the stream of a connection into messages, for both machines.

use crate::message::{HEADER_BYTES, Message};
use crate::runs;
use covey_wire::{Blame, Bytes, BytesMut};

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
