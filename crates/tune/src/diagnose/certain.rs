//! What no load of any machine explains.

use super::{Cause, Evidence, Finding};

/// An address twice, or a length from which nothing passes.
pub fn find(evidence: &Evidence) -> Option<Finding> {
    taken(evidence).or_else(|| black_hole(evidence))
}

fn taken(evidence: &Evidence) -> Option<Finding> {
    let taken = evidence.taken.first()?;
    Some(Finding {
        cause: Cause::DuplicateAddress,
        evidence: format!(
            "cards {} all answer for the address {}",
            taken.macs.join(" and "),
            taken.address
        ),
        remedy: "give one of these hosts another address; the tables of the switches say behind \
                 which port each card is"
            .to_string(),
    })
}

fn black_hole(evidence: &Evidence) -> Option<Finding> {
    let stall = evidence.stalled.filter(|stall| stall.confirmed)?;
    // Blocks of several segments that stall do not show which packet it was.
    let is_one_packet = stall.passed_bytes < evidence.segment_bytes;
    is_one_packet.then(|| Finding {
        cause: Cause::MtuBlackHole,
        evidence: format!(
            "blocks up to {} bytes pass, blocks of {} never do, on a second connection neither{}",
            stall.passed_bytes,
            stall.bytes,
            mtus(evidence)
        ),
        remedy: "give all cards and switch ports on the way the same MTU; `ping -M do -s SIZE` \
                 finds where packets vanish"
            .to_string(),
    })
}

/// What the cards at both ends are set to, when that differs.
fn mtus(evidence: &Evidence) -> String {
    match evidence.ends.as_slice() {
        [one, other] if one.mtu != other.mtu && one.mtu > 0 && other.mtu > 0 => {
            format!("; {} has MTU {}, {} has {}", one.name, one.mtu, other.name, other.mtu)
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use crate::diagnose::testing::{causes, link};
    use crate::diagnose::{Cause, Evidence, Stall, Taken, Verdict, diagnose};

    #[test]
    fn a_stall_counts_only_when_it_came_again() {
        let stall = |confirmed| Stall { bytes: 1533, passed_bytes: 1027, confirmed };
        let holed = |confirmed| Evidence { stalled: Some(stall(confirmed)), ..link(|_| 0.0) };
        assert_eq!(causes(&holed(true)), [Cause::MtuBlackHole]);
        assert_eq!(diagnose(&holed(false)), Verdict::NoFault);
        // A busy machine does not make packets vanish.
        let busy = Evidence { cpu_pressure: Some(0.9), outside_cpus: Some(2.0), ..holed(true) };
        assert_eq!(causes(&busy), [Cause::MtuBlackHole]);
    }

    #[test]
    fn an_address_that_two_cards_have_is_named_on_any_machine() {
        let macs = vec!["02:00:00:00:00:01".to_string(), "02:00:00:00:00:02".to_string()];
        let taken = vec![Taken { address: "10.0.0.2".to_string(), macs }];
        let busy = Evidence { taken, cpu_pressure: Some(0.9), ..link(|_| 10.0) };
        let Verdict::Faults(findings) = diagnose(&busy) else { panic!("no fault") };
        assert_eq!(findings[0].cause, Cause::DuplicateAddress);
        assert!(findings[0].evidence.contains("10.0.0.2") && findings.len() == 1);
    }
}
