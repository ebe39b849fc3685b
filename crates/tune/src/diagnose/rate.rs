//! Why a link without losses is slower than it could be.

use super::{Cause, End, Evidence, Finding};

/// One way must be so many times faster than the other to be called so.
const ASYMMETRY: f64 = 1.25;
/// Two streams at once that carry less than so many times one of them share the medium.
const DUPLEX: f64 = 1.3;
/// A link whose speed is so near to that of the machine says nothing about the wire.
const MACHINE_SHARE: f64 = 0.3;
/// Where the wire should be nearer to the machine's speed than that, only what is far below both is slow.
const MACHINE_SHARE_TIGHT: f64 = 0.15;
/// Slower than its peers by this factor is slow.
const SLOW: f64 = 0.8;
/// An end that waits for buffers for so much of a long transfer is held back by them.
const LIMITED: f64 = 0.25;
/// Buffers of that size are not small, whatever waits for them.
const BUFFER_BYTES_AMPLE: u64 = 1 << 20;

/// The first that explains it, the most certain one first.
pub fn find(evidence: &Evidence) -> Option<Finding> {
    small_buffers(evidence)
        .or_else(|| half_duplex(evidence))
        .or_else(|| asymmetric(evidence))
        .or_else(|| slow(evidence))
}

/// Whether the wire and not the machine decides how fast it is.
fn wire_decides(evidence: &Evidence, bits_per_s: f64) -> bool {
    evidence.machine_bits_per_s.is_some_and(|machine| bits_per_s < MACHINE_SHARE * machine)
}

/// TCP itself counts how long it waited for a buffer; whose it was follows from what it waited for.
fn small_buffers(evidence: &Evidence) -> Option<Finding> {
    let [here, there] = evidence.ends.as_slice() else { return None };
    [(here, there), (there, here)].into_iter().find_map(|(sender, receiver)| {
        let is_small = |bytes: Option<u64>| bytes.is_none_or(|bytes| bytes < BUFFER_BYTES_AMPLE);
        if sender.window_limited > LIMITED && is_small(receiver.receive_max_bytes) {
            let kind = ("receive", "rmem", sender.window_limited);
            return Some(buffer_finding(kind, receiver, receiver.receive_max_bytes, sender));
        }
        (sender.buffer_limited > LIMITED && is_small(sender.send_max_bytes)).then(|| {
            let kind = ("send", "wmem", sender.buffer_limited);
            buffer_finding(kind, sender, sender.send_max_bytes, sender)
        })
    })
}

fn buffer_finding(
    (kind, key, waited): (&str, &str, f64),
    owner: &End,
    most: Option<u64>,
    sender: &End,
) -> Finding {
    let most = most.map_or(String::new(), |bytes| format!(", which may have {bytes} bytes"));
    Finding {
        cause: Cause::SmallBuffers,
        evidence: format!(
            "what {} sends waits for the {kind} buffer of {}{most}, during {:.0} % of a long \
             transfer",
            sender.name,
            owner.name,
            100.0 * waited
        ),
        remedy: format!(
            "raise the third number of `net.ipv4.tcp_{key}` on {} to some times what fits on the \
             way (bandwidth times round trip), and let programs not set the size themselves",
            owner.name
        ),
    }
}

fn half_duplex(evidence: &Evidence) -> Option<Finding> {
    let remedy = "one end negotiated half duplex: set both ends to the same, mostly to \
                  autonegotiation (`ethtool CARD`)";
    if let Some(end) = evidence.ends.iter().find(|end| end.is_half_duplex) {
        return Some(Finding {
            cause: Cause::HalfDuplex,
            evidence: format!("card {} of {} has negotiated half duplex", end.card, end.name),
            remedy: remedy.to_string(),
        });
    }
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
        remedy: remedy.to_string(),
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
    let machine = evidence.machine_bits_per_s?;
    let share = if wire_decides(evidence, expected) { MACHINE_SHARE } else { MACHINE_SHARE_TIGHT };
    (found < SLOW * expected && found < share * machine).then(|| Finding {
        cause: Cause::Slow,
        evidence: format!(
            "{:.1} Mbit/s where links of its kind carry {:.1}{}",
            found / 1e6,
            expected / 1e6,
            speeds(evidence)
        ),
        remedy: "a port or card that runs at a lower speed: `ethtool CARD` shows what was \
                 negotiated"
            .to_string(),
    })
}

/// What the cards say they negotiated, when they say different things.
fn speeds(evidence: &Evidence) -> String {
    match evidence.ends.as_slice() {
        [
            End { name: one, speed_bits_per_s: Some(fast), .. },
            End { name: other, speed_bits_per_s: Some(slow), .. },
        ] if fast != slow => format!(
            "; the card of {one} says {:.0} Mbit/s, that of {other} {:.0}",
            fast / 1e6,
            slow / 1e6
        ),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::testing::{causes, link};
    use crate::diagnose::{Verdict, diagnose};

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
        // A machine that hardly carries the kind makes it slow itself, unless it is much slower.
        let tight = Evidence { machine_bits_per_s: Some(400e6), ..slow };
        assert_eq!(diagnose(&tight), Verdict::NoFault);
    }

    fn ends() -> Vec<End> {
        let end = |name: &str| End {
            name: name.to_string(),
            receive_max_bytes: Some(6 << 20),
            send_max_bytes: Some(4 << 20),
            ..End::default()
        };
        vec![end("n1"), end("n2")]
    }

    #[test]
    fn the_end_whose_buffer_is_waited_for_is_named() {
        let sound = Evidence { ends: ends(), ..link(|_| 0.0) };
        assert_eq!(diagnose(&sound), Verdict::NoFault);
        let mut small = sound.clone();
        small.ends[0].window_limited = 0.6;
        // The receiver takes nothing out: its buffer is large and not the cause.
        assert_eq!(diagnose(&small), Verdict::NoFault);
        small.ends[1].receive_max_bytes = Some(4096);
        let Verdict::Faults(findings) = diagnose(&small) else { panic!("no fault") };
        assert_eq!(findings[0].cause, Cause::SmallBuffers);
        assert!(findings[0].evidence.contains("n1 sends waits for the receive buffer of n2"));
        let mut send = sound;
        (send.ends[1].buffer_limited, send.ends[1].send_max_bytes) = (0.5, Some(4096));
        let Verdict::Faults(findings) = diagnose(&send) else { panic!("no fault") };
        assert!(findings[0].evidence.contains("send buffer of n2, which may have 4096 bytes"));
    }

    #[test]
    fn a_card_that_says_half_duplex_is_believed() {
        let mut half = Evidence { ends: ends(), ..link(|_| 0.0) };
        half.ends[1].is_half_duplex = true;
        assert_eq!(causes(&half), [Cause::HalfDuplex]);
    }
}
