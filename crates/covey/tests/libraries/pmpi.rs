//! Unmodified MPI programs with and without the shim: the same bytes, in C and Fortran, with Open MPI
//! and MPICH.

use crate::support::libraries::{built, source};
use crate::support::{Finished, has_program, run, run_within, skip};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tempfile::TempDir;

/// How long a program of a few processes may take on a slow machine.
const LIMIT: Duration = Duration::from_secs(200);

/// One library for parallel programs, with the shim built for it.
struct Mpi {
    name: &'static str,
    dir: TempDir,
    shim: PathBuf,
}

impl Mpi {
    /// None, with the reason told, where the library is not installed.
    fn named(name: &'static str) -> Option<Mpi> {
        let compiler = format!("mpicc.{name}");
        if !has_program(&compiler) {
            skip(format!("needs {compiler}"));
            return None;
        }
        let shim = shim(name, &compiler);
        Some(Mpi { name, dir: TempDir::new().expect("a directory"), shim })
    }

    /// Compiles a program of the tests; None where there is no such compiler.
    fn compile(&self, file: &str, options: &[&str]) -> Option<PathBuf> {
        let kind = if file.ends_with(".f90") { "mpifort" } else { "mpicc" };
        let compiler = format!("{kind}.{}", self.name);
        if !has_program(&compiler) || (kind == "mpifort" && !has_program("gfortran")) {
            skip(format!("needs {compiler}"));
            return None;
        }
        let program = self.dir.path().join(format!("program{}", options.concat()));
        let mut command = Command::new(compiler);
        command.args(["-O1", "-g", "-Wall"]).args(options).arg("-o").arg(&program);
        command
            .arg("-I")
            .arg(source("crates/capi/include"))
            .arg("-I")
            .arg(source("crates/capi/mpi"));
        command.arg(source("crates/covey/tests/pmpi").join(file));
        command.env("COVEY_PMPI", "off");
        let done = run(command);
        assert!(done.ok, "{done}");
        Some(program)
    }

    /// A program in a few processes, with settings of the shim or without it.
    fn command(
        &self,
        ranks: u32,
        shim: Option<&[(&str, &str)]>,
        program: &Path,
        arguments: &[&str],
    ) -> Command {
        let mut command = Command::new(format!("mpiexec.{}", self.name));
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command.env("OMPI_MCA_rmaps_base_oversubscribe", "1").current_dir("/");
        command.env("OMPI_MCA_btl_base_warn_component_unused", "0");
        command.args(["-n", &ranks.to_string(), "env"]);
        if let Some(settings) = shim {
            command.arg(format!("LD_PRELOAD={}", self.shim.display())).arg("COVEY_PMPI_REPORT=1");
            command.args(settings.iter().map(|(name, value)| format!("{name}={value}")));
        }
        command.arg(program).args(arguments);
        command
    }

    fn run(
        &self,
        ranks: u32,
        shim: Option<&[(&str, &str)]>,
        program: &Path,
        arguments: &[&str],
    ) -> Finished {
        run_within(self.command(ranks, shim, program, arguments), LIMIT)
    }

    /// Numbers of a kind that all ranks report.
    fn reported(&self, done: &Finished, words: &str) -> Vec<u64> {
        let lines = done.stderr.lines().filter(|line| line.contains("covey-pmpi: rank "));
        let before = lines
            .filter_map(|line| line.split(words).next()?.rsplit([' ', '(']).next()?.parse().ok());
        before.collect()
    }
}

/// The shim for a library, built once for all tests.
fn shim(name: &'static str, compiler: &str) -> PathBuf {
    static BUILT: Mutex<BTreeMap<&str, PathBuf>> = Mutex::new(BTreeMap::new());
    let mut built_before = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(shim) = built_before.get(name) {
        return shim.clone();
    }
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pmpi");
    std::fs::create_dir_all(&dir).expect("cargo has made the directory above");
    let mut build = Command::new(source("crates/capi/mpi/pmpi/build"));
    build.arg("-o").arg(&dir).arg(compiler);
    build.env("COVEY_LIB", built("covey-capi", "libcovey_capi.a"));
    let done = run(build);
    assert!(done.ok && !done.stderr.contains("warning"), "{done}");
    let shim = PathBuf::from(done.stdout.trim());
    assert!(shim.ends_with(format!("libcovey-pmpi-{name}.so")), "{done}");
    built_before.insert(name, shim.clone());
    shim
}

/// Everything goes through the shim, however small it is.
const EVERYTHING: &[(&str, &str)] =
    &[("COVEY_PMPI_MIN_BYTES", "0"), ("COVEY_PMPI_RUN_BYTES", "100000000")];

#[track_caller]
fn sorted(done: &Finished) -> Vec<&str> {
    assert!(done.ok, "{done}");
    let mut lines: Vec<&str> = done.stdout.lines().collect();
    lines.sort_unstable();
    lines
}

