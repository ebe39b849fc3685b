//! Payloads: runs of data that are passed on and never looked at.

use crate::{Blame, Field, FileRange, Reader, Segments};
use bytes::Bytes;
use std::fmt;

/// A run of data: a 32-bit length and bytes, shared with the buffer it arrived in. To be sent it
/// may be several pieces, which are never joined, or ranges of files, which never come into memory.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Payload {
    pieces: Vec<Bytes>,
    /// Instead of pieces: never both.
    ranges: Vec<FileRange>,
}

impl Payload {
    /// A payload made of pieces in order, none of them copied.
    pub fn gather(pieces: Vec<Bytes>) -> Self {
        Payload { pieces, ranges: Vec::new() }
    }

    /// A payload that is to be sent from a file. It is not in memory: nobody may look at it.
    pub fn of_file(range: FileRange) -> Self {
        Payload { pieces: Vec::new(), ranges: vec![range] }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        let ranges: usize = self.ranges.iter().map(|range| range.length).sum();
        self.pieces.iter().map(Bytes::len).sum::<usize>() + ranges
    }

    /// Whether there is no byte in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether its bytes are in files, and not in memory.
    pub fn is_in_files(&self) -> bool {
        !self.ranges.is_empty()
    }

    /// The pieces in order; none of a payload that is in files.
    pub fn pieces(&self) -> &[Bytes] {
        &self.pieces
    }

    /// Those of its bytes that `parts` name, by first byte and length, one part after another, shared.
    pub fn select(&self, parts: &[(u64, u64)]) -> Payload {
        let slice = |piece: &Bytes, from, to| piece.slice(from..to);
        Payload {
            pieces: select(&self.pieces, parts, Bytes::len, slice),
            ranges: select(&self.ranges, parts, |range| range.length, FileRange::slice),
        }
    }

    /// Appends its bytes to what is to be sent, none of them copied.
    pub fn send(&self, out: &mut Segments) {
        self.pieces.iter().for_each(|piece| out.shared(piece.clone()));
        self.ranges.iter().for_each(|range| out.file_range(range.clone()));
    }

    /// One run of bytes; copies only when there is more than one piece. A received payload has one.
    pub fn into_bytes(mut self) -> Bytes {
        assert!(self.ranges.is_empty(), "{IN_FILES}");
        match self.pieces.len() {
            0 => Bytes::new(),
            1 => self.pieces.remove(0),
            _ => self.pieces.concat().into(),
        }
    }
}

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Self {
        Payload::gather(vec![bytes])
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        Payload::gather(vec![bytes.into()])
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{} bytes>", self.len())
    }
}

impl<C: crate::Context> Field<C> for Payload {
    fn size(&self, _: C) -> usize {
        4 + self.len()
    }
    /// Copies the pieces. Senders of large payloads use [`crate::Segments`] and do not come here.
    fn put(&self, c: C, out: &mut Vec<u8>) {
        assert!(self.ranges.is_empty(), "{IN_FILES}");
        u32::try_from(self.len()).expect("payloads are bounded by msize").put(c, out);
        for piece in &self.pieces {
            out.extend_from_slice(piece);
        }
    }
    fn get(c: C, from: &mut Reader) -> Result<Self, Blame> {
        let length = u32::get(c, from)? as usize;
        Ok(from.bytes(length)?.into())
    }
}

/// The named parts of `runs`, which lie one after another.
fn select<T>(
    runs: &[T],
    parts: &[(u64, u64)],
    length: impl Fn(&T) -> usize,
    slice: impl Fn(&T, usize, usize) -> T,
) -> Vec<T> {
    let mut out = Vec::with_capacity(if runs.is_empty() { 0 } else { parts.len() });
    for &(from, bytes) in parts {
        let (mut from, mut bytes) = (from as usize, bytes as usize);
        for run in runs {
            if bytes == 0 {
                break;
            }
            if from >= length(run) {
                from -= length(run);
                continue;
            }
            let step = bytes.min(length(run) - from);
            out.push(slice(run, from, from + step));
            bytes -= step;
            from = 0;
        }
    }
    out
}

/// Said when somebody looks.
const IN_FILES: &str = "a payload in files is sent, never looked at";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Piece;
    use std::sync::Arc;

    #[test]
    fn parts_are_selected_in_the_order_they_are_named() {
        let whole = Payload::gather(vec![b"abcd"[..].into(), b"efgh"[..].into()]);
        let some = whole.select(&[(6, 2), (1, 4), (3, 0), (7, 9)]);
        assert_eq!(some.into_bytes(), &b"ghbcdeh"[..]);
    }

    #[test]
    fn what_is_in_a_file_is_selected_and_sent_as_ranges() {
        let file: Arc<dyn std::any::Any + Send + Sync> = Arc::new(());
        let range = |offset, length| FileRange { file: file.clone(), offset, length };
        let whole = Payload::of_file(range(1000, 500));
        assert_eq!((whole.len(), Field::<()>::size(&whole, ())), (500, 504));
        let some = whole.select(&[(400, 100), (0, 10)]);
        assert_eq!(some.ranges, [range(1400, 100), range(1000, 10)]);
        let mut out = Segments::new();
        some.send(&mut out);
        assert_eq!(out.len(), 110);
        assert!(
            matches!(out.pieces().next(), Some(Piece::File(first)) if *first == range(1400, 100))
        );
    }

    #[test]
    #[should_panic(expected = "never looked at")]
    fn nobody_looks_at_what_is_in_a_file() {
        Payload::of_file(FileRange { file: Arc::new(()), offset: 0, length: 1 }).into_bytes();
    }
}
