//! Every refusal of a data server, brought about.

use super::*;
use covey_io::sim::{DiskProfile, Rng, SimDisk};
use covey_ninep::message::Qid;
use covey_ninep::tree::{Read, Removal, SetAttr, Tree, User, View, Write};
use covey_stripe::objects::{Doomed, Reshape};
use covey_wire::{List, Name};
use std::pin::Pin;

type Answer = Pin<Box<dyn Future<Output = Result<()>>>>;
type Row = (&'static str, u32, fn(Rig) -> Answer);

/// A data server on a small disk, its root, and who asks.
#[derive(Clone)]
struct Rig {
    server: DataServer,
    disk: SimDisk,
    user: Rc<User>,
    line: Rc<Line>,
}

impl Rig {
    fn new() -> Rig {
        let disk = SimDisk::new(DiskProfile::default(), Rng::new(1));
        let tree = DataTree::open(Arc::new(disk.clone()), Path::new("/store")).unwrap();
        tree.standing.admit_for_test();
        let user = Rc::new(User { uid: 0, gid: 0, groups: vec![0] });
        Rig { server: DataServer(Rc::new(tree)), disk, user, line: Rc::default() }
    }

    fn root(&self) -> Node {
        Node::Root(self.line.clone())
    }

    fn walk(&self, name: &str) -> Outcome<Vec<(Qid, Node)>> {
        self.server.walk(&self.user, &self.root(), &[Name::from(name)])
    }

    /// Object 7 at this epoch.
    fn object(&self, epoch: u32) -> Node {
        Node::Object(self.server.0.object(7), Some(epoch).into(), self.line.clone())
    }

    async fn call(&self, op: DataOp) -> Result<()> {
        let answer = self.server.call(&self.user, &self.root(), op.encode().into()).wait().await;
        answer.map(|_| ())
    }

    async fn write(&self, node: &Node) -> Result<()> {
        let data = Bytes::from_static(&[1; 100]);
        let written = self.server.write(&self.user, node, Write::bytes(0, data));
        written.into_outcome().wait().await.map(|_| ())
    }

    async fn cut(&self, epoch: u32) -> Result<()> {
        self.call(DataOp::Cut { id: 7, epoch, size: 0 }).await
    }

    async fn reshape(&self, how: u8, offset: u64) -> Result<()> {
        self.call(DataOp::Reshape { id: 7, epoch: 0, how, offset, length: 10 }).await
    }
}

macro_rules! rows {
    ($($words:literal $code:ident |$rig:ident| $ask:expr;)*) => {
        &[$(($words, Errno::$code, |$rig: Rig| -> Answer {
            Box::pin(async move { $ask.map(drop) })
        })),*]
    };
}

/// Nothing that could be decoded.
fn no_view() -> View {
    View { start: 0, end: 0, bytes: 0, body: Bytes::new() }
}

const REFUSALS: &[Row] = rows! {
    "a name that is no object's" ENOENT |rig| rig.walk("passwd").wait().await;
    "an object that was never written" ENOENT |rig| rig.walk("0000000000000007").wait().await;
    "a walk from an object" ENOENT |rig| {
        rig.server.walk(&rig.user, &rig.object(0), &["x".into()]).wait().await
    };
    "a walk to an epoch that is over" ESTALE |rig| {
        rig.cut(2).await?;
        rig.walk("0000000000000007.1").wait().await
    };
    "a read at an epoch that is over" ESTALE |rig| {
        rig.cut(1).await?;
        rig.server.read(&rig.user, &rig.object(0), Read::bytes(0, 10)).into_outcome().wait().await
    };
    "a view at an epoch that is over" ESTALE |rig| {
        rig.cut(1).await?;
        rig.server.read_view(&rig.user, &rig.object(0), no_view()).wait().await
    };
    "a view that is none" EINVAL |rig| {
        rig.write(&rig.object(0)).await?;
        rig.server.read_view(&rig.user, &rig.object(0), no_view()).wait().await
    };
    "a view that is none, to be written" EINVAL |rig| {
        rig.server.write_view(&rig.user, &rig.object(0), no_view(), Bytes::new()).wait().await
    };
    "a write at an epoch that is over" ESTALE |rig| {
        rig.cut(1).await?;
        rig.write(&rig.object(0)).await
    };
    "an fsync at an epoch that is over" ESTALE |rig| {
        rig.cut(1).await?;
        rig.server.fsync(&rig.user, &rig.object(0), false).wait().await
    };
    "a range at an epoch that is over" ESTALE |rig| {
        rig.cut(1).await?;
        rig.reshape(Reshape::Punch as u8, 0).await
    };
    "a search at an epoch that is over" ESTALE |rig| {
        rig.cut(1).await?;
        rig.call(DataOp::Extent { id: 7, epoch: 0, offset: 0 }).await
    };
    "what is being cut" ESTALE |rig| {
        let object = rig.server.0.object(7);
        let _cutting = Cutting::begin(&object);
        rig.write(&rig.object(0)).await
    };
    "a write to what was removed" ESTALE |rig| {
        rig.call(DataOp::Remove { objects: List(vec![Doomed { id: 7, epoch: 0 }]) }).await?;
        rig.write(&rig.object(0)).await
    };
    "a write on a connection that was given up" ESTALE |rig| {
        rig.server.0.start(5, &rig.line)?;
        rig.server.0.start(5, &Rc::default())?;
        rig.write(&rig.object(0)).await
    };
    "the last of the disk" ENOSPC |rig| {
        rig.disk.set_capacity(1000);
        rig.write(&rig.object(0)).await
    };
    "space beyond the disk" ENOSPC |rig| {
        rig.disk.set_capacity(1000);
        rig.reshape(Reshape::Allocate as u8, 0).await
    };
    "a way to change a range that nobody knows" EOPNOTSUPP |rig| rig.reshape(99, 0).await;
    "a range beyond any file" EFBIG |rig| rig.reshape(1, u64::MAX).await;
    "a size by its attribute" EOPNOTSUPP |rig| {
        let set = SetAttr { size: Some(0), ..SetAttr::default() };
        rig.server.setattr(&rig.user, &rig.object(0), set).wait().await
    };
    "a read of the directory" EISDIR |rig| {
        rig.server.read(&rig.user, &rig.root(), Read::bytes(0, 1)).into_outcome().wait().await
    };
    "a write to the directory" EISDIR |rig| rig.write(&rig.root()).await;
    "a view of the directory" EISDIR |rig| {
        rig.server.read_view(&rig.user, &rig.root(), no_view()).wait().await
    };
    "a view to the directory" EISDIR |rig| {
        rig.server.write_view(&rig.user, &rig.root(), no_view(), Bytes::new()).wait().await
    };
    "a listing of an object" ENOTDIR |rig| {
        rig.server.readdir(&rig.user, &rig.object(0), 0, 1000).wait().await
    };
    "the end of a name that is no object's" ENOENT |rig| {
        rig.server.unlink(&rig.user, &rig.root(), "x".into(), Removal::File).wait().await
    };
    "the end of an object at one epoch" ENOENT |rig| {
        let name = Name::from("0000000000000007.1");
        rig.server.unlink(&rig.user, &rig.root(), name, Removal::File).wait().await
    };
    "a file's name" EROFS |rig| {
        let make = covey_ninep::tree::Make::Dir { mode: 0o755 };
        rig.server.make(&rig.user, &rig.root(), "d".into(), make, 0).wait().await
    };
    "a command on an object" EINVAL |rig| {
        let op = DataOp::Allocated { id: 7 }.encode();
        rig.server.call(&rig.user, &rig.object(0), op.into()).wait().await
    };
    "a command that makes no sense" EINVAL |rig| {
        rig.server.call(&rig.user, &rig.root(), vec![250].into()).wait().await
    };
    "a greeting where there is no connection" EINVAL |rig| {
        let tree = &rig.server.0;
        tree.command(&rig.line, DataOp::Start { client: 1 }, None).wait().await
    };
    "a piece of a copy that somebody else began" EINVAL |rig| {
        rig.call(DataOp::Keep { offset: 0, data: vec![1; 10].into(), end: false }).await?;
        rig.call(DataOp::Keep { offset: 99, data: vec![1; 10].into(), end: false }).await
    };
};

#[test]
fn each_refusal_has_its_errno() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for (words, code, ask) in REFUSALS {
        let answer = tokio::task::LocalSet::new().block_on(&runtime, ask(Rig::new()));
        let error = answer.expect_err(words);
        assert_eq!(error.code, *code, "{words}: {error}");
    }
}

#[test]
fn views_are_counted_for_their_client_and_their_file() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let rig = Rig::new();
        let line = Line::new(rig.server.0.watch().client("ann@n1 pid 3"));
        let object = Node::Object(rig.server.0.object(7), Some(0).into(), line);
        let view = View { bytes: 100, ..no_view() };
        let read = rig.server.read_view(&rig.user, &object, view.clone()).wait().await;
        assert!(read.is_ok_and(|data| data.is_empty()), "it was never written");
        let data = Bytes::from_static(&[1; 60]);
        let written = rig.server.write_view(&rig.user, &object, view, data).wait().await;
        assert_eq!(written.unwrap_err().code, Errno::EINVAL);
        let text = rig.server.0.watch().text(crate::watch::Detail::Summary);
        for line in [
            "op data.read_view errors 0 bytes 100 count 1 ",
            "op data.write_view errors 1 bytes 60 count 1 ",
            "client data \"ann@n1 pid 3\" bytes 160 bytes_read 100 bytes_written 60 count 2 ",
            "file data 0000000000000007 \"ann@n1\" bytes_read 100 bytes_written 0 count 1\n",
        ] {
            assert!(text.contains(line), "no {line} in {text}");
        }
    });
}
