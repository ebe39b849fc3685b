//! What users and groups own, and how much they may.

use crate::lab::*;
use covey_ninep::tree::Errno;
use covey_stripe::meta::quota::{GROUP, NO_LIMIT, PROJECT, USER};
use covey_stripe::meta::{Applied, Record, mode, records};
use covey_stripe::ops::{Id, InlinePiece, Inode, Op, Quota, ROOT, Reply, StripingHint, set};
use covey_wire::Rng;
use covey_wire::{List, Name};
use std::collections::BTreeMap;

/// Files and bytes by kind and number; those who own nothing are left out.
type Owned = BTreeMap<(u8, u32), (u64, u64)>;

fn quotas(lab: &mut Lab) -> (Vec<Quota>, bool) {
    let (mut all, mut from) = (Vec::new(), (0, 0));
    loop {
        let (kind, id) = from;
        match lab.reply(0, Op::Quotas { kind, id, count_max: 2 }) {
            Reply::Quotas { quotas, is_whole } => {
                let Some(last) = quotas.0.last().copied() else { return (all, is_whole) };
                all.extend(quotas.0);
                from = (last.kind, last.id + 1);
            }
            other => panic!("{other:?}"),
        }
    }
}

pub fn owned(lab: &mut Lab) -> Owned {
    let caller = std::mem::replace(&mut lab.caller, root());
    let (quotas, is_whole) = quotas(lab);
    lab.caller = caller;
    assert!(is_whole);
    let of = |quota: Quota| ((quota.kind, quota.id), (quota.files, quota.bytes));
    quotas.into_iter().map(of).filter(|(_, owned)| *owned != (0, 0)).collect()
}

/// What a scan of all inodes finds.
pub fn scanned(lab: &Lab) -> Owned {
    let mut owned = Owned::new();
    for (key, value) in dump(lab.store.kv()) {
        for record in records(&key, &value) {
            let Record::Inode { inode, project, .. } = record else { continue };
            let bytes = if inode.mode & mode::TYPE == mode::REGULAR { inode.size } else { 0 };
            let project = (project != 0).then_some((PROJECT, project));
            for who in [(USER, inode.uid), (GROUP, inode.gid)].into_iter().chain(project) {
                let (files, sum) = owned.entry(who).or_default();
                (*files, *sum) = (*files + 1, sum.wrapping_add(bytes));
            }
        }
    }
    owned
}

pub fn limit(lab: &mut Lab, (kind, id): (u8, u32), files_max: u64, bytes_max: u64) -> u32 {
    let caller = std::mem::replace(&mut lab.caller, root());
    let quota = Quota { kind, id, bytes_max, files_max, bytes: 7, files: 7 };
    let code = lab.code(0, Op::SetQuota { quota });
    lab.caller = caller;
    code
}

pub fn count_all(lab: &mut Lab) {
    while lab.store.has_owners_to_count() {
        assert_eq!(lab.reply(0, Op::CountOwned { rows_max: 3 }), Reply::Done {});
    }
}

/// A lab in which Alice may own so much, beside a directory that is for all.
fn limited(files_max: u64, bytes_max: u64) -> Lab {
    let mut lab = Lab::default();
    lab.reply(0, chmod(ROOT, 0o777));
    assert_eq!(limit(&mut lab, (USER, ALICE), files_max, bytes_max), 0);
    count_all(&mut lab);
    lab.caller = user(ALICE, &[ALICE, 50]);
    lab
}

#[test]
fn a_user_gets_no_file_beyond_the_quota_and_one_again_when_one_is_gone() {
    let mut lab = limited(3, NO_LIMIT);
    lab.create(ROOT, "a", mode::REGULAR | 0o644);
    lab.create(ROOT, "b", mode::DIRECTORY | 0o755);
    lab.create(ROOT, "c", mode::SYMLINK);
    for kind in [mode::REGULAR, mode::DIRECTORY, mode::SYMLINK, mode::FIFO] {
        assert_eq!(lab.code(0, create(ROOT, "d", kind | 0o755)), Errno::EDQUOT);
    }
    let session = lab.hello(0, &[]).0;
    let tmpfile = Op::Tmpfile { parent: ROOT, mode: 0o600, gid: u32::MAX, access: 6 };
    assert_eq!(lab.code(session, tmpfile.clone()), Errno::EDQUOT);
    let (caller, bob) = (lab.caller.clone(), user(BOB, &[BOB]));
    lab.caller = bob;
    lab.create(ROOT, "bob", mode::REGULAR | 0o644);
    lab.caller = caller;
    assert_eq!(lab.rmdir(ROOT, "b"), 0);
    assert_eq!(lab.code(session, tmpfile.clone()), 0);
    assert_eq!(lab.code(session, tmpfile), Errno::EDQUOT, "a file without a name is owned, too");
    // Root may always, also on their behalf.
    lab.caller = root();
    let id = lab.create(ROOT, "given", mode::REGULAR | 0o644).id;
    let chown = Attributes { uid: ALICE, gid: ALICE, ..attributes(id, set::UID | set::GID) };
    assert_eq!(lab.code(0, chown.into()), 0);
    assert_eq!(owned(&mut lab)[&(USER, ALICE)], (4, 0));
    assert_eq!(owned(&mut lab), scanned(&lab));
}

