//! A simulated wire that loses, doubles and reorders frames, and may be cut.

use super::carrier::{Carriers, Net, Packet, Payload};
use crate::lane::{PLACE_BYTES, Sent, Wire};
use covey_wire::Peer;
use std::cell::RefCell;
use std::rc::Rc;

/// The wire of one process.
#[derive(Debug)]
pub struct SimWire {
    net: Rc<RefCell<Net>>,
    me: usize,
    /// From when on nothing that it sends arrives.
    cut: Option<u64>,
    /// It has no room for frames.
    is_full: bool,
    forgotten: Vec<Peer>,
}

impl SimWire {
    pub(super) fn new(net: Rc<RefCell<Net>>, me: usize, cut: Option<u64>) -> SimWire {
        SimWire { net, me, cut, is_full: false, forgotten: Vec::new() }
    }

    /// Whether it has no room for frames from now on.
    pub fn fill(&mut self, is_full: bool) {
        self.is_full = is_full;
    }

    /// Peers for which nothing is kept any more.
    pub fn forgotten(&self) -> &[Peer] {
        &self.forgotten
    }

    /// From now on nothing that it sends arrives.
    pub fn cut(&mut self) {
        self.cut = Some(0);
    }

    /// From now on some of it does again.
    pub fn mend(&mut self) {
        self.cut = None;
    }
}

impl Wire for SimWire {
    fn connect(&mut self, peer: Peer, _: &[u8; PLACE_BYTES]) -> bool {
        Carriers::index(self.me, peer) < self.net.borrow().ends.len()
    }

    fn send(&mut self, peer: Peer, frame: &[u8]) -> Sent {
        let net = &mut *self.net.borrow_mut();
        let other = Carriers::index(self.me, peer);
        if self.is_full {
            return Sent::Busy;
        }
        if net.rng.chance(net.profile.refused_permille / 8) {
            return if net.rng.chance(500) { Sent::Busy } else { Sent::No };
        }
        net.frames_sent += 1;
        let lost = net.profile.lost_permille;
        let copies = usize::from(!net.rng.chance(lost)) + usize::from(net.rng.chance(lost));
        let is_cut = self.cut.is_some_and(|cut| net.now >= cut);
        for _ in 0..if is_cut { 0 } else { copies } {
            let due = net.now + net.rng.below(net.profile.delay_max + 1);
            let payload = Payload::Copied(Vec::new());
            net.ends[other].frames.push(Packet { due, head: frame.to_vec(), payload });
        }
        Sent::Yes
    }

    fn forget(&mut self, peer: Peer) {
        self.forgotten.push(peer);
    }

    fn next(&mut self, mut take: impl FnMut(&[u8])) -> bool {
        let frame = {
            let net = &mut *self.net.borrow_mut();
            let (now, frames) = (net.now, &mut net.ends[self.me].frames);
            let Some(at) = frames.iter().position(|frame| frame.due <= now) else { return false };
            frames.remove(at).head
        };
        take(&frame);
        true
    }

    fn now_ns(&self) -> u64 {
        self.net.borrow().now * STEP_NS
    }
}

/// A process is looked at every few steps.
const STEP_NS: u64 = 50_000;
