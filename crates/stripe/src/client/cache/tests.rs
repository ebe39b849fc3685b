use super::*;
use crate::distribution::PROGRESSIVE;
use crate::ops::{Answer, BY_NAME, Content, DirEntry, Reply, Striping};
use covey_wire::{List, Payload};

fn inode(id: Id, mode: u32) -> Inode {
    Inode {
        id,
        mode,
        uid: 7,
        gid: 7,
        nlink: 1,
        rdev: 0,
        size: 0,
        epoch: 0,
        version: 1,
        sparse: false,
        atime: 0,
        mtime: 0,
        ctime: 0,
        btime: 0,
        target: Name::EMPTY,
        striping: None,
        hint: None,
        parent: 0,
        has_xattrs: false,
        consistency: 0,
        inline: 0,
    }
}

const DIR: Id = 2;
const FILE: Id = 3;

fn look(name: &str) -> Op {
    Op::Lookup { parent: DIR, name: Name::from(name), ahead: 0, content: false }
}

fn found(id: Option<Id>) -> Reply {
    let inode_of = |id| inode(id, 0o100_644);
    let (dir, inode) = (inode(DIR, 0o040_700), id.map(inode_of));
    Reply::Found { dir, inode, entries: List(vec![]), complete: false, contents: List(vec![]) }
}

fn unlink(name: &str) -> Op {
    Op::Unlink { parent: DIR, name: Name::from(name), dir: false }
}

fn answer(reply: &Reply, grant: u64) -> Answer {
    Answer { reply: reply.clone(), grant, dir: None }
}

struct Scene {
    cache: Cache,
    now: Instant,
}

impl Scene {
    fn new() -> Scene {
        Scene { cache: Cache::new(Caching::Leases), now: Instant::now() }
    }

    fn ask(&self, op: &Op, reply: &Reply, grant: u64) {
        let sent = self.cache.sending(op, self.now);
        self.cache.learn(sent, op, &answer(reply, grant), self.now);
    }

    /// Where the name leads, as far as is known: Some(None) for nowhere.
    fn known(&self, name: &str) -> Option<Option<Id>> {
        self.known_by(&Caller::default(), name)
    }

    fn known_by(&self, who: &Caller, name: &str) -> Option<Option<Id>> {
        let found = self.cache.lookup(who, DIR, &Name::from(name), self.now);
        found.map(|found| found.ok().map(|inode| inode.id))
    }
}

#[test]
fn what_was_granted_is_known_for_the_time_of_a_lease() {
    let mut scene = Scene::new();
    scene.ask(&look("f"), &found(Some(FILE)), 1);
    scene.ask(&look("g"), &found(None), 1);
    assert_eq!((scene.known("f"), scene.known("g")), (Some(Some(FILE)), Some(None)));
    scene.now += LEASE_TIME - Duration::from_nanos(1);
    assert_eq!(scene.known("f"), Some(Some(FILE)));
    scene.now += Duration::from_nanos(1);
    assert_eq!((scene.known("f"), scene.known("g")), (None, None));
}

#[test]
fn what_was_not_granted_is_not_known() {
    let scene = Scene::new();
    scene.ask(&look("f"), &found(Some(FILE)), 0);
    assert_eq!(scene.known("f"), None);
}

#[test]
fn the_time_of_a_lease_counts_from_the_question() {
    let mut scene = Scene::new();
    let sent = scene.cache.sending(&look("f"), scene.now);
    scene.now += LEASE_TIME;
    scene.cache.learn(sent, &look("f"), &answer(&found(Some(FILE)), 1), scene.now);
    assert_eq!(scene.known("f"), None);
}

#[test]
fn an_answer_from_before_a_revocation_is_not_taken() {
    let scene = Scene::new();
    let sent = scene.cache.sending(&look("f"), scene.now);
    scene.cache.revoke(5, &[Lease { id: DIR, place: false }]);
    scene.cache.learn(sent, &look("f"), &answer(&found(Some(FILE)), 4), scene.now);
    assert_eq!(scene.known("f"), None);
    scene.ask(&look("f"), &found(Some(FILE)), 5);
    assert_eq!(scene.known("f"), Some(Some(FILE)));
}

