//! Formatting, opening, and the everyday operations on names and attributes.

use crate::lab::*;
use covey_stripe::kv::{Kv, MemoryKv};
use covey_stripe::meta::{LINKS_MAX, Store, Work, mode};
use covey_stripe::ops::*;
use covey_wire::{List, Name};

#[test]
fn a_map_that_was_never_formatted_does_not_open() {
    let error = Store::open(MemoryKv::default()).err().unwrap();
    assert_eq!(error.code, Errno::ENODATA);
}

#[test]
fn a_store_is_formatted_once() {
    let mut kv = formatted();
    let again = Store::format(&mut kv, "other", &servers(), hint(), 1, (0, 0));
    assert_eq!(again.unwrap_err().code, Errno::EEXIST);
    assert_eq!(dump(&kv), dump(&formatted()));
}

#[test]
fn a_newer_format_is_refused_with_both_numbers() {
    let mut kv = formatted();
    let mut row = kv.get(b"ssuper").unwrap().unwrap();
    let format = 1 + 2 + "covey metadata".len();
    assert_eq!(row[format], 4);
    row[format] = 9;
    kv.put(b"ssuper", &row).unwrap();
    let error = Store::open(kv).err().unwrap();
    assert_eq!(error.code, Errno::EOPNOTSUPP);
    assert!(
        error.reason.contains("format 9") && error.reason.contains("newer than this one's 5"),
        "{error}"
    );
}

#[test]
fn a_hint_that_no_layout_can_follow_is_refused() {
    for hint in [
        StripingHint { kind: 9, ..hint() },
        StripingHint { strip_bytes: 0, ..hint() },
        StripingHint { server_count: 5, ..hint() },
    ] {
        let mut kv = MemoryKv::default();
        let result = Store::format(&mut kv, "flock", &servers(), hint, 1, (0, 0));
        assert_eq!(result.unwrap_err().code, Errno::EINVAL);
    }
}

#[test]
fn starts_are_counted() {
    let store = Store::open(formatted()).unwrap();
    assert_eq!(store.boot(), 1);
    assert_eq!(Store::open(store.into_kv()).unwrap().boot(), 2);
}

#[test]
fn damage_fails_the_operations_that_meet_it_and_no_others() {
    let mut lab = Lab::default();
    let id = lab.file("a").id;
    let other = lab.file("b").id;
    let key = [&b"i"[..], &[0, 0, 0, 0, 0, 0, 0, id as u8]].concat();
    lab.store.kv_mut().put(&key, b"\x01garbage").unwrap();
    let unlink = Op::Unlink { parent: ROOT, name: "a".into(), dir: false };
    let before = dump(lab.store.kv());
    for op in [Op::Getattr { id }, chmod(id, 0o600), unlink] {
        assert_eq!(lab.code(0, op), Errno::EIO);
    }
    assert_eq!(dump(lab.store.kv()), before);
    lab.extend(other, 10);
}

#[test]
fn the_cluster_tells_its_name_and_servers() {
    let mut lab = Lab::default();
    let names = servers().into_iter().map(Name::from).collect();
    let expected = Reply::Cluster { id: Name::from("flock"), servers: List(names) };
    assert_eq!(lab.reply(0, Op::Cluster {}), expected);
}

#[test]
fn a_new_file_has_its_makers_owner_and_a_layout_that_begins_at_its_own_server() {
    let mut lab = Lab { caller: user(ALICE, &[50]), ..Lab::default() };
    lab.caller = root();
    assert_eq!(lab.code(0, chmod(ROOT, 0o777)), 0);
    lab.caller = user(ALICE, &[50]);
    let file = lab.create(ROOT, "a", mode::REGULAR | 0o640);
    assert_eq!((file.uid, file.gid, file.mode, file.nlink), (ALICE, 50, 0o100640, 1));
    assert_eq!((file.size, file.epoch, file.sparse), (0, 0, false));
    let first = (file.id % 4) as u16;
    let expected: Vec<u16> = (0..4).map(|index| (first + index) % 4).collect();
    assert_eq!(file.striping.unwrap().servers.0, expected);
    assert_eq!(lab.totals(), (2, 0));
}

