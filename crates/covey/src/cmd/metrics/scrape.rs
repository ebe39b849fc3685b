//! One look at all nodes, and its text.

use super::clients;
use super::names::{self, Metric};
use crate::cmd::ping;
use crate::cmd::stats::{Lines, buckets, is_refusal, parse, unread};
use crate::config::Config;
use crate::error::Error;
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
pub struct Look(Vec<Node>);

#[derive(Debug)]
struct Node {
    name: String,
    roles: String,
    answer: Answer,
}

#[derive(Debug)]
enum Answer {
    Full(PingReport, Lines),
    /// It lives, but what it counts was not to be had.
    Plain(PingReport, Error),
    /// It does not answer in time; an error if there was one.
    None(Option<Error>),
}

/// Labels: their names and values.
type Labels<'a> = [(&'static str, &'a str)];

impl Look {
    /// Asks every node.
    pub async fn at(config: &Config) -> Look {
        let nodes = config.nodes.iter().map(|node| async {
            let answer = tokio::time::timeout(ping::LIMIT, Answer::of(config, &node.name)).await;
            let (name, roles) = (node.name.clone(), node.roles_text());
            Node { name, roles, answer: answer.unwrap_or(Answer::None(None)) }
        });
        Look(join_all(nodes).await)
    }

    /// Why no node at all shows what it counts, if the reason is who asks: that is nothing that they do wrong.
    pub fn refusal(&self) -> Option<Error> {
        let is_full = |node: &Node| matches!(node.answer, Answer::Full(..));
        if self.0.iter().any(is_full) {
            return None;
        }
        self.0.iter().find_map(|node| match &node.answer {
            Answer::Plain(_, error) | Answer::None(Some(error)) => {
                let is_ours = error.code().is_none() || is_refusal(error.code());
                is_ours.then(|| unread(error.clone(), &node.name, "times"))
            }
            _ => None,
        })
    }

    /// Writes it in the OpenMetrics text format.
    pub fn text(self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry)
            .expect("writing into a string cannot fail");
        text
    }
}

impl Answer {
    async fn of(config: &Config, node: &str) -> Answer {
        let report = match reach::ping(config, node).await {
            Ok(report) => report,
            Err(error) => return Answer::None(Some(error)),
        };
        match reach::read_of(config, node, "times").await {
            Ok(times) => Answer::Full(report, parse(&times)),
            Err(error) => Answer::Plain(report, error),
        }
    }

    fn report(&self) -> Option<&PingReport> {
        match self {
            Answer::Full(report, _) | Answer::Plain(report, _) => Some(report),
            Answer::None(_) => None,
        }
    }

    fn lines(&self) -> Option<&Lines> {
        if let Answer::Full(_, lines) = self { Some(lines) } else { None }
    }
}

impl Collector for Look {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        self.encode_nodes(&mut encoder)?;
        self.encode_lines(&mut encoder)?;
        self.encode_volumes(&mut encoder)
    }
}

impl Look {
    fn encode_nodes(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let mut family = begin(encoder, &names::UP)?;
        for node in &self.0 {
            let serves = |report: &PingReport| report.store == StoreWord::Known;
            let is_up = node.answer.report().is_some_and(serves);
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
        self.clients(encoder, &names::CLIENT_REQUESTS, |client| client.requests)?;
        self.clients(encoder, &names::CLIENT_BYTES, |client| client.bytes)?;
        self.clients(encoder, &names::CLIENT_TIME, |client| client.seconds)?;
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
        self.0.iter().filter_map(|node| Some((node.name.as_str(), node.answer.report()?)))
    }

    pub(super) fn lines(&self) -> impl Iterator<Item = (&str, &Lines)> {
        self.0.iter().filter_map(|node| Some((node.name.as_str(), node.answer.lines()?)))
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
            for ((part, name), values) in of_kind(lines, kind) {
                let labels = [("node", node), (words[0], part), (words[1], name)];
                one(&mut family, &labels, &ConstCounter::new(value(values)))?;
            }
        }
        Ok(())
    }

