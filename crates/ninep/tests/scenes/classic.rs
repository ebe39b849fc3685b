//! 9P2000 and 9P2000.u over a tree that knows Linux's calls only.

use crate::pair::gate::Gate;
use crate::pair::raw::{Raw, attach, ecode};
use crate::pair::*;
use covey_ninep::memory::MemoryTree;
use covey_ninep::message::{Dialect, Extension, Message, NONUNAME, Number, Qid, Stat, dm};
use covey_ninep::tree::Errno;
use std::rc::Rc;

const BOTH: [Dialect; 2] = [Dialect::Plan9, Dialect::Unix];
const OREAD: u8 = 0;
const OWRITE: u8 = 1;
const ORDWR: u8 = 2;
const OEXEC: u8 = 3;
const OTRUNC: u8 = 0x10;
const ORCLOSE: u8 = 0x40;
const OAPPEND: u8 = 0x80;

fn raw(dialect: Dialect) -> Raw<MemoryTree> {
    Raw::speaking(Rc::new(MemoryTree::default()), dialect)
}

fn create_with(fid: u32, name: &str, perm: u32, mode: u8, extension: &str) -> Message {
    let extension = Extension(extension.into());
    Message::Tcreate { fid, name: name.into(), perm, mode, extension }
}

fn create(fid: u32, name: &str, perm: u32, mode: u8) -> Message {
    create_with(fid, name, perm, mode, "")
}

fn topen(fid: u32, mode: u8) -> Message {
    Message::Topen { fid, mode }
}

fn stat(raw: &mut Raw<MemoryTree>, fid: u32) -> Stat {
    match raw.ask(Message::Tstat { fid }) {
        Message::Rstat { stat } => *stat,
        other => panic!("no Rstat: {other:?}"),
    }
}

fn wstat(fid: u32, change: impl FnOnce(&mut Stat)) -> Message {
    let mut stat = Stat::dont_touch();
    change(&mut stat);
    Message::Twstat { fid, stat: Box::new(stat) }
}

/// A new file or directory below the root, whose fid is clunked again.
fn make(raw: &mut Raw<MemoryTree>, name: &str, perm: u32, extension: &str) {
    raw.ask(walk(0, 99, &[]));
    let made = raw.ask(create_with(99, name, perm, OREAD, extension));
    assert!(matches!(made, Message::Rcreate { .. }), "{name}: {made:?}");
    raw.ask(Message::Tclunk { fid: 99 });
}

fn names(raw: &mut Raw<MemoryTree>, count: u32) -> Vec<String> {
    raw.ask(walk(0, 98, &[]));
    raw.ask(topen(98, OREAD));
    let (mut offset, mut names) = (0, Vec::new());
    loop {
        let Message::Rread { data } = raw.ask(read(98, offset, count)) else { panic!("no Rread") };
        if data.is_empty() {
            break;
        }
        assert!(data.len() <= count as usize);
        offset += data.len() as u64;
        let stats = Stat::take_entries(raw.dialect, data.into_bytes()).unwrap();
        names.extend(stats.into_iter().map(|stat| stat.name.to_string()));
    }
    raw.ask(Message::Tclunk { fid: 98 });
    names
}

#[test]
fn a_file_is_created_written_read_and_removed() {
    for dialect in BOTH {
        let mut raw = raw(dialect);
        raw.ask(walk(0, 1, &[]));
        assert!(matches!(raw.ask(create(1, "f", 0o644, ORDWR)), Message::Rcreate { .. }));
        assert_eq!(raw.ask(write(1, 0, b"hello")), Message::Rwrite { count: 5 });
        assert_eq!(raw.ask(read(1, 1, 3)), Message::Rread { data: b"ell".to_vec().into() });
        let found = stat(&mut raw, 1);
        assert_eq!((found.name, found.length, found.mode), ("f".into(), 5, 0o644));
        assert_eq!(raw.ask(Message::Tremove { fid: 1 }), Message::Rremove {});
        assert_eq!(ecode(&raw.ask(walk(0, 1, &["f"]))), Errno::ENOENT);
        assert_eq!(ecode(&raw.ask(Message::Tclunk { fid: 1 })), Errno::EBADF);
    }
}

