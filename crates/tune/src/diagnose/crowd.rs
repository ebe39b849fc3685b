//! Several nodes that talk to one: a card that is sound alone may collapse then.
//!
//! Every sender has one short block under way at a time. No queue of any switch is too short for these, so
//! segments that are sent again were lost by the card, the cable or the port of the one they all
//! talk to; alone, the same senders lose nothing.

use super::loss::Sent;
use super::{Cause, Finding, Verdict, noise};
use serde::{Deserialize, Serialize};

/// What one sender or several met.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Talk {
    /// Who sent.
    pub senders: Vec<String>,
    /// Round trips of a short block, all senders together.
    pub rounds: u64,
    /// Segments that had to be sent again, both ways.
    pub retransmits: u64,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// Why it ended early.
    pub failure: Option<String>,
}

/// Several nodes and the one they talk to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Crowd {
    /// The one.
    pub to: String,
    /// Each sender alone.
    pub alone: Vec<Talk>,
    /// Several at once, by their number.
    pub together: Vec<Talk>,
    /// Share of the time in which programs waited for a CPU.
    pub cpu_pressure: Option<f64>,
    /// How many CPUs programs used that have no part in it.
    pub outside_cpus: Option<f64>,
    /// Share of the CPUs' time that a hypervisor gave to others.
    pub steal: Option<f64>,
}

impl Talk {
    /// A block goes in one segment, to and fro.
    fn sent(&self) -> Sent {
        Sent { segments: 2 * self.rounds, again: self.retransmits }
    }

    /// Round trips in a second.
    pub fn per_s(&self) -> f64 {
        self.rounds as f64 / self.seconds.max(1e-9)
    }
}

/// Concludes.
pub fn crowd(crowd: &Crowd) -> Verdict {
    if let Some(why) = noise(crowd.cpu_pressure, crowd.outside_cpus, crowd.steal) {
        return Verdict::NotTrustworthy(why);
    }
    let alone = crowd.alone.iter().map(Talk::sent).fold(Sent::default(), |sum, one| Sent {
        segments: sum.segments + one.segments,
        again: sum.again + one.again,
    });
    if alone.is_loss() {
        return Verdict::Faults(vec![Finding {
            cause: Cause::Loss,
            evidence: format!(
                "of what single nodes send to {}, {} of {} segments had to be sent again",
                crowd.to, alone.again, alone.segments
            ),
            remedy: "`covey tune net` between the pairs says which and why".to_string(),
        }]);
    }
    let bad = crowd.together.iter().find(|talk| {
        let sent = talk.sent();
        // A few rounds are left where most were lost.
        let is_loss = sent.is_loss() || (sent.again > 0 && talk.failure.is_some());
        is_loss && alone.would_have_shown(sent)
    });
    match bad {
        None => Verdict::NoFault,
        Some(bad) => Verdict::Faults(vec![collapse(crowd, alone, bad)]),
    }
}

fn collapse(crowd: &Crowd, alone: Sent, bad: &Talk) -> Finding {
    let fewer = crowd.together.iter().filter(|talk| talk.senders.len() < bad.senders.len());
    let sound = match fewer.map(|talk| talk.senders.len()).max() {
        Some(count) => format!(", with {count} at once none either"),
        None => String::new(),
    };
    let sent = bad.sent();
    Finding {
        cause: Cause::CrowdCollapse,
        evidence: format!(
            "single nodes lose {} of {} segments to {}{sound}; when {} talk to it at once, {} of {} \
             had to be sent again, {:.1} %, although each has only one short block under way",
            alone.again,
            alone.segments,
            crowd.to,
            bad.senders.len(),
            sent.again,
            sent.segments,
            sent.per_mille() / 10.0
        ),
        remedy: format!(
            "replace the network card of {}, then its cable, then try another port of the switch",
            crowd.to
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn talk(senders: usize, rounds: u64, retransmits: u64) -> Talk {
        let senders = (1..=senders).map(|number| format!("n{number}")).collect();
        Talk { senders, rounds, retransmits, seconds: 1.0, failure: None }
    }

    fn star(alone: u64, together: &[u64]) -> Crowd {
        Crowd {
            to: "n4".to_string(),
            alone: (0..3).map(|_| talk(1, 4000, alone)).collect(),
            together: (2..).zip(together).map(|(count, lost)| talk(count, 2000, *lost)).collect(),
            cpu_pressure: Some(0.5),
            outside_cpus: Some(0.0),
            steal: Some(0.0),
        }
    }

    fn causes(of: &Crowd) -> Vec<Cause> {
        crowd(of).causes()
    }

    #[test]
    fn a_card_that_is_sound_alone_and_not_in_a_crowd_is_to_be_replaced() {
        assert_eq!(crowd(&star(0, &[0, 1])), Verdict::NoFault);
        let Verdict::Faults(found) = crowd(&star(0, &[0, 60])) else { panic!("no fault") };
        assert_eq!(found[0].cause, Cause::CrowdCollapse);
        assert!(found[0].evidence.contains("with 2 at once none either; when 3 talk"), "{found:?}");
        assert!(found[0].remedy.contains("card of n4"));
        assert_eq!(causes(&star(0, &[60, 60])), [Cause::CrowdCollapse]);
        // Who loses alone as well has another fault.
        assert_eq!(causes(&star(40, &[60, 60])), [Cause::Loss]);
    }

    #[test]
    fn a_crowd_that_hardly_gets_a_block_through_is_a_collapse_too() {
        let mut hung = star(0, &[0, 4]);
        (hung.together[1].rounds, hung.together[1].failure) = (40, Some("no answer".to_string()));
        assert_eq!(causes(&hung), [Cause::CrowdCollapse]);
    }

    #[test]
    fn load_from_outside_is_no_collapse() {
        let busy = Crowd { outside_cpus: Some(1.5), ..star(0, &[0, 60]) };
        assert!(matches!(crowd(&busy), Verdict::NotTrustworthy(_)));
    }
}
