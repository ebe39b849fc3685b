//! Reads in small pieces, in order: more is asked for than is needed, and nobody else writes to it for a moment.
//!
//! Without that each piece is a question to an I/O server, since any client may write there without a word to anybody. What was read
//! ahead is used as long as the server has promised ([`HOLD`](crate::objects::HOLD)), under a lease on the file's attributes (a
//! truncation or a move takes that back first), and until this client itself changes the file.

use super::OpenFile;
use crate::client::{Error, Result, Shared};
use crate::distribution::{self, Part};
use crate::objects::{DataOp, DataReply, HELD_BYTES_MAX, HOLD};
use covey_ninep::tree::Errno;
use covey_wire::{Bytes, BytesMut, Payload};
use futures_util::future::{Either, select};
use std::collections::VecDeque;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

/// Who reads more at once gains nothing.
const PIECE_MAX: u64 = 32 << 10;
/// Bytes of a request, or an answer, around its data.
const AROUND: u32 = 64;
/// Bytes that all files of a client have read ahead together.
const BYTES_MAX: usize = 64 << 20;
/// What comes later is good for nothing: then the piece is asked for by itself, for as long as any read may take.
const WITHIN: Duration = Duration::from_millis(500);
/// A file of which nothing was promised, or that others change, is not asked for so for this long.
const PAUSE: Duration = Duration::from_secs(2);
/// And no file, where a server does not know the question.
const PAUSE_OF_ALL: Duration = Duration::from_secs(30);

/// How a file is read through this client.
#[derive(Default)]
pub(super) struct Reads {
    /// Where the last read has ended.
    end: u64,
    is_in_order: bool,
    /// It has been changed through this client.
    is_changed: bool,
    not_before: Option<Instant>,
    ahead: Slot,
}

/// What was read ahead of one file.
type Slot = Arc<Mutex<Option<Ahead>>>;

struct Ahead {
    start: u64,
    data: Bytes,
    epoch: u32,
    until: Instant,
    _room: Room,
}

impl Ahead {
    fn has(&self, offset: u64, end: u64) -> Option<Bytes> {
        let (from, to) = (offset.checked_sub(self.start)?, end.checked_sub(self.start)?);
        (to <= self.data.len() as u64).then(|| self.data.slice(from as usize..to as usize))
    }
}

/// What all files of a client have read ahead.
#[derive(Default)]
pub(in crate::client) struct Total {
    bytes: Arc<AtomicUsize>,
    all: Mutex<All>,
}

#[derive(Default)]
struct All {
    /// Where something was read ahead, until when, in that order.
    slots: VecDeque<(Instant, Weak<Mutex<Option<Ahead>>>)>,
    /// A server does not know the question.
    not_before: Option<Instant>,
}

/// Bytes that count.
struct Room(Arc<AtomicUsize>, usize);

impl Drop for Room {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}

impl Total {
    /// Counts bytes that are to be read ahead, if so many more may be; forgets those that nobody may use any more.
    fn take(&self, bytes: usize, now: Instant) -> Option<Room> {
        let mut all = self.lock();
        while let Some((_, slot)) = all.slots.pop_front_if(|(until, _)| *until <= now) {
            if let Some(slot) = slot.upgrade() {
                locked(&slot).take_if(|ahead| ahead.until <= now);
            }
        }
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let room = Room(self.bytes.clone(), bytes);
        (before + bytes <= BYTES_MAX).then_some(room)
    }

    fn put(&self, slot: &Slot, ahead: Ahead) {
        self.lock().slots.push_back((ahead.until, Arc::downgrade(slot)));
        *locked(slot) = Some(ahead);
    }

    fn is_known(&self, now: Instant) -> bool {
        self.lock().not_before.is_none_or(|at| now >= at)
    }

    fn is_unknown(&self, now: Instant) {
        self.lock().not_before = Some(now + PAUSE_OF_ALL);
    }

    fn lock(&self) -> MutexGuard<'_, All> {
        self.all.lock().expect("no holder panics")
    }
}

fn locked(slot: &Slot) -> MutexGuard<'_, Option<Ahead>> {
    slot.lock().expect("no holder panics")
}

impl Reads {
    /// A read begins.
    pub fn begin(&mut self, offset: u64, end: u64) {
        self.is_in_order = offset == self.end && offset > 0;
        self.end = end;
    }

