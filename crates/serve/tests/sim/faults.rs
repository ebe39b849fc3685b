//! What goes wrong, and when: drawn from the seed, and all healed in the end.

use super::cluster::META_DIR;
use super::lab::Lab;
use covey_io::disk::Disk;
use covey_io::sim::net::Quality;
use covey_io::sim::{NodeId, Pace, Rng, note};
use covey_io::task;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// A silence that a session certainly outlives, in seconds; the grace is ten.
const SESSION_SAFE: u64 = 5;

/// No storm lasts longer.
const STORM_MAX: Duration = Duration::from_secs(150);

/// Kinds of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    Kill,
    Power,
    CrashPoint,
    Reset,
    Block,
    Stop,
    Disk,
    Full,
    ClientLost,
    /// Syncs of the metadata server's log and map fail.
    Sync,
    /// The metadata server's map is full.
    Map,
}

const ALL: [Trouble; 11] = [
    Trouble::Kill,
    Trouble::Power,
    Trouble::CrashPoint,
    Trouble::Reset,
    Trouble::Block,
    Trouble::Stop,
    Trouble::Disk,
    Trouble::Full,
    Trouble::ClientLost,
    Trouble::Sync,
    Trouble::Map,
];

/// The troubles of one simulation.
pub struct Storm {
    kinds: Vec<Trouble>,
    /// Time from one to the next, at most.
    every: Duration,
    /// Machines that are in some trouble already.
    busy: RefCell<BTreeSet<NodeId>>,
    /// When the last of what a disk has hung on has come back.
    hung_until: Cell<Instant>,
}

impl Storm {
    /// A few kinds of trouble; none at all now and then.
    pub fn draw(rng: &mut Rng) -> Rc<Storm> {
        let count = if rng.chance(80) { 0 } else { 1 + rng.index(4) };
        let mut kinds = ALL.to_vec();
        rng.shuffle(&mut kinds);
        kinds.truncate(count);
        let every = Duration::from_millis(*rng.pick(&[1500, 4000, 10_000]));
        let hung_until = Cell::new(task::now());
        Rc::new(Storm { kinds, every, busy: RefCell::default(), hung_until })
    }

    /// Whether there is any trouble.
    pub fn is_calm(&self) -> bool {
        self.kinds.is_empty()
    }

    pub fn describe(&self) -> String {
        format!("troubles {:?}, one within each {:?}", self.kinds, self.every)
    }

    /// Makes trouble until it is dropped or everybody is done.
    pub async fn rage(self: Rc<Self>, lab: Rc<Lab>) {
        let begun = task::now();
        while !self.kinds.is_empty() && !lab.is_done() && task::now() - begun < STORM_MAX {
            lab.pause(self.every).await;
            let kind = self.kinds[lab.below(self.kinds.len() as u64) as usize];
            let (storm, lab) = (self.clone(), lab.clone());
            drop(task::spawn(async move { storm.happen(&lab, kind).await }));
        }
    }

    /// Starts servers that have ended by themselves, as a service manager does, for as long as it runs.
    pub async fn supervise(self: Rc<Self>, lab: Rc<Lab>) {
        loop {
            task::sleep(Duration::from_millis(700)).await;
            let nodes: Vec<_> = lab.cluster.servers().map(|server| server.node).collect();
            for node in nodes {
                let is_ours = !self.busy.borrow().contains(&node);
                if is_ours && !lab.cluster.control.is_up(node) {
                    note(|| format!("machine {node} is started again"));
                    lab.boot(node);
                }
            }
        }
    }

    /// Waits until no trouble is left. What a disk has hung on takes its time even when the disk is well
    /// again, as a request does that a controller has lost and that is given up after half a minute.
    pub async fn calm_down(&self) {
        loop {
            // First of all: the last trouble may not have begun yet.
            task::sleep(Duration::from_millis(100)).await;
            if self.busy.borrow().is_empty() && self.hung_until.get() < task::now() {
                return;
            }
        }
    }

