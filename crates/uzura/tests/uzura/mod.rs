//! Engines on a simulated transport, against a memory that is kept by hand.
//!
//! Every process has a plan of messages and accesses to others' memory, does them in a random order, and may die.
//! What an operation should have done is done to a copy of all memory when its completion comes. In the end both are the same,
//! byte for byte, and everything has ended.

mod act;
mod plan;
mod shapes;
mod way;

use covey_io::sim::{CarrierProfile, Carriers, Rng, SimMemory};
use covey_layout::ByteOrder;
use covey_uzura::{Completion, Config, End, Engine, Fault, Short, Started};
use covey_wire::transport::Glance;
use plan::{Act, Plan};
use std::collections::{BTreeMap, BTreeSet};

/// What a run did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    pub operations: u64,
    pub faults: u64,
    pub direct: u64,
    pub rendezvous: u64,
    pub unexpected: u64,
    /// Pieces of messages that their senders copied.
    pub helped: u64,
    /// Runs in which not all had the same byte order.
    pub mixed: u64,
    /// Transfers that a card did.
    pub posted: u64,
    /// Words that puts told.
    pub words: u64,
    /// Messages that a glance found.
    pub glances: u64,
    /// Messages whose senders waited for their receivers.
    pub delivered: u64,
}

impl Report {
    /// Takes in another one.
    pub fn add(&mut self, other: &Report) {
        self.operations += other.operations;
        self.faults += other.faults;
        self.direct += other.direct;
        self.rendezvous += other.rendezvous;
        self.unexpected += other.unexpected;
        self.helped += other.helped;
        self.mixed += other.mixed;
        self.posted += other.posted;
        self.words += other.words;
        self.delivered += other.delivered;
        self.glances += other.glances;
    }
}

/// Memory of each process; the second half is scratch.
const MEMORY_BYTES: usize = 2 << 20;

/// A process.
struct Node {
    engine: Engine<way::Way, SimMemory>,
    is_dead: bool,
    /// Acts that are under way, by their contexts.
    pending: BTreeMap<u64, act::Pending>,
    next_context: u64,
}

/// All processes, and what their memory should be.
struct World {
    rng: Rng,
    carriers: Carriers,
    nodes: Vec<Node>,
    /// Which byte order the memory of each has.
    orders: Vec<ByteOrder>,
    /// Cards reach into memory.
    has_card: bool,
    expected: Vec<Vec<u8>>,
    plan: Plan,
    report: Report,
    /// Which messages came to receives of anything: from whom to whom, in which order.
    order: BTreeMap<(usize, usize, bool), Vec<(u64, usize)>>,
    /// What was seen of counters.
    counts: Vec<(usize, u64)>,
    words: act::Words,
    /// Messages that have been received.
    received: BTreeSet<usize>,
}

