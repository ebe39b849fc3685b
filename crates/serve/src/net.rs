//! `/net` of a node: what its ports carry, what latency messages have, and what rates its bulk and that of others may have.
//!
//! ```text
//!   /net/ctl                 on|off, margin, least, rate of an interface, more ports of bulk
//!   /net/ports               each port and direction: rate, bulk, messages, state; and each connection of bulk
//!   /net/images              the connections of bulk that carry images, as far as this node serves them
//!   /net/pace                rates for the connections of the reader's machine; a read answers when there is news
//!   /net/peers/NODE/{latency,bandwidth,pacing}
//! ```
//!
//! A node counts everything that its interfaces carry and, of that, what is bulk: connections to the ports of this cluster's
//! servers and targets, whichever process they belong to. The law in [`covey_tune::pacer`] makes rates of that. Whoever receives
//! says what its port can take; senders set the rate of their own sockets ([`covey_io::os::net::pacing`]). Design note 0036.

mod class;
mod counter;
mod ctl;
mod known;
mod pace;
mod probe;
mod targets;
mod text;
mod wire;

pub use targets::{TargetPort, TargetPorts};

use crate::iscsi::credits;
use counter::{Counted, Counter};
use covey_cluster::config::Config;
use covey_cluster::net::ClusterNet;
use covey_cluster::pace::{SILENCE_MAX, set_windows};
use covey_cluster::tuned::TuneFile;
use covey_io::os::net::pacing::{self, Ends, Limit, Port};
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
    /// What `covey tune` found that bulk may take of a link, in bits of TCP payload a second.
    tuned: Option<u64>,
    wires: RefCell<BTreeMap<String, Wire>>,
    /// Other nodes by address.
    nodes: RefCell<BTreeMap<IpAddr, String>>,
    probes: Probes,
    news: News,
    images: class::Images,
    targets: TargetPorts,
    has_failed: Cell<bool>,
}

/// What an administrator can set.
#[derive(Clone, Debug)]
struct Set {
    on: bool,
    law: Settings,
    /// Somebody has set the margin.
    has_margin: bool,
    /// Bits a second, by interface.
    rates: BTreeMap<String, u64>,
    /// TCP ports of bulk.
    ports: BTreeSet<u16>,
    /// Bytes that may be on their way on each connection of a client.
    window: Option<usize>,
    /// The mark of packets of bulk.
    dscp: u8,
}

/// What readers of `/net/pace` are told.
#[derive(Default)]
struct News {
    number: Cell<u64>,
    bell: Bell,
    lines: RefCell<BTreeMap<(Ends, bool), Limit>>,
    /// What connections begin with that are not among them, by this machine's address.
    begin: RefCell<BTreeMap<IpAddr, u64>>,
    at: Cell<Option<Instant>>,
}

/// Binds `/net` and begins to count, where the cluster's file asks for pacing.
pub fn bind(
    names: &Namespace,
    config: &Arc<Config>,
    name: &str,
    cluster: Arc<ClusterNet>,
    tune: Option<&TuneFile>,
    targets: TargetPorts,
) -> Result<Rc<Net>> {
    let net = Net::new(config, name, cluster, tune, targets);
    names.bind("net/ctl", Rc::new(Control::new(ctl::NetCommands(net.clone()))))?;
    let ports = net.clone();
    names.bind("net/ports", Rc::new(Text::new(move || ports.ports_text())))?;
    let images = net.clone();
    names.bind("net/images", Rc::new(Text::new(move || images.images_text())))?;
    names.bind("net/pace", Rc::new(pace::Pace(net.clone())))?;
    for node in config.nodes.iter().filter(|node| node.name != name) {
        for (file, make) in text::FILES {
            let (net, peer) = (net.clone(), node.name.clone());
            let text = Text::new(move || make(&net, &peer));
            names.bind(&format!("net/peers/{}/{file}", node.name), Rc::new(text))?;
        }
    }
    if config.pacing.is_on {
        tokio::task::spawn_local(net.clone().run());
        probe::start(&net);
    }
    Ok(net)
}

/// How long to wait for the next count. Strangers may open thousands of connections, and looking at them takes the CPU from
/// those whom this node serves: then it is done less often.
fn pause_after(took: Duration, is_busy: bool) -> Duration {
    let seconds = if is_busy { INTERVAL_S } else { 5.0 * INTERVAL_S };
    Duration::from_secs_f64(seconds).max(took * COUNT_PARTS).min(PAUSE_MAX)
}

