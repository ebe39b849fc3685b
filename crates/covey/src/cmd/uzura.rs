//! `covey uzura`: the message engine; so far the timing model of the card that it is named after.

mod model;

use super::Context;
use crate::error::Result;

/// The UZURA network card, as a model that can be computed
///
/// EXAMPLES
///
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
    Model(model::Args),
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    match args.command {
        Command::Model(args) => model::run(&args, context),
    }
}
