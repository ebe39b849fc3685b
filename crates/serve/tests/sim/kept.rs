//! Files that a client has made and not said yet: whoever asks is told of them.

use crate::scenes::small_with;
use crate::sim;
use crate::sim::roles::{name, root};
use covey_io::task;
use covey_ninep::tree::{Errno, Removal, SetAttr};
use covey_stripe::client::{Caching, Error, File, Fs, Listing, Result, Taken, access};
use covey_stripe::ops::{Id, Inode, Quota, ROOT, RangeLock, StripingHint, rename};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What a file holds.
const TEXT: &[u8] = b"content";

/// Two clients, and a directory in which the first makes files.
struct Pair {
    one: Fs,
    two: Fs,
    dir: Id,
    below: Id,
}

/// Two clients that know things under leases.
pub async fn two_clients(delegations: bool) -> (Fs, Fs) {
    let one = sim::connect_as("one", Caching::Leases, delegations).await;
    (one, sim::connect_as("two", Caching::Leases, delegations).await)
}

impl Pair {
    async fn new() -> Pair {
        let (one, two) = two_clients(true).await;
        let dir = mkdir(&one, ROOT, "d").await;
        let below = mkdir(&one, dir, "below").await;
        two.create(&root(), ROOT, &name("other"), 0o644, Taken::Refuse, access::BOTH)
            .await
            .expect("nothing is broken");
        Pair { one, two, dir, below }
    }

    /// A file that nobody has been told of, with what it holds.
    async fn make(&self, text: &str) -> (Inode, File) {
        // Where it was taken back it is left to all for a while.
        task::sleep(Duration::from_secs(100)).await;
        self.one.lookup(&root(), self.dir, &name(text)).await.expect_err("there is none");
        let made = create(&self.one, self.dir, text).await.expect("nothing is broken");
        assert!(self.one.is_unmade(made.0.id), "{text} was said at once");
        made.1.write_at(0, TEXT.to_vec().into()).await.expect("nothing is broken");
        assert!(self.one.is_unmade(made.0.id), "{text} was said with a write");
        made
    }
}

pub async fn mkdir(fs: &Fs, parent: Id, text: &str) -> Id {
    let made = fs.make(&root(), parent, &name(text), 0o040777, 0, name("")).await;
    made.expect("nothing is broken").id
}

pub async fn create(fs: &Fs, dir: Id, text: &str) -> Result<(Inode, File)> {
    fs.create(&root(), dir, &name(text), 0o644, Taken::Refuse, access::BOTH).await
}

pub async fn list(fs: &Fs, dir: Id, listing: Listing) -> Vec<(String, Option<u64>)> {
    let page = fs.readdir(&root(), dir, 0, u64::MAX, 1 << 20, listing).await;
    let entries = page.expect("nothing is broken").entries.into_iter();
    entries.map(|entry| (entry.name.lossy().into(), entry.inode.map(|inode| inode.size))).collect()
}

pub fn code<T>(result: Result<T>) -> u32 {
    result.err().map_or(0, |error: Error| error.code())
}

/// Bytes of a directory for each of its entries.
const ENTRY: u64 = 32;

