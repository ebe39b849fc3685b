//! Unmodified programs on Open MPI.

use crate::packages::{has_file, has_program};
use crate::{Place, ended};
use covey_harness::skip;

#[track_caller]
fn open_mpi(name: &str, ranks: &str, environment: &[(&str, &str)]) {
    let has = has_program("mpicc.openmpi") && has_program("mpiexec.openmpi");
    if !has || !has_file("/usr/lib/@/openmpi/lib/openmpi3/mca_mtl_ofi.so") {
        return skip("needs libopenmpi-dev and openmpi-bin");
    }
    let place = Place::new();
    let program = place.compiled("mpicc.openmpi", name, &[]);
    let mut command = place.command("mpiexec.openmpi");
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.env("TMPDIR", place.dir.path()).envs(environment.iter().copied());
    for (name, value) in MCA {
        command.args(["--mca", name, value]);
    }
    command.args(["--oversubscribe", "-n", ranks]).arg(program);
    let done = ended(command);
    assert!(done.ok && done.said.contains("right\n"), "{}", done.said);
}

/// What leads Open MPI to the provider.
const MCA: [(&str, &str); 3] =
    [("pml", "cm"), ("mtl", "ofi"), ("opal_common_ofi_provider_include", "covey")];

#[test]
fn two_ranks_of_open_mpi_do_what_programs_do() {
    open_mpi("mpi.c", "2", &[]);
}

#[test]
fn four_ranks_of_open_mpi_do_what_programs_do() {
    open_mpi("mpi.c", "4", &[]);
}

#[test]
fn ranks_of_open_mpi_that_have_tcp_only_do_what_programs_do() {
    open_mpi("mpi.c", "2", &[("COVEY_FI_SHM", "0")]);
}

#[test]
fn ranks_of_open_mpi_reach_into_each_other_s_windows() {
    open_mpi("windows.c", "3", &[]);
}
