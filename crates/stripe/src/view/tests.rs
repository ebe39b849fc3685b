use super::head::Head;
use super::*;
use crate::distribution::{self, Distribution, INLINE, Map};
use crate::ops::Striping;
use covey_layout::{Axis, Order};
use covey_ninep::message::{Dialect, Message};
use covey_ninep::tree::View as Asked;
use covey_wire::List;
use proptest::prelude::*;
use std::collections::BTreeMap;

const MIB: u32 = 1 << 20;

fn striping(kind: u8, strip_bytes: u32, params: &[u32], slots: u16) -> Striping {
    let servers = List((0..slots).collect());
    Striping { kind, strip_bytes, params: List(params.to_vec()), servers }
}

fn simple(strip_bytes: u32, slots: u16) -> Striping {
    striping(distribution::SIMPLE_STRIPE, strip_bytes, &[], slots)
}

fn planned(striping: &Striping, view: &View, limit: u64, payload_max: u32) -> Vec<Batch> {
    plan(&distribution::of(striping).unwrap(), striping, view, limit, payload_max)
}

fn ranges_of(view: &View) -> Vec<(u64, u64)> {
    view.ranges().collect()
}

/// Stripings of each kind, small enough that a few thousand bytes go round.
fn stripings() -> impl Strategy<Value = Striping> {
    use distribution::{BASIC, PROGRESSIVE, TWOD_STRIPE, VARSTRIP};
    (0..5, 1u32..200, 1u16..5, 1u32..60).prop_map(|(kind, strip, slots, other)| match kind {
        0 => simple(strip, slots),
        1 => striping(BASIC, strip, &[], 1),
        2 => striping(VARSTRIP, 0, &[0, strip, u32::from(slots) - 1, other], slots),
        3 => striping(TWOD_STRIPE, strip, &[u32::from(slots).div_ceil(2), 1 + other % 3], slots),
        _ => striping(PROGRESSIVE, strip, &[other, other + strip], slots),
    })
}

/// Layouts of bytes, nested a few times, and the bytes that they name in order.
fn layouts() -> impl Strategy<Value = (Layout, Vec<i64>)> {
    let byte = || Layout::element(Element::Byte);
    let block = (1u64..40).prop_map(move |count| {
        (Layout::contiguous(count, &byte()).unwrap(), (0..count as i64).collect::<Vec<i64>>())
    });
    block.prop_recursive(3, 16, 4, |inner| {
        let strided = (inner.clone(), 1u64..6, -200i64..200).prop_map(
            |((inner, all), count, by): ((_, Vec<i64>), _, _)| {
                let layout = Layout::hvector(count, 1, by, &inner).unwrap();
                let each =
                    |round: i64| all.iter().map(move |at| at + round * by).collect::<Vec<_>>();
                (layout, (0..count as i64).flat_map(each).collect())
            },
        );
        let listed = (inner, prop::collection::vec(-300i64..300, 1..5));
        let listed = listed.prop_map(|((inner, all), places): ((_, Vec<i64>), _)| {
            let block = |&displacement: &i64| Block { count: 1, displacement };
            let blocks: Vec<Block> = places.iter().map(block).collect();
            let layout = Layout::hindexed(&blocks, &inner).unwrap();
            let each = |by: &i64| all.iter().map(|at| at + by).collect::<Vec<_>>();
            (layout, places.iter().flat_map(each).collect())
        });
        prop_oneof![strided, listed]
    })
}

/// Where each byte of the caller's data goes, byte by byte.
fn toy(map: &Map, bytes: &[u64], limit: u64) -> BTreeMap<usize, (usize, u64)> {
    let place = |(at, &offset): (usize, &u64)| {
        let spot = map.locate(offset);
        (offset < limit).then_some((at, (spot.slot, spot.physical)))
    };
    bytes.iter().enumerate().filter_map(place).collect()
}

