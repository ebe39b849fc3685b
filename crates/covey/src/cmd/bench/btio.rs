//! `covey bench btio`: NASA's benchmark of solutions that are written while they are computed.

use crate::cmd::{Context, path};
use crate::error::{Cannot, Error, Result};
use covey_measure::btio::{Class, Extras, Io, Place, Plan, measure};
use covey_measure::hosts::Hosts;
use covey_measure::mpi::Library;
use covey_measure::scratch::Scratch;
use covey_measure::stop::interruptible;
use std::ffi::OsString;

/// BT of the NAS Parallel Benchmarks with its four ways to write the solution (BTIO)
///
/// A square number of MPI processes solves the Navier-Stokes equations on a grid and writes the
/// solution every five steps, in the ways that NPB calls full, simple, fortran and epio. Everything
/// is read back in the end and checked against the norms that NASA publishes for each class; the
/// column `contents` is the same for the same solutions, whichever way they were written.
///
/// --dir is a directory of any file system: a local disk, a volume, a mount of Covey. With
/// covey:/DIR the processes reach Covey without a mount, and full and simple send their file view
/// to the servers as it is: one request to each, and no data sieving. The lines below the table
/// count the calls.
///
/// The program is Covey's own, written from NASA's description; it is compiled with mpicc when it
/// is first needed. With --npb it also prints what NASA's program prints, in the same lines.
///
/// Exit code 1 when a run failed or its norms are wrong; 2 when the number of processes does not
/// suit the class.
///
/// EXAMPLES
///
///     covey bench btio
///     covey bench btio --class W --dir /mnt/covey --mpi mpich
///     covey bench btio --class A --io full,simple --dir covey:/
///     covey bench btio --class A -n 1 --io epio --dir /var/tmp --npb
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Size of the problem
    #[arg(long, value_enum, value_name = "CLASS", default_value = "S", ignore_case = true)]
    class: Class,
    /// How many processes: a square
    #[arg(short = 'n', long, value_name = "RANKS", default_value_t = 4)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=2916))]
    ranks: u16,
    /// How to write [default: the first four, one after the other]
    #[arg(long, value_enum, value_name = "IO", value_delimiter = ',')]
    io: Vec<Io>,
    /// Write to this directory, or to covey:/DIR without a mount [default: a temporary directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<OsString>,
    /// Only this library [default: all that are installed]
    #[arg(long, value_enum, value_name = "LIBRARY")]
    mpi: Option<Library>,
    /// Leave the files there: btio.full.out and so on
    #[arg(long, requires = "dir")]
    keep: bool,
    /// Read back from the disk: what was written is synced, and this machine's caches are advised to drop it
    #[arg(long)]
    cold: bool,
    /// Print what each program says, in the form of NASA's, before the table
    #[arg(long)]
    npb: bool,
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let scratch = Scratch::new()?;
    let temporary = || Ok(Place::Directory(scratch.path().to_owned()));
    let place = args.dir.as_ref().map_or_else(temporary, |dir| place(dir, context))?;
    let plan = Plan {
        class: args.class,
        ranks: args.ranks.into(),
        ios: if args.io.is_empty() { Io::ALL.to_vec() } else { args.io },
        mpi: args.mpi,
        hosts: Hosts::Here,
        place,
        extras: Extras { keeps: args.keep, is_cold: args.cold, tells_phases: false },
    };
    let (bar, say) = context.output.told();
    let report = interruptible(move |stop| measure(&plan, stop, &say)).await?;
    bar.finish_and_clear();
    context.output.result(&report, |out| {
        for run in report.runs.iter().filter(|_| args.npb) {
            out.extend_from_slice(run.said.as_bytes());
        }
        report.tell(out)
    })?;
    if report.is_right() { Ok(()) } else { Err(Error::told()) }
}

fn place(dir: &OsString, context: &Context) -> Result<Place> {
    let bytes = dir.as_encoded_bytes();
    if !bytes.starts_with(b"covey:") && !bytes.starts_with(b":") {
        let dir = std::path::absolute(dir);
        return Ok(Place::Directory(dir.cannot(|| "find the directory")?));
    }
    // The processes find it as we do, unless it was named.
    let config = context.config_file.as_ref().map(std::path::absolute).transpose();
    let directory = path::text(&path::inside(dir));
    Ok(Place::Covey { directory, config: config.cannot(|| "find the configuration")? })
}
