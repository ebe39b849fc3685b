//! What chance would take long to bring about.

use crate::sim;
use crate::sim::cluster::{Cluster, META_DIR, STORE_DIR};
use crate::sim::roles::{name, root};
use covey_io::disk::{Disk, Open};
use covey_io::os::directory::IDENTITY_FILE;
use covey_io::sim::{Rng, Sim};
use covey_io::task;
use covey_ninep::tree::{Errno, Removal, SetAttr};
use covey_stripe::client::{Caching, Fs, Listing, Taken, access};
use covey_stripe::ops::{Caller, Quota, ROOT, RangeLock, StripingHint};
use covey_wire::List;
use std::io::IoSlice;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

/// How long a session outlives its last connection.
const GRACE: Duration = Duration::from_secs(10);

/// The smallest cluster, which runs: a metadata server, a data server and a client of one world.
pub fn small(seed: u64) -> (Sim, Rc<Cluster>, Rng) {
    small_with(seed, StripingHint::simple_stripe(4096, 1))
}

/// The same with this layout.
pub fn small_with(seed: u64, striping: StripingHint) -> (Sim, Rc<Cluster>, Rng) {
    let sim = Sim::new(seed, false);
    let mut rng = Rng::new(seed);
    let cluster = Cluster::format(sim.control(), &mut rng, 1, 1, striping);
    cluster.servers().for_each(|server| cluster.boot(server.node));
    (sim, cluster, rng)
}

/// A client loses its connection twice, for a moment each, and the grace of the first ends in the second: it keeps
/// its session, and its lock.
pub fn a_client_goes_twice() {
    let (sim, cluster, _) = small(1);
    let client = cluster.clients[0];
    let (sender, locked) = tokio::sync::oneshot::channel();
    cluster.control.boot(client, async move {
        let fs = sim::connect("holder").await;
        let made = fs.create(&root(), ROOT, &name("f"), 0o644, Taken::Refuse, access::BOTH).await;
        let file = made.expect("nothing is broken").0.id;
        fs.lock(file, range(), false).await.expect("nobody else has it");
        sender.send(file).expect("somebody waits for it");
        // Holds it for as long as the client lives.
        task::sleep(Duration::from_secs(1000)).await;
        drop(fs);
    });
    sim.run(Duration::from_secs(300), async move {
        let file = locked.await.expect("it was locked");
        let other = sim::connect("other").await;
        break_off(&cluster);
        task::sleep(Duration::from_secs(1)).await;
        unbreak(&cluster);
        task::sleep(GRACE - Duration::from_secs(2)).await;
        break_off(&cluster);
        task::sleep(Duration::from_secs(2)).await;
        let refused = other.lock(file, range(), false).await;
        assert_eq!(refused.expect_err("it is locked").code(), 11);
        unbreak(&cluster);
    })
    .expect("it ends");
}

/// An I/O server is added, and formatted after a sparse file was made that lies on it, too: it has lost nothing.
pub fn a_server_is_added_late() {
    let (sim, mut rng) = (Sim::new(7, false), Rng::new(7));
    let striping = StripingHint::simple_stripe(4096, 0);
    let cluster = Cluster::format_some(sim.control(), &mut rng, (1, 2), 1, striping);
    cluster.boot(cluster.meta.node);
    cluster.boot(cluster.data[0].node);
    sim.run(Duration::from_secs(300), async move {
        sim::connect("before").await.sync(ROOT).await.expect("nothing is broken");
        cluster.crash(cluster.meta.node, false);
        cluster.listed.set(2);
        cluster.boot(cluster.meta.node);
        let fs = sim::connect("one").await;
        let made = fs.create(&root(), ROOT, &name("f"), 0o644, Taken::Refuse, access::BOTH).await;
        let (inode, file) = made.expect("the metadata server is there");
        let servers = inode.striping.expect("it is striped").servers.0;
        let strip = |server| servers.iter().position(|&at| at == server).expect("both") as u64;
        let far = 4096 * (strip(0) + 20);
        file.write_at(far, vec![1; 10].into()).await.expect("it lies on the server that is there");
        file.fsync().await.expect("nothing is broken");
        task::sleep(Duration::from_secs(5)).await;
        // The time at which it was formatted is that of this file.
        let disk = &cluster.data[1].disk;
        disk.make_dir(Path::new(STORE_DIR)).expect("nothing is broken");
        let identity = disk.open(&Path::new(STORE_DIR).join(IDENTITY_FILE), Open::Create);
        identity.unwrap().write_all_blocking(0, &[IoSlice::new(b"new")]).unwrap();
        cluster.boot(cluster.data[1].node);
        task::sleep(Duration::from_secs(5)).await;
        let written = file.write_at(4096 * strip(1), vec![2; 10].into()).await;
        written.expect("the server is new, and has lost nothing");
        let holds = file.read_at(far, 10).await.expect("nothing is broken");
        assert_eq!(holds.clone().into_bytes(), vec![1; 10]);
    })
    .expect("it ends");
}

