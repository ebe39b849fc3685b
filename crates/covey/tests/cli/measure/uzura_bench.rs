//! `covey uzura bench`: that everything is measured and told. How fast it is, no test says.

use crate::support::command::covey;
use crate::support::{has_program, run, skip};
use serde_json::Value;

fn bench(words: &[&str]) -> Option<Value> {
    if std::thread::available_parallelism().is_ok_and(|count| count.get() < 2) {
        skip("needs two CPUs");
        return None;
    }
    let mut command = covey();
    command.args(["--json", "uzura", "bench", "--quick"]).args(words);
    let done = run(command);
    assert!(done.ok, "{done}");
    Some(serde_json::from_str(&done.stdout).unwrap())
}

/// Who measured a thing over something.
fn who<'a>(told: &'a Value, over: &str, what: &str) -> Vec<&'a str> {
    let figures = told["figures"].as_array().unwrap().iter();
    let these = figures.filter(|one| one["over"] == over && one["what"] == what);
    these.map(|one| one["who"].as_str().unwrap()).collect()
}

fn is_told(told: &Value, over: &str, what: &str, name: &str) {
    let found = who(told, over, what);
    assert!(
        found.iter().any(|who| who.starts_with(name)),
        "{what}: {found:?}\n{:#}",
        told["missing"]
    );
}

#[test]
fn messages_by_memory_stand_beside_the_machines_floors() {
    let Some(told) = bench(&["--only", "memory"]) else { return };
    for (what, name) in [
        ("line", "the machine"),
        ("copy-1048576", "memcpy"),
        ("read-64", "process_vm_readv"),
        ("read-4194304", "process_vm_readv"),
        ("pingpong-8", "Covey"),
        ("pingpong-1048576", "Covey"),
        ("stream-64", "Covey"),
    ] {
        is_told(&told, "memory", what, name);
    }
    for figure in told["figures"].as_array().unwrap() {
        let [least, tenth, median] =
            ["min_ns", "p10_ns", "median_ns"].map(|name| figure[name].as_f64().unwrap());
        assert!(0.0 < least && least <= tenth && tenth <= median, "{figure}");
        assert!(figure["line_ns"].as_f64().unwrap() > 0.0, "{figure}");
    }
    let bars = told["bars"].as_array().unwrap();
    assert!(bars.iter().any(|bar| bar["limit"] == "1.25 x a cache line + 60 ns"), "{bars:#?}");
    assert_eq!(told["paper"]["message_64_bytes_ns"], 4030.0);
}

#[test]
fn reads_through_shared_memory_stand_beside_those_by_a_socket() {
    let Some(told) = bench(&["--only", "reads"]) else { return };
    for file in ["9p-read-1048576", "9p-read-67108864"] {
        is_told(&told, "memory", file, "Covey");
        is_told(&told, "memory", file, "a unix socket");
    }
    let bars = told["bars"].as_array().unwrap();
    let held = bars.iter().filter(|bar| bar["limit"] == "0.67 x a unix socket, 1.5 of its rate");
    assert_eq!(held.count(), 2, "{bars:#?}");
}

#[test]
fn the_engine_and_libraries_move_matrices_that_are_compared_element_by_element() {
    let Some(told) = bench(&["--only", "matrices"]) else { return };
    is_told(&told, "memory", "transpose-mapped-100", "mapped memory");
    is_told(&told, "memory", "transpose-strips-1000", "process_vm_readv");
    for by in ["send", "get", "owned-send", "owned-get"] {
        for shape in ["gather", "scatter", "plain"] {
            for side in [100, 1000] {
                is_told(&told, "memory", &format!("{by}-{shape}-{side}"), "Covey");
            }
        }
    }
    for (compiler, launcher, name) in [
        ("mpicc.openmpi", "mpiexec.openmpi", "Open MPI"),
        ("mpicc.mpich", "mpiexec.mpich", "MPICH"),
    ] {
        if !has_program(compiler) || !has_program(launcher) {
            skip(format!("{name}: needs {compiler} and {launcher}"));
            continue;
        }
        for what in
            ["send-gather-100", "send-scatter-1000", "get-gather-1000", "owned-get-scatter-100"]
        {
            is_told(&told, "memory", what, name);
        }
    }
}

#[test]
fn messages_by_tcp_stand_beside_a_bare_socket() {
    let Some(told) = bench(&["--only", "tcp"]) else { return };
    is_told(&told, "tcp", "pingpong-64", "a bare socket");
    is_told(&told, "tcp", "pingpong-blocking-64", "a bare socket");
    for what in ["pingpong-8", "pingpong-65536", "stream-64", "stream-1048576"] {
        is_told(&told, "tcp", what, "Covey");
    }
    if has_program("iperf3") {
        is_told(&told, "tcp", "stream-1048576", "iperf3")
    } else {
        skip("needs iperf3")
    }
}

#[test]
fn what_cannot_be_measured_is_refused_in_words() {
    for (words, why) in [
        (&["--cpus", "0,0"][..], "a CPU each"),
        (&["--cpus", "0,100000"], "CPU 100000"),
        (&["--only", "disks"], "possible values"),
        (&["--rounds", "0"], "1..=1000"),
    ] {
        let mut command = covey();
        command.args(["uzura", "bench"]).args(words);
        let done = run(command);
        assert!(!done.ok && done.stderr.contains(why), "{done}");
    }
}
