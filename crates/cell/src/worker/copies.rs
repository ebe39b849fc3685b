//! Copies between the local store and a mapped file: which needs no message as long as the file's line holds.

use super::{After, Answer, Copy, Ended, Ground, Worker, ops};
use crate::header::{self, Access, Place, View};
use crate::memory::Shared;
use covey_ninep::tree::Result;
use covey_wire::Span;
use std::result::Result as StdResult;

/// So often a coroutine goes on before it gives way to the next one.
const IN_A_ROW_MAX: u32 = 16;

impl<G: Ground> Worker<G> {
    /// Copies what a coroutine waits for, if that goes all at once and nobody wants to know of it.
    #[inline]
    fn copy(&mut self, cor: u32) -> Option<Answer> {
        let copy = &self.cors[cor as usize].as_ref()?.copy;
        if self.trace.is_on() {
            return None;
        }
        let memory = self.ground.memory().clone();
        let (access, pointer, bytes) = reach(&*memory, self.number, copy)?;
        if bytes < copy.local.bytes {
            return None;
        }
        let mapping = access.view.place.mapping;
        let done = if copy.is_read {
            self.ground.fetch(mapping, pointer, copy.local)
        } else {
            self.ground.put(copy.local, mapping, pointer)
        };
        done.is_ok().then(|| Answer::number(bytes))
    }

    /// A write needs not wait for memory: its data is at hand, most often just read, and lies in a cache as long as nobody
    /// else has run. So who writes goes on, but not for ever. Whether it does must not depend on what the host is about:
    /// where the copy takes a message, that is waited for.
    #[inline]
    pub(super) fn copy_at_once(
        &mut self,
        cor: u32,
        in_a_row: u32,
    ) -> StdResult<Option<Answer>, Ended> {
        if self.slot(cor).copy.is_read || in_a_row >= IN_A_ROW_MAX {
            return Ok(None);
        }
        self.copy_now(cor).map(Some)
    }

    /// Copies what a coroutine waits for, however long that takes.
    #[inline]
    pub(super) fn copy_now(&mut self, cor: u32) -> StdResult<Answer, Ended> {
        match self.copy(cor) {
            Some(answer) => Ok(answer),
            None => self.copy_slowly(cor),
        }
    }

    /// The same where anything is different: the end of the file, an error, a trace.
    #[cold]
    fn copy_slowly(&mut self, cor: u32) -> StdResult<Answer, Ended> {
        let copy = self.slot(cor).copy;
        match self.copy_part(&copy) {
            Some(Ok(count)) => {
                if copy.is_moved && count < copy.local.bytes {
                    self.moved_back(copy.fd, copy.at, count, copy.local.bytes);
                }
                if self.trace.is_on() {
                    self.trace_data(cor, copy.is_read, copy.local, count)?;
                }
                Ok(Answer::number(count))
            }
            Some(Err(error)) => Ok(self.failed(cor, error)),
            None => self.copy_by_message(cor, copy),
        }
    }

    /// Copies as much as there is; `None` where only the host can do it.
    fn copy_part(&mut self, copy: &Copy) -> Option<Result<u64>> {
        let memory = self.ground.memory().clone();
        let (access, pointer, bytes) = reach(&*memory, self.number, copy)?;
        if !copy.is_read && bytes < copy.local.bytes {
            return None;
        }
        if bytes == 0 {
            return Some(Ok(0));
        }
        let local = Span::new(copy.local.address, bytes);
        let mapping = access.view.place.mapping;
        let done = if copy.is_read {
            self.ground.fetch(mapping, pointer, local)
        } else {
            self.ground.put(local, mapping, pointer)
        };
        Some(done.map(|()| bytes))
    }

    #[cold]
    fn copy_by_message(&mut self, cor: u32, copy: Copy) -> StdResult<Answer, Ended> {
        let moved = copy.is_moved.then_some((copy.fd, copy.at));
        let fid = match self.files.find(copy.fd) {
            Ok(file) => file.fid.clone(),
            Err(error) => return Ok(self.failed(cor, error)),
        };
        let (op, after) = if copy.is_read {
            let op = ops::read(&fid, copy.at, copy.local.bytes, false);
            (op, After::Data { to: copy.local, moved })
        } else {
            let op = ops::write(&fid, copy.at, self.ground.take(copy.local), false);
            (op, After::Written { count: copy.local.bytes, moved })
        };
        let result = self.wait_for(op)?;
        self.conclude(cor, result, after)
    }
}

/// A read is begun: its memory is asked for, and arrives while others copy, or at least sooner than without.
#[inline]
pub(super) fn announce<G: Ground>(ground: &G, copy: &Copy) {
    if copy.is_read {
        let place = header::glance(&**ground.memory(), copy.ticket);
        let bytes = copy.local.bytes.min(place.capacity.saturating_sub(copy.at));
        ground.prefetch(place.mapping, place.pointer.wrapping_add(copy.at), bytes);
    }
}

/// The right to copy, and where how many bytes of what was asked for lie; `None` where only the host can reach them.
#[inline]
fn reach<'a, S: Shared>(
    memory: &'a S,
    worker: u32,
    copy: &Copy,
) -> Option<(Access<'a, S>, u64, u64)> {
    let access = header::enter(memory, worker, copy.ticket)?;
    let View { size, place } = access.view;
    if place.mapping == Place::NOWHERE {
        return None;
    }
    let bytes = copy.local.bytes.min(size.saturating_sub(copy.at));
    let pointer = place.pointer.checked_add(copy.at)?;
    Some((access, pointer, bytes))
}
