use super::*;
use covey_ninep::tree::{Peer, Removal, SetTime, Time};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

/// An export of a temporary directory, used as the server's own user.
struct Export {
    dir: tempfile::TempDir,
    tree: ExportTree,
    user: Rc<User>,
    root: Node,
}

fn now<T>(outcome: Outcome<T>) -> Result<T> {
    match outcome {
        Outcome::Now(result) => result,
        Outcome::Later(future) => tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime")
            .block_on(future),
    }
}

fn code<T>(outcome: Outcome<T>) -> u32 {
    now(outcome).err().map_or(0, |error| error.code)
}

fn attach(aname: &str) -> Attach {
    let uid = rustix::process::getuid().as_raw();
    let peer = Peer { name: "test".into(), uid: Some(uid), has_key: false };
    Attach { peer, uname: Name::EMPTY, n_uname: None, aname: aname.into() }
}

impl Export {
    fn new() -> Export {
        Export::of(tempfile::tempdir().unwrap(), false)
    }

    fn of(dir: tempfile::TempDir, is_read_only: bool) -> Export {
        rustix::process::umask(rustix::fs::Mode::empty());
        let tree = ExportTree::open(dir.path(), is_read_only).unwrap();
        let (user, _, root) = now(tree.attach(attach("/"))).unwrap();
        Export { dir, tree, user: Rc::new(user), root }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn read(&self, node: &Node, offset: u64, count: u32) -> Outcome<Bytes> {
        self.tree.read(&self.user, node, Read::bytes(offset, count)).into_outcome()
    }

    fn write(&self, node: &Node, data: impl Into<Bytes>) -> Outcome<u32> {
        self.tree.write(&self.user, node, Write::bytes(0, data.into())).into_outcome()
    }

    fn walk(&self, names: &[&str]) -> Result<Vec<(Qid, Node)>> {
        let names: Vec<Name> = names.iter().map(|name| Name::from(*name)).collect();
        now(self.tree.walk(&self.user, &self.root, &names))
    }

    fn node(&self, names: &[&str]) -> Node {
        let found = self.walk(names).unwrap();
        assert_eq!(found.len(), names.len());
        found.into_iter().last().unwrap().1
    }

    fn open(&self, node: &Node, flags: i32) -> Result<Node> {
        now(self.tree.open(&self.user, node, flags as u32)).map(|opened| opened.node)
    }

    fn create(&self, name: &str, flags: i32) -> Result<Node> {
        let flags = flags as u32;
        let created = self.tree.create(&self.user, &self.root, name.into(), flags, 0o640, 0);
        now(created).map(|opened| opened.node)
    }

    fn attr(&self, node: &Node) -> Attr {
        now(self.tree.getattr(&self.user, node)).unwrap()
    }

    fn list(&self, node: &Node, cookie: u64, bytes_max: u32) -> Vec<Entry> {
        now(self.tree.readdir(&self.user, node, cookie, bytes_max)).unwrap()
    }
}

#[test]
fn symbolic_links_are_shown_and_never_followed() {
    let export = Export::new();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "x").unwrap();
    symlink(outside.path(), export.path("dir")).unwrap();
    symlink(outside.path().join("secret"), export.path("file")).unwrap();
    let (qid, link) = export.walk(&["dir"]).unwrap().remove(0);
    assert_eq!(qid.kind, Qid::SYMLINK);
    assert_eq!(export.attr(&link).mode & 0o170_000, 0o120_000);
    let found = export.walk(&["dir", "secret"]).unwrap();
    assert_eq!(found.len(), 1, "the walk ends at the link");
    let file = export.node(&["file"]);
    assert_eq!(export.open(&file, libc::O_RDONLY).err().unwrap().code, Errno::ELOOP);
    let target = now(export.tree.readlink(&export.user, &link)).unwrap();
    assert_eq!(target.as_bytes(), outside.path().as_os_str().as_bytes());
    assert_eq!(code(export.tree.readlink(&export.user, &export.root)), Errno::EINVAL);
    let opened = export.create("file", libc::O_RDWR);
    assert_eq!(opened.err().unwrap().code, Errno::ELOOP, "create does not follow either");
}

