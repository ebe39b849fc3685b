//! Which packets are lost: all, long ones, or only those of long trains.

use super::{Cause, Evidence, Finding};
use crate::curve::{Curve, Pick, Point};
use crate::statistics::theil_sen;

/// Fewer retransmissions may be chance or a timer that was early.
const RETRANSMITS_MIN: u64 = 8;
/// Lost segments of a thousand.
const LOSS_PER_MILLE_MIN: f64 = 0.3;
/// A long transfer that stays below this share of what short trains reach is held back by a rate.
const POLICED_SHARE: f64 = 0.75;
/// Trains of up to so many segments are short.
const TRAIN_SEGMENTS: u64 = 8;
/// What a short packet carries.
const SHORT_BYTES: u64 = 64;
/// So many sizes at least make a slope.
const SLOPE_POINTS_MIN: usize = 4;

/// How many segments were sent for a point, both ways.
pub(super) fn segments(point: &Point, segment_bytes: u64) -> u64 {
    2 * point.times_s.len() as u64 * point.bytes.div_ceil(segment_bytes.max(1))
}

/// Segments, and how many of them again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sent {
    pub segments: u64,
    pub again: u64,
}

fn sent<'a>(points: impl Iterator<Item = &'a Point>, segment_bytes: u64) -> Sent {
    points.fold(Sent::default(), |sum, point| Sent {
        segments: sum.segments + segments(point, segment_bytes),
        again: sum.again + point.retransmits,
    })
}

impl Sent {
    pub fn per_mille(self) -> f64 {
        1000.0 * self.again as f64 / self.segments.max(1) as f64
    }

    /// Enough to be no accident.
    pub fn is_loss(self) -> bool {
        self.again >= RETRANSMITS_MIN && self.per_mille() >= LOSS_PER_MILLE_MIN
    }

    /// It would have shown a loss like that of `other`: as often, it would have met so many.
    pub fn would_have_shown(self, other: Sent) -> bool {
        self.segments as f64 * other.per_mille() / 1000.0 >= RETRANSMITS_MIN as f64
    }
}

/// What may be under way so that a queue which cuts trains of this curve does not cut it: half of the
/// shortest train that lost something. `None` where no trains lose enough to ask.
pub fn window_that_passes(curve: &Curve, segment_bytes: u64) -> Option<u64> {
    let is_train = |point: &&Point| point.bytes > segment_bytes;
    let trains = sent(curve.points.iter().filter(is_train), segment_bytes);
    let begins = curve.points.iter().filter(is_train).find(|point| point.retransmits > 0)?;
    trains.is_loss().then(|| (begins.bytes / 2).max(2 * segment_bytes))
}

/// Lone packets, a short and a long one, of which more have to be sent before losses can be told apart. `None`
/// where nothing is lost, or enough is known.
pub fn packets_to_try(curve: &Curve, segment_bytes: u64) -> Option<[u64; 2]> {
    let of = |from: u64, to: u64| {
        let points = curve.points.iter().filter(|point| (from..to).contains(&point.bytes));
        sent(points, segment_bytes)
    };
    let (short, single) = (of(0, segment_bytes / 2), of(segment_bytes / 2, segment_bytes + 1));
    let is_known = short.is_loss() || (single.is_loss() && short.would_have_shown(single));
    let is_open = of(0, u64::MAX).is_loss() && short.again + single.again > 0 && !is_known;
    is_open.then_some([SHORT_BYTES, segment_bytes])
}

/// Whether segments are lost, explained or not.
pub fn is_any(evidence: &Evidence) -> bool {
    sent(evidence.curve.points.iter(), evidence.segment_bytes).is_loss()
}

/// What to say of losses that fit no rule.
pub fn unexplained(evidence: &Evidence) -> Option<String> {
    let all = sent(evidence.curve.points.iter(), evidence.segment_bytes);
    all.is_loss().then(|| {
        format!(
            "{} of {} segments had to be sent again, but too few blocks were measured to say which \
             packets are lost; a longer --budget tells",
            all.again, all.segments
        )
    })
}

