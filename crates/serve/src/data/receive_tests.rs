//! Several chains in one store: apart from each other, received, given away, and what changes meanwhile.

use super::super::{DataServer, Node};
use super::*;
use covey_io::sim::{DiskProfile, Rng, SimDisk};
use covey_ninep::tree::{Data, Read, Tree, User, Write};
use covey_stripe::chain::Served;
use covey_stripe::objects::{CHANGES_MAX, COPY_BLOCK, DataOp, Doomed, WHOLE, name_in, of_chain};
use covey_wire::{List, Payload};
use std::sync::Arc;

#[path = "remains_tests.rs"]
mod remains;

/// The chain of the server's own, and another.
const OWN: u16 = 2;
const OTHER: u16 = 9;

/// A start of the machine that the chain comes from.
const MACHINE: u64 = u64::MAX - 1;

struct Rig {
    server: DataServer,
    line: Rc<Line>,
    user: Rc<User>,
}

fn disk() -> SimDisk {
    SimDisk::new(DiskProfile::default(), Rng::new(1))
}

fn open(disk: &SimDisk) -> Rig {
    let tree = DataTree::open(Arc::new(disk.clone()), Path::new("/store")).unwrap();
    tree.standing.admit_for_test();
    let user = Rc::new(User { uid: 0, gid: 0, groups: vec![0] });
    Rig { server: DataServer(Rc::new(tree)), line: Rc::default(), user }
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, test);
}

impl Rig {
    fn tree(&self) -> &Rc<DataTree> {
        &self.server.0
    }

    fn store(&self) -> Name {
        let DataReply::Met { store, .. } = self.tree().meet() else { panic!("it has a store") };
        store
    }

    async fn call(&self, op: DataOp) -> Result<DataReply> {
        self.call_on(&self.line, op).await
    }

    async fn call_on(&self, line: &Rc<Line>, op: DataOp) -> Result<DataReply> {
        let root = Node::Root(line.clone());
        let answer = self.server.call(&self.user, &root, op.encode().into()).wait().await?;
        Ok(DataReply::decode(answer).unwrap())
    }

    /// An operation of the metadata server on a chain.
    async fn on(&self, chain: u16, op: DataOp) -> Result<DataReply> {
        self.call(of_chain(OWN, chain, op)).await
    }

    async fn serve(&self, chains: &[(u16, u32)]) {
        let served = |&(chain, generation): &(u16, u32)| Served { chain, generation };
        let chains = List(chains.iter().map(served).collect());
        self.call(DataOp::ServeAs { store: self.store(), own: OWN, chains }).await.unwrap();
    }

    async fn walk(&self, chain: u16, generation: u32) -> Result<Node> {
        let name = name_in(7, 0, Served { chain, generation });
        let root = Node::Root(self.line.clone());
        Ok(self.server.walk(&self.user, &root, &[name]).wait().await?.remove(0).1)
    }

    async fn write(&self, (chain, generation): (u16, u32), offset: u64, data: &[u8]) {
        let node = self.walk(chain, generation).await.unwrap();
        let write = Write::bytes(offset, Bytes::copy_from_slice(data));
        self.server.write(&self.user, &node, write).into_outcome().wait().await.unwrap();
    }

    async fn read(&self, chain: u16, generation: u32) -> Result<Bytes> {
        let node = self.walk(chain, generation).await?;
        match self.server.read(&self.user, &node, Read::bytes(0, 100)) {
            Data::Bytes(bytes) => Ok(bytes),
            Data::Failed(error) => Err(error),
            Data::Later(later) => later.await,
            _ => panic!("a few bytes are not lent"),
        }
    }

    async fn receive(&self) -> u32 {
        let receive = DataOp::Receive { store: self.store(), chain: OTHER };
        match self.call(receive).await.unwrap() {
            DataReply::Received { stay } => stay,
            other => panic!("{other:?}"),
        }
    }

    async fn put(
        &self,
        line: &Rc<Line>,
        stay: u32,
        how: Put,
        offset: u64,
        data: &[u8],
    ) -> Result<()> {
        let (kept, how, data) = (Kept::Object as u8, how as u8, Payload::from(data.to_vec()));
        let put = DataOp::Put { chain: OTHER, stay, id: 7, epoch: 0, kept, how, offset, data };
        self.call_on(line, put).await.map(drop)
    }

