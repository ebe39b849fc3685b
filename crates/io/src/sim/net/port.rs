//! Ports: each machine has one, which sends at the network's rate and receives at it. What is to go through a
//! port waits for what came before; the switch between them queues without limit.

use super::NodeId;
use std::collections::BTreeMap;

/// The ports of all machines.
#[derive(Default)]
pub struct Ports {
    /// Bytes per second each way; None for any number.
    pub rate: Option<u64>,
    ports: BTreeMap<NodeId, Port>,
}

#[derive(Clone, Copy, Default)]
struct Port {
    /// When the last byte that waits to be sent is on the wire, in nanoseconds.
    sends_until: u64,
    /// When the last byte that waits for the machine has been received.
    receives_until: u64,
    bytes_sent: u64,
}

impl Ports {
    /// When the last of `bytes` arrives, of which the first would on wires of any rate, sent at `now`, arrive
    /// at `arrival`.
    pub fn queue(&mut self, way: (NodeId, NodeId), now: u64, arrival: u64, bytes: u64) -> u64 {
        let (from, to) = way;
        if from == to {
            return arrival;
        }
        let sender = self.ports.entry(from).or_default();
        sender.bytes_sent += bytes;
        let Some(rate) = self.rate else { return arrival };
        let time = (u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1))) as u64;
        let begins = sender.sends_until.max(now);
        sender.sends_until = begins + time;
        // The switch passes on what it is still receiving.
        let receiver = self.ports.entry(to).or_default();
        receiver.receives_until = receiver.receives_until.max(begins + arrival - now) + time;
        receiver.receives_until
    }

    /// Bytes that a machine has sent to others.
    pub fn bytes_sent(&self, node: NodeId) -> u64 {
        self.ports.get(&node).map_or(0, |port| port.bytes_sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senders_share_the_port_of_their_receiver_and_receivers_that_of_their_sender() {
        let mut ports = Ports { rate: Some(1000), ..Ports::default() };
        let second = 1_000_000_000;
        assert_eq!(ports.queue((1, 2), 0, 5, 1000), second + 5);
        assert_eq!(ports.queue((3, 2), 0, 5, 1000), 2 * second + 5);
        assert_eq!(ports.queue((1, 4), 0, 5, 500), second + second / 2 + 5);
        assert_eq!(ports.queue((5, 6), 7, 9, 1000), second + 9);
        assert_eq!(ports.bytes_sent(1), 1500);
    }

    #[test]
    fn a_machine_reaches_itself_past_its_port() {
        let mut ports = Ports { rate: Some(1), ..Ports::default() };
        assert_eq!(ports.queue((1, 1), 0, 5, 1000), 5);
        assert_eq!(ports.bytes_sent(1), 0);
    }
}