#[test]
fn an_answer_from_before_an_own_change_is_not_taken() {
    let scene = Scene::new();
    scene.ask(&look("f"), &found(Some(FILE)), 1);
    let asked = scene.cache.sending(&look("f"), scene.now);
    let change = scene.cache.sending(&unlink("f"), scene.now);
    assert_eq!(scene.known("f"), None, "nobody knows while it is under way");
    scene.cache.learn(change, &unlink("f"), &answer(&Reply::Done {}, 1), scene.now);
    scene.cache.learn(asked, &look("f"), &answer(&found(Some(FILE)), 1), scene.now);
    assert_eq!(scene.known("f"), Some(None));
}

#[test]
fn of_two_own_changes_that_meet_the_outcome_is_asked_for() {
    let scene = Scene::new();
    scene.ask(&look("f"), &found(Some(FILE)), 1);
    let one = scene.cache.sending(&unlink("f"), scene.now);
    let two = scene.cache.sending(&unlink("f"), scene.now);
    scene.cache.learn(one, &unlink("f"), &answer(&Reply::Done {}, 1), scene.now);
    scene.cache.learn(two, &unlink("f"), &answer(&Reply::Done {}, 1), scene.now);
    assert_eq!(scene.known("f"), None);
}

#[test]
fn of_own_changes_of_two_names_that_meet_both_outcomes_are_known() {
    let scene = Scene::new();
    scene.ask(&mkdir(), &Reply::Created { inode: inode(DIR, 0o040_700), created: true }, 1);
    let one = scene.cache.sending(&unlink("f"), scene.now);
    let two = scene.cache.sending(&unlink("g"), scene.now);
    scene.cache.learn(one, &unlink("f"), &answer(&Reply::Done {}, 1), scene.now);
    assert_eq!((scene.known("f"), scene.known("g")), (Some(None), None));
    scene.cache.learn(two, &unlink("g"), &answer(&Reply::Done {}, 1), scene.now);
    assert_eq!((scene.known("g"), scene.known("h")), (Some(None), Some(None)), "all are known");
}

#[test]
fn who_may_not_search_a_directory_learns_nothing_of_it() {
    let scene = Scene::new();
    scene.ask(&look("f"), &found(Some(FILE)), 1);
    let stranger = Caller { uid: 8, gid: 8, groups: List(vec![]) };
    assert_eq!(scene.known_by(&stranger, "f"), None);
}

#[test]
fn names_that_are_none_are_left_to_the_server() {
    let scene = Scene::new();
    let mut reply = found(None);
    if let Reply::Found { complete, .. } = &mut reply {
        *complete = true;
    }
    scene.ask(&look("f"), &reply, 1);
    assert_eq!(scene.known("g"), Some(None), "all names are known");
    let long = "x".repeat(NAME_BYTES_MAX + 1);
    for name in ["", ".", "..", "a/b", "a\0b", &long] {
        assert_eq!(scene.known(name), None, "{name:?}");
    }
}

#[test]
fn a_directory_just_made_is_known_to_be_empty_until_somebody_else_changes_it() {
    let scene = Scene::new();
    let made = Reply::Created { inode: inode(DIR, 0o040_700), created: true };
    scene.ask(&mkdir(), &made, 1);
    assert_eq!(scene.known("f"), Some(None));
    scene.cache.revoke(2, &[Lease { id: DIR, place: false }]);
    assert_eq!(scene.known("f"), None);
}

fn mkdir() -> Op {
    Op::Create {
        parent: 1,
        name: Name::from("d"),
        mode: 0o040_700,
        gid: 7,
        rdev: 0,
        target: Name::EMPTY,
        exclusive: true,
        open: false,
        access: 0,
    }
}

#[test]
fn a_directory_in_which_something_was_made_before_its_own_answer_came_is_not_taken_for_empty() {
    let scene = Scene::new();
    let sent = scene.cache.sending(&mkdir(), scene.now);
    // Another of this client finds it, and makes something in it.
    scene.ask(&look("f"), &found(None), 1);
    let make = Op::Link { id: FILE, parent: DIR, name: Name::from("f") };
    scene.ask(&make, &Reply::Node { inode: inode(FILE, 0o100_644) }, 2);
    let made = Reply::Created { inode: inode(DIR, 0o040_700), created: true };
    scene.cache.learn(sent, &mkdir(), &answer(&made, 1), scene.now);
    assert_ne!(scene.known("f"), Some(None), "it is there");
}

