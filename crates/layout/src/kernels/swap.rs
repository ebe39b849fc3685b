//! Byte order.

/// Reverses the bytes of each element.
pub(crate) fn swap(bytes: &mut [u8], element: u64) {
    match element {
        2 => each::<2>(bytes),
        4 => each::<4>(bytes),
        8 => each::<8>(bytes),
        _ => {}
    }
}

fn each<const N: usize>(bytes: &mut [u8]) {
    let (elements, rest) = bytes.as_chunks_mut::<N>();
    debug_assert!(rest.is_empty(), "the callers cut between elements");
    elements.iter_mut().for_each(|element| element.reverse());
}
