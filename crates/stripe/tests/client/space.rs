//! Space within files, while others cut them.

use crate::lab::*;
use covey_ninep::tree::{Errno, SetAttr};
use covey_stripe::client::fallocate::{KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE};
use covey_stripe::client::{File, Fs, Taken, access};
use covey_stripe::meta::quota::{NO_LIMIT, USER};
use covey_stripe::ops::{Caller, Id, Op, Quota, ROOT};
use covey_stripe::view::View;
use futures_util::future::join;
use std::time::Duration;

#[test]
fn zeros_within_a_size_do_not_bring_back_what_a_truncation_cuts_meanwhile() {
    for seed in 0..100 {
        for mode in [ZERO_RANGE | KEEP_SIZE, PUNCH_HOLE | KEEP_SIZE] {
            let mut world = World::progressive(seed);
            let (one, two) = (world.client(true), world.client(true));
            let (who, size) = (root(), Some(30));
            let made =
                world.run(one.create(&who, ROOT, &name("f"), 0o644, Taken::Refuse, access::BOTH));
            let file = made.unwrap().1;
            world.run(file.write_at(0, vec![7; 300].into())).unwrap();
            let cut = two.setattr(&who, file.id(), SetAttr { size, ..SetAttr::default() });
            let (zeroed, cut) = world.run(join(file.fallocate(&who, mode, 20, 280), cut));
            zeroed.unwrap();
            cut.unwrap();
            let all = world.run(file.read_at(0, 1000)).unwrap().into_bytes();
            assert_eq!(all.len(), 30, "seed {seed}");
            assert!(all[..20].iter().all(|byte| *byte == 7), "seed {seed}");
            assert!(all[20..].iter().all(|byte| *byte == 0), "seed {seed}");
        }
    }
}

#[test]
fn space_is_taken_where_a_file_lies_with_its_metadata() {
    let mut world = World::progressive(7);
    let (fs, who) = (world.client(true), root());
    let (inode, file) =
        world.run(fs.create(&who, ROOT, &name("f"), 0o644, Taken::Refuse, access::BOTH)).unwrap();
    world.run(file.fallocate(&who, KEEP_SIZE, 0, 1000)).unwrap();
    let stat = world.run(fs.stat(inode.id)).unwrap();
    assert_eq!((stat.inode.size, stat.inode.inline), (0, 1000));
    assert!(stat.blocks >= 2, "{} blocks", stat.blocks);
    world.run(file.write_at(10, b"abc".to_vec().into())).unwrap();
    world.run(file.fallocate(&who, 0, 5, 3 * INLINE as u64)).unwrap();
    let inode = world.run(fs.inode(inode.id)).unwrap();
    assert_eq!((inode.size, inode.inline as usize), (5 + 3 * INLINE as u64, INLINE));
    let all = world.run(file.read_at(0, 4 * INLINE)).unwrap().into_bytes();
    let mut expected = vec![0; 5 + 3 * INLINE];
    expected[10..13].copy_from_slice(b"abc");
    assert!(all == expected, "what was there stays, and the rest reads as zeros");
    // What was taken beyond the size is gone with a cut, and a hole takes nothing.
    let cut = SetAttr { size: Some(20), ..SetAttr::default() };
    let stat = world.run(fs.setattr(&who, inode.id, cut)).unwrap();
    assert_eq!(stat.inode.inline, 20);
    world.run(file.fallocate(&who, PUNCH_HOLE | KEEP_SIZE, 0, 1000)).unwrap();
    assert_eq!(world.run(fs.inode(inode.id)).unwrap().inline, 20);
}

/// Space that a quota refuses is never taken: it could be all that there is. What has been taken is cut by a new epoch.
#[test]
fn space_beyond_a_quota_is_refused_before_it_is_taken() {
    let mut world = World::progressive(11);
    let (fs, who) = (world.client(true), Caller { uid: 7, ..Caller::default() });
    let made = world.run(fs.create(&root(), ROOT, &name("f"), 0o644, Taken::Refuse, access::BOTH));
    let id = made.unwrap().0.id;
    let given = SetAttr { uid: Some(7), ..SetAttr::default() };
    world.run(fs.setattr(&root(), id, given)).unwrap();
    let bytes_max = 3 * INLINE as u64;
    let quota = Quota { kind: USER, id: 7, bytes_max, files_max: NO_LIMIT, bytes: 0, files: 0 };
    world.run(fs.set_quota(&root(), quota)).unwrap();
    world.meta.ask(Op::CountOwned { rows_max: 100 });
    let file = world.run(fs.open(&who, id, 6)).unwrap();
    let before = world.run(fs.stat(id)).unwrap();
    for mode in [0, ZERO_RANGE] {
        let refused = world.run(file.fallocate(&who, mode, 1, bytes_max)).unwrap_err();
        assert_eq!(refused.code(), Errno::EDQUOT, "{refused}");
        let after = world.run(fs.stat(id)).unwrap();
        assert_eq!((after.inode.size, after.blocks), (0, before.blocks));
        assert_eq!(after.inode.epoch, before.inode.epoch, "there was nothing to be cut");
    }
    world.run(file.fallocate(&who, 0, 0, bytes_max)).unwrap();
    assert_eq!(world.run(fs.inode(id)).unwrap().size, bytes_max);
}

