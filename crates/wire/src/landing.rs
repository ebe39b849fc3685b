//! Memory of a user's that a payload is received into.

use bytes::BytesMut;

/// The place of a payload: the front of a buffer, which is filled from its beginning. It has the buffer for itself, so
/// that nobody who has lost interest finds it written to.
#[derive(Debug, Default)]
pub struct Landing {
    buffer: BytesMut,
    filled: usize,
    bytes: usize,
}

impl Landing {
    /// The first `bytes` of a buffer, or all of a shorter one.
    pub fn new(buffer: BytesMut, bytes: usize) -> Landing {
        let bytes = bytes.min(buffer.len());
        Landing { buffer, filled: 0, bytes }
    }

    /// What is to be filled yet.
    pub fn room(&mut self) -> &mut [u8] {
        &mut self.buffer[self.filled..self.bytes]
    }

    /// How much that is.
    pub fn wanted(&self) -> usize {
        self.bytes - self.filled
    }

    /// So much of it was filled.
    pub fn advance(&mut self, bytes: usize) {
        assert!(bytes <= self.wanted(), "{bytes} bytes were put where {} fit", self.wanted());
        self.filled += bytes;
    }

    /// Copies as many bytes as fit; how many that were.
    pub fn put(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.wanted());
        self.room()[..count].copy_from_slice(&bytes[..count]);
        self.advance(count);
        count
    }

    /// The buffer, cut to what was filled.
    pub fn into_buffer(mut self) -> BytesMut {
        self.buffer.truncate(self.filled);
        self.buffer
    }
}
