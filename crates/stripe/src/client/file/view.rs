//! Views of a file: each server with one request for all that it has of one.

use super::inline::Growth;
use super::tries::Tries;
use super::{Counted, Error, OpenFile};
use crate::client::{Result, Shared};
use crate::distribution::{Distribution, INLINE};
use crate::view::{self, Batch, View};
use covey_ninep::message::Message;
use covey_ninep::tree::{Errno, View as Asked};
use covey_wire::{Bytes, BytesMut, Payload};
use futures_util::future::try_join_all;
use futures_util::stream::{self, StreamExt, TryStreamExt};

impl OpenFile {
    /// Reads a view; see [`crate::client::File::read_view_into`].
    pub async fn read_view(&self, fs: &Shared, view: &View, into: &mut [u8]) -> Result<usize> {
        check_length(view, into.len())?;
        let mut tries = Tries::new(self, fs);
        loop {
            let (_, epoch) = tries.begin().await?;
            let tried = self.read_view_once(fs, view, epoch, into).await;
            if let Some(there) = tries.end(tried).await? {
                return Ok(there);
            }
        }
    }

    async fn read_view_once(
        &self,
        fs: &Shared,
        view: &View,
        epoch: u32,
        into: &mut [u8],
    ) -> Result<usize> {
        let mut size = self.lock().size;
        let mut head = Bytes::new();
        let (start, end) = view.extent();
        if start < self.inline_bytes() {
            (size, head) = self.read_inline(fs, start, end).await?;
        } else if end > size {
            size = self.ask_size(&fs.session).await?;
        }
        let batch_bytes = self.payload_max().min(READ_BYTES_MAX);
        let batches = view::plan(&self.map, &self.striping, view, size, batch_bytes);
        let planned: usize = batches.iter().map(|batch| batch.bytes as usize).sum();
        if planned < into.len() {
            // What is beyond the end belongs to no batch.
            into.fill(0);
        }
        let head = &head;
        let reads = batches.iter().map(|batch| async move {
            let data = match batch.slot {
                INLINE => pick(batch, head, start),
                _ => self.read_batch(fs, view, batch, size, epoch).await?,
            };
            Ok::<_, Error>((batch, data))
        });
        // What has come is put into its place while the next comes: memory is used again, and a view of any length
        // takes that of a few messages.
        let mut reads = stream::iter(reads).buffer_unordered(READS_PER_SLOT * self.map.slots());
        let mut there = 0;
        while let Some((batch, data)) = reads.try_next().await? {
            batch.scatter(&data, into);
            let end = batch.places.iter().map(|&(at, bytes)| at + bytes as usize).max();
            there = there.max(end.unwrap_or(0));
        }
        drop(reads);
        if self.lock().epoch != epoch {
            return Err(Errno::ESTALE.into());
        }
        Ok(there)
    }

    async fn read_batch(
        &self,
        fs: &Shared,
        view: &View,
        batch: &Batch,
        size: u64,
        epoch: u32,
    ) -> Result<Bytes> {
        let asked = batch.only.is_none().then(|| batch.asked(view, &self.striping, size));
        let request = |fid| match (batch.only, &asked) {
            (_, Some(Asked { start, end, bytes, body })) => {
                let (start, end, count, view) = (*start, *end, *bytes, body.clone().into());
                Message::Treadview { fid, start, end, count, view }
            }
            (only, None) => {
                let (offset, count) = only.unwrap_or_default();
                Message::Tread { fid, offset, count }
            }
        };
        match self.io(fs, batch.slot, epoch, request).await? {
            Message::Rread { data } | Message::Rreadview { data } => Ok(data.into_bytes()),
            other => Err(Error::Odd(format!("Treadview got {}", other.name()))),
        }
    }

    /// Writes a view; see [`crate::client::File::write_view`].
    pub async fn write_view(&self, fs: &Shared, view: &View, data: Bytes) -> Result<()> {
        check_length(view, data.len())?;
        if data.is_empty() {
            return Ok(());
        }
        let (start, end) = view.extent();
        let mut tries = Tries::new(self, fs);
        loop {
            let (size, epoch) = tries.begin().await?;
            let batches = view::plan(&self.map, &self.striping, view, u64::MAX, tries.limit);
            // Where there is more than one piece it is not worth knowing what lies between.
            let hole = start > size || !view.is_one();
            let growth = self.growth(start, end, size, hole);
            self.begin_write(epoch, growth.is_some_and(|growth| growth.hole));
            let tried = self.write_batches(fs, view, &batches, epoch, growth, &data).await;
            if tries.end(tried).await?.is_some() {
                self.wrote_ranges(epoch, view.ranges().take(RANGES_REMEMBERED));
                self.wrote(fs, epoch, end, growth.is_some());
                return Ok(());
            }
        }
    }

