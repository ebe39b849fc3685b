//! Writes that end in the middle.

use crate::lab::*;
use crate::scenes::for_rounds;
use covey_ninep::tree::Errno;
use covey_stripe::client::{Net, Taken, access};
use covey_stripe::ops::{Op, ROOT, Reply};
use covey_stripe::view::View;
use futures_util::future::{Either, select};
use std::time::Duration;

#[test]
fn a_write_that_does_not_reach_every_server_leaves_no_size() {
    for (mut world, is_list) in [
        (World::new(1), false),
        (World::new(2), true),
        (World::progressive(3), false),
        (World::progressive(4), true),
    ] {
        let fs = world.client(false);
        let made =
            world.run(fs.create(&root(), ROOT, &name("f"), 0o644, Taken::Refuse, access::BOTH));
        let file = made.unwrap().1;
        world.net.set_mute("io1", true);
        let bytes = INLINE + SINGLE + 3 * STRIP;
        let written = if is_list {
            let half = bytes as u64 / 2;
            // Half of it behind the other half.
            let view = View::of_ranges([half, 0].map(|offset| (offset, half))).unwrap();
            world.run(file.write_view(&view, vec![1; 2 * half as usize].into()))
        } else {
            world.run(file.write_at(0, vec![1; bytes].into()))
        };
        assert_eq!(written.unwrap_err().code(), Errno::EIO);
        let Reply::Node { inode } = world.meta.ask(Op::Getattr { id: file.id() }) else {
            panic!("no such file");
        };
        assert_eq!(inode.size, 0, "{} strips are not there", bytes / STRIP);
    }
}

#[test]
fn an_append_whose_session_was_given_up_is_not_taken_for_done() {
    let mut world = World::new(5);
    let fs = world.client(true);
    let made = world.run(fs.create(&root(), ROOT, &name("f"), 0o644, Taken::Refuse, access::BOTH));
    let file = made.unwrap().1;
    // It has its place, and its data is on the way, when the session and with it the place are gone.
    (0..SERVERS).for_each(|at| world.net.set_down(&data_name(at), true));
    let mut append = Box::pin(file.append(vec![1; 10].into()));
    let while_down = world.net.sleep(Duration::from_millis(200));
    assert!(matches!(world.run(select(append.as_mut(), while_down)), Either::Right(_)));
    assert!(world.meta.log.borrow().contains(&"Reserve"));
    world.meta.forget_sessions();
    world.cut_all("meta");
    (0..SERVERS).for_each(|at| world.net.set_down(&data_name(at), false));
    assert_eq!(world.run(append).unwrap_err().code(), Errno::EIO);
}

/// A node that was stopped for long, and does not know that another has its file by now, changes nothing any more: neither what
/// lies with the metadata nor what lies on an I/O server, whether it asks for the new epoch or not.
#[test]
fn who_has_pinned_a_file_that_was_taken_over_never_writes_it_again() {
    let mut world = World::progressive(6);
    let (old, new) = (world.client(true), world.client(true));
    let made = world.run(old.create(
        &root(),
        ROOT,
        &name("f"),
        0o644,
        Taken::Refuse,
        access::READ | access::WRITE,
    ));
    let file = made.unwrap().1;
    let bytes = INLINE + SINGLE + 3 * STRIP;
    world.run(file.write_at(0, vec![1; bytes].into())).unwrap();
    file.pin().unwrap();
    world.run(file.write_at(0, vec![2; bytes].into())).unwrap();
    // What its own client does is its own, and the file stays pinned.
    for size in [bytes - 10, bytes, bytes - 20] {
        world.run(old.setattr(&root(), file.id(), resized(size))).unwrap();
        world.run(file.write_at(0, vec![2; bytes].into())).unwrap();
    }

    assert!(!world.run(file.is_taken()).unwrap());
    world.run(new.fence(&root(), file.id())).unwrap();
    let taken = world.run(new.open(&root(), file.id(), 6)).unwrap();
    assert!(world.run(file.is_taken()).unwrap() && !world.run(taken.is_taken()).unwrap());
    for offset in [0, INLINE, INLINE + SINGLE, bytes - 1] {
        let late = world.run(file.write_at(offset as u64, vec![3; 1].into()));
        assert_eq!(late.unwrap_err().code(), Errno::ESTALE, "at {offset}");
        let late = world.run(file.read_at(offset as u64, 1));
        assert_eq!(late.unwrap_err().code(), Errno::ESTALE, "at {offset}");
    }
    world.run(old.stat(file.id())).unwrap();
    assert!(world.run(file.write_at(0, vec![3; bytes].into())).is_err(), "it has looked");
    let found = world.run(taken.read_at(0, bytes)).unwrap();
    assert!(found.into_bytes().iter().all(|byte| *byte == 2));
    world.run(taken.write_at(0, vec![4; bytes].into())).unwrap();
}

