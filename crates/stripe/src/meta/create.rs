//! New names: files of all types, and hard links.

use super::fault::{Fault, refuse};
use super::keys::{Named, Stored};
use super::names::{COOKIE_FIRST, check_name, is_dots, may_enter, touched};
use super::owned::Owner;
use super::permission::{access, check, mode};
use super::{Applied, Store, node};
use crate::distribution;
use crate::kv::Kv;
use crate::ops::{Caller, Id, Inode, Nanos, Op, Reply, Request, StripingHint};
use covey_ninep::tree::Errno;
use covey_wire::Name;

/// The longest target of a symbolic link, in bytes.
pub const TARGET_BYTES_MAX: usize = 4095;

/// The most names one file may have.
pub const LINKS_MAX: u32 = 65_000;

/// What Create asks for.
pub struct New<'a> {
    pub mode: u32,
    pub gid: u32,
    pub rdev: u64,
    pub target: &'a Name,
}

impl<K: Kv> Store<K> {
    pub(super) fn create(&mut self, request: &Request) -> Result<Applied, Fault> {
        self.create_for(request, 0)
    }

    /// The same of a file that will have so many bytes at once.
    pub(super) fn create_for(&mut self, request: &Request, bytes: u64) -> Result<Applied, Fault> {
        let Op::Create { parent, name, mode: bits, gid, rdev, target, exclusive, open, access } =
            &request.op
        else {
            return refuse(Errno::EINVAL, "not a creation");
        };
        let caller = &request.caller;
        let new = New { mode: with_type(*bits)?, gid: *gid, rdev: *rdev, target };
        let must_be_new = *exclusive || new.mode & mode::TYPE != mode::REGULAR;
        check_name(name)?;
        if is_dots(name) {
            let code = if must_be_new { Errno::EEXIST } else { Errno::EISDIR };
            return refuse(code, format!("{name} is in every directory"));
        }
        let dir = self.dir_to_search(*parent, caller)?;
        match self.named(*parent, name)? {
            Some(_) if must_be_new => {
                return refuse(Errno::EEXIST, format!("{name} exists in directory {parent}"));
            }
            Some(named) => return self.create_existing(request, &named, *open, *access),
            None => {}
        }
        may_enter(caller, &dir.inode)?;
        new.check(caller)?;
        if new.mode & mode::TYPE == mode::REGULAR {
            self.must_be_laid_out(dir.inode.hint.as_ref())?;
        }
        let gid = new.group(caller, &dir.inode)?;
        let owner = Owner { uid: caller.uid, gid, project: dir.project.0 };
        self.must_have_room(request, owner, (1, bytes))?;
        let made = self.made(request, &new, &dir, gid);
        self.counters.id_next += 1;
        self.enter(request, dir, name, &made)?;
        if *open && made.inode.is_regular() {
            self.add_open(request.session, made.inode.id);
        }
        Ok(Applied::Reply(Reply::Created { inode: made.inode, created: true }))
    }

    /// The directory of a name that is to be made, and may be: there is none yet.
    pub(super) fn dir_for_new(
        &self,
        caller: &Caller,
        parent: Id,
        name: &Name,
    ) -> Result<Stored, Fault> {
        check_name(name)?;
        let dir = self.dir_to_search(parent, caller)?;
        if is_dots(name) || self.named(parent, name)?.is_some() {
            return refuse(Errno::EEXIST, format!("{name} exists in directory {parent}"));
        }
        may_enter(caller, &dir.inode)?;
        Ok(dir)
    }

    /// A file that was made comes into its directory.
    pub(super) fn enter(
        &mut self,
        request: &Request,
        mut dir: Stored,
        name: &Name,
        made: &Stored,
    ) -> Result<(), Fault> {
        self.counters.files += 1;
        self.owns_one_more(made);
        self.add_entry(&mut dir, name, &made.inode, request.now)?;
        dir.inode.nlink += u32::from(made.inode.is_dir());
        self.save(&dir)?;
        self.save(made)
    }

    /// Not exclusive, and there is a file already: it is opened instead.
    fn create_existing(
        &mut self,
        request: &Request,
        named: &Named,
        open: bool,
        wanted: u8,
    ) -> Result<Applied, Fault> {
        let inode = self.entry_inode(named)?.inode;
        match inode.type_bits() {
            mode::DIRECTORY => return refuse(Errno::EISDIR, "it is a directory"),
            mode::SYMLINK => return refuse(Errno::ELOOP, "it is a symbolic link"),
            _ => check(&request.caller, &inode, wanted & !access::ALONE)?,
        }
        if open && inode.is_regular() {
            self.add_open(request.session, inode.id);
        }
        Ok(Applied::Reply(Reply::Created { inode, created: false }))
    }

    /// The inode that a creation makes.
    pub(super) fn made(
        &self,
        request: &Request,
        new: &New<'_>,
        within: &Stored,
        gid: u32,
    ) -> Stored {
        let dir = &within.inode;
        let (id, now) = (self.counters.id_next, request.now);
        let hint = dir.hint.clone();
        let mut inode = new.inode(id, &request.caller, dir, gid, now);
        match inode.type_bits() {
            mode::REGULAR => inode.striping = hint.map(|hint| self.striping_for(id, &hint)),
            mode::DIRECTORY => (inode.nlink, inode.parent, inode.hint) = (2, dir.id, hint),
            mode::SYMLINK => {
                inode.size = new.target.len() as u64;
                inode.target = new.target.clone();
            }
            _ => inode.rdev = new.rdev,
        }
        let (losses, project) = (self.losses, within.project);
        Stored { inode, cookie_next: COOKIE_FIRST, tail: 0, losses, marks: 0, project }
    }

