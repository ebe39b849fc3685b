//! Blocks of memory where payloads land: ours, which the peer fills, and the peer's, which we fill.

use super::super::arena::Arena;
use crate::os::file::read_range_into;
use bytes::Bytes;
use covey_wire::{FileRange, Span};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// Blocks of each side. Those that were never filled take no memory, and the one freed last is filled next.
pub(super) const BLOCKS: u32 = 32;
/// Bytes of a block: the longest message.
pub(super) const BLOCK_BYTES: usize = (1 << 20) + 4096;

/// Our blocks. Where a block is not the peer's, somebody here holds its bytes.
#[derive(Debug)]
pub(super) struct Landing {
    arena: Arc<Arena>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    is_theirs: Vec<bool>,
    /// Nobody here holds them any more, and the peer has not been told.
    freed: Vec<u32>,
    waker: Option<Waker>,
}

impl Landing {
    /// The blocks of our memory, all of them the peer's.
    pub fn new(arena: Arc<Arena>) -> Landing {
        let is_theirs = vec![true; BLOCKS as usize];
        Landing { arena, state: Mutex::new(State { is_theirs, freed: Vec::new(), waker: None }) }
    }

    /// The first `bytes` of a block that the peer has filled. `None` when it could not have.
    pub fn take(self: &Arc<Self>, block: u32, bytes: usize) -> Option<Bytes> {
        let mut state = self.lock();
        let is_theirs = state.is_theirs.get_mut(block as usize).filter(|is_theirs| **is_theirs)?;
        if bytes > BLOCK_BYTES {
            return None;
        }
        *is_theirs = false;
        drop(state);
        Some(Bytes::from_owner(Landed { landing: self.clone(), block, bytes }))
    }

    /// Blocks of which the peer has to be told.
    pub fn freed(&self) -> Vec<u32> {
        self.lock().freed.clone()
    }

    /// The peer was told of them.
    pub fn give(&self, blocks: &[u32]) {
        let mut state = self.lock();
        state.freed.retain(|block| !blocks.contains(block));
        blocks.iter().for_each(|block| state.is_theirs[*block as usize] = true);
    }

    /// Who is woken when the peer may be short of blocks and we have some.
    pub fn wake(&self, waker: &Waker) {
        self.lock().waker = Some(waker.clone());
    }

    fn free(&self, block: u32) {
        let waker = {
            let mut state = self.lock();
            state.freed.push(block);
            let is_short = state.freed.len() >= BLOCKS as usize / 2;
            if is_short { state.waker.take() } else { None }
        };
        waker.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What landed in a block. The block is free again when it is dropped.
struct Landed {
    landing: Arc<Landing>,
    block: u32,
    bytes: usize,
}

impl AsRef<[u8]> for Landed {
    fn as_ref(&self) -> &[u8] {
        let room = room(&self.landing.arena, self.block);
        // SAFETY: the block is within our memory, which is mapped as long as `landing`, and `bytes` was checked to fit.
        // The peer, a process of this user, leaves it alone until it is given back.
        unsafe { std::slice::from_raw_parts(pointer(room), self.bytes) }
    }
}

impl Drop for Landed {
    fn drop(&mut self) {
        self.landing.free(self.block);
    }
}

/// The peer's blocks.
#[derive(Debug)]
pub(super) struct Far {
    arena: Arc<Arena>,
    /// Those that we may fill, the one freed last at the end.
    free: Vec<u32>,
    is_ours: Vec<bool>,
}

impl Far {
    /// All blocks of the peer's memory.
    pub fn new(arena: Arc<Arena>) -> Far {
        let count = (arena.heap().bytes / BLOCK_BYTES as u64).min(BLOCKS.into()) as u32;
        Far { arena, free: (0..count).rev().collect(), is_ours: vec![true; count as usize] }
    }

    /// A block to fill.
    pub fn take(&mut self) -> Option<FarBlock> {
        let block = self.free.pop()?;
        self.is_ours[block as usize] = false;
        Some(FarBlock { arena: self.arena.clone(), block })
    }

    /// The peer has given a block back. False when it was not its to give.
    pub fn give(&mut self, block: u32) -> bool {
        match self.is_ours.get_mut(block as usize) {
            Some(is_ours @ false) => *is_ours = true,
            _ => return false,
        }
        self.free.push(block);
        true
    }
}

/// A block of the peer that is being filled.
pub(super) struct FarBlock {
    arena: Arc<Arena>,
    pub block: u32,
}

impl FarBlock {
    /// Copies bytes to its beginning, as many as fit; says how many.
    pub fn fill(&self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(BLOCK_BYTES);
        // SAFETY: the block is within a mapping that lives as long as `self`, and nobody here has a reference to it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), pointer(self.room()), count) };
        count
    }

    /// Has the kernel copy a range of a file to its beginning, as much as fits; says how much.
    pub fn fill_from(&self, range: &FileRange) -> io::Result<usize> {
        let count = range.length.min(BLOCK_BYTES);
        // SAFETY: the block is within a mapping that lives as long as `self`, and nobody here has a reference to it.
        unsafe { read_range_into(range, pointer(self.room()), count)? };
        Ok(count)
    }

    fn room(&self) -> Span {
        room(&self.arena, self.block)
    }
}

/// Where a block lies in this process.
fn room(arena: &Arena, block: u32) -> Span {
    let at = u64::from(block) * BLOCK_BYTES as u64;
    arena.heap().part(at, BLOCK_BYTES as u64).expect("only blocks within the heap have a number")
}

fn pointer(span: Span) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(span.address as usize)
}
