//! What a lab consists of: nodes with their cards, cables, switches. Arithmetic only.

use super::fabric::{Deal, Device, Fabric, Settings};
use super::profile::Profile;
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;

/// Most nodes of a lab: an address has one byte for them.
pub const NODES_MAX: u16 = 250;

/// How the nodes are joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Topology {
    /// One cable between two nodes.
    Direct,
    /// All nodes at one switch.
    #[default]
    Switch,
    /// Half of the nodes at each of two switches, with one cable between these.
    TwoSwitches,
    /// All nodes at one switch, each by a bond of two cables.
    Bonded,
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// How many nodes.
    pub nodes: u16,
    /// How they are joined.
    pub topology: Topology,
    /// How a bond deals out its frames.
    pub deal: Deal,
    /// The network, or the front end when there is another for storage.
    pub link: Profile,
    /// A second network.
    pub storage_link: Option<Profile>,
    /// Decides every loss that is left to chance.
    pub seed: u64,
}

/// A whole lab.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The nodes' names, from n1 on.
    pub nodes: Vec<String>,
    /// How they are joined.
    pub topology: Topology,
    /// One or two networks.
    pub networks: Vec<Network>,
    /// Every card.
    pub cards: Vec<Card>,
    /// Every switch.
    pub switches: Vec<Switch>,
    /// Every cable.
    pub cables: Vec<Cable>,
    /// Decides every loss that is left to chance.
    pub seed: u64,
}

/// A network of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Network {
    /// `front` or `storage`.
    pub name: String,
    /// Rate, latency, MTU and overhead.
    pub profile: Profile,
}

/// A node's card.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Card {
    /// Index of its node.
    pub node: usize,
    /// Index of its network.
    pub network: usize,
    /// The interface's name.
    pub interface: String,
    /// Its address; the prefix has 24 bits.
    pub address: Ipv4Addr,
    /// Its hardware address.
    pub mac: [u8; 6],
}

/// A switch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Switch {
    /// Its name.
    pub name: String,
    /// Index of its network.
    pub network: usize,
}

/// What a cable is plugged into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// A card, by index.
    Card(usize),
    /// A switch, by index.
    Switch(usize),
}

/// A cable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cable {
    /// Its name: what it joins, such as `n1-sw1`.
    pub name: String,
    /// A card or a switch at each end.
    pub ends: [End; 2],
    /// Index of its network.
    pub network: usize,
    /// How many wires; more than one is a bond.
    pub wires: usize,
    /// How a bond deals out its frames.
    pub deal: Deal,
}

impl Cable {
    /// How many of its ends are at nodes.
    pub fn cards(&self) -> u64 {
        self.ends.iter().filter(|end| matches!(end, End::Card(_))).count() as u64
    }
}

impl Plan {
    /// The lab that was asked for.
    pub fn new(wish: &Wish) -> Result<Plan, String> {
        let count = wish.nodes;
        if !(1..=NODES_MAX).contains(&count) {
            return Err(format!("{count} nodes are outside the limits: 1 to {NODES_MAX}"));
        }
        if wish.topology == Topology::Direct && count != 2 {
            return Err(format!("a direct cable joins 2 nodes, not {count}"));
        }
        let mut plan = Plan {
            nodes: (1..=count).map(|number| format!("n{number}")).collect(),
            topology: wish.topology,
            networks: Vec::new(),
            cards: Vec::new(),
            switches: Vec::new(),
            cables: Vec::new(),
            seed: wish.seed,
        };
        plan.add_network("front", "eth0", "sw", wish, &wish.link);
        if let Some(profile) = &wish.storage_link {
            plan.add_network("storage", "st0", "st", wish, profile);
        }
        Ok(plan)
    }

