//! Persistent reservations (SPC-5, 5.14): who is registered, who holds the unit, and who must be told of a change.
//!
//! Arithmetic only: the commands are in [`super::persistent`], the nexuses that there are now in [`super::unit`]. A
//! registration belongs to a port, not to a session, and outlives it.

use super::sense::{Sense, code};
use super::{Nexus, call::End};
use std::sync::Arc;

/// An initiator port seen through a portal group: what a registration belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Port {
    pub(super) initiator: Arc<str>,
    pub(super) isid: [u8; 6],
    pub(super) portal_group: u16,
}

/// The types of a reservation, by the numbers of the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    WriteExclusive = 1,
    ExclusiveAccess = 3,
    WriteExclusiveRegistrantsOnly = 5,
    ExclusiveAccessRegistrantsOnly = 6,
    WriteExclusiveAllRegistrants = 7,
    ExclusiveAccessAllRegistrants = 8,
}

/// What a command does to those who share the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Nothing: it is never refused.
    Harmless,
    /// It sees what is on the medium.
    Reads,
    /// It changes what is on the medium or how the unit behaves.
    Writes,
}

/// Somebody's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Registration {
    pub(super) port: Port,
    pub(super) key: u64,
}

/// What a service action of PERSISTENT RESERVE OUT changed for others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    /// Unit attentions: for whom, and with which code.
    pub(super) attentions: Vec<(Port, u16)>,
    /// Who lost its registration.
    pub(super) removed: Vec<Port>,
}

/// The registrations of a unit and its reservation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reservations {
    pub(super) generation: u32,
    pub(super) registrations: Vec<Registration>,
    /// Who holds the unit (of all registrants: whoever reserved it), and how.
    pub(super) holder: Option<(Port, Kind)>,
    /// Whether they survive the end of the process.
    pub(super) persist: bool,
}

impl Port {
    pub(super) fn of(nexus: &Nexus) -> Port {
        let (initiator, isid) = (nexus.initiator.clone(), nexus.isid);
        Port { initiator, isid, portal_group: nexus.portal_group }
    }
}

impl Kind {
    pub(super) fn of(number: u8) -> Option<Kind> {
        let all = [
            Kind::WriteExclusive,
            Kind::ExclusiveAccess,
            Kind::WriteExclusiveRegistrantsOnly,
            Kind::ExclusiveAccessRegistrantsOnly,
            Kind::WriteExclusiveAllRegistrants,
            Kind::ExclusiveAccessAllRegistrants,
        ];
        all.into_iter().find(|kind| *kind as u8 == number)
    }

    pub(super) fn is_all_registrants(self) -> bool {
        matches!(self, Kind::WriteExclusiveAllRegistrants | Kind::ExclusiveAccessAllRegistrants)
    }

    fn is_of_one(self) -> bool {
        matches!(self, Kind::WriteExclusive | Kind::ExclusiveAccess)
    }

    fn lets_others_read(self) -> bool {
        matches!(
            self,
            Kind::WriteExclusive
                | Kind::WriteExclusiveRegistrantsOnly
                | Kind::WriteExclusiveAllRegistrants
        )
    }
}

impl Reservations {
    pub(super) fn key_of(&self, port: &Port) -> Option<u64> {
        self.registrations.iter().find(|one| one.port == *port).map(|one| one.key)
    }

    /// Whether a command of this effect may run for this port.
    pub(super) fn allows(&self, port: &Port, effect: Effect) -> bool {
        let Some((holder, kind)) = &self.holder else { return true };
        if holder == port || (!kind.is_of_one() && self.key_of(port).is_some()) {
            return true;
        }
        match effect {
            Effect::Harmless => true,
            Effect::Reads => kind.lets_others_read(),
            Effect::Writes => false,
        }
    }

    /// Whether this port holds the unit.
    pub(super) fn is_holder(&self, port: &Port) -> bool {
        self.holder.as_ref().is_some_and(|(holder, kind)| {
            if kind.is_all_registrants() { self.key_of(port).is_some() } else { holder == port }
        })
    }

