//! Layouts made ready, and which of them a peer knows by a slot's number.

use crate::packet::PLAIN;
use crate::{Fault, Form};
use covey_layout::{Layout, Plan, Signature, Target};
use std::cell::OnceCell;
use std::rc::Rc;

/// A layout in every form that operations need.
#[derive(Debug)]
pub(crate) struct Committed {
    /// Of this engine's layouts this one and no other.
    pub id: u64,
    pub layout: Layout,
    pub plan: Plan,
    target: OnceCell<Option<Target>>,
    signature: OnceCell<Option<Signature>>,
    encoded: OnceCell<Option<Vec<u8>>>,
}

impl Committed {
    pub fn new(id: u64, layout: Layout) -> Result<Committed, covey_layout::Error> {
        let plan = Plan::new(&layout, 1)?;
        let (target, signature, encoded) = Default::default();
        Ok(Committed { id, layout, plan, target, signature, encoded })
    }

    /// To write to it; `None` when it names bytes twice.
    pub fn target(&self) -> Option<&Target> {
        self.target.get_or_init(|| Target::try_from(self.plan.clone()).ok()).as_ref()
    }

    /// The elements of its packed bytes.
    pub fn signature(&self) -> Option<&Signature> {
        self.signature.get_or_init(|| Signature::new(&self.layout, 1).ok()).as_ref()
    }

    /// The bytes that describe it; `None` when it is too long.
    pub fn encoded(&self) -> Option<&[u8]> {
        self.encoded.get_or_init(|| self.layout.encode().ok()).as_deref()
    }
}

/// The layouts that a user made ready.
#[derive(Debug, Default)]
pub(crate) struct Forms {
    slots: Vec<Option<Rc<Committed>>>,
    free: Vec<u32>,
    made: u64,
}

impl Forms {
    pub fn commit(&mut self, layout: &Layout, count: u64) -> Result<u32, covey_layout::Error> {
        let layout = if count == 1 { layout.clone() } else { Layout::contiguous(count, layout)? };
        self.made += 1;
        let form = Some(Rc::new(Committed::new(self.made, layout)?));
        Ok(match self.free.pop() {
            Some(index) => {
                self.slots[index as usize] = form;
                index
            }
            None => {
                self.slots.push(form);
                self.slots.len() as u32 - 1
            }
        })
    }

    pub fn free(&mut self, index: u32) -> bool {
        let taken = self.slots.get_mut(index as usize).and_then(Option::take).is_some();
        if taken {
            self.free.push(index);
        }
        taken
    }

    /// The layout of a number that `Engine::commit` gave out.
    #[inline]
    pub fn find(&self, form: Form) -> Result<&Rc<Committed>, Fault> {
        self.slots.get(form.0 as usize).and_then(Option::as_ref).ok_or(Fault::NoSuch)
    }
}

/// Which slot of a peer has which layout of ours. Both sides bound what the slots hold together.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Ids and listed pieces, by slot.
    slots: Vec<(u64, u64)>,
    next: usize,
}

impl Told {
    /// The slot of a layout that the peer has.
    #[inline]
    pub fn slot(&self, id: u64) -> Option<u16> {
        self.slots.iter().position(|(there, _)| *there == id).map(|slot| slot as u16)
    }

    /// The slot to describe a new layout in, and slots to be emptied before. `None` when it can never fit.
    pub fn choose(&mut self, entries: u64) -> Option<(u16, Vec<u16>)> {
        if entries > ENTRIES_MAX {
            return None;
        }
        let slot = if self.slots.len() < SLOTS {
            self.slots.push((0, 0));
            self.slots.len() - 1
        } else {
            self.next = (self.next + 1) % SLOTS;
            self.next
        };
        self.slots[slot] = (0, 0);
        let held: u64 = self.slots.iter().map(|(_, entries)| entries).sum();
        let mut clear = Vec::new();
        if held + entries > ENTRIES_MAX {
            for (slot, held) in self.slots.iter_mut().enumerate().filter(|(_, held)| held.1 > 0) {
                *held = (0, 0);
                clear.push(slot as u16);
            }
        }
        Some((slot as u16, clear))
    }

    /// The peer was told of it.
    pub fn set(&mut self, slot: u16, id: u64, entries: u64) {
        self.slots[usize::from(slot)] = (id, entries);
    }
}

/// The layouts that a peer described to us.
#[derive(Debug, Default)]
pub(crate) struct Known {
    slots: Vec<Option<Rc<Committed>>>,
    part: Vec<u8>,
}

impl Known {
    /// A part of a description. False when the peer breaks the rules. What cannot be decoded leaves the slot
    /// empty, which fails what uses it.
    pub fn define(&mut self, slot: u16, at: u32, total: u32, bytes: &[u8]) -> bool {
        let (slot, total) = (usize::from(slot), total as usize);
        // A description that was broken off is begun anew.
        if at == 0 {
            self.part.clear();
        }
        if slot >= SLOTS || at as usize != self.part.len() || total > covey_layout::WIRE_BYTES_MAX {
            return false;
        }
        self.part.extend_from_slice(bytes);
        if self.part.len() < total {
            return !bytes.is_empty();
        }
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, None);
        }
        let encoded = std::mem::take(&mut self.part);
        self.slots[slot] = None;
        let layout = Layout::decode(encoded.into()).ok();
        let held = self.slots.iter().flatten().map(|form| form.layout.entries()).sum::<u64>();
        let layout = layout.filter(|layout| held + layout.entries() <= ENTRIES_MAX);
        self.slots[slot] = layout.and_then(|layout| Committed::new(0, layout).ok()).map(Rc::new);
        true
    }

    /// The layout of a slot; `Ok(None)` for contiguous bytes, an error for what is not there.
    pub fn find(&self, slot: u16) -> Result<Option<Rc<Committed>>, Fault> {
        if slot == PLAIN {
            return Ok(None);
        }
        let form = self.slots.get(usize::from(slot)).and_then(Option::as_ref);
        form.cloned().map(Some).ok_or(Fault::Layout)
    }
}

/// Layouts that a side keeps of each peer.
pub(crate) const SLOTS: usize = 64;
/// Listed pieces of them all, at most.
pub(crate) const ENTRIES_MAX: u64 = covey_layout::ENTRIES_MAX;
