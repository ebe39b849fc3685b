//! Several trees behind one name.

use crate::pair::gate::Gate;
use crate::pair::paths::{Door, Driven};
use crate::pair::*;
use covey_ninep::memory::MemoryTree;
use covey_ninep::message::Message;
use covey_ninep::namespace::Namespace;
use covey_ninep::text::Text;
use covey_ninep::tree::*;
use std::rc::Rc;

fn folder(files: &[(&'static str, &'static str)]) -> Rc<Namespace> {
    let folder = Namespace::folder();
    for (name, text) in files.iter().copied() {
        folder.bind(name, Rc::new(Text::new(move || text))).unwrap();
    }
    Rc::new(folder)
}

/// `/all` is a union of two folders of files.
fn united() -> Pair<Namespace> {
    let names = Namespace::new(Door);
    names.union("all", folder(&[("a", "first a"), ("b", "first b")])).unwrap();
    names.union("all", folder(&[("b", "second b"), ("c", "second c")])).unwrap();
    Pair::attached(names)
}

#[test]
fn a_name_is_looked_for_in_one_after_the_other() {
    let mut pair = united();
    assert_eq!(pair.text_at("all/a").as_deref(), Ok("first a"));
    assert_eq!(pair.text_at("all/b").as_deref(), Ok("first b"));
    assert_eq!(pair.text_at("all/c").as_deref(), Ok("second c"));
    assert_eq!(pair.text_at("all/d"), Err(Errno::ENOENT));
    assert_eq!(pair.text_at("all/../all/c").as_deref(), Ok("second c"));
    assert_eq!(pair.open_at("all", 1), Err(Errno::EISDIR));
}

#[test]
fn a_listing_has_every_name_once_however_it_is_read() {
    let mut pair = united();
    assert_eq!(pair.names_at("all").unwrap(), [".", "..", "a", "b", "c"]);
    let whole = pair.entries_at("all", 4096).unwrap();
    let pieces = pair.entries_at("all", 60).unwrap();
    assert_eq!(whole, pieces);
    let all = pair.open_at("all", 0).unwrap();
    let list = |offset| Message::Treaddir { fid: all, offset, count: 4096 };
    match pair.call(list(u64::MAX)) {
        Ok(Message::Rreaddir { data }) => assert!(data.is_empty()),
        other => panic!("no Rreaddir: {other:?}"),
    }
}

#[test]
fn what_is_made_goes_to_the_first_that_takes_it_and_what_is_removed_is_looked_for() {
    let names = Namespace::new(Door);
    let (one, two) = (Rc::new(MemoryTree::default()), Rc::new(MemoryTree::default()));
    names.bind("one", one.clone()).unwrap();
    names.bind("two", two.clone()).unwrap();
    names.union("all", folder(&[("text", "x")])).unwrap();
    names.union("all", one).unwrap();
    names.union("all", two).unwrap();
    let mut pair = Pair::attached(names);
    pair.put_at("all", "new", "made").unwrap();
    assert_eq!(pair.text_at("one/new").as_deref(), Ok("made"));
    pair.put_at("two", "old", "there").unwrap();
    assert_eq!(pair.text_at("all/old").as_deref(), Ok("there"));
    assert_eq!(pair.names_at("all").unwrap(), [".", "..", "text", "new", "old"]);
    let all = pair.walk_to(0, "all").unwrap();
    let unlink = |name: &str| Message::Tunlinkat { dirfid: all, name: name.into(), flags: 0 };
    pair.call(unlink("old")).unwrap();
    assert_eq!(pair.text_at("two/old"), Err(Errno::ENOENT));
    assert_eq!(code(pair.call(unlink("old"))), Errno::ENOENT);
    pair.put_at("one", "text", "hidden").unwrap();
    assert_eq!(code(pair.call(unlink("text"))), Errno::EROFS);
    assert_eq!(pair.text_at("one/text").as_deref(), Ok("hidden"));
    assert_ne!(pair.number_at("one/new"), pair.number_at("all/new"), "seen by two ways");
}

#[test]
fn a_member_that_cannot_be_entered_is_left_out_as_long_as_there_is_one() {
    /// Lets nobody in.
    struct Closed;
    impl Tree for Closed {
        type Node = ();
        fn attach(&self, _: Attach) -> Outcome<(User, covey_ninep::message::Qid, ())> {
            Errno::EACCES.into()
        }
    }
    let names = Namespace::new(Door);
    names.union("all", Rc::new(Closed)).unwrap();
    names.union("all", folder(&[("a", "open")])).unwrap();
    names.union("none", Rc::new(Closed)).unwrap();
    names.union("none", Rc::new(Closed)).unwrap();
    let mut pair = Pair::attached(names);
    assert_eq!(pair.text_at("all/a").as_deref(), Ok("open"));
    assert_eq!(pair.names_at("all").unwrap(), [".", "..", "a"]);
    assert_eq!(pair.walk_to(0, "none"), Err(Errno::EACCES));
}

#[test]
fn every_member_s_fids_are_clunked() {
    let (gate, names) = (Gate::default(), Namespace::new(Door));
    names.union("all", Rc::new(gate.clone())).unwrap();
    names.union("all", folder(&[("a", "open")])).unwrap();
    let mut pair = Pair::attached(names);
    let all = pair.walk_to(0, "all").unwrap();
    let file = pair.walk_to(all, "file").unwrap();
    gate.log();
    for fid in [file, all] {
        pair.call(Message::Tclunk { fid }).unwrap();
        assert_eq!(gate.log().len(), 1);
    }
}
