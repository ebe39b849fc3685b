//! Attributes of a directory that a client is alone with, and has not said yet: whoever asks is told of them.

use crate::kept::{code, create, list, mkdir, two_clients};
use crate::scenes::small_with;
use crate::sim;
use crate::sim::roles::{name, root};
use covey_io::task;
use covey_ninep::tree::{Errno, Removal, SetAttr, SetTime, Time};
use covey_stripe::client::{Fs, Listing, Taken, access};
use covey_stripe::ops::{Caller, Id, ROOT, StripingHint};
use covey_wire::List;
use std::time::Duration;

const MTIME: u64 = 1_000_000_000;

fn set(mode: u32) -> SetAttr {
    let time = Time { sec: MTIME, nsec: 0 };
    SetAttr { mode: Some(mode), mtime: Some(SetTime::To(time)), ..SetAttr::default() }
}

fn user() -> Caller {
    Caller { uid: 7, gid: 7, groups: List(vec![7]) }
}

/// Two clients; the first is alone with a directory.
struct Pair {
    one: Fs,
    two: Fs,
    dir: Id,
}

impl Pair {
    async fn new() -> Pair {
        let (one, two) = two_clients(true).await;
        let dir = mkdir(&one, ROOT, "d").await;
        Pair { one, two, dir }
    }

    /// The first makes a file, closes it, and sets the directory's mode and time without asking.
    async fn made_and_set(&self, text: &str, mode: u32) {
        // Where it was taken back it is left to all for a while.
        task::sleep(Duration::from_secs(100)).await;
        self.one.lookup(&root(), self.dir, &name(text)).await.expect_err("there is none");
        let (_, file) = create(&self.one, self.dir, text).await.expect("nothing is broken");
        file.flush().await.expect("nothing is broken");
        drop(file);
        self.set_at_once(mode).await;
    }

    async fn set_at_once(&self, mode: u32) {
        let before = task::now();
        let done = self.one.setattr(&root(), self.dir, set(mode)).await.expect("it is there");
        assert_eq!(task::now(), before, "the server was asked");
        assert_eq!(done.inode.mode & 0o7777, mode);
    }

    async fn told(&self, fs: &Fs) -> (u32, u64) {
        let inode = fs.inode(self.dir).await.expect("it is there");
        (inode.mode & 0o7777, inode.mtime / 1_000_000_000)
    }
}

/// Each question of another client is answered as if the attributes had been set at once.
pub fn another_asks() {
    let (sim, ..) = small_with(1, StripingHint::progressive(65536, 1));
    sim.run(Duration::from_secs(10_000), async {
        let pair = Pair::new().await;
        let (two, dir) = (&pair.two, pair.dir);
        pair.made_and_set("stat", 0o700).await;
        assert_eq!(pair.told(two).await, (0o700, MTIME));

        pair.made_and_set("looked up", 0o711).await;
        let found = two.lookup(&root(), ROOT, &name("d")).await.expect("it is there");
        assert_eq!(found.mode & 0o7777, 0o711);

        pair.made_and_set("entered", 0o700).await;
        let user = user();
        let entered = two.lookup(&user, dir, &name("entered")).await;
        assert_eq!(code(entered), Errno::EACCES);

        pair.made_and_set("made", 0o755).await;
        let made = two.create(&user, dir, &name("f"), 0o644, Taken::Refuse, access::BOTH).await;
        assert_eq!(code(made), Errno::EACCES);

        pair.made_and_set("without a name", 0o700).await;
        let made = two.tmpfile(&user, dir, 0o644, access::BOTH).await;
        assert_eq!(code(made), Errno::EACCES);

        pair.made_and_set("attributes", 0o755).await;
        task::sleep(Duration::from_secs(1)).await;
        pair.made_and_set("attribute", 0o700).await;
        let value = two.getxattr(&user, dir, &name("user.any")).await;
        assert_eq!(code(value), Errno::EACCES);

        pair.made_and_set("listed", 0o750).await;
        assert!(list(two, ROOT, Listing::Inodes).await.iter().any(|(text, _)| text == "d"));
        assert_eq!(pair.told(two).await, (0o750, MTIME));

        // And soon, when nobody asks.
        pair.made_and_set("left alone", 0o751).await;
        task::sleep(Duration::from_millis(50)).await;
        let before = task::now();
        assert_eq!(pair.told(two).await, (0o751, MTIME));
        assert!(task::now() - before < Duration::from_millis(20), "nothing had to be taken back");
    })
    .expect("it ends");
}

