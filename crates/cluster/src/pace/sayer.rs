//! What a node may say: the rates of connections to itself, and, of this machine's own node, what this machine's card can take.
//!
//! Without this a node could slow down a client's connections to any other one.

use crate::config::{Address, Config};
use covey_io::os::net::pacing::{Ends, Port};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// A node whose word is read.
#[derive(Debug, Default)]
pub struct Sayer {
    own: BTreeSet<IpAddr>,
    /// It has a socket on this machine, or an address that is every machine's own.
    is_here: bool,
    /// The other nodes, by the hosts where they listen; looked up once it matters.
    hosts: Vec<String>,
    others: BTreeSet<IpAddr>,
}

impl Sayer {
    /// A node of a cluster.
    pub async fn of(config: &Config, server: &str) -> Sayer {
        let (own, others): (Vec<_>, Vec<_>) =
            config.nodes.iter().partition(|node| node.name == server);
        let hosts = |nodes: Vec<&crate::config::Node>| -> Vec<String> {
            let addresses = nodes.iter().flat_map(|node| &node.listen);
            addresses.filter_map(Address::host).map(str::to_owned).collect()
        };
        let is_here = own.iter().any(|node| node.unix_socket().is_some_and(|path| path.exists()));
        let (own, others) = (look_up(hosts(own)).await, hosts(others));
        let is_here = is_here || own.iter().any(IpAddr::is_loopback);
        Sayer { own, is_here, hosts: others, others: BTreeSet::new() }
    }

    /// Finds the other nodes, if the text says something of a connection to an address that is not the node's: that of a target
    /// there may be any, but none of another node's.
    pub async fn look_up(&mut self, text: &str) {
        let said = text.lines().filter_map(super::parse);
        let is_strange = |(ends, port, _): (Ends, Port, u64)| {
            port == Port::Receiver && !self.own.contains(&ends.1.ip())
        };
        if !self.hosts.is_empty() && said.into_iter().any(is_strange) {
            self.others = look_up(std::mem::take(&mut self.hosts)).await;
        }
    }

    /// Whether it is a node of this machine, which has connections with these ends.
    pub fn is_here(&self, mut ends: impl Iterator<Item = Ends>) -> bool {
        self.is_here || ends.any(|(here, _)| self.own.contains(&here.ip()))
    }

    /// Whether it may limit a connection of this process.
    pub fn may_limit(&self, (here, there): &Ends, port: Port) -> bool {
        match port {
            Port::Receiver => self.own.contains(&there.ip()) || !self.others.contains(&there.ip()),
            Port::Sender => self.is_here || self.own.contains(&here.ip()),
        }
    }

    /// One whose addresses, and those of the others, are known.
    #[cfg(test)]
    pub fn at(own: &[&str], others: &[&str]) -> Sayer {
        let all = |hosts: &[&str]| hosts.iter().map(|host| host.parse().unwrap()).collect();
        Sayer { own: all(own), others: all(others), ..Sayer::default() }
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
