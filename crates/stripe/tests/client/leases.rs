//! Scenes of a client that remembers under leases: when what it knows is no longer so.

use crate::lab::*;
use covey_ninep::tree::{Removal, SetAttr};
use covey_stripe::client::{File, Taken, access};
use covey_stripe::ops::{Op, ROOT, Reply};
use std::task::Poll;
use std::time::Duration;

#[test]
fn what_is_asked_right_after_a_write_in_place_is_not_remembered_without_its_time() {
    let mut world = World::new(1);
    let (fs, other) = (world.client(true), world.client(true));
    let (who, f, g) = (root(), name("f"), name("g"));
    let (inode, file) =
        world.run(fs.create(&who, ROOT, &f, 0o644, Taken::Refuse, access::BOTH)).unwrap();
    world.run(file.write_at(0, vec![1; 100].into())).unwrap();
    world.rest(Duration::from_secs(3));
    // With a lease of somebody else's, changes take their turn, and questions overtake them.
    world.run(other.lookup(&who, ROOT, &g)).unwrap_err();
    let write_and_ask = async {
        file.write_at(0, vec![2; 100].into()).await.unwrap();
        fs.inode(inode.id).await.unwrap()
    };
    world.run(write_and_ask);
    world.rest(Duration::from_millis(100));
    let known = world.run(fs.inode(inode.id)).unwrap();
    let said = world.meta.ask(Op::Getattr { id: inode.id });
    assert_eq!(Reply::Node { inode: known }, said);
}

#[test]
fn an_answer_that_is_given_again_tells_of_then_and_not_of_now() {
    for rounds in 1..40 {
        let mut world = World::new(rounds);
        let (fs, other) = (world.client(true), world.client(true));
        let (who, d, x) = (root(), name("d"), name("x"));
        let mut mkdir = Box::pin(fs.make(&who, ROOT, &d, 0o040_755, 0, name("")));
        let mut first = mkdir.as_mut();
        let sent = std::future::poll_fn(|context| {
            Poll::Ready(std::future::Future::poll(first.as_mut(), context).is_ready())
        });
        assert!(!world.run(sent));
        world.event(Event::Cut { conn: 0, delivered: true });
        let made = world.run(other.lookup(&who, ROOT, &d)).expect("it was made").id;
        world.run(other.create(&who, made, &x, 0o644, Taken::Refuse, access::BOTH)).unwrap();
        // The client that made it comes back, and listens for what is taken back from it. The other's leases are over
        // by then: while they rest nothing is granted anyway.
        world.rest(Duration::from_millis(2000 + 10 * rounds));
        let inode = world.run(mkdir).unwrap();
        assert_eq!(inode.id, made);
        // Asked first: a look at the directory would bring its attributes, too.
        let said = world.meta.ask(Op::Getattr { id: made });
        let known = world.run(fs.inode(made)).unwrap();
        assert_eq!(Reply::Node { inode: known }, said);
        world.run(fs.lookup(&who, made, &x)).expect("the other has made it");
    }
}

#[test]
fn an_unlink_tells_the_server_of_the_opens_that_it_may_matter_to_and_of_no_others() {
    let mut world = World::new(30);
    let fs = world.client(false);
    let (who, [f, g, h]) = (root(), ["f", "g", "h"].map(name));
    for made in [&f, &g] {
        let data = vec![1; 100].into();
        let (refuse, both) = (Taken::Refuse, access::BOTH);
        world.run(fs.create_write(&who, ROOT, made, 0o644, refuse, both, data)).unwrap();
    }
    world.rest(Duration::from_millis(1500));
    let [_, id] = [&f, &g].map(|text| world.run(fs.lookup(&who, ROOT, text)).unwrap().id);
    let open = world.run(fs.open(&who, id, access::READ)).unwrap();
    assert_eq!(world.meta.open_files(), 0, "it need not know yet");
    world.run(fs.unlink(&who, ROOT, &f, Removal::File)).unwrap();
    world.run(fs.link(&who, id, ROOT, &h)).unwrap();
    world.run(fs.unlink(&who, ROOT, &g, Removal::File)).unwrap();
    assert_eq!(world.meta.open_files(), 0, "it has another name");
    world.run(fs.unlink(&who, ROOT, &h, Removal::File)).unwrap();
    assert_eq!(world.meta.open_files(), 1);
    world.rest(Duration::from_secs(3));
    let data = world.run(open.read_at(0, 200)).unwrap().into_bytes();
    assert_eq!(data[..], [1; 100]);
    drop(open);
    world.rest(Duration::from_millis(50));
    let other = world.client(false);
    assert!(world.run(other.inode(id)).is_err(), "it goes with the last that has it open");
}

#[test]
fn the_beginning_of_a_larger_file_is_read_once_and_forgotten_before_anybody_changes_it() {
    let mut world = World::progressive(31);
    let (one, two) = (world.client(false), world.client(false));
    let (who, f) = (root(), name("f"));
    let (inode, file) =
        world.run(one.create(&who, ROOT, &f, 0o644, Taken::Refuse, access::BOTH)).unwrap();
    let mut expected = vec![7; INLINE * 3];
    world.run(file.write_at(0, expected.clone().into())).unwrap();
    let theirs = world.run(two.open(&who, inode.id, access::BOTH)).unwrap();
    for round in 1..40u8 {
        world.rest(Duration::from_millis(if round % 4 == 0 { 1500 } else { 0 }));
        let (writer, reader) = if round % 3 == 0 { (&theirs, &file) } else { (&file, &theirs) };
        // Around the place where the beginning ends, and far from it.
        let at = [0, INLINE - 10, INLINE, INLINE * 2][usize::from(round) % 4];
        expected[at..at + 20].fill(round);
        world.run(writer.write_at(at as u64, vec![round; 20].into())).unwrap();
        for file in [reader, writer] {
            assert!(in_pieces(&mut world, file) == expected, "round {round}");
        }
    }
    world.rest(Duration::from_millis(1500));
    world.run(two.lookup(&who, ROOT, &f)).unwrap();
    world.meta.log.borrow_mut().clear();
    assert!(in_pieces(&mut world, &theirs) == expected);
    let asked = world.meta.log.borrow().iter().filter(|op| **op == "ReadInline").count();
    assert_eq!(asked, 1);
    for size in [INLINE + 50, INLINE - 50] {
        let cut = SetAttr { size: Some(size as u64), ..SetAttr::default() };
        world.run(one.setattr(&who, inode.id, cut)).unwrap();
        expected.truncate(size);
        assert!(in_pieces(&mut world, &theirs) == expected, "{size}");
    }
}

/// All that a file holds, as it is read by who has a small buffer.
fn in_pieces(world: &mut World, file: &File) -> Vec<u8> {
    let mut data = Vec::new();
    loop {
        let piece = world.run(file.read_at(data.len() as u64, 70)).unwrap().into_bytes();
        data.extend_from_slice(&piece);
        if piece.len() < 70 {
            return data;
        }
    }
}
