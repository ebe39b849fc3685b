use super::*;
use proptest::prelude::*;

/// The toy: the slots of the file's bytes in order, and a count of what each slot has got so far.
fn dealt(striping: &Striping, bytes: usize) -> Vec<(usize, u64)> {
    let slots = striping.servers.0.len();
    let mut had = vec![0; slots];
    let place = |(at, slot): (usize, usize)| {
        if slot == INLINE {
            return (INLINE, at as u64);
        }
        had[slot] += 1;
        (slot, had[slot] - 1)
    };
    order(striping).take(bytes).enumerate().map(place).collect()
}

/// The slot of every byte, strip by strip.
fn order(striping: &Striping) -> Box<dyn Iterator<Item = usize>> {
    let (slots, strip) = (striping.servers.0.len(), striping.strip_bytes as usize);
    let params: Vec<usize> = striping.params.0.iter().map(|&n| n as usize).collect();
    let strips: Vec<(usize, usize)> = match striping.kind {
        SIMPLE_STRIPE => (0..slots).map(|slot| (slot, strip)).collect(),
        BASIC => vec![(0, 1)],
        VARSTRIP => params.chunks(2).map(|pair| (pair[0], pair[1])).collect(),
        TWOD_STRIPE => {
            let (groups, factor) = (params[0], params[1]);
            let small = slots / groups;
            let group = |at: usize| {
                let end = if at + 1 == groups { slots } else { (at + 1) * small };
                at * small..end
            };
            let turns = |at| (0..factor).flat_map(move |_| group(at));
            (0..groups).flat_map(turns).map(|slot| (slot, strip)).collect()
        }
        PROGRESSIVE => {
            let (inline, single) = (params[0], params[1]);
            let head = [(INLINE, inline), (0, single - inline)];
            let rest = (1..=slots).map(move |slot| slot % slots).cycle();
            let strips = head.into_iter().chain(rest.map(move |slot| (slot, strip)));
            return Box::new(strips.flat_map(|(slot, bytes)| std::iter::repeat_n(slot, bytes)));
        }
        other => panic!("kind {other}"),
    };
    let strips = strips.into_iter().cycle();
    Box::new(strips.flat_map(|(slot, bytes)| std::iter::repeat_n(slot, bytes)))
}

/// Stripings of all kinds, small enough that a few thousand bytes go round several times.
fn striping() -> impl Strategy<Value = Striping> {
    (1u8..=5, 1u32..40, 1usize..7, any::<[u8; 8]>()).prop_map(|(kind, strip, slots, chance)| {
        let number = |at: usize, from: u32, to: u32| from + u32::from(chance[at]) % (to - from + 1);
        let strip_of = |at| [number(at, 0, slots as u32 - 1), number(at + 4, 1, 30)];
        let params = match kind {
            VARSTRIP => (0..4).flat_map(strip_of).collect(),
            TWOD_STRIPE => vec![number(0, 1, slots as u32), number(1, 1, 4)],
            PROGRESSIVE => {
                let inline = number(0, 0, 50);
                vec![inline, inline + number(1, 0, 100)]
            }
            _ => Vec::new(),
        };
        let slots = if kind == BASIC { 1 } else { slots };
        let servers = List((0..slots as u16).collect());
        Striping { kind, strip_bytes: strip, params: List(params), servers }
    })
}

fn is_inline(spot: &Spot) -> bool {
    spot.slot == INLINE
}

#[test]
fn the_picture_of_the_module_holds() {
    let map = SimpleStripe::new(4, 3);
    assert_eq!(map.locate(13), Spot { slot: 0, physical: 5, run: 3 });
    assert_eq!(map.physical_size(0, 22), 8);
    assert_eq!(map.physical_size(2, 22), 6);
    assert_eq!(map.logical(2, 5), 21);
}

#[test]
fn the_picture_of_the_progressive_layout_holds() {
    let map = Progressive::new(16, 64, SimpleStripe::new(10, 3));
    assert_eq!(map.locate(15), Spot { slot: INLINE, physical: 15, run: 1 });
    assert_eq!(map.locate(16), Spot { slot: 0, physical: 0, run: 48 });
    let slots: Vec<usize> = (0..6).map(|strip| map.locate(64 + 10 * strip).slot).collect();
    assert_eq!(slots, [1, 2, 0, 1, 2, 0]);
    // Slot 0 goes on where its first part ends.
    assert_eq!(map.locate(84).physical, 48);
}

#[test]
fn the_picture_of_twod_stripe_holds() {
    let map = TwodStripe::new(10, 4, 2, 2);
    let slots: Vec<usize> = (0..14).map(|strip| map.locate(10 * strip).slot).collect();
    assert_eq!(slots, [0, 1, 0, 1, 2, 3, 2, 3, 0, 1, 0, 1, 2, 3]);
}

#[test]
fn a_range_becomes_one_request_per_server() {
    let map = SimpleStripe::new(4, 3);
    let cut = parts(&map, 2, 20, u64::MAX);
    assert_eq!(cut.len(), 3);
    assert_eq!(cut[0].pieces, [(0, 2), (10, 4)]);
    assert_eq!(cut[0].physical, 2);
    // Also where the progressive striping passes from one server to all.
    let map = Progressive::new(16, 64, SimpleStripe::new(10, 3));
    assert_eq!(parts(&map, 20, 100, u64::MAX).len(), 3);
}

