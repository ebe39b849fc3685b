//! Listings: pages, positions, and directories that change under them.

use crate::lab::*;
use covey_stripe::meta::mode;
use covey_stripe::ops::*;
use covey_wire::Field;

fn filled(count: usize) -> Lab {
    let mut lab = Lab::default();
    for index in 0..count {
        lab.file(&format!("f{index:03}"));
    }
    lab
}

#[test]
fn dots_come_first_and_have_fixed_places() {
    let mut lab = Lab::default();
    let dir = lab.mkdir(ROOT, "d").id;
    let (entries, end, limit) = lab.page(dir, 0, 0, 4096);
    let seen: Vec<_> = entries.iter().map(|e| (e.cookie, &*e.name.lossy() == ".", e.id)).collect();
    assert_eq!(seen, [(1, true, dir), (2, false, ROOT)]);
    assert_eq!((end, limit), (true, 2));
    assert_eq!(lab.page(dir, 1, limit, 4096).0.len(), 1);
    assert_eq!(lab.page(dir, 2, limit, 4096).0.len(), 0);
}

#[test]
fn entries_come_in_the_order_they_were_made_whatever_the_page() {
    let mut lab = filled(100);
    let names: Vec<_> = (0..100).map(|index| format!("f{index:03}")).collect();
    for bytes_max in [1, 30, 100, 1000, 1 << 20] {
        let listed: Vec<_> = lab.list(ROOT, bytes_max).into_iter().map(|(name, _)| name).collect();
        assert_eq!(listed, names, "in pages of {bytes_max} bytes");
    }
}

#[test]
fn a_page_holds_what_fits_and_one_entry_at_least() {
    let mut lab = filled(20);
    let (entries, end, _) = lab.page(ROOT, 2, 0, 100);
    let size: usize = entries.iter().map(|entry| entry.size(())).sum();
    assert!(size <= 100 && size + entries[0].size(()) > 100, "{size} bytes");
    assert!(!end);
    assert_eq!(lab.page(ROOT, 2, 0, 0).0.len(), 1);
}

#[test]
fn entries_tell_their_type_and_with_plus_their_inode() {
    let mut lab = Lab::default();
    lab.mkdir(ROOT, "d");
    let file = lab.file("f");
    let reply =
        lab.reply(0, Op::Readdir { id: ROOT, cookie: 2, limit: 0, bytes_max: 4096, plus: true });
    let Reply::Entries { entries, .. } = reply else { panic!("{reply:?}") };
    assert_eq!(entries.0.iter().map(|entry| entry.kind).collect::<Vec<_>>(), [4, 8]);
    assert_eq!(entries.0[1].inode.as_ref(), Some(&file));
    assert_eq!(
        lab.code(0, Op::Readdir { id: file.id, cookie: 0, limit: 0, bytes_max: 9, plus: false }),
        Errno::ENOTDIR
    );
}

#[test]
fn what_is_made_or_renamed_during_a_listing_does_not_prolong_it() {
    let mut lab = filled(50);
    let (mut after, mut limit, mut seen) = (2, 0, Vec::new());
    loop {
        let (entries, end, last) = lab.page(ROOT, after, limit, 200);
        limit = last;
        for entry in &entries {
            after = entry.cookie;
            let name = entry.name.lossy().into_owned();
            lab.rename(ROOT, &name, ROOT, &format!("{name}.done"), 0);
            lab.file(&format!("{name}.new"));
            seen.push(name);
        }
        if end {
            break;
        }
    }
    let names: Vec<_> = (0..50).map(|index| format!("f{index:03}")).collect();
    assert_eq!(seen, names);
    assert_eq!(lab.list(ROOT, 4096).len(), 100);
}

#[test]
fn removing_everything_page_by_page_removes_everything() {
    let mut lab = filled(100);
    let (mut after, mut limit) = (0, 0);
    loop {
        let (entries, end, last) = lab.page(ROOT, after, limit, 300);
        limit = last;
        for entry in entries {
            after = entry.cookie;
            if entry.cookie > 2 {
                assert_eq!(lab.unlink(ROOT, &entry.name.lossy()), 0);
            }
        }
        if end {
            break;
        }
    }
    assert_eq!(lab.stat(ROOT).size, 0);
    assert!(lab.list(ROOT, 4096).is_empty());
}

#[test]
fn a_name_that_is_replaced_keeps_its_place_and_is_seen_once() {
    let mut lab = filled(10);
    let before = lab.list(ROOT, 4096);
    lab.file("new");
    assert_eq!(lab.rename(ROOT, "new", ROOT, "f003", 0), 0);
    assert_eq!(lab.list(ROOT, 4096), before);
}

#[test]
fn places_are_not_used_again() {
    let mut lab = filled(3);
    let last = lab.list(ROOT, 4096)[2].1;
    lab.unlink(ROOT, "f002");
    lab.save();
    lab.crash();
    lab.create(ROOT, "again", mode::FIFO);
    assert_eq!(lab.list(ROOT, 4096)[2].1, last + 1);
}

/// What comes beside a name: names of entries, and the files whose content comes, in that order.
fn beside(lab: &mut Lab, name: &str, ahead: u32) -> (Vec<String>, Vec<Id>, bool) {
    let op = Op::Lookup { parent: ROOT, name: name.into(), ahead, content: true };
    let reply = lab.reply(0, op);
    let Reply::Found { entries, contents, complete, .. } = reply else { panic!("{reply:?}") };
    let names = entries.0.iter().map(|entry| entry.name.lossy().into_owned()).collect();
    (names, contents.0.iter().map(|content| content.id).collect(), complete)
}

