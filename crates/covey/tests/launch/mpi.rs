//! MPI programs, started without their own launchers: of MPICH by PMI-1, of Open MPI by PMIx.

use crate::run::cluster;
use crate::support::lab::Lab;
use crate::support::{Cluster, Finished, has_program, is_root, run, skip};
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/launch/start.c");

/// The libraries that are installed: their compilers.
fn compilers() -> Vec<&'static str> {
    let (found, missing): (Vec<_>, Vec<_>) =
        ["mpicc.mpich", "mpicc.openmpi"].into_iter().partition(|name| has_program(name));
    for name in missing {
        skip(format!("needs {name}"));
    }
    found
}

fn built(cluster: &Cluster, compiler: &str) -> PathBuf {
    let program = cluster.scratch(&format!("start-{}", compiler.replace('.', "-")));
    let mut command = Command::new(compiler);
    command.arg("-O1").arg("-o").arg(&program).arg(SOURCE);
    let done = run(command);
    assert!(done.ok, "{compiler}: {done}");
    program
}

fn start(cluster: &Cluster, nodes: &str, ranks: u32, program: &Path, words: &[&str]) -> Finished {
    let ranks = ranks.to_string();
    let program = program.to_str().unwrap();
    let all: Vec<&str> =
        ["run", "-w", nodes, "-n", &ranks, program].iter().chain(words).copied().collect();
    cluster.try_covey(&all)
}

fn check_size(done: &Finished, ranks: u32) {
    let line = format!("size {ranks} sum {}", ranks * (ranks + 1) / 2);
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert!(done.ok && lines == vec![line.as_str(); ranks as usize], "{ranks} ranks: {done}");
}

#[test]
fn programs_of_each_library_start_with_the_right_size_on_one_two_and_four_nodes() {
    let cluster = cluster(4);
    for compiler in compilers() {
        let program = built(&cluster, compiler);
        for (nodes, ranks) in
            [("io1", 1), ("io1", 2), ("io[1-2]", 2), ("io[1-2]", 4), ("io[1-4]", 4), ("io[1-4]", 6)]
        {
            check_size(&start(&cluster, nodes, ranks, &program, &[]), ranks);
        }
    }
}

#[test]
fn ranks_on_all_nodes_write_one_file_of_the_mounted_file_system() {
    let mut cluster = cluster(2);
    let Some(mounted) = cluster.mount() else { return };
    for compiler in compilers() {
        let program = built(&cluster, compiler);
        let file = mounted.join(compiler);
        check_size(&start(&cluster, "io[1-2]", 4, &program, &["file", file.to_str().unwrap()]), 4);
        assert_eq!(std::fs::metadata(&file).unwrap().len(), 16);
    }
}

#[test]
fn an_abort_of_one_rank_ends_the_job_with_its_code() {
    let cluster = cluster(2);
    for compiler in compilers() {
        let program = built(&cluster, compiler);
        let done = start(&cluster, "io[1-2]", 4, &program, &["abort", "3", "42"]);
        assert_eq!(done.code, Some(42), "{compiler}: {done}");
        assert!(done.stderr.contains("rank 3 has aborted"), "{compiler}: {done}");
    }
}

#[test]
fn a_rank_that_leaves_without_a_word_ends_the_job() {
    let cluster = cluster(2);
    for compiler in compilers() {
        let program = built(&cluster, compiler);
        let done = start(&cluster, "io[1-2]", 4, &program, &["exit", "2", "7"]);
        assert_eq!(done.code, Some(7), "{compiler}: {done}");
        let done = start(&cluster, "io1", 2, &program, &["exit", "1", "0"]);
        assert!(done.stderr.contains("rank 1 has left without"), "{compiler}: {done}");
    }
}

#[test]
fn an_mpi_program_cannot_be_detached() {
    let cluster = cluster(1);
    let Some(compiler) = compilers().first().copied() else { return };
    let program = built(&cluster, compiler);
    let done = cluster.try_covey(&["run", "--detach", "-w", "io1", program.to_str().unwrap()]);
    done.says(&["cannot detach an MPI program"]);
}

/// Nodes with networks of their own: the ranks find each other by what the launcher carries, and talk by TCP.
#[test]
fn programs_of_each_library_start_on_the_nodes_of_a_lab() {
    if !is_root() {
        return skip("needs root");
    }
    let Some(lab) = Lab::up("jobs", &["4"]) else { return };
    let covey = env!("CARGO_BIN_EXE_covey");
    lab.exec("n1", &[covey, "up"]);
    let scratch = tempfile::tempdir().unwrap();
    for compiler in compilers() {
        let program = scratch.path().join(compiler.replace('.', "-"));
        let mut command = Command::new(compiler);
        command.arg("-O1").arg("-o").arg(&program).arg(SOURCE);
        let built = run(command);
        assert!(built.ok, "{compiler}: {built}");
        for nodes in ["n1", "n[1-2]", "n[1-4]"] {
            let words = [covey, "run", "-w", nodes, "-n", "4", program.to_str().unwrap()];
            check_size(&lab.try_exec("n1", &words), 4);
        }
    }
    lab.exec("n1", &[covey, "down"]);
}
