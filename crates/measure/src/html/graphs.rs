//! NetPIPE's three graphs of measured links.

use crate::report::{Report, Row};
use covey_plot::chart::{Axis, Chart, Guide, Mark, Run, Sample, Series, Unit};
use covey_tune::wire::Wire;
use covey_tune::{Curve, Pick, Point, Quantities, sizes};

/// So many curves have words; the others are thin lines.
pub const CURVES_MAX: usize = 5;
/// Curves whose peaks differ by more have an axis of equal factors.
const FACTOR_MAX: f64 = 6.0;

/// Which graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Throughput against block size.
    Throughput,
    /// Throughput against time.
    Signature,
    /// Block size against time.
    Saturation,
}

impl Kind {
    /// All three.
    pub const ALL: [Kind; 3] = [Kind::Throughput, Kind::Signature, Kind::Saturation];

    /// A word for files and anchors.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Throughput => "throughput",
            Kind::Signature => "signature",
            Kind::Saturation => "saturation",
        }
    }

    /// Its heading.
    pub fn title(self) -> &'static str {
        match self {
            Kind::Throughput => "Throughput graph",
            Kind::Signature => "Network signature graph",
            Kind::Saturation => "Saturation graph",
        }
    }

    /// What it is good for.
    pub fn caption(self) -> &'static str {
        match self {
            Kind::Throughput => {
                "How fast blocks of each size travel. The dashed level is the bandwidth: what each further \
                 byte of a long block allows. n95 is where a curve has reached 95 % of it."
            }
            Kind::Signature => {
                "The same against the time one way takes. Where a curve leaves the axis on the left is its \
                 latency: no block is faster."
            }
            Kind::Saturation => {
                "How large a block may be for the time it takes. From the saturation point S on, longer blocks \
                 take longer; from S to n95 lies the window in which a program chooses its blocks."
            }
        }
    }
}

/// Draws one graph of all links. The first few have words: those that the reader named first.
pub fn chart(kind: Kind, links: &[Report]) -> Chart {
    let axis = |name: &str, unit, run| Axis { name: name.to_string(), unit, run };
    let peaks = links
        .iter()
        .filter_map(peak)
        .fold((f64::MAX, 0.0), |(low, high): (f64, f64), one| (low.min(one), high.max(one)));
    let run = if peaks.1 > FACTOR_MAX * peaks.0 { Run::Log } else { Run::Linear };
    let size = axis("Block size", Unit::Bytes, Run::Log);
    let time = axis("Time of one way", Unit::Seconds, Run::Log);
    let rate = axis("Throughput", Unit::BitsPerSecond, run);
    let (x, y) = match kind {
        Kind::Throughput => (size, rate),
        Kind::Signature => (time, rate),
        Kind::Saturation => (time, size),
    };
    let names: Vec<String> = links.iter().map(name).collect();
    Chart {
        id: kind.word().to_string(),
        title: kind.title().to_string(),
        about: about(links),
        x,
        y,
        series: links
            .iter()
            .zip(distinct(&names))
            .enumerate()
            .map(|(index, (link, name))| series(kind, link, name, index >= CURVES_MAX))
            .collect(),
        guides: wires(links).into_iter().map(|wire| guide(kind, &wire, links)).collect(),
    }
}

fn peak(link: &Report) -> Option<f64> {
    link.points.iter().map(Row::bits_per_s).filter(|rate| rate.is_finite()).reduce(f64::max)
}

fn name(link: &Report) -> String {
    format!("{}, {} → {}", link.protocol, link.from, link.to)
}

/// Where all names end alike, the end says nothing; where two are the same, a number tells them apart.
fn distinct(names: &[String]) -> Vec<String> {
    let pair = |name: &String| name.split_once(", ").map(|(_, pair)| pair.to_string());
    let is_one_pair = names.len() > 1 && names.iter().all(|one| pair(one) == pair(&names[0]));
    let short: Vec<String> = names
        .iter()
        .map(|name| {
            if is_one_pair {
                name.split_once(", ").map_or(name.clone(), |(head, _)| head.to_string())
            } else {
                name.clone()
            }
        })
        .collect();
    let numbered = short.iter().enumerate().map(|(index, name)| {
        let earlier = short[..index].iter().filter(|other| *other == name).count();
        if earlier > 0 { format!("{name} ({})", earlier + 1) } else { name.clone() }
    });
    numbered.collect()
}

fn curve(link: &Report, time_s: impl Fn(&Row) -> f64) -> Curve {
    Curve::new(link.points.iter().map(|row| Point::new(row.bytes, vec![time_s(row)])))
}

fn graph(kind: Kind, curve: &Curve) -> Vec<(f64, f64)> {
    match kind {
        Kind::Throughput => curve.throughput(Pick::Typical),
        Kind::Signature => curve.signature(Pick::Typical),
        Kind::Saturation => curve.saturation(Pick::Typical),
    }
}