/// Each question, asked by another client right after a file was made and written, is answered as if it had been said at once.
pub fn another_asks() {
    let (sim, ..) = small_with(1, StripingHint::progressive(65536, 1));
    sim.run(Duration::from_secs(10_000), async {
        let pair = Pair::new().await;
        let (two, dir) = (&pair.two, pair.dir);
        let mut entries = 1;
        let mut made = async |text: &str| {
            entries += 1;
            let (inode, file) = pair.make(text).await;
            (inode.id, file, entries * ENTRY)
        };

        let (id, _file, _) = made("lookup").await;
        let found = two.lookup(&root(), dir, &name("lookup")).await.expect("it is there");
        assert_eq!((found.id, found.size), (id, TEXT.len() as u64));

        let (_, _file, size) = made("getattr").await;
        assert_eq!(two.inode(dir).await.expect("it is there").size, size);

        let (_, _file, _) = made("names").await;
        let is_named = |(text, _): &(String, _), wanted: &str| text == wanted;
        assert!(list(two, dir, Listing::Names).await.iter().any(|entry| is_named(entry, "names")));

        let (_, _file, _) = made("inodes").await;
        let listed = list(two, dir, Listing::Inodes).await;
        assert!(listed.contains(&("inodes".into(), Some(TEXT.len() as u64))), "{listed:?}");

        let (_, _file, size) = made("above").await;
        let listed = list(two, ROOT, Listing::Inodes).await;
        assert!(listed.contains(&("d".into(), Some(size))), "{listed:?}");

        let (_, _file, size) = made("under").await;
        let listed = list(two, pair.below, Listing::Inodes).await;
        assert!(listed.contains(&("..".into(), Some(size))), "{listed:?}");

        let (_, _file, size) = made("walk").await;
        let path = [name("d"), name("below"), name(".."), name("walk")];
        let walked = two.walk(&root(), ROOT, &path).await.expect("it is there");
        assert_eq!((walked[0].size, walked[2].size, walked.len()), (size, size, 4));

        let (id, _file, _) = made("read").await;
        let path = [name("d"), name("read")];
        let read = two.open_read(&root(), ROOT, &path, access::READ, 100).await;
        let read = read.expect("it is there");
        assert_eq!((read.inode.id, &read.data[..]), (id, TEXT));

        let (_, _file, _) = made("taken").await;
        assert_eq!(code(create(two, dir, "taken").await), Errno::EEXIST);

        let (id, _file, _) = made("found").await;
        let opened =
            two.create(&root(), dir, &name("found"), 0o644, Taken::Open, access::BOTH).await;
        assert_eq!(opened.expect("it is opened").0.id, id);

        let (_, _file, _) = made("mkdir").await;
        let made_dir = two.make(&root(), dir, &name("mkdir"), 0o040777, 0, name("")).await;
        assert_eq!(code(made_dir), Errno::EEXIST);

        let (_, _file, _) = made("renamed").await;
        let (from, to) = (name("other"), name("renamed"));
        let renamed = two.rename(&root(), ROOT, &from, dir, &to, rename::NOREPLACE).await;
        assert_eq!(code(renamed), Errno::EEXIST);

        let (_, _file, _) = made("linked").await;
        let other = two.lookup(&root(), ROOT, &from).await.expect("it is there").id;
        assert_eq!(code(two.link(&root(), other, dir, &name("linked")).await), Errno::EEXIST);

        let (id, file, _) = made("unlinked").await;
        two.unlink(&root(), dir, &name("unlinked"), Removal::File).await.expect("it is there");
        file.flush().await.expect("it is still open");
        assert_eq!(pair.one.inode(id).await.expect("it is still open").nlink, 0);

        let (_, _file, _) = made("rmdir").await;
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
        let (f, _file) = pair.make("f").await;
        assert_eq!(one.lookup(&root(), dir, &name("f")).await.expect("it is there").id, f.id);
        let (g, _file) = pair.make("g").await;
        assert_eq!(code(create(one, dir, "g").await), Errno::EEXIST);
        assert_eq!(one.inode(g.id).await.expect("it is there").size, TEXT.len() as u64);
        let (_, _file) = pair.make("h").await;
        assert_eq!(one.inode(dir).await.expect("it is there").size, 4 * ENTRY);
        let (_, _file) = pair.make("i").await;
        let listed = list(one, dir, Listing::Names).await;
        assert!(listed.iter().any(|(text, _)| text == "i"), "{listed:?}");

        let (k, file) = pair.make("k").await;
        one.rename(&root(), dir, &name("k"), ROOT, &name("l"), 0).await.expect("it is there");
        assert_eq!(one.lookup(&root(), ROOT, &name("l")).await.expect("it is there").id, k.id);
        file.flush().await.expect("nothing is broken");

        let (m, file) = pair.make("m").await;
        one.unlink(&root(), dir, &name("m"), Removal::File).await.expect("it is there");
        one.lookup(&root(), dir, &name("m")).await.expect_err("it has no name");
        assert_eq!(&file.read_at(0, 100).await.expect("it is open").into_bytes()[..], TEXT);
        drop(file);
        task::sleep(Duration::from_secs(1)).await;
        assert_eq!(code(one.inode_now(m.id).await), Errno::ESTALE, "it is gone with its handle");

        let (n, file) = pair.make("n").await;
        let cut = SetAttr { size: Some(3), ..SetAttr::default() };
        one.setattr(&root(), n.id, cut).await.expect("it is there");
        assert_eq!(file.read_at(0, 100).await.expect("it is open").len(), 3);

        let (o, _file) = pair.make("o").await;
        let lock = RangeLock::on_all_bytes(1, 1);
        one.lock(o.id, lock.clone(), false).await.expect("nobody has it");
        let held = pair.two.getlock(o.id, RangeLock { owner: 2, ..lock }).await;
        assert!(held.expect("it is there").is_some());

        // Its own change of the directory: the next file goes by it.
        let (_, _file) = pair.make("p").await;
        let closed = SetAttr { mode: Some(0o2755), gid: Some(7), ..SetAttr::default() };
        one.setattr(&root(), dir, closed).await.expect("it is there");
        let (q, _file) = create(one, dir, "q").await.expect("nothing is broken");
        assert_eq!(q.gid, 7);
    })
    .expect("it ends");
}

