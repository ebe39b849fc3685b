//! A transport over a wire that loses, doubles and reorders: what is not acknowledged is sent again.
//!
//! Each packet has a number, and each datagram says which number is expected next the other way. The receiver keeps what
//! came too early, so only what was lost is sent again: the oldest, when it has not been acknowledged for a
//! time that doubles with each try. A peer that answers nothing for so many tries is dead.
//!
//! ```text
//!   datagram = sequence[4] expected[4] head_bytes[1] head payload       255: no packet, only `expected`
//! ```

use covey_wire::transport::{HEAD_BYTES_MAX, Refused, Sink};
use covey_wire::{Arrival, Datagrams, Peer, Transport};
use std::collections::{BTreeMap, VecDeque};

/// See the module's page.
#[derive(Debug)]
pub struct Reliable<D> {
    wire: D,
    peers: Vec<Link>,
    room: Vec<u8>,
    /// Buffers to be used again.
    spare: Vec<Vec<u8>>,
}

#[derive(Debug, Default)]
struct Link {
    is_alive: bool,
    /// The number of the next packet, and those that are not acknowledged: the last one before it last.
    next: u32,
    open: VecDeque<Open>,
    /// The number that is expected next from the peer, and what came before its turn, by how far before.
    expected: u32,
    early: BTreeMap<u32, Vec<u8>>,
    owes_ack: bool,
}

#[derive(Debug)]
struct Open {
    datagram: Vec<u8>,
    due_us: u64,
    tries: u32,
}

impl<D: Datagrams> Reliable<D> {
    /// A transport over `wire`.
    pub fn new(wire: D) -> Reliable<D> {
        let room = vec![0; wire.datagram_bytes_max()];
        Reliable { wire, peers: Vec::new(), room, spare: Vec::new() }
    }

    /// What it goes over.
    pub fn wire(&mut self) -> &mut D {
        &mut self.wire
    }

    fn arrived(&mut self, peer: Peer, bytes: usize, sink: &mut impl Sink) {
        let Some(link) = self.peers.get_mut(peer.0 as usize).filter(|link| link.is_alive) else {
            return;
        };
        let datagram = &self.room[..bytes];
        // What is no datagram of ours is as good as lost.
        let Some((sequence, rest)) = datagram.split_first_chunk() else { return };
        let Some((expected, rest)) = rest.split_first_chunk() else { return };
        let Some((&head, packet)) = rest.split_first() else { return };
        link.acknowledge(u32::from_le_bytes(*expected), &mut self.spare);
        if head == NO_PACKET {
            return;
        }
        link.owes_ack = true;
        if usize::from(head) > HEAD_BYTES_MAX.min(packet.len()) {
            return;
        }
        let ahead = u32::from_le_bytes(*sequence).wrapping_sub(link.expected);
        if ahead == 0 {
            link.expected = link.expected.wrapping_add(1);
            let (head, payload) = packet.split_at(usize::from(head));
            sink.packet(peer, head, payload);
            self.catch_up(peer, sink);
        } else if ahead < WINDOW as u32 {
            let sequence = u32::from_le_bytes(*sequence);
            link.early.entry(sequence).or_insert_with(|| rest.to_vec());
        }
    }

    /// Delivers what came early and is expected now.
    fn catch_up(&mut self, peer: Peer, sink: &mut impl Sink) {
        let link = &mut self.peers[peer.0 as usize];
        while let Some(rest) = link.early.remove(&link.expected) {
            link.expected = link.expected.wrapping_add(1);
            let (head, payload) = rest[1..].split_at(usize::from(rest[0]));
            sink.packet(peer, head, payload);
        }
    }

