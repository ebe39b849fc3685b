//! The toy: a file system as a naive tree of shared nodes, written for obviousness alone.

use crate::lab::{Errno, Lab};
use covey_stripe::meta::mode;
use covey_stripe::ops::*;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

pub type Link = Rc<RefCell<Node>>;

/// A file of the toy: its names hold it, as do those who have it open.
pub struct Node {
    pub id: Id,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub epoch: u32,
    pub sparse: bool,
    pub atime: u64,
    pub mtime: u64,
    pub ctime: u64,
    pub btime: u64,
    /// Not of a directory.
    pub names: u32,
    pub entries: BTreeMap<String, Link>,
    pub parent: Id,
    pub removed: bool,
    pub opens: u32,
    pub xattrs: BTreeMap<String, usize>,
}

impl Node {
    pub fn kind(&self) -> u32 {
        self.mode & mode::TYPE
    }

    pub fn is_dir(&self) -> bool {
        self.kind() == mode::DIRECTORY
    }

    pub fn nlink(&self) -> u32 {
        match (self.is_dir(), self.removed) {
            (true, true) => 0,
            (true, false) => {
                2 + self.entries.values().filter(|e| e.borrow().is_dir()).count() as u32
            }
            (false, _) => self.names,
        }
    }

    pub fn bytes(&self) -> u64 {
        if self.is_dir() { 32 * self.entries.len() as u64 } else { self.size }
    }

    pub fn may(&self, who: &Caller, wanted: u32) -> bool {
        if who.uid == 0 {
            return wanted & 1 == 0 || self.is_dir() || self.mode & 0o111 != 0;
        }
        let granted = if who.uid == self.uid {
            self.mode >> 6
        } else if who.groups.0.contains(&self.gid) {
            self.mode >> 3
        } else {
            self.mode
        };
        granted & wanted == wanted
    }

    pub fn owned_by(&self, who: &Caller) -> bool {
        who.uid == 0 || who.uid == self.uid
    }

    pub fn written(&mut self, who: &Caller, now: u64) {
        self.mtime = now;
        self.ctime = now;
        if who.uid != 0 && self.kind() == mode::REGULAR {
            self.mode = self.unprivileged(who);
        }
    }

    /// The mode after `who` changed the content or the owner.
    pub fn unprivileged(&self, who: &Caller) -> u32 {
        let is_stranger = who.uid != 0 && !who.groups.0.contains(&self.gid);
        let group = if self.mode & 0o010 != 0 || is_stranger { 0o2000 } else { 0 };
        self.mode & !(0o4000 | group)
    }
}

/// The toy: a tree, and every file that was ever made, so that steps can name the dead too.
pub struct Toy {
    pub root: Link,
    pub all: Vec<Link>,
}

pub type Answer<T> = Result<T, u32>;

fn ensure(holds: bool, code: u32) -> Answer<()> {
    if holds { Ok(()) } else { Err(code) }
}

impl Toy {
    pub fn new(lab: &mut Lab) -> Toy {
        let inode = lab.stat(ROOT);
        let root = Rc::new(RefCell::new(Node {
            id: ROOT,
            mode: inode.mode,
            uid: 0,
            gid: 0,
            size: 0,
            epoch: 0,
            sparse: false,
            atime: inode.atime,
            mtime: inode.mtime,
            ctime: inode.ctime,
            btime: inode.btime,
            names: 1,
            entries: BTreeMap::new(),
            parent: ROOT,
            removed: false,
            opens: 0,
            xattrs: BTreeMap::new(),
        }));
        Toy { all: vec![root.clone()], root }
    }

    pub fn is_alive(node: &Link) -> bool {
        let node = node.borrow();
        node.nlink() > 0 || node.opens > 0
    }

    pub fn alive(&self, index: usize) -> Answer<Link> {
        let node = self.all[index].clone();
        ensure(Self::is_alive(&node), Errno::ESTALE)?;
        Ok(node)
    }

    pub fn searched(&self, index: usize, who: &Caller) -> Answer<Link> {
        let dir = self.alive(index)?;
        ensure(dir.borrow().is_dir(), Errno::ENOTDIR)?;
        ensure(dir.borrow().may(who, 1), Errno::EACCES)?;
        Ok(dir)
    }

    pub fn child(dir: &Link, name: &str) -> Option<Link> {
        dir.borrow().entries.get(name).cloned()
    }

