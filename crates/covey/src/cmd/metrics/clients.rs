//! Clients as labels. A client says itself what it is called, and each process and each connection is another one; a
//! time series for each would fill whoever collects them. So numbers of processes and ports are left out, names are
//! short, and of very many clients those with the fewest requests are one.

use covey_serve::watch::{OTHERS, account};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Clients of one part that have a series of their own.
const CLIENTS_MAX: usize = 1000;
/// The longest label.
const LABEL_CHARS_MAX: usize = 100;

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
        all.entry(Who::named(part, name)).or_default().add(Sums { requests, bytes, seconds });
    }
    let parts: Vec<&str> = all.keys().map(|who| who.part).collect();
    for part in parts.chunk_by(PartialEq::eq).map(|same| same[0]) {
        join_the_least(part, &mut all);
    }
    all
}

/// Leaves at most [`CLIENTS_MAX`] clients of a part, and one for all others.
fn join_the_least(part: &str, all: &mut BTreeMap<Who<'_>, Sums>) {
    let mut of_part: Vec<_> = all.iter().filter(|(who, _)| who.part == part).collect();
    if of_part.len() <= CLIENTS_MAX {
        return;
    }
    of_part.sort_by(|(_, a), (_, b)| b.requests.total_cmp(&a.requests));
    let least: Vec<Who> = of_part[CLIENTS_MAX..].iter().map(|(who, _)| (*who).clone()).collect();
    let mut sums = Sums::default();
    let mut others = None;
    for who in least {
        sums.add(all.remove(&who).unwrap_or_default());
        others = Some(Who { client: OTHERS.into(), job: String::new(), ..who });
    }
    if let Some(others) = others {
        all.entry(others).or_default().add(sums);
    }
}

impl<'a> Who<'a> {
    fn named(part: &'a str, name: &str) -> Self {
        let account = account(name);
        let (client, job) = account.split_once(" job ").unwrap_or((account, ""));
        Who { part, client: short(client), job: short(job) }
    }
}

impl Sums {
    fn add(&mut self, more: Sums) {
        self.requests += more.requests;
        self.bytes += more.bytes;
        self.seconds += more.seconds;
    }
}

fn short(label: &str) -> String {
    match label.char_indices().nth(LABEL_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &label[..end]),
        None => label.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn summed(names: &[String]) -> BTreeMap<Who<'static>, Sums> {
        let values = json!({ "count": 1, "bytes": 2, "sum_ns": 3_000_000_000_u64 });
        let values = values.as_object().expect("an object");
        of(names.iter().map(|name| (("meta", name.as_str()), values)))
            .into_iter()
            .map(|(who, sums)| (Who { part: "meta", client: who.client, job: who.job }, sums))
            .collect()
    }

    #[test]
    fn processes_and_ports_are_no_labels() {
        for (name, client, job) in [
            ("ann@n1 pid 7", "ann@n1", ""),
            ("ann@n1 job 12_3 pid 7 #2", "ann@n1", "12_3"),
            ("tcp!10.0.0.7!40112", "tcp!10.0.0.7", ""),
            ("tcp!fe80::1!9 #3", "tcp!fe80::1", ""),
            ("unix!pid 2204", "unix", ""),
            ("pid 7", "pid 7", ""),
            ("metadata server", "metadata server", ""),
        ] {
            let who = Who::named("meta", name);
            assert_eq!((who.client.as_str(), who.job.as_str()), (client, job), "{name}");
        }
    }

    #[test]
    fn wild_names_make_few_and_short_labels() {
        let names: Vec<String> = (0..5000).map(|n| format!("x{n:04}")).collect();
        let all = summed(&names);
        assert_eq!(all.len(), CLIENTS_MAX + 1);
        let requests: f64 = all.values().map(|sums| sums.requests).sum();
        assert_eq!(requests, 5000.0, "nothing is lost");
        let others = all.iter().find(|(who, _)| who.client == OTHERS).expect("the others");
        assert_eq!(others.1.requests, 4000.0);
        let all = summed(&["ä".repeat(60_000), format!("a job {}", "b".repeat(60_000))]);
        assert!(all.keys().all(|who| who.client.chars().count() <= LABEL_CHARS_MAX + 1));
        assert!(all.keys().all(|who| who.job.chars().count() <= LABEL_CHARS_MAX + 1));
        // Who calls itself `others` is one of them.
        let names: Vec<String> = names.into_iter().chain([OTHERS.to_owned()]).collect();
        assert_eq!(summed(&names).values().map(|sums| sums.requests).sum::<f64>(), 5001.0);
    }
}
