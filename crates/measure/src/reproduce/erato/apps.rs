//! Figures 10 to 13 and table 1: matrices multiplied and systems solved on four nodes of Fast Ethernet.
//!
//! Each case is measured by itself, without the contest of `tune app`: what is compared is known before.

mod claims;
mod measured;

use super::part;
use crate::app::blas::{self, Blas};
use crate::app::run::{self, Job, Ready};
use crate::error::{Error, Result};
use crate::mpi::{self, Library};
use crate::reproduce::bench::Bench;
use crate::reproduce::told::{Part, number, reason};
use crate::stop::Stop;
use covey_tune::application::{Case, Numbers, Routine};
use covey_tune::papers::{ERATO_NODE_FLOPS, ERATO_NODES, ERATO_PEAKS, Peak};
use covey_tune::reproduce::{Beside, Unit};
use measured::{Measured, PLAIN};

/// So many nodes, in a square.
const NODES: usize = 4;
const GRID: (u64, u64) = (2, 2);
/// What the paper found best.
const BLOCK: u64 = 64;
const BLOCKS: [u64; 5] = [8, 16, 32, 64, 128];
/// One core's rate is taken with matrices of this order, for so many seconds with each BLAS.
const CORE: (u64, f64) = (512, 0.3);
/// No case is begun after so many seconds with the best BLAS, which has most to do, and with each other one.
const SECONDS: (f64, f64) = (240.0, 60.0);
const SECONDS_QUICK: (f64, f64) = (15.0, 5.0);

/// Orders of matrices.
#[derive(Debug)]
struct Orders {
    /// Of the four types.
    types: u64,
    /// Of the blocks.
    blocks: u64,
    /// Of the systems that are solved with each BLAS.
    systems: u64,
    /// Of the growing ones.
    growing: &'static [u64],
    /// What is solved and multiplied for table 1, for the paper's smaller matrices and for its largest.
    peaks: [u64; 2],
    /// How often each.
    passes: usize,
}

const QUICK: Orders = Orders {
    types: 384,
    blocks: 384,
    systems: 512,
    growing: &[128, 256, 384, 512, 640, 768],
    peaks: [768, 1024],
    passes: 2,
};
/// Systems of the paper's order.
const FULL: Orders = Orders {
    types: 1440,
    blocks: 1440,
    systems: 4800,
    growing: &[240, 480, 960, 1920, 3360, 4800],
    peaks: [4800, 6000],
    passes: 3,
};

fn orders(bench: &Bench) -> &'static Orders {
    if bench.wish.is_quick { &QUICK } else { &FULL }
}

/// What it takes.
struct Tools {
    ready: Ready,
    /// With what one core does, the slowest first.
    blas: Vec<(Blas, f64)>,
}

impl Tools {
    /// Finds it.
    async fn find(bench: &mut Bench) -> Result<Tools> {
        bench
            .work(|stop| {
                let ready = ready()?;
                let mut all = Vec::new();
                for blas in blas::installed() {
                    let (order, seconds) = CORE;
                    let found = run::multiply(&blas, &[Numbers::D], order, seconds, stop)?;
                    let rate = run::rates(&found).into_iter().find(|rate| rate.is_right());
                    all.extend(rate.map(|rate| (blas, rate.gflops * 1e9)));
                }
                all.sort_by(|one, other| one.1.total_cmp(&other.1));
                if all.is_empty() {
                    Err(Error::work(
                        "no BLAS is installed (apt-get install libopenblas0-pthread libblas3)",
                    ))
                } else {
                    Ok(Tools { ready, blas: all })
                }
            })
            .await
    }

    fn best(&self) -> &(Blas, f64) {
        self.blas.last().expect("there is one")
    }

    /// The one that nobody has made fast, else the slowest.
    fn plain(&self) -> &(Blas, f64) {
        self.blas.iter().find(|one| one.0.name == PLAIN).unwrap_or(&self.blas[0])
    }

    /// What one core does with the best of them, times as many as compute.
    fn peak(&self) -> f64 {
        let cpus = std::thread::available_parallelism().map_or(1, |count| count.get());
        self.best().1 * cpus.min(NODES) as f64
    }

