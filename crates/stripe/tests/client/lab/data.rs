//! An I/O server: objects with epochs, in memory.

use covey_ninep::message::Qid;
use covey_ninep::tree::*;
use covey_stripe::chain::Served;
use covey_stripe::objects::{self, At, DataOp, DataReply};
use covey_stripe::ops::Id;
use covey_stripe::view;
use covey_wire::{Bytes, List, Name};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

#[derive(Default)]
pub struct Objects {
    objects: RefCell<BTreeMap<Id, (u32, Vec<u8>)>>,
    /// How many writes were brought to stable storage, and how many there were.
    pub synced: Cell<usize>,
    pub writes: Cell<usize>,
    /// How many views were read or written, and the most bytes that described one.
    pub views: Cell<usize>,
    pub view_bytes_max: Cell<usize>,
    /// Opened objects that were not clunked.
    pub fids: Cell<isize>,
    /// How often its machine has lost its power. What that costs is the test's to say.
    pub losses: Cell<u64>,
    /// The generations of the chains that it serves, by index; None for a server of a version before chains.
    pub served: RefCell<Option<Vec<u32>>>,
    /// The moves of its chains.
    pub hops: RefCell<Vec<objects::Hop>>,
    /// The error instead of them.
    pub fails_hops: Cell<u32>,
    /// What its machine's starts count from.
    pub starts_from: Cell<u64>,
    /// Requests that came by a chain that it did not serve so.
    pub refused: Cell<usize>,
}

impl Objects {
    pub fn cut(&self, id: Id, epoch: u32, size: u64) {
        let mut objects = self.objects.borrow_mut();
        let object = objects.entry(id).or_default();
        if object.0 < epoch {
            object.0 = epoch;
            object.1.truncate(size as usize);
        }
    }

    /// The start of its machine.
    pub fn machine(&self) -> u64 {
        self.starts_from.get() + self.losses.get()
    }

    pub fn remove(&self, id: Id) {
        self.objects.borrow_mut().remove(&id);
    }

    pub fn bytes(&self, id: Id) -> Vec<u8> {
        self.objects.borrow().get(&id).map_or_else(Vec::new, |object| object.1.clone())
    }

    pub fn put(&self, id: Id, bytes: Vec<u8>) {
        self.objects.borrow_mut().insert(id, (0, bytes));
    }

    pub fn has(&self, id: Id) -> bool {
        self.objects.borrow().contains_key(&id)
    }

    fn reshape(&self, id: Id, how: objects::Reshape, offset: u64, length: u64) {
        let mut objects = self.objects.borrow_mut();
        let bytes = &mut objects.entry(id).or_default().1;
        let (start, end) = (offset as usize, (offset + length) as usize);
        if !how.keeps_length() {
            bytes.resize(bytes.len().max(end), 0);
        }
        if !matches!(how, objects::Reshape::Allocate | objects::Reshape::AllocateKeep) {
            let (start, end) = (start.min(bytes.len()), end.min(bytes.len()));
            bytes[start..end].fill(0);
        }
        self.writes.set(self.writes.get() + 1);
    }

    /// Here a hole is what is zero.
    fn extent(&self, id: Id, offset: usize) -> DataReply {
        let objects = self.objects.borrow();
        let bytes = objects.get(&id).map_or(&[][..], |object| &object.1);
        let rest = &bytes[offset.min(bytes.len())..];
        let Some(data) = rest.iter().position(|&byte| byte != 0) else {
            return DataReply::Extent { data: u64::MAX, hole: u64::MAX };
        };
        let run = rest[data..].iter().position(|&byte| byte == 0).unwrap_or(rest.len() - data);
        let data = offset + data;
        DataReply::Extent { data: data as u64, hole: (data + run) as u64 }
    }

    fn note(&self, view: &View) {
        self.views.set(self.views.get() + 1);
        self.view_bytes_max.set(self.view_bytes_max.get().max(view.body.len()));
    }

    fn admit(&self, id: Id, At { epoch, chain }: At) -> Result<()> {
        let served = self.served.borrow();
        let now = |chain: Served| served.as_ref()?.get(usize::from(chain.chain)).copied();
        if chain.is_some_and(|chain| now(chain) != Some(chain.generation)) {
            self.refused.set(self.refused.get() + 1);
            return Err(Errno::EREMCHG.into());
        }
        let epoch = epoch.expect("clients say it");
        let current = self.objects.borrow().get(&id).map_or(0, |object| object.0);
        if current == epoch { Ok(()) } else { Err(Errno::ESTALE.into()) }
    }
}

pub struct DataServer(pub Rc<Objects>);

#[derive(Clone)]
pub enum Node {
    Root,
    Object(Id, At),
}

fn qid(path: u64) -> Qid {
    Qid { kind: if path == 0 { Qid::DIR } else { Qid::FILE }, version: 0, path }
}

impl Tree for DataServer {
    type Node = Node;

    fn attach(&self, attach: Attach) -> Outcome<(User, Qid, Node)> {
        assert_eq!(attach.aname.as_bytes(), b"/data");
        Outcome::Now(Ok((User { uid: 0, gid: 0, groups: vec![] }, qid(0), Node::Root)))
    }