    pub fn sticky(dir: &Link, victim: &Link, who: &Caller) -> Answer<()> {
        let (dir, victim) = (dir.borrow(), victim.borrow());
        let free = dir.mode & 0o1000 == 0 || dir.owned_by(who) || victim.owned_by(who);
        ensure(free, Errno::EPERM)
    }

    pub fn touch_dir(dir: &Link, now: u64) {
        let mut dir = dir.borrow_mut();
        dir.mtime = now;
        dir.ctime = now;
    }

    pub fn create(
        &mut self,
        step: &Create,
        id: Id,
        who: &Caller,
        now: u64,
    ) -> Answer<(Link, bool)> {
        let dir = self.searched(step.dir, who)?;
        let regular = step.mode & mode::TYPE == mode::REGULAR;
        if let Some(there) = Self::child(&dir, &step.name) {
            ensure(!step.exclusive && regular, Errno::EEXIST)?;
            match there.borrow().kind() {
                mode::DIRECTORY => return Err(Errno::EISDIR),
                mode::SYMLINK => return Err(Errno::ELOOP),
                _ => ensure(there.borrow().may(who, 6), Errno::EACCES)?,
            }
            return Ok((there, false));
        }
        ensure(!dir.borrow().removed, Errno::ENOENT)?;
        ensure(dir.borrow().may(who, 2), Errno::EACCES)?;
        let device = step.mode & mode::TYPE == mode::CHARACTER;
        ensure(!device || who.uid == 0, Errno::EPERM)?;
        let (inherits, dir_gid) = (dir.borrow().mode & 0o2000 != 0, dir.borrow().gid);
        let gid = if inherits { dir_gid } else { who.gid };
        let mut bits = step.mode;
        match bits & mode::TYPE {
            mode::SYMLINK => bits = mode::SYMLINK | 0o777,
            mode::DIRECTORY if inherits => bits |= 0o2000,
            mode::DIRECTORY => {}
            _ if inherits && bits & 0o010 != 0 && who.uid != 0 && !who.groups.0.contains(&gid) => {
                bits &= !0o2000;
            }
            _ => {}
        }
        let is_dir = bits & mode::TYPE == mode::DIRECTORY;
        let node = Rc::new(RefCell::new(Node {
            id,
            mode: bits,
            uid: who.uid,
            gid,
            size: if bits & mode::TYPE == mode::SYMLINK { 9 } else { 0 },
            epoch: 0,
            sparse: false,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            names: 1,
            entries: BTreeMap::new(),
            parent: if is_dir { dir.borrow().id } else { 0 },
            removed: false,
            opens: 0,
            xattrs: BTreeMap::new(),
        }));
        dir.borrow_mut().entries.insert(step.name.clone(), node.clone());
        Self::touch_dir(&dir, now);
        self.all.push(node.clone());
        Ok((node, true))
    }

    pub fn unlink(
        &self,
        dir: usize,
        name: &str,
        as_dir: bool,
        who: &Caller,
        now: u64,
    ) -> Answer<()> {
        let dir = self.searched(dir, who)?;
        let victim = Self::child(&dir, name).ok_or(Errno::ENOENT)?;
        ensure(dir.borrow().may(who, 2), Errno::EACCES)?;
        Self::sticky(&dir, &victim, who)?;
        let is_dir = victim.borrow().is_dir();
        ensure(!is_dir || as_dir, Errno::EISDIR)?;
        ensure(is_dir || !as_dir, Errno::ENOTDIR)?;
        ensure(!is_dir || victim.borrow().entries.is_empty(), Errno::ENOTEMPTY)?;
        dir.borrow_mut().entries.remove(name);
        Self::touch_dir(&dir, now);
        Self::lose_name(&victim, now);
        Ok(())
    }

    pub fn lose_name(victim: &Link, now: u64) {
        let mut victim = victim.borrow_mut();
        victim.ctime = now;
        if victim.is_dir() {
            victim.removed = true;
        } else {
            victim.names -= 1;
        }
    }

    pub fn link(&self, id: usize, dir: usize, name: &str, who: &Caller, now: u64) -> Answer<Link> {
        let file = self.alive(id)?;
        let dir = self.searched(dir, who)?;
        ensure(Self::child(&dir, name).is_none(), Errno::EEXIST)?;
        ensure(!dir.borrow().removed, Errno::ENOENT)?;
        ensure(dir.borrow().may(who, 2), Errno::EACCES)?;
        ensure(!file.borrow().is_dir(), Errno::EPERM)?;
        ensure(file.borrow().names > 0, Errno::ENOENT)?;
        file.borrow_mut().names += 1;
        file.borrow_mut().ctime = now;
        dir.borrow_mut().entries.insert(name.to_string(), file.clone());
        Self::touch_dir(&dir, now);
        Ok(file)
    }

