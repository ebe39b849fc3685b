//! Figures 8 and 9: a bad card, planted.
//!
//! The texts do not say what the card did to its frames, only what the curve looked like and when. So it is planted in
//! two forms: as a port with hardly any room, which long trains of frames suffer from while others send, for
//! the curve; and as one that loses frames while several nodes send, for the diagnosis.

use super::part;
use crate::error::Result;
use crate::report::Report;
use crate::reproduce::bench::Bench;
use crate::reproduce::told::Part;
use covey_tune::diagnose::{Cause, Crowd, Verdict};
use covey_tune::reproduce::{Answer, Collapse, Outcome, collapse};
use serde::Deserialize;

/// The nodes: more than four, one of which has the card.
const NODES: usize = 6;
/// More than four nodes use the network when four send to the one with the card.
const SENDERS: usize = 4;
/// Room for two long frames.
const ROOM: &str = "4KiB";
/// Datagrams without end, whatever is lost: what waits for lost segments makes no crowd.
const CROWD: &str = "exec 3<> <(:)
printf -v datagram '%1400s' x
while :; do echo \"$datagram\" > /dev/udp/n6/9; read -r -t 0.004 -u 3; done 2> /dev/null";
/// What the card loses of its frames then.
const LOSS: &str = "5%";
/// Below this share of the sound curve a size has collapsed.
const SHARE: f64 = 0.5;
/// How far, as a factor, a collapse may begin and end from where the paper saw it.
const NEAR: f64 = 2.5;
/// Where the paper's TCP collapsed and was back, in bytes.
const THEIRS: (f64, f64) = (20e3, 200e3);

/// What `tune net --crowd` says.
#[derive(Debug, Deserialize)]
struct Found {
    #[serde(flatten)]
    crowd: Crowd,
    verdict: Verdict,
}

/// Plants the card, and judges.
pub async fn bad(bench: &mut Bench) -> Part {
    let mut part = part("fig8-9", "a bad card among six nodes at a switch");
    match collapse_of_curve(bench).await {
        Ok(answer) => part.judge("TCP collapses from", answer),
        Err(error) => part.leave_out("the collapse of the curve", error.message),
    }
    match named(bench).await {
        Ok(answer) => part.judge("more than 4 nodes", answer),
        Err(error) => part.leave_out("the diagnosis", error.message),
    }
    if let Err(error) = bench.down().await {
        part.leave_out("taking the lab down", error.message);
    }
    part.differs(format!(
        "what the paper's card did to frames is not known: for the curve it is planted as a port with \
         room for {ROOM}, while four other nodes send datagrams to it; for the diagnosis as one that \
         loses {LOSS} of its frames while {SENDERS} nodes send to it"
    ));
    part.differs("only TCP's curve is measured with the card, not MPI's");
    part
}

/// The curve between two nodes, alone and while others talk to the one with the card.
async fn collapse_of_curve(bench: &mut Bench) -> Result<Answer> {
    let nodes = NODES.to_string();
    bench.lab(&[&nodes, "--link", "fast-ethernet"]).await?;
    let server = bench.start_on("n6", &["tune", "serve"])?;
    let sound = curve(bench).await;
    let judged = match sound {
        Ok(sound) => with_the_card(bench, &sound).await,
        Err(error) => Err(error),
    };
    bench.end(server).await;
    judged
}

async fn with_the_card(bench: &mut Bench, sound: &Report) -> Result<Answer> {
    bench.set(&["n6-sw1", "queue", ROOM, "--from", "sw1"]).await?;
    bench.may_begin()?;
    let mut talking = Vec::new();
    for sender in 2..NODES {
        let words = ["bash", "-c", CROWD];
        talking.push(bench.start_program_on(&format!("n{sender}"), &words)?);
    }
    let bad = curve(bench).await;
    for one in talking {
        bench.end(one).await;
    }
    let bad = bad?;
    let doubt = sound.environment.warning().or(bad.environment.warning());
    let doubt = doubt.filter(|_| !bench.wish.is_anyway);
    Ok(judge_range(collapse(&points(sound), &points(&bad), SHARE)).unless(doubt.as_deref()))
}

/// From n1.
async fn curve(bench: &mut Bench) -> Result<Report> {
    let (budget, up_to) = if bench.wish.is_quick { ("3", "256KiB") } else { ("12", "1MiB") };
    let words = ["tune", "net", "n6", "--budget", budget, "--up-to", up_to, "--perturbation", "0"];
    bench.covey_on("n1", &words).await
}

/// Throughput of each size by NetPIPE's statistic, which the paper has: it shows rare losses, too.
fn points(report: &Report) -> Vec<(u64, f64)> {
    report.points.iter().map(|row| (row.bytes, row.bytes as f64 * 8.0 / row.trial_s)).collect()
}

async fn plant(bench: &mut Bench) -> Result<()> {
    let senders = SENDERS.to_string();
    bench.set(&["n6-sw1", "crowd-loss", LOSS, "crowd-from", &senders]).await
}

