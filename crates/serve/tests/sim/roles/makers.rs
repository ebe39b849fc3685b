//! Files that one client makes, writes and closes in one go, or removes, while others look at them: whatever it was
//! told is done is what everybody else sees from then on.

use super::{Role, Run, name, repeat, root};
use crate::sim::connect_as;
use crate::sim::history::Span;
use crate::sim::lab::Lab;
use covey_io::task;
use covey_ninep::tree::{Errno, Removal, SetAttr};
use covey_stripe::client::{Caching, File, Fs, Listing, Taken, access};
use covey_stripe::ops::{Id, Inode};
use covey_wire::{Bytes, Name, Payload};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// One who makes files, and looks at those of the others.
pub struct Makers {
    pub client: usize,
    pub dir: Id,
    /// Where it makes files now: there, or in a directory that it has made.
    pub place: Cell<Id>,
    pub left: Cell<u64>,
    pub numbers: Cell<u64>,
    pub doubts: Cell<u64>,
    /// All files that anybody makes.
    pub made: Rc<RefCell<Vec<Rc<Made>>>>,
}

/// A file, and what is known of it. Its size and its mode only grow. Of a directory it is the mode.
pub struct Made {
    id: Id,
    dir: Id,
    name: String,
    is_dir: bool,
    /// What was acknowledged, and when.
    done: RefCell<Vec<(Instant, u64, u32)>>,
    looks: RefCell<Vec<(Span, Seen)>>,
    /// Somebody removes its name since then, and has been told so at some moment.
    removal: Cell<Option<(Instant, Option<Instant>)>>,
    /// The removal is done for certain.
    is_removed: Cell<bool>,
    /// It was closed without an error, and before its maker's lease could end.
    is_whole: Cell<bool>,
}

/// What was found, and whether by its name.
type Seen = (bool, Option<Found>);
/// A size and a mode; none where there was no such file.
type Found = (u64, u32);

/// Much less than a lease.
const IN_ONE_GO: Duration = Duration::from_millis(500);
const ENOENT: u32 = 2;
const ESTALE: u32 = 116;

impl Makers {
    async fn make(&self, lab: &Lab, fs: &Fs) {
        let number = self.numbers.replace(self.numbers.get() + 1);
        let text = format!("made{}.{number}", self.client);
        let (began, doubts) = (task::now(), self.doubts.get());
        let who = root();
        // It gets its name when it is whole.
        let is_linked = lab.chance(400);
        let first = if is_linked { format!("{text}.tmp") } else { text.clone() };
        let path = name(&first);
        if lab.below(8) == 0 {
            self.move_on(lab, fs, number).await;
        }
        let dir = self.place.get();
        let create = fs.create(&who, dir, &path, 0, Taken::Refuse, access::BOTH);
        let created = lab.attempt(format!("create {text}"), create).await.1;
        let Some((inode, file)) = created else { return };
        let made = Made::new(inode.id, dir, text.clone(), false);
        if !is_linked {
            self.made.borrow_mut().push(made.clone());
        }
        let mut is_whole = true;
        for _ in 0..1 + lab.below(6) {
            is_whole &= self.change(lab, fs, &made, &file).await;
        }
        let is_late = lab.chance(500);
        is_whole &= if !is_late {
            lab.attempt(format!("close {text}"), file.flush()).await.1.is_some()
        } else {
            lab.attempt(format!("close {text} late"), file.flush_late()).await.1.is_some()
        };
        drop(file);
        if is_linked {
            is_whole &= self.give_name(lab, fs, &made, &path).await;
        }
        if is_late || is_linked {
            // That tells of what was refused after it was answered, and what goes with the client.
            let sync = lab.attempt(format!("{} sync {dir}", self.client), fs.sync(dir)).await;
            is_whole &= sync.1.is_some();
        }
        let is_in_time = task::now().duration_since(began) < IN_ONE_GO;
        made.is_whole.set(is_whole && is_in_time && doubts == self.doubts.get());
    }