/// The same of what servers walk and what is planned, with each request within a message.
fn walked(
    batches: &[Batch],
    view: &View,
    striping: &Striping,
    limit: u64,
    payload_max: u32,
) -> BTreeMap<usize, (usize, u64)> {
    let mut all = BTreeMap::new();
    for batch in batches {
        let asked = batch.asked(view, striping, limit);
        let pieces =
            if batch.slot == INLINE { batch.pieces.clone() } else { walk(&asked).unwrap() };
        let sent = 16 + asked.body.len() + batch.bytes as usize;
        assert!(batch.slot == INLINE || sent <= payload_max as usize, "{sent} of {payload_max}");
        if let Some(only) = batch.only {
            assert_eq!(pieces, [only]);
        }
        let object = pieces.iter().flat_map(|&(at, bytes)| at..at + u64::from(bytes));
        let places = batch.places.iter().flat_map(|&(at, bytes)| at..at + bytes as usize);
        let (object, places): (Vec<u64>, Vec<usize>) = (object.collect(), places.collect());
        assert_eq!((object.len(), places.len()), (batch.bytes as usize, batch.bytes as usize));
        for (at, physical) in places.into_iter().zip(object) {
            assert_eq!(all.insert(at, (batch.slot, physical)), None, "byte {at} is sent twice");
        }
    }
    all
}

/// Bytes of a Treadview on the wire.
fn bytes_on_the_wire(asked: Asked) -> usize {
    let Asked { start, end, bytes: count, body } = asked;
    let read = Message::Treadview { fid: 1, start, end, count, view: body.into() };
    let mut out = covey_wire::Segments::new();
    read.put(1, Dialect::Covey, &mut out);
    out.len()
}

#[test]
fn a_subarray_of_three_dimensions_is_a_short_request_to_each_server() {
    // Rows of 64 bytes, 40 x 60 of them, out of 100 x 200 rows of 512 bytes.
    let axis = |size, start, part| Axis { size, start, part };
    let axes = [axis(100, 30, 40), axis(200, 100, 60), axis(64, 8, 8)];
    let double = Layout::element(Element::F64);
    let part = Layout::subarray(&axes, Order::C, &double).unwrap();
    let view = View::new(&part, 1, 1 << 20).unwrap();
    assert_eq!(view.ranges().count(), 40 * 60);
    let progressive = striping(distribution::PROGRESSIVE, 65536, &[16 << 10, 4 << 20], 4);
    for striping in [simple(65536, 4), progressive] {
        let batches = planned(&striping, &view, u64::MAX, MIB);
        assert!(batches.len() <= 4);
        for batch in batches {
            let bytes = bytes_on_the_wire(batch.asked(&view, &striping, u64::MAX));
            assert!(bytes < 200, "{bytes} bytes");
        }
    }
}

#[test]
fn a_plain_range_is_one_range_of_each_server() {
    let striping = striping(distribution::PROGRESSIVE, 65536, &[16 << 10, 4 << 20], 4);
    let view = View::of_ranges([(0, 5 << 20)]).unwrap();
    let batches = planned(&striping, &view, u64::MAX, 8 << 20);
    assert_eq!(batches.len(), 5);
    assert!(batches.iter().all(|batch| batch.only.is_some()));
}

#[test]
fn a_view_is_cut_into_messages() {
    let one = simple(65536, 1);
    let long = View::of_ranges([(0, 3 << 20)]).unwrap();
    assert_eq!(planned(&one, &long, u64::MAX, MIB).len(), 4);
    let most = STEPS_MAX / 2;
    for (count, batches) in [(most, 1), (most + 1, 2)] {
        let tiny = View::column(0, 1, 3, count).unwrap();
        assert_eq!(planned(&one, &tiny, u64::MAX, MIB).len(), batches);
    }
    // What others have is walked past: it counts, too.
    let many = simple(2, 64);
    for (count, batches) in [(STEPS_MAX / 2, 64), (STEPS_MAX, 128)] {
        let column = View::column(0, 1, 2, count).unwrap();
        let planned = planned(&many, &column, u64::MAX, MIB);
        assert_eq!(planned.len(), batches);
        for batch in planned {
            walk(&batch.asked(&column, &many, u64::MAX)).unwrap();
        }
    }
}

