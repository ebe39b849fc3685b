//! Every pair of a lab, then every node with several others at once; and what the bad ones have in common.

use super::crowd::{self, CrowdReport};
use super::{Args, pair, show, spinner, whole};
use crate::cmd::Context;
use crate::error::{Error, Result};
use crate::output::table;
use covey_lab::plan::Plan;
use covey_lab::state::Lab;
use covey_lab::units::{rate_text, time_text};
use covey_measure::report::{Report, tell_verdict};
use covey_measure::stop::{INTERRUPTED, Stop, interruptible};
use covey_tune::diagnose::Verdict;
use covey_tune::eliminate::{Pair, Suspicion, eliminate};
use covey_tune::rounds;
use serde::{Deserialize, Serialize};
use std::io::Write;

/// All of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AllPairs {
    /// Each pair that could be measured.
    pub pairs: Vec<Report>,
    /// Which of them were measured at the same time; each alone without --at-once.
    pub rounds: Vec<Vec<[String; 2]>>,
    /// Each node with the others talking to it at once; none with fewer than three nodes.
    pub crowds: Vec<CrowdReport>,
    /// What explains the bad pairs.
    pub suspicions: Vec<Suspicion>,
}

/// Measures all. A pair that fails does not keep the others from being measured, and Ctrl-C ends it with what there is.
pub async fn run(args: &Args, context: &Context) -> Result<()> {
    let lab = Lab::named(args.lab.as_deref())?;
    lab.living_keeper()?;
    let plan = lab.plan()?;
    if plan.nodes.len() < 2 {
        return Err(Error::user(format!("cannot measure pairs: lab {} has one node", lab.name))
            .hint("`covey lab up 2` makes one of two"));
    }
    let (args, theirs) = (args.clone(), context.clone());
    let measured = interruptible(move |stop| Ok(measure(&args, &lab, &plan, &theirs, stop)));
    let (all, failures) = measured.await?;
    context.output.result(&all, |out| tell(out, &all))?;
    failures.iter().for_each(|error| context.output.tell(error));
    if failures.is_empty() { Ok(()) } else { Err(Error::told()) }
}

fn measure(
    args: &Args,
    lab: &Lab,
    plan: &Plan,
    context: &Context,
    stop: &Stop,
) -> (AllPairs, Vec<Error>) {
    let mut failures = Vec::new();
    let mut pairs = Vec::new();
    let mut rounds = Vec::new();
    for round in rounds_of(args, plan.nodes.len()) {
        if stop.is_asked() {
            break;
        }
        for measured in measure_round(args, lab, plan, &round, context, stop) {
            match measured {
                Ok(report) => {
                    failures.extend(whole(&report).err());
                    pairs.push(report);
                }
                Err(error) => failures.push(error),
            }
        }
        rounds.push(round);
    }
    let mut crowds = Vec::new();
    if plan.nodes.len() > 2 {
        let bar = spinner(context);
        for node in plan.nodes.iter().take_while(|_| !stop.is_asked()) {
            match crowd::measure(args, lab, plan, node, stop, &bar) {
                Ok(found) => crowds.push(found),
                Err(error) => failures.push(error),
            }
        }
        bar.finish_and_clear();
    }
    let name = |node: &usize| plan.nodes[*node].clone();
    let rounds = rounds
        .iter()
        .map(|round| round.iter().map(|(one, other)| [name(one), name(other)]).collect::<Vec<_>>());
    let rounds = rounds.collect();
    let suspicions =
        eliminate(&pairs.iter().map(|report| witness(plan, report)).collect::<Vec<_>>());
    if stop.is_asked() {
        failures
            .push(Error::work(format!("cannot measure all of lab {}: {INTERRUPTED}", lab.name)));
    }
    (AllPairs { pairs, rounds, crowds, suspicions }, failures)
}

fn rounds_of(args: &Args, nodes: usize) -> Vec<Vec<(usize, usize)>> {
    if args.at_once {
        return rounds(nodes);
    }
    (0..nodes).flat_map(|one| (one + 1..nodes).map(move |other| vec![(one, other)])).collect()
}

