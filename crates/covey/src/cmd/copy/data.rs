//! One file's bytes from one side to the other, several blocks in flight, holes left out.

use super::{BLOCK_BYTES, BLOCKS_IN_FLIGHT, local};
use crate::error::{Cannot, Result};
use covey_io::os::file::{DataFile, range_blocking, read_at};
use covey_ninep::tree::{Errno, SetAttr};
use covey_stripe::client::{File, Seek};
use covey_stripe::distribution::{INLINE_BYTES_DEFAULT, INLINE_BYTES_MAX};
use covey_stripe::ops::Inode;
use covey_wire::{Bytes, Payload};
use futures_util::stream::{FuturesUnordered, StreamExt};
use indicatif::ProgressBar;
use rustix::fs::{SeekFrom, seek};
use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::super::Session;

/// Where bytes come from.
pub enum Source {
    /// This machine.
    Local { file: DataFile, name: String },
    /// The file system. `whole`: all of it, when it came with the opening.
    Covey { file: File, whole: Option<Bytes>, name: String },
}

/// Where bytes go.
pub enum Sink {
    /// This machine.
    Local { file: Arc<std::fs::File>, name: String },
    /// The file system.
    Covey { session: Session, file: File, name: String },
}

impl Source {
    /// Opens a file of the file system. One that lies with its metadata comes at once.
    pub async fn open(session: &Session, inode: &Inode, name: String) -> Result<Source> {
        let count = if inode.size <= INLINE_BYTES_MAX.into() { INLINE_BYTES_MAX } else { 0 };
        let opening = session.fs.open_read(&session.who, inode.id, &[], 4, count).await;
        let opening = opening.cannot(|| format!("read {name}"))?;
        let whole = opening.is_whole().then(|| opening.data.clone());
        Ok(Source::Covey { file: opening.file, whole, name })
    }

    /// All of a file of `size` bytes that is small enough to be written with its creation; else
    /// nothing.
    pub async fn small(&self, size: u64, is_sparse: bool) -> Result<Payload> {
        if size <= INLINE_BYTES_DEFAULT.into() && !is_sparse {
            self.read(0, size).await
        } else {
            Ok(Payload::default())
        }
    }

    /// Up to `count` bytes from `offset`: fewer at the end only.
    pub async fn read(&self, offset: u64, count: u64) -> Result<Payload> {
        let count = usize::try_from(count).expect("blocks are small");
        match self {
            Source::Local { file, name } => {
                let file = file.clone();
                let bytes = local::blocking(move || read_at(&file, offset, count)).await;
                Ok(Payload::from(bytes.cannot(|| format!("read {name}"))?))
            }
            Source::Covey { whole: Some(whole), .. } => {
                let start = whole.len().min(offset as usize);
                Ok(whole.slice(start..whole.len().min(start + count)).into())
            }
            Source::Covey { file, name, .. } => {
                file.read_at(offset, count).await.cannot(|| format!("read {name}"))
            }
        }
    }

    /// As `read`, but what lies in a file of this machine may be left there, to be sent from it.
    async fn lend(&self, offset: u64, count: u64) -> Result<Payload> {
        if let Source::Local { file, name } = self {
            let file = file.clone();
            let lend = move || range_blocking(&file, offset, count as usize);
            let range = local::blocking(lend).await.cannot(|| format!("read {name}"))?;
            if let Some(range) = range {
                return Ok(Payload::of_file(range));
            }
        }
        self.read(offset, count).await
    }

    /// Where the file ends now, if it is one that others may cut while its bytes are on the way.
    async fn end(&self) -> Result<Option<u64>> {
        let Source::Local { file, name } = self else { return Ok(None) };
        let file = file.clone();
        let meta = local::blocking(move || file.file().metadata()).await;
        Ok(Some(meta.cannot(|| format!("read {name}"))?.len()))
    }

    /// The next run of data at or after `offset`: its start and end. `None` when only a hole
    /// follows.
    async fn data(&self, offset: u64, size: u64) -> Result<Option<(u64, u64)>> {
        match self {
            Source::Local { file, name } => {
                let file = file.clone();
                let found = local::blocking(move || local_data(file.file(), offset)).await;
                match found {
                    Ok(run) => Ok(Some(run)),
                    Err(rustix::io::Errno::NXIO) => Ok(None),
                    // A file system that cannot tell.
                    Err(rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP) => {
                        Ok(Some((offset, size)))
                    }
                    Err(error) => Err(error).cannot(|| format!("read {name}")),
                }
            }
            Source::Covey { file, name, .. } => match covey_data(file, offset).await {
                Ok(run) => Ok(Some(run)),
                Err(error) if error.code() == Errno::ENXIO => Ok(None),
                Err(error) => Err(error).cannot(|| format!("read {name}")),
            },
        }
    }
}

