//! What a failed sync has lost. Linux takes pages that it could not write for clean, and lets the next sync
//! succeed; the server has one file open for all its clients, so only the first would hear of it. Here it is
//! kept who has heard: every client that syncs the object does once, as with files of its own, and once more where it comes
//! on another connection, with which the answer may have been lost.
//!
//! A server that starts anew knows nothing of that. So a loss is counted in the store, and clients are
//! told another start of the machine than before: what they wrote and have not synced may be lost.

use super::{DataTree, Line};
use covey_io::disk::{Disk, Flush, Open};
use covey_io::task;
use covey_ninep::tree::Errno;
use covey_stripe::ops::Id;
use std::collections::{HashMap, HashSet};
use std::io::{self, IoSlice};
use std::path::Path;

/// How many losses the store has had.
const FILE: &str = "objects.losses";

/// The losses since the server has started.
#[derive(Default)]
pub(super) struct Losses {
    by_object: HashMap<Key, Loss>,
    /// Those of earlier starts.
    pub before: u64,
    count: u64,
    /// The highest number of a client that has said Start. Numbers grow: a client with a higher one has not
    /// been here.
    newest: u64,
    /// Connections that have heard.
    lines: u64,
}

/// An object: its chain, where that has a directory of its own, and its file.
type Key = (Option<u16>, Id);

struct Loss {
    code: u32,
    reason: String,
    /// The newest client that may have written what was lost.
    newest: u64,
    /// Connections on which it was told. Their clients may have lost the answer with them.
    told: HashSet<u64>,
}

impl Losses {
    pub(super) fn of_store(disk: &dyn Disk, store: &Path) -> io::Result<Losses> {
        let before = match disk.open(&store.join(FILE), Open::Existing) {
            Ok(file) => file.read_blocking(0, 8)?[..].try_into().map_or(1, u64::from_le_bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };
        Ok(Losses { before, ..Losses::default() })
    }

    fn add(&mut self, id: Key, error: &io::Error) {
        let reason = format!("what was written and not synced may be lost: {error}");
        let code = Errno::EIO;
        let (newest, told) = (self.newest, HashSet::new());
        self.by_object.insert(id, Loss { code, reason, newest, told });
        self.count += 1;
    }

    /// Whether anything of a chain was lost.
    pub(super) fn concern(&self, chain: Option<u16>) -> bool {
        self.by_object.keys().any(|(at, _)| *at == chain)
    }

    pub(super) fn has_come(&mut self, client: u64) {
        self.newest = self.newest.max(client);
    }

    /// The loss of an object that a client has not heard of on this connection; from now on it has. One that has come
    /// since is told only what nobody else has heard, as on Linux who opens a file later.
    fn tell(&mut self, id: Key, line: &Line) -> Option<Errno> {
        let loss = self.by_object.get_mut(&id)?;
        // When one without a number has come is not known.
        if line.client.get() > loss.newest && !loss.told.is_empty() {
            return None;
        }
        if line.number.get() == 0 {
            self.lines += 1;
            line.number.set(self.lines);
        }
        let is_news = loss.told.insert(line.number.get());
        is_news.then(|| Errno::because(loss.code, loss.reason.clone()))
    }

    /// The object is gone, and what was lost with it.
    pub(super) fn forget(&mut self, id: Key) {
        self.by_object.remove(&id);
    }
}

impl DataTree {
    /// A sync has failed: kept for all clients before anybody is answered.
    pub(super) async fn note_loss(&self, id: Id, error: &io::Error) {
        tracing::error!("object {id:016x} cannot be synced: {error}");
        let count = {
            let mut losses = self.losses.borrow_mut();
            losses.add((self.chain, id), error);
            losses.before + losses.count
        };
        let (disk, store) = (self.disk.clone(), self.store.clone());
        // A disk that cannot take this either is dead: there is nothing to come back to.
        if let Err(error) = task::blocking(move || note(&*disk, &store, count)).await {
            tracing::error!("the loss cannot be noted in the store: {error}");
        }
    }

