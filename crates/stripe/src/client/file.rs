//! Striped reads and writes.
//!
//! All handles that a client has on one file share one [`OpenFile`]: what is known of its size,
//! epoch and striping, and one fid per I/O server. The metadata server is asked only when the known size
//! does not settle the matter:
//!
//! - a read within the known size goes to the I/O servers alone; one that reaches beyond it asks for
//!   the size beside it, so that a completed write of any other client is seen;
//! - a write that extends the file tells its new end once its data is there: a writer that dies in
//!   the middle leaves no size that the data does not reach.
//!
//! The known size never shrinks within an epoch. A truncation raises the epoch, and then the
//! data servers refuse our fids with ESTALE: we learn the new epoch and do it again.

mod ahead;
mod dense;
mod handed;
mod inline;
mod late;
mod pin;
mod privilege;
mod ranges;
mod slot;
mod slots;
mod space;
mod tries;
mod view;

pub(super) use ahead::Total as Ahead;

use super::beside::Asker;
use super::chain::Chain;
use super::session::{Session, unexpected};
use super::{BoxFuture, Error, Result, Shared};
use crate::distribution::{self, Distribution, Map};
use crate::ops::{Caller, Id, InlinePiece, Inode, Op, Reply, Striping};
use covey_ninep::tree::Errno;
use covey_wire::{Bytes, Payload};
use futures_util::future::{self, FutureExt, join, join_all};
use inline::Growth;
use slot::{Counted, Slot};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tries::{Behind, Tries};

/// What all handles of one client on one file share.
pub struct OpenFile {
    id: Id,
    map: Map,
    striping: Striping,
    chains: Vec<Arc<Chain>>,
    /// It was set-user-ID or set-group-ID in `State::version`.
    is_privileged: AtomicBool,
    state: Mutex<State>,
}

struct State {
    size: u64,
    epoch: u32,
    /// The epoch in which the metadata server knows that the I/O servers may hold more than the
    /// size says.
    begun: Option<u32>,
    /// The starts of the metadata server and its machine that have told this.
    starts: (u64, u64),
    /// An end was acknowledged since the last fsync; one was that may be lost.
    is_told: bool,
    is_told_lost: bool,
    /// It was cut while something here was not synced: by whom, and whether after a loss, is not known yet.
    is_recut: bool,
    slots: Vec<Slot>,
    /// The latest version of the inode that was seen.
    version: u64,
    /// What of it decides on its privilege.
    owner: privilege::Owner,
    /// On whose behalf the metadata server hears of writes: root, until somebody else writes.
    writer: Caller,
    /// Content was written since the metadata server last heard of it.
    touch_due: bool,
    touched_at: Option<Instant>,
    /// What is known to be there, so that a file without holes can be told from one with holes.
    written: dense::Written,
    /// The metadata server's answer to the last that it was told of beside a write: whether it came.
    told: Option<Told>,
    pinned: pin::Pinned,
    /// A quota has refused a write whose bytes may be on I/O servers; when such were cut last.
    owes_cut: bool,
    cut_at: Option<Instant>,
    reads: ahead::Reads,
}

impl State {
    /// Whether an I/O server may hold something of the file that was not synced through here.
    fn has_unsynced(&self) -> bool {
        self.slots.iter().any(Slot::is_dirty)
    }
}

type Told = future::Shared<BoxFuture<bool>>;

const PAGE_BYTES: u64 = 4096;
const RETRY_PAUSE: Duration = Duration::from_millis(50);
const TOUCH_EVERY: Duration = Duration::from_secs(1);

impl OpenFile {
    /// The shared state of a file just opened.
    pub fn new(
        inode: &Inode,
        striping: &Striping,
        chains: Vec<Arc<Chain>>,
        starts: (u64, u64),
    ) -> Result<OpenFile> {
        let map = distribution::of(striping)?;
        let is_written = |slot| map.physical_size(slot, inode.size) > 0;
        let slot = |(at, chain): (usize, &Arc<Chain>)| Slot::opened(is_written(at), chain.head());
        let slots = chains.iter().enumerate().map(slot).collect();
        let state = State {
            size: inode.size,
            epoch: inode.epoch,
            begun: None,
            starts,
            // Whoever has told of the size, be it 0, may have closed the file and not synced it.
            is_told: true,
            is_told_lost: false,
            is_recut: false,
            slots,
            version: 0,
            owner: Default::default(),
            writer: Caller::default(),
            touch_due: false,
            touched_at: None,
            written: dense::Written::default(),
            told: None,
            pinned: pin::Pinned::default(),
            owes_cut: false,
            cut_at: None,
            reads: ahead::Reads::default(),
        };
        let (is_privileged, state) = (AtomicBool::default(), Mutex::new(state));
        let striping = striping.clone();
        Ok(OpenFile { id: inode.id, map, striping, chains, is_privileged, state })
    }

