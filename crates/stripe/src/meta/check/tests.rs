//! Damage of every class is planted, found, repaired, and not found again; and nothing is found while
//! everybody works.

mod moved;
mod owned;

use super::super::keys::{self, CutRow, Listed, Named, Reserved, Stored};
use super::super::{Applied, Store, Work, mode};
use crate::check::{self, Access, Options, Outcome, Report};
use crate::distribution::{self, Distribution};
use crate::kv::{Kv, MemoryKv};
use crate::objects::{DataOp, DataReply, Object};
use crate::ops::check::Class;
use crate::ops::{Caller, Id, Op, ROOT, Reply, Request, Striping, StripingHint};
use covey_ninep::tree::Errno;
use covey_wire::{Field, List, Name};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

const SERVERS: u16 = 3;

type Interference = Box<dyn FnMut(&Lab)>;

/// A store, objects, and somebody who may interfere between two questions.
struct Lab {
    store: RefCell<Store<MemoryKv>>,
    objects: RefCell<BTreeMap<(u16, Id), Object>>,
    now: RefCell<u64>,
    meanwhile: RefCell<Option<Interference>>,
}

impl Lab {
    fn new() -> Lab {
        let mut kv = MemoryKv::default();
        let servers: Vec<String> = (0..SERVERS).map(|at| format!("io{at}")).collect();
        let hint =
            StripingHint { kind: 1, strip_bytes: 4096, server_count: 0, params: List::default() };
        Store::format(&mut kv, "flock", &servers, hint, 1, (0, 0)).unwrap();
        Lab {
            store: RefCell::new(Store::open(kv).unwrap()),
            objects: RefCell::default(),
            now: RefCell::new(1_000_000_000_000),
            meanwhile: RefCell::default(),
        }
    }

    /// Some directories and files with all their bytes.
    fn filled() -> Lab {
        let lab = Lab::new();
        for dir in 0..4 {
            let dir = lab.create(ROOT, &format!("d{dir}"), mode::DIRECTORY | 0o755);
            for file in 0..5 {
                let id = lab.create(dir, &format!("f{file}"), mode::REGULAR | 0o644);
                lab.write(id, 5000 * (file + 1));
            }
        }
        lab
    }

    fn op(&self, session: u64, op: Op) -> Reply {
        let now = self.tick();
        let caller = Caller::default();
        let request = Request { session, seq: 0, seq_done: 0, now, caller, op };
        let applied = self.store.borrow_mut().apply(&request);
        self.work();
        match applied {
            Applied::Reply(reply) | Applied::AfterCut { reply, .. } => reply,
            other => panic!("{other:?}"),
        }
    }

    fn tick(&self) -> u64 {
        *self.now.borrow_mut() += 1;
        *self.now.borrow()
    }

    /// What a server does on the data servers.
    fn work(&self) {
        loop {
            let work = self.store.borrow_mut().take_work();
            if work.is_empty() {
                return;
            }
            work.into_iter().for_each(|work| self.one_work(work));
        }
    }

    fn one_work(&self, work: Work) {
        let own = |op| {
            let (now, caller) = (self.tick(), Caller::default());
            let request = Request { session: 0, seq: 0, seq_done: 0, now, caller, op };
            assert_eq!(self.store.borrow_mut().apply(&request), Applied::Reply(Reply::Done {}));
        };
        match work {
            Work::Answer(..) => {}
            Work::Apply(request) => own(request.op),
            Work::Remove { id, epoch, .. } => {
                self.objects.borrow_mut().retain(|key, one| key.1 != id || one.epoch > epoch);
                own(Op::Reclaimed { id, epoch });
            }
            Work::Sweep { id, epoch } => {
                self.objects.borrow_mut().retain(|key, one| key.1 != id || one.epoch > epoch);
            }
            Work::Cut { id, epoch, size, striping } => {
                self.cut(id, epoch, size, &striping);
                own(Op::Reclaimed { id, epoch });
            }
        }
    }

