//! A chain that goes to another I/O server while it is used: the copying half (what the metadata server does of it is said
//! at its `HoldChain`).
//!
//! Everything is copied while the chain serves, then what has changed meanwhile, until that is little. For the last of it the
//! chain is held back: clients wait, as for a server that starts anew. What fails at any time leaves the chain where it is.

use super::super::{Fs, data_call};
use super::Pace;
use crate::error::{Error, Result};
use crate::objects::{
    COPY_BLOCK, Changed, DataOp, DataReply, FileOf, Hop, Kept, Put, WHOLE, of_chain,
};
use crate::ops::{Caller, Id, Op, Reply};
use covey_ninep::tree::Errno;
use covey_wire::{Bytes, List, Name, Payload};
use futures_util::future::{Either, select};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use std::collections::BTreeMap;
use std::ops::Range;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Objects copied at the same time.
const OBJECTS: usize = 16;
/// Objects listed with one request.
const LIST: u32 = 1024;
/// Bytes copied with one request.
const PIECE: u64 = 1 << 20;
/// So few changes are copied while the chain is held back.
const FEW: usize = 256;
/// Passes over what has changed before the chain is held back although it is more, as long as it is not too much.
const PASSES: usize = 12;
const MANY: usize = 2048;
/// How often it is tried to hold it back, and how often others are waited for.
const TRIES: usize = 4;
const WAITS: usize = 150;
/// How often everything is copied anew.
const WHOLE_COPIES: usize = 3;
/// How long the copying of the rest may take: clients wait for three seconds.
const REST: Duration = Duration::from_millis(1200);
const PAUSE: Duration = Duration::from_millis(200);

impl Fs {
    /// Gives a chain to another I/O server, with all that lies on it, while it is used; answers how many bytes were copied.
    /// Whoever waits for it is refused by nobody. One chain is held back at a time: others wait, and EAGAIN after half a minute.
    pub async fn move_chain(&self, chain: u16, server: u16, pace: &Pace) -> Result<u64> {
        let table = self.chains().await?;
        let odd = || Error::because(Errno::EINVAL, format!("chain {chain} is not known"));
        let now = table.get(usize::from(chain)).ok_or_else(odd)?;
        let (from, generation) = (now.head().ok_or_else(odd)?, now.generation);
        if from.server == server {
            let what = format!("chain {chain} is on that server already");
            return Err(Error::because(Errno::EINVAL, what));
        }
        let store = self.store_of(server).await?;
        let copied = AtomicU64::new(0);
        let (from, to, stay, machine) = (from.server, server, 0, 0);
        let mut job =
            Job { fs: self, chain, generation, from, to, store, stay, machine, pace, copied };
        // First: a server that has given the chain away refuses.
        job.watch().await?;
        let moved = job.run().await;
        if moved.is_err() {
            pace.take_back(job.copied.load(Ordering::Relaxed));
            job.give_up().await;
        }
        moved.map(|()| job.copied.load(Ordering::Relaxed))
    }

    /// The store that an I/O server serves from.
    async fn store_of(&self, server: u16) -> Result<Name> {
        match self.ask(&Caller::default(), Op::Stores {}).await? {
            Reply::Stores { stores } => {
                let state = stores.0.into_iter().nth(server.into());
                let state = state.filter(|state| !state.known.is_empty() && state.why.is_empty());
                let text = "the I/O server takes no chain: its store is not known";
                Ok(state.ok_or_else(|| Error::because(Errno::EIO, text))?.known)
            }
            _ => Err(odd("Stores")),
        }
    }
}

struct Job<'a> {
    fs: &'a Fs,
    chain: u16,
    /// As it was when the copying began.
    generation: u32,
    from: u16,
    to: u16,
    /// The store of the server that it goes to.
    store: Name,
    stay: u32,
    /// The start of the machine of the server that it comes from.
    machine: u64,
    pace: &'a Pace,
    copied: AtomicU64,
}