    async fn put_all(&self, stay: u32, data: &[u8]) {
        self.put(&self.line, stay, Put::Begin, 0, b"").await.unwrap();
        self.put(&self.line, stay, Put::Go, 0, data).await.unwrap();
        self.put(&self.line, stay, Put::End, data.len() as u64, b"").await.unwrap();
    }

    async fn settle(&self, stay: u32, generation: u32) -> Result<DataReply> {
        let (store, chain) = (self.store(), OTHER);
        let hops = List(vec![Hop { generation, machine: MACHINE }]);
        self.call(DataOp::Settle { store, chain, stay, generation, hops }).await
    }

    async fn drop_it(&self, chain: u16, generation: u32) -> Result<DataReply> {
        self.call(DataOp::Drop { store: self.store(), chain, generation }).await
    }
}

fn code<T: std::fmt::Debug>(answer: Result<T>) -> u32 {
    answer.unwrap_err().code
}

#[test]
fn two_parts_of_a_file_lie_on_one_server_apart_from_each_other() {
    run(async {
        let disk = disk();
        let rig = open(&disk);
        rig.serve(&[(OWN, 1), (OTHER, 4)]).await;
        rig.write((OWN, 1), 0, b"own").await;
        rig.write((OTHER, 4), 0, b"other").await;
        rig.on(OTHER, DataOp::Cut { id: 7, epoch: 3, size: 2 }).await.unwrap();
        let rig = open(&disk);
        rig.serve(&[(OWN, 1), (OTHER, 4)]).await;
        assert_eq!(rig.read(OWN, 1).await.unwrap(), &b"own"[..]);
        assert_eq!(code(rig.read(OTHER, 4).await), Errno::ESTALE, "it was cut");
        let list = DataOp::Objects { after: 0, count: 10 };
        let DataReply::Objects { objects } = rig.on(OTHER, list).await.unwrap() else { panic!() };
        assert_eq!((objects.0[0].epoch, objects.0[0].bytes), (3, 2));
        let doomed = || List(vec![Doomed { id: 7, epoch: u32::MAX }]);
        rig.on(OTHER, DataOp::Remove { objects: doomed() }).await.unwrap();
        assert_eq!(rig.read(OWN, 1).await.unwrap(), &b"own"[..]);
        let everywhere = DataOp::Remove { objects: doomed() }.encode();
        let chain = covey_stripe::objects::EVERY;
        rig.call(DataOp::In { chain, op: everywhere.into() }).await.unwrap();
        assert_eq!(rig.tree().scan(7).unwrap().len(), 0);
        // What says no chain could mean either.
        let plain = [covey_stripe::objects::name(7, 0)];
        let root = Node::Root(rig.line.clone());
        let walked = rig.server.walk(&rig.user, &root, &plain).wait().await.map(|_| ());
        assert_eq!(code(walked), Errno::EREMCHG);
    });
}

#[test]
fn a_store_from_which_a_chain_was_taken_is_another() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let open = || {
            let disk = Arc::new(covey_io::os::disk::OsDisk);
            let tree = Rc::new(DataTree::open(disk, directory.path()).unwrap());
            let user = Rc::new(User { uid: 0, gid: 0, groups: vec![0] });
            Rig { server: DataServer(tree), line: Rc::default(), user }
        };
        let rig = open();
        let store = rig.store();
        rig.tree().clone().admit_store(store.clone(), "m".into()).await.unwrap();
        rig.serve(&[(OWN, 1), (OTHER, 1)]).await;
        assert_eq!(open().store(), store);
        let dir = dirs::of_stay(&rig.tree().identity_dir(), OTHER, 0);
        std::fs::remove_dir(dir.join("0a")).unwrap();
        assert_ne!(open().store(), store);
    });
}

