//! `covey tune mpi`: the same wire through MPI.

use super::through::{Through, show, spinner};
use crate::cmd::Context;
use crate::error::Result;
use covey_measure::mpi::{Library, Wait, choose};
use covey_measure::stop::interruptible;

/// Measure the network through MPI, with TCP beside it
///
/// Method, sizes and numbers are those of `tune net`. A small program is compiled with the installed
/// mpicc when it is first needed, and kept in ~/.cache/covey. Between two nodes of a lab the
/// launcher reaches the other by `covey lab exec`; on two nodes of the cluster `covey run` starts
/// both, which must have the library; without nodes, two programs of this machine talk by shared
/// memory.
///
/// MPI waits by polling, TCP in the kernel. Between nodes the program makes MPI wait in the kernel
/// too, so that both wait in the same way, and because nodes of a lab share the CPUs with the lab's
/// wires. --wait poll measures MPI's usual behaviour.
///
/// It also reports the size from which a block is no longer sent at once (eager) but waits for the
/// receiver (rendezvous), as the step in the curve; and the overhead of MPI over TCP.
///
/// Exit code 1 when a library is missing or cannot be compiled against, or a measurement was cut
/// short; its results so far are printed. 2 when the lab or a node does not exist.
///
/// EXAMPLES
///
///     covey tune mpi n1 n2
///     covey tune mpi node1 node2 --mpi openmpi    # of the cluster
///     covey tune mpi n1 n2 --mpi mpich --budget 30 --graph signature
///     covey tune mpi
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(flatten)]
    through: Through,
    /// Only this library [default: all that are installed]
    #[arg(long, value_enum, value_name = "LIBRARY")]
    mpi: Option<Library>,
    /// How to wait for messages [default: block between nodes, poll on one machine]
    #[arg(long, value_enum)]
    wait: Option<Wait>,
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let hosts = args.through.hosts(context)?;
    let libraries = choose(args.mpi)?;
    let wait = args.wait.unwrap_or_else(|| Wait::usual(&hosts));
    let bar = spinner(context);
    let (through, shown) = (args.through.clone(), bar.clone());
    let measured = interruptible(move |stop| {
        let mut levels = Vec::new();
        shown.set_message("TCP");
        levels.extend(through.tcp(&hosts, stop));
        for mpi in libraries {
            if stop.is_asked() {
                break;
            }
            let mut progress = show(&shown, &mpi.name);
            levels.push(mpi.measure(&hosts, wait, &through.plan(), stop, &mut progress));
        }
        Ok(levels)
    });
    let measured = measured.await?;
    bar.finish_and_clear();
    args.through.tell(measured, context)
}