/// Pairs that share no node, at the same time.
fn measure_round(
    args: &Args,
    lab: &Lab,
    plan: &Plan,
    round: &[(usize, usize)],
    context: &Context,
    stop: &Stop,
) -> Vec<Result<Report>> {
    let bar = spinner(context);
    let measured = std::thread::scope(|scope| {
        let going: Vec<_> = round
            .iter()
            .map(|(from, to)| {
                let (from, to) = (plan.nodes[*from].as_str(), plan.nodes[*to].as_str());
                let bar = &bar;
                scope.spawn(move || {
                    pair::between(args, lab, [from, to], round.len(), stop, &mut |point| {
                        show(bar, &format!("{from} to {to}"), point);
                    })
                })
            })
            .collect();
        let failed = || Err(Error::work("cannot measure: a thread failed"));
        going.into_iter().map(|one| one.join().unwrap_or_else(|_| failed())).collect()
    });
    bar.finish_and_clear();
    measured
}

/// What a pair says of the things it goes over. One that broke off says nothing.
fn witness(plan: &Plan, report: &Report) -> Pair {
    let causes = match &report.verdict {
        Verdict::NotTrustworthy(_) => None,
        verdict => Some(verdict.causes()),
    };
    let nodes = [report.from.clone(), report.to.clone()];
    Pair { path: plan.path(&nodes[0], &nodes[1]), nodes, causes }
}

fn tell(out: &mut Vec<u8>, all: &AllPairs) -> std::io::Result<()> {
    tell_pairs(out, &all.pairs)?;
    for report in &all.pairs {
        if let Verdict::Faults(_) = report.verdict {
            writeln!(out, "\n{} to {}:", report.from, report.to)?;
            tell_verdict(out, &report.verdict)?;
        }
    }
    if !all.crowds.is_empty() {
        writeln!(out)?;
        crowd::rows_of(out, &all.crowds);
        for found in &all.crowds {
            match &found.verdict {
                Verdict::NoFault => {}
                verdict => {
                    writeln!(out, "several to {}:", found.crowd.to)?;
                    tell_verdict(out, verdict)?;
                }
            }
        }
    }
    for suspicion in &all.suspicions {
        writeln!(out, "\nsuspect: {}\n  because {}", suspicion.words(), suspicion.evidence)?;
    }
    Ok(())
}

fn tell_pairs(out: &mut Vec<u8>, reports: &[Report]) -> std::io::Result<()> {
    let rows: Vec<Vec<String>> = reports.iter().map(row).collect();
    table(
        out,
        &["FROM", "TO", "LATENCY (95 %)", "BANDWIDTH (95 %)", ">SENT AGAIN", "FAULT"],
        &rows,
    );
    match reports.iter().find_map(|report| report.environment.warning()) {
        Some(warning) => writeln!(out, "\nwarning: {warning}"),
        None => Ok(()),
    }
}

fn row(report: &Report) -> Vec<String> {
    let time = |seconds: f64| time_text((seconds * 1e9) as u64);
    let rate = |bits: f64| rate_text(Some(bits as u64));
    let (latency, bandwidth) = match &report.typical {
        None => ("-".to_string(), "-".to_string()),
        Some(found) => {
            let (latency, bandwidth) = (found.latency_s, found.bandwidth_bits_per_s);
            (
                format!(
                    "{} ({} to {})",
                    time(latency.value),
                    time(latency.low),
                    time(latency.high)
                ),
                format!(
                    "{} ({} to {})",
                    rate(bandwidth.value),
                    rate(bandwidth.low),
                    rate(bandwidth.high)
                ),
            )
        }
    };
    let again: u64 = report.points.iter().map(|row| row.retransmits).sum();
    let fault = match &report.verdict {
        Verdict::NoFault => "no fault".to_string(),
        Verdict::NotTrustworthy(_) => "unknown".to_string(),
        Verdict::Faults(findings) => {
            let words: Vec<&str> = findings.iter().map(|finding| finding.cause.words()).collect();
            words.join("; ")
        }
    };
    vec![report.from.clone(), report.to.clone(), latency, bandwidth, again.to_string(), fault]
}