    /// A figure of each node's clients.
    fn clients(
        &self,
        encoder: &mut DescriptorEncoder,
        metric: &Metric,
        value: impl Fn(&clients::Sums) -> f64,
    ) -> fmt::Result {
        let mut family = begin(encoder, metric)?;
        for (node, lines) in self.lines() {
            let ended = of_kind(lines, "ended");
            for (who, sums) in clients::of(of_kind(lines, "client").chain(ended)) {
                let labels = [
                    ("node", node),
                    ("part", who.part),
                    ("client", who.client.as_str()),
                    ("job", who.job.as_str()),
                ];
                one(&mut family, &labels, &ConstCounter::new(value(&sums)))?;
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

pub(super) fn begin<'a>(
    encoder: &'a mut DescriptorEncoder,
    metric: &'a Metric,
) -> Result<MetricEncoder<'a>, fmt::Error> {
    encoder.encode_descriptor(metric.name, metric.help, metric.unit.as_ref(), metric.kind)
}

pub(super) fn one(
    family: &mut MetricEncoder,
    labels: &Labels,
    value: &impl EncodeMetric,
) -> fmt::Result {
    value.encode(family.encode_family(&labels)?)
}

/// The lines of a kind, with part and name: `op data.read` is (data, read).
fn of_kind<'a>(
    lines: &'a Lines,
    kind: &str,
) -> impl Iterator<Item = ((&'a str, &'a str), &'a Map<String, Value>)> {
    lines.iter().filter_map(move |(line, values)| {
        let name = line.strip_prefix(kind)?.strip_prefix(' ')?;
        Some((name.split_once(['.', ' '])?, values))
    })
}

pub(super) fn number(values: &Map<String, Value>, key: &str) -> f64 {
    values.get(key).and_then(Value::as_f64).unwrap_or(0.0)
}

/// A node's fine buckets as the coarse ones: upper end in seconds, and how many times each has for itself. Whatever a node
/// says, all together are a number.
fn folded(fine: &BTreeMap<usize, u64>) -> Vec<(f64, u64)> {
    let (mut begin, mut left) = (0, u64::MAX);
    let mut count = |range: std::ops::Range<usize>| {
        let sum = fine.range(range).fold(0_u64, |sum, (_, count)| sum.saturating_add(*count));
        let count = sum.min(left);
        left -= count;
        count
    };
    let coarse = DOUBLINGS.map(|doubling| {
        let end = end_of_doubling(doubling);
        let count = count(begin..end);
        begin = end;
        ((1_u64 << doubling) as f64 / 1e9, count)
    });
    let mut all: Vec<_> = coarse.collect();
    all.push((f64::MAX, count(begin..usize::MAX)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use covey_serve::watch::{Detail, Histogram};
    use std::time::Duration;

    const EACCES: u32 = covey_ninep::tree::Errno::EACCES;

    fn look_at(times: &str) -> Answer {
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
        Answer::Full(report, parse(times))
    }

    fn look(times: &str) -> String {
        let node = |name: &str, answer| Node { name: name.into(), roles: "io".into(), answer };
        let up = node("io1", look_at(times));
        Look(vec![up, node("io\"2\n", Answer::None(None))]).text()
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
    fn no_figure_of_a_node_ends_the_look_at_the_others() {
        let (most, far) = (u64::MAX, usize::MAX);
        for buckets in
            [&format!("1:{most},2:{most},90:{most},{far}:{most}"), "-", ":", "7", "a:b,-1:-1"]
        {
            let line = format!(
                "op data.read errors {most} bytes -1 count {most} sum_ns x buckets {buckets}\n"
            );
            let text = look(&format!(
                "{line}{line}client data \"a\" count {most} bytes {most}\nop\nop \"\n"
            ));
            assert!(text.ends_with("# EOF\n"), "{text}");
        }
    }

    #[test]
    fn connections_of_one_client_are_one_with_those_that_have_ended() {
        let line = "client meta \"ann@node7 job 12 pid 40\" bytes 3 count 2 sum_ns 500000000\n";
        let ended = "ended meta \"ann@node7 job 12\" bytes 3 count 2 sum_ns 500000000\n";
        let text = look(&format!("{}{}{ended}", line.repeat(2), line.replace("40", "41")));
        let labels = r#"node="io1",part="meta",client="ann@node7",job="12""#;
        for (name, value) in [("requests", "8.0"), ("bytes", "12.0"), ("seconds", "2.0")] {
            let line = format!("covey_client_{name}_total{{{labels}}} {value}\n");
            assert!(text.contains(&line), "no {line} in {text}");
        }
    }

    #[test]
    fn volumes_are_told_with_what_they_did_and_closed_ones_without_a_size() {
        let counts = "reads 3 read_bytes 4096 writes 2 write_bytes 1024 flushes 1 other_changes 5 failures 6";
        let text = look(&format!(
            "volume \"disk\" open 1 bytes 1000 sessions 2 {counts}\n\
             volume \"away\" open 0 bytes 0 sessions 0 {counts}\n"
        ));
        let disk = r#"node="io1",volume="disk""#;
        for line in [
            format!("covey_volume_open{{{disk}}} 1.0\n"),
            format!("covey_volume_size_bytes{{{disk}}} 1000.0\n"),
            format!("covey_volume_sessions{{{disk}}} 2.0\n"),
            format!("covey_volume_requests_total{{{disk},operation=\"flush\"}} 1.0\n"),
            format!("covey_volume_bytes_total{{{disk},operation=\"read\"}} 4096.0\n"),
            format!("covey_volume_failures_total{{{disk}}} 6.0\n"),
            r#"covey_volume_open{node="io1",volume="away"} 0.0"#.to_owned(),
        ] {
            assert!(text.contains(&line), "no {line} in {text}");
        }
        assert_eq!(text.matches("covey_volume_size_bytes{").count(), 1, "{text}");
    }

    #[test]
    fn who_may_not_read_figures_is_no_sign_that_a_node_is_down() {
        let Answer::Full(report, lines) = look_at("data.reads 7\n") else { unreachable!() };
        let error = || Error::from(covey_ninep::tree::Errno::from(EACCES));
        let plain = || Answer::Plain(report.clone(), error());
        let looked = |answers: Vec<Answer>| {
            let node = |answer| Node { name: "io1".into(), roles: "io".into(), answer };
            Look(answers.into_iter().map(node).collect())
        };
        let refusal = looked(vec![Answer::None(None), plain()]).refusal().expect("a refusal");
        assert!(refusal.message.contains("cannot read /times of io1"), "{}", refusal.message);
        let text = looked(vec![plain()]).text();
        assert!(text.contains("covey_up{node=\"io1\",roles=\"io\"} 1\n"), "{text}");
        // One node that does so is no reason to watch none.
        let one = looked(vec![Answer::Full(report.clone(), lines), plain()]);
        assert!(one.refusal().is_none());
        assert!(looked(vec![Answer::None(None)]).refusal().is_none());
    }
}
