//! Unmodified programs on every MPI library that speaks libfabric.

use crate::packages::{find, has_file, has_program};
use crate::wheels::{INTEL_MPI, MPICH_4, MPICH_5, OPEN_MPI_5};
use crate::{Done, Place, ended};
use covey_harness::skip;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An MPI library.
struct Stack {
    name: &'static str,
    kind: Kind,
    compiler: String,
    options: Vec<String>,
    launcher: PathBuf,
    /// Where its files are, if not where the system has them.
    prefix: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    OpenMpi,
    Mpich,
    Intel,
}

/// Debian's Open MPI; its MPICH has no libfabric.
fn debian() -> Result<Stack, String> {
    let has = has_program("mpicc.openmpi") && has_program("mpiexec.openmpi");
    if !has || !has_file("/usr/lib/@/openmpi/lib/openmpi3/mca_mtl_ofi.so") {
        return Err("needs libopenmpi-dev and openmpi-bin".to_owned());
    }
    Ok(Stack {
        name: "Open MPI of Debian",
        kind: Kind::OpenMpi,
        compiler: "mpicc.openmpi".to_owned(),
        options: Vec::new(),
        launcher: find("mpiexec.openmpi").unwrap_or_default(),
        prefix: None,
    })
}

/// A library of PyPI, and what its programs are made with: the headers and, at first, the library of another where it
/// comes without.
fn unpacked(name: &'static str, kind: Kind, files: &Path, headers: &Path) -> Stack {
    let lib = headers.join("lib").display().to_string();
    let options = vec![
        format!("-I{}", headers.join("include").display()),
        format!("-L{lib}"),
        "-lmpi".to_owned(),
        // The environment comes before it.
        format!("-Wl,--enable-new-dtags,-rpath,{lib}"),
    ];
    let launcher = match kind {
        Kind::OpenMpi => "bin/mpiexec",
        Kind::Mpich | Kind::Intel => "bin/mpiexec.hydra",
    };
    let (launcher, prefix) = (files.join(launcher), Some(files.to_owned()));
    Stack { name, kind, compiler: "cc".to_owned(), options, launcher, prefix }
}

fn mpich(name: &'static str, wheel: crate::wheels::Wheel) -> Result<Stack, String> {
    wheel.fetched().map(|files| unpacked(name, Kind::Mpich, &files, &files))
}

fn open_mpi_5() -> Result<Stack, String> {
    OPEN_MPI_5.fetched().map(|files| unpacked("Open MPI 5.0.11", Kind::OpenMpi, &files, &files))
}

/// It has the binary interface of MPICH.
fn intel() -> Result<Stack, String> {
    let (files, headers) = (INTEL_MPI.fetched()?, MPICH_4.fetched()?);
    Ok(unpacked("Intel MPI 2021.18.1", Kind::Intel, &files, &headers))
}

impl Stack {
    /// Runs a program of ranks over the provider.
    fn run(&self, program: &Path, place: &Place, ranks: u32, shm: &str, words: &[&str]) -> Done {
        let mut command = place.command(&self.launcher);
        command.env("TMPDIR", place.dir.path()).env("COVEY_FI_SHM", shm);
        self.leads_to_the_provider(&mut command);
        command.args(["-n", &ranks.to_string()]).arg(program).args(words);
        ended(command)
    }

    fn leads_to_the_provider(&self, command: &mut Command) {
        let prefix = self.prefix.as_deref();
        match self.kind {
            Kind::OpenMpi => {
                let root = ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"];
                command.envs(root.map(|name| (name, "1"))).arg("--oversubscribe");
                command.envs(prefix.map(|prefix| ("OPAL_PREFIX", prefix)));
                for (name, value) in MCA {
                    command.args(["--mca", name, value]);
                }
            }
            Kind::Mpich => {
                let variables = [("MPIR_CVAR_CH4_NETMOD", "ofi"), ("MPIR_CVAR_NOLOCAL", "1")];
                command.envs(variables).env("FI_PROVIDER", "covey");
            }
            Kind::Intel => {
                command.env("I_MPI_FABRICS", "ofi").env("FI_PROVIDER", "covey");
                command.envs(prefix.map(|prefix| ("I_MPI_ROOT", prefix)));
                command.envs(prefix.map(|prefix| ("LD_LIBRARY_PATH", prefix.join("lib"))));
            }
        }
    }