    fn differs(&self, part: &mut Part) {
        let (best, plain) = (self.best(), self.plain());
        let times = |rate: f64| rate / ERATO_NODE_FLOPS;
        let cpus = std::thread::available_parallelism().map_or(1, |count| count.get());
        part.differs(format!(
            "{NODES} nodes instead of {ERATO_NODES}, in a grid of {} x {}, which share this machine's {cpus} CPUs with the \
             lab's own network",
            GRID.0, GRID.1
        ));
        part.differs(format!(
            "the wire is the paper's, and a core is {:.0} times ({}) to {:.0} times ({}) its node of {}: the wire weighs \
             that much more, and matrices must be larger for the same share of the peak",
            times(plain.1),
            plain.0.name,
            times(best.1),
            best.0.name,
            number(Unit::Flops, ERATO_NODE_FLOPS),
        ));
        part.differs(format!("{} instead of mpich 1.2.0", self.ready.mpi.name));
    }
}

/// The paper's MPI, else what there is.
fn ready() -> Result<Ready> {
    let mut why = None;
    for library in [Library::Mpich, Library::Openmpi] {
        let ready = mpi::choose(Some(library)).and_then(|mut found| Ready::new(found.remove(0)));
        match ready {
            Ok(ready) => return Ok(ready),
            Err(error) => why = why.or(Some(error)),
        }
    }
    let why = why.expect("both failed");
    Err(Error::work(format!("it takes ScaLAPACK over MPI: {}", reason(&why))))
}

/// Measures cases with one BLAS in the lab that there is, and keeps what there is also when it breaks off.
async fn measure(
    bench: &mut Bench,
    part: &mut Part,
    found: &mut Measured,
    (tools, blas): (&Tools, &Blas),
    cases: Vec<Case>,
) {
    let passes = orders(bench).passes;
    let (of_best, of_others) = if bench.wish.is_quick { SECONDS_QUICK } else { SECONDS };
    let seconds = if *blas == tools.best().0 { of_best } else { of_others };
    bench.say(format!("  {}, {} cases", blas.name, cases.len()));
    let hosts = bench.hosts(NODES);
    let (ready, mine) = (tools.ready.clone(), blas.clone());
    let ran = match hosts {
        Err(error) => Err(error),
        Ok(hosts) => {
            let work = move |stop: &Stop| {
                let job = Job {
                    hosts: &hosts,
                    ranks: NODES,
                    blas: &mine,
                    cases: &cases,
                    passes,
                    seconds,
                    least: 0,
                };
                ready.measure(&job, stop)
            };
            bench.work(work).await
        }
    };
    match ran {
        Err(error) => part.fail(format!("what takes {}", blas.name), &error),
        Ok(ran) => {
            found.keep(&blas.name, ran.repetitions);
            if let Some(why) = ran.failure {
                part.leave_out(format!("the rest with {}", blas.name), why);
            }
        }
    }
}

fn case(routine: Routine, numbers: Numbers, order: u64, block: u64) -> Case {
    Case { routine, numbers, order, block, rows: GRID.0, columns: GRID.1 }
}

/// Figures 10 to 13.
pub async fn figures(bench: &mut Bench) -> Part {
    let mut part = part(
        "fig10-13",
        "matrix products and systems by data type, size, BLAS and block; the curves are lost",
    );
    match Tools::find(bench).await {
        Err(error) => part.fail("all of it", &error),
        Ok(tools) => of_figures(bench, &mut part, &tools).await,
    }
    part.leave_out(
        "MPI against PVM (figures 10 b and 11 b)",
        "ScaLAPACK is packaged over MPI only; fig5-7 compares the two on the wire",
    );
    part
}

async fn of_figures(bench: &mut Bench, part: &mut Part, tools: &Tools) {
    if let Err(error) = bench.lab(&[&NODES.to_string(), "--link", "fast-ethernet"]).await {
        part.fail("all of it", &error);
        return;
    }
    let mut found = Measured::default();
    for (blas, _) in &tools.blas {
        let cases = cases_of_figures(orders(bench), tools, blas);
        measure(bench, part, &mut found, (tools, blas), cases).await;
    }
    if let Err(error) = bench.down().await {
        part.fail("taking the lab down", &error);
    }
    let doubt = bench.doubt(1);
    claims::judge(part, &found, (orders(bench), tools), doubt.as_deref());
    part.doubt(doubt);
    tools.differs(part);
    if orders(bench).systems < 4800 {
        part.differs(format!("systems of order {} instead of 4800", orders(bench).systems));
    }
}

