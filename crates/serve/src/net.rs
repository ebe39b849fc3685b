//! `/net` of a node: what its ports carry, what latency messages have, and what rates its bulk and that of others may have.
//!
//! ```text
//!   /net/ctl                 on|off, margin, least, rate of an interface, more ports of bulk
//!   /net/ports               each port and direction: rate, bulk, messages, state; and each connection of bulk
//!   /net/pace                rates for the connections of the reader's machine; a read answers when there is news
//!   /net/peers/NODE/{latency,bandwidth,pacing}
//! ```
//!
//! A node counts everything that its interfaces carry and, of that, what is bulk: connections to the ports of this cluster's
//! servers and targets, whichever process they belong to. The law in [`covey_tune::pacer`] makes rates of that. Whoever receives
//! says what its port can take; senders set the rate of their own sockets ([`covey_io::os::net::pacing`]). Design note 0036.

mod counter;
mod ctl;
mod pace;
mod probe;
mod text;
mod wire;

use counter::Counter;
use covey_cluster::config::Config;
use covey_cluster::net::ClusterNet;
use covey_cluster::pace::SILENCE_MAX;
use covey_cluster::tuned::TuneFile;
use covey_io::os::net::pacing::{self, Ends, Port};
use covey_ninep::control::Control;
use covey_ninep::namespace::Namespace;
use covey_ninep::text::Text;
use covey_ninep::tree::{Bell, Result};
use covey_tune::pacer::{INTERVAL_S, Settings};
use probe::Probes;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::{Way, Wire};

/// A node's view of its network.
pub struct Net {
    config: Arc<Config>,
    /// This node.
    name: String,
    cluster: Arc<ClusterNet>,
    set: RefCell<Set>,
    /// The rate that `covey tune` found, in bits a second on the wire: for links whose driver knows none.
    tuned: Option<u64>,
    wires: RefCell<BTreeMap<String, Wire>>,
    /// Other nodes by address.
    nodes: RefCell<BTreeMap<IpAddr, String>>,
    probes: Probes,
    news: News,
}

/// What an administrator can set.
#[derive(Clone, Debug)]
struct Set {
    on: bool,
    law: Settings,
    /// Bits a second, by interface.
    rates: BTreeMap<String, u64>,
    /// TCP ports of bulk.
    ports: BTreeSet<u16>,
}

/// What readers of `/net/pace` are told.
#[derive(Default)]
struct News {
    number: Cell<u64>,
    bell: Bell,
    lines: RefCell<BTreeMap<(Ends, bool), u64>>,
    at: Cell<Option<Instant>>,
}

/// Binds `/net` and begins to count, where the cluster's file asks for pacing.
pub fn bind(
    names: &Namespace,
    config: &Arc<Config>,
    name: &str,
    cluster: Arc<ClusterNet>,
    tune: Option<&TuneFile>,
) -> Result<()> {
    let net = Net::new(config, name, cluster, tune);
    names.bind("net/ctl", Rc::new(Control::new(ctl::NetCommands(net.clone()))))?;
    let ports = net.clone();
    names.bind("net/ports", Rc::new(Text::new(move || ports.ports_text())))?;
    names.bind("net/pace", Rc::new(pace::Pace(net.clone())))?;
    for node in config.nodes.iter().filter(|node| node.name != name) {
        for (file, make) in text::FILES {
            let (net, peer) = (net.clone(), node.name.clone());
            let text = Text::new(move || make(&net, &peer));
            names.bind(&format!("net/peers/{}/{file}", node.name), Rc::new(text))?;
        }
    }
    if config.pacing {
        tokio::task::spawn_local(net.clone().run());
        probe::start(&net);
    }
    Ok(())
}

/// `pacing` is what no queue grows by: TCP payload, a little less than the slowest link carries.
fn rate_of(tune: &TuneFile) -> Option<u64> {
    let paced = tune.choose.pacing.as_ref()?.value as f64;
    let all = covey_tune::wire::Wire::ethernet(1.0, 1500).tcp_bits_per_s();
    Some((paced / PACED / all) as u64)
}

impl Set {
    fn of(config: &Config) -> Set {
        let addresses = config.nodes.iter().flat_map(|node| &node.listen);
        let served = addresses.filter_map(|address| match address {
            covey_cluster::config::Address::Tcp { port, .. } => Some(*port),
            covey_cluster::config::Address::Unix(_) => None,
        });
        let ports = served.chain([ISCSI_PORT]).collect();
        Set { on: config.pacing, law: Settings::default(), rates: BTreeMap::new(), ports }
    }
}

impl Net {
    fn new(
        config: &Arc<Config>,
        name: &str,
        cluster: Arc<ClusterNet>,
        tune: Option<&TuneFile>,
    ) -> Rc<Net> {
        Rc::new(Net {
            config: config.clone(),
            name: name.to_owned(),
            cluster,
            set: RefCell::new(Set::of(config)),
            tuned: tune.and_then(rate_of),
            wires: RefCell::default(),
            nodes: RefCell::default(),
            probes: Probes::default(),
            news: News::default(),
        })
    }

