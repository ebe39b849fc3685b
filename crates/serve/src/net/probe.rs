//! Round trips of a small request to other nodes.
//!
//! Each node is asked once a second. While bulk flows one of them is asked often: a queue at this node's port shows in every
//! answer, so one is enough, and best one that sends no bulk itself.

use super::Net;
use covey_cluster::config::Address;
use covey_cluster::reach::read_text;
use covey_ninep::client::Conn;
use covey_ninep::message::Message;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Round trips.
#[derive(Default)]
pub struct Probes {
    of: RefCell<BTreeMap<String, Trip>>,
    /// The newest of the node that is asked often, until it is used.
    newest: Cell<Option<f64>>,
}

/// Those of one node, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trip {
    /// The shortest.
    pub least: f64,
    /// The last.
    pub last: f64,
}

impl Probes {
    /// The newest round trip, once.
    pub fn take(&self) -> Option<f64> {
        self.newest.take()
    }

    /// Those of a node.
    pub fn of(&self, node: &str) -> Option<Trip> {
        self.of.borrow().get(node).copied()
    }

    fn note(&self, node: &str, last: f64) {
        let mut all = self.of.borrow_mut();
        let trip = all.entry(node.to_owned()).or_insert(Trip { least: last, last });
        *trip = Trip { least: trip.least.min(last), last };
    }
}

/// Begins to ask all nodes that have an address beyond this machine.
pub fn start(net: &Rc<Net>) {
    let others = net.config.nodes.iter().filter(|node| node.name != net.name);
    for node in others {
        if node.listen.iter().any(|address| matches!(address, Address::Tcp { .. })) {
            tokio::task::spawn_local(ask(net.clone(), node.name.clone()));
        }
    }
}

async fn ask(net: Rc<Net>, node: String) {
    let mut conn: Option<Conn> = None;
    let mut heard = Instant::now();
    loop {
        let is_often = net.is_asked_often(&node);
        tokio::time::sleep(if is_often { OFTEN } else { SELDOM }).await;
        if !net.set.borrow().on {
            continue;
        }
        let Some(live) = conn.take().filter(|conn| !conn.is_lost()) else {
            conn = net.cluster.dial_quietly(&node).await.ok();
            continue;
        };
        let begun = Instant::now();
        let asked = live.call(Message::Tgetattr { fid: 0, request_mask: 1 });
        if let Ok(Ok(_)) = tokio::time::timeout(PATIENCE, asked).await {
            let trip = begun.elapsed().as_secs_f64();
            net.probes.note(&node, trip);
            if is_often {
                net.probes.newest.set(Some(trip));
            }
        }
        if heard.elapsed() >= SELDOM && net.has_bulk_with(&node) {
            heard = Instant::now();
            if let Ok(Ok(text)) = tokio::time::timeout(PATIENCE, read_text(&live, IMAGES)).await {
                net.images.hear(&node, &text);
            }
        }
        conn = Some(live);
    }
}

impl Net {
    /// Whether this is the node whose answers show a queue best.
    fn is_asked_often(&self, node: &str) -> bool {
        let wires = self.wires.borrow();
        if !wires.values().any(super::wire::Wire::is_busy) {
            return false;
        }
        let sends = |name: &str| self.bulk_from(&wires, name) > QUIET_BYTES_PER_S;
        let known = |name: &&str| self.probes.of(name).is_some();
        let others = || self.config.nodes.iter().map(|node| node.name.as_str()).filter(known);
        others().find(|name| !sends(name)).or_else(|| others().next()) == Some(node)
    }
}

/// Where a node says which of its connections carry images.
const IMAGES: &str = "net/images";
const OFTEN: Duration = Duration::from_millis(10);
const SELDOM: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(2);
/// A node that sends less does not fill its own queue.
const QUIET_BYTES_PER_S: f64 = 100_000.0;
