//! One direction between two processes: a ring of cache lines, and beside it a ring of bytes for what does not fit in
//! a line.
//!
//! A packet takes one line. Its word is written last and says which packet of all it is, so that nothing needs to be
//! cleared and no counter is shared: a short message is one cache line that moves from one CPU to the other. The
//! reader tells how far it is now and then; the writer looks only when it seems to have no room. Both know where a
//! payload lies without saying it.

use super::arena::{Arena, BULK_BYTES, INLINE_BYTES, SLOTS, Slot};
use covey_wire::transport::{HEAD_BYTES_MAX, Refused};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Of a payload that is to be written, this is fetched before: as many lines as a processor asks for at a time.
const PREPARED_BYTES_MAX: u64 = 1 << 10;
/// Nothing of a longer one, which takes its time anyway, or is read from where it lies.
const PREPARED_MAX: usize = 4 << 10;

/// Longest payload of a packet.
pub(super) const PACKET_BYTES_MAX: usize = 32 << 10;

/// The end that writes into a peer's inbox.
#[derive(Debug)]
pub(super) struct Writer {
    theirs: Arc<Arena>,
    inbox: u32,
    slots: *mut Slot,
    bulk: *mut u8,
    at: u64,
    bulk_at: u64,
    /// What the peer had read when we last looked.
    read: u64,
    bulk_read: u64,
}

impl Writer {
    pub fn new(theirs: Arc<Arena>, inbox: u32) -> Writer {
        let (slots, bulk) = (theirs.slots(inbox), theirs.bulk(inbox));
        Writer { theirs, inbox, slots, bulk, at: 0, bulk_at: 0, read: 0, bulk_read: 0 }
    }

    /// Fetches the lines that a packet with so many bytes will be written into, the next one or one of as many that follow
    /// it: by the time it is made, they are ours. The reader, who looks at the first of them, has them back only when they
    /// are asked for again, which takes as long.
    #[inline]
    pub fn prepare(&self, bytes: usize, ahead: u64) {
        // SAFETY: the index is below `SLOTS`.
        fetch::to_write(unsafe { self.slots.add((self.at + ahead) as usize % SLOTS) }.cast());
        if (INLINE_BYTES / 2 + 1..=PREPARED_MAX).contains(&bytes) {
            self.prepare_bulk(lines(bytes), ahead);
        }
    }

    #[inline(never)]
    fn prepare_bulk(&self, bytes: u64, ahead: u64) {
        let first = self.bulk_at + ahead * bytes;
        for at in (first..first + bytes.min(PREPARED_BYTES_MAX)).step_by(64) {
            // SAFETY: within the ring of bytes.
            fetch::to_write(unsafe { self.bulk.add(at as usize % BULK_BYTES) });
        }
    }

    #[inline]
    pub fn send(
        &mut self,
        head: &[u8],
        bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), Refused> {
        assert!(head.len() <= HEAD_BYTES_MAX && bytes <= PACKET_BYTES_MAX, "longer than a packet");
        let is_inline = head.len() + bytes <= INLINE_BYTES;
        let bulk_at = if is_inline { self.bulk_at } else { place(self.bulk_at, bytes) };
        let bulk_end = if is_inline { bulk_at } else { bulk_at + lines(bytes) };
        if self.is_full(bulk_end) {
            return Err(Refused::Full);
        }
        // SAFETY: the index is below `SLOTS`, and the reader is done with this line.
        let slot = unsafe { self.slots.add(self.at as usize % SLOTS) };
        // SAFETY: the line is ours until its word is written; the head fits, by the assertion.
        let inside = unsafe { (&raw mut (*slot).bytes).cast::<u8>() };
        // SAFETY: the head fits in the line, which is ours until its word is written.
        unsafe { copy_head(head, inside) };
        let room = if is_inline {
            // SAFETY: head and payload fit in the line.
            unsafe { std::slice::from_raw_parts_mut(inside.add(head.len()), bytes) }
        } else {
            // SAFETY: `place` saw to it that it lies within the ring of bytes; the reader is done with it.
            unsafe {
                let start = self.bulk.add(bulk_at as usize % BULK_BYTES);
                std::slice::from_raw_parts_mut(start, bytes)
            }
        };
        fill(room);
        let word = Word { bytes, head: head.len() }.encode(self.at);
        // SAFETY: the line is a line of the mapping, its word an atomic.
        unsafe { &(*slot).word }.store(word, Ordering::Release);
        self.at += 1;
        self.bulk_at = bulk_end;
        Ok(())
    }

    #[inline]
    fn is_full(&mut self, bulk_end: u64) -> bool {
        let (at, read) = (self.at, self.read);
        let has_room = |read: u64, bulk_read: u64| {
            at - read < SLOTS as u64 && bulk_end - bulk_read <= BULK_BYTES as u64
        };
        if has_room(read, self.bulk_read) {
            return false;
        }
        let consumed = self.theirs.consumed(self.inbox);
        let bulk_read = consumed.bytes.load(Ordering::Acquire);
        let read = consumed.slots.load(Ordering::Acquire);
        // Nobody can have read what was not written: such numbers are none.
        if read <= at && bulk_read <= self.bulk_at {
            (self.read, self.bulk_read) = (read, bulk_read);
        }
        !has_room(self.read, self.bulk_read)
    }
}

/// The end that reads our inbox.
#[derive(Debug)]
pub(super) struct Reader {
    ours: Arc<Arena>,
    inbox: u32,
    slots: *mut Slot,
    bulk: *mut u8,
    at: u64,
    bulk_at: u64,
    told: u64,
    bulk_told: u64,
}