    /// REGISTER, with the key that the port believes it has; without, REGISTER AND IGNORE EXISTING KEY.
    pub(super) fn register(
        &mut self,
        port: &Port,
        current: Option<u64>,
        new: u64,
        persist: bool,
    ) -> Result<Change, End> {
        let has = self.key_of(port);
        if current.is_some_and(|current| current != has.unwrap_or(0)) {
            return Err(End::Conflict);
        }
        let mut change = Change::default();
        match (has, new) {
            (None, 0) => {}
            (Some(_), 0) => change = self.unregister(port),
            (Some(_), key) => {
                self.registrations.iter_mut().filter(|one| one.port == *port).for_each(|one| {
                    one.key = key;
                });
            }
            (None, _) if !self.has_room(port) => {
                let code = code::INSUFFICIENT_REGISTRATION_RESOURCES;
                return Err(Sense::new(super::sense::Key::IllegalRequest, code).into());
            }
            (None, key) => self.registrations.push(Registration { port: port.clone(), key }),
        }
        self.persist = persist;
        self.generation = self.generation.wrapping_add(1);
        Ok(change)
    }

    /// Whether one more can be registered, and all of them be saved.
    fn has_room(&self, port: &Port) -> bool {
        let line = |port: &Port| LINE_BYTES_MAX + port.initiator.len();
        let bytes: usize = self.registrations.iter().map(|one| line(&one.port)).sum();
        self.registrations.len() < REGISTRATIONS_MAX && bytes + line(port) <= SAVED_BYTES_MAX
    }

    fn unregister(&mut self, port: &Port) -> Change {
        self.registrations.retain(|one| one.port != *port);
        let Some((holder, kind)) = self.holder.clone() else { return Change::default() };
        if kind.is_all_registrants() {
            // The reservation stays until the last of those who hold it is gone.
            self.holder = self.registrations.first().map(|one| (one.port.clone(), kind));
            return Change::default();
        }
        if holder != *port {
            return Change::default();
        }
        self.holder = None;
        if kind.is_of_one() {
            Change::default()
        } else {
            self.tell_others(port, code::RESERVATIONS_RELEASED)
        }
    }

    /// RESERVE.
    pub(super) fn reserve(&mut self, port: &Port, key: u64, kind: Kind) -> Result<(), End> {
        self.check_key(port, key)?;
        match &self.holder {
            None => self.holder = Some((port.clone(), kind)),
            Some((_, has)) if self.is_holder(port) && *has == kind => {}
            Some(_) => return Err(End::Conflict),
        }
        Ok(())
    }

    /// RELEASE.
    pub(super) fn release(&mut self, port: &Port, key: u64, kind: Kind) -> Result<Change, End> {
        self.check_key(port, key)?;
        let Some((_, has)) = self.holder.clone().filter(|_| self.is_holder(port)) else {
            return Ok(Change::default());
        };
        if has != kind {
            let code = code::INVALID_RELEASE_OF_PERSISTENT_RESERVATION;
            return Err(Sense::new(super::sense::Key::IllegalRequest, code).into());
        }
        self.holder = None;
        Ok(if kind.is_of_one() {
            Change::default()
        } else {
            self.tell_others(port, code::RESERVATIONS_RELEASED)
        })
    }

    /// CLEAR.
    pub(super) fn clear(&mut self, port: &Port, key: u64) -> Result<Change, End> {
        self.check_key(port, key)?;
        let change = self.tell_others(port, code::RESERVATIONS_PREEMPTED);
        self.registrations.clear();
        self.holder = None;
        self.generation = self.generation.wrapping_add(1);
        Ok(change)
    }

    /// All are void, whatever key anybody has.
    pub(super) fn forget(&mut self) -> Change {
        let all = self.registrations.drain(..);
        let attentions = all.map(|one| (one.port, code::RESERVATIONS_PREEMPTED)).collect();
        *self = Reservations { generation: self.generation.wrapping_add(1), ..Self::default() };
        Change { attentions, removed: Vec::new() }
    }

