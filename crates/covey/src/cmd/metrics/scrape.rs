//! One look at all nodes, and its text.

use super::names::{self, Metric};
use crate::cmd::ping;
use crate::cmd::stats::{Lines, buckets, parse};
use crate::config::Config;
use covey_cluster::reach::{self, PingReport, StoreWord};
use covey_serve::watch::end_of_doubling;
use futures_util::future::join_all;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;

/// The buckets of a histogram end with powers of two, from 1 us to 17 s: the nodes' own, finer ones fit into them.
const DOUBLINGS: std::ops::RangeInclusive<usize> = 10..=34;

/// What one look at the nodes of a cluster has shown.
#[derive(Debug)]
struct Look(Vec<Node>);

#[derive(Debug)]
struct Node {
    name: String,
    roles: String,
    /// None if it does not answer.
    answer: Option<(PingReport, Lines)>,
}

/// Labels: their names and values.
type Labels<'a> = [(&'static str, &'a str)];

/// Asks every node, and writes the answers in the OpenMetrics text format.
pub async fn text(config: &Config) -> String {
    let looks = config.nodes.iter().map(|node| async {
        let ask = async {
            let report = reach::ping(config, &node.name).await.ok()?;
            let times = reach::read_of(config, &node.name, "times").await.ok()?;
            Some((report, parse(&times)))
        };
        let answer = tokio::time::timeout(ping::LIMIT, ask).await.unwrap_or_default();
        Node { name: node.name.clone(), roles: node.roles_text(), answer }
    });
    encoded(Look(join_all(looks).await))
}

fn encoded(look: Look) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(look));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)
        .expect("writing into a string cannot fail");
    text
}

impl Collector for Look {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        self.encode_nodes(&mut encoder)?;
        self.encode_lines(&mut encoder)
    }
}