/// Random types in every way that MPI has to send them.
fn random_types_arrive_the_same(name: &'static str, ranks: u32) {
    let Some(mpi) = Mpi::named(name) else { return };
    let Some(program) = mpi.compile("random.c", &[]) else { return };
    let arguments = ["7", "150"];
    let without = mpi.run(ranks, None, &program, &arguments);
    let with = mpi.run(ranks, Some(EVERYTHING), &program, &arguments);
    let (without, lines) = (sorted(&without), sorted(&with));
    assert_eq!(lines.len(), 150 * ranks as usize, "{with}");
    for (one, two) in without.iter().zip(&lines) {
        assert_eq!(one, two, "{name}: without and with the shim");
    }
    let unpacked = mpi.reported(&with, " unpacked");
    assert!(unpacked.len() == ranks as usize && unpacked[0] > 50, "{with}");
    let unknown = mpi.reported(&with, " of types that are not known");
    assert!(unknown.iter().all(|count| *count == 0), "{with}");
    // Small ones and those in long pieces stay with MPI, and mix with the others.
    let some = mpi.run(ranks, Some(&[]), &program, &arguments);
    assert_eq!(sorted(&some), without);
}

/// Halos of grids, lists of neighbours, and messages that matched probes have found.
fn neighbors_have_the_same(name: &'static str) {
    let Some(mpi) = Mpi::named(name) else { return };
    let Some(program) = mpi.compile("neighbors.c", &[]) else { return };
    let without = mpi.run(3, None, &program, &[]);
    let lines = sorted(&without);
    assert!(lines.len() == 3 * 18 && !without.stdout.contains("wrong"), "{without}");
    for settings in [EVERYTHING, &[]] {
        let with = mpi.run(3, Some(settings), &program, &[]);
        assert_eq!(lines, sorted(&with), "{name}: without and with the shim");
        let collectives = mpi.reported(&with, " collective operations");
        assert!(collectives.len() == 3 && collectives.iter().all(|count| *count >= 12), "{with}");
    }
}

fn a_transposition_is_right(name: &'static str, file: &str, options: &[&str]) {
    let Some(mpi) = Mpi::named(name) else { return };
    let Some(program) = mpi.compile(file, options) else { return };
    for size in ["100", "1000"] {
        let without = mpi.run(2, None, &program, &[size]);
        assert!(without.ok && without.stdout.ends_with("right\n"), "{without}");
        let with = mpi.run(2, Some(&[]), &program, &[size]);
        assert!(with.ok && with.stdout.ends_with("right\n"), "{with}");
        let packed = mpi.reported(&with, " messages packed");
        assert!(packed.len() == 2 && packed.iter().sum::<u64>() >= 1, "{with}");
        let off = mpi.run(2, Some(&[("COVEY_PMPI", "off")]), &program, &[size]);
        assert!(off.stdout.ends_with("right\n"), "{off}");
        assert!(mpi.reported(&off, " messages packed").iter().all(|count| *count == 0), "{off}");
    }
}

/// Random types put to and got from windows of every kind, in every way of synchronising.
fn windows_hold_the_same(name: &'static str, ranks: u32) {
    let Some(mpi) = Mpi::named(name) else { return };
    let Some(program) = mpi.compile("windows.c", &[]) else { return };
    windows_agree(&mpi, ranks, &program, &["7", "60", "60"], &[]);
}

/// MPI may start an epoch without waiting for anybody. This component of Open MPI does so, where the others wait in
/// MPI_Win_start and MPI_Win_lock. Derived types under locks it does not survive by itself.
#[test]
fn windows_hold_the_same_where_epochs_are_begun_lazily() {
    let Some(mpi) = Mpi::named("openmpi") else { return };
    let Some(program) = mpi.compile("windows.c", &[]) else { return };
    for seed in ["1", "2"] {
        let lazily = [("OMPI_MCA_osc", "pt2pt,sm")];
        windows_agree(&mpi, 2, &program, &[seed, "100", "100", "2"], &lazily);
    }
}

fn windows_agree(
    mpi: &Mpi,
    ranks: u32,
    program: &Path,
    arguments: &[&str],
    of_mpi: &[(&str, &str)],
) {
    let runs = |settings: Option<&[(&str, &str)]>| {
        let mut command = mpi.command(ranks, settings, program, arguments);
        command.envs(of_mpi.iter().copied());
        run_within(command, LIMIT)
    };
    let without = runs(None);
    assert!(!sorted(&without).iter().any(|line| line.contains("wrong")), "{without}");
    for settings in [&[("COVEY_PMPI_WINDOWS", "all")][..], &[]] {
        let with = runs(Some(settings));
        for (one, two) in sorted(&without).iter().zip(&sorted(&with)) {
            assert_eq!(one, two, "without and with the shim: {with}");
        }
        assert_eq!(sorted(&without).len(), sorted(&with).len());
        let direct = mpi.reported(&with, " one-sided operations direct");
        assert!(direct.len() == ranks as usize && direct[0] > 100, "{with}");
    }
    let off = runs(Some(&[("COVEY_PMPI_WINDOWS", "off")]));
    let direct = mpi.reported(&off, " one-sided operations direct");
    assert!(off.ok && direct.iter().all(|count| *count == 0), "{off}");
}

