//! Space within a file: fallocate(2), and where data and holes are.
//!
//! A distribution keeps the order of a file's bytes within each slot. So the bytes of a slot that lie
//! below a logical offset are its first [`Distribution::physical_size`] physical ones, and a
//! logical range is one physical range on each slot, however long it is.

use super::inline::Growth;
use super::tries::{Behind, Tries};
use super::{Counted, Error, OpenFile};
use crate::client::servers::Origin;
use crate::client::session::unexpected;
use crate::client::{Result, Seek, Shared};
use crate::distribution::Distribution;
use crate::objects::{DataOp, DataReply, Reshape};
use crate::ops::{Caller, InlinePiece, Inode, Op, Reply};
use covey_ninep::tree::Errno;
use covey_wire::Bytes;
use futures_util::future::{Either, select, try_join_all};
use std::pin::pin;
use std::time::Duration;

/// How often what a quota refused is cut while more of it comes.
const CUT_EVERY: Duration = Duration::from_secs(1);

impl OpenFile {
    /// Allocates, frees or zeroes a range; see [`crate::client::File::fallocate`].
    pub async fn reshape(
        &self,
        fs: &Shared,
        who: &Caller,
        how: Reshape,
        offset: u64,
        end: u64,
    ) -> Result<()> {
        if !how.keeps_length() && end > self.known_size() {
            // Of a write only so much is on its way at a time; this may be all the space that there is.
            fs.session.ask(who, Op::Room { id: self.id, end }).await?;
        }
        let mut tries = Tries::new(self, fs);
        loop {
            let (_, epoch) = tries.begin().await?;
            let tried = self.reshape_once(fs, who, how, offset, end, epoch).await;
            if tries.end(tried).await?.is_some() {
                return Ok(());
            }
        }
    }

    /// First the file is marked as one whose blocks must be counted, so that a client that dies in
    /// the middle leaves nothing wrong; the size grows only when there is space everywhere.
    async fn reshape_once(
        &self,
        fs: &Shared,
        who: &Caller,
        how: Reshape,
        offset: u64,
        end: u64,
        epoch: u32,
    ) -> Result<()> {
        self.makes_hole();
        let inode = self.mark(fs, who, epoch, 0).await?;
        self.lock().begun = Some(epoch);
        let inline_end = end.min(u64::from(inode.inline));
        if how.zeroes() && offset < inline_end {
            // What lies with the metadata takes no space of its own. A truncation may have come since:
            // the size stays.
            let (growth, bytes) = (Growth { end: 0, hole: false }, (inline_end - offset) as u32);
            let piece = InlinePiece { offset: offset as u32, bytes };
            let zeros = Bytes::from(vec![0; bytes as usize]);
            self.write_inline(fs, epoch, growth, vec![piece], zeros).await?;
        }
        let taken = end.min(self.inline_bytes());
        if !matches!(how, Reshape::Punch) && offset < taken && taken > u64::from(inode.inline) {
            // Zeros are put there, behind what is there by then.
            let piece = InlinePiece { offset: taken as u32, bytes: 0 };
            let growth = Growth { end: 0, hole: false };
            self.write_inline(fs, epoch, growth, vec![piece], Bytes::new()).await?;
        }
        let slots =
            (0..self.chains.len()).map(|slot| self.reshape_slot(fs, slot, how, offset, end, epoch));
        try_join_all(slots).await?;
        if !how.keeps_length() {
            self.mark(fs, who, epoch, end).await?;
        }
        Ok(())
    }

    /// Makes the file at least `end` bytes long, with a hole where it grows.
    pub async fn grow(&self, fs: &Shared, end: u64) -> Result<()> {
        let mut tries = Tries::new(self, fs);
        loop {
            let (_, epoch) = tries.begin().await?;
            let tried = self.mark(fs, &self.writer(), epoch, end).await;
            if tries.end(tried).await?.is_some() {
                return Ok(());
            }
        }
    }

    /// A quota has refused the size that a write would have made: what it has left beyond the end on the I/O servers would
    /// take space that is nobody's. Others may be writing there, and are not refused: so it is cut by a new epoch, which
    /// has its price for them. Who goes on and on is cut once a second, and when the file is closed.
    pub(super) async fn was_refused(&self, fs: &Shared) {
        let now = fs.net.now();
        let is_due = {
            let mut state = self.lock();
            let is_due = state.cut_at.is_none_or(|at| now.duration_since(at) >= CUT_EVERY);
            state.owes_cut = true;
            is_due
        };
        if is_due {
            self.give_back(fs).await;
        }
    }

    /// Cuts what refused writes have left, if anything.
    pub(super) async fn give_back(&self, fs: &Shared) {
        if !std::mem::take(&mut self.lock().owes_cut) {
            return;
        }
        self.lock().cut_at = Some(fs.net.now());
        let is_all_inline = {
            let state = self.lock();
            state.size.max(1) <= self.inline_bytes() && state.begun != Some(state.epoch)
        };
        if is_all_inline || self.is_pinned() {
            return;
        }
        // Whoever has it open may write, whatever its mode says by now.
        let fence = Op::Fence { id: self.id };
        if let Ok(Reply::Node { inode }) = fs.session.change(&Caller::default(), fence).await {
            self.refresh(&inode);
        }
    }

