//! Extended attributes and files without a name.

use crate::lab::*;
use covey_stripe::meta::{
    Applied, Work, XATTR_FILE_BYTES_MAX, XATTR_LIST_BYTES_MAX, XATTR_VALUE_BYTES_MAX, mode,
};
use covey_stripe::ops::*;
use covey_wire::{Name, Payload};

fn set(id: Id, name: &str, value: &[u8], flags: u32) -> Op {
    Op::Setxattr { id, name: name.into(), value: value.to_vec().into(), flags }
}

fn get(lab: &mut Lab, id: Id, name: &str) -> Result<Vec<u8>, u32> {
    match lab.reply(0, Op::Getxattr { id, name: name.into() }) {
        Reply::Xattr { value } => Ok(value.into_bytes().to_vec()),
        other => Err(code(&other)),
    }
}

fn xattr_rows(lab: &Lab) -> usize {
    dump(lab.store.kv()).iter().filter(|(key, _)| key.starts_with(b"x")).count()
}

#[test]
fn an_attribute_is_set_replaced_listed_and_removed() {
    let mut lab = Lab::default();
    let id = lab.file("f").id;
    let before = lab.stat(id);
    assert!(!before.has_xattrs);
    assert_eq!(get(&mut lab, id, "user.a"), Err(Errno::ENODATA));
    assert_eq!(lab.code(0, set(id, "user.a", b"", xattr::REPLACE)), Errno::ENODATA);
    assert_eq!(lab.code(0, set(id, "user.a", b"one", xattr::CREATE)), 0);
    assert_eq!(lab.code(0, set(id, "user.a", b"", xattr::CREATE)), Errno::EEXIST);
    assert_eq!(lab.code(0, set(id, "user.b", b"", 0)), 0);
    assert_eq!(lab.code(0, set(id, "user.a", b"two", xattr::REPLACE)), 0);
    assert_eq!(get(&mut lab, id, "user.a"), Ok(b"two".to_vec()));
    assert_eq!(get(&mut lab, id, "user.b"), Ok(b"".to_vec()));
    assert_eq!(lab.xattr_names(id), ["user.a", "user.b"]);
    let after = lab.stat(id);
    assert!(after.has_xattrs);
    assert!(after.ctime > before.ctime && after.version > before.version);
    assert_eq!(after.mtime, before.mtime);
    lab.crash();
    assert_eq!(lab.code(0, Op::Removexattr { id, name: "user.a".into() }), 0);
    assert_eq!(lab.code(0, Op::Removexattr { id, name: "user.a".into() }), Errno::ENODATA);
    assert!(lab.stat(id).has_xattrs);
    assert_eq!(lab.code(0, Op::Removexattr { id, name: "user.b".into() }), 0);
    assert!(!lab.stat(id).has_xattrs);
    assert_eq!(xattr_rows(&lab), 0);
}

#[test]
fn attributes_go_with_the_file() {
    let mut lab = Lab::default();
    let (one, two) = (lab.file("one").id, lab.file("two").id);
    for index in 0..10 {
        lab.code(0, set(one, &format!("user.{index}"), b"v", 0));
    }
    lab.code(0, set(two, "user.stays", b"v", 0));
    assert_eq!(xattr_rows(&lab), 11);
    lab.unlink(ROOT, "one");
    assert_eq!(xattr_rows(&lab), 1);
    assert_eq!(get(&mut lab, two, "user.stays"), Ok(b"v".to_vec()));
}

