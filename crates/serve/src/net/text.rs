//! `/net/ports` and the files of `/net/peers`: lines of names and values.

use super::Net;
use super::wire::{Way, Wire};
use std::collections::BTreeMap;
use std::iter::repeat;

/// A file of a node, and how its text is made.
type File = (&'static str, fn(&Net, &str) -> String);

/// The files of each peer.
pub const FILES: [File; 3] =
    [("latency", latency), ("bandwidth", bandwidth), ("pacing", pacing_text)];

impl Net {
    /// Each port and direction, and each connection of bulk.
    pub fn ports_text(&self) -> String {
        let set = self.set.borrow();
        let state = if set.on { "on" } else { "off" };
        let mut out = format!("pacing {state}\n");
        for (name, wire) in self.wires.borrow().iter() {
            for way in [Way::In, Way::Out] {
                out += &port_line(name, wire, way, self.images_of(wire, way));
            }
            let flows = wire.flows.iter().map(|flow| (flow, self.images.class_of(flow.0)));
            for ((ends, used), class) in flows.chain(wire.others.iter().zip(repeat("messages"))) {
                let node = self.name_of(ends.1.ip());
                for way in [Way::In, Way::Out] {
                    let (rate, limit) = (used.rates[way as usize], used.limits[way as usize]);
                    out += &format!(
                        "flow {name} {} local {} peer {} node {node} class {class} bytes_per_s {rate:.0} \
                         limit {}\n",
                        way.name(),
                        ends.0,
                        ends.1,
                        limit_text(limit)
                    );
                }
            }
        }
        out
    }

    /// Bytes a second of bulk that is images.
    fn images_of(&self, wire: &Wire, way: Way) -> f64 {
        let images = wire.flows.iter().filter(|(ends, _)| self.images.has(ends));
        images.map(|(_, used)| used.rates[way as usize]).sum()
    }

    /// The connections that this node serves and that carry images.
    pub fn images_text(&self) -> String {
        let wires = self.wires.borrow();
        self.images.text(wires.values().flat_map(|wire| wire.flows.keys().copied()))
    }

    /// Whether bulk flows between this node and that one.
    pub fn has_bulk_with(&self, node: &str) -> bool {
        let (wires, nodes) = (self.wires.borrow(), self.nodes.borrow());
        let mut flows = wires.values().flat_map(|wire| wire.flows.keys());
        flows.any(|ends| nodes.get(&ends.1.ip()).is_some_and(|name| name == node))
    }

    fn name_of(&self, address: std::net::IpAddr) -> String {
        self.nodes.borrow().get(&address).map_or_else(|| "-".to_owned(), Clone::clone)
    }

    /// Bytes a second of frames that come from a node.
    pub fn bulk_from(&self, wires: &BTreeMap<String, Wire>, node: &str) -> f64 {
        self.sum(wires, node, Way::In)
    }

    fn sum(&self, wires: &BTreeMap<String, Wire>, node: &str, way: Way) -> f64 {
        let nodes = self.nodes.borrow();
        let flows = wires.values().flat_map(|wire| &wire.flows);
        let of = flows.filter(|(ends, _)| nodes.get(&ends.1.ip()).is_some_and(|name| name == node));
        of.map(|(_, used)| used.rates[way as usize]).sum()
    }
}

fn port_line(name: &str, wire: &Wire, way: Way, images: f64) -> String {
    let way_name = way.name();
    let Some((port, rate)) = wire.port(way).zip(wire.rate()) else {
        return format!("port {name} {way_name} state unknown-rate\n");
    };
    let state = if port.is_guarded() { "paced" } else { "free" };
    let latency = port.latency().map_or_else(String::new, |(least, last)| {
        format!(" least_us {:.0} last_us {:.0}", 1e6 * least, 1e6 * last)
    });
    format!(
        "port {name} {way_name} state {state} bits_per_s {rate} bulk_max {:.0} bulk {:.0} images {images:.0} messages {:.0} \
         message_packets {:.0}{latency}\n",
        port.bulk(),
        port.bulk_used(),
        port.messages(),
        port.message_packets()
    )
}

fn limit_text(limit: Option<u64>) -> String {
    limit.map_or_else(|| "none".to_owned(), |limit| limit.to_string())
}

fn latency(net: &Net, node: &str) -> String {
    net.probes.of(node).map_or_else(String::new, |trip| {
        format!("least_us {:.0}\nlast_us {:.0}\n", 1e6 * trip.least, 1e6 * trip.last)
    })
}

fn bandwidth(net: &Net, node: &str) -> String {
    let wires = net.wires.borrow();
    let of = |way| net.sum(&wires, node, way);
    format!("in {:.0}\nout {:.0}\n", of(Way::In), of(Way::Out))
}

fn pacing_text(net: &Net, node: &str) -> String {
    let (wires, nodes) = (net.wires.borrow(), net.nodes.borrow());
    let flows = wires.values().flat_map(|wire| &wire.flows);
    let of_node: Vec<_> = flows
        .filter(|(ends, _)| nodes.get(&ends.1.ip()).is_some_and(|name| name == node))
        .collect();
    let limit = |way: Way| {
        let limits = of_node.iter().filter_map(|(_, used)| used.limits[way as usize]);
        limits.reduce(|sum, limit| sum + limit)
    };
    format!("in {}\nout {}\n", limit_text(limit(Way::In)), limit_text(limit(Way::Out)))
}