fn local_data(file: &std::fs::File, offset: u64) -> rustix::io::Result<(u64, u64)> {
    let start = seek(file, SeekFrom::Data(offset))?;
    Ok((start, seek(file, SeekFrom::Hole(start))?))
}

async fn covey_data(file: &File, offset: u64) -> covey_stripe::client::Result<(u64, u64)> {
    let start = file.seek(offset, Seek::Data).await?;
    Ok((start, file.seek(start, Seek::Hole).await?))
}

impl Sink {
    /// All of `data` at `offset`.
    pub async fn write(&self, offset: u64, data: Payload) -> Result<()> {
        match self {
            Sink::Local { file, name } => {
                let file = file.clone();
                let written = local::blocking(move || write_local(&file, offset, &data)).await;
                written.cannot(|| format!("write {name}"))
            }
            Sink::Covey { file, name, .. } => {
                file.write_at(offset, data).await.cannot(|| format!("write {name}"))
            }
        }
    }

    /// The size that a hole at the end gives the file.
    async fn set_size(&self, size: u64) -> Result<()> {
        match self {
            Sink::Local { file, name } => {
                let file = file.clone();
                local::blocking(move || file.set_len(size)).await.cannot(|| format!("write {name}"))
            }
            Sink::Covey { session, file, name } => {
                let set = SetAttr { size: Some(size), ..SetAttr::default() };
                let stat = session.fs.setattr_open(&session.who, file.id(), set).await;
                stat.map(|_| ()).cannot(|| format!("write {name}"))
            }
        }
    }

    /// What close(2) owes: errors of earlier writes.
    pub async fn finish(&self) -> Result<()> {
        match self {
            Sink::Local { .. } => Ok(()),
            Sink::Covey { file, name, .. } => file.flush().await.cannot(|| format!("write {name}")),
        }
    }
}

fn write_local(file: &std::fs::File, mut offset: u64, data: &Payload) -> std::io::Result<()> {
    for piece in data.pieces() {
        file.write_all_at(piece, offset)?;
        offset += piece.len() as u64;
    }
    Ok(())
}

/// Which blocks there are to copy, in order.
struct Blocks<'a> {
    source: &'a Source,
    at: u64,
    run_end: u64,
    size: u64,
    is_sparse: bool,
}

impl Blocks<'_> {
    async fn next(&mut self) -> Result<Option<(u64, u64)>> {
        if self.at >= self.run_end {
            let run = match (self.at >= self.size, self.is_sparse) {
                (true, _) => None,
                (false, false) => Some((self.at, self.size)),
                (false, true) => self.source.data(self.at, self.size).await?,
            };
            let Some((start, end)) = run.filter(|(start, end)| *start >= self.at && end > start)
            else {
                return Ok(None);
            };
            (self.at, self.run_end) = (start, end.min(self.size));
            if self.at >= self.run_end {
                return Ok(None);
            }
        }
        // Blocks end at multiples of their size, so that one block meets whole strips.
        let block_end = (self.at / BLOCK_BYTES + 1) * BLOCK_BYTES;
        let (start, end) = (self.at, block_end.min(self.run_end));
        self.at = end;
        Ok(Some((start, end - start)))
    }
}

/// Copies `size` bytes; answers how many there were. A source that shrinks meanwhile gives what is
/// left of it. After an error the sink ends with what was copied: it may have been longer before.
pub async fn copy(
    source: &Source,
    sink: &Sink,
    size: u64,
    is_sparse: bool,
    bar: &ProgressBar,
) -> Result<u64> {
    let mut unfinished = BTreeSet::new();
    let copied = move_blocks(source, sink, size, is_sparse, bar, &mut unfinished).await;
    if let (Err(_), false, Some(&end)) = (&copied, is_sparse, unfinished.first()) {
        // The first error is the one to be told.
        let _ = sink.set_size(end).await;
    }
    copied
}

