//! Files by path, as far as they are wanted. A server knows a file's number only; its paths are found by a walk of the
//! directories, which ends when all are found or its time is over: then the number stays.

use crate::cmd::Context;
use covey_stripe::check::each_name;
use covey_stripe::client::Fs;
use covey_stripe::ops::{Id, ROOT};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How long is looked for paths.
const LIMIT: Duration = Duration::from_secs(3);

/// One path for each of these files, as far as they were found in time.
pub async fn find(context: &Context, wanted: BTreeSet<Id>) -> Found {
    let mut found = Found::new();
    if wanted.is_empty() {
        return found;
    }
    let until = Instant::now() + LIMIT;
    if let Ok(Ok(session)) = timeout_at(until, context.session()).await {
        find_in(&session.fs, wanted, until, &mut found).await;
        let _ = session.close(Ok(())).await;
    }
    found
}

/// A path of each file that was found.
pub type Found = BTreeMap<Id, Vec<u8>>;

/// The same in a session, until then.
pub async fn find_in(fs: &Fs, mut wanted: BTreeSet<Id>, until: Instant, found: &mut Found) {
    if wanted.remove(&ROOT) {
        found.insert(ROOT, b"/".to_vec());
    }
    let _ = timeout_at(until, walk(fs, wanted, found)).await;
}

/// Directories near the root come first.
async fn walk(fs: &Fs, mut wanted: BTreeSet<Id>, found: &mut Found) {
    let mut left = VecDeque::from([(ROOT, Vec::new())]);
    let mut seen = BTreeSet::from([ROOT]);
    while !wanted.is_empty()
        && let Some((dir, path)) = left.pop_front()
    {
        // What cannot be listed is passed over.
        let _ = each_name(fs, dir, |entry| {
            let below = [&path[..], b"/", entry.name.as_bytes()].concat();
            if wanted.remove(&entry.id) {
                found.insert(entry.id, below.clone());
            }
            if entry.is_dir() && seen.insert(entry.id) {
                left.push_back((entry.id, below));
            }
        })
        .await;
    }
}

/// The number of the file that a line of `/slow` is about: `... of "CLIENT" file 000000000000002a 0 bytes took ...`. What
/// stands in quotes is the client's own choice.
pub fn number(line: &str) -> Option<(usize, Id)> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, byte) in line.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            b' ' if !is_quoted && line[at..].starts_with(WORD) => {
                let begin = at + WORD.len();
                let digits = line.get(begin..begin + DIGITS)?;
                return Some((begin, Id::from_str_radix(digits, 16).ok().filter(|id| *id > 0)?));
            }
            _ => {}
        }
    }
    None
}

/// A line with a file's path in the place of its number.
pub fn with_path(line: &str, begin: usize, path: &[u8]) -> String {
    let path = String::from_utf8_lossy(path);
    format!("{}{path:?}{}", &line[..begin], &line[begin + DIGITS..])
}

const WORD: &str = " file ";
/// Of a file's number.
const DIGITS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clients_name_is_not_taken_for_a_file() {
        let line = "at 1 meta.Fsync of \"x file 0000000000000007 \\\" file 0000000000000008\" file \
                    000000000000002a 0 bytes took 1.000 ms: 0.021 here, 1.2 disk";
        let (begin, id) = number(line).expect("a number");
        assert_eq!(id, 0x2a);
        let shown = with_path(line, begin, b"/a \"b\"\n\xff");
        assert!(shown.contains("\" file \"/a \\\"b\\\"\\n\u{fffd}\" 0 bytes took"), "{shown}");
        assert_eq!(number("meta.Hello of - file 0000000000000000 0 bytes took 1 ms"), None);
        assert_eq!(number("meta.Hello of - file 12"), None);
        assert_eq!(number("x file ääääääääää"), None);
    }
}
