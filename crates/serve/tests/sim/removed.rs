//! Names that a client has removed and not said yet: whoever asks finds that they are gone.

use crate::kept::{code, create, list, mkdir, two_clients};
use crate::scenes::small_with;
use crate::sim;
use crate::sim::roles::{name, root};
use covey_io::task;
use covey_ninep::tree::{Errno, Removal, SetAttr};
use covey_stripe::client::{File, Fs, Listing, Taken, access};
use covey_stripe::ops::{Id, ROOT, StripingHint, rename};
use std::time::Duration;

/// Two clients; the first removes what the second has made in a directory.
struct Pair {
    one: Fs,
    two: Fs,
    dir: Id,
}

/// Bytes of a directory for each of its entries.
const ENTRY: u64 = 32;

impl Pair {
    async fn new() -> Pair {
        let (one, two) = two_clients(true).await;
        let dir = mkdir(&two, ROOT, "d").await;
        Pair { one, two, dir }
    }

    /// A file of the second client's, open there and with another name in the root directory, whose removal the first
    /// client was told is done, and nobody else.
    async fn removed(&self, text: &str) -> (Id, File) {
        // What was taken back is left to all for a while.
        task::sleep(Duration::from_secs(100)).await;
        for spare in ["spare0", "spare1"] {
            drop(create(&self.two, self.dir, spare).await.expect("nothing is broken"));
        }
        let (inode, file) = create(&self.two, self.dir, text).await.expect("nothing is broken");
        self.two.link(&root(), inode.id, ROOT, &name(text)).await.expect("nothing is broken");
        task::sleep(Duration::from_secs(3)).await;
        self.one.lookup(&root(), ROOT, &name("d")).await.expect("it is there");
        list(&self.one, self.dir, Listing::Inodes).await;
        for spare in ["spare0", "spare1"] {
            unlink(&self.one, self.dir, spare).await;
        }
        let before = task::now();
        unlink(&self.one, self.dir, text).await;
        assert_eq!(task::now(), before, "the server was asked to remove {text}");
        (inode.id, file)
    }
}

pub async fn unlink(fs: &Fs, dir: Id, text: &str) {
    fs.unlink(&root(), dir, &name(text), Removal::File).await.expect("it is there");
}

/// Each question, asked by another client right after a name was removed, is answered as if that had been said at once.
pub fn another_asks() {
    let (sim, ..) = small_with(1, StripingHint::progressive(65536, 1));
    sim.run(Duration::from_secs(10_000), async {
        let pair = Pair::new().await;
        let (two, dir) = (&pair.two, pair.dir);
        let is_listed = |listed: &[(String, Option<u64>)], wanted: &str| {
            listed.iter().any(|(text, _)| text == wanted)
        };

        pair.removed("lookup").await;
        let found = two.lookup(&root(), dir, &name("lookup")).await;
        assert_eq!(code(found), Errno::ENOENT);

        pair.removed("dir").await;
        assert_eq!(two.inode(dir).await.expect("it is there").size, 0);

        let (id, _file) = pair.removed("file").await;
        assert_eq!(two.inode(id).await.expect("it is open").nlink, 1);

        let (id, _file) = pair.removed("other name").await;
        let other = two.lookup(&root(), ROOT, &name("other name")).await.expect("it is there");
        assert_eq!((other.id, other.nlink), (id, 1));

        pair.removed("names").await;
        assert!(!is_listed(&list(two, dir, Listing::Names).await, "names"));

        pair.removed("inodes").await;
        assert!(!is_listed(&list(two, dir, Listing::Inodes).await, "inodes"));

        pair.removed("above").await;
        let page = two.readdir(&root(), ROOT, 0, u64::MAX, 1 << 20, Listing::Inodes).await;
        let page = page.expect("nothing is broken");
        let links = page.entries.iter().filter(|entry| entry.name == name("above"));
        let links: Vec<_> =
            links.map(|entry| entry.inode.as_ref().map(|inode| inode.nlink)).collect();
        assert_eq!(links, [Some(1)]);

        let (old, _file) = pair.removed("again").await;
        let (new, _file) = create(two, dir, "again").await.expect("there is none");
        assert_ne!(new.id, old);
        unlink(two, dir, "again").await;

        let (id, _file) = pair.removed("opened").await;
        let opened =
            two.create(&root(), dir, &name("opened"), 0o644, Taken::Open, access::BOTH).await;
        assert_ne!(opened.expect("it is made").0.id, id);
        unlink(two, dir, "opened").await;

        pair.removed("renamed").await;
        let (from, to) = (name("lookup"), name("renamed"));
        let renamed = two.rename(&root(), ROOT, &from, dir, &to, rename::NOREPLACE).await;
        assert_eq!(code(renamed), 0);
        unlink(two, dir, "renamed").await;

        pair.removed("unlinked").await;
        let removed = two.unlink(&root(), dir, &name("unlinked"), Removal::File).await;
        assert_eq!(code(removed), Errno::ENOENT);

        pair.removed("rmdir").await;
        let removed = two.unlink(&root(), ROOT, &name("d"), Removal::Directory).await;
        assert_eq!(code(removed), 0);
    })
    .expect("it ends");
}

