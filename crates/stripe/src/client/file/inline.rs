//! The beginning of a file that lies with its metadata: read and written by operations on the
//! metadata server, which move size and times at once.

use super::OpenFile;
use crate::client::beside::Asker;
use crate::client::session::unexpected;
use crate::client::{Result, Shared};
use crate::distribution::Distribution;
use crate::ops::{Caller, InlinePiece, Op, Reply};
use crate::view::Batch;
use covey_ninep::tree::Errno;
use covey_wire::{Bytes, BytesMut, List, Payload};

/// Bytes of a request around its data and pieces.
const REQUEST_BYTES: u32 = 1024;
/// Bytes of a piece on the wire.
const PIECE_BYTES: usize = 8;

/// What a write says of the size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Growth {
    /// The size becomes at least this; 0 for a place that was reserved.
    pub end: u64,
    /// Some of what lies between the old size and `end` is not written.
    pub hole: bool,
}

impl OpenFile {
    /// Bytes at the beginning that lie with the metadata.
    pub(in crate::client) fn inline_bytes(&self) -> u64 {
        self.map.inline_bytes()
    }

    /// What a write from `start` to `end` has to say of the size, where `size` is known. What lies
    /// with the metadata always says it: a size that small may have been cut since.
    pub(super) fn growth(&self, start: u64, end: u64, size: u64, hole: bool) -> Option<Growth> {
        (end > size || start < self.inline_bytes()).then_some(Growth { end, hole })
    }

    /// The size now, with the inline bytes from `offset` up to `end` as far as the file goes.
    pub(super) async fn read_inline(
        &self,
        fs: &Shared,
        offset: u64,
        end: u64,
    ) -> Result<(u64, Bytes)> {
        let end = end.min(self.inline_bytes());
        if let Some((size, content)) = self.content(fs).await {
            let there = content.len();
            let range = there.min(offset as usize)..there.min(end as usize);
            return Ok((size, content.slice(range)));
        }
        // Who reads from the beginning goes on, most often.
        let is_kept = offset == 0 && fs.session.cache().is_on();
        let ask_end = if is_kept { self.inline_bytes() } else { end };
        let mut had = Bytes::new();
        loop {
            let at = offset + had.len() as u64;
            let count = (ask_end.saturating_sub(at) as u32).min(data_bytes_max(fs));
            let op = Op::ReadInline { id: self.id, offset: at as u32, count };
            let (inode, data) = match fs.session.ask(&Caller::default(), op).await {
                Ok(Reply::Inline { inode, data }) => (inode, data.into_bytes()),
                Ok(other) => return Err(unexpected(&other)),
                // A new connection takes less.
                Err(error) if error.code() == Errno::EOVERFLOW && count > data_bytes_max(fs) => {
                    continue;
                }
                Err(error) => return Err(error),
            };
            self.refresh(&inode);
            let is_cut = data.len() < count as usize;
            had = if had.is_empty() { data } else { [had, data].concat().into() };
            // More than one answer only where messages are small.
            if is_cut || offset + had.len() as u64 >= ask_end {
                let wanted = had.len().min((end - offset.min(end)) as usize);
                return Ok((inode.size, had.slice(..wanted)));
            }
        }
    }

    /// The size and all that lies with the metadata, where that is known or comes with what others hold.
    pub(in crate::client) async fn content(&self, fs: &Shared) -> Option<(u64, Bytes)> {
        let (session, cache) = (&fs.session, fs.session.cache());
        let known = || {
            let known = cache.content(self.id, fs.net.now());
            known.map(|held| (held.size, held.content))
        };
        if let Some(known) = known() {
            return Some(known);
        }
        let (parent, name, ahead) = cache.content_ahead(self.id, fs.net.now())?;
        let op = Op::Lookup { parent, name, ahead, content: true };
        session.ask(&Caller::default(), op).await.ok()?;
        known()
    }

