//! Random operations against a naive tree in memory: every answer and, after each step, the whole
//! tree must agree; and the log, replayed on the checkpoint, must give the same map.

mod meta_lab;

use covey_stripe::meta::mode;
use covey_stripe::ops::*;
use covey_wire::{List, Name};
use meta_lab::*;
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

type Link = Rc<RefCell<Node>>;

/// A file of the toy: its names hold it, as do those who have it open.
struct Node {
    id: Id,
    mode: u32,
    uid: u32,
    gid: u32,
    size: u64,
    epoch: u32,
    sparse: bool,
    atime: u64,
    mtime: u64,
    ctime: u64,
    btime: u64,
    /// Not of a directory.
    names: u32,
    entries: BTreeMap<String, Link>,
    parent: Id,
    removed: bool,
    opens: u32,
}

impl Node {
    fn kind(&self) -> u32 {
        self.mode & mode::TYPE
    }

    fn is_dir(&self) -> bool {
        self.kind() == mode::DIRECTORY
    }

    fn nlink(&self) -> u32 {
        match (self.is_dir(), self.removed) {
            (true, true) => 0,
            (true, false) => {
                2 + self.entries.values().filter(|e| e.borrow().is_dir()).count() as u32
            }
            (false, _) => self.names,
        }
    }

    fn bytes(&self) -> u64 {
        if self.is_dir() { 32 * self.entries.len() as u64 } else { self.size }
    }

