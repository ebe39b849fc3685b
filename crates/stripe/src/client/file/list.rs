//! List I/O: noncontiguous ranges, each server with one request for all that it has of them.

use super::inline::Growth;
use super::{Counted, Error, OpenFile};
use crate::client::{Result, Shared};
use crate::distribution::INLINE;
use crate::list::{self, Batch, Extent, Run};
use covey_ninep::message::Message;
use covey_ninep::runs;
use covey_ninep::tree::Errno;
use covey_wire::{Bytes, BytesMut, List, Payload};
use futures_util::future::try_join_all;

impl OpenFile {
    /// Reads a list; see [`crate::client::File::read_list_into`].
    pub async fn read_list(&self, fs: &Shared, runs: &[Run], into: &mut [u8]) -> Result<usize> {
        let extent = list::extent(runs)?;
        check_length(extent, into.len())?;
        let started = fs.net.now();
        loop {
            let (epoch, limit) = (self.lock().epoch, self.payload_max());
            match self.read_list_once(fs, runs, extent, epoch).await {
                Ok((batches, data)) => {
                    into.fill(0);
                    for (batch, data) in batches.iter().zip(data) {
                        batch.scatter(&data, into);
                    }
                    let places = batches.iter().flat_map(|batch| &batch.places);
                    let ends = places.map(|&(at, bytes)| at + bytes as usize);
                    return Ok(ends.max().unwrap_or(0));
                }
                Err(error) if self.was_too_large(&error, limit) => {}
                Err(Error::Stale(_)) => {
                    self.learn_epoch(fs, epoch, started).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn read_list_once(
        &self,
        fs: &Shared,
        runs: &[Run],
        extent: Extent,
        epoch: u32,
    ) -> Result<(Vec<Batch>, Vec<Bytes>)> {
        let mut size = self.lock().size;
        let mut head = Bytes::new();
        if extent.start < self.inline_bytes() {
            (size, head) = self.read_inline(fs, extent.start, extent.end).await?;
        } else if extent.end > size {
            size = self.ask_size(&fs.session).await?;
        }
        let batches = list::plan(&self.map, runs, size, self.payload_max());
        let (start, head) = (extent.start, &head);
        let reads = batches.iter().map(|batch| async move {
            match batch.slot {
                INLINE => Ok(pick(batch, head, start)),
                _ => self.read_batch(fs, batch, epoch).await,
            }
        });
        let data = try_join_all(reads).await?;
        if self.lock().epoch != epoch {
            return Err(Errno::ESTALE.into());
        }
        Ok((batches, data))
    }

    async fn read_batch(&self, fs: &Shared, batch: &Batch, epoch: u32) -> Result<Bytes> {
        let request = |fid| match batch.runs[..] {
            [run] if run.count == 1 => Message::Tread { fid, offset: run.offset, count: run.bytes },
            _ => Message::Treadlist { fid, runs: List(batch.runs.clone()) },
        };
        match self.io(fs, batch.slot, epoch, request).await? {
            Message::Rread { data } | Message::Rreadlist { data } => Ok(data.into_bytes()),
            other => Err(Error::Odd(format!("Treadlist got {}", other.name()))),
        }
    }

    /// Writes a list; see [`crate::client::File::write_list`].
    pub async fn write_list(&self, fs: &Shared, runs: &[Run], data: Bytes) -> Result<()> {
        let extent = list::extent(runs)?;
        check_length(extent, data.len())?;
        if extent.total == 0 {
            return Ok(());
        }
        let started = fs.net.now();
        loop {
            let limit = self.payload_max();
            let (size, epoch) = self.size_and_epoch();
            let batches = list::plan(&self.map, runs, u64::MAX, limit);
            // Where there is more than one piece it is not worth knowing what lies between.
            let hole = extent.start > size || extent.end - extent.start != data.len() as u64;
            let growth = self.growth(extent.start, extent.end, size, hole);
            self.begin_write(epoch, growth.is_some_and(|growth| growth.hole));
            match self.write_batches(fs, &batches, epoch, growth, &data).await {
                Ok(()) => {
                    self.wrote_ranges(epoch, pieces(runs));
                    self.wrote(fs, epoch, extent.end, growth.is_some());
                    return Ok(());
                }
                Err(error) if self.was_too_large(&error, limit) => {}
                Err(Error::Stale(_)) => {
                    self.learn_epoch(fs, epoch, started).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn write_batches(
        &self,
        fs: &Shared,
        batches: &[Batch],
        epoch: u32,
        growth: Option<Growth>,
        data: &Bytes,
    ) -> Result<()> {
        let (inline, striped): (Vec<Batch>, Vec<Batch>) =
            batches.iter().cloned().partition(|batch| batch.slot == INLINE);
        let writes = striped.iter().map(|batch| self.write_batch(fs, batch, epoch, data));
        let end = growth.map_or(0, |growth| growth.end);
        if !striped.is_empty() {
            self.begin_beyond(fs, epoch, end).await?;
        }
        try_join_all(writes).await?;
        if inline.is_empty() {
            return self.extend(fs, epoch, growth).await;
        }
        let growth = growth.unwrap_or(Growth { end: 0, hole: false });
        self.write_inline_batches(fs, &inline, epoch, growth, data).await
    }

    async fn write_batch(
        &self,
        fs: &Shared,
        batch: &Batch,
        epoch: u32,
        data: &Bytes,
    ) -> Result<()> {
        let _counted = Counted { file: self, slot: batch.slot };
        let (mut runs, mut rest) = (batch.runs.clone(), batch.gather(data));
        let mut done = 0;
        while done < u64::from(batch.bytes) {
            let request = |fid| match runs[..] {
                [run] if run.count == 1 => {
                    Message::Twrite { fid, offset: run.offset, data: rest.clone() }
                }
                _ => Message::Twritelist { fid, runs: List(runs.clone()), data: rest.clone() },
            };
            let count = match self.io(fs, batch.slot, epoch, request).await? {
                Message::Rwrite { count: 0 } | Message::Rwritelist { count: 0 } => {
                    return Err(Errno::ENOSPC.into());
                }
                Message::Rwrite { count } | Message::Rwritelist { count } => u64::from(count),
                other => {
                    let what = format!("Twritelist got {}", other.name());
                    return Err(Error::Odd(what));
                }
            };
            done += count;
            if done < u64::from(batch.bytes) {
                let left = rest.into_bytes().slice(count as usize..);
                (runs, rest) = (batch.runs_behind(done), Payload::from(left));
            }
        }
        Ok(())
    }
}

/// The batch's bytes out of the inline bytes from `start` on.
fn pick(batch: &Batch, inline: &Bytes, start: u64) -> Bytes {
    let mut data = BytesMut::with_capacity(batch.bytes as usize);
    for (offset, bytes) in runs::pieces(&batch.runs) {
        let next = data.len() + bytes as usize;
        let there = inline.get((offset - start) as usize..).unwrap_or_default();
        data.extend_from_slice(&there[..there.len().min(bytes as usize)]);
        data.resize(next, 0);
    }
    data.freeze()
}

/// The ranges of a list, as far as they are few enough to be remembered.
fn pieces(runs: &[Run]) -> impl Iterator<Item = (u64, u64)> + '_ {
    let pieces = runs.iter().flat_map(|run| run.pieces()).take(PIECES_REMEMBERED);
    pieces.map(|(at, bytes)| (at, at + bytes))
}

/// Pieces of a list that a file is told of: see [`super::dense`].
const PIECES_REMEMBERED: usize = 256;

fn check_length(extent: Extent, bytes: usize) -> Result<()> {
    if extent.total == bytes {
        return Ok(());
    }
    let what = format!("runs of {} bytes for {bytes} bytes of data", extent.total);
    Err(Error::because(Errno::EINVAL, what))
}
