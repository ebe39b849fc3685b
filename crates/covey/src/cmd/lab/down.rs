//! `covey lab down`: a lab, taken away with everything in it.

use super::Which;
use crate::cmd::Context;
use crate::error::{Error, Result};
use covey_lab::down::take_down;
use std::io::Write;

/// Take a lab down, and all programs in it
///
/// Asks the programs on its nodes to end, then kills them. The nodes, their network and the
/// directory of the lab are removed, and with it a cluster that `covey up` made inside. Doing it
/// twice is no error, and a lab whose keeper has died is removed as well.
///
/// EXAMPLES
///
///     covey lab down
///     covey lab down --lab other
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(flatten)]
    which: Which,
}

/// Runs the command.
pub async fn run(args: &Args, context: &Context) -> Result<()> {
    let lab = args.which.lab()?;
    if lab.is_around() {
        return Err(Error::user(format!("cannot take lab {} down from inside it", lab.name))
            .hint("leave it first"));
    }
    let was_there = lab.dir.exists();
    let ended = take_down(&lab).await?;
    let value = serde_json::json!({ "lab": lab.name, "was_there": was_there, "ended": ended });
    context.output.result(&value, |out| match (was_there, ended) {
        (false, _) => writeln!(out, "lab {} was not up", lab.name),
        (true, 0) => writeln!(out, "lab {} is down", lab.name),
        (true, 1) => writeln!(out, "lab {} is down; 1 process in it ended", lab.name),
        (true, count) => writeln!(out, "lab {} is down; {count} processes in it ended", lab.name),
    })
}