    fn add_network(
        &mut self,
        name: &str,
        interface: &str,
        switch: &str,
        wish: &Wish,
        profile: &Profile,
    ) {
        let network = self.networks.len();
        self.networks.push(Network { name: name.to_string(), profile: profile.clone() });
        let first = self.cards.len();
        for node in 0..self.nodes.len() {
            let host = node as u8 + 1;
            self.cards.push(Card {
                node,
                network,
                interface: interface.to_string(),
                address: Ipv4Addr::new(10, 24, network as u8 + 1, host),
                // Locally administered.
                mac: [0x02, 0xc0, 0x7e, 0, network as u8 + 1, host],
            });
        }
        if wish.topology == Topology::Direct {
            let ends = [End::Card(first), End::Card(first + 1)];
            self.add_cable(ends, network, 1, wish.deal);
            return;
        }
        let switches = if wish.topology == Topology::TwoSwitches { 2 } else { 1 };
        let first_switch = self.switches.len();
        for number in 1..=switches {
            self.switches.push(Switch { name: format!("{switch}{number}"), network });
        }
        let wires = if wish.topology == Topology::Bonded { 2 } else { 1 };
        let half = self.nodes.len().div_ceil(switches);
        for node in 0..self.nodes.len() {
            let ends = [End::Card(first + node), End::Switch(first_switch + node / half)];
            self.add_cable(ends, network, wires, wish.deal);
        }
        if switches == 2 {
            let ends = [End::Switch(first_switch), End::Switch(first_switch + 1)];
            self.add_cable(ends, network, 1, wish.deal);
        }
    }

    fn add_cable(&mut self, ends: [End; 2], network: usize, wires: usize, deal: Deal) {
        let [one, other] = ends.map(|end| self.end_name(end));
        let direct_storage = matches!(ends, [End::Card(_), End::Card(_)]) && network > 0;
        let mark = if direct_storage { "-st" } else { "" };
        let name = format!("{one}-{other}{mark}");
        self.cables.push(Cable { name, ends, network, wires, deal });
    }

    /// The name of what a cable is plugged into.
    pub fn end_name(&self, end: End) -> &str {
        match end {
            End::Card(card) => &self.nodes[self.cards[card].node],
            End::Switch(switch) => &self.switches[switch].name,
        }
    }