    /// Gives a file its name, and takes away its first one; whether that was done.
    async fn give_name(&self, lab: &Lab, fs: &Fs, made: &Rc<Made>, first: &Name) -> bool {
        let (who, path) = (root(), name(&made.name));
        lab.expect(format!("look for {}", made.name), &[ENOENT], fs.lookup(&who, made.dir, &path))
            .await
            .ok();
        // What was not synced may go with the server's power.
        let gone = [ENOENT, ESTALE];
        let link = fs.link(&who, made.id, made.dir, &path);
        let linked = lab.expect(format!("link {}", made.name), &gone, link).await;
        if !matches!(linked, Ok((_, Some(_)))) {
            return false;
        }
        self.made.borrow_mut().push(made.clone());
        if lab.chance(200) {
            lab.pause(Duration::from_millis(10)).await;
        }
        let unlink = fs.unlink(&who, made.dir, first, Removal::File);
        let what = format!("unlink the first name of {}", made.name);
        matches!(lab.expect(what, &gone, unlink).await, Ok((_, Some(_))))
    }

    /// Goes on to another directory: the one that all share, or one of its own.
    async fn move_on(&self, lab: &Lab, fs: &Fs, number: u64) {
        self.place.set(self.dir);
        if lab.chance(700) {
            let text = format!("dir{}.{number}", self.client);
            let (who, path) = (root(), name(&text));
            let make = fs.make(&who, self.dir, &path, 0o040000, 0, name(""));
            if let Some(dir) = lab.attempt(format!("mkdir {text}"), make).await.1 {
                self.place.set(dir.id);
                let made = Made::new(dir.id, self.dir, text, true);
                made.is_whole.set(true);
                self.made.borrow_mut().push(made);
            }
        }
    }

    /// Sets the mode of the directory in which it makes files, if that is its own.
    async fn set_place(&self, lab: &Lab, fs: &Fs) {
        let place = self.place.get();
        let own = self.made.borrow().iter().find(|made| made.id == place).cloned();
        let Some(made) = own else { return };
        let (began, doubts) = (task::now(), self.doubts.get());
        // Who is stopped on the way never hears what was done.
        let was_whole = made.is_whole.replace(false);
        let mut is_done = true;
        for _ in 0..1 + lab.below(3) {
            let (_, size, mode) = *made.done.borrow().last().expect("it was made");
            let set = SetAttr { mode: Some(mode + 1), ..SetAttr::default() };
            let (who, what) = (root(), format!("{} chmod {}", made.name, mode + 1));
            let set = lab.attempt(what, fs.setattr(&who, made.id, set)).await;
            is_done &= set.1.is_some();
            if set.1.is_some() {
                made.done.borrow_mut().push((task::now(), size, mode + 1));
            }
            if lab.chance(300) {
                lab.pause(Duration::from_millis(10)).await;
            }
        }
        let sync = lab.attempt(format!("{} sync {place}", self.client), fs.sync(place)).await;
        let is_in_time = task::now().duration_since(began) < IN_ONE_GO;
        let is_sure = is_done && sync.1.is_some() && is_in_time && doubts == self.doubts.get();
        made.is_whole.set(was_whole && is_sure);
    }

    /// Whether it was done.
    async fn change(&self, lab: &Lab, fs: &Fs, made: &Made, file: &File) -> bool {
        let (_, size, mode) = *made.done.borrow().last().expect("it was made");
        if lab.chance(300) {
            lab.pause(Duration::from_millis(10)).await;
        }
        let done = if lab.chance(500) {
            let length = 1 + lab.below(3000);
            let bytes: Vec<u8> = (size..size + length).map(byte_at).collect();
            let what = format!("{} write {size}+{length}", made.name);
            let written = lab.attempt(what, file.write_at(size, Payload::from(bytes))).await;
            written.1.map(|()| (size + length, mode))
        } else {
            let set = SetAttr { mode: Some(mode + 1), ..SetAttr::default() };
            let who = root();
            let what = format!("{} chmod {}", made.name, mode + 1);
            let set = lab.attempt(what, fs.setattr(&who, made.id, set)).await;
            set.1.map(|_| (size, mode + 1))
        };
        let Some((size, mode)) = done else { return false };
        made.done.borrow_mut().push((task::now(), size, mode));
        true
    }

