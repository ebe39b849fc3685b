//! Names that a client has given to files of its own making and not said yet: whoever asks finds them.

use crate::kept::{code, create, list, mkdir, two_clients};
use crate::removed::unlink;
use crate::scenes::small_with;
use crate::sim;
use crate::sim::roles::{name, root};
use covey_io::task;
use covey_ninep::tree::{Errno, Removal, SetAttr};
use covey_stripe::client::{Fs, Listing, Taken, access};
use covey_stripe::ops::{Id, ROOT, StripingHint, rename};
use std::time::Duration;

/// What a file holds.
const TEXT: &[u8] = b"content";

/// Two clients; the first makes files in a directory by one name, and gives them another.
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

    /// A file that was made, written and closed by the first client, by a name of which the server was told.
    async fn closed(&self, text: &str) -> Id {
        self.one.lookup(&root(), self.dir, &name(text)).await.expect_err("there is none");
        let (inode, file) = create(&self.one, self.dir, text).await.expect("nothing is broken");
        file.write_at(0, TEXT.to_vec().into()).await.expect("nothing is broken");
        file.flush().await.expect("nothing is broken");
        inode.id
    }

    /// A file that has got this name, and has lost its first one, of which nobody was told but the first client.
    async fn linked(&self, text: &str) -> Id {
        // Where it was taken back it is left to all for a while.
        task::sleep(Duration::from_secs(100)).await;
        // The first one shows that others follow.
        for first in [format!("{text}.first"), format!("{text}.second")] {
            let temporary = format!("{first}.tmp");
            let id = self.closed(&temporary).await;
            self.one.lookup(&root(), self.dir, &name(&first)).await.expect_err("there is none");
            self.link(id, &first).await;
            unlink(&self.one, self.dir, &temporary).await;
        }
        let temporary = format!("{text}.tmp");
        let id = self.closed(&temporary).await;
        self.one.lookup(&root(), self.dir, &name(text)).await.expect_err("there is none");
        let before = task::now();
        self.link(id, text).await;
        assert_eq!(task::now(), before, "the server was asked for {text}");
        unlink(&self.one, self.dir, &temporary).await;
        assert_eq!(task::now(), before, "the server was asked to remove the first name of {text}");
        id
    }

    async fn link(&self, id: Id, text: &str) {
        let linked = self.one.link(&root(), id, self.dir, &name(text)).await;
        assert_eq!(linked.expect("nothing is broken").nlink, 2);
    }

    /// What a file by this name holds, as a client reads it.
    async fn read(&self, fs: &Fs, text: &str) -> Vec<u8> {
        let found = fs.lookup(&root(), self.dir, &name(text)).await.expect("it is there");
        assert_eq!((found.nlink, found.size), (1, TEXT.len() as u64), "{text}");
        let file = fs.open(&root(), found.id, access::READ).await.expect("it is there");
        file.read_at(0, 100).await.expect("it is there").into_bytes().to_vec()
    }
}

