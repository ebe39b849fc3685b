//! Who is connected to a node's volumes: strangers, who have not logged in to a target, and initiators, who have.
//!
//! As in the [`lobby`](crate::lobby) strangers are few, compete with those of their own place, and are soon gone: sessions of
//! discovery, too, whoever may ask which targets there are. Initiators are many, but never so many that the node's stores
//! lack file descriptors, and what is held for those of one place has a limit. Root and the server's own user could stop the node anyway: they have no limit.

use crate::lobby::crowd::{Crowd, Origin};
use crate::lobby::pace::Pace;
use covey_io::os::limits;
use covey_io::os::net::PeerInfo;
use covey_iscsi::target::{Room, Ticket};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// All iSCSI connections of a process.
#[derive(Debug)]
pub struct Gate {
    own_uid: u32,
    limits: Limits,
    state: Mutex<State>,
    /// What is held for all initiators that have a limit.
    held: AtomicU64,
    log: Mutex<Pace>,
}

#[derive(Clone, Copy, Debug)]
struct Limits {
    strangers: usize,
    initiators: usize,
    /// Initiators from one place.
    of_one: usize,
    /// What is held for them.
    of_one_bytes: u64,
    /// What is held for all.
    bytes: u64,
}

#[derive(Debug)]
struct State {
    last: u64,
    strangers: Crowd<oneshot::Sender<()>>,
    /// Connections that have logged in, by place.
    known: HashMap<Origin, Known>,
}

#[derive(Debug, Default)]
struct Known {
    count: usize,
    held: Arc<AtomicU64>,
}

/// A connection's place, given back where it is dropped.
#[derive(Debug)]
pub struct Place {
    gate: Arc<Gate>,
    number: u64,
    from: Origin,
    standing: Standing,
    /// What is held for its place, and of that for this connection.
    held: Arc<AtomicU64>,
    own_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Stranger,
    /// Counted with others from there.
    Known,
    Trusted,
}

impl Gate {
    /// Nobody is there yet. The process may have `files` open.
    pub fn new(files: u64) -> Arc<Gate> {
        let files = usize::try_from(files).unwrap_or(usize::MAX);
        let initiators = (files / 4).max(8);
        let bytes = limits::memory_bytes() / 4;
        let limits = Limits {
            strangers: STRANGERS_MAX.min((files / 8).max(8)),
            initiators,
            of_one: OF_ONE_MAX.min((initiators / 2).max(4)),
            of_one_bytes: OF_ONE_BYTES_MAX.min(bytes / 2),
            bytes,
        };
        Gate::limited(limits, rustix::process::geteuid().as_raw())
    }

    fn limited(limits: Limits, own_uid: u32) -> Arc<Gate> {
        let strangers = Crowd::new(limits.strangers);
        let state = Mutex::new(State { last: 0, strangers, known: HashMap::new() });
        let log = Mutex::new(Pace::new("connections to volumes were refused"));
        Arc::new(Gate { own_uid, limits, state, held: AtomicU64::new(0), log })
    }

    /// A connection has come, which is to end when it is told to. One stranger too many sends another away.
    pub fn enter(self: &Arc<Self>, peer: &PeerInfo) -> (Place, oneshot::Receiver<()>) {
        let (end, ended) = oneshot::channel();
        let from = Origin::of(peer);
        let mut state = self.state();
        state.last += 1;
        let number = state.last;
        let is_trusted = self.vouches_for(peer);
        let standing = if is_trusted { Standing::Trusted } else { Standing::Stranger };
        if standing == Standing::Stranger {
            if let Some(other) = state.strangers.enter(number, from) {
                // One that has ended in the meantime needs no telling.
                let _ = other.send(());
            }
            state.strangers.ends_by(number, end);
        }
        let (held, own_bytes) = Default::default();
        (Place { gate: self.clone(), number, from, standing, held, own_bytes }, ended)
    }

    /// Whether the kernel says that it is root or the server's own user.
    pub fn vouches_for(&self, peer: &PeerInfo) -> bool {
        peer.uid.is_some_and(|uid| uid == 0 || uid == self.own_uid)
    }