impl Look {
    fn encode_nodes(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let mut family = begin(encoder, &names::UP)?;
        for node in &self.0 {
            let serves = |(report, _): &(PingReport, _)| report.store == StoreWord::Known;
            let is_up = node.answer.as_ref().is_some_and(serves);
            let labels = [("node", node.name.as_str()), ("roles", &node.roles)];
            one(&mut family, &labels, &ConstGauge::new(u32::from(is_up)))?;
        }
        let mut family = begin(encoder, &names::BUILD)?;
        for (name, report) in self.reports() {
            let version = [("version", report.version.as_str())];
            family.encode_family(&[("node", name)])?.encode_info(&version)?;
        }
        let latency = |report: &PingReport| Some(report.latency.as_secs_f64());
        self.gauges(encoder, &names::LATENCY, latency)?;
        let bytes = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64);
        self.gauges(encoder, &names::STORE_SIZE, |report| bytes(report.bytes_total))?;
        self.gauges(encoder, &names::STORE_FREE, |report| bytes(report.bytes_free))?;
        let metadata = |report: &PingReport| report.metadata.unzip();
        self.gauges(encoder, &names::METADATA_SIZE, |report| bytes(metadata(report).1))?;
        self.gauges(encoder, &names::METADATA_USED, |report| bytes(metadata(report).0))
    }

    fn encode_lines(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let ops = ["part", "operation"];
        self.histograms(encoder, &names::OPERATIONS, "op", ops)?;
        self.counters(encoder, &names::ERRORS, "op", ops, |values| number(values, "errors"))?;
        self.counters(encoder, &names::BYTES, "op", ops, |values| number(values, "bytes"))?;
        let clients = ["part", "client"];
        let count = |values: &_| number(values, "count");
        self.counters(encoder, &names::CLIENT_REQUESTS, "client", clients, count)?;
        let bytes = |values: &_| number(values, "bytes");
        self.counters(encoder, &names::CLIENT_BYTES, "client", clients, bytes)?;
        let time = |values: &_| number(values, "sum_ns") / 1e9;
        self.counters(encoder, &names::CLIENT_TIME, "client", clients, time)?;
        self.histograms(encoder, &names::STEPS, "time", ["part", "step"])?;
        let mut family = begin(encoder, &names::EVENTS)?;
        for (node, lines) in self.lines() {
            for (name, values) in lines {
                if let Some(value) = values.get("value").and_then(Value::as_u64) {
                    let labels = [("node", node), ("counter", name.as_str())];
                    one(&mut family, &labels, &ConstCounter::new(value))?;
                }
            }
        }
        Ok(())
    }

    fn reports(&self) -> impl Iterator<Item = (&str, &PingReport)> {
        let answered = self.0.iter().filter_map(|node| Some((node, node.answer.as_ref()?)));
        answered.map(|(node, (report, _))| (node.name.as_str(), report))
    }

    fn lines(&self) -> impl Iterator<Item = (&str, &Lines)> {
        let answered = self.0.iter().filter_map(|node| Some((node, node.answer.as_ref()?)));
        answered.map(|(node, (_, lines))| (node.name.as_str(), lines))
    }

    /// A figure of each node that has it.
    fn gauges(
        &self,
        encoder: &mut DescriptorEncoder,
        metric: &Metric,
        value: impl Fn(&PingReport) -> Option<f64>,
    ) -> fmt::Result {
        let mut family = begin(encoder, metric)?;
        for (node, report) in self.reports() {
            if let Some(value) = value(report) {
                one(&mut family, &[("node", node)], &ConstGauge::new(value))?;
            }
        }
        Ok(())
    }

    /// Each node's lines of a kind, by the two words of their names.
    fn counters(
        &self,
        encoder: &mut DescriptorEncoder,
        metric: &Metric,
        kind: &str,
        words: [&'static str; 2],
        value: impl Fn(&Map<String, Value>) -> f64,
    ) -> fmt::Result {
        let mut family = begin(encoder, metric)?;
        for (node, lines) in self.lines() {
            let mut sums = BTreeMap::<_, f64>::new();
            for (names, values) in of_kind(lines, kind) {
                *sums.entry(names).or_default() += value(values);
            }
            for ((part, name), sum) in sums {
                let labels = [("node", node), (words[0], part), (words[1], name)];
                one(&mut family, &labels, &ConstCounter::new(sum))?;
            }
        }
        Ok(())
    }

    fn histograms(
        &self,
        encoder: &mut DescriptorEncoder,
        metric: &Metric,
        kind: &str,
        words: [&'static str; 2],
    ) -> fmt::Result {
        let mut family = begin(encoder, metric)?;
        for (node, lines) in self.lines() {
            for ((part, name), values) in of_kind(lines, kind) {
                let labels = [("node", node), (words[0], part), (words[1], name)];
                let ends = folded(&buckets(values));
                let count = number(values, "count") as u64;
                family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(
                    number(values, "sum_ns") / 1e9,
                    count,
                    &ends,
                    None,
                )?;
            }
        }
        Ok(())
    }
}

fn begin<'a>(
    encoder: &'a mut DescriptorEncoder,
    metric: &'a Metric,
) -> Result<MetricEncoder<'a>, fmt::Error> {
    encoder.encode_descriptor(metric.name, metric.help, metric.unit.as_ref(), metric.kind)
}

fn one(family: &mut MetricEncoder, labels: &Labels, value: &impl EncodeMetric) -> fmt::Result {
    value.encode(family.encode_family(&labels)?)
}

/// The lines of a kind, with part and name: `op data.read` is (data, read). Connections of one name are told apart
/// by ` #N`, which is left out here.
fn of_kind<'a>(
    lines: &'a Lines,
    kind: &str,
) -> impl Iterator<Item = ((&'a str, &'a str), &'a Map<String, Value>)> {
    lines.iter().filter_map(move |(line, values)| {
        let name = line.strip_prefix(kind)?.strip_prefix(' ')?;
        let (part, name) = name.split_once(['.', ' '])?;
        let is_copy = |(_, copy): &(_, &str)| copy.bytes().all(|byte| byte.is_ascii_digit());
        let name = name.rsplit_once(" #").filter(is_copy).map_or(name, |(name, _)| name);
        Some(((part, name), values))
    })
}

