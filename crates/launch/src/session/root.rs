//! The root of the tree: `clone`, which makes sessions, and what concerns the whole node.

use super::buffer;
use super::files::{Kind, SessionFile};
use super::host::Host;
use super::state::Session;
use super::words;
use covey_ninep::control::{Commands, Control, refuse};
use covey_ninep::message::Qid;
use covey_ninep::namespace::Namespace;
use covey_ninep::text::Text;
use covey_ninep::tree::{
    Attach, Attr, Data, Errno, O_APPEND, O_TRUNC, Opened, Outcome, Read, Result, S_IFREG, SetAttr,
    Time, Tree, User, Write, Written,
};
use covey_wire::Bytes;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

/// How many sessions there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Of one user.
    pub sessions_per_user: usize,
    /// In all.
    pub sessions: usize,
    /// Arguments and environments of one user's sessions together, before one becomes longer than 16 KiB.
    pub text_bytes_per_user: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { sessions_per_user: 1024, sessions: 8192, text_bytes_per_user: 64 << 20 }
    }
}

/// The sessions of a node.
pub struct Xcpu {
    host: Rc<dyn Host>,
    limits: Limits,
    names: Weak<Namespace>,
    table: RefCell<BTreeMap<u64, Rc<Session>>>,
    number_next: Cell<u64>,
    env: RefCell<Vec<u8>>,
    state: RefCell<Vec<u8>>,
}

/// What a session asks of those among whom it is.
pub(super) trait Sessions {
    /// The environment that all sessions begin with.
    fn env(&self) -> Vec<u8>;
    /// EDQUOT when a text of `bytes` bytes in place of one of `before` is more than its user may have here.
    fn check_text(&self, uid: u32, before: usize, bytes: usize) -> Result<()>;
    /// Takes away the session that was wiped.
    fn forget(&self, number: u64);
}

impl Sessions for Xcpu {
    fn env(&self) -> Vec<u8> {
        self.env.borrow().clone()
    }

    fn check_text(&self, uid: u32, before: usize, bytes: usize) -> Result<()> {
        if bytes <= SHORT_BYTES || bytes <= before {
            return Ok(());
        }
        let table = self.table.borrow();
        let own = table.values().filter(|session| session.owner.uid == uid);
        let all: usize = own.map(|session| session.text_bytes()).sum();
        let limit = self.limits.text_bytes_per_user;
        if all - before + bytes <= limit {
            return Ok(());
        }
        let what = format!(
            "arguments and environments of user {uid} have {limit} bytes here, which is the limit; hint: wipe some sessions"
        );
        Err(Errno::because(Errno::EDQUOT, what))
    }

    fn forget(&self, number: u64) {
        let session = self.table.borrow_mut().remove(&number);
        if let (Some(_), Some(names)) = (&session, self.names.upgrade()) {
            // It was bound when it was put into the table.
            let _ = names.unbind(&number.to_string());
        }
    }
}

impl Xcpu {
    /// The sessions of `host`, and the tree to be bound as `xcpu`.
    pub fn new(host: Rc<dyn Host>, limits: Limits) -> Result<(Rc<Xcpu>, Rc<Namespace>)> {
        let names = Rc::new(Namespace::folder());
        let xcpu = Rc::new(Xcpu {
            host: host.clone(),
            limits,
            names: Rc::downgrade(&names),
            table: RefCell::default(),
            number_next: Cell::new(0),
            env: RefCell::default(),
            state: RefCell::new(b"up\n".to_vec()),
        });
        names.bind("clone", Rc::new(CloneFile(xcpu.clone())))?;
        for name in ["arch", "uname"] {
            let arch = format!("/{}\n", host.arch());
            names.bind(name, Rc::new(Text::new(move || arch.clone())))?;
        }
        names.bind("env", Rc::new(NoteFile { xcpu: xcpu.clone(), note: Note::Env }))?;
        names.bind("procs", Rc::new(ProcsFile(host)))?;
        names.bind("state", Rc::new(NoteFile { xcpu: xcpu.clone(), note: Note::State }))?;
        names.bind("ctl", Rc::new(Control::new(RootCommands(xcpu.clone()))))?;
        Ok((xcpu, names))
    }

    /// A new session of `owner`. EACCES, or EDQUOT where there are as many as may be.
    pub fn make(self: &Rc<Self>, owner: &Rc<User>) -> Result<Rc<Session>> {
        self.host.admit(owner)?;
        self.check_limits(owner)?;
        let names = self.names.upgrade().ok_or(Errno::ESTALE)?;
        let number = self.number_next.replace(self.number_next.get() + 1);
        let place = self.host.place(owner, number)?;
        let files = place.files();
        let all: Weak<dyn Sessions> = Rc::downgrade(&(self.clone() as Rc<dyn Sessions>));
        let session = Session::new(number, owner.clone(), place, all);
        let dir = Namespace::folder();
        for (name, kind) in Kind::ALL {
            let file = SessionFile::new(session.clone(), kind, self.host.clone());
            dir.bind(name, Rc::new(file))?;
        }
        dir.bind("fs", files)?;
        names.bind(&number.to_string(), Rc::new(dir))?;
        self.table.borrow_mut().insert(number, session.clone());
        Ok(session)
    }

