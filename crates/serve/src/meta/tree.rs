//! The metadata server as a 9P tree: the cluster's operations, by Tcall, and names and stripings as text.

use super::journal::Rows;
use super::sessions::Connection;
use super::{Meta, plain, watch};
use crate::fs::{attr, qid};
use crate::watch::Carries;
use covey_io::task;
use covey_ninep::message::Qid;
use covey_ninep::tree::{
    Attach, Attr, Data, Entry, Errno, Opened, Outcome, Read, Result, SetAttr, Statfs, Tree, User,
};
use covey_stripe::chain::Member;
use covey_stripe::client::Stat;
use covey_stripe::meta::Store;
use covey_stripe::ops::{Answer, Inode, Op, ROOT, Reply, Request};
use covey_wire::{Bytes, Field, List, Name, Reader};
use std::rc::Rc;

/// The metadata server as a tree.
#[derive(Clone)]
pub struct MetaServer(pub Rc<Meta>);

/// What a fid holds.
#[derive(Clone)]
pub enum Node {
    /// The root of an attach: where operations are sent, and the root directory.
    Root(Rc<Connection>),
    /// A file, for reading by hand.
    File(u64),
}

impl MetaServer {
    fn command(&self, connection: &Rc<Connection>, body: Bytes) -> Outcome<Bytes> {
        let mut request = match Request::get((), &mut Reader::new(body.clone())) {
            Ok(request) => request,
            Err(blame) => {
                return Outcome::Now(Err(Errno::because(Errno::EINVAL, blame.to_string())));
            }
        };
        if self.must_wait(&request) {
            // Who speaks for the session may be somebody else by then: it is looked at anew.
            let (server, connection) = (self.clone(), connection.clone());
            return Outcome::later(async move {
                server.wait_for(&request).await;
                server.command(&connection, body).wait().await
            });
        }
        if let Err(error) = self.0.fence(connection, &request) {
            return Outcome::Now(Ok(encode(&refusal(&error))));
        }
        self.0.allow_amendment(&mut request);
        let watched = self.watched(connection, &request.op);
        let outcome = match &request.op {
            Op::Hello { .. } => self.0.request_in_turn(connection, connection.complete(request)),
            Op::StillOpen { files } => connection.tell_open(&files.0).map(plain).into(),
            &Op::Revokes { acked } => self.0.revokes(connection, request.session, acked).map(plain),
            &Op::Recut { id, epoch } => self.0.recut(id, epoch).map(plain),
            &Op::AcceptStore { server } => self.0.accept_store(server).map(plain),
            &Op::ReplaceStore { server } => self.0.replace_store(server).map(plain),
            &Op::AdoptStore { server } => self.0.adopt_store(server).map(plain),
            Op::Stores {} => self.0.store_states().map(plain),
            &Op::SetPlace { server, closed } => self.0.set_place(server, closed != 0).map(plain),
            Op::Places {} => self.0.place_states().map(plain),
            Op::AddServerListed { name } => self.0.add_server(name).map(plain),
            &Op::RemoveServer { server } => self.0.remove_server(server).map(plain),
            &Op::AskTask { kind, server, act, rate } => {
                self.0.ask_task((kind, server), act, rate).map(plain)
            }
            Op::Tasks {} => self.0.task_states().map(plain),
            &Op::FenceChain { chain } => self.0.fence_chain(chain).map(plain),
            &Op::HoldChain { chain, server, generation, stay } => {
                self.0.hold_chain(chain, generation, (server, stay)).map(plain)
            }
            &Op::ReleaseChain { hold } => self.0.release_chain(hold).map(plain),
            Op::SwitchChain { chain, server, generation, stay, hold, store } => {
                let (to, when) = ((*server, *stay), (*generation, *hold));
                self.0.switch_chain(*chain, when, to, store.clone()).map(plain)
            }
            Op::BeginMove { .. } | Op::Move { .. }
                if let Err(error) = self.0.may_move(&request.op) =>
            {
                Outcome::Now(Err(error))
            }
            _ if self.0.must_claim(&request) => self.0.request_in_turn(connection, request),
            _ => self.0.request(request),
        };
        let outcome = match watched {
            Some(watched) => self.0.watch.outcome_as(watched, outcome, learn),
            None => outcome,
        };
        match outcome {
            // A refusal keeps its reason on the way: as a reply, not as 9P's bare number.
            Outcome::Now(Err(error)) => Outcome::Now(Ok(encode(&refusal(&error)))),
            Outcome::Now(Ok(answer)) => Outcome::Now(Ok(encode(&answer))),
            Outcome::Later(later) => Outcome::later(async move {
                Ok(later
                    .await
                    .map_or_else(|error| encode(&refusal(&error)), |answer| encode(&answer)))
            }),
        }
    }

