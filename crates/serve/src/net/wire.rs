//! One interface: a port of a switch, in both directions.

use super::counter::{Seen, SeenFlow};
use covey_io::os::net::pacing::{Ends, Limit};
use covey_tune::pacer::{Carried, Flow, Interval, Order, Port, Settings};
use covey_tune::wire as tune;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// A direction, as this node sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// What comes in: the port of the switch is the narrow place.
    In,
    /// What goes out: this machine's own card is.
    Out,
}

/// An interface whose rate is known or not.
pub struct Wire {
    mtu: u64,
    rate: Option<u64>,
    /// In and out.
    ports: Option<[Port; 2]>,
    /// What each connection of bulk carries, smoothed: in and out, in bytes of payload a second, and its limits.
    pub flows: BTreeMap<Ends, Use>,
    /// The same of other programs' connections, which have no limits.
    pub others: BTreeMap<Ends, Use>,
}

/// What a connection of bulk carries.
#[derive(Clone, Copy, Debug, Default)]
pub struct Use {
    /// Bytes of frames a second, in and out.
    pub rates: [f64; 2],
    /// Bytes of payload a second that its sender may send; in and out.
    pub limits: [Option<u64>; 2],
}

impl Way {
    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Way::In => "in",
            Way::Out => "out",
        }
    }

    fn of_flow(self, flow: &SeenFlow) -> Carried {
        match self {
            Way::In => flow.received,
            Way::Out => flow.sent,
        }
    }

    fn of_all(self, seen: &Seen) -> Carried {
        match self {
            Way::In => seen.received,
            Way::Out => seen.sent,
        }
    }
}

impl Wire {
    pub fn new(mtu: u64) -> Wire {
        Wire { mtu, rate: None, ports: None, flows: BTreeMap::new(), others: BTreeMap::new() }
    }

    /// What an administrator has set, and the rate in bits a second.
    pub fn set(&mut self, rate: Option<u64>, law: Settings) {
        self.rate = rate;
        let Some(rate) = rate else { return self.ports = None };
        let wire = tune::Wire::ethernet(rate as f64, self.mtu);
        let ports = self.ports.get_or_insert_with(|| [0; 2].map(|_| Port::new(wire, law)));
        ports.iter_mut().for_each(|port| port.set(wire, law));
    }

    pub fn rate(&self) -> Option<u64> {
        self.rate
    }

    /// The law of a direction, where the rate is known.
    pub fn port(&self, way: Way) -> Option<&Port> {
        self.ports.as_ref().map(|ports| &ports[way as usize])
    }

    /// Whether bulk goes through it: without any there is no queue of it to look for, and nothing to decide soon. What begins
    /// has the little that a quiet connection may take until then.
    pub fn has_bulk(&self) -> bool {
        let has = |port: &Port| port.bulk_used() > BUSY * port.bulk();
        self.ports.as_ref().is_some_and(|ports| ports.iter().any(has))
    }

    /// What connections to this machine that are not seen yet may begin with, in bytes of payload a second, by its addresses on
    /// this interface.
    pub fn begin(&self) -> BTreeMap<IpAddr, u64> {
        let rate = self.port(Way::In).and_then(|port| Some(port.payload(port.begin()?) as u64));
        let Some(rate) = rate else { return BTreeMap::new() };
        self.flows.keys().map(|(here, _)| (here.ip(), rate)).collect()
    }

    /// Whether it carries more than the known connections explain.
    pub fn has_strays(&self) -> bool {
        self.ports.as_ref().is_some_and(|ports| ports.iter().any(Port::has_strays))
    }

    /// Takes in what was counted; answers what is ordered, by the ends as the sender sees them and whether that is this machine.
    pub fn observe(
        &mut self,
        way: Way,
        seen: &Seen,
        seconds: f64,
        probe_s: Option<f64>,
    ) -> Vec<((Ends, bool), Limit)> {
        note(&mut self.flows, &seen.flows, way, seconds);
        note(&mut self.others, &seen.others, way, seconds);
        let Some(ports) = &mut self.ports else { return Vec::new() };
        let port = &mut ports[way as usize];
        let flows: Vec<Flow> = seen.flows.iter().map(|flow| law_flow(way, flow)).collect();
        let order = port.observe(&Interval {
            seconds,
            carried: way.of_all(seen),
            between: seen.between,
            flows: &flows,
            messages: seen.messages[way as usize],
            rest: seen.rest,
            probe_s,
        });
        let (in_half, mut out) = (port.wants_half_frames(), Vec::new());
        for flow in &seen.flows {
            let rate = match &order {
                Order::Free => None,
                Order::Paced(rates) => rates.get(&flow.id).map(|rate| port.payload(*rate) as u64),
            };
            self.flows.entry(flow.ends).or_default().limits[way as usize] = rate;
            out.extend(rate.map(|rate| (sender_key(way, flow.ends), Limit { rate, in_half })));
        }
        out
    }
}

/// What connections carry, smoothed.
fn note(all: &mut BTreeMap<Ends, Use>, seen: &[SeenFlow], way: Way, seconds: f64) {
    let there: BTreeSet<Ends> = seen.iter().map(|flow| flow.ends).collect();
    all.retain(|ends, _| there.contains(ends));
    for flow in seen {
        let rate = &mut all.entry(flow.ends).or_default().rates[way as usize];
        let weight = (seconds / SHOWN_OVER_S).min(1.0);
        *rate += weight * (way.of_flow(flow).bytes / seconds.max(1e-6) - *rate);
    }
}

fn law_flow(way: Way, flow: &SeenFlow) -> Flow {
    Flow { id: flow.id, node: number_of(flow.ends.1.ip()), carried: way.of_flow(flow) }
}

fn sender_key(way: Way, (here, there): Ends) -> (Ends, bool) {
    match way {
        Way::In => ((there, here), false),
        Way::Out => ((here, there), true),
    }
}

/// A machine, by its address.
fn number_of(address: IpAddr) -> u64 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => {
            let all = u128::from(address);
            (all >> 64) as u64 ^ all as u64
        }
    }
}

/// A port of whose rate bulk uses less than this part needs no attention.
const BUSY: f64 = 0.01;
/// The rates that are shown are means of about this long.
const SHOWN_OVER_S: f64 = 0.5;
