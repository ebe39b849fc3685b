//! MPI-IO by MPICH and Open MPI, on the mount and without any: every byte of every way is verified.

mod support;

use std::path::Path;
use std::process::Command;
use std::time::Duration;
use support::preload::{PREFIX, compile, library, worked};
use support::{Cluster, command, has_program, skip};

/// How long a program of four processes may take on a slow machine.
const LIMIT: Duration = Duration::from_secs(200);

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
    fn run(self, cluster: &Cluster, preloaded: bool) -> Command {
        let mut command = Command::new(self.launcher());
        command.current_dir("/").env("COVEY_CONFIG", cluster.config());
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
        if matches!(self, Mpi::OpenRomio) {
            command.args(["--mca", "io", "romio321"]);
        }
        let preload = library().display().to_string();
        match (preloaded, self) {
            (false, _) => {}
            // For the program only: the launcher has no business with our files.
            (true, Mpi::Mpich) => drop(command.args(["-genv", "LD_PRELOAD", &preload])),
            (true, _) => {
                command.args(["-x", &format!("LD_PRELOAD={preload}"), "-x", "COVEY_CONFIG"]);
            }
        }
        command.args(["-n", "4"]);
        command
    }
}

/// Runs every way of MPI-IO on a file.
fn every_way(cluster: &Cluster, mpi: Mpi, file: &str, preloaded: bool) {
    if !has_program(mpi.launcher()) {
        return skip(format!("needs {}", mpi.launcher()));
    }
    let Some(program) = compile(cluster, "mpi/mpiio.c", mpi.compiler()) else { return };
    let mut command = mpi.run(cluster, preloaded);
    command.arg(program).arg(file);
    let done = command::run_within(command, LIMIT);
    assert!(worked(&done).contains("right"), "{done}");
}

fn on_a_mount(mpi: Mpi) {
    let mut cluster = Cluster::up(3);
    let Some(mount) = cluster.mount() else { return };
    let file = mount.join("f");
    every_way(&cluster, mpi, file.to_str().expect("a plain name"), false);
}

fn without_a_mount(mpi: Mpi) {
    let cluster = Cluster::up(3);
    every_way(&cluster, mpi, Path::new(PREFIX).join("f").to_str().expect("a plain name"), true);
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
