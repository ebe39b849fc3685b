//! `covey tune net`: the way between two hosts.

use crate::cmd::Context;
use crate::error::{Cannot, Error, Result};
use crate::lab::control::status;
use crate::lab::enter;
use crate::lab::state::Lab;
use crate::lab::units::{rate_text, time_text};
use crate::output::table;
use crate::tune::environment::Watch;
use crate::tune::probe::{self, BYTES_MAX, Plan};
use crate::tune::provenance::Provenance;
use crate::tune::report::{Graph, Report, rows};
use covey_tune::diagnose::{Evidence, Verdict, diagnose};
use covey_tune::{Pick, Quantities};
use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

/// Measure the network between two hosts
///
/// With one HOST: from here to there, where `covey tune serve` must run. With two: between two nodes
/// of a lab, which need nothing. With --all: every pair of nodes of a lab, one after another.
///
/// Sizes are NetPIPE's: powers of two and those half way between, each with 3 bytes less and more.
/// All are gone through three times. The sizes end early when the budget does not suffice. Both
/// ends wait in the kernel, as ordinary programs do.
///
/// Then follow long transfers each way and both at once, and a diagnosis: cause, evidence and remedy
/// of an MTU black hole, loss (of any packets, of long ones, of long trains), a slow way, half
/// duplex; or that there is no fault, or that the machine was too busy to tell.
///
/// Exit code 1 when the measurement broke off; what there was is told all the same.
///
/// EXAMPLES
///
///     covey tune net n1 n2
///     covey tune net n1 n2 --budget 30 --csv n1-n2.csv --netpipe n1-n2.np
///     covey tune net --all
///     covey tune net server7:5641 --graph signature
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The host to measure to, or two nodes of a lab
    #[arg(value_name = "HOST", required_unless_present = "all", conflicts_with = "all", num_args = 1..=2)]
    hosts: Vec<String>,
    /// Every pair of nodes of the lab
    #[arg(long)]
    all: bool,
    /// Which lab, where there are several [default: lab; inside one, that one]
    #[arg(long, value_name = "NAME")]
    lab: Option<String>,
    /// How long each pair may take, roughly, in seconds; a bad link may take three times that
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3600))]
    budget: u32,
    /// The longest block
    #[arg(long, value_name = "SIZE", default_value = "4MiB", value_parser = parse_size)]
    up_to: u64,
    /// How far beside each size its neighbours lie; 0 leaves them out
    #[arg(long, value_name = "BYTES", default_value_t = 3, value_parser = clap::value_parser!(u8).range(0..=8))]
    perturbation: u8,
    /// What links of this kind carry, in bits per second; a slower one is a fault
    #[arg(long, value_name = "RATE", value_parser = parse_expected)]
    expect: Option<f64>,
    /// Look for faults although other programs use the CPUs; they may be found where there are none
    #[arg(long)]
    anyway: bool,
    /// What this machine moves without any wire, in bits per second.
    #[arg(long, hide = true)]
    machine: Option<f64>,
    /// Which graph to draw
    #[arg(long, value_enum, default_value_t = Graph::Throughput)]
    graph: Graph,
    /// Write the times of each size to FILE, separated by commas
    #[arg(long, value_name = "FILE", conflicts_with = "all")]
    csv: Option<PathBuf>,
    /// Write FILE in NetPIPE's three columns, with its statistic: the least mean of a trial
    #[arg(long, value_name = "FILE", conflicts_with = "all")]
    netpipe: Option<PathBuf>,
}

fn parse_size(text: &str) -> std::result::Result<u64, String> {
    let bytes = crate::config::size::parse(text)?;
    match (64..=BYTES_MAX).contains(&bytes) {
        true => Ok(bytes),
        false => Err(format!("`{text}` is outside the limits: 64 B to 256 MiB")),
    }
}

fn parse_expected(text: &str) -> std::result::Result<f64, String> {
    crate::lab::units::parse_rate(text)?.map(|bits| bits as f64).ok_or("it must be a rate".into())
}

/// Runs the command.
pub async fn run(args: &Args, context: &Context) -> Result<()> {
    if args.all {
        return all_pairs(args, context);
    }
    let report = match args.hosts.as_slice() {
        [to] => from_here(args, to, context)?,
        [from, to] => between(args, &Lab::named(args.lab.as_deref())?, from, to)?,
        _ => return Err(Error::user("cannot measure: name one host, or two nodes of a lab")),
    };
    save(args, &report)?;
    context.output.result(&report, |out| report.tell(out, args.graph))?;
    whole(&report)
}

