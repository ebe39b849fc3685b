//! What clients did that are gone, by account: who collects sums takes one that falls for a server that has begun anew, and
//! counts what is left of it once more.

use super::Histogram;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Accounts of one part that are kept. What others did is on one account together.
const ACCOUNTS_MAX: usize = 1000;
/// Its name.
pub const OTHERS: &str = "others";

/// The sums of clients that have ended.
#[derive(Debug, Default)]
pub(super) struct Ended(BTreeMap<String, Sums>);

#[derive(Debug, Default)]
struct Sums {
    bytes: u64,
    count: u64,
    ns: u64,
}

impl Ended {
    /// A client has ended.
    pub fn add(&mut self, name: &str, bytes: u64, times: &Histogram) {
        let (count, ns) = times.sums();
        if count == 0 {
            return;
        }
        let account = account(name);
        let is_kept = self.0.contains_key(account) || self.0.len() < ACCOUNTS_MAX;
        let account = if is_kept { account } else { OTHERS };
        let sums = self.0.entry(account.to_owned()).or_default();
        sums.bytes += bytes;
        sums.count += count;
        sums.ns = sums.ns.wrapping_add(ns);
    }

    /// `ended PART ACCOUNT bytes N count N sum_ns N`.
    pub fn text(&self, part: &str) -> String {
        let mut out = String::new();
        for (account, Sums { bytes, count, ns }) in &self.0 {
            writeln!(out, "ended {part} {account:?} bytes {bytes} count {count} sum_ns {ns}")
                .expect("writing into a string cannot fail");
        }
        out
    }
}

/// A client's name without what tells apart its processes and connections: `USER@HOST job JOB` of `USER@HOST job JOB pid N
/// #COPY`, `tcp!ADDRESS` of `tcp!ADDRESS!PORT`, `unix` of `unix!pid N`.
pub fn account(name: &str) -> &str {
    let name = without_number(name, " #");
    match without_number(name, " pid ") {
        name if name.starts_with("unix!pid ") => "unix",
        name if name.starts_with("tcp!") => without_number(name, "!"),
        name => name,
    }
}

/// A text without a number at its end, and without the word before that.
fn without_number<'t>(text: &'t str, word: &str) -> &'t str {
    let is_number = |(_, number): &(&str, &str)| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    text.rsplit_once(word).filter(is_number).map_or(text, |(text, _)| text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn accounts_are_bounded_and_lose_nothing() {
        let mut ended = Ended::default();
        let times = Histogram::default();
        ended.add("idle@n1 pid 1", 0, &times);
        assert_eq!(ended.text("meta"), "");
        times.add(Duration::from_nanos(5));
        for number in 0..3 * ACCOUNTS_MAX {
            ended.add(&format!("user{number}@n1 job 7 pid 9"), 2, &times);
        }
        ended.add("user0@n1 job 7 pid 10", 2, &times);
        let text = ended.text("meta");
        assert_eq!(text.lines().count(), ACCOUNTS_MAX + 1);
        assert!(
            text.contains("ended meta \"user0@n1 job 7\" bytes 4 count 2 sum_ns 10\n"),
            "{text}"
        );
        assert!(text.contains("ended meta \"others\" bytes 4000 count 2000 sum_ns 10000\n"));
    }
}
