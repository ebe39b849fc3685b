//! A data server as a 9P tree: what is asked of objects by their names.

use super::line::{Line, Node, id_of, qid, root_qid};
use super::receive::Piece;
use super::{DataTree, Object};
use crate::watch::{Carries, Request};
use covey_io::disk::{self, FileStat};
use covey_io::task;
use covey_ninep::message::Qid;
use covey_ninep::tree::{
    self, Attach, Attr, Data, Entry, Errno, Opened, Outcome, Read, Removal, SetAttr, Statfs, Time,
    Tree, User, View, Write, Written,
};
use covey_stripe::objects::{self, DataOp, DataReply, Doomed, EVERY, Object as Listed};
use covey_wire::{Bytes, Name};
use std::rc::Rc;

/// The data server as a 9P tree. A newtype so that commands can hold the tree while they wait.
#[derive(Clone)]
pub struct DataServer(pub Rc<DataTree>);

/// What changes directories and the identity goes on when the connection that has asked for it is over: it would be taken for done
/// when it is asked for again, or leave directories that nobody knows of.
fn to_the_end<T: 'static>(work: impl Future<Output = tree::Result<T>> + 'static) -> Outcome<T> {
    let work = task::spawn(work);
    Outcome::later(async move { work.await? })
}

impl DataServer {
    fn ask(&self, line: &Rc<Line>, op: DataOp) -> Outcome<DataReply> {
        let tree = &self.0;
        match op {
            DataOp::Meet {}
            | DataOp::Admit { .. }
            | DataOp::Refuse { .. }
            | DataOp::Serve { .. }
            | DataOp::ServeAs { .. }
                if let Err(error) = tree.chains.hear(line) =>
            {
                Outcome::Now(Err(error))
            }
            DataOp::Meet {} => Outcome::Now(Ok(tree.meet())),
            DataOp::Admit { store, meta } => {
                let tree = tree.clone();
                Outcome::later(async move { tree.admit_store(store, meta).await })
            }
            DataOp::Adopt { store, meta, before } => {
                let tree = tree.clone();
                Outcome::later(async move { tree.adopt_store(store, meta, before).await })
            }
            DataOp::Lose { store, objects, end } => {
                let tree = tree.clone();
                Outcome::later(async move { tree.lose(store, objects.0, end).await })
            }
            DataOp::Refuse { reason } => Outcome::Now(Ok(tree.refuse_store(&reason))),
            DataOp::Start { client } | DataOp::Greet { client } => tree.greet(client, line),
            DataOp::Serve { store, chains } => {
                let tree = tree.clone();
                Outcome::later(async move { tree.serve_chains(store, chains.0).await })
            }
            DataOp::ServeAs { store, own, chains } => {
                let tree = tree.clone();
                Outcome::later(async move { tree.serve_as(store, own, chains.0).await })
            }
            DataOp::Receive { store, chain } => {
                let line = line.clone();
                tree.when_admitted(move |tree| to_the_end(tree.clone().receive(line, store, chain)))
            }
            DataOp::Put { chain, stay, id, epoch, kept, how, offset, data } => {
                let (line, data) = (line.clone(), data.into_bytes());
                let piece = Piece { chain, stay, id, epoch, kept, how, offset, data };
                tree.when_admitted(move |tree| tree.put(&line, piece))
            }
            DataOp::Clear { chain, stay, id } => {
                let line = line.clone();
                tree.when_admitted(move |tree| tree.clear(&line, (chain, stay), id))
            }
            DataOp::Settle { store, chain, stay, generation, hops } => {
                let line = line.clone();
                tree.when_admitted(move |tree| {
                    let stay = (stay, generation);
                    to_the_end(tree.clone().settle(line, store, chain, stay, hops.0))
                })
            }
            DataOp::Spare { chain, stay } => {
                let line = line.clone();
                tree.when_admitted(move |tree| tree.spare(&line, chain, stay).into())
            }
            DataOp::Drop { store, chain, generation } => tree.when_admitted(move |tree| {
                to_the_end(tree.clone().drop_chain(store, chain, generation))
            }),
            DataOp::Copies {} => tree.when_admitted(|tree| Ok(tree.copies()).into()),
            DataOp::Discard { store, chain, stay } => tree
                .when_admitted(move |tree| to_the_end(tree.clone().discard(store, (chain, stay)))),
            DataOp::Keep { offset, data, end } => {
                let data = data.into_bytes();
                tree.when_admitted(move |tree| tree.keep(offset, data, end))
            }
            DataOp::By { served, op } => tree.ask_by(line, served, op),
            DataOp::In { chain, op } => match DataOp::decode(op.into_bytes()) {
                Ok(op) => self.ask_of(line, Some(chain), op),
                Err(blame) => Outcome::Now(Err(Errno::because(Errno::EINVAL, blame.to_string()))),
            },
            op => self.ask_of(line, None, op),
        }
    }

