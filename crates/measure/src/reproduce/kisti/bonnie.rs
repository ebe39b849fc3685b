//! Table 1 and figures 1 and 2: what Bonnie measures, on a mount.

use super::cluster;
use super::part;
use crate::error::{Error, Result};
use crate::reproduce::bench::Bench;
use crate::reproduce::told::{Part, number};
use covey_tune::Estimate;
use covey_tune::papers::{Bonnie, kisti_bonnie};
use covey_tune::reproduce::{Answer, Beside, Unit, is_between};
use serde::Deserialize;

/// What `tune disk` calls it, what the paper calls it, and where the paper has the number.
type Column = (&'static str, &'static str, fn(&Bonnie) -> f64);
const COLUMNS: [Column; 4] = [
    ("put-letters", "write per character", |one| one.write_char),
    ("write", "write in blocks", |one| one.write_block),
    ("get-letters", "read per character", |one| one.read_char),
    ("read", "read in blocks", |one| one.read_block),
];
/// Columns of blocks, of which figure 1's claim is.
const BLOCKS: [&str; 2] = ["write", "read"];
/// How much faster Gigabit is by the claim, for blocks.
const GAIN: (f64, f64) = (3.3, 5.3);
/// What a metadata server apart may change by the claim.
const APART: (f64, f64) = (0.91, 1.13);
/// The paper's file.
const FILE: &str = "100MB";
const FILE_QUICK: &str = "4MB";

