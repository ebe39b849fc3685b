//! Names, modes and extended attributes that all clients change and look at: what they see must have one order.

use super::{Role, Run, name, repeat, root};
use crate::sim::lab::Lab;
use crate::sim::linear::{self, Answer, Event, Op};
use covey_io::task;
use covey_ninep::tree::{Removal, SetAttr};
use covey_stripe::client::{Fs, Listing, Result, Taken, access};
use covey_stripe::ops::Id;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// The directory, some files that stay, and what everybody has seen.
pub struct Board {
    pub dir: Id,
    pub files: Vec<Id>,
    events: RefCell<Vec<Event>>,
    /// A loss of the metadata server's power takes back what nobody has synced: the story ends there.
    is_over: Cell<bool>,
}

/// One who looks and changes.
pub struct SharedNames {
    pub client: usize,
    pub board: Rc<Board>,
    pub left: Cell<u64>,
}

const NAMES: u64 = 4;
const ENOENT: u32 = 2;
const EEXIST: u32 = 17;
const ENODATA: u32 = 61;
const XATTR: &str = "user.sim";

impl Board {
    pub fn new(dir: Id, files: Vec<Id>) -> Rc<Board> {
        Rc::new(Board { dir, files, events: RefCell::default(), is_over: Cell::new(false) })
    }
}

impl SharedNames {
    async fn step(&self, lab: &Lab, fs: &Fs) {
        let op = self.choose(lab);
        let at = {
            let mut events = self.board.events.borrow_mut();
            let (client, began) = (self.client, task::now());
            events.push(Event { client, op: op.clone(), began, answer: None });
            events.len() - 1
        };
        let asked = self.ask(fs, &op);
        let refusals = [ENOENT, EEXIST, ENODATA];
        let answer = match lab.expect(format!("shared {op:?}"), &refusals, asked).await {
            Ok((_, answer)) => answer,
            Err((_, ENOENT | ENODATA)) => Some(Answer::Missing),
            Err(_) => Some(Answer::Exists),
        };
        if !self.board.is_over.get() {
            let mut events = self.board.events.borrow_mut();
            events[at].answer = answer.map(|answer| (answer, task::now()));
        }
    }

    fn choose(&self, lab: &Lab) -> Op {
        let name = || lab.below(NAMES) as u8;
        let file = || lab.below(self.board.files.len() as u64) as usize;
        match lab.below(100) {
            0..20 => Op::Create(name()),
            20..33 => Op::Unlink(name()),
            33..45 => Op::Rename(name(), name()),
            45..70 => Op::Lookup(name()),
            70..80 => Op::List,
            80..84 => Op::SetMode(file(), 0o600 + lab.below(64) as u32),
            84..90 => Op::Mode(file()),
            90..93 => Op::SetXattr(file(), lab.below(256) as u8),
            93..95 => Op::RemoveXattr(file()),
            _ => Op::Xattr(file()),
        }
    }

    async fn ask(&self, fs: &Fs, op: &Op) -> Result<Answer> {
        let (who, dir) = (root(), self.board.dir);
        let text = |number: &u8| name(format!("s{number}"));
        match op {
            Op::Create(at) => {
                let made =
                    fs.create(&who, dir, &text(at), 0o644, Taken::Refuse, access::BOTH).await?;
                Ok(Answer::Is(made.0.id))
            }
            Op::Unlink(at) => {
                fs.unlink(&who, dir, &text(at), Removal::File).await.map(|()| Answer::Done)
            }
            Op::Rename(from, to) => {
                fs.rename(&who, dir, &text(from), dir, &text(to), 0).await.map(|()| Answer::Done)
            }
            Op::Lookup(at) => Ok(Answer::Is(fs.lookup(&who, dir, &text(at)).await?.id)),
            Op::List => self.list(fs).await,
            Op::SetMode(file, mode) => {
                let change = SetAttr { mode: Some(*mode), ..SetAttr::default() };
                fs.setattr(&who, self.board.files[*file], change).await.map(|_| Answer::Done)
            }
            Op::SetXattr(file, value) => {
                let (id, value) = (self.board.files[*file], xattr_value(*value).into());
                fs.setxattr(&who, id, &name(XATTR), value, 0).await.map(|()| Answer::Done)
            }
            Op::RemoveXattr(file) => {
                let id = self.board.files[*file];
                fs.removexattr(&who, id, &name(XATTR)).await.map(|()| Answer::Done)
            }
            Op::Xattr(file) => self.xattr(fs, *file).await,
            Op::Mode(file) => {
                Ok(Answer::Mode(fs.inode(self.board.files[*file]).await?.mode & 0o7777))
            }
        }
    }

    async fn xattr(&self, fs: &Fs, file: usize) -> Result<Answer> {
        let id = self.board.files[file];
        let value = fs.getxattr(&root(), id, &name(XATTR)).await?;
        // As long as its first byte says, so that a torn one shows.
        assert_eq!(value[..], xattr_value(value[0]), "an attribute is torn");
        Ok(Answer::Value(value[0]))
    }

    /// In one page, so that it has one moment.
    async fn list(&self, fs: &Fs) -> Result<Answer> {
        let page = fs.readdir(&root(), self.board.dir, 0, 0, 8000, Listing::Names).await?;
        assert!(page.end, "a few names fit one page");
        let number = |text: &str| text.strip_prefix('s').and_then(|text| text.parse().ok());
        let names = page.entries.iter().filter_map(|e| Some((number(&e.name.lossy())?, e.id)));
        Ok(Answer::Names(names.collect::<BTreeMap<_, _>>()))
    }
}

fn xattr_value(value: u8) -> Vec<u8> {
    vec![value; 1 + usize::from(value) * 20]
}

impl Role for SharedNames {
    fn run(self: Rc<Self>, lab: Rc<Lab>, fs: Fs) -> Run {
        Box::pin(async move {
            let most = Duration::from_millis(300);
            repeat(&lab, &self.left, most, async || self.step(&lab, &fs).await).await;
        })
    }

    fn is_done(&self) -> bool {
        self.left.get() == 0
    }

    fn power_lost(&self, is_meta: bool) {
        if is_meta {
            self.board.is_over.set(true);
        }
    }

    fn settle(self: Rc<Self>, lab: Rc<Lab>, _: Fs) -> Run {
        Box::pin(async move {
            let events = std::mem::take(&mut *self.board.events.borrow_mut());
            lab.check("shared names", linear::check(&events));
        })
    }
}