    fn check_limits(&self, owner: &User) -> Result<()> {
        let table = self.table.borrow();
        let Limits { sessions, sessions_per_user, .. } = self.limits;
        if table.len() >= sessions {
            let what = format!("the node has {sessions} sessions, which is its limit");
            return Err(Errno::because(Errno::EDQUOT, what));
        }
        if self.of(&table, owner.uid) >= sessions_per_user {
            let what = format!(
                "user {} has {sessions_per_user} sessions here, which is the limit; hint: wipe some",
                owner.uid
            );
            return Err(Errno::because(Errno::EDQUOT, what));
        }
        Ok(())
    }

    fn of(&self, table: &BTreeMap<u64, Rc<Session>>, uid: u32) -> usize {
        table.values().filter(|session| session.owner.uid == uid).count()
    }

    /// The session of this number.
    pub fn session(&self, number: u64) -> Option<Rc<Session>> {
        self.table.borrow().get(&number).cloned()
    }

    /// All sessions, by number.
    pub fn sessions(&self) -> Vec<Rc<Session>> {
        self.table.borrow().values().cloned().collect()
    }

    /// Ends all sessions.
    pub fn wipe_all(&self) {
        self.sessions().iter().for_each(|session| session.wipe());
    }
}

/// `clone`: to open it is to make a session, whose number can be read.
struct CloneFile(Rc<Xcpu>);

/// The session that was made, held.
type Made = Option<Rc<(Bytes, super::state::Hold)>>;

impl Tree for CloneFile {
    type Node = Made;

    fn attach(&self, attach: Attach) -> Outcome<(User, Qid, Made)> {
        only_within(&attach).into()
    }

    fn enter(&self, user: &User, _: Attach) -> Outcome<(User, Qid, Made)> {
        Ok((user.clone(), QID, None)).into()
    }

    fn root_kind(&self) -> u8 {
        Qid::FILE
    }

    /// As long as it can become, until it is opened: a program that follows a file (tail) begins again with one that is
    /// shorter than what it has read.
    fn getattr(&self, _: &Rc<User>, node: &Made) -> Outcome<Attr> {
        let size = node.as_ref().map_or(NUMBER_BYTES_MAX, |made| made.0.len() as u64);
        Ok(Attr { size, ..attr(0o444) }).into()
    }

    fn open(&self, user: &Rc<User>, _: &Made, flags: u32) -> Outcome<Opened<Made>> {
        Outcome::now(|| {
            covey_ninep::text::check_read_only(flags)?;
            let session = self.0.make(user)?;
            let made = (format!("{}\n", session.number).into(), session.hold());
            Ok(Opened { qid: QID, node: Some(Rc::new(made)), blocking: false })
        })
    }

    fn read(&self, _: &Rc<User>, node: &Made, read: Read<'_>) -> Data {
        node.as_ref().map_or(Errno::EBADF.into(), |made| read.of(&made.0))
    }
}

/// `procs`: made when it is opened.
struct ProcsFile(Rc<dyn Host>);

impl Tree for ProcsFile {
    type Node = Option<Bytes>;

    fn attach(&self, attach: Attach) -> Outcome<(User, Qid, Self::Node)> {
        only_within(&attach).into()
    }

    fn enter(&self, user: &User, _: Attach) -> Outcome<(User, Qid, Self::Node)> {
        Ok((user.clone(), QID, None)).into()
    }

    fn root_kind(&self) -> u8 {
        Qid::FILE
    }

    fn getattr(&self, _: &Rc<User>, node: &Self::Node) -> Outcome<Attr> {
        let size = node.as_ref().map_or(0, |text| text.len() as u64);
        Ok(Attr { size, ..attr(0o444) }).into()
    }

    fn open(&self, _: &Rc<User>, _: &Self::Node, flags: u32) -> Outcome<Opened<Self::Node>> {
        if let Err(error) = covey_ninep::text::check_read_only(flags) {
            return Err(error).into();
        }
        let opened = |text| Opened { qid: QID, node: Some(text), blocking: false };
        self.0.procs().map(opened)
    }

    fn read(&self, _: &Rc<User>, node: &Self::Node, read: Read<'_>) -> Data {
        node.as_ref().map_or(Errno::EBADF.into(), |text| read.of(text))
    }
}

/// `env` and `state`: texts for all to read and for managers to write.
struct NoteFile {
    xcpu: Rc<Xcpu>,
    note: Note,
}

#[derive(Clone, Copy)]
enum Note {
    Env,
    State,
}

