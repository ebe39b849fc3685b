//! A measurement as it is told: in words, as JSON, CSV and in NetPIPE's form.

use super::environment::Environment;
use super::provenance::Provenance;
use covey_lab::units::{rate_text, time_text};
use covey_plot::graph::{Axis, plot};
use covey_plot::table;
use covey_tune::diagnose::Verdict;
use covey_tune::wire::Wire;
use covey_tune::{Curve, Estimate, Pick, Quantities};
use serde::{Deserialize, Serialize};
use std::io::Write;

/// One pair of hosts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Who asked.
    pub from: String,
    /// Who answered.
    pub to: String,
    /// Over what.
    pub protocol: String,
    /// How both ends waited for each other: it decides the latency.
    pub wait: String,
    /// Each size.
    pub points: Vec<Row>,
    /// What follows from the median times.
    pub typical: Option<Quantities>,
    /// What follows from the least times.
    pub best: Option<Quantities>,
    /// Long transfers alone, there and back, in bits per second.
    pub streams: Option<[f64; 2]>,
    /// The same two at once.
    pub both_at_once: Option<[f64; 2]>,
    /// What is wrong with the link, if anything.
    pub verdict: Verdict,
    /// How the machine was meanwhile.
    pub environment: Environment,
    /// Why it ended before its time.
    pub failure: Option<String>,
    /// The wire between them, where it is known.
    #[serde(default)]
    pub wire: Option<Wire>,
    /// Where the numbers come from.
    #[serde(default)]
    pub provenance: Provenance,
}

/// One size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The block's size.
    pub bytes: u64,
    /// Round trips measured.
    pub samples: usize,
    /// One way in seconds: the least,
    pub min_s: f64,
    /// what one tenth falls below,
    pub p10_s: f64,
    /// the median,
    pub median_s: f64,
    /// where that lies with 95 % confidence,
    #[serde(default)]
    pub median_95_s: Option<(f64, f64)>,
    /// and the greatest.
    pub max_s: f64,
    /// The least mean of a pass, NetPIPE's statistic.
    pub trial_s: f64,
    /// Segments sent again, both ends.
    pub retransmits: u64,
}

/// Which graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Graph {
    /// Throughput against block size.
    #[default]
    Throughput,
    /// Throughput against time.
    Signature,
    /// Block size against time.
    Saturation,
    /// None.
    None,
}

/// The sizes of a curve.
pub fn rows(curve: &Curve) -> Vec<Row> {
    let row = |point: &covey_tune::Point| Row {
        bytes: point.bytes,
        samples: point.times_s.len(),
        min_s: point.time_s(Pick::Best),
        p10_s: point.time_s(Pick::Low),
        median_s: point.time_s(Pick::Typical),
        median_95_s: Some(point.median_interval_s()),
        max_s: point.times_s.last().copied().unwrap_or(f64::NAN),
        trial_s: point.trial_s,
        retransmits: point.retransmits,
    };
    curve.points.iter().map(row).collect()
}

impl Report {
    /// In words.
    pub fn tell(&self, out: &mut Vec<u8>, graph: Graph) -> std::io::Result<()> {
        let (sizes, last) = (self.points.len(), self.points.last().map_or(0, |row| row.bytes));
        writeln!(
            out,
            "{} to {} over {} ({}), {sizes} sizes up to {last} bytes, {:.1} s\n",
            self.from, self.to, self.protocol, self.wait, self.environment.seconds
        )?;
        if let Some(text) = self.graph(graph) {
            writeln!(out, "{text}")?;
        }
        match &self.typical {
            Some(found) => quantities(out, found)?,
            None => writeln!(
                out,
                "too few sizes were measured to say more, or longer blocks took no longer"
            )?,
        }
        let again: u64 = self.points.iter().map(|row| row.retransmits).sum();
        if again > 0 {
            writeln!(out, "\n{again} segments had to be sent again")?;
        }
        if let (Some([there, back]), Some(both)) = (self.streams, self.both_at_once) {
            let text = |bits: f64| rate_text(Some(bits as u64));
            writeln!(
                out,
                "\nlong transfers: {} there, {} back; at once {} and {}",
                text(there),
                text(back),
                text(both[0]),
                text(both[1])
            )?;
        }
        tell_verdict(out, &self.verdict)?;
        match self.environment.warning() {
            Some(warning) => writeln!(out, "\nwarning: {warning}"),
            None => Ok(()),
        }
    }