/// What others do between a loss of power and a sync.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Since {
    Nothing,
    /// Somebody appends, so that the file is cut anew.
    Appends,
    /// And has it longer than before.
    Grows,
    /// And the one who syncs opens it once more.
    Seen,
}

/// One client writes within a size that another has told and nobody synced; then the metadata server loses
/// its power, and the writer syncs. Whether the sync has told of a loss; the bytes are there where
/// it has not. Before that sync somebody else may have the file cut anew.
pub fn a_write_rests_on_a_lost_size(seed: u64, since: Since) -> bool {
    let (sim, cluster, _) = small(seed);
    sim.run(Duration::from_secs(300), async move {
        let (one, two) = (sim::connect("one").await, sim::connect("two").await);
        let file = one
            .create(&root(), ROOT, &name("f"), 0o644, Taken::Refuse, access::BOTH)
            .await
            .unwrap()
            .1;
        one.sync(ROOT).await.unwrap();
        file.fsync().await.unwrap();
        let other = two.open(&root(), file.id(), 6).await.unwrap();
        other.write_at(5000, vec![1; 10].into()).await.unwrap();
        assert_eq!(file.read_at(5000, 100).await.unwrap().len(), 10);
        file.write_at(1000, vec![2; 10].into()).await.unwrap();
        cluster.crash(cluster.meta.node, true);
        cluster.boot(cluster.meta.node);
        if since != Since::Nothing {
            let third = sim::connect("three").await;
            let log = third.open(&root(), file.id(), 6).await.unwrap();
            log.append(vec![3; 10].into()).await.unwrap();
            if since == Since::Grows {
                let size = Some(9000);
                let set = SetAttr { size, ..SetAttr::default() };
                third.setattr(&root(), file.id(), set).await.unwrap();
            }
        }
        if since == Since::Seen {
            drop(one.open(&root(), file.id(), 6).await.unwrap());
        }
        let is_told = file.fsync().await.is_err();
        let read = file.read_at(1000, 10).await.unwrap().into_bytes();
        assert!(is_told || read[..] == [2; 10], "seed {seed}: synced, and {read:?}");
        is_told
    })
    .expect("it ends")
}

/// A client stops with a write that it has not told yet, for longer than it was alone with the file, and another one writes
/// that anew. Whether the first is told that its own never was.
pub fn a_late_write_comes_too_late(seed: u64) -> bool {
    let (sim, cluster, _) = small_with(seed, StripingHint::progressive(4096, 1));
    let client = cluster.clients[0];
    let (sender, made) = tokio::sync::oneshot::channel();
    let (told, outcome) = tokio::sync::oneshot::channel();
    cluster.control.boot(client, async move {
        let fs = sim::connect_as("first", Caching::Leases, true).await;
        let made = fs.create(&root(), ROOT, &name("f"), 0o644, Taken::Refuse, access::BOTH).await;
        let file = made.expect("nothing is broken").1;
        file.write_at(0, vec![1; 100].into()).await.expect("nothing is broken");
        sender.send(file.id()).expect("somebody waits for it");
        task::sleep(Duration::from_micros(1)).await;
        told.send(file.fsync().await.is_err()).expect("somebody waits for it");
    });
    sim.run(Duration::from_secs(300), async move {
        let id = made.await.expect("it was made");
        cluster.control.stop(client);
        let other = sim::connect("other").await;
        let file = other.open(&root(), id, 6).await.expect("the first is not waited for");
        let set = SetAttr { size: Some(0), ..SetAttr::default() };
        other.setattr(&root(), id, set).await.expect("nothing is broken");
        file.write_at(0, vec![2; 10].into()).await.expect("nothing is broken");
        file.fsync().await.expect("nothing is broken");
        cluster.control.cont(client);
        let is_told = outcome.await.expect("it is answered");
        let read = file.read_at(0, 1000).await.expect("nothing is broken").into_bytes();
        assert_eq!(read, vec![2; 10], "seed {seed}: what was synced is undone");
        is_told
    })
    .expect("it ends")
}

