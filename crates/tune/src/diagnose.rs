//! From measurements of a link to the cause of what is wrong with it.
//!
//! Each rule needs evidence that nothing else explains, and names it. What the rules cannot tell apart they do
//! not guess: then there is no finding. On a machine whose CPUs others use, times and retransmissions mean
//! nothing, and the verdict says that instead; only a block that never passes, tried again on a
//! new connection, is believed all the same.

use crate::curve::{Curve, Point};
use serde::{Deserialize, Serialize};

/// Above this share of the time in which programs waited for a CPU, nothing is concluded.
pub const PRESSURE_MAX: f64 = 0.10;
/// One way must be so many times faster than the other to be called so.
const ASYMMETRY: f64 = 1.25;
/// Two streams at once that carry less than so many times one of them share the medium.
const DUPLEX: f64 = 1.3;
/// A link whose speed is so near to that of the machine says nothing about the wire.
const MACHINE_SHARE: f64 = 0.3;
/// Slower than its peers by this factor is slow.
const SLOW: f64 = 0.8;
/// Fewer retransmissions may be chance or a timer that was early.
const RETRANSMITS_MIN: u64 = 8;
/// Lost segments of a thousand.
const LOSS_PER_MILLE_MIN: f64 = 0.3;

/// What was measured of one link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// Blocks to and fro.
    pub curve: Curve,
    /// A block that never passed.
    pub stalled: Option<Stall>,
    /// Long transfers, bits per second: there, back.
    pub streams: Option<[f64; 2]>,
    /// The same two at once.
    pub both_at_once: Option<[f64; 2]>,
    /// TCP payload of a full segment.
    pub segment_bytes: u64,
    /// What this machine moves without any wire, where that is known.
    pub machine_bits_per_s: Option<f64>,
    /// What links of the same kind carry.
    pub expected_bits_per_s: Option<f64>,
    /// Share of the time in which programs waited for a CPU.
    pub cpu_pressure: Option<f64>,
}

/// A block that never passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stall {
    /// Its size.
    pub bytes: u64,
    /// The longest that did pass.
    pub passed_bytes: u64,
    /// On a new connection the one passed again and the other did not.
    pub confirmed: bool,
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// Packets beyond a length vanish.
    MtuBlackHole,
    /// Packets of any length are lost by chance.
    Loss,
    /// Long packets are lost, short ones are not.
    LengthDependentLoss,
    /// Trains of packets are lost from a certain length on.
    ShortQueue,
    /// One way is slower than the other.
    Asymmetric,
    /// Only one end can send at a time.
    HalfDuplex,
    /// Slower than links of its kind.
    Slow,
}

impl Cause {
    /// What a person calls it.
    pub fn words(self) -> &'static str {
        match self {
            Cause::MtuBlackHole => "an MTU black hole: long packets vanish",
            Cause::Loss => "packets are lost",
            Cause::LengthDependentLoss => "long packets are lost",
            Cause::ShortQueue => "a short queue or a policer: long trains of packets are cut",
            Cause::Asymmetric => "one way is slower than the other",
            Cause::HalfDuplex => "half duplex: only one end can send at a time",
            Cause::Slow => "slower than links of its kind",
        }
    }
}

/// A cause with its reasons.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What is wrong.
    pub cause: Cause,
    /// From what that follows.
    pub evidence: String,
    /// What to do.
    pub remedy: String,
}

/// The result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Nothing that the rules know is wrong.
    NoFault,
    /// These are.
    Faults(Vec<Finding>),
    /// Nothing can be said, for this reason.
    NotTrustworthy(String),
}

/// Concludes.
pub fn diagnose(evidence: &Evidence) -> Verdict {
    if let Some(finding) = black_hole(evidence) {
        return Verdict::Faults(vec![finding]);
    }
    if let Some(pressure) = evidence.cpu_pressure.filter(|pressure| *pressure > PRESSURE_MAX) {
        return Verdict::NotTrustworthy(format!(
            "programs waited for a CPU during {:.0} % of the measurement",
            100.0 * pressure
        ));
    }
    let lossy = loss(evidence);
    // Lost packets slow everything down: they are the cause then.
    let slow = match lossy {
        Some(_) => None,
        None => half_duplex(evidence).or_else(|| asymmetric(evidence)).or_else(|| slow(evidence)),
    };
    let findings: Vec<Finding> = lossy.into_iter().chain(slow).collect();
    if findings.is_empty() { Verdict::NoFault } else { Verdict::Faults(findings) }
}

fn black_hole(evidence: &Evidence) -> Option<Finding> {
    let stall = evidence.stalled.filter(|stall| stall.confirmed)?;
    // Blocks of several segments that stall do not show which packet it was.
    let is_one_packet = stall.passed_bytes < evidence.segment_bytes;
    is_one_packet.then(|| Finding {
        cause: Cause::MtuBlackHole,
        evidence: format!(
            "blocks up to {} bytes pass, blocks of {} never do, on a second connection neither",
            stall.passed_bytes, stall.bytes
        ),
        remedy: "give all cards and switch ports on the way the same MTU; `ping -M do -s SIZE` \
                 finds where packets vanish"
            .to_string(),
    })
}

