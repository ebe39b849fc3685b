//! `covey tune`: what the network and the machines can do, measured.

mod all;
mod app;
mod choose;
mod disk;
mod mpi;
mod net;
mod pvm;
mod read;
mod report;
mod serve;
mod through;

use super::Context;
use crate::error::Result;

/// Measure the network and disks: latency, bandwidth, where it saturates, rates
///
/// The method is NetPIPE's. Two programs exchange blocks of all sizes; the times of each size give
/// latency, bandwidth, saturation point, n1/2 and n95, each with its 95 % confidence interval and
/// its definition.
///
/// EXAMPLES
///
///     covey tune net n1 n2        between two nodes of a lab
///     covey tune serve            on one host, and on another:
///     covey tune net HOST
///     covey tune mpi n1 n2        the same through MPI, with TCP beside it
///     covey tune app              block order, grid and BLAS for ScaLAPACK
///     covey tune disk /srv/data   what a directory, a mount or a device can do
///     covey tune all --budget 60 n1 n2
///     covey tune read np.out      the same numbers from a file of NetPIPE's
///     covey tune report r.json -o r.html
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    Net(net::Args),
    Disk(disk::Args),
    All(all::Args),
    Mpi(mpi::Args),
    Pvm(pvm::Args),
    App(app::Args),
    Serve(serve::Args),
    Read(read::Args),
    Report(report::Args),
    Choose(choose::Args),
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    match args.command {
        Command::All(args) => all::run(args, context).await,
        Command::Disk(args) => disk::run(args, context).await,
        Command::Net(args) => net::run(&args, context).await,
        Command::Mpi(args) => mpi::run(args, context).await,
        Command::Pvm(args) => pvm::run(args, context).await,
        Command::App(args) => app::run(args, context).await,
        Command::Serve(args) => serve::run(&args, context),
        Command::Read(args) => read::run(&args, context),
        Command::Choose(args) => choose::run(&args, context),
        Command::Report(args) => report::run(&args, context),
    }
}