#[test]
fn limits_are_pinned_from_both_sides() {
    let mut lab = Lab::default();
    let id = lab.file("f").id;
    let value = vec![7; XATTR_VALUE_BYTES_MAX + 1];
    assert_eq!(lab.code(0, set(id, "user.v", &value, 0)), Errno::E2BIG);
    assert_eq!(lab.code(0, set(id, "user.v", &value[1..], 0)), 0);
    assert_eq!(get(&mut lab, id, "user.v").unwrap().len(), XATTR_VALUE_BYTES_MAX);
    let name = |length: usize| format!("user.{}", "n".repeat(length - 5));
    assert_eq!(lab.code(0, set(id, &name(256), b"", 0)), Errno::ERANGE);
    assert_eq!(lab.code(0, set(id, &name(255), b"", 0)), 0);
    for odd in ["user.", "trusted.", "security."] {
        assert_eq!(lab.code(0, set(id, odd, b"", 0)), Errno::EINVAL, "{odd}");
    }
    for odd in ["system.posix_acl_access", "plain", "security.capability", "security.ima", ""] {
        assert_eq!(lab.code(0, set(id, odd, b"", 0)), Errno::EOPNOTSUPP, "{odd}");
        assert_eq!(get(&mut lab, id, odd), Err(Errno::EOPNOTSUPP), "{odd}");
    }
    assert_eq!(lab.code(0, set(id, "user.\0", b"", 0)), Errno::EINVAL);
    assert_eq!(lab.code(0, set(id, "user.f", b"", 4)), Errno::EINVAL);
    assert_eq!(get(&mut lab, id + 1, "user.f"), Err(Errno::ESTALE));
}

#[test]
fn one_file_holds_so_much_and_no_more() {
    let mut lab = Lab::default();
    let (names, values) = (lab.file("names").id, lab.file("values").id);
    let fits = XATTR_LIST_BYTES_MAX / 256;
    let name = |index: usize| format!("user.{index:0>250}");
    for index in 0..fits {
        assert_eq!(lab.code(0, set(names, &name(index), b"", 0)), 0, "name {index}");
    }
    assert_eq!(lab.code(0, set(names, &name(fits), b"", 0)), Errno::ENOSPC);
    assert_eq!(lab.code(0, set(names, &name(0), b"another value", 0)), 0);
    assert_eq!(lab.xattr_names(names).len(), fits);

    let value = vec![1; XATTR_VALUE_BYTES_MAX];
    let fits = XATTR_FILE_BYTES_MAX / (XATTR_VALUE_BYTES_MAX + 9);
    for index in 0..fits {
        assert_eq!(lab.code(0, set(values, &format!("user.{index:03}"), &value, 0)), 0);
    }
    assert_eq!(lab.code(0, set(values, "user.one", &value, 0)), Errno::ENOSPC);
    // What replaces counts instead of what it replaces.
    assert_eq!(lab.code(0, set(values, "user.000", &value, 0)), 0);
    assert_eq!(lab.code(0, Op::Removexattr { id: values, name: "user.000".into() }), 0);
    assert_eq!(lab.code(0, set(values, "user.one", &value, 0)), 0);
}

#[test]
fn who_may_see_and_change_attributes_is_as_xattr_7_says() {
    let mut lab = Lab::default();
    let file = lab.create(ROOT, "f", mode::REGULAR | 0o640).id;
    let link = lab.create(ROOT, "l", mode::SYMLINK | 0o777).id;
    let fifo = lab.create(ROOT, "p", mode::FIFO | 0o666).id;
    let tmp = lab.create(ROOT, "tmp", mode::DIRECTORY | 0o1777).id;
    lab.code(0, Attributes { gid: 50, ..attributes(file, set::GID) }.into());
    for name in ["user.u", "trusted.t", "security.s"] {
        assert_eq!(lab.code(0, set(file, name, b"x", 0)), 0);
    }
    assert_eq!(lab.code(0, set(link, "user.u", b"", 0)), Errno::EPERM);
    assert_eq!(lab.code(0, set(link, "trusted.t", b"", 0)), 0);
    assert_eq!(get(&mut lab, link, "user.u"), Err(Errno::ENODATA));

    lab.caller = user(ALICE, &[50]);
    assert_eq!(lab.xattr_names(file), ["security.s", "user.u"]);
    assert_eq!(get(&mut lab, file, "user.u"), Ok(b"x".to_vec()));
    assert_eq!(get(&mut lab, file, "security.s"), Ok(b"x".to_vec()));
    assert_eq!(get(&mut lab, file, "trusted.t"), Err(Errno::ENODATA));
    assert_eq!(lab.code(0, set(file, "user.u", b"", 0)), Errno::EACCES);
    assert_eq!(lab.code(0, set(file, "trusted.t", b"", 0)), Errno::EPERM);
    assert_eq!(lab.code(0, set(file, "security.s", b"", 0)), Errno::EPERM);
    assert_eq!(lab.code(0, set(fifo, "user.u", b"", 0)), Errno::EPERM);
    assert_eq!(lab.code(0, set(tmp, "user.u", b"", 0)), Errno::EPERM);
    let remove = Op::Removexattr { id: file, name: "user.u".into() };
    assert_eq!(lab.code(0, remove), Errno::EACCES);

    lab.caller = user(BOB, &[60]);
    assert_eq!(get(&mut lab, file, "user.u"), Err(Errno::EACCES));
    assert_eq!(get(&mut lab, file, "security.s"), Ok(b"x".to_vec()));
}