    /// The index of a node.
    pub fn node(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node == name)
    }

    /// What a frame between two nodes goes over in the first network: nodes, cables, switches, by name.
    pub fn path(&self, from: &str, to: &str) -> Vec<String> {
        let leg = |node: &str| -> Option<(usize, [End; 2])> {
            let (card, _) = self.cards_of(self.node(node)?).next()?;
            let cable = self.cables.iter().position(|one| one.ends.contains(&End::Card(card)))?;
            Some((cable, self.cables[cable].ends))
        };
        let (Some((first, near)), Some((last, far))) = (leg(from), leg(to)) else {
            return vec![from.to_string(), to.to_string()];
        };
        let switch = |ends: [End; 2]| ends.into_iter().find(|end| matches!(end, End::Switch(_)));
        let mut path = vec![from.to_string(), self.cables[first].name.clone()];
        if let (Some(one), Some(other)) = (switch(near), switch(far)) {
            path.push(self.end_name(one).to_string());
            if one != other {
                let joins =
                    |cable: &&Cable| cable.ends.contains(&one) && cable.ends.contains(&other);
                path.extend(self.cables.iter().find(joins).map(|cable| cable.name.clone()));
                path.push(self.end_name(other).to_string());
            }
            path.push(self.cables[last].name.clone());
        }
        path.push(to.to_string());
        path
    }

    /// A node's cards.
    pub fn cards_of(&self, node: usize) -> impl Iterator<Item = (usize, &Card)> {
        self.cards.iter().enumerate().filter(move |(_, card)| card.node == node)
    }

    /// The address at which a node serves storage: that of its last network.
    pub fn storage_address(&self, node: usize) -> Ipv4Addr {
        let last = self.cards_of(node).last();
        last.expect("every node has a card").1.address
    }

    /// The lines of /etc/hosts.
    pub fn hosts(&self) -> String {
        let mut text = "127.0.0.1 localhost\n".to_string();
        for card in &self.cards {
            let mark = if card.network == 0 { "" } else { "-st" };
            text.push_str(&format!("{} {}{mark}\n", card.address, self.nodes[card.node]));
        }
        text
    }

    /// The network as a machine, without any delay yet.
    pub fn fabric(&self) -> Fabric {
        let mut fabric = Fabric::new(self.cards.len(), self.seed);
        for switch in &self.switches {
            fabric.add_switch(self.networks[switch.network].profile.switch_latency_ns);
        }
        for cable in &self.cables {
            let ends = cable.ends.map(|end| match end {
                End::Card(card) => Device::Card(card),
                End::Switch(switch) => Device::Switch(switch),
            });
            let settings = cable.ends.map(|end| self.settings(cable.network, end));
            fabric.add_cable(ends, cable.wires, cable.deal, settings);
        }
        fabric
    }

    /// What a cable of a network is like when `from` sends.
    fn settings(&self, network: usize, from: End) -> Settings {
        let profile = &self.networks[network].profile;
        profile.settings(match from {
            End::Card(_) => profile.host_queue_bytes(),
            End::Switch(_) => profile.queue_bytes,
        })
    }

    /// The delay of one way of a cable that gives its network the latency of its profile: each end at a
    /// node contributes one half.
    pub fn delay_ns(&self, cable: &Cable, floor_ns: u64) -> u64 {
        let (end_ns, _) = self.networks[cable.network].profile.end_delay_ns(floor_ns);
        cable.cards() * end_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_all_that_a_frame_goes_over() {
        let path = |topology, nodes, from, to| {
            Plan::new(&wish(nodes, topology, true)).unwrap().path(from, to).join(" ")
        };
        assert_eq!(path(Topology::Direct, 2, "n1", "n2"), "n1 n1-n2 n2");
        assert_eq!(path(Topology::Switch, 3, "n1", "n3"), "n1 n1-sw1 sw1 n3-sw1 n3");
        assert_eq!(path(Topology::TwoSwitches, 4, "n1", "n2"), "n1 n1-sw1 sw1 n2-sw1 n2");
        assert_eq!(
            path(Topology::TwoSwitches, 4, "n2", "n3"),
            "n2 n2-sw1 sw1 sw1-sw2 sw2 n3-sw2 n3"
        );
    }

    fn wish(nodes: u16, topology: Topology, two: bool) -> Wish {
        let profile = |name| Profile::named(name).unwrap();
        Wish {
            nodes,
            topology,
            deal: Deal::Flow,
            link: profile("fast-ethernet"),
            storage_link: two.then(|| profile("gigabit")),
            seed: 1,
        }
    }

    fn cables(plan: &Plan) -> Vec<&str> {
        plan.cables.iter().map(|cable| cable.name.as_str()).collect()
    }

    #[test]
    fn cables_are_named_for_what_they_join() {
        let plan = Plan::new(&wish(3, Topology::Switch, true)).unwrap();
        assert_eq!(cables(&plan), ["n1-sw1", "n2-sw1", "n3-sw1", "n1-st1", "n2-st1", "n3-st1"]);
        let plan = Plan::new(&wish(3, Topology::TwoSwitches, false)).unwrap();
        assert_eq!(cables(&plan), ["n1-sw1", "n2-sw1", "n3-sw2", "sw1-sw2"]);
        let plan = Plan::new(&wish(2, Topology::Direct, true)).unwrap();
        assert_eq!(cables(&plan), ["n1-n2", "n1-n2-st"]);
        let plan = Plan::new(&wish(2, Topology::Bonded, false)).unwrap();
        assert!(plan.cables.iter().all(|cable| cable.wires == 2));
    }

    #[test]
    fn every_card_has_an_address_and_every_node_a_name() {
        let plan = Plan::new(&wish(2, Topology::Switch, true)).unwrap();
        assert_eq!(plan.storage_address(1).to_string(), "10.24.2.2");
        let hosts =
            "127.0.0.1 localhost\n10.24.1.1 n1\n10.24.1.2 n2\n10.24.2.1 n1-st\n10.24.2.2 n2-st\n";
        assert_eq!(plan.hosts(), hosts);
    }

    #[test]
    fn what_cannot_be_joined_is_refused() {
        assert!(Plan::new(&wish(3, Topology::Direct, false)).unwrap_err().contains("2 nodes"));
        assert!(Plan::new(&wish(0, Topology::Switch, false)).is_err());
        assert!(Plan::new(&wish(251, Topology::Switch, false)).unwrap_err().contains("250"));
    }

    #[test]
    fn a_path_between_two_nodes_has_the_latency_once() {
        let direct = Plan::new(&wish(2, Topology::Direct, false)).unwrap();
        let switch = Plan::new(&wish(2, Topology::TwoSwitches, false)).unwrap();
        let sum =
            |plan: &Plan| plan.cables.iter().map(|cable| plan.delay_ns(cable, 20_000)).sum::<u64>();
        assert_eq!(sum(&direct), 29_720);
        assert_eq!(sum(&switch), 29_720);
    }
}
