//! A metadata store with a clock, a log and the server's own duties done at once.
#![allow(dead_code, unused_imports)]

use covey_stripe::kv::{Kv, MemoryKv};
use covey_stripe::meta::{Applied, Store, WaitId, Work, mode};
use covey_stripe::ops::*;
use covey_wire::{Field, List, Name};

pub use covey_ninep::tree::Errno;

/// One store and everything a server would keep beside it.
pub struct Lab {
    pub store: Store<MemoryKv>,
    /// What a server would have logged since the last checkpoint.
    pub log: Vec<Request>,
    /// The map as of the last checkpoint.
    pub checkpoint: MemoryKv,
    pub now: Nanos,
    pub caller: Caller,
    /// Work that was not done here.
    pub work: Vec<Work>,
}

pub const ALICE: u32 = 1001;
pub const BOB: u32 = 1002;

pub fn hint() -> StripingHint {
    StripingHint::simple_stripe(65536, 0)
}

pub fn servers() -> Vec<String> {
    (0..4).map(|index| format!("io{index}")).collect()
}

pub fn user(uid: u32, groups: &[u32]) -> Caller {
    Caller { uid, gid: groups[0], groups: List(groups.to_vec()) }
}

pub fn root() -> Caller {
    Caller::default()
}

pub fn formatted() -> MemoryKv {
    let mut kv = MemoryKv::default();
    Store::format(&mut kv, "flock", &servers(), hint(), 1, (0, 0)).unwrap();
    kv
}

/// Every row of a map.
pub fn dump(kv: &MemoryKv) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut rows = Vec::new();
    kv.scan(b"", &mut |key, value| {
        rows.push((key.to_vec(), value.to_vec()));
        true
    })
    .unwrap();
    rows
}

impl Default for Lab {
    fn default() -> Self {
        let kv = formatted();
        let store = Store::open(kv.clone()).unwrap();
        Lab { store, log: Vec::new(), checkpoint: kv, now: 100, caller: root(), work: Vec::new() }
    }
}

impl Lab {
    /// Applies one request and logs it, through the codec as a real log would.
    pub fn send(&mut self, session: u64, seq: u64, op: Op) -> Applied {
        self.now += 1;
        let caller = self.caller.clone();
        self.apply(Request { session, seq, seq_done: 0, now: self.now, caller, op })
    }

    pub fn apply(&mut self, request: Request) -> Applied {
        let applied = self.store.apply(&request);
        if let Applied::Fatal(error) = &applied {
            panic!("{error} of {request:?}");
        }
        if request.op.is_logged() && !applied.is_refused() {
            let mut bytes = Vec::new();
            request.put((), &mut bytes);
            let mut reader = covey_wire::Reader::new(bytes.into());
            self.log.push(Request::get((), &mut reader).unwrap());
        }
        self.serve();
        applied
    }

    /// Does the server's own operations, keeps the rest.
    pub fn serve(&mut self) {
        for work in self.store.take_work() {
            match work {
                Work::Apply(mut own) => {
                    self.now += 1;
                    own.now = self.now;
                    let applied = self.apply(own);
                    assert_eq!(applied, Applied::Reply(Reply::Done {}));
                }
                other => self.work.push(other),
            }
        }
    }

    /// The reply of a request that is answered at once, or after its cut.
    pub fn reply(&mut self, session: u64, op: Op) -> Reply {
        match self.send(session, 0, op) {
            Applied::Reply(reply) | Applied::AfterCut { reply, .. } => reply,
            other => panic!("not answered: {other:?}"),
        }
    }

    /// The error number, 0 for success.
    pub fn code(&mut self, session: u64, op: Op) -> u32 {
        code(&self.reply(session, op))
    }

    pub fn hello(&mut self, session: u64, files: &[Id]) -> (u64, bool) {
        let (files, name) = (List(files.to_vec()), Name::from("client"));
        // Appends are made without numbers here.
        match self.reply(0, Op::Hello { session, files, appends: List(vec![0]), name }) {
            Reply::Session { session, known, .. } => (session, known),
            other => panic!("{other:?}"),
        }
    }

    pub fn create(&mut self, parent: Id, name: &str, mode: u32) -> Inode {
        created(self.reply(0, create(parent, name, mode)))
    }

    pub fn file(&mut self, name: &str) -> Inode {
        self.create(ROOT, name, mode::REGULAR | 0o644)
    }

    pub fn mkdir(&mut self, parent: Id, name: &str) -> Inode {
        self.create(parent, name, mode::DIRECTORY | 0o755)
    }

    pub fn stat(&mut self, id: Id) -> Inode {
        node(self.reply(0, Op::Getattr { id }))
    }

    pub fn find(&mut self, parent: Id, name: &str) -> Result<Inode, u32> {
        match self.reply(0, Op::Walk { from: parent, names: List(vec![Name::from(name)]) }) {
            Reply::Nodes { inodes } => Ok(inodes.0[0].clone()),
            other => Err(code(&other)),
        }
    }

