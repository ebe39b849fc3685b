//! `covey tune serve`: the other end of a measurement.

use crate::cmd::Context;
use crate::error::{Cannot, Result};
use covey_measure::probe::{self, PORT_DEFAULT};
use std::net::TcpListener;

/// Answer measurements by `covey tune net` from other hosts
///
/// Anyone who reaches the port may measure: nothing can be read or changed through it, but a
/// measurement uses CPU and network. Ends at SIGTERM or SIGINT.
///
/// EXAMPLES
///
///     covey tune serve
///     covey tune serve --listen 10.0.0.7:5641
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Where to listen [default: port 5641 of every address]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<String>,
    /// Answer one measurement and end
    #[arg(long)]
    once: bool,
}

/// Runs the command.
pub fn run(args: &Args, context: &Context) -> Result<()> {
    let address = args.listen.clone().unwrap_or(format!("0.0.0.0:{PORT_DEFAULT}"));
    let listener = TcpListener::bind(&address)
        .cannot(|| format!("listen at {address}"))
        .map_err(|error| error.hint("--listen ADDRESS:PORT names another place"))?;
    let at = listener.local_addr().cannot(|| format!("listen at {address}"))?;
    context.output.detail(format!("answering at {at}"));
    probe::serve(&listener, args.once)
}