    /// Whether something has to be over before a request is even looked at.
    fn must_wait(&self, request: &Request) -> bool {
        let is_ending = |session| self.0.is_session_ending(session);
        !self.0.is_store_here()
            || self.0.silence().is_some()
            || match request.op {
                Op::Hello { session, .. } => is_ending(session),
                Op::Lock { again: false, .. } => self.0.is_lock_grace(),
                _ => false,
            }
    }

    async fn wait_for(&self, request: &Request) {
        if let Some(rest) = self.0.silence() {
            task::sleep(rest).await;
        }
        self.0.store_is_here().await;
        match request.op {
            Op::Hello { session, .. } => self.0.session_is_over(session).await,
            Op::Lock { again: false, .. } => self.0.lock_grace_over().await,
            _ => {}
        }
    }

    /// Watches a request, unless it waits for what others do.
    fn watched(&self, connection: &Rc<Connection>, op: &Op) -> Option<watch::Request> {
        let waits_for = match op {
            _ if !self.0.is_store_here() => "checkpoint",
            Op::Fsync { .. } => "disk",
            Op::Setattr { .. }
            | Op::SetStriping { .. }
            | Op::Recut { .. }
            | Op::Fence { .. }
            | Op::BeginMove { .. }
            | Op::Move { .. } => "log or I/O servers",
            Op::Lock { .. } | Op::Revokes { .. } => return None,
            Op::Commit { .. } | Op::EndAppend { .. } => "log or other appends",
            _ => "log",
        };
        let watched = self.0.watch.begin(op.number(), op.name(), Some(&connection.client));
        Some(watched.about(id_asked(op), written(op)).waits_for(waits_for))
    }

    /// The state of the disk that the store is on.
    pub fn space(&self) -> Outcome<Statfs> {
        self.0.journal.space().into()
    }

    fn inode(&self, id: u64) -> Result<Inode> {
        match self.0.ask_own(Op::Getattr { id }) {
            Reply::Node { inode } => Ok(inode),
            Reply::Error { code, .. } => Err(code.into()),
            _ => Err(Errno::EIO.into()),
        }
    }
}

fn refusal(error: &Errno) -> Answer {
    plain(Reply::Error { code: error.code, reason: Name::from(error.reason.as_str()) })
}

fn encode(answer: &Answer) -> Bytes {
    let mut out = Vec::with_capacity(answer.size(()));
    answer.put((), &mut out);
    out.into()
}

/// The file or directory that an operation names first; 0 for none.
fn id_asked(op: &Op) -> u64 {
    if let Some(id) = op.changes().ids().next() {
        return id;
    }
    match op {
        Op::Getattr { id }
        | Op::Room { id, .. }
        | Op::Open { id, .. }
        | Op::Release { id }
        | Op::Readdir { id, .. }
        | Op::ListContents { id, .. }
        | Op::Fsync { id }
        | Op::Walk { from: id, .. } => *id,
        _ => 0,
    }
}

/// The bytes of a file's content that an operation brings.
fn written(op: &Op) -> Carries {
    match op {
        Op::WriteInline { data, .. }
        | Op::AppendInline { data, .. }
        | Op::Amend { data, .. }
        | Op::Make { data, .. }
        | Op::CreateWrite { data, .. }
            if !data.is_empty() =>
        {
            Carries::Written(data.len() as u64)
        }
        _ => Carries::Nothing,
    }
}

/// What an answer says of the file: which one was found by its name, or made, and what was read of it.
fn learn(request: &mut watch::Request, answer: &Answer) {
    match &answer.reply {
        Reply::Inline { inode, data } if !data.is_empty() => {
            request.was_about(inode.id, Carries::Read(data.len() as u64));
        }
        // Of one that was there nothing was written.
        Reply::Created { created: false, inode } => {
            request.was_about(inode.id, Carries::Nothing);
        }
        Reply::Created { inode, .. } => request.was_about(inode.id, request.carries()),
        Reply::Alone { dir, .. } => request.was_about(dir.id, Carries::Nothing),
        _ => {}
    }
}