#[test]
fn what_no_file_has_room_for_is_refused() {
    let code = |view: Result<View>| view.map(|view| view.extent()).map_err(|error| error.code);
    assert_eq!(code(View::column(1, 4, 8, 3)), Ok((1, 21)));
    assert_eq!(code(View::column(u64::MAX, 4, 8, 3)), Err(Errno::EFBIG));
    assert_eq!(code(View::column(1, 4, u64::MAX, 3)), Err(Errno::EFBIG));
    assert_eq!(code(View::column(1, 4, 4, u64::MAX)), Err(Errno::EFBIG));
    assert_eq!(code(View::of_ranges([])), Ok((0, 0)));
    let end = i64::MAX as u64;
    assert_eq!(code(View::of_ranges([(end - 4, 4)])), Ok((end - 4, end)));
    assert_eq!(code(View::of_ranges([(end - 3, 4)])), Err(Errno::EFBIG));
    assert_eq!(code(View::of_ranges([(end - 4, 4), (0, 1)])), Err(Errno::EFBIG));
    let down = Layout::hvector(3, 1, -8, &Layout::element(Element::Byte)).unwrap();
    assert_eq!(code(View::new(&down, 1, 16)), Ok((0, 17)));
    assert_eq!(code(View::new(&down, 1, 15)), Err(Errno::EFBIG));
}

#[test]
fn a_part_of_a_view_has_its_own_extent() {
    let column = View::column(10, 4, 10, 5).unwrap();
    let part = column.clone().part(6..14).unwrap();
    assert_eq!((part.bytes(), part.extent(), part.is_one()), (8, (22, 42), false));
    assert_eq!(ranges_of(&part), [(22, 24), (30, 34), (40, 42)]);
    let part = part.part(1..2).unwrap();
    assert_eq!((part.extent(), part.is_one()), ((23, 24), true));
    assert_eq!(column.clone().part(3..3).unwrap().bytes(), 0);
    assert_eq!(column.clone().part(0..21).unwrap_err().code, Errno::EINVAL);
    assert_eq!(ranges_of(&column.part(0..20).unwrap()).len(), 5);
}

/// A request that a peer may send, to be spoilt.
fn asked() -> (Head, Layout, Asked) {
    let layout = Layout::hvector(4, 8, 16, &Layout::element(Element::Byte)).unwrap();
    let head = Head { to: 32, ..Head::of_object() };
    (head, layout, Asked { start: 0, end: 56, bytes: 32, body: Bytes::new() })
}

