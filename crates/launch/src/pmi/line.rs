//! One line: words of `key=value`.

/// A line taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    words: Vec<(&'a str, &'a str)>,
}

impl<'a> Line<'a> {
    /// Of a line without its end. None when it is no text or has a word without `=`.
    pub fn parse(line: &'a [u8]) -> Option<Line<'a>> {
        let text = std::str::from_utf8(line).ok()?;
        let words = text.split_ascii_whitespace().map(|word| word.split_once('='));
        Some(Line { words: words.collect::<Option<_>>()? })
    }

    /// The value of a key.
    pub fn value(&self, key: &str) -> Option<&'a str> {
        self.words.iter().find(|(name, _)| *name == key).map(|(_, value)| *value)
    }

    /// The value of a key that is a number.
    pub fn number<N: std::str::FromStr>(&self, key: &str) -> Option<N> {
        self.value(key)?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_by_their_keys() {
        let line = Line::parse(b"cmd=put kvsname=k key=a value=b=c ").unwrap();
        assert_eq!((line.value("cmd"), line.value("value")), (Some("put"), Some("b=c")));
        assert_eq!(line.value("none"), None);
        assert_eq!(Line::parse(b"cmd=initack pmiid=12").unwrap().number("pmiid"), Some(12u32));
    }

    #[test]
    fn what_is_no_line_is_refused() {
        for bad in [&b"put"[..], b"cmd=a b", b"cmd=\xff"] {
            assert_eq!(Line::parse(bad), None);
        }
        assert_eq!(Line::parse(b"").unwrap().value("cmd"), None);
    }
}
