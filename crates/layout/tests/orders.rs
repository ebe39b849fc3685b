//! Elements that lie in the byte order of another machine, and whether two layouts have the same elements.

use covey_layout::{Block, ByteOrder, Element, Layout, Member, Op, Signature, Target};

fn one(element: Element) -> Layout {
    Layout::element(element)
}

fn signature(layout: &Layout, count: u64) -> Signature {
    Signature::new(layout, count).expect("it is small")
}

/// A number of four bytes, a gap, and one of eight.
fn pair() -> Layout {
    let member = |displacement, element| Member { count: 1, displacement, layout: one(element) };
    Layout::structure(&[member(0, Element::I32), member(8, Element::F64)]).expect("it is small")
}

#[test]
#[allow(clippy::big_endian_bytes)]
fn a_sum_in_the_other_order_is_the_sum_of_the_numbers() {
    let bytes = |order: ByteOrder, at: i32| match order {
        ByteOrder::Little => [&at.to_le_bytes()[..], &f64::from(at).to_le_bytes()].concat(),
        ByteOrder::Big => [&at.to_be_bytes()[..], &f64::from(at).to_be_bytes()].concat(),
    };
    let (target, signature) =
        (Target::new(&pair(), 10_000).expect("no overlap"), signature(&pair(), 10_000));
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let packed: Vec<u8> = (0..10_000).flat_map(|at| bytes(order, at)).collect();
        let mut memory = vec![0; 160_000];
        for _ in 0..3 {
            let done =
                target.accumulate_in(order, Op::Sum, &signature, &packed, 0, &mut memory[..]);
            done.expect("it fits");
        }
        for (at, pair) in (0..10_000i32).zip(memory.chunks(16)) {
            assert_eq!([&pair[..4], &pair[8..]].concat(), bytes(order, 3 * at), "{order:?}");
        }
    }
}

#[test]
fn layouts_agree_where_their_elements_have_the_same_sizes_wherever_they_lie() {
    let columns = Layout::vector(30, 1, 7, &one(Element::F32)).expect("it is small");
    let (floats, numbers) = (signature(&columns, 1), signature(&one(Element::I32), 40));
    assert!(floats.agrees(0, &numbers, 0, u64::MAX), "the shorter one decides");
    assert!(floats.agrees(8, &numbers, 4, 100));
    assert!(!floats.agrees(2, &numbers, 2, 100), "it begins within an element");
    assert!(!floats.agrees(0, &numbers, 2, 100));
    assert!(floats.agrees(120, &numbers, 3, 100), "nothing is left to differ");
    let pairs = signature(&pair(), 10);
    assert!(pairs.agrees(0, &numbers, 0, 4), "its first element is one of four bytes");
    assert!(!pairs.agrees(0, &numbers, 0, 5));
    assert!(pairs.agrees(12, &pairs, 24, u64::MAX));
    assert!(!pairs.agrees(12, &pairs, 4, u64::MAX));
    let blocks = [3, 1, 2].map(|count| Block { count, displacement: 40 * count as i64 });
    let listed = Layout::indexed(&blocks, &pair()).expect("it is small");
    assert!(signature(&listed, 1).agrees(0, &pairs, 0, u64::MAX));
}

#[test]
fn bytes_say_nothing_of_elements_and_anything_else_does() {
    let mixed = Layout::structure(&[
        Member { count: 3, displacement: 0, layout: one(Element::Byte) },
        Member { count: 1, displacement: 4, layout: one(Element::U8) },
    ]);
    assert!(!signature(&one(Element::Byte), 8).is_typed());
    assert!(!signature(&one(Element::F64), 0).is_typed(), "nothing is there");
    assert!(signature(&mixed.expect("it is small"), 1).is_typed());
    assert!(signature(&one(Element::F64), 1).is_typed());
}