#[test]
fn a_listing_with_more_names_than_are_kept_is_not_all_there_is() {
    let scene = Scene::new();
    let named = |number: usize| Name::from(format!("n{number}").as_str());
    let entry = |number: usize| DirEntry {
        id: 10 + number as u64,
        kind: 8,
        cookie: 3 + number as u64,
        name: named(number),
        inode: None,
    };
    let mut reply = found(None);
    if let Reply::Found { entries, complete, .. } = &mut reply {
        *entries = List((0..known::NAMES_MAX + 10).map(entry).collect());
        *complete = true;
    }
    scene.ask(&look("f"), &reply, 1);
    for number in [0, known::NAMES_MAX / 2, known::NAMES_MAX - 1] {
        let name = format!("n{number}");
        assert_ne!(scene.known(&name), Some(None), "{name} is there");
    }
}

#[test]
fn owner_and_mode_are_not_taken_from_before_an_own_chmod() {
    let scene = Scene::new();
    scene.ask(&look("f"), &found(Some(FILE)), 1);
    let chmod =
        Op::Setattr { id: DIR, mask: 1, mode: 0, uid: 0, gid: 0, size: 0, atime: 0, mtime: 0 };
    let sent = scene.cache.sending(&chmod, scene.now);
    scene.cache.failed(sent);
    assert_eq!(scene.known("f"), None);
}

/// Files 100 and on, with a byte each, found by a listing.
fn listed(count: u64) -> (Op, Reply) {
    let op = Op::Readdir { id: DIR, cookie: 0, limit: 0, bytes_max: 1 << 20, plus: true };
    let entry = |at| DirEntry {
        id: 100 + at,
        kind: 8,
        cookie: 3 + at,
        name: Name::from(format!("f{at}").as_str()),
        inode: Some(Inode { size: 1, ..inode(100 + at, 0o100_644) }),
    };
    (op, Reply::Entries { entries: List((0..count).map(entry).collect()), end: true, limit: 99 })
}

#[test]
fn files_of_a_listing_that_are_read_bring_what_others_hold_until_that_is_in_vain() {
    let scene = Scene::new();
    scene.ask(&look("none"), &found(None), 1);
    let (op, reply) = listed(40);
    scene.ask(&op, &reply, 1);
    let read = |id| match scene.cache.content(id, scene.now) {
        Some(_) => None,
        None => scene.cache.content_ahead(id, scene.now),
    };
    assert_eq!(read(100), None, "one alone");
    assert_eq!(read(101), Some((DIR, Name::from("f1"), 128)));
    // Nothing has come of it.
    let asked: Vec<bool> = (102..115).map(|id| read(id).is_some()).collect();
    let expected: Vec<bool> = (102..115).map(|id| matches!(id, 103 | 107)).collect();
    assert_eq!(asked, expected);
    assert!(read(115).is_some());
    // This comes, and is used.
    let comes = |name: &str, ids: std::ops::Range<Id>| {
        let mut reply = found(Some(ids.start));
        if let Reply::Found { contents, inode: Some(inode), .. } = &mut reply {
            inode.size = 1;
            let of = |id| Content { id, data: Payload::from(vec![1]) };
            *contents = List(ids.map(of).collect());
        }
        scene.ask(&look(name), &reply, 1);
    };
    comes("f15", 115..120);
    assert_eq!((115..119).filter_map(read).count(), 0);
    let ahead = |id| read(id).map(|(.., ahead)| ahead);
    assert_eq!(ahead(120), Some(128));
    // This is not, and the names ascend: perhaps it was the order. Then it was not.
    comes("f20", 130..135);
    assert_eq!(ahead(121), Some(128 | BY_NAME));
    comes("f21", 135..140);
    assert_eq!((122..124).map(ahead).collect::<Vec<_>>(), [None, None]);
}

