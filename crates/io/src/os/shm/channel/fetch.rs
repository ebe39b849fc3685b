//! Payloads that lie in memory of the peer, and those that have a place of the user's to go to.

use super::inbound::{Arrival, End};
use super::packet::Head;
use super::pull::Fetched;
use super::{COPIED, Channel, PEER};
use crate::os::run::Arrived;
use bytes::{Buf, Bytes};
use covey_wire::transport::{Refused, Transfer};
use covey_wire::{Landing, Span, Transport};
use std::io;
use std::sync::atomic::Ordering;
use std::task::Poll;

/// A payload that is being fetched, and cannot be finished now.
#[derive(Debug)]
pub(super) struct Fetching {
    index: u32,
    from: Span,
    fetched: Fetched,
    tries: u32,
    waits: Waits,
}

/// What for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    /// The peer copies the last part of it.
    Copy,
    /// The peer's file had not all that it should have, and the peer has been asked why.
    Answer,
}

impl Channel {
    /// Fetches what the peer has lent. `None` while the peer is asked why something is missing.
    pub(super) fn fetch(&mut self, fetched: Fetched, index: u32, from: Span) -> Option<Fetched> {
        self.fetch_again(Fetching { index, from, fetched, tries: 0, waits: Waits::Copy })
    }

    fn fetch_again(&mut self, mut fetching: Fetching) -> Option<Fetched> {
        let into = fetching.fetched.span();
        match self.shm.fetch(0, PEER, fetching.index, fetching.from, into) {
            Ok(Transfer::Done) => self.end_copy(fetching, Ok(())),
            Ok(Transfer::Started) => {
                self.fetching = Some(Fetching { waits: Waits::Copy, ..fetching });
                None
            }
            Err(refused) => self.end_copy(fetching, Err(refused)),
        }
    }

    /// Nobody copies any more.
    fn end_copy(&mut self, mut fetching: Fetching, end: Result<(), Refused>) -> Option<Fetched> {
        let Fetching { index, from, ref mut fetched, .. } = fetching;
        let ended = match end {
            // Something is missing: what is there, from the beginning, is what counts.
            Err(Refused::Fault) => {
                let process = self.shm.link(PEER).and_then(|link| link.copyable());
                process.and_then(|process| fetched.fetch(&process, from))
            }
            end => end.map(|()| fetched.complete()),
        };
        match ended {
            Ok(()) => {}
            Err(Refused::Dead) => return self.fail(End::Closed),
            Err(_) => return self.fail(End::Broken("peer lent what cannot be fetched")),
        }
        COPIED.by_kernel.fetch_add(fetched.done as u64, Ordering::Relaxed);
        let is_whole = fetched.is_whole();
        self.send(Head::Fetched { index, is_whole }, 0, |_| {});
        if is_whole {
            return Some(fetching.fetched);
        }
        self.fetching = Some(Fetching { waits: Waits::Answer, ..fetching });
        None
    }

    /// Goes on with what could not be finished.
    pub(super) fn fetch_on(&mut self) -> Option<Fetched> {
        if self.fetching.as_ref()?.waits == Waits::Copy {
            let end = self.state.copied.take()?;
            let fetching = self.fetching.take()?;
            return self.end_copy(fetching, end);
        }
        let is_cut = self.state.rest.take()?;
        let mut fetching = self.fetching.take()?;
        fetching.tries += 1;
        match (is_cut, fetching.tries) {
            (true, _) => Some(fetching.fetched),
            (false, TRIES_MAX..) => self.fail(End::Broken("peer's file cannot be read")),
            (false, _) => self.fetch_again(fetching),
        }
    }

    /// The channel ends. What the peer may still write to is nobody's then.
    pub(super) fn abandon_copy(&mut self) {
        if let Some(fetching) = self.fetching.take()
            && fetching.waits == Waits::Copy
            && self.shm.abandon(PEER)
        {
            std::mem::forget(fetching.fetched);
        }
    }

    /// Nothing behind what cannot be fetched is of any use.
    fn fail(&mut self, end: End) -> Option<Fetched> {
        self.state.arrived.clear();
        self.state.end.get_or_insert(end);
        None
    }

    /// What is placed comes next.
    pub(super) fn placed(&mut self, bytes: Bytes) -> Poll<io::Result<Arrived>> {
        self.note_placed(bytes.as_ptr());
        Poll::Ready(Ok(Arrived::Placed(bytes)))
    }

    /// A payload is where it stays.
    fn note_placed(&mut self, at: *const u8) {
        COPIED.last.store(at as usize, Ordering::Relaxed);
        self.state.credit.take(0);
        self.tell();
        self.wake();
    }

    /// The next part of the stream, where it is there already, into a place of the user's; how much that was.
    pub(super) fn land(&mut self, landing: &mut Landing) -> Option<usize> {
        if self.fetching.is_some() {
            self.pump(None, 1);
            let fetched = self.fetch_on()?;
            return Some(self.land_fetched(landing, fetched));
        }
        if self.state.arrived.is_empty() {
            self.pump(None, 1);
        }
        match self.state.arrived.pop_front()? {
            Arrival::Lies(index, from) => {
                let bytes = from.bytes as usize;
                let room = if bytes <= landing.wanted() {
                    Fetched::into_place(std::mem::take(landing), bytes)
                } else {
                    Fetched::pooled(&self.pool, bytes)
                };
                let fetched = self.fetch(room, index, from)?;
                Some(self.land_fetched(landing, fetched))
            }
            Arrival::Placed(bytes) => {
                self.note_placed(landing.room().as_ptr());
                Some(self.put(landing, bytes))
            }
            Arrival::Bytes(bytes) => {
                self.state.credit.take(bytes.len());
                self.wake();
                Some(self.put(landing, bytes))
            }
            Arrival::Rest(bytes) => Some(self.put(landing, bytes)),
        }
    }

    /// What was fetched lies in the place, or has to be put there.
    fn land_fetched(&mut self, landing: &mut Landing, fetched: Fetched) -> usize {
        match fetched.into_landing() {
            Ok((filled, bytes)) => {
                *landing = filled;
                self.note_placed(landing.room().as_ptr().wrapping_sub(bytes));
                bytes
            }
            Err(fetched) => {
                self.note_placed(landing.room().as_ptr());
                self.put(landing, fetched.into_bytes())
            }
        }
    }

    /// Copies bytes to a place; what does not fit waits.
    fn put(&mut self, landing: &mut Landing, mut bytes: Bytes) -> usize {
        let count = landing.put(&bytes);
        COPIED.by_us.fetch_add(count as u64, Ordering::Relaxed);
        bytes.advance(count);
        if !bytes.is_empty() {
            self.state.arrived.push_front(Arrival::Rest(bytes));
        }
        count
    }
}

/// How often something is fetched that is missing and should be there.
const TRIES_MAX: u32 = 4;
