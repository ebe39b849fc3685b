//! From measurements of a link to the cause of what is wrong with it.
//!
//! Each rule needs evidence that nothing else explains, and names it. What the rules cannot tell apart they do
//! not guess: then there is no finding. On a machine whose CPUs others use, times and retransmissions mean
//! nothing, and the verdict says that instead; only what no load explains, such as a block that never
//! passes, or an address that two cards have, is believed all the same.
//!
//! ```text
//!   certain    an address twice, an MTU black hole              believed on any machine
//!   trust      others use the CPUs; an end is busy itself        nothing else is judged then
//!   loss       of all, of long packets, of trains (queue, policer), in a crowd only
//!   rate       half duplex, one way slower, slower than its kind, buffers too small
//!   ends       offloads switched off, small writes that wait for each other
//! ```

mod certain;
mod crowd;
mod ends;
mod evidence;
mod loss;
mod rate;
#[cfg(test)]
mod testing;
mod trust;
mod verdict;

pub use crowd::{Crowd, Talk, crowd};
pub use evidence::{End, Evidence, Held, Stall, Taken, Written};
pub use loss::{packets_to_try, window_that_passes};
pub use trust::{OUTSIDE_CPUS_MAX, PRESSURE_MAX, STEAL_MAX, noise};
pub use verdict::{Cause, Finding, Verdict};

/// Concludes.
pub fn diagnose(evidence: &Evidence) -> Verdict {
    if let Some(finding) = certain::find(evidence) {
        return Verdict::Faults(vec![finding]);
    }
    if let Some(why) = trust::doubt(evidence) {
        return Verdict::NotTrustworthy(why);
    }
    // An end that is short of CPUs explains every time, so nothing else is judged.
    if let Some(finding) = trust::contention(evidence) {
        return Verdict::Faults(vec![finding]);
    }
    let lossy = loss::find(evidence);
    // Lost packets slow everything down: they are the cause then.
    let slow = if lossy.is_some() || loss::is_any(evidence) { None } else { rate::find(evidence) };
    let findings: Vec<Finding> =
        lossy.into_iter().chain(slow).chain(ends::find(evidence)).collect();
    match loss::unexplained(evidence) {
        _ if !findings.is_empty() => Verdict::Faults(findings),
        Some(why) => Verdict::NotTrustworthy(why),
        None => Verdict::NoFault,
    }
}