#[test]
fn a_file_does_not_grow_beyond_the_quota_in_any_way_and_is_as_it_was_then() {
    let mut lab = limited(NO_LIMIT, 100_000);
    let dir = lab.mkdir(ROOT, "d").id;
    let hint = StripingHint::progressive(64 << 10, 0);
    node(lab.reply(0, Op::SetStriping { id: dir, hint }));
    let session = lab.hello(0, &[]).0;
    let id = lab.create(dir, "f", mode::REGULAR | 0o644).id;
    assert_eq!(lab.code(0, Op::Extend { id, epoch: 0, end: 90_000, hole: false }), 0);
    let before = lab.stat(id);
    let piece = InlinePiece { offset: 0, bytes: 3 };
    let data = || covey_wire::Payload::from(b"abc".to_vec());
    let growths: [(&str, Op); 4] = [
        ("extend", Op::Extend { id, epoch: 0, end: 100_001, hole: false }),
        ("truncate", truncate(id, 100_001)),
        ("reserve", Op::Reserve { id, length: 10_001 }),
        (
            "write_inline",
            Op::WriteInline {
                id,
                epoch: 0,
                end: 100_001,
                hole: true,
                pieces: List(vec![piece]),
                data: data(),
            },
        ),
    ];
    for (what, op) in growths {
        assert_eq!(lab.code(session, op), Errno::EDQUOT, "{what}");
        assert_eq!(lab.stat(id), before, "{what}");
    }
    assert_eq!(lab.code(0, Op::Extend { id, epoch: 0, end: 99_998, hole: false }), 0);
    let small = lab.create(dir, "small", mode::REGULAR | 0o644).id;
    assert_eq!(lab.code(0, Op::AppendInline { id: small, data: data() }), Errno::EDQUOT);
    let create_write = |lab: &mut Lab, name: &str, bytes: usize| {
        lab.code(
            session,
            Op::CreateWrite {
                parent: dir,
                name: Name::from(name),
                mode: 0o644,
                gid: u32::MAX,
                exclusive: true,
                access: 6,
                data: vec![1; bytes].into(),
            },
        )
    };
    assert_eq!(create_write(&mut lab, "three", 3), Errno::EDQUOT);
    assert!(lab.find(dir, "three").is_err(), "nothing is left of it");
    assert_eq!(create_write(&mut lab, "two", 2), 0);
    assert_eq!(owned(&mut lab)[&(USER, ALICE)], (4, 100_000));
    // What is cut or removed can be had again.
    lab.truncate(id, 10);
    assert_eq!(lab.unlink(dir, "two"), 0);
    assert_eq!(lab.code(0, Op::AppendInline { id: small, data: data() }), 0);
    assert_eq!(owned(&mut lab), scanned(&lab));
}

#[test]
fn a_group_has_a_quota_of_its_own_and_files_come_into_it_by_chgrp() {
    let mut lab = limited(NO_LIMIT, NO_LIMIT);
    assert_eq!(limit(&mut lab, (GROUP, 50), 1, 1000), 0);
    let (a, b) = (lab.file("a").id, lab.file("b").id);
    assert_eq!(lab.code(0, Op::Extend { id: a, epoch: 0, end: 1001, hole: false }), 0);
    let chgrp = |id: Id| Op::from(Attributes { gid: 50, ..attributes(id, set::GID) });
    assert_eq!(lab.code(0, chgrp(a)), Errno::EDQUOT, "it is too large");
    assert_eq!(lab.code(0, chgrp(b)), 0);
    assert_eq!(lab.code(0, chgrp(b)), 0, "it is in the group already");
    lab.truncate(a, 10);
    assert_eq!(lab.code(0, chgrp(a)), Errno::EDQUOT, "it is one too many");
    assert_eq!(lab.code(0, Op::Extend { id: b, epoch: 0, end: 1001, hole: false }), Errno::EDQUOT);
    assert_eq!(owned(&mut lab)[&(GROUP, 50)], (1, 0));
}

#[test]
fn a_change_that_is_refused_moves_no_count() {
    let mut lab = limited(NO_LIMIT, 1000);
    let id = lab.file("f").id;
    let before = owned(&mut lab);
    let set = Attributes { gid: 50, size: 5000, ..attributes(id, set::GID | set::SIZE) };
    assert_eq!(lab.code(0, set.into()), Errno::EDQUOT);
    assert_eq!(owned(&mut lab), before);
    assert_eq!(owned(&mut lab), scanned(&lab));
}