    /// Removes some files of a directory, whoever made them.
    async fn remove(&self, lab: &Lab, fs: &Fs) {
        let (began, doubts) = (task::now(), self.doubts.get());
        let dir = match self.made.borrow().last() {
            Some(made) if lab.chance(500) => made.dir,
            _ => self.place.get(),
        };
        let (who, most) = (root(), 1 + lab.below(6) as usize);
        if lab.chance(700) {
            let list = async {
                fs.inode(dir).await?;
                fs.readdir(&who, dir, 0, u64::MAX, 1 << 20, Listing::Inodes).await
            };
            lab.attempt(format!("list what {} removes", self.client), list).await;
        }
        let victims: Vec<Rc<Made>> = {
            let all = self.made.borrow();
            let is_left =
                |made: &&Rc<Made>| made.dir == dir && !made.is_dir && made.removal.get().is_none();
            let left = all.iter().filter(is_left);
            left.take(most).cloned().collect()
        };
        for made in &victims {
            if made.removal.get().is_some() {
                continue;
            }
            let since = task::now();
            made.removal.set(Some((since, None)));
            let path = name(&made.name);
            let what = format!("{} remove {}", self.client, made.name);
            let unlink = fs.unlink(&who, dir, &path, Removal::File);
            if let Ok((span, Some(()))) = lab.expect(what, &[ENOENT, ESTALE], unlink).await {
                made.removal.set(Some((since, Some(span.ended))));
            }
            if lab.chance(200) {
                lab.pause(Duration::from_millis(10)).await;
            }
        }
        let sync = lab.attempt(format!("{} sync {dir}", self.client), fs.sync(dir)).await;
        let is_in_time = task::now().duration_since(began) < IN_ONE_GO;
        if sync.1.is_some() && is_in_time && doubts == self.doubts.get() {
            let told =
                victims.iter().filter(|made| matches!(made.removal.get(), Some((_, Some(_)))));
            told.for_each(|made| made.is_removed.set(true));
        }
    }

    /// Looks at a file that was made lately, by anybody.
    async fn look(&self, lab: &Lab, fs: &Fs) {
        let made = {
            let all = self.made.borrow();
            let Some(back) = (!all.is_empty()).then(|| lab.below(all.len().min(3) as u64)) else {
                return;
            };
            all[all.len() - 1 - back as usize].clone()
        };
        let what = format!("{} looked at by {}", made.name, self.client);
        let (gone, doubts) = ([ENOENT, ESTALE], self.doubts.get());
        let (who, path) = (root(), name(&made.name));
        let kind = lab.below(if made.is_dir { 3 } else { 4 });
        let by_name = [0, 2].contains(&kind);
        let looked = match kind {
            0 => lab.expect(what, &gone, fs.lookup(&who, made.dir, &path)).await,
            1 => lab.expect(what, &gone, fs.inode(made.id)).await,
            2 => {
                let listed = async {
                    let listing = if lab.chance(500) { Listing::Inodes } else { Listing::Names };
                    let page = fs.readdir(&who, made.dir, 0, u64::MAX, 1 << 20, listing).await?;
                    let found = page.entries.into_iter().find(|entry| entry.name == path);
                    let found = found.ok_or(Errno::from(ENOENT))?;
                    match found.inode {
                        Some(inode) => Ok(inode),
                        None => fs.inode(made.id).await,
                    }
                };
                lab.expect(what, &gone, listed).await
            }
            _ => {
                let opened = async {
                    let file = fs.open(&who, made.id, access::READ).await?;
                    let data = file.read_at(0, 64 << 10).await?.into_bytes();
                    Ok((data, fs.inode(made.id).await?))
                };
                let read = lab.expect(what, &gone, opened).await;
                let is_sure = || doubts == self.doubts.get();
                let checked = |(data, inode): (Bytes, Inode)| {
                    if is_sure() { check_bytes(&data, inode) } else { inode }
                };
                read.map(|(span, read)| (span, read.map(checked)))
            }
        };
        let seen = match looked {
            Ok((span, Some(inode))) => {
                Some((span, (by_name, Some((inode.size, inode.mode & 0o777)))))
            }
            Err((span, ENOENT)) => Some((span, (by_name, None))),
            _ => None,
        };
        if let (Some(seen), true) = (seen, doubts == self.doubts.get()) {
            made.looks.borrow_mut().push(seen);
        }
    }
}

/// Bytes never change, so what was read is what the file begins with. One write that was kept may have been refused for
/// want of space, of which the close tells: it leaves zeros.
fn check_bytes(data: &[u8], inode: Inode) -> Inode {
    let is_right = (0..).zip(data).all(|(at, byte)| [0, byte_at(at)].contains(byte));
    assert!(is_right, "file {} holds {} bytes, not all of them right", inode.id, data.len());
    Inode { size: inode.size.max(data.len() as u64), ..inode }
}