#[test]
fn dot_dot_ends_at_the_root() {
    let export = Export::new();
    fs::create_dir_all(export.path("a/b")).unwrap();
    let found = export.walk(&["..", "..", "a", "b", "..", "..", "..", ".."]).unwrap();
    assert_eq!(found.len(), 8);
    assert_eq!(found[7].0.path, found[0].0.path);
    assert_eq!(found[0].0.path, export.root.0.path);
    let root = now(export.tree.open(&export.user, &export.root, 0)).unwrap();
    let entries = export.list(&root.node, 0, 4096);
    let up = entries.iter().find(|entry| entry.name.as_bytes() == b"..").unwrap();
    assert_eq!(up.qid.path, export.root.0.path, "nothing above the root is shown");
}

#[test]
fn a_directory_that_was_moved_out_leads_nowhere() {
    let export = Export::new();
    let outside = tempfile::tempdir().unwrap();
    fs::create_dir_all(export.path("a/b")).unwrap();
    let inner = export.node(&["a", "b"]);
    fs::rename(export.path("a"), outside.path().join("a")).unwrap();
    let up = export.tree.walk(&export.user, &inner, &["..".into()]);
    assert_eq!(code(up), Errno::ESTALE);
}

#[test]
fn fifos_sockets_and_devices_are_not_opened_and_devices_not_made() {
    let export = Export::new();
    let make = |name: &str, mode| {
        let special = Make::Special { mode, major: 1, minor: 3 };
        export.tree.make(&export.user, &export.root, name.into(), special, 0)
    };
    now(make("fifo", 0o010_644)).unwrap();
    now(make("socket", 0o140_644)).unwrap();
    assert_eq!(code(make("null", 0o020_666)), Errno::EPERM);
    assert_eq!(code(make("disk", 0o060_666)), Errno::EPERM);
    for name in ["fifo", "socket"] {
        let node = export.node(&[name]);
        assert_eq!(export.open(&node, libc::O_RDWR).err().unwrap().code, Errno::ENXIO);
        let opened = export.create(name, libc::O_WRONLY);
        assert_eq!(opened.err().unwrap().code, Errno::ENXIO, "nor by way of create");
        now(export.tree.unlink(&export.user, &export.root, name.into(), Removal::File)).unwrap();
    }
}

#[test]
fn a_device_that_lies_in_the_directory_is_not_opened() {
    let tree = ExportTree::open(Path::new("/dev"), true).unwrap();
    let (user, _, root) = now(tree.attach(attach(""))).unwrap();
    let user = Rc::new(user);
    let (_, null) = now(tree.walk(&user, &root, &["null".into()])).unwrap().remove(0);
    assert_eq!(code(tree.open(&user, &null, 0)), Errno::ENXIO);
}

#[test]
fn an_unlinked_file_goes_on_for_those_who_hold_it() {
    let export = Export::new();
    let open = export.create("file", libc::O_RDWR | libc::O_EXCL).unwrap();
    let closed = export.node(&["file"]);
    now(export.write(&open, &b"hello"[..])).unwrap();
    now(export.tree.unlink(&export.user, &export.root, "file".into(), Removal::File)).unwrap();
    for node in [&open, &closed] {
        let attr = export.attr(node);
        assert_eq!((attr.size, attr.nlink), (5, 0));
    }
    let cut = SetAttr { size: Some(2), mode: Some(0o600), ..SetAttr::default() };
    now(export.tree.setattr(&export.user, &open, cut)).unwrap();
    assert_eq!((export.attr(&open).size, export.attr(&open).mode), (2, 0o100_600));
    let times = SetAttr {
        size: Some(4),
        uid: Some(rustix::process::getuid().as_raw()),
        mtime: Some(SetTime::To(Time { sec: 77, nsec: 5 })),
        ..SetAttr::default()
    };
    now(export.tree.setattr(&export.user, &closed, times)).unwrap();
    let attr = export.attr(&open);
    assert_eq!((attr.size, attr.mtime), (4, Time { sec: 77, nsec: 5 }));
    assert_eq!(now(export.read(&open, 0, 10)).unwrap(), &b"he\0\0"[..]);
    let again = export.open(&closed, libc::O_RDONLY).unwrap();
    assert_eq!(now(export.read(&again, 1, 1)).unwrap(), &b"e"[..]);
}

