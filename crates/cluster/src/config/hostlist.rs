//! Lists of hosts in the notation of cluster tools: `node[01-16,20],login`.

/// More names than a cluster has servers: a typing error rather than a wish.
const NAMES_MAX: usize = 4096;

/// All the names a list stands for, in order. Leading zeros give the width: `n[08-10]` is n08, n09,
/// n10.
pub fn expand(list: &str) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for part in split_outside_brackets(list)? {
        names.extend(expand_one(part.trim())?);
        limit(names.len(), list)?;
    }
    if names.is_empty() { Err("the list is empty".to_string()) } else { Ok(names) }
}

fn split_outside_brackets(list: &str) -> Result<Vec<&str>, String> {
    let (mut parts, mut start, mut inside) = (Vec::new(), 0, false);
    for (at, letter) in list.char_indices() {
        match (letter, inside) {
            ('[', false) => inside = true,
            (']', true) => inside = false,
            ('[', true) | (']', false) => {
                return Err(format!("`{list}` has a stray `{letter}` at character {}", at + 1));
            }
            (',', false) => {
                parts.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if inside {
        return Err(format!("`{list}` has a `[` without its `]`"));
    }
    parts.push(&list[start..]);
    Ok(parts)
}

fn expand_one(part: &str) -> Result<Vec<String>, String> {
    let Some(open) = part.find('[') else {
        return if valid_name(part) {
            Ok(vec![part.to_string()])
        } else {
            Err(format!("`{part}` is not a host name"))
        };
    };
    let (head, rest) = (&part[..open], &part[open + 1..]);
    let close = rest.find(']').ok_or_else(|| format!("`{part}` has a `[` without its `]`"))?;
    let mut names = Vec::new();
    for number in ranges(&rest[..close])? {
        names.extend(expand_one(&format!("{head}{number}{}", &rest[close + 1..]))?);
        limit(names.len(), part)?;
    }
    Ok(names)
}

fn ranges(text: &str) -> Result<Vec<String>, String> {
    let mut numbers = Vec::new();
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.trim(), last.trim());
        let read = |number: &str| {
            number.parse::<u64>().map_err(|_| format!("`[{text}]` needs numbers such as 1-4,7"))
        };
        let (from, to) = (read(first)?, read(last)?);
        if from > to {
            return Err(format!("`{range}` runs backwards"));
        }
        limit(usize::try_from(to - from).unwrap_or(usize::MAX), range)?;
        let width = if first.starts_with('0') { first.len() } else { 0 };
        numbers.extend((from..=to).map(|number| format!("{number:0width$}")));
    }
    Ok(numbers)
}

fn limit(count: usize, what: &str) -> Result<(), String> {
    if count > NAMES_MAX {
        Err(format!("`{what}` stands for more than {NAMES_MAX} names"))
    } else {
        Ok(())
    }
}

fn valid_name(name: &str) -> bool {
    let letter = |letter: char| letter.is_ascii_alphanumeric() || "-._:".contains(letter);
    !name.is_empty()
        && name.len() <= 253
        && name.chars().all(letter)
        && !name.starts_with(['-', '.'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &str) -> String {
        expand(list).unwrap().join(" ")
    }

    #[test]
    fn ranges_single_numbers_and_plain_names_mix() {
        assert_eq!(names("node[1-4,7]"), "node1 node2 node3 node4 node7");
        assert_eq!(names("a, b[2-3].lan ,c"), "a b2.lan b3.lan c");
    }

    #[test]
    fn leading_zeros_give_the_width() {
        assert_eq!(names("node[08-10]"), "node08 node09 node10");
        assert_eq!(names("n[9-11]"), "n9 n10 n11");
    }

    #[test]
    fn two_brackets_give_every_pair() {
        assert_eq!(names("r[1-2]n[1-2]"), "r1n1 r1n2 r2n1 r2n2");
    }

    #[test]
    fn a_wrong_list_says_what_is_wrong() {
        for (list, what) in [
            ("", "not a host name"),
            ("a,,b", "not a host name"),
            ("n[1-", "without its"),
            ("n]1[", "stray"),
            ("n[[1]]", "stray"),
            ("n[4-1]", "backwards"),
            ("n[a-b]", "needs numbers"),
            ("n[1-99999999999]", "more than 4096"),
            ("n[1-100]m[1-100]", "more than 4096"),
            ("bad name", "not a host name"),
        ] {
            let error = expand(list).unwrap_err();
            assert!(error.contains(what), "{list}: {error}");
        }
    }
}
