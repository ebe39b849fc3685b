//! Copies between the local store and a mapped file: which needs no message as long as the file's line holds.

use super::files::unknown;
use super::{After, Answer, Copied, Copy, Ended, Ground, Worker, ops};
use crate::header::{self, Access, Place, View};
use crate::memory::Shared;
use covey_ninep::tree::Result;
use covey_wire::Span;
use std::result::Result as StdResult;

/// So often a coroutine goes on before it gives way to the next one.
pub(super) const IN_A_ROW_MAX: u32 = 16;
/// Bytes that are copied before the file is let go of once: whoever changes its size waits for that, and its memory may have
/// to be read from a disk first.
pub(super) const COPY_BYTES_MAX: u64 = 256 << 10;

impl<G: Ground> Worker<G> {
    /// Copies what a coroutine waits for, if that goes all at once and nobody wants to know of it.
    #[inline(always)]
    fn copy(&self, cor: u32) -> Option<Answer> {
        let copy = &self.cors[cor as usize].as_ref()?.copy;
        if self.trace.is_on() {
            return None;
        }
        copy_at_a_stroke(&*self.ground, self.number, copy).map(Answer::number)
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
    #[inline(always)]
    pub(super) fn copy_now(&mut self, cor: u32) -> StdResult<Answer, Ended> {
        match self.copy(cor) {
            Some(answer) => Ok(answer),
            None => self.copy_slowly(cor),
        }
    }

    /// The same where anything is different: a long copy, the end of the file, an error, a trace.
    #[cold]
    pub(super) fn copy_slowly(&mut self, cor: u32) -> StdResult<Answer, Ended> {
        let copy = self.slot(cor).copy;
        let copied = self.copy_all(&copy)?;
        let (to, moved) = (copy.local, copy.is_moved.then_some((copy.fd, copy.at)));
        self.settle(moved, *copied.as_ref().unwrap_or(&0), to.bytes);
        let after = if copy.is_read {
            After::Data { to, moved: None }
        } else {
            After::Written { count: to.bytes, moved: None }
        };
        self.answer(cor, copied.map(|count| count as i64), after)
    }

    /// Copies part by part, and by message what only the host can do.
    fn copy_all(&mut self, copy: &Copy) -> StdResult<Result<u64>, Ended> {
        let mut done = 0;
        loop {
            let Some(count) = self.copy_part(&copy.part(done, COPY_BYTES_MAX)) else {
                let rest = self.copy_by_message(&copy.part(done, u64::MAX))?;
                // What was copied was copied: the error comes again.
                return Ok(rest.map(|count| done + count).or_else(|error| match done {
                    0 => Err(error),
                    _ => Ok(done),
                }));
            };
            done += count;
            if count < COPY_BYTES_MAX || done == copy.local.bytes {
                return Ok(Ok(done));
            }
        }
    }

    /// Copies as much as there is; `None` where only the host can do it.
    fn copy_part(&mut self, copy: &Copy) -> Option<u64> {
        let (access, pointer, bytes) = reach(&**self.ground.memory(), self.number, copy)?;
        if !copy.is_read && bytes < copy.local.bytes {
            return None;
        }
        if bytes == 0 {
            return Some(0);
        }
        let local = Span::new(copy.local.address, bytes);
        let mapping = access.view.place.mapping;
        let done = if copy.is_read {
            self.ground.fetch(mapping, pointer, local)
        } else {
            self.ground.put(local, mapping, pointer)
        };
        (done == Copied::Whole).then_some(bytes)
    }

    #[cold]
    fn copy_by_message(&mut self, copy: &Copy) -> StdResult<Result<u64>, Ended> {
        let fid = match self.files.find(copy.fd) {
            // Another coroutine may have closed it meanwhile: its number is another file's then.
            Ok(file) if file.map != Some(copy.ticket) => return Ok(Err(unknown(copy.fd))),
            Ok(file) => file.fid.clone(),
            Err(error) => return Ok(Err(error)),
        };
        let (op, after) = if copy.is_read {
            let op = ops::read(&fid, copy.at, copy.local.bytes, false);
            (op, After::Data { to: copy.local, moved: None })
        } else {
            let op = ops::write(&fid, copy.at, self.ground.take(copy.local), false);
            (op, After::Written { count: copy.local.bytes, moved: None })
        };
        let result = self.wait_for(op)?;
        let count = result.and_then(|reply| self.take_reply(reply, after));
        self.link.send(&mut *self.ground)?;
        Ok(count.map(|count| count as u64))
    }
}

/// Copies all of it at once; `None` where that cannot be.
#[inline(always)]
pub(super) fn copy_at_a_stroke<G: Ground>(ground: &G, worker: u32, copy: &Copy) -> Option<u64> {
    if copy.local.bytes > COPY_BYTES_MAX {
        return None;
    }
    let (access, pointer, bytes) = reach(&**ground.memory(), worker, copy)?;
    if bytes < copy.local.bytes {
        return None;
    }
    let mapping = access.view.place.mapping;
    let done = if copy.is_read {
        ground.fetch(mapping, pointer, copy.local)
    } else {
        ground.put(copy.local, mapping, pointer)
    };
    (done == Copied::Whole).then_some(bytes)
}

/// A read is begun: its memory is asked for, and arrives while others copy, or at least sooner than without.
#[inline]
pub(super) fn announce<G: Ground>(ground: &G, copy: &Copy) {
    if copy.is_read {
        let place = header::glance(&**ground.memory(), copy.ticket).place;
        let bytes = copy.local.bytes.min(place.capacity.saturating_sub(copy.at));
        ground.prefetch(place.mapping, place.pointer.wrapping_add(copy.at), bytes);
    }
}

/// Whether a read most likely brings all that is asked for, at once.
#[inline(always)]
pub(super) fn may_be_whole<G: Ground>(ground: &G, copy: &Copy) -> bool {
    let View { size, place } = header::glance(&**ground.memory(), copy.ticket);
    let end = copy.at.saturating_add(copy.local.bytes);
    (1..=COPY_BYTES_MAX).contains(&copy.local.bytes)
        && end <= size
        && place.mapping != Place::NOWHERE
}

/// The right to copy, and where how many bytes of what was asked for lie; `None` where only the host can reach them.
#[inline(always)]
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
