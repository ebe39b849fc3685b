//! Descriptions that a stranger might send, and what they are refused with. Nothing is touched.

use covey_layout::{
    Axis, Block, Element, Error, Layout, Member, Order, Plan, Target, WIRE_BYTES_MAX,
};

fn byte() -> Layout {
    Layout::element(Element::Byte)
}

/// Decodes a description of nodes in hexadecimal.
fn decode(nodes: &[&str]) -> Result<Layout, Error> {
    let text = nodes.concat().replace(' ', "");
    let digits = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal");
    let mut bytes = vec![1, nodes.len() as u8, 0];
    bytes.extend((0..text.len()).step_by(2).map(digits));
    Layout::decode(bytes.into())
}

fn said(result: Result<impl std::fmt::Debug, Error>) -> String {
    result.expect_err("it is refused").to_string()
}

#[test]
fn depth_is_bounded() {
    let mut layout = byte();
    for _ in 1..32 {
        layout = Layout::hvector(2, 1, 1 << 20, &layout).expect("31 levels");
    }
    assert_eq!(said(Layout::contiguous(1, &layout)), "layout nests 33 deep, limit is 32");
}

#[test]
fn a_description_that_doubles_at_each_level_is_refused() {
    let mut layout = byte();
    let error = loop {
        let member = |displacement| Member { count: 1, displacement, layout: layout.clone() };
        match Layout::structure(&[member(0), member(1 << 20)]) {
            Ok(doubled) => layout = doubled,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::TooLarge { limit: 262_144, .. }), "{error}");
    assert!(layout.depth() <= 18);
}

#[test]
fn numbers_that_leave_the_range_of_offsets_are_refused() {
    let huge = i64::MAX;
    let refused = [
        Layout::contiguous(u64::MAX, &byte()),
        Layout::hvector(2, 1, huge, &byte()),
        Layout::hvector(u64::MAX, u64::MAX, huge, &byte()),
        Layout::hvector(u64::MAX, 1, i64::MIN, &byte()),
        Layout::vector(2, 1, huge, &Layout::bytes(1 << 50).expect("it is small")),
        Layout::resized(huge, huge, &byte()),
        Layout::resized(0, i64::MIN, &byte()),
        Layout::hindexed(&[Block { count: 1, displacement: i64::MIN }], &byte()),
        Layout::structure(&[Member { count: 1, displacement: huge, layout: byte() }]),
        Layout::subarray(&[Axis { size: u64::MAX, start: 0, part: 1 }; 3], Order::C, &byte()),
    ];
    for layout in refused {
        assert!(matches!(layout, Err(Error::Overflow { .. })), "{layout:?}");
    }
    let layout = Layout::bytes(1 << 59).expect("below the limit");
    assert!(matches!(Plan::new(&layout, 4), Err(Error::Overflow { what: "count", .. })));
    let apart = Layout::resized(0, 1 << 59, &byte()).expect("below the limit");
    assert!(matches!(Plan::new(&apart, 4), Err(Error::Overflow { what: "count", .. })));
    let same = Layout::resized(0, 0, &Layout::bytes(1 << 40).expect("small")).expect("small");
    assert!(matches!(Plan::new(&same, 1 << 40), Err(Error::Overflow { what: "count", .. })));
}

#[test]
fn a_huge_count_costs_nothing() {
    let column = Layout::hvector(1 << 40, 1, 1 << 10, &byte()).expect("below the limit");
    let both = [0, 1].map(|displacement| Member {
        count: 1,
        displacement: displacement * 4,
        layout: column.clone(),
    });
    let layout = Layout::structure(&both).expect("below the limit");
    let target = Target::new(&layout, 1).expect("two columns that never meet");
    let size = target.plan().size();
    assert_eq!(size, 2 << 40);
    // From the middle, both ways, at once.
    let mut runs = target.plan().runs(size / 2 - 1..size).expect("within");
    assert_eq!(runs.next().map(|run| run.offset), Some(((1 << 40) - 1) << 10));
    assert_eq!(runs.next().map(|run| run.offset), Some(4));
    assert_eq!(runs.next_back().map(|run| run.offset), Some((((1 << 40) - 1) << 10) + 4));
    let mut into = [0; 16];
    let error = said(target.plan().pack(&[0; 64][..], 5, &mut into));
    assert_eq!(error, "layout touches bytes 0 to 1125899906841605, buffer has 0 to 64");
}

#[test]
fn targets_that_overlap_are_refused_and_sources_are_not() {
    let overlapping = [
        Layout::hvector(3, 1, 0, &byte()),
        Layout::hvector(3, 4, 3, &byte()),
        Layout::hvector(3, 4, -3, &byte()),
        Layout::indexed(&[4, 9, 4].map(|displacement| Block { count: 1, displacement }), &byte()),
        // 0, 4, 8 and 8, 12, 16.
        Layout::hvector(3, 1, 4, &byte()).and_then(|row| Layout::hvector(2, 1, 8, &row)),
    ];
    for layout in overlapping {
        let layout = layout.expect("it is small");
        assert!(Plan::new(&layout, 1).is_ok());
        let target = Target::new(&layout, 1);
        assert!(matches!(target, Err(Error::Overlap { .. })), "{target:?}");
    }
    let twice = [4, 9, 4].map(|displacement| Block { count: 1, displacement });
    let twice = Layout::indexed(&twice, &byte()).expect("it is small");
    let error = said(Target::new(&twice, 1));
    assert_eq!(error, "layout to write to names bytes at offset 4 twice");
}

