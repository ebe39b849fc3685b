//! Descriptions with random mistakes: refused with words, or within the limits and true to what they say.

use crate::toy::{self, Dice};
use covey_layout::{Layout, Plan, Signature, Target};

#[test]
fn a_description_with_mistakes_is_refused_or_safe_to_run() {
    let (mut refused, mut run) = (0, 0);
    for seed in 0..20_000 {
        let mut dice = Dice::new(seed);
        let depth = dice.below(5);
        let (layout, _) = toy::random(&mut dice, depth);
        let mut bytes = layout.encode().expect("it is small");
        for _ in 0..=dice.below(3) {
            let at = dice.below(bytes.len() as u64) as usize;
            bytes[at] = match dice.below(3) {
                0 => 0xff,
                1 => bytes[at].wrapping_add(1),
                _ => dice.roll() as u8,
            };
        }
        match Layout::decode(bytes.into()) {
            Ok(layout) => {
                use_it(&layout, 1 + dice.below(3));
                run += 1;
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                refused += 1;
            }
        }
    }
    assert!(refused > 1000 && run > 1000, "{refused} refused, {run} run");
}

fn use_it(layout: &Layout, count: u64) {
    let encoded = layout.encode().expect("it is small");
    assert_eq!(Layout::decode(encoded.into()).as_ref(), Ok(layout));
    let Ok(plan) = Plan::new(layout, count) else { return };
    let size = plan.size();
    let signature = Signature::new(layout, count).expect("as the plan");
    assert_eq!(signature.size(), size);
    let middle = signature.boundary(size / 2);
    assert!(middle <= size / 2);
    let (low, high) = plan.hull();
    let ahead = plan.runs(middle..size).expect("within").take(100);
    let back = plan.runs(0..middle).expect("within").rev().take(100);
    for run in ahead.chain(back) {
        assert!(low <= run.offset && run.offset + run.bytes as i64 <= high);
    }
    let (mut buffer, mut packed) = ([0; 512], vec![0; size.min(512) as usize]);
    let fits = low >= 0 && high <= 512;
    assert_eq!(plan.pack(&buffer[..], 0, &mut packed).is_ok(), fits || size == 0);
    // The check of overlaps may take long for what interleaves; a few such are enough.
    if plan.run_count() < 4096
        && let Ok(target) = Target::try_from(plan)
    {
        assert_eq!(target.unpack(&packed, 0, &mut buffer[..]).is_ok(), fits || size == 0);
    }
}