/// What is larger than what lies with an inode, and appends: the I/O servers are told of no file that there is not.
pub fn large_ones_are_whole() {
    let (sim, ..) = small_with(3, StripingHint::progressive(65536, 1));
    sim.run(Duration::from_secs(10_000), async {
        let pair = Pair::new().await;
        let bytes: Vec<u8> = (0..200_000_u32).map(|at| (at % 251) as u8).collect();
        for (at, size) in [80_000, 200_000, 65_536, 100].into_iter().enumerate() {
            let text = format!("large{at}");
            let (made, file) = pair.make(&text).await;
            file.write_at(0, bytes[..size].to_vec().into()).await.expect("nothing is broken");
            file.append(TEXT.to_vec().into()).await.expect("nothing is broken");
            file.flush().await.expect("nothing is broken");
            let path = [name("d"), name(&text)];
            let read = pair.two.open_read(&root(), ROOT, &path, access::READ, 0).await;
            let file = read.expect("it is there").file;
            assert_eq!(file.id(), made.id);
            let read = file.read_at(0, 1 << 20).await.expect("it is there").into_bytes();
            assert!(
                read[..size] == bytes[..size] && &read[size..] == TEXT,
                "{text}: {}",
                read.len()
            );
        }
    })
    .expect("it ends");
}

/// From the first quota on files are made when they are opened: that is when EDQUOT is told.
pub fn quotas_end_it() {
    let (sim, ..) = small_with(6, StripingHint::progressive(65536, 1));
    sim.run(Duration::from_secs(10_000), async {
        let pair = Pair::new().await;
        let (f, _file) = pair.make("f").await;
        let (kind, id, files_max) = (0, 1000, u64::MAX);
        let quota = Quota { kind, id, bytes_max: 10, files_max, bytes: 0, files: 0 };
        pair.two.set_quota(&root(), quota).await.expect("nothing is broken");
        assert!(!pair.one.is_unmade(f.id));
        let (g, _file) = create(&pair.one, pair.dir, "g").await.expect("root has no limit");
        assert!(!pair.one.is_unmade(g.id));
        task::sleep(Duration::from_secs(100)).await;
        let (h, _file) = create(&pair.one, pair.dir, "h").await.expect("root has no limit");
        assert!(!pair.one.is_unmade(h.id));
    })
    .expect("it ends");
}

