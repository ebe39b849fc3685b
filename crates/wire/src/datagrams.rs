//! The contract of a wire that loses packets.

use crate::Peer;

/// Sends datagrams, of which some are lost, doubled, or overtaken by others; none is changed. `covey_uzura`'s `Reliable`
/// makes a [`Transport`](crate::Transport) of it.
pub trait Datagrams {
    /// Longest datagram, in bytes; 256 at least.
    fn datagram_bytes_max(&self) -> usize;

    /// Sends one, with luck. False when there is no room for it now.
    fn send(&mut self, peer: Peer, datagram: &[u8]) -> bool;

    /// What has come next. A datagram is written to the front of `room`, which has room for the longest.
    fn next(&mut self, room: &mut [u8]) -> Option<Arrival>;

    /// Microseconds since any moment that stays the same.
    fn now_us(&self) -> u64;
}

/// What a wire brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// A peer can be sent to. Numbers count up from 0.
    Joined(Peer),
    /// A datagram of so many bytes.
    Datagram(Peer, usize),
    /// A peer is known to be dead: told once.
    Dead(Peer),
}
