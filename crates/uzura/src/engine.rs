//! The engine: one endpoint of messages and one-sided operations.

mod atomics;
mod messages;
mod onesided;
mod posted;
mod pump;
mod tell;

use crate::Fault;
use crate::api::*;
use crate::core::Core;
use crate::envelope::{Envelope, Traits};
use crate::ops::{State, What};
use crate::packet::PLAIN;
use crate::peers::ENVELOPE_BYTES;
use crate::table::Registration;
use covey_layout::Layout;
use covey_wire::transport::{ACCESS, Glance, Published};
use covey_wire::{Memory, Peer, Span, Transport};
use std::time::Duration;

/// One endpoint: it has a transport with peers, and memory that operations are about.
///
/// Calls begin operations, [`Engine::poll`] makes them go on, [`Engine::completion`] tells their ends. What can
/// be done at once is: then the call answers [`Started::Done`] and no completion follows. Memory that an
/// operation is about is in use until its end. A fault ends the one operation.
#[derive(Debug)]
pub struct Engine<T, M> {
    transport: T,
    core: Core<M>,
    /// Within [`Engine::together`].
    gathers: bool,
    /// Keys that were taken back while a peer was in the middle of an access.
    in_use: Vec<Key>,
}

impl<T: Transport, M: Memory> Engine<T, M> {
    /// An engine without peers.
    pub fn new(transport: T, memory: M, config: Config) -> Engine<T, M> {
        Engine { transport, core: Core::new(memory, config), gathers: false, in_use: Vec::new() }
    }

    /// What carries its packets: peers are met there, in its own way.
    pub fn transport(&mut self) -> &mut T {
        &mut self.transport
    }

    /// The memory that operations are about.
    pub fn memory(&mut self) -> &mut M {
        &mut self.core.memory
    }

    /// Whether there is such a peer and it is not known to be dead.
    pub fn is_alive(&self, peer: Peer) -> bool {
        self.core.peers.get(peer.0 as usize).is_some_and(|state| state.alive)
    }

    /// A peer that the transport has met, and nobody was told of yet, is told of now.
    #[inline]
    fn know(&mut self, peer: Peer) {
        if self.core.peers.len() <= peer.0 as usize {
            self.meet();
        }
    }

    #[cold]
    fn meet(&mut self) {
        self.transport.poll(0, &mut self.core);
    }

    /// Makes `count` copies of a layout ready for use, on either side of operations.
    pub fn commit(&mut self, layout: &Layout, count: u64) -> Result<Form, covey_layout::Error> {
        self.core.forms.commit(layout, count).map(Form)
    }

    /// Forgets a layout. No operation under way may use it.
    pub fn free(&mut self, form: Form) -> Result<(), Fault> {
        if self.core.forms.free(form.0) { Ok(()) } else { Err(Fault::NoSuch) }
    }

    /// Does `what`, and lets what it sends leave together where that is cheaper: at its end at the latest, sooner
    /// where there is much or it polls. A message by itself leaves at once only outside of this.
    pub fn together<R>(&mut self, what: impl FnOnce(&mut Self) -> R) -> R {
        let is_within = std::mem::replace(&mut self.gathers, true);
        self.transport.gather(true);
        let result = what(self);
        self.gathers = is_within;
        self.transport.gather(is_within);
        result
    }

    /// Sends a message. It is done when its memory may be used again.
    pub fn send(
        &mut self,
        to: Peer,
        tag: u64,
        what: Local,
        context: u64,
    ) -> Result<Started, Fault> {
        self.know(to);
        self.start_send(to, Envelope::tagged(tag), &[], what, context)
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
        self.know(to);
        self.start_send(to, Envelope::tagged(tag), header, what, context)
    }

    /// Sends a message of any kind: without a tag, with a word for the receiver, or waited for until it is delivered.
    pub fn send_message(
        &mut self,
        to: Peer,
        message: &Message<'_>,
        what: Local,
        context: u64,
    ) -> Result<Started, Fault> {
        self.know(to);
        self.start_send(to, message.envelope(), message.header, what, context)
    }

    /// Sends a message from memory that is the caller's again when this returns: at once, or not at all. False: it has to wait
    /// for something, or is too long.
    #[inline(always)]
    pub fn send_at_once(
        &mut self,
        to: Peer,
        message: &Message<'_>,
        what: Local,
    ) -> Result<bool, Fault> {
        self.know(to);
        let envelope = message.envelope();
        if !self.core.peer(to)?.is_clear_and_alike() || envelope.traits.has(Traits::DELIVERED) {
            return Ok(false);
        }
        let bytes = self.core.size(&what)? + message.header.len() as u64;
        self.send_now(to, &envelope, message.header, &what, bytes, PLAIN)
    }

