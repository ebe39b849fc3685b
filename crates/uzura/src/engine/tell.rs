//! Layouts are described to peers that need them, in slots that both sides number alike.

use super::Engine;
use super::pump::Step;
use crate::Fault;
use crate::api::Local;
use crate::forms::{Committed, ENTRIES_MAX};
use crate::packet::{Head, PLAIN};
use crate::peers::Telling;
use Step::{Finished, Waits};
use covey_wire::{Memory, Peer, Transport};
use std::rc::Rc;

impl<T: Transport, M: Memory> Engine<T, M> {
    /// Tells a peer of the other byte order which elements a message has: the slot of their layout.
    pub(super) fn types_of(
        &mut self,
        peer: Peer,
        local: &Local,
    ) -> Result<Result<u16, Step>, Fault> {
        if !self.core.is_foreign(peer) {
            return Ok(Ok(PLAIN));
        }
        let typed = self.core.typed(local)?;
        Ok(self.slots_of(peer, None, typed.as_ref())?.map(|(_, types)| types))
    }

    /// The slots of a request's layout and of that of its elements, which the peer must have.
    pub(super) fn slots_of(
        &mut self,
        peer: Peer,
        form: Option<&Rc<Committed>>,
        types: Option<&Rc<Committed>>,
    ) -> Result<Result<(u16, u16), Step>, Fault> {
        let both = [form, types];
        if form.zip(types).is_some_and(|(form, types)| !may_be_told_together(form, types)) {
            return Err(Fault::TooLong);
        }
        // The second may have taken the first one's place, which then takes another one.
        for _ in 0..=both.len() {
            let told = &self.core.peers[peer.0 as usize].told;
            let slot =
                |form: Option<&Rc<Committed>>| form.map_or(Some(PLAIN), |form| told.slot(form.id));
            if let Some(slots) = slot(form).zip(slot(types)) {
                return Ok(Ok(slots));
            }
            for one in both.into_iter().flatten() {
                match self.tell(peer, one) {
                    Ok(told) => told.map(drop).ok_or(Fault::TooLong)?,
                    Err(step) => return Ok(Err(step)),
                }
            }
        }
        Ok(Err(Waits))
    }

    /// Sees to it that the peer has a layout: its slot, or none when it is too large to be sent. As an error what the
    /// description waits for.
    pub(super) fn tell(&mut self, peer: Peer, form: &Rc<Committed>) -> Result<Option<u16>, Step> {
        if let Some(slot) = self.core.peers[peer.0 as usize].told.slot(form.id) {
            return Ok(Some(slot));
        }
        let Some(encoded) = form.encoded() else { return Ok(None) };
        let state = &mut self.core.peers[peer.0 as usize];
        if state.telling.as_ref().is_none_or(|telling| telling.id != form.id) {
            // One that was broken off is begun anew when it is needed.
            let Some((slot, clear)) = state.told.choose(form.layout.entries()) else {
                return Ok(None);
            };
            state.telling = Some(Telling { id: form.id, slot, clear, at: 0 });
        }
        loop {
            let state = &mut self.core.peers[peer.0 as usize];
            let Some(Telling { slot, at, clear, .. }) = &state.telling else { return Err(Waits) };
            let (slot, at) = (*slot, *at);
            if let Some(&other) = clear.last() {
                let head = Head::Define { slot: other, at: 0, total: 0 };
                let then = |state: &mut crate::peers::PeerState| {
                    if let Some(telling) = &mut state.telling {
                        telling.clear.pop();
                    }
                };
                match self.plain(peer, head, &[], then) {
                    Finished => continue,
                    step => return Err(step),
                }
            }
            let chunk = self.transport.packet_bytes_max(peer).min(encoded.len() - at);
            let head = Head::Define { slot, at: at as u32, total: encoded.len() as u32 };
            let then = |state: &mut crate::peers::PeerState| {
                if let Some(telling) = &mut state.telling {
                    telling.at += chunk;
                }
            };
            match self.plain(peer, head, &encoded[at..at + chunk], then) {
                Finished => {}
                step => return Err(step),
            }
            if at + chunk == encoded.len() {
                let state = &mut self.core.peers[peer.0 as usize];
                state.telling = None;
                state.told.set(slot, form.id, form.layout.entries());
                return Ok(Some(slot));
            }
        }
    }
}

/// Whether a peer keeps both at the same time.
fn may_be_told_together(form: &Rc<Committed>, types: &Rc<Committed>) -> bool {
    let both = form.layout.entries().saturating_add(types.layout.entries());
    form.id == types.id || both <= ENTRIES_MAX
}