/// The rate of a link whose driver knows none. `tuned` is what no queue grows by: TCP payload, a little less than the slowest
/// link carries.
fn rate_of(tuned: u64) -> u64 {
    (tuned as f64 / PACED / tcp_part()) as u64
}

/// The margin to begin with: larger where a link was measured to carry less than its driver says.
fn margin_of(tuned: u64, rate: u64) -> f64 {
    (1.0 - tuned as f64 / (rate as f64 * tcp_part())).clamp(0.0, MARGIN_TUNED_MAX)
}

/// The part of a wire that is TCP payload.
fn tcp_part() -> f64 {
    covey_tune::wire::Wire::ethernet(1.0, 1500).tcp_bits_per_s()
}

impl Set {
    fn of(config: &Config) -> Set {
        let addresses = config.nodes.iter().flat_map(|node| &node.listen);
        let served = addresses.filter_map(|address| match address {
            covey_cluster::config::Address::Tcp { port, .. } => Some(*port),
            covey_cluster::config::Address::Unix(_) => None,
        });
        let ports = served.chain([ISCSI_PORT]).collect();
        let (rates, window) = (BTreeMap::new(), config.pacing.window_bytes);
        let dscp = config.pacing.dscp.unwrap_or(pacing::MARK_DEFAULT);
        let (on, law, has_margin) = (config.pacing.is_on, Settings::default(), false);
        Set { on, law, has_margin, rates, ports, window, dscp }
    }
}

impl Set {
    /// For a link of some rate, which was measured.
    fn law_for(&self, measured: Option<(u64, u64)>) -> Settings {
        let Some((rate, tuned)) = measured.filter(|_| !self.has_margin) else { return self.law };
        Settings { margin: self.law.margin.max(margin_of(tuned, rate)), ..self.law }
    }
}

impl Net {
    fn new(
        config: &Arc<Config>,
        name: &str,
        cluster: Arc<ClusterNet>,
        tune: Option<&TuneFile>,
        targets: TargetPorts,
    ) -> Rc<Net> {
        Rc::new(Net {
            config: config.clone(),
            name: name.to_owned(),
            cluster,
            set: RefCell::new(Set::of(config)),
            tuned: tune.and_then(|tune| Some(tune.choose.pacing.as_ref()?.value)),
            wires: RefCell::default(),
            nodes: RefCell::default(),
            probes: Probes::default(),
            news: News::default(),
            images: class::Images::default(),
            targets,
            has_failed: Cell::default(),
        })
    }

