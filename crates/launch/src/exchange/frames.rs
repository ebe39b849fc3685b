//! Frames out of a stream of bytes, and back.

use super::message::{Down, Up};
use covey_wire::{Blame, Bytes, BytesMut, Reader};
use std::marker::PhantomData;

/// A message that travels in frames.
pub trait Framed: Sized {
    /// Its number and fields.
    fn take(number: u8, reader: &mut Reader) -> Result<Self, Blame>;
    /// Appends its number and fields.
    fn put(&self, out: &mut Vec<u8>);
}

macro_rules! framed {
    ($($type:ident)*) => {
        $(impl Framed for $type {
            fn take(number: u8, reader: &mut Reader) -> Result<Self, Blame> {
                $type::take_body(number, (), reader)
            }
            fn put(&self, out: &mut Vec<u8>) {
                out.push(self.number());
                self.put_body((), out);
            }
        })*
    };
}
framed! { Up Down }

/// A message as a frame.
pub fn encode(message: &impl Framed) -> Bytes {
    let mut out = vec![0; 4];
    message.put(&mut out);
    let length = (out.len() - 4) as u32;
    out[..4].copy_from_slice(&length.to_le_bytes());
    out.into()
}

/// Takes a stream apart.
#[derive(Debug)]
pub struct Frames<M> {
    bytes: BytesMut,
    message: PhantomData<M>,
}

impl<M> Default for Frames<M> {
    fn default() -> Self {
        Frames { bytes: BytesMut::new(), message: PhantomData }
    }
}

impl<M: Framed> Frames<M> {
    /// Bytes have come.
    pub fn push(&mut self, data: &[u8]) {
        self.bytes.extend_from_slice(data);
    }

    /// The next message, when all of it is there.
    pub fn take_next(&mut self) -> Result<Option<M>, Blame> {
        let Some((length, rest)) = self.bytes.split_first_chunk() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if length == 0 || length > FRAME_BYTES_MAX {
            let what = format!("a frame of {length} bytes, limit is {FRAME_BYTES_MAX}");
            return Err(Blame::Malformed(what));
        }
        if rest.len() < length {
            return Ok(None);
        }
        let mut frame = Reader::new(self.bytes.split_to(4 + length).freeze().slice(4..));
        let message = M::take(frame.u8()?, &mut frame)?;
        frame.finish()?;
        Ok(Some(message))
    }
}

/// The longest frame, without its length: all that a fence can bring, and some fields.
pub const FRAME_BYTES_MAX: usize = super::FENCE_BYTES_MAX + (1 << 20);

#[cfg(test)]
mod tests {
    use super::*;
    use covey_wire::List;

    #[test]
    fn a_frame_is_its_length_its_number_and_its_fields() {
        let gone = Up::Gone { rank: 5 };
        assert_eq!(encode(&gone)[..], [5, 0, 0, 0, 6, 5, 0, 0, 0]);
        let fence = Up::Fence { space: 2, ranks: List(vec![7]), data: b"xy".to_vec().into() };
        let bytes = [16, 0, 0, 0, 2, 2, 1, 0, 7, 0, 0, 0, 2, 0, 0, 0, b'x', b'y'];
        assert_eq!(encode(&fence)[4..], bytes[4..]);
        assert_eq!(encode(&fence).len(), 4 + 14);
    }

    #[test]
    fn frames_are_read_back_in_any_pieces() {
        let all = [
            Down::Start {
                job: "j".into(),
                node: 1,
                nodes: List(vec!["a".into(), "b".into()]),
                ranks: List(vec![2, 2]),
            },
            Down::Ask { asker: 1, token: 2, rank: 3 },
            Down::Answer { token: 2, ok: true, data: vec![1, 2, 3].into() },
        ];
        let bytes: Vec<u8> = all.iter().flat_map(encode).collect();
        for step in [1, 3, bytes.len()] {
            let (mut frames, mut found) = (Frames::<Down>::default(), Vec::new());
            for piece in bytes.chunks(step) {
                frames.push(piece);
                while let Some(message) = frames.take_next().unwrap() {
                    found.push(message);
                }
            }
            assert_eq!(found, all);
        }
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        for bytes in
            [&[0, 0, 0, 0][..], &[0xff; 8], &[1, 0, 0, 0, 99], &[6, 0, 0, 0, 6, 5, 0, 0, 0, 0]]
        {
            let mut frames = Frames::<Up>::default();
            frames.push(bytes);
            assert!(frames.take_next().is_err(), "{bytes:?}");
        }
    }
}