/// A client's rename takes a name, while the client makes a file by it: one of them is told that the name is taken.
pub fn a_name_is_taken_by_its_maker() {
    let (sim, ..) = small_with(4, StripingHint::progressive(65536, 1));
    sim.run(Duration::from_secs(10_000), async {
        let pair = Pair::new().await;
        let (_, file) = pair.make("first").await;
        let (who, from, to) = (root(), name("other"), name("x"));
        let moved = pair.one.rename(&who, ROOT, &from, pair.dir, &to, rename::NOREPLACE);
        let (moved, made) = futures_util::join!(moved, create(&pair.one, pair.dir, "x"));
        let made = made.map(|(_, file)| file);
        let closed = match &made {
            Ok(file) => code(file.flush().await),
            Err(_) => 0,
        };
        assert_eq!(closed, 0, "an open that was answered is done");
        assert_eq!([code(moved), code(made)].iter().filter(|code| **code == 0).count(), 1);
        file.flush().await.expect("nothing is broken");
    })
    .expect("it ends");
}

/// What was made and is told of to others, its maker's kernel must forget: no lease on it was granted.
pub fn what_was_made_is_forgotten_with_its_directory() {
    let (sim, ..) = small_with(5, StripingHint::progressive(65536, 1));
    sim.run(Duration::from_secs(10_000), async {
        let pair = Pair::new().await;
        let forgotten = Arc::new(Mutex::new(Vec::new()));
        let heard = forgotten.clone();
        pair.one.on_revoke(Box::new(move |leases| {
            heard.lock().expect("no holder panics").extend(leases.iter().map(|lease| lease.id));
            Box::pin(async {})
        }));
        let (inode, _file) = pair.make("f").await;
        pair.two.lookup(&root(), pair.dir, &name("f")).await.expect("it is there");
        let forgotten = forgotten.lock().expect("no holder panics");
        assert!(forgotten.contains(&inode.id), "{forgotten:?}");
    })
    .expect("it ends");
}

/// A client is stopped with a file that it has not said, for longer than it was alone with the directory, and another one takes the
/// name. The first is told so at its close, and nothing of the other's is touched.
pub fn a_name_is_taken_meanwhile(seed: u64) -> bool {
    let (sim, cluster, _) = small_with(seed, StripingHint::progressive(4096, 1));
    let client = cluster.clients[0];
    let (sender, made) = tokio::sync::oneshot::channel();
    let (told, outcome) = tokio::sync::oneshot::channel();
    cluster.control.boot(client, async move {
        let fs = sim::connect_as("first", Caching::Leases, true).await;
        let dir = mkdir(&fs, ROOT, "d").await;
        let (inode, file) = create(&fs, dir, "f").await.expect("nothing is broken");
        file.write_at(0, vec![1; 100].into()).await.expect("nothing is broken");
        assert!(fs.is_unmade(inode.id));
        sender.send(dir).expect("somebody waits for it");
        task::sleep(Duration::from_micros(1)).await;
        let first = code(file.flush().await);
        task::sleep(Duration::from_secs(70)).await;
        let (_, another) = create(&fs, dir, "g").await.expect("nothing is broken");
        another.write_at(0, vec![1; 100].into()).await.expect("nothing is broken");
        task::sleep(Duration::from_secs(1)).await;
        if first != 0 {
            assert_eq!(code(file.write_at(1 << 20, vec![1; 100].into()).await), first);
        }
        told.send((first, code(file.flush().await))).expect("somebody waits for it");
    });
    sim.run(Duration::from_secs(300), async move {
        let dir = made.await.expect("it was made");
        cluster.control.stop(client);
        let other = sim::connect("other").await;
        let (_, file) = create(&other, dir, "f").await.expect("the first is not waited for");
        file.write_at(0, vec![2; 10].into()).await.expect("nothing is broken");
        file.fsync().await.expect("nothing is broken");
        cluster.control.cont(client);
        let (code, again) = outcome.await.expect("it is answered");
        let is_told = code == Errno::EEXIST;
        assert!(!is_told || again == code, "seed {seed}: it is told as long as the file is open");
        let read = file.read_at(0, 1000).await.expect("nothing is broken").into_bytes();
        assert_eq!(read, vec![2; 10], "seed {seed}: what was synced is undone");
        is_told
    })
    .expect("it ends")
}