/// The loss that explains the retransmissions.
pub fn find(evidence: &Evidence) -> Option<Finding> {
    let segment = evidence.segment_bytes;
    let points = &evidence.curve.points;
    let of = |from: u64, to: u64| {
        sent(points.iter().filter(|point| (from..to).contains(&point.bytes)), segment)
    };
    let (short, single) = (of(0, segment / 2), of(segment / 2, segment + 1));
    if short.is_loss() {
        return Some(of_any(short, segment));
    }
    // Packets of more than half a segment that are alone.
    if single.is_loss() && short.would_have_shown(single) {
        return Some(of_long(single, short));
    }
    let trains = of(segment + 1, u64::MAX);
    let begins = points.iter().find(|point| point.bytes > segment && point.retransmits > 0)?;
    if !trains.is_loss() || !of(0, segment + 1).would_have_shown(trains) {
        return None;
    }
    let is_cut = begins.bytes > 2 * segment && of(0, begins.bytes).would_have_shown(trains);
    let policed = policed(evidence, trains);
    policed.or_else(|| is_cut.then(|| cut(trains, begins, segment)))
}

fn of_any(short: Sent, segment: u64) -> Finding {
    Finding {
        cause: Cause::Loss,
        evidence: format!(
            "{} of {} segments had to be sent again in blocks of less than {} bytes, {:.2} %",
            short.again,
            short.segments,
            segment / 2,
            short.per_mille() / 10.0
        ),
        remedy: "replace the cable, then the card, then try another port of the switch".into(),
    }
}

fn of_long(single: Sent, short: Sent) -> Finding {
    Finding {
        cause: Cause::LengthDependentLoss,
        evidence: format!(
            "blocks of one long packet lose {:.1} % of their segments, short ones {} of {}",
            single.per_mille() / 10.0,
            short.again,
            short.segments
        ),
        remedy: "a bad cable or card damages long packets first: replace the cable, then the card"
            .into(),
    }
}

fn cut(trains: Sent, begins: &Point, segment: u64) -> Finding {
    Finding {
        cause: Cause::ShortQueue,
        evidence: format!(
            "blocks of {} bytes and more lose segments, {} in all, and shorter ones none: a train \
             of {} packets does not fit",
            begins.bytes,
            trains.again,
            begins.bytes.div_ceil(segment)
        ),
        remedy: "a card or switch port with too short a queue: another port or card, or less at a \
                 time (`net.ipv4.tcp_notsent_lowat`, pacing)"
            .into(),
    }
}

/// A policer cuts what goes on for long, however little of it is under way at a time; a queue cuts only what
/// it has no room for. Where that was not tried, a queue at least leaves long transfers their speed.
fn policed(evidence: &Evidence, trains: Sent) -> Option<Finding> {
    let wire = train_bits_per_s(evidence)?;
    let [there, back] = evidence.streams?;
    let slower = there.min(back);
    if slower > POLICED_SHARE * wire {
        return None;
    }
    let held = match evidence.held {
        None => String::new(),
        Some(held) => {
            let sent = Sent { segments: held.segments, again: held.retransmits };
            if !sent.is_loss() {
                return None;
            }
            format!(
                ", even one of which never more than {} bytes are under way, which fit into any \
                 queue that short trains pass",
                held.window_bytes
            )
        }
    };
    Some(Finding {
        cause: Cause::Policed,
        evidence: format!(
            "single packets lose none and go at {:.1} Mbit/s, but {:.1} % of the segments of trains \
             had to be sent again, and a long transfer gets {:.1} Mbit/s{}{held}",
            wire / 1e6,
            trains.per_mille() / 10.0,
            slower / 1e6,
            match there < back {
                true => " there",
                false if back < there => " back",
                false => "",
            }
        ),
        remedy:
            "a policer on the way drops what exceeds its rate: have it shape instead (queue), or \
                 raise its rate and burst; else pace below it (`tc qdisc ... fq maxrate`)"
                .to_string(),
    })
}

