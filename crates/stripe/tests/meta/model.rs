//! Random operations against a naive tree in memory: every answer and, after each step, the whole
//! tree must agree; and the log, replayed on the checkpoint, must give the same map.

#[path = "lab/toy.rs"]
mod toy;

use crate::lab::*;
use crate::quotas::{count_all, limit, owned, scanned};
use covey_stripe::meta::mode;
use covey_stripe::ops::*;
use covey_wire::{List, Name, Payload};
use proptest::prelude::*;
use toy::{Answer, Create, Link, Rename, Set, Toy, Xattr};

/// A step. Files are named by when they were made, so the dead can be named too.
#[derive(Clone, Debug)]
enum Step {
    Create(Create),
    Unlink { dir: usize, name: String, as_dir: bool },
    Rename(Rename),
    Link { file: usize, dir: usize, name: String },
    Set(Set),
    Xattr(Xattr),
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
        4 => xattr_step(),
        2 => (file(), 0..100u64, prop::bool::weighted(0.1))
            .prop_map(|(file, end, stale)| Step::Extend { file, end, stale }),
        2 => (file(), 1..8u8).prop_map(|(file, access)| Step::Open { file, access }),
        1 => file().prop_map(|file| Step::Close { file }),
        2 => (dir(), name()).prop_map(|(dir, name)| Step::Walk { dir, name }),
        1 => Just(Step::Checkpoint),
    ]
}

fn xattr_step() -> impl Strategy<Value = Step> {
    let names = vec!["user.a", "user.b", "trusted.c", "security.d"];
    let flags = prop::sample::select(vec![0, 0, xattr::CREATE, xattr::REPLACE]);
    (0..64usize, prop::sample::select(names), prop::option::weighted(0.7, 0..200usize), flags)
        .prop_map(|(file, name, bytes, flags)| {
            Step::Xattr(Xattr { file, name: name.into(), bytes, flags })
        })
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
            Step::Xattr(mut step) => {
                step.file = self.index(step.file);
                let (id, name) = (self.id(step.file), Name::from(step.name.as_str()));
                let op = match step.bytes {
                    Some(bytes) => {
                        let value = Payload::from(vec![b'v'; bytes]);
                        Op::Setxattr { id, name, value, flags: step.flags }
                    }
                    None => Op::Removexattr { id, name },
                };
                let reply = self.lab.reply(0, op);
                assert_eq!(self.toy.xattr(&step, &who, now), outcome(&reply));
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
            compare(&node, &crate::lab::node(reply));
            self.compare_xattrs(&node);
            totals.0 += 1;
            if node.borrow().kind() == mode::REGULAR {
                totals.1 += node.borrow().size;
            }
        }
        assert_eq!(self.lab.totals(), totals);
        self.lab.caller = who;
    }

    /// Names and lengths, as root sees them.
    fn compare_xattrs(&mut self, node: &Link) {
        let id = node.borrow().id;
        let mut found = std::collections::BTreeMap::new();
        for name in self.lab.xattr_names(id) {
            let reply = self.lab.reply(0, Op::Getxattr { id, name: name.as_str().into() });
            let Reply::Xattr { value } = reply else { panic!("{reply:?}") };
            found.insert(name, value.len());
        }
        assert_eq!(found, node.borrow().xattrs);
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
    assert_eq!(node.xattrs.is_empty(), !inode.has_xattrs);
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
        let middle = steps.len() / 2;
        for (at, (number, step)) in steps.into_iter().enumerate() {
            // What everybody owns is counted from the middle on; nobody reaches the limit.
            if at == middle {
                limit(&mut pair.lab, (0, ALICE), u64::MAX - 1, u64::MAX - 1);
                count_all(&mut pair.lab);
            }
            // Root half of the time, or little would ever succeed.
            pair.lab.caller = who(number.saturating_sub(1));
            pair.step(step);
            pair.compare_all();
            if at >= middle {
                prop_assert_eq!(owned(&mut pair.lab), scanned(&pair.lab));
            }
        }
        let [again, living] = pair.lab.replayed();
        prop_assert_eq!(again, living);
    }
}
