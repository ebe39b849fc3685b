//! What was carried since the last count: by each interface, and of that by each connection of bulk and of other programs.

use super::known::{Kind, Known, Moved};
use covey_io::os::card;
use covey_io::os::interface::{self, Counters};
use covey_io::os::net::flows::{self, Flow};
use covey_io::os::net::pacing::Ends;
use covey_tune::pacer::{Carried, Rest};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Reads the kernel's counters.
pub struct Counter {
    known: Known,
    last: Option<Last>,
    /// Frames that no connection explains which is asked for each time, since all were.
    short_frames: i64,
    /// As they were at a time: an address may move to another interface, and a link come up at another rate.
    cards: (Instant, BTreeMap<IpAddr, Option<Card>>),
}

/// The last reading.
struct Last {
    at: Instant,
    interfaces: BTreeMap<String, Counters>,
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
    /// All that came in.
    pub received: Carried,
    /// All that went out.
    pub sent: Carried,
    /// Frames that went through while the counters were read, the more of both directions.
    pub between: f64,
    /// Connections of bulk.
    pub flows: Vec<SeenFlow>,
    /// What came in and went out by known connections of other programs.
    pub messages: [Carried; 2],
    /// These connections.
    pub others: Vec<SeenFlow>,
    /// What the rest is.
    pub rest: Rest,
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
        Ok(Counter {
            known: Known::open()?,
            last: None,
            short_frames: 0,
            cards: (Instant::now(), BTreeMap::new()),
        })
    }

    /// The next count begins anew; so do the addresses of interfaces.
    pub fn forget(&mut self) {
        self.last = None;
        self.known.forget();
        self.cards.1.clear();
    }

    /// Some interface carries what no connection explains: they are listed before the next count, if that is not too often.
    pub fn want_list(&mut self) {
        self.known.want_list();
    }

    /// Counts; `None` the first time. Connections are bulk by their ports; `ours` are this process's own.
    pub fn count(&mut self, ports: &BTreeSet<u16>, ours: &[Ends]) -> io::Result<Option<Counted>> {
        let changed = self.known.renew(ports, ours)?;
        let before = interface::counters()?;
        let (last, short) = (self.last.as_ref(), &mut self.short_frames);
        let looked = self.known.look(|moved| {
            *short += last.map_or(0, |last| unexplained(&last.interfaces, &before, moved));
            let is_short = *short > SHORT_FRAMES;
            // What another look does not find is no connection's.
            *short = if is_short { 0 } else { (*short).max(-SHORT_FRAMES) };
            is_short
        })?;
        // A process that is held up here counts the frames of that time as between the readings.
        let (after, at) = (interface::counters()?, Instant::now());
        let now = Last { at, interfaces: middle(&before, &after) };
        let last = self.last.replace(now);
        let Some(last) = last else { return Ok(None) };
        let changed: BTreeSet<IpAddr> = changed.into_iter().chain(looked.ended).collect();
        let mut wires = BTreeMap::<String, Seen>::new();
        let rest = if self.known.is_complete() { Rest::Messages } else { Rest::Unknown };
        for one in looked.moved.iter().filter(|one| one.kind == Kind::Bulk) {
            let Some(card) = self.card(one.now.local.ip()) else { continue };
            let new = || seen(&card, &last, self.last.as_ref(), (&before, &after), rest);
            let seen = wires.entry(card.name.clone()).or_insert_with(new);
            let (received, sent) = moved(one.before, one.now);
            let ends = (one.now.local, one.now.peer);
            seen.flows.push(SeenFlow { id: one.id, ends, received, sent });
        }
        for one in looked.moved.iter().filter(|one| one.kind == Kind::Other) {
            let Some(card) = self.card(one.now.local.ip()) else { continue };
            let Some(seen) = wires.get_mut(&card.name) else { continue };
            let (received, sent) = moved(one.before, one.now);
            let ends = (one.now.local, one.now.peer);
            seen.others.push(SeenFlow { id: one.id, ends, received, sent });
            add(&mut seen.messages[0], received);
            add(&mut seen.messages[1], sent);
        }
        for address in changed {
            let Some(card) = self.card(address) else { continue };
            if let Some(seen) = wires.get_mut(&card.name) {
                seen.rest = Rest::Changed;
            }
        }
        Ok(Some(Counted { seconds: at.duration_since(last.at).as_secs_f64(), wires }))
    }

    fn card(&mut self, address: IpAddr) -> Option<Card> {
        if self.cards.0.elapsed() > CARDS_FOR {
            self.cards = (Instant::now(), BTreeMap::new());
        }
        self.cards.1.entry(address).or_insert_with(|| card_of(address)).clone()
    }
}