    /// An operation of the metadata server on the objects of a chain, the own one where none is said.
    fn ask_of(&self, line: &Rc<Line>, chain: Option<u16>, op: DataOp) -> Outcome<DataReply> {
        let (tree, line) = (&self.0, line.clone());
        match (chain, op) {
            (Some(chain), DataOp::Lose { store, objects, end }) => {
                let tree = tree.clone();
                Outcome::later(async move {
                    tree.standing().must_be_new(&store)?;
                    tree.made(chain).await?.lose(store, objects.0, end).await
                })
            }
            (Some(EVERY), DataOp::Remove { objects }) => {
                tree.when_admitted(move |tree| tree.remove_everywhere(&objects.0).into())
            }
            (chain, op) => tree.when_admitted(move |tree| {
                match chain.or(tree.own_chain()) {
                    Some(chain) => tree.ask_in(&line, chain, op),
                    // A metadata server of a version that knows no chains.
                    None => tree.command(&line, op, None),
                }
            }),
        }
    }

    /// The tree that an object belongs to; EREMCHG where its chain was moved away.
    fn tree_of(&self, object: &Object) -> tree::Result<Rc<DataTree>> {
        object.chain.map_or_else(|| Ok(self.0.clone()), |chain| self.0.must_have(chain))
    }
}

/// An operation by number and name, and what it carries.
type What = (u8, &'static str, Carries);

/// What is asked of objects, watched.
impl DataServer {
    /// The state of the disk that the objects are on.
    pub fn space(&self) -> Outcome<Statfs> {
        crate::statfs_of(&*self.0.disk, &self.0.objects_dir).into()
    }

    fn begin(&self, node: &Node, (number, name, carries): What) -> Request {
        let request = self.0.watch().begin(number, name, node.line().watched.as_ref());
        request.about(id_of(node), carries).waits_for("disk")
    }

    fn watched<T: 'static>(
        &self,
        node: &Node,
        what: What,
        ask: impl FnOnce() -> Outcome<T>,
    ) -> Outcome<T> {
        let request = self.begin(node, what);
        self.0.watch().outcome(request, ask())
    }

    fn read_object(&self, node: &Node, mut read: Read<'_>) -> Data {
        let Node::Object(object, at, _) = node else { return Errno::EISDIR.into() };
        let (offset, count) = (read.offset, read.count as usize);
        let tree = match self.tree_of(object) {
            Ok(tree) => tree,
            Err(error) => return Data::Failed(error),
        };
        let file = match tree.to_read(object, *at) {
            Ok(Some(file)) => file,
            Ok(None) => return Data::Bytes(Bytes::new()),
            Err(error) => return Data::Failed(error),
        };
        tree.count_read(count as u64);
        // What is refused is told by the read that follows.
        if read.takes_range()
            && let Ok(Some(range)) = file.range(offset, count)
        {
            return Data::Range(range);
        }
        if let Some(data) = read.fill(|out| Ok(file.append_now(offset, count, out)?)) {
            return data;
        }
        Data::later(async move { Ok(disk::read(file, offset, count).await?) })
    }

    fn sync_object(&self, node: &Node) -> Outcome<()> {
        let Node::Object(object, at, line) = node else { return Outcome::Now(Ok(())) };
        let found = self.tree_of(object).and_then(|tree| Ok((tree.to_read(object, *at)?, tree)));
        let (file, tree) = match found {
            Ok((Some(file), tree)) => (file, tree),
            Ok((None, _)) => return Outcome::Now(Ok(())),
            Err(error) => return Outcome::Now(Err(error)),
        };
        tree.counters.fsyncs.add(1);
        let (object, line) = (object.clone(), line.clone());
        Outcome::later(async move { tree.sync(&object, file, &line).await })
    }

    fn answer_call(&self, node: &Node, body: Bytes) -> Outcome<Bytes> {
        let Node::Root(line) = node else { return Errno::EINVAL.into() };
        match DataOp::decode(body) {
            Ok(op @ (DataOp::Start { .. } | DataOp::Greet { .. })) => match self.ask(line, op) {
                // A refusal keeps its reason on the way: as a reply, not as 9P's bare number.
                Outcome::Now(reply) => Outcome::Now(Ok(greeting(reply))),
                Outcome::Later(later) => Outcome::later(async move { Ok(greeting(later.await)) }),
            },
            Ok(op) => self.ask(line, op).map(|reply| reply.encode().into()),
            Err(blame) => Outcome::Now(Err(Errno::because(Errno::EINVAL, blame.to_string()))),
        }
    }
}

