//! What the normal form recognises, however it was said.

use covey_layout::{Axis, Block, Bounds, Element, Layout, Member, Order, Plan, Shape, Signature};

fn plan(layout: &Layout) -> Plan {
    Plan::new(layout, 1).expect("it is small")
}

fn f32s() -> Layout {
    Layout::element(Element::F32)
}

fn at(displacements: &[i64]) -> Vec<Block> {
    displacements.iter().map(|&displacement| Block { count: 1, displacement }).collect()
}

#[test]
fn what_touches_is_contiguous() {
    let said = [
        Layout::contiguous(12, &f32s()),
        Layout::vector(3, 4, 4, &f32s()),
        Layout::hvector(12, 1, 4, &f32s()),
        Layout::indexed(&at(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]), &f32s()),
        Layout::subarray(&[Axis { size: 3, start: 0, part: 3 }; 1], Order::C, &f32s())
            .and_then(|row| Layout::contiguous(4, &row)),
    ];
    for layout in said {
        let plan = plan(&layout.expect("it is small"));
        assert_eq!(plan.shape(), Shape::Contiguous { bytes: 48 });
        assert_eq!(plan, self::plan(&Layout::bytes(48).expect("it is small")));
    }
}

#[test]
fn a_column_is_strided_however_it_is_said() {
    let axes = [Axis { size: 5, start: 0, part: 5 }, Axis { size: 6, start: 0, part: 1 }];
    let said = [
        Layout::vector(5, 1, 6, &f32s()),
        Layout::hvector(5, 1, 24, &f32s()),
        Layout::indexed(&at(&[0, 6, 12, 18, 24]), &f32s()),
        Layout::hindexed(&at(&[0, 24, 48, 72, 96]), &f32s()),
        Layout::subarray(&axes, Order::C, &f32s()),
        Layout::resized(0, 24, &f32s()).and_then(|one| Layout::contiguous(5, &one)),
    ];
    for layout in said {
        let shape = plan(&layout.expect("it is small")).shape();
        assert_eq!(shape, Shape::Strided { count: 5, stride: 24, block: 4 });
    }
}

#[test]
fn a_vector_of_vectors_is_a_transposition() {
    let row = Layout::vector(100, 1, 100, &f32s()).expect("it is small");
    let said = [
        Layout::hvector(90, 1, 4, &row),
        // Column by column, each a whole extent wide unless resized.
        Layout::resized(0, 4, &row).and_then(|column| Layout::contiguous(90, &column)),
        Layout::hindexed(&at(&(0..90).map(|column| column * 4).collect::<Vec<_>>()), &row),
    ];
    for layout in said {
        let shape = plan(&layout.expect("it is small")).shape();
        let transposed = Shape::Transposed { rows: 100, columns: 90, pitch: 400, element: 4 };
        assert_eq!(shape, transposed);
    }
    // The same as a count.
    let column = Layout::resized(0, 4, &row).expect("it is small");
    let counted = Plan::new(&column, 90).expect("it is small");
    assert!(matches!(counted.shape(), Shape::Transposed { columns: 90, .. }));
}

#[test]
fn a_list_of_a_plane_becomes_two_loops_again() {
    let displacements: Vec<i64> =
        (0..6).flat_map(|i| (0..7).map(move |j| i * 100 + j * 9)).collect();
    let layout = Layout::hindexed(&at(&displacements), &f32s()).expect("it is small");
    let expected = Shape::Strided2 { outer: (6, 100), inner: (7, 9), block: 4 };
    assert_eq!(plan(&layout).shape(), expected);
}

#[test]
fn what_has_no_pattern_stays_a_list_and_touching_blocks_are_joined() {
    let layout = Layout::indexed(&at(&[3, 4, 9, 1, 17, 18, 19, 40]), &f32s()).expect("it is small");
    assert_eq!(plan(&layout).shape(), Shape::Listed { runs: 5 });
    let runs: Vec<_> =
        plan(&layout).runs(0..32).expect("all").map(|run| (run.offset, run.bytes)).collect();
    assert_eq!(runs, [(12, 8), (36, 4), (4, 4), (68, 12), (160, 4)]);
}

#[test]
fn nothing_is_empty() {
    let nothing = [
        Layout::contiguous(0, &f32s()),
        Layout::vector(4, 0, 2, &f32s()),
        Layout::indexed(&[], &f32s()),
        Layout::structure(&[]),
    ];
    for layout in nothing {
        let layout = layout.expect("it is small");
        assert_eq!(plan(&layout).shape(), Shape::Empty);
        assert_eq!((layout.size(), *layout.bounds()), (0, Bounds::default()));
    }
    assert_eq!(Plan::new(&f32s(), 0).expect("none").shape(), Shape::Empty);
}

/// MPI-4, section 5.1.6: a struct is as long as its alignment asks for.
#[test]
fn a_struct_is_padded_to_its_alignment() {
    let byte = Layout::element(Element::U8);
    let double = Layout::element(Element::F64);
    let members = [
        Member { count: 1, displacement: 0, layout: double },
        Member { count: 1, displacement: 8, layout: byte },
    ];
    let layout = Layout::structure(&members).expect("it is small");
    let expected = Bounds { lower: 0, upper: 16, true_lower: 0, true_upper: 9 };
    assert_eq!(*layout.bounds(), expected);
    assert_eq!((layout.bounds().extent(), layout.bounds().true_extent()), (16, 9));
}

/// The bounds that `resized` sets win over the data's, further out too.
#[test]
fn bounds_that_were_set_are_kept_by_what_is_built_on_them() {
    let marked = Layout::resized(-3, 9, &f32s()).expect("it is small");
    let members = [
        Member { count: 1, displacement: 0, layout: marked },
        Member { count: 1, displacement: 100, layout: f32s() },
    ];
    let layout = Layout::structure(&members).expect("it is small");
    let expected = Bounds { lower: -3, upper: 6, true_lower: 0, true_upper: 104 };
    assert_eq!(*layout.bounds(), expected);
}

#[test]
fn a_signature_depends_on_the_elements_only() {
    let scattered = Layout::vector(10, 1, 7, &f32s()).expect("it is small");
    let signature = Signature::new(&scattered, 2).expect("it is small");
    assert_eq!(signature, Signature::new(&f32s(), 20).expect("it is small"));
    assert_ne!(signature, Signature::new(&Layout::element(Element::I32), 20).expect("it is small"));
}
