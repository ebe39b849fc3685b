//! Striped reads and writes.
//!
//! All handles that a client has on one file share one [`OpenFile`]: what is known of its size,
//! epoch and layout, and one fid per I/O server. The metadata server is asked only when the known size
//! does not settle the matter:
//!
//! - a read within the known size goes to the I/O servers alone; one that reaches beyond it asks for
//!   the size beside it, so that a completed write of any other client is seen;
//! - a write that extends the file tells its new end beside its data and is done after both.
//!
//! The known size never shrinks within an epoch. A truncation raises the epoch, and then the
//! data servers refuse our fids with ESTALE: we learn the new epoch and do it again.

mod space;

use super::beside::Asker;
use super::link::Link;
use super::session::{Session, unexpected};
use super::{Result, Shared};
use crate::distribution::{self, Distribution, Map, Part};
use crate::objects;
use crate::ops::{Caller, Id, Inode, Layout, Op, Reply};
use covey_ninep::client::{Call, CallError, Conn, Fid};
use covey_ninep::message::{IOHDRSZ, MSIZE_DEFAULT, Message};
use covey_ninep::tree::Errno;
use covey_wire::{Bytes, List, Payload};
use futures_util::future::{Either, join, select, try_join_all};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// What all handles of one client on one file share.
pub struct OpenFile {
    id: Id,
    map: Map,
    links: Vec<Arc<Link>>,
    state: Mutex<State>,
}

struct State {
    size: u64,
    epoch: u32,
    slots: Vec<Slot>,
    /// Content was written since the metadata server last heard of it.
    touch_due: bool,
    touched_at: Option<Instant>,
}

/// What is held on one I/O server.
#[derive(Default)]
struct Slot {
    fid: Option<ObjectFid>,
    /// Writes that are over, done or not, and how many of them are on stable storage. What was
    /// written before the file was opened counts as one.
    written: u64,
    synced: u64,
}

/// A fid of one connection, good for one epoch; dropping it clunks it.
struct ObjectFid {
    generation: u64,
    epoch: u32,
    fid: Fid,
}

/// Most bytes of one request on an I/O server: what fits a message, in whole pages.
const PART_BYTES_MAX: u64 = ((MSIZE_DEFAULT - IOHDRSZ) & !0xfff) as u64;
const RETRY_PAUSE: Duration = Duration::from_millis(50);
const TOUCH_EVERY: Duration = Duration::from_secs(1);

impl OpenFile {
    /// The shared state of a file just opened.
    pub fn new(inode: &Inode, layout: &Layout, links: Vec<Arc<Link>>) -> Result<OpenFile> {
        let map = distribution::of(layout)?;
        let written = |slot| u64::from(map.physical_size(slot, inode.size) > 0);
        let slot = |slot| Slot { written: written(slot), ..Slot::default() };
        let slots = (0..links.len()).map(slot).collect();
        let state = State {
            size: inode.size,
            epoch: inode.epoch,
            slots,
            touch_due: false,
            touched_at: None,
        };
        Ok(OpenFile { id: inode.id, map, links, state: Mutex::new(state) })
    }

    /// Takes in fresher attributes.
    pub fn refresh(&self, inode: &Inode) {
        let mut state = self.lock();
        if inode.epoch > state.epoch {
            state.epoch = inode.epoch;
            state.size = inode.size;
        } else if inode.epoch == state.epoch {
            state.size = state.size.max(inode.size);
        }
    }

