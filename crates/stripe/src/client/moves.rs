//! Files that move to other I/O servers: see `crate::meta::moves` for what makes it safe.

mod chains;
mod pace;

pub use pace::Pace;

use super::file::OpenFile;
use super::{Error, Fs, Result, Seek, Shared, node};
use crate::distribution::{self, Distribution, INLINE, Map};
use crate::objects::{DataOp, DataReply, Staging};
use crate::ops::{Caller, Id, Inode, Op, Striping};
use covey_ninep::tree::Errno;
use covey_wire::{Bytes, List, Payload};
use futures_util::future::try_join_all;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use std::sync::atomic::{AtomicU64, Ordering};

/// What became of a file that was to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// It lies elsewhere now; so many bytes were copied.
    Done(u64),
    /// It lies elsewhere already, or is gone.
    Nothing,
    /// Somebody has it open, or has changed it meanwhile: it lies where it lay.
    Busy,
}

/// Bytes read at once, and how many times that at a time.
const CHUNK_BYTES: u64 = 1 << 20;
const CHUNKS: usize = 4;
/// Bytes of a Stage around its data, and some more.
const STAGE_BYTES: usize = 64;

impl Fs {
    /// Moves a file to the I/O servers that `choose` finds for the striping that it has; None leaves it. Whoever opens it
    /// meanwhile keeps it where it is. Of one that is gone, or goes meanwhile, there is nothing to move.
    pub async fn move_file(
        &self,
        id: Id,
        choose: impl Fn(&Striping) -> Option<Vec<u16>>,
        pace: &Pace,
    ) -> Result<Moved> {
        match self.try_to_move(id, choose, pace).await {
            Err(error) if error.code() != Errno::ECANCELED && self.is_gone(id).await => {
                Ok(Moved::Nothing)
            }
            moved => moved,
        }
    }

    async fn is_gone(&self, id: Id) -> bool {
        let inode = self.shared.session.inode_now(id).await;
        inode.is_err_and(|error| error.code() == Errno::ESTALE)
    }

    async fn try_to_move(
        &self,
        id: Id,
        choose: impl Fn(&Striping) -> Option<Vec<u16>>,
        pace: &Pace,
    ) -> Result<Moved> {
        let inode = self.shared.session.inode_now(id).await?;
        let Some(old) = &inode.striping else { return Ok(Moved::Nothing) };
        let Some(servers) = choose(old) else { return Ok(Moved::Nothing) };
        // Not every layout fits on fewer servers: then nothing is begun.
        if distribution::of(&Striping { servers: List(servers), ..old.clone() }).is_err() {
            let what = "its layout does not fit on the I/O servers that are left";
            return Err(Error::because(Errno::EINVAL, what));
        }
        let starts = self.shared.session.starts();
        let inode = match self.change(&Caller::default(), Op::BeginMove { id }).await {
            Ok(reply) => node(reply)?,
            Err(error) if error.code() == Errno::EBUSY => return Ok(Moved::Busy),
            Err(error) => return Err(error),
        };
        let Some(striping) = &inode.striping else { return Ok(Moved::Nothing) };
        let Some(servers) = choose(striping) else { return Ok(Moved::Nothing) };
        let new = Striping { servers: List(servers), ..striping.clone() };
        let epoch = inode.epoch.checked_add(1).ok_or(Errno::EOVERFLOW)?;
        let copied = AtomicU64::new(0);
        let job = Job { fs: self, id, epoch, map: distribution::of(&new)?, new, pace, copied };
        let moved = job.run(&inode, striping, starts).await;
        if !matches!(moved, Ok(Moved::Done(_))) {
            pace.take_back(job.copied.load(Ordering::Relaxed));
            job.give_up().await;
        }
        moved
    }
}

/// A run of bytes on one server, and where they are in what was read.
struct SlotRun {
    slot: usize,
    physical: u64,
    end: u64,
    ranges: Vec<(u64, u64)>,
}

