//! The fids of a connection, and what may be done with them.

use super::classic::Place;
use super::order::Mode;
use super::xattr::Xattr;
use crate::auth;
use crate::message::{NAME_BYTES_MAX, NOFID, Number, Qid};
use crate::tree::{Errno, O_APPEND, Result, User};
use covey_wire::Name;
use std::collections::HashMap;
use std::rc::Rc;

/// Most authentication files of one connection: a client has one at a time.
const AUTHS_MAX: usize = 16;

/// What a fid stands for.
pub(super) enum Fid<N> {
    File(File<N>),
    Auth(Auth),
    Xattr(Xattr<N>),
}

/// A file of the tree, opened or not.
pub(super) struct File<N> {
    pub node: N,
    pub user: Rc<User>,
    pub qid: Qid,
    pub open: Option<Open>,
    /// Where it was found: in 9P2000 and .u only.
    pub place: Option<Rc<Place<N>>>,
}

/// How a file was opened.
#[derive(Clone, Copy)]
pub(super) struct Open {
    pub read: bool,
    pub write: bool,
    pub mode: Mode,
    /// Its clunk removes the file (ORCLOSE).
    pub remove: bool,
    /// Whoever held it is lost: it is cut, not clunked.
    pub is_cut: bool,
    /// How far a directory was read in 9P2000: offset and cookie of what comes next.
    pub listed: (u64, u64),
}

/// An authentication file, and for whom it was opened.
pub(super) struct Auth {
    pub server: auth::Server,
    pub uname: Name,
    pub n_uname: Number,
    /// It proves the guest's key, not the cluster's.
    pub is_guest: bool,
}

impl<N> Fid<N> {
    fn xattr_bytes(&self) -> usize {
        match self {
            Fid::Xattr(xattr) => xattr.bytes(),
            _ => 0,
        }
    }

    fn is_auth(&self) -> bool {
        matches!(self, Fid::Auth(_))
    }
}

impl Open {
    /// The access that Linux open flags ask for.
    pub fn from_flags(flags: u32, blocking: bool) -> Result<Open> {
        const O_ACCMODE: u32 = 3;
        let (read, write) = match flags & O_ACCMODE {
            0 => (true, false),
            1 => (false, true),
            2 => (true, true),
            _ => return Err(Errno::because(Errno::EINVAL, "open flags ask for no access")),
        };
        let mode = Mode { blocking, append: flags & O_APPEND != 0 };
        Ok(Open { read, write, mode, remove: false, is_cut: false, listed: (0, 0) })
    }
}

/// The table.
pub(super) struct Fids<N> {
    table: HashMap<u32, Fid<N>>,
    /// Room that all extended attributes in the table take.
    xattr_bytes: usize,
    /// Authentication files in the table.
    auths: usize,
}

impl<N> Fids<N> {
    pub fn new() -> Self {
        Fids { table: HashMap::new(), xattr_bytes: 0, auths: 0 }
    }

    /// The file behind `fid`.
    pub fn file(&self, fid: u32) -> Result<&File<N>> {
        match self.table.get(&fid) {
            Some(Fid::File(file)) => Ok(file),
            Some(Fid::Auth(_)) => Err(bad(fid, "is an authentication file")),
            Some(Fid::Xattr(_)) => Err(bad(fid, "is an extended attribute")),
            None => Err(bad(fid, "is unknown")),
        }
    }

    /// The file behind `fid`, to be changed.
    pub fn file_mut(&mut self, fid: u32) -> Result<&mut File<N>> {
        match self.table.get_mut(&fid) {
            Some(Fid::File(file)) => Ok(file),
            _ => Err(bad(fid, "is unknown")),
        }
    }

    /// The file behind `fid`, which must not have been opened.
    pub fn unopened(&self, fid: u32) -> Result<&File<N>> {
        let file = self.file(fid)?;
        match file.open {
            None => Ok(file),
            Some(_) => Err(Errno::because(Errno::EINVAL, format!("fid {fid} is open already"))),
        }
    }

    /// The file behind `fid`, which must have been opened for reading.
    pub fn readable(&self, fid: u32) -> Result<&File<N>> {
        let file = self.file(fid)?;
        match file.open {
            Some(open) if open.read => Ok(file),
            _ => Err(bad(fid, "is not open for reading")),
        }
    }

    /// The file behind `fid`, which must have been opened for writing.
    pub fn writable(&self, fid: u32) -> Result<&File<N>> {
        let file = self.file(fid)?;
        match file.open {
            Some(open) if open.write => Ok(file),
            _ => Err(bad(fid, "is not open for writing")),
        }
    }

    /// Whoever held the open blocking file behind `fid` is lost. False where there is none.
    pub fn cut(&mut self, fid: u32) -> bool {
        match self.table.get_mut(&fid) {
            Some(Fid::File(File { open: Some(open), .. })) if open.mode.blocking => {
                open.is_cut = true;
                true
            }
            _ => false,
        }
    }

    /// The authentication file behind `fid`, if it is one.
    pub fn auth(&mut self, fid: u32) -> Option<&mut Auth> {
        match self.table.get_mut(&fid) {
            Some(Fid::Auth(auth)) => Some(auth),
            _ => None,
        }
    }