#[test]
fn only_the_owner_of_the_root_directory_sets_quotas_and_others_see_their_own() {
    let mut lab = limited(10, NO_LIMIT);
    assert_eq!(limit(&mut lab, (GROUP, 50), 20, NO_LIMIT), 0);
    assert_eq!(limit(&mut lab, (USER, BOB), 20, NO_LIMIT), 0);
    let quota = Quota { id: ALICE, bytes_max: NO_LIMIT, files_max: NO_LIMIT, ..Quota::default() };
    assert_eq!(lab.code(0, Op::SetQuota { quota }), Errno::EPERM);
    assert_eq!(lab.code(0, Op::Recount {}), Errno::EPERM);
    let seen: Vec<_> = quotas(&mut lab).0.iter().map(|quota| (quota.kind, quota.id)).collect();
    assert_eq!(seen, [(USER, ALICE), (GROUP, 50)]);
    lab.caller = root();
    assert_eq!(lab.code(0, Op::SetQuota { quota: Quota { kind: 2, ..quota } }), Errno::EINVAL);
    // Without limits and without files there is nothing to show of Bob.
    assert_eq!(lab.code(0, Op::SetQuota { quota: Quota { id: BOB, ..quota } }), 0);
    lab.save();
    assert!(quotas(&mut lab).0.iter().all(|quota| (quota.kind, quota.id) != (USER, BOB)));
}

#[test]
fn files_from_before_the_first_quota_are_counted_whatever_happens_meanwhile() {
    for seed in 0..200 {
        Storm::of(seed).blow();
    }
}

/// Operations of two users and root on a few files, some of them there before the first limit, with crashes.
struct Storm {
    lab: Lab,
    rng: Rng,
    files: Vec<Id>,
    names: Vec<String>,
    session: u64,
}

impl Storm {
    fn of(seed: u64) -> Storm {
        let mut lab = Lab::default();
        lab.reply(0, chmod(ROOT, 0o777));
        let session = lab.hello(0, &[]).0;
        Storm { lab, rng: Rng::new(seed), files: Vec::new(), names: Vec::new(), session }
    }

    fn blow(&mut self) {
        let begin = self.rng.below(60);
        for step in 0..120 {
            if step == begin {
                assert_eq!(limit(&mut self.lab, (USER, ALICE), 12, 40_000), 0);
            }
            self.step(step);
            if self.lab.store.has_owners_to_count() && self.rng.chance(300) {
                self.lab.reply(0, Op::CountOwned { rows_max: 1 + self.rng.below(4) as u32 });
            }
            if self.rng.chance(30) {
                let [crashed, alive] = self.lab.replayed();
                assert_eq!(crashed, alive);
                self.lab.crash();
            }
            if self.rng.chance(30) {
                self.lab.save();
            }
            if self.rng.chance(10) {
                self.lab.caller = root();
                self.lab.reply(0, Op::Recount {});
            }
            if step > begin && !self.lab.store.has_owners_to_count() {
                assert_eq!(owned(&mut self.lab), scanned(&self.lab), "after step {step}");
            }
        }
        count_all(&mut self.lab);
        assert_eq!(owned(&mut self.lab), scanned(&self.lab));
        self.lab.crash();
        assert_eq!(owned(&mut self.lab), scanned(&self.lab));
    }

    fn step(&mut self, step: u64) {
        self.lab.caller = match self.rng.below(4) {
            0 => root(),
            1 => user(BOB, &[BOB, 50]),
            _ => user(ALICE, &[ALICE, 50]),
        };
        if self.files.is_empty() || self.rng.chance(250) {
            return self.make(step);
        }
        let at = self.rng.index(self.files.len());
        let (id, end) = (self.files[at], self.rng.below(20_000));
        let op = match self.rng.below(8) {
            0 => truncate(id, end),
            1 => Op::Extend { id, epoch: self.epoch(id), end, hole: false },
            2 => Attributes { uid: BOB, gid: 50, ..attributes(id, set::UID | set::GID) }.into(),
            3 => Attributes { gid: 50, ..attributes(id, set::GID) }.into(),
            6 => {
                Attributes { gid: 50, size: end * 4, ..attributes(id, set::GID | set::SIZE) }.into()
            }
            4 => return self.append(id, end),
            5 => Op::Link { id, parent: ROOT, name: format!("link{step}").as_str().into() },
            _ => {
                let name = self.names.swap_remove(at);
                self.files.swap_remove(at);
                self.lab.caller = root();
                return assert_eq!(self.lab.unlink(ROOT, &name), 0);
            }
        };
        self.lab.send(self.session, 0, op);
    }

    fn make(&mut self, step: u64) {
        let name = format!("f{step}");
        if let Reply::Created { inode, .. } =
            self.lab.reply(0, create(ROOT, &name, mode::REGULAR | 0o666))
        {
            let Inode { id, .. } = inode;
            self.files.push(id);
            self.names.push(name);
        }
    }

    fn append(&mut self, id: Id, length: u64) {
        let reserved = self.lab.send(self.session, 0, Op::Reserve { id, length });
        let Applied::Reply(Reply::Offset { offset, .. }) = reserved else { return };
        self.lab.send(self.session, 0, Op::Commit { id, offset, length });
    }

    fn epoch(&mut self, id: Id) -> u32 {
        self.lab.stat(id).epoch
    }
}