    pub(super) fn link(
        &mut self,
        request: &Request,
        id: Id,
        parent: Id,
        name: &Name,
    ) -> Result<Applied, Fault> {
        let mut file = self.stored(id)?;
        let mut dir = self.dir_for_new(&request.caller, parent, name)?;
        if file.inode.is_dir() {
            return refuse(Errno::EPERM, "directories have one name");
        }
        self.must_stay(None, &dir, &file)?;
        match file.inode.nlink {
            0 => self.name_orphan(&mut file)?,
            LINKS_MAX.. => {
                return refuse(Errno::EMLINK, format!("file {id} has {LINKS_MAX} names"));
            }
            _ => file.inode.nlink += 1,
        }
        touched(&mut file.inode, request.now);

        self.add_entry(&mut dir, name, &file.inode, request.now)?;
        self.save(&dir)?;
        self.save(&file)?;
        Ok(node(file.inode))
    }
}

impl New<'_> {
    /// What will come of it for a client, but for what its type has; none where it will be refused.
    pub fn foretold(&self, id: Id, caller: &Caller, dir: &Inode, now: Nanos) -> Option<Inode> {
        let gid = self.group(caller, dir).ok()?;
        Some(self.inode(id, caller, dir, gid, now))
    }

    /// The inode of it, but for what its type has.
    pub(super) fn inode(
        &self,
        id: Id,
        caller: &Caller,
        dir: &Inode,
        gid: u32,
        now: Nanos,
    ) -> Inode {
        Inode {
            id,
            mode: self.mode_in(caller, dir, gid),
            uid: caller.uid,
            gid,
            nlink: 1,
            rdev: 0,
            size: 0,
            epoch: 0,
            version: 1,
            sparse: false,
            inline: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            target: Name::EMPTY,
            striping: None,
            hint: None,
            parent: 0,
            has_xattrs: false,
            consistency: dir.consistency,
        }
    }

    /// What the type demands.
    fn check(&self, caller: &Caller) -> Result<(), Fault> {
        match self.mode & mode::TYPE {
            mode::SYMLINK if self.target.is_empty() => {
                refuse(Errno::ENOENT, "the link's target is empty")
            }
            mode::SYMLINK if self.target.len() > TARGET_BYTES_MAX => {
                let length = self.target.len();
                let text = format!("the target has {length} bytes, limit is {TARGET_BYTES_MAX}");
                refuse(Errno::ENAMETOOLONG, text)
            }
            mode::BLOCK | mode::CHARACTER if !caller.is_root() => {
                refuse(Errno::EPERM, "only root makes devices")
            }
            _ => Ok(()),
        }
    }

    /// The group: the directory's where that is set-group-ID, else the one asked for (all ones for
    /// the caller's), which must be the caller's own.
    pub(super) fn group(&self, caller: &Caller, dir: &Inode) -> Result<u32, Fault> {
        if dir.mode & mode::SETGID != 0 {
            return Ok(dir.gid);
        }
        match self.gid {
            u32::MAX => Ok(caller.gid),
            gid if caller.is_root() || caller.is_in(gid) => Ok(gid),
            gid => refuse(Errno::EPERM, format!("uid {} is not in group {gid}", caller.uid)),
        }
    }

    /// The mode: directories inherit set-group-ID, and a program does not get it for a group that
    /// its maker is not in.
    fn mode_in(&self, caller: &Caller, dir: &Inode, gid: u32) -> u32 {
        let inherits = dir.mode & mode::SETGID != 0;
        match self.mode & mode::TYPE {
            mode::SYMLINK => mode::SYMLINK | 0o777,
            mode::DIRECTORY if inherits => self.mode | mode::SETGID,
            mode::DIRECTORY => self.mode,
            _ if inherits && self.mode & 0o010 != 0 && !caller.is_root() && !caller.is_in(gid) => {
                self.mode & !mode::SETGID
            }
            _ => self.mode,
        }
    }
}

/// A mode reduced to what can be stored; no type means a regular file.
pub(super) fn with_type(bits: u32) -> Result<u32, Fault> {
    let permissions = bits & mode::PERMISSIONS;
    match bits & mode::TYPE {
        0 => Ok(mode::REGULAR | permissions),
        kind @ (mode::SOCKET
        | mode::SYMLINK
        | mode::REGULAR
        | mode::BLOCK
        | mode::DIRECTORY
        | mode::CHARACTER
        | mode::FIFO) => Ok(kind | permissions),
        _ => refuse(Errno::EINVAL, format!("mode {bits:o} names no file type")),
    }
}

/// The root directory of a new store.
pub(super) fn root(hint: StripingHint, now: Nanos, owner: (u32, u32)) -> Stored {
    let inode = Inode {
        id: crate::ops::ROOT,
        mode: mode::DIRECTORY | 0o755,
        uid: owner.0,
        gid: owner.1,
        nlink: 2,
        rdev: 0,
        size: 0,
        epoch: 0,
        version: 1,
        sparse: false,
        inline: 0,
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
        target: Name::EMPTY,
        striping: None,
        hint: Some(hint),
        parent: crate::ops::ROOT,
        has_xattrs: false,
        consistency: 0,
    };
    let project = Default::default();
    Stored { inode, cookie_next: COOKIE_FIRST, tail: 0, losses: 0, marks: 0, project }
}

/// Refuses a hint that no striping can follow.
pub(super) fn check_hint(hint: &StripingHint, servers: usize) -> Result<(), Fault> {
    distribution::check(hint, servers).map_err(Fault::Refused)
}
