//! Strangers, and where they come from: what all kinds of servers do with those whom they do not know yet.
//!
//! There is a limited number of them. One too many sends the oldest away of the place that has most, so that a flood from one
//! place displaces itself.

use covey_io::os::net::PeerInfo;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::IpAddr;

/// Where a stranger is from: those of one place compete with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    User(u32),
    Machine(IpAddr),
    /// The kernel does not tell.
    Unknown,
}

impl Origin {
    /// The user that the kernel names, otherwise the machine.
    pub fn of(peer: &PeerInfo) -> Origin {
        match (peer.uid, peer.address) {
            (Some(uid), _) => Origin::User(uid),
            (None, Some(address)) => Origin::Machine(network(address)),
            (None, None) => Origin::Unknown,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::User(uid) => write!(out, "user {uid}"),
            Origin::Machine(address) => write!(out, "machine {address}"),
            Origin::Unknown => out.write_str("an unknown place"),
        }
    }
}

/// A machine; of IPv6 the network that one is usually given as a whole, of loopback all addresses.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(ip) if !ip.is_loopback() => IpAddr::V6((u128::from(ip) >> 64 << 64).into()),
        ip if ip.is_loopback() => IpAddr::from([127, 0, 0, 1]),
        ip => ip,
    }
}

/// Those who are strangers now. `T` ends a connection.
#[derive(Debug)]
pub struct Crowd<T> {
    most: usize,
    /// By the order in which they came.
    strangers: BTreeMap<u64, Stranger<T>>,
}

#[derive(Debug)]
struct Stranger<T> {
    from: Origin,
    /// Once there is something to be ended.
    end: Option<T>,
}

impl<T> Crowd<T> {
    /// Nobody, and room for `most`.
    pub fn new(most: usize) -> Crowd<T> {
        Crowd { most, strangers: BTreeMap::new() }
    }

    /// One more, whose number is higher than those before. Who has to go for that is to be ended.
    pub fn enter(&mut self, number: u64, from: Origin) -> Option<T> {
        let full = self.strangers.len() >= self.most;
        let gone = if full { self.send_one_away() } else { None };
        self.strangers.insert(number, Stranger { from, end: None });
        gone
    }

    /// By what it is ended.
    pub fn ends_by(&mut self, number: u64, end: T) {
        if let Some(stranger) = self.strangers.get_mut(&number) {
            stranger.end = Some(end);
        }
    }

    /// It is gone, or no stranger any more.
    pub fn leave(&mut self, number: u64) {
        self.strangers.remove(&number);
    }

    /// Their numbers.
    #[cfg(test)]
    pub fn waiting(&self) -> Vec<u64> {
        self.strangers.keys().copied().collect()
    }

    /// The oldest stranger of the place that has most.
    fn send_one_away(&mut self) -> Option<T> {
        let mut counts: HashMap<Origin, usize> = HashMap::new();
        for stranger in self.strangers.values() {
            *counts.entry(stranger.from).or_default() += 1;
        }
        let most = counts.values().copied().max().unwrap_or(0);
        let oldest = self.strangers.iter().find(|(_, stranger)| counts[&stranger.from] == most);
        let number = oldest.map(|(number, _)| *number)?;
        self.strangers.remove(&number)?.end
    }
}
