//! Whether times mean anything, or CPUs were missing; and whether an end misses them by its own doing.
//!
//! The measurement itself uses CPUs: on a machine of two, its own programs wait for each other now and then,
//! in a lab above all, where one machine is every node and the network. That is part of what the machine
//! does alone, and no reason for doubt. Doubt is others: so waiting counts only together with CPUs that
//! programs use which belong neither to the measurement nor to an end.

use super::{Cause, End, Evidence, Finding};

/// Above this share of the time in which programs waited for a CPU, nothing is concluded, if
/// others used CPUs as well.
pub const PRESSURE_MAX: f64 = 0.10;
/// Others may use so many CPUs: the kernel and what runs on every idle machine.
pub const OUTSIDE_CPUS_MAX: f64 = 0.20;
/// A hypervisor may take this share.
pub const STEAL_MAX: f64 = 0.05;
/// An end whose programs use so many CPUs is busy.
const END_CPUS: f64 = 0.30;

/// Why a measurement in such surroundings says nothing; `None` when it does. Where it is not known what
/// others used, waiting alone decides.
pub fn noise(pressure: Option<f64>, outside: Option<f64>, steal: Option<f64>) -> Option<String> {
    let percent = |share: f64| 100.0 * share;
    if let Some(steal) = steal.filter(|steal| *steal > STEAL_MAX) {
        return Some(format!(
            "the hypervisor gave {:.0} % of the CPUs' time to others (limit {:.0} %)",
            percent(steal),
            percent(STEAL_MAX)
        ));
    }
    let pressure = pressure.filter(|pressure| *pressure > PRESSURE_MAX)?;
    let waited = format!(
        "programs waited for a CPU during {:.0} % of the measurement (limit {:.0} %)",
        percent(pressure),
        percent(PRESSURE_MAX)
    );
    match outside {
        None => Some(waited),
        Some(outside) if outside > OUTSIDE_CPUS_MAX => Some(format!(
            "{waited}, and others used {outside:.1} CPUs (limit {OUTSIDE_CPUS_MAX:.1})"
        )),
        Some(_) => None,
    }
}

/// Why this measurement says nothing.
pub fn doubt(evidence: &Evidence) -> Option<String> {
    noise(evidence.cpu_pressure, evidence.outside_cpus, evidence.steal)
}

/// An end whose own programs use the CPUs.
pub fn contention(evidence: &Evidence) -> Option<Finding> {
    let waiting = evidence.cpu_pressure.is_none_or(|pressure| pressure > PRESSURE_MAX);
    let busy = |end: &&End| end.busy_cpus >= END_CPUS;
    let end = evidence
        .ends
        .iter()
        .filter(busy)
        .max_by(|one, other| one.busy_cpus.total_cmp(&other.busy_cpus))?;
    waiting.then(|| Finding {
        cause: Cause::CpuContention,
        evidence: format!(
            "on {} other programs used {:.1} CPUs{}; programs waited for a CPU during {} of the time, \
             the measuring one at that end during {:.0} %",
            end.name,
            end.busy_cpus,
            named(&end.busiest),
            evidence
                .cpu_pressure
                .map_or("an unknown part".to_string(), |share| format!("{:.0} %", 100.0 * share)),
            100.0 * end.waited
        ),
        remedy: format!(
            "end these programs on {}, or bind them to other CPUs than the card's interrupts and \
             what uses the network; measure again before anything else is judged",
            end.name
        ),
    })
}

fn named(programs: &[String]) -> String {
    match programs {
        [] => String::new(),
        some => format!(" ({})", some.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::testing::{causes, link};
    use crate::diagnose::{Verdict, diagnose};

    #[test]
    fn a_machine_that_others_use_is_not_believed() {
        for evidence in [link(|_| 0.0), link(|_| 10.0)] {
            let busy =
                Evidence { cpu_pressure: Some(0.2), outside_cpus: Some(1.0), ..evidence.clone() };
            assert!(
                matches!(diagnose(&busy), Verdict::NotTrustworthy(why) if why.contains("20 %") && why.contains("1.0 CPUs"))
            );
            let unknown = Evidence { cpu_pressure: Some(0.2), outside_cpus: None, ..evidence };
            assert!(matches!(diagnose(&unknown), Verdict::NotTrustworthy(_)));
        }
    }

    #[test]
    fn what_the_measurement_itself_needs_is_no_reason_for_doubt() {
        let own = Evidence { cpu_pressure: Some(0.5), outside_cpus: Some(0.05), ..link(|_| 0.0) };
        assert_eq!(diagnose(&own), Verdict::NoFault);
        // Others with CPUs of their own disturb nobody.
        let wide = Evidence { cpu_pressure: Some(0.01), outside_cpus: Some(9.0), ..own };
        assert_eq!(diagnose(&wide), Verdict::NoFault);
    }

    #[test]
    fn a_hypervisor_that_takes_time_away_is_told() {
        let stolen = Evidence { steal: Some(0.2), ..link(|_| 0.0) };
        assert!(matches!(diagnose(&stolen), Verdict::NotTrustworthy(why) if why.contains("20 %")));
    }

    #[test]
    fn an_end_that_is_busy_itself_is_named_and_nothing_else_is() {
        let end = |name: &str, busy_cpus| End {
            name: name.to_string(),
            busy_cpus,
            busiest: vec!["sh 1.7".to_string()],
            ..End::default()
        };
        let busy = Evidence {
            cpu_pressure: Some(0.6),
            outside_cpus: Some(0.01),
            ends: vec![end("n1", 0.0), end("n2", 1.7)],
            ..link(|_| 10.0)
        };
        assert_eq!(causes(&busy), [Cause::CpuContention]);
        let Verdict::Faults(findings) = diagnose(&busy) else { panic!("no fault") };
        assert!(findings[0].evidence.starts_with("on n2 other programs used 1.7 CPUs (sh 1.7)"));
        // With CPUs enough for all, that they are used is no fault.
        let wide = Evidence { cpu_pressure: Some(0.01), ..busy };
        assert_eq!(causes(&wide), [Cause::Loss]);
    }
}
