//! `covey lab`: a cluster of namespaces on this machine, with a network of its own.

mod down;
mod exec;
mod host;
mod keep;
mod set;
mod status;
mod up;

use super::Context;
use crate::error::Result;
use covey_lab::state::Lab;

/// Make a cluster of machines inside this one, with an emulated network
///
/// Each node has its own network, host name and mounts; everything else, such as the files, is
/// shared with this machine. The cables between them have the requested rate, latency, queues and
/// faults. The network is emulated frame by frame, so small messages are not too fast, and long
/// ones reach the rate of the wire less its headers.
///
/// Works as root, and for others where user namespaces and /dev/net/tun are permitted.
///
/// EXAMPLES
///
///     covey lab up 4 --link fast-ethernet   4 nodes at a switch
///     covey lab exec n1 -- ping -c 3 n2
///     covey lab exec n1 -- covey up         a cluster with one server on each node
///     covey lab set n2-sw1 loss 1%          a bad cable
///     covey lab status
///     covey lab down
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    Up(up::Args),
    Exec(exec::Args),
    Sh(exec::ShellArgs),
    Set(set::Args),
    Status(status::Args),
    Down(down::Args),
    #[command(hide = true)]
    Keep(keep::KeepArgs),
    #[command(hide = true)]
    Host(host::Args),
    #[command(hide = true)]
    Floor(keep::FloorArgs),
}

/// Which lab.
#[derive(clap::Args, Clone, Debug)]
struct Which {
    /// Which lab, where there are several [default: lab; inside one, that one]
    #[arg(long, alias = "name", value_name = "LAB")]
    lab: Option<String>,
}

impl Which {
    fn lab(&self) -> Result<Lab> {
        Lab::named(self.lab.as_deref())
    }
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    match args.command {
        Command::Up(args) => up::run(args, context).await,
        Command::Exec(args) => exec::run(args).await,
        Command::Sh(args) => exec::shell(args).await,
        Command::Set(args) => set::run(args, context),
        Command::Status(args) => status::run(&args, context),
        Command::Down(args) => down::run(&args, context).await,
        Command::Host(args) => host::run(&args),
        Command::Keep(args) => keep::run(&args),
        Command::Floor(args) => keep::floor(&args),
    }
}
