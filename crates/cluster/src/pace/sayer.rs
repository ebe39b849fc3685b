//! What a node may say: the rates of connections to itself, and, of this machine's own node, what this machine's card can take.
//!
//! A node's addresses are those at which the cluster's file says that it listens, and the portals at which this process uses its
//! volumes. Nobody speaks for any other address: without that a node could slow down a client's connections to another one, or
//! those of another one to its clients.

use crate::config::{Address, Config};
use covey_io::os::net::pacing::{Ends, Port};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

/// Hosts of portals that this process uses, by node.
static PORTALS: Mutex<BTreeMap<String, BTreeSet<String>>> = Mutex::new(BTreeMap::new());

/// This process uses a volume of a node at that host, from now on.
pub fn use_portal(server: &str, host: &str) {
    let mut all = PORTALS.lock().unwrap_or_else(PoisonError::into_inner);
    all.entry(server.to_owned()).or_default().insert(host.to_owned());
}

fn portals_of(server: &str) -> Vec<String> {
    let all = PORTALS.lock().unwrap_or_else(PoisonError::into_inner);
    all.get(server).into_iter().flatten().cloned().collect()
}

/// A node whose word is read.
#[derive(Debug, Default)]
pub struct Sayer {
    own: BTreeSet<IpAddr>,
    /// Where its volumes are used.
    portals: BTreeSet<IpAddr>,
    /// It has a socket on this machine, or an address that is every machine's own.
    is_here: bool,
}

impl Sayer {
    /// A node of a cluster.
    pub async fn of(config: &Config, server: &str) -> Sayer {
        let node = config.nodes.iter().find(|node| node.name == server);
        let listen = node.into_iter().flat_map(|node| &node.listen);
        let own = look_up(listen.filter_map(Address::host).map(str::to_owned).collect()).await;
        let socket = node.and_then(|node| node.unix_socket());
        let is_here = socket.is_some_and(|path| path.exists());
        let is_here = is_here || own.iter().any(IpAddr::is_loopback);
        Sayer { own, portals: look_up(portals_of(server)).await, is_here }
    }

    /// Whether it is a node of this machine, which has connections with these ends.
    pub fn is_here(&self, mut ends: impl Iterator<Item = Ends>) -> bool {
        self.is_here || ends.any(|(here, _)| self.own.contains(&here.ip()))
    }

    /// Whether it may limit a connection of this process.
    pub fn may_limit(&self, (here, there): &Ends, port: Port) -> bool {
        match port {
            Port::Receiver => self.receives_at(there.ip()),
            Port::Sender => self.is_here || self.own.contains(&here.ip()),
        }
    }

    /// All addresses for which it speaks.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.own.union(&self.portals).copied()
    }

    /// Whether connections to this address are connections to it.
    pub fn receives_at(&self, address: IpAddr) -> bool {
        self.own.contains(&address) || self.portals.contains(&address)
    }

    /// One whose addresses are known, and those of its portals.
    #[cfg(test)]
    pub fn at(own: &[&str], portals: &[&str]) -> Sayer {
        let all = |hosts: &[&str]| hosts.iter().map(|host| host.parse().unwrap()).collect();
        Sayer { own: all(own), portals: all(portals), is_here: false }
    }
}

/// A host that nobody knows has no address.
async fn look_up(hosts: Vec<String>) -> BTreeSet<IpAddr> {
    let mut found = BTreeSet::new();
    for host in hosts {
        let addresses = tokio::net::lookup_host((host.as_str(), 0)).await;
        found.extend(addresses.into_iter().flatten().map(|address| address.ip().to_canonical()));
    }
    found
}