fn resized(bytes: usize) -> covey_ninep::tree::SetAttr {
    let size = Some(bytes as u64);
    covey_ninep::tree::SetAttr { size, ..covey_ninep::tree::SetAttr::default() }
}

/// A node that does not know yet that another one has its file, and changes its size then, has it no more.
#[test]
fn a_change_of_size_does_not_give_a_file_back_that_was_taken() {
    for shorter in [10, 0] {
        let mut world = World::progressive(8);
        let (old, new) = (world.client(true), world.client(true));
        let made =
            world.run(old.create(&root(), ROOT, &name("f"), 0o644, Taken::Refuse, access::BOTH));
        let file = made.unwrap().1;
        let bytes = INLINE + SINGLE + 3 * STRIP;
        world.run(file.write_at(0, vec![1; bytes].into())).unwrap();
        file.pin().unwrap();
        // Twice, as by two nodes: one more than this client's own change could have made it.
        world.run(new.fence(&root(), file.id())).unwrap();
        world.run(new.fence(&root(), file.id())).unwrap();
        let _ = world.run(old.setattr(&root(), file.id(), resized(bytes - shorter)));
        let late = world.run(file.write_at(INLINE as u64, vec![3; 1].into()));
        assert_eq!(late.unwrap_err().code(), Errno::ESTALE, "{shorter} bytes shorter");
    }
}

/// Whether it has heard of that or not: the size is refused as writes are.
#[test]
fn the_size_of_a_file_that_was_taken_is_not_changed() {
    let bytes = INLINE + SINGLE + 3 * STRIP;
    for size in [bytes - 10, bytes, bytes + 10].map(|size| size as u64) {
        let mut world = World::progressive(8);
        let (old, new) = (world.client(true), world.client(true));
        let made =
            world.run(old.create(&root(), ROOT, &name("f"), 0o644, Taken::Refuse, access::BOTH));
        let file = made.unwrap().1;
        file.pin().unwrap();
        // Its own changes it hears of, also where they raise the epoch.
        for own in [2 * bytes, bytes / 2, bytes] {
            let changed = world.run(old.set_size_of_pinned(&root(), &file, own as u64)).unwrap();
            assert_eq!(changed.inode.size, own as u64);
            world.run(file.write_at(0, vec![1; own].into())).unwrap();
        }
        world.run(new.fence(&root(), file.id())).unwrap();
        let refused = world.run(old.set_size_of_pinned(&root(), &file, size)).unwrap_err();
        assert_eq!(refused.code(), Errno::ESTALE, "{refused}");
        let now = world.run(new.inode(file.id())).unwrap();
        assert_eq!(now.size, bytes as u64, "to {size}");
        assert!(world.run(file.is_taken()).unwrap());
        let known = world.run(old.set_size_of_pinned(&root(), &file, size)).unwrap_err();
        assert_eq!(known.code(), Errno::ESTALE);
    }
}

/// After a loss of power an epoch is followed by a much higher one.
#[test]
fn a_file_that_somebody_has_for_itself_is_resized_after_a_loss_of_power() {
    let bytes = INLINE + SINGLE + 3 * STRIP;
    for size in [bytes - 10, bytes + 10].map(|size| size as u64) {
        let mut world = World::progressive(8);
        let fs = world.client(true);
        let made =
            world.run(fs.create(&root(), ROOT, &name("f"), 0o644, Taken::Refuse, access::BOTH));
        let file = made.unwrap().1;
        world.run(file.write_at(0, vec![1; bytes].into())).unwrap();
        world.run(file.fsync()).unwrap();
        world.meta.checkpoint();
        file.pin().unwrap();
        world.cut_all("meta");
        world.meta.lose_power();
        let changed = world.run(fs.set_size_of_pinned(&root(), &file, size)).unwrap();
        assert_eq!(changed.inode.size, size);
        world.run(file.write_at(0, vec![2; 10].into())).unwrap();
        let read = world.run(file.read_at(0, 1 << 20)).unwrap().into_bytes();
        assert_eq!((read.len() as u64, read[0]), (size, 2));
        assert!(!world.run(file.is_taken()).unwrap());
    }
}