/// How many segments were sent for a point, both ways, and how many of them again.
fn segments(point: &Point, segment_bytes: u64) -> u64 {
    2 * point.times_s.len() as u64 * point.bytes.div_ceil(segment_bytes.max(1))
}

#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    segments: u64,
    again: u64,
}

fn sent<'a>(points: impl Iterator<Item = &'a Point>, segment_bytes: u64) -> Sent {
    points.fold(Sent::default(), |sum, point| Sent {
        segments: sum.segments + segments(point, segment_bytes),
        again: sum.again + point.retransmits,
    })
}

impl Sent {
    fn per_mille(self) -> f64 {
        1000.0 * self.again as f64 / self.segments.max(1) as f64
    }

    /// Enough to be no accident.
    fn is_loss(self) -> bool {
        self.again >= RETRANSMITS_MIN && self.per_mille() >= LOSS_PER_MILLE_MIN
    }

    /// It would have shown a loss like that of `other`: as often, it would have met so many.
    fn would_have_shown(self, other: Sent) -> bool {
        self.segments as f64 * other.per_mille() / 1000.0 >= RETRANSMITS_MIN as f64
    }
}

/// Which packets are lost: all, long ones, or only those of long trains.
fn loss(evidence: &Evidence) -> Option<Finding> {
    let segment = evidence.segment_bytes;
    let points = &evidence.curve.points;
    let of = |from: u64, to: u64| {
        sent(points.iter().filter(|point| (from..to).contains(&point.bytes)), segment)
    };
    let (short, single) = (of(0, segment / 2), of(segment / 2, segment + 1));
    let trains = of(segment + 1, u64::MAX);
    if short.is_loss() {
        return Some(Finding {
            cause: Cause::Loss,
            evidence: format!(
                "{} of {} segments had to be sent again in blocks of less than {} bytes, \
                 {:.2} %",
                short.again,
                short.segments,
                segment / 2,
                short.per_mille() / 10.0
            ),
            remedy: "replace the cable, then the card, then try another port of the switch".into(),
        });
    }
    // Packets of more than half a segment that are alone.
    if single.is_loss() && short.would_have_shown(single) {
        return Some(Finding {
            cause: Cause::LengthDependentLoss,
            evidence: format!(
                "blocks of one long packet lose {:.1} % of their segments, short ones {} of {}",
                single.per_mille() / 10.0,
                short.again,
                short.segments
            ),
            remedy: "a bad cable or card damages long packets first: replace the cable, then the \
                     card"
                .into(),
        });
    }
    let begins = points.iter().find(|point| point.bytes > segment && point.retransmits > 0)?;
    let clean = of(0, begins.bytes);
    (trains.is_loss() && begins.bytes > 2 * segment && clean.would_have_shown(trains)).then(|| {
        Finding {
            cause: Cause::ShortQueue,
            evidence: format!(
                "blocks of {} bytes and more lose segments, {} in all, and shorter ones none: a \
                 train of {} packets does not fit",
                begins.bytes,
                trains.again,
                begins.bytes.div_ceil(segment)
            ),
            remedy: "a card or switch port with too short a queue, or a policer: another port or \
                     card, or less at a time (`net.ipv4.tcp_notsent_lowat`, pacing)"
                .into(),
        }
    })
}

/// Whether the wire and not the machine decides how fast it is.
fn wire_decides(evidence: &Evidence, bits_per_s: f64) -> bool {
    evidence.machine_bits_per_s.is_some_and(|machine| bits_per_s < MACHINE_SHARE * machine)
}

fn half_duplex(evidence: &Evidence) -> Option<Finding> {
    let ([there, back], both) = (evidence.streams?, evidence.both_at_once?);
    let one = there.max(back);
    let together = both[0] + both[1];
    (wire_decides(evidence, one) && together < DUPLEX * there.min(back)).then(|| Finding {
        cause: Cause::HalfDuplex,
        evidence: format!(
            "both ways at once carry {:.1} Mbit/s together, one alone {:.1}",
            together / 1e6,
            one / 1e6
        ),
        remedy: "one end negotiated half duplex: set both ends to the same, mostly to \
                 autonegotiation (`ethtool CARD`)"
            .to_string(),
    })
}

fn asymmetric(evidence: &Evidence) -> Option<Finding> {
    let [there, back] = evidence.streams?;
    let slower = if there < back { "there" } else { "back" };
    let is_apart = there.max(back) > ASYMMETRY * there.min(back);
    (is_apart && wire_decides(evidence, there.min(back))).then(|| Finding {
        cause: Cause::Asymmetric,
        evidence: format!(
            "a long transfer gets {:.1} Mbit/s there and {:.1} back",
            there / 1e6,
            back / 1e6
        ),
        remedy: format!(
            "the way {slower} has a slower or shaped link: look for a port with another speed, or \
             a traffic shaper (`tc qdisc`)"
        ),
    })
}

