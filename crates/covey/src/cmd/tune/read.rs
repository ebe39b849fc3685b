//! `covey tune read`: a curve that NetPIPE measured.

use crate::cmd::Context;
use crate::error::{Cannot, Error, Result};
use covey_measure::report::quantities;
use covey_tune::{Quantities, netpipe};
use std::io::Write;
use std::path::PathBuf;

/// Summarise NetPIPE's result files
///
/// Each has three columns: bytes, throughput in megabits of 2^20 bits, seconds. They hold one time
/// for each size, so there are no intervals.
///
/// EXAMPLES
///
///     NPtcp -h n2 -o np.out && covey tune read np.out
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// Runs the command.
pub fn run(args: &Args, context: &Context) -> Result<()> {
    let mut found = Vec::new();
    for file in &args.files {
        let text = std::fs::read_to_string(file).cannot(|| format!("read {}", file.display()))?;
        let curve = netpipe::read(&text).map_err(|why| {
            Error::user(format!("cannot read {}: {why}", file.display()))
                .hint("NPtcp writes such files with -o")
        })?;
        let numbers = Quantities::of(&curve).ok_or_else(|| {
            let why = "it has too few sizes, or longer blocks take no longer in it than short ones";
            Error::user(format!("cannot use {}: {why}", file.display()))
                .hint("it takes two sizes up to 32 bytes and two in the last two octaves")
                .hint("times that were taken while the machine was busy are of no use")
        })?;
        found.push((file, curve.points.len(), numbers));
    }
    let value: Vec<_> = found
        .iter()
        .map(|(file, sizes, numbers)| serde_json::json!({ "file": file, "sizes": sizes, "typical": numbers }))
        .collect();
    context.output.result(&value, |out| {
        for (file, sizes, numbers) in &found {
            writeln!(out, "{}: {sizes} sizes\n", file.display())?;
            quantities(out, numbers)?;
        }
        Ok(())
    })
}
