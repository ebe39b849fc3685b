//! The network itself: cards, cables and switches as a machine without clock or device.
//!
//! The caller brings frames with the time at which a card gave them up ([`Fabric::handle_frame`]), takes
//! those that have reached another card ([`Fabric::poll_delivery`]), and asks when the next one will
//! ([`Fabric::poll_deadline`]). Times are nanoseconds from any common start.
//!
//! Every cable serialises: a frame's last bit leaves after its length, overhead included, at the cable's
//! rate, counted from when it came or from when the frame before it had left. There is no bucket of
//! credit, so a single small frame takes as long as it would, and a train of them exactly as long as
//! the wire needs. Lateness of the caller does not add up either: what follows is computed from when
//! a frame was due, not from when it was handed over.
//!
//! A switch stores a frame whole, then forwards it by the address table it has learned. A bond is a cable
//! of several wires among which frames are dealt out, by flow or in turn.

mod class;
mod lane;
mod settings;
#[cfg(test)]
mod tests;

pub use lane::{Counts, Fate, Lane};
pub use settings::{Setting, Settings};

use bytes::Bytes;
use covey_wire::{Rng, fnv1a, fnv1a_from};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// An Ethernet header: two addresses and the type.
pub const HEADER_BYTES: usize = 14;
/// Shorter frames are padded to this, without FCS.
pub const FRAME_BYTES_MIN: usize = 60;

/// What stands at an end of a cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// A card, by number.
    Card(usize),
    /// A switch, by number.
    Switch(usize),
}

/// Which way along a cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// From its first end to its second.
    There,
    /// From its second end to its first.
    Back,
}

impl Way {
    fn index(self) -> usize {
        self as usize
    }

    /// The opposite direction of the same cable.
    pub fn other(self) -> Way {
        match self {
            Way::There => Way::Back,
            Way::Back => Way::There,
        }
    }
}

/// How the frames of a bond are dealt out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Deal {
    /// All frames of a TCP or UDP flow take the same wire (`layer3+4`).
    #[default]
    Flow,
    /// In turn (`balance-rr`): one flow uses all wires, and its frames may overtake one another.
    Turn,
}

#[derive(Debug)]
struct Cable {
    ends: [Device; 2],
    ways: [Direction; 2],
    deal: Deal,
}

#[derive(Debug)]
struct Direction {
    settings: Settings,
    lanes: Vec<Lane>,
    next_in_turn: usize,
}

#[derive(Debug)]
struct Switch {
    latency_ns: u64,
    cables: Vec<usize>,
    /// Behind which cable an address was last seen.
    table: HashMap<[u8; 6], usize>,
}

/// A frame on its way, in the order of arrival.
#[derive(Debug)]
struct Travelling {
    due_ns: u64,
    number: u64,
    cable: usize,
    way: Way,
    frame: Bytes,
}

impl PartialEq for Travelling {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Travelling {}

impl PartialOrd for Travelling {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Travelling {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due_ns, self.number).cmp(&(other.due_ns, other.number))
    }
}

/// A frame that has reached a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Index of the card that it has reached.
    pub card: usize,
    /// When its last bit was there.
    pub due_ns: u64,
    /// The frame.
    pub frame: Bytes,
}

/// All cards, cables and switches.
#[derive(Debug)]
pub struct Fabric {
    cables: Vec<Cable>,
    switches: Vec<Switch>,
    /// The cable of each card.
    cards: Vec<Option<(usize, Way)>>,
    travelling: BinaryHeap<Reverse<Travelling>>,
    number: u64,
    rng: Rng,
}

impl Fabric {
    /// Cards and switches without cables. `seed` decides every loss that is left to chance.
    pub fn new(cards: usize, seed: u64) -> Fabric {
        Fabric {
            cables: Vec::new(),
            switches: Vec::new(),
            cards: vec![None; cards],
            travelling: BinaryHeap::new(),
            number: 0,
            rng: Rng::new(seed),
        }
    }

    /// Adds a switch and answers its number. It takes this long to forward a frame that it has whole.
    pub fn add_switch(&mut self, latency_ns: u64) -> usize {
        self.switches.push(Switch { latency_ns, cables: Vec::new(), table: HashMap::new() });
        self.switches.len() - 1
    }

    /// Adds a cable of `wires` equal wires and answers its number. `settings` are those of the two ways.
    pub fn add_cable(
        &mut self,
        ends: [Device; 2],
        wires: usize,
        deal: Deal,
        settings: [Settings; 2],
    ) -> usize {
        let number = self.cables.len();
        for (end, way) in ends.iter().zip([Way::There, Way::Back]) {
            match *end {
                Device::Card(card) => self.cards[card] = Some((number, way)),
                Device::Switch(switch) => self.switches[switch].cables.push(number),
            }
        }
        let ways = settings.map(|settings| Direction {
            settings,
            lanes: vec![Lane::default(); wires],
            next_in_turn: 0,
        });
        self.cables.push(Cable { ends, ways, deal });
        number
    }

    /// A card gives up a frame.
    pub fn handle_frame(&mut self, now_ns: u64, card: usize, frame: Bytes) {
        if frame.len() < HEADER_BYTES {
            return;
        }
        if let Some((cable, way)) = self.cards[card] {
            self.send(now_ns, cable, way, frame);
        }
    }

