//! A cluster in a simulated world: the servers' and clients' own code, trouble drawn from a seed, and
//! checkers for what `docs/semantics.md` promises.
//!
//! ```text
//!   seed ──► cluster (disks, machines) ──► setup ──► roles on every client  ◄── storm
//!                                                        │
//!                                    everything heals, everybody finishes
//!                                                        │
//!                               settle: what each role must find ── audit: nothing leaked
//! ```

mod audit;
pub mod cluster;
mod faults;
mod history;
mod lab;
mod linear;
mod names;
pub mod net;
pub mod roles;

use cluster::Cluster;
use covey_io::sim::{Rng, Sim};
use covey_io::task;
use covey_stripe::client::{Caching, Fs, Options, Taken, access};
use covey_stripe::distribution;
use covey_stripe::ops::{ROOT, StripingHint};
use covey_wire::List;
use faults::Storm;
use lab::Lab;
use roles::appends::{Appends, Log};
use roles::chain_moves::ChainMoves;
use roles::chains::Chains;
use roles::files::{Files, Shared};
use roles::locks::{Locks, Table};
use roles::makers::Makers;
use roles::moves::Moves;
use roles::orphans::Orphans;
use roles::private_names::PrivateNames;
use roles::shared_names::{Board, SharedNames};
use roles::tasks::Tasks;
use roles::{Role, name, root};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// What a clean run came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Hash of everything that happened.
    pub hash: u64,
    /// Virtual time.
    pub elapsed: Duration,
    /// Operations of clients, and how many of them failed with an excuse.
    pub operations: u64,
    pub errors: u64,
}

/// A broken promise.
#[derive(Clone, Debug)]
pub struct Failure {
    pub seed: u64,
    pub what: String,
    pub trace: Vec<String>,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for line in &self.trace {
            writeln!(out, "{line}")?;
        }
        writeln!(out, "seed {}: {}", self.seed, self.what)?;
        write!(
            out,
            "replay: cargo run --release -p covey-serve --example simulate -- --seed {}",
            self.seed
        )
    }
}

/// No simulation takes longer, in virtual time.
const VIRTUAL_MAX: Duration = Duration::from_secs(3000);

/// Runs one seed. With `echo` its trace goes to stderr as it happens.
pub fn simulate(seed: u64, echo: bool) -> Result<Report, Box<Failure>> {
    let sim = Sim::new(seed, echo);
    let run = catch_unwind(AssertUnwindSafe(|| run(&sim, seed)));
    let what = match run {
        Ok(Ok(report)) => return Ok(report),
        Ok(Err(hang)) if hang.is_deadlock => "everybody waits for somebody else".to_owned(),
        Ok(Err(hang)) => format!("not at its end after {:?} of virtual time", hang.at),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            text.unwrap_or("a panic").to_owned()
        }
    };
    Err(Box::new(Failure { seed, what, trace: sim.trace() }))
}

fn run(sim: &Sim, seed: u64) -> Result<Report, covey_io::sim::Hang> {
    let mut rng = Rng::new(seed ^ 0x5eed);
    sim.set_network(faults::network(&mut rng));
    let (servers, clients) = (1 + rng.index(4), 1 + rng.index(3));
    let striping = striping(&mut rng, servers);
    let cluster = Cluster::format(sim.control(), &mut rng, servers, clients, striping.clone());
    let chains_each = chains_each(seed);
    if chains_each > 0 {
        cluster.give_chains(chains_each);
    }
    for server in cluster.servers() {
        let skew = rng.within(0..10_000_000_000) as i64 - 5_000_000_000;
        sim.set_skew(server.node, skew);
    }
    let storm = Storm::draw(&mut rng);
    let (kind, params) = (distribution::kind_name(striping.kind), &striping.params.0);
    let files = format!("{kind} {params:?} in strips of {}", striping.strip_bytes);
    let troubles = storm.describe();
    sim.note(&format!("{servers} I/O servers, {clients} clients; {files}; {troubles}"));
    let lab = Rc::new(Lab {
        cluster: cluster.clone(),
        rng: RefCell::new(rng.fork()),
        has_faults: !storm.is_calm(),
        healed_at: Cell::new(None),
        roles: RefCell::default(),
        losses: Cell::new(0),
        has_moves: Cell::new(false),
        operations: Cell::new(0),
        errors: Cell::new(0),
    });
    // From a generator of its own: the seeds that have found something go on as they did.
    let mut own = Rng::new(seed ^ 0xc4a1);
    if own.chance(400) {
        lab.roles.borrow_mut().push((0, Rc::new(Chains::new(own))));
    }
    let mut own = Rng::new(seed ^ 0x7b08);
    if own.chance(300) {
        let operator = Tasks::new(own, servers as u16);
        lab.roles.borrow_mut().push((0, Rc::new(operator)));
        lab.has_moves.set(true);
        cluster.has_tasks.set(true);
    }
    if chains_each > 0 {
        let mover = ChainMoves::new(Rng::new(seed ^ 0xd0e5), servers as u16);
        lab.roles.borrow_mut().push((0, Rc::new(mover)));
        lab.has_moves.set(true);
    }
    let nodes: Vec<_> = cluster.servers().map(|server| server.node).collect();
    nodes.iter().for_each(|&node| cluster.boot(node));
    sim.run(VIRTUAL_MAX, live(lab.clone(), storm))?;
    Ok(Report {
        hash: sim.trace_hash(),
        elapsed: sim.elapsed(),
        operations: lab.operations.get(),
        errors: lab.errors.get(),
    })
}