#[test]
fn what_a_peer_may_not_ask_is_refused_from_both_sides() {
    let ask = |spoil: &dyn Fn(&mut Head, &mut Layout, &mut Asked)| {
        let (mut head, mut layout, mut asked) = asked();
        spoil(&mut head, &mut layout, &mut asked);
        asked.body = head.with(&layout.encode().unwrap().into());
        walk(&asked).map(|pieces| pieces.len()).map_err(|error| error.code)
    };
    let byte = Layout::element(Element::Byte);
    assert_eq!(ask(&|_, _, _| {}), Ok(4));
    assert_eq!(ask(&|_, _, asked| asked.end -= 1), Err(Errno::EINVAL));
    assert_eq!(ask(&|_, _, asked| asked.start += 1), Err(Errno::EINVAL));
    assert_eq!(ask(&|_, _, asked| asked.bytes += 1), Err(Errno::EINVAL));
    assert_eq!(ask(&|_, _, asked| asked.bytes -= 1), Err(Errno::EINVAL));
    assert_eq!(ask(&|head, _, _| head.to += 1), Err(Errno::EINVAL));
    assert_eq!(ask(&|head, _, _| head.from = 33), Err(Errno::EINVAL));
    assert_eq!(ask(&|head, _, _| head.slot = 1), Err(Errno::EINVAL));
    assert_eq!(ask(&|head, _, _| head.slots = 0), Err(Errno::EINVAL));
    assert_eq!(ask(&|head, _, _| head.kind = 77), Err(Errno::EINVAL));
    assert_eq!(ask(&|head, _, _| head.kind = distribution::VARSTRIP), Err(Errno::EINVAL));
    assert_eq!(ask(&|head, _, _| head.origin = OFFSET_MAX - 55), Err(Errno::EFBIG));
    let at_the_end = |head: &mut Head, _: &mut Layout, asked: &mut Asked| {
        head.origin = OFFSET_MAX - 56;
        (asked.start, asked.end) = (head.origin, OFFSET_MAX);
    };
    assert_eq!(ask(&at_the_end), Ok(4));
    // Backwards, and twice the same: within the file it is as good as anything else.
    let strided = |by: i64, origin: u64| {
        let byte = byte.clone();
        move |head: &mut Head, layout: &mut Layout, asked: &mut Asked| {
            *layout = Layout::hvector(4, 8, by, &byte).unwrap();
            (head.origin, asked.end) = (origin, 100);
        }
    };
    assert_eq!(ask(&strided(-16, 48)), Ok(4));
    assert_eq!(ask(&strided(-16, 47)), Err(Errno::EFBIG));
    assert_eq!(ask(&strided(-16, 93)), Err(Errno::EINVAL));
    assert_eq!(ask(&strided(4, 0)), Ok(4));
    assert_eq!(ask(&strided(0, 0)), Ok(4));
    assert_eq!(ask(&strided(-(1 << 57), 0)), Err(Errno::EFBIG));
    let nested = |levels: usize| {
        let inner = Layout::hvector(2, 1, 3, &byte).unwrap();
        let outer =
            |inner: Layout, level: u32| Layout::hvector(2, 1, 3i64.pow(level), &inner).unwrap();
        let nest = (2..levels as u32).fold(inner, outer);
        assert_eq!(nest.depth(), levels);
        move |head: &mut Head, layout: &mut Layout, asked: &mut Asked| {
            *layout = nest.clone();
            (head.to, head.limit, asked.bytes) = (nest.size(), 0, 0);
        }
    };
    assert_eq!(ask(&nested(DEPTH_MAX)), Ok(0));
    assert_eq!(ask(&nested(DEPTH_MAX + 1)), Err(Errno::E2BIG));
    let spread = |count: u64| {
        let byte = byte.clone();
        move |head: &mut Head, layout: &mut Layout, asked: &mut Asked| {
            *layout = Layout::hvector(count, 1, 2, &byte).unwrap();
            (head.to, asked.bytes, asked.end) = (count, count as u32, 2 * count);
        }
    };
    assert_eq!(ask(&spread(STEPS_MAX)), Ok(STEPS_MAX as usize));
    assert_eq!(ask(&spread(STEPS_MAX + 1)), Err(Errno::E2BIG));
    // Nothing of it is there: what counts is the walk.
    let past = |count: u64| {
        let byte = byte.clone();
        move |head: &mut Head, layout: &mut Layout, asked: &mut Asked| {
            *layout = Layout::hvector(count, 1, 2, &byte).unwrap();
            (head.to, head.limit, asked.bytes) = (count, 0, 0);
        }
    };
    assert_eq!(ask(&past(STEPS_MAX)), Ok(0));
    assert_eq!(ask(&past(STEPS_MAX + 1)), Err(Errno::E2BIG));
    // A long range in the shortest strips of another slot.
    let strips = |head: &mut Head, layout: &mut Layout, asked: &mut Asked| {
        (head.kind, head.strip_bytes, head.slots) = (distribution::SIMPLE_STRIPE, 1, 65535);
        *layout = Layout::bytes(1 << 59).unwrap();
        (head.to, head.slot, asked.bytes) = (1 << 59, 65534, u32::MAX);
        asked.end = u64::MAX;
    };
    assert_eq!(ask(&strips), Err(Errno::E2BIG));
    let listed = |count: usize| {
        let block = |at| Block { count: 1, displacement: 7 * at * at };
        let blocks: Vec<Block> = (0..count as i64).map(block).collect();
        let layout = Layout::hindexed(&blocks, &byte).unwrap();
        move |head: &mut Head, into: &mut Layout, asked: &mut Asked| {
            *into = layout.clone();
            (head.to, asked.bytes, asked.end) = (count as u64, count as u32, u64::MAX);
        }
    };
    assert_eq!(ask(&listed(ENTRIES_MAX as usize - 1)), Ok(ENTRIES_MAX as usize - 1));
    assert_eq!(ask(&listed(ENTRIES_MAX as usize)), Err(Errno::E2BIG));
}