fn id_of(node: &Node) -> u64 {
    match node {
        Node::Root(_) => ROOT,
        Node::File(id) => *id,
    }
}

/// What a file says of itself here: where its data is.
fn text(inode: &Inode, store: &Store<Rows>) -> String {
    let mut out = format!("id {:016x}\nsize {}\nepoch {}\n", inode.id, inode.size, inode.epoch);
    if let Some(striping) = &inode.striping {
        out += &format!("distribution {}\nstrip {}\n", striping.kind, striping.strip_bytes);
        let head = |&chain: &u16| store.chains().get(usize::from(chain))?.head();
        let name = |member: &Member| store.servers().get(usize::from(member.server));
        for chain in &striping.servers.0 {
            let name = head(chain).and_then(name).map_or("?".into(), |name| name.lossy());
            out += &format!("server {name}\n");
        }
    }
    out
}

impl Tree for MetaServer {
    type Node = Node;

    fn attach(&self, attach: Attach) -> Outcome<(User, Qid, Node)> {
        let root = || -> Result<_> {
            let user = crate::attach_trusted(&attach, self.0.own_uid)?;
            let root = Qid { kind: Qid::DIR, version: 0, path: ROOT };
            Ok((user, root, Node::Root(Rc::new(Connection::new(&self.0)))))
        };
        root().into()
    }

    fn call(&self, _: &Rc<User>, node: &Node, body: Bytes) -> Outcome<Bytes> {
        match node {
            Node::Root(connection) => self.command(connection, body),
            Node::File(_) => Errno::EINVAL.into(),
        }
    }

    fn walk(&self, _: &Rc<User>, from: &Node, names: &[Name]) -> Outcome<Vec<(Qid, Node)>> {
        let walk = Op::Walk { from: id_of(from), names: List(names.to_vec()) };
        match self.0.ask_own(walk) {
            Reply::Nodes { inodes } => {
                let node = |inode: &Inode| (qid(inode), Node::File(inode.id));
                Outcome::Now(Ok(inodes.0.iter().map(node).collect()))
            }
            Reply::Error { code, .. } => code.into(),
            _ => Errno::EIO.into(),
        }
    }

    fn getattr(&self, _: &Rc<User>, node: &Node) -> Outcome<Attr> {
        // Blocks are the data servers' to count.
        let attr = |inode| Attr { blksize: 4096, ..attr(&Stat::new(inode, 0)) };
        self.inode(id_of(node)).map(attr).into()
    }

    fn setattr(&self, _: &Rc<User>, _: &Node, _: SetAttr) -> Outcome<()> {
        Errno::EROFS.into()
    }

    fn open(&self, _: &Rc<User>, node: &Node, flags: u32) -> Outcome<Opened<Node>> {
        if flags & 3 != 0 {
            return Errno::EROFS.into();
        }
        let opened =
            |inode: Inode| Opened { qid: qid(&inode), node: node.clone(), blocking: false };
        self.inode(id_of(node)).map(opened).into()
    }

    fn read(&self, _: &Rc<User>, node: &Node, read: Read<'_>) -> Data {
        match self.inode(id_of(node)) {
            Ok(inode) => read.of(&Bytes::from(text(&inode, &self.0.store_mut()))),
            Err(error) => Data::Failed(error),
        }
    }

    fn readlink(&self, _: &Rc<User>, node: &Node) -> Outcome<Name> {
        self.inode(id_of(node)).map(|inode| inode.target).into()
    }

    fn readdir(&self, _: &Rc<User>, node: &Node, cookie: u64, bytes: u32) -> Outcome<Vec<Entry>> {
        let list =
            Op::Readdir { id: id_of(node), cookie, limit: u64::MAX, bytes_max: bytes, plus: false };
        match self.0.ask_own(list) {
            Reply::Entries { entries, .. } => {
                let entry = |entry: covey_stripe::ops::DirEntry| Entry {
                    qid: Qid { kind: Qid::FILE, version: 0, path: entry.id },
                    cookie: entry.cookie,
                    kind: entry.kind,
                    name: entry.name,
                };
                Outcome::Now(Ok(entries.0.into_iter().map(entry).collect()))
            }
            Reply::Error { code, .. } => code.into(),
            _ => Errno::EIO.into(),
        }
    }

    fn statfs(&self, _: &Rc<User>, _: &Node) -> Outcome<Statfs> {
        self.space()
    }
}