    /// Takes in fresher attributes.
    pub fn refresh(&self, inode: &Inode) {
        let mut state = self.lock();
        self.note_privilege(&mut state, inode);
        state.written.saw(inode);
        state.meet_striping(inode, &self.striping);
        if state.is_taken_by(inode) {
            return;
        }
        if inode.epoch > state.epoch {
            state.is_recut |= state.has_unsynced();
            state.epoch = inode.epoch;
            state.size = inode.size;
        } else if inode.epoch == state.epoch {
            state.size = state.size.max(inode.size);
        }
    }

    /// A truncation through this client was acknowledged: the next fsync speaks for it.
    fn was_cut(&self) {
        self.lock().is_told = true;
    }

    /// Reads; see [`super::File::read_at`].
    pub async fn read(&self, fs: &Shared, offset: u64, count: usize) -> Result<Payload> {
        let wanted_end = offset.saturating_add(count as u64);
        self.lock().reads.begin(offset, wanted_end);
        let mut tries = Tries::new(self, fs);
        loop {
            let (_, epoch) = tries.begin().await?;
            let tried = self.read_once(fs, offset, wanted_end, epoch).await;
            if let Some(data) = tries.end(tried).await? {
                return Ok(data);
            }
        }
    }

    async fn read_once(
        &self,
        fs: &Shared,
        offset: u64,
        wanted_end: u64,
        epoch: u32,
    ) -> Result<Payload> {
        let known = self.lock().size;
        let inline = self.inline_bytes();
        if offset >= inline && wanted_end <= known {
            return self.read_range(fs, offset, wanted_end, epoch).await;
        }
        let start = offset.max(inline);
        let asked = async {
            if offset < inline {
                return self.read_inline(fs, offset, wanted_end).await;
            }
            Ok((self.ask_size(&fs.session).await?, Bytes::new()))
        };
        let first = self.read_range(fs, start, known.min(wanted_end), epoch);
        let (asked, first) = join(asked, first).await;
        let ((size, head), first) = (asked?, first?);
        if self.lock().epoch != epoch {
            return Err(Errno::ESTALE.into());
        }
        // A size that was lost with the power may end before what was known: nothing comes after it.
        if offset < inline && offset + (head.len() as u64) < inline.min(wanted_end) {
            return Ok(head.into());
        }
        let had = start + first.len() as u64;
        let rest = self.read_range(fs, had, size.min(wanted_end), epoch).await?;
        Ok(Payload::gather([&[head], first.pieces(), rest.pieces()].concat()))
    }

    /// Writes; see [`super::File::write_at`].
    pub async fn write(&self, fs: &Shared, offset: u64, data: Payload) -> Result<()> {
        let end = offset.checked_add(data.len() as u64).filter(|&end| end <= i64::MAX as u64);
        let end = end.ok_or_else(|| {
            Error::because(Errno::EFBIG, format!("a write of {} bytes at {offset}", data.len()))
        })?;
        if data.is_empty() {
            return Ok(());
        }
        let mut tries = Tries::new(self, fs);
        loop {
            let (size, epoch) = tries.begin().await?;
            let growth = self.growth(offset, end, size, offset > size);
            self.begin_write(epoch, growth.is_some_and(|growth| growth.hole));
            let tried = self.write_all(fs, offset, &data, epoch, growth).await;
            if tries.end(tried).await?.is_some() {
                self.wrote_ranges(epoch, [(offset, end)].into_iter());
                self.wrote(fs, epoch, end, growth.is_some());
                return Ok(());
            }
        }
    }