    /// Refuses a `fid` that cannot become a new one, of at most `fids_max`.
    pub fn check_new(&self, fid: u32, fids_max: usize) -> Result<()> {
        if fid == NOFID || self.table.contains_key(&fid) {
            return Err(bad(fid, "is in use"));
        }
        if self.table.len() >= fids_max {
            let what = format!("connection has {fids_max} fids already");
            return Err(Errno::because(Errno::EMFILE, what));
        }
        Ok(())
    }

    /// Refuses one more authentication file than a connection may have.
    pub fn check_auths(&self) -> Result<()> {
        if self.auths < AUTHS_MAX {
            return Ok(());
        }
        let what = format!("connection has {AUTHS_MAX} authentication files already");
        Err(Errno::because(Errno::EMFILE, what))
    }

    /// The extended attribute behind `fid`, if it is one.
    pub fn xattr(&mut self, fid: u32) -> Option<&mut Xattr<N>> {
        match self.table.get_mut(&fid) {
            Some(Fid::Xattr(xattr)) => Some(xattr),
            _ => None,
        }
    }

    /// Refuses more extended attributes than a connection may hold.
    pub fn check_xattr(&self, bytes: usize, bytes_max: usize) -> Result<()> {
        if self.xattr_bytes + bytes <= bytes_max {
            return Ok(());
        }
        let what = format!("connection holds {} bytes of extended attributes", self.xattr_bytes);
        Err(Errno::because(Errno::ENOMEM, what))
    }

    pub fn insert(&mut self, fid: u32, value: Fid<N>) {
        self.xattr_bytes += value.xattr_bytes();
        self.auths += usize::from(value.is_auth());
        if let Some(old) = self.table.insert(fid, value) {
            self.xattr_bytes -= old.xattr_bytes();
            self.auths -= usize::from(old.is_auth());
        }
    }

    /// Takes `fid` out of the table.
    pub fn remove(&mut self, fid: u32) -> Result<Fid<N>> {
        let gone = self.table.remove(&fid).ok_or_else(|| bad(fid, "is unknown"))?;
        self.xattr_bytes -= gone.xattr_bytes();
        self.auths -= usize::from(gone.is_auth());
        Ok(gone)
    }

    /// Takes all out of the table, in the order of their numbers.
    pub fn drain(&mut self) -> impl Iterator<Item = Fid<N>> + use<N> {
        (self.xattr_bytes, self.auths) = (0, 0);
        let mut all: Vec<_> = self.table.drain().collect();
        all.sort_unstable_by_key(|&(number, _)| number);
        all.into_iter().map(|(_, fid)| fid)
    }

    /// Takes the authentication files out of the table.
    pub fn take_auths(&mut self) -> Vec<(u32, Auth)> {
        self.auths = 0;
        let taken = self.table.extract_if(|_, fid| fid.is_auth());
        let auth = |(number, fid)| match fid {
            Fid::Auth(auth) => Some((number, auth)),
            _ => None,
        };
        taken.filter_map(auth).collect()
    }

    /// What the fid's state says about order.
    pub fn mode(&self, fid: u32) -> Mode {
        match self.table.get(&fid) {
            Some(Fid::File(File { open: Some(open), .. })) => open.mode,
            _ => Mode::default(),
        }
    }

    pub fn len(&self) -> usize {
        self.table.len()
    }
}

/// Refuses what cannot be the name of a new or a removed entry.
pub(super) fn check_name(name: &Name) -> Result<()> {
    match name.as_bytes() {
        b".." => Err(Errno::because(Errno::EINVAL, "name is ..")),
        _ => check_step(name),
    }
}

/// Refuses what cannot be a step of a walk.
pub(super) fn check_step(name: &Name) -> Result<()> {
    if name.len() > NAME_BYTES_MAX {
        let what = format!("name is {} bytes, limit is {NAME_BYTES_MAX}", name.len());
        return Err(Errno::because(Errno::ENAMETOOLONG, what));
    }
    match name.as_bytes() {
        b"" => Err(Errno::because(Errno::EINVAL, "name is empty")),
        b"." => Err(Errno::because(Errno::EINVAL, "name is .")),
        bytes if bytes.iter().any(|byte| matches!(byte, b'/' | 0)) => {
            Err(Errno::because(Errno::EINVAL, "name holds a slash or NUL"))
        }
        _ => Ok(()),
    }
}

/// Refuses what cannot be the target of a symbolic link.
pub(super) fn check_target(target: &Name) -> Result<()> {
    const PATH_BYTES_MAX: usize = 4095;
    if target.len() > PATH_BYTES_MAX {
        let what = format!("target is {} bytes, limit is {PATH_BYTES_MAX}", target.len());
        return Err(Errno::because(Errno::ENAMETOOLONG, what));
    }
    match target.as_bytes() {
        b"" => Err(Errno::because(Errno::ENOENT, "target is empty")),
        bytes if bytes.contains(&0) => Err(Errno::because(Errno::EINVAL, "target holds NUL")),
        _ => Ok(()),
    }
}

fn bad(fid: u32, why: &str) -> Errno {
    Errno::because(Errno::EBADF, format!("fid {fid} {why}"))
}