#[test]
fn a_lookup_brings_what_comes_next_in_a_listing_or_by_name() {
    let mut lab = progressive();
    // Made in another order than that of their names.
    let ids: Vec<Id> = (0..400)
        .map(|at| {
            let name = format!("f{:03}", at * 7 % 400);
            let id = lab.file(&name).id;
            let op = Op::AppendInline { id, data: vec![1].into() };
            assert_eq!(lab.code(0, op), 0);
            id
        })
        .collect();
    let (names, contents, complete) = beside(&mut lab, "f007", 8);
    assert_eq!(names[..3], ["f014", "f021", "f028"]);
    assert_eq!(contents[..3], ids[1..4]);
    assert!(!complete);
    let (names, contents, complete) = beside(&mut lab, "f007", 8 | BY_NAME);
    assert_eq!(names[..3], ["f008", "f009", "f010"]);
    assert_eq!(contents[1], lab.find(ROOT, "f008").expect("it is there").id);
    assert!(!complete);
    // One that is not there has a place among the names alone.
    assert_eq!(beside(&mut lab, "f007x", 8).0.len(), 0);
    assert_eq!(beside(&mut lab, "f007x", 8 | BY_NAME).0[0], "f008");
    assert_eq!(beside(&mut lab, "g", 8 | BY_NAME).0.len(), 0);
}

#[test]
fn of_a_small_directory_comes_what_all_hold_first_of_those_that_come_next() {
    let mut lab = progressive();
    let ids: Vec<Id> = ["d", "a", "c", "b"]
        .iter()
        .map(|name| {
            let id = lab.file(name).id;
            let op = Op::AppendInline { id, data: vec![1].into() };
            assert_eq!(lab.code(0, op), 0);
            id
        })
        .collect();
    let (names, contents, complete) = beside(&mut lab, "c", 32);
    assert_eq!((names.len(), complete), (4, true));
    assert_eq!(contents, [ids[2], ids[3], ids[0], ids[1]]);
    let (names, contents, complete) = beside(&mut lab, "b", 32 | BY_NAME);
    assert_eq!((names.len(), complete), (4, true));
    assert_eq!(contents, [ids[3], ids[2], ids[0], ids[1]]);
}

#[test]
fn a_listing_brings_what_the_first_files_hold_to_whoever_may_search() {
    let mut lab = progressive();
    let dir = lab.create(ROOT, "d", mode::DIRECTORY | 0o755).id;
    let texts = ["first", "second", "", "third"];
    let ids = texts.map(|text| {
        let id = lab.create(dir, &format!("of {text}"), mode::REGULAR | 0o644).id;
        let op = Op::AppendInline { id, data: text.as_bytes().to_vec().into() };
        assert_eq!(lab.code(0, op), 0);
        id
    });
    let listed = |lab: &mut Lab, cookie, contents| {
        let op = Op::ListContents { id: dir, cookie, limit: 0, bytes_max: 1 << 16, contents };
        let reply = lab.reply(0, op);
        let Reply::Listed { entries, end, limit, contents } = reply else { panic!("{reply:?}") };
        let plain = Op::Readdir { id: dir, cookie, limit: 0, bytes_max: 1 << 16, plus: true };
        assert_eq!(lab.reply(0, plain), Reply::Entries { entries: entries.clone(), end, limit });
        let held = contents.0.into_iter().map(|content| (content.id, content.data.into_bytes()));
        let held: Vec<(Id, String)> =
            held.map(|(id, data)| (id, String::from_utf8_lossy(&data).into_owned())).collect();
        (entries.0, held)
    };
    let all = [(ids[0], "first"), (ids[1], "second"), (ids[3], "third")];
    let all = all.map(|(id, text)| (id, text.to_owned()));
    let (entries, held) = listed(&mut lab, 0, u32::MAX);
    assert_eq!((entries.len(), &held[..]), (6, &all[..]));
    // Each with its number and its length.
    assert_eq!(listed(&mut lab, 0, 35).1, all[..2], "no more than was asked for");
    assert_eq!(listed(&mut lab, 0, 34).1, all[..1]);
    assert_eq!(listed(&mut lab, 0, 16).1, []);
    assert_eq!(listed(&mut lab, entries[2].cookie, 100).1, all[1..]);
    // Of one that goes on elsewhere nothing.
    let op = Op::Extend { id: ids[1], epoch: 0, end: 1 << 20, hole: true };
    assert_eq!(lab.code(0, op), 0);
    assert_eq!(listed(&mut lab, 0, 100).1, [all[0].clone(), all[2].clone()]);
    let set_mode = |lab: &mut Lab, mode| {
        let (id, mask) = (dir, set::MODE);
        let op = Op::Setattr { id, mask, mode, uid: 0, gid: 0, size: 0, atime: 0, mtime: 0 };
        assert_eq!(lab.code(0, op), 0);
    };
    set_mode(&mut lab, 0o744);
    lab.caller = user(ALICE, &[ALICE]);
    let (entries, held) = listed(&mut lab, 0, 100);
    assert!(entries.iter().all(|entry| entry.inode.is_none()) && held.is_empty());
    lab.caller = root();
    set_mode(&mut lab, 0o711);
    lab.caller = user(ALICE, &[ALICE]);
    let op = Op::ListContents { id: dir, cookie: 0, limit: 0, bytes_max: 1 << 16, contents: 9 };
    assert_eq!(lab.code(0, op), Errno::EACCES);
}