#[test]
fn who_reads_what_is_listed_is_brought_it_with_the_next_listing() {
    let scene = Scene::new();
    let striping = Striping {
        kind: PROGRESSIVE,
        strip_bytes: 64,
        params: List(vec![16, 4096]),
        servers: List(vec![0]),
    };
    let small = |(mut op, mut reply): (Op, Reply), dir| {
        let Reply::Entries { entries, .. } = &mut reply else { panic!("a listing") };
        let inodes = entries.0.iter_mut().filter_map(|entry| entry.inode.as_mut());
        inodes.for_each(|inode| inode.striping = Some(striping.clone()));
        if let Op::Readdir { id, .. } = &mut op {
            *id = dir;
        }
        (op, reply)
    };
    scene.ask(&look("none"), &found(None), 1);
    let (op, reply) = small(listed(4), DIR);
    scene.ask(&op, &reply, 1);
    assert!(scene.cache.content(100, scene.now).is_none());
    assert!(!scene.cache.wants_contents(scene.now), "one of four");
    assert!(scene.cache.content(101, scene.now).is_none());
    assert!(scene.cache.wants_contents(scene.now));
    // They come, and no question goes with the second that is read.
    let Reply::Entries { entries, end, limit } = reply else { panic!("a listing") };
    let contents =
        List((100..104).map(|id| Content { id, data: Payload::from(vec![id as u8]) }).collect());
    let op = Op::ListContents { id: DIR, cookie: 0, limit: 0, bytes_max: 1 << 20, contents: 99 };
    scene.ask(&op, &Reply::Listed { entries, end, limit, contents }, 1);
    for id in 100..104 {
        let held = scene.cache.content(id, scene.now).expect("it came");
        assert_eq!(held.content[..], [id as u8]);
    }
    assert_eq!(scene.cache.leads_to(DIR, &Name::from("f3"), scene.now), Some(103));
    scene.cache.refuses_contents(scene.now + Duration::from_secs(1));
    assert!(!scene.cache.wants_contents(scene.now));
    assert!(scene.cache.wants_contents(scene.now + Duration::from_secs(1)));
}

#[test]
fn the_head_of_a_file_that_goes_on_elsewhere_is_held_as_a_whole_or_not_at_all() {
    let scene = Scene::new();
    scene.ask(&look("none"), &found(None), 1);
    let (params, servers) = (List(vec![16, 4096]), List(vec![0]));
    let striping = Striping { kind: PROGRESSIVE, strip_bytes: 64, params, servers };
    let of_size = |size| Inode { size, striping: Some(striping.clone()), ..inode(120, 0o100_644) };
    let read = |size, bytes| {
        let op = Op::ReadInline { id: 120, offset: 0, count: bytes };
        let data = Payload::from(vec![1; bytes as usize]);
        scene.ask(&op, &Reply::Inline { inode: of_size(size), data }, 1);
        scene.cache.content(120, scene.now).map(|held| (held.size, held.content.len()))
    };
    assert_eq!(read(100, 10), None);
    assert_eq!(read(100, 16), Some((100, 16)));
    assert_eq!(read(101, 15), None, "it has grown");
    assert_eq!(read(10, 10), Some((10, 10)));
    assert_eq!(read(0, 0), Some((0, 0)));
}

fn rename(to_name: &str) -> Op {
    let (name, to_name) = (Name::from("f"), Name::from(to_name));
    Op::Rename { parent: DIR, name, to: DIR, to_name, flags: 0 }
}

#[test]
fn a_move_to_a_name_that_is_known_to_be_free_makes_no_other_file_doubtful() {
    for (to, is_known) in [("free", true), ("unknown", false)] {
        let scene = Scene::new();
        scene.ask(&look("f"), &found(Some(FILE)), 1);
        scene.ask(&look("free"), &found(None), 1);
        scene.ask(&look("g"), &found(Some(100)), 1);
        let sent = scene.cache.sending(&rename(to), scene.now);
        scene.cache.failed(sent);
        assert_eq!(scene.cache.inode(100, scene.now).is_some(), is_known, "{to}");
        assert!(scene.cache.inode(FILE, scene.now).is_none(), "it is moved");
    }
}

