//! From what links can do to the parameters of everything that uses them.
//!
//! Each choice has its rule, the evidence, and the interval in which it would lie when the experiment was
//! repeated. Where several links are used alike, the one that asks for the most decides: what is long enough for
//! it is long enough for all.

use crate::quantities::Quantities;
use crate::statistics::Estimate;
use serde::{Deserialize, Serialize};

/// A parameter with its reasons.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    /// What was chosen, in bytes or in bits per second.
    pub value: u64,
    /// The least that would be chosen with 95 % confidence.
    pub low: u64,
    /// The greatest.
    pub high: u64,
    /// How it follows from the evidence.
    pub rule: String,
    /// What was measured.
    pub evidence: String,
}

/// All of them; one that the evidence does not support is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choices {
    /// Bytes of a file on one server before the next one has some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strip: Option<Choice>,
    /// Payload of one message of the file protocol, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub msize: Option<Choice>,
    /// The longest block that is sent before the receiver has asked for it, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eager_limit: Option<Choice>,
    /// What a connection must be able to have on its way, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket_buffer: Option<Choice>,
    /// Rows of a square block of doubles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_order: Option<Choice>,
    /// What bulk transfers may take of a link, in bits per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pacing: Option<Choice>,
    /// To how many others a node passes on what is spread to many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fan_out: Option<Choice>,
}

/// Strips are not made shorter than this: each has a request of its own on a disk.
const STRIP_BYTES_MIN: u64 = 64 << 10;
/// Messages are not made shorter than this: each costs CPU at both ends.
pub const MSIZE_MIN: u64 = 256 << 10;
/// Nor longer, which is what every server takes.
pub const MSIZE_MAX: u64 = 1 << 20;
/// Nobody passes on to more than this: each has a connection and chunks on their way.
pub const FAN_OUT_MAX: u64 = 64;
/// What the fan-out is chosen for.
const SPREAD_BYTES: f64 = (16 << 20) as f64;
const SPREAD_NODES: u64 = 256;
/// What is passed on as soon as it is there.
const SPREAD_CHUNK_BYTES: f64 = (128 << 10) as f64;
/// What a node does before it passes on anything: connect, prove, attach, open, announce.
const SPREAD_LATENCIES: f64 = 16.0;
/// What a paced transfer leaves free, so that no queue grows before a message.
const PACED: f64 = 0.95;

/// Chooses. Links without numbers, and those with a fault, must not be among them.
pub fn choose(links: &[Quantities]) -> Choices {
    let plateau = worst(links.iter().filter_map(|link| link.plateau_bytes));
    let saturation = worst(links.iter().filter_map(|link| link.saturation_bytes));
    let half = worst(links.iter().map(|link| link.half_bytes));
    let slowest = links
        .iter()
        .map(|link| link.bandwidth_bits_per_s)
        .min_by(|one, other| one.value.total_cmp(&other.value));
    Choices {
        strip: plateau.map(|n95| {
            let power = |bytes: f64| (bytes.ceil() as u64).next_power_of_two().max(STRIP_BYTES_MIN);
            let rule = "the power of two from n95 on, 64 KiB at least: one strip then has 95 % of the bandwidth";
            from(n95, power, rule, format!("n95 is {:.0} bytes", n95.value))
        }),
        msize: plateau.map(|n95| {
            let power = |bytes: f64| {
                ((8.0 * bytes).ceil() as u64).next_power_of_two().clamp(MSIZE_MIN, MSIZE_MAX)
            };
            let rule = "the power of two from eight n95 on, 256 KiB to 1 MiB: the latency then costs a hundredth, and longer ones only make others wait";
            from(n95, power, rule, format!("n95 is {:.0} bytes", n95.value))
        }),
        eager_limit: plateau.map(|n95| {
            let power = |bytes: f64| (bytes.ceil() as u64).next_power_of_two();
            let rule = "the power of two from n95 on: a handshake of two latencies then costs a tenth at most";
            from(n95, power, rule, format!("n95 is {:.0} bytes", n95.value))
        }),
        socket_buffer: half.map(|half| {
            let rule = "two round trips of bandwidth, 16 KiB at least; kernels that grow buffers by themselves need no setting";
            let bytes = |half: f64| ((4.0 * half) as u64).next_power_of_two().max(16 << 10);
            from(half, bytes, rule, format!("n1/2, latency times bandwidth, is {:.0} bytes", half.value))
        }),
        block_order: saturation.zip(plateau).map(|(saturation, n95)| {
            let order = |bytes: f64| (bytes / 8.0).sqrt();
            let (low, high) = (order(saturation.value).ceil() as u64, order(n95.value).floor() as u64);
            let value = [64, 32, 16, 8].into_iter().find(|nb| *nb <= high).unwrap_or(high.max(1));
            Choice {
                value: value.max(low).min(high.max(1)),
                low: low.min(high.max(1)),
                high: high.max(1),
                rule: "64, 32, 16 or 8, whatever fits between the saturation point and n95".to_string(),
                evidence: format!(
                    "S is {:.0} bytes, n95 {:.0}: orders {low} to {high} of doubles",
                    saturation.value, n95.value
                ),
            }
        }),
        pacing: slowest.map(|rate| {
            let rule = "95 % of the slowest link's bandwidth, of its interval's lower end: no queue grows";
            let told = format!("the slowest link carries {:.0} bit/s", rate.value);
            let paced = |bits: f64| (PACED * bits) as u64;
            Choice { value: paced(rate.low), ..from(rate, paced, rule, told) }
        }),
        fan_out: half.zip(slowest).map(|(half, rate)| fan_out(half, rate)),
    }
}

