//! `covey bench`: parts of Covey beside programs that do the same by hand.

mod btio;

use super::Context;
use crate::error::{Cannot, Error, Result};
use covey_measure::cell::{Plan, Report, What, measure};
use covey_measure::stop::interruptible;
use covey_plot::chart::{Look, Size};
use std::path::{Path, PathBuf};

/// Measure a part of Covey beside programs that do the same by hand
///
/// EXAMPLES
///
///     covey bench cell --quick
///     covey bench cell --only matrices --json
///     covey bench cell --svg graphs
///     covey bench btio --class W -n 4 --dir /mnt/covey
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    Btio(btio::Args),
    Cell(Cell),
}

/// Workers: the bandwidth of mapped files, matrices multiplied through files, and messages to the host
///
/// Blocks of a file of 128 MB are read and written back by 1 to 7 coroutines, and by hand with two
/// buffers and the same copy function; `+ahead` also prefetches the block after the next. Matrices of
/// 256, 512 and 1024 are multiplied block by block through files, and by hand with the same kernel.
/// A message to the host and back stands beside a line of memory that goes to another CPU and back.
/// The variants alternate, round after round; each figure is the mean of the best tenth of its
/// rounds, and ratios have an interval of 95 %. The programs are in C and compiled with cc when they
/// are first needed.
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
struct Cell {
    /// Three rounds on one and two workers: to see that everything works, not how fast it is
    #[arg(long, conflicts_with = "rounds")]
    quick: bool,
    /// Measure this only [default: everything]
    #[arg(long, value_enum, value_name = "WHAT")]
    only: Option<Part>,
    /// Numbers of workers
    #[arg(long, value_name = "COUNT", value_delimiter = ',', default_values_t = [1, 2, 4, 8])]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=64))]
    workers: Vec<u32>,
    /// Rounds of each measurement
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rounds: u32,
    /// Also draw the results beside the paper's, as SVG files in DIR
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Bandwidth,
    Matrices,
    Messages,
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    match args.command {
        Command::Btio(args) => btio::run(args, context).await,
        Command::Cell(args) => cell(args, context).await,
    }
}

async fn cell(args: Cell, context: &Context) -> Result<()> {
    let plan = if args.quick { Plan::quick() } else { Plan::whole(args.workers, args.rounds) };
    let wants = |part| args.only.is_none_or(|only| only == part);
    let what = What {
        bandwidth: wants(Part::Bandwidth),
        matrices: wants(Part::Matrices),
        trips: wants(Part::Messages),
    };
    let (bar, say) = context.output.told();
    let measured = interruptible(move |stop| measure(&plan, what, stop, &say));
    let report = measured.await?;
    bar.finish_and_clear();
    if let Some(dir) = &args.svg {
        draw(&report, dir)?;
    }
    context.output.result(&report, |out| report.tell(out))?;
    if report.bandwidth.is_empty() && report.matrices.is_empty() && report.trips.is_none() {
        let why = report.missing.first().map_or("nothing was asked for", |(_, why)| why);
        Err(Error::work(format!("nothing could be measured: {why}"))
            .hint("it needs cc, and libcovey-cell.so beside covey"))
    } else {
        Ok(())
    }
}

fn draw(report: &Report, dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).cannot(|| format!("make directory {}", dir.display()))?;
    for chart in report.charts() {
        let file = dir.join(&chart.id).with_extension("svg");
        let written = std::fs::write(&file, chart.svg(SIZE, Look::File));
        written.cannot(|| format!("write {}", file.display()))?;
    }
    Ok(())
}

const SIZE: Size = Size { width: 1000.0, height: 560.0 };