    fn cut(&self, id: Id, epoch: u32, size: u64, striping: &Striping) {
        let map = distribution::of(striping).unwrap();
        for (slot, &server) in striping.servers.0.iter().enumerate() {
            let mut objects = self.objects.borrow_mut();
            let new = Object { id, epoch, bytes: 0 };
            let object = objects.entry((server, id)).or_insert(new);
            object.epoch = epoch;
            object.bytes = object.bytes.min(map.physical_size(slot, size));
        }
    }

    fn create(&self, parent: Id, name: &str, mode: u32) -> Id {
        let op = Op::Create {
            parent,
            name: name.into(),
            mode,
            gid: 0,
            rdev: 0,
            target: Name::EMPTY,
            exclusive: true,
            open: false,
            access: 0,
        };
        match self.op(0, op) {
            Reply::Created { inode, .. } => inode.id,
            other => panic!("{other:?}"),
        }
    }

    fn write(&self, id: Id, size: u64) {
        let inode = self.stored(id).inode;
        let striping = inode.striping.unwrap();
        let map = distribution::of(&striping).unwrap();
        for (slot, &server) in striping.servers.0.iter().enumerate() {
            let bytes = map.physical_size(slot, size);
            if bytes > 0 {
                let object = Object { id, epoch: inode.epoch, bytes };
                self.objects.borrow_mut().insert((server, id), object);
            }
        }
        self.op(0, Op::Extend { id, epoch: inode.epoch, end: size, hole: false });
    }

    fn stored(&self, id: Id) -> Stored {
        keys::row(self.store.borrow().kv(), &keys::inode(id)).unwrap().unwrap()
    }

    fn put<T: Field>(&self, key: &[u8], value: &T) {
        keys::put_row(self.store.borrow_mut().kv_mut(), key, value).unwrap();
    }

    fn change(&self, id: Id, change: impl FnOnce(&mut Stored)) {
        let mut stored = self.stored(id);
        change(&mut stored);
        self.put(&keys::inode(id), &stored);
    }

    fn delete(&self, key: &[u8]) {
        assert!(self.store.borrow_mut().kv_mut().delete(key).unwrap());
    }

    fn named(&self, parent: Id, name: &str) -> Named {
        let key = keys::name(parent, name.as_bytes());
        keys::row(self.store.borrow().kv(), &key).unwrap().unwrap()
    }

    fn find(&self, parent: Id, name: &str) -> Id {
        self.named(parent, name).id
    }

    fn check(&self, repair: bool) -> (Report, Vec<check::Told>) {
        let mut told = Vec::new();
        // Small pages and windows, so that everything spans several.
        let options = Options { repair, window: 7, rows: 3, second_look: Duration::from_secs(1) };
        let report = finish(check::run(self, options, &mut |one| told.push(one.clone()))).unwrap();
        (report, told)
    }

    fn interfere(&self) {
        let act = self.meanwhile.borrow_mut().take();
        if let Some(mut act) = act {
            act(self);
            *self.meanwhile.borrow_mut() = Some(act);
        }
    }
}

impl Access for Lab {
    async fn ask(&self, op: Op) -> check::Result<Reply> {
        self.interfere();
        if let Op::Recut { id, epoch } = op {
            let inode = self.stored(id).inode;
            self.cut(id, epoch, inode.size, &inode.striping.unwrap());
            return Ok(Reply::Done {});
        }
        answer(self.op(0, op))
    }

    async fn change(&self, op: Op) -> check::Result<Reply> {
        answer(self.op(0, op))
    }

    async fn data(&self, server: u16, op: DataOp) -> check::Result<DataReply> {
        self.interfere();
        let mut objects = self.objects.borrow_mut();
        let of_server = objects.iter().filter(|((at, _), _)| *at == server).map(|(_, one)| *one);
        match op {
            DataOp::Objects { after, .. } => {
                let objects = List(of_server.filter(|one| one.id > after).take(4).collect());
                Ok(DataReply::Objects { objects })
            }
            DataOp::Look { ids } => {
                let objects = List(of_server.filter(|one| ids.0.contains(&one.id)).collect());
                Ok(DataReply::Objects { objects })
            }
            DataOp::Remove { objects: List(doomed) } => {
                for one in doomed {
                    if objects.get(&(server, one.id)).is_some_and(|has| has.epoch <= one.epoch) {
                        objects.remove(&(server, one.id));
                    }
                }
                Ok(DataReply::Done {})
            }
            other => panic!("{other:?}"),
        }
    }