/// A write of a new file is refused after it was answered, and whoever has the file open asks late. Whether the write
/// was answered.
pub fn a_refusal_is_told_late(seed: u64) -> bool {
    let (sim, ..) = small_with(seed, StripingHint::progressive(4096, 1));
    sim.run(Duration::from_secs(300), async move {
        let fs = sim::connect_as("one", Caching::Leases, true).await;
        let user = Caller { uid: 1000, gid: 1000, groups: List(vec![1000]) };
        let dir = fs.make(&root(), ROOT, &name("d"), 0o040777, 0, name("")).await.unwrap().id;
        let (kind, id, files_max) = (0, 1000, u64::MAX);
        let quota = Quota { kind, id, bytes_max: 10, files_max, bytes: 0, files: 0 };
        fs.set_quota(&root(), quota).await.expect("nothing is broken");
        task::sleep(Duration::from_secs(2)).await;
        let make = async |who: &Caller, text: &str| {
            let made = fs.create(who, dir, &name(text), 0o644, Taken::Refuse, access::BOTH).await;
            made.expect("nothing is broken").1
        };
        let file = make(&user, "f").await;
        let is_answered = file.write_at(0, vec![1; 20].into()).await.is_ok();
        task::sleep(Duration::from_secs(70)).await;
        let another = make(&root(), "g").await;
        another.write_at(0, vec![1; 20].into()).await.expect("root has no limit");
        task::sleep(Duration::from_secs(1)).await;
        if is_answered {
            let error = file.fsync().await.expect_err("it was never written");
            assert_eq!(error.code(), Errno::EDQUOT, "seed {seed}: {error}");
        }
        is_answered
    })
    .expect("it ends")
}

/// `failing` syncs of the metadata server's disk fail, the log's first: at a client's fsync, or at the sync of
/// each second. Whatever was acknowledged before an fsync that succeeds must then survive a loss of power.
pub fn a_sync_of_the_log_fails(seed: u64, failing: u64) {
    let (sim, cluster, _) = small(seed);
    sim.run(Duration::from_secs(300), async move {
        let fs = sim::connect("one").await;
        let make = async |text: &str| {
            fs.make(&root(), ROOT, &name(text), 0o040755, 0, name(""))
                .await
                .expect("it is retried");
        };
        make("before").await;
        fs.sync(ROOT).await.expect("nothing is broken yet");
        make("during").await;
        cluster.meta.disk.fail_syncs(failing);
        let supervised = cluster.clone();
        drop(task::spawn(async move {
            loop {
                task::sleep(Duration::from_millis(300)).await;
                if !supervised.control.is_up(supervised.meta.node) {
                    supervised.boot(supervised.meta.node);
                }
            }
        }));
        if seed.is_multiple_of(2) {
            task::sleep(Duration::from_millis(1500)).await;
        }
        make("after").await;
        let synced = fs.sync(ROOT).await;
        assert!(
            failing > 1 || synced.is_ok(),
            "seed {seed}: a checkpoint makes it good: {synced:?}"
        );
        // What the server that ended has lost is known by now; what is synced from here on is kept.
        make("last").await;
        fs.sync(ROOT).await.expect("the disk is well again");
        let before = names(&fs).await;
        cluster.crash(cluster.meta.node, true);
        cluster.boot(cluster.meta.node);
        let after = names(&sim::connect("two").await).await;
        assert_eq!(after, before, "seed {seed}: an fsync has succeeded, and names are lost");
        let all = ["after", "before", "during", "last"];
        assert!(failing > 1 || after == all, "seed {seed}: {after:?}");
    })
    .expect("it ends");
}