impl Tree for DataServer {
    type Node = Node;

    fn attach(&self, attach: Attach) -> Outcome<(User, Qid, Node)> {
        crate::attach_trusted(&attach, self.0.own_uid)
            .map(|user| {
                let client = self.0.watch().client(&crate::identity::called(&attach));
                (user, root_qid(), Node::Root(Line::new(client)))
            })
            .into()
    }

    fn walk(&self, _: &Rc<User>, from: &Node, names: &[Name]) -> Outcome<Vec<(Qid, Node)>> {
        let (Node::Root(line), [name]) = (from, names) else { return Errno::ENOENT.into() };
        let Some((id, at)) = objects::parse_at(name.as_bytes()) else {
            return Errno::ENOENT.into();
        };
        let line = line.clone();
        self.0.when_admitted(move |tree| {
            let tree = match tree.reached_by(at) {
                Ok(tree) => tree,
                Err(error) => return Outcome::Now(Err(error)),
            };
            let object = tree.object(id);
            let found = match at.epoch {
                Some(_) => tree.admit(&object, at),
                None => tree.file_there(&object).and_then(|file| match file {
                    Some(_) => Ok(()),
                    None => Err(Errno::ENOENT.into()),
                }),
            };
            found.map(|()| vec![(qid(&object), Node::Object(object, at, line))]).into()
        })
    }

    fn open(&self, _: &Rc<User>, node: &Node, _flags: u32) -> Outcome<Opened<Node>> {
        let qid = match node {
            Node::Root(_) => root_qid(),
            Node::Object(object, ..) => qid(object),
        };
        Outcome::Now(Ok(Opened { qid, node: node.clone(), blocking: false }))
    }

    fn read(&self, _: &Rc<User>, node: &Node, read: Read<'_>) -> Data {
        let request = self.begin(node, (0, "read", Carries::Read(read.count.into())));
        self.0.watch().data(request, self.read_object(node, read))
    }

    fn write(&self, _: &Rc<User>, node: &Node, write: Write) -> Written {
        write.received(|offset, data| {
            self.watched(node, (1, "write", Carries::Written(data.len() as u64)), || match node {
                Node::Object(object, at, line) => match self.tree_of(object) {
                    Ok(tree) => tree.write_object(object, *at, line, offset, data),
                    Err(error) => Outcome::Now(Err(error)),
                },
                Node::Root(_) => Errno::EISDIR.into(),
            })
        })
    }

    fn read_view(&self, _: &Rc<User>, node: &Node, view: View) -> Outcome<Bytes> {
        let what = (4, "read_view", Carries::Read(view.bytes.into()));
        self.watched(node, what, || match node {
            Node::Object(object, at, _) => match self.tree_of(object) {
                Ok(tree) => tree.read_view(object, *at, &view),
                Err(error) => Outcome::Now(Err(error)),
            },
            Node::Root(_) => Errno::EISDIR.into(),
        })
    }