    fn compiled(&self, place: &Place, name: &str) -> PathBuf {
        let options: Vec<&str> = self.options.iter().map(String::as_str).collect();
        place.compiled(&self.compiler, name, &options)
    }
}

/// What leads Open MPI to the provider. What its build of UCX says of itself is none of our business.
const MCA: [(&str, &str); 4] =
    [("pml", "cm"), ("mtl", "ofi"), ("opal_common_ofi_provider_include", "covey"), ("osc", "^ucx")];

/// Four ranks by memory, which are more than many a machine has CPUs, and two by TCP.
#[track_caller]
fn programs_are_right(stack: Result<Stack, String>) {
    let stack = match stack {
        Ok(stack) => stack,
        Err(why) => return skip(why),
    };
    let place = Place::new();
    let file = place.path("file");
    let programs: [(&str, &[&str]); 2] =
        [("mpi.c", &[file.to_str().expect("a path")]), ("windows.c", &[])];
    for (name, words) in programs {
        let program = stack.compiled(&place, name);
        for (ranks, shm) in [(4, "1"), (2, "0")] {
            let done = stack.run(&program, &place, ranks, shm, words);
            let is_right = done.ok && done.said.contains("right\n");
            assert!(is_right, "{}, {name}, {ranks} ranks: {}", stack.name, done.said);
        }
    }
}

#[test]
fn ranks_of_debian_s_open_mpi_do_what_programs_do() {
    programs_are_right(debian());
}

#[test]
fn ranks_of_open_mpi_5_do_what_programs_do() {
    programs_are_right(open_mpi_5());
}

#[test]
fn ranks_of_mpich_4_do_what_programs_do() {
    programs_are_right(mpich("MPICH 4.3.2", MPICH_4));
}

#[test]
fn ranks_of_mpich_5_do_what_programs_do() {
    programs_are_right(mpich("MPICH 5.0.2", MPICH_5));
}

#[test]
fn ranks_of_intel_s_mpi_do_what_programs_do() {
    programs_are_right(intel());
}

/// The launcher, or the library, ends all: nobody waits for one that was killed.
#[track_caller]
fn nobody_waits_for_the_dead(stack: Result<Stack, String>) {
    let stack = match stack {
        Ok(stack) => stack,
        Err(why) => return skip(why),
    };
    let place = Place::new();
    let program = stack.compiled(&place, "killed.c");
    for (ranks, shm, how) in
        [(2, "1", "receive"), (2, "0", "send"), (3, "0", "any"), (3, "1", "sum")]
    {
        let done = stack.run(&program, &place, ranks, shm, &[how]);
        let says = format!("{}, {how}, shm {shm}: {}", stack.name, done.said);
        assert!(!done.ok && done.has_ended, "{says}");
        assert!(!done.said.contains("a dead rank has answered"), "{says}");
    }
}

#[test]
fn a_rank_of_debian_s_open_mpi_that_is_killed_ends_the_others() {
    nobody_waits_for_the_dead(debian());
}

#[test]
fn a_rank_of_open_mpi_5_that_is_killed_ends_the_others() {
    nobody_waits_for_the_dead(open_mpi_5());
}

#[test]
fn a_rank_of_mpich_that_is_killed_ends_the_others() {
    nobody_waits_for_the_dead(mpich("MPICH 4.3.2", MPICH_4));
    nobody_waits_for_the_dead(mpich("MPICH 5.0.2", MPICH_5));
}
