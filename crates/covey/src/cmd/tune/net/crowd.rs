//! Several nodes of a lab to one: each alone, then more and more of them at once.

use super::{Args, pair, spinner};
use crate::cmd::Context;
use crate::error::{Cannot, Error, Result};
use crate::output::table;
use covey_lab::plan::Plan;
use covey_lab::state::Lab;
use covey_measure::environment::Watch;
use covey_measure::probe::{self, Talked};
use covey_measure::report::tell_verdict;
use covey_measure::stop::{INTERRUPTED, Stop, interruptible};
use covey_tune::diagnose::{Crowd, Talk, Verdict, crowd};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::process::{Child, Stdio};
use std::time::Duration;

/// How long each node talks alone, in seconds.
const ALONE_S: f64 = 0.7;
/// How long several talk: what is lost costs a timer of 200 ms each time.
const TOGETHER_S: f64 = 2.0;
/// A crowd is not made larger than this.
const CROWD_MAX: usize = 16;

/// What was found of one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CrowdReport {
    /// What was measured.
    #[serde(flatten)]
    pub crowd: Crowd,
    /// What follows.
    pub verdict: Verdict,
}

/// `--crowd NODE`.
pub async fn run(args: &Args, to: &str, context: &Context) -> Result<()> {
    let lab = Lab::named(args.lab.as_deref())?;
    lab.living_keeper()?;
    let plan = lab.plan()?;
    let bar = spinner(context);
    let (args, node, shown) = (args.clone(), to.to_string(), bar.clone());
    let found = interruptible(move |stop| {
        let found = measure(&args, &lab, &plan, &node, stop, &shown)?;
        Ok((found, stop.is_asked()))
    });
    let found = found.await;
    bar.finish_and_clear();
    let (found, was_interrupted) = found?;
    context.output.result(&found, |out| {
        rows_of(out, std::slice::from_ref(&found));
        tell_verdict(out, &found.verdict)
    })?;
    if was_interrupted {
        Err(Error::work(format!("cannot measure the crowd to {to} to the end: {INTERRUPTED}")))
    } else {
        Ok(())
    }
}

/// Everybody else to one node; what there is when it is asked to stop.
pub fn measure(
    args: &Args,
    lab: &Lab,
    plan: &Plan,
    to: &str,
    stop: &Stop,
    bar: &indicatif::ProgressBar,
) -> Result<CrowdReport> {
    lab.node(plan, to)?;
    let mut others: Vec<String> = plan.nodes.iter().filter(|node| *node != to).cloned().collect();
    others.truncate(CROWD_MAX);
    if others.len() < 2 {
        return Err(Error::user(format!(
            "cannot make a crowd: lab {} has too few nodes",
            lab.name
        ))
        .hint("it takes two that talk and one that answers: `covey lab up 3`"));
    }
    let _answering = pair::Answering::on(lab, plan, to)?;
    let watch = Watch::begin();
    let mut found = Crowd { to: to.to_string(), ..Crowd::default() };
    for senders in steps(&others) {
        let (seconds, list, what) = match senders {
            [one] => (ALONE_S, &mut found.alone, format!("{one} alone")),
            many => (TOGETHER_S, &mut found.together, format!("{} at once", many.len())),
        };
        bar.set_message(format!("{what} to {to}"));
        match talk(lab, to, senders, seconds, stop) {
            // What was broken off says nothing.
            _ if stop.is_asked() => break,
            talked => list.push(talked?),
        }
    }
    if stop.is_asked() && found.alone.is_empty() {
        return Err(Error::work(format!("cannot measure the crowd to {to}: {INTERRUPTED}")));
    }
    let environment = watch.end();
    if !args.anyway {
        found.cpu_pressure = environment.cpu_pressure;
        found.outside_cpus = environment.outside_cpus;
        found.steal = environment.steal;
    }
    let verdict = if stop.is_asked() {
        Verdict::NotTrustworthy(INTERRUPTED.to_string())
    } else {
        crowd(&found)
    };
    Ok(CrowdReport { crowd: found, verdict })
}

/// Who talks: each alone, then more and more of them.
fn steps(others: &[String]) -> Vec<&[String]> {
    let together = counts(others.len()).into_iter().map(|count| &others[..count]);
    others.chunks(1).chain(together).collect()
}

/// How many talk at once: 2, 3, 4, then twice as many each time, and all.
fn counts(all: usize) -> Vec<usize> {
    let mut counts: Vec<usize> =
        [2, 3, 4, 8, 16].into_iter().filter(|count| *count < all).collect();
    counts.push(all);
    counts
}

/// These at once.
fn talk(lab: &Lab, to: &str, senders: &[String], seconds: f64, stop: &Stop) -> Result<Talk> {
    let start = |sender: &String| -> Result<Child> {
        let mut command = pair::on_node(lab, sender);
        command.args(["--json", "tune", "net", to, "--talk", &seconds.to_string()]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().cannot(|| format!("measure on {sender}"))
    };
    let children: Vec<Child> = senders.iter().map(start).collect::<Result<_>>()?;
    let mut all = Talk { senders: senders.to_vec(), ..Talk::default() };
    for (sender, child) in senders.iter().zip(children) {
        let output = child.wait_with_output().cannot(|| format!("measure on {sender}"))?;
        let talked: Talked = serde_json::from_slice(&output.stdout)
            .map_err(|_| pair::said_no(lab, sender, stop, &output.stderr))?;
        all.rounds += talked.rounds;
        all.retransmits += talked.retransmits;
        all.seconds = all.seconds.max(talked.seconds);
        all.failure = all.failure.or(talked.failure.map(|why| format!("{sender}: {why}")));
    }
    Ok(all)
}

/// On a node: be one of them.
pub fn member(args: &Args, to: &str) -> Result<()> {
    let seconds = args.talk.unwrap_or(ALONE_S).clamp(0.1, 60.0);
    let talked = probe::talk(probe::resolve(to)?, Duration::from_secs_f64(seconds))?;
    crate::output::write_out(serde_json::to_string(&talked)?.as_bytes())
}

/// A table of crowds.
pub fn rows_of(out: &mut Vec<u8>, found: &[CrowdReport]) {
    let row = |to: &str, talk: &Talk| {
        let who = match talk.senders.as_slice() {
            [one] => one.clone(),
            many => format!("{} at once", many.len()),
        };
        let each = talk.per_s() / talk.senders.len().max(1) as f64;
        let failure = talk.failure.clone().unwrap_or_default();
        vec![to.to_string(), who, format!("{each:.0}"), talk.retransmits.to_string(), failure]
    };
    let rows: Vec<Vec<String>> = found
        .iter()
        .flat_map(|one| {
            let all = one.crowd.alone.iter().chain(&one.crowd.together);
            all.map(|talk| row(&one.crowd.to, talk))
        })
        .collect();
    table(out, &["TO", "FROM", ">BLOCKS/S EACH", ">SENT AGAIN", "ENDED BY"], &rows);
    let _ = writeln!(out);
}