/// How many chains each server has, which are moved then; 0 where there is one and it stays.
fn chains_each(seed: u64) -> u16 {
    let mut own = Rng::new(seed ^ 0x16c4);
    if own.chance(350) { 1 + own.below(4) as u16 } else { 0 }
}

/// One simulation from the first file to the audit.
async fn live(lab: Rc<Lab>, storm: Rc<Storm>) {
    let fs = connect("setup").await;
    set_up(&lab, &fs).await;
    fs.bye().await;
    for client in 0..lab.cluster.clients.len() {
        boot_client(&lab, client);
    }
    drop(task::spawn(storm.clone().supervise(lab.clone())));
    storm.clone().rage(lab.clone()).await;
    storm.calm_down().await;
    lab.cluster.control.unblock_all();
    lab.healed_at.set(Some(task::now()));
    while !lab.is_done() {
        task::sleep(Duration::from_millis(200)).await;
    }
    // Long enough for every grace, retry and removal.
    task::sleep(Duration::from_secs(45)).await;
    let roles: Vec<_> = lab.roles.borrow().iter().map(|(_, role)| role.clone()).collect();
    let fs = connect("checker").await;
    for role in roles {
        role.settle(lab.clone(), fs.clone()).await;
    }
    lab.cluster.clients.iter().for_each(|&client| lab.cluster.control.kill(client));
    task::sleep(Duration::from_secs(50)).await;
    audit::audit(&lab, &fs).await;
}

/// Begins a client's process: all its roles.
fn boot_client(lab: &Rc<Lab>, client: usize) {
    let node = lab.cluster.clients[client];
    let own = lab.clone();
    lab.cluster.control.boot(node, async move {
        let fs = connect(&format!("client{client}")).await;
        let roles: Vec<_> = own.roles.borrow().clone();
        for (_, role) in roles.into_iter().filter(|(at, _)| *at == client) {
            drop(task::spawn(role.run(own.clone(), fs.clone())));
        }
    });
}

/// A client that has got in, however long that takes.
pub async fn connect(name: &str) -> Fs {
    connect_as(name, Caching::Nothing, false).await
}

/// The same, with what it may remember and say late.
pub async fn connect_as(name: &str, caching: Caching, delegations: bool) -> Fs {
    loop {
        let name = name.to_owned();
        let late_removals = delegations;
        let options = Options { name, caching, delegations, late_removals, ..Options::default() };
        match Fs::connect(Arc::new(net::SimNet), "meta", options).await {
            Ok(fs) => return fs,
            Err(_) => task::sleep(Duration::from_millis(200)).await,
        }
    }
}