#[test]
fn a_renamed_file_is_the_same_object() {
    let export = Export::new();
    fs::create_dir(export.path("dir")).unwrap();
    let dir = export.node(&["dir"]);
    let open = export.create("old", libc::O_RDWR).unwrap();
    let closed = export.node(&["old"]);
    let rename = |old: &str, to, new: &str| {
        now(export.tree.rename(&export.user, &export.root, old.into(), to, new.into()))
    };
    rename("old", &dir, "new").unwrap();
    now(export.write(&open, &b"x"[..])).unwrap();
    assert_eq!(fs::read(export.path("dir/new")).unwrap(), b"x");
    assert_eq!(export.attr(&closed).size, 1);
    rename("dir", &export.root, "moved").unwrap();
    assert_eq!(export.attr(&dir).qid.path, export.node(&["moved"]).0.path);
}

#[test]
fn a_file_made_without_write_permission_is_written_through_its_open() {
    let export = Export::new();
    let flags = (libc::O_RDWR | libc::O_CREAT) as u32;
    let created = export.tree.create(&export.user, &export.root, "f".into(), flags, 0o400, 0);
    let node = now(created).unwrap().node;
    now(export.write(&node, &b"12345"[..])).unwrap();
    let cut = SetAttr { size: Some(3), ..SetAttr::default() };
    now(export.tree.setattr(&export.user, &node, cut)).unwrap();
    assert_eq!(fs::metadata(export.path("f")).unwrap().len(), 3);
    assert_eq!(fs::metadata(export.path("f")).unwrap().permissions().mode() & 0o777, 0o400);
}

#[test]
fn cookies_stay_good_while_entries_are_removed() {
    let export = Export::new();
    for n in 0..200 {
        fs::write(export.path(&format!("file-{n:03}")), "").unwrap();
    }
    let dir = export.open(&export.root, libc::O_RDONLY | libc::O_DIRECTORY).unwrap();
    let mut seen = Vec::new();
    let mut cookie = 0;
    loop {
        let entries = export.list(&dir, cookie, 500);
        let Some(last) = entries.last() else { break };
        cookie = last.cookie;
        assert!(entries.iter().map(|entry| 24 + entry.name.len()).sum::<usize>() <= 500);
        for entry in entries.iter().filter(|entry| entry.name.as_bytes().starts_with(b"file")) {
            let name = entry.name.clone();
            now(export.tree.unlink(&export.user, &export.root, name, Removal::File)).unwrap();
        }
        seen.extend(entries.into_iter().map(|entry| entry.name));
    }
    seen.sort();
    let expected = (0..200).map(|n| Name::from(format!("file-{n:03}")));
    assert_eq!(seen, [".".into(), "..".into()].into_iter().chain(expected).collect::<Vec<Name>>());
    assert_eq!(export.list(&dir, 0, 500).len(), 2, "from the start again, afresh");
}

#[test]
fn a_listing_goes_on_from_any_cookie() {
    let export = Export::new();
    for n in 0..20 {
        fs::write(export.path(&format!("{n}")), "").unwrap();
    }
    let dir = export.open(&export.root, libc::O_RDONLY).unwrap();
    let all = export.list(&dir, 0, 8192);
    assert_eq!(all.len(), 22);
    for at in [20, 3, 11] {
        assert_eq!(export.list(&dir, all[at].cookie, 8192), all[at + 1..]);
    }
    let inode = fs::metadata(export.path("7")).unwrap().ino();
    let seven = all.iter().find(|entry| entry.name.as_bytes() == b"7").unwrap();
    assert_eq!((seven.qid.path, seven.kind), (inode, 8));
    assert_eq!(code(export.tree.readdir(&export.user, &dir, 0, 24)), Errno::EINVAL);
}