#[test]
fn how_a_chain_has_come_is_known_as_long_as_it_is_here() {
    run(async {
        let disk = disk();
        let rig = open(&disk);
        rig.serve(&[(OWN, 1)]).await;
        let stay = rig.receive().await;
        rig.put_all(stay, b"whole").await;
        rig.settle(stay, 5).await.unwrap();
        rig.serve(&[(OWN, 1), (OTHER, 5)]).await;
        let rig = open(&disk);
        rig.serve(&[(OWN, 1), (OTHER, 5)]).await;
        let hops = async |chain| match rig.on(chain, DataOp::Hops {}).await.unwrap() {
            DataReply::Hops { hops } => hops.0,
            other => panic!("{other:?}"),
        };
        assert_eq!(hops(OTHER).await, [Hop { generation: 5, machine: MACHINE }]);
        assert_eq!(hops(OWN).await, []);
        let served = Served { chain: OTHER, generation: 5 };
        let op = Payload::from(DataOp::Hops {}.encode());
        let by = rig.call(DataOp::By { served, op }).await.unwrap();
        assert!(matches!(by, DataReply::Hops { hops } if hops.0.len() == 1));
        // Its mover asks while nobody serves it.
        rig.serve(&[(OWN, 1)]).await;
        assert_eq!(hops(OTHER).await.len(), 1);
        rig.drop_it(OTHER, 6).await.unwrap();
        assert!(rig.tree().standing().held().hops.is_empty());
    });
}

#[test]
fn a_chain_that_is_received_counts_for_nothing_before_it_is_settled() {
    run(async {
        let disk = disk();
        let rig = open(&disk);
        rig.serve(&[(OWN, 1)]).await;
        let stay = rig.receive().await;
        rig.put_all(stay, b"half").await;
        // The server starts anew: what was not synced may be lost.
        let rig = open(&disk);
        rig.serve(&[(OWN, 1)]).await;
        assert_eq!(code(rig.put(&rig.line, stay, Put::Go, 0, b"late").await), Errno::ESTALE);
        assert_eq!(code(rig.settle(stay, 5).await), Errno::ESTALE);
        assert_eq!(code(rig.read(OTHER, 5).await), Errno::EREMCHG);

        let stay = rig.receive().await;
        rig.put_all(stay, b"whole").await;
        let other = Rc::<Line>::default();
        let late = rig.put(&other, stay, Put::Go, 0, b"late").await;
        assert_eq!(code(late), Errno::ESTALE, "on another connection");
        let again = rig.receive().await;
        assert!(again > stay, "what is late must not come to lie in it");
        let late = rig.put(&rig.line, stay, Put::Go, 0, b"late").await;
        assert_eq!(code(late), Errno::ESTALE);
        rig.put_all(again, b"whole").await;
        rig.settle(again, 5).await.unwrap();
        assert_eq!(
            code(rig.read(OTHER, 5).await),
            Errno::EREMCHG,
            "nobody has said that it is served"
        );
        let rig = open(&disk);
        rig.serve(&[(OWN, 1), (OTHER, 5)]).await;
        assert_eq!(rig.read(OTHER, 5).await.unwrap(), &b"whole"[..]);
        let receive = DataOp::Receive { store: rig.store(), chain: OTHER };
        assert_eq!(code(rig.call(receive).await), Errno::EBUSY, "it is served here");
    });
}

#[test]
fn what_a_chain_has_left_goes_and_is_never_served_as_if_it_were_the_chain() {
    run(async {
        let disk = disk();
        let rig = open(&disk);
        rig.serve(&[(OWN, 1), (OTHER, 1)]).await;
        rig.write((OWN, 1), 0, b"own").await;
        rig.write((OTHER, 1), 0, b"other").await;
        assert_eq!(code(rig.drop_it(OTHER, 2).await), Errno::EBUSY, "it is served");
        rig.serve(&[]).await;
        let stale = rig.tree().object(7);
        for chain in [OWN, OTHER] {
            rig.drop_it(chain, 2).await.unwrap();
            rig.drop_it(chain, 2).await.unwrap();
        }
        drop(stale);
        for rig in [rig, open(&disk)] {
            // As metadata from an older copy would have it.
            rig.serve(&[(OWN, 70_000), (OTHER, 70_000)]).await;
            for chain in [OWN, OTHER] {
                let error = rig.read(chain, 70_000).await.unwrap_err();
                assert_eq!(error.code, Errno::EREMCHG);
                let asked = rig.on(chain, DataOp::Look { ids: List(vec![7]) }).await;
                assert_eq!(code(asked), Errno::EREMCHG);
            }
        }
        // It comes back, and an older word that it has left is late.
        let rig = open(&disk);
        rig.serve(&[]).await;
        let stay = rig.receive().await;
        rig.put_all(stay, b"back").await;
        rig.settle(stay, 6).await.unwrap();
        rig.drop_it(OTHER, 2).await.unwrap();
        rig.drop_it(OTHER, 6).await.unwrap();
        rig.serve(&[(OTHER, 6)]).await;
        assert_eq!(rig.read(OTHER, 6).await.unwrap(), &b"back"[..]);
    });
}

