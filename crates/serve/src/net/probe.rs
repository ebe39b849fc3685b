//! Round trips of a small request to other nodes.
//!
//! Each node is asked once a second. While bulk flows two of them are asked often, best ones that send no bulk themselves. A queue
//! at this node's port shows in every answer, so the quicker one counts: who is slow, or says so, takes nothing from bulk.

use super::Net;
use covey_cluster::config::Address;
use covey_cluster::reach::read_text;
use covey_io::os::card;
use covey_ninep::client::Conn;
use covey_ninep::message::Message;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Round trips.
#[derive(Default)]
pub struct Probes {
    of: RefCell<BTreeMap<String, Trip>>,
    /// The newest of each node that is asked often, and when it came.
    newest: RefCell<BTreeMap<String, (f64, Instant)>>,
    is_new: Cell<bool>,
    /// Nodes of this machine: there is no wire on the way to them.
    here: RefCell<BTreeSet<String>>,
}

/// Those of one node, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trip {
    /// The shortest.
    pub least: f64,
    /// The last.
    pub last: f64,
    /// When that was.
    pub at: Instant,
}

impl Probes {
    /// The shortest of the newest round trips to those that are asked often, once.
    pub fn take(&self, now: Instant) -> Option<f64> {
        let is_new = self.is_new.replace(false);
        let newest = self.newest.borrow();
        let recent = newest.values().filter(|(_, at)| now.duration_since(*at) <= NEW_FOR);
        recent.map(|(trip, _)| *trip).reduce(f64::min).filter(|_| is_new)
    }

    /// Those of a node.
    pub fn of(&self, node: &str) -> Option<Trip> {
        self.of.borrow().get(node).copied()
    }

    fn note(&self, node: &str, last: f64, at: Instant) {
        let mut all = self.of.borrow_mut();
        let least = all.get(node).map_or(last, |trip| trip.least.min(last));
        all.insert(node.to_owned(), Trip { least, last, at });
    }

    fn note_often(&self, node: &str, last: f64, at: Instant) {
        self.newest.borrow_mut().insert(node.to_owned(), (last, at));
        self.is_new.set(true);
    }

    /// Of all nodes, those that are asked often: others that answer, and first those that are `quiet`.
    fn witnesses<'a>(
        &self,
        all: impl Iterator<Item = &'a str> + Clone,
        is_quiet: impl Fn(&str) -> bool,
        now: Instant,
    ) -> Vec<&'a str> {
        let answers = |name: &&str| {
            let last = self.of(name).map(|trip| trip.at);
            let is_heard = last.is_some_and(|at| now.duration_since(at) <= HEARD_FOR);
            is_heard && !self.here.borrow().contains(*name)
        };
        let others = all.filter(answers);
        let quiet = others.clone().filter(|name| is_quiet(name));
        quiet.chain(others.clone().filter(|name| !is_quiet(name))).take(WITNESSES).collect()
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
    if net.is_here(&node).await {
        net.probes.here.borrow_mut().insert(node.clone());
    }
    loop {
        let often = net.is_asked_every(&node);
        let is_often = often.is_some();
        tokio::time::sleep(often.unwrap_or(SELDOM)).await;
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
            net.probes.note(&node, trip, Instant::now());
            if is_often {
                net.probes.note_often(&node, trip, Instant::now());
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
    /// How often this node is asked, where it is one of those whose answers show a queue best: all of them together are asked as
    /// often as one would be.
    fn is_asked_every(&self, node: &str) -> Option<Duration> {
        let wires = self.wires.borrow();
        if !wires.values().any(super::wire::Wire::has_bulk) {
            return None;
        }
        let is_quiet = |name: &str| self.bulk_from(&wires, name) <= QUIET_BYTES_PER_S;
        let all = self.config.nodes.iter().map(|node| node.name.as_str());
        let asked = self.probes.witnesses(all, is_quiet, Instant::now());
        let place = asked.iter().position(|name| *name == node);
        place.map(|_| OFTEN * u32::try_from(asked.len()).unwrap_or(1))
    }

    /// Whether a node is of this machine.
    async fn is_here(&self, node: &str) -> bool {
        let listen = self.config.nodes.iter().filter(|one| one.name == node);
        for host in listen.flat_map(|one| &one.listen).filter_map(Address::host) {
            let addresses = tokio::net::lookup_host((host, 0)).await;
            let mut addresses = addresses.into_iter().flatten().map(|one| one.ip().to_canonical());
            if addresses.any(|ip| matches!(card::with_address(ip), Ok(Some(_)))) {
                return true;
            }
        }
        false
    }
}

/// Where a node says which of its connections carry images.
const IMAGES: &str = "net/images";
/// So many nodes are asked often.
const WITNESSES: usize = 2;
/// The newest round trip to one of them counts for this long: each is asked every other time.
const NEW_FOR: Duration = Duration::from_millis(35);
/// A node that was silent for longer is not one of them.
const HEARD_FOR: Duration = Duration::from_secs(3);
const OFTEN: Duration = Duration::from_millis(10);
const SELDOM: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(2);
/// A node that sends less does not fill its own queue.
const QUIET_BYTES_PER_S: f64 = 100_000.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// Without this a node that answers late has bulk cut for a queue that is not there.
    #[test]
    fn the_quicker_of_two_nodes_counts() {
        let (probes, now) = (Probes::default(), Instant::now());
        let later = |ms| now + Duration::from_millis(ms);
        probes.note_often("slow", 0.2, now);
        assert_eq!(probes.take(now), Some(0.2));
        assert_eq!(probes.take(now), None, "there is none that is new");
        probes.note_often("quick", 0.000_3, later(10));
        assert_eq!(probes.take(later(10)), Some(0.000_3));
        probes.note_often("slow", 0.2, later(20));
        assert_eq!(probes.take(later(20)), Some(0.000_3), "it is asked every other time");
        probes.note_often("slow", 0.2, later(90));
        assert_eq!(probes.take(later(90)), Some(0.2), "the other one is silent");
    }

    #[test]
    fn those_are_asked_that_answer_and_are_elsewhere_and_quiet_ones_first() {
        let (probes, now) = (Probes::default(), Instant::now());
        let all = ["n1", "n2", "n3", "n4", "n5"];
        let asked = |quiet: &str, now| probes.witnesses(all.into_iter(), |name| name == quiet, now);
        assert!(asked("n4", now).is_empty(), "nobody has answered yet");
        all[..4].iter().for_each(|node| probes.note(node, 0.1, now));
        probes.here.borrow_mut().insert("n1".to_owned());
        assert_eq!(asked("n4", now), ["n4", "n2"]);
        assert_eq!(asked("n5", now), ["n2", "n3"]);
        let late = now + 2 * HEARD_FOR;
        probes.note("n3", 0.1, late);
        assert_eq!(asked("n4", late), ["n3"]);
    }
}
