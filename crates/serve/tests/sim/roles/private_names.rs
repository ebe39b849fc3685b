//! Names in directories that one client alone changes: every answer is exact.

use super::{Role, Run, name, repeat, root};
use crate::sim::lab::Lab;
use crate::sim::names::{Answer, Names, Op, Path};
use covey_ninep::tree::Removal;
use covey_stripe::client::{Fs, Listing, Result, Taken, access};
use covey_stripe::ops::{Id, Inode};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// One client's own directories.
pub struct PrivateNames {
    pub client: usize,
    pub dirs: Vec<Id>,
    pub names: RefCell<Names>,
    pub left: Cell<u64>,
    /// What was asked and not answered yet.
    pending: Cell<Option<Op>>,
}

/// Errors that are answers here.
const ANSWERS: [u32; 6] = [1, 2, 17, 20, 21, 39];
const NAMES: u64 = 5;
const S_IFDIR: u32 = 0o040000;

impl PrivateNames {
    pub fn new(client: usize, dirs: Vec<Id>, left: u64) -> Rc<PrivateNames> {
        let (names, left) = (RefCell::default(), Cell::new(left));
        Rc::new(PrivateNames { client, dirs, names, left, pending: Cell::new(None) })
    }

    async fn step(&self, lab: &Lab, fs: &Fs) {
        let op = if self.names.borrow().wants_fsync() { Op::Fsync } else { self.choose(lab) };
        let losses = lab.losses.get();
        self.pending.set(Some(op));
        let what = format!("names {op:?}");
        let asked = lab.expect(what.clone(), &ANSWERS, self.ask(fs, op)).await;
        self.pending.set(None);
        let answer = match asked {
            Ok((_, Some(answer))) => Some(answer),
            Ok((_, None)) => None,
            Err((_, code)) => Some(Answer::Refused(code)),
        };
        let mut names = self.names.borrow_mut();
        match answer {
            // An answer from before a loss of power may not hold after it.
            Some(answer) if losses == lab.losses.get() => {
                let checked = names.answered(op, &answer);
                drop(names);
                lab.check(&what, checked);
            }
            _ => {
                names.unanswered(op);
                if losses != lab.losses.get() {
                    names.lost_power();
                }
            }
        }
    }

    fn choose(&self, lab: &Lab) -> Op {
        let path =
            || -> Path { (lab.below(self.dirs.len() as u64) as usize, lab.below(NAMES) as u8) };
        match lab.below(100) {
            0..25 => Op::Create(path()),
            25..32 => Op::Mkdir(path()),
            32..45 => Op::Unlink(path()),
            45..50 => Op::Rmdir(path()),
            50..65 => Op::Rename(path(), path()),
            65..73 => Op::Link(path(), path()),
            73..88 => Op::Lookup(path()),
            88..96 => Op::List(path().0),
            _ => Op::Fsync,
        }
    }

    async fn ask(&self, fs: &Fs, op: Op) -> Result<Answer> {
        let who = root();
        let text = |path: Path| name(format!("n{}", path.1));
        let dir = |path: Path| self.dirs[path.0];
        let is = |inode: &Inode| {
            let links = (inode.mode & 0o170000 != S_IFDIR).then_some(inode.nlink);
            Answer::Is(inode.id, links)
        };
        match op {
            Op::Create(path) => {
                let made = fs
                    .create(&who, dir(path), &text(path), 0o644, Taken::Refuse, access::BOTH)
                    .await?;
                Ok(is(&made.0))
            }
            Op::Mkdir(path) => {
                let mode = S_IFDIR | 0o755;
                let made = fs.make(&who, dir(path), &text(path), mode, 0, name("")).await?;
                Ok(is(&made))
            }
            Op::Unlink(path) => {
                fs.unlink(&who, dir(path), &text(path), Removal::File).await.map(|()| Answer::Done)
            }
            Op::Rmdir(path) => fs
                .unlink(&who, dir(path), &text(path), Removal::Directory)
                .await
                .map(|()| Answer::Done),
            Op::Rename(from, to) => fs
                .rename(&who, dir(from), &text(from), dir(to), &text(to), 0)
                .await
                .map(|()| Answer::Done),
            Op::Link(from, to) => {
                let found = fs.lookup(&who, dir(from), &text(from)).await?;
                Ok(is(&fs.link(&who, found.id, dir(to), &text(to)).await?))
            }
            Op::Lookup(path) => Ok(is(&fs.lookup(&who, dir(path), &text(path)).await?)),
            Op::List(at) => self.list(fs, self.dirs[at]).await,
            Op::Fsync => fs.sync(self.dirs[0]).await.map(|()| Answer::Done),
        }
    }

    async fn list(&self, fs: &Fs, dir: Id) -> Result<Answer> {
        let (mut names, mut cookie, mut limit) = (BTreeMap::new(), 0, 0);
        loop {
            let page = fs.readdir(&root(), dir, cookie, limit, 200, Listing::Names).await?;
            limit = page.limit;
            for entry in &page.entries {
                cookie = entry.cookie;
                let text = entry.name.lossy();
                let Some(number) = text.strip_prefix('n').and_then(|n| n.parse().ok()) else {
                    continue;
                };
                assert!(names.insert(number, entry.id).is_none(), "{text} is listed twice");
            }
            if page.end {
                return Ok(Answer::Names(names));
            }
        }
    }
}

impl Role for PrivateNames {
    fn run(self: Rc<Self>, lab: Rc<Lab>, fs: Fs) -> Run {
        Box::pin(async move {
            let most = Duration::from_millis(500);
            repeat(&lab, &self.left, most, async || self.step(&lab, &fs).await).await;
        })
    }

    fn is_done(&self) -> bool {
        self.left.get() == 0
    }

    fn power_lost(&self, is_meta: bool) {
        if is_meta {
            self.names.borrow_mut().lost_power();
        }
    }

    fn client_lost(&self) {
        if let Some(op) = self.pending.take() {
            self.names.borrow_mut().unanswered(op);
        }
    }

    fn settle(self: Rc<Self>, lab: Rc<Lab>, fs: Fs) -> Run {
        Box::pin(async move {
            for at in 0..self.dirs.len() {
                let what = format!("names of client{} at the end", self.client);
                let (_, answer) = lab.attempt(what.clone(), self.list(&fs, self.dirs[at])).await;
                if let Some(answer) = answer {
                    let checked = self.names.borrow_mut().answered(Op::List(at), &answer);
                    lab.check(&what, checked);
                }
            }
        })
    }
}