    /// What a sync is answered with, when it is over.
    pub(super) fn tell_loss(&self, id: Id, line: &Line) -> Result<(), Errno> {
        match self.losses.borrow_mut().tell((self.chain, id), line) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

fn note(disk: &dyn Disk, store: &Path, count: u64) -> io::Result<()> {
    let file = disk.open(&store.join(FILE), Open::Create)?;
    file.write_all_blocking(0, &[IoSlice::new(&count.to_le_bytes())])?;
    file.sync_blocking(Flush::All)?;
    disk.sync_dir(store)
}

#[cfg(test)]
mod tests {
    use super::super::{DataServer, Node};
    use super::*;
    use covey_io::sim::{DiskProfile, Rng, SimDisk};
    use covey_ninep::tree::{Tree, User, Write};
    use covey_stripe::objects::{DataOp, DataReply};
    use covey_wire::Bytes;
    use futures_util::FutureExt;
    use std::rc::Rc;
    use std::sync::Arc;

    struct Rig {
        server: DataServer,
        user: Rc<User>,
    }

    impl Rig {
        fn new(disk: &SimDisk) -> Rig {
            let tree = DataTree::open(Arc::new(disk.clone()), Path::new("/store")).unwrap();
            tree.standing.admit_for_test();
            let user = Rc::new(User { uid: 0, gid: 0, groups: vec![0] });
            Rig { server: DataServer(Rc::new(tree)), user }
        }

        /// A connection of a client, and which start of the machine it is told.
        fn line(&self, client: u64) -> (Rc<Line>, u64) {
            let line = Rc::<Line>::default();
            match self.server.0.start(client, &line).unwrap() {
                DataReply::Start { machine, .. } => (line, machine),
                other => panic!("{other:?}"),
            }
        }

        fn node(&self, line: &Rc<Line>) -> Node {
            Node::Object(self.server.0.object(7), Some(0).into(), line.clone())
        }

        async fn write(&self, line: &Rc<Line>) {
            let data = Bytes::from_static(&[1; 100]);
            let written = self.server.write(&self.user, &self.node(line), Write::bytes(0, data));
            written.into_outcome().wait().await.unwrap();
        }

        async fn sync(&self, line: &Rc<Line>) -> Result<(), u32> {
            let synced = self.server.fsync(&self.user, &self.node(line), false).wait().await;
            synced.map_err(|error| error.code)
        }
    }

    fn disk() -> SimDisk {
        SimDisk::new(DiskProfile::default(), Rng::new(1))
    }

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, test);
    }

    #[test]
    fn every_client_hears_once_of_a_sync_that_failed() {
        run(async {
            let disk = disk();
            let rig = Rig::new(&disk);
            let lines = [1, 2, 3, 0, 0].map(|client| rig.line(client).0);
            rig.write(&lines[0]).await;
            rig.write(&lines[1]).await;
            disk.fail_syncs(1);
            for line in &lines {
                assert_eq!(rig.sync(line).await, Err(Errno::EIO), "each hears of it");
            }
            for line in &lines {
                assert_eq!(rig.sync(line).await, Ok(()), "and once");
            }
            // The answer may have been lost with its connection: on a newer one a client hears once more.
            let newer = rig.line(2).0;
            assert_eq!(rig.sync(&newer).await, Err(Errno::EIO));
            assert_eq!(rig.sync(&newer).await, Ok(()));
            rig.write(&newer).await;
            disk.fail_write_back();
            assert_eq!(rig.sync(&lines[0]).await, Err(Errno::EIO), "of the next, too");
            assert_eq!(rig.sync(&newer).await, Err(Errno::EIO));
        });
    }

    #[test]
    fn who_comes_after_a_loss_hears_of_it_only_if_nobody_has() {
        run(async {
            let disk = disk();
            let rig = Rig::new(&disk);
            let lines = [1, 2].map(|client| rig.line(client).0);
            rig.write(&lines[0]).await;
            disk.fail_syncs(1);
            assert_eq!(rig.sync(&lines[0]).await, Err(Errno::EIO));
            let later = rig.line(3).0;
            assert_eq!(rig.sync(&later).await, Ok(()));
            // Who was here hears, on a newer connection too.
            assert_eq!(rig.sync(&rig.line(2).0).await, Err(Errno::EIO));
            rig.write(&later).await;
            disk.fail_syncs(1);
            assert_eq!(rig.sync(&later).await, Err(Errno::EIO), "of the next loss");
            rig.server.0.note_loss(7, &io::Error::from_raw_os_error(5)).await;
            assert_eq!(rig.sync(&rig.line(4).0).await, Err(Errno::EIO), "nobody has heard");
            assert_eq!(rig.sync(&rig.line(5).0).await, Ok(()));
            assert_eq!(rig.sync(&lines[0]).await, Err(Errno::EIO));
        });
    }

