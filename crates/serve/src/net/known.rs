//! Which connections are counted: bulk, and those of other programs that carry something.
//!
//! All connections of the machine are listed where something goes through an interface that those known do not explain; a
//! list takes the kernel milliseconds, so that is done no more often than it can afford. In between, the known ones are asked
//! for by name, and this process's own are known as soon as they are enrolled.

use covey_io::os::net::flows::{Flow, Flows};
use covey_io::os::net::pacing::Ends;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Whose a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// This project's own storage.
    Bulk,
    /// Another program's.
    Other,
}

/// The connections that are counted.
pub struct Known {
    flows: Flows,
    all: BTreeMap<Ends, Entry>,
    /// Every connection of the last list.
    listed: BTreeMap<Ends, Flow>,
    lists: Lists,
    id_next: u64,
}

/// One of them.
struct Entry {
    id: u64,
    kind: Kind,
    flow: Flow,
    /// Its counts are those of a reading, so that the next one tells what has moved.
    is_read: bool,
}

/// When connections were listed.
struct Lists {
    last: Option<Instant>,
    took: Duration,
    is_wanted: bool,
    /// When a list had no new bulk.
    complete: Option<Instant>,
}

/// What a look has found.
#[derive(Default)]
pub struct Looked {
    /// Connections that can still carry something.
    pub moved: Vec<Moved>,
    /// This machine's addresses of bulk that has ended.
    pub ended: Vec<IpAddr>,
}

/// One connection in two readings.
pub struct Moved {
    /// Names it as long as it lasts.
    pub id: u64,
    /// Whose it is.
    pub kind: Kind,
    /// The reading before; the same where there was none.
    pub before: Flow,
    /// This one.
    pub now: Flow,
}

impl Known {
    /// The error is that of a kernel that lists no connections.
    pub fn open() -> io::Result<Known> {
        let lists = Lists { last: None, took: Duration::ZERO, is_wanted: false, complete: None };
        let (all, listed) = (BTreeMap::new(), BTreeMap::new());
        Ok(Known { flows: Flows::open()?, all, listed, lists, id_next: 0 })
    }

    /// Begins anew.
    pub fn forget(&mut self) {
        self.all.clear();
        self.listed.clear();
        (self.lists.last, self.lists.complete) = (None, None);
    }

    /// Something goes through an interface that is not explained.
    pub fn want_list(&mut self) {
        self.lists.is_wanted = true;
    }

    /// Whether no bulk was unknown a moment ago.
    pub fn is_complete(&self) -> bool {
        self.lists.complete.is_some_and(|at| at.elapsed() <= COMPLETE_FOR)
    }

    /// Learns of connections, of all where that is due. Answers this machine's addresses of new bulk.
    pub fn renew(&mut self, ports: &BTreeSet<u16>, ours: &[Ends]) -> io::Result<Vec<IpAddr>> {
        let mut new = Vec::new();
        for (local, peer) in ours {
            let flow = Flow::any(*local, *peer);
            let is_new = is_bulk(&flow, ports) && !self.all.contains_key(&(*local, *peer));
            // One that has just ended is enrolled a little longer.
            if is_new && !self.flows.look(&[flow])?.is_empty() {
                self.admit(Kind::Bulk, flow);
                new.push(local.ip());
            }
        }
        if self.lists.is_due() {
            new.extend(self.list(ports)?);
        }
        Ok(new)
    }

    /// What all of them have carried by now.
    pub fn look(&mut self) -> io::Result<Looked> {
        let asked: Vec<Flow> = self.all.values().map(|entry| entry.flow).collect();
        let is_many = asked.len() > LOOKS_MAX;
        let found = if is_many { self.flows.list()? } else { self.flows.look(&asked)? };
        let mut found: BTreeMap<Ends, Flow> = by_ends(found);
        let mut looked = Looked::default();
        self.all.retain(|ends, entry| {
            let now = found.remove(ends).filter(|now| now.is(&entry.flow));
            let Some(now) = now else {
                looked.ended.extend((entry.kind == Kind::Bulk).then_some(ends.0.ip()));
                return false;
            };
            let before = if entry.is_read { entry.flow } else { now };
            looked.moved.push(Moved { id: entry.id, kind: entry.kind, before, now });
            (entry.flow, entry.is_read) = (now, true);
            true
        });
        Ok(looked)
    }

    fn list(&mut self, ports: &BTreeSet<u16>) -> io::Result<Vec<IpAddr>> {
        let begun = Instant::now();
        let found = by_ends(self.flows.list()?);
        self.lists.took = begun.elapsed();
        Ok(self.take_list(found, ports))
    }

    fn take_list(&mut self, found: BTreeMap<Ends, Flow>, ports: &BTreeSet<u16>) -> Vec<IpAddr> {
        let now = Instant::now();
        (self.lists.last, self.lists.is_wanted) = (Some(now), false);
        let mut new = Vec::new();
        for flow in found.values().filter(|flow| is_bulk(flow, ports)) {
            let ends = (flow.local, flow.peer);
            if self.all.get(&ends).is_none_or(|entry| !entry.flow.is(flow)) {
                self.admit(Kind::Bulk, *flow);
                new.push(flow.local.ip());
            }
        }
        self.choose_others(&found, ports);
        self.lists.complete = new.is_empty().then_some(now);
        self.listed = found;
        new
    }