/// A file that one client has written from its end to its beginning, in pieces of 10 KiB; `between` is done in the middle.
fn written_backwards(world: &mut World, between: impl FnOnce(&mut World, &Fs, Id)) -> (Fs, File) {
    const PIECE: u64 = 10 << 10;
    let (one, two) = (world.client(true), world.client(true));
    let made = world.run(one.create(&root(), ROOT, &name("f"), 0o644, Taken::Refuse, access::BOTH));
    let file = made.unwrap().1;
    let mut between = Some(between);
    for at in (0..8).rev() {
        world.run(file.write_at(at * PIECE, vec![7; PIECE as usize].into())).unwrap();
        if let Some(between) = between.take_if(|_| at == 4) {
            between(world, &two, file.id());
        }
    }
    (two, file)
}

fn is_sparse(world: &mut World, other: &Fs, file: &File) -> bool {
    world.run(other.inode(file.id())).unwrap().sparse
}

#[test]
fn a_file_written_out_of_order_has_no_holes_after_a_flush() {
    for mut world in [World::progressive(3), World::new(3)] {
        let (other, file) = written_backwards(&mut world, |_, _, _| {});
        assert!(is_sparse(&mut world, &other, &file));
        world.run(file.flush()).unwrap();
        assert!(!is_sparse(&mut world, &other, &file));
        // What comes out of order behind it, and in pieces of a list.
        let size = 80 << 10;
        let lists = [[(100, 50), (200, 50)], [(0, 100), (150, 50)]];
        for list in lists {
            assert!(!is_sparse(&mut world, &other, &file) || list == lists[1]);
            let view = View::of_ranges(list.map(|(at, bytes)| (size + at, bytes))).unwrap();
            let bytes = view.bytes() as usize;
            world.run(file.write_view(&view, vec![1; bytes].into())).unwrap();
        }
        assert!(is_sparse(&mut world, &other, &file));
        world.run(file.flush()).unwrap();
        assert!(!is_sparse(&mut world, &other, &file));
        world.run(file.write_at(size + 300, vec![1; 10].into())).unwrap();
        world.run(file.flush()).unwrap();
        assert!(is_sparse(&mut world, &other, &file), "a hole before the last piece");
    }
}

#[test]
fn a_file_that_others_punch_cut_or_stretch_meanwhile_keeps_its_mark() {
    let hole = PUNCH_HOLE | KEEP_SIZE;
    let punch = |world: &mut World, other: &Fs, id| {
        let file = world.run(other.open(&root(), id, 6)).unwrap();
        world.run(file.fallocate(&root(), hole, 60 << 10, 4096)).unwrap();
    };
    let resize = |world: &mut World, other: &Fs, id, size| {
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        world.run(other.setattr(&root(), id, set)).unwrap();
    };
    type Between<'a> = &'a dyn Fn(&mut World, &Fs, Id);
    let cases: [(&str, Between); 3] = [
        ("punched", &|world, other, id| punch(world, other, id)),
        ("cut", &|world, other, id| {
            resize(world, other, id, 62 << 10);
            resize(world, other, id, 80 << 10);
        }),
        ("stretched", &|world, other, id| resize(world, other, id, 90 << 10)),
    ];
    for (what, between) in cases {
        let mut world = World::new(4);
        let (other, file) = written_backwards(&mut world, between);
        world.run(file.flush()).unwrap();
        assert!(is_sparse(&mut world, &other, &file), "{what}");
    }
}

#[test]
fn an_append_that_fails_leaves_a_hole_and_not_a_loss() {
    let mut world = World::new(5);
    let (fs, other) = (world.client(false), world.client(true));
    let made = world.run(fs.create(&root(), ROOT, &name("f"), 0o644, Taken::Refuse, access::BOTH));
    let file = made.unwrap().1;
    world.run(file.append(vec![1; 100].into())).unwrap();
    assert!(!is_sparse(&mut world, &other, &file));
    for server in 0..SERVERS {
        world.net.set_down(&data_name(server), true);
        world.cut_all(&data_name(server));
    }
    world.run(file.append(vec![2; 100].into())).unwrap_err();
    let inode = world.run(other.inode(file.id())).unwrap();
    assert_eq!((inode.size, inode.sparse), (200, true));
    // And nobody takes it for whole afterwards, who has not written it.
    (0..SERVERS).for_each(|server| world.net.set_down(&data_name(server), false));
    world.rest(Duration::from_secs(5));
    world.run(file.append(vec![3; 100].into())).unwrap();
    world.run(file.flush()).unwrap();
    assert!(is_sparse(&mut world, &other, &file));
}

#[test]
fn a_hole_that_was_lost_with_the_power_is_told_by_the_next_fsync() {
    let mut world = World::new(6);
    let (one, two) = (world.client(true), world.client(true));
    let (who, refuse) = (root(), Taken::Refuse);
    let made = world.run(one.create(&who, ROOT, &name("f"), 0o644, refuse, access::BOTH));
    // Opened while it has nothing: what others write is theirs to sync.
    let file = made.unwrap().1;
    let theirs = world.run(two.open(&who, file.id(), access::BOTH)).unwrap();
    world.run(theirs.write_at(0, vec![7; 3 * STRIP].into())).unwrap();
    world.run(theirs.fsync()).unwrap();
    let hole = file.fallocate(&who, PUNCH_HOLE | KEEP_SIZE, 0, 3 * STRIP as u64);
    world.run(hole).unwrap();
    for server in 0..SERVERS {
        world.data[server].losses.set(1);
        world.cut_all(&data_name(server));
    }
    let told = world.run(file.fsync()).unwrap_err();
    assert_eq!(told.code(), Errno::EIO, "{told}");
    world.run(file.fsync()).unwrap();
}
