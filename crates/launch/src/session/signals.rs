//! Signals by name: Linux's numbers, which most architectures share.

/// The number of `TERM`, `SIGTERM` or `15`; None for what is no signal.
pub fn number(word: &str) -> Option<i32> {
    if let Ok(number) = word.parse::<i32>() {
        return (1..=NUMBER_MAX).contains(&number).then_some(number);
    }
    let word = word.to_ascii_uppercase();
    let name = word.strip_prefix("SIG").unwrap_or(&word);
    NAMES.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
}

/// The name of a signal, without SIG.
pub fn name(number: i32) -> Option<&'static str> {
    NAMES.iter().find(|(_, known)| *known == number).map(|(name, _)| *name)
}

const NAMES: &[(&str, i32)] = &[
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ILL", 4),
    ("TRAP", 5),
    ("ABRT", 6),
    ("BUS", 7),
    ("FPE", 8),
    ("KILL", 9),
    ("USR1", 10),
    ("SEGV", 11),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
    ("CHLD", 17),
    ("CONT", 18),
    ("STOP", 19),
    ("TSTP", 20),
    ("TTIN", 21),
    ("TTOU", 22),
    ("URG", 23),
    ("XCPU", 24),
    ("XFSZ", 25),
    ("WINCH", 28),
];
/// The last real-time signal.
const NUMBER_MAX: i32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_has_three_spellings() {
        for word in ["TERM", "SIGTERM", "sigterm", "15"] {
            assert_eq!(number(word), Some(15), "{word}");
        }
        for word in ["", "SIG", "0", "65", "-9", "FOO"] {
            assert_eq!(number(word), None, "{word}");
        }
        assert_eq!(name(9), Some("KILL"));
    }
}