/// `unfinished`: where the blocks begin that are under way, or have failed.
async fn move_blocks(
    source: &Source,
    sink: &Sink,
    size: u64,
    is_sparse: bool,
    bar: &ProgressBar,
    unfinished: &mut BTreeSet<u64>,
) -> Result<u64> {
    let mut blocks = Blocks { source, at: 0, run_end: 0, size, is_sparse };
    let mut moving = FuturesUnordered::new();
    let (mut end_written, mut has_shrunk, mut is_last) = (0, false, false);
    loop {
        while !is_last && moving.len() < BLOCKS_IN_FLIGHT {
            match blocks.next().await? {
                Some(block) => {
                    unfinished.insert(block.0);
                    moving.push(copy_block(source, sink, block, is_sparse));
                }
                None => is_last = true,
            }
        }
        let Some(moved) = moving.next().await else { break };
        let Moved { end, wanted, got, is_written } = moved?;
        bar.inc(got);
        unfinished.remove(&(end - got));
        has_shrunk |= got < wanted;
        is_last |= has_shrunk;
        end_written = if is_written { end_written.max(end) } else { end_written };
    }
    if end_written < size && !has_shrunk {
        sink.set_size(size).await?;
        end_written = size;
    } else if has_shrunk {
        // What was there before, or zeros for what the source has lost on the way.
        sink.set_size(end_written).await?;
    }
    Ok(end_written)
}

/// What came of one block.
struct Moved {
    end: u64,
    wanted: u64,
    got: u64,
    is_written: bool,
}

/// Blocks of zeros in a file with holes are left out: not every source can say where its holes are.
async fn copy_block(
    source: &Source,
    sink: &Sink,
    (offset, wanted): (u64, u64),
    is_sparse: bool,
) -> Result<Moved> {
    let can_lend = matches!(sink, Sink::Covey { .. }) && !is_sparse;
    if can_lend && offset >= INLINE_BYTES_MAX.into() {
        return lend_block(source, sink, (offset, wanted)).await;
    }
    let data = source.read(offset, wanted).await?;
    let got = data.len() as u64;
    let is_hole =
        || is_sparse && data.pieces().iter().all(|piece| piece.iter().all(|byte| *byte == 0));
    let is_written = got > 0 && !is_hole();
    if is_written {
        sink.write(offset, data).await?;
    }
    Ok(Moved { end: offset + got, wanted, got, is_written })
}

/// A block that is sent from the file it lies in.
async fn lend_block(source: &Source, sink: &Sink, (offset, wanted): (u64, u64)) -> Result<Moved> {
    let data = source.lend(offset, wanted).await?;
    let (sent, is_lent) = (data.len() as u64, data.pieces().is_empty());
    if sent > 0 {
        sink.write(offset, data).await?;
    }
    let left = if is_lent && sent > 0 { source.end().await? } else { None };
    let got = left.map_or(sent, |end| sent.min(end.saturating_sub(offset)));
    Ok(Moved { end: offset + got, wanted, got, is_written: got > 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn old_content() -> (Arc<std::fs::File>, Sink) {
        let file = Arc::new(tempfile::tempfile().unwrap());
        file.write_all_at(&vec![9; 10 << 20], 0).unwrap();
        (file.clone(), Sink::Local { file, name: "sink".into() })
    }

    fn run(source: std::fs::File, sink: &Sink, size: u64) -> Result<u64> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let file = DataFile::new(source).unwrap();
        let source = Source::Local { file, name: "source".into() };
        runtime.block_on(copy(&source, sink, size, false, &ProgressBar::hidden()))
    }

    #[test]
    fn what_a_source_has_lost_is_not_left_to_what_was_there() {
        let (file, sink) = old_content();
        let source = tempfile::tempfile().unwrap();
        source.write_all_at(&vec![1; 3 << 20], 0).unwrap();
        assert_eq!(run(source, &sink, 8 << 20).unwrap(), 3 << 20);
        assert_eq!(file.metadata().unwrap().len(), 3 << 20);
    }

    #[test]
    fn a_copy_that_fails_does_not_look_like_a_whole_one() {
        let (file, sink) = old_content();
        let dir = tempfile::tempdir().unwrap();
        // It cannot be read.
        let source = std::fs::File::create(dir.path().join("source")).unwrap();
        run(source, &sink, 8 << 20).unwrap_err();
        assert_eq!(file.metadata().unwrap().len(), 0);
    }
}
