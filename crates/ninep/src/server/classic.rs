//! 9P2000 and 9P2000.u, over trees that know Linux's calls only.
//!
//! They differ from .L in three things. Opening has a mode of its own, which can remove the file with the
//! fid. Attributes are one record that names its file, and writing it renames. A directory is read as
//! such records. A tree's node knows no name and no directory above, so in these dialects a fid
//! remembers the [`Place`] where it was found. What takes several calls of the tree is an `async fn` of
//! [`Work`].

mod record;
mod work;

use super::Session;
use super::fids::{Fid, File, Open, check_name, check_target};
use super::finish::Then;
use super::start::Started;
use crate::message::{Dialect, Message, Qid, Stat, dm};
use crate::tree::{
    Errno, O_APPEND, O_TRUNC, Outcome, Result, S_IFBLK, S_IFCHR, S_IFIFO, S_IFSOCK, Tree,
};
use covey_wire::{Bytes, Name};
use std::cell::RefCell;
use std::rc::Rc;
pub(super) use work::Created;
use work::{New, Work};

/// Where a file was found: its name, as the client that holds the fid knows it, and all above.
pub(super) struct Place<N> {
    name: RefCell<Name>,
    node: N,
    above: Option<Rc<Place<N>>>,
}

impl<N: Clone> Place<N> {
    /// The root of a tree.
    pub fn root(node: N) -> Rc<Place<N>> {
        Rc::new(Place { name: RefCell::new("/".into()), node, above: None })
    }

    /// One step of a walk on.
    pub fn step(self: &Rc<Self>, name: &Name, node: N) -> Rc<Place<N>> {
        if name.as_bytes() == b".." {
            return self.above.clone().unwrap_or_else(|| self.clone());
        }
        Rc::new(Place { name: RefCell::new(name.detached()), node, above: Some(self.clone()) })
    }

    fn name(&self) -> Name {
        self.name.borrow().clone()
    }

    /// The directory above: the root has none, and so cannot be renamed or removed.
    fn dir(&self) -> Result<&Rc<Place<N>>> {
        let root = || Errno::because(Errno::EPERM, "the root cannot be renamed or removed");
        self.above.as_ref().ok_or_else(root)
    }
}

/// What the mode of Topen and Tcreate asks for.
struct Mode {
    /// Linux's flags.
    flags: u32,
    /// ORCLOSE.
    remove: bool,
}

fn open_mode(dialect: Dialect, mode: u8) -> Result<Mode> {
    const OTRUNC: u8 = 0x10;
    const OCEXEC: u8 = 0x20;
    const ORCLOSE: u8 = 0x40;
    const OAPPEND: u8 = 0x80;
    const OEXEC: u8 = 3;
    if mode & 0x0c != 0 || (mode & OAPPEND != 0 && dialect == Dialect::Plan9) {
        return Err(Errno::because(Errno::EINVAL, format!("open mode is {mode:#04x}")));
    }
    // To execute is to read: who may is for the client to ask.
    let access = if mode & OEXEC == OEXEC { 0 } else { u32::from(mode & OEXEC) };
    let truncate = if mode & OTRUNC != 0 { O_TRUNC } else { 0 };
    let append = if mode & OAPPEND != 0 { O_APPEND } else { 0 };
    // OCEXEC is a matter of the client's own.
    let _ = OCEXEC;
    Ok(Mode { flags: access | truncate | append, remove: mode & ORCLOSE != 0 })
}

impl<T: Tree> Session<T> {
    /// What only these dialects ask.
    pub(super) fn start_classic(&mut self, request: Message) -> Result<Started<T::Node>> {
        match request {
            Message::Topen { fid, mode } => self.start_classic_open(fid, mode),
            Message::Tcreate { fid, name, perm, mode, extension } => {
                self.start_classic_create(fid, name, perm, mode, extension.0)
            }
            Message::Tstat { fid } => {
                let work = self.work(self.fids.file(fid)?);
                Ok(later(work.stat(), Then::Stat))
            }
            Message::Twstat { fid, stat } => self.start_wstat(fid, *stat),
            other => Err(super::start::unsupported(&other)),
        }
    }