    /// Receives a message: the first one of those that fit, by this source and tag, in the order in which they were sent.
    /// Receives are served in the order in which they were posted.
    #[inline]
    pub fn receive(
        &mut self,
        from: Source,
        which: impl Into<Match>,
        into: Local,
        context: u64,
    ) -> Result<Started, Fault> {
        self.start_receive(from, which.into(), into, context)
    }

    /// Receives untagged messages one behind the other into one buffer, until less than `left_min` bytes are left (but 1 at
    /// least); one that is longer than what is left is cut off. Each has a completion of [`End::Part`], and after the last
    /// one the buffer has one of [`End::Released`]. All of them come to the queue.
    pub fn receive_many(
        &mut self,
        from: Source,
        into: Span,
        left_min: u64,
        context: u64,
    ) -> Result<OpId, Fault> {
        self.start_many(from, into, left_min, context)
    }

    /// Receives one message whose header has a form: header and payload each go to their place, with no copy in
    /// between. Rules go before receives, in the order in which they were made.
    pub fn place(&mut self, rule: &Rule<'_>, context: u64) -> Result<Started, Fault> {
        self.start_place(rule, context)
    }

    /// The message that a receive would get now.
    pub fn probe(&mut self, from: Source, which: impl Into<Match>) -> Option<Probe> {
        let (traits, tag) = which.into().parts();
        let early = &self.core.queues[traits.queue()].early;
        Some(Probe::of(early.look(early.find(from, tag, |_| true)?)))
    }

    /// Claims the message that a receive would get now: from here on only the claim receives it, and it holds up no other.
    pub fn claim(&mut self, from: Source, which: impl Into<Match>) -> Option<(Claim, Probe)> {
        self.claim_early(from, which.into())
    }

    /// Receives a message that was claimed, and ends the claim. One that is refused leaves it claimed.
    pub fn receive_claimed(
        &mut self,
        claim: Claim,
        into: Local,
        context: u64,
    ) -> Result<Started, Fault> {
        self.start_claimed(claim, into, context)
    }

    /// Drops a message that was claimed, unread. Its sender does not learn of it.
    pub fn discard(&mut self, claim: Claim) -> Result<(), Fault> {
        self.discard_claimed(claim)
    }

    /// Cancels what has not begun: a receive without a message, anything else that no packet has left for. True: its
    /// completion says [`Fault::Cancelled`]. False: it goes on, or has ended.
    pub fn cancel(&mut self, operation: OpId) -> bool {
        let core = &mut self.core;
        let Some(index) = core.ops.of_id(operation) else { return false };
        match core.ops[index].state {
            State::Posted if core.ops[index].traits.has(Traits::MANY) => {
                core.ops[index].fault = Some(Fault::Cancelled);
                core.close_many(index);
                return true;
            }
            State::Posted => {
                let queue = core.ops[index].traits.queue();
                core.queues[queue].posted.remove(&mut core.ops, index);
            }
            // The put that it tells of has taken place.
            State::Waiting if core.ops[index].what == What::Tell => return false,
            State::Waiting => {
                let peer = core.ops[index].peer;
                core.peers[peer.0 as usize].backlog.retain(|waiting| *waiting != index);
            }
            State::Announced | State::Moving | State::Delivering | State::Closing | State::Away => {
                return false;
            }
        }
        core.fail(index, Fault::Cancelled);
        true
    }

    /// Lets peers that have the key access memory.
    pub fn register(&mut self, span: Span, rights: Rights) -> Result<Key, Fault> {
        let registration = self.core.table.add(span, rights).ok_or(Fault::Busy)?;
        Ok(self.publish(registration))
    }

    /// The same under a key of the caller's choice, which is refused with [`Fault::KeyTaken`] where a registration has it.
    /// Such a key may be guessed. It may be used again after it was revoked: then it means the new memory.
    pub fn register_as(&mut self, key: Key, span: Span, rights: Rights) -> Result<(), Fault> {
        self.check_key(key)?;
        let registration = self.core.table.add_as(key.0, span, rights)?;
        self.publish(registration);
        Ok(())
    }

    /// Whether [`Engine::register_as`] would take this key now.
    pub fn check_key(&mut self, key: Key) -> Result<(), Fault> {
        if let Some(at) = self.in_use.iter().position(|other| *other == key) {
            if !self.transport.settle(key.0, Duration::ZERO) {
                return Err(Fault::KeyTaken);
            }
            self.in_use.swap_remove(at);
        }
        self.core.table.check(key.0)
    }

    fn publish(&mut self, registration: Registration) -> Key {
        let Registration { key, span, rights } = registration;
        // Who reaches the memory without us leaves nothing to report.
        let is_seen = !Rights(rights).permit(Rights::REPORTED);
        if is_seen && let Some(slot) = self.core.table.publish(key) {
            self.transport.publish(slot, Some(Published { key, span, rights }));
        }
        Key(key)
    }