#[test]
fn numbers_that_make_no_layout_are_refused() {
    let hint = |kind, strip_bytes, server_count, params: &[u32]| {
        let params = List(params.to_vec());
        check(&StripingHint { kind, strip_bytes, server_count, params }, 4)
    };
    for (kind, strip, count, params) in [
        (0, 4096, 0, &[][..]),
        (9, 4096, 0, &[]),
        (SIMPLE_STRIPE, 0, 0, &[]),
        (SIMPLE_STRIPE, 4096, 5, &[]),
        (SIMPLE_STRIPE, 4096, 0, &[1]),
        (SIMPLE_STRIPE, STRIP_BYTES_MAX + 1, 0, &[]),
        (BASIC, 0, 0, &[1]),
        (VARSTRIP, 0, 0, &[]),
        (VARSTRIP, 0, 0, &[0]),
        (VARSTRIP, 0, 0, &[4, 10]),
        (VARSTRIP, 0, 0, &[u32::MAX, 10]),
        (VARSTRIP, 0, 2, &[2, 10]),
        (VARSTRIP, 0, 0, &[0, 0]),
        (TWOD_STRIPE, 4096, 0, &[5, 1]),
        (TWOD_STRIPE, 4096, 0, &[0, 1]),
        (TWOD_STRIPE, 4096, 0, &[2, 0]),
        (PROGRESSIVE, 4096, 0, &[16]),
        (PROGRESSIVE, 4096, 0, &[32, 16]),
        (PROGRESSIVE, 4096, 0, &[INLINE_BYTES_MAX + 1, INLINE_BYTES_MAX + 1]),
        (PROGRESSIVE, 4096, 0, &[0, u32::MAX]),
    ] {
        let refused = hint(kind, strip, count, params).expect_err(&format!("{kind} {params:?}"));
        assert_eq!(refused.code, Errno::EINVAL);
    }
    assert_eq!(hint(BASIC, 0, 0, &[]), Ok(()));
    assert_eq!(hint(VARSTRIP, 0, 0, &[0, 10, 3, 20, 0, 5]), Ok(()));
    assert_eq!(check(&StripingHint::progressive(65536, 0), 1), Ok(()));
}

proptest! {
    #[test]
    fn every_byte_lies_where_the_toy_deals_it(striping in striping()) {
        let map = of(&striping).unwrap();
        let toy = dealt(&striping, 2000);
        for (at, &(slot, physical)) in toy.iter().enumerate() {
            let spot = map.locate(at as u64);
            prop_assert_eq!((spot.slot, spot.physical), (slot, physical), "byte {}", at);
            prop_assert!(spot.run >= 1);
            for ahead in 0..spot.run.min(2000 - at as u64) {
                let next = toy[at + ahead as usize];
                prop_assert_eq!(next, (slot, physical + ahead), "run from {}", at);
            }
        }
        for size in (0..2000).step_by(7) {
            for slot in 0..map.slots() {
                let had = toy[..size].iter().filter(|&&(other, _)| other == slot).count();
                prop_assert_eq!(map.physical_size(slot, size as u64), had as u64);
            }
        }
    }

    #[test]
    fn locate_and_logical_are_inverse(striping in striping(), at in 0u64..1 << 62) {
        let map = of(&striping).unwrap();
        let spot = map.locate(at);
        if !is_inline(&spot) {
            prop_assert_eq!(map.logical(spot.slot, spot.physical), at);
            prop_assert!(map.physical_size(spot.slot, at) <= spot.physical);
            prop_assert_eq!(map.physical_size(spot.slot, at + 1), spot.physical + 1);
        }
    }

    #[test]
    fn sizes_of_the_objects_add_up(striping in striping(), size in 0u64..1 << 40) {
        let map = of(&striping).unwrap();
        let sum: u64 = (0..map.slots()).map(|slot| map.physical_size(slot, size)).sum();
        prop_assert_eq!(sum, size.saturating_sub(map.inline_bytes()));
    }

    #[test]
    fn growth_moves_no_byte(striping in striping(), at in 0u64..10_000, growth in 0u64..10_000) {
        // The place of a byte does not depend on the size, and objects only grow.
        let map = of(&striping).unwrap();
        for slot in 0..map.slots() {
            prop_assert!(map.physical_size(slot, at) <= map.physical_size(slot, at + growth));
        }
    }

    #[test]
    fn parts_cover_each_byte_once(
        striping in striping(), offset in 0u64..5000, length in 0u64..5000, most in 1u64..3000,
    ) {
        let map = of(&striping).unwrap();
        let offset = offset + map.inline_bytes();
        let mut seen = vec![0u8; length as usize];
        for part in parts(&map, offset, length, most) {
            prop_assert!(part.length <= most);
            let mut physical = part.physical;
            for (from, bytes) in part.pieces {
                for at in from..from + bytes {
                    let spot = map.locate(offset + at);
                    prop_assert_eq!((spot.slot, spot.physical), (part.slot, physical));
                    seen[at as usize] += 1;
                    physical += 1;
                }
            }
        }
        prop_assert!(seen.iter().all(|&count| count == 1));
    }
}