    fn walk(&self, _: &Rc<User>, _: &Node, names: &[Name]) -> Outcome<Vec<(Qid, Node)>> {
        let parse = |name| match *self.0.served.borrow() {
            Some(_) => objects::parse_at(name),
            None => objects::parse(name).map(|(id, epoch)| (id, epoch.into())),
        };
        let Some((id, at)) = parse(names[0].as_bytes()) else {
            return Errno::ENOENT.into();
        };
        let admitted = self.0.admit(id, at);
        if admitted.is_ok() {
            self.0.fids.set(self.0.fids.get() + 1);
        }
        admitted.map(|()| vec![(qid(id), Node::Object(id, at))]).into()
    }

    fn open(&self, _: &Rc<User>, node: &Node, _: u32) -> Outcome<Opened<Node>> {
        Outcome::Now(Ok(Opened { qid: qid(1), node: node.clone(), blocking: false }))
    }

    fn read(&self, _: &Rc<User>, node: &Node, read: Read<'_>) -> Data {
        let &Node::Object(id, at) = node else { return Errno::EISDIR.into() };
        if let Err(error) = self.0.admit(id, at) {
            return Data::Failed(error);
        }
        let objects = self.0.objects.borrow();
        let bytes = objects.get(&id).map_or(&[][..], |object| &object.1);
        read.of(&Bytes::copy_from_slice(bytes))
    }

    fn write(&self, _: &Rc<User>, node: &Node, write: Write) -> Written {
        let Incoming::Here(data) = write.data else { return Written::Unread };
        let offset = write.offset;
        let &Node::Object(id, at) = node else { return Errno::EISDIR.into() };
        let write = |()| {
            let mut objects = self.0.objects.borrow_mut();
            let bytes = &mut objects.entry(id).or_default().1;
            let end = offset as usize + data.len();
            bytes.resize(bytes.len().max(end), 0);
            bytes[offset as usize..end].copy_from_slice(&data);
            self.0.writes.set(self.0.writes.get() + 1);
            data.len() as u32
        };
        self.0.admit(id, at).map(write).into()
    }

    fn read_view(&self, user: &Rc<User>, node: &Node, view: View) -> Outcome<Bytes> {
        self.0.note(&view);
        Outcome::now(|| {
            let (mut all, mut end) = (Vec::new(), 0);
            for (offset, bytes) in view::walk(&view)? {
                let Data::Bytes(read) = self.read(user, node, Read::bytes(offset, bytes)) else {
                    return Err(Errno::ESTALE.into());
                };
                let next = all.len() + bytes as usize;
                end = if read.is_empty() { end } else { all.len() + read.len() };
                all.extend_from_slice(&read);
                all.resize(next, 0);
            }
            all.truncate(end);
            Ok(all.into())
        })
    }

    fn write_view(
        &self,
        user: &Rc<User>,
        node: &Node,
        view: View,
        mut data: Bytes,
    ) -> Outcome<u32> {
        self.0.note(&view);
        Outcome::now(|| {
            for (offset, bytes) in view::walk(&view)? {
                let piece = data.split_to(bytes as usize);
                let written = self.write(user, node, Write::bytes(offset, piece));
                match written.into_outcome() {
                    Outcome::Now(written) => written?,
                    Outcome::Later(_) => unreachable!("it is in memory"),
                };
            }
            Ok(view.bytes)
        })
    }

    fn fsync(&self, _: &Rc<User>, node: &Node, _: bool) -> Outcome<()> {
        let &Node::Object(id, at) = node else { return Outcome::Now(Ok(())) };
        self.0.admit(id, at).map(|()| self.0.synced.set(self.0.writes.get())).into()
    }

    fn call(&self, _: &Rc<User>, _: &Node, body: Bytes) -> Outcome<Bytes> {
        let (op, chain) = match DataOp::decode(body) {
            Ok(DataOp::By { served, op }) => (DataOp::decode(op.into_bytes()), Some(served)),
            other => (other, None),
        };
        let reply = match op {
            Ok(DataOp::Greet { .. }) if self.0.served.borrow().is_none() => {
                return Outcome::Now(Err(Errno::EINVAL.into()));
            }
            Ok(DataOp::Greet { .. } | DataOp::Start { .. }) => {
                DataReply::Start { machine: self.0.machine(), age: u64::MAX }
            }
            Ok(DataOp::Allocated { id }) => {
                let objects = self.0.objects.borrow();
                DataReply::Allocated { bytes: objects.get(&id).map_or(0, |o| o.1.len() as u64) }
            }
            Ok(DataOp::Reshape { id, epoch, how, offset, length }) => {
                if let Err(error) = self.0.admit(id, At { epoch: Some(epoch), chain }) {
                    return Outcome::Now(Err(error));
                }
                self.0.reshape(id, objects::Reshape::of(how).unwrap(), offset, length);
                DataReply::Done {}
            }
            Ok(DataOp::Extent { id, epoch, offset }) => {
                if let Err(error) = self.0.admit(id, At { epoch: Some(epoch), chain }) {
                    return Outcome::Now(Err(error));
                }
                self.0.extent(id, offset as usize)
            }
            Ok(DataOp::Hops {}) if self.0.fails_hops.get() != 0 => {
                return Outcome::Now(Err(self.0.fails_hops.get().into()));
            }
            Ok(DataOp::Hops {}) => DataReply::Hops { hops: List(self.0.hops.borrow().clone()) },
            // As a server of an older version.
            Ok(DataOp::ReadHeld { .. }) => return Errno::EINVAL.into(),
            other => panic!("a client sends {other:?}"),
        };
        Outcome::Now(Ok(reply.encode().into()))
    }

    fn clunk(&self, _: &Rc<User>, node: Node) {
        if let Node::Object(..) = node {
            self.0.fids.set(self.0.fids.get() - 1);
        }
    }
}