    fn may(&self, who: &Caller, wanted: u32) -> bool {
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

    fn owned_by(&self, who: &Caller) -> bool {
        who.uid == 0 || who.uid == self.uid
    }

    fn written(&mut self, who: &Caller, now: u64) {
        self.mtime = now;
        self.ctime = now;
        if who.uid != 0 && self.kind() == mode::REGULAR {
            self.drop_privilege();
        }
    }

    fn drop_privilege(&mut self) {
        if self.mode & 0o010 != 0 {
            self.mode &= !0o2000;
        }
        self.mode &= !0o4000;
    }
}

/// The toy: a tree, and every file that was ever made, so that steps can name the dead too.
struct Toy {
    root: Link,
    all: Vec<Link>,
}

type Answer<T> = Result<T, u32>;

fn ensure(holds: bool, code: u32) -> Answer<()> {
    if holds { Ok(()) } else { Err(code) }
}

impl Toy {
    fn new(lab: &mut Lab) -> Toy {
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
        }));
        Toy { all: vec![root.clone()], root }
    }

    fn is_alive(node: &Link) -> bool {
        let node = node.borrow();
        node.nlink() > 0 || node.opens > 0
    }

    fn alive(&self, index: usize) -> Answer<Link> {
        let node = self.all[index].clone();
        ensure(Self::is_alive(&node), Errno::ESTALE)?;
        Ok(node)
    }

    fn searched(&self, index: usize, who: &Caller) -> Answer<Link> {
        let dir = self.alive(index)?;
        ensure(dir.borrow().is_dir(), Errno::ENOTDIR)?;
        ensure(dir.borrow().may(who, 1), Errno::EACCES)?;
        Ok(dir)
    }

    fn child(dir: &Link, name: &str) -> Option<Link> {
        dir.borrow().entries.get(name).cloned()
    }

    fn sticky(dir: &Link, victim: &Link, who: &Caller) -> Answer<()> {
        let (dir, victim) = (dir.borrow(), victim.borrow());
        let free = dir.mode & 0o1000 == 0 || dir.owned_by(who) || victim.owned_by(who);
        ensure(free, Errno::EPERM)
    }

    fn touch_dir(dir: &Link, now: u64) {
        let mut dir = dir.borrow_mut();
        dir.mtime = now;
        dir.ctime = now;
    }

    fn create(&mut self, step: &Create, id: Id, who: &Caller, now: u64) -> Answer<(Link, bool)> {
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
        }));
        dir.borrow_mut().entries.insert(step.name.clone(), node.clone());
        Self::touch_dir(&dir, now);
        self.all.push(node.clone());
        Ok((node, true))
    }

    fn unlink(&self, dir: usize, name: &str, as_dir: bool, who: &Caller, now: u64) -> Answer<()> {
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

    fn lose_name(victim: &Link, now: u64) {
        let mut victim = victim.borrow_mut();
        victim.ctime = now;
        if victim.is_dir() {
            victim.removed = true;
        } else {
            victim.names -= 1;
        }
    }

    fn link(&self, id: usize, dir: usize, name: &str, who: &Caller, now: u64) -> Answer<Link> {
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
    fn contains(outer: &Link, inner: &Link) -> bool {
        Rc::ptr_eq(outer, inner)
            || outer.borrow().entries.values().any(|entry| Self::contains(entry, inner))
    }

    fn rename(&self, step: &Rename, who: &Caller, now: u64) -> Answer<()> {
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

    fn arrive(dir: &Link, name: &str, node: &Link, now: u64) {
        dir.borrow_mut().entries.insert(name.to_string(), node.clone());
        Self::touch_dir(dir, now);
        node.borrow_mut().ctime = now;
        if node.borrow().is_dir() {
            node.borrow_mut().parent = dir.borrow().id;
        }
    }

    fn setattr(&self, step: &Set, who: &Caller, now: u64) -> Answer<Link> {
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
        if step.mask != 0 {
            node.ctime = now;
        }
        if has(set::UID) {
            node.uid = step.uid;
        }
        if has(set::GID) {
            node.gid = step.gid;
        }
        if has(set::UID | set::GID) && !node.is_dir() {
            node.drop_privilege();
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
            node.size = step.size;
        }
        if has(set::MTIME) {
            node.mtime = step.size;
        }
        drop(node);
        Ok(link)
    }

    fn extend(&self, file: usize, end: u64, epoch: u32, who: &Caller, now: u64) -> Answer<Link> {
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

    fn open(&self, file: usize, wanted: u8, who: &Caller) -> Answer<Link> {
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
struct Create {
    dir: usize,
    name: String,
    mode: u32,
    exclusive: bool,
}

#[derive(Clone, Debug)]
struct Rename {
    dir: usize,
    name: String,
    to: usize,
    to_name: String,
    flags: u32,
}

#[derive(Clone, Debug)]
struct Set {
    file: usize,
    mask: u32,
    mode: u32,
    uid: u32,
    gid: u32,
    size: u64,
}

/// A step. Files are named by when they were made, so the dead can be named too.
#[derive(Clone, Debug)]
enum Step {
    Create(Create),
    Unlink { dir: usize, name: String, as_dir: bool },
    Rename(Rename),
    Link { file: usize, dir: usize, name: String },
    Set(Set),
    Extend { file: usize, end: u64, stale: bool },
    Open { file: usize, access: u8 },
    Close { file: usize },
    Walk { dir: usize, name: String },
    Checkpoint,
}

fn name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "c"]).prop_map(String::from)
}

fn permissions() -> impl Strategy<Value = u32> {
    let usual = [0o777, 0o755, 0o700, 0o1777, 0o2777, 0o6775, 0o040, 0o644];
    prop::sample::select(usual.to_vec())
}

fn kind() -> impl Strategy<Value = u32> {
    prop_oneof![
        4 => Just(mode::REGULAR),
        5 => Just(mode::DIRECTORY),
        1 => Just(mode::SYMLINK),
        1 => Just(mode::CHARACTER),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let file = || 0..64usize;
    // Directories near the root are named more often, or nothing would ever be found.
    let dir = || prop_oneof![3 => Just(0usize), 5 => 0..6usize, 1 => 0..64usize];
    let flags = prop::sample::select(vec![0, 0, 0, rename::NOREPLACE, rename::EXCHANGE]);
    let mask = prop::sample::select(vec![
        0,
        set::MODE,
        set::MODE,
        set::SIZE,
        set::SIZE,
        set::UID,
        set::GID,
        set::MTIME,
        set::UID | set::GID | set::MODE,
        set::SIZE | set::MODE,
    ]);
    let users = || prop::sample::select(vec![0, ALICE, BOB]);
    let groups = || prop::sample::select(vec![0, 50, 60]);
    prop_oneof![
        6 => (dir(), name(), kind(), permissions(), any::<bool>()).prop_map(
            |(dir, name, kind, bits, exclusive)| {
                Step::Create(Create { dir, name, mode: kind | bits, exclusive })
            }
        ),
        3 => (dir(), name(), any::<bool>())
            .prop_map(|(dir, name, as_dir)| Step::Unlink { dir, name, as_dir }),
        5 => (dir(), name(), dir(), name(), flags).prop_map(|(dir, name, to, to_name, flags)| {
            Step::Rename(Rename { dir, name, to, to_name, flags })
        }),
        2 => (file(), dir(), name()).prop_map(|(file, dir, name)| Step::Link { file, dir, name }),
        3 => (file(), mask, permissions(), users(), groups(), 0..100u64).prop_map(
            |(file, mask, mode, uid, gid, size)| Step::Set(Set { file, mask, mode, uid, gid, size })
        ),
        2 => (file(), 0..100u64, prop::bool::weighted(0.1))
            .prop_map(|(file, end, stale)| Step::Extend { file, end, stale }),
        2 => (file(), 1..8u8).prop_map(|(file, access)| Step::Open { file, access }),
        1 => file().prop_map(|file| Step::Close { file }),
        2 => (dir(), name()).prop_map(|(dir, name)| Step::Walk { dir, name }),
        1 => Just(Step::Checkpoint),
    ]
}

/// Both, side by side.
struct Pair {
    lab: Lab,
    toy: Toy,
    session: u64,
}

impl Pair {
    fn new() -> Pair {
        let mut lab = Lab::default();
        let (session, _) = lab.hello(0, &[]);
        lab.code(0, chmod(ROOT, 0o777));
        let toy = Toy::new(&mut lab);
        Pair { lab, toy, session }
    }

    fn index(&self, file: usize) -> usize {
        file % self.toy.all.len()
    }

    fn id(&self, file: usize) -> Id {
        self.toy.all[file].borrow().id
    }

    /// Runs a step on both and compares the answers.
    fn step(&mut self, step: Step) {
        let now = self.lab.now + 1;
        let who = self.lab.caller.clone();
        match step {
            Step::Create(mut create) => {
                create.dir = self.index(create.dir);
                let reply = self.lab.reply(0, op_of(&create, self.id(create.dir)));
                let id = match &reply {
                    Reply::Created { inode, created: true } => inode.id,
                    _ => 0,
                };
                match (self.toy.create(&create, id, &who, now), reply) {
                    (Ok((node, new)), Reply::Created { inode, created }) => {
                        assert_eq!(new, created);
                        compare(&node, &inode);
                    }
                    (toy, reply) => assert_eq!(toy.map(|_| ()), outcome(&reply)),
                }
            }
            Step::Unlink { dir, name, as_dir } => {
                let dir = self.index(dir);
                let op =
                    Op::Unlink { parent: self.id(dir), name: name.as_str().into(), dir: as_dir };
                let reply = self.lab.reply(0, op);
                assert_eq!(self.toy.unlink(dir, &name, as_dir, &who, now), outcome(&reply));
            }
            Step::Rename(mut step) => {
                (step.dir, step.to) = (self.index(step.dir), self.index(step.to));
                let op = Op::Rename {
                    parent: self.id(step.dir),
                    name: step.name.as_str().into(),
                    to: self.id(step.to),
                    to_name: step.to_name.as_str().into(),
                    flags: step.flags,
                };
                let reply = self.lab.reply(0, op);
                assert_eq!(self.toy.rename(&step, &who, now), outcome(&reply));
            }
            Step::Link { file, dir, name } => {
                let (file, dir) = (self.index(file), self.index(dir));
                let (id, parent) = (self.id(file), self.id(dir));
                let reply = self.lab.reply(0, Op::Link { id, parent, name: name.as_str().into() });
                self.same_node(self.toy.link(file, dir, &name, &who, now), reply);
            }
            Step::Set(mut step) => {
                step.file = self.index(step.file);
                let Set { mask, mode, uid, gid, size, .. } = step;
                let mtime = size;
                let set = Attributes {
                    mode,
                    uid,
                    gid,
                    size,
                    mtime,
                    ..attributes(self.id(step.file), mask)
                };
                let reply = self.lab.reply(0, set.into());
                self.same_node(self.toy.setattr(&step, &who, now), reply);
            }
            Step::Extend { file, end, stale } => {
                let file = self.index(file);
                let epoch = self.toy.all[file].borrow().epoch + u32::from(stale);
                let op = Op::Extend { id: self.id(file), epoch, end, hole: false };
                let reply = self.lab.reply(0, op);
                self.same_node(self.toy.extend(file, end, epoch, &who, now), reply);
            }
            Step::Open { file, access } => {
                let file = self.index(file);
                let reply = self.lab.reply(self.session, Op::Open { id: self.id(file), access });
                self.same_node(self.toy.open(file, access, &who), reply);
            }
            Step::Close { file } => {
                let file = self.index(file);
                self.lab.reply(self.session, Op::Release { id: self.id(file) });
                let mut node = self.toy.all[file].borrow_mut();
                node.opens = node.opens.saturating_sub(1);
            }
            Step::Walk { dir, name } => {
                let dir = self.index(dir);
                let names = List(vec![Name::from(name.as_str())]);
                let reply = self.lab.reply(0, Op::Walk { from: self.id(dir), names });
                let found = self
                    .toy
                    .searched(dir, &who)
                    .and_then(|dir| Toy::child(&dir, &name).ok_or(Errno::ENOENT));
                match (found, reply) {
                    (Ok(node), Reply::Nodes { inodes }) => compare(&node, &inodes.0[0]),
                    (toy, reply) => assert_eq!(toy.map(|_| ()), outcome(&reply)),
                }
            }
            Step::Checkpoint => self.lab.save(),
        }
    }

    fn same_node(&self, toy: Answer<Link>, reply: Reply) {
        match (toy, reply) {
            (Ok(node), Reply::Node { inode }) => compare(&node, &inode),
            (toy, reply) => assert_eq!(toy.map(|_| ()), outcome(&reply)),
        }
    }

    /// Compares everything there is: names from the root, and files by their numbers.
    fn compare_all(&mut self) {
        let who = std::mem::take(&mut self.lab.caller);
        self.compare_tree(&self.toy.root.clone());
        let mut totals = (0, 0);
        for node in self.toy.all.clone() {
            let id = node.borrow().id;
            let reply = self.lab.reply(0, Op::Getattr { id });
            if !Toy::is_alive(&node) {
                assert_eq!(outcome(&reply), Err(Errno::ESTALE));
                continue;
            }
            compare(&node, &meta_lab::node(reply));
            totals.0 += 1;
            if node.borrow().kind() == mode::REGULAR {
                totals.1 += node.borrow().size;
            }
        }
        assert_eq!(self.lab.totals(), totals);
        self.lab.caller = who;
    }

    fn compare_tree(&mut self, dir: &Link) {
        let mut listed = Vec::new();
        for (name, _) in self.lab.list(dir.borrow().id, 100) {
            let id = self.lab.find(dir.borrow().id, &name).unwrap().id;
            listed.push((name, id));
        }
        listed.sort();
        let entries = dir.borrow().entries.clone();
        let expected: Vec<_> =
            entries.iter().map(|(name, node)| (name.clone(), node.borrow().id)).collect();
        assert_eq!(listed, expected);
        for node in entries.values().filter(|node| node.borrow().is_dir()) {
            self.compare_tree(node);
        }
    }
}

fn op_of(create: &Create, parent: Id) -> Op {
    let target = match create.mode & mode::TYPE {
        mode::SYMLINK => Name::from("elsewhere"),
        _ => Name::EMPTY,
    };
    Op::Create {
        parent,
        name: create.name.as_str().into(),
        mode: create.mode,
        gid: u32::MAX,
        rdev: 0,
        target,
        exclusive: create.exclusive,
        open: false,
        access: 6,
    }
}

fn outcome(reply: &Reply) -> Answer<()> {
    match reply {
        Reply::Error { code, .. } => Err(*code),
        _ => Ok(()),
    }
}

fn compare(node: &Link, inode: &Inode) {
    let node = node.borrow();
    let toy = (node.id, node.mode, node.uid, node.gid, node.nlink(), node.bytes(), node.epoch);
    let real = (inode.id, inode.mode, inode.uid, inode.gid, inode.nlink, inode.size, inode.epoch);
    assert_eq!(toy, real, "of {inode:?}");
    let toy = (node.sparse, node.atime, node.mtime, node.ctime, node.btime, node.parent);
    let real = (inode.sparse, inode.atime, inode.mtime, inode.ctime, inode.btime, inode.parent);
    assert_eq!(toy, real, "of {inode:?}");
}

fn who(number: u8) -> Caller {
    match number {
        0 => root(),
        1 => user(ALICE, &[50]),
        _ => user(BOB, &[60, 50]),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn the_store_does_what_a_naive_tree_does(
        steps in prop::collection::vec((0..4u8, step()), 1..80)
    ) {
        let mut pair = Pair::new();
        for (number, step) in steps {
            // Root half of the time, or little would ever succeed.
            pair.lab.caller = who(number.saturating_sub(1));
            pair.step(step);
            pair.compare_all();
        }
        let [again, living] = pair.lab.replayed();
        prop_assert_eq!(again, living);
    }
}
