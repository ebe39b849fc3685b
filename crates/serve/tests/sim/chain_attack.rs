//! What can go wrong while a chain moves, brought about on purpose: movers that come too late, files that are open, servers
//! that cannot do what they are asked.

use crate::sim;
use crate::sim::cluster::Cluster;
use crate::sim::net::SimNet;
use crate::sim::roles::{name, root};
use covey_io::sim::{Rng, Sim};
use covey_io::task;
use covey_stripe::check::Access;
use covey_stripe::client::{
    File, Fs, Link, Options, Pace, Result, Taken, access, data_call, objects_link,
};
use covey_stripe::objects::{DataOp, DataReply, Kept, Put};
use covey_stripe::ops::{Id, Op, ROOT, Reply, StripingHint};
use covey_wire::{List, Name, Payload};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// A cluster of servers with two chains each, and a file on one chain.
struct Scene {
    cluster: Rc<Cluster>,
    fs: Fs,
    id: Id,
    file: File,
    chain: u16,
    /// Where the chain is, and another server.
    from: u16,
    to: u16,
}

fn scene(seed: u64, servers: usize, play: impl AsyncFnOnce(Scene) + 'static) {
    let (sim, mut rng) = (Sim::new(seed, false), Rng::new(seed));
    let striping = StripingHint::simple_stripe(4096, 1);
    let cluster = Cluster::format(sim.control(), &mut rng, servers, 2, striping);
    cluster.give_chains(2);
    cluster.servers().for_each(|server| cluster.boot(server.node));
    sim.run(Duration::from_secs(600), async move {
        let fs = sim::connect("one").await;
        let made = fs.create(&root(), ROOT, &name("f"), 0o644, Taken::Refuse, access::BOTH).await;
        let (inode, file) = made.expect("nothing is broken");
        write(&file, b"old").await;
        fs.sync(ROOT).await.expect("nothing is broken");
        let chain = inode.striping.expect("it is striped").servers.0[0];
        let (from, _) = place(&fs, chain).await;
        let to = (from + 1) % servers as u16;
        play(Scene { cluster, fs, id: inode.id, file, chain, from, to }).await;
    })
    .expect("it ends");
}

async fn write(file: &File, bytes: &[u8]) {
    file.write_at(0, bytes.to_vec().into()).await.expect("nothing is broken");
    file.fsync().await.expect("nothing is broken");
}

async fn content(file: &File) -> Vec<u8> {
    file.read_at(0, 3).await.expect("nothing is broken").into_bytes().to_vec()
}

/// The server that a chain leads to, and its generation.
async fn place(fs: &Fs, chain: u16) -> (u16, u32) {
    let chain = &fs.chains().await.expect("nothing is broken")[usize::from(chain)];
    (chain.head().expect("somebody is whole").server, chain.generation)
}

/// A client that has read the file, and opens it again.
async fn reader(id: Id) -> (Fs, File) {
    let fs = sim::connect("two").await;
    for _ in 0..2 {
        let file = fs.open(&root(), id, access::BOTH).await.expect("nothing is broken");
        assert_eq!(content(&file).await, b"old");
    }
    let file = fs.open(&root(), id, access::BOTH).await.expect("nothing is broken");
    (fs, file)
}

/// Nothing was written through a file before its chain has moved: there is nothing to be lost. Unless the server that the chain
/// was on has lost its power before. It may be switched off for good: who was idle meanwhile has no lease on the table.
pub fn an_open_file_is_synced(power_fails: bool, is_gone: bool) {
    scene(1, 2, async move |scene| {
        // Machines differ in how often they were started.
        let other = scene.cluster.data[1].node;
        scene.cluster.crash(other, true);
        scene.cluster.boot(other);
        let (_two, file) = reader(scene.id).await;
        if power_fails {
            let node = scene.cluster.data[usize::from(scene.from)].node;
            scene.cluster.crash(node, true);
            scene.cluster.boot(node);
            task::sleep(Duration::from_secs(5)).await;
        }
        scene.fs.move_chain(scene.chain, scene.to, &Pace::default()).await.expect("it moves");
        if is_gone {
            task::sleep(Duration::from_secs(5)).await;
            scene.cluster.crash(scene.cluster.data[usize::from(scene.from)].node, true);
        }
        file.write_at(0, b"new".to_vec().into()).await.expect("it is written");
        let synced = file.fsync().await;
        assert_eq!(synced.is_err(), power_fails, "{synced:?}");
        assert_eq!(content(&scene.file).await, b"new");
        file.fsync().await.expect("it was told once");
    });
}

