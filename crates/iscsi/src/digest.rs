//! CRC32C over headers and data (RFC 7143, 13.1).

use covey_wire::Bytes;

/// Bytes of a digest.
pub const DIGEST_BYTES: usize = 4;

/// The digest of what lies in several places, in the order of the wire: the bytes of the remainder are sent as they are
/// mirrored, the least significant one first.
pub fn crc32c<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; DIGEST_BYTES] {
    parts.into_iter().fold(0, crc32c::crc32c_append).to_le_bytes()
}

/// The digest of `pieces` and the zeros that pad them to a multiple of four.
pub(crate) fn of_data(pieces: &[Bytes]) -> [u8; DIGEST_BYTES] {
    let length: usize = pieces.iter().map(Bytes::len).sum();
    let zeros = &[0; 3][..padding(length)];
    crc32c(pieces.iter().map(|piece| &piece[..]).chain([zeros]))
}

/// How many zeros follow so many bytes (11.1).
pub(crate) fn padding(bytes: usize) -> usize {
    bytes.wrapping_neg() % 4
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 7143, appendix A.4.
    #[test]
    fn digests_are_those_of_the_specification() {
        let up: Vec<u8> = (0..32).collect();
        let down: Vec<u8> = (0..32).rev().collect();
        assert_eq!(crc32c([&[0; 32][..]]), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(crc32c([&[0xff; 32][..]]), [0x43, 0xab, 0xa8, 0x62]);
        assert_eq!(crc32c([&up[..]]), [0x4e, 0x79, 0xdd, 0x46]);
        assert_eq!(crc32c([&down[..]]), [0x5c, 0xdb, 0x3f, 0x11]);
        assert_eq!(crc32c([&up[..7], &up[7..]]), crc32c([&up[..]]));
    }

    #[test]
    fn padding_is_part_of_the_digest() {
        let padded = crc32c([&[1, 2, 3, 4, 5, 0, 0, 0][..]]);
        assert_eq!(of_data(&[Bytes::from_static(&[1, 2]), Bytes::from_static(&[3, 4, 5])]), padded);
        assert_eq!([0, 1, 2, 3, 4].map(padding), [0, 3, 2, 1, 0]);
    }
}
