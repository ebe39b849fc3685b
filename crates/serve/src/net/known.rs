//! Which connections are counted: bulk, and those of other programs that carry something.
//!
//! All connections of the machine are listed where something goes through an interface that those known do not explain; a
//! list takes the kernel milliseconds, so that is done no more often than it can afford. In between, the known ones are asked
//! for by name, and this process's own are known as soon as they are enrolled. Most connections of a node are idle most of the
//! time: those are asked for in turn, or where an interface carries more than the others explain.

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
    /// Looks so far.
    looks: u64,
}

/// One of them.
struct Entry {
    id: u64,
    kind: Kind,
    flow: Flow,
    /// Its counts are those of a reading, so that the next one tells what has moved.
    is_read: bool,
    /// How many readings ago something has moved.
    still: u32,
    /// The look at which it was read last.
    read_at: u64,
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
        Ok(Known { flows: Flows::open()?, all, listed, lists, id_next: 0, looks: 0 })
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

    /// What all of them have carried by now. Of those that are idle only some are asked for, unless what the others have carried
    /// is not all, as `is_short` says.
    pub fn look(&mut self, is_short: impl FnOnce(&[Moved]) -> bool) -> io::Result<Looked> {
        self.looks += 1;
        let mut looked = Looked::default();
        if self.all.len() > LOOKS_MAX {
            let found = self.flows.list()?;
            self.take(by_ends(found), |_| true, &mut looked);
            return Ok(looked);
        }
        let turn = self.looks;
        let is_due = |entry: &Entry| entry.still < STILL || entry.id % TURNS == turn % TURNS;
        self.look_at(is_due, &mut looked)?;
        let is_rest = |entry: &Entry| entry.read_at != turn;
        if self.all.values().any(is_rest) && is_short(&looked.moved) {
            self.look_at(is_rest, &mut looked)?;
        } else {
            looked.moved.extend(self.all.values().filter(|entry| is_rest(entry)).map(Entry::rests));
        }
        Ok(looked)
    }

    fn look_at(&mut self, whose: impl Fn(&Entry) -> bool, looked: &mut Looked) -> io::Result<()> {
        let asked = self.all.values().filter(|entry| whose(entry)).map(|entry| entry.flow);
        let found = self.flows.look(&asked.collect::<Vec<_>>())?;
        self.take(by_ends(found), whose, looked);
        Ok(())
    }

    /// Takes in what those that were asked for have carried. The rest of them have ended.
    fn take(
        &mut self,
        mut found: BTreeMap<Ends, Flow>,
        whose: impl Fn(&Entry) -> bool,
        looked: &mut Looked,
    ) {
        let turn = self.looks;
        self.all.retain(|ends, entry| {
            if !whose(entry) {
                return true;
            }
            entry.read_at = turn;
            let now = found.remove(ends).filter(|now| now.is(&entry.flow));
            match now {
                Some(now) => looked.moved.push(entry.read(now)),
                None => looked.ended.extend((entry.kind == Kind::Bulk).then_some(ends.0.ip())),
            }
            now.is_some()
        });
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
        let entry = Entry { id: self.id_next, kind, flow, is_read: false, still: 0, read_at: 0 };
        self.all.insert((flow.local, flow.peer), entry);
    }
}

impl Entry {
    /// Takes in a reading.
    fn read(&mut self, now: Flow) -> Moved {
        let before = if self.is_read { self.flow } else { now };
        let has_moved = (before.received, before.sent) != (now.received, now.sent);
        self.still = if has_moved || !self.is_read { 0 } else { self.still.saturating_add(1) };
        (self.flow, self.is_read) = (now, true);
        Moved { id: self.id, kind: self.kind, before, now }
    }

    /// One that was not asked for.
    fn rests(&self) -> Moved {
        Moved { id: self.id, kind: self.kind, before: self.flow, now: self.flow }
    }
}

impl Moved {
    /// How many segments it has carried since the reading before.
    pub fn segments(&self) -> u64 {
        let moved = |now: u32, before: u32| u64::from(now.wrapping_sub(before));
        moved(self.now.received.segments, self.before.received.segments)
            + moved(self.now.sent.segments, self.before.sent.segments)
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
/// A connection that has carried nothing for so many readings is idle.
const STILL: u32 = 20;
/// An idle one is asked for at one of so many looks.
const TURNS: u64 = 16;
/// With more connections than this a list costs less than looking at each.
const LOOKS_MAX: usize = 500;
/// So many connections of other programs are counted; the rest of their frames belong to no connection.
const OTHERS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

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

    /// A node has dozens of connections that carry nothing, and looks at them a hundred times a second.
    #[test]
    fn idle_connections_are_asked_for_in_turn_or_where_something_is_missing() {
        let Some(mut known) = known() else { return covey_harness::skip("no sock_diag") };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let pairs: Vec<_> = (0..TURNS)
            .map(|_| (TcpStream::connect(to).unwrap(), listener.accept().unwrap().0))
            .collect();
        for (client, _) in &pairs {
            known.admit(Kind::Bulk, Flow::any(client.local_addr().unwrap(), to));
        }
        let read =
            |known: &Known| known.all.values().filter(|one| one.read_at == known.looks).count();
        let moved = |looked: &Looked| looked.moved.iter().map(Moved::segments).sum::<u64>();
        for _ in 0..=STILL {
            assert_eq!(known.look(|_| false).unwrap().moved.len(), pairs.len());
            assert_eq!(read(&known), pairs.len());
        }
        for _ in 0..TURNS {
            assert_eq!(known.look(|_| false).unwrap().moved.len(), pairs.len());
            assert_eq!(read(&known), 1);
        }
        (&pairs[3].0).write_all(&[7; 1000]).unwrap();
        (&pairs[3].1).read_exact(&mut [0; 1000]).unwrap();
        let looked = known.look(|moved| moved.len() == 1).unwrap();
        assert_eq!((read(&known), looked.moved.len()), (pairs.len(), pairs.len()));
        assert!(moved(&looked) >= 1);
        // It is not idle any more; neither is it counted twice.
        (&pairs[3].0).write_all(&[7; 1000]).unwrap();
        (&pairs[3].1).read_exact(&mut [0; 1000]).unwrap();
        assert!(moved(&known.look(|_| false).unwrap()) >= 1);
        assert!((1..=2).contains(&read(&known)));
        drop(pairs);
        let ended = (0..TURNS).map(|_| known.look(|_| false).unwrap().ended.len());
        assert_eq!(ended.sum::<usize>(), TURNS as usize);
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
