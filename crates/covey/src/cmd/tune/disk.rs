//! `covey tune disk`: the rates of a directory, a mount or a block device.

use super::through::spinner;
use crate::cmd::Context;
use crate::config::size;
use crate::error::{Cannot, Error, Result};
use covey_measure::disk::{
    DiskReport, Plan, Progress, RECORD_BYTES_MAX, RECORD_BYTES_MIN, REPETITIONS_MAX, THREADS_MAX,
    measure,
};
use covey_measure::stop::interruptible;
use std::path::PathBuf;
use std::time::Duration;

/// Measure a directory, a mount or a block device, as Bonnie and IOzone do
///
/// Files are written, rewritten, read and re-read in records of several lengths; blocks of 4 KiB
/// are read and written at random, through the caches and past them (O_DIRECT) where that works;
/// characters are written and read one at a time; small files are made, stat-ed, read and removed.
/// Each test runs several times, and the numbers are medians.
///
/// Writes include fsync. Before reads, the caches of this machine are dropped where that is
/// permitted (root); elsewhere the kernel is advised to drop the files, which it may or may not do.
/// The table says which. The bytes read are compared with those written: wrong data ends the
/// measurement.
///
/// The files lie in DIR/covey-tune-PID-N, which is removed afterwards, also after Ctrl-C. A block
/// device is only read unless --destroy is given, which overwrites its beginning.
///
/// Exit code 1 when the measurement was cut short; its results so far are printed. 2 when the place
/// does not exist, or has too little space for the size.
///
/// EXAMPLES
///
///     covey tune disk /srv/data
///     covey tune disk /mnt/covey --threads 4 --budget 60 --csv rates.csv
///     covey tune disk /var/tmp --size 8GiB --record 64KiB
///     covey tune disk /dev/sdb
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// A directory, a mount or a block device
    #[arg(value_name = "DIR|DEVICE")]
    target: PathBuf,
    /// Bytes in all files together [default: what fits the budget, up to half of the room]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    size: Option<u64>,
    /// How long it may take, roughly, in seconds; a given --size is written and read at least once
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=86400))]
    budget: u32,
    /// Length of the records, may be given several times [default: 4KiB, 64KiB and 1MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_record)]
    record: Vec<u64>,
    /// Number of threads, each with its own file
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(THREADS_MAX)))]
    threads: u32,
    /// How often each test runs, if the budget lasts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=i64::from(REPETITIONS_MAX)))]
    repetitions: u32,
    /// Overwrite the device: what is on it is lost
    #[arg(long)]
    destroy: bool,
    /// Do not drop this machine's caches, which slows down everybody for a while
    #[arg(long)]
    keep_caches: bool,
    /// Write the rates to FILE, separated by commas
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

fn parse_size(text: &str) -> std::result::Result<u64, String> {
    match size::parse(text)? {
        bytes if bytes >= RECORD_BYTES_MIN => Ok(bytes),
        _ => Err(format!("`{text}` is less than the limit of 4 KiB")),
    }
}

fn parse_record(text: &str) -> std::result::Result<u64, String> {
    let bytes = size::parse(text)?;
    let is_fit = bytes.is_power_of_two() && (RECORD_BYTES_MIN..=RECORD_BYTES_MAX).contains(&bytes);
    is_fit.then_some(bytes).ok_or(format!("`{text}` is no power of two from 4 KiB to 16 MiB"))
}

impl Args {
    fn plan(&self) -> Plan {
        let usual = Plan::of(&self.target);
        let mut records = self.record.clone();
        records.sort_unstable();
        records.dedup();
        if records.is_empty() {
            records = usual.records;
            // A small size is measured in records that it has room for.
            let most = self.size.map_or(u64::MAX, |size| size / u64::from(self.threads));
            records.retain(|record| *record <= most.max(RECORD_BYTES_MIN));
        }
        Plan {
            size_bytes: self.size,
            records,
            threads: self.threads,
            repetitions: self.repetitions,
            budget: Duration::from_secs(self.budget.into()),
            destroy: self.destroy,
            drop_caches: !self.keep_caches,
            ..usual
        }
    }
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let plan = args.plan();
    let bar = spinner(context);
    let shown = bar.clone();
    let report = interruptible(move |stop| measure(&plan, stop, &mut |now| show(&shown, now)));
    let report = report.await;
    bar.finish_and_clear();
    let report = report?;
    if let Some(file) = &args.csv {
        std::fs::write(file, report.csv()).cannot(|| format!("write {}", file.display()))?;
    }
    context.output.result(&report, |out| report.tell(out))?;
    whole(&report)
}

/// Shows the rate that was measured last.
pub fn show(bar: &indicatif::ProgressBar, now: &Progress) {
    let rate = now.latest;
    bar.set_message(format!(
        "{:.0} %: {} in records of {}: {}",
        now.share * 100.0,
        rate.test.words(),
        size::exact(rate.record_bytes),
        rate.text(rate.rate.value)
    ));
    bar.tick();
}

/// A measurement that broke off is told and is an error.
fn whole(report: &DiskReport) -> Result<()> {
    match &report.failure {
        None => Ok(()),
        Some(why) => {
            let place = report.place.path.display();
            Err(Error::work(format!("cannot measure {place} to the end: {why}"))
                .hint("what was measured until then is told; run it again for the rest"))
        }
    }
}