/// Runs a seed. The error says what was wrong.
pub fn simulate(seed: u64) -> Result<Report, String> {
    let mut rng = Rng::new(seed);
    let count = 2 + rng.index(3);
    let orders = orders(&mut rng, count);
    // Nobody reaches into memory of the other byte order.
    let is_alike = orders.iter().all(|order| *order == orders[0]);
    let profile = CarrierProfile {
        packet_bytes_max: 512 + rng.index(3) * 700,
        post_bytes_max: rng.index(2) * 3000,
        packets_max: 2 + rng.index(30),
        refused_permille: rng.below(400),
        delay_max: rng.below(60),
        lost_permille: rng.below(200),
        view: rng.chance(300) && is_alike,
        one_copy: rng.chance(400) && is_alike,
        shared_permille: rng.below(2000),
        published: rng.chance(500) && is_alike,
        card: None,
    };
    let is_lossy = rng.chance(400);
    // A card does what it is told, later; so far for one byte order.
    let card = (rng.chance(500) && is_alike && !is_lossy).then(|| 1 + rng.index(20));
    let profile = CarrierProfile { card, ..profile };
    let carriers = Carriers::new(rng.next(), count, MEMORY_BYTES, profile);
    let mut expected = Vec::new();
    for node in 0..count {
        carriers.look(node, |memory| {
            let used = &mut memory[..MEMORY_BYTES / 2];
            used.chunks_mut(8).for_each(|part| part.copy_from_slice(&rng.next().to_le_bytes()));
            expected.push(memory[..MEMORY_BYTES / 2].to_vec());
        });
    }
    let nodes = (0..count)
        .map(|node| {
            let (transport, memory) = way::Way::new(&carriers, node, is_lossy);
            let config = Config {
                eager_bytes_max: rng.index(4) * 150,
                eager_posted_bytes_max: rng.index(4) * 300,
                copied_bytes_max: rng.index(3) * 50,
                window_bytes: 4096 + rng.below(8192),
                operations_max: 4096,
                near_table_bytes: rng.index(3) * 256,
                seed: rng.next(),
                order: orders[node],
            };
            let engine = Engine::new(transport, memory, config);
            Node { engine, is_dead: false, pending: BTreeMap::new(), next_context: 1 }
        })
        .collect();
    let plan = Plan::random(&mut rng, &orders);
    let (mixed, has_card) = (u64::from(!is_alike), card.is_some());
    let report = Report { mixed, ..Report::default() };
    let (order, counts, words, received) = Default::default();
    let mut world = World {
        rng,
        carriers,
        nodes,
        orders,
        has_card,
        expected,
        plan,
        report,
        order,
        counts,
        words,
        received,
    };
    world.run()
}

/// Mostly all have the machine's own; at times some, or all, have the other one.
fn orders(rng: &mut Rng, count: usize) -> Vec<ByteOrder> {
    let foreign = if rng.chance(400) { 500 } else { 0 };
    let order =
        |is_foreign: bool| if is_foreign { ByteOrder::NATIVE.other() } else { ByteOrder::NATIVE };
    (0..count).map(|_| order(rng.chance(foreign))).collect()
}

impl World {
    fn run(&mut self) -> Result<Report, String> {
        let doomed = self.rng.chance(350).then(|| self.rng.index(self.nodes.len()));
        let death = self.rng.below(3000);
        self.register()?;
        let mut quiet = 0;
        for step in 0..STEPS_MAX {
            if doomed.is_some() && step == death {
                self.kill(doomed.unwrap_or(0));
            }
            self.carriers.step();
            let node = self.rng.index(self.nodes.len());
            if self.nodes[node].is_dead {
                continue;
            }
            // Who has joined is told by a poll.
            let only_glances = step > 100 && self.rng.chance(600);
            let mut moved = only_glances && self.glance(node)?;
            moved |= !only_glances && self.nodes[node].engine.poll() > 0;
            while let Some(completion) = self.nodes[node].engine.completion() {
                self.ended(node, completion)?;
                moved = true;
            }
            if self.rng.chance(300)
                && let Some(act) = self.plan.next(&mut self.rng, node)
            {
                self.act(node, act)?;
                moved = true;
            }
            quiet = if moved { 0 } else { quiet + 1 };
            if quiet > 500 && step > death {
                if self.is_over() {
                    return self.audit();
                }
                // What waits for messages that a dead process would have sent.
                if quiet > 2000 && self.cancel_one()? {
                    quiet = 0;
                }
                if quiet > QUIET_MAX {
                    break;
                }
            }
        }
        Err(format!("something never ended: {}", self.left()))
    }

    /// Looks for one message, as who waits for it does.
    fn glance(&mut self, node: usize) -> Result<bool, String> {
        let mut found = None;
        let glance = self.nodes[node].engine.glance(|short| found = Some(short));
        if (glance == Glance::Taken) != found.is_some() {
            return Err(format!("{glance:?} with {found:?}"));
        }
        let Some(Short { context, peer, tag, bytes, data }) = found else { return Ok(false) };
        self.report.glances += 1;
        let (end, result, at) = (End::Operation, Ok(()), 0);
        self.ended(node, Completion { end, context, result, peer, tag, bytes, data, at })?;
        Ok(true)
    }

