//! Space within files, while others cut them.

mod client_lab;

use client_lab::*;
use covey_ninep::tree::SetAttr;
use covey_stripe::client::fallocate::{KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE};
use covey_stripe::ops::ROOT;
use futures_util::future::join;

#[test]
fn zeros_within_a_size_do_not_bring_back_what_a_truncation_cuts_meanwhile() {
    for seed in 0..100 {
        for mode in [ZERO_RANGE | KEEP_SIZE, PUNCH_HOLE | KEEP_SIZE] {
            let mut world = World::progressive(seed);
            let (one, two) = (world.client(true), world.client(true));
            let (who, size) = (root(), Some(30));
            let made = world.run(one.create(&who, ROOT, &name("f"), 0o644, true, 6));
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
    let (inode, file) = world.run(fs.create(&who, ROOT, &name("f"), 0o644, true, 6)).unwrap();
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
