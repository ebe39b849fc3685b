//! What was carried since the last count: by each interface, and of that by each connection of bulk.

use covey_io::os::card;
use covey_io::os::interface::{self, Counters};
use covey_io::os::net::flows::{self, Flow, Flows};
use covey_io::os::net::pacing::Ends;
use covey_tune::pacer::Carried;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::time::Instant;

/// Reads the kernel's counters.
pub struct Counter {
    flows: Flows,
    last: Option<Last>,
    cards: BTreeMap<IpAddr, Option<Card>>,
    id_next: u64,
    /// Counts in a row that were not clean.
    skipped: u32,
}

/// The last reading.
struct Last {
    at: Instant,
    interfaces: BTreeMap<String, Counters>,
    flows: BTreeMap<Ends, (u64, Flow)>,
}

/// An interface.
#[derive(Clone, Debug)]
struct Card {
    name: String,
    mtu: u64,
    bits_per_s: Option<u64>,
}

/// What was counted.
pub struct Counted {
    /// Since the last count.
    pub seconds: f64,
    /// Interfaces that bulk goes through.
    pub wires: BTreeMap<String, Seen>,
}

/// One interface.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Longest packet in bytes.
    pub mtu: u64,
    /// The link's rate, where the driver knows it.
    pub bits_per_s: Option<u64>,
    /// All that came in and went out.
    pub received: Carried,
    /// All that went out.
    pub sent: Carried,
    /// Connections of bulk.
    pub flows: Vec<SeenFlow>,
    /// Some have come or gone.
    has_changed: bool,
}

impl Seen {
    /// Frames that open and end connections belong to no connection in the list: such a count says nothing of messages.
    fn without_messages(&mut self) {
        let add = |sum: Carried, one: Carried| Carried {
            packets: sum.packets + one.packets,
            bytes: sum.bytes + one.bytes,
        };
        let none = Carried::default();
        self.received = self.flows.iter().map(|flow| flow.received).fold(none, add);
        self.sent = self.flows.iter().map(|flow| flow.sent).fold(none, add);
    }
}

/// One connection of bulk.
#[derive(Clone, Copy, Debug)]
pub struct SeenFlow {
    /// Names it as long as it lasts.
    pub id: u64,
    /// This end and the other.
    pub ends: Ends,
    /// What came in.
    pub received: Carried,
    /// What went out.
    pub sent: Carried,
}

impl Counter {
    /// The error is that of a kernel that lists no connections.
    pub fn open() -> io::Result<Counter> {
        let flows = Flows::open()?;
        Ok(Counter { flows, last: None, cards: BTreeMap::new(), id_next: 0, skipped: 0 })
    }

    /// The next count begins anew; so do the addresses of interfaces.
    pub fn forget(&mut self) {
        self.last = None;
        self.cards.clear();
    }

    /// Counts; `None` the first time, and where this process was held up between two readings that belong together: the next
    /// count then covers both intervals. Connections are bulk by their ports.
    pub fn count(&mut self, ports: &BTreeSet<u16>) -> io::Result<Option<Counted>> {
        let (at, interfaces) = (Instant::now(), interface::counters()?);
        let listed = self.flows.list()?;
        // What comes between is taken for fewer messages now, and for more in the next count.
        let is_clean = most_between(&interfaces, &interface::counters()?) <= BETWEEN_PACKETS_MAX;
        self.skipped = if is_clean || self.skipped == SKIPPED_MAX { 0 } else { self.skipped + 1 };
        if self.skipped > 0 && self.last.is_some() {
            return Ok(None);
        }
        let bulk = listed.into_iter().filter(|flow| is_bulk(flow, ports));
        let before = self.last.take();
        let known = before.as_ref().map(|last| &last.flows);
        let mut flows = BTreeMap::new();
        for flow in bulk {
            let ends = (flow.local, flow.peer);
            let id = known.and_then(|known| known.get(&ends)).map(|(id, _)| *id);
            flows.insert(ends, (id.unwrap_or_else(|| self.id()), flow));
        }
        let now = Last { at, interfaces, flows };
        let counted = before.map(|before| self.between(&before, &now));
        self.last = Some(now);
        Ok(counted)
    }