#[test]
fn errors_are_words_in_9p2000_and_words_with_a_number_in_u() {
    let missing = walk(0, 1, &["missing"]);
    match raw(Dialect::Plan9).ask(missing.clone()) {
        Message::Rerror { ename, errno } => {
            // What Linux's client turns back into a number, letter by letter.
            assert_eq!(ename, "No such file or directory".into());
            assert_eq!(errno, Number(NONUNAME));
        }
        other => panic!("{other:?}"),
    }
    match raw(Dialect::Unix).ask(missing) {
        Message::Rerror { ename, errno } => {
            assert_eq!(ename, "no such file or directory".into());
            assert_eq!(errno, Number(Errno::ENOENT));
        }
        other => panic!("{other:?}"),
    }
    // Longer than a client has room for.
    let long = "x".repeat(300);
    match raw(Dialect::Unix).ask(create(0, &long, 0o644, OREAD)) {
        Message::Rerror { ename, .. } => assert!(ename.len() <= 127),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_error_has_words_of_its_own_and_comes_back_from_them() {
    for code in 1..200 {
        let errno = Errno::from(code);
        if errno.text() == "unknown error" {
            assert_eq!(errno.ename(), "Input/output error");
        } else {
            assert_eq!(Errno::from_ename(errno.ename()), errno, "{code}");
        }
    }
    assert_eq!(Errno::from_ename("file does not exist").code, Errno::ENOENT);
    assert_eq!(Errno::from_ename("no magic").to_string(), "input/output error: no magic");
}

#[test]
fn the_other_dialects_requests_are_refused_and_the_session_goes_on() {
    let linux = [
        open(0, 0),
        Message::Tgetattr { fid: 0, request_mask: 1 },
        Message::Treaddir { fid: 0, offset: 0, count: 100 },
        Message::Txattrwalk { fid: 0, newfid: 1, name: "".into() },
        Message::Tcall { fid: 0, body: b"x".to_vec().into() },
    ];
    for dialect in BOTH {
        let mut raw = raw(dialect);
        for request in linux.clone() {
            assert_eq!(ecode(&raw.ask(request)), Errno::EOPNOTSUPP);
        }
        assert_eq!(stat(&mut raw, 0).name, "/".into());
    }
}

#[test]
fn modes_of_topen_are_kept_to() {
    for dialect in BOTH {
        let mut raw = raw(dialect);
        make(&mut raw, "f", 0o644, "");
        for (mode, can_read, can_write) in [
            (OREAD, true, false),
            (OWRITE, false, true),
            (ORDWR, true, true),
            (OEXEC, true, false),
            (OREAD | 0x20, true, false),
        ] {
            raw.ask(walk(0, 1, &["f"]));
            assert!(matches!(raw.ask(topen(1, mode)), Message::Ropen { .. }));
            assert_eq!(ecode(&raw.ask(topen(1, mode))), Errno::EINVAL);
            assert_eq!(ecode(&raw.ask(read(1, 0, 1))) == 0, can_read, "{mode}");
            assert_eq!(ecode(&raw.ask(write(1, 0, b"x"))) == 0, can_write, "{mode}");
            raw.ask(Message::Tclunk { fid: 1 });
        }
        raw.ask(walk(0, 1, &["f"]));
        for bad in [0x04, 0x08, 0x0c] {
            assert_eq!(ecode(&raw.ask(topen(1, bad))), Errno::EINVAL);
        }
        assert_eq!(ecode(&raw.ask(topen(7, 0))), Errno::EBADF);
        let opened = ecode(&raw.ask(topen(1, OWRITE | OAPPEND)));
        assert_eq!(opened == 0, dialect == Dialect::Unix);
        for bad in [OWRITE, ORDWR, OREAD | OTRUNC, OREAD | ORCLOSE] {
            raw.ask(walk(0, 2, &[]));
            assert_eq!(ecode(&raw.ask(topen(2, bad))), Errno::EISDIR, "{bad}");
            assert_eq!(
                ecode(&raw.ask(create(2, "d", dm::DIR | 0o755, bad & !OTRUNC))) == 0,
                bad & !OTRUNC == 0
            );
            raw.ask(Message::Tclunk { fid: 2 });
        }
    }
}

#[test]
fn otrunc_empties_and_orclose_removes_at_the_clunk() {
    for dialect in BOTH {
        let mut raw = raw(dialect);
        raw.ask(walk(0, 1, &[]));
        raw.ask(create(1, "f", 0o644, OWRITE));
        raw.ask(write(1, 0, b"hello"));
        raw.ask(Message::Tclunk { fid: 1 });
        raw.ask(walk(0, 1, &["f"]));
        raw.ask(topen(1, OWRITE | OTRUNC));
        assert_eq!(stat(&mut raw, 1).length, 0);
        raw.ask(Message::Tclunk { fid: 1 });
        raw.ask(walk(0, 1, &["f"]));
        raw.ask(topen(1, OREAD | ORCLOSE));
        // A clone of it removes nothing.
        raw.ask(walk(1, 2, &[]));
        raw.ask(Message::Tclunk { fid: 2 });
        assert_eq!(names(&mut raw, 1000), ["f"]);
        assert_eq!(raw.ask(Message::Tclunk { fid: 1 }), Message::Rclunk {});
        assert!(names(&mut raw, 1000).is_empty());
        raw.ask(walk(0, 1, &[]));
        raw.ask(create(1, "g", 0o644, OWRITE | ORCLOSE));
        assert_eq!(names(&mut raw, 1000), ["g"]);
        // Somebody else was faster: a clunk does not tell.
        raw.ask(walk(0, 3, &["g"]));
        assert_eq!(raw.ask(Message::Tremove { fid: 3 }), Message::Rremove {});
        assert_eq!(raw.ask(Message::Tclunk { fid: 1 }), Message::Rclunk {});
    }
}

#[test]
fn orclose_removes_when_the_connection_is_lost_too() {
    let tree = Rc::new(MemoryTree::default());
    let mut one = Raw::speaking(tree.clone(), Dialect::Plan9);
    one.ask(walk(0, 1, &[]));
    one.ask(create(1, "f", 0o644, OWRITE | ORCLOSE));
    let mut two = Raw::speaking(tree, Dialect::Unix);
    assert_eq!(names(&mut two, 1000), ["f"]);
    drop(one);
    assert!(names(&mut two, 1000).is_empty());
}

#[test]
fn a_directory_is_read_as_whole_records_however_little_fits() {
    for dialect in BOTH {
        let mut raw = raw(dialect);
        let all: Vec<String> = (0..30).map(|number| format!("file{number}")).collect();
        all.iter().for_each(|name| make(&mut raw, name, 0o644, ""));
        for count in [90, 100, 200, 1000, 60_000] {
            assert_eq!(names(&mut raw, count), all, "{count}");
        }
        raw.ask(walk(0, 1, &[]));
        raw.ask(topen(1, OREAD));
        assert_eq!(ecode(&raw.ask(read(1, 0, 20))), Errno::EINVAL);
        assert_eq!(ecode(&raw.ask(read(1, 3, 1000))), Errno::EINVAL);
        let Message::Rread { data } = raw.ask(read(1, 0, 200)) else { panic!("no Rread") };
        assert_eq!(ecode(&raw.ask(read(1, data.len() as u64 + 1, 200))), Errno::EINVAL);
        // Back to the start, at any time.
        assert_eq!(raw.ask(read(1, 0, 200)), Message::Rread { data });
        raw.ask(walk(0, 2, &[]));
        assert_eq!(ecode(&raw.ask(read(2, 0, 200))), Errno::EBADF);
    }
}

#[test]
fn u_makes_links_pipes_sockets_and_devices_and_9p2000_none() {
    let mut raw = raw(Dialect::Unix);
    make(&mut raw, "f", 0o4755 & 0o777 | dm::SETUID, "");
    make(&mut raw, "d", dm::DIR | dm::SETVTX | 0o777, "");
    make(&mut raw, "soft", dm::SYMLINK | 0o777, "f");
    make(&mut raw, "pipe", dm::NAMEDPIPE | 0o600, "");
    make(&mut raw, "sock", dm::SOCKET | 0o600, "");
    make(&mut raw, "char", dm::DEVICE | 0o600, "c 1 3");
    raw.ask(walk(0, 7, &["f"]));
    make(&mut raw, "hard", dm::LINK, "7\n");
    raw.ask(Message::Tclunk { fid: 7 });
    let mut of = |name: &str| {
        raw.ask(walk(0, 1, &[name]));
        let found = stat(&mut raw, 1);
        raw.ask(Message::Tclunk { fid: 1 });
        found
    };
    assert_eq!(of("f").mode, dm::SETUID | 0o755);
    assert_eq!(of("hard").qid, of("f").qid);
    let dir = of("d");
    assert_eq!((dir.mode, dir.qid.kind, dir.length), (dm::DIR | dm::SETVTX | 0o777, Qid::DIR, 0));
    let soft = of("soft");
    assert_eq!((soft.mode, soft.qid.kind), (dm::SYMLINK | 0o777, Qid::SYMLINK));
    assert_eq!((soft.extension, soft.length), (Extension("f".into()), 1));
    assert_eq!(of("pipe").mode, dm::NAMEDPIPE | 0o600);
    assert_eq!(of("sock").mode, dm::SOCKET | 0o600);
    assert_eq!(of("char").mode, dm::DEVICE | 0o600);
    let linux = ["f", "d", "soft", "pipe", "sock", "char"].map(|name| of(name).linux_mode());
    assert_eq!(linux, [0o104755, 0o041777, 0o120777, 0o010600, 0o140600, 0o020600]);
    raw.ask(walk(0, 1, &[]));
    for (perm, extension, code) in [
        (dm::SYMLINK, "", Errno::ENOENT),
        (dm::SYMLINK, "a\0b", Errno::EINVAL),
        (dm::LINK, "x", Errno::EINVAL),
        (dm::LINK, "77", Errno::EBADF),
        (dm::DEVICE, "x 1 3", Errno::EINVAL),
        (dm::DEVICE, "c 1", Errno::EINVAL),
        (dm::DEVICE, "c 1 x", Errno::EINVAL),
        (dm::DEVICE, "", Errno::EINVAL),
        (dm::DIR | dm::SYMLINK, "f", Errno::EINVAL),
        (dm::AUTH, "", Errno::EINVAL),
        (dm::APPEND | 0o644, "", Errno::EOPNOTSUPP),
        (dm::EXCL | 0o644, "", Errno::EOPNOTSUPP),
        (0o1000, "", Errno::EINVAL),
    ] {
        let reply = raw.ask(create_with(1, "new", perm, OREAD, extension));
        assert_eq!(ecode(&reply), code, "{perm:#x} {extension}");
    }
    assert_eq!(ecode(&raw.ask(create(1, "f", 0o644, OREAD))), Errno::EEXIST);
    assert_eq!(ecode(&raw.ask(create(1, "..", 0o644, OREAD))), Errno::EINVAL);
    assert_eq!(ecode(&raw.ask(create(1, "new", 0o644, 0x0c))), Errno::EINVAL);
    assert_eq!(ecode(&raw.ask(create(9, "new", 0o644, OREAD))), Errno::EBADF);
    let mut plain = self::raw(Dialect::Plan9);
    for perm in [dm::SYMLINK, dm::LINK, dm::DEVICE, dm::NAMEDPIPE, dm::SOCKET, dm::SETUID] {
        assert_eq!(ecode(&plain.ask(create(0, "new", perm, OREAD))), Errno::EINVAL);
    }
}

#[test]
fn in_9p2000_a_symbolic_link_is_a_file_and_a_new_file_gets_what_its_directory_grants() {
    let tree = Rc::new(MemoryTree::default());
    let mut unix = Raw::speaking(tree.clone(), Dialect::Unix);
    make(&mut unix, "soft", dm::SYMLINK | 0o777, "f");
    let mut plain = Raw::speaking(tree, Dialect::Plan9);
    match plain.ask(walk(0, 1, &["soft"])) {
        Message::Rwalk { qids } => assert_eq!(qids.0[0].kind, Qid::FILE),
        other => panic!("{other:?}"),
    }
    let found = stat(&mut plain, 1);
    assert_eq!((found.qid.kind, found.mode), (Qid::FILE, 0o777));
    make(&mut plain, "d", dm::DIR | 0o700, "");
    plain.ask(walk(0, 2, &["d"]));
    plain.ask(create(2, "f", 0o755, OREAD));
    // open(5): perm & (~0666 | dir.perm & 0666).
    assert_eq!(stat(&mut plain, 2).mode, 0o755 & (!0o666 | 0o700 & 0o666));
    plain.ask(walk(0, 3, &["d"]));
    plain.ask(create(3, "e", dm::DIR | 0o777, OREAD));
    assert_eq!(stat(&mut plain, 3).mode, dm::DIR | 0o700);
}

#[test]
fn wstat_touches_only_what_is_said() {
    for dialect in BOTH {
        let mut raw = raw(dialect);
        raw.ask(walk(0, 1, &[]));
        raw.ask(create(1, "f", 0o644, ORDWR));
        raw.ask(write(1, 0, b"hello"));
        let before = stat(&mut raw, 1);
        assert_eq!(raw.ask(wstat(1, |_| ())), Message::Rwstat {});
        assert_eq!(stat(&mut raw, 1), before);
        // Neither does writing back what was read.
        assert_eq!(raw.ask(wstat(1, |new| *new = before.clone())), Message::Rwstat {});
        raw.ask(wstat(1, |new| new.length = 2));
        raw.ask(wstat(1, |new| new.mode = 0o600));
        raw.ask(wstat(1, |new| (new.atime, new.mtime) = (5, 6)));
        raw.ask(wstat(1, |new| new.gid = "7".into()));
        let after = stat(&mut raw, 1);
        assert_eq!((after.length, after.mode, after.atime, after.mtime), (2, 0o600, 5, 6));
        assert_eq!((after.gid, after.uid, after.name), ("7".into(), before.uid, "f".into()));
        // An unopened fid has nothing to bring to the disk.
        raw.ask(walk(0, 2, &["f"]));
        assert_eq!(raw.ask(wstat(2, |_| ())), Message::Rwstat {});
    }
}

#[test]
fn wstat_renames_and_the_fid_follows() {
    for dialect in BOTH {
        let mut raw = raw(dialect);
        raw.ask(walk(0, 1, &[]));
        raw.ask(create(1, "f", 0o644, ORDWR));
        raw.ask(write(1, 0, b"hello"));
        let both = wstat(1, |new| (new.name, new.length) = ("g".into(), 1));
        assert_eq!(raw.ask(both), Message::Rwstat {});
        let after = stat(&mut raw, 1);
        assert_eq!((after.name, after.length), ("g".into(), 1));
        assert_eq!(names(&mut raw, 1000), ["g"]);
        // It knows its new name: again, and removal.
        assert_eq!(raw.ask(wstat(1, |new| new.name = "h".into())), Message::Rwstat {});
        assert_eq!(raw.ask(Message::Tremove { fid: 1 }), Message::Rremove {});
        assert!(names(&mut raw, 1000).is_empty());
    }
}

#[test]
fn a_wstat_does_all_or_nothing() {
    for dialect in BOTH {
        let mut raw = raw(dialect);
        make(&mut raw, "f", 0o644, "");
        raw.ask(walk(0, 1, &["f"]));
        // The tree in memory holds no file of this length.
        let refused =
            wstat(1, |new| (new.name, new.length, new.mode) = ("g".into(), 1 << 40, 0o600));
        assert_eq!(ecode(&raw.ask(refused)), Errno::EFBIG);
        assert_eq!(names(&mut raw, 1000), ["f"]);
        let after = stat(&mut raw, 1);
        assert_eq!((after.name, after.mode, after.length), ("f".into(), 0o644, 0));
    }
}

#[test]
fn a_name_that_is_taken_is_replaced_in_u_and_only_by_a_rename_alone() {
    for dialect in BOTH {
        let mut raw = raw(dialect);
        make(&mut raw, "f", 0o644, "");
        make(&mut raw, "g", 0o644, "");
        raw.ask(walk(0, 1, &["f"]));
        let both = wstat(1, |new| (new.name, new.mode) = ("g".into(), 0o600));
        assert_eq!(ecode(&raw.ask(both)), Errno::EEXIST);
        let alone = ecode(&raw.ask(wstat(1, |new| new.name = "g".into())));
        match dialect {
            Dialect::Unix => assert_eq!((alone, names(&mut raw, 1000)), (0, vec!["g".into()])),
            _ => assert_eq!(alone, Errno::EEXIST),
        }
    }
}

#[test]
fn wstat_refuses_what_can_never_change() {
    for dialect in BOTH {
        let mut raw = raw(dialect);
        make(&mut raw, "f", 0o644, "");
        make(&mut raw, "d", dm::DIR | 0o755, "");
        raw.ask(walk(0, 1, &["f"]));
        raw.ask(walk(0, 2, &["d"]));
        type Change = fn(&mut Stat);
        let changes: [(&str, Change, u32); 10] = [
            ("type", |new| new.kind = 1, Errno::EPERM),
            ("dev", |new| new.dev = 1, Errno::EPERM),
            ("qid", |new| new.qid.path = 77, Errno::EPERM),
            ("kind", |new| new.mode = dm::DIR | 0o755, Errno::EPERM),
            ("append", |new| new.mode = dm::APPEND | 0o644, Errno::EOPNOTSUPP),
            ("mode", |new| new.mode = 0o1644, Errno::EINVAL),
            ("group", |new| new.gid = "nobody I know".into(), Errno::EINVAL),
            ("slash", |new| new.name = "a/b".into(), Errno::EINVAL),
            ("up", |new| new.name = "..".into(), Errno::EINVAL),
            ("long", |new| new.name = "x".repeat(256).into(), Errno::ENAMETOOLONG),
        ];
        for (what, change, code) in changes {
            assert_eq!(ecode(&raw.ask(wstat(1, change))), code, "{what} in {dialect:?}");
        }
        assert_eq!(ecode(&raw.ask(wstat(2, |new| new.length = 1))), Errno::EISDIR);
        assert_eq!(raw.ask(wstat(2, |new| new.length = 0)), Message::Rwstat {});
        assert_eq!(ecode(&raw.ask(wstat(0, |new| new.name = "root".into()))), Errno::EPERM);
        assert_eq!(raw.ask(wstat(0, |new| new.name = "/".into())), Message::Rwstat {});
        assert_eq!(ecode(&raw.ask(wstat(9, |_| ()))), Errno::EBADF);
        let owner = ecode(&raw.ask(wstat(1, |new| new.uid = "5".into())));
        match dialect {
            Dialect::Plan9 => assert_eq!(owner, Errno::EPERM),
            _ => {
                assert_eq!((owner, stat(&mut raw, 1).n_uid), (0, Number(5)));
                let change = |new: &mut Stat| (new.n_uid, new.n_gid) = (Number(6), Number(7));
                assert_eq!(raw.ask(wstat(1, change)), Message::Rwstat {});
                let after = stat(&mut raw, 1);
                assert_eq!((after.n_uid, after.n_gid), (Number(6), Number(7)));
                let link = |new: &mut Stat| new.extension = Extension("elsewhere".into());
                assert_eq!(ecode(&raw.ask(wstat(1, link))), Errno::EPERM);
            }
        }
    }
}

#[test]
fn the_root_and_what_was_renamed_by_another_are_not_removed() {
    for dialect in BOTH {
        let mut raw = raw(dialect);
        make(&mut raw, "f", 0o644, "");
        raw.ask(walk(0, 1, &["f"]));
        raw.ask(walk(0, 2, &["f"]));
        raw.ask(wstat(2, |new| new.name = "g".into()));
        make(&mut raw, "f", 0o644, "");
        assert_eq!(ecode(&raw.ask(wstat(1, |new| new.name = "h".into()))), Errno::ENOENT);
        assert_eq!(ecode(&raw.ask(Message::Tremove { fid: 1 })), Errno::ENOENT);
        assert_eq!(names(&mut raw, 1000), ["g", "f"]);
        raw.ask(walk(0, 3, &[]));
        assert_eq!(ecode(&raw.ask(Message::Tremove { fid: 3 })), Errno::EPERM);
        assert_eq!(ecode(&raw.ask(Message::Tremove { fid: 3 })), Errno::EBADF);
    }
}

#[test]
fn a_fid_remembers_its_way_up() {
    let mut raw = raw(Dialect::Plan9);
    make(&mut raw, "a", dm::DIR | 0o755, "");
    raw.ask(walk(0, 1, &["a"]));
    raw.ask(create(1, "b", dm::DIR | 0o755, OREAD));
    raw.ask(walk(0, 2, &["a", "b", ".."]));
    assert_eq!(stat(&mut raw, 2).name, "a".into());
    raw.ask(walk(0, 3, &["a", "..", "..", "a", "b"]));
    assert_eq!(stat(&mut raw, 3).name, "b".into());
    raw.ask(walk(3, 4, &["..", ".."]));
    assert_eq!(stat(&mut raw, 4).name, "/".into());
    raw.ask(walk(3, 3, &[".."]));
    assert_eq!(stat(&mut raw, 3).name, "a".into());
}

#[test]
fn a_flushed_create_or_remove_leaves_its_fid_as_the_rules_say() {
    let gate = Gate::default();
    let mut raw = Raw::speaking(Rc::new(gate.clone()), Dialect::Unix);
    raw.ask(walk(0, 1, &["d"]));
    gate.close("create");
    raw.feed(&[(5, create(1, "f", 0o644, OWRITE)), (6, Message::Tflush { oldtag: 5 })]).unwrap();
    assert_eq!(raw.tags(), [6]);
    assert_eq!(ecode(&raw.ask(write(1, 0, b"x"))), Errno::EBADF);
    gate.open("create");
    assert!(matches!(raw.ask(create(1, "f", 0o644, OWRITE)), Message::Rcreate { .. }));
    gate.close("unlink f");
    raw.feed(&[(5, Message::Tremove { fid: 1 }), (6, Message::Tflush { oldtag: 5 })]).unwrap();
    assert_eq!(raw.tags(), [6]);
    assert_eq!(ecode(&raw.ask(Message::Tclunk { fid: 1 })), Errno::EBADF);
}

#[test]
fn requests_sent_at_once_are_answered_in_the_order_of_their_fid() {
    let mut raw = raw(Dialect::Plan9);
    raw.feed(&[
        (1, walk(0, 1, &[])),
        (2, create(1, "f", 0o644, ORDWR)),
        (3, write(1, 0, b"hello")),
        (4, wstat(1, |new| new.name = "g".into())),
        (5, Message::Tstat { fid: 1 }),
        (6, Message::Tremove { fid: 1 }),
    ])
    .unwrap();
    let replies = raw.replies();
    assert_eq!(replies.iter().map(|(tag, _)| *tag).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    match &replies[4].1 {
        Message::Rstat { stat } => assert_eq!(stat.name, "g".into()),
        other => panic!("{other:?}"),
    }
    assert!(names(&mut raw, 1000).is_empty());
}

#[test]
fn the_client_settles_for_what_the_server_speaks_and_turns_words_into_numbers() {
    let offers = [Dialect::Covey, Dialect::Linux, Dialect::Unix, Dialect::Plan9];
    for dialect in offers {
        let mut pair = Pair::speaking(MemoryTree::default(), dialect);
        assert_eq!(pair.conn.dialect(), Some(dialect));
        assert_eq!(code(pair.call(walk(0, 1, &["missing"]))), Errno::ENOENT);
        let other = match dialect {
            Dialect::Plan9 | Dialect::Unix => open(0, 0),
            _ => topen(0, 0),
        };
        // Refused here: the server never sees it.
        let writes = pair.client_writes.len();
        assert_eq!(code(pair.call(other)), Errno::EOPNOTSUPP);
        assert_eq!(pair.client_writes.len(), writes);
        assert_eq!(pair.call(Message::Tclunk { fid: 0 }), Ok(Message::Rclunk {}));
    }
}

#[test]
fn an_attach_by_number_is_that_users_in_u() {
    let mut raw = raw(Dialect::Unix);
    let mut by_number = attach(5, covey_ninep::message::NOFID);
    if let Message::Tattach { n_uname, .. } = &mut by_number {
        *n_uname = Number(1234);
    }
    raw.ask(by_number);
    raw.ask(create(5, "f", 0o644, OREAD));
    assert_eq!(stat(&mut raw, 5).n_uid, Number(1234));
    assert_eq!(stat(&mut raw, 5).uid, "1234".into());
}
