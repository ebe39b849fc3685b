//! `covey tune all`: what fits into a budget.

use super::through::spinner;
use super::{disk, net};
use crate::cmd::Context;
use crate::error::{Error, Result};
use covey_measure::all::{All, Found, Part, Spent, fitting, share};
use covey_measure::app::{self, AppPlan};
use covey_measure::disk::{Place, Plan as DiskPlan, measure};
use covey_measure::hosts::Hosts;
use covey_measure::levels::{self, Level, Levels};
use covey_measure::mpi::{self, Wait};
use covey_measure::probe::Plan;
use covey_measure::provenance::Provenance;
use covey_measure::pvm;
use covey_measure::stop::{INTERRUPTED, Stop, interruptible};
use covey_tune::application::Numbers;
use indicatif::ProgressBar;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Measure what fits into a budget: network, disk, MPI, ScaLAPACK, PVM, in this order
///
/// With two nodes of a lab: the network between them, then MPI, matrices and PVM over it. With one
/// HOST, where `covey tune serve` runs: the network to it. Without: MPI, matrices and PVM on this
/// machine. A part that does not fit, or needs missing software, is left out, and the result says
/// why. Time that a part does not use goes to the next ones.
///
/// With --json, all results are one object, which `covey tune report` reads. Results are printed
/// even when a later part fails or Ctrl-C ends it; the exit code is then 1, and 2 when a node, lab
/// or directory does not exist, or nothing fits.
///
/// EXAMPLES
///
///     covey tune all --budget 60 n1 n2 --dir /srv/data
///     covey --json tune all --budget 120 n1 n2 > all.json
///     covey tune all --budget 20
#[derive(clap::Args, Clone, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Two nodes of a lab, or a host where `covey tune serve` runs
    #[arg(value_name = "HOST", num_args = 0..=2)]
    hosts: Vec<String>,
    /// How long all of it may take, roughly, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86400))]
    budget: u32,
    /// The directory or device to measure; a device is only read
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Which lab, where there are several [default: lab; inside one, that one]
    #[arg(long, value_name = "LAB")]
    lab: Option<String>,
    /// Do not drop this machine's caches, which slows down everybody for a while
    #[arg(long)]
    keep_caches: bool,
}

/// Everything a part needs.
struct Work<'a> {
    args: &'a Args,
    context: &'a Context,
    hosts: Option<Hosts>,
    stop: &'a Stop,
    bar: &'a ProgressBar,
    all: All,
    /// TCP as the message libraries are compared with it.
    tcp: Option<Level>,
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    Place::find(&DiskPlan::of(&args.dir))?;
    let hosts = match args.hosts.len() {
        1 => None,
        _ => Some(Hosts::find(args.lab.as_deref(), &args.hosts)?),
    };
    let bar = spinner(context);
    let (theirs, shown) = (context.clone(), bar.clone());
    let all = interruptible(move |stop| {
        let all = begin(&args);
        let mut work =
            Work { args: &args, context: &theirs, hosts, stop, bar: &shown, all, tcp: None };
        work.parts();
        Ok(work.all)
    });
    let all = all.await?;
    bar.finish_and_clear();
    if all.spent.is_empty() {
        let why = all.left_out.iter().map(|one| format!("{}: {}", one.what, one.why));
        let why = why.collect::<Vec<_>>().join("; ");
        return Err(Error::user(format!("cannot measure anything: {why}"))
            .hint("--budget takes more seconds"));
    }
    context.output.result(&all, |out| all.tell(out))?;
    match all.failures.first() {
        None => Ok(()),
        Some(first) => {
            Err(Error::work(format!("cannot measure {} to the end: {}", first.what, first.why))
                .hint("the other parts were told all the same"))
        }
    }
}

fn begin(args: &Args) -> All {
    All {
        kind: "all".into(),
        budget_s: f64::from(args.budget),
        provenance: Provenance::here(),
        ..All::default()
    }
}

