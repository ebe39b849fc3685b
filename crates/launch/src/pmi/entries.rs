//! What nodes tell each other at a barrier: pairs of names, a 16-bit length before each.

use covey_wire::{Blame, Bytes, Field, Name, Reader};

/// Appends a pair.
pub(super) fn put(key: &[u8], value: &[u8], out: &mut Vec<u8>) {
    [key, value].map(Name::from).iter().for_each(|name| name.put((), out));
}

/// A key and its value.
type Pair = (Vec<u8>, Vec<u8>);

/// All pairs.
pub(super) fn take(data: Bytes) -> Result<Vec<Pair>, Blame> {
    let mut reader = Reader::new(data);
    let mut pairs = Vec::new();
    while reader.remaining() > 0 {
        let (key, value): (Name, Name) =
            (Field::get((), &mut reader)?, Field::get((), &mut reader)?);
        pairs.push((key.as_bytes().to_vec(), value.as_bytes().to_vec()));
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_read_back_and_may_be_joined() {
        let mut data = Vec::new();
        put(b"a", b"1", &mut data);
        assert_eq!(data, [1, 0, b'a', 1, 0, b'1']);
        put(b"key", b"", &mut data);
        let pairs = take(data.clone().into()).unwrap();
        assert_eq!(pairs, [(b"a".to_vec(), b"1".to_vec()), (b"key".to_vec(), Vec::new())]);
        data.pop();
        assert!(take(data.into()).is_err());
    }
}