/// One who moves the chain step by step.
struct Mover<'a> {
    scene: &'a Scene,
    link: Arc<Link>,
    store: Name,
    stay: u32,
    /// As it was when the mover began.
    generation: u32,
}

impl<'a> Mover<'a> {
    /// Copies what there is.
    async fn begin(scene: &'a Scene) -> Mover<'a> {
        let (fs, chain) = (&scene.fs, scene.chain);
        let server = &scene.cluster.data[usize::from(scene.to)].name;
        let link = objects_link(Arc::new(SimNet), server, Options::default());
        let Ok(Reply::Stores { stores }) = Access::ask(fs, Op::Stores {}).await else {
            panic!("stores are asked for");
        };
        let store = stores.0[usize::from(scene.to)].known.clone();
        let receive = DataOp::Receive { store: store.clone(), chain };
        let Ok(DataReply::Received { stay }) = data_call(&link, receive).await else {
            panic!("it is received");
        };
        let generation = place(fs, chain).await.1;
        let mover = Mover { scene, link, store, stay, generation };
        let old = content(&scene.file).await;
        let size = old.len() as u64;
        mover.put(Put::Begin, 0, Vec::new()).await;
        mover.put(Put::Go, 0, old).await;
        mover.put(Put::End, size, Vec::new()).await;
        mover
    }

    async fn put(&self, how: Put, offset: u64, data: Vec<u8>) {
        let (chain, stay, id) = (self.scene.chain, self.stay, self.scene.id);
        let (kept, how, data) = (Kept::Object as u8, how as u8, Payload::from(data));
        let put = DataOp::Put { chain, stay, id, epoch: 0, kept, how, offset, data };
        data_call(&self.link, put).await.expect("it is received");
    }

    /// The generation with which it is to be served, and the number of the hold.
    async fn hold(&self) -> Result<(u32, u64)> {
        let (chain, server) = (self.scene.chain, self.scene.to);
        let (generation, stay) = (self.generation, self.stay);
        match Access::ask(&self.scene.fs, Op::HoldChain { chain, server, generation, stay }).await?
        {
            Reply::Held { generation, hold } => Ok((generation, hold)),
            other => panic!("{other:?}"),
        }
    }

    async fn settle(&self, (generation, _): (u32, u64)) {
        let (store, chain, stay) = (self.store.clone(), self.scene.chain, self.stay);
        let hops = List::default();
        let settle = DataOp::Settle { store, chain, stay, generation, hops };
        data_call(&self.link, settle).await.expect("it was received");
    }

    async fn switch(&self, (generation, hold): (u32, u64)) -> Result<()> {
        let (chain, server, stay) = (self.scene.chain, self.scene.to, self.stay);
        let store = self.store.clone();
        let switch = Op::SwitchChain { chain, server, generation, stay, hold, store };
        Access::ask(&self.scene.fs, switch).await.map(drop)
    }
}

/// Another mover takes the chain away while one copies it, and what is left cannot be dropped: the one that copies what is left
/// gives nobody old bytes for new ones.
pub fn a_mover_has_been_overtaken() {
    scene(2, 3, async |scene| {
        // Two pieces: the first one is copied at whatever rate.
        scene.file.write_at(3 << 19, b"end".to_vec().into()).await.expect("nothing is broken");
        scene.file.fsync().await.expect("nothing is broken");
        let mover = Mover::begin(&scene).await;
        let held = mover.hold().await.expect("nobody else moves it");
        // It begins where the chain still is.
        let (chain, last) = (scene.chain, 3 - scene.from - scene.to);
        let pace = Arc::new(Pace::of(Some(1)));
        let late = task::spawn({
            let pace = pace.clone();
            async move {
                let fs = sim::connect("late").await;
                fs.move_chain(chain, last, &pace).await
            }
        });
        task::sleep(Duration::from_millis(500)).await;
        mover.settle(held).await;
        scene.cluster.data[usize::from(scene.from)].disk.fail_dir_syncs(u64::MAX);
        mover.switch(held).await.expect("it was held");
        write(&scene.file, b"new").await;
        pace.set(None);
        let moved = late.await.expect("it ends");
        assert_eq!(content(&scene.file).await, b"new", "{moved:?}");
        assert!(moved.is_err());
        assert_eq!(place(&scene.fs, chain).await.0, scene.to);
    });
}

/// A mover says that it has copied everything when the chain was given back, was written, and is held for another one that
/// goes to the same server.
pub fn a_mover_speaks_for_another() {
    scene(3, 2, async |scene| {
        let mover = Mover::begin(&scene).await;
        let held = mover.hold().await.expect("nobody else moves it");
        mover.settle(held).await;
        Access::ask(&scene.fs, Op::ReleaseChain { hold: held.1 }).await.expect("it is held");
        write(&scene.file, b"new").await;
        let other = Mover::begin(&scene).await;
        let held_now = other.hold().await.expect("nobody else moves it");
        assert_eq!(held_now.0, held.0);
        for held in [held, (held.0, held_now.1)] {
            let late = mover.switch(held).await;
            assert!(late.is_err(), "what it has is old");
        }
        other.settle(held_now).await;
        other.switch(held_now).await.expect("it is held for this one");
        assert_eq!(content(&scene.file).await, b"new");
    });
}

/// The system cannot write back what a program has written and not synced. Whoever syncs it after a move would not hear of it.
pub fn a_write_back_fails(seed: u64) {
    scene(seed, 2, async |scene| {
        scene.file.write_at(0, b"new".to_vec().into()).await.expect("nothing is broken");
        scene.cluster.data[usize::from(scene.from)].disk.fail_write_back();
        let moved = scene.fs.move_chain(scene.chain, scene.to, &Pace::default()).await;
        scene.file.fsync().await.expect_err(&format!("what was written is lost: {moved:?}"));
        moved.expect_err("it is not on the disk");
    });
}

/// Only one chain is held back at a time: the others wait until that is over, and nothing that was copied is copied again.
pub fn a_mover_waits_for_another() {
    scene(4, 2, async |scene| {
        let mover = Mover::begin(&scene).await;
        mover.hold().await.expect("nobody else moves it");
        let other = (0..4).find(|chain| *chain != scene.chain).expect("there are four");
        let (from, _) = place(&scene.fs, other).await;
        let moved = scene.fs.move_chain(other, 1 - from, &Pace::default()).await;
        moved.expect("the other one is given back in time");
    });
}

/// The metadata server ends once it has switched the chain, and before its mover has heard of it.
pub fn an_answer_to_a_switch_is_lost(seed: u64) {
    scene(seed, 2, async move |scene| {
        let (chain, to, cluster) = (scene.chain, scene.to, scene.cluster.clone());
        let two = sim::connect("two").await;
        let killer = task::spawn(async move {
            while place(&two, chain).await.0 != to {
                task::sleep(Duration::from_micros(200)).await;
            }
            cluster.crash(cluster.meta.node, false);
            cluster.boot(cluster.meta.node);
        });
        let moved = scene.fs.move_chain(chain, to, &Pace::default()).await;
        moved.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        killer.await.expect("the chain has moved");
        assert_eq!(place(&scene.fs, chain).await.0, to);
        assert_eq!(content(&scene.file).await, b"old");
    });
}