impl Job<'_> {
    async fn run(&mut self) -> Result<()> {
        self.copy_all().await?;
        let (mut copies, mut tries, mut waits) = (1, 0, 0);
        while tries < TRIES {
            // Changes that are not yet copied, when all are not few.
            let mut left = Some(Vec::new());
            for pass in 0.. {
                left = self.changes().await?;
                match &left {
                    None if copies == WHOLE_COPIES => {
                        return Err(busy("it changes faster than it is copied"));
                    }
                    None => {
                        copies += 1;
                        self.watch().await?;
                        self.copy_all().await?;
                    }
                    Some(changes) if changes.len() <= FEW => break,
                    Some(changes) if pass >= PASSES && changes.len() <= MANY => break,
                    Some(_) if pass >= 3 * PASSES => {
                        return Err(busy("it changes faster than it is copied"));
                    }
                    Some(changes) => self.copy_changes(changes, true).await?,
                }
            }
            self.copy_changes(&left.unwrap_or_default(), true).await?;
            let (chain, server, stay) = (self.chain, self.to, self.stay);
            let hold = Op::HoldChain { chain, server, generation: self.generation, stay };
            let held = self.fs.ask(&Caller::default(), hold).await;
            let (generation, hold) = match held {
                Ok(Reply::Held { generation, hold }) => (generation, hold),
                Ok(_) => return Err(odd("HoldChain")),
                Err(error) if error.code() == Errno::EBUSY => {
                    tries += 1;
                    self.fs.shared.net.sleep(PAUSE).await;
                    continue;
                }
                // Another one is held, which nobody notices, or the server is yet to be met.
                Err(error) if error.code() == Errno::EAGAIN && waits < WAITS => {
                    waits += 1;
                    self.fs.shared.net.sleep(PAUSE).await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let rest = {
                let rest = pin!(self.copy_rest(generation));
                let time = pin!(self.fs.shared.net.sleep(REST));
                match select(rest, time).await {
                    Either::Left((rest, _)) => rest,
                    Either::Right(_) => Ok(false),
                }
            };
            match rest {
                Ok(true) => {
                    let store = self.store.clone();
                    let switch = Op::SwitchChain { chain, server, generation, stay, hold, store };
                    let switched = self.fs.ask(&Caller::default(), switch).await;
                    return match switched {
                        // The answer may be lost, and it is refused when it is sent again.
                        Err(error) if !self.is_there(generation).await => Err(error),
                        _ => Ok(()),
                    };
                }
                // What was not copied of what has changed is not known any more, and what was sent may still arrive: it begins anew.
                Ok(false) => {
                    self.release(hold).await;
                    return Err(busy(
                        "the last of it is not copied in the time that others can wait",
                    ));
                }
                Err(error) => {
                    self.release(hold).await;
                    return Err(error);
                }
            }
        }
        Err(busy("its I/O server does not end what is under way"))
    }

    /// What has changed since the chain was held back; whether all of it was copied.
    async fn copy_rest(&self, generation: u32) -> Result<bool> {
        // Until there is nothing, which also says that the disk has kept what was read.
        loop {
            match self.changes().await? {
                Some(changes) if changes.is_empty() => break,
                Some(changes) if changes.len() <= MANY => {
                    self.copy_changes(&changes, false).await?
                }
                _ => return Ok(false),
            }
        }
        let hops = List(self.hops(generation).await?);
        let (store, chain, stay) = (self.store.clone(), self.chain, self.stay);
        self.put(DataOp::Settle { store, chain, stay, generation, hops }).await?;
        Ok(true)
    }

    /// Has noted what changes. What is noted is lost with the connection, so the machine stays as it is until all is copied.
    async fn watch(&mut self) -> Result<()> {
        self.ask(DataOp::Watch { is_on: true }).await?;
        self.machine = self.fs.shared.data.get(self.from)?.last_machine().unwrap_or(0);
        Ok(())
    }

    /// The moves of the chain, with this one.
    async fn hops(&self, generation: u32) -> Result<Vec<Hop>> {
        let mut hops = match self.ask(DataOp::Hops {}).await? {
            DataReply::Hops { hops } => hops.0,
            _ => return Err(odd("Hops")),
        };
        hops.push(Hop { generation, machine: self.machine });
        Ok(hops)
    }

    /// Whether the other server has the chain, since this generation.
    async fn is_there(&self, generation: u32) -> bool {
        let Ok(table) = self.fs.chains().await else { return false };
        let now = table.get(usize::from(self.chain)).filter(|now| now.generation == generation);
        now.and_then(|now| now.head()).is_some_and(|head| head.server == self.to)
    }

    async fn release(&self, hold: u64) {
        let release = Op::ReleaseChain { hold };
        // It is given back after a while by itself.
        let _ = self.fs.ask(&Caller::default(), release).await;
    }

    async fn give_up(&self) {
        let (chain, stay) = (self.chain, self.stay);
        let _ = self.ask(DataOp::Watch { is_on: false }).await;
        if stay > 0 {
            let _ = self.put(DataOp::Spare { chain, stay }).await;
        }
    }

    /// An operation on the chain where it is.
    async fn ask(&self, op: DataOp) -> Result<DataReply> {
        let link = self.fs.shared.data.get(self.from)?;
        data_call(&link, of_chain(self.from, self.chain, op)).await
    }

    /// An operation on the server that it goes to.
    async fn put(&self, op: DataOp) -> Result<DataReply> {
        data_call(&self.fs.shared.data.get(self.to)?, op).await
    }

    /// What has changed since this was asked last; None where everything counts as changed.
    async fn changes(&self) -> Result<Option<Vec<Changed>>> {
        match self.ask(DataOp::Changes {}).await? {
            DataReply::Changes { is_all: true, .. } => Ok(None),
            DataReply::Changes { parts, .. } => Ok(Some(parts.0)),
            _ => Err(odd("Changes")),
        }
    }

    /// Copies everything, to where nothing is yet.
    async fn copy_all(&mut self) -> Result<()> {
        let (store, chain) = (self.store.clone(), self.chain);
        self.stay = match self.put(DataOp::Receive { store, chain }).await? {
            DataReply::Received { stay } => stay,
            _ => return Err(odd("Receive")),
        };
        let mut after = 0;
        loop {
            let DataReply::Files { files } = self.ask(DataOp::Files { after, count: LIST }).await?
            else {
                return Err(odd("Files"));
            };
            let Some(last) = files.0.last() else { return Ok(()) };
            after = last.id;
            let mut by_id: BTreeMap<Id, Vec<FileOf>> = BTreeMap::new();
            files.0.iter().for_each(|file| by_id.entry(file.id).or_default().push(*file));
            self.copy_objects(by_id.into_iter().collect(), true, true).await?;
        }
    }

    /// Copies what has changed: objects with all that is beside them, or blocks of them.
    async fn copy_changes(&self, changes: &[Changed], is_paced: bool) -> Result<()> {
        let mut by_id: BTreeMap<Id, Vec<u32>> = BTreeMap::new();
        for change in changes {
            by_id.entry(change.id).or_default().push(change.block);
        }
        let ids: Vec<Id> = by_id.keys().copied().collect();
        for ids in ids.chunks(LIST as usize) {
            let DataReply::Files { files } =
                self.ask(DataOp::FilesOf { ids: List(ids.to_vec()) }).await?
            else {
                return Err(odd("FilesOf"));
            };
            let mut whole: Vec<(Id, Vec<FileOf>)> = Vec::new();
            let mut parts = Vec::new();
            for &id in ids {
                let files: Vec<FileOf> =
                    files.0.iter().filter(|file| file.id == id).copied().collect();
                match (&by_id[&id][..], &files[..]) {
                    (blocks, [file])
                        if !blocks.contains(&WHOLE) && file.kept == Kept::Object as u8 =>
                    {
                        parts.push((*file, blocks.to_vec()));
                    }
                    _ => whole.push((id, files)),
                }
            }
            self.copy_objects(whole, false, is_paced).await?;
            let copies =
                parts.into_iter().map(|(file, blocks)| self.copy_blocks(file, blocks, is_paced));
            stream::iter(copies).buffer_unordered(OBJECTS).try_collect::<Vec<()>>().await?;
        }
        Ok(())
    }

    /// Copies all files of objects. Unless nothing is there of them yet, what is there goes first.
    async fn copy_objects(
        &self,
        objects: Vec<(Id, Vec<FileOf>)>,
        are_new: bool,
        is_paced: bool,
    ) -> Result<()> {
        let copies = objects.into_iter().map(|(id, files)| async move {
            let (chain, stay) = (self.chain, self.stay);
            if !are_new {
                self.put(DataOp::Clear { chain, stay, id }).await?;
            }
            for file in files {
                self.copy_file(file, is_paced).await?;
            }
            Ok::<(), Error>(())
        });
        stream::iter(copies).buffer_unordered(OBJECTS).try_collect::<Vec<()>>().await.map(drop)
    }

    /// A whole file. One that is gone has changed meanwhile, and is met again.
    async fn copy_file(&self, file: FileOf, is_paced: bool) -> Result<()> {
        self.put_piece(&file, Put::Begin, 0, Bytes::new()).await?;
        let size = match self.copy_range(&file, 0..file.bytes, false, is_paced).await {
            Err(error) if error.code() == Errno::ENOENT => 0,
            other => other.map(|()| file.bytes)?,
        };
        self.put_piece(&file, Put::End, size, Bytes::new()).await
    }

    /// Blocks of an object of which the rest was copied.
    async fn copy_blocks(&self, file: FileOf, mut blocks: Vec<u32>, is_paced: bool) -> Result<()> {
        blocks.sort_unstable();
        let copied = async {
            let mut at = 0;
            while at < blocks.len() {
                let run = blocks[at..]
                    .iter()
                    .zip(blocks[at]..)
                    .take_while(|(block, next)| *block == next);
                let run = run.take((PIECE / COPY_BLOCK) as usize).count();
                let first = u64::from(blocks[at]) * COPY_BLOCK;
                let end = (first + run as u64 * COPY_BLOCK).min(file.bytes);
                self.copy_range(&file, first..end, true, is_paced).await?;
                at += run;
            }
            self.put_piece(&file, Put::End, file.bytes, Bytes::new()).await
        };
        match copied.await {
            // It was not there, under whatever name: what has got another one has changed as a whole.
            Err(error) if error.code() == Errno::ENOENT => {
                let ids = List(vec![file.id]);
                let DataReply::Files { files } = self.ask(DataOp::FilesOf { ids }).await? else {
                    return Err(odd("FilesOf"));
                };
                Box::pin(self.copy_objects(vec![(file.id, files.0)], true, is_paced)).await
            }
            other => other,
        }
    }

    /// Copies a range. What is a hole there is a hole in a new file; where it was copied before it is made one.
    async fn copy_range(
        &self,
        file: &FileOf,
        range: Range<u64>,
        is_again: bool,
        is_paced: bool,
    ) -> Result<()> {
        let FileOf { id, epoch, kept, .. } = *file;
        let (mut at, end) = (range.start, range.end);
        while at < end {
            let count = (end - at).min(PIECE) as u32;
            let next = at + u64::from(count);
            let fetch = DataOp::Fetch { id, epoch, kept, offset: at, count };
            let DataReply::Fetched { offset, data } = self.ask(fetch).await? else {
                return Err(odd("Fetch"));
            };
            let data = data.into_bytes();
            let bytes = data.len() as u64;
            let Some(run) = run(at..next, end, offset, bytes) else {
                return Err(Error::Odd(format!("bytes of object {id:016x} that nobody asked for")));
            };
            if is_again && run.start > at {
                let length = Bytes::copy_from_slice(&(run.start - at).to_le_bytes());
                self.put_piece(file, Put::Empty, at, length).await?;
            }
            if !data.is_empty() {
                if is_paced {
                    self.pace.take(&self.fs.shared, bytes).await?;
                }
                self.put_piece(file, Put::Go, run.start, data).await?;
                self.pace.add(bytes);
                self.copied.fetch_add(bytes, Ordering::Relaxed);
            }
            at = run.end;
        }
        Ok(())
    }

    async fn put_piece(&self, file: &FileOf, how: Put, offset: u64, data: Bytes) -> Result<()> {
        let (chain, stay, how) = (self.chain, self.stay, how as u8);
        let FileOf { id, epoch, kept, .. } = *file;
        let data = Payload::from(data);
        self.put(DataOp::Put { chain, stay, id, epoch, kept, how, offset, data }).await.map(drop)
    }
}

/// Where the bytes lie that were answered for a range. Without any there are zeros as far as the answer says, be it behind the
/// range, and at least there; up to `end` that is of interest.
fn run(asked: Range<u64>, end: u64, offset: u64, bytes: u64) -> Option<Range<u64>> {
    if bytes == 0 {
        let at = offset.clamp(asked.end, end);
        return Some(at..at);
    }
    let after = offset.checked_add(bytes)?;
    (asked.start <= offset && after <= asked.end).then_some(offset..after)
}

fn odd(what: &str) -> Error {
    Error::Odd(format!("an odd answer to {what}"))
}

fn busy(why: &str) -> Error {
    Error::because(Errno::EBUSY, format!("the chain stays where it is: {why}"))
}

#[cfg(test)]
mod tests {
    use super::run;

    #[test]
    fn a_hole_is_passed_as_a_whole_and_no_bytes_are_taken_that_nobody_asked_for() {
        assert_eq!(run(10..20, 1000, 10, 10), Some(10..20));
        assert_eq!(run(10..20, 1000, 12, 3), Some(12..15));
        for (offset, bytes) in [(9, 5), (11, 10), (20, 1), (u64::MAX, 1)] {
            assert_eq!(run(10..20, 1000, offset, bytes), None, "{offset} {bytes}");
        }
        // Servers that look no further than they are asked, and those that do.
        assert_eq!(run(10..20, 1000, 10, 0), Some(20..20));
        assert_eq!(run(10..20, 1000, 900, 0), Some(900..900));
        assert_eq!(run(10..20, 1000, u64::MAX, 0), Some(1000..1000));
        assert_eq!(run(990..1000, 1000, 3, 0), Some(1000..1000));
    }
}
