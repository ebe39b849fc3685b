//! The memory that a process shares with its peers: one file in memory, mapped by all of them.
//!
//! ```text
//!   control   sleeping | cpu                                    64 bytes each
//!   published key, address, bytes, rights                      PUBLISHED_MAX of them
//!   inboxes   consumed | access | offer | slots | bulk | stage         one for each peer, who writes it, but the stage
//!   heap      what the process allocates for its messages
//! ```
//!
//! Peers are processes of the same user. What they write is checked where it is used as a length or an index; they
//! could write anything into memory that is theirs to see, as any process of that user can.

use covey_wire::transport::PUBLISHED_MAX;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// One file in memory, mapped here.
#[derive(Debug)]
pub(super) struct Arena {
    base: *mut u8,
    plan: ArenaPlan,
}

/// How large its parts are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ArenaPlan {
    pub peers_max: u32,
    pub heap_bytes: u64,
}

/// A registration as others see it. The key is written last, and removed first.
#[repr(C)]
pub(super) struct Row {
    pub key: AtomicU64,
    pub address: AtomicU64,
    pub bytes: AtomicU64,
    pub rights: AtomicU64,
}

/// What the reader of an inbox tells its writer.
#[repr(C, align(64))]
pub(super) struct Consumed {
    pub slots: AtomicU64,
    pub bytes: AtomicU64,
}

/// The key by which a peer accesses memory of the owner now, or 0.
#[repr(C, align(64))]
pub(super) struct Access {
    pub key: AtomicU64,
}

/// What a peer that reads a message of the owner lets the owner write of it: see `share`.
#[repr(C, align(64))]
pub(super) struct Offer {
    /// Which offer it is, above the units of it that are claimed. Written last.
    pub claim: AtomicU64,
    pub message: AtomicU64,
    /// In the owner's addresses.
    pub from: AtomicU64,
    /// In those of the peer.
    pub into: AtomicU64,
    pub bytes: AtomicU64,
    /// Units that the peer has taken off the owner's stage.
    pub taken: AtomicU64,
    pub answer: Answer,
}

/// What the owner has done of an offer. Written by the owner.
#[repr(C, align(64))]
pub(super) struct Answer {
    /// Which offer, above the units of it that the owner has done.
    pub done: AtomicU64,
    /// The first unit that the owner has claimed and not done.
    pub given_back: AtomicU64,
}

/// A line of a ring: a word that is written last, and what is in it.
#[repr(C, align(64))]
pub(super) struct Slot {
    pub word: AtomicU64,
    pub bytes: [u8; INLINE_BYTES],
}

/// Bytes of a packet that fit beside the word.
pub(super) const INLINE_BYTES: usize = 56;
/// Lines of a ring.
pub(super) const SLOTS: usize = 512;
/// Bytes for payloads that do not fit in a line.
pub(super) const BULK_BYTES: usize = 256 << 10;

/// Bytes through which the owner hands over a message that it copies: see `share`.
pub(super) const STAGE_BYTES: usize = 128 << 10;

const PAGE: usize = 4096;
const PUBLISHED_AT: usize = PAGE;
const INBOXES_AT: usize = PUBLISHED_AT + PUBLISHED_MAX as usize * size_of::<Row>();
const SLOTS_AT: usize = PAGE;
const BULK_AT: usize = SLOTS_AT + SLOTS * size_of::<Slot>();
const STAGE_AT: usize = BULK_AT + BULK_BYTES;
const INBOX_BYTES: usize = STAGE_AT + STAGE_BYTES;

impl ArenaPlan {
    fn heap_at(self) -> usize {
        INBOXES_AT + self.peers_max as usize * INBOX_BYTES
    }

    /// Bytes of all; `None` when that is more than a file can have.
    fn bytes(self) -> Option<usize> {
        let heap = usize::try_from(self.heap_bytes).ok()?.checked_next_multiple_of(PAGE)?;
        let is_small = self.peers_max <= PEERS_MAX && heap <= isize::MAX as usize / 2;
        is_small.then(|| self.heap_at() + heap)
    }
}

/// More than any one machine has CPUs.
const PEERS_MAX: u32 = 4096;

impl Arena {
    /// Makes one.
    pub fn make(plan: ArenaPlan) -> io::Result<(Arena, OwnedFd)> {
        let bytes = plan.bytes().ok_or(io::ErrorKind::InvalidInput)?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("covey-uzura", flags)?;
        rustix::fs::ftruncate(&file, bytes as u64)?;
        // Nobody can take pages away from under a peer.
        rustix::fs::fcntl_add_seals(&file, SEALS | LAST)?;
        Ok((Arena::map(file.as_fd(), plan, bytes)?, file))
    }

