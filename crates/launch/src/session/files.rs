//! The files of a session, each a tree of one file.
//!
//! Whoever opens one holds the session until the fid is gone. `stdin`, `stdout`, `stderr`, `stdio` and `wait` may
//! make their readers and writers wait; they have no order among requests, so that no reader holds up the
//! writer who would feed it, and a flush or clunk ends the wait.

use super::buffer;
use super::commands::SessionCommands;
use super::host::{Host, Output};
use super::state::{Hold, Session, gone};
use super::transfer::Transfer;
use covey_ninep::control::{self, Control};
use covey_ninep::message::Qid;
use covey_ninep::tree::{
    Attach, Attr, Data, Errno, O_APPEND, O_TRUNC, Opened, Outcome, Read, Result, S_IFREG, SetAttr,
    Time, Tree, User, Write, Written,
};
use covey_wire::Bytes;
use std::cell::RefCell;
use std::rc::Rc;

/// Which file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Argv,
    Ctl,
    Env,
    Exec,
    Id,
    Stderr,
    Stdin,
    Stdio,
    Stdout,
    Wait,
}

impl Kind {
    /// All of them with their names.
    pub const ALL: [(&str, Kind); 10] = [
        ("ctl", Kind::Ctl),
        ("exec", Kind::Exec),
        ("argv", Kind::Argv),
        ("env", Kind::Env),
        ("stdin", Kind::Stdin),
        ("stdout", Kind::Stdout),
        ("stderr", Kind::Stderr),
        ("stdio", Kind::Stdio),
        ("wait", Kind::Wait),
        ("id", Kind::Id),
    ];

    fn mode(self) -> u32 {
        match self {
            Kind::Stdin => 0o200,
            Kind::Stdout | Kind::Stderr | Kind::Wait => 0o400,
            _ => 0o600,
        }
    }

    fn is_blocking(self) -> bool {
        use Kind::*;
        matches!(self, Stdin | Stdout | Stderr | Stdio | Wait)
    }
}

/// One file of a session.
pub(super) struct SessionFile {
    pub session: Rc<Session>,
    pub kind: Kind,
    pub host: Rc<dyn Host>,
    /// The control file that all who have it open share.
    control: Option<Control<SessionCommands>>,
}

/// An open file, or the file before it is opened.
pub(super) type Node = Option<Rc<Open>>;

pub(super) struct Open {
    session: Rc<Session>,
    is_append: bool,
    /// It has `exec` open for writing.
    writes_program: bool,
    control: RefCell<control::Node>,
    /// What another node sends through it.
    transfer: Rc<RefCell<Option<Rc<Transfer>>>>,
    /// Dropped last.
    _hold: Hold,
}

impl Drop for Open {
    fn drop(&mut self) {
        if self.writes_program {
            self.session.has_writer.set(false);
        }
    }
}

impl SessionFile {
    pub fn new(session: Rc<Session>, kind: Kind, host: Rc<dyn Host>) -> SessionFile {
        let control = (kind == Kind::Ctl)
            .then(|| Control::new(SessionCommands(session.clone(), host.clone())));
        SessionFile { session, kind, host, control }
    }

    fn check_user(&self, user: &User) -> Result<()> {
        let owner = self.session.owner.uid;
        if user.uid == owner || self.host.is_manager(user) {
            return Ok(());
        }
        let what = format!("session {} belongs to user {owner}", self.session.number);
        Err(Errno::because(Errno::EACCES, what))
    }

    fn buffer(&self) -> Option<&RefCell<Vec<u8>>> {
        match self.kind {
            Kind::Argv => Some(&self.session.argv),
            Kind::Env => Some(&self.session.env),
            _ => None,
        }
    }

    fn text(&self) -> Bytes {
        match self.kind {
            Kind::Id => format!("{}\n", self.session.id()).into(),
            _ => self.buffer().map(|text| text.borrow().clone()).unwrap_or_default().into(),
        }
    }

    fn size(&self, user: &Rc<User>) -> u64 {
        match (self.kind, &self.control) {
            (Kind::Exec, _) => self.session.place.program_bytes().unwrap_or(0),
            (_, Some(control)) => match control.getattr(user, &control::Node::default()) {
                Outcome::Now(Ok(attr)) => attr.size,
                _ => 0,
            },
            _ => self.text().len() as u64,
        }
    }

    /// What opening it for writing, or with O_TRUNC, does.
    fn begin_writing(&self, flags: u32) -> Result<bool> {
        let is_emptied = flags & O_TRUNC != 0;
        match self.kind {
            Kind::Exec => {
                self.session.check_new()?;
                if self.session.has_writer.get() {
                    let what = "somebody else has exec open for writing";
                    return Err(Errno::because(Errno::EBUSY, what));
                }
                if is_emptied || self.session.place.program_bytes().is_none() {
                    self.session.place.begin_program()?;
                }
                self.session.has_writer.set(true);
                return Ok(true);
            }
            Kind::Argv | Kind::Env if is_emptied => self.truncate(0)?,
            _ => {}
        }
        Ok(false)
    }

    fn truncate(&self, bytes: u64) -> Result<()> {
        match (self.kind, self.buffer()) {
            (_, Some(text)) => {
                self.session.check_new()?;
                buffer::check(bytes)?;
                self.session.check_text(text.borrow().len(), bytes)?;
                buffer::truncate(&mut text.borrow_mut(), bytes)
            }
            (Kind::Exec, _) if bytes == 0 => {
                self.session.check_new()?;
                self.session.place.begin_program()
            }
            _ => Ok(()),
        }
    }