    fn write_view(&self, _: &Rc<User>, node: &Node, view: View, data: Bytes) -> Outcome<u32> {
        let what = (5, "write_view", Carries::Written(data.len() as u64));
        self.watched(node, what, || match node {
            Node::Object(object, at, line) => match self.tree_of(object) {
                Ok(tree) => tree.write_view(object, *at, line, &view, data),
                Err(error) => Outcome::Now(Err(error)),
            },
            Node::Root(_) => Errno::EISDIR.into(),
        })
    }

    fn getattr(&self, _: &Rc<User>, node: &Node) -> Outcome<Attr> {
        let Node::Object(object, ..) = node else {
            return Outcome::Now(Ok(Attr {
                qid: root_qid(),
                mode: 0o040700,
                uid: self.0.own_uid,
                nlink: 2,
                ..Attr::default()
            }));
        };
        let attr = |stat: FileStat| Attr {
            qid: qid(object),
            mode: 0o100600,
            uid: self.0.own_uid,
            nlink: 1,
            size: stat.bytes,
            blksize: 4096,
            blocks: stat.blocks,
            mtime: Time {
                sec: stat.modified.as_secs(),
                nsec: u64::from(stat.modified.subsec_nanos()),
            },
            ..Attr::default()
        };
        match self.tree_of(object).and_then(|tree| tree.file_there(object)) {
            Ok(Some(file)) => file.stat().map(attr).map_err(Errno::from).into(),
            Ok(None) => Outcome::Now(Ok(Attr {
                qid: qid(object),
                mode: 0o100600,
                nlink: 1,
                ..Attr::default()
            })),
            Err(error) => Outcome::Now(Err(error)),
        }
    }

    fn setattr(&self, _: &Rc<User>, _: &Node, set: SetAttr) -> Outcome<()> {
        // Linux's client sets times it does not care about; sizes go by Cut only.
        match set.size {
            None => Outcome::Now(Ok(())),
            Some(_) => Errno::EOPNOTSUPP.into(),
        }
    }

    fn readdir(
        &self,
        _: &Rc<User>,
        node: &Node,
        cookie: u64,
        bytes_max: u32,
    ) -> Outcome<Vec<Entry>> {
        let Node::Root(_) = node else { return Errno::ENOTDIR.into() };
        if let Err(error) = self.0.standing().check() {
            return Outcome::Now(Err(error));
        }
        let listed = match self.0.list(cookie, bytes_max / 64) {
            Ok(DataReply::Objects { objects }) => objects.0,
            Ok(_) => Vec::new(),
            Err(error) => return Outcome::Now(Err(error)),
        };
        let entry = |object: Listed| Entry {
            qid: Qid { kind: Qid::FILE, version: 0, path: object.id },
            cookie: object.id,
            kind: 8,
            name: Name::from(format!("{:016x}", object.id)),
        };
        Outcome::Now(Ok(listed.into_iter().map(entry).collect()))
    }

    fn fsync(&self, _: &Rc<User>, node: &Node, _datasync: bool) -> Outcome<()> {
        self.watched(node, (2, "fsync", Carries::Nothing), || self.sync_object(node))
    }

    fn unlink(&self, _: &Rc<User>, _: &Node, name: Name, what: Removal) -> Outcome<()> {
        match objects::parse(name.as_bytes()) {
            Some((id, None)) if !what.is_dir() => {
                if let Err(error) = self.0.standing().check() {
                    return Outcome::Now(Err(error));
                }
                self.0.remove_all(&[Doomed { id, epoch: self.0.epoch_of(id) }]).map(|_| ()).into()
            }
            _ => Errno::ENOENT.into(),
        }
    }

    fn statfs(&self, _: &Rc<User>, _: &Node) -> Outcome<Statfs> {
        self.space()
    }

    fn call(&self, _: &Rc<User>, node: &Node, body: Bytes) -> Outcome<Bytes> {
        self.watched(node, (3, "call", Carries::Nothing), || self.answer_call(node, body))
    }
}

fn greeting(reply: tree::Result<DataReply>) -> Bytes {
    let refusal = |error: Errno| {
        let (code, reason) = (error.code, Name::from(error.reason.as_str()));
        DataReply::Error { code, reason }
    };
    reply.unwrap_or_else(refusal).encode().into()
}