fn byte_at(offset: u64) -> u8 {
    (offset % 251) as u8
}

impl Made {
    fn new(id: Id, dir: Id, name: String, is_dir: bool) -> Rc<Made> {
        Rc::new(Made {
            id,
            dir,
            name,
            is_dir,
            done: RefCell::new(vec![(task::now(), 0, 0)]),
            looks: RefCell::default(),
            removal: Cell::default(),
            is_removed: Cell::new(false),
            is_whole: Cell::new(false),
        })
    }

    fn check(&self) -> Result<(), String> {
        let removal = self.removal.get();
        if let (true, Some((_, Some(told)))) = (self.is_removed.get(), removal) {
            let looks = self.looks.borrow();
            let mut after = looks.iter().filter(|(span, _)| told < span.began);
            if after.any(|(_, (by_name, seen))| *by_name && seen.is_some()) {
                return Err("it is there after it was removed".to_owned());
            }
        }
        if !self.is_whole.get() {
            return Ok(());
        }
        for (span, (_, seen)) in self.looks.borrow().iter() {
            let done = self.done.borrow();
            let before = done.iter().rev().find(|(at, ..)| *at < span.began);
            let Some((size, mode)) = seen else {
                match before {
                    Some(_) if removal.is_some_and(|(began, _)| began <= span.ended) => continue,
                    Some(_) => return Err("it is not there after it was made".to_owned()),
                    None => continue,
                }
            };
            let &(_, least, least_mode) = before.unwrap_or(&done[0]);
            if *size < least || *mode < least_mode {
                let seen = format!("{size} bytes and mode {mode}");
                return Err(format!("{seen} after {least} and {least_mode} were acknowledged"));
            }
        }
        Ok(())
    }
}

impl Role for Makers {
    fn run(self: Rc<Self>, lab: Rc<Lab>, fs: Fs) -> Run {
        Box::pin(async move {
            // A session of its own: what the other roles check knows nothing of leases.
            let late = connect_as(&format!("maker{}", self.client), Caching::Leases, true).await;
            let most = Duration::from_millis(300);
            repeat(&lab, &self.left, most, async || match lab.below(12) {
                0..3 => self.make(&lab, &late).await,
                3 => {
                    self.make(&lab, &late).await;
                    self.set_place(&lab, &late).await;
                }
                4..8 => self.look(&lab, &late).await,
                8..10 => self.remove(&lab, &late).await,
                _ => self.look(&lab, &fs).await,
            })
            .await;
        })
    }

    fn is_done(&self) -> bool {
        self.left.get() == 0
    }

    /// What was not synced may be gone, and come again as something else.
    fn power_lost(&self, _: bool) {
        self.doubts.set(self.doubts.get() + 1);
        self.made.borrow_mut().clear();
    }

    /// One that has started does not know who was alone with a file.
    fn meta_started(&self) {
        self.power_lost(true);
    }

    fn client_lost(&self) {
        self.doubts.set(self.doubts.get() + 1);
    }

    fn session_in_doubt(&self) {
        self.doubts.set(self.doubts.get() + 1);
    }

    fn settle(self: Rc<Self>, lab: Rc<Lab>, fs: Fs) -> Run {
        Box::pin(async move {
            let all: Vec<Rc<Made>> = self.made.borrow_mut().drain(..).collect();
            for made in all {
                lab.check(&made.name, made.check());
                if made.is_removed.get() {
                    let (what, path) =
                        (format!("{} is gone at the end", made.name), name(&made.name));
                    let who = root();
                    let looked = fs.lookup(&who, made.dir, &path);
                    let looked = lab.expect(what, &[ENOENT, ESTALE], looked).await;
                    assert!(!matches!(looked, Ok((_, Some(_)))), "{}: what was removed", made.name);
                }
                if !made.is_whole.get() || made.removal.get().is_some() {
                    continue;
                }
                let asked = lab.attempt(format!("{} at the end", made.name), fs.inode(made.id));
                if let Some(inode) = asked.await.1 {
                    let (_, size, mode) = *made.done.borrow().last().expect("it was made");
                    let size_now = if made.is_dir { size } else { inode.size };
                    let found = (size_now, inode.mode & 0o777);
                    assert_eq!(found, (size, mode), "{}: what was closed", made.name);
                }
            }
        })
    }
}