struct Job<'a> {
    fs: &'a Fs,
    id: Id,
    /// The epoch that the move makes.
    epoch: u32,
    new: Striping,
    map: Map,
    pace: &'a Pace,
    /// Bytes that were copied so far.
    copied: AtomicU64,
}

impl Job<'_> {
    /// The file is read without being opened: who has it open keeps it where it is.
    async fn run(&self, inode: &Inode, old: &Striping, starts: (u64, u64)) -> Result<Moved> {
        let shared = &self.fs.shared;
        shared.data.meet(old, &shared.session).await?;
        let file = OpenFile::new(inode, old, shared.data.all_of(old)?, starts)?;
        file.pin();
        if !inode.sparse {
            self.must_be_whole(inode, old).await?;
        }
        self.begin(inode.size).await?;
        let copied = self.copy(inode, &file).await;
        let bytes = match copied {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(Moved::Busy),
            Err(error) if error.code() == Errno::ESTALE => return Ok(Moved::Busy),
            Err(error) => return Err(error),
        };
        self.end(inode.size).await?;
        let (id, epoch, version) = (self.id, inode.epoch, inode.version);
        let servers = self.new.servers.clone();
        match self.fs.change(&Caller::default(), Op::Move { id, epoch, version, servers }).await {
            Ok(_) => Ok(Moved::Done(bytes)),
            Err(error) if matches!(error.code(), Errno::EBUSY | Errno::ESTALE) => Ok(Moved::Busy),
            Err(error) => Err(error),
        }
    }

    fn slots(&self, size: u64) -> impl Iterator<Item = (u16, u64)> {
        let servers = self.new.servers.0.iter().enumerate();
        let all = servers.map(move |(slot, &chain)| (chain, self.map.physical_size(slot, size)));
        all.filter(|(_, bytes)| *bytes > 0)
    }

    async fn begin(&self, size: u64) -> Result<()> {
        for (chain, _) in self.slots(size) {
            self.stage(chain, Staging::Begin, 0, Payload::from(Vec::new())).await?;
        }
        Ok(())
    }

    async fn end(&self, size: u64) -> Result<()> {
        for (chain, bytes) in self.slots(size) {
            self.stage(chain, Staging::End, bytes, Payload::from(Vec::new())).await?;
        }
        Ok(())
    }

    /// How many bytes were copied; None where the file has been cut meanwhile. Holes stay holes.
    async fn copy(&self, inode: &Inode, file: &OpenFile) -> Result<Option<u64>> {
        let (mut at, size) = (self.map.inline_bytes(), inode.size);
        let mut copied = 0;
        while at < size {
            let (data, hole) =
                if inode.sparse { run(&self.fs.shared, file, at, size).await? } else { (at, size) };
            let starts = (data..hole).step_by(CHUNK_BYTES as usize);
            let chunks =
                starts.map(|from| self.copy_chunk(file, from, hole.min(from + CHUNK_BYTES)));
            let mut chunks = stream::iter(chunks).buffer_unordered(CHUNKS);
            while let Some(bytes) = chunks.try_next().await? {
                match bytes {
                    Some(bytes) => copied += bytes,
                    None => return Ok(None),
                }
            }
            at = hole;
        }
        Ok(Some(copied))
    }

    /// Reads a range at once, and stages what of it follows each other on a server with one request.
    async fn copy_chunk(&self, file: &OpenFile, from: u64, end: u64) -> Result<Option<u64>> {
        self.pace.take(&self.fs.shared, end - from).await?;
        let data = file.read(&self.fs.shared, from, (end - from) as usize).await?;
        if data.len() as u64 != end - from {
            return Ok(None);
        }
        let stages = self.runs(from, end).into_iter().map(|run| {
            let chain = self.new.servers.0[run.slot];
            self.stage_run(chain, run.physical, data.select(&run.ranges).into_bytes())
        });
        try_join_all(stages).await?;
        self.copied.fetch_add(end - from, Ordering::Relaxed);
        self.pace.add(end - from);
        Ok(Some(end - from))
    }

    /// In as many messages as it takes.
    async fn stage_run(&self, chain: u16, mut at: u64, mut data: Bytes) -> Result<()> {
        while !data.is_empty() {
            let most = self.fs.shared.data.chain(chain)?.payload_max() as usize;
            let piece = data.split_to(data.len().min(most.saturating_sub(STAGE_BYTES).max(1)));
            let bytes = piece.len() as u64;
            self.stage(chain, Staging::Go, at, piece.into()).await?;
            at += bytes;
        }
        Ok(())
    }

    /// A range of the file by where it lies.
    fn runs(&self, from: u64, end: u64) -> Vec<SlotRun> {
        let (mut runs, mut at) = (Vec::<SlotRun>::new(), from);
        while at < end {
            let spot = self.map.locate(at);
            debug_assert!(spot.slot != INLINE, "what lies with the inode does not move");
            let bytes = spot.run.min(end - at);
            let before = runs.iter_mut().rev().find(|run| run.slot == spot.slot);
            match before {
                Some(run) if run.end == spot.physical => {
                    run.ranges.push((at - from, bytes));
                    run.end += bytes;
                }
                _ => runs.push(SlotRun {
                    slot: spot.slot,
                    physical: spot.physical,
                    end: spot.physical + bytes,
                    ranges: vec![(at - from, bytes)],
                }),
            }
            at += bytes;
        }
        runs
    }

    /// What is missing reads as zeros: that would make a loss that `covey fsck` finds one that nobody does.
    async fn must_be_whole(&self, inode: &Inode, old: &Striping) -> Result<()> {
        let map = distribution::of(old)?;
        for (slot, &chain) in old.servers.0.iter().enumerate() {
            let wanted = map.physical_size(slot, inode.size);
            let chain = self.fs.shared.data.chain(chain)?;
            let op = DataOp::Look { ids: List(vec![self.id]) };
            let has = match self.fs.shared.on_chain(&chain, op).await?.0 {
                DataReply::Objects { objects } => objects.0.first().map_or(0, |one| one.bytes),
                _ => return Err(Error::because(Errno::EPROTO, "an odd answer to Look")),
            };
            if has < wanted {
                let server = chain.link();
                let text = format!("{} has {has} of {wanted} bytes of it", server.server());
                return Err(Error::because(Errno::EIO, text));
            }
        }
        Ok(())
    }

    async fn stage(&self, chain: u16, how: Staging, offset: u64, data: Payload) -> Result<()> {
        let (id, epoch, how) = (self.id, self.epoch, how as u8);
        let chain = self.fs.shared.data.chain(chain)?;
        let op = DataOp::Stage { id, epoch, how, offset, data };
        self.fs.shared.on_chain(&chain, op).await.map(drop)
    }

    /// What was staged goes, if it is certain that the file has not moved: an answer may have been lost. What stays goes
    /// when the object is cut, moved or removed.
    async fn give_up(&self) {
        let (id, epoch) = (self.id, self.epoch);
        match self.fs.shared.session.inode_now(id).await {
            Ok(inode) if inode.epoch < epoch => {}
            _ => return,
        }
        for &chain in &self.new.servers.0 {
            if let Ok(chain) = self.fs.shared.data.chain(chain) {
                let _ = self.fs.shared.on_chain(&chain, DataOp::Unstage { id, epoch }).await;
            }
        }
    }
}

/// The next data at or after `at`, and where it ends; both `size` where there is none.
async fn run(fs: &Shared, file: &OpenFile, at: u64, size: u64) -> Result<(u64, u64)> {
    let end = |found: Result<u64>| match found {
        Ok(at) => Ok(at.min(size)),
        Err(error) if error.code() == Errno::ENXIO => Ok(size),
        Err(error) => Err(error),
    };
    let data = end(file.seek(fs, at, Seek::Data).await)?;
    let hole = if data < size { end(file.seek(fs, data, Seek::Hole).await)? } else { size };
    Ok((data, hole))
}