    /// A frame that has reached a card by now. Switches forward what has reached them on the way.
    pub fn poll_delivery(&mut self, now_ns: u64) -> Option<Delivery> {
        while self.poll_deadline().is_some_and(|due| due <= now_ns) {
            let Reverse(arrived) = self.travelling.pop()?;
            let cable = &self.cables[arrived.cable];
            match cable.ends[arrived.way.other().index()] {
                Device::Card(card) => {
                    let (due_ns, frame) = (arrived.due_ns, arrived.frame);
                    return Some(Delivery { card, due_ns, frame });
                }
                Device::Switch(switch) => self.forward(switch, arrived),
            }
        }
        None
    }

    /// When something happens next.
    pub fn poll_deadline(&self) -> Option<u64> {
        self.travelling.peek().map(|Reverse(next)| next.due_ns)
    }

    /// How many frames are under way.
    pub fn travelling(&self) -> usize {
        self.travelling.len()
    }

    /// The settings of one way of a cable.
    pub fn settings(&self, cable: usize, way: Way) -> &Settings {
        &self.cables[cable].ways[way.index()].settings
    }

    /// Changes them: what is under way already keeps its time.
    pub fn set(&mut self, cable: usize, way: Way, settings: Settings) {
        self.cables[cable].ways[way.index()].settings = settings;
    }

    /// What one way of a cable has carried and lost, all its wires together.
    pub fn counts(&self, cable: usize, way: Way) -> Counts {
        let lanes = self.cables[cable].ways[way.index()].lanes.iter();
        lanes.fold(Counts::default(), |sum, lane| sum + lane.counts)
    }

    fn forward(&mut self, number: usize, arrived: Travelling) {
        let (to, from) = addresses(&arrived.frame);
        let switch = &mut self.switches[number];
        let leaves_ns = arrived.due_ns + switch.latency_ns;
        if !is_group(from) {
            switch.table.insert(from, arrived.cable);
        }
        let known = switch.table.get(&to).copied().filter(|_| !is_group(to));
        let out: Vec<usize> = match known {
            // It is where the frame came from: everybody there has it.
            Some(cable) if cable == arrived.cable => return,
            Some(cable) => vec![cable],
            None => switch.cables.iter().copied().filter(|cable| *cable != arrived.cable).collect(),
        };
        for cable in out {
            let begins_here = self.cables[cable].ends[0] == Device::Switch(number);
            let way = if begins_here { Way::There } else { Way::Back };
            self.send(leaves_ns, cable, way, arrived.frame.clone());
        }
    }

    fn send(&mut self, now_ns: u64, number: usize, way: Way, frame: Bytes) {
        let cable = &mut self.cables[number];
        let wires = cable.ways[0].lanes.len();
        let direction = &mut cable.ways[way.index()];
        let wire = match cable.deal {
            _ if wires == 1 => 0,
            Deal::Flow => flow_hash(&frame) as usize % wires,
            Deal::Turn => {
                direction.next_in_turn = (direction.next_in_turn + 1) % wires;
                direction.next_in_turn
            }
        };
        let settings = direction.settings.clone();
        // On a shared medium nobody speaks while the other end does.
        let silent_from = if settings.half_duplex {
            cable.ways[way.other().index()].lanes[wire].busy_until_ns()
        } else {
            0
        };
        let lane = &mut cable.ways[way.index()].lanes[wire];
        let fate = lane.send(now_ns, silent_from, &frame, &settings, &mut self.rng);
        for (due_ns, frame) in fate.arrivals(frame) {
            self.number += 1;
            let travelling = Travelling { due_ns, number: self.number, cable: number, way, frame };
            self.travelling.push(Reverse(travelling));
        }
    }
}

fn addresses(frame: &[u8]) -> ([u8; 6], [u8; 6]) {
    let six = |from: usize| std::array::from_fn(|index| frame[from + index]);
    (six(0), six(6))
}

/// Broadcast or multicast.
fn is_group(address: [u8; 6]) -> bool {
    address[0] & 1 == 1
}

/// A number that all frames of a TCP or UDP flow share, by addresses and ports; fragments and other
/// packets by their addresses alone.
fn flow_hash(frame: &[u8]) -> u64 {
    const IPV4: [u8; 2] = [0x08, 0x00];
    let ip = &frame[HEADER_BYTES..];
    let key = if !(frame[12..14] == IPV4 && ip.len() >= 20) {
        &frame[..12]
    } else {
        let ports_at = usize::from(ip[0] & 0xf) * 4;
        let is_fragment = ip[6] & 0x3f != 0 || ip[7] != 0;
        let has_ports = matches!(ip[9], 6 | 17) && !is_fragment && ip.len() >= ports_at + 4;
        let ports = if has_ports { &ip[ports_at..ports_at + 4] } else { &[][..] };
        return folded(fnv1a_from(folded(fnv1a(&ip[12..20])), ports));
    };
    folded(fnv1a(key))
}

/// Takes the upper half into the lower.
fn folded(hash: u64) -> u64 {
    hash ^ (hash >> 32)
}