/// The epoch is raised for those that are there, and nobody waits longer for the others than for dead servers.
#[test]
fn a_file_is_fenced_while_an_io_server_is_dead() {
    let mut world = World::progressive(7);
    let (old, new) = (world.client(false), world.client(false));
    let made = world.run(old.create(
        &root(),
        ROOT,
        &name("f"),
        0o644,
        Taken::Refuse,
        access::READ | access::WRITE,
    ));
    let file = made.unwrap().1;
    let bytes = INLINE + SINGLE + 3 * STRIP;
    world.run(file.write_at(0, vec![1; bytes].into())).unwrap();
    file.pin().unwrap();
    world.net.set_down("io1", true);
    world.run(new.fence(&root(), file.id())).unwrap();
    assert!(world.run(file.write_at(0, vec![3; bytes].into())).is_err());
    world.net.set_down("io1", false);
    let late = world.run(file.write_at(INLINE as u64, vec![3; 10].into()));
    assert_eq!(late.unwrap_err().code(), Errno::ESTALE);
}

/// What changes a file asks first what a metadata server that has lost sizes still knows: a write
/// within the size of before would otherwise lie behind the end of the file.
#[test]
fn a_write_after_the_metadata_server_lost_sizes_tells_of_its_end() {
    for is_view in [false, true] {
        let mut world = World::new(8);
        let fs = world.client(true);
        let made =
            world.run(fs.create(&root(), ROOT, &name("f"), 0o644, Taken::Refuse, access::BOTH));
        let file = made.unwrap().1;
        world.run(file.fsync()).unwrap();
        world.meta.checkpoint();
        let bytes = INLINE + SINGLE + 3 * STRIP;
        world.run(file.write_at(0, vec![1; bytes].into())).unwrap();
        world.cut_all("meta");
        world.meta.lose_power();
        // Whatever it asks next, it hears of the new start by it.
        let (who, other) = (root(), name("g"));
        world.run(fs.create(&who, ROOT, &other, 0o644, Taken::Refuse, access::BOTH)).unwrap();
        let late = vec![2; STRIP];
        let offset = (bytes - STRIP) as u64;
        if is_view {
            let half = STRIP as u64 / 2;
            let view =
                View::of_ranges([offset + half, offset].map(|offset| (offset, half))).unwrap();
            world.run(file.write_view(&view, late.into())).unwrap();
        } else {
            world.run(file.write_at(offset, late.into())).unwrap();
        }
        let Reply::Node { inode } = world.meta.ask(Op::Getattr { id: file.id() }) else {
            panic!("no such file");
        };
        assert_eq!(inode.size, bytes as u64, "view: {is_view}");
    }
}

/// Another act on the file may meet the new start first, and so take what the loss would be told by.
#[test]
fn an_append_across_a_loss_of_power_is_there_or_the_next_fsync_tells() {
    let bytes = 3 * STRIP;
    for rounds in 0..60 {
        let mut world = World::new(9);
        let fs = world.client(true);
        let made =
            world.run(fs.create(&root(), ROOT, &name("f"), 0o644, Taken::Refuse, access::BOTH));
        let file = made.unwrap().1;
        world.run(file.append(vec![7; 100].into())).unwrap();
        world.run(file.fsync()).unwrap();
        world.meta.checkpoint();
        let mut append = Box::pin(file.append(vec![1; bytes].into()));
        let done = world.run(for_rounds(rounds, append.as_mut()));
        world.cut_all("meta");
        world.meta.lose_power();
        world.run(file.write_at(0, vec![7; 1].into())).unwrap();
        let appended = match done {
            Some(done) => done,
            None => world.run(append),
        };
        if appended.is_ok() && world.run(file.fsync()).is_ok() {
            let content = world.run(file.read_at(0, 1 << 20)).unwrap().into_bytes();
            let ones = content.iter().filter(|byte| **byte == 1).count();
            assert_eq!(ones, bytes, "after {rounds} rounds");
        }
    }
}