#[test]
fn directories_inherit_the_hint_and_only_regular_files_have_a_layout() {
    let mut lab = Lab::default();
    let small = StripingHint::simple_stripe(4096, 2);
    lab.reply(0, Op::SetStriping { id: ROOT, hint: small.clone() });
    let dir = lab.mkdir(ROOT, "d");
    assert_eq!(dir.hint, Some(small));
    let file = lab.create(dir.id, "f", mode::REGULAR | 0o600);
    let striping = file.striping.unwrap();
    assert_eq!((striping.strip_bytes, striping.servers.0.len()), (4096, 2));
    let link = lab.create(dir.id, "l", mode::SYMLINK);
    assert_eq!((link.striping, link.size, link.mode), (None, 9, mode::SYMLINK | 0o777));
    assert_eq!(link.target, Name::from("elsewhere"));
}

#[test]
fn a_walk_goes_down_and_up_and_stops_where_a_name_is_missing() {
    let mut lab = Lab::default();
    let a = lab.mkdir(ROOT, "a");
    let b = lab.mkdir(a.id, "b");
    let mut walk = |from, path: &str| {
        let names = path.split('/').map(Name::from).collect();
        match lab.reply(0, Op::Walk { from, names: List(names) }) {
            Reply::Nodes { inodes } => Ok(inodes.0.iter().map(|inode| inode.id).collect()),
            other => Err(code(&other)),
        }
    };
    assert_eq!(walk(ROOT, "a/b/../b"), Ok(vec![a.id, b.id, a.id, b.id]));
    assert_eq!(walk(ROOT, ".."), Ok(vec![ROOT]));
    assert_eq!(walk(ROOT, "a/c/d"), Ok(vec![a.id]));
    assert_eq!(walk(ROOT, "c"), Err(Errno::ENOENT));
    assert_eq!(walk(999, "c"), Err(Errno::ESTALE));
}

#[test]
fn a_walk_does_not_go_through_files_or_symbolic_links() {
    let mut lab = Lab::default();
    let file = lab.file("f").id;
    let link = lab.create(ROOT, "l", mode::SYMLINK).id;
    assert_eq!(lab.find(file, "x"), Err(Errno::ENOTDIR));
    assert_eq!(lab.find(link, "x"), Err(Errno::ENOTDIR));
    assert_eq!(lab.find(ROOT, "l").unwrap().id, link);
}

#[test]
fn what_cannot_be_a_name_is_refused() {
    let mut lab = Lab::default();
    let long = "x".repeat(256);
    for (name, code) in [
        ("", Errno::EINVAL),
        ("a/b", Errno::EINVAL),
        ("a\0b", Errno::EINVAL),
        (".", Errno::EEXIST),
        ("..", Errno::EEXIST),
        (long.as_str(), Errno::ENAMETOOLONG),
    ] {
        assert_eq!(lab.code(0, create(ROOT, name, mode::DIRECTORY)), code, "{name:?}");
    }
    assert_eq!(lab.code(0, create(ROOT, &long[1..], mode::DIRECTORY)), 0);
    assert_eq!(lab.rmdir(ROOT, "."), Errno::EINVAL);
    assert_eq!(lab.rmdir(ROOT, ".."), Errno::ENOTEMPTY);
    assert_eq!(lab.unlink(ROOT, ".."), Errno::EISDIR);
    assert_eq!(lab.rename(ROOT, ".", ROOT, "x", 0), Errno::EBUSY);
}

#[test]
fn targets_of_symbolic_links_are_bounded() {
    let mut lab = Lab::default();
    let mut with_target = |name: &str, length: usize| {
        let Op::Create { parent, name, mode, gid, rdev, exclusive, open, access, .. } =
            create(ROOT, name, mode::SYMLINK)
        else {
            unreachable!()
        };
        let target = Name::from("t".repeat(length));
        lab.code(0, Op::Create { parent, name, mode, gid, rdev, target, exclusive, open, access })
    };
    assert_eq!(with_target("empty", 0), Errno::ENOENT);
    assert_eq!(with_target("long", 4096), Errno::ENAMETOOLONG);
    assert_eq!(with_target("fits", 4095), 0);
}

