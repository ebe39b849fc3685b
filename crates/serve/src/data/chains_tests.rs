//! What comes by a chain: served at the generation that the metadata server has told, refused at any other.

use super::super::DataServer;
use super::*;
use crate::data::Node;
use covey_io::sim::{DiskProfile, Rng, SimDisk};
use covey_ninep::message::Qid;
use covey_ninep::tree::{Data, Read, Tree, User, View, Write};
use covey_stripe::objects::{Reshape, Staging, name, name_in};
use covey_wire::Bytes;
use futures_util::FutureExt;
use std::path::Path;
use std::sync::Arc;

#[derive(Clone)]
struct Rig {
    server: DataServer,
    user: Rc<User>,
    line: Rc<Line>,
}

fn run(test: impl AsyncFnOnce(Rig)) {
    let disk = SimDisk::new(DiskProfile::default(), Rng::new(1));
    let tree = DataTree::open(Arc::new(disk), Path::new("/store")).unwrap();
    tree.standing.admit_for_test();
    let user = Rc::new(User { uid: 0, gid: 0, groups: vec![0] });
    let rig = Rig { server: DataServer(Rc::new(tree)), user, line: Rc::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, test(rig));
}

const CHAIN: u16 = 3;

fn at(generation: u32) -> Served {
    Served { chain: CHAIN, generation }
}

impl Rig {
    fn root(&self) -> Node {
        Node::Root(self.line.clone())
    }

    async fn call(&self, op: DataOp) -> Result<DataReply> {
        let body = op.encode().into();
        let answer = self.server.call(&self.user, &self.root(), body).wait().await?;
        Ok(DataReply::decode(answer).unwrap())
    }

    async fn serve(&self, chains: &[Served]) -> Result<DataReply> {
        let DataReply::Met { store, .. } = self.server.0.meet() else { panic!("it has a store") };
        self.call(DataOp::Serve { store, chains: covey_wire::List(chains.to_vec()) }).await
    }

    async fn walk(&self, name: Name) -> Result<Node> {
        let found = self.server.walk(&self.user, &self.root(), &[name]).wait().await;
        found.map(|mut found: Vec<(Qid, Node)>| found.remove(0).1)
    }

    async fn write(&self, node: &Node, byte: u8) -> Result<u32> {
        let write = Write::bytes(0, Bytes::from(vec![byte; 100]));
        self.server.write(&self.user, node, write).into_outcome().wait().await
    }

    async fn read(&self, node: &Node) -> Result<Bytes> {
        match self.server.read(&self.user, node, Read::bytes(0, 100)) {
            Data::Bytes(bytes) => Ok(bytes),
            Data::Failed(error) => Err(error),
            Data::Later(later) => later.await,
            _ => panic!("a few bytes are not lent"),
        }
    }

    async fn by(&self, served: Served, op: DataOp) -> Result<DataReply> {
        self.call(DataOp::By { served, op: op.encode().into() }).await
    }
}

fn refused<T>(answer: Result<T>) -> bool {
    answer.err().map(|error| error.code) == Some(Errno::EREMCHG)
}

#[test]
fn what_was_sent_before_a_change_is_refused_after_it_and_what_says_no_chain_is_not() {
    run(async |rig| {
        rig.serve(&[at(1)]).await.unwrap();
        let (old, plain) = (rig.walk(name_in(7, 0, at(1))).await.unwrap(), name(7, 0));
        rig.write(&old, 1).await.unwrap();
        rig.serve(&[at(2)]).await.unwrap();
        assert!(refused(rig.write(&old, 2).await) && refused(rig.read(&old).await));
        let view = || View { bytes: 0, start: 0, end: 0, body: Bytes::new() };
        assert!(refused(rig.server.read_view(&rig.user, &old, view()).wait().await));
        assert!(refused(rig.server.fsync(&rig.user, &old, false).wait().await));
        let new = rig.walk(name_in(7, 0, at(2))).await.unwrap();
        assert_eq!(rig.read(&new).await.unwrap(), vec![1; 100], "nothing of it was done");
        let plain = rig.walk(plain).await.unwrap();
        rig.write(&plain, 3).await.unwrap();
        assert_eq!(rig.read(&new).await.unwrap(), vec![3; 100]);
    });
}

#[test]
fn a_generation_that_is_over_yet_to_come_or_of_another_chain_is_refused_whatever_is_asked() {
    run(async |rig| {
        let other = Served { chain: 4, generation: 5 };
        for told in [&[][..], &[other][..], &[at(5), other], &[at(7)]] {
            rig.serve(told).await.unwrap();
            let wrong =
                [at(0), at(4), at(6), at(u32::MAX), Served { chain: u16::MAX, generation: 5 }];
            for served in wrong.into_iter().chain(Some(at(5)).filter(|at| !told.contains(at))) {
                assert!(refused(rig.walk(name_in(7, 0, served)).await), "{served:?}");
                let how = Reshape::Punch as u8;
                let stage = Staging::Begin as u8;
                for op in [
                    DataOp::Reshape { id: 7, epoch: 0, how, offset: 0, length: 10 },
                    DataOp::Extent { id: 7, epoch: 0, offset: 0 },
                    DataOp::Stage { id: 7, epoch: 1, how: stage, offset: 0, data: vec![].into() },
                    DataOp::Allocated { id: 7 },
                ] {
                    assert!(refused(rig.by(served, op.clone()).await), "{served:?} {op:?}");
                }
            }
        }
        rig.serve(&[at(5)]).await.unwrap();
        rig.by(at(5), DataOp::Allocated { id: 7 }).await.unwrap();
    });
}

