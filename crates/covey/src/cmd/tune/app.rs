//! `covey tune app`: what matrices make of all of it together.

use super::through::spinner;
use crate::cmd::Context;
use crate::error::{Error, Result};
use covey_measure::app::{AppPlan, measure};
use covey_measure::hosts::Hosts;
use covey_measure::mpi::Library;
use covey_measure::stop::interruptible;
use covey_tune::application::Numbers;
use std::time::Duration;

/// Choose block order, process grid and BLAS for ScaLAPACK, and measure the rate
///
/// One core multiplies matrices with every BLAS that is installed: the peak. MPI's curve then gives
/// the range of block orders: from its saturation point to the block that reaches its plateau.
/// pdgemm and pdgesv run with these and their neighbours, on all grids of the processes, over each
/// MPI, with every BLAS that comes near the best; slow candidates are dropped. The best of each is
/// chosen, measured again, and reported as a share of the peak. Every result is checked; a wrong
/// one has no rate.
///
/// Rates are of the best repetition, with the processor time beside it: where wall time is more
/// than 1.1 of that, the rate is not trustworthy. The programs are compiled with cc and mpicc when
/// they are first needed; the BLAS is chosen when they start, with one thread each.
///
/// Exit code 1 when ScaLAPACK, MPI or every BLAS is missing, or the measurement was cut short; its
/// results so far are printed. 2 when the lab or a node does not exist.
///
/// EXAMPLES
///
///     covey tune app
///     covey tune app --mpi openmpi --types s,d,c,z --budget 120
///     covey tune app --exhaustive
///     covey tune app n1 n2 n3 n4 --hpl
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Nodes of a lab; without them, all processes on this machine
    #[arg(value_name = "NODE")]
    nodes: Vec<String>,
    /// Which lab, where there are several [default: lab; inside one, that one]
    #[arg(long, value_name = "LAB")]
    lab: Option<String>,
    /// How many processes [default: one for each node, or CPU]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024))]
    ranks: Option<u16>,
    /// Order of the matrices [default: what the budget allows]
    #[arg(long, value_name = "ORDER", value_parser = clap::value_parser!(u64).range(16..=30000))]
    order: Option<u64>,
    /// Only this library [default: all that are installed]
    #[arg(long, value_enum, value_name = "LIBRARY")]
    mpi: Option<Library>,
    /// Numbers to multiply: s, d, c, z for single, double, complex, double complex
    #[arg(long, value_name = "LETTERS", value_delimiter = ',', default_value = "d", value_parser = parse_numbers)]
    types: Vec<Numbers>,
    /// How long it may take, roughly, in seconds, without --exhaustive and --hpl
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=36000))]
    budget: u32,
    /// Then measure all block orders, grids and BLAS libraries, and report how much of the best was
    /// reached
    #[arg(long)]
    exhaustive: bool,
    /// Run HPL from hpcc as well, on this machine, with what was chosen (a minute or more)
    #[arg(long)]
    hpl: bool,
}

fn parse_numbers(text: &str) -> std::result::Result<Numbers, String> {
    let mut letters = text.chars();
    let found = letters.next().and_then(Numbers::from_letter).filter(|_| letters.next().is_none());
    found.ok_or_else(|| format!("`{text}` is not one of s, d, c, z"))
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let hosts = Hosts::find(args.lab.as_deref(), &args.nodes)?;
    let cpus = std::thread::available_parallelism().map_or(1, |count| count.get());
    let usual = if args.nodes.is_empty() { cpus } else { args.nodes.len() };
    let mut numbers = args.types;
    numbers.sort();
    numbers.dedup();
    let plan = AppPlan {
        hosts,
        ranks: args.ranks.map_or(usual, usize::from),
        order: args.order,
        mpi: args.mpi,
        numbers,
        budget: Duration::from_secs(args.budget.into()),
        exhaustive: args.exhaustive,
        hpl: args.hpl,
    };
    let bar = spinner(context);
    let shown = bar.clone();
    let measured = interruptible(move |stop| {
        measure(&plan, stop, &mut |what| {
            shown.set_message(what.to_string());
            shown.tick();
        })
    });
    let measured = measured.await;
    bar.finish_and_clear();
    let report = measured?;
    context.output.result(&report, |out| report.tell(out))?;
    let missing = report.missing.first().filter(|_| report.chosen.is_empty() || args.hpl);
    let missing = missing.map(|missing| format!("{}: {}", missing.what, missing.why));
    match report.failure.or(missing) {
        None => Ok(()),
        Some(why) => Err(Error::work(format!("cannot measure everything: {why}")).hint(
            "what there was is told all the same; `covey tune app --help` says what it takes",
        )),
    }
}