#[test]
fn an_existing_name_is_opened_only_when_it_is_a_regular_file_and_may_be() {
    let mut lab = Lab::default();
    let file = lab.file("f");
    lab.mkdir(ROOT, "d");
    lab.create(ROOT, "l", mode::SYMLINK);
    assert_eq!(lab.code(0, create_open(ROOT, "f", true)), Errno::EEXIST);
    assert_eq!(lab.code(0, create_open(ROOT, "d", false)), Errno::EISDIR);
    assert_eq!(lab.code(0, create_open(ROOT, "l", false)), Errno::ELOOP);
    let found = lab.reply(0, create_open(ROOT, "f", false));
    assert_eq!(found, Reply::Created { inode: file, created: false });
    lab.caller = user(BOB, &[60]);
    assert_eq!(lab.code(0, create_open(ROOT, "f", false)), Errno::EACCES);
}

#[test]
fn a_directory_counts_its_entries_and_its_directories() {
    let mut lab = Lab::default();
    let before = lab.stat(ROOT);
    lab.mkdir(ROOT, "d");
    lab.file("f");
    let after = lab.stat(ROOT);
    assert_eq!((after.nlink, after.size), (3, 64));
    assert!(after.mtime > before.mtime && after.ctime > before.ctime);
    assert!(after.version > before.version);
    lab.rmdir(ROOT, "d");
    lab.unlink(ROOT, "f");
    assert_eq!((lab.stat(ROOT).nlink, lab.stat(ROOT).size), (2, 0));
}

#[test]
fn rmdir_and_unlink_mind_the_type_and_what_is_inside() {
    let mut lab = Lab::default();
    let dir = lab.mkdir(ROOT, "d").id;
    lab.create(dir, "f", mode::REGULAR);
    assert_eq!(lab.unlink(ROOT, "d"), Errno::EISDIR);
    assert_eq!(lab.rmdir(dir, "f"), Errno::ENOTDIR);
    assert_eq!(lab.rmdir(ROOT, "d"), Errno::ENOTEMPTY);
    assert_eq!(lab.unlink(dir, "f"), 0);
    assert_eq!(lab.rmdir(ROOT, "d"), 0);
    assert_eq!(lab.rmdir(ROOT, "d"), Errno::ENOENT);
    assert_eq!(lab.totals(), (1, 0));
}

#[test]
fn a_removed_directory_that_is_open_takes_no_new_names() {
    let mut lab = Lab::default();
    let (session, _) = lab.hello(0, &[]);
    let dir = lab.mkdir(ROOT, "d").id;
    lab.file("f");
    lab.reply(session, Op::Open { id: dir, access: 4 });
    assert_eq!(lab.rmdir(ROOT, "d"), 0);
    assert_eq!(lab.stat(dir).nlink, 0);
    assert_eq!(lab.code(0, create(dir, "x", mode::REGULAR)), Errno::ENOENT);
    assert_eq!(lab.rename(ROOT, "f", dir, "f", 0), Errno::ENOENT);
    lab.reply(session, Op::Release { id: dir });
    assert_eq!(lab.code(0, Op::Getattr { id: dir }), Errno::ESTALE);
}

#[test]
fn hard_links_share_one_inode() {
    let mut lab = Lab::default();
    let file = lab.file("a").id;
    let dir = lab.mkdir(ROOT, "d").id;
    let link = |id, parent, name: &str| Op::Link { id, parent, name: Name::from(name) };
    assert_eq!(node(lab.reply(0, link(file, dir, "b"))).nlink, 2);
    assert_eq!(lab.find(dir, "b").unwrap().id, file);
    assert_eq!(lab.code(0, link(file, dir, "b")), Errno::EEXIST);
    assert_eq!(lab.code(0, link(dir, ROOT, "e")), Errno::EPERM);
    assert_eq!(lab.unlink(ROOT, "a"), 0);
    assert_eq!(lab.stat(file).nlink, 1);
}

#[test]
fn a_file_has_a_bounded_number_of_names() {
    let mut lab = Lab::default();
    let file = lab.file("a").id;
    for count in 1..LINKS_MAX {
        let name = Name::from(count.to_string());
        assert_eq!(lab.code(0, Op::Link { id: file, parent: ROOT, name }), 0);
    }
    let name = Name::from("one too many");
    assert_eq!(lab.code(0, Op::Link { id: file, parent: ROOT, name }), Errno::EMLINK);
    assert_eq!(lab.stat(file).nlink, LINKS_MAX);
}

