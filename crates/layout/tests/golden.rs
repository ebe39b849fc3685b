//! The encoding, byte for byte: what is written here may not change without a new version.

use covey_layout::{Axis, Block, Element, Layout, Member, Order};

fn check(layout: Result<Layout, covey_layout::Error>, golden: &[&str]) {
    let layout = layout.expect("it is small");
    let encoded = layout.encode().expect("it is small");
    let text: String = encoded.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(text, golden.concat().replace(' ', ""));
    assert_eq!(Layout::decode(encoded.into()).expect("it was encoded"), layout);
}

#[test]
fn elements_have_their_numbers() {
    for (number, element) in Element::ALL.iter().enumerate() {
        check(Ok(Layout::element(*element)), &["01 0100", &format!("01 {number:02x}")]);
    }
}

/// The transposition of the paper's figure 1 takes 59 bytes.
#[test]
fn a_vector_of_vectors() {
    let row = Layout::vector(100, 1, 100, &Layout::element(Element::F32)).expect("it is small");
    check(
        Layout::hvector(100, 1, 4, &row),
        &[
            "01 0300",
            "01 09",
            "02 6400000000000000 0100000000000000 9001000000000000 0000",
            "02 6400000000000000 0100000000000000 0400000000000000 0100",
        ],
    );
}

#[test]
fn lists_with_and_without_counts() {
    let byte = Layout::element(Element::Byte);
    let block = |count, displacement| Block { count, displacement };
    check(
        Layout::hindexed(&[block(3, -1), block(3, 16)], &byte),
        &[
            "01 0200",
            "01 00",
            "04 0300000000000000 02000000 ffffffffffffffff 1000000000000000 0000",
        ],
    );
    check(
        Layout::hindexed(&[block(3, -1), block(2, 16)], &byte),
        &[
            "01 0200",
            "01 00",
            "03 02000000",
            "0300000000000000 ffffffffffffffff",
            "0200000000000000 1000000000000000",
            "0000",
        ],
    );
}

/// What two members share is sent once.
#[test]
fn a_struct_with_a_shared_member() {
    let pair = Layout::contiguous(2, &Layout::element(Element::I32)).expect("it is small");
    let member = |count, displacement, layout: &Layout| Member {
        count,
        displacement,
        layout: layout.clone(),
    };
    let members =
        [member(1, 0, &pair), member(5, 8, &Layout::element(Element::I32)), member(1, 64, &pair)];
    check(
        Layout::structure(&members),
        &[
            "01 0300",
            "01 05",
            "02 0100000000000000 0200000000000000 0000000000000000 0000",
            "05 03000000",
            "0100000000000000 0000000000000000 0100",
            "0500000000000000 0800000000000000 0000",
            "0100000000000000 4000000000000000 0100",
        ],
    );
}

#[test]
fn a_subarray_is_vectors_that_are_placed_and_resized() {
    let axes = [Axis { size: 4, start: 1, part: 2 }, Axis { size: 8, start: 3, part: 5 }];
    check(
        Layout::subarray(&axes, Order::C, &Layout::element(Element::U8)),
        &[
            "01 0500",
            "01 02",
            "02 0500000000000000 0100000000000000 0100000000000000 0000",
            "02 0200000000000000 0100000000000000 0800000000000000 0100",
            "04 0100000000000000 01000000 0b00000000000000 0200",
            "06 0000000000000000 2000000000000000 0300",
        ],
    );
}