    pub fn unlink(&mut self, parent: Id, name: &str) -> u32 {
        self.code(0, Op::Unlink { parent, name: Name::from(name), dir: false })
    }

    pub fn rmdir(&mut self, parent: Id, name: &str) -> u32 {
        self.code(0, Op::Unlink { parent, name: Name::from(name), dir: true })
    }

    pub fn rename(&mut self, parent: Id, name: &str, to: Id, to_name: &str, flags: u32) -> u32 {
        let (name, to_name) = (Name::from(name), Name::from(to_name));
        self.code(0, Op::Rename { parent, name, to, to_name, flags })
    }

    pub fn truncate(&mut self, id: Id, size: u64) -> Inode {
        node(self.reply(0, truncate(id, size)))
    }

    pub fn extend(&mut self, id: Id, end: u64) -> Inode {
        let epoch = self.stat(id).epoch;
        node(self.reply(0, Op::Extend { id, epoch, end, hole: false }))
    }

    /// Names and cookies, without the dots, in pages of `bytes_max`.
    pub fn list(&mut self, id: Id, bytes_max: u32) -> Vec<(String, u64)> {
        let (mut names, mut after, mut limit) = (Vec::new(), 0, 0);
        loop {
            let (entries, end, last) = self.page(id, after, limit, bytes_max);
            limit = last;
            for entry in entries {
                after = entry.cookie;
                if entry.cookie > 2 {
                    names.push((entry.name.lossy().into_owned(), entry.cookie));
                }
            }
            if end {
                return names;
            }
        }
    }

    pub fn page(
        &mut self,
        id: Id,
        cookie: u64,
        limit: u64,
        bytes_max: u32,
    ) -> (Vec<DirEntry>, bool, u64) {
        match self.reply(0, Op::Readdir { id, cookie, limit, bytes_max, plus: false }) {
            Reply::Entries { entries, end, limit } => (entries.0, end, limit),
            other => panic!("{other:?}"),
        }
    }

    /// Names of extended attributes, as the caller sees them.
    pub fn xattr_names(&mut self, id: Id) -> Vec<String> {
        match self.reply(0, Op::Listxattr { id }) {
            Reply::XattrNames { names } => names.0.iter().map(|n| n.lossy().into()).collect(),
            other => panic!("{other:?}"),
        }
    }

    pub fn totals(&mut self) -> (u64, u64) {
        match self.reply(0, Op::Statfs {}) {
            Reply::Totals { files, bytes } => (files, bytes),
            other => panic!("{other:?}"),
        }
    }

    /// Answers that came since the last call.
    pub fn answers(&mut self) -> Vec<(WaitId, Reply)> {
        self.serve();
        let (answers, rest) = std::mem::take(&mut self.work)
            .into_iter()
            .partition(|work| matches!(work, Work::Answer(..)));
        self.work = rest;
        let answer = |work| match work {
            Work::Answer(wait, reply) => (wait, reply),
            other => panic!("{other:?}"),
        };
        Vec::into_iter(answers).map(answer).collect()
    }

    /// Commits.
    pub fn save(&mut self) {
        self.store.save_replies().unwrap();
        self.checkpoint = self.store.kv().clone();
        self.log.clear();
    }

    /// Dies and starts again: the last commit and the log are all there is.
    pub fn crash(&mut self) {
        let mut store = Store::open(self.checkpoint.clone()).unwrap();
        for request in &self.log {
            store.replay(request).unwrap();
        }
        assert!(store.take_work().is_empty(), "replay asks nothing of anybody");
        self.store = store;
        self.work.clear();
        self.save();
    }

    /// The machine of the server loses its power: a crash, and a start on another `machine`.
    pub fn lose_power(&mut self, machine: u64) {
        self.crash();
        self.store.opened_on(machine, true).unwrap();
        self.save();
    }

    /// The map that a crash now would lead to, after its checkpoint; and the living one's.
    pub fn replayed(&mut self) -> [Vec<(Vec<u8>, Vec<u8>)>; 2] {
        let mut again = Store::open(self.checkpoint.clone()).unwrap();
        for request in &self.log {
            again.replay(request).unwrap();
        }
        again.save_replies().unwrap();
        self.store.save_replies().unwrap();
        let rows = |kv: &MemoryKv| {
            let mut rows = dump(kv);
            rows.retain(|(key, _)| key != b"sboot");
            rows
        };
        [rows(again.kv()), rows(self.store.kv())]
    }
}

pub fn create(parent: Id, name: &str, mode: u32) -> Op {
    Op::Create {
        parent,
        name: Name::from(name),
        mode,
        gid: u32::MAX,
        rdev: 0,
        target: if mode & mode::TYPE == mode::SYMLINK { "elsewhere".into() } else { Name::EMPTY },
        exclusive: true,
        open: false,
        access: 6,
    }
}