/// Types with the plain one; systems with each; blocks and growing orders with the best.
fn cases_of_figures(orders: &Orders, tools: &Tools, blas: &Blas) -> Vec<Case> {
    let (gemm, gesv, d) = (Routine::Gemm, Routine::Gesv, Numbers::D);
    let mut cases = vec![case(gesv, d, orders.systems, BLOCK)];
    if *blas == tools.plain().0 {
        cases.extend(Numbers::ALL.map(|numbers| case(gemm, numbers, orders.types, BLOCK)));
    }
    if *blas == tools.best().0 {
        for routine in [gemm, gesv] {
            cases.extend(BLOCKS.map(|block| case(routine, d, orders.blocks, block)));
            cases.extend(orders.growing.iter().map(|order| case(routine, d, *order, BLOCK)));
        }
    }
    cases.sort();
    cases.dedup();
    // The short ones first: what there is when it breaks off is then most of it.
    cases.sort_by_key(|case| case.order);
    cases
}

/// Table 1.
pub async fn peaks(bench: &mut Bench) -> Part {
    let mut part = part("table1", "pdgemm and pdgesv; the paper's peaks are of 32 nodes");
    match Tools::find(bench).await {
        Err(error) => part.fail("all of it", &error),
        Ok(tools) => of_table(bench, &mut part, &tools).await,
    }
    part
}

async fn of_table(bench: &mut Bench, part: &mut Part, tools: &Tools) {
    if let Err(error) = bench.lab(&[&NODES.to_string(), "--link", "fast-ethernet"]).await {
        part.fail("all of it", &error);
        return;
    }
    let orders = orders(bench);
    let mut found = Measured::default();
    let blas = &tools.best().0;
    let of = |order| {
        [Routine::Gemm, Routine::Gesv].map(|routine| case(routine, Numbers::D, order, BLOCK))
    };
    let cases = orders.peaks.into_iter().flat_map(of).collect();
    measure(bench, part, &mut found, (tools, blas), cases).await;
    if let Err(error) = bench.down().await {
        part.fail("taking the lab down", &error);
    }
    for theirs in ERATO_PEAKS {
        set_beside(part, &found, tools, &theirs, orders);
    }
    tools.differs(part);
    part.differs(format!(
        "matrices of {} and {} rows; the paper's largest, of 15000 and 30000, take many minutes and 7 GB here",
        orders.peaks[0], orders.peaks[1]
    ));
    part.differs(format!("blocks of {BLOCK} and a square grid; `covey tune app` chooses both"));
    part.doubt(bench.doubt(1));
}

/// The rate, and its share of what the processors alone would do: the rate depends on the machine, the share on how
/// well it is used.
fn set_beside(part: &mut Part, found: &Measured, tools: &Tools, theirs: &Peak, orders: &Orders) {
    let is_product = theirs.what == "GEMM";
    let routine = if is_product { Routine::Gemm } else { Routine::Gesv };
    let order = orders.peaks[usize::from(theirs.rows > 4800)];
    let blas = &tools.best().0.name;
    let Some(ours) = found.flops(blas, case(routine, Numbers::D, order, BLOCK)) else {
        part.leave_out(format!("{} of {order} rows", theirs.what), "there was no result of it");
        return;
    };
    let of = if u64::from(theirs.rows) == order {
        format!("{}, {order} rows, {blas}", theirs.what)
    } else {
        format!("{}, {} rows; {order} here, {blas}", theirs.what, theirs.rows)
    };
    let mut row = |what, ours, theirs| {
        part.beside.push(Beside::new("table 1", of.as_str(), what, ours, theirs))
    };
    row(("rate", Unit::Flops), ours, theirs.flops);
    let ideal = ERATO_NODE_FLOPS * f64::from(ERATO_NODES);
    row(("share of the peak", Unit::Share), measured::by(ours, tools.peak()), theirs.flops / ideal);
}