#[test]
fn the_ids_that_exist_are_told_apart() {
    let mut lab = Lab::default();
    let file = lab.file("a").id;
    let ids = List(vec![file, 77, ROOT]);
    assert_eq!(lab.reply(0, Op::Exist { ids }), Reply::Ids { ids: List(vec![file, ROOT]) });
}

#[test]
fn ids_are_not_used_again() {
    let mut lab = Lab::default();
    let first = lab.file("a").id;
    lab.unlink(ROOT, "a");
    lab.save();
    lab.crash();
    assert!(lab.file("a").id > first);
}

#[test]
fn a_removed_file_leaves_its_objects_to_be_removed_until_that_is_reported() {
    let mut lab = Lab::default();
    let file = lab.file("a");
    lab.extend(file.id, 1000);
    assert_eq!(lab.totals(), (2, 1000));
    assert_eq!(lab.unlink(ROOT, "a"), 0);
    assert_eq!(lab.totals(), (1, 0));
    let (id, striping) = (file.id, file.striping.unwrap());
    assert_eq!(lab.work, [Work::Remove { id, epoch: 0, striping: striping.clone() }]);

    lab.crash();
    let pending = lab.store.pending_reclaims((0, 0), 10).unwrap();
    assert_eq!((pending.len(), pending[0].id, &pending[0].striping), (1, id, &striping));
    assert!(lab.store.pending_reclaims((id, 0), 10).unwrap().is_empty());
    lab.reply(0, Op::Reclaimed { id, epoch: 0 });
    assert!(lab.store.pending_reclaims((0, 0), 10).unwrap().is_empty());
}

#[test]
fn a_server_that_was_added_has_lost_nothing_before_it_is_met() {
    let mut lab = Lab::default();
    let stores = |lab: &mut Lab| match lab.reply(0, Op::Stores {}) {
        Reply::Stores { stores } => stores.0.into_iter().map(|state| state.known).collect(),
        other => panic!("{other:?}"),
    };
    let of = |lab: &Lab, server| {
        (lab.store.store_of(server).unwrap(), lab.store.is_unused(server).unwrap())
    };
    let disk = Name::from("0123");
    lab.reply(0, Op::KnowStore { server: 0, store: disk.clone() });
    assert_eq!(lab.store.adopt_servers(&servers()).unwrap(), 0);
    let more = [servers(), vec!["io4".into(), "io5".into()]].concat();
    assert_eq!(lab.store.adopt_servers(&more).unwrap(), 2);
    assert_eq!(lab.store.adopt_servers(&more).unwrap(), 0);
    lab.save();
    lab.crash();
    assert_eq!(of(&lab, 0), (Some(disk.clone()), false));
    assert_eq!(of(&lab, 3), (None, false), "files may have bytes there");
    assert_eq!((of(&lab, 4), of(&lab, 5)), ((None, true), (None, true)));
    let known: Vec<Name> = stores(&mut lab);
    assert_eq!(known, [vec![disk.clone()], vec![Name::EMPTY; 5]].concat());
    // Once it is met it has something to lose.
    lab.reply(0, Op::KnowStore { server: 4, store: disk.clone() });
    lab.reply(0, Op::KnowStore { server: 5, store: Name::EMPTY });
    assert_eq!((of(&lab, 4), of(&lab, 5)), ((Some(disk), false), (None, false)));
}

#[test]
fn metadata_that_came_back_from_a_copy_gives_no_number_again_and_cuts_before_it_grows() {
    let mut lab = Lab::default();
    let old = lab.file("f").id;
    lab.extend(old, 100);
    lab.reply(0, Op::Restored {});
    let new = lab.file("g").id;
    assert!(new - old > 1 << 32, "{old} and {new}");
    lab.truncate(old, 200);
    let pending = lab.store.pending_cuts((0, 0), 10).unwrap();
    let cuts: Vec<_> = pending.iter().map(|cut| (cut.id, cut.size)).collect();
    assert_eq!(cuts, [(old, 200)], "the I/O servers may hold more than the copy knows");
    let [again, living] = lab.replayed();
    assert_eq!(again, living);
}