#[test]
fn before_it_was_told_a_server_takes_nobodys_word_for_a_chain() {
    run(async |rig| {
        assert!(refused(rig.walk(name_in(7, 0, at(1))).await));
        rig.walk(name(7, 0)).await.unwrap();
    });
}

#[test]
fn a_change_is_answered_when_the_writes_that_were_admitted_before_are_over() {
    run(async |rig| {
        rig.serve(&[at(1)]).await.unwrap();
        let object = rig.server.0.object(7);
        let writing = rig.server.0.begin_writing(&object, 0, 100);
        let two = [at(2)];
        let mut change = Box::pin(rig.serve(&two));
        assert!(change.as_mut().now_or_never().is_none(), "one is under way");
        // The same is told again, as by a metadata server that has started anew: it is not done either.
        let mut again = Box::pin(rig.serve(&two));
        assert!(again.as_mut().now_or_never().is_none(), "it is still under way");
        let old = rig.walk(name_in(7, 0, at(1))).await;
        assert!(refused(old), "meanwhile nobody else begins");
        let later = rig.server.0.begin_writing(&object, 200, 300);
        drop(writing);
        change.await.unwrap();
        again.await.unwrap();
        drop(later);
        // What would be admitted now as well holds nobody up.
        let _writing = rig.server.0.begin_writing(&object, 0, 100);
        rig.serve(&[at(2)]).now_or_never().unwrap().unwrap();
        rig.serve(&[at(2), Served { chain: 9, generation: 1 }]).now_or_never().unwrap().unwrap();
    });
}

#[test]
fn only_what_clients_ask_of_objects_comes_by_a_chain() {
    run(async |rig| {
        rig.serve(&[at(1)]).await.unwrap();
        let nested = DataOp::By { served: at(1), op: DataOp::Allocated { id: 1 }.encode().into() };
        let (store, meta) = (Name::from("x"), Name::from("y"));
        for op in [
            nested,
            DataOp::Meet {},
            DataOp::Greet { client: 1 },
            DataOp::Admit { store: store.clone(), meta },
            DataOp::Serve { store, chains: covey_wire::List(vec![at(9)]) },
            DataOp::Refuse { reason: Name::EMPTY },
        ] {
            let answer = rig.by(at(1), op.clone()).await;
            assert_eq!(answer.unwrap_err().code, Errno::EINVAL, "{op:?}");
        }
        let odd = DataOp::By { served: at(1), op: vec![250].into() };
        assert_eq!(rig.call(odd).await.unwrap_err().code, Errno::EINVAL);
        let other =
            DataOp::Serve { store: Name::from("another"), chains: covey_wire::List(vec![]) };
        assert_eq!(rig.call(other).await.unwrap_err().code, Errno::EINVAL);
        rig.by(at(1), DataOp::Allocated { id: 7 }).await.unwrap();
    });
}

#[test]
fn a_chain_is_given_up_when_nothing_of_it_is_held() {
    run(async |rig| {
        rig.serve(&[at(1)]).await.unwrap();
        rig.call(DataOp::Greet { client: 7 }).await.unwrap();
        let node = rig.walk(name_in(7, 0, at(1))).await.unwrap();
        rig.write(&node, 1).await.unwrap();
        let ask = DataOp::ReadHeld { id: 7, epoch: 0, offset: 10, count: 1000 };
        let DataReply::Met { store, .. } = rig.server.0.meet() else { panic!("it has a store") };
        rig.server.0.clone().admit_store(store, "meta".into()).await.unwrap();
        let begun = std::time::Instant::now();
        let DataReply::Held { millis, data } = rig.by(at(1), ask.clone()).await.unwrap() else {
            panic!("it was read");
        };
        assert_eq!((millis, data.into_bytes()), (20, Bytes::from(vec![1; 90])));
        // Whoever said it first may have gone.
        assert!(rig.serve(&[at(2)]).now_or_never().is_none());
        rig.serve(&[at(2)]).await.unwrap();
        assert!(begun.elapsed() >= std::time::Duration::from_millis(20));
        assert!(refused(rig.by(at(1), ask).await));
        // More than what is taken in one message is refused.
        let ask = DataOp::ReadHeld { id: 7, epoch: 0, offset: 0, count: 1 << 20 };
        assert_eq!(rig.by(at(2), ask).await.unwrap_err().code, Errno::EINVAL);
    });
}