    fn servers(&self) -> Vec<String> {
        (0..SERVERS).map(|at| format!("io{at}")).collect()
    }

    async fn sleep(&self, time: Duration) {
        *self.now.borrow_mut() += time.as_nanos() as u64;
    }
}

fn answer(reply: Reply) -> check::Result<Reply> {
    match reply {
        Reply::Error { code, reason } => {
            Err(Errno::because(code, reason.lossy().into_owned()).into())
        }
        other => Ok(other),
    }
}

/// Runs a future that never waits.
fn finish<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("nothing here waits"),
    }
}

/// Plants damage; it must be found as `class`, be repaired within a few rounds, and then be gone.
fn planted(class: Class, plant: impl FnOnce(&Lab)) -> Lab {
    let lab = Lab::filled();
    let (report, told) = lab.check(false);
    assert_eq!(report.findings, BTreeMap::new(), "before: {told:?}");
    plant(&lab);
    let (report, told) = lab.check(false);
    assert!(report.findings.contains_key(&class), "{class:?} was not found: {told:?}");
    if class.repair().is_empty() {
        return lab;
    }
    let mut repaired = false;
    for _ in 0..6 {
        let (report, told) = lab.check(true);
        repaired |= told.iter().any(|one| one.class == class && one.outcome == Outcome::Repaired);
        if report.findings.is_empty() {
            assert!(repaired, "{class:?} went without being repaired");
            replays_the_same(&lab);
            return lab;
        }
    }
    panic!("{class:?} is still there: {:?}", lab.check(false).1);
}

/// What was repaired is in the map, so that a restart finds it.
fn replays_the_same(lab: &Lab) {
    lab.store.borrow_mut().save_replies().unwrap();
    let kv = lab.store.borrow().kv().clone();
    *lab.store.borrow_mut() = Store::open(kv).unwrap();
    assert_eq!(lab.check(false).0.findings, BTreeMap::new());
}

#[test]
fn a_sound_file_system_has_no_findings() {
    let lab = Lab::filled();
    let (report, _) = lab.check(false);
    assert_eq!(report.findings, BTreeMap::new());
    assert_eq!((report.files, report.busy), (25, 0));
    assert!(report.objects > 20 && report.rows > 60);
}

#[test]
fn damaged_rows_are_found_and_removed() {
    planted(Class::DamagedRow, |lab| {
        let dir = lab.find(ROOT, "d1");
        let id = lab.find(dir, "f2");
        lab.store.borrow_mut().kv_mut().put(&keys::inode(id), b"\x01rubbish").unwrap();
    });
}

#[test]
fn a_name_without_a_file_is_found_and_removed() {
    let lab = planted(Class::DanglingName, |lab| {
        let dir = lab.find(ROOT, "d1");
        lab.delete(&keys::inode(lab.find(dir, "f2")));
    });
    let dir = lab.find(ROOT, "d1");
    let walk = Op::Walk { from: dir, names: List(vec!["f2".into()]) };
    assert!(matches!(lab.op(0, walk), Reply::Error { code: Errno::ENOENT, .. }));
}

#[test]
fn a_walk_over_a_dangling_name_fails_alone() {
    let lab = Lab::filled();
    let dir = lab.find(ROOT, "d1");
    lab.delete(&keys::inode(lab.find(dir, "f2")));
    for op in [
        Op::Walk { from: dir, names: List(vec!["f2".into()]) },
        Op::Unlink { parent: dir, name: "f2".into(), dir: false },
    ] {
        assert!(matches!(lab.op(0, op), Reply::Error { code: Errno::EIO, .. }));
    }
}

#[test]
fn a_name_that_no_listing_shows_is_listed_again() {
    planted(Class::Unlisted, |lab| {
        let dir = lab.find(ROOT, "d1");
        lab.delete(&keys::cookie(dir, lab.named(dir, "f2").cookie));
    });
}