/// The shortest time of a tree. `half` is latency times bandwidth in bytes, so that times are counted in bytes at
/// that bandwidth: copies leave a node one after the other, and each level adds its greeting and a chunk.
fn fan_out(half: Estimate, rate: Estimate) -> Choice {
    let bytes_of = |half: f64, order: u64| {
        let (copies, levels) = (order as f64, f64::from(levels(SPREAD_NODES, order)));
        copies * SPREAD_BYTES + levels * (SPREAD_LATENCIES * half + copies * SPREAD_CHUNK_BYTES)
    };
    let best = |half: f64| {
        let orders = 1..=FAN_OUT_MAX;
        let shorter =
            |one: &u64, other: &u64| bytes_of(half, *one).total_cmp(&bytes_of(half, *other));
        orders.min_by(shorter).unwrap_or(1)
    };
    let rule = "the fan-out that brings 16 MiB to 256 nodes first: each copy takes a node's port, each level sixteen latencies and a chunk for each copy";
    let told = format!(
        "n1/2, latency times bandwidth, is {:.0} bytes; the slowest link carries {:.0} bit/s",
        half.value, rate.value
    );
    from(half, best, rule, told)
}

/// How many levels a tree has in which each serves `fan_out` others.
fn levels(nodes: u64, fan_out: u64) -> u32 {
    let (mut reached, mut levels) = (0, 0);
    while reached < nodes {
        reached = (reached + 1) * fan_out;
        levels += 1;
    }
    levels
}

fn worst(all: impl Iterator<Item = Estimate>) -> Option<Estimate> {
    all.max_by(|one, other| one.value.total_cmp(&other.value))
}

fn from(one: Estimate, of: impl Fn(f64) -> u64, rule: &str, evidence: String) -> Choice {
    let (value, low, high) = (of(one.value), of(one.low), of(one.high));
    Choice { value, low, high, rule: rule.to_string(), evidence }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Curve, Point, sizes};

    fn link(latency_s: f64, bits_per_s: f64) -> Quantities {
        let time = |bytes: u64| latency_s + bytes as f64 * 8.0 / bits_per_s;
        let points = sizes(8 << 20, 3).into_iter();
        Quantities::of(&Curve::new(points.map(|bytes| Point::new(bytes, vec![time(bytes); 7]))))
            .unwrap()
    }

    #[test]
    fn erato_1s_block_order_is_chosen_from_its_mpi() {
        // 123 us, 82.67 of NetPIPE's megabits; the paper found 32 or 64 best.
        let found = choose(&[link(123e-6, 86.69e6)]);
        let order = found.block_order.unwrap();
        assert_eq!(order.value, 32, "{order:?}");
        assert!(
            order.low >= 5 && order.low <= 7 && order.high >= 56 && order.high <= 64,
            "{order:?}"
        );
        assert_eq!(found.strip.unwrap().value, 64 << 10);
        // n95 is 25 kB there.
        assert_eq!(found.msize.unwrap().value, 256 << 10);
    }

    #[test]
    fn the_link_that_asks_for_most_decides_and_the_slowest_paces() {
        let found = choose(&[link(57e-6, 94e6), link(40e-6, 941e6)]);
        // n1/2 is 4705 bytes there, n95 some 90,000.
        assert_eq!(found.strip.unwrap().value, 128 << 10);
        assert_eq!(found.msize.unwrap().value, 1 << 20);
        let pacing = found.pacing.unwrap();
        assert!((pacing.value as f64 / (0.95 * 94e6) - 1.0).abs() < 0.01, "{pacing:?}");
        assert_eq!(choose(&[]), Choices::default());
    }

    #[test]
    fn the_longer_the_latency_the_flatter_the_tree() {
        let of = |latency, rate| choose(&[link(latency, rate)]).fan_out.unwrap().value;
        assert_eq!(of(50e-6, 1e9), 2, "gigabit");
        // 16 MiB take 16 ms; each level of the tree costs more than that.
        assert!(of(5e-3, 8e9) > 4, "{}", of(5e-3, 8e9));
        assert_eq!((levels(256, 1), levels(6, 2), levels(7, 2), levels(0, 3)), (256, 2, 3, 0));
    }
}
