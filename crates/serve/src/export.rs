//! `covey export`: a directory of this machine as a 9P tree.
//!
//! What always holds:
//!
//! - Nothing outside the directory can be reached: names are opened one at a time, no symbolic link is
//!   followed here (clients follow them, in their own name space), and `..` ends at the root.
//! - Devices, FIFOs and sockets can be seen and removed, but not opened; devices cannot be made.
//! - A fid holds an object. It works on after a rename or a removal.
//! - The kernel decides what a user may do: a server that runs as root acts as the user who attached,
//!   any other server acts as itself and lets in nobody but its own user and root.
//!
//! All operations on names run on the server's thread: they are short, and the identity of the user is a
//! matter of the thread. Data that is not in memory is read and written by the blocking pool,
//! through files that are open already.

mod change;
mod list;
mod locks;
mod object;
#[cfg(test)]
mod tests;
mod who;
mod xattr;

pub(super) use locks::WAIT_MAX as LOCK_WAIT_MAX;
pub use object::Node;
pub(super) use who::user_name;

use change::ProcFd;
use covey_io::os::file::{DataFile, FileKind};
use covey_io::task::blocking;
use covey_ninep::message::Qid;
use covey_ninep::tree::{
    Attach, Attr, Data, Entry, Errno, Incoming, Lock, LockStatus, Make, Opened, Outcome, Read,
    Removal, Result, SetAttr, SetXattr, Statfs, Tree, User, Write, Written,
};
use covey_wire::{Bytes, Name};
use list::Listing;
use locks::Locks;
use object::{Handle, Object, check_can_open, errno, open_parent, open_place, stat};
use rustix::fs::{AtFlags, FileType, OFlags, Statx};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use who::Who;

/// A directory to be served.
pub struct ExportTree {
    /// Where it was when it was opened: clients may name it in their attach.
    dir: PathBuf,
    root: Node,
    is_read_only: bool,
    who: Who,
    proc_fd: ProcFd,
    locks: Rc<Locks>,
    devices: RefCell<HashMap<u64, Device>>,
}

/// What is known of a file system that the export reaches into.
#[derive(Clone, Copy)]
struct Device {
    /// Which it is among those met: keeps inode numbers of different ones apart.
    index: u64,
    kind: FileKind,
}

impl ExportTree {
    /// Opens `dir` for export. Clients have applied their own umask: that of the process, which holds for
    /// everything else in it, too, still takes its bits from what they make.
    pub fn open(dir: &Path, is_read_only: bool) -> std::io::Result<ExportTree> {
        let dir = dir.canonicalize()?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(&dir, flags, rustix::fs::Mode::empty())?;
        let found = stat(&fd).map_err(into_io)?;
        let devices = RefCell::default();
        let path = path_of(&devices, &fd, &found).map_err(into_io)?;
        Ok(ExportTree {
            dir,
            root: node(path, &found, Handle::Place(fd)),
            is_read_only,
            who: Who::new(),
            proc_fd: ProcFd::open()?,
            locks: Rc::default(),
            devices,
        })
    }

    /// What the server says of itself when it starts: whose rights clients get.
    pub fn identity_text(&self) -> String {
        self.who.to_string()
    }

    fn check_writable(&self) -> Result<()> {
        if self.is_read_only { Err(Errno::EROFS.into()) } else { Ok(()) }
    }

    /// A node for an open descriptor, with its qid.
    fn adopt(&self, fd: OwnedFd) -> Result<(Qid, Node)> {
        let found = stat(&fd)?;
        let path = path_of(&self.devices, &fd, &found)?;
        Ok((object::qid(path, &found), node(path, &found, Handle::Place(fd))))
    }

    fn step(&self, from: &Node, name: &[u8]) -> Result<(Qid, Node)> {
        match name {
            b".." => self.up(from),
            name => self.adopt(open_place(&*from.0, name)?),
        }
    }

