//! Copies cut into strips: the same bytes as a whole copy, each out of what its strip reads and nothing else.

use covey_layout::{Block, Element, Layout, Plan, Strips, Target, View, ViewMut};

fn noise(bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8).collect()
}

/// `rows` of `columns` elements of `bytes`, named column after column; rows are `pitch` bytes apart.
fn columns(rows: u64, columns: u64, bytes: u64, pitch: i64) -> Layout {
    let element = Layout::bytes(bytes).expect("it is small");
    let column = Layout::hvector(rows, 1, pitch, &element).expect("it is small");
    Layout::hvector(columns, 1, bytes as i64, &column).expect("it is small")
}

/// Where displacement 0 lies in a buffer for it, and how long that is.
fn room(plan: Option<&Plan>, size: u64) -> (usize, usize) {
    let (begin, end) = plan.map_or((0, size as i64), Plan::hull);
    let (begin, end) = (begin.min(0), end.max(0));
    (begin.unsigned_abs() as usize, (end - begin) as usize)
}

/// The number of strips, if there are any: each copies out of a buffer with no more than it reads.
fn in_strips(source: Option<&Plan>, target: Option<&Target>, bytes_max: u64) -> Option<usize> {
    let strips = Strips::new(source, target, bytes_max)?;
    let size = source.or(target.map(Target::plan)).expect("one is scattered").size();
    let (origin, bytes) = room(source, size);
    let (there, room) = room(target.map(Target::plan), size);
    let (from, mut whole, mut into) = (noise(bytes), vec![1; room], vec![1; room]);
    let mut packed = vec![0; size as usize];
    let view = View::at(&from, origin).expect("within");
    match source {
        Some(plan) => plan.pack(view, 0, &mut packed).expect("it fits"),
        None => packed.copy_from_slice(&from),
    }
    match target {
        Some(target) => {
            let whole = ViewMut::at(&mut whole, there).expect("within");
            target.unpack(&packed, 0, whole).expect("it fits");
        }
        None => whole.copy_from_slice(&packed),
    }
    let most = strips.bytes_max();
    let mut count = 0;
    for strip in strips {
        let (begin, end) = strip.reads();
        assert!(end.abs_diff(begin) <= most);
        let at = (origin as i64 + begin) as usize..(origin as i64 + end) as usize;
        let near = from[at].to_vec();
        strip.copy(&near[..], ViewMut::at(&mut into, there).expect("within")).expect("it fits");
        count += 1;
    }
    assert!(into == whole, "{source:?} to {target:?} by {bytes_max}");
    Some(count)
}

#[test]
fn a_matrix_is_transposed_in_strips_of_whole_rows_whichever_side_has_the_columns() {
    let matrix = Target::new(&columns(100, 300, 4, 1200), 1).expect("no overlap");
    // Of 100 rows of 1200 bytes: 10 in a strip, and 16 where there is room for 20. The packed bytes are 300 rows of 400.
    for (bytes_max, by_rows, packed) in
        [(12_000, 10, 19), (24_000, 7, 7), (1, 100, 300), (1 << 20, 1, 1)]
    {
        assert_eq!(in_strips(Some(matrix.plan()), None, bytes_max), Some(by_rows));
        assert_eq!(in_strips(None, Some(&matrix), bytes_max), Some(packed));
    }
}

#[test]
fn every_size_of_element_and_both_directions_of_rows_come_to_their_places() {
    for bytes in [1, 2, 3, 4, 8, 12, 16, 40] {
        for (rows, across) in [(5, 7), (64, 33), (300, 70)] {
            let pitch = (across * bytes + 8) as i64;
            for pitch in [pitch, -pitch] {
                let gapped = Target::new(&columns(rows, across, bytes, pitch), 1);
                let gapped = gapped.expect("no overlap");
                for bytes_max in [1, 5000] {
                    assert!(in_strips(Some(gapped.plan()), None, bytes_max).is_some());
                    assert!(in_strips(None, Some(&gapped), bytes_max).is_some());
                }
            }
        }
    }
}

/// So far apart that its kernel is another one: a row of the target has little of each strip.
#[test]
fn a_large_target_is_written_a_short_piece_of_each_row_at_a_time() {
    for (rows, across, bytes) in [(130, 1000, 4), (70, 2000, 2), (33, 1100, 8), (40, 700, 16)] {
        let to = columns(across, rows, bytes, (rows * bytes) as i64 + 1200);
        let to = Target::new(&to, 1).expect("no overlap");
        let from = columns(rows, across, bytes, (across * bytes) as i64);
        let from = Plan::new(&from, 1).expect("it is small");
        for bytes_max in [1 << 14, 1 << 16, 1 << 18] {
            in_strips(None, Some(&to), bytes_max).expect("they fit");
            in_strips(Some(&from), None, bytes_max).expect("they fit");
        }
    }
}

#[test]
fn what_has_no_loop_in_common_or_reads_into_the_next_round_has_no_strips() {
    let f32s = Layout::element(Element::F32);
    let list = [0, 3, 4, 9].map(|displacement| Block { count: 1, displacement });
    let listed = Layout::indexed(&list, &f32s).expect("it is small");
    let listed = Target::new(&listed, 1).expect("no overlap");
    assert_eq!(in_strips(None, Some(&listed), 8), None);
    assert_eq!(in_strips(Some(listed.plan()), None, 8), None);
    // Two columns that are interleaved by halves of a step.
    let woven = Layout::hvector(2, 1, 60, &Layout::hvector(4, 1, 40, &f32s).expect("small"));
    let woven = Target::new(&woven.expect("small"), 1).expect("no overlap");
    assert_eq!(in_strips(Some(woven.plan()), None, 8), None);
    assert!(in_strips(None, Some(&woven), 8).is_some(), "it is read in order");
    let other = Plan::new(&columns(3, 5, 4, 20), 1).expect("it is small");
    assert!(Strips::new(Some(&other), Some(&woven), 8).is_none(), "60 bytes to 32");
    assert!(Strips::new(None, None, 8).is_none(), "nothing is scattered");
}