#[test]
fn what_an_operation_may_do_away_with_is_known_by_its_name_and_its_links() {
    let scene = Scene::new();
    let loses = |op: &Op| scene.cache.lock().loses(op, scene.now);
    assert_eq!(loses(&unlink("f")), None, "nothing is known");
    scene.ask(&look("f"), &found(Some(FILE)), 1);
    scene.ask(&look("free"), &found(None), 1);
    assert_eq!(loses(&unlink("f")), Some(vec![FILE]));
    assert_eq!(loses(&rename("f")), Some(vec![FILE]));
    assert_eq!((loses(&unlink("free")), loses(&rename("free"))), (Some(vec![]), Some(vec![])));
    assert_eq!(loses(&rename("unknown")), None);
    let linked = Inode { nlink: 2, ..inode(FILE, 0o100_644) };
    let link = Op::Link { id: FILE, parent: DIR, name: Name::from("other") };
    scene.ask(&link, &Reply::Node { inode: linked }, 1);
    assert_eq!(loses(&unlink("f")), Some(vec![]), "its other name stays");
    // While that one is being removed it may be the last.
    let sent = scene.cache.sending(&unlink("other"), scene.now);
    assert_eq!(sent.loses, Some(vec![]));
    assert_eq!(loses(&unlink("f")), Some(vec![FILE]));
    assert_eq!(loses(&unlink("other")), None);
    scene.cache.failed(sent);
    scene.cache.revoke(2, &[Lease { id: FILE, place: false }]);
    assert_eq!(loses(&unlink("f")), Some(vec![FILE]));
    scene.cache.revoke(3, &[Lease { id: DIR, place: false }]);
    assert_eq!(loses(&unlink("f")), None);
}

#[test]
fn names_that_are_removed_together_are_known_to_be_gone_and_so_are_all_others() {
    let scene = Scene::new();
    scene.ask(&mkdir(), &Reply::Created { inode: inode(DIR, 0o040_700), created: true }, 1);
    for (name, id) in [("f", 10), ("g", 11), ("h", 12)] {
        scene.ask(&look(name), &found(Some(id)), 1);
    }
    let asked = scene.cache.sending(&look("f"), scene.now);
    let remove = |ids: &[Id], names: &[&str]| Op::Names {
        dirs: List(vec![DIR; ids.len()]),
        steps: List(vec![step::UNLINK; ids.len()]),
        ids: List(ids.to_vec()),
        names: List(names.iter().map(|name| Name::from(*name)).collect()),
    };
    assert_eq!(scene.cache.files_in(DIR, 11, 10, scene.now), [11, 12]);
    let mut sent = scene.cache.sending(&remove(&[10], &["f"]), scene.now);
    scene.cache.sending_too(&mut sent, &remove(&[11], &["g"]), scene.now);
    assert_eq!((scene.known("f"), scene.known("g")), (None, None), "they are under way");
    assert_eq!((scene.known("h"), scene.known("none")), (Some(Some(12)), Some(None)));
    assert_eq!(sent.loses, Some(vec![10, 11]));
    let op = remove(&[10, 11], &["f", "g"]);
    let dirs = List(vec![Inode { version: 9, ..inode(DIR, 0o040_700) }]);
    let done = answer(&Reply::Steps { codes: List(vec![0, 0]), dirs }, 1);
    scene.cache.learn(sent, &op, &done, scene.now);
    // One that was asked for before they were removed.
    scene.cache.learn(asked, &look("f"), &answer(&found(Some(10)), 1), scene.now);
    assert_eq!((scene.known("f"), scene.known("g")), (Some(None), Some(None)));
    assert_eq!((scene.known("h"), scene.known("none")), (Some(Some(12)), Some(None)));
    assert_eq!(scene.cache.inode(DIR, scene.now).map(|dir| dir.version), Some(9));

    // Where something else had come by a name nothing is granted.
    let sent = scene.cache.sending(&remove(&[12], &["h"]), scene.now);
    let skipped = Reply::Steps { codes: List(vec![Errno::ENOENT]), dirs: List(Vec::new()) };
    scene.cache.learn(sent, &remove(&[12], &["h"]), &answer(&skipped, 0), scene.now);
    assert_eq!(scene.known("h"), None);
}
