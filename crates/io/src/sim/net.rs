//! The simulated network: streams between processes, datagrams, and what goes wrong with them.
//!
//! A machine is reached by its name. What a stream is given is cut into packets; each takes its time,
//! and none overtakes another. Where the network has a rate, each machine has one port that sends at it and
//! receives at it, and what is to go through a port waits for what came before: a switch that queues without limit. Where the way is blocked, packets are sent again until it is open, as
//! TCP does it. A process that ends has its connections closed by its system, with or without what was
//! on its way; a machine without power says nothing, and after it is back it resets what it does
//! not know.

mod datagram;
mod port;
mod stream;

pub use datagram::{Datagram, Socket};
pub(super) use port::Ports;
pub use stream::{Listener, SimStream, connect, listen};

use super::executor::{Control, NodeId, World, world};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;
use stream::Conn;

/// How good the network is.
#[derive(Clone, Copy, Debug)]
pub struct Quality {
    /// Time of a packet, at least and at most.
    pub latency: (Duration, Duration),
    /// Of a thousand packets, how many are lost: a stream sends them again, after a while.
    pub lost_permille: u64,
    /// Of a thousand datagrams, how many arrive twice.
    pub doubled_permille: u64,
    /// Bytes per second that a machine's port sends, and as many that it receives; None for any number.
    pub rate: Option<u64>,
}

impl Default for Quality {
    fn default() -> Self {
        let latency = (Duration::from_micros(20), Duration::from_millis(4));
        Quality { latency, lost_permille: 2, doubled_permille: 10, rate: None }
    }
}

impl Quality {
    /// A quiet switch whose ports all have this rate, in bytes per second: 20 to 60 µs from one machine to
    /// another and no losses.
    pub fn switch(rate: u64) -> Quality {
        let latency = (Duration::from_micros(20), Duration::from_micros(60));
        Quality { latency, lost_permille: 0, doubled_permille: 0, rate: Some(rate) }
    }
}

/// All connections and who listens.
#[derive(Default)]
pub(super) struct Network {
    quality: Quality,
    blocked: BTreeSet<(NodeId, NodeId)>,
    /// Only looked up, never gone through in its own order.
    conns: HashMap<u64, Conn>,
    listeners: BTreeMap<NodeId, stream::Backlog>,
    sockets: BTreeMap<(NodeId, u16), datagram::Inbox>,
}

impl Control {
    /// Sets how good the network is from now on.
    pub fn set_network(&self, quality: Quality) {
        let world = self.world();
        world.network.borrow_mut().quality = quality;
        world.ports.borrow_mut().rate = quality.rate;
    }

    /// Bytes of streams and datagrams that a machine has sent to others since the world began.
    pub fn bytes_sent(&self, node: NodeId) -> u64 {
        let world = self.world();
        world.ports.borrow().bytes_sent(node)
    }

    /// Blocks the way from one machine to another: packets are lost, one way.
    pub fn block(&self, from: NodeId, to: NodeId) {
        self.world().network.borrow_mut().blocked.insert((from, to));
    }

    /// Opens the way again.
    pub fn unblock(&self, from: NodeId, to: NodeId) {
        self.world().network.borrow_mut().blocked.remove(&(from, to));
    }

    /// Opens all ways.
    pub fn unblock_all(&self) {
        self.world().network.borrow_mut().blocked.clear();
    }

    /// Resets one of the connections between two machines, if there is one; how many there are.
    pub fn reset_one(&self, one: NodeId, other: NodeId) -> usize {
        let mut found: Vec<u64> = {
            let world = self.world();
            let network = world.network.borrow();
            let between = |conn: &Conn| conn.is_between(one, other);
            network.conns.iter().filter(|(_, conn)| between(conn)).map(|(&id, _)| id).collect()
        };
        found.sort_unstable();
        if !found.is_empty() {
            let at = self.world().rng.borrow_mut().index(found.len());
            stream::reset(found[at]);
        }
        found.len()
    }
}

impl Network {
    fn is_blocked(&self, from: NodeId, to: NodeId) -> bool {
        from != to && self.blocked.contains(&(from, to))
    }

    fn quality(&self) -> Quality {
        self.quality
    }
}

/// When what is sent now arrives.
fn arrival(world: &World) -> u64 {
    let quality = world.network.borrow().quality();
    let time = world.rng.borrow_mut().time(quality.latency.0..quality.latency.1);
    world.elapsed() + time.as_nanos() as u64
}

/// What the network sees of a process that ends, before its tasks are dropped.
pub(super) fn process_ends(world: &World, node: NodeId, power_fails: bool) {
    stream::process_ends(world, node, power_fails);
    world.network.borrow_mut().sockets.retain(|&(at, _), _| at != node);
}

fn current() -> NodeId {
    world().current()
}