    async fn run(self: Rc<Self>) {
        covey_cluster::pace::begin(&self.config);
        credits::set_window(self.config.pacing.window_bytes.map(|bytes| bytes as u64));
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
            let begun = Instant::now();
            if is_on {
                self.turn(&mut counter);
            } else {
                self.free();
                counter.forget();
            }
            let took = begun.elapsed();
            if followed.elapsed() > FOLLOW_EVERY {
                followed = Instant::now();
                self.follow_receivers();
                let here = pacing::list();
                self.images.keep(|peer| here.iter().any(|((_, end), _)| end == peer));
            }
            let is_busy = is_on && self.wires.borrow().values().any(Wire::has_bulk);
            tokio::time::sleep(pause_after(took, is_busy)).await;
        }
    }

    /// Counts, judges and tells.
    fn turn(&self, counter: &mut Counter) {
        let ours: Vec<Ends> = pacing::list().into_iter().map(|(ends, _)| ends).collect();
        let counted = counter.count(&self.bulk_ports(), &ours);
        match counted {
            Ok(Some(counted)) => {
                if self.judge(&counted) {
                    counter.want_list();
                }
            }
            Ok(None) => {}
            Err(error) => {
                counter.forget();
                self.fail(&error);
            }
        }
    }

    /// TCP ports of bulk: those that were set, and those of this node's targets.
    fn bulk_ports(&self) -> BTreeSet<u16> {
        self.targets.and(&self.set.borrow().ports)
    }

    /// Makes rates of what was counted. Answers whether something was carried that no connection explains.
    fn judge(&self, counted: &Counted) -> bool {
        let set = self.set.borrow();
        let probe = self.probes.take(Instant::now());
        let mut wires = self.wires.borrow_mut();
        let mut lines = BTreeMap::new();
        for (name, seen) in &counted.wires {
            let known = set.rates.get(name).copied().or(seen.bits_per_s);
            let rate = known.or(self.tuned.map(rate_of));
            let wire = wires.entry(name.clone()).or_insert_with(|| Wire::new(seen.mtu));
            wire.set(rate, set.law_for(rate.zip(self.tuned)));
            for way in [Way::In, Way::Out] {
                lines.extend(wire.observe(way, seen, counted.seconds, probe));
            }
        }
        wires.retain(|name, _| counted.wires.contains_key(name));
        let has_strays = wires.values().any(Wire::has_strays);
        let begin = wires.values().flat_map(Wire::begin).collect();
        drop(wires);
        self.obey_own(&lines);
        self.give_credit(&lines);
        self.news.tell(lines, begin);
        has_strays
    }

    /// Rates that nobody renews would hold for ever. It is said once: it would be the same a hundred times a second.
    fn fail(&self, error: &std::io::Error) {
        self.free();
        if !self.has_failed.replace(true) {
            tracing::warn!("nothing is paced while the kernel does not count: {error}");
        }
    }

    /// The rates of this process's own connections through this node's ports.
    fn obey_own(&self, lines: &BTreeMap<(Ends, bool), Limit>) {
        pacing::lift(Port::Sender, |ends| !lines.contains_key(&(*ends, true)));
        for ((ends, is_sender), limit) in lines {
            if *is_sender {
                pacing::limit(*ends, Port::Sender, Some(*limit));
            }
        }
    }

    /// What initiators may write to this node's targets: those that no process of ours paces obey R2Ts.
    fn give_credit(&self, lines: &BTreeMap<(Ends, bool), Limit>) {
        credits::set_rates(|(here, there)| Some(lines.get(&((*there, *here), false))?.rate));
    }

    fn free(&self) {
        self.wires.borrow_mut().clear();
        pacing::lift(Port::Sender, |_| true);
        credits::set_rates(|_| None);
        self.news.tell(BTreeMap::new(), BTreeMap::new());
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

impl Net {
    /// Has this process and all who read `/net/pace` take what was set for every connection.
    fn spread(&self, set: &Set) {
        set_windows(set.window.unwrap_or(usize::MAX));
        credits::set_window(set.window.map(|bytes| bytes as u64));
        pacing::mark_all(set.dscp);
        self.news.hurry();
    }
}

impl News {
    /// What is told to all is told at once.
    fn hurry(&self) {
        self.number.set(self.number.get() + 1);
        self.bell.ring();
    }

    /// Wakes readers where something has changed by more than a little, or nothing was said for a while.
    fn tell(&self, lines: BTreeMap<(Ends, bool), Limit>, begin: BTreeMap<IpAddr, u64>) {
        let is_old = self.at.get().is_none_or(|at| at.elapsed() > SILENCE_MAX / 4);
        let is_like = is_like(&self.lines.borrow(), &lines, LIKE)
            && is_like(&self.begin.borrow(), &begin, LIKE_BEGIN);
        if !is_old && is_like {
            return;
        }
        self.lines.replace(lines);
        self.begin.replace(begin);
        self.at.set(Some(Instant::now()));
        self.number.set(self.number.get() + 1);
        self.bell.ring();
    }
}

/// Whether these are the same connections, or addresses, at nearly the same rates. What is little beside the most that one has
/// may change by more: connections that carry next to nothing are allowed another rate each time.
fn is_like<K: Eq, V: Copy + Into<Limit>>(
    old: &BTreeMap<K, V>,
    new: &BTreeMap<K, V>,
    part: f64,
) -> bool {
    let limit = |value: &V| -> Limit { (*value).into() };
    let little = old.values().map(|value| limit(value).rate).max().map_or(0, |most| most / 2);
    old.len() == new.len()
        && old.iter().zip(new).all(|((key, before), (other, now))| {
            let (before, now) = (limit(before), limit(now));
            let differs = before.rate.abs_diff(now.rate) as f64;
            key == other
                && before.in_half == now.in_half
                && differs <= part * before.rate.max(little) as f64
        })
}

/// A count takes at most about this part of a CPU: one tenth; but the law wants to see what happens within a second.
const COUNT_PARTS: u32 = 10;
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// The part of a link that `covey tune choose` takes for its `pacing`.
const PACED: f64 = 0.95;
/// A measurement that found less is not believed.
const MARGIN_TUNED_MAX: f64 = 0.3;
/// The port of targets.
const ISCSI_PORT: u16 = 3260;
/// How often it is seen to whom this node sends.
const FOLLOW_EVERY: Duration = Duration::from_millis(200);
/// By what part a rate changes before that is told.
const LIKE: f64 = 0.02;
/// The same of what new connections begin with.
const LIKE_BEGIN: f64 = 0.25;

#[cfg(test)]
mod tests;
