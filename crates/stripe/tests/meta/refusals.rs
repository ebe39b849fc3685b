//! Every refusal of the metadata store, brought about: its errno and its words.
//!
//! The table is held against the source: a refusal that is added there needs a row here.

mod quotas;

use crate::lab::*;
use covey_stripe::kv::Kv;
use covey_stripe::meta::{Applied, REPLIES_KEPT_MAX, TAKEN_MAX, mode};
use covey_stripe::objects::EPOCH_MAX;
use covey_stripe::ops::check::{Class, Finding};
use covey_stripe::ops::*;
use covey_wire::{List, Name};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The words as they stand in the source, the errno, and how to get there.
type Row = (&'static str, u32, fn(&mut Lab) -> Reply);

const REFUSALS: &[Row] = &[
    ("file {id} is gone", Errno::ESTALE, |lab| lab.reply(0, Op::Getattr { id: 999 })),
    ("no {name} in directory {parent}", Errno::ENOENT, |lab| unlink(lab, "none", false)),
    ("file {} is not a directory", Errno::ENOTDIR, |lab| {
        let id = lab.file("f").id;
        lab.reply(0, create(id, "x", mode::REGULAR))
    }),
    ("directory {} was removed", Errno::ENOENT, |lab| {
        let session = lab.hello(0, &[]).0;
        let id = lab.mkdir(ROOT, "d").id;
        lab.reply(session, Op::Open { id, access: 4 });
        assert_eq!(lab.rmdir(ROOT, "d"), 0);
        lab.reply(0, create(id, "x", mode::REGULAR))
    }),
    ("the name is empty", Errno::EINVAL, |lab| make_new(lab, "")),
    ("the name has {length} bytes, limit is {NAME_BYTES_MAX}", Errno::ENAMETOOLONG, |lab| {
        make_new(lab, &"x".repeat(256))
    }),
    ("the name {name:?} holds a slash or NUL", Errno::EINVAL, |lab| make_new(lab, "a/b")),
    ("{name} is in every directory", Errno::EEXIST, |lab| make_new(lab, ".")),
    ("{name} exists in directory {parent}", Errno::EEXIST, |lab| {
        lab.file("f");
        make_new(lab, "f")
    }),
    ("it is a directory", Errno::EISDIR, |lab| {
        lab.mkdir(ROOT, "d");
        lab.reply(0, create_open(ROOT, "d", false))
    }),
    ("it is a symbolic link", Errno::ELOOP, |lab| {
        lab.create(ROOT, "s", mode::SYMLINK);
        lab.reply(0, create_open(ROOT, "s", false))
    }),
    ("directories have one name", Errno::EPERM, |lab| {
        let id = lab.mkdir(ROOT, "d").id;
        lab.reply(0, link(id, "e"))
    }),
    ("file {id} has {LINKS_MAX} names", Errno::EMLINK, |lab| {
        let id = lab.file("f").id;
        (1..65_000).for_each(|at| assert_eq!(lab.code(0, link(id, &format!("l{at}"))), 0));
        lab.reply(0, link(id, "one more"))
    }),
    ("the link's target is empty", Errno::ENOENT, |lab| symlink(lab, "")),
    ("the target has {length} bytes, limit is {TARGET_BYTES_MAX}", Errno::ENAMETOOLONG, |lab| {
        symlink(lab, &"x".repeat(4096))
    }),
    ("an amendment of file {id} changes its size or owner", Errno::EINVAL, |lab| {
        let id = lab.file("f").id;
        let mut op = amend(id, b"", set::UID);
        let Op::Amend { uid, .. } = &mut op else { unreachable!() };
        *uid = 7;
        lab.reply(0, op)
    }),
    ("a version stands where an owner does", Errno::EINVAL, |lab| {
        let id = lab.file("f").id;
        lab.reply(0, amend(id, b"", set::UID | set::AT_VERSION))
    }),
    ("file {id} was changed since version {known}, it has {current}", Errno::ESTALE, |lab| {
        let id = lab.file("f").id;
        lab.reply(0, amend(id, b"", set::MODE | set::AT_VERSION))
    }),
    ("only root makes devices", Errno::EPERM, |lab| {
        open_root(lab);
        lab.reply(0, create(ROOT, "c", mode::CHARACTER | 0o644))
    }),
    ("uid {} is not in group {gid}", Errno::EPERM, |lab| {
        open_root(lab);
        let mut op = create(ROOT, "f", mode::REGULAR | 0o644);
        let Op::Create { gid, .. } = &mut op else { unreachable!() };
        *gid = 7;
        lab.reply(0, op)
    }),
    ("mode {bits:o} names no file type", Errno::EINVAL, |lab| {
        lab.reply(0, create(ROOT, "f", 0o030_644))
    }),
    ("file {id} was unlinked", Errno::ENOENT, |lab| {
        let (session, id) = unlinked(lab);
        lab.reply(session, link(id, "again"))
    }),
    ("file {id} was unlinked", Errno::ESTALE, |lab| {
        // Removed without a name: nobody has it open, and its end is asked for and not done yet.
        let id = lab.file("f").id;
        lab.store.apply(&request(Op::Unlink { parent: ROOT, name: "f".into(), dir: false }));
        match lab.store.apply(&request(Op::Open { id, access: 4 })) {
            Applied::Reply(reply) => reply,
            other => panic!("{other:?}"),
        }
    }),
    ("file {id} is a symbolic link", Errno::ELOOP, |lab| {
        let id = lab.create(ROOT, "s", mode::SYMLINK).id;
        lab.reply(0, Op::Open { id, access: 4 })
    }),
    ("file {id} is a directory", Errno::EISDIR, |lab| {
        lab.reply(0, Op::Open { id: ROOT, access: 2 })
    }),
    (". cannot be removed", Errno::EINVAL, |lab| unlink(lab, ".", true)),
    (".. is never empty", Errno::ENOTEMPTY, |lab| unlink(lab, "..", true)),
    ("it is a directory", Errno::EISDIR, |lab| unlink(lab, "..", false)),
    ("{name} is a directory", Errno::EISDIR, |lab| {
        lab.mkdir(ROOT, "d");
        unlink(lab, "d", false)
    }),
    ("{name} is not a directory", Errno::ENOTDIR, |lab| {
        lab.file("f");
        unlink(lab, "f", true)
    }),
    ("directory {} has entries", Errno::ENOTEMPTY, |lab| {
        let id = lab.mkdir(ROOT, "d").id;
        lab.create(id, "f", mode::REGULAR);
        unlink(lab, "d", true)
    }),
    ("{to_name} exists in directory {to}", Errno::EEXIST, |lab| {
        lab.file("f");
        lab.file("g");
        rename(lab, ROOT, "f", ROOT, "g", rename::NOREPLACE)
    }),
    ("no {to_name} in directory {to}", Errno::ENOENT, |lab| {
        lab.file("f");
        rename(lab, ROOT, "f", ROOT, "g", rename::EXCHANGE)
    }),
    ("a directory cannot move into itself", Errno::EINVAL, |lab| {
        let id = lab.mkdir(ROOT, "d").id;
        rename(lab, ROOT, "d", id, "e", 0)
    }),
    ("a directory cannot move into itself", Errno::EINVAL, |lab| {
        // The other way round: what is given in exchange.
        let id = lab.mkdir(ROOT, "d").id;
        lab.create(id, "f", mode::REGULAR);
        rename(lab, id, "f", ROOT, "d", rename::EXCHANGE)
    }),
    ("rename flags {flags:#x} are not supported", Errno::EINVAL, |lab| {
        rename(lab, ROOT, "f", ROOT, "g", 4)
    }),
    (". and .. cannot be renamed", Errno::EBUSY, |lab| rename(lab, ROOT, "..", ROOT, "g", 0)),
    ("a directory cannot replace a file", Errno::ENOTDIR, |lab| {
        lab.mkdir(ROOT, "d");
        lab.file("f");
        rename(lab, ROOT, "d", ROOT, "f", 0)
    }),
    ("a file cannot replace a directory", Errno::EISDIR, |lab| {
        lab.mkdir(ROOT, "d");
        lab.file("f");
        rename(lab, ROOT, "f", ROOT, "d", 0)
    }),
    ("{} names in one walk, limit is {WALK_NAMES_MAX}", Errno::E2BIG, |lab| {
        lab.reply(0, Op::Walk { from: ROOT, names: List(vec!["..".into(); 2049]) })
    }),
    ("uid {} may not {what} file {id}, mode {bits:04o}", Errno::EACCES, |lab| {
        lab.caller = user(ALICE, &[ALICE]);
        make_new(lab, "f")
    }),
    ("directory {} is sticky and uid {} owns neither", Errno::EPERM, |lab| {
        lab.file("f");
        lab.reply(0, chmod(ROOT, 0o1777));
        lab.caller = user(ALICE, &[ALICE]);
        unlink(lab, "f", false)
    }),
    ("uid {} does not own file {}", Errno::EPERM, |lab| {
        lab.caller = user(ALICE, &[ALICE]);
        lab.reply(0, chmod(ROOT, 0o700))
    }),
    ("only root gives files away", Errno::EPERM, |lab| {
        let id = alices(lab);
        lab.reply(0, Attributes { uid: BOB, ..attributes(id, set::UID) }.into())
    }),
    ("uid {uid} is not in group {gid}", Errno::EPERM, |lab| {
        let id = alices(lab);
        lab.reply(0, Attributes { gid: 7, ..attributes(id, set::GID) }.into())
    }),
    ("symbolic links have no mode of their own", Errno::EOPNOTSUPP, |lab| {
        let id = lab.create(ROOT, "s", mode::SYMLINK).id;
        lab.reply(0, chmod(id, 0o700))
    }),
    ("file {} is a directory", Errno::EISDIR, |lab| lab.reply(0, truncate(ROOT, 0))),
    ("file {} is not a regular file", Errno::EINVAL, |lab| {
        let id = lab.create(ROOT, "p", mode::FIFO | 0o644).id;
        lab.reply(0, truncate(id, 0))
    }),
    ("a file of {end} bytes, limit is {SIZE_MAX}", Errno::EFBIG, |lab| {
        let id = lab.file("f").id;
        lab.reply(0, truncate(id, u64::MAX))
    }),
    ("file {} was cut too often", Errno::EOVERFLOW, |lab| {
        let id = at_the_last_epoch(lab);
        lab.reply(0, truncate(id, 0))
    }),
    ("file {} was cut too often", Errno::EOVERFLOW, |lab| {
        // An append to a file whose tail was lost with the power cuts it.
        let session = lab.hello(0, &[]).0;
        let id = at_the_last_epoch(lab);
        lab.save();
        lab.lose_power(2);
        lab.hello(session, &[]);
        lab.reply(session, Op::Reserve { id, length: 1 })
    }),
    ("file {id} was cut too often", Errno::EOVERFLOW, |lab| {
        let id = at_the_last_epoch(lab);
        let inode = lab.stat(id);
        mend(lab, Class::AheadObject, id, u64::from(u32::MAX), inode.version)
    }),
    ("file {id} has epoch {current}, not {epoch}", Errno::ESTALE, |lab| {
        let id = lab.file("f").id;
        lab.reply(0, Op::Extend { id, epoch: 1, end: 1, hole: false })
    }),
    ("file {id} has epoch {current}, not {epoch}", Errno::ESTALE, |lab| {
        let id = inline(lab);
        write_inline(lab, id, 1, vec![InlinePiece { offset: 0, bytes: 1 }], 1)
    }),
    ("file {id} has epoch {current}, not {epoch}", Errno::ESTALE, |lab| {
        let id = lab.file("f").id;
        let asked = attributes(id, set::SIZE | set::AT_EPOCH);
        lab.reply(0, Attributes { mode: 1, ..asked }.into())
    }),
    ("an epoch stands beside a size, and in place of a mode", Errno::EINVAL, |lab| {
        let id = lab.file("f").id;
        lab.reply(0, attributes(id, set::SIZE | set::AT_EPOCH | set::MODE).into())
    }),
    ("there is no consistency mode {consistency}", Errno::EINVAL, |lab| {
        lab.reply(0, Op::SetConsistency { id: ROOT, consistency: 99 })
    }),
    ("file {id} has data", Errno::ENOTEMPTY, |lab| {
        let id = lab.file("f").id;
        lab.extend(id, 1);
        lab.reply(0, Op::SetStriping { id, hint: hint() })
    }),
    ("file {id} is open", Errno::EBUSY, |lab| {
        let session = lab.hello(0, &[]).0;
        let id = created(lab.reply(session, create_open(ROOT, "f", true))).id;
        lab.reply(0, Op::SetStriping { id, hint: hint() })
    }),
    ("file {id} is open", Errno::EBUSY, |lab| {
        let session = lab.hello(0, &[]).0;
        let inode = created(lab.reply(session, create_open(ROOT, "f", true)));
        mend(lab, Class::LongObject, inode.id, 0, inode.version)
    }),
    ("findings of class {} are not known", Errno::EINVAL, |lab| {
        let finding = Finding { class: 250, ..finding(Class::WrongLinks, ROOT, 0, 0) };
        lab.reply(0, Op::Mend { finding })
    }),
    ("{} is not repaired here", Errno::EOPNOTSUPP, |lab| {
        // A row of a table that nobody knows is found, and left alone.
        lab.store.kv_mut().put(b"?row", b"x").unwrap();
        let unknown = finding(Class::UnknownRow, 0, 0, 0);
        lab.reply(0, Op::Mend { finding: Finding { name: "?row".into(), ..unknown } })
    }),
    ("it has changed since it was found", Errno::EAGAIN, |lab| {
        let id = lab.file("f").id;
        mend(lab, Class::WrongLinks, id, 0, 77)
    }),
    ("/{LOST_AND_FOUND}/{name} exists", Errno::EEXIST, |lab| {
        let inode = lab.file("f");
        let home = lab.mkdir(ROOT, "lost+found").id;
        lab.create(home, &format!("#{:016x}", inode.id), mode::REGULAR);
        mend(lab, Class::Unreachable, inode.id, 0, inode.version)
    }),
    ("the range ends before it starts", Errno::EINVAL, |lab| lock(lab, range(2, 1))),
    ("the range ends before it starts", Errno::EINVAL, |lab| {
        lab.reply(0, Op::Unlock { id: ROOT, lock: range(2, 1) })
    }),
    ("file {id} cannot be locked so", Errno::EBADF, |lab| {
        let session = lab.hello(0, &[]).0;
        lab.reply(session, Op::Lock { id: ROOT, lock: range(0, 1), wait: false, again: false })
    }),
    ("file {id} is locked by another", Errno::EAGAIN, |lab| {
        lock(lab, range(0, 1));
        let session = lab.hello(0, &[]).0;
        let id = lab.find(ROOT, "f").unwrap().id;
        lab.reply(session, Op::Lock { id, lock: range(0, 1), wait: false, again: false })
    }),
    ("they wait for each other", Errno::EDEADLK, |lab| {
        let (id, a, b) = (lab.file("f").id, lab.hello(0, &[]).0, lab.hello(0, &[]).0);
        let take = |at, wait| Op::Lock { id, lock: range(at, at), wait, again: false };
        assert_eq!((lab.code(a, take(0, false)), lab.code(b, take(1, false))), (0, 0));
        assert!(matches!(lab.send(a, 0, take(1, true)), Applied::Wait(_)));
        lab.reply(b, take(0, true))
    }),
    ("file {id} has {RESERVED_MAX} appends under way", Errno::EAGAIN, |lab| {
        let (id, session) = (lab.file("f").id, lab.hello(0, &[]).0);
        lab.reply(session, Op::Reserve { id, length: 1 });
        many_appends(lab);
        lab.reply(session, Op::Reserve { id, length: 1 })
    }),
    ("file {id} takes no append with its metadata", Errno::ERANGE, |lab| {
        let id = lab.file("f").id;
        lab.reply(0, Op::AppendInline { id, data: vec![1].into() })
    }),
    ("{length} bytes of data, limit is {INLINE_BYTES_MAX}", Errno::E2BIG, |lab| {
        let id = inline(lab);
        write_inline(lab, id, 0, Vec::new(), (64 << 10) + 1)
    }),
    ("{} pieces, limit is {PIECES_MAX}", Errno::E2BIG, |lab| {
        let id = inline(lab);
        write_inline(lab, id, 0, vec![InlinePiece { offset: 0, bytes: 0 }; 16 * 1024 + 1], 0)
    }),
    ("{} bytes for pieces of {total}", Errno::EINVAL, |lab| {
        let id = inline(lab);
        write_inline(lab, id, 0, vec![InlinePiece { offset: 0, bytes: 2 }], 1)
    }),
    ("{names} names of {files} files, at most {TAKEN_MAX} at once", Errno::EINVAL, |lab| {
        lab.reply(0, Op::Remove { dir: ROOT, ids: List(vec![1]), names: List(vec![]) })
    }),
    (
        "{dirs} directories, {names} names, {files} files, {count} steps: limit {TAKEN_MAX}",
        Errno::EINVAL,
        |lab| {
            let (dirs, steps) = (List(vec![ROOT]), List(vec![step::LINK]));
            lab.reply(0, Op::Names { dirs, steps, ids: List(vec![1]), names: List(vec![]) })
        },
    ),
    ("{} files to be taken, at most {TAKEN_MAX} at once", Errno::EINVAL, |lab| {
        lab.reply(0, Op::Take { dir: ROOT, ids: List(vec![1; TAKEN_MAX + 1]) })
    }),
    ("number {id} was not given for a new file", Errno::EINVAL, |lab| {
        make_late(lab, |made| made.id = ROOT)
    }),
    ("file {id} is laid out as no file of directory {parent}", Errno::EINVAL, |lab| {
        make_late(lab, |made| made.striping.strip_bytes += 1)
    }),
    ("file {id} is made with {end} bytes, only {limit} lie with it", Errno::EINVAL, |lab| {
        make_late(lab, |made| made.end = 1 << 40)
    }),
    ("file {id} is no regular one, or more is set than mode and times", Errno::EINVAL, |lab| {
        make_late(lab, |made| made.mask = set::SIZE)
    }),
    ("mode {bits:o} is that of no directory", Errno::EINVAL, |lab| {
        let (name, gid) = ("d".into(), u32::MAX);
        lab.reply(0, Op::MakeDir { parent: ROOT, name, mode: 0o755, gid, count: 1 })
    }),
    ("file {id} has no inline byte {end}, only {limit}", Errno::EINVAL, |lab| {
        let id = inline(lab);
        write_inline(lab, id, 0, vec![InlinePiece { offset: 1 << 30, bytes: 1 }], 1)
    }),
    ("{text}, limit is {NAME_BYTES_MAX}", Errno::ENAMETOOLONG, |lab| {
        let (files, appends) = (List(Vec::new()), List(Vec::new()));
        lab.reply(0, Op::Hello { session: 0, files, appends, name: "x".repeat(256).into() })
    }),
    ("there are {SESSIONS_MAX} sessions already", Errno::EMFILE, |lab| {
        for _ in 0..64 * 1024 {
            lab.hello(0, &[]);
        }
        let (files, appends, name) = (List(Vec::new()), List(Vec::new()), Name::EMPTY);
        lab.reply(0, Op::Hello { session: 0, files, appends, name })
    }),
    ("session {session} is over", Errno::ESTALE, |lab| lab.reply(77, Op::Touch { id: ROOT })),
    ("mutation {seq} was answered, all below {floor}", Errno::EPROTO, |lab| {
        let (session, _) = lab.hello(0, &[]);
        let (id, caller) = (lab.file("f").id, root());
        let op = Op::Touch { id };
        lab.apply(Request { session, seq: 2, seq_done: 2, now: 9, caller, op: op.clone() });
        answer(lab.send(session, 1, op))
    }),
    ("it was done, but its answer is no longer kept", Errno::EIO, |lab| {
        let (session, _) = lab.hello(0, &[]);
        let id = lab.file("f").id;
        let count = REPLIES_KEPT_MAX as u64 + 1;
        (2..2 + count).for_each(|seq| drop(lab.send(session, seq, Op::Touch { id })));
        answer(lab.send(session, 2, Op::Touch { id }))
    }),
    ("the value has {bytes} bytes, limit is {XATTR_VALUE_BYTES_MAX}", Errno::E2BIG, |lab| {
        attribute(lab, ROOT, "user.x", (64 << 10) + 1, 0)
    }),
    ("setxattr flags {flags:#x} are not known", Errno::EINVAL, |lab| {
        attribute(lab, ROOT, "user.x", 1, 4)
    }),
    ("file {id} has {name} already", Errno::EEXIST, |lab| {
        attribute(lab, ROOT, "user.x", 1, 0);
        attribute(lab, ROOT, "user.x", 1, xattr::CREATE)
    }),
    ("file {id} has no {name}", Errno::ENODATA, |lab| {
        attribute(lab, ROOT, "user.x", 1, xattr::REPLACE)
    }),
    ("the names of file {} pass {XATTR_LIST_BYTES_MAX} bytes", Errno::ENOSPC, |lab| {
        fill(lab, |at| format!("user.{at:0>250}"), 1)
    }),
    ("the attributes of file {id} pass {limit} bytes", Errno::ENOSPC, |lab| {
        fill(lab, |at| format!("user.{at}"), 64 << 10)
    }),
    ("the attribute's name has {length} bytes, limit is {NAME_BYTES_MAX}", Errno::ERANGE, |lab| {
        attribute(lab, ROOT, &format!("user.{}", "x".repeat(255)), 1, 0)
    }),
    ("the attribute's name {name:?} holds NUL", Errno::EINVAL, |lab| {
        attribute(lab, ROOT, "user.\0", 1, 0)
    }),
    ("the attribute's name {name:?} is a prefix alone", Errno::EINVAL, |lab| {
        attribute(lab, ROOT, "user.", 1, 0)
    }),
    ("attributes like {name} are not supported", Errno::EOPNOTSUPP, |lab| {
        attribute(lab, ROOT, "system.posix_acl_access", 1, 0)
    }),
    ("only root sets attributes that are not user.*", Errno::EPERM, |lab| {
        lab.caller = user(ALICE, &[ALICE]);
        attribute(lab, ROOT, "trusted.x", 1, 0)
    }),
    ("only plain files and directories have user.* attributes", Errno::EPERM, |lab| {
        let id = lab.create(ROOT, "s", mode::SYMLINK).id;
        attribute(lab, id, "user.x", 1, 0)
    }),
    ("directory {} is sticky", Errno::EPERM, |lab| {
        lab.reply(0, chmod(ROOT, 0o1777));
        lab.caller = user(ALICE, &[ALICE]);
        attribute(lab, ROOT, "user.x", 1, 0)
    }),
    ("no chain has index {index}: there are {count}", Errno::EINVAL, |lab| {
        lab.reply(0, Op::RaiseChain { chain: 4 })
    }),
    ("chain {index} has changed meanwhile", Errno::ESTALE, |lab| {
        lab.reply(0, Op::MoveChain { chain: 0, server: 1, generation: 9, store: Name::EMPTY })
    }),
    ("the directory's layout names I/O servers that were removed", Errno::EINVAL, |lab| {
        let (kind, params) = (covey_stripe::distribution::VARSTRIP, List(vec![0, 4096, 3, 4096]));
        let hint = StripingHint { kind, strip_bytes: 0, server_count: 0, params };
        lab.reply(0, Op::SetStriping { id: ROOT, hint });
        lab.reply(0, Op::Place { server: 2, state: covey_stripe::meta::place::REMOVED });
        make_new(lab, "f")
    }),
    ("{} cannot be added", Errno::EINVAL, |lab| lab.reply(0, Op::AddServer { name: "io0".into() })),
    ("no I/O server has index {server}: there are {count}", Errno::EINVAL, |lab| {
        lab.reply(0, Op::KnowStore { server: 4, store: "another".into() })
    }),
    ("file {id} was used since its move began", Errno::ESTALE, |lab| {
        let id = lab.file("f").id;
        lab.reply(0, move_to(id, 1, 1, &[0]))
    }),
    ("no file is laid out on these I/O servers", Errno::EINVAL, |lab| {
        let id = lab.file("f").id;
        let now = node(lab.reply(0, Op::BeginMove { id }));
        lab.reply(0, Op::CutDone { id, epoch: now.epoch });
        lab.reply(0, move_to(id, now.epoch, now.version, &[0, 0]))
    }),
    ("file {id} is in use", Errno::EBUSY, |lab| {
        let id = lab.file("f").id;
        let session = lab.hello(0, &[]).0;
        lab.reply(session, Op::Open { id, access: 4 });
        lab.reply(0, Op::BeginMove { id })
    }),
    ("no I/O server has the index {}", Errno::EINVAL, |lab| {
        lab.reply(0, Op::KeepTask { task: Task { server: 4, ..Task::default() } })
    }),
    ("no I/O server has index {server}: there are {count}", Errno::EINVAL, |lab| {
        lab.reply(0, Op::Place { server: 4, state: 0 })
    }),
];

fn move_to(id: Id, epoch: u32, version: u64, servers: &[u16]) -> Op {
    Op::Move { id, epoch, version, servers: List(servers.to_vec()) }
}

/// Refusals that take too long to bring about here, and the test beside the source that does.
const ELSEWHERE: &[(&str, &str)] = &[
    ("file {id} has too many locks", "a_file_has_a_bounded_number_of_locks"),
    ("quotas are counted: links are made at once", "a_refused_step_is_refused_in_a_replay"),
    ("file {id} has no name any more", "a_refused_step_is_refused_in_a_replay"),
    ("there is no step {step}", "steps_come_in_lists_of_one_length_and_not_without_end"),
    ("{name} is the only name of file {id}", "a_refused_step_leaves_nothing"),
    ("{name} leads to another file", "a_refused_step_leaves_nothing"),
];

/// Refusals that no request can bring about: each is behind a match that its caller has made.
const UNREACHABLE: &[&str] = &[
    "no file to be made",
    "no directory to be made",
    "it is not of chains",
    "no amendment",
    "file {id} is on no I/O server",
    "no attributes",
    "not a setxattr",
    "not a creation",
    "not a listing",
    "not a rename",
    "no inline data",
    "not an open",
    "not a greeting",
    "not a check",
    "the file was not opened",
];

fn request(op: Op) -> Request {
    Request { session: 0, seq: 0, seq_done: 0, now: 1, caller: root(), op }
}

fn answer(applied: Applied) -> Reply {
    match applied {
        Applied::Reply(reply) => reply,
        other => panic!("{other:?}"),
    }
}

/// A file that is to be made late, with one thing wrong.
fn make_late(lab: &mut Lab, spoil: impl Fn(&mut Make)) -> Reply {
    let (first, stripings) = numbers(lab, ROOT, 1);
    let mut made = make(ROOT, "late", first).with(&stripings[0], b"");
    spoil(&mut made);
    lab.reply(0, made.op())
}

fn make_new(lab: &mut Lab, name: &str) -> Reply {
    lab.reply(0, create(ROOT, name, mode::REGULAR | 0o644))
}

fn symlink(lab: &mut Lab, to: &str) -> Reply {
    let mut op = create(ROOT, "s", mode::SYMLINK | 0o777);
    let Op::Create { target, .. } = &mut op else { unreachable!() };
    *target = to.into();
    lab.reply(0, op)
}

fn link(id: Id, name: &str) -> Op {
    Op::Link { id, parent: ROOT, name: name.into() }
}

fn unlink(lab: &mut Lab, name: &str, dir: bool) -> Reply {
    lab.reply(0, Op::Unlink { parent: ROOT, name: name.into(), dir })
}

fn rename(lab: &mut Lab, parent: Id, name: &str, to: Id, to_name: &str, flags: u32) -> Reply {
    let (name, to_name) = (name.into(), to_name.into());
    lab.reply(0, Op::Rename { parent, name, to, to_name, flags })
}

/// Alice may write into the root, and asks from now on.
fn open_root(lab: &mut Lab) {
    lab.reply(0, chmod(ROOT, 0o777));
    lab.caller = user(ALICE, &[ALICE]);
}

fn alices(lab: &mut Lab) -> Id {
    open_root(lab);
    lab.file("f").id
}

/// A session, and a file that it has open and that has no name any more.
fn unlinked(lab: &mut Lab) -> (u64, Id) {
    let session = lab.hello(0, &[]).0;
    let id = created(lab.reply(session, create_open(ROOT, "f", true))).id;
    assert_eq!(lab.unlink(ROOT, "f"), 0);
    (session, id)
}

fn finding(class: Class, id: Id, found: u64, version: u64) -> Finding {
    let (class, name) = (class as u8, Name::EMPTY);
    Finding { class, id, parent: 0, name, found, wanted: 0, version }
}

fn mend(lab: &mut Lab, class: Class, id: Id, found: u64, version: u64) -> Reply {
    lab.reply(0, Op::Mend { finding: finding(class, id, found, version) })
}

/// A file with data that stands at the last epoch there is.
fn at_the_last_epoch(lab: &mut Lab) -> Id {
    let id = lab.file("f").id;
    let version = lab.extend(id, 10).version;
    let last = u64::from(EPOCH_MAX) - 1;
    assert_eq!(code(&mend(lab, Class::AheadObject, id, last, version)), 0);
    assert_eq!(lab.stat(id).epoch, EPOCH_MAX);
    id
}

/// A file whose beginning lies with its inode.
fn inline(lab: &mut Lab) -> Id {
    lab.reply(0, Op::SetStriping { id: ROOT, hint: StripingHint::progressive(65536, 0) });
    lab.file("f").id
}

fn write_inline(
    lab: &mut Lab,
    id: Id,
    epoch: u32,
    pieces: Vec<InlinePiece>,
    bytes: usize,
) -> Reply {
    let (pieces, data) = (List(pieces), vec![1; bytes].into());
    lab.reply(0, Op::WriteInline { id, epoch, end: 0, hole: false, pieces, data })
}

fn range(start: u64, end: u64) -> RangeLock {
    RangeLock { exclusive: true, whole: false, start, end, owner: 1, pid: 77 }
}

fn lock(lab: &mut Lab, lock: RangeLock) -> Reply {
    let (id, session) = (lab.file("f").id, lab.hello(0, &[]).0);
    lab.reply(session, Op::Lock { id, lock, wait: false, again: false })
}

/// Makes one append under way very many: the row's records are alike, after their number.
fn many_appends(lab: &mut Lab) {
    const RECORD_BYTES: usize = 33;
    const COUNT: u64 = 16 * 1024;
    let rows = dump(lab.store.kv()).into_iter();
    let (key, row) = rows.rev().find(|(key, _)| key.starts_with(b"a")).expect("there is one");
    let (header, record) = row.split_at(row.len() - RECORD_BYTES);
    // The row's version, and how many there are.
    let mut many = vec![header[0]];
    many.extend_from_slice(&COUNT.to_le_bytes()[..header.len() - 1]);
    (0..COUNT).for_each(|_| many.extend_from_slice(record));
    lab.store.kv_mut().put(&key, &many).unwrap();
}

fn attribute(lab: &mut Lab, id: Id, name: &str, bytes: usize, flags: u32) -> Reply {
    lab.reply(0, Op::Setxattr { id, name: name.into(), value: vec![1; bytes].into(), flags })
}

/// Sets attributes until one is refused.
fn fill(lab: &mut Lab, name: impl Fn(u32) -> String, bytes: usize) -> Reply {
    let mut replies = (0..1000).map(|at| attribute(lab, ROOT, &name(at), bytes, 0));
    replies.find(|reply| code(reply) != 0).expect("there is a limit")
}

/// Whether a reason is these words, with anything for what stands in braces.
fn says(words: &str, reason: &str) -> bool {
    let mut rest = reason;
    let mut pieces = words.split('{').map(|piece| piece.rsplit('}').next().unwrap_or(piece));
    let first = pieces.next().unwrap_or("");
    let Some(after) = rest.strip_prefix(first) else { return false };
    rest = after;
    let mut is_open = false;
    for piece in pieces {
        let Some(at) = rest.find(piece) else { return false };
        (rest, is_open) = (&rest[at + piece.len()..], piece.is_empty());
    }
    rest.is_empty() || is_open
}

#[test]
fn each_refusal_has_its_errno_and_its_words() {
    for (at, (words, errno, ask)) in REFUSALS.iter().chain(quotas::REFUSALS).enumerate() {
        match ask(&mut Lab::default()) {
            Reply::Error { code, reason } => {
                let reason = reason.lossy();
                assert!(code == *errno && says(words, &reason), "{at} {words}: {code} {reason}");
            }
            other => panic!("{at} {words}: {other:?}"),
        }
    }
}

/// The words of every `refuse(...)` in a source file: the literal in the call, or else the last text
/// before it.
fn refusals_in(source: &str) -> Vec<String> {
    let literal = |text: &str| {
        let start = text.find('"')? + 1;
        let length = text[start..].find('"')?;
        Some(text[start..start + length].to_owned())
    };
    let mut found = Vec::new();
    for (at, call) in source.match_indices("refuse(") {
        let is_other = source[..at].ends_with("fn ") || source[..at].ends_with(['_', '.']);
        if is_other {
            continue;
        }
        let end = source[at..].find([';', '}']).map_or(source.len(), |end| at + end);
        // The braces of a format end the call too early: its literal begins before them.
        let inside = literal(&source[at + call.len()..(end + 200).min(source.len())]);
        let is_inside = source[at..end].contains('"');
        let last = |sign: &str| source[..at].rfind(sign);
        let before = || literal(&source[last("format!(").max(last("let text = \""))?..]);
        found.push(inside.filter(|_| is_inside).or_else(before).expect("a refusal has words"));
    }
    found
}

fn sources(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let (dirs, files): (Vec<PathBuf>, Vec<PathBuf>) = entries.partition(|path| path.is_dir());
    let files = files.into_iter().filter(|path| !path.ends_with("tests.rs"));
    files.chain(dirs.iter().flat_map(|dir| sources(dir))).collect()
}

#[test]
fn every_refusal_of_the_source_is_in_the_table() {
    let meta = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/meta");
    let read = |path: &PathBuf| refusals_in(&std::fs::read_to_string(path).unwrap());
    let in_source: BTreeSet<String> = sources(&meta).iter().flat_map(read).collect();
    let rows = REFUSALS.iter().chain(quotas::REFUSALS);
    let rows = rows.map(|row| row.0).chain(UNREACHABLE.iter().copied());
    let rows = rows.chain(ELSEWHERE.iter().map(|row| row.0));
    let in_table: BTreeSet<String> = rows.map(str::to_owned).collect();
    let missing: Vec<_> = in_source.difference(&in_table).collect();
    let gone: Vec<_> = in_table.difference(&in_source).collect();
    assert!(missing.is_empty(), "refusals without a row: {missing:#?}");
    assert!(gone.is_empty(), "rows without a refusal: {gone:#?}");
}