    fn id(&mut self) -> u64 {
        self.id_next += 1;
        self.id_next
    }

    fn between(&mut self, before: &Last, now: &Last) -> Counted {
        let seconds = now.at.duration_since(before.at).as_secs_f64();
        let mut wires = BTreeMap::<String, Seen>::new();
        for (ends, (id, flow)) in &now.flows {
            let Some(card) = self.card(ends.0.ip()) else { continue };
            let old = before.flows.get(ends).map(|(_, flow)| *flow);
            let (received, sent) = moved(old, *flow);
            let seen = wires.entry(card.name.clone()).or_insert_with(|| seen(&card, before, now));
            seen.flows.push(SeenFlow { id: *id, ends: *ends, received, sent });
            seen.has_changed |= old.is_none();
        }
        for ends in before.flows.keys().filter(|ends| !now.flows.contains_key(*ends)) {
            let card = self.card(ends.0.ip());
            if let Some(seen) = card.and_then(|card| wires.get_mut(&card.name)) {
                seen.has_changed = true;
            }
        }
        wires.values_mut().filter(|seen| seen.has_changed).for_each(Seen::without_messages);
        Counted { seconds, wires }
    }

    fn card(&mut self, address: IpAddr) -> Option<Card> {
        self.cards.entry(address).or_insert_with(|| card_of(address)).clone()
    }
}

/// The most frames that went through any interface between two readings, in either direction.
fn most_between(before: &BTreeMap<String, Counters>, after: &BTreeMap<String, Counters>) -> u64 {
    let moved = |(name, now): (&String, &Counters)| {
        let old = before.get(name).copied().unwrap_or(*now);
        let received = now.received.packets.saturating_sub(old.received.packets);
        received.max(now.sent.packets.saturating_sub(old.sent.packets))
    };
    after.iter().filter(|(name, _)| *name != "lo").map(moved).max().unwrap_or(0)
}

/// IPv6 is not paced.
fn card_of(address: IpAddr) -> Option<Card> {
    let IpAddr::V4(address) = address else { return None };
    let card = card::with_address(address).ok().flatten()?;
    let bits_per_s = interface::bits_per_s(&card.name);
    Some(Card { name: card.name, mtu: card.mtu.into(), bits_per_s })
}

fn is_bulk(flow: &Flow, ports: &BTreeSet<u16>) -> bool {
    let is_here = flow.local.ip() == flow.peer.ip() || flow.peer.ip().is_loopback();
    !is_here && (ports.contains(&flow.local.port()) || ports.contains(&flow.peer.port()))
}

fn seen(card: &Card, before: &Last, now: &Last) -> Seen {
    let of = |last: &Last| last.interfaces.get(&card.name).copied().unwrap_or_default();
    let (old, new) = (of(before), of(now));
    let carried = |old: interface::Count, new: interface::Count| Carried {
        packets: new.packets.saturating_sub(old.packets) as f64,
        bytes: new.bytes.saturating_sub(old.bytes) as f64,
    };
    Seen {
        mtu: card.mtu,
        bits_per_s: card.bits_per_s,
        received: carried(old.received, new.received),
        sent: carried(old.sent, new.sent),
        flows: Vec::new(),
        has_changed: false,
    }
}

/// What a connection has carried since it was last seen: everything, where it is new.
fn moved(old: Option<Flow>, new: Flow) -> (Carried, Carried) {
    let old = old.unwrap_or(Flow {
        received: flows::Count::default(),
        sent: flows::Count::default(),
        ..new
    });
    (carried(old.received, new.received), carried(old.sent, new.sent))
}

fn carried(old: flows::Count, new: flows::Count) -> Carried {
    let packets = f64::from(new.segments.wrapping_sub(old.segments));
    let bytes = new.bytes.saturating_sub(old.bytes) as f64;
    Carried { packets, bytes: bytes + packets * HEADER_BYTES }
}

/// How many frames between two readings leave them good enough, and how many bad ones in a row are left out.
const BETWEEN_PACKETS_MAX: u64 = 2;
const SKIPPED_MAX: u32 = 3;
/// Ethernet, IPv4, and TCP with timestamps.
const HEADER_BYTES: f64 = 14.0 + 20.0 + 32.0;
