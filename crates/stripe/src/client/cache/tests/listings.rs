//! Whole listings that are remembered, and those that are asked for ahead.

use super::*;

const ROOT: Id = 1;
/// A directory that is found in DIR, and what lies in it.
const SUB: Id = 50;

fn list(id: Id) -> Op {
    Op::Readdir { id, cookie: 0, limit: 0, bytes_max: 1 << 15, plus: true }
}

fn entry(id: Id, cookie: u64, name: &str, mode: u32) -> DirEntry {
    let inode = Inode { size: 64, ..inode(id, mode) };
    DirEntry { id, kind: (mode >> 12) as u8, cookie, name: Name::from(name), inode: Some(inode) }
}

/// A page of the directory: itself, and directories and files in it.
fn page(id: Id, dirs: &[Id], files: &[Id]) -> Reply {
    let mut entries = vec![entry(id, 1, ".", 0o040_700), entry(ROOT, 2, "..", 0o040_700)];
    for &dir in dirs {
        entries.push(entry(dir, dir, &format!("d{dir}"), 0o040_700));
    }
    for &file in files {
        entries.push(entry(file, file, &format!("f{file}"), 0o100_644));
    }
    Reply::Entries { entries: List(entries), end: true, limit: 99 }
}

impl Scene {
    /// DIR with two files.
    fn listed() -> Scene {
        let scene = Scene::new();
        scene.ask(&list(DIR), &page(DIR, &[], &[100, 101]), 1);
        scene
    }

    fn listing_by(&self, who: &Caller, id: Id, bytes_max: u32) -> Option<Vec<(Id, Option<u64>)>> {
        let page = self.cache.listing(who, id, bytes_max, self.now)?;
        assert!((page.end, page.limit) == (true, 99), "{page:?}");
        let said = |entry: DirEntry| (entry.id, entry.inode.map(|inode| inode.version));
        Some(page.entries.into_iter().skip(2).map(said).collect())
    }

    /// What is known to lie in a directory: files, and the versions of their inodes.
    fn listing(&self, id: Id) -> Option<Vec<(Id, Option<u64>)>> {
        self.listing_by(&Caller::default(), id, 1 << 15)
    }

    fn ahead(&self, id: Id) -> Vec<Id> {
        self.cache.list_ahead(id, self.now)
    }
}

#[test]
fn a_listing_that_was_granted_is_known_for_as_long_as_it_can_be_used() {
    let mut scene = Scene::listed();
    let all = Some(vec![(100, Some(1)), (101, Some(1))]);
    assert_eq!(scene.listing(DIR), all);
    scene.now += Duration::from_millis(390);
    assert_eq!(scene.listing(DIR), all);
    scene.now += Duration::from_millis(20);
    assert_eq!(scene.listing(DIR), None, "its leases are over too soon");
}

#[test]
fn a_listing_is_known_that_was_granted_as_a_whole() {
    let scene = Scene::new();
    scene.ask(&list(DIR), &page(DIR, &[], &[100]), 0);
    assert_eq!(scene.listing(DIR), None, "not granted");
    let Reply::Entries { entries: List(mut entries), limit, .. } = page(DIR, &[], &[100]) else {
        panic!("another page");
    };
    let first = Reply::Entries { entries: List(entries.clone()), end: false, limit };
    scene.ask(&list(DIR), &first, 1);
    assert_eq!(scene.listing(DIR), None, "there is more");
    let rest = Op::Readdir { id: DIR, cookie: 9, limit, bytes_max: 1 << 15, plus: true };
    scene.ask(&rest, &page(DIR, &[], &[100]), 1);
    assert_eq!(scene.listing(DIR), None, "there was more before");
    entries[2].inode = None;
    scene.ask(&list(DIR), &Reply::Entries { entries: List(entries), end: true, limit }, 1);
    assert_eq!(scene.listing(DIR), None, "names alone");
}

