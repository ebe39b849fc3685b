//! Every kernel beside the plain loop, at every level that this CPU has.

use covey_layout::{Element, Layout, Level, Member, Op, Plan, Signature, Target, transpose};

fn noise(bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u8).collect()
}

fn naive(element: usize, from: &[u8], [rows, columns]: [usize; 2]) -> Vec<u8> {
    let mut to = vec![0; from.len()];
    for row in 0..rows {
        for column in 0..columns {
            let (source, target) = ((row * columns + column), (column * rows + row));
            to[target * element..][..element].copy_from_slice(&from[source * element..][..element]);
        }
    }
    to
}

#[test]
fn every_level_transposes_every_size_of_element_like_the_plain_loop() {
    // Around the tiles: one row or column less, as many, one more, and odd ones.
    let sides = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 300];
    for element in [1, 2, 4, 8, 16] {
        for rows in sides {
            for columns in sides {
                let from = noise(rows * columns * element);
                let expected = naive(element, &from, [rows, columns]);
                for level in Level::ALL {
                    let mut to = vec![0; from.len()];
                    transpose(level, element, &from, &mut to, [rows, columns]);
                    assert!(to == expected, "{level:?}: {rows} x {columns} of {element} bytes");
                }
            }
        }
    }
}

/// Blocks of all sizes, pitches with gaps, forwards and backwards.
#[test]
fn columns_of_blocks_of_any_size_are_packed_and_put_back() {
    for block in 1..=130usize {
        for (rows, columns, gap) in [(3, 2, 0), (20, 17, 3), (9, 33, 1), (37, 70, 64)] {
            // Rows that are aligned alike are done with wider vectors.
            let pitch = match gap {
                64 => (columns * block).next_multiple_of(64),
                gap => columns * block + gap,
            };
            let element = Layout::bytes(block as u64).expect("it is small");
            for sign in [1, -1] {
                let column = Layout::hvector(rows as u64, 1, sign * pitch as i64, &element);
                let column = column.expect("it is small");
                let all = Layout::hvector(columns as u64, 1, block as i64, &column);
                let target = Target::new(&all.expect("it is small"), 1).expect("no overlap");
                let matrix = noise(rows * pitch);
                let first = if sign > 0 { 0 } else { (rows - 1) * pitch };
                let view = || covey_layout::View::at(&matrix, first).expect("within");
                let mut packed = vec![0; rows * columns * block];
                target.plan().pack(view(), 0, &mut packed).expect("it fits");
                let mut back = vec![0; matrix.len()];
                let into = covey_layout::ViewMut::at(&mut back, first).expect("within");
                target.unpack(&packed, 0, into).expect("it fits");
                for row in 0..rows {
                    for column in 0..columns {
                        let from = if sign > 0 { row } else { rows - 1 - row };
                        let there = &matrix[from * pitch + column * block..][..block];
                        assert_eq!(&packed[(column * rows + row) * block..][..block], there);
                        assert_eq!(&back[from * pitch + column * block..][..block], there);
                    }
                }
            }
        }
    }
}

/// The paper's figure 1: a vector of vectors, sent in pieces and put back in others.
#[test]
fn a_transposition_may_be_cut_into_messages_of_any_size() {
    let row = Layout::vector(100, 1, 100, &Layout::element(Element::F32)).expect("it is small");
    let columns = Layout::hvector(100, 1, 4, &row).expect("it is small");
    let target = Target::new(&columns, 1).expect("no overlap");
    let matrix = noise(40_000);
    let expected = naive(4, &matrix, [100, 100]);
    for message in [1, 3, 64, 399, 400, 401, 4096, 39_999] {
        let mut packed = vec![0; 40_000];
        let mut back = vec![0; 40_000];
        for at in (0..40_000).step_by(message) {
            let end = 40_000.min(at + message);
            target.plan().pack(&matrix[..], at as u64, &mut packed[at..end]).expect("it fits");
            target.unpack(&packed[at..end], at as u64, &mut back[..]).expect("it fits");
        }
        assert!(packed == expected, "messages of {message} bytes");
        assert!(back == matrix, "messages of {message} bytes");
    }
}

/// Nothing is packed in between: both sides are scattered, and their loops are joined.
#[test]
fn planes_of_a_box_are_copied_to_planes_of_another() {
    let byte = Layout::element(Element::U16);
    let nest = |dims: [(u64, i64); 3]| {
        let inner = Layout::hvector(dims[2].0, 1, dims[2].1, &byte).expect("it is small");
        let middle = Layout::hvector(dims[1].0, 1, dims[1].1, &inner).expect("it is small");
        Layout::hvector(dims[0].0, 1, dims[0].1, &middle).expect("it is small")
    };
    let (a, b, c) = (19, 21, 35);
    let from = Plan::new(&nest([(a, 2), (b, 2 * 19), (c, 2 * 19 * 21)]), 1).expect("it is small");
    let to = Target::new(&nest([(a, 2 * 35 * 21), (b, 2 * 35), (c, 2)]), 1).expect("no overlap");
    let source = noise(2 * 19 * 21 * 35);
    let mut target = vec![0; source.len()];
    to.copy_from(&mut target[..], &from, &source[..]).expect("it fits");
    let bytes = |run: covey_layout::Run| run.offset as usize..run.offset as usize + 2;
    let pairs = from
        .runs(0..from.size())
        .expect("all")
        .zip(to.plan().runs(0..to.plan().size()).expect("all"));
    // One side's runs are single elements; the other's are joined.
    let mut packed = vec![0; source.len()];
    to.plan().pack(&target[..], 0, &mut packed).expect("it fits");
    for (run, _) in pairs {
        assert_eq!(packed[run.packed as usize..][..2], source[bytes(run)]);
    }
}

/// More than is combined at once, whole and in messages.
#[test]
#[allow(clippy::host_endian_bytes)]
fn a_long_accumulation_is_the_sum_of_its_messages() {
    let member =
        |displacement, element| Member { count: 1, displacement, layout: Layout::element(element) };
    let pair = Layout::structure(&[member(0, Element::I32), member(8, Element::F64)]);
    let pair = pair.expect("it is small");
    let target = Target::new(&pair, 10_000).expect("no overlap");
    let signature = Signature::new(&pair, 10_000).expect("it is small");
    let packed: Vec<u8> = (0..10_000)
        .flat_map(|at: i32| [&at.to_ne_bytes()[..], &f64::from(at).to_ne_bytes()].concat())
        .collect();
    let mut memory = vec![0; 160_000];
    for message in [120_000, 65_536, 1000] {
        let mut at = 0;
        while at < 120_000 {
            let end = signature.boundary(120_000.min(at + message)) as usize;
            let part = &packed[at as usize..end];
            target.accumulate(Op::Sum, &signature, part, at, &mut memory[..]).expect("it fits");
            at = end as u64;
        }
    }
    for (at, pair) in (0..10_000i32).zip(memory.chunks(16)) {
        assert_eq!(pair[..4], (3 * at).to_ne_bytes());
        assert_eq!(pair[8..], f64::from(3 * at).to_ne_bytes());
    }
}
