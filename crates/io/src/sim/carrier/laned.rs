//! Processes that have a wire beside their packets, which loses frames.

use super::{Carriers, SimMemory, SimTransport};
use crate::lane::{Choice, Here, Laned, PLACE_BYTES, Stream};
use crate::sim::wire::SimWire;
use covey_wire::Peer;

impl Carriers {
    /// The same with a wire that loses frames beside it.
    pub fn laned_end(
        &self,
        index: usize,
        choice: Choice,
    ) -> (Laned<SimTransport, SimWire>, SimMemory) {
        let (transport, memory) = self.end(index);
        let cut = {
            let rng = &mut self.net.borrow_mut().rng;
            rng.chance(200).then(|| rng.below(5000))
        };
        let mut laned = Laned::new(transport, SimWire::new(self.net.clone(), index, cut), choice);
        let (count, most) = (self.memories.len(), self.net.borrow().profile.packet_bytes_max);
        for peer in 0..count as u32 - 1 {
            let rng = &mut self.net.borrow_mut().rng;
            let frame_bytes_max = (256 + rng.index(most - 255)) as u16;
            let (number, key, window) = (index as u32, rng.next(), 1 + rng.index(64) as u16);
            let here = Here { place: [0; PLACE_BYTES], number, key, frame_bytes_max, window };
            laned.offer(Peer(peer), here);
        }
        (laned, memory)
    }

    /// How many frames were sent.
    pub fn frames_sent(&self) -> u64 {
        self.net.borrow().frames_sent
    }
}

impl SimTransport {
    /// Whether little is expected from a peer.
    pub fn is_resting(&self, peer: Peer) -> bool {
        self.resting.contains(&peer)
    }
}

impl Stream for SimTransport {
    fn expel(&mut self, peer: Peer) {
        panic!("{peer:?} broke the rules");
    }

    fn rest(&mut self, peer: Peer) {
        self.resting.insert(peer);
    }

    fn rouse(&mut self, peer: Peer) {
        self.resting.remove(&peer);
    }
}
