//! Names on a terminal. A name may be any bytes, and some bytes move the cursor, change the window's title or
//! answer questions that nobody has asked. So they are shown as `ls` shows them: in the form that a
//! shell reads back as the name.

use std::borrow::Cow;
use std::fmt::Write;
use std::io::IsTerminal;
use std::sync::OnceLock;

/// A name for a person who may copy it: `$'a\nb'` where it would not be seen as it is, off a terminal the
/// name itself.
pub fn name(name: &[u8]) -> Cow<'_, [u8]> {
    if is_terminal() { quoted(name) } else { Cow::Borrowed(name) }
}

/// The same of text.
pub fn text(name: &str) -> Cow<'_, str> {
    if is_terminal() && !is_plain(name, |_| false) {
        Cow::Owned(quote(name.as_bytes()))
    } else {
        Cow::Borrowed(name)
    }
}

/// Text of several lines for a terminal: whatever control characters it holds are shown, not sent.
pub fn lines(text: &[u8]) -> Cow<'_, [u8]> {
    if is_terminal() {
        harmless(text, |control| matches!(control, '\n' | '\t'))
    } else {
        Cow::Borrowed(text)
    }
}

/// A name within a message, wherever that leads: it makes no line of its own there.
pub fn in_words(name: &[u8]) -> String {
    String::from_utf8_lossy(&quoted(name)).into_owned()
}

/// Words for stderr, wherever that leads.
pub fn talk(text: &str) -> String {
    let shown = harmless(text.as_bytes(), |control| matches!(control, '\n' | '\t'));
    String::from_utf8_lossy(&shown).into_owned()
}

fn is_terminal() -> bool {
    static IS: OnceLock<bool> = OnceLock::new();
    *IS.get_or_init(|| std::io::stdout().is_terminal())
}

fn quoted(name: &[u8]) -> Cow<'_, [u8]> {
    match std::str::from_utf8(name) {
        Ok(text) if is_plain(text, |_| false) => Cow::Borrowed(name),
        _ => Cow::Owned(quote(name).into_bytes()),
    }
}

fn is_plain(text: &str, passes: impl Fn(char) -> bool) -> bool {
    text.chars().all(|one| !is_harmful(one) || passes(one))
}

/// Control characters, those of ISO 6429 above 127 among them, and what makes text run backwards.
fn is_harmful(one: char) -> bool {
    one.is_control() || matches!(one, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A word for a shell.
fn quote(name: &[u8]) -> String {
    let mut out = String::from("$'");
    for chunk in name.utf8_chunks() {
        for one in chunk.valid().chars() {
            match one {
                '\'' | '\\' => out.extend(['\\', one]),
                one if is_harmful(one) => escape(one, &mut out),
                one => out.push(one),
            }
        }
        octal(chunk.invalid(), &mut out);
    }
    out.push('\'');
    out
}

fn escape(one: char, out: &mut String) {
    match one {
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        one => octal(one.encode_utf8(&mut [0; 4]).as_bytes(), out),
    }
}

fn octal(bytes: &[u8], out: &mut String) {
    for byte in bytes {
        // Writing into a String cannot fail.
        let _ = write!(out, "\\{byte:03o}");
    }
}

/// Text as it is, but for the control characters that may not pass.
fn harmless(text: &[u8], passes: impl Fn(char) -> bool) -> Cow<'_, [u8]> {
    if std::str::from_utf8(text).is_ok_and(|text| is_plain(text, &passes)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for chunk in text.utf8_chunks() {
        for one in chunk.valid().chars() {
            if is_harmful(one) && !passes(one) { escape(one, &mut out) } else { out.push(one) }
        }
        octal(chunk.invalid(), &mut out);
    }
    Cow::Owned(out.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_would_move_the_cursor_is_quoted_for_a_shell_and_others_are_not() {
        let shown = |name: &[u8]| String::from_utf8(quoted(name).into_owned()).unwrap();
        assert_eq!(shown(b"plain name's"), "plain name's");
        assert_eq!(shown("w\u{e4}chter".as_bytes()), "w\u{e4}chter");
        assert_eq!(shown(b"a\nb"), r"$'a\nb'");
        assert_eq!(shown(b"it's\t\\"), r"$'it\'s\t\\'");
        assert_eq!(shown(b"\x1b]0;owned\x07"), r"$'\033]0;owned\007'");
        assert_eq!(shown(b"\xff\xfe"), r"$'\377\376'");
        // CSI as one character, DEL, and letters that would run backwards.
        assert_eq!(shown("\u{9b}2J".as_bytes()), r"$'\302\2332J'");
        assert_eq!(shown(b"\x7f"), r"$'\177'");
        assert_eq!(shown("\u{202e}gpj".as_bytes()), r"$'\342\200\256gpj'");
    }

    #[test]
    fn a_name_makes_no_line_of_its_own_and_lines_stay_lines() {
        assert_eq!(in_words(b"/a\nhint: \x1b[2J"), r"$'/a\nhint: \033[2J'");
        assert_eq!(in_words(b"/a"), "/a");
        assert_eq!(talk("a\n\tb\x1b[2J"), "a\n\tb\\033[2J");
        assert_eq!(talk("as it is: \u{fc}"), "as it is: \u{fc}");
    }

    #[test]
    fn bash_reads_a_quoted_name_back() {
        let Ok(bash) = std::process::Command::new("bash").arg("--version").output() else { return };
        assert!(bash.status.success());
        let every: Vec<u8> = (1..=255).collect();
        for name in [&every[..], b"\xc3\x28 it's", "\u{9b}\u{202e}".as_bytes()] {
            let mut command = std::process::Command::new("bash");
            let said =
                command.arg("-c").arg(format!("printf %s {}", quote(name))).output().unwrap();
            assert_eq!(said.stdout, name);
        }
    }
}