#[test]
fn links_and_names_are_made_as_asked() {
    let export = Export::new();
    let file = export.create("file", libc::O_RDWR).unwrap();
    now(export.tree.link(&export.user, &file, &export.root, "hard".into())).unwrap();
    assert_eq!(export.attr(&file).nlink, 2);
    let make =
        |name: &str, make| now(export.tree.make(&export.user, &export.root, name.into(), make, 0));
    assert_eq!(make("dir", Make::Dir { mode: 0o1770 }).unwrap().kind, Qid::DIR);
    assert_eq!(export.attr(&export.node(&["dir"])).mode, 0o041_770);
    let symlink = make("soft", Make::Symlink { target: "/nowhere".into() }).unwrap();
    assert_eq!(symlink.kind, Qid::SYMLINK);
    let soft = export.node(&["soft"]);
    now(export.tree.link(&export.user, &soft, &export.root, "soft2".into())).unwrap();
    assert_eq!(export.node(&["soft2"]).0.path, soft.0.path, "a link to the link itself");
    assert_eq!(make("dir", Make::Dir { mode: 0o700 }).err().unwrap().code, Errno::EEXIST);
    let again = export.create("file", libc::O_RDWR | libc::O_EXCL);
    assert_eq!(again.err().unwrap().code, Errno::EEXIST);
    assert_eq!(export.create("file", libc::O_RDWR).unwrap().0.path, file.0.path);
}

#[test]
fn the_version_changes_with_the_content() {
    let export = Export::new();
    let file = export.create("file", libc::O_RDWR).unwrap();
    let before = export.attr(&file).qid;
    now(export.write(&file, &b"x"[..])).unwrap();
    let after = export.attr(&file).qid;
    assert_eq!(before.path, after.path);
    assert_ne!(before.version, after.version);
}

#[test]
fn a_read_only_export_refuses_every_change() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "text").unwrap();
    let export = Export::of(dir, true);
    let (tree, user, root) = (&export.tree, &export.user, &export.root);
    let file = export.node(&["file"]);
    let open = export.open(&file, libc::O_RDONLY).unwrap();
    assert_eq!(
        now(tree.read(user, &open, Read::bytes(0, 9)).into_outcome()).unwrap(),
        &b"text"[..]
    );
    let refused = [
        code(tree.open(user, &file, libc::O_WRONLY as u32)),
        code(tree.open(user, &file, libc::O_RDWR as u32)),
        code(tree.open(user, &file, libc::O_TRUNC as u32)),
        code(tree.create(user, root, "new".into(), 0, 0o600, 0)),
        code(tree.make(user, root, "new".into(), Make::Dir { mode: 0o700 }, 0)),
        code(tree.setattr(user, &file, SetAttr { mode: Some(0), ..SetAttr::default() })),
        code(tree.link(user, &file, root, "new".into())),
        code(tree.rename(user, root, "file".into(), root, "new".into())),
        code(tree.unlink(user, root, "file".into(), Removal::File)),
    ];
    assert_eq!(refused, [Errno::EROFS; 9]);
    assert_eq!(fs::read_dir(export.dir.path()).unwrap().count(), 1);
}