    /// Says something about one who does not get in, unless that was said too often.
    pub fn complain(&self, text: impl FnOnce() -> String) {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).complain(text);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ticket for Place {
    fn admit(&mut self) -> bool {
        if self.standing != Standing::Stranger {
            return true;
        }
        let limits = self.gate.limits;
        let mut state = self.gate.state();
        let all: usize = state.known.values().map(|known| known.count).sum();
        let known = state.known.entry(self.from).or_default();
        if all >= limits.initiators || known.count >= limits.of_one {
            let (from, count) = (self.from, known.count);
            drop(state);
            self.gate.complain(|| {
                format!("{from} has {count} connections to volumes, all have {all}: no more get in")
            });
            return false;
        }
        known.count += 1;
        self.held = known.held.clone();
        state.strangers.leave(self.number);
        drop(state);
        self.standing = Standing::Known;
        true
    }

    fn hold(&mut self, bytes: u64) -> Room {
        if self.standing != Standing::Known {
            return Room::Ample;
        }
        let limits = self.gate.limits;
        let of_place = change(&self.held, self.own_bytes, bytes);
        let of_all = change(&self.gate.held, self.own_bytes, bytes);
        self.own_bytes = bytes;
        // Where all together hold too much, those give way whose place has more than its part.
        let has_part = of_place <= limits.bytes / PLACES_MIN;
        let of_all = if has_part { 0 } else { of_all };
        room(of_place, limits.of_one_bytes).max(room(of_all, limits.bytes))
    }
}

/// Sets right what is held; how much that is.
fn change(held: &AtomicU64, before: u64, now: u64) -> u64 {
    let difference = now.wrapping_sub(before);
    held.fetch_add(difference, Ordering::Relaxed).wrapping_add(difference)
}

fn room(held: u64, most: u64) -> Room {
    match held {
        _ if held > most => Room::None,
        _ if held > most / 2 => Room::Scarce,
        _ => Room::Ample,
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.hold(0);
        let mut state = self.gate.state();
        state.strangers.leave(self.number);
        if self.standing != Standing::Known {
            return;
        }
        if let Some(known) = state.known.get_mut(&self.from) {
            known.count -= 1;
            if known.count == 0 {
                state.known.remove(&self.from);
            }
        }
    }
}

/// Most connections that have not logged in, where the limit of open files allows eight times as many.
const STRANGERS_MAX: usize = 256;
/// Most connections from one place that have, where it allows eight times as many.
const OF_ONE_MAX: usize = 1024;
/// Most that is held for those from one place, where half of what all may have is not less.
const OF_ONE_BYTES_MAX: u64 = 1 << 30;
/// So many places have their part of the memory, whatever the others hold.
const PLACES_MIN: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits =
        Limits { strangers: 6, initiators: 5, of_one: 3, of_one_bytes: 100, bytes: 160 };

    fn from(uid: Option<u32>, address: &str) -> PeerInfo {
        let address = address.parse().ok();
        PeerInfo { name: "x".into(), uid, pid: None, loopback: uid.is_some(), address }
    }

    fn has_ended(ended: &mut oneshot::Receiver<()>) -> bool {
        ended.try_recv() == Ok(())
    }

    #[test]
    fn a_flood_from_one_place_displaces_itself() {
        let gate = Gate::limited(LIMITS, 77);
        let (calm, mut calm_ends) = gate.enter(&from(None, "10.0.0.9"));
        let spread = |at: u32| gate.enter(&from(None, &format!("2001:db8::{at:x}")));
        let mut flood: Vec<_> = (1..20).map(spread).collect();
        let user = |at: u32| gate.enter(&from(Some(1000), &format!("127.0.0.{at}")));
        flood.extend((1..20).map(user));
        assert!(!has_ended(&mut calm_ends));
        let left =
            flood.iter_mut().filter_map(|(_, ends)| (!has_ended(ends)).then_some(())).count();
        assert_eq!(left, LIMITS.strangers - 1);
        drop((calm, flood));
        assert!(gate.state().strangers.waiting().is_empty());
    }

    #[test]
    fn what_is_held_for_a_place_and_for_all_has_a_limit() {
        let gate = Gate::limited(LIMITS, 77);
        let log_in = |address: &str| {
            let (mut place, _) = gate.enter(&from(None, address));
            assert!(place.admit());
            place
        };
        let (mut one, mut other) = (log_in("10.0.0.1"), log_in("10.0.0.1"));
        assert_eq!(one.hold(50), Room::Ample);
        assert_eq!(other.hold(1), Room::Scarce);
        assert_eq!(other.hold(51), Room::None);
        // Others have theirs, and a little whatever happens.
        let mut calm = log_in("10.0.0.2");
        assert_eq!(calm.hold(10), Room::Ample);
        assert_eq!(calm.hold(50), Room::Scarce);
        assert_eq!(log_in("10.0.0.3").hold(11), Room::None);
        drop(one);
        assert_eq!(calm.hold(49), Room::Scarce);
        drop(other);
        assert_eq!(calm.hold(50), Room::Ample);
        let (mut root, _ends) = gate.enter(&from(Some(0), "127.0.0.1"));
        assert!(root.admit());
        assert_eq!(root.hold(1000), Room::Ample);
        drop(calm);
        assert_eq!(gate.held.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn initiators_are_limited_by_place_and_in_all() {
        let gate = Gate::limited(LIMITS, 77);
        let log_in = |address: &str| {
            let (mut place, _) = gate.enter(&from(None, address));
            place.admit().then_some(place)
        };
        let mut places: Vec<_> = (0..3).map(|_| log_in("10.0.0.1").unwrap()).collect();
        assert!(log_in("10.0.0.1").is_none());
        places.extend((0..2).map(|_| log_in("10.0.0.2").unwrap()));
        assert!(log_in("10.0.0.3").is_none(), "there are too many in all");
        // Root is let in to mend that.
        let (mut root, _ends) = gate.enter(&from(Some(0), "127.0.0.1"));
        assert!(root.admit());
        places.clear();
        assert!(log_in("10.0.0.3").is_some());
        drop(root);
        assert!(gate.state().known.is_empty());
    }
}