    /// Takes a registration back. When this returns nobody accesses the memory by this key any more; operations under
    /// way that need it end with [`Fault::Revoked`].
    ///
    /// A peer that has been stopped in the middle of an access is not waited for without end: the key is taken back in any
    /// case, and [`Fault::InUse`] says that the memory may still change. Then this may be called again.
    pub fn revoke(&mut self, key: Key) -> Result<(), Fault> {
        self.revoke_within(key, ACCESS)
    }

    /// The same, with a wait of so long at most.
    pub fn revoke_within(&mut self, key: Key, patience: Duration) -> Result<(), Fault> {
        let again = self.in_use.iter().position(|other| *other == key);
        if again.is_none() {
            let Some(slot) = self.core.table.remove(key)? else { return Ok(()) };
            self.transport.publish(slot, None);
        }
        match (self.transport.settle(key.0, patience), again) {
            (true, Some(at)) => drop(self.in_use.swap_remove(at)),
            (true, None) => {}
            (false, Some(_)) => return Err(Fault::InUse),
            (false, None) => {
                self.in_use.push(key);
                return Err(Fault::InUse);
            }
        }
        Ok(())
    }

    /// Lets operations go on. Says how many things happened; 0 is a reason to wait.
    #[inline]
    pub fn poll(&mut self) -> usize {
        let mut happened = self.transport.poll(POLL_BUDGET, &mut self.core);
        if !self.core.matched.is_empty() {
            happened += self.fetch_matched();
        }
        if !self.core.queue.is_empty() {
            happened += self.pump_all();
        }
        happened
    }

    /// Looks for a message that has come, where that takes least: who waits for one looks as often as it can. A short one that
    /// a receive has taken whole is given to `with`, and has no completion: then this says [`Glance::Taken`].
    #[inline(always)]
    pub fn glance(&mut self, mut with: impl FnMut(Short)) -> Glance {
        if !self.is_quiet() {
            return Glance::Unknown;
        }
        let (core, mut is_short) = (&mut self.core, false);
        let glance = self.transport.glance(|peer, head, payload| {
            match core.receive_short(peer, head, payload) {
                Some(short) => {
                    is_short = true;
                    with(short);
                }
                None => core.packet_other(peer, head, payload),
            }
        });
        if glance == Glance::Taken && !is_short { Glance::Unknown } else { glance }
    }

    /// Whether there is nothing to be told, and nothing to be tried again.
    #[inline(always)]
    fn is_quiet(&self) -> bool {
        let core = &self.core;
        core.completions.is_empty()
            && core.let_go.is_empty()
            && core.matched.is_empty()
            && core.queue.is_empty()
    }

    /// The end of an operation, if one has ended. They come in the order of their ends. What peers told of their puts comes
    /// here too, and takes room in their windows until it is taken.
    #[inline]
    pub fn completion(&mut self) -> Option<Completion> {
        let completion = self.completion_kept()?;
        self.taken(&completion);
        Some(completion)
    }

    /// The same for a caller that may have no room for it now: what a peer told of its puts goes on to take room in its window
    /// until [`Engine::taken`].
    #[inline]
    pub fn completion_kept(&mut self) -> Option<Completion> {
        if !self.core.let_go.is_empty() {
            self.end_let_go();
        }
        self.core.completions.pop_front()
    }

    /// What [`Engine::completion_kept`] would give, which goes on to be the next one.
    #[inline]
    pub fn completion_ahead(&mut self) -> Option<&Completion> {
        if !self.core.let_go.is_empty() {
            self.end_let_go();
        }
        self.core.completions.front()
    }

    /// There was room for a completion that was kept. Once for each.
    #[inline]
    pub fn taken(&mut self, completion: &Completion) {
        if completion.end == End::Written {
            self.core.discharge(completion.peer, ENVELOPE_BYTES);
        }
    }

    /// What ended with a peer that was let go may be the caller's again only when the transport neither writes nor reads it.
    #[cold]
    fn end_let_go(&mut self) {
        for peer in std::mem::take(&mut self.core.let_go) {
            self.transport.end(peer);
        }
    }

    /// Whether it is only peers that this waits for: nothing of ours is left to be tried again.
    pub fn is_idle(&self) -> bool {
        self.core.completions.is_empty()
            && self.core.queue.iter().all(|peer| !self.core.peers[peer.0 as usize].is_full)
    }

    /// What was counted so far.
    pub fn stats(&self) -> Stats {
        let Core { stats, table, .. } = &self.core;
        Stats { near_hits: table.hits, near_misses: table.misses, ..*stats }
    }
}

/// Packets that are looked at before operations go on.
const POLL_BUDGET: usize = 64;
