//! Peers whose memory has the other byte order.
//!
//! Bytes travel as they lie in their sender's memory. Whoever puts them where they belong turns the elements, once; which
//! those are is told by whichever side has a layout of elements. An operation of ours is turned when it ends, in its
//! memory, so that packets may be cut anywhere and may be read right into their place. Packets that change
//! registered memory are cut between elements and turned one by one.

use crate::Fault;
use crate::api::Local;
use crate::core::Core;
use crate::forms::Committed;
use crate::numbers::OpIndex;
use crate::ops::What;
use crate::packet::PLAIN;
use covey_layout::Signature;
use covey_wire::{Memory, Peer};
use std::borrow::Cow;
use std::rc::Rc;

/// The elements of a message.
#[derive(Clone, Debug)]
pub(crate) struct Types {
    pub form: Rc<Committed>,
    /// Where in the message its packed bytes begin: behind a header.
    pub at: u64,
}

impl Types {
    /// Whether this and another one say the same of the first `bytes` bytes of the message.
    fn agrees(&self, other: &Types, bytes: u64) -> bool {
        let from = self.at.max(other.at);
        match (self.form.signature(), other.form.signature()) {
            (Some(a), Some(b)) => {
                a.agrees(from - self.at, b, from - other.at, bytes.saturating_sub(from))
            }
            _ => false,
        }
    }
}

/// A layout that says something of elements.
fn typed(form: &Rc<Committed>) -> bool {
    form.signature().is_some_and(Signature::is_typed)
}

impl<M: Memory> Core<M> {
    /// Whether what comes from this peer has the other byte order.
    #[inline]
    pub fn is_foreign(&self, peer: Peer) -> bool {
        self.peers.get(peer.0 as usize).is_some_and(|state| state.is_foreign)
    }

    /// The layout of a local side, if it says something of elements.
    pub fn typed(&self, local: &Local) -> Result<Option<Rc<Committed>>, Fault> {
        let form = local.form.map(|form| self.forms.find(form)).transpose()?;
        Ok(form.filter(|form| typed(form)).cloned())
    }

    /// Which elements a message of such a peer has, now that it has its receive: those that one of the two sides names.
    #[cold]
    pub fn settle(&mut self, index: OpIndex, theirs: Option<Types>) {
        let op = &self.ops[index];
        let (at, wanted) = (op.ahead, op.wanted);
        let ours = self.typed(&op.local).ok().flatten().map(|form| Types { form, at });
        let theirs = theirs.filter(|types| typed(&types.form));
        let op = &mut self.ops[index];
        if let (Some(ours), Some(theirs)) = (&ours, &theirs)
            && !ours.agrees(theirs, wanted)
        {
            // Nothing of it is taken.
            (op.fault, op.wanted) = (Some(Fault::Elements), 0);
            return;
        }
        if let Some(types) = ours.or(theirs) {
            op.more().types = Some(types);
        }
    }

    /// Which elements a one-sided operation with such a peer has: those that one of its sides names.
    pub fn settle_request(
        &mut self,
        index: OpIndex,
        remote: Option<&Rc<Committed>>,
    ) -> Result<Option<Rc<Committed>>, Fault> {
        let op = &self.ops[index];
        let more = op.more.as_ref();
        let others = [more.and_then(|more| more.new), more.and_then(|more| more.before)];
        let mut named: Vec<Rc<Committed>> =
            remote.into_iter().filter(|form| typed(form)).cloned().collect();
        for local in [Some(op.local)].into_iter().chain(others).flatten() {
            named.extend(self.typed(&local)?);
        }
        let mut named = named.into_iter().map(|form| Types { form, at: 0 });
        let Some(types) = named.next() else { return Ok(None) };
        if !named.all(|other| types.agrees(&other, u64::MAX)) {
            return Err(Fault::Elements);
        }
        let form = types.form.clone();
        if matches!(op.what, What::Get | What::Fetch(_) | What::Swap) {
            self.ops[index].more().types = Some(types);
        }
        Ok(Some(form))
    }

    /// Turns what an operation of ours has brought.
    #[cold]
    pub fn turn(&mut self, index: OpIndex) {
        let op = &mut self.ops[index];
        let Some(more) = op.more.as_mut() else { return };
        let Some(types) = more.types.take() else { return };
        let local = match op.what {
            What::Receive | What::Get => op.local,
            _ => more.before.unwrap_or(op.local),
        };
        let (ahead, wanted) = (op.ahead, op.wanted);
        if matches!(op.fault, None | Some(Fault::Truncated))
            && let Err(fault) = self.turn_local(&local, ahead, &types, wanted)
        {
            self.ops[index].fault = Some(fault);
        }
    }

    /// Turns the elements of a message of `bytes` bytes, of which those from `ahead` on lie in local memory.
    fn turn_local(
        &mut self,
        local: &Local,
        ahead: u64,
        types: &Types,
        bytes: u64,
    ) -> Result<(), Fault> {
        let signature = types.form.signature().ok_or(Fault::Layout)?;
        let first = ahead.saturating_sub(types.at);
        // An element of which a part went elsewhere, or is lost, stays as it is.
        let begins = |at: &u64| signature.boundary(*at) == *at;
        let mut at = (first..first + ELEMENT_BYTES_MAX).find(begins).unwrap_or(first);
        let end = signature.boundary(bytes.saturating_sub(types.at));
        let mut room = Vec::new();
        while at < end {
            let stop = signature.boundary(end.min(at + STEP_BYTES));
            let (here, count) = (types.at + at - ahead, stop - at);
            if local.form.is_none() {
                let part = local.span.part(here, count).ok_or(Fault::OutOfRange)?;
                self.memory.write(part, |bytes| signature.swap(bytes, at))??;
            } else {
                room.resize(count as usize, 0);
                self.take(local, here, &mut room)?;
                signature.swap(&mut room, at)?;
                self.give(local, here, &room)?;
            }
            at = stop;
        }
        Ok(())
    }

    /// Packed bytes from `at` on, of `total`, in our order. `types` is the slot of their elements.
    pub fn turned<'a>(
        &self,
        peer: Peer,
        types: u16,
        total: u64,
        at: u64,
        bytes: &'a [u8],
    ) -> Result<Cow<'a, [u8]>, Fault> {
        let state = &self.peers[peer.0 as usize];
        if types == PLAIN || !state.is_foreign {
            return Ok(bytes.into());
        }
        let form = state.known.find(types)?.ok_or(Fault::Layout)?;
        if form.plan.size() != total {
            return Err(Fault::Sizes);
        }
        let mut turned = bytes.to_vec();
        form.signature().ok_or(Fault::Layout)?.swap(&mut turned, at)?;
        Ok(turned.into())
    }
}

/// Packed bytes that are turned at once.
const STEP_BYTES: u64 = 64 << 10;
const ELEMENT_BYTES_MAX: u64 = 8;
