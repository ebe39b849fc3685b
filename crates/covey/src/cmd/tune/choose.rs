//! `covey tune choose`: parameters from measurements.

use crate::cmd::Context;
use crate::error::{Cannot, Error, Result};
use covey_cluster::tuned::TuneFile;
use covey_measure::report::Report;
use covey_measure::results::Results;
use covey_tune::choose::{Choice, choose};
use covey_tune::diagnose::Verdict;
use std::path::PathBuf;

/// Choose parameters from measurements, and write them to tune.toml
///
/// Only links without a fault count, measured on a machine that was not busy. Each parameter is
/// written with its rule, its evidence, and the interval in which it lies with 95 % confidence. A
/// tune.toml beside covey.toml gives the strip of the store that `covey init` or the first `covey
/// up` makes there, and the msize of every `covey serve`, which also says when the kernel gives
/// connections too little memory; `covey run` and `covey push` take the fan-out. `covey status` says which file each value comes from.
///
/// EXAMPLES
///
///     covey --json tune net --all > pairs.json
///     covey tune choose pairs.json
///     covey tune choose pairs.json -o /etc/covey/tune.toml
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// What was measured; `-` is stdin
    #[arg(required = true, value_name = "RESULTS")]
    files: Vec<PathBuf>,
    /// Write the choices to FILE
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Use measurements that are not trustworthy, too
    #[arg(long)]
    anyway: bool,
}

/// Runs the command.
pub fn run(args: &Args, context: &Context) -> Result<()> {
    let results = Results::read(args.files.iter().map(PathBuf::as_path))?;
    let all = results.links.len();
    let is_fit = |link: &&Report| match link.verdict {
        Verdict::Faults(_) => false,
        _ => args.anyway || is_trustworthy(link),
    };
    let fit: Vec<_> = results.links.iter().filter(is_fit).collect();
    let numbers: Vec<_> = fit.iter().filter_map(|link| link.typical.clone()).collect();
    if numbers.is_empty() {
        return Err(Error::work(format!(
            "cannot choose: none of {all} links is without fault and trustworthy"
        ))
        .hint("`covey tune report` shows what is wrong; --anyway uses busy machines' numbers"));
    }
    let from = format!("{} of {all} links: {}", numbers.len(), fit[0].provenance.command);
    let file = TuneFile::new(from, choose(&numbers));
    if let Some(path) = &args.output {
        std::fs::write(path, file.text()?).cannot(|| format!("write {}", path.display()))?;
    }
    context.output.result(&file, |out| {
        let found = &file.choose;
        let rows = [
            ("strip", &found.strip),
            ("msize", &found.msize),
            ("eager limit", &found.eager_limit),
            ("socket buffer", &found.socket_buffer),
            ("block order", &found.block_order),
            ("pacing", &found.pacing),
            ("fan-out", &found.fan_out),
        ];
        let rows: Vec<Vec<String>> =
            rows.iter().filter_map(|(name, choice)| Some(row(name, choice.as_ref()?))).collect();
        crate::output::table(
            out,
            &["PARAMETER", ">VALUE", "95 % WITHIN", "EVIDENCE", "RULE"],
            &rows,
        );
        Ok(())
    })
}

/// A verdict is about the link; whether its times mean anything is the machine's affair as well. What MPI and PVM
/// measured has no verdict of its own.
fn is_trustworthy(link: &Report) -> bool {
    let is_judged_sound = matches!(link.verdict, Verdict::NoFault);
    is_judged_sound && link.environment.warning().is_none() && link.failure.is_none()
}

fn row(name: &str, choice: &Choice) -> Vec<String> {
    let Choice { value, low, high, rule, evidence } = choice;
    vec![name.into(), value.to_string(), format!("{low} to {high}"), evidence.clone(), rule.clone()]
}