/// What is done in the directory before its time is set does not change that, and what is done after does.
pub fn names_change_before_and_after() {
    let (sim, ..) = small_with(1, StripingHint::progressive(65536, 1));
    sim.run(Duration::from_secs(10_000), async {
        let pair = Pair::new().await;
        let (one, dir) = (&pair.one, pair.dir);
        pair.made_and_set("first", 0o755).await;
        task::sleep(Duration::from_millis(50)).await;
        // Made, and not said.
        one.lookup(&root(), dir, &name("second")).await.expect_err("there is none");
        let before = task::now();
        let (_, second) = create(one, dir, "second").await.expect("nothing is broken");
        assert_eq!(task::now(), before, "the server was asked");
        pair.set_at_once(0o700).await;
        assert_eq!(pair.told(&pair.two).await, (0o700, MTIME), "after a file was made");
        drop(second);

        pair.made_and_set("third", 0o755).await;
        let (_, fourth) = create(one, dir, "fourth").await.expect("nothing is broken");
        let (mode, mtime) = pair.told(&pair.two).await;
        assert!(mode == 0o755 && mtime > MTIME, "a file was made after it was set: {mtime}");
        drop(fourth);

        // Its own mode is the one by which its maker is judged.
        pair.made_and_set("fifth", 0o555).await;
        let user = user();
        let made = one.create(&user, dir, &name("sixth"), 0o644, Taken::Refuse, access::BOTH).await;
        assert_eq!(code(made), Errno::EACCES);

        pair.made_and_set("sixth", 0o700).await;
        let made = one.tmpfile(&user, dir, 0o644, access::BOTH).await;
        assert_eq!(code(made), Errno::EACCES);

        // Its owner asks.
        pair.made_and_set("seventh", 0o700).await;
        assert_eq!(pair.told(one).await, (0o700, MTIME));
        // A removal comes after it.
        pair.made_and_set("eighth", 0o755).await;
        one.unlink(&root(), dir, &name("eighth"), Removal::File).await.expect("it is there");
        one.sync(dir).await.expect("nothing is broken");
        assert!(pair.told(one).await.1 > MTIME);
    })
    .expect("it ends");
}

/// A client is stopped with attributes that it has not said, for longer than it was alone, and another one sets them: those
/// stay, and the first is told. Whether they were said before.
pub fn another_sets_them_meanwhile(seed: u64) -> bool {
    let (sim, cluster, mut rng) = small_with(seed, StripingHint::progressive(4096, 1));
    let client = cluster.clients[0];
    let (sender, was_set) = tokio::sync::oneshot::channel();
    let (told, over) = tokio::sync::oneshot::channel();
    cluster.control.boot(client, async move {
        let pair = Pair::new().await;
        pair.made_and_set("f", 0o700).await;
        sender.send(pair.dir).expect("somebody waits for it");
        task::sleep(Duration::from_secs(10)).await;
        told.send(code(pair.one.sync(pair.dir).await)).expect("somebody waits for it");
    });
    sim.run(Duration::from_secs(300), async move {
        let dir = was_set.await.expect("it was set");
        task::sleep(rng.time(Duration::ZERO..Duration::from_millis(10))).await;
        cluster.control.stop(client);
        let other = sim::connect("other").await;
        let before = other.inode(dir).await.expect("it is there").mode & 0o7777;
        other.setattr(&root(), dir, set(0o711)).await.expect("it is there");
        cluster.control.cont(client);
        let synced = over.await.expect("it is answered");
        let was_said = before == 0o700;
        assert_eq!(synced, if was_said { 0 } else { Errno::ESTALE }, "seed {seed}");
        let now = other.inode(dir).await.expect("it is there").mode & 0o7777;
        assert_eq!(now, 0o711, "seed {seed}");
        was_said
    })
    .expect("it ends")
}

/// The metadata server starts anew, or the client is cut off, and nobody else has changed the directory: it is as it was set.
pub fn nobody_is_known_to_be_alone(seed: u64) {
    let (sim, cluster, mut rng) = small_with(seed, StripingHint::progressive(4096, 1));
    sim.run(Duration::from_secs(10_000), async move {
        let pair = Pair::new().await;
        for mode in [0o700, 0o711, 0o750] {
            pair.made_and_set(&format!("f{mode}"), mode).await;
            task::sleep(rng.time(Duration::ZERO..Duration::from_millis(4))).await;
            cluster.crash(cluster.meta.node, false);
            cluster.boot(cluster.meta.node);
            pair.one.sync(pair.dir).await.expect("nothing is broken");
            assert_eq!(pair.told(&pair.two).await, (mode, MTIME), "seed {seed}");
        }
    })
    .expect("it ends");
}
