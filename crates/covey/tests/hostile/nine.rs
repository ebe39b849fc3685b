//! A 9P client that sends just what a test tells it to, for one user.

use covey_ninep::message::{Dialect, Message, NOFID, NOTAG, Number};
use covey_wire::{List, Name, Segments};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

pub const O_RDONLY: u32 = 0;
pub const O_WRONLY: u32 = 1;
pub const O_RDWR: u32 = 2;
pub const O_TRUNC: u32 = 0o1000;

/// Kinds of locks.
pub const F_RDLCK: u8 = 0;
pub const F_WRLCK: u8 = 1;
pub const F_UNLCK: u8 = 2;

/// An answer, or the number of the error.
pub type Answer = Result<Message, u32>;

/// A connection to a tree, attached for one user.
pub struct Nine {
    stream: UnixStream,
    fid_next: u32,
}

/// The fid of the attach.
pub const ROOT: u32 = 0;
/// No answer is longer in coming than this.
const PATIENCE: Duration = Duration::from_secs(60);

impl Nine {
    /// Attaches `tree` behind a socket for a user; the test's own user may say that it is another.
    pub fn attach(socket: &Path, tree: &str, uid: u32) -> Nine {
        let stream = UnixStream::connect(socket).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket has a time limit");
        let mut nine = Nine { stream, fid_next: 1 };
        let version = Message::Tversion { msize: 1 << 17, version: "9P2000.L".into() };
        nine.call_tagged(NOTAG, version).expect("the version is spoken");
        let (uname, aname, n_uname) = (Name::EMPTY, Name::from(tree), Number(uid));
        nine.call(Message::Tattach { fid: ROOT, afid: NOFID, uname, aname, n_uname })
            .unwrap_or_else(|error| panic!("user {uid} may not attach {tree}: error {error}"));
        nine
    }

    /// Sends a request and waits for its answer.
    pub fn call(&mut self, request: Message) -> Answer {
        self.call_tagged(1, request)
    }

    fn call_tagged(&mut self, tag: u16, request: Message) -> Answer {
        let mut out = Segments::new();
        request.put(tag, Dialect::Linux, &mut out);
        let bytes: Vec<u8> = out.runs().flatten().copied().collect();
        self.stream.write_all(&bytes).expect("the server takes requests");
        match self.reply() {
            Message::Rlerror { ecode } => Err(ecode),
            reply => Ok(reply),
        }
    }

    fn reply(&mut self) -> Message {
        let mut size = [0; 4];
        self.stream.read_exact(&mut size).expect("an answer comes");
        let mut frame = size.to_vec();
        frame.resize(u32::from_le_bytes(size) as usize, 0);
        self.stream.read_exact(&mut frame[4..]).expect("the answer is whole");
        Message::get(frame.into(), Dialect::Linux).expect("the answer is a message").1
    }

    /// A fid on a name of the root.
    pub fn walk(&mut self, name: &str) -> u32 {
        let names = if name.is_empty() { Vec::new() } else { vec![Name::from(name)] };
        let newfid = self.fid_next;
        self.fid_next += 1;
        let walked = self.call(Message::Twalk { fid: ROOT, newfid, names: List(names) });
        walked.unwrap_or_else(|error| panic!("{name} is not found: error {error}"));
        newfid
    }

    /// A fid on a name of the root, opened.
    pub fn open(&mut self, name: &str, flags: u32) -> Result<u32, u32> {
        let fid = self.walk(name);
        self.call(Message::Tlopen { fid, flags }).map(|_| fid)
    }

    /// Makes a file in the root, or opens the one that is there.
    pub fn create(&mut self, name: &str, flags: u32, mode: u32) -> Result<u32, u32> {
        let (fid, gid) = (self.walk(""), u32::MAX);
        self.call(Message::Tlcreate { fid, name: name.into(), flags, mode, gid }).map(|_| fid)
    }

    pub fn write(&mut self, fid: u32, offset: u64, data: &[u8]) -> Result<(), u32> {
        let data = data.to_vec().into();
        self.call(Message::Twrite { fid, offset, data }).map(|_| ())
    }

    pub fn cut(&mut self, fid: u32, size: u64) -> Result<(), u32> {
        const SIZE: u32 = 8;
        self.setattr(fid, SIZE, 0, size)
    }

    pub fn chmod(&mut self, fid: u32, mode: u32) -> Result<(), u32> {
        const MODE: u32 = 1;
        self.setattr(fid, MODE, mode, 0)
    }

    fn setattr(&mut self, fid: u32, valid: u32, mode: u32, size: u64) -> Result<(), u32> {
        let (uid, gid) = (u32::MAX, u32::MAX);
        let (atime_sec, atime_nsec, mtime_sec, mtime_nsec) = (0, 0, 0, 0);
        self.call(Message::Tsetattr {
            fid,
            valid,
            mode,
            uid,
            gid,
            size,
            atime_sec,
            atime_nsec,
            mtime_sec,
            mtime_nsec,
        })
        .map(|_| ())
    }

    /// Takes or gives back a lock on all of a file, as process `proc_id` of client "c"; whether it was
    /// had.
    pub fn lock(&mut self, fid: u32, kind: u8, proc_id: u32) -> Result<bool, u32> {
        let (start, length, client_id) = (0, 0, Name::from("c"));
        let lock = Message::Tlock { fid, kind, flags: 0, start, length, proc_id, client_id };
        match self.call(lock)? {
            Message::Rlock { status: 0 } => Ok(true),
            Message::Rlock { status: 1 } => Ok(false),
            other => panic!("{other:?}"),
        }
    }

    /// The kind of lock that is in the way of one for writing.
    pub fn getlock(&mut self, fid: u32, proc_id: u32) -> Result<u8, u32> {
        let (start, length, client_id) = (0, 0, Name::from("c"));
        match self.call(Message::Tgetlock { fid, kind: 1, start, length, proc_id, client_id })? {
            Message::Rgetlock { kind, .. } => Ok(kind),
            other => panic!("{other:?}"),
        }
    }

    /// Mode and size.
    pub fn stat(&mut self, fid: u32) -> (u32, u64) {
        const ALL: u64 = 0x7ff;
        match self.call(Message::Tgetattr { fid, request_mask: ALL }) {
            Ok(Message::Rgetattr { mode, size, .. }) => (mode, size),
            other => panic!("{other:?}"),
        }
    }

    pub fn clunk(&mut self, fid: u32) {
        self.call(Message::Tclunk { fid }).expect("a fid can be given back");
    }
}
