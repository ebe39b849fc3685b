//! `covey tune pvm`: the same wire through PVM 3.4.

use super::through::{Through, show, spinner};
use crate::cmd::Context;
use crate::error::Result;
use covey_measure::pvm;
use covey_measure::stop::interruptible;

/// Measure the network through PVM 3.4, with TCP beside it
///
/// Method, sizes and numbers are those of `tune net`; the program is compiled against pvm3.h when
/// it is first needed. A pvmd is started on each node, in a separate directory, and stopped
/// afterwards; between nodes of the cluster by `covey run`, for which the first node must find the
/// cluster's covey.toml too. Tasks talk directly over TCP, and data is sent in place.
///
/// Exit code 1 when PVM is not installed, or the measurement was cut short.
///
/// EXAMPLES
///
///     covey tune pvm n1 n2
///     covey tune pvm node1 node2       # of the cluster
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(flatten)]
    through: Through,
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let hosts = args.through.hosts(context)?;
    pvm::must_be_installed()?;
    let bar = spinner(context);
    let (through, shown) = (args.through.clone(), bar.clone());
    let measured = interruptible(move |stop| {
        let mut levels = Vec::new();
        shown.set_message("TCP");
        levels.extend(through.tcp(&hosts, stop));
        if !stop.is_asked() {
            let mut progress = show(&shown, "PVM");
            levels.push(pvm::measure(&hosts, &through.plan(), stop, &mut progress));
        }
        Ok(levels)
    });
    let measured = measured.await?;
    bar.finish_and_clear();
    args.through.tell(measured, context)
}