    /// Whether `inner` is `outer` or below it, found from above.
    pub fn contains(outer: &Link, inner: &Link) -> bool {
        Rc::ptr_eq(outer, inner)
            || outer.borrow().entries.values().any(|entry| Self::contains(entry, inner))
    }

    pub fn rename(&self, step: &Rename, who: &Caller, now: u64) -> Answer<()> {
        let Rename { dir, name, to, to_name, flags } = step;
        let from = self.searched(*dir, who)?;
        let to = self.searched(*to, who)?;
        let moved = Self::child(&from, name).ok_or(Errno::ENOENT)?;
        let target = Self::child(&to, to_name);
        let (exchange, same) = (*flags == rename::EXCHANGE, Rc::ptr_eq(&from, &to));
        ensure(target.is_none() || *flags != rename::NOREPLACE, Errno::EEXIST)?;
        ensure(target.is_some() || !exchange, Errno::ENOENT)?;
        if target.as_ref().is_some_and(|target| Rc::ptr_eq(target, &moved)) {
            return Ok(());
        }
        let is_dir = moved.borrow().is_dir();
        ensure(!is_dir || !Self::contains(&moved, &to), Errno::EINVAL)?;
        if let (Some(target), true) = (&target, exchange) {
            ensure(!Self::contains(target, &from), Errno::EINVAL)?;
        }
        ensure(!to.borrow().removed, Errno::ENOENT)?;
        let leaves = |dir: &Link, node: &Link| {
            ensure(dir.borrow().may(who, 2), Errno::EACCES)?;
            Self::sticky(dir, node, who)?;
            let stays = same || !node.borrow().is_dir();
            ensure(stays || node.borrow().may(who, 2), Errno::EACCES)
        };
        leaves(&from, &moved)?;
        ensure(to.borrow().may(who, 2), Errno::EACCES)?;
        if let Some(target) = &target {
            if exchange {
                leaves(&to, target)?;
            } else {
                Self::sticky(&to, target, who)?;
                let target = target.borrow();
                ensure(!is_dir || target.is_dir(), Errno::ENOTDIR)?;
                ensure(is_dir || !target.is_dir(), Errno::EISDIR)?;
                ensure(target.entries.is_empty(), Errno::ENOTEMPTY)?;
            }
        }
        from.borrow_mut().entries.remove(name);
        if let Some(target) = target {
            if exchange {
                Self::arrive(&from, name, &target, now);
            } else {
                Self::lose_name(&target, now);
            }
        }
        Self::arrive(&to, to_name, &moved, now);
        Self::touch_dir(&from, now);
        Ok(())
    }

    pub fn arrive(dir: &Link, name: &str, node: &Link, now: u64) {
        dir.borrow_mut().entries.insert(name.to_string(), node.clone());
        Self::touch_dir(dir, now);
        node.borrow_mut().ctime = now;
        if node.borrow().is_dir() {
            node.borrow_mut().parent = dir.borrow().id;
        }
    }

