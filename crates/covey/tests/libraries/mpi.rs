//! MPI-IO by MPICH and Open MPI, on the mount and without any: every byte of every way is verified.

use crate::support::preload::{PREFIX, compile, library, worked};
use crate::support::{Cluster, command, has_program, run, skip};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How long a program of four processes may take on a slow machine.
const LIMIT: Duration = Duration::from_secs(200);

/// How a program reaches its file.
enum Way {
    Mount,
    /// The preload library.
    Library,
    /// The preload library, and the shim that sends views as they are.
    Lists(PathBuf),
}

/// One library for parallel programs, and its way to files.
#[derive(Clone, Copy)]
enum Mpi {
    /// MPICH, whose ROMIO sieves data under range locks.
    Mpich,
    /// Open MPI's own OMPIO.
    Ompio,
    /// The ROMIO that Open MPI brings along.
    OpenRomio,
}

impl Mpi {
    fn compiler(self) -> &'static str {
        if matches!(self, Mpi::Mpich) { "mpicc.mpich" } else { "mpicc.openmpi" }
    }

    fn launcher(self) -> &'static str {
        if matches!(self, Mpi::Mpich) { "mpiexec.mpich" } else { "mpiexec.openmpi" }
    }

    /// The command that runs a program in four processes.
    fn run(self, cluster: &Cluster, way: &Way) -> Command {
        let mut command = Command::new(self.launcher());
        command.current_dir("/").env("COVEY_CONFIG", cluster.config());
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
        // Without it OMPIO takes no lock in atomic mode, on any file system that it does not know.
        command.env("OMPI_MCA_fs_ufs_lock_algorithm", "3");
        if matches!(self, Mpi::OpenRomio) {
            command.args(["--mca", "io", "romio321"]);
        }
        let preload = match way {
            Way::Mount => String::new(),
            Way::Library => library().display().to_string(),
            Way::Lists(shim) => format!("{} {}", shim.display(), library().display()),
        };
        match self {
            _ if preload.is_empty() => {}
            // For the program only: the launcher has no business with our files.
            Mpi::Mpich => drop(command.args(["-genv", "LD_PRELOAD", &preload])),
            _ => {
                command.args(["-x", &format!("LD_PRELOAD={preload}"), "-x", "COVEY_CONFIG"]);
                command.args(["-x", "COVEY_PRELOAD_REPORT"]);
            }
        }
        command.args(["-n", "4"]);
        command
    }
}

/// Runs every way of MPI-IO on a file; answers what was said on stderr.
fn every_way(cluster: &Cluster, mpi: Mpi, file: &str, way: &Way) -> Option<String> {
    is_right(cluster, mpi, "mpi/mpiio.c", file, way)
}

/// Runs a program that checks what it does with a file; answers what was said on stderr.
fn is_right(cluster: &Cluster, mpi: Mpi, source: &str, file: &str, way: &Way) -> Option<String> {
    if !has_program(mpi.launcher()) {
        skip(format!("needs {}", mpi.launcher()));
        return None;
    }
    let program = compile(cluster, source, mpi.compiler())?;
    let mut command = mpi.run(cluster, way);
    command.arg(program).arg(file).env("COVEY_PRELOAD_REPORT", "1");
    let done = command::run_within(command, LIMIT);
    assert!(worked(&done).contains("right"), "{done}");
    Some(done.stderr)
}

/// The shim, compiled for an MPI library.
fn shim(cluster: &Cluster, mpi: Mpi) -> Option<PathBuf> {
    if !has_program(mpi.compiler()) {
        skip(format!("needs {}", mpi.compiler()));
        return None;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../preload/mpi/covey-mpiio.c");
    let library = cluster.scratch("libcovey-mpiio.so");
    let mut command = Command::new(mpi.compiler());
    command.args(["-shared", "-fPIC", "-O2", "-Wall", "-o"]).arg(&library).arg(source).arg("-ldl");
    worked(&run(command));
    Some(library)
}

fn on_a_mount(mpi: Mpi) {
    let mut cluster = Cluster::up(3);
    let Some(mount) = cluster.mount() else { return };
    let file = mount.join("f");
    every_way(&cluster, mpi, file.to_str().expect("a plain name"), &Way::Mount);
}

fn without_a_mount(mpi: Mpi) {
    let cluster = Cluster::up(3);
    every_way(&cluster, mpi, &format!("{PREFIX}/f"), &Way::Library);
}

/// All data goes as views, but for atomic mode and shared pointers, which alone take locks.
fn as_views(mpi: Mpi) {
    let cluster = Cluster::up(3);
    let Some(shim) = shim(&cluster, mpi) else { return };
    let Some(said) = every_way(&cluster, mpi, &format!("{PREFIX}/f"), &Way::Lists(shim)) else {
        return;
    };
    let reports = said.lines().filter(|line| line.contains(" list requests of "));
    let lists = reports.filter_map(|line| {
        let count = line.split(" list requests of ").next()?.rsplit(' ').next()?;
        count.parse::<u32>().ok()
    });
    let lists: Vec<u32> = lists.filter(|count| *count > 1).collect();
    assert!(lists.len() == 4 && lists.iter().all(|count| *count >= 30), "{lists:?} in {said}");
}

#[test]
fn views_of_mpich_reach_the_servers_as_they_are() {
    as_views(Mpi::Mpich);
}

#[test]
fn views_of_open_mpi_reach_the_servers_as_they_are() {
    as_views(Mpi::Ompio);
}

/// Threads, types and modes, where views go to the servers.
fn odd_things(mpi: Mpi) {
    let cluster = Cluster::up(2);
    let Some(shim) = shim(&cluster, mpi) else { return };
    is_right(&cluster, mpi, "mpi/odd.c", &format!("{PREFIX}/odd"), &Way::Lists(shim));
}

#[test]
fn what_is_odd_goes_through_views_of_mpich_as_without_them() {
    odd_things(Mpi::Mpich);
}

#[test]
fn what_is_odd_goes_through_views_of_open_mpi_as_without_them() {
    odd_things(Mpi::Ompio);
}

#[test]
fn mpich_is_right_on_a_mount() {
    on_a_mount(Mpi::Mpich);
}

#[test]
fn ompio_is_right_on_a_mount() {
    on_a_mount(Mpi::Ompio);
}

#[test]
fn romio_of_open_mpi_is_right_on_a_mount() {
    on_a_mount(Mpi::OpenRomio);
}

#[test]
fn mpich_is_right_without_a_mount() {
    without_a_mount(Mpi::Mpich);
}

#[test]
fn ompio_is_right_without_a_mount() {
    without_a_mount(Mpi::Ompio);
}

#[test]
fn romio_of_open_mpi_is_right_without_a_mount() {
    without_a_mount(Mpi::OpenRomio);
}