#[test]
fn a_repeated_setxattr_is_done_once() {
    let mut lab = Lab::default();
    let (session, _) = lab.hello(0, &[]);
    let id = lab.file("f").id;
    let create = set(id, "user.a", b"1", xattr::CREATE);
    assert_eq!(lab.send(session, 1, create.clone()), Applied::Reply(Reply::Done {}));
    lab.crash();
    lab.hello(session, &[]);
    assert_eq!(lab.send(session, 1, create), Applied::Reply(Reply::Done {}));
}

fn tmpfile(lab: &mut Lab, session: u64) -> Inode {
    created(lab.reply(session, Op::Tmpfile { parent: ROOT, mode: 0o600, gid: u32::MAX, access: 6 }))
}

fn link(id: Id, name: &str) -> Op {
    Op::Link { id, parent: ROOT, name: Name::from(name) }
}

#[test]
fn a_file_without_a_name_can_be_given_one() {
    let mut lab = Lab::default();
    let (session, _) = lab.hello(0, &[]);
    let made = tmpfile(&mut lab, session);
    assert_eq!((made.nlink, made.mode), (0, mode::REGULAR | 0o600));
    assert_eq!(lab.list(ROOT, 4096), []);
    assert_eq!(node(lab.reply(session, link(made.id, "named"))).nlink, 1);
    lab.reply(session, Op::Release { id: made.id });
    assert_eq!(lab.find(ROOT, "named").unwrap().id, made.id);
    // Unlinked it is as any other: no second life.
    let opened = lab.reply(session, Op::Open { id: made.id, access: 6 });
    assert_eq!(code(&opened), 0);
    lab.unlink(ROOT, "named");
    assert_eq!(lab.code(session, link(made.id, "again")), Errno::ENOENT);
}

#[test]
fn a_file_without_a_name_ends_when_it_is_closed_or_its_client_dies() {
    let mut lab = Lab::default();
    let (session, _) = lab.hello(0, &[]);
    let before = lab.totals();
    let made = tmpfile(&mut lab, session);
    lab.extend(made.id, 100);
    lab.reply(session, Op::Release { id: made.id });
    assert_eq!(lab.totals(), before);
    assert!(lab.work.iter().any(|work| matches!(work, Work::Remove { id, .. } if *id == made.id)));

    let lost = tmpfile(&mut lab, session);
    lab.crash();
    lab.store.drop_orphans().unwrap();
    lab.serve();
    assert_eq!(lab.code(0, Op::Getattr { id: lost.id }), Errno::ESTALE);
    assert_eq!(lab.totals(), before);
    assert_eq!(
        lab.code(0, Op::Tmpfile { parent: ROOT, mode: 0, gid: 0, access: 6 }),
        Errno::ESTALE
    );
}

#[test]
fn a_large_value_travels_whole() {
    let mut lab = Lab::default();
    let id = lab.file("f").id;
    let value: Vec<u8> = (0..XATTR_VALUE_BYTES_MAX).map(|at| (at * 7 % 251) as u8).collect();
    let op =
        Op::Setxattr { id, name: "user.v".into(), value: Payload::from(value.clone()), flags: 0 };
    assert_eq!(lab.code(0, op), 0);
    let [again, living] = lab.replayed();
    assert!(again == living);
    assert!(get(&mut lab, id, "user.v").unwrap() == value);
}