#[test]
fn a_listed_name_that_is_none_is_removed() {
    planted(Class::StrayListing, |lab| {
        let dir = lab.find(ROOT, "d1");
        let listed = Listed { id: 5, kind: 8, name: "ghost".into() };
        lab.put(&keys::cookie(dir, 99), &listed);
    });
}

#[test]
fn an_entry_takes_the_type_of_its_file() {
    planted(Class::WrongKind, |lab| {
        let dir = lab.find(ROOT, "d1");
        let named = Named { kind: 1, ..lab.named(dir, "f2") };
        lab.put(&keys::name(dir, b"f2"), &named);
    });
}

#[test]
fn files_of_a_lost_directory_are_found_again() {
    let lab = planted(Class::LostDirectory, |lab| lab.delete(&keys::inode(lab.find(ROOT, "d2"))));
    let home = lab.find(ROOT, "lost+found");
    assert_eq!(lab.stored(home).inode.size, 5 * 32, "all five have a name");
}

#[test]
fn a_directory_takes_the_parent_that_names_it() {
    planted(Class::WrongParent, |lab| {
        let wrong = lab.find(ROOT, "d3");
        lab.change(lab.find(ROOT, "d1"), |stored| stored.inode.parent = wrong);
    });
}

#[test]
fn links_are_counted_and_put_right() {
    for wrong in [2, 7] {
        planted(Class::WrongLinks, |lab| {
            let id = lab.find(lab.find(ROOT, "d0"), "f0");
            lab.change(id, |stored| stored.inode.nlink = wrong);
        });
    }
    planted(Class::WrongLinks, |lab| lab.change(ROOT, |stored| stored.inode.nlink = 3));
    planted(Class::WrongLinks, |lab| {
        let id = lab.create(ROOT, "empty", mode::DIRECTORY | 0o755);
        lab.change(id, |stored| stored.inode.nlink = 9);
    });
}

#[test]
fn what_nothing_leads_to_gets_a_name_in_lost_and_found() {
    for name in ["f3", "sub"] {
        let lab = planted(Class::Unreachable, |lab| {
            let dir = lab.find(ROOT, "d3");
            if name == "sub" {
                let sub = lab.create(dir, name, mode::DIRECTORY | 0o755);
                lab.write(lab.create(sub, "below", mode::REGULAR | 0o600), 10);
            }
            let cookie = lab.named(dir, name).cookie;
            lab.delete(&keys::name(dir, name.as_bytes()));
            lab.delete(&keys::cookie(dir, cookie));
        });
        assert_eq!(lab.stored(lab.find(ROOT, "lost+found")).inode.size, 32);
    }
}

#[test]
fn directories_that_lead_to_each_other_are_brought_back() {
    planted(Class::Detached, |lab| {
        let (one, two) = (lab.find(ROOT, "d0"), lab.find(ROOT, "d1"));
        // d0 moves into d1, and d1 into d0.
        for (moved, name, to) in [(one, "d0", two), (two, "d1", one)] {
            let named = lab.named(ROOT, name);
            lab.delete(&keys::name(ROOT, name.as_bytes()));
            lab.delete(&keys::cookie(ROOT, named.cookie));
            lab.change(ROOT, |root| {
                (root.inode.size, root.inode.nlink) = (root.inode.size - 32, root.inode.nlink - 1)
            });
            let cookie = lab.stored(to).cookie_next;
            lab.put(&keys::name(to, name.as_bytes()), &Named { cookie, ..named.clone() });
            let listed = Listed { id: moved, kind: named.kind, name: name.into() };
            lab.put(&keys::cookie(to, cookie), &listed);
            lab.change(moved, |stored| stored.inode.parent = to);
            lab.change(to, |stored| {
                stored.cookie_next += 1;
                (stored.inode.size, stored.inode.nlink) =
                    (stored.inode.size + 32, stored.inode.nlink + 1);
            });
        }
    });
}

#[test]
fn entries_are_counted_and_put_right() {
    planted(Class::WrongEntries, |lab| {
        lab.change(lab.find(ROOT, "d1"), |stored| stored.inode.size = 320);
    });
    planted(Class::WrongEntries, |lab| {
        let id = lab.create(ROOT, "empty", mode::DIRECTORY | 0o755);
        lab.change(id, |stored| stored.inode.size = 32);
    });
}