#[test]
fn a_copy_that_nobody_was_told_to_serve_goes_and_one_that_is_served_stays() {
    run(async {
        let disk = disk();
        let rig = open(&disk);
        rig.serve(&[(OWN, 1), (OTHER, 1)]).await;
        rig.write((OTHER, 1), 0, b"before").await;
        rig.serve(&[(OWN, 1)]).await;
        let copies = async |rig: &Rig| match rig.call(DataOp::Copies {}).await.unwrap() {
            DataReply::Copies { copies } => copies.0.iter().map(|one| one.stay).collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        };
        let discard = async |rig: &Rig, stay| {
            rig.call(DataOp::Discard { store: rig.store(), chain: OTHER, stay }).await.unwrap()
        };
        let first = rig.receive().await;
        rig.put_all(first, b"first").await;
        rig.settle(first, 5).await.unwrap();
        let second = rig.receive().await;
        rig.put_all(second, b"second").await;
        rig.settle(second, 5).await.unwrap();
        assert_eq!(copies(&rig).await, [second], "the later takes the place of the other");
        discard(&rig, first).await;
        // It is not what a generation of before means.
        rig.serve(&[(OWN, 1), (OTHER, 1)]).await;
        assert_eq!(rig.read(OTHER, 1).await.unwrap(), &b"before"[..]);
        rig.serve(&[(OWN, 1)]).await;
        let rig = open(&disk);
        rig.serve(&[(OWN, 1)]).await;
        assert_eq!(copies(&rig).await, [second]);
        rig.serve(&[(OWN, 1), (OTHER, 5)]).await;
        rig.serve(&[(OWN, 1), (OTHER, 5)]).await;
        assert!(copies(&rig).await.is_empty());
        discard(&rig, second).await;
        let rig = open(&disk);
        rig.serve(&[(OWN, 1), (OTHER, 5)]).await;
        assert_eq!(rig.read(OTHER, 5).await.unwrap(), &b"second"[..]);
        // Nobody wants this one.
        rig.serve(&[(OWN, 1)]).await;
        let third = rig.receive().await;
        rig.put_all(third, b"third").await;
        rig.settle(third, 9).await.unwrap();
        discard(&rig, third).await;
        discard(&rig, third).await;
        assert!(copies(&rig).await.is_empty());
        let rig = open(&disk);
        let dir = dirs::of_stay(&rig.tree().identity_dir(), OTHER, third);
        assert!(rig.tree().disk.list(&dir).is_err(), "its directory is left");
        rig.serve(&[(OWN, 1), (OTHER, 6)]).await;
        assert_eq!(rig.read(OTHER, 6).await.unwrap(), &b"second"[..]);
    });
}

#[test]
fn a_start_removes_what_is_said_to_be_of_no_use_and_nothing_else() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let open = || open_dir(directory.path());
        let objects = directory.path().join("objects");
        let rig = open();
        rig.serve(&[(OWN, 1), (OTHER, 1)]).await;
        rig.write((OTHER, 1), 0, b"kept").await;
        let stay = rig.tree().clone().receive(rig.line.clone(), rig.store(), 5).await.unwrap();
        assert_eq!(stay, DataReply::Received { stay: 1 });
        assert!(objects.join("c5.1").exists());
        let rig = open();
        assert!(!objects.join("c5.1").exists(), "its mover is gone");
        rig.serve(&[(OWN, 1), (OTHER, 1)]).await;
        assert_eq!(rig.read(OTHER, 1).await.unwrap(), &b"kept"[..]);
        // An identity that is lost names no directory.
        std::fs::remove_file(objects.join("identity")).unwrap();
        drop(open());
        assert!(objects.join("c9.0/07/0000000000000007").exists());
    });
}