    /// The directory above, or the root when that is where we are.
    fn up(&self, from: &Node) -> Result<(Qid, Node)> {
        if !from.0.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        if from.0.path == self.root.0.path {
            return Ok((object::qid(from.0.path, &stat(&*from.0)?), self.root.clone()));
        }
        let parent = open_parent(&*from.0)?;
        self.check_inside(&parent)?;
        self.adopt(parent)
    }

    /// Climbs to the root: a directory that was moved out of the export meanwhile is not shown.
    fn check_inside(&self, dir: &OwnedFd) -> Result<()> {
        let root = object::identity(&stat(&*self.root.0)?);
        let mut here = object::identity(&stat(dir)?);
        let mut above = open_parent(dir)?;
        for _ in 0..DEPTH_MAX {
            if here == root {
                return Ok(());
            }
            let next = object::identity(&stat(&above)?);
            if next == here {
                break; // The top of the machine's own tree.
            }
            here = next;
            above = open_parent(&above)?;
        }
        Err(Errno::because(Errno::ESTALE, "the directory was moved out of the export"))
    }

    fn walk_names(&self, from: &Node, names: &[Name]) -> Result<Vec<(Qid, Node)>> {
        let mut found: Vec<(Qid, Node)> = Vec::with_capacity(names.len());
        for name in names {
            let at = found.last().map_or(from, |(_, node)| node);
            match self.step(at, name.as_bytes()) {
                Ok(next) => found.push(next),
                Err(error) if found.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        Ok(found)
    }

    /// The object open for data or entries. Its kind never changes, so it is checked before.
    fn reopen(&self, object: &Object, flags: u32) -> Result<Opened<Node>> {
        check_can_open(object.kind)?;
        let flags = open_flags(flags);
        if flags.intersects(OFlags::WRONLY | OFlags::RDWR | OFlags::TRUNC) {
            self.check_writable()?;
        }
        self.opened(self.proc_fd.reopen(object, flags)?, flags)
    }

    fn opened(&self, fd: OwnedFd, flags: OFlags) -> Result<Opened<Node>> {
        let found = stat(&fd)?;
        let device = device_of(&self.devices, &fd, object::device(&found))?;
        let path = mix_path(device, found.stx_ino);
        let handle = match object::kind(&found) {
            FileType::Directory => Handle::Dir(Listing::new(fd)),
            _ => Handle::File {
                data: DataFile::of_kind(File::from(fd), device.kind),
                writable: flags.intersects(OFlags::WRONLY | OFlags::RDWR),
            },
        };
        let node = node(path, &found, handle);
        Ok(Opened { qid: object::qid(path, &found), node, blocking: false })
    }

    fn create_file(&self, dir: &Node, name: &[u8], flags: u32, mode: u32) -> Result<Opened<Node>> {
        let is_exclusive = flags & O_EXCL != 0;
        let new_flags = open_flags(flags) - OFlags::DIRECTORY;
        for _ in 0..CREATE_TRIES {
            match change::create(&*dir.0, name, new_flags, mode) {
                Err(error) if error.code == Errno::EEXIST && !is_exclusive => {}
                made => return self.opened(made?, new_flags),
            }
            // The name is taken: opened like any other file, so that no device or FIFO is. It may
            // also be gone again by now.
            match self.step(dir, name) {
                Err(error) if error.code == Errno::ENOENT => {}
                found => return self.reopen(&found?.1.0, flags),
            }
        }
        Err(Errno::because(Errno::EAGAIN, "the name comes and goes"))
    }

    fn make_name(&self, dir: &Node, name: &[u8], make: &Make) -> Result<Qid> {
        change::make(&*dir.0, name, make)?;
        Ok(self.step(dir, name)?.0)
    }

    /// A descriptor for an owner's locks, of a file that it has open: the mode has been asked then.
    fn open_for_locks(&self, object: &Object) -> Result<OwnedFd> {
        check_can_open(object.kind)?;
        let open = |flags| self.proc_fd.reopen(object, flags);
        open(OFlags::RDWR).or_else(|_| open(OFlags::RDONLY))
    }

    fn list(&self, node: &Node, cookie: u64, bytes_max: u32) -> Result<Vec<Entry>> {
        let Handle::Dir(listing) = &node.0.handle else { return Err(Errno::ENOTDIR.into()) };
        let device = device_of(&self.devices, listing, node.0.device)?;
        let is_root = node.0.path == self.root.0.path;
        listing.read(cookie, bytes_max, |name, inode| match name {
            b".." if is_root => node.0.path,
            _ => mix_path(device, inode),
        })
    }
}

impl Tree for ExportTree {
    type Node = Node;

    fn attach(&self, attach: Attach) -> Outcome<(User, Qid, Node)> {
        let enter = || {
            let user = self.who.admit(&attach)?;
            let names = who::names_below(&self.dir, attach.aname.as_bytes())?;
            let mut at = (object::qid(self.root.0.path, &stat(&*self.root.0)?), self.root.clone());
            for name in names {
                at = self.who.act(&user, || self.step(&at.1, name))?;
            }
            Ok((user, at.0, at.1))
        };
        Outcome::Now(enter())
    }

    fn walk(&self, user: &Rc<User>, from: &Node, names: &[Name]) -> Outcome<Vec<(Qid, Node)>> {
        self.who.act(user, || self.walk_names(from, names)).into()
    }

    fn getattr(&self, _user: &Rc<User>, node: &Node) -> Outcome<Attr> {
        stat(&*node.0).map(|found| object::attr(node.0.path, &found)).into()
    }

    fn setattr(&self, user: &Rc<User>, node: &Node, set: SetAttr) -> Outcome<()> {
        let change = || self.proc_fd.set_attr(&node.0, &set);
        self.check_writable().and_then(|()| self.who.act(user, change)).into()
    }

    fn open(&self, user: &Rc<User>, node: &Node, flags: u32) -> Outcome<Opened<Node>> {
        self.who.act(user, || self.reopen(&node.0, flags)).into()
    }

    fn create(
        &self,
        user: &Rc<User>,
        dir: &Node,
        name: Name,
        flags: u32,
        mode: u32,
        gid: u32,
    ) -> Outcome<Opened<Node>> {
        let create = || self.create_file(dir, name.as_bytes(), flags, mode);
        self.check_writable().and_then(|()| self.who.act_with_group(user, gid, create)).into()
    }

    fn make(&self, user: &Rc<User>, dir: &Node, name: Name, make: Make, gid: u32) -> Outcome<Qid> {
        let make = || self.make_name(dir, name.as_bytes(), &make);
        self.check_writable().and_then(|()| self.who.act_with_group(user, gid, make)).into()
    }

    fn read(&self, _user: &Rc<User>, node: &Node, mut read: Read<'_>) -> Data {
        let Handle::File { data, .. } = &node.0.handle else { return Errno::EISDIR.into() };
        let (offset, count) = (read.offset, read.count as usize);
        if read.takes_range()
            && let Ok(Some(range)) = data.range(offset, count)
        {
            return Data::Range(range);
        }
        if let Some(moment) = read.moment()
            && let Some(loan) = data.lend(offset, count, moment)
        {
            return Data::Loan(loan);
        }
        if let Some(data) = read.fill(|out| Ok(data.append_now(offset, count, out)?)) {
            return data;
        }
        let data = data.clone();
        Data::later(async move { Ok(data.read(offset, count).await?) })
    }

    fn write(&self, user: &Rc<User>, node: &Node, write: Write) -> Written {
        let Handle::File { data, writable } = &node.0.handle else { return Errno::EISDIR.into() };
        let offset = write.offset;
        let bytes = match write.data {
            Incoming::Here(bytes) => bytes,
            Incoming::Coming(count) => {
                // What is put into memory is no write to the kernel, which would take the bits away.
                let may =
                    *writable && (self.who.writes_with_power(user) || !change::is_privileged(data));
                let place = may.then(|| data.place(offset, count as usize));
                return place.flatten().map_or(Written::Unread, Written::Into);
            }
        };
        if self.who.must_write_as(user) && change::is_privileged(data) {
            let slices = [IoSlice::new(&bytes)];
            let write = || Ok(data.write_all_blocking(offset, &slices)? as u32);
            return self.who.act(user, write).into();
        }
        match data.write_now(offset, &[IoSlice::new(&bytes)]) {
            Ok(Some(count)) => Ok(count as u32).into(),
            Err(error) => Err(Errno::from(error)).into(),
            Ok(None) => {
                let data = data.clone();
                Outcome::later(async move { Ok(data.write(offset, vec![bytes]).await? as u32) })
                    .into()
            }
        }
    }

    fn readdir(
        &self,
        _user: &Rc<User>,
        node: &Node,
        cookie: u64,
        bytes_max: u32,
    ) -> Outcome<Vec<Entry>> {
        self.list(node, cookie, bytes_max).into()
    }

    fn readlink(&self, _user: &Rc<User>, node: &Node) -> Outcome<Name> {
        match rustix::fs::readlinkat(&*node.0, "", Vec::new()) {
            Ok(target) => Ok(Name::from(target.into_bytes())).into(),
            // What the system says of an object that is no symbolic link.
            Err(rustix::io::Errno::NOENT) => Errno::EINVAL.into(),
            Err(error) => Err(errno(error)).into(),
        }
    }

    fn link(&self, user: &Rc<User>, node: &Node, dir: &Node, name: Name) -> Outcome<()> {
        let link = || self.proc_fd.link(&node.0, &*dir.0, name.as_bytes());
        self.check_writable().and_then(|()| self.who.act(user, link)).into()
    }

    fn rename(&self, user: &Rc<User>, from: &Node, old: Name, to: &Node, new: Name) -> Outcome<()> {
        let (old, new) = (old.as_bytes(), new.as_bytes());
        let rename = || rustix::fs::renameat(&*from.0, old, &*to.0, new).map_err(errno);
        self.check_writable().and_then(|()| self.who.act(user, rename)).into()
    }

    fn unlink(&self, user: &Rc<User>, dir: &Node, name: Name, what: Removal) -> Outcome<()> {
        let flags = if what.is_dir() { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        let unlink = || rustix::fs::unlinkat(&*dir.0, name.as_bytes(), flags).map_err(errno);
        self.check_writable().and_then(|()| self.who.act(user, unlink)).into()
    }

    fn fsync(&self, _user: &Rc<User>, node: &Node, datasync: bool) -> Outcome<()> {
        match &node.0.handle {
            Handle::Place(_) => Ok(()).into(),
            Handle::File { data, .. } if data.kind() == FileKind::Memory => Ok(()).into(),
            Handle::File { data, .. } => {
                let data = data.clone();
                Outcome::later(async move { Ok(data.sync(datasync).await?) })
            }
            Handle::Dir(listing) => match listing.as_fd().try_clone_to_owned() {
                Err(error) => Err(error.into()).into(),
                Ok(fd) => Outcome::later(async move {
                    Ok(blocking(move || Ok(rustix::fs::fsync(fd)?)).await?)
                }),
            },
        }
    }

    fn statfs(&self, _user: &Rc<User>, node: &Node) -> Outcome<Statfs> {
        let found = rustix::fs::fstatvfs(&*node.0).map_err(errno);
        let statfs = found.map(|found| Statfs {
            bsize: u32::try_from(found.f_frsize).unwrap_or(u32::MAX),
            blocks: found.f_blocks,
            bfree: found.f_bfree,
            bavail: found.f_bavail,
            files: found.f_files,
            ffree: found.f_ffree,
            fsid: found.f_fsid,
            namelen: u32::try_from(found.f_namemax).unwrap_or(u32::MAX),
        });
        statfs.into()
    }

    fn lock(&self, user: &Rc<User>, node: &Node, lock: Lock) -> Outcome<LockStatus> {
        self.locks.set(node, user.uid, lock, || self.open_for_locks(&node.0))
    }

    fn getlock(&self, user: &Rc<User>, node: &Node, lock: Lock) -> Outcome<Lock> {
        self.locks.test(&node.0, user.uid, lock, || self.open_for_locks(&node.0)).into()
    }

    fn list_xattrs(&self, user: &Rc<User>, node: &Node) -> Outcome<Vec<Name>> {
        let rights = self.who.xattr_rights(user);
        self.who.act(user, || xattr::list(&node.0, rights)).into()
    }

    fn xattr(&self, user: &Rc<User>, node: &Node, name: Name) -> Outcome<Bytes> {
        let rights = self.who.xattr_rights(user);
        self.who.act(user, || xattr::get(&node.0, name.as_bytes(), rights)).into()
    }

    fn set_xattr(
        &self,
        user: &Rc<User>,
        node: &Node,
        name: Name,
        value: Bytes,
        rule: SetXattr,
    ) -> Outcome<()> {
        let rights = self.who.xattr_rights(user);
        let set = || xattr::set(&node.0, name.as_bytes(), &value, rule, rights);
        self.check_writable().and_then(|()| self.who.act(user, set)).into()
    }

    fn remove_xattr(&self, user: &Rc<User>, node: &Node, name: Name) -> Outcome<()> {
        let rights = self.who.xattr_rights(user);
        let remove = || xattr::remove(&node.0, name.as_bytes(), rights);
        self.check_writable().and_then(|()| self.who.act(user, remove)).into()
    }

    fn user_name(&self, uid: u32) -> Name {
        who::user_name(uid)
    }

    fn clunk(&self, _user: &Rc<User>, node: Node) {
        let (path, has_locks) = (node.0.path, !node.0.locks.borrow().is_empty());
        drop(node);
        if has_locks {
            self.locks.tidy(path);
        }
    }
}

fn node(path: u64, found: &Statx, handle: Handle) -> Node {
    let (kind, device) = (object::kind(found), object::device(found));
    Node(Rc::new(Object { path, kind, device, handle, locks: RefCell::default() }))
}

fn path_of(devices: &RefCell<HashMap<u64, Device>>, fd: impl AsFd, found: &Statx) -> Result<u64> {
    Ok(mix_path(device_of(devices, fd, object::device(found))?, found.stx_ino))
}

/// Inode numbers of the root's own file system are shown as they are; those of others (there are
/// mounts below) get the file system's index into bits that inode numbers hardly ever use.
fn mix_path(device: Device, inode: u64) -> u64 {
    inode ^ (device.index << DEVICE_SHIFT)
}

fn device_of(
    devices: &RefCell<HashMap<u64, Device>>,
    fd: impl AsFd,
    number: u64,
) -> Result<Device> {
    let mut devices = devices.borrow_mut();
    if let Some(known) = devices.get(&number) {
        return Ok(*known);
    }
    let device = Device { index: devices.len() as u64, kind: FileKind::of(fd)? };
    devices.insert(number, device);
    Ok(device)
}

/// What a client may ask of an open. The rest is dropped: creation is done elsewhere, and what is a
/// matter of the client's own kernel stays there.
fn open_flags(flags: u32) -> OFlags {
    let known = OFlags::ACCMODE | OFlags::TRUNC | OFlags::APPEND | OFlags::DSYNC | OFlags::SYNC;
    OFlags::from_bits_truncate(flags) & (known | OFlags::DIRECTORY)
}

fn into_io(error: Errno) -> std::io::Error {
    std::io::Error::from_raw_os_error(error.code.cast_signed())
}

/// Most directories between an object and the root.
const DEPTH_MAX: usize = 4096;
/// How often create tries again when its name comes and goes.
const CREATE_TRIES: usize = 8;
const O_EXCL: u32 = 0o200;
const DEVICE_SHIFT: u32 = 48;