/// The metadata's map becomes full: then names are refused, a server starts, with or without the loss of its power,
/// and everything can be removed; in the end there is room again.
pub fn a_full_map(seed: u64) {
    let (sim, cluster, mut rng) = small(seed);
    sim.run(Duration::from_secs(3000), async move {
        let (disk, dir) = (&cluster.meta.disk, Path::new(META_DIR));
        let limit = disk.map_used(dir) + 60_000 + rng.below(100_000);
        disk.limit_map(dir, Some(limit));
        let mut restart = async |cluster: &Rc<Cluster>| {
            let power_fails = rng.chance(500);
            cluster.crash(cluster.meta.node, power_fails);
            cluster.boot(cluster.meta.node);
        };
        let fs = sim::connect("one").await;
        let text = |number: usize| name(format!("{number:04}{}", "n".repeat(200)));
        let make =
            async |number| fs.make(&root(), ROOT, &text(number), 0o040755, 0, name("")).await;
        let mut made = 0;
        let refused = loop {
            match make(made).await {
                Ok(_) => made += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(refused.code(), 28, "{refused}");
        fs.sync(ROOT).await.expect("a full map can be synced");
        // Time for the checkpoint of an idle server.
        task::sleep(Duration::from_secs(4)).await;
        let used = disk.map_used(dir);
        assert!(used > limit * 9 / 10, "seed {seed}: refused at {used} of {limit}");
        restart(&cluster).await;
        for number in 0..made {
            if number % 40 == 0 {
                restart(&cluster).await;
            }
            let removed = fs.unlink(&root(), ROOT, &text(number), Removal::Directory).await;
            removed.unwrap_or_else(|error| panic!("seed {seed}: cannot remove {number}: {error}"));
        }
        fs.sync(ROOT).await.expect("nothing is broken");
        make(made).await.expect("there is room again");
    })
    .expect("it ends");
}

/// A file is renamed and looked up, and the metadata server loses its power before a link is answered. The link is of
/// the file that was found, whatever it is called by then; whether the rename was lost.
pub fn a_link_outlives_the_power(seed: u64) -> bool {
    let (sim, cluster, _) = small(seed);
    sim.run(Duration::from_secs(300), async move {
        let fs = sim::connect("one").await;
        let id = fs
            .create(&root(), ROOT, &name("a"), 0o644, Taken::Refuse, access::BOTH)
            .await
            .unwrap()
            .0
            .id;
        fs.sync(ROOT).await.unwrap();
        fs.rename(&root(), ROOT, &name("a"), ROOT, &name("b"), 0).await.unwrap();
        let found = fs.lookup(&root(), ROOT, &name("b")).await.unwrap();
        assert_eq!(found.id, id);
        cluster.crash(cluster.meta.node, true);
        cluster.boot(cluster.meta.node);
        fs.link(&root(), found.id, ROOT, &name("c")).await.expect("the file is there");
        assert_eq!(fs.lookup(&root(), ROOT, &name("c")).await.unwrap().id, id, "seed {seed}");
        let now = names(&fs).await;
        assert!(now == ["a", "c"] || now == ["b", "c"], "seed {seed}: {now:?}");
        now[0] == "a"
    })
    .expect("it ends")
}

async fn names(fs: &Fs) -> Vec<String> {
    let page =
        fs.readdir(&root(), ROOT, 0, 0, 100_000, Listing::Names).await.expect("it has started");
    let names = page.entries.iter().map(|entry| entry.name.lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
    names.sort();
    names
}

/// Cuts the client off, at once seen by both sides.
fn break_off(cluster: &Rc<Cluster>) {
    let (client, meta, control) = (cluster.clients[0], cluster.meta.node, &cluster.control);
    control.block(client, meta);
    control.block(meta, client);
    assert_eq!(control.reset_one(client, meta), 1, "there is one connection");
}

fn unbreak(cluster: &Rc<Cluster>) {
    let (client, meta, control) = (cluster.clients[0], cluster.meta.node, &cluster.control);
    control.unblock(client, meta);
    control.unblock(meta, client);
}

fn range() -> RangeLock {
    RangeLock { exclusive: true, whole: false, start: 0, end: 9, owner: 1, pid: 1 }
}