    async fn run(self: Rc<Self>) {
        pacing::enable();
        self.nodes.replace(self.find_nodes().await);
        let mut counter = match Counter::open() {
            Ok(counter) => counter,
            Err(error) => {
                return tracing::warn!(
                    "nothing is paced: the kernel lists no connections: {error}"
                );
            }
        };
        let mut followed = Instant::now();
        loop {
            let is_on = self.set.borrow().on;
            if is_on {
                self.turn(&mut counter);
            } else {
                self.free();
                counter.forget();
            }
            if followed.elapsed() > FOLLOW_EVERY {
                followed = Instant::now();
                self.follow_receivers();
            }
            tokio::time::sleep(self.pause(is_on)).await;
        }
    }

    fn pause(&self, is_on: bool) -> Duration {
        let is_busy = is_on && self.wires.borrow().values().any(Wire::is_busy);
        let seconds = if is_busy { INTERVAL_S } else { 5.0 * INTERVAL_S };
        Duration::from_secs_f64(seconds)
    }

    /// Counts, judges and tells.
    fn turn(&self, counter: &mut Counter) {
        let set = self.set.borrow();
        let probe = self.probes.take();
        let counted = match counter.count(&set.ports) {
            Ok(Some(counted)) => counted,
            Ok(None) => return,
            Err(error) => return tracing::debug!("nothing was counted: {error}"),
        };
        let mut wires = self.wires.borrow_mut();
        let mut lines = BTreeMap::new();
        for (name, seen) in &counted.wires {
            let rate = set.rates.get(name).copied().or(seen.bits_per_s).or(self.tuned);
            let wire = wires.entry(name.clone()).or_insert_with(|| Wire::new(seen.mtu));
            wire.set(rate, set.law);
            for way in [Way::In, Way::Out] {
                lines.extend(wire.observe(way, seen, counted.seconds, probe));
            }
        }
        wires.retain(|name, _| counted.wires.contains_key(name));
        drop(wires);
        self.obey_own(&lines);
        self.news.tell(lines);
    }

    /// The rates of this process's own connections through this node's ports.
    fn obey_own(&self, lines: &BTreeMap<(Ends, bool), u64>) {
        pacing::lift(Port::Sender, |ends| !lines.contains_key(&(*ends, true)));
        for ((ends, is_sender), rate) in lines {
            if *is_sender {
                pacing::limit(*ends, Port::Sender, Some(*rate));
            }
        }
    }

    fn free(&self) {
        self.wires.borrow_mut().clear();
        pacing::lift(Port::Sender, |_| true);
        self.news.tell(BTreeMap::new());
    }

    /// Whoever sends to a node follows what that node's port can take.
    fn follow_receivers(&self) {
        for (address, node) in self.nodes.borrow().iter() {
            if pacing::has(*address) {
                self.cluster.follow(node);
            }
        }
    }

    async fn find_nodes(&self) -> BTreeMap<IpAddr, String> {
        let mut found = BTreeMap::new();
        for node in self.config.nodes.iter().filter(|node| node.name != self.name) {
            for host in node.listen.iter().filter_map(|address| address.host()) {
                let addresses = tokio::net::lookup_host((host, 0)).await;
                let addresses = addresses.into_iter().flatten().map(|address| address.ip());
                found.extend(addresses.map(|ip| (ip.to_canonical(), node.name.clone())));
            }
        }
        found
    }
}

impl News {
    /// Wakes readers where something has changed by more than a little, or nothing was said for a while.
    fn tell(&self, lines: BTreeMap<(Ends, bool), u64>) {
        let is_old = self.at.get().is_none_or(|at| at.elapsed() > SILENCE_MAX / 4);
        if !is_old && is_like(&self.lines.borrow(), &lines) {
            return;
        }
        self.lines.replace(lines);
        self.at.set(Some(Instant::now()));
        self.number.set(self.number.get() + 1);
        self.bell.ring();
    }
}

/// Whether these are the same connections at nearly the same rates.
fn is_like(old: &BTreeMap<(Ends, bool), u64>, new: &BTreeMap<(Ends, bool), u64>) -> bool {
    old.len() == new.len()
        && old.iter().zip(new).all(|((key, rate), (other, now))| {
            key == other && rate.abs_diff(*now) as f64 <= LIKE * *rate as f64
        })
}

/// The part of a link that `covey tune choose` takes for its `pacing`.
const PACED: f64 = 0.95;
/// The port of targets.
const ISCSI_PORT: u16 = 3260;
/// How often it is seen to whom this node sends.
const FOLLOW_EVERY: Duration = Duration::from_millis(200);
/// By what part a rate changes before that is told.
const LIKE: f64 = 0.02;

#[cfg(test)]
mod tests;
