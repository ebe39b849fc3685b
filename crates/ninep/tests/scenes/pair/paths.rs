//! Files by their paths, and a namespace's host.

use super::*;
use covey_ninep::message::DirEntry;
use covey_ninep::namespace::Host;
use covey_ninep::tree::{Attach, Errno, User};
use covey_wire::List;

/// Lets everyone in as whom they claim to be, but for `stranger`.
pub struct Door;

impl Host for Door {
    fn admit(&self, attach: &mut Attach) -> covey_ninep::tree::Result<User> {
        if attach.uname.as_bytes() == b"stranger" {
            return Err(Errno::EACCES.into());
        }
        let uid = attach.n_uname.or(attach.peer.uid).unwrap_or(0);
        Ok(User { uid, gid: uid, groups: vec![uid] })
    }

    fn detach(&self, work: Pin<Box<dyn Future<Output = ()>>>) {
        poll_once(pin!(work));
    }
}

/// What walks, opens and reads by path need: a connection whose fid 0 is attached, and a way to move bytes.
pub trait Driven {
    fn conn(&self) -> Conn;
    fn drive<F: Future>(&mut self, future: F) -> F::Output;

    fn ask(&mut self, message: Message) -> Reply {
        let call = self.conn().call(message);
        self.drive(call)
    }

    /// A new fid at `path` below `from`.
    fn walk_to(&mut self, from: u32, path: &str) -> Result<u32, u32> {
        let fid = self.conn().fid();
        let names: Vec<Name> =
            path.split('/').filter(|name| !name.is_empty()).map(Name::from).collect();
        let count = names.len();
        match self.ask(Message::Twalk { fid: from, newfid: fid, names: List(names) }) {
            Ok(Message::Rwalk { qids }) if qids.0.len() == count => Ok(fid),
            Ok(_) => Err(Errno::ENOENT),
            reply => Err(code(reply)),
        }
    }

    /// An open fid at `path`.
    fn open_at(&mut self, path: &str, flags: u32) -> Result<u32, u32> {
        let fid = self.walk_to(0, path)?;
        match self.ask(open(fid, flags)) {
            Ok(_) => Ok(fid),
            reply => Err(code(reply)),
        }
    }

    fn text_at(&mut self, path: &str) -> Result<String, u32> {
        let fid = self.open_at(path, 0)?;
        let text = data(self.ask(read(fid, 0, 4096)));
        self.ask(Message::Tclunk { fid }).unwrap();
        Ok(String::from_utf8(text).unwrap())
    }

    /// Writes a whole file, made if need be.
    fn put_at(&mut self, dir: &str, name: &str, text: &str) -> Result<(), u32> {
        let fid = self.walk_to(0, dir)?;
        let create = Message::Tlcreate { fid, name: name.into(), flags: 1, mode: 0o644, gid: 0 };
        self.ask(create).map_err(|error| code(Err(error)))?;
        self.ask(write(fid, 0, text.as_bytes())).map_err(|error| code(Err(error)))?;
        self.ask(Message::Tclunk { fid }).unwrap();
        Ok(())
    }

    /// The entries of a directory, read `count` bytes at a time.
    fn entries_at(&mut self, path: &str, count: u32) -> Result<Vec<DirEntry>, u32> {
        let (fid, mut all) = (self.open_at(path, 0)?, Vec::<DirEntry>::new());
        loop {
            let offset = all.last().map_or(0, |entry| entry.offset);
            let more = match self.ask(Message::Treaddir { fid, offset, count }) {
                Ok(Message::Rreaddir { data }) => {
                    DirEntry::take_entries(data.into_bytes()).unwrap()
                }
                reply => return Err(code(reply)),
            };
            if more.is_empty() {
                return Ok(all);
            }
            all.extend(more);
        }
    }

    fn names_at(&mut self, path: &str) -> Result<Vec<String>, u32> {
        Ok(self.entries_at(path, 4096)?.iter().map(|entry| entry.name.to_string()).collect())
    }

    /// The number of the file at `path`, as its attributes have it.
    fn number_at(&mut self, path: &str) -> Result<u64, u32> {
        let fid = self.walk_to(0, path)?;
        match self.ask(Message::Tgetattr { fid, request_mask: 0x7ff }) {
            Ok(Message::Rgetattr { qid, .. }) => Ok(qid.path),
            reply => Err(code(reply)),
        }
    }
}

impl<T: Tree> Driven for Pair<T> {
    fn conn(&self) -> Conn {
        self.conn.clone()
    }

    fn drive<F: Future>(&mut self, future: F) -> F::Output {
        self.run(future)
    }
}