    fn graph(&self, graph: Graph) -> Option<String> {
        let bytes = Axis { name: "bytes", is_log: true, write: |value| format!("{value:.0}") };
        let time =
            Axis { name: "one way", is_log: true, write: |value| time_text((value * 1e9) as u64) };
        let rate =
            Axis { name: "Mbit/s", is_log: false, write: |value| format!("{:.1}", value / 1e6) };
        let points = |of: fn(&Row) -> (f64, f64)| self.points.iter().map(of).collect::<Vec<_>>();
        match graph {
            Graph::Throughput => {
                Some(plot(&points(|row| (row.bytes as f64, row.bits_per_s())), bytes, rate))
            }
            Graph::Signature => {
                Some(plot(&points(|row| (row.median_s, row.bits_per_s())), time, rate))
            }
            Graph::Saturation => {
                Some(plot(&points(|row| (row.median_s, row.bytes as f64)), time, bytes))
            }
            Graph::None => None,
        }
    }

    /// As values separated by commas.
    pub fn csv(&self) -> String {
        let mut text =
            "bytes,samples,min_s,p10_s,median_s,max_s,bits_per_s,retransmits\n".to_string();
        for row in &self.points {
            let Row { bytes, samples, min_s, p10_s, median_s, max_s, retransmits, .. } = row;
            text.push_str(&format!(
                "{bytes},{samples},{min_s:.9},{p10_s:.9},{median_s:.9},{max_s:.9},{:.0},{retransmits}\n",
                row.bits_per_s()
            ));
        }
        text
    }

    /// In NetPIPE's form, which holds the least mean of a trial.
    pub fn netpipe(&self) -> String {
        let points =
            self.points.iter().map(|row| covey_tune::Point::new(row.bytes, vec![row.trial_s]));
        covey_tune::netpipe::write(&Curve::new(points), Pick::Best)
    }
}

impl Row {
    /// Throughput by the median time.
    pub fn bits_per_s(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.median_s
    }
}

/// Cause, evidence and remedy.
pub fn tell_verdict(out: &mut Vec<u8>, verdict: &Verdict) -> std::io::Result<()> {
    match verdict {
        Verdict::NoFault => writeln!(out, "\nno fault found"),
        Verdict::NotTrustworthy(why) => writeln!(out, "\nno diagnosis: {why}"),
        Verdict::Faults(findings) => findings.iter().try_for_each(|finding| {
            writeln!(out, "\nfault: {}", finding.cause.words())?;
            writeln!(out, "  because {}", finding.evidence)?;
            writeln!(out, "  remedy: {}", finding.remedy)
        }),
    }
}

/// A table of what a curve says, with intervals and definitions.
pub fn quantities(out: &mut Vec<u8>, found: &Quantities) -> std::io::Result<()> {
    let time = |seconds: f64| time_text((seconds * 1e9).max(0.0).round() as u64);
    let rate = |bits: f64| rate_text(Some(bits.max(0.0) as u64));
    let bytes = |count: f64| format!("{count:.0} B");
    let line = |name: &str, one: Option<Estimate>, write: &dyn Fn(f64) -> String, what: &str| {
        let (value, interval) = match one {
            Some(one) => (write(one.value), format!("{} to {}", write(one.low), write(one.high))),
            None => ("-".to_string(), "not within these sizes".to_string()),
        };
        vec![name.to_string(), value, interval, what.to_string()]
    };
    let rows = [
        line("latency", Some(found.latency_s), &time, "T at 0 bytes, from blocks up to 32"),
        line(
            "bandwidth",
            Some(found.bandwidth_bits_per_s),
            &rate,
            "slope of T over the last two octaves",
        ),
        line("peak", Some(found.peak_bits_per_s), &rate, "greatest throughput of any block"),
        line("saturation point", found.saturation_bytes, &bytes, "T stays above 1.18 latencies"),
        line("n1/2", Some(found.half_bytes), &bytes, "latency times bandwidth"),
        line("n95", found.plateau_bytes, &bytes, "throughput stays above 95 % of bandwidth"),
    ];
    table(out, &["", ">MEDIAN", "95 % WITHIN", "DEFINITION"], &rows);
    Ok(())
}
