//! Content that lies with its inode: the beginning of files with the progressive striping.
//!
//! A small file costs the metadata server alone: one operation creates and fills it, one finds, opens
//! and reads it. Its bytes are a row of their own, written in the same transaction as size and times,
//! so they are never torn, and durable as names are.
//!
//! The row may be shorter than the size: what is missing are zeros. It may be longer when an append
//! that has its place is written before it is committed, or when space was taken (by a piece without
//! bytes); nobody reads beyond the size.
//!
//! **Cuts.** A file whose bytes all lie here is cut without its epoch: no I/O server has anything
//! of it. A write that goes beyond says so when it begins (an Extend to 0), because it may end in the
//! middle: from then on the file is cut, and removed, like any other.

use super::attr::{check_end, must_be_regular};
use super::fault::{Fault, refuse};
use super::keys::{self, Stored, mark};
use super::permission::access;
use super::{Applied, Store};
use crate::distribution::INLINE_BYTES_MAX;
use crate::kv::Kv;
use crate::ops::{Id, InlinePiece, Inode, Op, Reply, Request};
use covey_ninep::tree::Errno;
use covey_wire::{Bytes, Name, Payload};

/// Pieces of one write.
const PIECES_MAX: usize = 16 * 1024;

impl<K: Kv> Store<K> {
    /// Writes pieces of the inline part, and raises the size to `end` as Extend does.
    pub(super) fn write_inline(&mut self, request: &Request) -> Result<Applied, Fault> {
        let &Op::WriteInline { id, epoch, end, hole, ref pieces, ref data } = &request.op else {
            return refuse(Errno::EINVAL, "no inline data");
        };
        let mut stored = self.stored(id)?;
        must_be_regular(&stored.inode)?;
        check_end(end)?;
        check_pieces(&stored.inode, &pieces.0, data)?;
        if epoch != stored.inode.epoch {
            let current = stored.inode.epoch;
            return refuse(Errno::ESTALE, format!("file {id} has epoch {current}, not {epoch}"));
        }
        self.must_have_room_to(request, &stored, end)?;
        self.put_inline(&mut stored, &pieces.0, data)?;
        stored.inode.sparse |= hole;
        self.grow(&mut stored, end)?;
        self.write_done(request, &mut stored)?;
        Ok(super::node(stored.inode))
    }

    /// Appends within the inline part in one step. ERANGE where that cannot be: it has no room, or
    /// other appends are under way. Then the append takes a place with Reserve.
    pub(super) fn append_inline(
        &mut self,
        request: &Request,
        id: Id,
        data: &Payload,
    ) -> Result<Applied, Fault> {
        let mut stored = self.stored(id)?;
        must_be_regular(&stored.inode)?;
        let (offset, length) = (stored.tail, data.len() as u64);
        let limit = stored.inode.inline_max();
        if offset != stored.inode.size || limit.saturating_sub(offset) < length {
            return refuse(Errno::ERANGE, format!("file {id} takes no append with its metadata"));
        }
        self.must_have_room_to(request, &stored, offset + length)?;
        self.clear_doubt(&mut stored, 0)?;
        let piece = InlinePiece { offset: offset as u32, bytes: length as u32 };
        self.put_inline(&mut stored, &[piece], data)?;
        self.grow(&mut stored, offset + length)?;
        self.write_done(request, &mut stored)?;
        Ok(Applied::Reply(Reply::Offset { offset, epoch: stored.inode.epoch }))
    }

    /// An inode with up to `count` bytes of its inline part from `offset`.
    pub(super) fn read_inline(&self, id: Id, offset: u32, count: u32) -> Result<Applied, Fault> {
        let inode = self.stored(id)?.inode;
        must_be_regular(&inode)?;
        self.with_inline(inode, offset, count)
    }

    /// Down the names (or at `from` itself), opened as by Open, and read.
    pub(super) fn open_read(&mut self, request: &Request) -> Result<Applied, Fault> {
        let Op::OpenRead { from, names, access, count } = &request.op else {
            return refuse(Errno::EINVAL, "not an open");
        };
        let mut here = *from;
        for name in &names.0 {
            let dir = self.stored(here)?.inode;
            here = self.step(&request.caller, &dir, name)?.id;
        }
        let Applied::Reply(Reply::Node { inode }) = self.open_file(request, here, *access)? else {
            return refuse(Errno::EIO, "the file was not opened");
        };
        let reads = inode.is_regular() && access & access::READ != 0;
        self.with_inline(inode, 0, if reads { *count } else { 0 })
    }

    /// Creates as Create does, opens, and writes what of `data` lies with the inode. A file that was
    /// there is opened and not written.
    pub(super) fn create_write(&mut self, request: &Request) -> Result<Applied, Fault> {
        let Op::CreateWrite { parent, name, mode, gid, exclusive, access, data } = &request.op
        else {
            return refuse(Errno::EINVAL, "not a creation");
        };
        check_data(data)?;
        let op = Op::Create {
            parent: *parent,
            name: name.clone(),
            mode: *mode,
            gid: *gid,
            rdev: 0,
            target: Name::EMPTY,
            exclusive: *exclusive,
            open: true,
            access: *access,
        };
        let applied = self.create_for(&Request { op, ..request.clone() }, data.len() as u64)?;
        let Applied::Reply(Reply::Created { ref inode, created: true }) = applied else {
            return Ok(applied);
        };
        let length = inode.inline_max().min(data.len() as u64);
        if !inode.is_regular() || length == 0 {
            return Ok(applied);
        }
        let mut stored = self.stored(inode.id)?;
        let piece = InlinePiece { offset: 0, bytes: length as u32 };
        let data = data.clone().into_bytes().slice(..length as usize);
        self.put_inline(&mut stored, &[piece], &data.into())?;
        self.grow(&mut stored, length)?;
        self.save(&stored)?;
        Ok(Applied::Reply(Reply::Created { inode: stored.inode, created: true }))
    }