/// Each question, asked by another client right after a file got its name, is answered as if that had been said at once.
pub fn another_asks() {
    let (sim, ..) = small_with(1, StripingHint::progressive(65536, 1));
    sim.run(Duration::from_secs(10_000), async {
        let pair = Pair::new().await;
        let (two, dir) = (&pair.two, pair.dir);
        let is_listed = |listed: &[(String, Option<u64>)], wanted: &str| {
            listed.iter().any(|(text, _)| text == wanted)
        };

        let id = pair.linked("lookup").await;
        assert_eq!(two.lookup(&root(), dir, &name("lookup")).await.expect("it is there").id, id);

        pair.linked("first name").await;
        let found = two.lookup(&root(), dir, &name("first name.tmp")).await;
        assert_eq!(code(found), Errno::ENOENT);

        pair.linked("read").await;
        assert_eq!(pair.read(two, "read").await, TEXT);

        pair.linked("dir").await;
        let entries = list(two, dir, Listing::Names).await.len() as u64 - 2;
        pair.linked("dir again").await;
        let size = two.inode(dir).await.expect("it is there").size;
        assert_eq!(size, (entries + 3) * 32);

        let id = pair.linked("file").await;
        assert_eq!(two.inode(id).await.expect("it is there").nlink, 1);

        pair.linked("names").await;
        let listed = list(two, dir, Listing::Names).await;
        assert!(is_listed(&listed, "names") && !is_listed(&listed, "names.tmp"));

        pair.linked("inodes").await;
        let listed = list(two, dir, Listing::Inodes).await;
        assert!(is_listed(&listed, "inodes") && !is_listed(&listed, "inodes.tmp"));

        pair.linked("taken").await;
        assert_eq!(code(create(two, dir, "taken").await), Errno::EEXIST);

        let id = pair.linked("opened").await;
        let opened =
            two.create(&root(), dir, &name("opened"), 0o644, Taken::Open, access::BOTH).await;
        assert_eq!(opened.expect("it is there").0.id, id);

        let id = pair.linked("linked").await;
        let linked = two.link(&root(), id, ROOT, &name("elsewhere")).await;
        assert_eq!(linked.expect("it is there").nlink, 2);

        pair.linked("renamed").await;
        let (from, to) = (name("renamed"), name("renamed to"));
        two.rename(&root(), dir, &from, ROOT, &to, rename::NOREPLACE).await.expect("it is there");

        pair.linked("unlinked").await;
        unlink(two, dir, "unlinked").await;

        let id = pair.linked("written").await;
        let file = two.open(&root(), id, access::BOTH).await.expect("it is there");
        file.write_at(0, b"CONTENT".to_vec().into()).await.expect("nothing is broken");
        file.flush().await.expect("nothing is broken");
        assert_eq!(pair.read(&pair.one, "written").await, b"CONTENT");

        pair.linked("rmdir").await;
        let removed = two.unlink(&root(), ROOT, &name("d"), Removal::Directory).await;
        assert_eq!(code(removed), Errno::ENOTEMPTY);
    })
    .expect("it ends");
}

/// The same where the client itself asks.
pub fn its_maker_asks() {
    let (sim, ..) = small_with(2, StripingHint::progressive(65536, 1));
    sim.run(Duration::from_secs(10_000), async {
        let pair = Pair::new().await;
        let (one, dir) = (&pair.one, pair.dir);

        pair.linked("read").await;
        assert_eq!(pair.read(one, "read").await, TEXT);

        pair.linked("first name").await;
        let found = one.lookup(&root(), dir, &name("first name.tmp")).await;
        assert_eq!(code(found), Errno::ENOENT);

        let id = pair.linked("file").await;
        assert_eq!(one.inode(id).await.expect("it is there").nlink, 1);

        pair.linked("taken").await;
        assert_eq!(code(create(one, dir, "taken").await), Errno::EEXIST);

        let id = pair.linked("set").await;
        let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        one.setattr(&root(), id, mode).await.expect("it is there");
        let found = pair.two.lookup(&root(), dir, &name("set")).await.expect("it is there");
        assert_eq!((found.mode & 0o777, found.nlink), (0o600, 1));

        pair.linked("gone").await;
        unlink(one, dir, "gone").await;
        let found = pair.two.lookup(&root(), dir, &name("gone")).await;
        assert_eq!(code(found), Errno::ENOENT);

        pair.linked("synced").await;
        one.sync(dir).await.expect("nothing is broken");
        assert_eq!(pair.read(&pair.two, "synced").await, TEXT);

        let id = pair.linked("once more").await;
        let linked = one.link(&root(), id, dir, &name("third")).await;
        assert_eq!(linked.expect("it is there").nlink, 2);

        // The first name goes at once, as the file is open: then the other one is its last.
        pair.linked("before the lock").await;
        let (temporary, lock) = (name("lock.tmp"), name("lock"));
        one.lookup(&root(), dir, &temporary).await.expect_err("there is none");
        let (inode, file) = create(one, dir, "lock.tmp").await.expect("nothing is broken");
        file.flush().await.expect("nothing is broken");
        one.lookup(&root(), dir, &lock).await.expect_err("there is none");
        pair.link(inode.id, "lock").await;
        unlink(one, dir, "lock.tmp").await;
        drop(file);
        unlink(one, dir, "lock").await;
        one.sync(dir).await.expect("nothing was refused");
        assert_eq!(code(pair.two.lookup(&root(), dir, &lock).await), Errno::ENOENT);

        // What has changed since the file was made is told by a link.
        pair.linked("before the mode").await;
        let id = pair.closed("mode.tmp").await;
        let mode = SetAttr { mode: Some(0o640), ..SetAttr::default() };
        one.setattr(&root(), id, mode).await.expect("it is there");
        one.link(&root(), id, ROOT, &name("mode elsewhere")).await.expect("it is there");
        let linked = one.link(&root(), id, dir, &name("mode")).await.expect("it is there");
        assert_eq!((linked.mode & 0o777, linked.nlink), (0o640, 3));

        // A name that is taken, and users who may not.
        let id = pair.closed("again.tmp").await;
        let taken = one.link(&root(), id, dir, &name("third")).await;
        assert_eq!(code(taken), Errno::EEXIST);
        let user = covey_stripe::ops::Caller { uid: 1000, ..root() };
        let mode = SetAttr { mode: Some(0o755), ..SetAttr::default() };
        one.setattr(&root(), dir, mode).await.expect("it is there");
        let id = pair.closed("once again.tmp").await;
        one.lookup(&root(), dir, &name("not his")).await.expect_err("there is none");
        let refused = one.link(&user, id, dir, &name("not his")).await;
        assert_eq!(code(refused), Errno::EACCES);
    })
    .expect("it ends");
}

