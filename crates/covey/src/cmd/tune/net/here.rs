//! From this host to one that answers.

use super::{Args, pair, show, spinner};
use crate::cmd::Context;
use crate::error::{Cannot, Result};
use covey_measure::environment::Watch;
use covey_measure::probe::{self, Outcome, Plan, Streams};
use covey_measure::provenance::Provenance;
use covey_measure::report::{Report, rows};
use covey_tune::diagnose::{Evidence, Held, Taken, Verdict, Written, diagnose, window_that_passes};
use covey_tune::{Pick, Quantities};
use std::net::SocketAddr;
use std::time::Duration;

/// Measures and concludes.
pub fn measure(args: &Args, to: &str, context: &Context) -> Result<Report> {
    let peer = probe::resolve(to)?;
    let watch = Watch::begin();
    let taken = probe::taken(peer);
    // Whom the blocks would reach is chance then.
    let parts =
        if taken.is_empty() { Parts::measure(args, to, peer, context)? } else { Parts::default() };
    let (environment, usage) = watch.end_with_usage();
    let Parts { outcome, streams, held, written } = parts;
    let mut ends = streams.as_ref().map_or(Vec::new(), |streams| streams.ends.clone());
    if let Some(first) = ends.first_mut() {
        *first = probe::with_usage(std::mem::take(first), &usage);
    }
    let outcome = outcome.unwrap_or_default();
    let evidence = Evidence {
        curve: outcome.curve,
        stalled: outcome.stalled,
        streams: streams.as_ref().map(|streams| streams.alone),
        both_at_once: streams.as_ref().map(|streams| streams.together),
        segment_bytes: outcome.segment_bytes,
        machine_bits_per_s: args.machine,
        expected_bits_per_s: args.expect,
        cpu_pressure: environment.cpu_pressure.filter(|_| !args.anyway),
        outside_cpus: Some(usage.outside).filter(|_| !args.anyway),
        steal: environment.steal.filter(|_| !args.anyway),
        ends,
        taken,
        held,
        written,
    };
    if let Some(file) = &args.evidence {
        let text = serde_json::to_vec(&evidence)?;
        std::fs::write(file, text).cannot(|| format!("write {}", file.display()))?;
    }
    Ok(report(to, evidence, environment, outcome.failure))
}

/// What was measured.
#[derive(Default)]
struct Parts {
    outcome: Option<Outcome>,
    streams: Option<Streams>,
    held: Option<Held>,
    written: Option<Written>,
}

impl Parts {
    fn measure(args: &Args, to: &str, peer: SocketAddr, context: &Context) -> Result<Parts> {
        let plan = Plan {
            up_to_bytes: args.up_to,
            perturbation: args.perturbation.into(),
            budget: Duration::from_secs(args.budget.into()),
        };
        let bar = spinner(context);
        let outcome = probe::measure(peer, &plan, |point| {
            show(&bar, to, point);
            if args.points {
                pair::hand_over_point(point);
            }
        })?;
        bar.set_message(format!("{to}: long transfers"));
        let mut parts = Parts::default();
        // Blocks that do not pass say enough.
        if let (None, Some(last)) = (&outcome.failure, outcome.curve.points.last()) {
            let guess = Quantities::of(&outcome.curve)
                .map_or(last.bits_per_s(Pick::Typical), |found| found.bandwidth_bits_per_s.value);
            parts.streams = probe::streams(peer, guess).ok();
            if let Some(bytes) = window_that_passes(&outcome.curve, outcome.segment_bytes) {
                parts.held = probe::held(peer, bytes, guess).ok();
            }
            if args.like_application {
                parts.written = probe::written_apart(peer).ok().map(|points| Written { points });
            }
        }
        bar.finish_and_clear();
        Ok(Parts { outcome: Some(outcome), ..parts })
    }
}

fn report(
    to: &str,
    evidence: Evidence,
    environment: covey_measure::environment::Environment,
    failure: Option<String>,
) -> Report {
    let verdict = if failure.is_some() && evidence.stalled.is_none() {
        Verdict::NotTrustworthy("the measurement broke off".to_string())
    } else {
        diagnose(&evidence)
    };
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    Report {
        from: host.trim().to_string(),
        to: to.to_string(),
        protocol: "TCP".to_string(),
        wait: "blocking".to_string(),
        points: rows(&evidence.curve),
        best: Quantities::of_pick(&evidence.curve, Pick::Best),
        typical: Quantities::of(&evidence.curve),
        streams: evidence.streams,
        both_at_once: evidence.both_at_once,
        verdict,
        environment,
        failure,
        wire: None,
        provenance: Provenance::here(),
    }
}

/// A report of what had been handed over before the measuring program ended without a word.
pub fn partial(
    from: &str,
    to: &str,
    points: Vec<covey_tune::Point>,
    took: Duration,
    why: &str,
) -> Report {
    let curve = covey_tune::Curve::new(points);
    let last = curve.points.last().map_or(0, |point| point.bytes);
    let evidence = Evidence { curve, taken: Vec::<Taken>::new(), ..Evidence::default() };
    let failure = Some(format!("{why}; the last size was {last} bytes"));
    let seconds = took.as_secs_f64();
    let environment = covey_measure::environment::Environment { seconds, ..Default::default() };
    Report { from: from.to_string(), ..report(to, evidence, environment, failure) }
}
