//! `covey uzura`: the message engine, measured, and the timing model of the card that it is named after.

mod bench;
mod model;

use super::Context;
use crate::error::Result;

/// Measure messages and remote memory here, or model them on the UZURA network card
///
/// EXAMPLES
///
///     covey uzura bench                    messages and transpositions, beside other libraries
///     covey uzura model                    the paper's predictions, line by line
///     covey uzura model --sweep block      throughput by the length of blocks
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    Bench(bench::Args),
    Model(model::Args),
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    match args.command {
        Command::Bench(args) => bench::run(args, context).await,
        Command::Model(args) => model::run(&args, context),
    }
}