#[test]
fn locks_keep_owners_apart_and_end_with_the_last_fid() {
    let export = Export::new();
    let one = export.create("file", libc::O_RDWR).unwrap();
    let two = export.open(&export.node(&["file"]), libc::O_RDWR).unwrap();
    let lock = |kind, proc_id| Lock {
        kind,
        start: 0,
        length: 10,
        proc_id,
        client_id: "c".into(),
        wait: false,
    };
    let set = |node: &Node, lock| now(export.tree.lock(&export.user, node, lock)).unwrap();
    assert_eq!(set(&one, lock(1, 7)), LockStatus::Success);
    assert_eq!(set(&two, lock(0, 8)), LockStatus::Blocked);
    assert_eq!(set(&two, lock(1, 7)), LockStatus::Success, "the same owner by another fid");
    let found = now(export.tree.getlock(&export.user, &two, lock(0, 8))).unwrap();
    assert_eq!((found.kind, found.length, found.proc_id), (1, 10, 7));
    export.tree.clunk(&export.user, one);
    assert_eq!(set(&two, lock(0, 8)), LockStatus::Blocked, "the owner still has a fid");
    let three = export.open(&export.node(&["file"]), libc::O_RDWR).unwrap();
    export.tree.clunk(&export.user, two);
    assert_eq!(set(&three, lock(0, 8)), LockStatus::Success);
    let found = now(export.tree.getlock(&export.user, &three, lock(1, 8))).unwrap();
    assert_eq!(found.kind, 2, "nothing is in the way");
}

/// Linux's v9fs asks with the kind "unlock" whatever the program has asked for.
#[test]
fn a_question_without_a_kind_finds_any_lock_of_others() {
    use covey_io::os::ofd::{LockKind, Range, try_lock};
    let export = Export::new();
    let one = export.create("file", libc::O_RDWR).unwrap();
    let lock = |kind, proc_id, start| Lock {
        kind,
        start,
        length: 10,
        proc_id,
        client_id: "c".into(),
        wait: false,
    };
    let set = |lock| now(export.tree.lock(&export.user, &one, lock)).unwrap();
    let ask = |lock| now(export.tree.getlock(&export.user, &one, lock)).unwrap();
    for owner in [7, 8] {
        assert_eq!(ask(lock(2, owner, 0)).kind, 2, "{owner}: nothing is locked");
    }
    assert_eq!(set(lock(1, 7, 0)), LockStatus::Success);
    assert_eq!(set(lock(0, 7, 20)), LockStatus::Success);
    for (kind, start) in [(1, 0), (0, 20)] {
        let found = ask(lock(2, 8, start));
        assert_eq!((found.kind, found.start, found.proc_id), (kind, start, 7));
        assert_eq!(ask(lock(2, 7, start)).kind, 2, "one's own is not in the way");
    }
    // Of what is there, a write lock is what stands in everybody's way.
    let found = ask(Lock { length: 0, ..lock(2, 8, 0) });
    assert_eq!((found.kind, found.start), (1, 0));
    let local = fs::File::open(export.dir.path().join("file")).unwrap();
    assert!(try_lock(&local, LockKind::Read, Range { start: 40, length: 1 }).unwrap());
    let found = ask(lock(2, 8, 40));
    assert_eq!((found.kind, found.start, found.length), (0, 40, 1));
}

#[test]
fn who_says_the_same_of_itself_is_still_another_user() {
    let export = Export::new();
    let one = export.create("file", libc::O_RDWR).unwrap();
    let two = export.open(&export.node(&["file"]), libc::O_RDWR).unwrap();
    let mallory = Rc::new(User { uid: 4321, gid: 4321, groups: Vec::new() });
    let lock = |kind| {
        let (client_id, wait) = ("c".into(), false);
        Lock { kind, start: 0, length: 10, proc_id: 7, client_id, wait }
    };
    let set = |user, node, kind| now(export.tree.lock(user, node, lock(kind))).unwrap();
    assert_eq!(set(&export.user, &one, 1), LockStatus::Success);
    assert_eq!(set(&mallory, &two, 1), LockStatus::Blocked);
    assert_eq!(set(&mallory, &two, 2), LockStatus::Success, "there is nothing to give back");
    assert_eq!(set(&mallory, &two, 0), LockStatus::Blocked);
    let found = now(export.tree.getlock(&mallory, &two, lock(0))).unwrap();
    assert_eq!((found.kind, found.proc_id), (1, 7));
}