    /// PREEMPT: takes the registrations with key `victim` away, and the reservation with them.
    pub(super) fn preempt(
        &mut self,
        port: &Port,
        key: u64,
        victim: u64,
        kind: Kind,
    ) -> Result<Change, End> {
        self.check_key(port, key)?;
        let holds = match &self.holder {
            // SPC-5, 5.14.11.4.2: zero preempts all registrants at once.
            Some((_, has)) if has.is_all_registrants() => victim == 0,
            Some((holder, _)) => self.key_of(holder) == Some(victim),
            None => false,
        };
        if victim == 0 && !holds {
            return Err(Sense::parameter(8).into());
        }
        let is_victim =
            |one: &Registration| (victim == 0 || one.key == victim) && one.port != *port;
        let removed: Vec<Port> = {
            let removed = self.registrations.iter().filter(|one| is_victim(one));
            removed.map(|one| one.port.clone()).collect()
        };
        if removed.is_empty() && !holds && key != victim {
            return Err(End::Conflict);
        }
        let mut change = Change::default();
        self.registrations.retain(|one| !is_victim(one));
        change
            .attentions
            .extend(removed.iter().map(|port| (port.clone(), code::REGISTRATIONS_PREEMPTED)));
        if holds {
            let before = self.holder.replace((port.clone(), kind));
            if before.is_some_and(|(_, before)| before != kind) {
                let released = self.tell_others(port, code::RESERVATIONS_RELEASED);
                change.attentions.extend(released.attentions);
            }
        } else if let Some((holder, has)) = self.holder.clone() {
            // Of all registrants another one stands for them when the one that did is gone.
            if has.is_all_registrants() && self.key_of(&holder).is_none() {
                self.holder = self.registrations.first().map(|one| (one.port.clone(), has));
            }
        }
        change.removed = removed;
        self.generation = self.generation.wrapping_add(1);
        Ok(change)
    }

    fn check_key(&self, port: &Port, key: u64) -> Result<(), End> {
        if self.key_of(port) == Some(key) { Ok(()) } else { Err(End::Conflict) }
    }

    fn tell_others(&self, port: &Port, code: u16) -> Change {
        let others = self.registrations.iter().filter(|one| one.port != *port);
        let attentions = others.map(|one| (one.port.clone(), code)).collect();
        Change { attentions, removed: Vec::new() }
    }

    /// As a text that [`Reservations::restore`] reads; empty where they are not to survive.
    pub(super) fn save(&self) -> String {
        if !self.persist || self.registrations.is_empty() {
            return String::new();
        }
        let mut text = format!("{HEADING}\n");
        for Registration { port: Port { initiator, isid, portal_group }, key } in
            &self.registrations
        {
            let isid = isid.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
            text += &format!("key {key:016x} {isid:012x} {portal_group} {initiator}\n");
        }
        if let Some((holder, kind)) = &self.holder {
            let index = self.registrations.iter().position(|one| one.port == *holder);
            text += &format!("holder {} {}\n", index.unwrap_or(0), *kind as u8);
        }
        text
    }

    /// What was saved; `None` where the text is no such text.
    pub(super) fn restore(text: &str) -> Option<Reservations> {
        let mut all = Reservations::default();
        if text.is_empty() {
            return Some(all);
        }
        all.persist = true;
        let mut lines = text.lines();
        lines.next().filter(|heading| *heading == HEADING)?;
        for line in lines {
            match line.split_once(' ')? {
                ("key", rest) => all.registrations.push(registration(rest)?),
                ("holder", rest) => {
                    let (index, kind) = rest.split_once(' ')?;
                    let holder = all.registrations.get(index.parse::<usize>().ok()?)?;
                    all.holder = Some((holder.port.clone(), Kind::of(kind.parse().ok()?)?));
                }
                _ => return None,
            }
        }
        Some(all)
    }
}

fn registration(words: &str) -> Option<Registration> {
    let mut words = words.splitn(4, ' ');
    let key = u64::from_str_radix(words.next()?, 16).ok()?;
    let number = u64::from_str_radix(words.next()?, 16).ok()?;
    let portal_group = words.next()?.parse().ok()?;
    let initiator = words.next()?.into();
    let isid = std::array::from_fn(|index| (number >> (8 * (5 - index))) as u8);
    Some(Registration { port: Port { initiator, isid, portal_group }, key })
}

/// The first line of what is saved.
const HEADING: &str = "covey reservations 1";
/// A line of what is saved, without the initiator's name.
const LINE_BYTES_MAX: usize = 48;
/// Room for what is saved: less than an extended attribute, with the first line and the last ones.
const SAVED_BYTES_MAX: usize = 60_000;
/// How many ports may be registered with one unit.
const REGISTRATIONS_MAX: usize = 256;

#[cfg(test)]
#[path = "reservations_tests.rs"]
mod tests;