    /// Writes what lies with the metadata and what lies on the I/O servers, and then tells of the
    /// growth.
    async fn write_all(
        &self,
        fs: &Shared,
        offset: u64,
        data: &Payload,
        epoch: u32,
        growth: Option<Growth>,
    ) -> Result<()> {
        let inline = self.inline_bytes().saturating_sub(offset).min(data.len() as u64);
        let end = growth.map_or(0, |growth| growth.end);
        if inline == 0 {
            self.begin_beyond(fs, epoch, end).await?;
            self.write_range(fs, offset, data, epoch).await?;
            return self.extend(fs, epoch, growth).await;
        }
        let head = data.select(&[(0, inline)]).into_bytes();
        let rest = data.select(&[(inline, data.len() as u64 - inline)]);
        let piece = InlinePiece { offset: offset as u32, bytes: inline as u32 };
        // The bytes before it become zeros that are there: no hole.
        let growth = Growth { end, hole: false };
        let head = self.write_inline(fs, epoch, growth, vec![piece], head);
        let rest = self.write_range(fs, offset + inline, &rest, epoch);
        if end <= self.lock().size {
            let (head, rest) = join(head, rest).await;
            return head.and(rest);
        }
        self.begin_beyond(fs, epoch, end).await?;
        rest.await?;
        head.await
    }

    /// A write is about to go to the I/O servers, up to `end`. Where the file so far lies with its
    /// inode the metadata server hears of it first: the write may end in the middle, and what it has
    /// left is to be cut and removed with the file.
    async fn begin_beyond(&self, fs: &Shared, epoch: u32, end: u64) -> Result<()> {
        let inline = self.inline_bytes();
        let is_told = {
            let state = self.lock();
            state.size.max(1) > inline || state.begun == Some(epoch)
        };
        if is_told || end <= inline {
            return Ok(());
        }
        if !fs.session.is_made_beyond(self.id).await {
            self.extend(fs, epoch, Some(Growth { end: 0, hole: false })).await?;
        }
        self.lock().begun = Some(epoch);
        Ok(())
    }

    async fn extend(&self, fs: &Shared, epoch: u32, growth: Option<Growth>) -> Result<()> {
        let Some(Growth { end, hole }) = growth else { return Ok(()) };
        let nothing = InlinePiece { offset: 0, bytes: 0 };
        if end > 0
            && !hole
            && fs.session.write_late(&self.writer(), self.id, (epoch, end, hole), nothing, &[])
        {
            return Ok(());
        }
        let extend = Op::Extend { id: self.id, epoch, end, hole };
        fs.session.change(&self.writer(), extend).await.map(|_| ())
    }