#[test]
fn what_changes_while_a_chain_is_copied_is_noted_until_it_is_asked_for() {
    run(async {
        let rig = open(&disk());
        rig.serve(&[(OWN, 1), (OTHER, 1)]).await;
        let changes = async |line: &Rc<Line>| {
            let changes = of_chain(OWN, OTHER, DataOp::Changes {});
            match rig.call_on(line, changes).await? {
                DataReply::Changes { is_all, parts } => {
                    Ok((is_all, parts.0.iter().map(|one| (one.id, one.block)).collect::<Vec<_>>()))
                }
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(code(changes(&rig.line).await), Errno::ESTALE, "nobody has noted it");
        rig.on(OTHER, DataOp::Watch { is_on: true }).await.unwrap();
        rig.write((OTHER, 1), 3 * COPY_BLOCK - 1, b"ab").await;
        rig.write((OWN, 1), 0, b"own").await;
        assert_eq!(changes(&rig.line).await.unwrap(), (false, vec![(7, 2), (7, 3)]));
        assert_eq!(changes(&rig.line).await.unwrap(), (false, vec![]));
        // One that takes time is noted when it is over, whoever has asked in between.
        let tree = rig.tree().of(OTHER).unwrap();
        let writing = tree.begin_writing(&tree.object(7), 0, 1);
        assert_eq!(changes(&rig.line).await.unwrap(), (false, vec![]));
        drop(writing);
        assert_eq!(changes(&rig.line).await.unwrap(), (false, vec![(7, 0)]));
        rig.on(OTHER, DataOp::Cut { id: 7, epoch: 1, size: 1 }).await.unwrap();
        let doomed = List(vec![Doomed { id: 8, epoch: 0 }]);
        rig.on(OTHER, DataOp::Remove { objects: doomed }).await.unwrap();
        assert_eq!(changes(&rig.line).await.unwrap(), (false, vec![(7, WHOLE), (8, WHOLE)]));
        for id in 0..=CHANGES_MAX as u64 {
            tree.touch(id);
        }
        assert_eq!(changes(&rig.line).await.unwrap(), (true, vec![]));
        assert_eq!(code(changes(&Rc::default()).await), Errno::ESTALE, "an answer may be lost");
    });
}

#[test]
fn a_file_whose_size_the_disk_cannot_say_is_none_without_bytes() {
    run(async {
        let disk = disk();
        let rig = open(&disk);
        rig.serve(&[(OWN, 1), (OTHER, 1)]).await;
        rig.write((OTHER, 1), 0, b"there").await;
        let files = async || match rig.on(OTHER, DataOp::Files { after: 0, count: 9 }).await? {
            DataReply::Files { files } => {
                Ok(files.0.iter().map(|file| (file.id, file.bytes)).collect::<Vec<_>>())
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(files().await.unwrap(), [(7, 5)]);
        // Each look that it takes fails once: none of these answers is a file that has nothing.
        for after in 0..=dirs::FANOUT {
            disk.fail_look(Some(after));
            assert_eq!(code(files().await), Errno::EIO, "look {after}");
        }
        disk.fail_look(None);
        assert_eq!(files().await.unwrap(), [(7, 5)]);
    });
}

#[test]
fn an_older_word_that_a_chain_has_left_comes_too_late_for_one_that_is_being_settled() {
    run(async {
        let rig = open(&disk());
        rig.serve(&[(OWN, 1), (OTHER, 1)]).await;
        rig.serve(&[(OWN, 1)]).await;
        let stay = rig.receive().await;
        rig.put_all(stay, b"back").await;
        let tree = rig.tree().clone();
        let turn = tree.standing.writing.lock().await;
        let settled = rig.settle(stay, 6);
        let dropped = async {
            // It comes as soon as the other waits for its turn.
            task::sleep(std::time::Duration::from_millis(50)).await;
            rig.drop_it(OTHER, 2).await
        };
        let freed = async {
            task::sleep(std::time::Duration::from_millis(100)).await;
            drop(turn);
        };
        let (settled, dropped, ()) = futures_util::future::join3(settled, dropped, freed).await;
        settled.unwrap();
        dropped.unwrap();
        rig.serve(&[(OWN, 1), (OTHER, 6)]).await;
        assert_eq!(rig.read(OTHER, 6).await.unwrap(), &b"back"[..]);
    });
}

/// A rig over a directory of this machine.
fn open_dir(directory: &Path) -> Rig {
    let disk = Arc::new(covey_io::os::disk::OsDisk);
    let tree = DataTree::open(disk, directory).unwrap();
    tree.standing.admit_for_test();
    let user = Rc::new(User { uid: 0, gid: 0, groups: vec![0] });
    Rig { server: DataServer(Rc::new(tree)), line: Rc::default(), user }
}

#[test]
fn a_table_that_comes_late_on_an_older_connection_is_refused() {
    run(async {
        let rig = open(&disk());
        let (old, new) = (Line::numbered(1), Line::numbered(2));
        let serve = async |line: &Rc<Line>, generation| {
            let chains = List(vec![Served { chain: OWN, generation }]);
            let serve = DataOp::ServeAs { store: rig.store(), own: OWN, chains };
            rig.call_on(line, serve).await.map(drop)
        };
        serve(&old, 1).await.unwrap();
        serve(&new, 2).await.unwrap();
        assert_eq!(code(serve(&old, 1).await), Errno::ESTALE);
        assert_eq!(code(rig.walk(OWN, 1).await.map(|_| ())), Errno::EREMCHG);
        serve(&new, 3).await.unwrap();
        rig.walk(OWN, 3).await.unwrap();
    });
}

#[test]
fn a_long_hole_is_passed_with_one_request() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let rig = open_dir(directory.path());
        rig.serve(&[(OWN, 1), (OTHER, 1)]).await;
        const FAR: u64 = 1 << 40;
        rig.write((OTHER, 1), FAR, b"far").await;
        let fetch = async |offset| {
            let kept = Kept::Object as u8;
            let fetch = DataOp::Fetch { id: 7, epoch: 0, kept, offset, count: 1 << 20 };
            match rig.on(OTHER, fetch).await.unwrap() {
                DataReply::Fetched { offset, data } => (offset, data.into_bytes()),
                other => panic!("{other:?}"),
            }
        };
        let (at, none) = fetch(0).await;
        assert!(none.is_empty() && at > FAR - (1 << 20) && at <= FAR, "{at}");
        let (at, data) = fetch(at).await;
        assert!(at <= FAR && data.ends_with(b"far"), "{at}");
        assert_eq!(fetch(FAR + 3).await, (u64::MAX, Bytes::new()), "there is nothing more");
    });
}

#[test]
fn a_server_whose_own_chain_is_elsewhere_keeps_copies_of_the_metadata() {
    run(async {
        let rig = open(&disk());
        let keep = || DataOp::Keep { offset: 0, data: vec![1; 10].into(), end: true };
        // One that was added has never had it.
        rig.serve(&[(OTHER, 1)]).await;
        rig.call(keep()).await.unwrap();
        rig.drop_it(OWN, 2).await.unwrap();
        rig.call(keep()).await.unwrap();
    });
}

#[test]
fn a_new_server_says_what_it_has_once_when_it_is_admitted() {
    run(async {
        let disk = disk();
        let rig = open(&disk);
        rig.tree().standing.is_admitted.set(false);
        let chains: Vec<(u16, u32)> = (0..16).map(|at| (OWN + 4 * at, 1)).collect();
        let before = disk.operations();
        rig.serve(&chains).await;
        // The directories of fifteen chains and the one that they are in.
        assert_eq!(disk.operations() - before, 16);
        rig.call(DataOp::Admit { store: rig.store(), meta: "m".into() }).await.unwrap();
        rig.write((OWN + 4, 1), 0, b"kept").await;
        let rig = open(&disk);
        assert_eq!(rig.tree().others().len(), 15);
        rig.serve(&chains).await;
        assert_eq!(rig.read(OWN + 4, 1).await.unwrap(), &b"kept"[..]);
    });
}

#[test]
fn who_says_no_chain_is_refused_when_the_own_one_has_moved() {
    run(async {
        let rig = open(&disk());
        rig.serve(&[(OWN, 1)]).await;
        let root = Node::Root(rig.line.clone());
        let plain = [covey_stripe::objects::name(7, 0)];
        let walk = async || rig.server.walk(&rig.user, &root, &plain).wait().await;
        let node = walk().await.unwrap().remove(0).1;
        rig.serve(&[]).await;
        assert_eq!(code(walk().await.map(|_| ())), Errno::EREMCHG);
        let write = Write::bytes(0, Bytes::from_static(b"late"));
        let written = rig.server.write(&rig.user, &node, write).into_outcome().wait().await;
        assert_eq!(code(written), Errno::EREMCHG);
    });
}