/// A client is stopped with a link that it has not said, for longer than it was alone with the directory, and another one
/// puts a file there by the same name: that stays, and so does what the link was to, by its first name.
pub fn a_link_that_is_refused_takes_no_file_with_it(seed: u64) {
    let (sim, cluster, _) = small_with(seed, StripingHint::progressive(4096, 1));
    let client = cluster.clients[0];
    let (sender, linked) = tokio::sync::oneshot::channel();
    let (told, over) = tokio::sync::oneshot::channel();
    cluster.control.boot(client, async move {
        let pair = Pair::new().await;
        let id = pair.linked("f").await;
        sender.send((pair.dir, id)).expect("somebody waits for it");
        task::sleep(Duration::from_secs(10)).await;
        told.send(code(pair.one.sync(pair.dir).await)).expect("somebody waits for it");
    });
    sim.run(Duration::from_secs(300), async move {
        let (dir, id) = linked.await.expect("it was linked");
        cluster.control.stop(client);
        let other = sim::connect("other").await;
        let made = create(&other, dir, "f").await;
        cluster.control.cont(client);
        let synced = over.await.expect("it is answered");
        let by_first = other.lookup(&root(), dir, &name("f.tmp")).await;
        let Ok((made, _file)) = made else {
            // It was said before the client was stopped.
            assert_eq!((synced, code(by_first)), (0, Errno::ENOENT), "seed {seed}");
            return;
        };
        assert_eq!(synced, Errno::EEXIST, "seed {seed}: nobody was told");
        let found = other.lookup(&root(), dir, &name("f")).await.expect("it was made");
        assert_eq!(found.id, made.id, "seed {seed}");
        assert_eq!(by_first.expect("it has no other name").id, id, "seed {seed}");
        let file = other.open(&root(), id, access::READ).await.expect("it is there");
        let read = file.read_at(0, 100).await.expect("it is there");
        assert_eq!(&read.into_bytes()[..], TEXT, "seed {seed}");
    })
    .expect("it ends");
}

