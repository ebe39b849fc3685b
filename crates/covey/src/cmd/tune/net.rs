//! `covey tune net`: the way between two hosts.

mod all;
mod crowd;
mod here;
mod pair;

use crate::cmd::Context;
use crate::error::{Cannot, Error, Result};
use clap::{Args as _, FromArgMatches};
use covey_lab::state::Lab;
use covey_lab::units::{rate_text, time_text};
use covey_measure::probe::BYTES_MAX;
use covey_measure::report::{Graph, Report};
use covey_measure::stop::{Stop, interruptible};
use covey_tune::{Pick, Point};
use std::path::PathBuf;

/// Measure the network between two hosts
///
/// With one HOST: from here to there, where `covey tune serve` must run. With two: between two nodes
/// of a lab, which need nothing. With --all: every pair of nodes of a lab, one after another, then
/// several nodes to each one; what all bad pairs have in common is named. --at-once measures pairs
/// that share no node at the same time. --crowd NODE: all others to that one, alone and at once.
///
/// Sizes are NetPIPE's: powers of two and those half way between, each with 3 bytes less and more.
/// Each is measured three times. The largest sizes are left out when the budget does not suffice.
/// Both ends wait in the kernel, as ordinary programs do.
///
/// Then follow long transfers in each direction and in both at once, and a diagnosis: cause,
/// evidence and remedy of an MTU black hole, an address that two cards have, loss (of any packets,
/// of long ones, of long trains: a short queue or a policer), a slow direction, a slow link, half
/// duplex, small socket buffers, disabled offloads, an end whose programs use its CPUs; or that
/// there is no fault; or that the machine was busy, so that no statement is possible.
/// --like-application also writes as programs without TCP_NODELAY do, and says whether short writes
/// wait for delayed acknowledgements.
///
/// Exit code 0 when all was measured, whatever was found; 1 when a measurement was cut short (its
/// results so far are printed); 2 when the command is wrong, or the host, node or lab does not
/// exist.
///
/// EXAMPLES
///
///     covey tune net n1 n2
///     covey tune net n1 n2 --budget 30 --csv n1-n2.csv --netpipe n1-n2.np
///     covey tune net --all
///     covey tune net --crowd n4
///     covey tune net server7:5641 --graph signature
#[derive(clap::Args, Clone, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The host to measure to, or two nodes of a lab
    #[arg(value_name = "HOST", required_unless_present_any = ["all", "crowd"], conflicts_with_all = ["all", "crowd"], num_args = 1..=2)]
    hosts: Vec<String>,
    /// Every pair of nodes of the lab
    #[arg(long)]
    all: bool,
    /// With --all: pairs that share no node at the same time
    #[arg(long, requires = "all")]
    at_once: bool,
    /// All other nodes of the lab to NODE, each alone and several at once
    #[arg(long, value_name = "NODE", conflicts_with = "all")]
    crowd: Option<String>,
    /// Write header and body apart and without TCP_NODELAY as well, as many programs do
    #[arg(long)]
    like_application: bool,
    /// Which lab, where there are several [default: lab; inside one, that one]
    #[arg(long, value_name = "LAB")]
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
    /// Hand each point over as a line of JSON, and the report at last.
    #[arg(long, hide = true)]
    points: bool,
    /// Be one of those that talk to HOST, for so many seconds.
    #[arg(long, hide = true, value_name = "SECONDS")]
    talk: Option<f64>,
    /// Write what the diagnosis was made of to FILE.
    #[arg(long, hide = true, value_name = "FILE")]
    evidence: Option<PathBuf>,
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
    if (64..=BYTES_MAX).contains(&bytes) {
        Ok(bytes)
    } else {
        Err(format!("`{text}` is outside the limits: 64 B to 256 MiB"))
    }
}

fn parse_expected(text: &str) -> std::result::Result<f64, String> {
    covey_lab::units::parse_rate(text)?.map(|bits| bits as f64).ok_or("it must be a rate".into())
}

/// Runs the command.
pub async fn run(args: &Args, context: &Context) -> Result<()> {
    if args.all {
        return all::run(args, context).await;
    }
    if let Some(to) = &args.crowd {
        return crowd::run(args, to, context).await;
    }
    if let ([to], true) = (args.hosts.as_slice(), args.talk.is_some()) {
        return crowd::member(args, to);
    }
    let bar = spinner(context);
    let report = match args.hosts.len() {
        2 => {
            let (args, theirs, shown) = (args.clone(), context.clone(), bar.clone());
            interruptible(move |stop| measure(&args, &theirs, stop, &shown)).await
        }
        // The program on a node is ended by the one that began it.
        _ => measure(args, context, &Stop::default(), &bar),
    };
    bar.finish_and_clear();
    let report = report?;
    if args.points {
        return pair::hand_over(&report);
    }
    save(args, &report)?;
    context.output.result(&report, |out| report.tell(out, args.graph))?;
    whole(&report)
}

/// One pair by the words of this command, as a part of `tune all`.
pub fn part(
    words: &[String],
    context: &Context,
    stop: &Stop,
    bar: &indicatif::ProgressBar,
) -> Result<Report> {
    let command = Args::augment_args(clap::Command::new("net"));
    let words = std::iter::once("net").chain(words.iter().map(String::as_str));
    let wrong = |why: clap::Error| Error::user(format!("cannot measure: {why}"));
    let matches = command.try_get_matches_from(words).map_err(wrong)?;
    measure(&Args::from_arg_matches(&matches).map_err(wrong)?, context, stop, bar)
}

fn measure(
    args: &Args,
    context: &Context,
    stop: &Stop,
    bar: &indicatif::ProgressBar,
) -> Result<Report> {
    match args.hosts.as_slice() {
        [to] => here::measure(args, to, context),
        [from, to] => {
            let lab = Lab::named(args.lab.as_deref())?;
            pair::between(args, &lab, [from, to], 1, stop, &mut |point| {
                show(bar, &format!("{from} to {to}"), point);
            })
        }
        _ => Err(Error::user("cannot measure: name one host, or two nodes of a lab")),
    }
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

fn spinner(context: &Context) -> indicatif::ProgressBar {
    use std::io::IsTerminal;
    if context.output.json || !std::io::stderr().is_terminal() {
        indicatif::ProgressBar::hidden()
    } else {
        indicatif::ProgressBar::new_spinner()
    }
}

/// The current estimate.
fn show(bar: &indicatif::ProgressBar, whom: &str, point: &Point) {
    let (bytes, time_s) = (point.bytes, point.time_s(Pick::Typical));
    bar.set_message(format!(
        "{whom}: {bytes} bytes in {}, {}",
        time_text((time_s * 1e9) as u64),
        rate_text(Some((bytes as f64 * 8.0 / time_s) as u64))
    ));
    bar.tick();
}