fn number(values: &Map<String, Value>, key: &str) -> f64 {
    values.get(key).and_then(Value::as_f64).unwrap_or(0.0)
}

/// A node's fine buckets as the coarse ones: upper end in seconds, and how many times each has for itself.
fn folded(fine: &BTreeMap<usize, u64>) -> Vec<(f64, u64)> {
    let mut begin = 0;
    let coarse = DOUBLINGS.map(|doubling| {
        let end = end_of_doubling(doubling);
        let count = fine.range(begin..end).map(|(_, count)| count).sum();
        begin = end;
        ((1_u64 << doubling) as f64 / 1e9, count)
    });
    let mut all: Vec<_> = coarse.collect();
    all.push((f64::MAX, fine.range(begin..).map(|(_, count)| count).sum()));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use covey_serve::watch::{Detail, Histogram};
    use std::time::Duration;

    fn look(times: &str) -> String {
        let report = PingReport {
            latency: Duration::from_micros(250),
            version: "0.1.0".into(),
            bytes_total: Some(1000),
            bytes_used: None,
            bytes_free: Some(400),
            metadata: None,
            msize: 8192,
            store: StoreWord::Known,
        };
        let up =
            Node { name: "io1".into(), roles: "io".into(), answer: Some((report, parse(times))) };
        let down = Node { name: "io\"2\n".into(), roles: "io".into(), answer: None };
        encoded(Look(vec![up, down]))
    }

    #[test]
    fn a_node_that_is_down_is_told_and_has_no_figures() {
        let text = look("data.reads 7\n");
        assert!(text.contains("covey_up{node=\"io1\",roles=\"io\"} 1\n"), "{text}");
        assert!(text.contains(r#"covey_up{node="io\"2\n",roles="io"} 0"#), "{text}");
        assert!(text.contains("covey_store_free_bytes{node=\"io1\"} 400"), "{text}");
        assert!(
            text.contains(r#"covey_events_total{node="io1",counter="data.reads"} 7"#),
            "{text}"
        );
        assert_eq!(text.matches(r#"io\"2"#).count(), 1, "{text}");
        assert!(text.ends_with("# EOF\n"), "{text}");
    }

    #[test]
    fn no_time_is_lost_between_the_buckets() {
        let times = Histogram::default();
        let all = [1_u64, 900, 1023, 1024, 1025, 70_000, 4_000_000_000, 30_000_000_000];
        all.iter().for_each(|ns| times.add(Duration::from_nanos(*ns)));
        let text =
            look(&format!("op data.read errors 1 bytes 5 {}\n", times.text(Detail::Buckets)));
        let name = "covey_operation_duration_seconds";
        let labels = r#"node="io1",part="data",operation="read""#;
        for (end, count) in [("0.000001024", 3), ("0.000002048", 5), ("17.179869184", 7)] {
            let line = format!("{name}_bucket{{le=\"{end}\",{labels}}} {count}\n");
            assert!(text.contains(&line), "no {line} in {text}");
        }
        assert!(text.contains(&format!("{name}_count{{{labels}}} 8\n")), "{text}");
        assert!(text.contains(&format!("covey_operation_errors_total{{{labels}}} 1")), "{text}");
        assert!(text.contains(&format!("covey_operation_bytes_total{{{labels}}} 5")), "{text}");
    }

    #[test]
    fn connections_of_one_client_are_one() {
        let line = "client meta \"mount on node7\" bytes 3 count 2 sum_ns 500000000\n";
        let text = look(&line.repeat(3));
        let labels = r#"node="io1",part="meta",client="mount on node7""#;
        for (name, value) in [("requests", "6.0"), ("bytes", "9.0"), ("seconds", "1.5")] {
            let line = format!("covey_client_{name}_total{{{labels}}} {value}\n");
            assert!(text.contains(&line), "no {line} in {text}");
        }
    }
}