#[test]
fn a_long_list_without_a_pattern_is_sent_piece_by_piece() {
    let places: Vec<(u64, u64)> = (0..100_000u64).map(|at| (at * at % 7 + at * 50, 3)).collect();
    let view = View::of_ranges(places.iter().copied()).unwrap();
    let striping = simple(4096, 3);
    let batches = planned(&striping, &view, u64::MAX, MIB);
    let map = distribution::of(&striping).unwrap();
    let bytes: Vec<u64> = places.iter().flat_map(|&(at, bytes)| at..at + bytes).collect();
    assert_eq!(walked(&batches, &view, &striping, u64::MAX, MIB), toy(&map, &bytes, u64::MAX));
}

proptest! {
    #[test]
    fn servers_walk_what_a_plain_list_says(
        (layout, bytes) in layouts(), striping in stripings(), count in 1u64..4,
        limit in 0u64..6000, payload_max in 256u32..4000, cut in any::<(u16, u16)>(),
    ) {
        let extent = layout.bounds().extent();
        let copy = |n: u64| bytes.iter().map(move |at| at + extent * n as i64);
        let all: Vec<i64> = (0..count).flat_map(copy).collect();
        let origin = 2 * all.iter().min().unwrap().unsigned_abs();
        let all: Vec<u64> = all.iter().map(|at| origin.wrapping_add_signed(*at)).collect();
        let view = View::new(&layout, count, origin).unwrap();
        let map = distribution::of(&striping).unwrap();
        let (one, other) = (usize::from(cut.0) % (all.len() + 1), usize::from(cut.1) % (all.len() + 1));
        for (from, to) in [(0, all.len()), (one.min(other), one.max(other))] {
            let view = view.clone().part(from as u64..to as u64).unwrap();
            let part = &all[from..to];
            let found: Vec<u64> = view.ranges().flat_map(|(start, end)| start..end).collect();
            prop_assert_eq!(&found, part);
            let batches = planned(&striping, &view, limit, payload_max);
            let walked = walked(&batches, &view, &striping, limit, payload_max);
            prop_assert_eq!(walked, toy(&map, part, limit));
        }
    }

    #[test]
    fn what_is_gathered_is_scattered_back((layout, bytes) in layouts()) {
        let view = View::new(&layout, 1, 4000).unwrap();
        let data: Bytes = (0..bytes.len()).map(|at| at as u8).collect();
        let mut back = vec![0; bytes.len()];
        for batch in planned(&simple(50, 3), &view, u64::MAX, 1000) {
            batch.scatter(&batch.gather(&data).into_bytes(), &mut back);
        }
        prop_assert_eq!(&data[..], &back[..]);
    }

    #[test]
    fn the_rest_of_a_batch_is_what_was_not_done((layout, _) in layouts(), done in 0u32..500) {
        let (striping, limit) = (simple(50, 2), u64::MAX);
        let view = View::new(&layout, 1, 4000).unwrap();
        for batch in planned(&striping, &view, limit, MIB) {
            let bytes = |pieces: &[Piece]| -> Vec<u64> {
                pieces.iter().flat_map(|&(at, bytes)| at..at + u64::from(bytes)).collect()
            };
            let pieces = walk(&batch.asked(&view, &striping, limit)).unwrap();
            let all = bytes(&pieces);
            let (mut done, mut found) = (done.min(batch.bytes), Vec::new());
            let begin = done as usize;
            while done < batch.bytes {
                let rest = behind(&pieces, done, 256);
                prop_assert!(rest.bytes > 0);
                prop_assert!(16 + rest.body.len() + rest.bytes as usize <= 256);
                found.extend(bytes(&walk(&rest).unwrap()));
                done += rest.bytes;
            }
            prop_assert_eq!(&found, &all[begin..]);
        }
    }
}