/// How fast the wire itself is: the slope of the least times of short trains.
fn train_bits_per_s(evidence: &Evidence) -> Option<f64> {
    let segment = evidence.segment_bytes;
    let is_train = |point: &&Point| (segment + 1..TRAIN_SEGMENTS * segment).contains(&point.bytes);
    let trains = evidence.curve.points.iter().filter(is_train);
    let points: Vec<(f64, f64)> =
        trains.map(|point| (point.bytes as f64 * 8.0, point.time_s(Pick::Best))).collect();
    if points.len() < SLOPE_POINTS_MIN {
        return None;
    }
    let (slope, _) = theil_sen(&points)?;
    (slope > 0.0).then(|| 1.0 / slope)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::testing::{causes, link};
    use crate::diagnose::{Held, Verdict, diagnose};

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
        assert_eq!(packets_to_try(&link(long).curve, 1448), None);
        let trains = |bytes| if bytes > 9000 { 30.0 } else { 0.0 };
        assert_eq!(causes(&link(trains)), [Cause::ShortQueue]);
        assert_eq!(window_that_passes(&link(|_| 0.0).curve, 1448), None);
        assert_eq!(packets_to_try(&link(|_| 0.0).curve, 1448), None);
        assert_eq!(packets_to_try(&link(trains).curve, 1448), None);
    }

    #[test]
    fn losses_of_too_few_blocks_are_told_but_not_named() {
        let mut few = link(|bytes| if bytes >= 1000 { 30.0 } else { 0.0 });
        for point in &mut few.curve.points {
            let kept = point.times_s.len().min(12);
            point.retransmits = point.retransmits * kept as u64 / point.times_s.len() as u64;
            point.times_s.truncate(kept);
        }
        let verdict = diagnose(&few);
        assert!(
            matches!(&verdict, Verdict::NotTrustworthy(why) if why.contains("--budget")),
            "{verdict:?}"
        );
    }

    #[test]
    fn more_lone_packets_are_sent_where_few_of_them_were_lost() {
        let trains = |bytes| if bytes > 1500 { 30.0 } else { 0.0 };
        let mut few = link(trains).curve;
        assert_eq!(packets_to_try(&few, 1448), None, "no lone packet was lost");
        let long = few.points.iter().position(|point| point.bytes > 1000).unwrap();
        few.points[long].retransmits = 1;
        assert_eq!(packets_to_try(&few, 1448), Some([64, 1448]));
        let mut more = Point::new(1448, vec![200e-6; 400]);
        more.retransmits = 12;
        few = Curve::new(few.points.into_iter().chain([more]));
        assert_eq!(packets_to_try(&few, 1448), None, "that is enough");
    }

    #[test]
    fn a_policer_is_told_from_a_short_queue_by_what_loses_with_little_under_way() {
        let trains = |bytes| if bytes > 33_000 { 30.0 } else { 0.0 };
        let cut = Evidence { streams: Some([48e6, 47e6]), ..link(trains) };
        assert_eq!(window_that_passes(&cut.curve, 1448), Some(49_149 / 2));
        let held = |retransmits| Held {
            window_bytes: 24_574,
            bits_per_s: [60e6; 2],
            segments: 4000,
            retransmits,
        };
        let policed = Evidence { held: Some(held(400)), ..cut.clone() };
        assert_eq!(causes(&policed), [Cause::Policed]);
        let queue = Evidence { held: Some(held(0)), ..cut.clone() };
        assert_eq!(causes(&queue), [Cause::ShortQueue]);
        // Where nobody tried, a long transfer at full speed is enough to say that it is a queue.
        assert_eq!(causes(&cut), [Cause::Policed]);
        let fast = Evidence { streams: Some([85e6, 84e6]), ..cut };
        assert_eq!(causes(&fast), [Cause::ShortQueue]);
    }

    #[test]
    fn a_policer_that_is_met_early_is_no_bad_cable_and_no_slow_way() {
        let soon = |bytes| match bytes {
            0..1500 => 0.1,
            1500..8000 => 2.0,
            _ => 100.0,
        };
        let policed = Evidence { streams: Some([2.6e6, 1.7e6]), ..link(soon) };
        assert_eq!(causes(&policed), [Cause::Policed]);
    }

    #[test]
    fn a_lossy_link_is_not_called_slow_as_well() {
        let lossy = Evidence { streams: Some([10e6, 80e6]), ..link(|_| 10.0) };
        assert_eq!(causes(&lossy), [Cause::Loss]);
    }
}