impl Work<'_> {
    fn parts(&mut self) {
        let budget = Duration::from_secs(self.args.budget.into());
        let possible: Vec<Part> =
            Part::ALL.into_iter().filter(|part| self.is_possible(*part)).collect();
        let (fit, rest) = fitting(budget, &possible);
        for part in rest {
            let least = part.least().as_secs();
            self.all.leave_out(part, format!("it takes {least} s, which the budget does not have"));
        }
        let begun = Instant::now();
        for index in 0..fit.len() {
            let part = fit[index];
            if self.stop.is_asked() {
                self.all.fail(part, INTERRUPTED);
                continue;
            }
            let left = budget.saturating_sub(begun.elapsed());
            if left < part.least() / 2 {
                self.all.leave_out(part, "what came before took longer than it should have");
                continue;
            }
            let planned = share(left, &fit[index..]);
            let one = Instant::now();
            if let Err(error) = self.part(part, planned) {
                self.all.fail(part, error.message);
            }
            let (planned_s, seconds) = (planned.as_secs_f64(), one.elapsed().as_secs_f64());
            self.all.spent.push(Spent { part, planned_s, seconds });
        }
    }

    /// Whether what it needs is here.
    fn is_possible(&mut self, part: Part) -> bool {
        let why = match part {
            Part::Net if self.args.hosts.is_empty() => "no host was named".into(),
            Part::Mpi | Part::App | Part::Pvm if self.hosts.is_none() => {
                "it reaches nodes of a lab and this machine, no other host".into()
            }
            Part::Mpi if mpi::installed().is_empty() => "no MPI is installed".into(),
            Part::Pvm => match pvm::must_be_installed() {
                Ok(()) => return true,
                Err(error) => error.message,
            },
            _ => return true,
        };
        self.all.leave_out(part, why);
        false
    }

    fn part(&mut self, part: Part, time: Duration) -> Result<()> {
        self.bar.set_message(part.word());
        self.bar.tick();
        match part {
            Part::Net => self.net(time),
            Part::Disk => self.disk(time),
            Part::Mpi => self.mpi(time),
            Part::App => self.app(time),
            Part::Pvm => self.pvm(time),
        }
    }

    fn net(&mut self, time: Duration) -> Result<()> {
        let mut words = self.args.hosts.clone();
        words.extend(["--budget".into(), time.as_secs().max(1).to_string()]);
        if let Some(lab) = &self.args.lab {
            words.extend(["--lab".into(), lab.clone()]);
        }
        let report = net::part(&words, self.context, self.stop, self.bar)?;
        if let Some(why) = &report.failure {
            self.all.fail(Part::Net, why.clone());
        }
        self.all.results.push(Found::Link(Box::new(report)));
        Ok(())
    }

    fn disk(&mut self, time: Duration) -> Result<()> {
        let plan = DiskPlan {
            budget: time,
            drop_caches: !self.args.keep_caches,
            ..DiskPlan::of(&self.args.dir)
        };
        let report = measure(&plan, self.stop, &mut |now| disk::show(self.bar, now))?;
        if let Some(why) = &report.failure {
            self.all.fail(Part::Disk, why.clone());
        }
        self.all.results.push(Found::Disk(Box::new(report)));
        Ok(())
    }

    fn mpi(&mut self, time: Duration) -> Result<()> {
        let Some(hosts) = self.hosts.clone() else { return Ok(()) };
        let libraries = mpi::choose(None)?;
        // TCP beside them, as short as each of them.
        let plan = plan(time / (libraries.len() as u32 + 1));
        self.tcp = Some(levels::tcp(&hosts, &plan, self.stop)?);
        for mpi in libraries {
            if self.stop.is_asked() {
                return Err(Error::work(INTERRUPTED));
            }
            let mut show = super::through::show(self.bar, &mpi.name);
            let wait = Wait::usual(&hosts);
            let level = mpi.measure(&hosts, wait, &plan, self.stop, &mut show);
            self.level(Part::Mpi, level);
        }
        Ok(())
    }

    fn app(&mut self, time: Duration) -> Result<()> {
        let Some(hosts) = self.hosts.clone() else { return Ok(()) };
        let cpus = std::thread::available_parallelism().map_or(1, |count| count.get());
        let ranks = if self.args.hosts.is_empty() { cpus } else { self.args.hosts.len() };
        let plan = AppPlan {
            hosts,
            ranks,
            order: None,
            mpi: None,
            numbers: vec![Numbers::D],
            budget: time,
            exhaustive: false,
            hpl: false,
        };
        let report = app::measure(&plan, self.stop, &mut |what| {
            self.bar.set_message(what.to_string());
            self.bar.tick();
        })?;
        if let Some(why) = &report.failure {
            self.all.fail(Part::App, why.clone());
        }
        self.all.results.push(Found::App(Box::new(report)));
        Ok(())
    }

    fn pvm(&mut self, time: Duration) -> Result<()> {
        let Some(hosts) = self.hosts.clone() else { return Ok(()) };
        let mut show = super::through::show(self.bar, "PVM");
        let level = pvm::measure(&hosts, &plan(time), self.stop, &mut show);
        self.level(Part::Pvm, level);
        Ok(())
    }

    /// Keeps a level, with what it costs over TCP.
    fn level(&mut self, part: Part, level: Result<Level>) {
        match level {
            Err(error) => self.all.fail(part, error.message),
            Ok(level) => {
                if let Some(why) = &level.report.failure {
                    self.all.fail(part, why.clone());
                }
                if let Some(tcp) = &self.tcp {
                    let compared = Levels::new(vec![tcp.clone(), level.clone()], Vec::new());
                    self.all.overheads.extend(compared.overheads);
                }
                self.all.results.push(Found::Level(Box::new(level)));
            }
        }
    }
}

fn plan(budget: Duration) -> Plan {
    const UP_TO_BYTES: u64 = 1 << 20;
    Plan { up_to_bytes: UP_TO_BYTES, perturbation: 3, budget }
}
