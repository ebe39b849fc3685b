use super::*;
use crate::distribution::{Progressive, SimpleStripe};
use proptest::prelude::*;
use std::collections::BTreeMap;

const MIB: u32 = 1 << 20;

fn run() -> impl Strategy<Value = Run> {
    (0u64..3000, 1u64..60, 0u64..120, 0u64..30).prop_map(|(offset, bytes, gap, count)| Run {
        offset,
        bytes,
        stride: bytes + gap,
        count,
    })
}

/// Where each byte of the caller's data goes, byte by byte.
fn toy(map: &impl Distribution, list: &[Run], limit: u64) -> BTreeMap<usize, (usize, u64)> {
    let bytes = list.iter().flat_map(|run| run.pieces()).flat_map(|(at, bytes)| at..at + bytes);
    let place = |(at, offset): (usize, u64)| {
        let spot = map.locate(offset);
        (offset < limit).then_some((at, (spot.slot, spot.physical)))
    };
    bytes.enumerate().filter_map(place).collect()
}

/// The same of what was planned.
fn planned(batches: &[Batch]) -> BTreeMap<usize, (usize, u64)> {
    let mut all = BTreeMap::new();
    for batch in batches {
        let object = runs::pieces(&batch.runs).flat_map(|(at, bytes)| at..at + u64::from(bytes));
        let places = batch.places.iter().flat_map(|&(at, bytes)| at..at + bytes as usize);
        let (object, places): (Vec<u64>, Vec<usize>) = (object.collect(), places.collect());
        assert_eq!((object.len(), places.len()), (batch.bytes as usize, batch.bytes as usize));
        for (at, physical) in places.into_iter().zip(object) {
            assert_eq!(all.insert(at, (batch.slot, physical)), None, "byte {at} is sent twice");
        }
    }
    all
}

#[test]
fn a_column_of_a_matrix_is_one_run_on_each_server() {
    // 4096 rows of 1 KiB, 64 rows in each strip, an element of 8 bytes of each.
    let map = SimpleStripe::new(65536, 4);
    let column = Run { offset: 40, bytes: 8, stride: 1024, count: 4096 };
    let batches = plan(&map, &[column], u64::MAX, MIB);
    let runs: Vec<_> = batches.iter().map(|batch| batch.runs.clone()).collect();
    let mine = runs::Run { offset: 40, bytes: 8, stride: 1024, count: 1024 };
    assert_eq!(runs, vec![vec![mine]; 4]);
}

#[test]
fn a_plain_range_is_one_request_per_server() {
    let map = Progressive::new(16 << 10, 4 << 20, SimpleStripe::new(65536, 4));
    let batches = plan(&map, &[Run::one(0, 5 << 20)], u64::MAX, 8 << 20);
    assert_eq!(batches.len(), 5);
    assert!(batches.iter().all(|batch| batch.runs.len() == 1));
}

#[test]
fn a_list_is_cut_into_messages() {
    let map = SimpleStripe::new(65536, 1);
    let batches = plan(&map, &[Run::one(0, 3 << 20)], u64::MAX, MIB);
    assert_eq!(batches.len(), 4);
    let tiny = Run { offset: 0, bytes: 1, stride: 3, count: PIECES_MAX + 1 };
    assert_eq!(plan(&map, &[tiny], u64::MAX, MIB).len(), 2);
    let fits = Run { count: PIECES_MAX, ..tiny };
    assert_eq!(plan(&map, &[fits], u64::MAX, MIB).len(), 1);
}

#[test]
fn lists_that_no_file_has_room_for_are_refused() {
    let code = |run| extent(&[run]).map_err(|error| error.code);
    let run = Run { offset: 1, bytes: 4, stride: 8, count: 3 };
    assert_eq!(code(run), Ok(Extent { total: 12, start: 1, end: 21 }));
    assert_eq!(code(Run { stride: 3, ..run }), Err(Errno::EINVAL));
    assert_eq!(code(Run { offset: u64::MAX, ..run }), Err(Errno::EFBIG));
    assert_eq!(code(Run { stride: u64::MAX, ..run }), Err(Errno::EFBIG));
    assert_eq!(code(Run { count: u64::MAX, stride: 4, ..run }), Err(Errno::EFBIG));
    assert_eq!(extent(&[]), Ok(Extent { total: 0, start: 0, end: 0 }));
    let end = i64::MAX as u64;
    assert_eq!(code(Run::one(end - 4, 4)).map(|extent| extent.end), Ok(end));
    assert_eq!(code(Run::one(end - 3, 4)), Err(Errno::EFBIG));
}

proptest! {
    #[test]
    fn every_byte_goes_where_the_distribution_has_it(
        list in prop::collection::vec(run(), 0..8), limit in 0u64..5000, strip in 1u32..200,
        slots in 1usize..5, progressive in any::<bool>(), payload_max in 60u32..4000,
    ) {
        let stripe = SimpleStripe::new(strip, slots);
        let most = payload_max.max(48);
        let check = |batches: &[Batch]| {
            for batch in batches {
                let wire = batch.bytes as usize + batch.runs.len() * runs::Run::WIRE_BYTES;
                assert!(wire <= most as usize, "{wire} bytes of {most}");
                assert_eq!(runs::check(&batch.runs, batch.bytes), Ok(batch.bytes));
            }
        };
        if progressive {
            let map = Progressive::new(100, 700, stripe);
            let batches = plan(&map, &list, limit, payload_max);
            check(&batches);
            prop_assert_eq!(planned(&batches), toy(&map, &list, limit));
        } else {
            let batches = plan(&stripe, &list, limit, payload_max);
            check(&batches);
            prop_assert_eq!(planned(&batches), toy(&stripe, &list, limit));
        }
    }

    #[test]
    fn what_is_gathered_is_scattered_back(list in prop::collection::vec(run(), 0..8)) {
        let total = extent(&list).unwrap().total;
        let data: Bytes = (0..total).map(|at| at as u8).collect();
        let mut back = vec![0; total];
        for batch in plan(&SimpleStripe::new(50, 3), &list, u64::MAX, 1000) {
            batch.scatter(&batch.gather(&data).into_bytes(), &mut back);
        }
        prop_assert_eq!(&data[..], &back[..]);
    }

    #[test]
    fn the_rest_of_a_batch_is_what_was_not_done(
        list in prop::collection::vec(run(), 1..5), done in 0u64..500,
    ) {
        for batch in plan(&SimpleStripe::new(50, 2), &list, u64::MAX, MIB) {
            let bytes = |runs: &[runs::Run]| -> Vec<u64> {
                runs::pieces(runs).flat_map(|(at, bytes)| at..at + u64::from(bytes)).collect()
            };
            let all = bytes(&batch.runs);
            let done = done.min(all.len() as u64);
            prop_assert_eq!(bytes(&batch.runs_behind(done)), &all[done as usize..]);
        }
    }
}
