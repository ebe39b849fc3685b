//! Keys and values: the text of login and text PDUs (RFC 7143, section 6.1).

use covey_wire::{Blame, Bytes};
use std::collections::HashSet;

/// Longest name of a key in bytes (6.1).
const KEY_BYTES_MAX: usize = 63;
/// Longest value in bytes: that of a binary value (6.1); other keys have narrower limits of their own.
const VALUE_BYTES_MAX: usize = 8192;

/// Answers that every key may have (6.2).
pub const NOT_UNDERSTOOD: &str = "NotUnderstood";
/// The key means nothing here (6.2).
pub const IRRELEVANT: &str = "Irrelevant";
/// The value is none that can be agreed on (6.2).
pub const REJECT: &str = "Reject";

/// Keys with their values, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text(Vec<(String, String)>);

impl Text {
    /// Reads `key=value`, each ended by a zero byte.
    pub fn parse(bytes: &[u8]) -> Result<Text, Blame> {
        let mut pairs = Vec::new();
        for pair in bytes.split(|byte| *byte == 0).filter(|pair| !pair.is_empty()) {
            pairs.push(parse_pair(pair)?);
        }
        Ok(Text(pairs))
    }

    /// Appends a pair.
    pub fn push(&mut self, key: &str, value: impl Into<String>) {
        self.0.push((key.to_owned(), value.into()));
    }

    /// The first value of `key`.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| &value[..])
    }

    /// Takes the first pair of `key` out.
    pub fn take(&mut self, key: &str) -> Option<String> {
        let at = self.0.iter().position(|(name, _)| name == key)?;
        Some(self.0.remove(at).1)
    }

    /// All pairs in order.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&key[..], &value[..]))
    }

    /// How many pairs there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no pair.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A key that stands in it twice.
    pub fn repeated(&self) -> Option<&str> {
        let mut met = HashSet::new();
        self.0.iter().map(|(key, _)| &key[..]).find(|key| !met.insert(*key))
    }

    /// As it is sent.
    pub fn to_bytes(&self) -> Bytes {
        let mut out = Vec::new();
        for (key, value) in &self.0 {
            out.extend_from_slice(key.as_bytes());
            out.push(b'=');
            out.extend_from_slice(value.as_bytes());
            out.push(0);
        }
        out.into()
    }
}

fn parse_pair(pair: &[u8]) -> Result<(String, String), Blame> {
    let text = std::str::from_utf8(pair).map_err(|_| malformed("a text is not UTF-8"))?;
    let (key, value) = text.split_once('=').ok_or_else(|| malformed("a text has no ="))?;
    //= rfc7143#6.1
    // A key name is a letter followed by up to 62 letters, digits and .-+@_
    let is_key = key.len() <= KEY_BYTES_MAX
        && key.starts_with(|first: char| first.is_ascii_alphabetic())
        && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-+@_#/".contains(&byte));
    if !is_key {
        return Err(malformed(&format!("a key of {} bytes is no name", key.len())));
    }
    if value.len() > VALUE_BYTES_MAX {
        let (length, most) = (value.len(), VALUE_BYTES_MAX);
        return Err(malformed(&format!("the value of {key} has {length} bytes, limit is {most}")));
    }
    Ok((key.to_owned(), value.to_owned()))
}

fn malformed(what: &str) -> Blame {
    Blame::Malformed(what.to_owned())
}

/// A text that comes in several PDUs (6.2: the C bit).
#[derive(Debug, Default)]
pub struct Collected(Vec<u8>);

impl Collected {
    /// Takes the next part; the whole text, once nothing more follows.
    pub fn add(
        &mut self,
        part: &[u8],
        more: bool,
        bytes_max: usize,
    ) -> Result<Option<Text>, Blame> {
        if self.0.len() + part.len() > bytes_max {
            let what = format!("a text is longer than {bytes_max} bytes");
            return Err(Blame::Violation(what));
        }
        self.0.extend_from_slice(part);
        if more {
            return Ok(None);
        }
        Text::parse(&std::mem::take(&mut self.0)).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_the_same_there_and_back() {
        let mut text = Text::default();
        text.push("InitiatorName", "iqn.2020-01.org.example:a");
        text.push("X-odd", "a=b");
        let bytes = text.to_bytes();
        assert_eq!(bytes, &b"InitiatorName=iqn.2020-01.org.example:a\0X-odd=a=b\0"[..]);
        assert_eq!(Text::parse(&bytes), Ok(text.clone()));
        assert_eq!(text.take("X-odd").as_deref(), Some("a=b"));
        assert_eq!((text.value("X-odd"), text.repeated()), (None, None));
    }

    #[test]
    fn odd_texts_are_refused() {
        for bad in [&b"novalue"[..], b"=x", b"1a=x", b"a b=x", b"a=\xff\xfe"] {
            assert!(matches!(Text::parse(bad), Err(Blame::Malformed(_))), "{bad:?}");
        }
        let key = |length| [&vec![b'k'; length][..], b"=v"].concat();
        assert!(Text::parse(&key(63)).is_ok() && Text::parse(&key(64)).is_err());
        let value = |length| [b"k=", &vec![b'v'; length][..]].concat();
        assert!(Text::parse(&value(8192)).is_ok() && Text::parse(&value(8193)).is_err());
        let twice = Text::parse(b"a=1\0b=2\0a=3\0").unwrap();
        assert_eq!(twice.repeated(), Some("a"));
    }

    #[test]
    fn a_text_comes_in_parts_that_are_cut_anywhere_and_is_bounded() {
        let bytes = b"First=1\0Second=22\0";
        for cut in 0..bytes.len() {
            let mut parts = Collected::default();
            assert_eq!(parts.add(&bytes[..cut], true, 100), Ok(None));
            let whole = parts.add(&bytes[cut..], false, 100).unwrap().unwrap();
            assert_eq!(whole.value("Second"), Some("22"));
        }
        let mut parts = Collected::default();
        assert_eq!(parts.add(&[b'x'; 100], true, 100), Ok(None));
        assert!(matches!(parts.add(b"x", true, 100), Err(Blame::Violation(_))));
    }
}