/// The same where the client itself asks.
pub fn its_remover_asks() {
    let (sim, ..) = small_with(2, StripingHint::progressive(65536, 1));
    sim.run(Duration::from_secs(10_000), async {
        let pair = Pair::new().await;
        let (one, dir) = (&pair.one, pair.dir);

        pair.removed("lookup").await;
        assert_eq!(code(one.lookup(&root(), dir, &name("lookup")).await), Errno::ENOENT);

        pair.removed("dir").await;
        assert_eq!(one.inode(dir).await.expect("it is there").size, 0);

        let (id, _file) = pair.removed("file").await;
        assert_eq!(one.inode(id).await.expect("it is open").nlink, 1);
        let read = one.open(&root(), id, access::READ).await.expect("it is there");
        assert_eq!(read.read_at(0, 10).await.expect("it is there").len(), 0);

        pair.removed("again").await;
        let removed = one.unlink(&root(), dir, &name("again"), Removal::File).await;
        assert_eq!(code(removed), Errno::ENOENT);
        let (_, file) = create(one, dir, "again").await.expect("there is none");
        file.write_at(0, b"new".to_vec().into()).await.expect("nothing is broken");
        file.flush().await.expect("nothing is broken");
        let found = pair.two.lookup(&root(), dir, &name("again")).await;
        assert_eq!(found.expect("it is there").size, 3);
        unlink(one, dir, "again").await;

        // Who may not, may not.
        pair.removed("closed").await;
        let (_, _file) = create(&pair.two, dir, "kept").await.expect("nothing is broken");
        let closed = SetAttr { mode: Some(0o1755), uid: Some(7), ..SetAttr::default() };
        one.setattr(&root(), dir, closed).await.expect("it is there");
        let user = covey_stripe::ops::Caller { uid: 1000, ..root() };
        let removed = one.unlink(&user, dir, &name("kept"), Removal::File).await;
        assert_eq!(code(removed), Errno::EACCES);
        unlink(one, dir, "kept").await;

        pair.removed("synced").await;
        one.sync(dir).await.expect("nothing is broken");
        pair.removed("last").await;
        let removed = one.unlink(&root(), ROOT, &name("d"), Removal::Directory).await;
        assert_eq!(code(removed), 0);
    })
    .expect("it ends");
}

/// Many names, of files of its own and of others, with more than one name and open: what has no name and is not open
/// goes, all else stays.
pub fn many_are_removed() {
    let (sim, ..) = small_with(3, StripingHint::progressive(4096, 1));
    sim.run(Duration::from_secs(10_000), async {
        let pair = Pair::new().await;
        let (one, two, dir) = (&pair.one, &pair.two, pair.dir);
        let mut ids = Vec::new();
        let mut open = Vec::new();
        for at in 0..600 {
            let maker = if at < 300 { two } else { one };
            let text = format!("f{at}");
            let (inode, file) = create(maker, dir, &text).await.expect("nothing is broken");
            if at % 7 == 0 {
                file.write_at(0, vec![7; 10_000].into()).await.expect("nothing is broken");
            }
            if at % 50 == 0 {
                let other = name(format!("g{at}"));
                two.link(&root(), inode.id, dir, &other).await.expect("nothing is broken");
            }
            if at % 70 == 0 {
                open.push((inode.id, file));
            }
            ids.push(inode.id);
        }
        one.lookup(&root(), ROOT, &name("d")).await.expect("it is there");
        list(one, dir, Listing::Inodes).await;
        for at in 0..600 {
            unlink(one, dir, &format!("f{at}")).await;
            if at % 50 == 0 && at % 100 != 0 {
                unlink(one, dir, &format!("g{at}")).await;
            }
        }
        let listed = list(two, dir, Listing::Names).await;
        let left: Vec<&str> = listed.iter().map(|(text, _)| &text[..]).collect();
        assert_eq!(left, [".", "..", "g0", "g100", "g200", "g300", "g400", "g500"]);
        assert_eq!(two.inode(dir).await.expect("it is there").size, 6 * ENTRY);
        for (id, file) in open {
            let read = file.read_at(0, 10).await.expect("it is open");
            assert_eq!(&read.into_bytes()[..], [7; 10], "file {id}");
        }
        task::sleep(Duration::from_secs(3)).await;
        for (at, id) in ids.into_iter().enumerate() {
            let links = two.inode_now(id).await.map(|inode| inode.nlink);
            match at % 100 {
                0 => assert_eq!(links.ok(), Some(1), "f{at}"),
                _ => assert_eq!(code(links), Errno::ESTALE, "f{at}"),
            }
        }
    })
    .expect("it ends");
}

/// A client is stopped with a removal that it has not said, for longer than it was alone with the directory, and another one
/// puts a file there by the same name: that stays.
pub fn what_came_meanwhile_stays(seed: u64) {
    let (sim, cluster, _) = small_with(seed, StripingHint::progressive(4096, 1));
    let client = cluster.clients[0];
    let (sender, removed) = tokio::sync::oneshot::channel();
    let (told, over) = tokio::sync::oneshot::channel();
    cluster.control.boot(client, async move {
        let pair = Pair::new().await;
        pair.removed("f").await;
        sender.send(pair.dir).expect("somebody waits for it");
        task::sleep(Duration::from_secs(10)).await;
        pair.one.sync(pair.dir).await.expect("nothing is broken");
        told.send(()).expect("somebody waits for it");
    });
    sim.run(Duration::from_secs(300), async move {
        let dir = removed.await.expect("it was removed");
        cluster.control.stop(client);
        let other = sim::connect("other").await;
        let removed = other.unlink(&root(), dir, &name("f"), Removal::File).await;
        assert!([0, Errno::ENOENT].contains(&code(removed)), "seed {seed}");
        let (made, _file) = create(&other, dir, "f").await.expect("there is none");
        other.sync(dir).await.expect("nothing is broken");
        cluster.control.cont(client);
        over.await.expect("it is answered");
        let found = other.lookup(&root(), dir, &name("f")).await.expect("it was synced");
        assert_eq!(found.id, made.id, "seed {seed}");
    })
    .expect("it ends");
}
