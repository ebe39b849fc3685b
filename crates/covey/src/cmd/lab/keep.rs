//! What a lab runs of us inside itself.

use crate::error::Result;
use covey_lab::keeper;
use covey_lab::state::Lab;
use covey_measure::probe::machine;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Keep a lab: what `covey lab up` starts.
#[derive(clap::Args, Debug)]
pub struct KeepArgs {
    /// The lab's directory.
    dir: PathBuf,
    /// As the first process of its namespaces.
    #[arg(long)]
    first: bool,
}

/// Measure the way to a node, or answer: what `covey lab up` starts.
#[derive(clap::Args, Debug)]
pub struct FloorArgs {
    /// Who answers; nobody: answer.
    peer: Option<SocketAddr>,
}

/// Keeps a lab.
pub fn run(args: &KeepArgs) -> Result<()> {
    let lab = Lab::at(args.dir.clone());
    if args.first {
        keeper::run(&lab)
    } else {
        let pid = keeper::prepare(&lab)?;
        crate::output::write_out(format!("{pid}\n").as_bytes())
    }
}

/// Measures or answers.
pub fn floor(args: &FloorArgs) -> Result<()> {
    match args.peer {
        None => machine::serve(),
        Some(peer) => {
            let floor = machine::measure(peer)?;
            crate::output::write_out(serde_json::to_string(&floor)?.as_bytes())
        }
    }
}