#[test]
fn a_listing_is_told_to_those_who_may_read_it_and_have_room() {
    let scene = Scene::listed();
    let stranger = Caller { uid: 8, gid: 8, groups: List(vec![]) };
    assert_eq!(scene.listing_by(&stranger, DIR, 1 << 15), None);
    let owner = Caller { uid: 7, gid: 7, groups: List(vec![]) };
    assert!(scene.listing_by(&owner, DIR, 1 << 15).is_some());
    assert_eq!(scene.listing_by(&owner, DIR, 300), None);
}

#[test]
fn a_listing_is_forgotten_with_any_lease_that_it_is_under() {
    for id in [DIR, 101] {
        let scene = Scene::listed();
        scene.cache.revoke(2, &[Lease { id, place: false }]);
        assert_eq!(scene.listing(DIR), None, "{id}");
    }
    let scene = Scene::new();
    let sent = scene.cache.sending(&list(DIR), scene.now);
    scene.cache.revoke(2, &[Lease { id: 101, place: false }]);
    scene.cache.learn(sent, &list(DIR), &answer(&page(DIR, &[], &[100, 101]), 1), scene.now);
    assert_eq!(scene.listing(DIR), None, "taken back while it was on its way");
}

#[test]
fn a_listing_does_not_outlive_its_lease_when_that_is_granted_anew() {
    let mut scene = Scene::listed();
    scene.now += LEASE_TIME;
    let Reply::Entries { entries, .. } = page(DIR, &[], &[100, 101, 102]) else {
        panic!("another page");
    };
    // The directory and its files are known again, by another question.
    let mut reply = found(None);
    if let Reply::Found { entries: known, .. } = &mut reply {
        *known = entries;
    }
    scene.ask(&look("none"), &reply, 1);
    assert_eq!(scene.listing(DIR), None);
}

#[test]
fn a_listing_is_forgotten_with_the_first_own_change_of_a_name() {
    let link = Op::Link { id: 100, parent: DIR, name: Name::from("other") };
    let linked = Reply::Node { inode: inode(100, 0o100_644) };
    let scene = Scene::listed();
    let sent = scene.cache.sending(&link, scene.now);
    assert_eq!(scene.listing(DIR), None, "while it is under way");
    let done = Answer { dir: Some(inode(DIR, 0o040_700)), ..answer(&linked, 1) };
    scene.cache.learn(sent, &link, &done, scene.now);
    assert!(scene.cache.inode(DIR, scene.now).is_some(), "what the directory is is known again");
    assert_eq!(scene.listing(DIR), None, "there is one name more");
    // One that was asked for before.
    let scene = Scene::listed();
    let asked = scene.cache.sending(&list(DIR), scene.now);
    let sent = scene.cache.sending(&link, scene.now);
    scene.cache.learn(sent, &link, &done, scene.now);
    scene.cache.learn(asked, &list(DIR), &answer(&page(DIR, &[], &[100, 101]), 1), scene.now);
    assert_eq!(scene.listing(DIR), None, "it may be from before");
}

#[test]
fn a_listing_tells_of_files_as_they_are_and_not_as_they_were() {
    let scene = Scene::listed();
    let touch = Op::Touch { id: 101 };
    let sent = scene.cache.sending(&touch, scene.now);
    assert_eq!(scene.listing(DIR), None, "nobody knows while it is under way");
    let touched = Inode { version: 2, ..inode(101, 0o100_644) };
    scene.cache.learn(sent, &touch, &answer(&Reply::Node { inode: touched }, 1), scene.now);
    assert_eq!(scene.listing(DIR), Some(vec![(100, Some(1)), (101, Some(2))]));
}

#[test]
fn a_listing_is_forgotten_when_this_client_has_changed_what_it_does_not_know() {
    let scene = Scene::listed();
    let elsewhere = Op::Unlink { parent: 77, name: Name::from("unknown"), dir: false };
    let sent = scene.cache.sending(&elsewhere, scene.now);
    scene.cache.failed(sent);
    for id in [DIR, 100, 101] {
        let mode = if id == DIR { 0o040_700 } else { 0o100_644 };
        scene.ask(&Op::Getattr { id }, &Reply::Node { inode: inode(id, mode) }, 1);
    }
    assert_eq!(scene.listing(DIR), None, "the file may be one of these");
}

