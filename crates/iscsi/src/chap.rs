//! CHAP: both sides prove that they know a secret without saying it (RFC 7143, 12.1.3; RFC 1994).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::Digest;
use std::fmt;

/// Longest challenge and response in bytes (12.1.3).
pub const BINARY_BYTES_MAX: usize = 1024;
/// Bytes of the challenges that this side makes.
pub const CHALLENGE_BYTES: usize = 32;
/// Least length of a secret in bytes: 96 bits (9.2.1).
pub const SECRET_BYTES_MIN: usize = 12;

/// A hash function, by its number in CHAP_A (IANA's registry of PPP authentication algorithms).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Which every implementation must have.
    Md5 = 5,
    /// SHA-1.
    Sha1 = 6,
    /// SHA-256.
    Sha256 = 7,
    /// SHA3-256.
    Sha3 = 8,
}

impl Algorithm {
    /// All of them, the best first: what an initiator offers.
    pub const OFFER: &'static str = "8,7,6,5";

    /// The first of a list of numbers that this side knows.
    pub fn choose(offered: &str) -> Option<Algorithm> {
        offered.split(',').find_map(|number| match number.trim() {
            "5" => Some(Algorithm::Md5),
            "6" => Some(Algorithm::Sha1),
            "7" => Some(Algorithm::Sha256),
            "8" => Some(Algorithm::Sha3),
            _ => None,
        })
    }

    /// The response to a challenge.
    pub fn response(self, id: u8, secret: &[u8], challenge: &[u8]) -> Vec<u8> {
        fn hash<H: Digest>(parts: [&[u8]; 3]) -> Vec<u8> {
            let mut hash = H::new();
            parts.into_iter().for_each(|part| hash.update(part));
            hash.finalize().to_vec()
        }
        let parts = [&[id][..], secret, challenge];
        match self {
            Algorithm::Md5 => hash::<md5::Md5>(parts),
            Algorithm::Sha1 => hash::<sha1::Sha1>(parts),
            Algorithm::Sha256 => hash::<sha2::Sha256>(parts),
            Algorithm::Sha3 => hash::<sha3::Sha3_256>(parts),
        }
    }
}

/// A name and the secret that proves it. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// CHAP_N.
    pub name: String,
    /// What only the two know.
    pub secret: Vec<u8>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({:?})", self.name)
    }
}

/// Whether two responses are the same, in a time that says nothing of where they differ.
pub fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differences = one.iter().zip(other).fold(0, |sum, (a, b)| sum | (a ^ b));
    one.len() == other.len() && differences == 0
}

/// A binary value as text.
pub fn encode(bytes: &[u8]) -> String {
    use fmt::Write;
    let mut text = String::from("0x");
    bytes.iter().for_each(|byte| write!(text, "{byte:02x}").expect("a string takes everything"));
    text
}

/// A binary value, hexadecimal or base64 (6.1), of 1 to 1024 bytes.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let (kind, digits) = text.split_at_checked(2)?;
    let bytes = match kind {
        "0x" | "0X" => decode_hex(digits)?,
        "0b" | "0B" => STANDARD.decode(digits).ok()?,
        _ => return None,
    };
    (1..=BINARY_BYTES_MAX).contains(&bytes.len()).then_some(bytes)
}

fn decode_hex(digits: &str) -> Option<Vec<u8>> {
    let digit = |digit: &u8| (*digit as char).to_digit(16).map(|value| value as u8);
    let digits: Vec<u8> = digits.as_bytes().iter().map(digit).collect::<Option<_>>()?;
    // An odd count has its first byte short.
    let (first, rest) = digits.split_at(digits.len() % 2);
    Some(first.iter().copied().chain(rest.chunks(2).map(|two| two[0] << 4 | two[1])).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        encode(bytes)[2..].to_owned()
    }

    /// By `printf '\x01secretchallenge' | openssl dgst -ALGORITHM`.
    #[test]
    fn responses_are_the_hash_of_id_secret_and_challenge() {
        let of = |algorithm: Algorithm| hex(&algorithm.response(1, b"secret", b"challenge"));
        assert_eq!(of(Algorithm::Md5), EXPECTED[0]);
        assert_eq!(of(Algorithm::Sha1), EXPECTED[1]);
        assert_eq!(of(Algorithm::Sha256), EXPECTED[2]);
        assert_eq!(of(Algorithm::Sha3), EXPECTED[3]);
    }

    const EXPECTED: [&str; 4] = [
        "46e47770030e2b4e26a0db72a7efec00",
        "011f25d29fe1baaced569c0d7e4878e40ddb7d7e",
        "2dfa0526f4764864b7c3c5bc6596bcead3d8dbd984f4fc1d9f330299f0beced4",
        "9444877c4dff778ed2add0f102dcd561e11944e7e948ee1b89508451a9e680ad",
    ];

    #[test]
    fn binary_values_are_hexadecimal_or_base64_and_bounded() {
        assert_eq!(decode("0x0aFf"), Some(vec![0x0a, 0xff]));
        assert_eq!(decode("0Xaff"), Some(vec![0x0a, 0xff]));
        assert_eq!(decode("0bCv8="), Some(vec![0x0a, 0xff]));
        for bad in ["", "0x", "0b", "12", "0xzz", "0b*", "é", "0x+1"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
        assert!(decode(&encode(&[1; 1024])).is_some() && decode(&encode(&[1; 1025])).is_none());
    }

    #[test]
    fn the_first_known_algorithm_is_chosen() {
        assert_eq!(Algorithm::choose("9,7,5"), Some(Algorithm::Sha256));
        assert_eq!(Algorithm::choose("5"), Some(Algorithm::Md5));
        assert_eq!(Algorithm::choose("12,none"), None);
    }

    #[test]
    fn what_differs_anywhere_is_not_the_same() {
        assert!(is_same(b"abc", b"abc"));
        for other in [&b"abd"[..], b"ab", b"abcd", b"", b"xbc"] {
            assert!(!is_same(b"abc", other));
        }
    }
}