    pub fn setattr(&self, step: &Set, who: &Caller, now: u64) -> Answer<Link> {
        let link = self.alive(step.file)?;
        {
            let node = link.borrow();
            let has = |bit| step.mask & bit != 0;
            if has(set::SIZE) {
                ensure(!node.is_dir(), Errno::EISDIR)?;
                ensure(node.kind() == mode::REGULAR, Errno::EINVAL)?;
                ensure(node.may(who, 2), Errno::EACCES)?;
            }
            if has(set::UID) && who.uid != 0 {
                ensure(node.uid == who.uid && step.uid == node.uid, Errno::EPERM)?;
            }
            if has(set::GID) && who.uid != 0 {
                let known = step.gid == node.gid || who.groups.0.contains(&step.gid);
                ensure(node.uid == who.uid && known, Errno::EPERM)?;
            }
            if has(set::MODE) {
                ensure(node.kind() != mode::SYMLINK, Errno::EOPNOTSUPP)?;
                ensure(node.owned_by(who), Errno::EPERM)?;
            }
            if has(set::MTIME) {
                ensure(node.owned_by(who), Errno::EPERM)?;
            }
        }
        let mut node = link.borrow_mut();
        let has = |bit| step.mask & bit != 0;
        // Nothing at all is a chown that names neither owner nor group.
        let is_chown = step.mask == 0 || has(set::UID | set::GID);
        let unprivileged = if node.is_dir() { node.mode } else { node.unprivileged(who) };
        if step.mask == 0 && unprivileged != node.mode {
            ensure(node.owned_by(who), Errno::EPERM)?;
            node.ctime = now;
        }
        if step.mask != 0 {
            node.ctime = now;
        }
        if is_chown {
            node.mode = unprivileged;
        }
        if has(set::UID) {
            node.uid = step.uid;
        }
        if has(set::GID) {
            node.gid = step.gid;
        }
        if has(set::MODE) {
            let strip = who.uid != 0 && !who.groups.0.contains(&node.gid);
            let bits = if strip { step.mode & !0o2000 } else { step.mode };
            node.mode = node.kind() | bits;
        }
        if has(set::SIZE) {
            node.written(who, now);
            node.epoch += u32::from(step.size < node.size);
            node.sparse |= step.size > node.size;
            node.sparse &= step.size > 0 || node.size == 0;
            node.size = step.size;
        }
        if has(set::MTIME) {
            node.mtime = step.size;
        }
        drop(node);
        Ok(link)
    }

    pub fn extend(
        &self,
        file: usize,
        end: u64,
        epoch: u32,
        who: &Caller,
        now: u64,
    ) -> Answer<Link> {
        let link = self.alive(file)?;
        let mut node = link.borrow_mut();
        ensure(!node.is_dir(), Errno::EISDIR)?;
        ensure(node.kind() == mode::REGULAR, Errno::EINVAL)?;
        ensure(node.epoch == epoch, Errno::ESTALE)?;
        node.size = node.size.max(end);
        node.written(who, now);
        drop(node);
        Ok(link)
    }

    /// Sets an attribute of so many bytes, or takes it away.
    pub fn xattr(&self, step: &Xattr, who: &Caller, now: u64) -> Answer<()> {
        let link = self.alive(step.file)?;
        let mut node = link.borrow_mut();
        if step.name.starts_with("user.") {
            let plain = node.is_dir() || node.kind() == mode::REGULAR;
            ensure(plain, Errno::EPERM)?;
            let sticky = node.is_dir() && node.mode & 0o1000 != 0;
            ensure(!sticky || node.owned_by(who), Errno::EPERM)?;
            ensure(node.may(who, 2), Errno::EACCES)?;
        } else {
            ensure(who.uid == 0, Errno::EPERM)?;
        }
        let there = node.xattrs.contains_key(&step.name);
        match step.bytes {
            Some(bytes) => {
                ensure(!there || step.flags != xattr::CREATE, Errno::EEXIST)?;
                ensure(there || step.flags != xattr::REPLACE, Errno::ENODATA)?;
                node.xattrs.insert(step.name.clone(), bytes);
            }
            None => {
                ensure(there, Errno::ENODATA)?;
                node.xattrs.remove(&step.name);
            }
        }
        node.ctime = now;
        Ok(())
    }

    pub fn open(&self, file: usize, wanted: u8, who: &Caller) -> Answer<Link> {
        let link = self.alive(file)?;
        let mut node = link.borrow_mut();
        ensure(node.kind() != mode::SYMLINK, Errno::ELOOP)?;
        ensure(!node.is_dir() || wanted & 2 == 0, Errno::EISDIR)?;
        ensure(node.may(who, u32::from(wanted)), Errno::EACCES)?;
        node.opens += 1;
        drop(node);
        Ok(link)
    }
}

#[derive(Clone, Debug)]
pub struct Create {
    pub dir: usize,
    pub name: String,
    pub mode: u32,
    pub exclusive: bool,
}

#[derive(Clone, Debug)]
pub struct Rename {
    pub dir: usize,
    pub name: String,
    pub to: usize,
    pub to_name: String,
    pub flags: u32,
}

#[derive(Clone, Debug)]
pub struct Set {
    pub file: usize,
    pub mask: u32,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
}

#[derive(Clone, Debug)]
pub struct Xattr {
    pub file: usize,
    pub name: String,
    /// None takes it away.
    pub bytes: Option<usize>,
    pub flags: u32,
}
