//! A simulated wire that loses, doubles and reorders.

use super::carrier::{Carriers, Knows, Net, Packet, Payload};
use covey_wire::{Arrival, Datagrams, Peer};
use std::cell::RefCell;
use std::rc::Rc;

/// The wire of one process.
#[derive(Debug)]
pub struct SimDatagrams {
    net: Rc<RefCell<Net>>,
    me: usize,
}

impl SimDatagrams {
    pub(super) fn new(net: Rc<RefCell<Net>>, me: usize) -> SimDatagrams {
        SimDatagrams { net, me }
    }
}

impl Datagrams for SimDatagrams {
    fn datagram_bytes_max(&self) -> usize {
        self.net.borrow().profile.packet_bytes_max
    }

    fn send(&mut self, peer: Peer, datagram: &[u8]) -> bool {
        let net = &mut *self.net.borrow_mut();
        let other = Carriers::index(self.me, peer);
        if net.rng.chance(net.profile.refused_permille) || other >= net.ends.len() {
            return false;
        }
        let lost = net.profile.lost_permille;
        let copies = usize::from(!net.rng.chance(lost)) + usize::from(net.rng.chance(lost));
        for _ in 0..copies {
            let due = net.now + net.rng.below(net.profile.delay_max + 1);
            let payload = Payload::Copied(Vec::new());
            let packet = Packet { due, head: datagram.to_vec(), payload };
            if !net.ends[other].is_dead {
                net.ends[other].inbox[self.me].push_back(packet);
            }
        }
        true
    }

    fn next(&mut self, room: &mut [u8]) -> Option<Arrival> {
        let net = &mut *self.net.borrow_mut();
        let mut others: Vec<usize> = (0..net.ends.len()).filter(|end| *end != self.me).collect();
        net.rng.shuffle(&mut others);
        for other in others {
            let peer = Carriers::peer(self.me, other);
            let (now, luck, is_dead) = (net.now, net.rng.chance(50), net.ends[other].is_dead);
            let end = &mut net.ends[self.me];
            match end.knows[other] {
                Knows::Nothing => {
                    end.knows[other] = Knows::Alive;
                    return Some(Arrival::Joined(peer));
                }
                Knows::Dead => continue,
                Knows::Alive => {}
            }
            let inbox = &mut end.inbox[other];
            if let Some(at) = inbox.iter().position(|packet| packet.due <= now) {
                let datagram = inbox.remove(at)?.head;
                room[..datagram.len()].copy_from_slice(&datagram);
                return Some(Arrival::Datagram(peer, datagram.len()));
            }
            if is_dead && luck {
                end.knows[other] = Knows::Dead;
                return Some(Arrival::Dead(peer));
            }
        }
        None
    }

    fn now_us(&self) -> u64 {
        // A process is looked at every few steps.
        self.net.borrow().now * 5
    }
}