#[test]
fn who_walks_over_a_tree_has_the_next_directories_listed_ahead() {
    let scene = Scene::new();
    let subs: Vec<Id> = (SUB..SUB + 40).collect();
    scene.ask(&list(DIR), &page(DIR, &subs, &[100]), 1);
    assert_eq!(scene.ahead(DIR), [], "who lists one directory may want no more");
    scene.ask(&list(SUB), &page(SUB, &[200, 201], &[]), 1);
    let first = scene.ahead(SUB);
    assert_eq!(first[..3], [200, 201, SUB + 1], "those in it, then those after it");
    assert_eq!(first.len(), 16);
    scene.cache.asks_ahead(first.len());
    for &id in &first {
        scene.ask(&list(id), &page(id, &[], &[]), 1);
        scene.cache.came_ahead(id);
    }
    for id in [200, 201, SUB + 1, SUB + 2] {
        assert!(scene.listing(id).is_some());
        assert_eq!(scene.ahead(id), [], "there are enough");
    }
    for id in SUB + 3..SUB + 8 {
        assert!(scene.listing(id).is_some());
    }
    let next = scene.ahead(SUB + 7);
    assert_eq!(next.first(), Some(&first.last().map_or(0, |last| last + 1)));
    assert_eq!(next.len(), 9, "as far as one looks");
}

#[test]
fn listings_that_nobody_uses_are_asked_for_less_and_less() {
    let scene = Scene::new();
    let subs: Vec<Id> = (SUB..SUB + 40).collect();
    scene.ask(&list(DIR), &page(DIR, &subs, &[]), 1);
    scene.ask(&list(SUB), &page(SUB, &[], &[]), 1);
    let mut asked = Vec::new();
    for _ in 0..3 {
        let ahead = scene.ahead(SUB);
        scene.cache.asks_ahead(ahead.len());
        asked.push(ahead.len());
    }
    assert_eq!(asked, [16, 1, 1]);
    scene.ask(&list(SUB + 1), &page(SUB + 1, &[], &[]), 1);
    scene.cache.came_ahead(SUB + 1);
    assert!(scene.listing(SUB + 1).is_some() && scene.listing(SUB + 1).is_some());
    assert_eq!(scene.ahead(SUB).len(), 2, "one was used, and counts once");
}

#[test]
fn who_removes_a_tree_has_the_next_directories_listed_ahead_too() {
    let scene = Scene::new();
    scene.ask(&list(DIR), &page(DIR, &[SUB, SUB + 1, SUB + 2, SUB + 3], &[]), 1);
    scene.ask(&list(SUB + 1), &page(SUB + 1, &[], &[]), 1);
    let rmdir = Op::Unlink { parent: DIR, name: Name::from("d50"), dir: true };
    let sent = scene.cache.sending(&rmdir, scene.now);
    let own = Some(inode(DIR, 0o040_700));
    scene.cache.learn(sent, &rmdir, &Answer { dir: own, ..answer(&Reply::Done {}, 1) }, scene.now);
    assert_eq!(scene.listing(DIR), None, "it is another one now");
    assert_eq!(scene.ahead(SUB + 1), [SUB + 2, SUB + 3]);
}

#[test]
fn large_directories_are_not_listed_ahead() {
    let scene = Scene::new();
    let Reply::Entries { entries: List(mut entries), end, limit } =
        page(DIR, &[SUB, SUB + 1, SUB + 2, SUB + 3], &[])
    else {
        panic!("another page");
    };
    let large = |entry: &mut DirEntry| {
        let inode = entry.inode.as_mut().expect("it has one");
        inode.size = 200 * 32;
    };
    large(&mut entries[3]);
    scene.ask(&list(DIR), &Reply::Entries { entries: List(entries), end, limit }, 1);
    scene.ask(&list(SUB), &page(SUB, &[], &[]), 1);
    assert_eq!(scene.ahead(SUB), [SUB + 2, SUB + 3]);
}
