//! What happened between two looks at a node: differences of what it has counted since its start, so that whoever
//! else looks at the same numbers finds them as they were.

use super::Lines;
use covey_serve::watch::{quantile_ns, top_ns};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The lines of an interval: operations, clients and times that had any, and the counters as they are.
pub fn between(before: &Lines, after: &Lines) -> Lines {
    let lines = after.iter().filter_map(|(name, values)| {
        let values = if values.contains_key("count") {
            of_line(before.get(name), values)?
        } else {
            values.clone()
        };
        Some((name.clone(), values))
    });
    lines.collect()
}

/// A line of an interval; none when nothing happened.
fn of_line(
    before: Option<&Map<String, Value>>,
    after: &Map<String, Value>,
) -> Option<Map<String, Value>> {
    // What is less than before was begun anew: by `reset`, or with the server.
    let is_new = before.is_none_or(|before| number(before, "count") > number(after, "count"));
    let none = Map::new();
    let before = before.filter(|_| !is_new).unwrap_or(&none);
    let less = |key: &str| number(after, key).saturating_sub(number(before, key));
    let count = less("count");
    if count == 0 {
        return None;
    }
    let (old, mut buckets) = (buckets(before), buckets(after));
    for (bucket, count) in old {
        buckets.entry(bucket).and_modify(|all| *all = all.saturating_sub(count));
    }
    let us = |ns: u64| json!((ns as f64 / 100.0).round() / 10.0);
    // The longest of all times is known, that of the interval up to its bucket.
    let max_us = after.get("max_us").and_then(Value::as_f64).unwrap_or(f64::MAX);
    let shown = |ns: u64| us(ns.min((max_us * 1e3) as u64));
    let mut values = Map::new();
    for key in SUMS.into_iter().filter(|key| after.contains_key(*key)) {
        values.insert(key.into(), json!(less(key)));
    }
    values.insert("count".into(), json!(count));
    if !after.contains_key("buckets") {
        return Some(values);
    }
    values.insert("mean_us".into(), us(less("sum_ns") / count));
    values.insert("p50_us".into(), shown(quantile_ns(&buckets, 0.5)));
    values.insert("p99_us".into(), shown(quantile_ns(&buckets, 0.99)));
    values.insert("max_us".into(), shown(top_ns(&buckets)));
    Some(values)
}

/// What is summed up beside times.
const SUMS: [&str; 4] = ["errors", "bytes", "bytes_read", "bytes_written"];

fn number(values: &Map<String, Value>, key: &str) -> u64 {
    values.get(key).and_then(Value::as_u64).unwrap_or(0)
}

/// `37:5,38:9`: buckets, and how many times are in each.
pub fn buckets(values: &Map<String, Value>) -> BTreeMap<usize, u64> {
    let text = values.get("buckets").and_then(Value::as_str).unwrap_or("");
    let pairs = text.split(',').filter_map(|pair| pair.split_once(':'));
    pairs.filter_map(|(bucket, count)| Some((bucket.parse().ok()?, count.parse().ok()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::stats::parse;
    use covey_serve::watch::{Detail, Histogram};
    use std::time::Duration;

    fn lines(times: &Histogram, bytes: u64) -> Lines {
        parse(&format!("op data.read errors 1 bytes {bytes} {}\n", times.text(Detail::Buckets)))
    }

    #[test]
    fn an_interval_has_its_own_count_and_quantiles() {
        let times = Histogram::default();
        (0..1000).for_each(|_| times.add(Duration::from_millis(50)));
        let before = lines(&times, 10);
        (0..100).for_each(|_| times.add(Duration::from_micros(100)));
        let interval = &between(&before, &lines(&times, 30))["op data.read"];
        assert_eq!((&interval["count"], &interval["bytes"]), (&json!(100), &json!(20)));
        assert_eq!((&interval["errors"], &interval["mean_us"]), (&json!(0), &json!(100.0)));
        for key in ["p50_us", "p99_us", "max_us"] {
            let us = interval[key].as_f64().unwrap();
            assert!((99.9..126.0).contains(&us), "{key} {us}");
        }
    }

    #[test]
    fn what_did_not_happen_is_not_told_and_what_begins_anew_is_told_whole() {
        let times = Histogram::default();
        (0..9).for_each(|_| times.add(Duration::from_micros(5)));
        let before = lines(&times, 10);
        assert!(between(&before, &before).is_empty());
        times.reset();
        times.add(Duration::from_micros(5));
        assert_eq!(between(&before, &lines(&times, 3))["op data.read"]["count"], json!(1));
        assert_eq!(between(&Lines::new(), &before)["op data.read"]["count"], json!(9));
    }
}