    fn start_classic_open(&mut self, fid: u32, mode: u8) -> Result<Started<T::Node>> {
        let Mode { flags, remove } = open_mode(self.spoken(), mode)?;
        let file = self.fids.unopened(fid)?;
        if file.qid.kind & Qid::DIR != 0 && (flags != 0 || remove) {
            return Err(Errno::because(Errno::EISDIR, "a directory is opened for reading only"));
        }
        if remove {
            self.work(file).place.dir()?;
        }
        let asked = self.tree.open(&file.user, &file.node, flags).into();
        Ok(Started::Asked(asked, Then::Open { fid, flags, remove }))
    }

    fn start_classic_create(
        &mut self,
        fid: u32,
        name: Name,
        perm: u32,
        mode: u8,
        extension: Name,
    ) -> Result<Started<T::Node>> {
        check_name(&name)?;
        let Mode { flags, remove } = open_mode(self.spoken(), mode)?;
        let dir = self.fids.unopened(fid)?;
        let new = self.new_file(perm, flags & !O_TRUNC, &extension)?;
        if matches!(new, New::Dir) && (flags != 0 || remove) {
            return Err(Errno::because(Errno::EISDIR, "a directory is opened for reading only"));
        }
        let work = self.work(dir);
        let then = Then::ClassicCreate { fid, name: name.clone(), flags, remove };
        Ok(later(work.create(name, perm, new), then))
    }

    /// What Tcreate is to make.
    fn new_file(&self, perm: u32, flags: u32, extension: &Name) -> Result<New<T::Node>> {
        const KINDS: u32 =
            dm::DIR | dm::SYMLINK | dm::LINK | dm::DEVICE | dm::NAMEDPIPE | dm::SOCKET;
        record::check_mode(self.spoken(), perm)?;
        let special = |mode| Ok(New::Special { mode, major: 0, minor: 0 });
        match perm & KINDS {
            0 => Ok(New::File { flags }),
            dm::DIR => Ok(New::Dir),
            dm::SYMLINK => {
                check_target(extension)?;
                Ok(New::Symlink { target: extension.clone() })
            }
            // The extension is the number of a fid on the file to be linked.
            dm::LINK => {
                let number = extension.lossy().trim().parse();
                let bad = |_| Errno::because(Errno::EINVAL, "a link's extension is a fid");
                let file = self.fids.file(number.map_err(bad)?)?;
                Ok(New::Link { node: file.node.clone() })
            }
            dm::DEVICE => device(extension),
            dm::NAMEDPIPE => special(S_IFIFO),
            dm::SOCKET => special(S_IFSOCK),
            _ => Err(Errno::because(Errno::EINVAL, format!("mode {perm:#x} is of two kinds"))),
        }
    }

    fn start_wstat(&mut self, fid: u32, stat: Stat) -> Result<Started<T::Node>> {
        let file = self.fids.file(fid)?;
        if !stat.name.is_empty() {
            // Only a name that is asked for: the root's own is a slash.
            let now = self.work(file).place.name();
            if stat.name != now {
                check_name(&stat.name)?;
            }
        }
        let work = self.work(file);
        let is_open = file.open.is_some();
        Ok(later(work.wstat(stat, is_open), Then::Reply(Message::Rwstat {})))
    }

    /// Tread of a directory.
    pub(super) fn start_list(&self, fid: u32, offset: u64, count: u32) -> Result<Started<T::Node>> {
        let file = self.fids.readable(fid)?;
        let (next, cookie) = file.open.map_or((0, 0), |open| open.listed);
        let cookie = match offset {
            0 => 0,
            at if at == next => cookie,
            at => {
                let what = format!("a directory is read on at {next} or 0, not at {at}");
                return Err(Errno::because(Errno::EINVAL, what));
            }
        };
        let work = self.work(file);
        Ok(later(work.list(cookie, count), Then::List { fid, offset }))
    }