fn slow(evidence: &Evidence) -> Option<Finding> {
    let expected = evidence.expected_bits_per_s?;
    let [there, back] = evidence.streams?;
    let found = there.min(back);
    (found < SLOW * expected && wire_decides(evidence, found)).then(|| Finding {
        cause: Cause::Slow,
        evidence: format!(
            "{:.1} Mbit/s where links of its kind carry {:.1}",
            found / 1e6,
            expected / 1e6
        ),
        remedy: "a port or card that runs at a lower speed: `ethtool CARD` shows what was \
                 negotiated"
            .to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::sizes;

    const SEGMENT: u64 = 1448;

    /// A sound link of 100 Mbit/s on an idle machine, where `again` says how many segments of a thousand
    /// are lost at a size.
    fn link(again_per_mille: impl Fn(u64) -> f64) -> Evidence {
        let points = sizes(256 << 10, 3).into_iter().map(|bytes| {
            let time = 57e-6 + bytes as f64 * 8.0 / 94e6;
            let rounds = (100e-3 / time).clamp(9.0, 600.0) as usize;
            let mut point = Point::new(bytes, vec![time; rounds]);
            let sent = segments(&point, SEGMENT) as f64;
            point.retransmits = (again_per_mille(bytes) * sent / 1000.0).round() as u64;
            point
        });
        Evidence {
            curve: Curve::new(points),
            stalled: None,
            streams: Some([94e6, 94e6]),
            both_at_once: Some([93e6, 93e6]),
            segment_bytes: SEGMENT,
            machine_bits_per_s: Some(5e9),
            expected_bits_per_s: Some(94e6),
            cpu_pressure: Some(0.01),
        }
    }

    fn causes(evidence: &Evidence) -> Vec<Cause> {
        match diagnose(evidence) {
            Verdict::Faults(findings) => findings.iter().map(|finding| finding.cause).collect(),
            Verdict::NoFault => Vec::new(),
            Verdict::NotTrustworthy(why) => panic!("not trustworthy: {why}"),
        }
    }

    #[test]
    fn a_sound_link_has_no_fault() {
        assert_eq!(diagnose(&link(|_| 0.0)), Verdict::NoFault);
        // A few retransmissions by timers that were early are no loss.
        let mut evidence = link(|_| 0.0);
        evidence.curve.points[3].retransmits = 4;
        assert_eq!(diagnose(&evidence), Verdict::NoFault);
    }

    #[test]
    fn losses_are_told_apart_by_where_they_begin() {
        assert_eq!(causes(&link(|_| 10.0)), [Cause::Loss]);
        assert_eq!(causes(&link(|_| 1.0)), [Cause::Loss]);
        let long = |bytes| if bytes >= 1000 { 30.0 } else { 0.0 };
        assert_eq!(causes(&link(long)), [Cause::LengthDependentLoss]);
        let trains = |bytes| if bytes >= 12_288 { 20.0 } else { 0.0 };
        assert_eq!(causes(&link(trains)), [Cause::ShortQueue]);
    }

    #[test]
    fn directions_are_compared_only_where_the_wire_decides() {
        let slow_back = Evidence {
            streams: Some([94e6, 9.4e6]),
            both_at_once: Some([90e6, 9e6]),
            ..link(|_| 0.0)
        };
        assert_eq!(causes(&slow_back), [Cause::Asymmetric]);
        let shared = Evidence { both_at_once: Some([47e6, 46e6]), ..link(|_| 0.0) };
        assert_eq!(causes(&shared), [Cause::HalfDuplex]);
        // The CPUs are shared by both ways, so the machine explains it as well.
        let machine = Evidence { machine_bits_per_s: Some(150e6), ..shared };
        assert_eq!(diagnose(&machine), Verdict::NoFault);
        let slow = Evidence { expected_bits_per_s: Some(940e6), ..link(|_| 0.0) };
        assert_eq!(causes(&slow), [Cause::Slow]);
    }

    #[test]
    fn a_stall_counts_only_when_it_came_again() {
        let stall = |confirmed| Stall { bytes: 1533, passed_bytes: 1027, confirmed };
        let holed = |confirmed| Evidence { stalled: Some(stall(confirmed)), ..link(|_| 0.0) };
        assert_eq!(causes(&holed(true)), [Cause::MtuBlackHole]);
        assert_eq!(diagnose(&holed(false)), Verdict::NoFault);
        // A busy machine does not make packets vanish.
        let busy = Evidence { cpu_pressure: Some(0.9), ..holed(true) };
        assert_eq!(causes(&busy), [Cause::MtuBlackHole]);
    }

    #[test]
    fn a_busy_machine_is_not_believed() {
        for evidence in [link(|_| 0.0), link(|_| 10.0)] {
            let busy = Evidence { cpu_pressure: Some(0.2), ..evidence };
            assert!(
                matches!(diagnose(&busy), Verdict::NotTrustworthy(why) if why.contains("20 %"))
            );
        }
    }
}