    /// Reads; see [`super::File::read_at`].
    pub async fn read(&self, fs: &Shared, offset: u64, count: usize) -> Result<Payload> {
        let started = fs.net.now();
        loop {
            let epoch = self.lock().epoch;
            match self.read_once(fs, offset, offset.saturating_add(count as u64), epoch).await {
                Err(error) if error.code == Errno::ESTALE => {
                    self.learn_epoch(fs, epoch, started).await?;
                }
                other => return other,
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
        if wanted_end <= known {
            return self.read_range(fs, offset, wanted_end, epoch).await;
        }
        let (fresh, first) =
            join(self.ask_size(&fs.session), self.read_range(fs, offset, known.max(offset), epoch))
                .await;
        let (end, first) = (fresh?.min(wanted_end), first?);
        let had = offset + first.len() as u64;
        if self.lock().epoch != epoch {
            return Err(Errno::ESTALE.into());
        }
        if end <= had {
            return Ok(first);
        }
        let rest = self.read_range(fs, had, end, epoch).await?;
        Ok(Payload::gather([first.pieces(), rest.pieces()].concat()))
    }

    /// Writes; see [`super::File::write_at`].
    pub async fn write(&self, fs: &Shared, offset: u64, data: Payload) -> Result<()> {
        let end = offset.checked_add(data.len() as u64).filter(|&end| end <= i64::MAX as u64);
        let end = end.ok_or_else(|| {
            Errno::because(Errno::EFBIG, format!("a write of {} bytes at {offset}", data.len()))
        })?;
        if data.is_empty() {
            return Ok(());
        }
        let started = fs.net.now();
        loop {
            let (size, epoch) = self.size_and_epoch();
            let sent = if end > size {
                let extend = Op::Extend { id: self.id, epoch, end, hole: offset > size };
                let nobody = Caller::default();
                let told = fs.session.change(&nobody, extend);
                let (written, told) = join(self.write_range(fs, offset, &data, epoch), told).await;
                written.and(told.map(|_| ()))
            } else {
                self.write_range(fs, offset, &data, epoch).await
            };
            match sent {
                Ok(()) => {
                    self.wrote(fs, epoch, end, end > size);
                    return Ok(());
                }
                Err(error) if error.code == Errno::ESTALE => {
                    self.learn_epoch(fs, epoch, started).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Appends; see [`super::File::append`]. Not to be dropped midway: nobody else commits.
    pub async fn append(&self, fs: &Shared, data: Payload, asker: Asker) -> Result<u64> {
        let length = data.len() as u64;
        let started = fs.net.now();
        loop {
            let (offset, epoch) = fs.session.reserve(self.id, length, asker.clone()).await?;
            let written = self.write_reserved(fs, offset, &data, epoch).await;
            // The reservation ends even when the data did not arrive, or later appends would wait.
            let told = fs.session.commit(self.id, offset, length).await;
            match written.and(told) {
                Ok(()) => {
                    self.wrote(fs, epoch, offset + length, true);
                    return Ok(offset);
                }
                Err(error) if error.code == Errno::ESTALE => {
                    self.learn_epoch(fs, epoch, started).await?;
                }
                Err(error) => return Err(error),
            }
        }
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
        let started = fs.net.now();
        loop {
            match self.write_range(fs, offset, data, epoch).await {
                Err(error) if error.code == Errno::ESTALE => {
                    self.learn_epoch(fs, epoch, started).await?;
                    if self.lock().epoch != epoch {
                        return Err(error);
                    }
                }
                other => return other,
            }
        }
    }

    /// The size now.
    pub async fn size(&self, fs: &Shared) -> Result<u64> {
        self.ask_size(&fs.session).await
    }

    /// Tells the metadata server of written content it has not heard of.
    pub async fn flush(&self, fs: &Shared) -> Result<()> {
        if !std::mem::take(&mut self.lock().touch_due) {
            return Ok(());
        }
        let mut owed = OwedTouch { file: self, is_due: true };
        fs.session.change(&Caller::default(), Op::Touch { id: self.id }).await?;
        owed.is_due = false;
        Ok(())
    }

    /// The time of the last content change is about to be set to something else.
    pub fn forget_touch(&self) {
        self.lock().touch_due = false;
    }

    /// Objects and then the metadata to stable storage.
    pub async fn fsync(&self, fs: &Shared) -> Result<()> {
        self.flush(fs).await?;
        let dirty: Vec<(usize, u64)> = {
            let state = self.lock();
            let slots = state.slots.iter().enumerate();
            slots.filter(|(_, slot)| slot.is_dirty()).map(|(at, slot)| (at, slot.written)).collect()
        };
        try_join_all(dirty.iter().map(|&(slot, written)| self.sync_slot(fs, slot, written)))
            .await?;
        fs.session.ask(&Caller::default(), Op::Fsync { id: self.id }).await.map(|_| ())
    }

    /// Gives the fids back; nobody holds the file any more.
    pub fn close(&self) {
        for slot in &mut self.lock().slots {
            slot.fid = None;
        }
    }

    fn size_and_epoch(&self) -> (u64, u32) {
        let state = self.lock();
        (state.size, state.epoch)
    }

    async fn ask_size(&self, session: &Session) -> Result<u64> {
        let reply = session.ask(&Caller::default(), Op::Getattr { id: self.id }).await?;
        let Reply::Node { inode } = reply else { return Err(unexpected(&reply)) };
        self.refresh(&inode);
        Ok(inode.size)
    }

    /// After ESTALE: the file was truncated, or a data server has not heard of it yet.
    async fn learn_epoch(&self, fs: &Shared, tried: u32, started: Instant) -> Result<()> {
        self.ask_size(&fs.session).await?;
        if self.lock().epoch != tried {
            return Ok(());
        }
        if self.links[0].is_over(started) {
            let what = "an I/O server has not heard of the file's truncation yet";
            return Err(Errno::because(Errno::EIO, what));
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
            return;
        }
        let due = state.touched_at.is_none_or(|at| now.duration_since(at) >= TOUCH_EVERY);
        state.touch_due = !due;
        if due {
            state.touched_at = Some(now);
            // Queued at once, so that a time that is set later stays. One that gets lost is late
            // news of a time only.
            state.touch_due = !fs.session.tell(Op::Touch { id: self.id });
        }
    }

    async fn read_range(&self, fs: &Shared, offset: u64, end: u64, epoch: u32) -> Result<Payload> {
        if end <= offset {
            return Ok(Payload::default());
        }
        let parts = distribution::parts(&self.map, offset, end - offset, PART_BYTES_MAX);
        let reads = parts.iter().map(|part| self.read_part(fs, part, epoch));
        Ok(assemble(&parts, &try_join_all(reads).await?))
    }

    async fn read_part(&self, fs: &Shared, part: &Part, epoch: u32) -> Result<Bytes> {
        let count = part.length as u32;
        let reply = self
            .io(fs, part.slot, epoch, |fid| Message::Tread { fid, offset: part.physical, count })
            .await?;
        match reply {
            Message::Rread { data } => Ok(data.into_bytes()),
            other => Err(Errno::because(Errno::EPROTO, format!("Tread got {}", other.name()))),
        }
    }

    async fn write_range(
        &self,
        fs: &Shared,
        offset: u64,
        data: &Payload,
        epoch: u32,
    ) -> Result<()> {
        let parts = distribution::parts(&self.map, offset, data.len() as u64, PART_BYTES_MAX);
        let writes = parts.iter().map(|part| self.write_part(fs, part, epoch, data));
        try_join_all(writes).await.map(|_| ())
    }

    async fn write_part(&self, fs: &Shared, part: &Part, epoch: u32, data: &Payload) -> Result<()> {
        // Counted when it is over, dropped midway included: only an fsync after that is sure of it.
        let _counted = Counted { file: self, slot: part.slot };
        let pieces = slices(data, &part.pieces);
        let mut done = 0;
        while done < part.length {
            let rest = if done == 0 { pieces.clone() } else { skip(&pieces, done) };
            let offset = part.physical + done;
            let write = |fid| Message::Twrite { fid, offset, data: Payload::gather(rest.clone()) };
            match self.io(fs, part.slot, epoch, write).await? {
                Message::Rwrite { count: 0 } => return Err(Errno::ENOSPC.into()),
                Message::Rwrite { count } => done += u64::from(count),
                other => {
                    let what = format!("Twrite got {}", other.name());
                    return Err(Errno::because(Errno::EPROTO, what));
                }
            }
        }
        Ok(())
    }

    async fn sync_slot(&self, fs: &Shared, slot: usize, written: u64) -> Result<()> {
        let started = fs.net.now();
        loop {
            let epoch = self.lock().epoch;
            let sync = |fid| Message::Tfsync { fid, datasync: 0 };
            match self.io(fs, slot, epoch, sync).await {
                // What a truncation has left is to be synced all the same.
                Err(error) if error.code == Errno::ESTALE => {
                    self.learn_epoch(fs, epoch, started).await?;
                }
                Err(error) => return Err(error),
                Ok(_) => break,
            }
        }
        let mut state = self.lock();
        let synced = &mut state.slots[slot].synced;
        *synced = written.max(*synced);
        Ok(())
    }

    /// One request on the object of `slot`, repeated on a new connection while there is time.
    async fn io(
        &self,
        fs: &Shared,
        slot: usize,
        epoch: u32,
        message: impl Fn(u32) -> Message,
    ) -> Result<Message> {
        let link = &self.links[slot];
        let started = fs.net.now();
        loop {
            let (generation, conn) = link.conn(started).await?;
            let (fid, opening) = self.object_fid(slot, generation, epoch, &conn);
            let message = message(fid);
            let deadline = match &message {
                Message::Tfsync { .. } => None,
                _ => link.io_deadline(),
            };
            let call = conn.call(message);
            let answer = pin!(async {
                match opening {
                    None => call.await,
                    Some(opening) => self.open_and(slot, fid, opening, call).await,
                }
            });
            let result = match deadline {
                None => answer.await,
                Some(time) => match select(answer, fs.net.sleep(time)).await {
                    Either::Left((result, _)) => result,
                    Either::Right(_) => {
                        let why = format!("alive, but no answer within {} s", time.as_secs());
                        return Err(link.lost_error(&why));
                    }
                },
            };
            match result {
                Ok(reply) => return Ok(reply),
                Err(CallError::Lost(why)) if link.is_over(started) => {
                    return Err(link.lost_error(&why));
                }
                Err(CallError::Lost(_)) => {}
                Err(error) => {
                    let error = Errno::from(error);
                    if error.code == Errno::ESTALE || error.code == Errno::EBADF {
                        self.forget_fid(slot, fid);
                    }
                    // EBADF: someone else's opening of this fid failed. Ours may not.
                    if error.code != Errno::EBADF || link.is_over(started) {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// The fid of the object, and the calls that open it when it is new: they are queued before
    /// whatever the caller sends next, so nobody waits for them first.
    fn object_fid(
        &self,
        slot: usize,
        generation: u64,
        epoch: u32,
        conn: &Conn,
    ) -> (u32, Option<[Call; 2]>) {
        let mut state = self.lock();
        let held = &mut state.slots[slot].fid;
        if let Some(known) = held
            && known.generation == generation
            && known.epoch == epoch
        {
            return (known.fid.number(), None);
        }
        let new = Fid::new(conn);
        let fid = new.number();
        *held = Some(ObjectFid { generation, epoch, fid: new });
        let names = List(vec![objects::name(self.id, epoch)]);
        const O_RDWR: u32 = 2;
        let walk = conn.call(Message::Twalk { fid: 0, newfid: fid, names });
        let open = conn.call(Message::Tlopen { fid, flags: O_RDWR });
        (fid, Some([walk, open]))
    }

    async fn open_and(
        &self,
        slot: usize,
        fid: u32,
        [walk, open]: [Call; 2],
        call: Call,
    ) -> std::result::Result<Message, CallError> {
        let (opened, reply) = join(join(walk, open), call).await;
        let opened = opened.0.and(opened.1);
        if let Err(CallError::Errno(error)) = opened {
            self.forget_fid(slot, fid);
            return Err(CallError::Errno(error));
        }
        reply
    }

    fn forget_fid(&self, slot: usize, fid: u32) {
        let mut state = self.lock();
        let held = &mut state.slots[slot].fid;
        if held.as_ref().is_some_and(|held| held.fid.number() == fid) {
            *held = None;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }
}

impl Slot {
    fn is_dirty(&self) -> bool {
        self.written > self.synced
    }
}

/// A write on its way to a slot.
struct Counted<'a> {
    file: &'a OpenFile,
    slot: usize,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.file.lock().slots[self.slot].written += 1;
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

/// The parts of a payload that a part's pieces name, in order, shared.
fn slices(data: &Payload, pieces: &[(u64, u64)]) -> Vec<Bytes> {
    let mut out = Vec::with_capacity(pieces.len());
    for &(from, bytes) in pieces {
        let (mut from, mut bytes) = (from as usize, bytes as usize);
        for run in data.pieces() {
            if bytes == 0 {
                break;
            }
            if from >= run.len() {
                from -= run.len();
                continue;
            }
            let step = bytes.min(run.len() - from);
            out.push(run.slice(from..from + step));
            bytes -= step;
            from = 0;
        }
    }
    out
}

fn skip(pieces: &[Bytes], count: u64) -> Vec<Bytes> {
    let whole = Payload::gather(pieces.to_vec());
    let length = whole.len() as u64;
    slices(&whole, &[(count, length - count)])
}

/// Puts the parts of a read in the file's order, without copying; what an object does not have reads
/// as zeros.
fn assemble(parts: &[Part], data: &[Bytes]) -> Payload {
    let mut pieces: Vec<(u64, Bytes)> = Vec::new();
    for (part, data) in parts.iter().zip(data) {
        let mut at = 0;
        for &(offset, bytes) in &part.pieces {
            let have = (data.len().saturating_sub(at)).min(bytes as usize);
            if have > 0 {
                pieces.push((offset, data.slice(at..at + have)));
            }
            put_zeros(&mut pieces, offset + have as u64, bytes as usize - have);
            at += bytes as usize;
        }
    }
    pieces.sort_unstable_by_key(|&(offset, _)| offset);
    Payload::gather(pieces.into_iter().map(|(_, bytes)| bytes).collect())
}

fn put_zeros(pieces: &mut Vec<(u64, Bytes)>, mut offset: u64, mut count: usize) {
    static ZEROS: [u8; 65536] = [0; 65536];
    while count > 0 {
        let step = count.min(ZEROS.len());
        pieces.push((offset, Bytes::from_static(&ZEROS[..step])));
        offset += step as u64;
        count -= step;
    }
}