/// Whether the collapse is where the paper saw it.
fn judge_range(found: Option<Collapse>) -> Answer {
    let looked_for = "the paper's: about 20 kB to 200 kB";
    let Some(Collapse { from_bytes, back_bytes, least }) = found else {
        // The card is not the paper's: that it does otherwise refutes nothing.
        return Answer::not_shown(format!(
            "with the planted card no range of sizes fell below half of the sound curve; {looked_for}"
        ));
    };
    let is_near = |ours: f64, theirs: f64| (1.0 / NEAR..=NEAR).contains(&(ours / theirs));
    let is_there = is_near(from_bytes as f64, THEIRS.0);
    let is_back = back_bytes.is_some_and(|bytes| is_near(bytes as f64, THEIRS.1));
    let back = match back_bytes {
        Some(bytes) => format!("and back at {bytes} bytes"),
        None => "and not back within the sizes tried".to_string(),
    };
    let because = format!(
        "collapsed from {from_bytes} bytes, to {:.0} % of the sound curve, {back}; {looked_for}",
        100.0 * least
    );
    let outcome = if is_there && is_back { Outcome::Holds } else { Outcome::DoesNotHold };
    Answer::new(outcome, because)
}

/// Whether the diagnosis names the card, from which crowd on, and the paper's remedy.
async fn named(bench: &mut Bench) -> Result<Answer> {
    let nodes = NODES.to_string();
    bench.lab(&[&nodes, "--link", "fast-ethernet"]).await?;
    plant(bench).await?;
    let (name, anyway) = (bench.now()?.name.clone(), bench.wish.is_anyway);
    let mut words = vec!["tune", "net", "--crowd", "n6", "--lab", &name];
    words.extend(anyway.then_some("--anyway"));
    let found: Found = bench.covey(&words).await?;
    bench.say(format!("  the diagnosis: {}", in_short(&found.verdict)));
    Ok(judge_diagnosis(&found))
}

fn judge_diagnosis(found: &Found) -> Answer {
    let again = found.crowd.together.iter();
    let again = again.map(|talk| format!("{}: {}", talk.senders.len(), talk.retransmits));
    let first = again.collect::<Vec<_>>().join(", ");
    let first = format!("segments sent again, by the number of senders at once: {first}");
    match &found.verdict {
        Verdict::NotTrustworthy(why) => Answer::not_shown(format!("no diagnosis: {why}; {first}")),
        Verdict::NoFault => Answer::new(Outcome::DoesNotHold, format!("no fault found; {first}")),
        Verdict::Faults(all) => {
            let card = all.iter().find(|finding| finding.cause == Cause::CrowdCollapse);
            match card {
                Some(card) => Answer::new(
                    Outcome::Holds,
                    format!(
                        "{first}; diagnosis: {}, {}; remedy: {}",
                        card.cause.words(),
                        card.evidence,
                        card.remedy
                    ),
                ),
                None => Answer::new(
                    Outcome::DoesNotHold,
                    format!("{first}; the diagnosis was {}", in_short(&found.verdict)),
                ),
            }
        }
    }
}

fn in_short(verdict: &Verdict) -> String {
    match verdict {
        Verdict::NoFault => "no fault found".to_string(),
        Verdict::NotTrustworthy(why) => format!("none: {why}"),
        Verdict::Faults(all) => {
            all.iter().map(|finding| finding.cause.words()).collect::<Vec<_>>().join("; ")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collapse_where_the_paper_saw_it_holds() {
        let of = |from_bytes, back_bytes| {
            judge_range(Some(Collapse { from_bytes, back_bytes, least: 0.1 })).outcome
        };
        assert_eq!(of(24_576, Some(262_144)), Outcome::Holds);
        assert_eq!(of(24_576, None), Outcome::DoesNotHold);
        assert_eq!(of(16, Some(262_144)), Outcome::DoesNotHold);
        assert_eq!(judge_range(None).outcome, Outcome::NotShown);
    }

    #[test]
    fn only_the_cards_own_name_will_do() {
        let found = |verdict| Found { crowd: Crowd::default(), verdict };
        let doubt = found(Verdict::NotTrustworthy("busy".to_string()));
        assert_eq!(judge_diagnosis(&doubt).outcome, Outcome::NotShown);
        assert_eq!(judge_diagnosis(&found(Verdict::NoFault)).outcome, Outcome::DoesNotHold);
        let finding = |cause| covey_tune::diagnose::Finding {
            cause,
            evidence: "e".to_string(),
            remedy: "replace the card".to_string(),
        };
        let named = |cause| judge_diagnosis(&found(Verdict::Faults(vec![finding(cause)])));
        assert_eq!(named(Cause::Loss).outcome, Outcome::DoesNotHold);
        let answer = named(Cause::CrowdCollapse);
        assert!(answer.outcome == Outcome::Holds && answer.because.contains("replace the card"));
    }
}