/// A measurement that broke off is told and is an error.
fn whole(report: &Report) -> Result<()> {
    let Report { from, to, failure, .. } = report;
    match failure {
        None => Ok(()),
        Some(why) => Err(Error::work(format!("cannot measure {from} to {to} to the end: {why}"))
            .hint("`covey lab status` shows whether a cable is down or loses frames")),
    }
}

fn save(args: &Args, report: &Report) -> Result<()> {
    let write = |file: &Option<PathBuf>, text: String| match file {
        None => Ok(()),
        Some(file) => std::fs::write(file, text).cannot(|| format!("write {}", file.display())),
    };
    write(&args.csv, report.csv())?;
    write(&args.netpipe, report.netpipe())
}

fn from_here(args: &Args, to: &str, context: &Context) -> Result<Report> {
    let peer = probe::resolve(to)?;
    let plan = Plan {
        up_to_bytes: args.up_to,
        perturbation: args.perturbation.into(),
        budget: Duration::from_secs(args.budget.into()),
    };
    let bar = spinner(context);
    let watch = Watch::begin();
    let outcome = probe::measure(peer, &plan, |bytes, time_s| {
        bar.set_message(format!(
            "{to}: {bytes} bytes in {}, {}",
            time_text((time_s * 1e9) as u64),
            rate_text(Some((bytes as f64 * 8.0 / time_s) as u64))
        ));
        bar.tick();
    });
    let outcome = outcome?;
    let environment = watch.end();
    let typical = Quantities::of(&outcome.curve);
    bar.set_message(format!("{to}: long transfers"));
    // Blocks that do not pass say enough.
    let streams = match (&outcome.failure, &typical) {
        (None, Some(found)) => probe::streams(peer, found.bandwidth_bits_per_s.value).ok(),
        _ => None,
    };
    bar.finish_and_clear();
    let evidence = Evidence {
        curve: outcome.curve,
        stalled: outcome.stalled,
        streams: streams.map(|streams| streams.alone),
        both_at_once: streams.map(|streams| streams.together),
        segment_bytes: outcome.segment_bytes,
        machine_bits_per_s: args.machine,
        expected_bits_per_s: args.expect,
        cpu_pressure: environment.cpu_pressure.filter(|_| !args.anyway),
    };
    let verdict = match outcome.failure.is_some() && outcome.stalled.is_none() {
        true => Verdict::NotTrustworthy("the measurement broke off".to_string()),
        false => diagnose(&evidence),
    };
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    Ok(Report {
        from: host.trim().to_string(),
        to: to.to_string(),
        protocol: "TCP".to_string(),
        wait: "blocking".to_string(),
        points: rows(&evidence.curve),
        best: Quantities::of_pick(&evidence.curve, Pick::Best),
        typical,
        streams: evidence.streams,
        both_at_once: evidence.both_at_once,
        verdict,
        environment,
        failure: outcome.failure,
        wire: None,
        provenance: Provenance::here(),
    })
}

fn spinner(context: &Context) -> indicatif::ProgressBar {
    use std::io::IsTerminal;
    match context.output.json || !std::io::stderr().is_terminal() {
        true => indicatif::ProgressBar::hidden(),
        false => indicatif::ProgressBar::new_spinner(),
    }
}