/// What a packet of the peer broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken;

impl Reader {
    pub fn new(ours: Arc<Arena>, inbox: u32) -> Reader {
        let (slots, bulk) = (ours.slots(inbox), ours.bulk(inbox));
        Reader { ours, inbox, slots, bulk, at: 0, bulk_at: 0, told: 0, bulk_told: 0 }
    }

    /// Whether a packet is there.
    #[inline]
    pub fn has_packet(&self) -> bool {
        self.word().is_some()
    }

    #[inline]
    fn word(&self) -> Option<u64> {
        // SAFETY: a line of the mapping, its word an atomic.
        let word = unsafe { &(*self.slots.add(self.at as usize % SLOTS)).word };
        let word = word.load(Ordering::Acquire);
        (word >> 32 == u64::from(sequence(self.at))).then_some(word)
    }

    /// Lends the next packet. False when there is none.
    #[inline(always)]
    pub fn take(&mut self, with: impl FnOnce(&[u8], &[u8])) -> Result<bool, Broken> {
        let Some(word) = self.word() else {
            // Where the next packet has a payload, its first bytes come together with its line, and not after it.
            // SAFETY: within the ring of bytes.
            fetch::to_read(unsafe { self.bulk.add(self.bulk_at as usize % BULK_BYTES) });
            return Ok(false);
        };
        let Word { bytes, head } = Word::decode(word);
        if head > HEAD_BYTES_MAX || bytes > PACKET_BYTES_MAX {
            return Err(Broken);
        }
        // SAFETY: a line of the mapping. The writer leaves it alone until it is told that it was read.
        let line = unsafe {
            let slot = self.slots.add(self.at as usize % SLOTS);
            std::slice::from_raw_parts((&raw const (*slot).bytes).cast::<u8>(), INLINE_BYTES)
        };
        let payload = if head + bytes <= INLINE_BYTES {
            &line[head..head + bytes]
        } else {
            let at = place(self.bulk_at, bytes);
            // SAFETY: `place` saw to it that it lies within the ring of bytes, of which this part is not written to
            // until it is told that it was read.
            let payload = unsafe {
                std::slice::from_raw_parts(self.bulk.add(at as usize % BULK_BYTES), bytes)
            };
            self.bulk_at = at + lines(bytes);
            payload
        };
        with(&line[..head], payload);
        self.at += 1;
        if self.at - self.told >= SLOTS as u64 / 4
            || self.bulk_at - self.bulk_told >= BULK_BYTES as u64 / 4
        {
            self.tell();
        }
        Ok(true)
    }

    /// Tells the writer how far we are.
    #[cold]
    fn tell(&mut self) {
        let consumed = self.ours.consumed(self.inbox);
        consumed.bytes.store(self.bulk_at, Ordering::Release);
        consumed.slots.store(self.at, Ordering::Release);
        (self.told, self.bulk_told) = (self.at, self.bulk_at);
    }
}

// SAFETY: each end is used by one owner at a time; the words between them are atomics.
unsafe impl Send for Writer {}
// SAFETY: one owner at a time reads; the words between the ends are atomics.
unsafe impl Send for Reader {}

/// Hints to the processor, where it takes any. What is there does not change, nor is it read as far as the language can tell.
mod fetch {
    /// The line will be written to.
    #[inline]
    pub fn to_write(at: *mut u8) {
        // SAFETY: a hint, which is nothing where there is no such memory, and on processors that do not know it.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags));
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }

    /// The line will be read.
    #[inline]
    pub fn to_read(at: *mut u8) {
        // SAFETY: a hint, which is nothing where there is no such memory.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }
}

/// Copies a head, word by word where it was written like that just now: the processor waits where it is to read several
/// words at once.
///
/// # Safety
///
/// Room for it, elsewhere.
#[inline(always)]
unsafe fn copy_head(head: &[u8], into: *mut u8) {
    let mut at = 0;
    if head.as_ptr().cast::<u64>().is_aligned() {
        while at + size_of::<u64>() <= head.len() {
            // SAFETY: within the head, which is aligned; and there is room for it.
            unsafe {
                let word = head.as_ptr().add(at).cast::<u64>().read_volatile();
                into.add(at).cast::<u64>().write_unaligned(word);
            }
            at += size_of::<u64>();
        }
    }
    // SAFETY: the rest of it, for which there is room.
    unsafe { std::ptr::copy_nonoverlapping(head.as_ptr().add(at), into.add(at), head.len() - at) };
}

/// The word of a line: how long a packet is, below the number that says which it is.
struct Word {
    bytes: usize,
    head: usize,
}

impl Word {
    #[inline]
    fn encode(&self, at: u64) -> u64 {
        u64::from(sequence(at)) << 32 | (self.bytes as u64) << 8 | self.head as u64
    }

    #[inline]
    fn decode(word: u64) -> Word {
        Word { bytes: (word >> 8 & 0xff_ffff) as usize, head: (word & 0xff) as usize }
    }
}

/// Never what the line had a round before, and not 0 in the first round.
#[inline]
fn sequence(at: u64) -> u32 {
    (at as u32).wrapping_add(1)
}

/// Where the next payload begins: in one piece, so perhaps at the beginning of the ring.
#[inline]
fn place(at: u64, bytes: usize) -> u64 {
    let left = BULK_BYTES - at as usize % BULK_BYTES;
    if bytes <= left { at } else { at + left as u64 }
}

/// Bytes of whole cache lines.
#[inline]
fn lines(bytes: usize) -> u64 {
    bytes.next_multiple_of(64) as u64
}
