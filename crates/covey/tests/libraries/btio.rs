//! `covey bench btio`: NASA's norms, whichever way the solution was written, and the same bytes in every file.

use crate::support::command::covey;
use crate::support::preload::library;
use crate::support::{Cluster, Finished, command, has_program, skip};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// How long four processes may take on a slow machine, for all ways to write.
const LIMIT: Duration = Duration::from_secs(200);
const OUTPUTS: u64 = 12;
const PROCESSES: u64 = 4;
const BYTES: u64 = 829_440;

/// An MPI library; without any the test is skipped.
fn library_of_mpi() -> Option<&'static str> {
    let is_ready = |name: &&str| {
        has_program(&format!("mpicc.{name}")) && has_program(&format!("mpiexec.{name}"))
    };
    let found = ["openmpi", "mpich"].into_iter().find(is_ready);
    if found.is_none() {
        skip("needs libopenmpi-dev and openmpi-bin, or libmpich-dev and mpich");
    }
    found
}

fn bench(mut command: Command, words: &[&str]) -> Finished {
    command.args(["--json", "bench", "btio", "--class", "S"]).args(words);
    command::run_within(command, LIMIT)
}

fn runs(done: &Finished) -> Vec<Value> {
    assert!(done.ok, "{done}");
    let told: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(told["missing"].as_array().unwrap().len(), 0, "{told:#}");
    told["runs"].as_array().unwrap().clone()
}

/// Verified, all written, and all read back the same.
fn are_right(runs: &[Value]) {
    for run in runs {
        assert_eq!(run["is_verified"], true, "{run:#}");
        assert_eq!(run["io_mb"], 0.83, "{run:#}");
        assert_eq!(run["sum"], runs[0]["sum"], "{run:#}");
        let said = run["said"].as_str().unwrap();
        for line in ["BT Benchmark Completed.", "BTIO -- statistics:", "Verification Successful"] {
            assert!(said.contains(line), "{said}");
        }
    }
}

#[test]
fn all_ways_to_write_give_the_published_norms_and_the_same_file() {
    let Some(mpi) = library_of_mpi() else { return };
    let dir = TempDir::new().unwrap();
    let name = dir.path().to_str().unwrap();
    let runs = runs(&bench(covey(), &["-n", "4", "--mpi", mpi, "--keep", "--dir", name]));
    let ios: Vec<&Value> = runs.iter().map(|run| &run["io"]).collect();
    assert_eq!(ios, ["full", "simple", "fortran", "epio"]);
    are_right(&runs);
    let read = |name: &str| std::fs::read(dir.path().join(name)).unwrap();
    let full = read("btio.full.out");
    assert_eq!(full.len() as u64, BYTES);
    assert!(read("btio.simple.out") == full, "simple is not full");
    assert!(read("btio.fortran.out") == full, "fortran is not full");
    // Two cells in each process, and a mark of four bytes at both ends of their records.
    let record_marks = 2 * 2 * 4 * OUTPUTS;
    for rank in 0..PROCESSES {
        let length = read(&format!("btio.epio.out.{rank:04}")).len() as u64;
        assert_eq!(length, BYTES / PROCESSES + record_marks);
    }
}

#[test]
fn one_process_needs_no_others_and_leaves_no_file() {
    let Some(mpi) = library_of_mpi() else { return };
    let dir = TempDir::new().unwrap();
    let name = dir.path().to_str().unwrap();
    are_right(&runs(&bench(covey(), &["-n", "1", "--mpi", mpi, "--dir", name])));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn without_a_mount_the_view_of_each_output_is_one_request() {
    let Some(mpi) = library_of_mpi() else { return };
    let beside = library().parent();
    assert_eq!(beside, Path::new(env!("CARGO_BIN_EXE_covey")).parent());
    let cluster = Cluster::up(3);
    let mut command = covey();
    command.arg("--config").arg(cluster.config());
    let words = ["-n", "4", "--mpi", mpi, "--io", "simple,full,fortran", "--dir", "covey:/"];
    let runs = runs(&bench(command, &words));
    are_right(&runs);
    for run in &runs[..2] {
        // Written once, and read back.
        assert_eq!(run["calls"]["views"], 2 * OUTPUTS * PROCESSES, "{run:#}");
        assert_eq!((&run["calls"]["reads"], &run["calls"]["writes"]), (&0.into(), &0.into()));
    }
    // Without a view each row is a call.
    assert_eq!(runs[2]["calls"]["views"], 0);
    assert_eq!(runs[2]["calls"]["writes"], 2 * 6 * 6 * OUTPUTS * PROCESSES);
}

#[test]
fn what_cannot_be_dealt_out_is_refused() {
    let three = bench(covey(), &["-n", "3"]);
    assert!(!three.ok && three.stderr.contains("it needs a square"), "{three}");
    let many = bench(covey(), &["-n", "25"]);
    assert!(!many.ok && many.stderr.contains("16 at most"), "{many}");
}

/// A disk that was full stayed full: nobody took away what the run had written.
#[test]
fn a_run_that_breaks_off_leaves_no_files() {
    let Some(mpi) = library_of_mpi() else { return };
    let dir = TempDir::new().unwrap();
    let name = dir.path().to_str().unwrap();
    std::fs::write(dir.path().join("btio.simple.out"), "kept").unwrap();
    for io in ["fortran", "epio"] {
        let mut limited = Command::new("sh");
        // Two thirds of what it writes, in units of 512 bytes. The system ends a process that writes more.
        limited.args(["-c", "ulimit -f 30000; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_covey")]);
        limited.args(["--json", "bench", "btio", "--class", "W", "-n", "1", "--mpi", mpi]);
        limited.args(["--io", io, "--dir", name]);
        let done = command::run_within(limited, LIMIT);
        let told: Value = serde_json::from_str(&done.stdout).unwrap();
        assert_eq!((done.ok, told["missing"].as_array().unwrap().len()), (false, 1), "{done}");
        let left = std::fs::read_dir(dir.path()).unwrap().map(|one| one.unwrap().file_name());
        assert_eq!(left.collect::<Vec<_>>(), ["btio.simple.out"], "{io}");
    }
}