    /// What lies inline beyond `size` goes. The caller saves the inode.
    pub(super) fn cut_inline(&mut self, inode: &mut Inode, size: u64) -> Result<(), Fault> {
        if u64::from(inode.inline) <= size {
            return Ok(());
        }
        if size == 0 {
            inode.inline = 0;
            return self.delete(&keys::inline(inode.id)).map(drop);
        }
        let row = self.inline_row(inode.id)?;
        let kept = row.slice(..row.len().min(size as usize));
        inode.inline = kept.len() as u32;
        if kept.is_empty() {
            self.delete(&keys::inline(inode.id)).map(drop)
        } else {
            self.put_row(&keys::inline(inode.id), &Payload::from(kept))
        }
    }

    /// Whether all of a file has always lain here, so that no I/O server has acknowledged anything
    /// of it.
    pub(super) fn is_inline(&self, stored: &Stored) -> bool {
        let limit = stored.inode.inline_max();
        // Space that was taken beyond the size makes a file sparse.
        let is_plain =
            stored.inode.epoch == 0 && !stored.inode.sparse && stored.marks & mark::BEYOND == 0;
        is_plain
            && !self.is_in_doubt(stored)
            && stored.inode.size.max(stored.tail) <= limit
            && limit > 0
    }

    /// How much of a file lies with its inode.
    pub(super) fn content_bytes(&self, inode: &Inode) -> usize {
        if inode.is_regular() { inode.size.min(inode.inline_max()) as usize } else { 0 }
    }

    /// All of that.
    pub(super) fn content(&self, inode: &Inode) -> Result<Bytes, Fault> {
        self.inline_range(inode, 0, self.content_bytes(inode))
    }

    fn inline_row(&self, id: Id) -> Result<Bytes, Fault> {
        let row = self.row::<Payload>(&keys::inline(id))?;
        Ok(row.map(Payload::into_bytes).unwrap_or_default())
    }

    fn with_inline(&self, inode: Inode, offset: u32, count: u32) -> Result<Applied, Fault> {
        let end = u64::from(offset).saturating_add(count.into());
        let end = end.min(inode.size).min(inode.inline_max()) as usize;
        let start = (offset as usize).min(end);
        let data = self.inline_range(&inode, start, end)?;
        Ok(Applied::Reply(Reply::Inline { inode, data: data.into() }))
    }

    /// Bytes of the row from `start` up to `end`; what is missing of it are zeros.
    fn inline_range(&self, inode: &Inode, start: usize, end: usize) -> Result<Bytes, Fault> {
        let row = if start == end { Bytes::new() } else { self.inline_row(inode.id)? };
        let there = row.slice(row.len().min(start)..row.len().min(end));
        if there.len() == end - start {
            return Ok(there);
        }
        let mut all = there.to_vec();
        all.resize(end - start, 0);
        Ok(all.into())
    }

    /// Writes into the row; what lies between its end and a piece becomes zeros. The caller saves
    /// the inode.
    pub(super) fn put_inline(
        &mut self,
        stored: &mut Stored,
        pieces: &[InlinePiece],
        data: &Payload,
    ) -> Result<(), Fault> {
        let id = stored.inode.id;
        let mut data = data.clone().into_bytes();
        let end = pieces.iter().map(|piece| piece.end() as usize).max().unwrap_or(0);
        let covers = pieces.len() == 1 && pieces[0].offset == 0;
        let had = stored.inode.inline as usize;
        // Pieces without bytes take space up to where they are, and are no writes.
        if data.is_empty() && end <= had {
            return Ok(());
        }
        // A file written as a whole, as small ones mostly are, is not read first.
        let row =
            if covers && end >= had || had == 0 { Bytes::new() } else { self.inline_row(id)? };
        let mut row = Vec::from(row);
        row.resize(row.len().max(end), 0);
        for piece in pieces {
            let bytes = data.split_to(piece.bytes as usize);
            row[piece.offset as usize..piece.end() as usize].copy_from_slice(&bytes);
        }
        stored.inode.inline = row.len() as u32;
        self.put_row(&keys::inline(id), &Payload::from(row))
    }
}

pub(super) fn check_data(data: &Payload) -> Result<(), Fault> {
    match data.len() {
        length if length <= INLINE_BYTES_MAX as usize => Ok(()),
        length => {
            refuse(Errno::E2BIG, format!("{length} bytes of data, limit is {INLINE_BYTES_MAX}"))
        }
    }
}

pub(super) fn check_pieces(
    inode: &Inode,
    pieces: &[InlinePiece],
    data: &Payload,
) -> Result<(), Fault> {
    check_data(data)?;
    if pieces.len() > PIECES_MAX {
        return refuse(Errno::E2BIG, format!("{} pieces, limit is {PIECES_MAX}", pieces.len()));
    }
    let total: u64 = pieces.iter().map(|piece| u64::from(piece.bytes)).sum();
    if total != data.len() as u64 {
        return refuse(Errno::EINVAL, format!("{} bytes for pieces of {total}", data.len()));
    }
    let limit = inode.inline_max();
    match pieces.iter().find(|piece| piece.end() > limit) {
        Some(piece) => {
            let (id, end) = (inode.id, piece.end());
            refuse(Errno::EINVAL, format!("file {id} has no inline byte {end}, only {limit}"))
        }
        None => Ok(()),
    }
}