    /// Appends; see [`super::File::append`]. Not to be dropped midway: nobody else commits.
    pub async fn append(&self, fs: &Shared, data: Payload, asker: Asker) -> Result<u64> {
        self.meet_restart(fs).await?;
        self.check_ours()?;
        if let Some(offset) = self.append_inline(fs, &data, asker.clone()).await? {
            return Ok(offset);
        }
        let length = data.len() as u64;
        let mut behind = Behind::default();
        loop {
            self.meet_restart(fs).await?;
            self.check_ours()?;
            let machine = self.lock().starts.1;
            let place = fs.session.reserve(&self.writer(), self.id, length, asker.clone()).await?;
            let (offset, epoch) = (place.offset, place.epoch);
            let written = async {
                // The place is of an epoch that was not heard of yet: the file may lie elsewhere since.
                if self.lock().epoch != epoch {
                    self.fresh(fs).await?;
                    self.check_ours()?;
                }
                self.write_reserved(fs, offset, &data, epoch).await
            };
            let written = written.await;
            // The reservation ends even when the data did not arrive, or later appends would wait. What is not
            // there is a hole: nobody may miss it as lost.
            let hole = written.is_err();
            if hole {
                self.makes_hole();
            }
            let told = fs.session.commit(place, hole).await;
            match written.and(told) {
                Ok(()) if self.has_lost_end(fs, machine, offset + length).await? => {
                    return Err(Error::Unsynced { server: None });
                }
                Ok(()) => {
                    self.wrote_ranges(epoch, [(offset, offset + length)].into_iter());
                    self.wrote(fs, epoch, offset + length, true);
                    let mut state = self.lock();
                    // Another act has met a loss of power meanwhile: the place may be lost with it.
                    state.is_told_lost |= state.starts.1 != machine;
                    return Ok(offset);
                }
                Err(Error::Stale(_)) => {
                    self.learn_epoch(fs, epoch, &mut behind).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether the metadata server has lost its power since it ran on that machine, and an end of this file with it.
    async fn has_lost_end(&self, fs: &Shared, machine: u64, end: u64) -> Result<bool> {
        Ok(fs.session.starts().1 != machine && self.ask_size(&fs.session).await? < end)
    }

    /// Writes to a place that was reserved. ESTALE only when a truncation has taken it away: else it
    /// would stay a hole, and the append would go to another place.
    async fn write_reserved(
        &self,
        fs: &Shared,
        offset: u64,
        data: &Payload,
        epoch: u32,
    ) -> Result<()> {
        let mut behind = Behind::default();
        loop {
            let limit = self.payload_max();
            match self.write_all(fs, offset, data, epoch, None).await {
                Err(error) if self.was_too_large(&error, limit) => {}
                Err(error @ Error::Stale(_)) => {
                    self.learn_epoch(fs, epoch, &mut behind).await?;
                    if self.lock().epoch != epoch {
                        return Err(error);
                    }
                }
                other => return other,
            }
        }
    }

    /// At least how large the file is, as far as is known here.
    pub fn known_size(&self) -> u64 {
        self.lock().size
    }

    /// The size now.
    pub async fn size(&self, fs: &Shared) -> Result<u64> {
        self.ask_size(&fs.session).await
    }

    /// Tells the metadata server of written content it has not heard of. Afterwards the file has
    /// another version than before what was written.
    pub async fn flush(&self, fs: &Shared) -> Result<()> {
        if let Err(error) = fs.session.finish(self.id).await {
            // Not even the size is what was said late.
            self.lock().size = 0;
            return Err(error);
        }
        self.give_back(fs).await;
        self.tell_dense(fs).await;
        let told = self.lock().told.clone();
        if let Some(told) = told {
            let is_heard = told.clone().await;
            let mut state = self.lock();
            // Whoever waited for it first has seen to it.
            if state.told.as_ref().is_some_and(|last| last.ptr_eq(&told)) {
                state.told = None;
                state.touch_due |= !is_heard;
            }
        }
        if !std::mem::take(&mut self.lock().touch_due) {
            return Ok(());
        }
        let mut owed = OwedTouch { file: self, is_due: true };
        fs.session.change(&self.writer(), Op::Touch { id: self.id }).await?;
        owed.is_due = false;
        Ok(())
    }

    /// The time of the last content change is about to be set to something else.
    pub fn forget_touch(&self) {
        let mut state = self.lock();
        (state.touch_due, state.told) = (false, None);
    }

    /// Objects and then the metadata to stable storage.
    pub async fn fsync(&self, fs: &Shared) -> Result<()> {
        self.meet_restart(fs).await?;
        self.flush(fs).await?;
        let told = std::mem::take(&mut self.lock().is_told);
        let mut owed = OwedSync { file: self, is_due: told };
        let dirty: Vec<(usize, u64)> = {
            let state = self.lock();
            let slots = state.slots.iter().enumerate();
            slots.filter(|(_, slot)| slot.is_dirty()).map(|(at, slot)| (at, slot.written)).collect()
        };
        // All of them: what one server tells it tells once, and it must not be lost because another one is away.
        let synced = dirty.iter().map(|&(slot, written)| self.sync_slot(fs, slot, written));
        let errors = join_all(synced).await.into_iter().filter_map(Result::err);
        if let Some(error) = errors.min_by_key(Error::is_away) {
            return Err(error);
        }
        let starts = self.lock().starts;
        fs.session.ask(&Caller::default(), Op::Fsync { id: self.id }).await?;
        // One that has started anew meanwhile has synced what was left.
        if fs.session.starts().1 == starts.1 {
            owed.is_due = false;
        }
        drop(owed);
        self.meet_restart(fs).await?;
        let mut state = self.lock();
        if std::mem::take(&mut state.is_told_lost) {
            return Err(Error::Unsynced { server: None });
        }
        state.is_recut &= state.has_unsynced();
        Ok(())
    }

    /// Gives the fids back; nobody holds the file any more.
    pub fn close(&self) {
        for slot in &mut self.lock().slots {
            slot.fid = None;
        }
    }

    async fn ask_size(&self, session: &Session) -> Result<u64> {
        let inode = session.inode(self.id).await?;
        self.refresh(&inode);
        Ok(inode.size)
    }

    /// Most bytes of payload in one request on any of the I/O servers.
    fn payload_max(&self) -> u32 {
        self.chains.iter().map(|chain| chain.payload_max()).min().unwrap_or(u32::MAX)
    }

    /// The same in whole pages, for contiguous ranges.
    fn part_bytes_max(&self) -> u64 {
        let most = u64::from(self.payload_max());
        if most < PAGE_BYTES { most } else { most & !(PAGE_BYTES - 1) }
    }

    /// Whether a request of at most `limit` bytes was refused because its connection, a new one,
    /// takes less: then it is made again.
    fn was_too_large(&self, error: &Error, limit: u32) -> bool {
        error.code() == Errno::E2BIG && self.payload_max() < limit
    }

    /// A metadata server whose machine has started anew may have lost sizes, appends and truncations
    /// that were not synced: what is known is asked for again, and the next fsync tells.
    async fn meet_restart(&self, fs: &Shared) -> Result<()> {
        loop {
            let starts = fs.session.starts();
            if self.lock().starts == starts {
                return Ok(());
            }
            let asked = fs.session.ask(&Caller::default(), Op::Getattr { id: self.id }).await?;
            let Reply::Node { inode } = asked else { return Err(unexpected(&asked)) };
            let mut state = self.lock();
            state.meet_striping(&inode, &self.striping);
            if state.is_taken_by(&inode) {
                state.starts = starts;
                continue;
            }
            if state.starts.1 != starts.1 {
                // What was written within a size that another client has told goes with it. At a later epoch a
                // truncation may have done it, or who wrote there after the loss: that cannot be told apart.
                let is_cut = inode.epoch > state.epoch && state.has_unsynced();
                let is_shorter = inode.epoch <= state.epoch && inode.size < state.size;
                let is_lost = std::mem::take(&mut state.is_recut) | is_cut | is_shorter;
                state.is_told_lost |= std::mem::take(&mut state.is_told) | is_lost;
            }
            (state.size, state.epoch, state.starts) = (inode.size, inode.epoch, starts);
            state.begun = None;
            state.forget_written();
            // Versions may have gone back with it.
            state.version = 0;
            self.note_privilege(&mut state, &inode);
        }
    }

    /// After ESTALE: the file was truncated, or a data server has not heard of it yet.
    async fn learn_epoch(&self, fs: &Shared, tried: u32, behind: &mut Behind) -> Result<()> {
        let asked = fs.session.ask(&Caller::default(), Op::Getattr { id: self.id }).await?;
        let Reply::Node { inode } = asked else { return Err(unexpected(&asked)) };
        self.refresh(&inode);
        self.check_ours()?;
        if self.lock().epoch != tried {
            return Ok(());
        }
        if self.chains[0].link().is_over(behind.since(tried, fs.net.now())) {
            let what = "an I/O server has not heard of the file's truncation yet";
            return Err(Error::because(Errno::EIO, what));
        }
        // Most often the cut is on its way; a server that lost it with its power needs it again. A
        // failure is no answer to the request itself, which is tried until its time is over.
        let again = Op::Recut { id: self.id, epoch: tried };
        let _ = fs.session.ask(&Caller::default(), again).await;
        fs.net.sleep(RETRY_PAUSE).await;
        Ok(())
    }

    fn wrote(&self, fs: &Shared, epoch: u32, end: u64, told: bool) {
        let now = fs.net.now();
        let mut state = self.lock();
        if state.epoch == epoch {
            state.size = state.size.max(end);
        }
        if told {
            state.touched_at = Some(now);
            state.is_told = true;
            return;
        }
        let due = state.touched_at.is_none_or(|at| now.duration_since(at) >= TOUCH_EVERY);
        state.touch_due = !due;
        if due {
            state.touched_at = Some(now);
            // Queued at once, so that a time that is set later stays. One that gets lost is made up
            // for by a flush.
            let touch = Op::Touch { id: self.id };
            state.told = fs.session.tell(&state.writer, touch).map(FutureExt::shared);
            match state.told.clone() {
                Some(told) => fs.net.spawn(Box::pin(told.map(|_| ()))),
                None => state.touch_due = true,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }
}

/// Ends that are being synced: those that are not stay due.
struct OwedSync<'a> {
    file: &'a OpenFile,
    is_due: bool,
}

impl Drop for OwedSync<'_> {
    fn drop(&mut self) {
        self.file.lock().is_told |= self.is_due;
    }
}

/// A touch on its way: one that does not arrive stays due.
struct OwedTouch<'a> {
    file: &'a OpenFile,
    is_due: bool,
}

impl Drop for OwedTouch<'_> {
    fn drop(&mut self) {
        self.file.lock().touch_due |= self.is_due;
    }
}