#[test]
fn places_in_listings_are_not_given_twice() {
    planted(Class::WrongCookie, |lab| {
        lab.change(lab.find(ROOT, "d1"), |stored| stored.cookie_next = 4);
    });
}

#[test]
fn totals_are_counted_and_put_right() {
    planted(Class::WrongTotals, |lab| {
        let counters = &mut lab.store.borrow_mut().counters;
        counters.files += 3;
        counters.bytes = counters.bytes.wrapping_sub(70_000);
    });
}

#[test]
fn numbers_are_not_given_twice() {
    planted(Class::WrongNumber, |lab| lab.store.borrow_mut().counters.id_next = 9);
}

#[test]
fn a_forgotten_unlinked_file_is_reclaimed() {
    let lab = planted(Class::Forgotten, |lab| {
        let id = lab.create(ROOT, "gone", mode::REGULAR | 0o644);
        lab.write(id, 9000);
        let cookie = lab.named(ROOT, "gone").cookie;
        lab.delete(&keys::name(ROOT, b"gone"));
        lab.delete(&keys::cookie(ROOT, cookie));
        lab.change(ROOT, |root| root.inode.size -= 32);
        lab.change(id, |stored| stored.inode.nlink = 0);
    });
    assert_eq!(lab.store.borrow().counters.files, 25);
}

#[test]
fn rows_about_what_is_to_be_done_are_put_right() {
    let id = 7;
    let striping = || Striping {
        kind: 1,
        strip_bytes: 4096,
        params: List::default(),
        servers: List(vec![0, 1]),
    };
    planted(Class::WrongOrphan, |lab| {
        lab.store.borrow_mut().kv_mut().put(&keys::orphan(id), b"").unwrap();
    });
    planted(Class::StaleCut, |lab| {
        lab.put(&keys::cut(4000, 2), &CutRow { size: 0, striping: striping() });
    });
    planted(Class::WrongReclaim, |lab| lab.put(&keys::reclaim(id, 4), &striping()));
    planted(Class::StaleAppend, |lab| {
        let one = Reserved { offset: 0, end: 10, session: 77, seq: 1, done: false };
        lab.put(&keys::appends(id), &List(vec![one]));
    });
    planted(Class::WrongTail, |lab| lab.change(id, |stored| stored.tail = 1));
}

#[test]
fn parts_of_files_that_are_gone_are_removed() {
    planted(Class::StrayPart, |lab| {
        let key = [&keys::numbered(b'x', 4000)[..], b"user.a"].concat();
        lab.put(&key, &covey_wire::Payload::from(vec![1u8]));
    });
}

#[test]
fn impossible_layouts_and_unknown_rows_are_told() {
    planted(Class::BadStriping, |lab| {
        lab.change(7, |stored| stored.inode.striping = None);
    });
    planted(Class::BadStriping, |lab| {
        lab.change(7, |stored| {
            stored.inode.striping.as_mut().unwrap().servers.0[0] = 9;
        });
    });
    planted(Class::UnknownRow, |lab| {
        lab.store.borrow_mut().kv_mut().put(b"~what", b"?").unwrap();
    });
}

#[test]
fn objects_without_a_file_or_on_the_wrong_server_are_removed() {
    let lab = planted(Class::OrphanObject, |lab| {
        lab.objects.borrow_mut().insert((1, 900), Object { id: 900, epoch: 2, bytes: 5 });
    });
    assert!(!lab.objects.borrow().contains_key(&(1, 900)));
    planted(Class::StrayObject, |lab| {
        let id = lab.find(lab.find(ROOT, "d0"), "f0");
        lab.change(id, |stored| {
            let striping = stored.inode.striping.as_mut().unwrap();
            striping.servers = List(vec![striping.servers.0[0], striping.servers.0[1]]);
            stored.inode.epoch = 1;
        });
        let mut objects = lab.objects.borrow_mut();
        objects.iter_mut().filter(|((_, of), _)| *of == id).for_each(|(_, one)| one.epoch = 1);
        drop(objects);
        let striping = lab.stored(id).inode.striping.unwrap();
        let other = (0..SERVERS).find(|at| !striping.servers.0.contains(at)).unwrap();
        lab.objects.borrow_mut().insert((other, id), Object { id, epoch: 0, bytes: 5 });
    });
}