    /// Maps a peer's.
    pub fn open(file: BorrowedFd<'_>, plan: ArenaPlan) -> io::Result<Arena> {
        let refused = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        let bytes = plan.bytes().ok_or_else(|| refused("peer's shared memory is too large"))?;
        if !rustix::fs::fcntl_get_seals(file)?.contains(SEALS) {
            return Err(refused("peer's shared memory is not sealed"));
        }
        if rustix::fs::fstat(file)?.st_size != bytes as i64 {
            return Err(refused("peer's shared memory has not the size that it said"));
        }
        Arena::map(file, plan, bytes)
    }

    fn map(file: BorrowedFd<'_>, plan: ArenaPlan, bytes: usize) -> io::Result<Arena> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, flags, file, 0)? };
        let _ = base.expose_provenance();
        Ok(Arena { base: base.cast(), plan })
    }

    /// Whether the owner sleeps until it is woken.
    pub fn sleeping(&self) -> &AtomicU32 {
        // SAFETY: the mapping begins with this word, and lives as long as `self`.
        unsafe { &*self.base.cast::<AtomicU32>() }
    }

    /// The CPU on which the owner has waited last, and one more; 0 where it does not say.
    pub fn cpu(&self) -> &AtomicU32 {
        // SAFETY: the second line of the mapping, which nothing else has, and which lives as long as `self`.
        unsafe { &*self.base.add(64).cast::<AtomicU32>() }
    }

    /// A registration's row, below [`PUBLISHED_MAX`].
    pub fn row(&self, slot: u32) -> &Row {
        assert!(slot < PUBLISHED_MAX, "slot {slot} of {PUBLISHED_MAX}");
        let at = PUBLISHED_AT + slot as usize * size_of::<Row>();
        // SAFETY: within the mapping, aligned, and made of atomics.
        unsafe { &*self.base.add(at).cast::<Row>() }
    }

    fn inbox(&self, index: u32) -> *mut u8 {
        assert!(index < self.plan.peers_max, "inbox {index} of {}", self.plan.peers_max);
        // SAFETY: within the mapping.
        unsafe { self.base.add(INBOXES_AT + index as usize * INBOX_BYTES) }
    }

    /// What the owner has read of an inbox.
    pub fn consumed(&self, index: u32) -> &Consumed {
        // SAFETY: the first line of the inbox, made of atomics.
        unsafe { &*self.inbox(index).cast::<Consumed>() }
    }

    /// What the writer of an inbox accesses of the owner.
    pub fn access(&self, index: u32) -> &Access {
        // SAFETY: the second line of the inbox, made of atomics.
        unsafe { &*self.inbox(index).add(64).cast::<Access>() }
    }

    /// What the writer of an inbox offers to its owner.
    #[inline(always)]
    pub fn offer(&self, index: u32) -> &Offer {
        // SAFETY: the third and the fourth line of the inbox, made of atomics.
        unsafe { &*self.inbox(index).add(128).cast::<Offer>() }
    }

    /// The lines of an inbox: [`SLOTS`] of them.
    pub fn slots(&self, index: u32) -> *mut Slot {
        // SAFETY: within the inbox.
        unsafe { self.inbox(index).add(SLOTS_AT).cast() }
    }

    /// The [`BULK_BYTES`] of an inbox.
    pub fn bulk(&self, index: u32) -> *mut u8 {
        // SAFETY: within the inbox.
        unsafe { self.inbox(index).add(BULK_AT) }
    }

    /// The [`STAGE_BYTES`] of an inbox.
    pub fn stage(&self, index: u32) -> *mut u8 {
        // SAFETY: within the inbox.
        unsafe { self.inbox(index).add(STAGE_AT) }
    }

    /// Where the heap lies in this process.
    pub fn heap(&self) -> covey_wire::Span {
        let address = self.base as u64 + self.plan.heap_at() as u64;
        covey_wire::Span::new(address, self.plan.heap_bytes)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let bytes = self.plan.bytes().expect("it was mapped with this size");
        // SAFETY: the mapping is ours, and nothing refers to it any more.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), bytes) };
    }
}

impl crate::os::own::Mapped for Arena {
    fn span(&self) -> covey_wire::Span {
        self.heap()
    }
}

// SAFETY: it is memory that several processes use at once anyway: words are atomics, and who may write what else
// is settled by them.
unsafe impl Send for Arena {}
// SAFETY: several processes use the memory at once anyway; its words are atomics.
unsafe impl Sync for Arena {}

pub(super) const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);
/// Nobody who is given the memory seals it against those who have it.
pub(super) const LAST: SealFlags = SealFlags::SEAL;
