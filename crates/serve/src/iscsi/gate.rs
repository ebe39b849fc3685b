//! Who is connected to a node's volumes: strangers, who have not logged in to a target, and initiators, who have.
//!
//! As in the [`lobby`](crate::lobby) strangers are few, compete with those of their own place, and are soon gone: sessions of
//! discovery, too, whoever may ask which targets there are. Initiators are many, but never so many that the node's stores
//! lack file descriptors. Root and the server's own user could stop the node anyway: they have no limit.

use crate::lobby::crowd::{Crowd, Origin};
use crate::lobby::pace::Pace;
use covey_io::os::net::PeerInfo;
use covey_iscsi::target::Ticket;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// All iSCSI connections of a process.
#[derive(Debug)]
pub struct Gate {
    own_uid: u32,
    limits: Limits,
    state: Mutex<State>,
    log: Mutex<Pace>,
}

#[derive(Clone, Copy, Debug)]
struct Limits {
    strangers: usize,
    initiators: usize,
    /// Initiators from one place.
    of_one: usize,
}

#[derive(Debug)]
struct State {
    last: u64,
    strangers: Crowd<oneshot::Sender<()>>,
    /// Connections that have logged in, by place.
    known: HashMap<Origin, usize>,
}

/// A connection's place, given back where it is dropped.
#[derive(Debug)]
pub struct Place {
    gate: Arc<Gate>,
    number: u64,
    from: Origin,
    standing: Standing,
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
        let limits = Limits {
            strangers: STRANGERS_MAX.min((files / 8).max(8)),
            initiators,
            of_one: OF_ONE_MAX.min((initiators / 2).max(4)),
        };
        Gate::limited(limits, rustix::process::geteuid().as_raw())
    }

    fn limited(limits: Limits, own_uid: u32) -> Arc<Gate> {
        let strangers = Crowd::new(limits.strangers);
        let state = Mutex::new(State { last: 0, strangers, known: HashMap::new() });
        let log = Mutex::new(Pace::new("connections to volumes were refused"));
        Arc::new(Gate { own_uid, limits, state, log })
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
        (Place { gate: self.clone(), number, from, standing }, ended)
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
        let all: usize = state.known.values().sum();
        let count = state.known.entry(self.from).or_default();
        if all >= limits.initiators || *count >= limits.of_one {
            let (from, count) = (self.from, *count);
            drop(state);
            self.gate.complain(|| {
                format!("{from} has {count} connections to volumes, all have {all}: no more get in")
            });
            return false;
        }
        *count += 1;
        state.strangers.leave(self.number);
        drop(state);
        self.standing = Standing::Known;
        true
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.gate.state();
        state.strangers.leave(self.number);
        if self.standing != Standing::Known {
            return;
        }
        if let Some(count) = state.known.get_mut(&self.from) {
            *count -= 1;
            if *count == 0 {
                state.known.remove(&self.from);
            }
        }
    }
}

/// Most connections that have not logged in, where the limit of open files allows eight times as many.
const STRANGERS_MAX: usize = 256;
/// Most connections from one place that have, where it allows eight times as many.
const OF_ONE_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { strangers: 6, initiators: 5, of_one: 3 };

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