#[test]
fn a_lock_needs_a_file_that_is_open() {
    let export = Export::new();
    export.create("file", libc::O_RDWR).unwrap();
    let walked = export.node(&["file"]);
    let lock =
        Lock { kind: 1, start: 0, length: 0, proc_id: 1, client_id: "c".into(), wait: false };
    assert_eq!(code(export.tree.lock(&export.user, &walked, lock.clone())), Errno::EBADF);
    assert_eq!(code(export.tree.getlock(&export.user, &walked, lock.clone())), Errno::EBADF);
    // As flock(2), which v9fs sends as this: a file that is open for reading can be locked for writing.
    let read = export.open(&walked, libc::O_RDONLY).unwrap();
    assert_eq!(now(export.tree.lock(&export.user, &read, lock)), Ok(LockStatus::Success));
}

#[test]
fn locks_of_local_programs_are_seen() {
    use covey_io::os::ofd::{LockKind, Range, try_lock};
    let export = Export::new();
    let node = export.create("file", libc::O_RDWR).unwrap();
    let local = fs::File::options().write(true).open(export.path("file")).unwrap();
    assert!(try_lock(&local, LockKind::Write, Range { start: 5, length: 1 }).unwrap());
    let lock =
        Lock { kind: 0, start: 0, length: 0, proc_id: 1, client_id: "c".into(), wait: false };
    let status = now(export.tree.lock(&export.user, &node, lock.clone())).unwrap();
    assert_eq!(status, LockStatus::Blocked);
    let found = now(export.tree.getlock(&export.user, &node, lock)).unwrap();
    assert_eq!((found.kind, found.start, found.length), (1, 5, 1));
}

#[test]
fn an_attach_may_begin_below_the_root() {
    let export = Export::new();
    fs::create_dir_all(export.path("a/b")).unwrap();
    let own = export.path("a").into_os_string().into_string().unwrap();
    for aname in ["a", "/a", &own] {
        let (_, qid, _) = now(export.tree.attach(attach(aname))).unwrap();
        assert_eq!(qid.path, export.node(&["a"]).0.path, "{aname}");
    }
    assert_eq!(code(export.tree.attach(attach("a/../.."))), Errno::EINVAL);
    assert_eq!(code(export.tree.attach(attach("nowhere"))), Errno::ENOENT);
}

