//! Payloads that the receiver fetches: from a file of the sender's, which has it mapped, or from the sender's memory, with
//! one copy by the kernel into memory of the receiver's own, on the receiver's CPU.

use super::super::reach::{self, Process};
use crate::os::file::MappedRange;
use bytes::Bytes;
use covey_wire::transport::Refused;
use covey_wire::{Landing, Span};
use std::sync::{Arc, Mutex, PoisonError};

/// What the peer may fetch until it says that it has.
#[derive(Debug, Default)]
pub(super) struct Lent {
    ranges: Vec<Option<Range>>,
}

/// Bytes that stay where they are for the peer to fetch.
#[derive(Debug)]
pub(super) enum Range {
    /// Of a file.
    Mapped(MappedRange),
    /// Of a payload, which nobody changes.
    Memory(Bytes),
}

impl Range {
    /// Where it lies in this process.
    pub fn span(&self) -> Span {
        match self {
            Range::Mapped(range) => range.span(),
            Range::Memory(bytes) => {
                Span::new(bytes.as_ptr().expose_provenance() as u64, bytes.len() as u64)
            }
        }
    }

    /// Whether some of it is gone.
    pub fn is_cut(&self) -> bool {
        matches!(self, Range::Mapped(range) if range.is_cut())
    }
}

/// Most that is lent at a time: more lands in blocks.
const LENT_MAX: usize = 64;

impl Lent {
    /// Keeps a range as it is until it is taken; its number. `None` when there are too many.
    pub fn lend(&mut self, range: Range) -> Option<u32> {
        let index = match self.ranges.iter().position(Option::is_none) {
            Some(index) => index,
            None if self.ranges.len() < LENT_MAX => {
                self.ranges.push(None);
                self.ranges.len() - 1
            }
            None => return None,
        };
        self.ranges[index] = Some(range);
        Some(index as u32)
    }

    /// Whether this memory is lent by this number.
    pub fn has(&self, index: u32, span: Span) -> bool {
        let lent = self.ranges.get(index as usize).and_then(Option::as_ref);
        lent.is_some_and(|range| range.span() == span)
    }

    /// Whether it is no file's.
    pub fn is_memory(&self, index: u32) -> bool {
        let lent = self.ranges.get(index as usize).and_then(Option::as_ref);
        matches!(lent, Some(Range::Memory(_)))
    }

    /// Whether nothing is.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.ranges.iter().all(Option::is_none)
    }

    /// It stays lent.
    pub fn keep(&mut self, index: u32, range: Range) {
        if let Some(place) = self.ranges.get_mut(index as usize) {
            *place = Some(range);
        }
    }

    /// The peer has fetched it, or as much as there was. `None` when it was not lent.
    pub fn take(&mut self, index: u32) -> Option<Range> {
        self.ranges.get_mut(index as usize)?.take()
    }
}

/// Buffers for what is fetched: the one used last is used next.
#[derive(Debug, Default)]
pub(super) struct Pool {
    free: Mutex<Vec<Vec<u8>>>,
}

/// Most buffers that are kept.
const KEPT_MAX: usize = 32;

/// Memory with what was fetched.
#[derive(Debug)]
pub(super) struct Fetched {
    place: Place,
    /// How much was to be fetched, and how much there was.
    bytes: usize,
    pub done: usize,
}

#[derive(Debug)]
enum Place {
    /// A buffer that is used again when the last holder has dropped its bytes.
    Pooled(Arc<Pool>, Vec<u8>),
    /// The user's.
    Landing(Landing),
}

impl Fetched {
    /// Room in a buffer of the pool.
    pub fn pooled(pool: &Arc<Pool>, bytes: usize) -> Fetched {
        let mut free = pool.free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut buffer = free.pop().unwrap_or_default();
        drop(free);
        if buffer.len() < bytes {
            buffer = vec![0; bytes.max(super::landing::BLOCK_BYTES)];
        }
        Fetched { place: Place::Pooled(pool.clone(), buffer), bytes, done: 0 }
    }

    /// The next bytes of a place of the user's.
    pub fn into_place(landing: Landing, bytes: usize) -> Fetched {
        assert!(
            bytes <= landing.wanted(),
            "{bytes} bytes are to land where {} fit",
            landing.wanted()
        );
        Fetched { place: Place::Landing(landing), bytes, done: 0 }
    }

    /// Fetches from a process's memory. What it has not got is zeros, for the time being. An error when the process is gone,
    /// or does not permit it.
    pub fn fetch(&mut self, process: &Process, from: Span) -> Result<(), Refused> {
        self.done = reach::read_some(process, from, self.room())?;
        let done = self.done;
        self.room()[done..].fill(0);
        Ok(())
    }

    /// All of it was.
    pub fn complete(&mut self) {
        self.done = self.bytes;
    }

    /// Where it comes to.
    pub fn span(&mut self) -> Span {
        let room = self.room();
        Span::new(room.as_mut_ptr().expose_provenance() as u64, room.len() as u64)
    }

    fn room(&mut self) -> &mut [u8] {
        match &mut self.place {
            Place::Pooled(_, buffer) => &mut buffer[..self.bytes],
            Place::Landing(landing) => &mut landing.room()[..self.bytes],
        }
    }

    /// Whether all of it was there.
    pub fn is_whole(&self) -> bool {
        self.done == self.bytes
    }

    /// The user's place, and how much more of it is filled now. Itself where it is none.
    pub fn into_landing(mut self) -> Result<(Landing, usize), Fetched> {
        match &mut self.place {
            Place::Landing(landing) => {
                landing.advance(self.bytes);
                Ok((std::mem::take(landing), self.bytes))
            }
            Place::Pooled(..) => Err(self),
        }
    }

    /// The bytes. The buffer is used again when the last holder drops them.
    pub fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Fetched {
    fn as_ref(&self) -> &[u8] {
        match &self.place {
            Place::Pooled(_, buffer) => &buffer[..self.bytes],
            // Only its user looks at it.
            Place::Landing(_) => &[],
        }
    }
}

impl Drop for Fetched {
    fn drop(&mut self) {
        let Place::Pooled(pool, buffer) = &mut self.place else { return };
        let mut free = pool.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < KEPT_MAX {
            free.push(std::mem::take(buffer));
        }
    }
}
