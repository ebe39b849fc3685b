//! A chain goes back and forth between two I/O servers while its file is written, and servers die in the middle: what was
//! acknowledged and synced is there, once, and a check finds nothing.

use crate::sim;
use crate::sim::cluster::Cluster;
use crate::sim::roles::{name, root};
use covey_io::sim::{Rng, Sim};
use covey_io::task;
use covey_stripe::check;
use covey_stripe::client::{Error, File, Fs, Pace, Taken, access};
use covey_stripe::ops::{ROOT, StripingHint};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// What is written at once. Two blocks of what a mover notes, and not at their edges.
const BLOCK: usize = 100_000;
const BLOCKS: usize = 8;

/// What each block may hold: the last that is certain, and what was tried since.
type Held = Rc<RefCell<Vec<Vec<u8>>>>;

/// How often a chain has moved, and how often that failed.
pub fn back_and_forth(seed: u64) -> (u32, u32) {
    let (sim, mut rng) = (Sim::new(seed, false), Rng::new(seed));
    let striping = StripingHint::simple_stripe(4096, 1);
    let cluster = Cluster::format(sim.control(), &mut rng, 2, 1, striping);
    cluster.give_chains(2);
    cluster.servers().for_each(|server| cluster.boot(server.node));
    sim.run(Duration::from_secs(3000), async move {
        let fs = sim::connect("one").await;
        let made = fs.create(&root(), ROOT, &name("f"), 0o644, Taken::Refuse, access::BOTH).await;
        let (inode, file) = made.expect("nothing is broken");
        fs.sync(ROOT).await.expect("nothing is broken");
        let chain = inode.striping.expect("it is striped").servers.0[0];
        let held: Held = Rc::new(RefCell::new(vec![vec![0]; BLOCKS]));
        let is_over = Rc::new(Cell::new(false));
        let file = Rc::new(file);
        let writer = write(file.clone(), held.clone(), is_over.clone(), rng.fork());
        let writer = task::spawn(writer);
        let trouble = task::spawn(trouble(cluster.clone(), rng.fork()));
        let (mut moved, mut failed) = (0, 0);
        for _ in 0..400 {
            match step(&fs, chain, &mut rng).await {
                Ok(()) => moved += 1,
                Err(_) => failed += 1,
            }
            if moved >= 6 {
                break;
            }
        }
        trouble.await.expect("it only makes trouble");
        task::sleep(Duration::from_secs(20)).await;
        is_over.set(true);
        writer.await.expect("it only writes");
        // Everything is whole: it moves once more, and is read as it was left.
        step(&fs, chain, &mut rng).await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let may_hold = held.take();
        for (at, may) in may_hold.iter().enumerate() {
            let found = file.read_at((at * BLOCK) as u64, BLOCK).await;
            let found = found.unwrap_or_else(|error| panic!("seed {seed}: {error}")).into_bytes();
            // What was not acknowledged may be there in parts.
            let odd = found.iter().find(|byte| !may.contains(byte));
            assert_eq!(odd, None, "seed {seed}: in block {at}, which is one of {may:?}");
            let is_whole = found.len() == BLOCK || may.contains(&0);
            assert!(is_whole, "seed {seed}: {} bytes of block {at}", found.len());
        }
        drop(file);
        task::sleep(Duration::from_secs(60)).await;
        let mut tell = |told: &check::Told| panic!("seed {seed}: {:?}", told.finding);
        let report = check::run(&fs, check::Options::default(), &mut tell);
        let report = report.await.expect("nothing is broken any more");
        assert_eq!(report.unasked, [], "seed {seed}");
        (moved, failed)
    })
    .expect("it ends")
}

/// The chain goes to the other server.
async fn step(fs: &Fs, chain: u16, rng: &mut Rng) -> Result<(), Error> {
    task::sleep(Duration::from_millis(rng.below(400))).await;
    let moved = async {
        let chains = fs.chains().await?;
        let from = chains[usize::from(chain)].head().expect("somebody is whole").server;
        fs.move_chain(chain, 1 - from, &Pace::default()).await.map(drop)
    };
    match task::timeout(Duration::from_secs(100), moved).await {
        Some(moved) => moved,
        None => panic!("a move does not end"),
    }
}

/// Writes blocks and syncs each. Each value is another one for its block, as long as there are few rounds.
async fn write(file: Rc<File>, held: Held, is_over: Rc<Cell<bool>>, mut rng: Rng) {
    let mut values = [0_u8; BLOCKS];
    while !is_over.get() {
        let at = rng.index(BLOCKS);
        values[at] = values[at].wrapping_add(1);
        let value = values[at];
        held.borrow_mut()[at].push(value);
        let written = async {
            file.write_at((at * BLOCK) as u64, vec![value; BLOCK].into()).await?;
            file.fsync().await
        };
        if written.await.is_ok() {
            held.borrow_mut()[at] = vec![value];
        }
        task::sleep(Duration::from_millis(rng.below(60))).await;
    }
}

/// Kills servers and takes their power.
async fn trouble(cluster: Rc<Cluster>, mut rng: Rng) {
    for _ in 0..8 {
        task::sleep(Duration::from_millis(rng.below(1500))).await;
        let nodes: Vec<_> = cluster.servers().map(|server| server.node).collect();
        let node = nodes[rng.index(nodes.len())];
        cluster.crash(node, rng.chance(500));
        if rng.chance(500) {
            task::sleep(Duration::from_millis(rng.below(800))).await;
        }
        cluster.boot(node);
    }
}