fn a_transposition_in_a_window_is_right(name: &'static str, file: &str, options: &[&str]) {
    let Some(mpi) = Mpi::named(name) else { return };
    let Some(program) = mpi.compile(file, options) else { return };
    for size in ["100", "300"] {
        let without = mpi.run(2, None, &program, &[size]);
        assert!(without.ok && without.stdout.ends_with("right\n"), "{without}");
        let with = mpi.run(2, Some(&[]), &program, &[size]);
        assert!(with.ok && with.stdout.ends_with("right\n"), "{with}");
        let direct = mpi.reported(&with, " one-sided operations direct");
        assert!(direct.len() == 2 && direct.iter().sum::<u64>() >= 4, "{with}");
    }
}

/// A type that is described as MPI itself packs it, bounds included.
fn imported_types_are_mpis_own(name: &'static str) {
    let Some(mpi) = Mpi::named(name) else { return };
    let library = built("covey-capi", "libcovey_capi.so");
    for link in ["libcovey.so", "libcovey.so.0"] {
        std::os::unix::fs::symlink(&library, mpi.dir.path().join(link)).expect("a link");
    }
    let here = mpi.dir.path().display().to_string();
    let (dir, path) = (format!("-L{here}"), format!("-Wl,-rpath,{here}"));
    let program = mpi.dir.path().join("import");
    let mut command = Command::new(format!("mpicc.{name}"));
    command.args(["-O1", "-g", "-Wall", "-Werror", "-I"]).arg(source("crates/capi/include"));
    command.arg("-I").arg(source("crates/capi/mpi")).arg("-o").arg(&program);
    command.arg(source("crates/covey/tests/pmpi/import.c")).args([&dir, "-lcovey", &path]);
    let done = run(command);
    assert!(done.ok, "{done}");
    let done = mpi.run(1, None, &program, &["3", "3000"]);
    assert!(done.ok && done.stdout.ends_with("right\n"), "{done}");
}

macro_rules! for_both {
    ($($test:ident($check:ident $(, $argument:expr)*);)*) => {
        mod openmpi {
            $(#[test] fn $test() { super::$check("openmpi" $(, $argument)*) })*
        }
        mod mpich {
            $(#[test] fn $test() { super::$check("mpich" $(, $argument)*) })*
        }
    };
}

for_both! {
    random_types_of_two_ranks_arrive_the_same(random_types_arrive_the_same, 2);
    random_types_of_three_ranks_arrive_the_same(random_types_arrive_the_same, 3);
    neighbors_of_three_ranks_have_the_same(neighbors_have_the_same);
    windows_of_two_ranks_hold_the_same(windows_hold_the_same, 2);
    windows_of_three_ranks_hold_the_same(windows_hold_the_same, 3);
    a_window_in_c_is_right(a_transposition_in_a_window_is_right, "window.c", &[]);
    a_window_with_the_mpi_module_is_right(a_transposition_in_a_window_is_right, "window.f90", &["-cpp"]);
    a_window_with_mpi_f08_is_right(a_transposition_in_a_window_is_right, "window.f90", &["-cpp", "-DUSE_F08"]);
    a_window_with_mpif_h_is_right(a_transposition_in_a_window_is_right, "window.f90", &["-cpp", "-DUSE_MPIF_H", "-fallow-argument-mismatch"]);
    types_are_described_as_mpi_packs_them(imported_types_are_mpis_own);
    a_transposition_in_c_is_right(a_transposition_is_right, "transpose.c", &[]);
    a_transposition_with_the_mpi_module_is_right(a_transposition_is_right, "transpose.f90", &["-cpp"]);
    a_transposition_with_mpi_f08_is_right(a_transposition_is_right, "transpose.f90", &["-cpp", "-DUSE_F08"]);
    a_transposition_with_mpif_h_is_right(a_transposition_is_right, "transpose.f90", &["-cpp", "-DUSE_MPIF_H", "-fallow-argument-mismatch"]);
}

#[test]
fn the_shim_of_one_mpi_library_says_so_to_a_program_of_the_other() {
    let (Some(open), Some(mpich)) = (Mpi::named("openmpi"), Mpi::named("mpich")) else { return };
    let Some(program) = mpich.compile("transpose.c", &[]) else { return };
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", &open.shim);
    let done = run(command);
    assert!(!done.ok && done.stderr.contains("built for Open MPI"), "{done}");
    assert!(done.stderr.contains("hint: "), "{done}");
}