    /// Writes `data`, the bytes of all pieces, and tells of the growth with the last of it.
    pub(super) async fn write_inline(
        &self,
        fs: &Shared,
        epoch: u32,
        growth: Growth,
        mut pieces: Vec<InlinePiece>,
        mut data: Bytes,
    ) -> Result<()> {
        // What the I/O servers have of it is there: whoever is told of the growth may read it.
        if let [piece] = &pieces[..] {
            let said = (epoch, growth.end, growth.hole);
            if fs.session.write_late(&self.writer(), self.id, said, *piece, &data) {
                self.lock().is_told = true;
                return Ok(());
            }
        }
        loop {
            let most = data_bytes_max(fs) as usize;
            let count = fitting(&mut pieces, most);
            let (now, rest) = pieces.split_at(count);
            let bytes: usize = now.iter().map(|piece| piece.bytes as usize).sum();
            let is_last = rest.is_empty();
            let op = Op::WriteInline {
                id: self.id,
                epoch,
                end: if is_last { growth.end } else { 0 },
                hole: is_last && growth.hole,
                pieces: List(now.to_vec()),
                data: data.slice(..bytes).into(),
            };
            match fs.session.change(&self.writer(), op).await {
                Ok(Reply::Node { inode }) => self.refresh(&inode),
                Ok(other) => return Err(unexpected(&other)),
                // A new connection takes less.
                Err(error)
                    if error.code() == Errno::E2BIG && most > data_bytes_max(fs) as usize =>
                {
                    continue;
                }
                Err(error) => return Err(error),
            }
            self.lock().is_told = true;
            if is_last {
                return Ok(());
            }
            data = data.slice(bytes..);
            pieces.drain(..count);
        }
    }

    /// The inline part of a view to be written.
    pub(super) async fn write_inline_batches(
        &self,
        fs: &Shared,
        batches: &[Batch],
        epoch: u32,
        growth: Growth,
        data: &Bytes,
    ) -> Result<()> {
        let pieces = batches.iter().flat_map(|batch| &batch.pieces);
        let piece = |&(offset, bytes): &(u64, u32)| InlinePiece { offset: offset as u32, bytes };
        let pieces: Vec<_> = pieces.map(piece).collect();
        let mut all = BytesMut::new();
        for batch in batches {
            batch.gather(data).pieces().iter().for_each(|piece| all.extend_from_slice(piece));
        }
        self.write_inline(fs, epoch, growth, pieces, all.freeze()).await
    }

    /// An append whose bytes all lie with the metadata; None where it needs a place of its own.
    pub(super) async fn append_inline(
        &self,
        fs: &Shared,
        data: &Payload,
        asker: Asker,
    ) -> Result<Option<u64>> {
        let length = data.len() as u64;
        let size = self.lock().size;
        let most = u64::from(data_bytes_max(fs));
        if size + length > self.inline_bytes() || length > most {
            return Ok(None);
        }
        let op = Op::AppendInline { id: self.id, data: data.clone() };
        match fs.session.change_for(asker, &self.writer(), op).await {
            Ok(Reply::Offset { offset, epoch }) => {
                self.wrote(fs, epoch, offset + length, true);
                Ok(Some(offset))
            }
            Ok(other) => Err(unexpected(&other)),
            Err(error) if matches!(error.code(), Errno::ERANGE | Errno::E2BIG) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Most bytes of data in one request to the metadata server, or in its answer.
fn data_bytes_max(fs: &Shared) -> u32 {
    fs.session.payload_max().saturating_sub(REQUEST_BYTES).max(REQUEST_BYTES)
}

/// How many of the pieces one request holds; cuts the last of them where it must.
fn fitting(pieces: &mut Vec<InlinePiece>, most: usize) -> usize {
    let mut room = most;
    for at in 0..pieces.len() {
        let piece = pieces[at];
        let needed = piece.bytes as usize + PIECE_BYTES;
        if needed <= room {
            room -= needed;
            continue;
        }
        let fits = room.saturating_sub(PIECE_BYTES) as u32;
        if fits == 0 {
            return at;
        }
        let rest = InlinePiece { offset: piece.offset + fits, bytes: piece.bytes - fits };
        pieces[at].bytes = fits;
        pieces.insert(at + 1, rest);
        return at + 1;
    }
    pieces.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_cut_to_what_a_request_holds() {
        let piece = |offset, bytes| InlinePiece { offset, bytes };
        let mut pieces = vec![piece(0, 100), piece(200, 100)];
        assert_eq!(fitting(&mut pieces, 216), 2);
        assert_eq!(fitting(&mut pieces, 215), 2);
        assert_eq!(pieces, [piece(0, 100), piece(200, 99), piece(299, 1)]);
        let mut pieces = vec![piece(0, 100), piece(200, 100)];
        assert_eq!(fitting(&mut pieces, 116), 1);
        assert_eq!(fitting(&mut pieces, 108), 1);
        assert_eq!(pieces.len(), 2);
    }
}
