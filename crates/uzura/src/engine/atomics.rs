//! Atomic operations on elements of a peer's memory: what their caller does.

use super::Engine;
use super::pump::Step;
use crate::Fault;
use crate::api::{Local, Remote, Started};
use crate::atomics::{Atomic, Compare};
use crate::numbers::OpIndex;
use crate::ops::What;
use crate::packet::Head;
use covey_layout::{Element, Op};
use covey_wire::{Memory, Peer, Transport};

impl<T: Transport, M: Memory> Engine<T, M> {
    /// Bytes of the peer's memory that one atomic operation may be about, at most.
    pub fn atomic_bytes_max(&self, peer: Peer) -> usize {
        self.transport.packet_bytes_max(peer) / 2
    }

    /// Combines elements of a peer with ours: `there = op(there, here)`, all of them without anybody else's operation in
    /// between, and in the order in which this side's atomic operations with that peer were begun. `op` must be
    /// [defined](Op::is_defined_for) for the element. The remote side is in a row: a layout is refused.
    pub fn atomic(
        &mut self,
        op: Op,
        element: Element,
        from: Local,
        to: Remote,
        context: u64,
    ) -> Result<Started, Fault> {
        self.start_atomic(Atomic::Update(op), element, [from, from], None, to, context)
    }

    /// The same, and what was there before comes into `before`. [`Op::NoOp`] reads; `from` then has the size, and its bytes do
    /// not matter.
    pub fn atomic_fetch(
        &mut self,
        op: Op,
        element: Element,
        from: Local,
        before: Local,
        to: Remote,
        context: u64,
    ) -> Result<Started, Fault> {
        self.start_atomic(Atomic::Fetch(op), element, [from, from], Some(before), to, context)
    }

    /// Compares each of the peer's elements with its own of `expected`, and where that passes replaces it by that of `new`;
    /// what was there before comes into `before`. `compare` must be [defined](Compare::is_defined_for) for the element.
    pub fn atomic_compare(
        &mut self,
        compare: Compare,
        element: Element,
        [expected, new]: [Local; 2],
        before: Local,
        to: Remote,
        context: u64,
    ) -> Result<Started, Fault> {
        let atomic = Atomic::Compare(compare);
        self.start_atomic(atomic, element, [expected, new], Some(before), to, context)
    }

    fn start_atomic(
        &mut self,
        atomic: Atomic,
        element: Element,
        operands: [Local; 2],
        before: Option<Local>,
        to: Remote,
        context: u64,
    ) -> Result<Started, Fault> {
        let [first, second] = operands;
        let bytes = self.core.size(&first)?;
        let is_result_alike = match &before {
            Some(before) => self.core.size_to_write(before)? == bytes,
            None => true,
        };
        if to.form.is_some() {
            return Err(Fault::Layout);
        }
        self.sides(&to, bytes)?;
        if !atomic.is_defined_for(element) {
            return Err(Fault::Operation);
        }
        let is_whole = bytes.is_multiple_of(element.bytes());
        if !is_whole || !is_result_alike || self.core.size(&second)? != bytes {
            return Err(Fault::Sizes);
        }
        if bytes > self.atomic_bytes_max(to.peer) as u64 {
            return Err(Fault::TooLong);
        }
        let what = if before.is_some() { What::AtomicFetch } else { What::AtomicUpdate };
        self.request(what, first, to, bytes, context, |op| {
            let more = op.more();
            (more.before, more.new, more.atomic) = (before, Some(second), Some((atomic, element)));
        })
    }

    /// Sends the request of an operation.
    pub(super) fn begin_atomic(&mut self, peer: Peer, index: OpIndex) -> Result<Step, Fault> {
        let wire = self.core.ops.wire(index);
        let op = &self.core.ops[index];
        let more = op.more.as_ref().ok_or(Fault::NoSuch)?;
        let (Some(remote), Some((atomic, element))) = (more.remote, more.atomic) else {
            return Err(Fault::NoSuch);
        };
        let (local, new, bytes) = (op.local, more.new, op.bytes as usize);
        let mut payload = vec![0; bytes * atomic.operands()];
        let (first, second) = payload.split_at_mut(bytes);
        self.core.take(&local, 0, first)?;
        if let Some(new) = new.filter(|_| !second.is_empty()) {
            self.core.take(&new, 0, second)?;
        }
        let (kind, what) = atomic.numbers();
        let (op, element, key, at) = (wire, element.number(), remote.key.0, remote.at);
        let head = Head::Atomic { op, kind, what, element, key, at };
        Ok(self.plain(peer, head, &payload, |_| ()))
    }
}