/// Runs both ends on nodes of a lab.
fn between(args: &Args, lab: &Lab, from: &str, to: &str) -> Result<Report> {
    lab.living_keeper()?;
    let plan = lab.plan()?;
    let target = lab.node(&plan, to)?;
    lab.node(&plan, from)?;
    if from == to {
        return Err(Error::user(format!("cannot measure {from} to itself"))
            .hint("name two different nodes"));
    }
    let (_, card) = plan.cards_of(target).next().expect("every node has a card");
    let listen = format!("{}:{}", card.address, probe::PORT_DEFAULT);
    let mut server = enter::ourselves_on(lab, to)
        .args(["tune", "serve", "--listen", &listen])
        .stdout(Stdio::null())
        .spawn()
        .cannot(|| format!("answer on {to}"))?;
    let (budget, up_to) = (args.budget.to_string(), args.up_to.to_string());
    let perturbation = args.perturbation.to_string();
    let words = ["--json", "tune", "net", to, "--budget", &budget, "--up-to", &up_to];
    let mut words = [&words[..], &["--perturbation", &perturbation]].concat();
    let machine = status(lab)?.floor.map(|floor| floor.bits_per_s.to_string());
    if let Some(machine) = &machine {
        words.extend(["--machine", machine]);
    }
    let expect = args.expect.map(|expect| expect.to_string());
    if let Some(expect) = &expect {
        words.extend(["--expect", expect]);
    }
    if args.anyway {
        words.push("--anyway");
    }
    let asked = enter::ourselves_on(lab, from).args(words).output();
    let _ = server.kill();
    let _ = server.wait();
    let output = asked.cannot(|| format!("measure on {from}"))?;
    let report: Report =
        serde_json::from_slice(&output.stdout).map_err(|_| said_no(from, &output.stderr))?;
    // What was run on the node was this command's doing.
    Ok(Report { wire: plan.networks[0].profile.wire(), provenance: Provenance::here(), ..report })
}

/// What the measuring node said instead of a report: our own error, as JSON.
fn said_no(from: &str, stderr: &[u8]) -> Error {
    let said: serde_json::Value = serde_json::from_slice(stderr).unwrap_or_default();
    let message = said["error"]["message"].as_str().map(str::to_string);
    let message = message.unwrap_or_else(|| String::from_utf8_lossy(stderr).trim().to_string());
    let hints = said["error"]["hints"].as_array().into_iter().flatten();
    let error = Error::work(format!("{message} (on {from})"));
    hints.filter_map(|hint| hint.as_str()).fold(error, Error::hint)
}

/// Every pair of a lab, one after another. A pair that fails does not keep the others from being
/// measured.
fn all_pairs(args: &Args, context: &Context) -> Result<()> {
    let lab = Lab::named(args.lab.as_deref())?;
    lab.living_keeper()?;
    let plan = lab.plan()?;
    if plan.nodes.len() < 2 {
        return Err(Error::user(format!("cannot measure pairs: lab {} has one node", lab.name))
            .hint("`covey lab up 2` makes one of two"));
    }
    let mut reports = Vec::new();
    let mut failures = Vec::new();
    for (index, from) in plan.nodes.iter().enumerate() {
        for to in &plan.nodes[index + 1..] {
            context.output.detail(format!("measuring {from} to {to}"));
            match between(args, &lab, from, to) {
                Ok(report) => {
                    failures.extend(whole(&report).err());
                    reports.push(report);
                }
                Err(error) => failures.push(error),
            }
        }
    }
    context.output.result(&reports, |out| tell_pairs(out, &reports))?;
    failures.iter().for_each(|error| context.output.tell(error));
    if failures.is_empty() { Ok(()) } else { Err(Error::told()) }
}

fn tell_pairs(out: &mut Vec<u8>, reports: &[Report]) -> std::io::Result<()> {
    let time = |seconds: f64| time_text((seconds * 1e9) as u64);
    let rate = |bits: f64| rate_text(Some(bits as u64));
    let rows: Vec<Vec<String>> = reports
        .iter()
        .map(|report| {
            let again: u64 = report.points.iter().map(|row| row.retransmits).sum();
            let mut row = vec![report.from.clone(), report.to.clone()];
            match &report.typical {
                None => row.extend(["-".to_string(), "-".to_string()]),
                Some(found) => {
                    let (latency, bandwidth) = (found.latency_s, found.bandwidth_bits_per_s);
                    row.push(format!(
                        "{} ({} to {})",
                        time(latency.value),
                        time(latency.low),
                        time(latency.high)
                    ));
                    row.push(format!(
                        "{} ({} to {})",
                        rate(bandwidth.value),
                        rate(bandwidth.low),
                        rate(bandwidth.high)
                    ));
                }
            }
            row.push(again.to_string());
            row.push(match &report.verdict {
                Verdict::NoFault => "no fault".to_string(),
                Verdict::NotTrustworthy(_) => "unknown".to_string(),
                Verdict::Faults(findings) => {
                    let words: Vec<&str> =
                        findings.iter().map(|finding| finding.cause.words()).collect();
                    words.join("; ")
                }
            });
            row
        })
        .collect();
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