/// The same where the first name is removed at once, since the file is open: that fails, as the link has.
pub fn a_removal_at_once_tells_of_the_link_that_was_refused(seed: u64) -> bool {
    let (sim, cluster, _) = small_with(seed, StripingHint::progressive(4096, 1));
    let client = cluster.clients[0];
    let (sender, linked) = tokio::sync::oneshot::channel();
    let (told, over) = tokio::sync::oneshot::channel();
    cluster.control.boot(client, async move {
        let pair = Pair::new().await;
        pair.linked("before").await;
        pair.one.lookup(&root(), pair.dir, &name("f.tmp")).await.expect_err("there is none");
        let (inode, file) = create(&pair.one, pair.dir, "f.tmp").await.expect("nothing is broken");
        file.write_at(0, TEXT.to_vec().into()).await.expect("nothing is broken");
        file.flush().await.expect("nothing is broken");
        pair.one.lookup(&root(), pair.dir, &name("f")).await.expect_err("there is none");
        pair.link(inode.id, "f").await;
        sender.send((pair.dir, inode.id)).expect("somebody waits for it");
        // Stopped now, and before the link is said.
        task::sleep(Duration::from_millis(1)).await;
        let removed = pair.one.unlink(&root(), pair.dir, &name("f.tmp"), Removal::File).await;
        drop(file);
        told.send(code(removed)).expect("somebody waits for it");
    });
    sim.run(Duration::from_secs(300), async move {
        let (dir, id) = linked.await.expect("it was linked");
        cluster.control.stop(client);
        let other = sim::connect("other").await;
        let is_taken = create(&other, dir, "f").await.is_ok();
        cluster.control.cont(client);
        let removed = over.await.expect("it is answered");
        let by_first = other.lookup(&root(), dir, &name("f.tmp")).await;
        if is_taken {
            assert_eq!(removed, Errno::EEXIST, "seed {seed}: nobody was told");
            assert_eq!(by_first.expect("it has no other name").id, id, "seed {seed}");
        } else {
            assert_eq!((removed, code(by_first)), (0, Errno::ENOENT), "seed {seed}");
        }
        is_taken
    })
    .expect("it ends")
}

/// A file that is closed late is there for whoever asks, and a client that dies takes it along only before it was said.
pub fn a_file_that_is_closed_late_is_there(seed: u64) {
    let (sim, cluster, _) = small_with(seed, StripingHint::progressive(65536, 1));
    let client = cluster.clients[0];
    let (sender, closed) = tokio::sync::oneshot::channel();
    cluster.control.boot(client, async move {
        let (pair, mut sender) = (Pair::new().await, Some(sender));
        for text in ["asked", "said", "lost"] {
            task::sleep(Duration::from_secs(100)).await;
            pair.closed(&format!("{text} before")).await;
            pair.one.lookup(&root(), pair.dir, &name(text)).await.expect_err("there is none");
            let (_, file) = create(&pair.one, pair.dir, text).await.expect("nothing is broken");
            let before = task::now();
            file.write_at(0, TEXT.to_vec().into()).await.expect("nothing is broken");
            file.flush_late().await.expect("nothing is broken");
            drop(file);
            assert_eq!(task::now(), before, "seed {seed}: the server was asked");
            match text {
                "asked" => assert_eq!(pair.read(&pair.two, text).await, TEXT),
                "said" => task::sleep(Duration::from_millis(50)).await,
                _ => {
                    let sender = sender.take().expect("it is the last one");
                    sender.send(pair.dir).expect("somebody waits for it");
                }
            }
        }
        std::future::pending::<()>().await;
    });
    sim.run(Duration::from_secs(1000), async move {
        let dir = closed.await.expect("they were closed");
        cluster.control.kill(client);
        task::sleep(Duration::from_secs(30)).await;
        let other = sim::connect("other").await;
        for text in ["asked", "said"] {
            let found = other.lookup(&root(), dir, &name(text)).await.expect("it was said");
            assert_eq!(found.size, TEXT.len() as u64, "seed {seed}: {text}");
        }
        match other.lookup(&root(), dir, &name("lost")).await {
            Ok(found) => assert_eq!(found.size, TEXT.len() as u64, "seed {seed}: all or nothing"),
            Err(error) => assert_eq!(error.code(), Errno::ENOENT, "seed {seed}"),
        }
    })
    .expect("it ends");
}