/// Where files lie: striped from their first byte on, or their beginning with the metadata, as large
/// as the product has it or smaller, so that files soon grow out of it.
fn striping(rng: &mut Rng, servers: usize) -> StripingHint {
    let strip_bytes = *rng.pick(&[4096, 8192, 65536]);
    let server_count = rng.below(servers as u64 + 1) as u16;
    if rng.chance(400) {
        return StripingHint::simple_stripe(strip_bytes, server_count);
    }
    let inline = *rng.pick(&[200, 4000, distribution::INLINE_BYTES_DEFAULT]);
    let single = inline + *rng.pick(&[0, 3000, 30_000, distribution::SINGLE_BYTES_DEFAULT]);
    let (kind, params) = (distribution::PROGRESSIVE, List(vec![inline, single]));
    StripingHint { kind, strip_bytes, server_count, params }
}

/// Makes the files and directories that the roles work on, and brings them to the disk.
async fn set_up(lab: &Rc<Lab>, fs: &Fs) {
    const S_IFDIR: u32 = 0o040000;
    let file = async |text: &str| {
        let made = fs.create(&root(), ROOT, &name(text), 0o644, Taken::Refuse, access::BOTH).await;
        made.expect("nothing is broken yet").0.id
    };
    let dir = async |text: &str| {
        let made = fs.make(&root(), ROOT, &name(text), S_IFDIR | 0o755, 0, name("")).await;
        made.expect("nothing is broken yet").id
    };
    let mut shared = Vec::new();
    for at in 0..1 + lab.below(2) {
        let text = format!("file{at}");
        let span = [500, 6000, 40_000, 150_000][lab.below(4) as usize];
        let (is_truncated, is_reshaped) = (lab.chance(500), lab.chance(300));
        let (id, history) = (file(&text).await, history::History::default());
        shared.push(Shared { id, name: text, history, span, is_truncated, is_reshaped });
    }
    let shared = Rc::new(shared);
    let log = Log::new(file("log").await);
    let table = Table::new(file("locked").await);
    let orphans = dir("orphans").await;
    let (makers, made) = (dir("made").await, Rc::default());
    let board = Board::new(dir("board").await, vec![file("m0").await, file("m1").await]);
    for client in 0..lab.cluster.clients.len() {
        let mut roles: Vec<Rc<dyn Role>> = Vec::new();
        let count = || Cell::new(20 + lab.below(40));
        if lab.chance(700) {
            roles.push(Rc::new(Files { client, files: shared.clone(), left: count() }));
        }
        if lab.chance(300) {
            roles.push(Rc::new(Files { client, files: shared.clone(), left: count() }));
        }
        if lab.chance(400) {
            roles.push(Rc::new(Appends { client, log: log.clone(), left: count() }));
        }
        if lab.chance(500) {
            let dirs = vec![dir(&format!("a{client}")).await, dir(&format!("b{client}")).await];
            roles.push(PrivateNames::new(client, dirs, 30 + lab.below(60)));
        }
        if lab.chance(500) {
            let (board, left) = (board.clone(), Cell::new(20 + lab.below(40)));
            roles.push(Rc::new(SharedNames { client, board, left }));
        }
        if lab.chance(300) {
            roles.push(Locks::new(client, table.clone(), 1, 10 + lab.below(15)));
            roles.push(Locks::new(client, table.clone(), 2, 10 + lab.below(15)));
        }
        if lab.chance(300) {
            let left = Cell::new(3 + lab.below(8));
            let (doubts, numbers) = (Cell::new(0), Cell::new(0));
            roles.push(Rc::new(Orphans { client, dir: orphans, left, doubts, numbers }));
        }
        if lab.chance(500) {
            let (made, left) = (Rc::clone(&made), Cell::new(30 + lab.below(100)));
            let (numbers, doubts) = (Cell::new(0), Cell::new(0));
            let (dir, place) = (makers, Cell::new(makers));
            roles.push(Rc::new(Makers { client, dir, place, left, numbers, doubts, made }));
        }
        lab.roles.borrow_mut().extend(roles.into_iter().map(|role| (client, role)));
    }
    if lab.chance(500) {
        let (files, left) = (shared.iter().map(|file| file.id), Cell::new(10 + lab.below(30)));
        let files = files.chain([log.id]).collect();
        let servers = lab.cluster.data.len() as u16;
        let mover: Rc<dyn Role> = Rc::new(Moves { files, servers, left, pace: Default::default() });
        lab.roles.borrow_mut().push((0, mover));
        lab.has_moves.set(true);
    }
    fs.sync(ROOT).await.expect("nothing is broken yet");
}