    /// Sends again what is due, and acknowledges what came. Says how many peers were given up.
    fn keep_up(&mut self, sink: &mut impl Sink) -> usize {
        let now = self.wire.now_us();
        let mut lost = 0;
        for (index, link) in self.peers.iter_mut().enumerate().filter(|(_, link)| link.is_alive) {
            let peer = Peer(index as u32);
            if let Some(first) = link.open.front_mut().filter(|first| first.due_us <= now) {
                if first.tries >= TRIES_MAX {
                    *link = Link::default();
                    sink.dead(peer);
                    lost += 1;
                    continue;
                }
                first.datagram[4..8].copy_from_slice(&link.expected.to_le_bytes());
                if self.wire.send(peer, &first.datagram) {
                    first.tries += 1;
                    link.owes_ack = false;
                }
                first.due_us = now + (PATIENCE_US << first.tries.min(6));
            }
            if link.owes_ack {
                let mut datagram = [0; 9];
                datagram[4..8].copy_from_slice(&link.expected.to_le_bytes());
                datagram[8] = NO_PACKET;
                link.owes_ack = !self.wire.send(peer, &datagram);
            }
        }
        lost
    }

    fn join(&mut self, peer: Peer) {
        while self.peers.len() <= peer.0 as usize {
            self.peers.push(Link::default());
        }
        self.peers[peer.0 as usize].is_alive = true;
    }
}

impl Link {
    /// The peer expects this number next: everything before has come.
    fn acknowledge(&mut self, expected: u32, spare: &mut Vec<Vec<u8>>) {
        let left = self.next.wrapping_sub(expected) as usize;
        // A number that was never sent is none of ours.
        while left < self.open.len() {
            let done = self.open.pop_front();
            spare.extend(done.map(|open| open.datagram).filter(|_| spare.len() < WINDOW));
        }
    }
}

impl<D: Datagrams> Transport for Reliable<D> {
    fn packet_bytes_max(&self) -> usize {
        self.room.len() - OVERHEAD - HEAD_BYTES_MAX
    }

    fn send(
        &mut self,
        peer: Peer,
        head: &[u8],
        bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), Refused> {
        assert!(head.len() <= HEAD_BYTES_MAX && bytes <= self.packet_bytes_max(), "too long");
        let link = self.peers.get_mut(peer.0 as usize).filter(|link| link.is_alive);
        let link = link.ok_or(Refused::Dead)?;
        if link.open.len() >= WINDOW {
            return Err(Refused::Full);
        }
        let mut datagram = self.spare.pop().unwrap_or_default();
        datagram.clear();
        datagram.extend_from_slice(&link.next.to_le_bytes());
        datagram.extend_from_slice(&link.expected.to_le_bytes());
        datagram.push(head.len() as u8);
        datagram.extend_from_slice(head);
        let payload = datagram.len();
        datagram.resize(payload + bytes, 0);
        fill(&mut datagram[payload..]);
        // One that there is no room for now is lost, and sent again like any other.
        let due_us = self.wire.now_us();
        let sent = self.wire.send(peer, &datagram);
        let due_us = due_us + if sent { PATIENCE_US } else { 0 };
        link.owes_ack &= !sent;
        link.open.push_back(Open { datagram, due_us, tries: 0 });
        link.next = link.next.wrapping_add(1);
        Ok(())
    }

    fn poll(&mut self, budget: usize, sink: &mut impl Sink) -> usize {
        let mut happened = 0;
        while happened < budget {
            match self.wire.next(&mut self.room) {
                None => break,
                Some(Arrival::Joined(peer)) => {
                    self.join(peer);
                    sink.joined(peer);
                }
                Some(Arrival::Datagram(peer, bytes)) => self.arrived(peer, bytes, sink),
                Some(Arrival::Dead(peer)) => {
                    if self.peers.get(peer.0 as usize).is_some_and(|link| link.is_alive) {
                        self.peers[peer.0 as usize] = Link::default();
                        sink.dead(peer);
                    }
                }
            }
            happened += 1;
        }
        happened + self.keep_up(sink)
    }
}

/// Packets that may be without acknowledgement.
const WINDOW: usize = 64;
/// Before the head.
const OVERHEAD: usize = 9;
const NO_PACKET: u8 = 255;
/// Until a packet is sent again for the first time; after six tries it is 64 times as long.
const PATIENCE_US: u64 = 200;
/// Of a packet, before its receiver is given up: some 1.5 seconds.
const TRIES_MAX: u32 = 120;
