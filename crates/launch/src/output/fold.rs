//! Names as one list, in the notation that the command line reads: `node[1-4],login`.

use std::collections::{BTreeMap, BTreeSet};

/// Folds names whose last number differs. Each name stands in the list once.
pub fn fold<S: AsRef<str>>(names: &[S]) -> String {
    let all = || names.iter().filter_map(|name| split(name.as_ref()));
    let zero_first = all().filter(|(_, number, _)| number.starts_with('0'));
    let padded: BTreeSet<_> =
        zero_first.map(|(head, number, tail)| (head, tail, number.len())).collect();
    let mut families: BTreeMap<(&str, &str, usize), Vec<u64>> = BTreeMap::new();
    let mut parts = Vec::new();
    for name in names.iter().map(AsRef::as_ref) {
        match split(name) {
            Some((head, number, tail)) => {
                // With n08 and n09, n10 is of the same width.
                let is_padded = padded.contains(&(head, tail, number.len()));
                let width = if is_padded { number.len() } else { 0 };
                let value = number.parse().expect("digits, and few");
                families.entry((head, tail, width)).or_default().push(value);
            }
            None => parts.push(name.to_owned()),
        }
    }
    parts.sort();
    parts.dedup();
    let mut lists: Vec<String> = families
        .into_iter()
        .map(|((head, tail, width), numbers)| list(head, tail, width, numbers))
        .collect();
    lists.append(&mut parts);
    lists.join(",")
}

/// What is before the last number of a name, the number, and what is behind it.
fn split(name: &str) -> Option<(&str, &str, &str)> {
    let end = name.rfind(|letter: char| letter.is_ascii_digit())? + 1;
    let is_other = |letter: char| !letter.is_ascii_digit();
    let start = name[..end]
        .rfind(is_other)
        .map_or(0, |at| at + name[at..].chars().next().expect("a letter is there").len_utf8());
    (end - start <= DIGITS_MAX).then(|| (&name[..start], &name[start..end], &name[end..]))
}

fn list(head: &str, tail: &str, width: usize, mut numbers: Vec<u64>) -> String {
    numbers.sort_unstable();
    numbers.dedup();
    let runs: Vec<String> = numbers
        .chunk_by(|left, right| left + 1 == *right)
        .map(|run| match run {
            [one] => format!("{one:0width$}"),
            run => format!("{:0width$}-{:0width$}", run[0], run[run.len() - 1]),
        })
        .collect();
    match numbers.len() {
        1 => format!("{head}{}{tail}", runs[0]),
        _ => format!("{head}[{}]{tail}", runs.join(",")),
    }
}

/// Longer numbers are taken as text.
const DIGITS_MAX: usize = 18;

#[cfg(test)]
mod tests {
    use super::fold;

    #[test]
    fn numbers_are_folded_into_ranges() {
        assert_eq!(fold(&["node3", "node1", "node2", "node7"]), "node[1-3,7]");
        assert_eq!(fold(&["login", "a1", "a2"]), "a[1-2],login");
        assert_eq!(fold(&["n08", "n09", "n10"]), "n[08-10]");
        assert_eq!(fold(&["r1.lan", "r2.lan", "r2.lan"]), "r[1-2].lan");
        assert_eq!(fold(&["one"]), "one");
        assert_eq!(fold::<&str>(&[]), "");
    }

    #[test]
    fn names_of_any_letters_fold() {
        assert_eq!(fold(&["é1", "é2"]), "é[1-2]");
        let long = "n".to_owned() + &"9".repeat(40);
        assert_eq!(fold(&[&long]), long);
    }
}