    #[test]
    fn clients_that_sync_at_the_same_time_all_hear_of_the_failure() {
        run(async {
            let disk = disk();
            let rig = Rig::new(&disk);
            let lines = [1, 2, 3].map(|client| rig.line(client).0);
            rig.write(&lines[0]).await;
            disk.fail_syncs(1);
            let syncs = lines.iter().map(|line| rig.sync(line));
            let heard = futures_util::future::join_all(syncs).await;
            assert_eq!(heard, [Err(Errno::EIO); 3]);
        });
    }

    #[test]
    fn a_failure_is_kept_for_all_when_who_asked_for_the_sync_has_gone() {
        run(async {
            let disk = disk();
            let rig = Rig::new(&disk);
            let lines = [1, 2].map(|client| rig.line(client).0);
            rig.write(&lines[0]).await;
            disk.fail_syncs(1);
            let before = disk.operations();
            let mut asked = Box::pin(rig.sync(&lines[0]));
            assert!((&mut asked).now_or_never().is_none());
            while disk.operations() == before {
                tokio::task::yield_now().await;
            }
            // As a flush does, and a connection that is lost.
            drop(asked);
            for line in [&lines[1], &lines[0]] {
                assert_eq!(rig.sync(line).await, Err(Errno::EIO));
                assert_eq!(rig.sync(line).await, Ok(()));
            }
        });
    }

    #[test]
    fn a_directory_that_fails_while_a_cut_is_given_up_is_told_to_who_syncs() {
        run(async {
            // A cut that ends between two looks has told its client: again, until one is given up.
            for _ in 0..1000 {
                if directory_fails_while_a_cut_is_given_up().await {
                    return;
                }
            }
            panic!("no cut could be given up before it had ended");
        });
    }

    /// Whether the cut was given up before its answer.
    async fn directory_fails_while_a_cut_is_given_up() -> bool {
        let disk = disk();
        let rig = Rig::new(&disk);
        let line = rig.line(1).0;
        rig.write(&line).await;
        disk.fail_dir_syncs(1);
        let cut = DataOp::Cut { id: 7, epoch: 1, size: 0 };
        let root = Node::Root(line.clone());
        let call = |op: &DataOp| rig.server.call(&rig.user, &root, op.encode().into()).wait();
        let mut asked = Box::pin(call(&cut));
        while disk.fails_dir_syncs() {
            if (&mut asked).now_or_never().is_some() {
                return false;
            }
            tokio::task::yield_now().await;
        }
        drop(asked);
        call(&cut).await.unwrap();
        let node = Node::Object(rig.server.0.object(7), Some(1).into(), line.clone());
        let synced = rig.server.fsync(&rig.user, &node, false).wait().await;
        assert_eq!(synced.unwrap_err().code, Errno::EIO, "its new name may be lost");
        true
    }

    #[test]
    fn syncs_that_wait_for_their_turn_share_one() {
        run(async {
            let disk = disk();
            let rig = Rig::new(&disk);
            let lines: Vec<_> = (1..=64).map(|client| rig.line(client).0).collect();
            rig.write(&lines[0]).await;
            let before = disk.operations();
            let synced = futures_util::future::join_all(lines.iter().map(|line| rig.sync(line)));
            assert_eq!(synced.await, [Ok(()); 64]);
            assert_eq!(disk.operations() - before, 2, "the file and its name");
        });
    }

    #[test]
    fn a_sync_that_has_begun_does_not_count_for_who_asks_later() {
        run(async {
            let disk = disk();
            let rig = Rig::new(&disk);
            let line = rig.line(1).0;
            // An object that nobody has open forgets that its name is on the disk.
            let _open = rig.node(&line);
            rig.write(&line).await;
            let before = disk.operations();
            let mut first = Box::pin(rig.sync(&line));
            assert!((&mut first).now_or_never().is_none());
            // It begins; then somebody else asks.
            while disk.operations() == before {
                tokio::task::yield_now().await;
            }
            let both = futures_util::future::join(first, rig.sync(&line)).await;
            assert_eq!(both, (Ok(()), Ok(())));
            assert_eq!(disk.operations() - before, 3, "the file, its name, and the file again");
        });
    }

    #[test]
    fn a_server_that_starts_after_a_loss_says_so() {
        run(async {
            let disk = disk();
            let rig = Rig::new(&disk);
            let (line, before) = rig.line(1);
            assert_eq!(Rig::new(&disk).line(1).1, before);
            rig.write(&line).await;
            disk.fail_syncs(1);
            rig.sync(&line).await.unwrap_err();
            assert_eq!(rig.line(2).1, before, "while it runs each client hears of each loss");
            assert_ne!(Rig::new(&disk).line(2).1, before);
        });
    }
}