/// Opens (or makes) a regular file in the session.
pub fn create_open(parent: Id, name: &str, exclusive: bool) -> Op {
    Op::Create {
        parent,
        name: Name::from(name),
        mode: mode::REGULAR | 0o644,
        gid: u32::MAX,
        rdev: 0,
        target: Name::EMPTY,
        exclusive,
        open: true,
        access: 6,
    }
}

/// Setattr of nothing; tests fill in what they mean.
pub struct Attributes {
    pub id: Id,
    pub mask: u32,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub atime: u64,
    pub mtime: u64,
}

pub fn attributes(id: Id, mask: u32) -> Attributes {
    Attributes { id, mask, mode: 0, uid: 0, gid: 0, size: 0, atime: 0, mtime: 0 }
}

impl From<Attributes> for Op {
    fn from(set: Attributes) -> Op {
        let Attributes { id, mask, mode, uid, gid, size, atime, mtime } = set;
        Op::Setattr { id, mask, mode, uid, gid, size, atime, mtime }
    }
}

pub fn truncate(id: Id, size: u64) -> Op {
    Attributes { size, ..attributes(id, set::SIZE) }.into()
}

pub fn chmod(id: Id, mode: u32) -> Op {
    Attributes { mode, ..attributes(id, set::MODE) }.into()
}

/// Bytes at the beginning of a new file of root's, and some attributes.
pub fn amend(id: Id, data: &[u8], mask: u32) -> Op {
    let piece = InlinePiece { offset: 0, bytes: data.len() as u32 };
    let pieces = List(if data.is_empty() { vec![] } else { vec![piece] });
    let (data, end) = (data.to_vec().into(), piece.end());
    let (epoch, hole, mode, uid, gid) = (0, false, 0o640, 0, 0);
    let (atime, mtime, last) = (3, 4, true);
    Op::Amend { id, epoch, end, hole, pieces, data, mask, mode, uid, gid, atime, mtime, last }
}

/// A lab whose files have the progressive striping.
pub fn progressive() -> Lab {
    let mut lab = Lab::default();
    lab.reply(0, Op::SetStriping { id: ROOT, hint: StripingHint::progressive(65536, 0) });
    lab
}

/// All that a crash would lead to is what there is.
pub fn check_replay(lab: &mut Lab) {
    let [again, living] = lab.replayed();
    assert!(again == living, "the log leads elsewhere");
}

/// Numbers for files to be made late in a directory, the first and the layouts.
pub fn numbers(lab: &mut Lab, dir: Id, count: u16) -> (Id, Vec<Striping>) {
    match lab.reply(0, Op::Alone { dir, count }) {
        Reply::Alone { first, stripings, .. } => (first, stripings.0),
        other => panic!("{other:?}"),
    }
}

/// A file that is made late.
#[derive(Clone)]
pub struct Make {
    pub id: Id,
    pub parent: Id,
    pub name: Name,
    pub mode: u32,
    pub at: Nanos,
    pub striping: Striping,
    pub data: Vec<u8>,
    pub end: u64,
    pub mask: u32,
    pub set_mode: u32,
    pub mtime: u64,
}

/// An empty one.
pub fn make(parent: Id, name: &str, id: Id) -> Make {
    let striping =
        Striping { kind: 0, strip_bytes: 0, params: List(vec![]), servers: List(vec![]) };
    let (name, mode, data) = (name.into(), mode::REGULAR | 0o600, Vec::new());
    let (at, end, mask, set_mode, mtime) = (0, 0, 0, 0, 0);
    Make { id, parent, name, mode, at, striping, data, end, mask, set_mode, mtime }
}

impl Make {
    pub fn with(self, striping: &Striping, data: &[u8]) -> Make {
        let (striping, end, data) = (striping.clone(), data.len() as u64, data.to_vec());
        Make { striping, data, end, ..self }
    }

    pub fn op(self) -> Op {
        let Make { id, parent, name, mode, at, striping, data, end, mask, set_mode, mtime } = self;
        let piece = InlinePiece { offset: 0, bytes: data.len() as u32 };
        Op::Make {
            id,
            parent,
            name,
            mode,
            gid: u32::MAX,
            at,
            striping,
            end,
            hole: false,
            pieces: List(if data.is_empty() { vec![] } else { vec![piece] }),
            data: data.into(),
            mask,
            set_mode,
            atime: 3,
            mtime,
            last: true,
        }
    }
}

pub fn code(reply: &Reply) -> u32 {
    match reply {
        Reply::Error { code, .. } => *code,
        _ => 0,
    }
}

pub fn node(reply: Reply) -> Inode {
    match reply {
        Reply::Node { inode } => inode,
        other => panic!("{other:?}"),
    }
}

pub fn created(reply: Reply) -> Inode {
    match reply {
        Reply::Created { inode, .. } => inode,
        other => panic!("{other:?}"),
    }
}
