//! Big-endian fields of command and parameter blocks.

/// The unsigned integer in `width` bytes at `at`; bytes that are not there count as zeros.
pub(super) fn be(bytes: &[u8], at: usize, width: usize) -> u64 {
    let byte = |index| u64::from(bytes.get(index).copied().unwrap_or(0));
    (at..at + width).fold(0, |number, index| number << 8 | byte(index))
}

/// Text in a field of `width` bytes, filled up with blanks.
pub(super) fn padded(text: &str, width: usize) -> Vec<u8> {
    let printable = |byte: u8| if (0x20..=0x7e).contains(&byte) { byte } else { b'_' };
    let mut field: Vec<u8> = text.bytes().take(width).map(printable).collect();
    field.resize(width, b' ');
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_zero() {
        assert_eq!(be(&[1, 2, 3], 0, 3), 0x0001_0203);
        assert_eq!(be(&[1, 2, 3], 2, 4), 0x0300_0000);
        assert_eq!(be(&[], 9, 8), 0);
    }

    #[test]
    fn text_fills_its_field() {
        assert_eq!(padded("ab\u{e9}", 6), b"ab__  ");
        assert_eq!(padded("abcdef", 3), b"abc");
    }
}
