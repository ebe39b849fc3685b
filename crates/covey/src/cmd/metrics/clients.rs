//! Clients as labels. A client says itself what it is called, and each process and each connection is another one; a
//! time series for each would fill whoever collects them. So the server keeps accounts, without numbers of processes and
//! ports, of short names and a bounded number, and says which clients are on that of the others.

use covey_serve::watch::{OTHERS, account};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// A client, apart from which of its processes and connections it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Who<'a> {
    pub part: &'a str,
    /// `USER@HOST`, or the address that a connection comes from.
    pub client: String,
    /// Empty outside a job.
    pub job: String,
}

/// What it has done.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    pub requests: f64,
    pub bytes: f64,
    pub seconds: f64,
}

/// Lines of clients, those that have ended among them, each with its part and name, in sums.
pub fn of<'a>(
    lines: impl Iterator<Item = ((&'a str, &'a str), &'a Map<String, Value>)>,
) -> BTreeMap<Who<'a>, Sums> {
    let mut all = BTreeMap::<Who, Sums>::new();
    for ((part, name), values) in lines {
        let number = |key: &str| values.get(key).and_then(Value::as_f64).unwrap_or(0.0);
        let (requests, bytes, seconds) = (number("count"), number("bytes"), number("sum_ns") / 1e9);
        let is_other = values.get("account").and_then(Value::as_str) == Some(OTHERS);
        let name = if is_other { OTHERS } else { name };
        all.entry(Who::named(part, name)).or_default().add(Sums { requests, bytes, seconds });
    }
    all
}

impl<'a> Who<'a> {
    fn named(part: &'a str, name: &str) -> Self {
        let (client, job) = account(name);
        Who { part, client, job }
    }
}

impl Sums {
    fn add(&mut self, more: Sums) {
        self.requests += more.requests;
        self.bytes += more.bytes;
        self.seconds += more.seconds;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_client_on_the_account_of_the_others_is_counted_there_alone() {
        let values = |account: Option<&str>| {
            let mut values = json!({ "count": 1, "bytes": 2, "sum_ns": 3_000_000_000_u64 });
            if let Some(account) = account {
                values["account"] = json!(account);
            }
            values.as_object().expect("an object").clone()
        };
        let (own, other) = (values(None), values(Some(OTHERS)));
        let lines = [
            (("meta", "ann@n1 job 7 pid 3"), &own),
            (("meta", "ann@n1 job 7 pid 4"), &other),
            (("meta", "bob@n1 pid 5"), &other),
            (("meta", OTHERS), &own),
        ];
        let all = of(lines.into_iter());
        let requests: Vec<_> = all
            .iter()
            .map(|(who, sums)| (who.client.as_str(), who.job.as_str(), sums.requests))
            .collect();
        assert_eq!(requests, [("ann@n1", "7", 1.0), (OTHERS, "", 3.0)]);
    }
}
