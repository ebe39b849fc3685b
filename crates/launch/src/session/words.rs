//! Arguments and environments as text: quoted words, of any bytes but NUL.

use covey_ninep::control;
use covey_ninep::tree::{Errno, Result};

/// The words of a text; `file` is what an error calls it.
pub fn parse(file: &str, text: &[u8]) -> Result<Vec<Vec<u8>>> {
    if text.contains(&0) {
        return control::refuse(format!("{file} has a NUL byte"));
    }
    // One character for each byte, whatever the encoding: quotes and blanks are ASCII.
    let text: String = text.iter().map(|byte| char::from(*byte)).collect();
    let words = control::words(&text)
        .map_err(|error| Errno::because(error.code, format!("{file}: a quote is not closed")))?;
    let bytes = |word: String| word.chars().map(|char| char as u8).collect();
    Ok(words.into_iter().map(bytes).collect())
}

/// The text that [`parse`] makes these words of, one on each line.
pub fn render<W: AsRef<[u8]>>(words: &[W]) -> Vec<u8> {
    let mut text = Vec::new();
    for word in words {
        let word: String = word.as_ref().iter().map(|byte| char::from(*byte)).collect();
        text.extend(control::quote(&word).chars().map(|char| char as u8));
        text.push(b'\n');
    }
    text
}

/// `NAME=VALUE` words: the defaults, replaced and followed by the session's own. EINVAL for a word
/// without a name.
pub fn environment(defaults: &[u8], own: &[u8]) -> Result<Vec<Vec<u8>>> {
    let mut env: Vec<Vec<u8>> = Vec::new();
    let mut places = std::collections::HashMap::new();
    for word in parse("env", defaults)?.into_iter().chain(parse("env", own)?) {
        let Some(name) = name_of(&word) else {
            let shown: String = String::from_utf8_lossy(&word).chars().take(80).collect();
            return control::refuse(format!("env: {shown:?} is not NAME=VALUE"));
        };
        let place = *places.entry(name.to_vec()).or_insert(env.len());
        match env.get_mut(place) {
            Some(before) => *before = word,
            None => env.push(word),
        }
    }
    Ok(env)
}

fn name_of(word: &[u8]) -> Option<&[u8]> {
    let end = word.iter().position(|byte| *byte == b'=')?;
    (end > 0).then(|| &word[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_value_replaces_the_default_in_its_place() {
        let env = environment(b"A=1 B=2\n", b"'B=two words'\nC=\n").unwrap();
        assert_eq!(env, [&b"A=1"[..], b"B=two words", b"C="]);
        for wrong in [&b"=x"[..], b"name", b"''", b"'open"] {
            assert_eq!(environment(b"", wrong).unwrap_err().code, Errno::EINVAL, "{wrong:?}");
        }
        assert_eq!(parse("argv", b"a\0b").unwrap_err().code, Errno::EINVAL);
    }

    proptest! {
        #[test]
        fn words_of_any_bytes_are_read_back(
            words in proptest::collection::vec(proptest::collection::vec(1u8.., 0..20), 0..8),
        ) {
            prop_assert_eq!(parse("argv", &render(&words)).unwrap(), words);
        }
    }
}