/// Rows that begin within the row before interleave without meeting, and are too many to be compared one by one.
#[test]
fn what_would_take_too_long_to_check_is_refused_with_the_limit() {
    let nest = |count| {
        let row = Layout::hvector(count, 1, 4, &byte()).expect("it is small");
        Layout::hvector(count, 1, 4 * count as i64 - 6, &row).expect("it is small")
    };
    assert!(Target::new(&nest(1000), 1).is_ok());
    let error = said(Target::new(&nest(2000), 1));
    assert_eq!(
        error,
        "4000000 pieces interleave, limit for the check of overlaps is 1048576: describe them as nested vectors"
    );
}

/// Each knot alone is small enough; together they would take minutes.
#[test]
fn many_small_knots_are_one_large_one() {
    let row = Layout::hvector(500, 1, 4, &byte()).expect("it is small");
    let knot = Layout::hvector(500, 1, 4 * 500 - 6, &row).expect("it is small");
    assert!(Target::new(&knot, 1).is_ok());
    // Of different length, or they would be one loop around one knot, which is untied once.
    let knots: Vec<Member> = (0..1000)
        .map(|at| {
            let tail = Layout::bytes(1 + at % 7).expect("it is small");
            let both = [(0, &knot), (1 << 25, &tail)].map(|(displacement, layout)| Member {
                count: 1,
                displacement,
                layout: layout.clone(),
            });
            let layout = Layout::structure(&both).expect("it is small");
            Member { count: 1, displacement: (at << 26) as i64, layout }
        })
        .collect();
    let error = Target::new(&Layout::structure(&knots).expect("it is small"), 1);
    assert!(matches!(error, Err(Error::Entangled { .. })), "{error:?}");
}

/// Real and imaginary parts, one array after the other in the packed bytes: ten million pieces each.
#[test]
fn members_of_an_array_of_structures_need_no_comparing() {
    let part = Layout::hvector(10_000_000, 1, 16, &Layout::element(Element::F64));
    let part = part.expect("it is small");
    let both = |by| {
        let member = |displacement| Member { count: 1, displacement, layout: part.clone() };
        Layout::structure(&[member(0), member(by)]).expect("it is small")
    };
    assert!(Target::new(&both(8), 1).is_ok());
    assert!(Target::new(&both(8 + 160), 1).is_ok());
    assert!(Target::new(&both(7), 1).is_err());
}

#[test]
fn ranges_beyond_the_packed_bytes_are_refused() {
    let plan = Plan::new(&Layout::bytes(10).expect("it is small"), 1).expect("it is small");
    let mut into = [7; 4];
    assert_eq!(said(plan.pack(&[0; 10][..], 7, &mut into)), "4 packed bytes at 7: there are 10");
    assert!(plan.pack(&[0; 10][..], u64::MAX, &mut into).is_err());
    assert_eq!(into, [7; 4]);
    assert!(plan.runs(11..12).is_err());
}

#[test]
fn sides_of_different_size_are_refused() {
    let plan = Plan::new(&Layout::bytes(10).expect("it is small"), 1).expect("it is small");
    let target = Target::new(&Layout::bytes(11).expect("it is small"), 1).expect("no overlap");
    let error = said(target.copy_from(&mut [0; 11][..], &plan, &[0; 10][..]));
    assert_eq!(error, "source packs to 10 bytes, target to 11");
}

#[test]
fn bytes_that_are_no_description_are_refused_by_name() {
    let element = "01 00";
    let count = "0200000000000000 0100000000000000";
    let stride = "0800000000000000";
    let cases: [(&[&str], &str); 5] = [
        (&[], "layout: malformed: no node"),
        (&["01 0b"], "layout: malformed: element 11 is unknown"),
        (&["07"], "layout: unsupported: message number 7"),
        (
            &[element, &format!("02 {count} {stride} 0100")],
            "layout: malformed: inner node 1 of 1 before it",
        ),
        (
            &[element, "03 ffffffff"],
            "layout: malformed: Blocks: blocks: Copies: count: u64 needs 8 bytes, 0 left",
        ),
    ];
    for (nodes, expected) in cases {
        assert_eq!(said(decode(nodes)), expected);
    }
    assert_eq!(
        said(Layout::decode(vec![2, 1, 0, 1, 0].into())),
        "layout has version 2, known is 1"
    );
    let error = said(Layout::decode(vec![1, 1, 0, 1, 0, 9].into()));
    assert_eq!(error, "layout: malformed: 1 bytes after the last field");
    assert!(Layout::decode(vec![1; WIRE_BYTES_MAX + 1].into()).is_err());
}

#[test]
fn a_description_too_long_for_the_wire_is_not_sent() {
    let blocks: Vec<Block> =
        (0..140_000).map(|at| Block { count: 1, displacement: at * at }).collect();
    let layout = Layout::hindexed(&blocks, &byte()).expect("few enough");
    let error = said(layout.encode());
    assert!(error.starts_with("layout takes ") && error.ends_with(" limit is 1048576"), "{error}");
}