    /// Those of other programs that have carried something since the last list, the most active ones.
    fn choose_others(&mut self, found: &BTreeMap<Ends, Flow>, ports: &BTreeSet<u16>) {
        let others = found.values().filter(|flow| !is_here(flow) && !is_bulk(flow, ports));
        let mut active: Vec<(u32, Flow)> = others
            .map(|flow| (self.moved_since_list(flow), *flow))
            .filter(|(segments, _)| *segments > 0)
            .collect();
        active.sort_by_key(|(segments, _)| std::cmp::Reverse(*segments));
        active.truncate(OTHERS_MAX);
        let chosen: BTreeMap<Ends, Flow> = by_ends(active.into_iter().map(|(_, flow)| flow));
        self.all.retain(|ends, entry| {
            entry.kind == Kind::Bulk || chosen.get(ends).is_some_and(|flow| flow.is(&entry.flow))
        });
        for (ends, flow) in chosen {
            if !self.all.contains_key(&ends) {
                self.admit(Kind::Other, flow);
            }
        }
    }

    fn moved_since_list(&self, flow: &Flow) -> u32 {
        let segments = |flow: &Flow| flow.received.segments.wrapping_add(flow.sent.segments);
        let before = self.listed.get(&(flow.local, flow.peer)).filter(|before| before.is(flow));
        match before {
            Some(before) => segments(flow).wrapping_sub(segments(before)),
            // It is new, unless everything is.
            None if self.listed.is_empty() => 0,
            None => segments(flow),
        }
    }

    fn admit(&mut self, kind: Kind, flow: Flow) {
        self.id_next += 1;
        let entry = Entry { id: self.id_next, kind, flow, is_read: false };
        self.all.insert((flow.local, flow.peer), entry);
    }
}

impl Lists {
    fn is_due(&self) -> bool {
        let Some(last) = self.last else { return true };
        let (since, pause) = (last.elapsed(), PAUSE_MIN.max(self.took * PAUSE_PARTS));
        since > PAUSE_MAX || (self.is_wanted && since > pause)
    }
}

fn by_ends(flows: impl IntoIterator<Item = Flow>) -> BTreeMap<Ends, Flow> {
    flows.into_iter().map(|flow| ((flow.local, flow.peer), flow)).collect()
}

fn is_bulk(flow: &Flow, ports: &BTreeSet<u16>) -> bool {
    !is_here(flow) && (ports.contains(&flow.local.port()) || ports.contains(&flow.peer.port()))
}

/// Between two programs of this machine there is no wire.
fn is_here(flow: &Flow) -> bool {
    flow.local.ip() == flow.peer.ip() || flow.peer.ip().is_loopback()
}

/// After a list without new bulk, what no connection explains is messages, for so long.
const COMPLETE_FOR: Duration = Duration::from_millis(200);
/// The shortest time between two lists, and as a multiple of what one takes: that is at most 3 % of a CPU.
const PAUSE_MIN: Duration = Duration::from_millis(40);
const PAUSE_PARTS: u32 = 33;
/// The longest.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// With more connections than this a list costs less than looking at each.
const LOOKS_MAX: usize = 500;
/// So many connections of other programs are counted; the rest of their frames belong to no connection.
const OTHERS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(port: u16, peer: u16, segments: u32) -> Flow {
        let ends = |machine, port| ([10, 0, 0, machine], port).into();
        let mut flow = Flow::any(ends(1, port), ends(2, peer));
        flow.sent.segments = segments;
        flow
    }

    /// None where the kernel lists no connections.
    fn known() -> Option<Known> {
        Known::open().ok()
    }

    fn chosen(known: &Known) -> Vec<(u16, Kind)> {
        known.all.iter().map(|(ends, entry)| (ends.0.port(), entry.kind)).collect()
    }

    #[test]
    fn of_other_programs_those_count_that_carry_something() {
        let Some(mut known) = known() else { return covey_harness::skip("no sock_diag") };
        let ports = BTreeSet::from([5640]);
        let first = [flow(1, 99, 500), flow(2, 5640, 500), flow(3, 22, 7)];
        known.take_list(by_ends(first), &ports);
        // What began before the first list may be idle.
        assert_eq!(chosen(&known), [(2, Kind::Bulk)]);
        let then = [flow(1, 99, 900), flow(2, 5640, 900), flow(3, 22, 7), flow(4, 80, 3)];
        assert!(known.take_list(by_ends(then), &ports).is_empty());
        assert_eq!(chosen(&known), [(1, Kind::Other), (2, Kind::Bulk), (4, Kind::Other)]);
        known.take_list(by_ends([flow(1, 99, 900), flow(4, 80, 9)]), &ports);
        assert_eq!(chosen(&known), [(2, Kind::Bulk), (4, Kind::Other)], "one was idle");
    }

    #[test]
    fn new_bulk_leaves_a_list_incomplete() {
        let Some(mut known) = known() else { return covey_harness::skip("no sock_diag") };
        let ports = BTreeSet::from([5640]);
        let address: IpAddr = [10, 0, 0, 1].into();
        assert_eq!(known.take_list(by_ends([flow(2, 5640, 5)]), &ports), [address]);
        assert!(!known.is_complete());
        assert!(known.take_list(by_ends([flow(2, 5640, 9)]), &ports).is_empty());
        assert!(known.is_complete());
        known.forget();
        assert!(!known.is_complete() && known.all.is_empty());
    }

    #[test]
    fn lists_keep_their_distance() {
        let ago = |ms| Instant::now().checked_sub(Duration::from_millis(ms));
        let lists = |last, took_ms, is_wanted| Lists {
            last,
            took: Duration::from_millis(took_ms),
            is_wanted,
            complete: None,
        };
        assert!(lists(None, 0, false).is_due());
        assert!(lists(ago(5000), 0, false).is_due());
        assert!(!lists(ago(500), 0, false).is_due());
        assert!(lists(ago(500), 2, true).is_due());
        assert!(!lists(ago(500), 100, true).is_due(), "it takes too long");
    }
}