    async fn happen(&self, lab: &Rc<Lab>, kind: Trouble) {
        let server = self.server(lab);
        let client = lab.below(lab.cluster.clients.len() as u64) as usize;
        let target = match kind {
            Trouble::ClientLost => lab.cluster.clients[client],
            Trouble::Sync | Trouble::Map => lab.cluster.meta.node,
            Trouble::Stop if lab.chance(300) => lab.cluster.clients[client],
            _ => server,
        };
        if !self.busy.borrow_mut().insert(target) {
            return;
        }
        match kind {
            Trouble::Kill => self.crash(lab, target, false).await,
            Trouble::Power => self.crash(lab, target, true).await,
            Trouble::CrashPoint => self.crash_point(lab, target).await,
            Trouble::Reset => self.reset(lab, client, target),
            Trouble::Block => self.block(lab, client, target).await,
            Trouble::Stop => self.stop(lab, target).await,
            Trouble::Disk => self.disk(lab, target).await,
            Trouble::Full => self.full(lab, target).await,
            Trouble::ClientLost => self.client_lost(lab, client).await,
            Trouble::Sync => self.syncs_fail(lab, target).await,
            Trouble::Map => self.map_is_full(lab).await,
        }
        self.busy.borrow_mut().remove(&target);
    }

    fn server(&self, lab: &Lab) -> NodeId {
        let at = lab.below(lab.cluster.data.len() as u64 + 1) as usize;
        lab.cluster.data.get(at).map_or(lab.cluster.meta.node, |server| server.node)
    }

    /// How long something lasts: most often moments, now and then long.
    async fn last(&self, lab: &Lab, most_seconds: u64) {
        let most = if lab.chance(600) { 1 + most_seconds / 8 } else { most_seconds };
        task::sleep(Duration::from_millis(50 + lab.below(most * 1000))).await;
    }

    async fn crash(&self, lab: &Rc<Lab>, node: NodeId, power_fails: bool) {
        note(|| format!("machine {node} crashes, power lost: {power_fails}"));
        lab.cluster.crash(node, power_fails);
        self.come_back(lab, node, power_fails).await;
    }

    async fn come_back(&self, lab: &Rc<Lab>, node: NodeId, power_fails: bool) {
        if power_fails {
            lab.power_lost(node);
        }
        self.last(lab, 15).await;
        // A server may die again while it recovers.
        while !lab.cluster.control.is_up(node) {
            note(|| format!("machine {node} boots"));
            lab.boot(node);
            task::sleep(Duration::from_millis(300)).await;
        }
    }

    async fn crash_point(&self, lab: &Rc<Lab>, node: NodeId) {
        let power_fails = lab.chance(500);
        let disk = |lab: &Lab| {
            let mut servers = lab.cluster.servers();
            servers.find(|server| server.node == node).expect("it is a server").disk.clone()
        };
        let after = lab.below(if lab.chance(500) { 5 } else { 60 });
        note(|| format!("machine {node} ends after {after} changes, power lost: {power_fails}"));
        lab.cluster.control.set_power_fails(node, power_fails);
        disk(lab).set_crash_point(Some(after));
        for _ in 0..2000 {
            if !lab.cluster.control.is_up(node) {
                lab.cluster.after_crash(node, power_fails);
                return self.come_back(lab, node, power_fails).await;
            }
            task::sleep(Duration::from_millis(5)).await;
        }
        disk(lab).set_crash_point(None);
    }

    fn reset(&self, lab: &Lab, client: usize, server: NodeId) {
        let other =
            if lab.chance(700) { lab.cluster.clients[client] } else { lab.cluster.meta.node };
        note(|| format!("a connection between machines {other} and {server} is reset"));
        lab.cluster.control.reset_one(other, server);
    }

    async fn block(&self, lab: &Lab, client: usize, server: NodeId) {
        let is_client = lab.chance(800) || server == lab.cluster.meta.node;
        let other = if is_client { lab.cluster.clients[client] } else { lab.cluster.meta.node };
        let (there, back) =
            *lab.rng.borrow_mut().pick(&[(true, true), (true, false), (false, true)]);
        note(|| format!("the way between {other} and {server} is blocked: {there} {back}"));
        let control = &lab.cluster.control;
        if there {
            control.block(other, server);
        }
        if back {
            control.block(server, other);
        }
        self.silence(lab, (server == lab.cluster.meta.node).then_some(client)).await;
        note(|| format!("the way between {other} and {server} is open"));
        control.unblock(other, server);
        control.unblock(server, other);
    }