impl NoteFile {
    fn text(&self) -> &RefCell<Vec<u8>> {
        match self.note {
            Note::Env => &self.xcpu.env,
            Note::State => &self.xcpu.state,
        }
    }

    fn check_writer(&self, user: &User) -> Result<()> {
        if self.xcpu.host.is_manager(user) {
            return Ok(());
        }
        let what = format!("user {} may not change it: only root and the daemon's user", user.uid);
        Err(Errno::because(Errno::EACCES, what))
    }

    fn put(&self, offset: u64, data: &[u8]) -> Result<u32> {
        let mut text = self.text().borrow().clone();
        let count = buffer::write(&mut text, offset, data)?;
        match self.note {
            Note::Env => drop(words::environment(&text, b"")?),
            Note::State if text.len() > STATE_BYTES_MAX => {
                return refuse(format!("a state has at most {STATE_BYTES_MAX} bytes"));
            }
            Note::State => {}
        }
        *self.text().borrow_mut() = text;
        Ok(count)
    }
}

impl Tree for NoteFile {
    /// The flags that it was opened with.
    type Node = u32;

    fn attach(&self, attach: Attach) -> Outcome<(User, Qid, u32)> {
        only_within(&attach).into()
    }

    fn enter(&self, user: &User, _: Attach) -> Outcome<(User, Qid, u32)> {
        Ok((user.clone(), QID, 0)).into()
    }

    fn root_kind(&self) -> u8 {
        Qid::FILE
    }

    fn getattr(&self, _: &Rc<User>, _: &u32) -> Outcome<Attr> {
        Ok(Attr { size: self.text().borrow().len() as u64, ..attr(0o644) }).into()
    }

    fn setattr(&self, user: &Rc<User>, _: &u32, set: SetAttr) -> Outcome<()> {
        Outcome::now(|| {
            self.check_writer(user)?;
            match set.size {
                Some(bytes) => buffer::truncate(&mut self.text().borrow_mut(), bytes),
                None => Ok(()),
            }
        })
    }

    fn open(&self, user: &Rc<User>, _: &u32, flags: u32) -> Outcome<Opened<u32>> {
        Outcome::now(|| {
            if flags & 3 != 0 || flags & O_TRUNC != 0 {
                self.check_writer(user)?;
            }
            if flags & O_TRUNC != 0 {
                self.text().borrow_mut().clear();
            }
            Ok(Opened { qid: QID, node: flags, blocking: false })
        })
    }

    fn read(&self, _: &Rc<User>, _: &u32, read: Read<'_>) -> Data {
        read.of(&self.text().borrow().clone().into())
    }

    fn write(&self, _: &Rc<User>, flags: &u32, write: Write) -> Written {
        write.received(|offset, data| {
            let end = self.text().borrow().len() as u64;
            self.put(if flags & O_APPEND != 0 { end } else { offset }, &data).into()
        })
    }
}

/// What the node can be told to do about all sessions.
struct RootCommands(Rc<Xcpu>);

impl Commands for RootCommands {
    fn text(&self) -> String {
        let xcpu = &self.0;
        let Limits { sessions, sessions_per_user, .. } = xcpu.limits;
        let now = xcpu.table.borrow().len();
        format!(
            "# {now} sessions; at most {sessions}, and {sessions_per_user} of one user\n{}\
             # wipe N|all: ends a session, or all of them\n",
            xcpu.host.about()
        )
    }

    fn run(&self, _: &User, words: &[&str]) -> Outcome<()> {
        let found = |number: &str| self.0.session(number.parse().ok()?);
        match words {
            ["wipe", "all"] => {
                self.0.wipe_all();
                Ok(()).into()
            }
            ["wipe", number] => match found(number) {
                Some(session) => {
                    session.wipe();
                    Ok(()).into()
                }
                None => Err(Errno::because(Errno::ENOENT, format!("no session {number:?}"))).into(),
            },
            _ => {
                refuse(format!("{}: not a command; hint: wipe N, wipe all", words.join(" "))).into()
            }
        }
    }

    fn allows(&self, user: &User) -> bool {
        self.0.host.is_manager(user)
    }
}

fn attr(mode: u32) -> Attr {
    Attr::new(QID.path, S_IFREG | mode, 0, 0, Time::default())
}

/// The answer to an attach that comes by no namespace: nobody has said who it is.
fn only_within<T>(attach: &Attach) -> Result<T> {
    let what = format!("{} cannot be attached by itself", attach.aname.lossy());
    Err(Errno::because(Errno::EACCES, what))
}

const QID: Qid = Qid { kind: Qid::FILE, version: 0, path: 1 };
/// A number and the end of its line.
const NUMBER_BYTES_MAX: u64 = 21;
/// Texts up to this length are held by the number of sessions alone.
const SHORT_BYTES: usize = 16 << 10;
/// A state is a word or two.
const STATE_BYTES_MAX: usize = 1024;