    async fn write_batches(
        &self,
        fs: &Shared,
        view: &View,
        batches: &[Batch],
        epoch: u32,
        growth: Option<Growth>,
        data: &Bytes,
    ) -> Result<()> {
        let (inline, striped): (Vec<Batch>, Vec<Batch>) =
            batches.iter().cloned().partition(|batch| batch.slot == INLINE);
        let writes = striped.iter().map(|batch| self.write_batch(fs, view, batch, epoch, data));
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
        view: &View,
        batch: &Batch,
        epoch: u32,
        data: &Bytes,
    ) -> Result<()> {
        let _counted = Counted::new(self, batch.slot);
        let data = batch.gather(data);
        let mut done = self.write_first(fs, view, batch, epoch, data.clone()).await?;
        if done < batch.bytes {
            let pieces = match batch.only {
                Some(only) => vec![only],
                None if batch.pieces.is_empty() => {
                    view::walk(&batch.asked(view, &self.striping, u64::MAX))?
                }
                None => batch.pieces.clone(),
            };
            let data = data.into_bytes();
            while done < batch.bytes {
                let rest = view::behind(&pieces, done, self.payload_max());
                let bytes = data.slice(done as usize..(done + rest.bytes) as usize);
                done += self.write_asked(fs, batch.slot, epoch, &rest, bytes.into()).await?;
            }
        }
        Ok(())
    }

    /// All of a batch with one request; how much of it was written.
    async fn write_first(
        &self,
        fs: &Shared,
        view: &View,
        batch: &Batch,
        epoch: u32,
        data: Payload,
    ) -> Result<u32> {
        let Some((offset, _)) = batch.only else {
            let asked = batch.asked(view, &self.striping, u64::MAX);
            return self.write_asked(fs, batch.slot, epoch, &asked, data).await;
        };
        let request = |fid| Message::Twrite { fid, offset, data: data.clone() };
        written(self.io(fs, batch.slot, epoch, request).await?)
    }

    async fn write_asked(
        &self,
        fs: &Shared,
        slot: usize,
        epoch: u32,
        asked: &Asked,
        data: Payload,
    ) -> Result<u32> {
        let Asked { start, end, ref body, .. } = *asked;
        let request = |fid| {
            let (view, data) = (body.clone().into(), data.clone());
            Message::Twriteview { fid, start, end, view, data }
        };
        written(self.io(fs, slot, epoch, request).await?)
    }
}

fn written(reply: Message) -> Result<u32> {
    match reply {
        Message::Rwrite { count: 0 } | Message::Rwriteview { count: 0 } => {
            Err(Errno::ENOSPC.into())
        }
        Message::Rwrite { count } | Message::Rwriteview { count } => Ok(count),
        other => {
            let what = format!("Twriteview got {}", other.name());
            Err(Error::Odd(what))
        }
    }
}

/// The batch's bytes out of the inline bytes from `start` on.
fn pick(batch: &Batch, inline: &Bytes, start: u64) -> Bytes {
    let mut data = BytesMut::with_capacity(batch.bytes as usize);
    for &(offset, bytes) in &batch.pieces {
        let next = data.len() + bytes as usize;
        let there = inline.get((offset - start) as usize..).unwrap_or_default();
        data.extend_from_slice(&there[..there.len().min(bytes as usize)]);
        data.resize(next, 0);
    }
    data.freeze()
}

/// Bytes asked for in one message of a view that is read: a processor's cache holds it at both ends.
const READ_BYTES_MAX: u32 = 256 << 10;
/// Messages on their way for each server.
const READS_PER_SLOT: usize = 2;

/// Ranges of a view that a file is told of: see [`super::dense`].
const RANGES_REMEMBERED: usize = 256;

fn check_length(view: &View, bytes: usize) -> Result<()> {
    if view.bytes() == bytes as u64 {
        return Ok(());
    }
    let what = format!("a view of {} bytes for {bytes} bytes of data", view.bytes());
    Err(Error::because(Errno::EINVAL, what))
}
