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