    /// What was read ahead of a range, if that is as it was.
    fn take(&self, offset: u64, end: u64, epoch: u32, now: Instant) -> Option<Bytes> {
        let mut ahead = locked(&self.ahead);
        let known = ahead.as_ref()?;
        let data = known.has(offset, end).filter(|_| now < known.until && known.epoch == epoch);
        if data.is_none() || end == known.start + known.data.len() as u64 {
            *ahead = None;
        }
        data
    }

    /// A change of what lies on I/O servers begins: from now on what others hold back is not known to be all.
    pub fn is_changed(&mut self) {
        self.is_changed = true;
        *locked(&self.ahead) = None;
    }

    fn pauses(&mut self, now: Instant) {
        self.not_before = Some(now + PAUSE);
    }
}

/// How long the lease on attributes must last at least.
const LEFT: Duration = HOLD.saturating_mul(2);

impl OpenFile {
    /// A range that was read ahead and is as it was; or that is now, together with what follows it. None where it is to be asked
    /// for by itself.
    pub(super) async fn read_ahead(
        &self,
        fs: &Shared,
        offset: u64,
        end: u64,
        epoch: u32,
    ) -> Result<Option<Payload>> {
        let now = fs.net.now();
        {
            let mut state = self.lock();
            let is_same = state.epoch == epoch;
            let reads = &mut state.reads;
            if reads.is_changed || !reads.is_in_order || end - offset > PIECE_MAX {
                return Ok(None);
            }
            if let Some(data) = reads.take(offset, end, epoch, now) {
                if is_same && fs.session.cache().epoch(self.id, now) == Some(epoch) {
                    return Ok(Some(data.into()));
                }
                // Others change it.
                reads.pauses(now);
            }
            if reads.not_before.is_some_and(|at| now < at) {
                return Ok(None);
            }
        }
        if !fs.session.cache().is_on() || self.is_pinned() || !fs.ahead.is_known(now) {
            return Ok(None);
        }
        // The answers of two servers: who has neither in time asks the one as ever.
        let asked = pin!(self.ask_ahead(fs, offset, end, epoch));
        let refused = match select(asked, fs.net.sleep(WITHIN)).await {
            Either::Left((Err(error @ Error::Stale(_)), _)) => return Err(error),
            Either::Left((Ok(data), _)) => return Ok(data),
            Either::Left((Err(error), _)) => Some(error.code()),
            Either::Right(_) => None,
        };
        let now = fs.net.now();
        if refused == Some(Errno::EINVAL) {
            fs.ahead.is_unknown(now);
        }
        self.lock().reads.pauses(now);
        Ok(None)
    }

    async fn ask_ahead(
        &self,
        fs: &Shared,
        offset: u64,
        end: u64,
        epoch: u32,
    ) -> Result<Option<Payload>> {
        let Some((part, length)) = self.run_from(fs, offset, epoch).await? else {
            return Ok(None);
        };
        // The last of it, or what one request has anyway.
        if length <= end - offset {
            return Ok(None);
        }
        let slot = self.lock().reads.ahead.clone();
        let asked = fs.net.now();
        let Some(room) = fs.ahead.take(length as usize, asked) else {
            self.lock().reads.pauses(asked);
            return Ok(None);
        };
        let (id, count) = (self.id, length as u32);
        let op = DataOp::ReadHeld { id, epoch, offset: part.physical, count };
        let (millis, data) = match Box::pin(self.data_op(fs, part.slot, op)).await? {
            (DataReply::Held { millis, data }, _) => (millis, data.into_bytes()),
            (other, _) => return Err(super::space::odd(&other)),
        };
        let data = padded(data, length as usize);
        let wanted = data.slice(..(end - offset) as usize);
        let (now, until) = (fs.net.now(), asked + Duration::from_millis(millis.into()).min(HOLD));
        let mut state = self.lock();
        let reads = &mut state.reads;
        if now >= until {
            reads.pauses(now);
        } else if !reads.is_changed {
            fs.ahead.put(&slot, Ahead { start: offset, data, epoch, until, _room: room });
        }
        Ok(Some(wanted.into()))
    }