    fn is_over(&self) -> bool {
        let alive = || self.nodes.iter().enumerate().filter(|(_, node)| !node.is_dead);
        alive().all(|(index, node)| node.pending.is_empty() && self.plan.is_done(index))
    }

    fn left(&self) -> String {
        let mut text = String::new();
        for (index, node) in self.nodes.iter().enumerate().filter(|(_, node)| !node.is_dead) {
            for (context, pending) in &node.pending {
                text += &format!("\n  {index}/{context}: {:?}", pending.act);
            }
            text += &format!("\n  {index}: {:?}, {}", node.engine.stats(), self.plan.left(index));
        }
        text
    }

    fn kill(&mut self, node: usize) {
        self.carriers.kill(node);
        self.nodes[node].is_dead = true;
        self.plan.kill(node);
    }

    fn cancel_one(&mut self) -> Result<bool, String> {
        if !self.nodes.iter().any(|node| node.is_dead) {
            return Ok(false);
        }
        for node in &mut self.nodes {
            let waits = |pending: &act::Pending| {
                matches!(pending.act, Act::ReceiveAny { .. } | Act::Place { .. })
            };
            let waiting = node.pending.values().find(|pending| waits(pending));
            if let Some(id) = waiting.and_then(|pending| pending.id).filter(|_| !node.is_dead) {
                return Ok(node.engine.cancel(id));
            }
        }
        Ok(false)
    }

    fn audit(&mut self) -> Result<Report, String> {
        // Only those who counted know what the counters are.
        for node in 0..self.nodes.len() {
            let at = self.plan.counters[node];
            self.accept(node, at, 8);
        }
        for window in self.plan.windows.clone().iter().filter(|window| window.is_lost) {
            if !window.is_revoked {
                self.accept(window.target, window.at, plan::WINDOW_BYTES);
            }
        }
        for node in 0..self.nodes.len() {
            if self.nodes[node].is_dead {
                continue;
            }
            let stats = self.nodes[node].engine.stats();
            self.report.direct += stats.direct;
            self.report.posted += if self.has_card { stats.direct } else { 0 };
            self.report.rendezvous += stats.rendezvous;
            self.report.unexpected += stats.unexpected;
            let expected = &self.expected[node];
            let wrong = self
                .carriers
                .look(node, |memory| (0..expected.len()).find(|at| memory[*at] != expected[*at]));
            if let Some(at) = wrong {
                return Err(format!("process {node}, byte {at}: {}", self.plan.about(node, at)));
            }
        }
        self.report.helped = self.carriers.helped();
        self.audit_counters()?;
        self.audit_words()?;
        Ok(self.report)
    }

    /// A call that began an act.
    fn begun(
        &mut self,
        node: usize,
        context: u64,
        started: Result<Started, Fault>,
    ) -> Result<(), String> {
        match started {
            Ok(Started::Pending(id)) => {
                if let Some(pending) = self.nodes[node].pending.get_mut(&context) {
                    pending.id = Some(id);
                }
                Ok(())
            }
            Ok(Started::Done(completion)) => self.ended(node, completion),
            Err(fault) => {
                let result = Err(fault);
                let peer = Carriers::peer(node, (node + 1) % self.nodes.len());
                let end = End::Operation;
                self.ended(
                    node,
                    Completion { end, context, result, peer, tag: 0, bytes: 0, data: None, at: 0 },
                )
            }
        }
    }
}

const STEPS_MAX: u64 = 400_000;
/// Steps in which nothing happens: a packet that was lost often is sent again each 2560 steps only, and may be lost again.
const QUIET_MAX: u64 = 40_000;