#[test]
fn objects_at_a_wrong_epoch_are_cut_or_followed() {
    planted(Class::OldObject, |lab| {
        let id = lab.find(lab.find(ROOT, "d0"), "f4");
        lab.change(id, |stored| stored.inode.epoch = 3);
    });
    planted(Class::AheadObject, |lab| {
        let id = lab.find(lab.find(ROOT, "d0"), "f4");
        for object in lab.objects.borrow_mut().values_mut().filter(|one| one.id == id) {
            object.epoch = 8;
        }
    });
}

#[test]
fn objects_of_a_wrong_length_are_told_and_put_right() {
    planted(Class::LongObject, |lab| {
        let mut objects = lab.objects.borrow_mut();
        objects.values_mut().next().unwrap().bytes += 100_000;
    });
    planted(Class::ShortObject, |lab| {
        let mut objects = lab.objects.borrow_mut();
        objects.values_mut().next().unwrap().bytes -= 1;
    });
    let lab = planted(Class::ShortObject, |lab| {
        lab.objects.borrow_mut().pop_first();
    });
    assert_eq!(lab.check(false).0.found(), 0);
}

#[test]
fn a_note_is_no_finding_that_counts() {
    let lab = Lab::filled();
    lab.objects.borrow_mut().values_mut().next().unwrap().bytes += 100_000;
    let (report, told) = lab.check(false);
    assert_eq!((told.len(), report.found(), report.left()), (1, 0, 0));
}

#[test]
fn nothing_is_found_while_everybody_works() {
    let lab = Lab::filled();
    let mut turn = 0u64;
    let busy: Vec<Id> = (0..4).map(|dir| lab.find(ROOT, &format!("d{dir}"))).collect();
    *lab.meanwhile.borrow_mut() = Some(Box::new(move |lab: &Lab| {
        turn += 1;
        let dir = busy[(turn % 4) as usize];
        let name = format!("new{turn}");
        match turn % 7 {
            0 | 1 => {
                let id = lab.create(dir, &name, mode::REGULAR | 0o644);
                lab.write(id, 3000 * turn);
            }
            2 => drop(lab.create(dir, &name, mode::DIRECTORY | 0o755)),
            3 => {
                let (from, to) = (busy[0], busy[(turn % 3 + 1) as usize]);
                let (name, to_name): (Name, Name) = ("f1".into(), "f1".into());
                lab.op(
                    0,
                    Op::Rename {
                        parent: from,
                        name: name.clone(),
                        to,
                        to_name: to_name.clone(),
                        flags: 0,
                    },
                );
                lab.op(0, Op::Rename { parent: to, name, to: from, to_name, flags: 0 });
            }
            4 => {
                let file = lab.named(busy[1], "f3").id;
                let link = Op::Link { id: file, parent: dir, name: name.as_str().into() };
                lab.op(0, link);
            }
            5 => {
                let name = format!("new{}", turn - 1);
                let parent = busy[((turn - 1) % 4) as usize];
                lab.op(0, Op::Unlink { parent, name: name.as_str().into(), dir: false });
            }
            _ => {
                let file = lab.named(busy[2], "f4").id;
                let size = lab.stored(file).inode.size / 2;
                let set = Op::Setattr {
                    id: file,
                    mask: crate::ops::set::SIZE,
                    mode: 0,
                    uid: 0,
                    gid: 0,
                    size,
                    atime: 0,
                    mtime: 0,
                };
                lab.op(0, set);
            }
        }
    }));
    let (report, told) = lab.check(false);
    assert_eq!(report.findings, BTreeMap::new(), "{told:?}");
    *lab.meanwhile.borrow_mut() = None;
    let (report, told) = lab.check(false);
    assert_eq!((report.findings, report.busy), (BTreeMap::new(), 0), "{told:?}");
}
