//! Put, get, accumulate, fetch and compare-and-swap: what their caller does.
//!
//! Reading and writing are done from here where the peer's memory can be reached and its registration can be seen.
//! Everything that must be atomic is done by the peer, one after the other.

use super::Engine;
use super::pump::Step;
use crate::Fault;
use crate::api::{Completion, Local, Remote, Rights, Started};
use crate::direct::Far;
use crate::forms::Committed;
use crate::ops::What;
use crate::serve::whole;
use crate::table::{self, Registration};
use covey_layout::Op;
use covey_wire::transport::OneCopy;
use covey_wire::{Memory, Transport};
use std::rc::Rc;

impl<T: Transport, M: Memory> Engine<T, M> {
    /// Writes memory of ours to memory of a peer. It is done when it is there.
    pub fn put(&mut self, from: Local, to: Remote, context: u64) -> Result<Started, Fault> {
        self.start_put(from, to, None, context)
    }

    /// The same, and when it is there the peer gets a completion of [`End::Written`](crate::End::Written) with `data`.
    pub fn put_telling(
        &mut self,
        from: Local,
        to: Remote,
        data: u64,
        context: u64,
    ) -> Result<Started, Fault> {
        self.start_put(from, to, Some(data), context)
    }

    #[inline]
    fn start_put(
        &mut self,
        from: Local,
        to: Remote,
        data: Option<u64>,
        context: u64,
    ) -> Result<Started, Fault> {
        let bytes = self.core.size(&from)?;
        let form = self.sides_to_write(&to, bytes)?;
        if bytes == 0 {
            return self.put_is_there(from, to, bytes, data, context);
        }
        if !self.core.is_foreign(to.peer)
            && let Some(far) = self.enter(&to, form, bytes, Rights::WRITE)?
            && let Some(begun) = self.begin_here(What::Put, from, to, &far, data, context)?
        {
            return Ok(begun);
        }
        self.request(What::Put, from, to, bytes, context, |op| op.tells(data))
    }

    /// Reads memory of a peer into memory of ours.
    pub fn get(&mut self, into: Local, from: Remote, context: u64) -> Result<Started, Fault> {
        let bytes = self.core.size_to_write(&into)?;
        let form = self.sides(&from, bytes)?;
        if bytes == 0 {
            return Ok(done(&from, bytes, context));
        }
        if !self.core.is_foreign(from.peer)
            && let Some(far) = self.enter(&from, form, bytes, Rights::READ)?
            && let Some(begun) = self.begin_here(What::Get, into, from, &far, None, context)?
        {
            return Ok(begun);
        }
        self.request(What::Get, into, from, bytes, context, |_| ())
    }

    /// Does a put or get from here, at once or by a transport that does it later, and leaves the registration that was entered.
    /// `None` where the peer has to be asked.
    #[inline]
    fn begin_here(
        &mut self,
        what: What,
        local: Local,
        remote: Remote,
        far: &Far,
        data: Option<u64>,
        context: u64,
    ) -> Result<Option<Started>, Fault> {
        if self.transport.one_copy(remote.peer) == OneCopy::Posted {
            let begun = self.post_all(what, local, remote, far, data, context);
            self.transport.leave(remote.peer);
            return begun;
        }
        let moved = match what {
            What::Put => self.core.write_far(&mut self.transport, &local, far),
            _ => self.core.read_far(&mut self.transport, far, &local, 0),
        };
        self.transport.leave(remote.peer);
        if !moved? {
            return Ok(None);
        }
        self.core.stats.direct += 1;
        self.put_is_there(local, remote, far.bytes, data, context).map(Some)
    }

    /// A transfer has taken place, and its target may have to be told.
    #[inline]
    fn put_is_there(
        &mut self,
        local: Local,
        remote: Remote,
        bytes: u64,
        data: Option<u64>,
        context: u64,
    ) -> Result<Started, Fault> {
        let Some(word) = data else { return Ok(done(&remote, bytes, context)) };
        let peer = remote.peer;
        if self.core.peer(peer)?.is_clear()
            && self.tell_written(peer, word, bytes) == Step::Finished
        {
            return Ok(done(&remote, bytes, context));
        }
        self.core.peer(peer)?;
        self.request(What::Tell, local, remote, bytes, context, |op| op.tells(data))
    }

    /// Combines memory of a peer with memory of ours, in order: `there = op(there, here)`. Each element atomically, as
    /// far as such operations of engines go. The elements are those of the remote layout; bytes without one.
    pub fn accumulate(
        &mut self,
        op: Op,
        from: Local,
        to: Remote,
        context: u64,
    ) -> Result<Started, Fault> {
        let bytes = self.core.size(&from)?;
        let form = self.sides_to_write(&to, bytes)?;
        defined(op, form.as_deref())?;
        if bytes == 0 {
            return Ok(done(&to, bytes, context));
        }
        self.request(What::Accumulate(op), from, to, bytes, context, |_| ())
    }