#[test]
fn a_root_server_acts_with_the_rights_of_the_user() {
    let export = Export::new();
    if !rustix::process::getuid().is_root() {
        return covey_harness::skip("needs root");
    }
    fs::set_permissions(export.dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(export.path("secret"), "x").unwrap();
    fs::set_permissions(export.path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    let claimed = Attach { n_uname: Some(4321), ..attach("/") };
    let (user, _, root) = now(export.tree.attach(claimed)).unwrap();
    let user = Rc::new(user);
    let secret = export.node(&["secret"]);
    assert_eq!(code(export.tree.open(&user, &secret, 0)), Errno::EACCES);
    let chmod = SetAttr { mode: Some(0o666), ..SetAttr::default() };
    assert_eq!(code(export.tree.setattr(&user, &secret, chmod)), Errno::EPERM);
    now(export.tree.create(&user, &root, "mine".into(), 2, 0o600, 0)).unwrap();
    assert_eq!(fs::metadata(export.path("mine")).unwrap().uid(), 4321);
    assert_ne!(fs::metadata(export.path("mine")).unwrap().gid(), 0, "not in root's group");
    let mine = export.node(&["mine"]);
    now(export.tree.open(&user, &mine, 2)).unwrap();
    now(export.tree.link(&user, &mine, &root, "link".into())).unwrap();
}

#[test]
fn a_write_takes_privilege_away_unless_root_writes() {
    if !rustix::process::getuid().is_root() {
        return covey_harness::skip("needs root");
    }
    // On disk, and in memory, where large writes are put straight into the file.
    for place in [std::env::temp_dir(), "/dev/shm".into()] {
        let dir = tempfile::tempdir_in(place).unwrap();
        let export = Export::of(dir, false);
        let mallory = Rc::new(User { uid: 4321, gid: 4321, groups: vec![4321] });
        fs::write(export.path("file"), [0; 8192]).unwrap();
        let mode = |bits| {
            let bits = fs::Permissions::from_mode(bits);
            fs::set_permissions(export.path("file"), bits).unwrap();
        };
        let now_is = || fs::metadata(export.path("file")).unwrap().mode() & 0o7777;
        mode(0o666);
        let node = export.node(&["file"]);
        let root = export.open(&node, libc::O_RDWR).unwrap();
        let other = now(export.tree.open(&mallory, &node, libc::O_RDWR as u32)).unwrap().node;
        let write = |user, node| {
            let write = Write::bytes(0, vec![1; 4096].into());
            now(export.tree.write(user, node, write).into_outcome())
        };
        for (before, after) in [(0o6777, 0o777), (0o4766, 0o766), (0o2776, 0o776)] {
            mode(before);
            assert_eq!(write(&export.user, &root), Ok(4096));
            assert_eq!(now_is(), before, "root's writes leave {before:o} as it is");
            let coming = Write { offset: 0, data: Incoming::Coming(4096) };
            let place = export.tree.write(&mallory, &other, coming);
            assert!(matches!(place, Written::Unread));
            assert_eq!(write(&mallory, &other), Ok(4096));
            assert_eq!(now_is(), after, "{before:o}");
            assert_eq!(write(&mallory, &other), Ok(4096));
        }
    }
}

#[test]
fn a_lock_that_waits_is_had_when_the_other_is_given_back_and_else_told_as_taken() {
    let export = Export::new();
    export.create("f", 2).unwrap();
    let (one, two) = (export.node(&["f"]), export.node(&["f"]));
    let (one, two) = (export.open(&one, 2).unwrap(), export.open(&two, 2).unwrap());
    let lock = |kind, proc_id, wait| Lock {
        kind,
        start: 0,
        length: 10,
        proc_id,
        client_id: "c".into(),
        wait,
    };
    let set = |node, lock| export.tree.lock(&export.user, node, lock);
    assert_eq!(now(set(&one, lock(1, 1, true))), Ok(LockStatus::Success));
    let Outcome::Later(waiting) = set(&two, lock(1, 2, true)) else { panic!("had at once") };
    let given_back = async {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        now(set(&one, lock(2, 1, false)))
    };
    let both = async { tokio::join!(waiting, given_back) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    assert_eq!(runtime.block_on(both), (Ok(LockStatus::Success), Ok(LockStatus::Success)));
    // Nobody gives it back: the client is told, and asks again.
    assert_eq!(now(set(&one, lock(0, 1, true))), Ok(LockStatus::Blocked));
    // A wait that is dropped takes nothing later.
    let Outcome::Later(dropped) = set(&one, lock(0, 1, true)) else { panic!("had at once") };
    drop(dropped);
    export.tree.clunk(&export.user, two);
    let free = now(export.tree.getlock(&export.user, &one, lock(1, 3, false))).unwrap();
    assert_eq!(free.kind, 2);
}

#[test]
fn a_waiting_lock_is_had_when_the_holders_last_fid_is_clunked() {
    let export = Export::new();
    export.create("f", 2).unwrap();
    let open = || export.open(&export.node(&["f"]), 2).unwrap();
    let (one, two) = (open(), open());
    let lock = |proc_id| {
        let (client_id, wait) = ("c".into(), true);
        Lock { kind: 1, start: 0, length: 0, proc_id, client_id, wait }
    };
    assert_eq!(now(export.tree.lock(&export.user, &one, lock(1))), Ok(LockStatus::Success));
    let Outcome::Later(waiting) = export.tree.lock(&export.user, &two, lock(2)) else {
        panic!("had at once")
    };
    let clunked = async { export.tree.clunk(&export.user, one) };
    let both = async { tokio::join!(waiting, clunked) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    assert_eq!(runtime.block_on(both).0, Ok(LockStatus::Success));
}

#[test]
fn attributes_of_users_are_kept_and_those_of_the_machine_are_roots() {
    let export = Export::new();
    let file = export.create("f", 2).unwrap();
    let (tree, user) = (&export.tree, &export.user);
    let set = |name: &str, value: &[u8], rule| {
        code(tree.set_xattr(user, &file, name.into(), value.to_vec().into(), rule))
    };
    let get = |name: &str| now(tree.xattr(user, &file, name.into()));
    match set("user.a", b"1", SetXattr::Create) {
        Errno::EOPNOTSUPP => return covey_harness::skip("the file system has no user.*"),
        code => assert_eq!(code, 0),
    }
    assert_eq!(set("user.a", b"2", SetXattr::Create), Errno::EEXIST);
    assert_eq!(set("user.b", b"2", SetXattr::Replace), Errno::ENODATA);
    assert_eq!(set("user.a", b"2", SetXattr::Replace), 0);
    assert_eq!(get("user.a").unwrap(), &b"2"[..]);
    // Through a fid that is not open, after a rename, and when the name is gone.
    let place = export.node(&["f"]);
    now(tree.rename(user, &export.root, "f".into(), &export.root, "g".into())).unwrap();
    assert_eq!(now(tree.list_xattrs(user, &place)).unwrap(), ["user.a".into()]);
    now(tree.unlink(user, &export.root, "g".into(), Removal::File)).unwrap();
    assert_eq!(code(tree.remove_xattr(user, &place, "user.a".into())), 0);
    assert_eq!(get("user.a").unwrap_err().code, Errno::ENODATA);
    assert_eq!(code(tree.remove_xattr(user, &place, "user.a".into())), Errno::ENODATA);
    // A directory and a symbolic link.
    assert_eq!(
        code(tree.set_xattr(user, &export.root, "user.d".into(), b"d"[..].into(), SetXattr::Any)),
        0
    );
    let target = Make::Symlink { target: "x".into() };
    now(tree.make(user, &export.root, "l".into(), target, 0)).unwrap();
    let link = export.node(&["l"]);
    assert_eq!(
        code(tree.set_xattr(user, &link, "user.l".into(), b"d"[..].into(), SetXattr::Any)),
        Errno::EPERM
    );
}

#[test]
fn the_machines_own_attributes_are_not_there_for_users() {
    use super::xattr::{self, XattrRights};
    let export = Export::new();
    let file = export.create("f", 2).unwrap();
    let rights = XattrRights::OfUsers;
    for name in [&b"security.x"[..], b"trusted.x", b"system.x", b"user", b"none"] {
        let set = xattr::set(&file.0, name, b"1", SetXattr::Any, rights);
        assert_eq!(set.unwrap_err().code, Errno::EPERM);
        assert_eq!(xattr::get(&file.0, name, rights).unwrap_err().code, Errno::ENODATA);
        assert_eq!(xattr::remove(&file.0, name, rights).unwrap_err().code, Errno::EPERM);
    }
    if rustix::process::geteuid().is_root()
        && xattr::set(&file.0, b"trusted.x", b"1", SetXattr::Any, XattrRights::All).is_ok()
    {
        assert_eq!(xattr::list(&file.0, XattrRights::All).unwrap(), ["trusted.x".into()]);
        assert_eq!(xattr::list(&file.0, rights).unwrap(), []);
    }
}

#[test]
fn a_change_that_is_refused_leaves_the_length() {
    let export = Export::new();
    let file = export.create("f", 2).unwrap();
    now(export.write(&file, &b"hello"[..])).unwrap();
    let wild = Some(SetTime::To(Time { sec: 1, nsec: 2_000_000_000 }));
    let set = SetAttr { size: Some(1), mtime: wild, ..SetAttr::default() };
    assert_eq!(code(export.tree.setattr(&export.user, &file, set)), Errno::EINVAL);
    assert_eq!(export.attr(&file).size, 5);
    let time = Some(SetTime::To(Time { sec: 7, nsec: 0 }));
    let set = SetAttr { size: Some(1), mtime: time, mode: Some(0o400), ..SetAttr::default() };
    assert_eq!(code(export.tree.setattr(&export.user, &file, set)), 0);
    let attr = export.attr(&file);
    assert_eq!((attr.size, attr.mtime.sec, attr.mode & 0o777), (1, 7, 0o400));
}