    /// A while in which the client, if it is one, and the metadata server do not hear of one another.
    async fn silence(&self, lab: &Lab, client: Option<usize>) {
        if lab.chance(700) {
            return task::sleep(Duration::from_millis(lab.below(SESSION_SAFE * 1000))).await;
        }
        task::sleep(Duration::from_secs(SESSION_SAFE)).await;
        if let Some(client) = client {
            lab.session_in_doubt(client);
        }
        task::sleep(Duration::from_millis(lab.below(20_000))).await;
        if let Some(client) = client {
            lab.session_in_doubt(client);
        }
    }

    async fn stop(&self, lab: &Lab, node: NodeId) {
        note(|| format!("machine {node} is stopped"));
        lab.cluster.control.stop(node);
        let client = lab.cluster.clients.iter().position(|client| *client == node);
        self.silence(lab, client).await;
        note(|| format!("machine {node} goes on"));
        lab.cluster.control.cont(node);
    }

    async fn disk(&self, lab: &Lab, node: NodeId) {
        let pace = if lab.chance(700) {
            Pace::Slow
        } else {
            Pace::Hung(Duration::from_secs(lab.below(40)))
        };
        note(|| format!("the disk of machine {node} is {pace:?}"));
        lab.cluster.control.set_pace(node, pace);
        self.last(lab, 20).await;
        note(|| format!("the disk of machine {node} is well again"));
        if let Pace::Hung(time) = pace {
            self.hung_until.set(self.hung_until.get().max(task::now() + time));
        }
        lab.cluster.control.set_pace(node, Pace::Normal);
    }

    async fn full(&self, lab: &Lab, node: NodeId) {
        let servers = lab.cluster.servers();
        let disk = servers.filter(|s| s.node == node).map(|s| s.disk.clone()).next();
        let Some(disk) = disk else { return };
        let space = disk.space(Path::new("/")).expect("it always says");
        // Room for some more than the last of it, which is kept for deletes.
        let room = lab.below(100_000);
        let capacity = disk.used() + space.bytes_total() / 20 + room;
        note(|| format!("the disk of machine {node} has room for {room} more"));
        disk.set_capacity(capacity.min(disk.used() + room));
        self.last(lab, 10).await;
        note(|| format!("the disk of machine {node} has room again"));
        disk.set_capacity(space.bytes_total());
    }

    /// Some syncs fail, the first perhaps within the system's own writing. The server makes it good, or ends.
    async fn syncs_fail(&self, lab: &Rc<Lab>, node: NodeId) {
        let disk = &lab.cluster.meta.disk;
        let count = 1 + lab.below(if lab.chance(600) { 1 } else { 6 });
        note(|| format!("the next {count} syncs of machine {node} fail"));
        disk.fail_syncs(count);
        if lab.chance(300) {
            disk.fail_write_back();
        }
        for _ in 0..lab.below(800) {
            if !lab.cluster.control.is_up(node) {
                break;
            }
            task::sleep(Duration::from_millis(5)).await;
        }
        note(|| format!("syncs of machine {node} succeed again"));
        disk.fail_syncs(0);
        if !lab.cluster.control.is_up(node) {
            lab.cluster.after_crash(node, false);
            self.come_back(lab, node, false).await;
        }
    }

    async fn map_is_full(&self, lab: &Lab) {
        let (disk, dir) = (&lab.cluster.meta.disk, Path::new(META_DIR));
        let room = 20_000 + lab.below(60_000);
        let limit = disk.map_used(dir) * 21 / 20 + room;
        note(|| format!("the metadata has room for {room} more"));
        disk.limit_map(dir, Some(limit));
        self.last(lab, 20).await;
        note(|| "the metadata has room again".to_owned());
        disk.limit_map(dir, None);
    }

    async fn client_lost(&self, lab: &Rc<Lab>, client: usize) {
        let node = lab.cluster.clients[client];
        note(|| format!("client{client} is lost"));
        lab.cluster.control.lose_power(node);
        lab.client_lost(client);
        // What it sent last is over by then.
        task::sleep(Duration::from_secs(2)).await;
        self.last(lab, 15).await;
        super::boot_client(lab, client);
    }
}

/// How good the network is in one simulation.
pub fn network(rng: &mut Rng) -> Quality {
    let quality = Quality::default();
    let latency = *rng.pick(&[1, 4, 30]);
    Quality {
        latency: (quality.latency.0, Duration::from_millis(latency)),
        lost_permille: *rng.pick(&[0, 2, 20]),
        ..quality
    }
}
