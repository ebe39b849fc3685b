//! How packets arrive.

use super::{Carriers, Knows, Packet, Payload, SimTransport, part, part_mut};
use covey_wire::Peer;
use covey_wire::transport::{Glance, Sink};

impl SimTransport {
    pub(super) fn deliver(&mut self, other: usize, packet: Packet, sink: &mut impl Sink) {
        let peer = Carriers::peer(self.me, other);
        let (span, token) = match packet.payload {
            Payload::Copied(bytes) => return sink.packet(peer, &packet.head, &bytes),
            Payload::Posted { span, token } => (span, token),
        };
        let bytes = part(&self.memories[other].borrow(), other, span).map(<[u8]>::to_vec);
        let bytes = bytes.expect("what was posted is memory");
        self.net.borrow_mut().ends[other].sent.push(token);
        match sink.place(peer, &packet.head, bytes.len()) {
            None => sink.packet(peer, &packet.head, &bytes),
            Some(span) => {
                let mut memory = self.memories[self.me].borrow_mut();
                let place = part_mut(&mut memory, self.me, span);
                place.expect("a place is memory").copy_from_slice(&bytes);
                drop(memory);
                sink.placed(peer, &packet.head, bytes.len());
            }
        }
    }

    /// A packet that was copied, where there is one that a poll could take now, and luck.
    pub(super) fn glance_at(&mut self, mut with: impl FnMut(Peer, &[u8], &[u8])) -> Glance {
        match self.copied() {
            Ok((other, head, bytes)) => {
                with(Carriers::peer(self.me, other), &head, &bytes);
                Glance::Taken
            }
            Err(glance) => glance,
        }
    }

    fn copied(&mut self) -> Result<(usize, Vec<u8>, Vec<u8>), Glance> {
        let net = &mut *self.net.borrow_mut();
        let is_plain = !self.gathers && net.ends[self.me].sent.is_empty();
        if !is_plain || !net.has_buffer(self.me) || net.rng.chance(300) {
            return Err(Glance::Unknown);
        }
        let (now, first) = (net.now, net.rng.index(net.ends.len()));
        let end = &mut net.ends[self.me];
        let (count, mut glance) = (end.inbox.len(), Glance::Nothing);
        for other in (first..first + count).map(|at| at % count) {
            let is_known = end.knows[other] == Knows::Alive;
            match end.inbox[other].pop_front() {
                None => {}
                Some(Packet { due, head, payload: Payload::Copied(bytes) })
                    if due <= now && is_known =>
                {
                    net.take_buffer(self.me);
                    return Ok((other, head, bytes));
                }
                Some(packet) => {
                    end.inbox[other].push_front(packet);
                    glance = Glance::Unknown;
                }
            }
        }
        Err(glance)
    }
}