    /// The same, and what was there before comes into `before`.
    pub fn fetch(
        &mut self,
        op: Op,
        from: Local,
        before: Local,
        to: Remote,
        context: u64,
    ) -> Result<Started, Fault> {
        let bytes = self.core.size(&from)?;
        let form = self.sides_to_write(&to, bytes)?;
        defined(op, form.as_deref())?;
        if self.core.size_to_write(&before)? != bytes {
            return Err(Fault::Sizes);
        }
        if bytes == 0 {
            return Ok(done(&to, bytes, context));
        }
        let more = |op: &mut crate::ops::Op| op.more().before = Some(before);
        self.request(What::Fetch(op), from, to, bytes, context, more)
    }

    /// Where memory of a peer is equal to `expected`, all of it, replaces it by `new`; what was there before comes into
    /// `before`.
    pub fn compare_swap(
        &mut self,
        expected: Local,
        new: Local,
        before: Local,
        to: Remote,
        context: u64,
    ) -> Result<Started, Fault> {
        let bytes = self.core.size(&expected)?;
        self.sides_to_write(&to, bytes)?;
        if self.core.size(&new)? != bytes || self.core.size_to_write(&before)? != bytes {
            return Err(Fault::Sizes);
        }
        if bytes > self.atomic_bytes_max(to.peer) as u64 {
            return Err(Fault::TooLong);
        }
        if bytes == 0 {
            return Ok(done(&to, bytes, context));
        }
        let more = |op: &mut crate::ops::Op| {
            let more = op.more();
            (more.before, more.new) = (Some(before), Some(new));
        };
        self.request(What::Swap, expected, to, bytes, context, more)
    }

    /// The remote layout, which has as many bytes as the local side.
    pub(super) fn sides(
        &mut self,
        remote: &Remote,
        bytes: u64,
    ) -> Result<Option<Rc<Committed>>, Fault> {
        self.know(remote.peer);
        self.core.peer(remote.peer)?;
        let Some(form) = remote.form else { return Ok(None) };
        let form = self.core.forms.find(form)?;
        if form.plan.size() != bytes {
            return Err(Fault::Sizes);
        }
        Ok(Some(form.clone()))
    }

    /// The same, of one that can be written to.
    fn sides_to_write(
        &mut self,
        remote: &Remote,
        bytes: u64,
    ) -> Result<Option<Rc<Committed>>, Fault> {
        let form = self.sides(remote, bytes)?;
        if let Some(form) = &form {
            form.target().ok_or(Fault::Layout)?;
        }
        Ok(form)
    }

    /// Begins an access to a peer's memory from here. `None` where the peer has to do it.
    #[inline]
    fn enter(
        &mut self,
        remote: &Remote,
        form: Option<Rc<Committed>>,
        bytes: u64,
        right: Rights,
    ) -> Result<Option<Far>, Fault> {
        let key = remote.key.0;
        let enter = |slot| self.transport.enter(remote.peer, slot, key).ok();
        let Some(found) = table::slots(key).find_map(enter) else {
            // The peer knows why, and says it.
            return Ok(None);
        };
        let found = Registration { key: found.key, span: found.span, rights: found.rights };
        let hull = form.as_ref().map(|form| whole(form.plan.hull()));
        let hull = hull.unwrap_or((0, i64::try_from(bytes).unwrap_or(i64::MAX)));
        let checked = table::permitted(&found, right, remote.at, hull);
        let offset = table::offset(&found, remote.at).ok_or(Fault::OutOfRange);
        let origin =
            offset.and_then(|at| found.span.address.checked_add(at).ok_or(Fault::OutOfRange));
        match checked.and(origin) {
            Ok(origin) => Ok(Some(Far { peer: remote.peer, origin, form, bytes })),
            Err(fault) => {
                self.transport.leave(remote.peer);
                Err(fault)
            }
        }
    }

    /// Has the peer do it.
    pub(super) fn request(
        &mut self,
        what: What,
        local: Local,
        remote: Remote,
        bytes: u64,
        context: u64,
        more: impl FnOnce(&mut crate::ops::Op),
    ) -> Result<Started, Fault> {
        let core = &mut self.core;
        let peer = remote.peer;
        let index = core.ops.add(what, peer, context, local).ok_or(Fault::Busy)?;
        let op = &mut core.ops[index];
        (op.bytes, op.wanted) = (bytes, bytes);
        op.more().remote = Some(remote);
        more(op);
        let id = core.ops.id(index);
        core.peers[peer.0 as usize].backlog.push_back(index);
        self.pump_now(peer);
        Ok(Started::Pending(id))
    }
}

fn done(remote: &Remote, bytes: u64, context: u64) -> Started {
    Started::Done(Completion::well(context, remote.peer, 0, bytes))
}

/// Refuses an operation that the remote elements do not have.
fn defined(op: Op, form: Option<&Committed>) -> Result<(), Fault> {
    let is_defined = match form {
        None => op.is_defined_for(covey_layout::Element::Byte),
        Some(form) => {
            let signature = form.signature().ok_or(Fault::Layout)?;
            signature.elements().all(|element| op.is_defined_for(element))
        }
    };
    if is_defined { Ok(()) } else { Err(Fault::Operation) }
}
