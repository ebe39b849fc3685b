//! Rates of matrices, on this machine: tiny ones, because what is tested is that they are measured rightly and told,
//! not how fast they are.

use crate::support::command::covey;
use crate::support::{Finished, has_file, has_program, run, skip};
use serde_json::Value;
use std::process::Command;

/// The MPIs that have all it takes; without any the test is skipped.
fn libraries() -> Vec<&'static str> {
    let is_ready = |library: &&str| {
        has_program(&format!("mpicc.{library}"))
            && has_program(&format!("mpiexec.{library}"))
            && has_file(&format!("/usr/lib/@/libscalapack-{library}.so"))
            && has_file("/usr/lib/@/libblas.so.3")
    };
    let ready: Vec<&str> = ["openmpi", "mpich"].into_iter().filter(is_ready).collect();
    if ready.is_empty() {
        skip("needs libscalapack-openmpi-dev or libscalapack-mpich-dev, and a BLAS");
    }
    ready
}

fn tiny(words: &[&str]) -> Command {
    let mut command = covey();
    command.args(["--json", "tune", "app", "--ranks", "2", "--order", "96", "--budget", "1"]);
    command.args(words);
    command
}

fn told(done: &Finished) -> Value {
    assert!(done.ok, "{done}");
    serde_json::from_str(&done.stdout).unwrap()
}

fn all<'a>(report: &'a Value, name: &str) -> &'a Vec<Value> {
    report[name].as_array().unwrap()
}

#[test]
fn every_mpi_has_a_choice_and_every_result_is_right() {
    for library in libraries() {
        let told = told(&run(tiny(&["--mpi", library, "--types", "s,d,c,z"])));
        assert_eq!(told["kind"], "app");
        assert!(all(&told, "peaks").len() >= 4, "{told:#}");
        // Four types multiplied, one system solved.
        assert_eq!(all(&told, "chosen").len(), 5, "{told:#}");
        for rate in all(&told, "rates").iter().chain(all(&told, "peaks")) {
            assert!(rate["residual"].as_f64().unwrap() < 16.0, "{rate}");
            assert!(rate["gflops"].as_f64().unwrap() > 0.0, "{rate}");
        }
        // On a busy machine not every way to deal out has its turn, but nothing else is missing.
        for missing in all(&told, "missing") {
            assert!(missing["why"].as_str().unwrap().contains("--budget"), "{told:#}");
        }
    }
}

#[test]
fn the_exhaustive_search_has_every_case_and_the_best_of_them() {
    let Some(library) = libraries().into_iter().next() else { return };
    let told = told(&run(tiny(&["--mpi", library, "--exhaustive"])));
    let names = |list: &str| {
        let mut names: Vec<String> =
            all(&told, list).iter().map(|one| one["blas"].to_string()).collect();
        names.sort();
        names.dedup();
        names
    };
    assert_eq!(names("exhaustive"), names("peaks"));
    // Two routines, six block orders, two grids.
    assert_eq!(all(&told, "exhaustive").len(), names("peaks").len() * 2 * 6 * 2);
    for chosen in all(&told, "chosen") {
        let share = chosen["share_of_best"].as_f64().unwrap();
        assert!(share > 0.0 && share <= 1.0, "{chosen:#}");
    }
}

#[test]
fn without_an_mpi_the_peaks_are_told_and_what_is_missing() {
    if libraries().is_empty() || !has_program("cc") {
        return;
    }
    // All that compiles for one core, and no launcher.
    let bin = tempfile::tempdir().unwrap();
    for program in ["cc", "as", "ld", "env"] {
        let found = ["/usr/bin", "/bin"].map(|dir| std::path::Path::new(dir).join(program));
        let found = found.iter().find(|file| file.exists()).unwrap();
        std::os::unix::fs::symlink(found, bin.path().join(program)).unwrap();
    }
    let mut command = tiny(&[]);
    command.env("PATH", bin.path());
    let done = run(command);
    assert_eq!(done.code, Some(1), "{done}");
    assert!(done.stderr.contains("no MPI is installed"), "{done}");
    assert!(done.stderr.contains("apt-get install"), "{done}");
    let told: Value = serde_json::from_str(&done.stdout).unwrap();
    assert!(!all(&told, "peaks").is_empty() && all(&told, "chosen").is_empty(), "{told:#}");
}

#[test]
fn what_is_no_type_or_node_is_refused() {
    let refused = |words: &[&str], why: &str| {
        let mut command = covey();
        command.args(["tune", "app"]).args(words);
        let done = run(command);
        assert!(done.stderr.contains(why), "{done}");
        assert_eq!(done.code, Some(2), "{done}");
    };
    refused(&["--types", "q"], "`q` is not one of s, d, c, z");
    refused(&["--ranks", "0"], "0 is not in 1..=1024");
    refused(&["n1", "n2", "--lab", "never-up"], "it is not up");
}