    /// What lies on one server in one piece from here on, and how long that is; none where the file is another by now, or nobody
    /// says so under a lease.
    async fn run_from(&self, fs: &Shared, offset: u64, epoch: u32) -> Result<Option<(Part, u64)>> {
        let (session, cache) = (&fs.session, fs.session.cache());
        // The lease has to last for longer than what is read ahead is used.
        let is_leased = cache.time_left(self.id, fs.net.now()).0 > LEFT;
        let inode = if is_leased {
            session.inode(self.id).await?
        } else {
            session.inode_now(self.id).await?
        };
        let now = fs.net.now();
        if inode.epoch != epoch || cache.epoch(self.id, now) != Some(epoch) {
            self.lock().reads.pauses(now);
            return Ok(None);
        }
        let most = u64::from(HELD_BYTES_MAX.min(self.payload_max().saturating_sub(AROUND)));
        let length = inode.size.saturating_sub(offset).min(most);
        let parts = distribution::parts(&self.map, offset, length, most);
        // The part with the range has the beginning of it first.
        let part = parts.into_iter().find(|part| part.pieces[0].0 == 0);
        Ok(part.map(|part| {
            let length = part.pieces[0].1;
            (part, length)
        }))
    }
}

/// What an object does not have reads as zeros.
fn padded(data: Bytes, length: usize) -> Bytes {
    if data.len() >= length {
        return data.slice(..length);
    }
    let mut all = BytesMut::from(&data[..]);
    all.resize(length, 0);
    all.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ahead(start: u64, data: &'static [u8], until: Instant, room: Room) -> Ahead {
        Ahead { start, data: Bytes::from_static(data), epoch: 7, until, _room: room }
    }

    #[test]
    fn only_a_read_where_the_last_one_has_ended_is_in_order() {
        let mut reads = Reads::default();
        for (offset, end, is_in_order) in
            [(0, 10, false), (10, 20, true), (21, 30, false), (30, 40, true), (0, 10, false)]
        {
            reads.begin(offset, end);
            assert_eq!(reads.is_in_order, is_in_order, "{offset}");
        }
    }

    #[test]
    fn all_files_together_read_no_more_ahead_than_the_most_and_what_is_over_makes_room() {
        let (total, now) = (Total::default(), Instant::now());
        let slots: [Slot; 2] = Default::default();
        for slot in &slots[..2] {
            total.put(slot, ahead(0, b"ab", now + HOLD, total.take(BYTES_MAX / 2, now).unwrap()));
        }
        assert!(total.take(1, now).is_none());
        // What takes the place of something counts alone, however often.
        *locked(&slots[0]) = None;
        for _ in 0..10 {
            let room = total.take(BYTES_MAX / 4, now).unwrap();
            total.put(&slots[0], ahead(0, b"ab", now + HOLD, room));
        }
        let later = now + HOLD;
        let all = total.take(BYTES_MAX, later).unwrap();
        assert!(slots[..2].iter().all(|slot| locked(slot).is_none()));
        assert!(total.take(1, later).is_none());
        drop(all);
        assert!(total.take(1, later).is_some());
    }

    #[test]
    fn a_range_is_given_where_all_of_it_was_read_and_as_long_as_it_holds() {
        let (now, reads) = (Instant::now(), Reads::default());
        let put = || {
            let room = Room(Arc::default(), 0);
            *locked(&reads.ahead) = Some(ahead(100, b"0123456789", now + HOLD, room));
        };
        for (offset, end, epoch, at, is_there) in [
            (100, 104, 7, now, true),
            (104, 110, 7, now, true),
            (99, 104, 7, now, false),
            (20, 30, 7, now, false),
            (104, 111, 7, now, false),
            (200, 210, 7, now, false),
            (100, 104, 8, now, false),
            (100, 104, 7, now + HOLD, false),
        ] {
            put();
            let given = reads.take(offset, end, epoch, at);
            assert_eq!(given.is_some(), is_there, "{offset}..{end}");
        }
        put();
        assert_eq!(reads.take(104, 110, 7, now).unwrap(), &b"456789"[..]);
        assert!(locked(&reads.ahead).is_none(), "all of it was used");
    }

    #[test]
    fn what_an_object_lacks_is_zeros() {
        assert_eq!(padded(Bytes::from_static(b"ab"), 4), &b"ab\0\0"[..]);
        assert_eq!(padded(Bytes::from_static(b"abcd"), 2), &b"ab"[..]);
    }
}
