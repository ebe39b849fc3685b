//! What a run's engines send over: packets that arrive, and beside them frames that may not.

use covey_io::lane::{Choice, Laned};
use covey_io::sim::{Carriers, SimMemory, SimTransport, SimWire};
use covey_wire::transport::{Glance, OneCopy, Published, Refused, Sink, Transfer};
use covey_wire::{Peer, Span, Transport};

pub enum Way {
    Packets(SimTransport),
    Laned(Laned<SimTransport, SimWire>),
}

impl Way {
    pub fn new(carriers: &Carriers, node: usize, is_lossy: bool) -> (Way, SimMemory) {
        if is_lossy {
            let (laned, memory) = carriers.laned_end(node, Choice::Always);
            (Way::Laned(laned), memory)
        } else {
            let (transport, memory) = carriers.end(node);
            (Way::Packets(transport), memory)
        }
    }
}

macro_rules! either {
    ($self:ident, $way:ident => $call:expr) => {
        match $self {
            Way::Packets($way) => $call,
            Way::Laned($way) => $call,
        }
    };
}

impl Transport for Way {
    fn packet_bytes_max(&self, peer: Peer) -> usize {
        either!(self, way => way.packet_bytes_max(peer))
    }

    fn send(
        &mut self,
        peer: Peer,
        head: &[u8],
        bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), Refused> {
        either!(self, way => way.send(peer, head, bytes, fill))
    }

    fn gather(&mut self, may_gather: bool) {
        either!(self, way => way.gather(may_gather));
    }

    fn post_bytes_max(&self, peer: Peer) -> usize {
        either!(self, way => way.post_bytes_max(peer))
    }

    fn post(
        &mut self,
        token: u64,
        peer: Peer,
        head: &[u8],
        from: Span,
    ) -> Result<Transfer, Refused> {
        either!(self, way => way.post(token, peer, head, from))
    }

    fn poll(&mut self, budget: usize, sink: &mut impl Sink) -> usize {
        either!(self, way => way.poll(budget, sink))
    }

    fn glance(&mut self, with: impl FnMut(Peer, &[u8], &[u8])) -> Glance {
        either!(self, way => way.glance(with))
    }

    fn is_reachable(&self, peer: Peer) -> bool {
        either!(self, way => way.is_reachable(peer))
    }

    fn view(&mut self, peer: Peer, theirs: Span) -> Option<Span> {
        either!(self, way => way.view(peer, theirs))
    }

    fn one_copy(&self, peer: Peer) -> OneCopy {
        either!(self, way => way.one_copy(peer))
    }

    fn read(
        &mut self,
        token: u64,
        peer: Peer,
        from: &[Span],
        into: Span,
    ) -> Result<Transfer, Refused> {
        either!(self, way => way.read(token, peer, from, into))
    }

    fn fetch(
        &mut self,
        token: u64,
        peer: Peer,
        message: u32,
        from: Span,
        into: Span,
    ) -> Result<Transfer, Refused> {
        either!(self, way => way.fetch(token, peer, message, from, into))
    }

    fn write(
        &mut self,
        token: u64,
        peer: Peer,
        from: Span,
        to: &[Span],
    ) -> Result<Transfer, Refused> {
        either!(self, way => way.write(token, peer, from, to))
    }

    fn publish(&mut self, slot: u32, what: Option<Published>) {
        either!(self, way => way.publish(slot, what));
    }

    fn settle(&mut self, key: u64, patience: std::time::Duration) -> bool {
        either!(self, way => way.settle(key, patience))
    }

    fn enter(&mut self, peer: Peer, slot: u32, key: u64) -> Result<Published, Refused> {
        either!(self, way => way.enter(peer, slot, key))
    }

    fn leave(&mut self, peer: Peer) {
        either!(self, way => way.leave(peer));
    }

    fn end(&mut self, peer: Peer) {
        either!(self, way => way.end(peer));
    }
}