fn series(kind: Kind, link: &Report, name: String, is_faint: bool) -> Series {
    let found = link.typical.as_ref();
    let middle = curve(link, |row| row.median_s);
    let points: Vec<Sample> = graph(kind, &middle)
        .into_iter()
        .zip(&link.points)
        .map(|(at, row)| Sample { at, hover: hover(&name, row) })
        .collect();
    let edge = |pick: fn((f64, f64)) -> f64| {
        graph(kind, &curve(link, |row| row.median_95_s.map_or(row.median_s, pick)))
    };
    let has_band = link.points.iter().any(|row| row.median_95_s.is_some());
    let mut band = if has_band { edge(|interval| interval.0) } else { Vec::new() };
    if has_band {
        band.extend(edge(|interval| interval.1).into_iter().rev());
    }
    let at = |bytes: f64| {
        let points = middle.points.iter().zip(&points);
        let found = points.min_by(|(one, _), (other, _)| {
            (one.bytes as f64 - bytes).abs().total_cmp(&(other.bytes as f64 - bytes).abs())
        });
        found.map(|(_, sample)| sample.at)
    };
    Series {
        marks: if is_faint { Vec::new() } else { marks(found, at) },
        level: found.filter(|_| kind != Kind::Saturation && !is_faint).map(|found| {
            let bandwidth = found.bandwidth_bits_per_s.value;
            (bandwidth, Unit::BitsPerSecond.text(bandwidth))
        }),
        name,
        points,
        band: if is_faint { Vec::new() } else { band },
        is_faint,
    }
}

fn marks(found: Option<&Quantities>, at: impl Fn(f64) -> Option<(f64, f64)>) -> Vec<Mark> {
    let Some(found) = found else { return Vec::new() };
    let named = [("S", found.saturation_bytes), ("n95", found.plateau_bytes)];
    let marks = named.into_iter().filter_map(|(name, estimate)| {
        let bytes = estimate?.value;
        Some(Mark { at: at(bytes)?, text: format!("{name} {}", Unit::Bytes.text(bytes)) })
    });
    marks.collect()
}

fn hover(name: &str, row: &Row) -> String {
    let time = |seconds: f64| Unit::Seconds.text(seconds);
    let interval = match row.median_95_s {
        Some((low, high)) => format!(" ({} to {})", time(low), time(high)),
        None => String::new(),
    };
    let again = match row.retransmits {
        0 => String::new(),
        count => format!("\n{count} segments sent again"),
    };
    format!(
        "{name}\n{} bytes: {}{interval}\n{}\nleast {}, greatest {}, {} round trips{again}",
        row.bytes,
        time(row.median_s),
        Unit::BitsPerSecond.text(row.bits_per_s()),
        time(row.min_s),
        time(row.max_s),
        row.samples
    )
}

/// Every wire once.
fn wires(links: &[Report]) -> Vec<Wire> {
    let mut found: Vec<Wire> = Vec::new();
    for wire in links.iter().filter_map(|link| link.wire) {
        if !found.contains(&wire) {
            found.push(wire);
        }
    }
    found
}

/// What the wire alone would take: no host, no latency, only the bits of the frames.
fn guide(kind: Kind, wire: &Wire, links: &[Report]) -> Guide {
    let most = links.iter().flat_map(|link| &link.points).map(|row| row.bytes).max().unwrap_or(0);
    let points = sizes(most.max(64), 0).into_iter();
    let curve = Curve::new(points.map(|bytes| Point::new(bytes, vec![wire.time_s(bytes)])));
    let rate = Unit::BitsPerSecond.text(wire.bits_per_s);
    let tcp = Unit::BitsPerSecond.text(wire.tcp_bits_per_s());
    let name = format!("the wire alone: {rate}, {tcp} for TCP");
    Guide { name, points: graph(kind, &curve), is_result: false }
}

fn about(links: &[Report]) -> String {
    let told = links.iter().take(CURVES_MAX).map(|link| match &link.typical {
        None => format!("{}: too few sizes.", name(link)),
        Some(found) => format!(
            "{}: latency {}, bandwidth {}.",
            name(link),
            Unit::Seconds.text(found.latency_s.value),
            Unit::BitsPerSecond.text(found.bandwidth_bits_per_s.value)
        ),
    });
    told.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_short_as_they_may_be() {
        let of = |names: &[&str]| {
            distinct(&names.iter().map(|name| name.to_string()).collect::<Vec<_>>())
        };
        assert_eq!(of(&["TCP, n1 → n2"]), ["TCP, n1 → n2"]);
        assert_eq!(of(&["TCP, n1 → n2", "Open MPI, n1 → n2"]), ["TCP", "Open MPI"]);
        assert_eq!(of(&["TCP, n1 → n2", "TCP, n1 → n2"]), ["TCP", "TCP (2)"]);
        assert_eq!(of(&["TCP, n1 → n2", "TCP, n1 → n3"]), ["TCP, n1 → n2", "TCP, n1 → n3"]);
    }
}