    async fn mark(&self, fs: &Shared, who: &Caller, epoch: u32, end: u64) -> Result<Inode> {
        let op = Op::Extend { id: self.id, epoch, end, hole: true };
        match fs.session.change(who, op).await? {
            Reply::Node { inode } => {
                self.refresh(&inode);
                Ok(inode)
            }
            other => Err(unexpected(&other)),
        }
    }

    async fn reshape_slot(
        &self,
        fs: &Shared,
        slot: usize,
        how: Reshape,
        offset: u64,
        end: u64,
        epoch: u32,
    ) -> Result<()> {
        let (from, to) = (self.map.physical_size(slot, offset), self.map.physical_size(slot, end));
        if from == to {
            return Ok(());
        }
        let _counted = Counted::new(self, slot);
        let (how, length) = (how as u8, to - from);
        let op = DataOp::Reshape { id: self.id, epoch, how, offset: from, length };
        match self.data_op(fs, slot, op).await? {
            // What the server has not synced of it is lost with its power.
            (DataReply::Done {}, from) => {
                self.note_machine(fs, slot, &from).await;
                Ok(())
            }
            (other, _) => Err(odd(&other)),
        }
    }

    /// The next data (or hole) at or after `offset`; see [`crate::client::File::seek`].
    pub async fn seek(&self, fs: &Shared, offset: u64, what: Seek) -> Result<u64> {
        let hole = what == Seek::Hole;
        let mut behind = Behind::default();
        loop {
            let inode = self.fresh(fs).await?;
            if offset >= inode.size {
                return Err(Errno::ENXIO.into());
            }
            if !inode.sparse {
                return Ok(if hole { inode.size } else { offset });
            }
            let (inline, kept) = (self.inline_bytes(), u64::from(inode.inline));
            // What lies with the metadata is data, and a hole up to where the objects begin.
            match (offset < kept, hole) {
                (true, false) => return Ok(offset),
                (true, true) if kept < inline => return Ok(kept.min(inode.size)),
                (false, true) if offset < inline => return Ok(offset),
                _ => {}
            }
            let (offset, epoch) = (offset.max(inline), inode.epoch);
            let slots =
                (0..self.chains.len()).map(|slot| self.seek_slot(fs, slot, offset, hole, epoch));
            match try_join_all(slots).await {
                Ok(found) => {
                    let first = found.into_iter().flatten().min().unwrap_or(u64::MAX);
                    return match what {
                        Seek::Hole => Ok(first.min(inode.size)),
                        Seek::Data if first < inode.size => Ok(first),
                        Seek::Data => Err(Errno::ENXIO.into()),
                    };
                }
                Err(Error::Stale(_)) => {
                    self.learn_epoch(fs, epoch, &mut behind).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The file's first byte at or after `offset` that is data (or a hole) on this slot.
    async fn seek_slot(
        &self,
        fs: &Shared,
        slot: usize,
        offset: u64,
        hole: bool,
        epoch: u32,
    ) -> Result<Option<u64>> {
        let from = self.map.physical_size(slot, offset);
        let op = DataOp::Extent { id: self.id, epoch, offset: from };
        let (DataReply::Extent { data, hole: data_end }, _) = self.data_op(fs, slot, op).await?
        else {
            return Err(odd(&DataReply::Done {}));
        };
        let physical = match hole {
            false if data == u64::MAX => return Ok(None),
            false => data,
            true if data == from => data_end,
            true => from,
        };
        Ok(Some(self.map.logical(slot, physical)))
    }

    /// Whether the file may have holes, and its size now.
    pub async fn fresh(&self, fs: &Shared) -> Result<Inode> {
        match fs.session.ask(&Caller::default(), Op::Getattr { id: self.id }).await? {
            Reply::Node { inode } => {
                self.refresh(&inode);
                Ok(inode)
            }
            other => Err(unexpected(&other)),
        }
    }

    /// An operation of a data server; one that is alive but slow gets the time of a read.
    pub(super) async fn data_op(
        &self,
        fs: &Shared,
        slot: usize,
        op: DataOp,
    ) -> Result<(DataReply, Origin)> {
        fs.session.is_made(self.id).await?;
        let link = self.chains[slot].link();
        let asked = fs.on_chain(&self.chains[slot], op);
        let Some(time) = link.io_deadline() else { return asked.await };
        match select(pin!(asked), fs.net.sleep(time)).await {
            Either::Left((reply, _)) => reply,
            Either::Right(_) => Err(link.slow(time)),
        }
    }
}

pub(super) fn odd(reply: &DataReply) -> Error {
    Error::Odd(format!("a data server answered {}", reply.name()))
}
