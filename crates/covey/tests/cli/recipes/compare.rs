//! Whether a command prints what a page shows: the same words in the same order, where all numbers are alike.

/// What is missing or another, if anything is.
pub fn differs(shown: &[String], printed: &[String]) -> Option<String> {
    let shown: Vec<String> = shown.iter().map(|line| alike(line)).collect();
    let printed: Vec<String> = printed.iter().map(|line| alike(line)).collect();
    let shown: Vec<&str> =
        shown.iter().map(String::as_str).filter(|line| !line.is_empty()).collect();
    let printed: Vec<&str> =
        printed.iter().map(String::as_str).filter(|line| !line.is_empty()).collect();
    (!fits(&shown, &printed))
        .then(|| format!("shown:\n{}\nprinted:\n{}", shown.join("\n"), printed.join("\n")))
}

/// `...` alone stands for any lines, at the end of a line for the rest of it.
fn fits(shown: &[&str], printed: &[&str]) -> bool {
    match (shown, printed) {
        ([], []) => true,
        (["...", rest @ ..], _) => (0..=printed.len()).any(|skip| fits(rest, &printed[skip..])),
        ([one, rest @ ..], [line, lines @ ..]) => is_line(one, line) && fits(rest, lines),
        _ => false,
    }
}

fn is_line(shown: &str, printed: &str) -> bool {
    match shown.strip_suffix("...") {
        Some(beginning) => printed.starts_with(beginning),
        None => shown == printed,
    }
}

/// Numbers, with their units, and digits of all bases are `#`; blanks are one.
fn alike(line: &str) -> String {
    let words: Vec<String> = line.split_whitespace().map(word).collect();
    let mut all: Vec<&str> = Vec::new();
    for word in &words {
        let is_unit = all.last() == Some(&"#") && UNITS.contains(&word.as_str());
        if !is_unit {
            all.push(word);
        }
    }
    all.join(" ")
}

const UNITS: [&str; 11] = ["ns", "us", "ms", "s", "B", "KiB", "MiB", "GiB", "TiB", "MB/s", "GB/s"];

fn word(word: &str) -> String {
    let parts = word.split_inclusive(|letter: char| !letter.is_ascii_alphanumeric());
    let mut text = String::new();
    for part in parts {
        let (part, end) = match part.strip_suffix(|letter: char| !letter.is_ascii_alphanumeric()) {
            Some(stem) => (stem, &part[stem.len()..]),
            None => (part, ""),
        };
        let is_hex = part.len() >= 4
            && part.bytes().all(|byte| byte.is_ascii_hexdigit())
            && part.bytes().any(|byte| byte.is_ascii_digit());
        let is_number = part.bytes().next().is_some_and(|byte| byte.is_ascii_digit());
        text.push_str(if is_hex || is_number { "#" } else { part });
        text.push_str(end);
    }
    for (two, one) in [("#.#", "#"), ("#:#", "#"), ("-#", "#")] {
        while text.contains(two) {
            text = text.replace(two, one);
        }
    }
    text
}

#[test]
fn numbers_are_alike_and_words_are_not() {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let same = |shown, printed| differs(&lines(shown), &lines(printed)).is_none();
    assert!(same("io1  29 us  up\n", "io1   1.2 ms up"));
    assert!(same("SHA-256 d2a7...\n...\nend 5", "SHA-256 0123456789abcdef\na\nb\nend 17"));
    assert!(same("at 10:07 iqn:8d0ae73f8074db10:disk", "at 9:59 iqn:aaaaaaaaaaaaaaa1:disk"));
    assert!(!same("io1 up", "io1 dead"));
    assert!(!same("io1 up", "io1 up\nio2 up"));
    assert!(!same("io1 up\nio2 up", "io1 up"));
    assert!(!same("node1 up", "node2 up"), "a name's number is no number");
}