/// IPv6 too: an interface is the same whichever address it is known by.
fn card_of(address: IpAddr) -> Option<Card> {
    let card = card::with_address(address).ok().flatten()?;
    let bits_per_s = interface::bits_per_s(&card.name);
    Some(Card { name: card.name, mtu: card.mtu.into(), bits_per_s })
}

/// What the interfaces have carried halfway between two readings: connections were read then.
fn middle(
    before: &BTreeMap<String, Counters>,
    after: &BTreeMap<String, Counters>,
) -> BTreeMap<String, Counters> {
    let half = |one: u64, other: u64| one + other.saturating_sub(one) / 2;
    let count = |one: interface::Count, other: interface::Count| interface::Count {
        packets: half(one.packets, other.packets),
        bytes: half(one.bytes, other.bytes),
    };
    let both = after.iter().map(|(name, now)| {
        let old = before.get(name).copied().unwrap_or(*now);
        let received = count(old.received, now.received);
        (name.clone(), Counters { received, sent: count(old.sent, now.sent) })
    });
    both.collect()
}

fn seen(
    card: &Card,
    last: &Last,
    now: Option<&Last>,
    (before, after): (&BTreeMap<String, Counters>, &BTreeMap<String, Counters>),
    rest: Rest,
) -> Seen {
    let of = |all: &BTreeMap<String, Counters>| all.get(&card.name).copied().unwrap_or_default();
    let (old, new) = (of(&last.interfaces), now.map_or(of(after), |now| of(&now.interfaces)));
    let carried = |old: interface::Count, new: interface::Count| Carried {
        packets: new.packets.saturating_sub(old.packets) as f64,
        bytes: new.bytes.saturating_sub(old.bytes) as f64,
    };
    let (first, then) = (of(before), of(after));
    let received = then.received.packets.saturating_sub(first.received.packets);
    Seen {
        mtu: card.mtu,
        bits_per_s: card.bits_per_s,
        received: carried(old.received, new.received),
        sent: carried(old.sent, new.sent),
        between: received.max(then.sent.packets.saturating_sub(first.sent.packets)) as f64,
        flows: Vec::new(),
        messages: [Carried::default(); 2],
        others: Vec::new(),
        rest,
    }
}

fn add(sum: &mut Carried, one: Carried) {
    sum.packets += one.packets;
    sum.bytes += one.bytes;
}

/// How many frames more interfaces beside loopback have carried since the last reading than these connections.
fn unexplained(
    last: &BTreeMap<String, Counters>,
    now: &BTreeMap<String, Counters>,
    moved: &[Moved],
) -> i64 {
    let frames = |counters: &Counters| counters.received.packets + counters.sent.packets;
    let of = |(name, now): (&String, &Counters)| {
        last.get(name).map_or(0, |last| frames(now).saturating_sub(frames(last)))
    };
    let carried: u64 = now.iter().filter(|(name, _)| *name != "lo").map(of).sum();
    carried.cast_signed() - moved.iter().map(Moved::segments).sum::<u64>().cast_signed()
}

/// What a connection has received and sent between two readings.
fn moved(before: Flow, now: Flow) -> (Carried, Carried) {
    let header = if now.local.is_ipv4() { HEADER_BYTES } else { HEADER_BYTES_V6 };
    let carried = |old: flows::Count, new: flows::Count| {
        let packets = f64::from(new.segments.wrapping_sub(old.segments));
        let bytes = new.bytes.saturating_sub(old.bytes) as f64;
        Carried { packets, bytes: bytes + packets * header }
    };
    (carried(before.received, now.received), carried(before.sent, now.sent))
}

/// Frames by which readings that were not made at one instant differ, and a link's own.
const SHORT_FRAMES: i64 = 3;
/// How long what is known of interfaces holds.
const CARDS_FOR: Duration = Duration::from_secs(2);
/// Ethernet, IP, and TCP with timestamps.
const HEADER_BYTES: f64 = 14.0 + 20.0 + 32.0;
const HEADER_BYTES_V6: f64 = 14.0 + 40.0 + 32.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_comes_later_is_found_then() {
        let Ok(mut counter) = Counter::open() else { return covey_harness::skip("no sock_diag") };
        let address: IpAddr = [127, 0, 0, 1].into();
        counter.cards.1.insert(address, None);
        assert!(counter.card(address).is_none());
        counter.cards.0 = Instant::now().checked_sub(2 * CARDS_FOR).unwrap();
        assert_eq!(counter.card(address).map(|card| card.name), Some("lo".to_owned()));
    }
}