/// What was measured of each setup, so that three parts need it once only.
#[derive(Debug, Default)]
pub struct Rates {
    found: Vec<(Setup, std::result::Result<Disk, String>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Setup {
    is_apart: bool,
    is_gigabit: bool,
}

const SETUPS: [Setup; 4] = [
    Setup { is_apart: false, is_gigabit: false },
    Setup { is_apart: false, is_gigabit: true },
    Setup { is_apart: true, is_gigabit: false },
    Setup { is_apart: true, is_gigabit: true },
];

/// What `tune disk` says, as far as it is of use here.
#[derive(Debug, Deserialize)]
struct Disk {
    rates: Vec<Rate>,
    failure: Option<String>,
    environment: crate::environment::Environment,
}

#[derive(Debug, Deserialize)]
struct Rate {
    test: String,
    direct: bool,
    rate: Estimate,
}

impl Setup {
    fn name(self) -> String {
        let network = if self.is_gigabit { "Gigabit" } else { "Fast Ethernet" };
        let names = if self.is_apart { "apart" } else { "shared" };
        format!("{network}, metadata {names}")
    }
}

impl Disk {
    fn rate(&self, test: &str) -> Option<Estimate> {
        self.rates.iter().find(|one| one.test == test && !one.direct).map(|one| one.rate)
    }
}

impl Rates {
    async fn measure(&mut self, bench: &mut Bench) {
        if !self.found.is_empty() {
            return;
        }
        for setup in SETUPS {
            let found = measured(bench, setup).await.map_err(|error| error.message);
            let said = match &found {
                Err(why) => format!("left out: {why}"),
                Ok(disk) => in_short(disk),
            };
            bench.say(format!("  {}: {said}", setup.name()));
            self.found.push((setup, found));
        }
    }

    fn rate(&self, is_apart: bool, is_gigabit: bool, test: &str) -> Option<Estimate> {
        self.disk(Setup { is_apart, is_gigabit })?.rate(test)
    }

    fn disk(&self, setup: Setup) -> Option<&Disk> {
        self.found.iter().find(|(one, _)| *one == setup)?.1.as_ref().ok()
    }

    fn doubt(&self, bench: &Bench) -> Option<String> {
        let disks = self.found.iter().filter_map(|(_, found)| found.as_ref().ok());
        disks.filter(|_| !bench.wish.is_anyway).find_map(|disk| disk.environment.warning())
    }

    fn leave_out(&self, part: &mut Part) {
        for (setup, found) in &self.found {
            if let Err(why) = found {
                part.leave_out(setup.name(), why.as_str());
            }
        }
    }
}

async fn measured(bench: &mut Bench, setup: Setup) -> Result<Disk> {
    let link = if setup.is_gigabit { "gigabit" } else { "fast-ethernet" };
    let mounted = cluster::up(bench, link, setup.is_apart, 1).await?;
    let (size, times, budget) =
        if bench.wish.is_quick { (FILE_QUICK, "1", "5") } else { (FILE, "3", "120") };
    let words = [
        "tune",
        "disk",
        &mounted.dir,
        "--size",
        size,
        "--record",
        "16KiB",
        "--repetitions",
        times,
        "--budget",
        budget,
        "--keep-caches",
    ];
    let disk: Disk = bench.covey_on(&mounted.clients[0], &words).await?;
    bench.down().await?;
    match &disk.failure {
        Some(why) => Err(Error::work(format!("it broke off: {why}"))),
        None => Ok(disk),
    }
}

fn in_short(disk: &Disk) -> String {
    let one = |(test, name, _): Column| {
        Some(format!("{name} {}", number(Unit::BytesPerS, disk.rate(test)?.value)))
    };
    COLUMNS.into_iter().filter_map(one).collect::<Vec<_>>().join(", ")
}

/// Table 1.
pub async fn table(bench: &mut Bench, rates: &mut Rates) -> Part {
    let mut part = part("table1", "Bonnie on four I/O servers; the paper's column is PVFS2's");
    rates.measure(bench).await;
    for setup in SETUPS {
        let theirs = kisti_bonnie("PVFS2", setup.is_apart, setup.is_gigabit);
        let Some((theirs, disk)) = theirs.zip(rates.disk(setup)) else { continue };
        for (test, name, of) in COLUMNS {
            if let Some(ours) = disk.rate(test) {
                let what = (name, Unit::BytesPerS);
                part.beside.push(Beside::new("table 1", setup.name(), what, ours, of(&theirs)));
            }
        }
    }
    rates.leave_out(&mut part);
    if bench.wish.is_quick {
        part.differs(format!(
            "a file of {FILE_QUICK}, not of {FILE}: what a mount holds back weighs more"
        ));
    }
    part.differs(
        "characters go through a buffer of 4096 here: each 4096 of them are a request of the mount",
    );
    part.differs(
        "writing ends with fsync on all servers, which share one disk here; what is read comes from the \
         servers' memory, as with a file of this size there",
    );
    part.differs(rates.doubt(bench).unwrap_or_else(|| {
        "all servers and the client share this machine's processors".to_string()
    }));
    part
}

/// Figure 1: Gigabit against Fast Ethernet.
pub async fn networks(bench: &mut Bench, rates: &mut Rates) -> Part {
    let mut part = part("fig1", "Gigabit against Fast Ethernet");
    rates.measure(bench).await;
    let answers = BLOCKS.into_iter().flat_map(|test| {
        [false, true].map(|is_apart| {
            let of = |is_gigabit| rates.rate(is_apart, is_gigabit, test);
            Some(is_between(&gain(test, is_apart), of(true)?, of(false)?, GAIN))
        })
    });
    judge(&mut part, "3.3 to 5.3", answers.collect(), rates.doubt(bench));
    rates.leave_out(&mut part);
    part.differs("the claim's figure is IOzone's; judged are the rates of table 1");
    part
}

fn gain(test: &str, is_apart: bool) -> String {
    let names = if is_apart { "apart" } else { "shared" };
    format!("{test} in blocks, metadata {names}: Gigabit by Fast Ethernet")
}

/// Figure 2: a metadata server apart.
pub async fn metadata(bench: &mut Bench, rates: &mut Rates) -> Part {
    let mut part = part("fig2", "the metadata server apart or shared");
    rates.measure(bench).await;
    let answers = COLUMNS.into_iter().flat_map(|(test, name, _)| {
        [false, true].map(|is_gigabit| {
            let of = |is_apart| rates.rate(is_apart, is_gigabit, test);
            let network = if is_gigabit { "Gigabit" } else { "Fast Ethernet" };
            let what = format!("{name}, {network}: apart by shared");
            Some(is_between(&what, of(true)?, of(false)?, APART))
        })
    });
    judge(&mut part, "-9 % to 13 %", answers.collect(), rates.doubt(bench));
    rates.leave_out(&mut part);
    part.differs(
        "shared, each of the four servers has data; apart, too, and a fifth has the names",
    );
    part
}

/// The claim holds when it does everywhere; what is missing is left out.
fn judge(part: &mut Part, words: &str, answers: Vec<Option<Answer>>, doubt: Option<String>) {
    let all = answers.into_iter().flatten().reduce(Answer::and);
    if let Some(answer) = all {
        part.judge(words, answer.unless(doubt.as_deref()));
    }
}
