//! The engine: one endpoint of messages and one-sided operations.

use crate::Fault;
use crate::api::*;
use covey_layout::{Layout, Op};
use covey_wire::{Memory, Peer, Span, Transport};

/// One endpoint: it has a transport with peers, and memory that operations are about.
///
/// Calls begin operations, [`Engine::poll`] makes them go on, [`Engine::completion`] tells their ends. What can
/// be done at once is: then the call answers [`Started::Done`] and no completion follows. Memory that an
/// operation is about is in use until its end. A fault ends the one operation.
#[derive(Debug)]
pub struct Engine<T, M> {
    transport: T,
    memory: M,
}

impl<T: Transport, M: Memory> Engine<T, M> {
    /// An engine without peers.
    pub fn new(transport: T, memory: M, config: Config) -> Engine<T, M> {
        let _ = config;
        Engine { transport, memory }
    }

    /// What carries its packets: peers are met there, in its own way.
    pub fn transport(&mut self) -> &mut T {
        &mut self.transport
    }

    /// The memory that operations are about.
    pub fn memory(&mut self) -> &mut M {
        &mut self.memory
    }

    /// Whether there is such a peer and it is not known to be dead.
    pub fn is_alive(&self, peer: Peer) -> bool {
        let _ = peer;
        false
    }

    /// Makes `count` copies of a layout ready for use, on either side of operations.
    pub fn commit(&mut self, layout: &Layout, count: u64) -> Result<Form, covey_layout::Error> {
        let _ = (layout, count);
        Ok(Form(0))
    }

    /// Forgets a layout. No operation under way may use it.
    pub fn free(&mut self, form: Form) -> Result<(), Fault> {
        let _ = form;
        Err(Fault::NoSuch)
    }

    /// Sends a message. It is done when its memory may be used again.
    pub fn send(
        &mut self,
        to: Peer,
        tag: u64,
        what: Local,
        context: u64,
    ) -> Result<Started, Fault> {
        self.send_headed(to, tag, &[], what, context)
    }

    /// Sends a message that begins with a header, at most [`HEADER_BYTES_MAX`] bytes, followed by memory: nothing
    /// is gathered before.
    pub fn send_headed(
        &mut self,
        to: Peer,
        tag: u64,
        header: &[u8],
        what: Local,
        context: u64,
    ) -> Result<Started, Fault> {
        let _ = (to, tag, header, what, context);
        Err(Fault::NoPeer)
    }

    /// Receives a message: the first one of those that fit, by this source and tag, in the order in which they were sent.
    /// Receives are served in the order in which they were posted.
    pub fn receive(
        &mut self,
        from: Source,
        tag: Tag,
        into: Local,
        context: u64,
    ) -> Result<Started, Fault> {
        let _ = (from, tag, into, context);
        Err(Fault::NoPeer)
    }

    /// Receives one message whose header has a form: header and payload each go to their place, with no copy in
    /// between. Rules go before receives, in the order in which they were made.
    pub fn place(&mut self, rule: &Rule<'_>, context: u64) -> Result<Started, Fault> {
        let _ = (rule, context);
        Err(Fault::NoPeer)
    }

    /// The message that a receive would get now.
    pub fn probe(&mut self, from: Source, tag: Tag) -> Option<Probe> {
        let _ = (from, tag);
        None
    }

    /// Cancels what has not begun: a receive without a message, a send that no packet has left for. True: its
    /// completion says [`Fault::Cancelled`]. False: it goes on, or has ended.
    pub fn cancel(&mut self, operation: OpId) -> bool {
        let _ = operation;
        false
    }

    /// Lets peers that have the key access memory.
    pub fn register(&mut self, span: Span, rights: Rights) -> Result<Key, Fault> {
        let _ = (span, rights);
        Err(Fault::Busy)
    }

    /// Takes a registration back. When this returns nobody accesses the memory by this key any more; operations under
    /// way that need it end with [`Fault::Revoked`].
    pub fn revoke(&mut self, key: Key) -> Result<(), Fault> {
        let _ = key;
        Err(Fault::WrongKey)
    }

    /// Writes memory of ours to memory of a peer. It is done when it is there.
    pub fn put(&mut self, from: Local, to: Remote, context: u64) -> Result<Started, Fault> {
        let _ = (from, to, context);
        Err(Fault::NoPeer)
    }

    /// Reads memory of a peer into memory of ours.
    pub fn get(&mut self, into: Local, from: Remote, context: u64) -> Result<Started, Fault> {
        let _ = (into, from, context);
        Err(Fault::NoPeer)
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
        let _ = (op, from, to, context);
        Err(Fault::NoPeer)
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
        let _ = (op, from, before, to, context);
        Err(Fault::NoPeer)
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
        let _ = (expected, new, before, to, context);
        Err(Fault::NoPeer)
    }

    /// Lets operations go on. Says how many things happened; 0 is a reason to wait.
    pub fn poll(&mut self) -> usize {
        0
    }

    /// The end of an operation, if one has ended. They come in the order of their ends.
    pub fn completion(&mut self) -> Option<Completion> {
        None
    }

    /// Whether it is only peers that this waits for: nothing of ours is left to be tried again.
    pub fn is_idle(&self) -> bool {
        true
    }

    /// What was counted so far.
    pub fn stats(&self) -> Stats {
        Stats::default()
    }
}