    /// Tremove, which these dialects have for files without asking for their directory.
    pub(super) fn start_classic_remove(&mut self, fid: u32) -> Result<Started<T::Node>> {
        let work = self.work(self.fids.file(fid)?);
        // The fid is gone in any case.
        let Fid::File(File { node, user, .. }) = self.fids.remove(fid)? else {
            unreachable!("it is a file: that was asked for before");
        };
        Ok(later(work.remove(), Then::Gone { user, node, reply: Message::Rremove {} }))
    }

    /// What is left to do for a fid that is gone: its file may be one to be removed with it.
    pub(super) fn removal(
        &self,
        gone: &Fid<T::Node>,
    ) -> Option<impl Future<Output = Result<()>> + use<T>> {
        let Fid::File(file) = gone else { return None };
        file.open.filter(|open| open.remove)?;
        Some(self.work(file).remove())
    }

    /// The new file is what the fid stands for now.
    pub(super) fn finish_classic_create(
        &mut self,
        (fid, name): (u32, Name),
        (flags, remove): (u32, bool),
        created: Created<T::Node>,
    ) -> Result<Message> {
        let iounit = self.payload_max();
        let qid = self.shown(created.qid);
        let file = self.fids.file_mut(fid)?;
        if let Some(blocking) = created.open {
            file.open = Some(Open { remove, ..Open::from_flags(flags, blocking)? });
        }
        file.place = file.place.as_ref().map(|place| place.step(&name, created.node.clone()));
        (file.qid, file.node) = (qid, created.node);
        Ok(Message::Rcreate { qid, iounit })
    }

    pub(super) fn finish_list(
        &mut self,
        fid: u32,
        offset: u64,
        (data, cookie): (Bytes, u64),
    ) -> Result<Message> {
        if let Some(open) = &mut self.fids.file_mut(fid)?.open {
            open.listed = (offset + data.len() as u64, cookie);
        }
        Ok(Message::Rread { data: data.into() })
    }

    pub(super) fn finish_stat(&self, stat: Box<Stat>) -> Result<Message> {
        let reply = Message::Rstat { stat };
        let size = crate::message::HEADER_BYTES + reply.body_size(self.spoken());
        if size > self.msize as usize {
            let what = format!("Rstat of {size} bytes is over the msize");
            return Err(Errno::because(Errno::EOVERFLOW, what));
        }
        Ok(reply)
    }

    /// A qid as the dialect has it: 9P2000 knows no symbolic links.
    pub(super) fn shown(&self, qid: Qid) -> Qid {
        record::shown(self.spoken(), qid)
    }

    fn work(&self, file: &File<T::Node>) -> Work<T> {
        let place = file.place.clone();
        Work {
            tree: self.tree.clone(),
            dialect: self.spoken(),
            user: file.user.clone(),
            node: file.node.clone(),
            place: place.expect("in these dialects every file's fid has one"),
        }
    }
}

/// `b MAJOR MINOR` or `c MAJOR MINOR`.
fn device<N>(extension: &Name) -> Result<New<N>> {
    let text = extension.lossy();
    let words: Vec<&str> = text.split_whitespace().collect();
    let numbers = match words[..] {
        [kind @ ("b" | "c"), major, minor] => {
            let mode = if kind == "b" { S_IFBLK } else { S_IFCHR };
            major.parse().ok().zip(minor.parse().ok()).map(|(major, minor)| (mode, major, minor))
        }
        _ => None,
    };
    let (mode, major, minor) = numbers
        .ok_or_else(|| Errno::because(Errno::EINVAL, "a device is b or c and two numbers"))?;
    Ok(New::Special { mode, major, minor })
}

fn later<N, A: super::answer::Answers<N> + 'static>(
    work: impl Future<Output = Result<A>> + 'static,
    then: Then<N>,
) -> Started<N> {
    Started::Asked(Outcome::later(work).into(), then)
}
