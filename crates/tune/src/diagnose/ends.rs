//! What an end does to itself while the link between is sound.

use super::{Cause, Evidence, Finding};
use crate::curve::Pick;

/// Offloads that every card which has them starts with.
const OFFLOADS: [&str; 7] = [
    "rx-checksum",
    "tx-checksum-ip-generic",
    "tx-checksum-ipv4",
    "tx-scatter-gather",
    "tx-tcp-segmentation",
    "tx-generic-segmentation",
    "rx-gro",
];
/// Linux delays an acknowledgement by 40 ms at least; one way is half of a round trip with one or two.
const DELAYED_S: f64 = 15e-3;
/// A wait for a timer is the same for all sizes, by this factor.
const SAME: f64 = 1.5;
/// So many sizes must show it.
const SIZES_MIN: usize = 3;
/// They take so many times as long as when nothing waits.
const TIMES: f64 = 10.0;

/// All of it.
pub fn find(evidence: &Evidence) -> Vec<Finding> {
    nagle(evidence).into_iter().chain(offloads(evidence)).collect()
}

fn offloads(evidence: &Evidence) -> Option<Finding> {
    let off: Vec<String> = evidence
        .ends
        .iter()
        .filter_map(|end| {
            let is_offload = |name: &&String| OFFLOADS.contains(&name.as_str());
            let off: Vec<&str> =
                end.features_off.iter().filter(is_offload).map(String::as_str).collect();
            (!off.is_empty()).then(|| format!("{} of {} {}", end.card, end.name, off.join(", ")))
        })
        .collect();
    (!off.is_empty()).then(|| Finding {
        cause: Cause::OffloadsOff,
        evidence: format!("the kernel could let card {}, but is told not to", off.join("; card ")),
        remedy:
            "`ethtool -K CARD rx on tx on sg on tso on gso on gro on`, unless a bug of the card \
                 was the reason: without them each packet costs CPU time of its own"
                .to_string(),
    })
}

/// Header and body written apart: the second write waits for the acknowledgement of the first, which the
/// receiver delays because it hopes for data to send along.
fn nagle(evidence: &Evidence) -> Option<Finding> {
    let written = evidence.written.as_ref()?;
    let short: Vec<(u64, f64)> = written
        .points
        .iter()
        .filter(|point| point.bytes < evidence.segment_bytes / 2)
        .map(|point| (point.bytes, point.time_s(Pick::Typical)))
        .collect();
    let times = || short.iter().map(|(_, time)| *time);
    let (least, most) = (times().fold(f64::INFINITY, f64::min), times().fold(0.0, f64::max));
    let (bytes, _) = *short.last()?;
    let at_once = evidence.curve.points.iter().rfind(|point| point.bytes <= bytes)?;
    let at_once_s = at_once.time_s(Pick::Typical);
    let waits = short.len() >= SIZES_MIN && least > DELAYED_S && most < SAME * least;
    (waits && least > TIMES * at_once_s).then(|| Finding {
        cause: Cause::NagleDelayedAck,
        evidence: format!(
            "blocks of {} to {bytes} bytes whose header and body are written apart take {:.1} ms, \
             whatever their size; written at once they take {:.3} ms at most",
            short[0].0,
            1e3 * least,
            1e3 * at_once_s
        ),
        remedy: "let the program set TCP_NODELAY, or write header and body at once (`writev`, \
                 MSG_MORE); where it cannot be changed, `ip route change ... quickack 1` on the \
                 receiving host"
            .to_string(),
    })
}

#[cfg(test)]
mod tests {
    use crate::Point;
    use crate::diagnose::testing::{causes, link};
    use crate::diagnose::{Cause, End, Evidence, Verdict, Written, diagnose};

    #[test]
    fn offloads_that_somebody_switched_off_are_named_with_their_card() {
        let end = |off: &[&str]| End {
            name: "n2".to_string(),
            card: "eth0".to_string(),
            features_off: off.iter().map(ToString::to_string).collect(),
            ..End::default()
        };
        // Nobody has these on.
        let sound = Evidence { ends: vec![end(&["tx-nocache-copy", "rx-lro"])], ..link(|_| 0.0) };
        assert_eq!(diagnose(&sound), Verdict::NoFault);
        let off = Evidence { ends: vec![end(&["rx-gro", "rx-lro"])], ..link(|_| 0.0) };
        let Verdict::Faults(findings) = diagnose(&off) else { panic!("no fault") };
        assert!(findings[0].evidence.contains("card eth0 of n2 rx-gro, but"));
    }

    fn written(time_s: impl Fn(u64) -> f64) -> Evidence {
        let points = [32, 128, 512].map(|bytes| Point::new(bytes, vec![time_s(bytes); 7])).to_vec();
        Evidence { written: Some(Written { points }), ..link(|_| 0.0) }
    }

    #[test]
    fn a_wait_that_no_size_explains_is_that_for_an_acknowledgement() {
        assert_eq!(causes(&written(|_| 44e-3)), [Cause::NagleDelayedAck]);
        assert_eq!(diagnose(&written(|_| 0.1e-3)), Verdict::NoFault);
        // A slow link takes longer for longer blocks.
        assert_eq!(diagnose(&written(|bytes| bytes as f64 * 1e-3)), Verdict::NoFault);
    }
}