    fn write_text(&self, open: &Open, offset: u64, data: &[u8]) -> Result<u32> {
        if self.kind == Kind::Id {
            let id = String::from_utf8_lossy(data);
            self.session.set_id(id.strip_suffix('\n').unwrap_or(&id))?;
            return Ok(data.len() as u32);
        }
        self.session.check_new()?;
        let text = self.buffer().ok_or(Errno::EOPNOTSUPP)?;
        let before = text.borrow().len();
        let offset = if open.is_append { before as u64 } else { offset };
        buffer::check(offset.saturating_add(data.len() as u64))?;
        self.session.check_text(before, offset + data.len() as u64)?;
        buffer::write(&mut text.borrow_mut(), offset, data)
    }
}

impl Tree for SessionFile {
    type Node = Node;

    fn attach(&self, attach: Attach) -> Outcome<(User, Qid, Node)> {
        let what = format!("{} cannot be attached by itself", attach.aname.lossy());
        Err(Errno::because(Errno::EACCES, what)).into()
    }

    fn enter(&self, user: &User, _: Attach) -> Outcome<(User, Qid, Node)> {
        Ok((user.clone(), QID, None)).into()
    }

    fn root_kind(&self) -> u8 {
        Qid::FILE
    }

    fn getattr(&self, user: &Rc<User>, _: &Node) -> Outcome<Attr> {
        let User { uid, gid, .. } = *self.session.owner;
        let attr = Attr::new(QID.path, S_IFREG | self.kind.mode(), uid, gid, Time::default());
        let size = if self.check_user(user).is_ok() { self.size(user) } else { 0 };
        Ok(Attr { size, ..attr }).into()
    }

    /// A shell that redirects to a file truncates it first.
    fn setattr(&self, user: &Rc<User>, _: &Node, set: SetAttr) -> Outcome<()> {
        Outcome::now(|| {
            self.check_user(user)?;
            set.size.map_or(Ok(()), |bytes| self.truncate(bytes))
        })
    }

    fn open(&self, user: &Rc<User>, _: &Node, flags: u32) -> Outcome<Opened<Node>> {
        Outcome::now(|| {
            self.check_user(user)?;
            let is_writer = flags & O_ACCMODE != 0;
            let allowed = self.kind.mode() >> 6;
            if is_writer && allowed & 2 == 0 || flags & O_ACCMODE != 1 && allowed & 4 == 0 {
                return Err(Errno::EACCES.into());
            }
            if matches!(self.session.state(), super::State::Wiped) {
                return Err(gone());
            }
            let writes_program = is_writer && self.begin_writing(flags)?;
            let open = Open {
                session: self.session.clone(),
                is_append: flags & O_APPEND != 0,
                writes_program,
                control: RefCell::default(),
                transfer: Rc::default(),
                _hold: self.session.hold(),
            };
            Ok(Opened { qid: QID, node: Some(Rc::new(open)), blocking: self.kind.is_blocking() })
        })
    }

    fn read(&self, user: &Rc<User>, node: &Node, read: Read<'_>) -> Data {
        let Some(open) = node else { return Errno::EBADF.into() };
        let (offset, count) = (read.offset, read.count);
        match (self.kind, &self.control) {
            (_, Some(control)) => control.read(user, &open.control.borrow(), read),
            (Kind::Exec, _) => self.session.place.read_program(offset, count).into(),
            (Kind::Stdout | Kind::Stdio, _) => output(&self.session, Output::Out, count),
            (Kind::Stderr, _) => output(&self.session, Output::Err, count),
            (Kind::Wait, _) => {
                let status = self.session.status();
                Data::later(async move {
                    let text = Bytes::from(format!("{}\n", status.await?));
                    Read::bytes(offset, count).of(&text).into_outcome().wait().await
                })
            }
            _ => read.of(&self.text()),
        }
    }

    fn write(&self, user: &Rc<User>, node: &Node, write: Write) -> Written {
        let Some(open) = node else { return Errno::EBADF.into() };
        if let Some(control) = &self.control {
            return control.write(user, &open.control.borrow(), write);
        }
        write.received(|offset, data| match self.kind {
            Kind::Exec => self.session.place.write_program(offset, data),
            Kind::Stdin | Kind::Stdio => input(&self.session, data),
            _ => self.write_text(open, offset, &data).into(),
        })
    }

    /// What other nodes say when they send the session here.
    fn call(&self, _: &Rc<User>, node: &Node, body: Bytes) -> Outcome<Bytes> {
        match (self.kind, node) {
            (Kind::Ctl, Some(open)) => self.session.answer(&self.host, &open.transfer, body),
            _ => Errno::EOPNOTSUPP.into(),
        }
    }

    fn clunk(&self, user: &Rc<User>, node: Node) {
        if let (Some(control), Some(Ok(open))) = (&self.control, node.map(Rc::try_unwrap)) {
            control.clunk(user, open.control.take());
        }
    }
}

fn output(session: &Rc<Session>, which: Output, count: u32) -> Data {
    let job = session.job();
    Data::later(async move { job.await?.read(which, count).wait().await })
}

/// Hands over all of `data`: clients do not expect a write to be short.
fn input(session: &Rc<Session>, mut data: Bytes) -> Outcome<u32> {
    let (job, bytes) = (session.job(), data.len() as u32);
    Outcome::later(async move {
        let job = job.await?;
        while !data.is_empty() {
            let count = job.write(data.clone()).wait().await? as usize;
            let _written = data.split_to(count.min(data.len()));
        }
        Ok(bytes)
    })
}

const QID: Qid = Qid { kind: Qid::FILE, version: 0, path: 1 };
const O_ACCMODE: u32 = 3;
