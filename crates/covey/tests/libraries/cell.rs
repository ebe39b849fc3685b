//! `covey cell`: programs in C on workers, alone and on a node, and what becomes of those that fail.

use crate::support::libraries::{built, source};
use crate::support::{Cluster, Finished, covey, has_program, run, skip, until};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// A directory, and the library that workers run by.
pub struct Bench {
    pub dir: TempDir,
    pub library: PathBuf,
}

impl Bench {
    pub fn new() -> Option<Bench> {
        if !has_program("cc") {
            skip("needs cc");
            return None;
        }
        let dir = TempDir::with_prefix("covey-cell-test-").expect("a directory");
        Some(Bench { dir, library: built("covey-spc", "libcovey_cell_lib.so") })
    }

    /// A program, built as users do.
    pub fn program(&self, name: &str, options: &[&str]) -> PathBuf {
        let object = self.dir.path().join(format!("{name}.so"));
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-shared", "-fPIC", "-Wall", "-Wno-unused-parameter", "-Werror"]);
        cc.args(options).arg("-I").arg(source("crates/spc/include")).arg("-o").arg(&object);
        cc.arg(source(&format!("crates/covey/tests/cell/{name}.c")));
        let done = run(cc);
        assert!(done.ok, "{done}");
        object
    }

    /// A program in Rust: by the compiler alone, with the library that cargo has built.
    fn rust_program(&self, name: &str) -> PathBuf {
        let object = self.dir.path().join(format!("{name}.so"));
        let built = self.library.parent().expect("a library lies in a directory");
        let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        rustc.args(["--edition", "2024", "--crate-type", "cdylib", "-L"]);
        rustc.arg(format!("dependency={}", built.join("deps").display()));
        let library = built.join("libcovey_cell_lib.rlib");
        rustc.arg("--extern").arg(format!("covey_cell_lib={}", library.display()));
        rustc.arg("-o").arg(&object).arg(source(&format!("crates/covey/tests/cell/{name}.rs")));
        let done = run(rustc);
        assert!(done.ok, "{done}");
        object
    }

    pub fn command(&self, options: &[&str], program: &Path, words: &[&str]) -> Command {
        let mut command = covey();
        command.env("COVEY_CELL_LIBRARY", &self.library).env("HOME", self.dir.path());
        command.args(["cell", "run"]).args(options).arg(program).args(words);
        command
    }

    #[track_caller]
    pub fn run(&self, options: &[&str], program: &Path, words: &[&str]) -> Finished {
        run(self.command(options, program, words))
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }
}

/// A program that runs, whose log is read line by line.
pub struct Running {
    pub child: Child,
    log: BufReader<std::process::ChildStdout>,
}

impl Running {
    pub fn start(mut command: Command) -> Running {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("covey starts");
        let log = BufReader::new(child.stdout.take().expect("a pipe"));
        Running { child, log }
    }

    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.log.read_line(&mut line).expect("a line");
        line
    }

    /// The next line that begins so.
    pub fn line_with(&mut self, begin: &str) -> String {
        loop {
            let line = self.line();
            assert!(!line.is_empty(), "no line with {begin}");
            if line.starts_with(begin) {
                return line;
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_listings_of_the_paper_compile_in_the_dialects_of_c_and_run() {
    let Some(bench) = Bench::new() else { return };
    for dialect in ["-std=gnu89", "-std=c99", "-std=gnu17"] {
        let hello = bench.program("hello", &[dialect]);
        let done = bench.run(&["--alone", "-s", "3"], &hello, &[]);
        assert!(done.ok && done.stdout == "hello world\n".repeat(3), "{dialect}: {done}");
    }
    let hello = bench.program("hello", &[]);
    let done = bench.run(&["--alone", "--threads", "--pin", "-s", "2"], &hello, &[]);
    assert!(done.ok && done.stdout == "hello world\n".repeat(2), "{done}");
    let test = bench.program("test", &[]);
    let done = bench.run(&["--alone"], &test, &[]);
    assert!(done.ok && done.stdout == "descriptor 0\n", "{done}");
    assert_eq!(fs::read_to_string("/tmp/test").unwrap(), "written by a worker\n");
    fs::remove_file("/tmp/test").unwrap();
}

#[test]
fn the_paper_s_matrix_multiplication_multiplies() {
    let Some(bench) = Bench::new() else { return };
    const N: usize = 256;
    const M: usize = 64;
    // Small whole numbers, so that sums are exact; blocks lie one after another.
    let at = |row: usize, column: usize| {
        (row / M * M * N) + (column / M * M * M) + row % M * M + column % M
    };
    let matrix = |seed: usize| -> Vec<f32> {
        (0..N * N).map(|index| ((index * seed + index / 7) % 5) as f32).collect()
    };
    let (a, b) = (matrix(3), matrix(11));
    let bytes = |matrix: &[f32]| matrix.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let names = ["a", "b", "c"].map(|name| bench.path(name));
    fs::write(&names[0], bytes(&a)).unwrap();
    fs::write(&names[1], bytes(&b)).unwrap();
    fs::write(&names[2], vec![0; N * N * 4]).unwrap();
    let program = bench.program("mmulcor", &[]);
    let words = names.each_ref().map(|name| format!("#U{name}"));
    let done = bench.run(&["--alone"], &program, &words.each_ref().map(String::as_str));
    assert!(done.ok, "{done}");
    let c = fs::read(&names[2]).unwrap();
    let value = |row, column| {
        let at = at(row, column) * 4;
        f32::from_le_bytes(c[at..at + 4].try_into().unwrap())
    };
    for (row, column) in [(0, 0), (5, 200), (130, 66), (255, 255), (64, 191)] {
        let sum: f32 = (0..N).map(|k| a[at(row, k)] * b[at(k, column)]).sum();
        assert_eq!(value(row, column), sum, "at {row} {column}");
    }
}

#[test]
fn a_trace_is_the_same_in_every_run_and_replays_and_another_program_does_not() {
    let Some(bench) = Bench::new() else { return };
    let input = bench.path("input");
    fs::write(&input, (0..5000_u32).map(|n| (n % 251) as u8).collect::<Vec<u8>>()).unwrap();
    let program = bench.program("overlap", &[]);
    let (input, trace) = (format!("#U{input}"), bench.path("trace"));
    let words = [&*input];
    let mut first = None;
    // Each worker is a process that runs the program once: 1,000 in all, 50 of them at a time on the machine's CPUs.
    for turn in 0..20 {
        let done = bench.run(&["--alone", "-s", "50", "--trace", &trace], &program, &words);
        assert!(done.ok && done.stdout.is_empty(), "{done}");
        for worker in 0..50 {
            let text = fs::read_to_string(format!("{trace}.{worker}")).unwrap();
            // The one thing that a worker does differently is the name of its own region.
            let text = text.replacen(&format!("#r/own{worker:02} "), "#r/own ", 1);
            assert!(text.lines().count() > 400, "{text}");
            let first = first.get_or_insert_with(|| text.clone());
            assert!(*first == text, "worker {worker} of run {turn}");
        }
    }
    let done = bench.run(&["--alone", "-s", "2", "--replay", &trace], &program, &words);
    assert!(done.ok, "{done}");
    let other = [words[0], "other"];
    let done = bench.run(&["--alone", "-s", "2", "--replay", &trace], &program, &other);
    assert!(done.code == Some(1) && done.stderr.contains("replay differs at line"), "{done}");
}

#[test]
fn what_does_not_fit_or_makes_no_sense_is_refused_in_words() {
    let Some(bench) = Bench::new() else { return };
    let limits = bench.program("limits", &[]);
    let done = bench.run(&["--alone"], &limits, &[]);
    assert!(done.ok, "{done}");
    for words in [
        "malloc: 12 out of memory: local store is full: an allocation of 200064 bytes, ",
        "mkcor: 22 invalid argument: the stack is too small\n",
        "read: 9 bad file descriptor: descriptor 77 is not open\n",
        "done\n",
    ] {
        assert!(done.stdout.contains(words), "{words}: {done}");
    }
    assert!(!done.stdout.contains("not refused"), "{done}");
    let done = bench.run(&["--alone", "--store", "65536"], &limits, &[]);
    assert!(done.code == Some(1), "{done}");
    assert!(done.stderr.contains("local store is full: a segment of the program"), "{done}");
}

#[test]
fn calls_that_make_no_sense_are_errors_and_memory_moves_with_its_bytes() {
    let Some(bench) = Bench::new() else { return };
    let done = bench.run(&["--alone"], &bench.program("wrong", &[]), &[]);
    assert!(done.ok, "{done}");
    for words in [
        "open: -1 22 ",
        "remove: -1 22 ",
        "read: -1 22 ",
        "write: -1 22 ",
        "mkcor: -1 22 ",
        "quail\n",
        "realloc: 0 12 ",
        "realloc: 0 22 ",
        "long name: -1 36 ",
        "longest name: 0 0 ",
        "taken: -1 16 busy: a coroutine runs on this stack, ",
        "free mapped: 0 22 ",
        "free variable: 0 22 ",
        "free busy: 0 16 ",
        "realloc busy: 0 16 ",
        "free: 0 0 ",
        "done\n",
    ] {
        assert!(done.stdout.contains(words), "{words}: {done}");
    }
    assert_eq!(done.stdout.matches("taken: -1 16 ").count(), 2, "{done}");
    assert!(!done.stdout.contains("was refused"), "{done}");
}

#[test]
fn what_a_worker_changes_in_memory_its_neighbour_sees_and_the_disk_does_not() {
    let Some(bench) = Bench::new() else { return };
    let program = bench.program("files", &[]);
    let file = bench.path("data");
    fs::write(&file, "on the disk, forever".repeat(10)).unwrap();
    let before = fs::read(&file).unwrap();
    for threads in [&[][..], &["--threads"]] {
        let options = [&["--alone", "-s", "2"], threads].concat();
        let done = bench.run(&options, &program, &["private", &file]);
        let mut said: Vec<&str> = done.stdout.lines().collect();
        said.sort_unstable();
        assert!(done.ok, "{done}");
        assert_eq!(said, ["0 found the d", "0 sees grown", "1 sees 0123456789abcdefodd"], "{done}");
        assert!(fs::read(&file).unwrap() == before, "the disk has changed");
    }
}

#[test]
fn more_files_than_can_be_mapped_at_once_are_mapped_one_after_another() {
    let Some(bench) = Bench::new() else { return };
    let program = bench.program("files", &[]);
    let many = bench.dir.path().join("many");
    fs::create_dir(&many).unwrap();
    for number in 0..600 {
        fs::write(many.join(format!("file{number}")), format!("file{number} {}", "x".repeat(20)))
            .unwrap();
    }
    let done = bench.run(&["--alone"], &program, &["many", &bench.path("many"), "600"]);
    assert!(done.ok && done.stdout == "all seen\n", "{done}");
}

#[test]
fn a_worker_reads_what_the_kernel_makes_up() {
    let Some(bench) = Bench::new() else { return };
    let program = bench.program("files", &[]);
    let done = bench.run(&["--alone"], &program, &["whole", "/proc/self/status"]);
    assert!(done.ok && done.stdout == "begins with Name:\nlong\n", "{done}");
}

#[test]
fn a_program_in_rust_has_coroutines_and_files_and_one_that_panics_ends_with_an_error() {
    let Some(bench) = Bench::new() else { return };
    let program = bench.rust_program("sum");
    // It has the standard library within it.
    let store = ["--alone", "--store", "268435456"];
    let input = bench.path("input");
    fs::write(&input, vec![1; 100_000]).unwrap();
    let done =
        bench.run(&[&store[..], &["-s", "2"]].concat(), &program, &["sum", &format!("#U{input}")]);
    assert!(done.ok && done.stdout.matches(": 100000\n").count() == 2, "{done}");
    let done = bench.run(&store, &program, &["errors"]);
    assert!(done.ok && done.stdout.starts_with("six\n"), "{done}");
    assert!(done.stdout.contains("local store is full: a stack"), "{done}");
    for what in ["panic", "panic in a coroutine"] {
        for threads in [&[][..], &["--threads"]] {
            let done = bench.run(&[&store[..], threads].concat(), &program, &[what]);
            assert!(done.code == Some(1), "{what}: {done}");
            assert!(done.stderr.contains("on purpose"), "{what}: {done}");
            assert!(done.stderr.contains("worker 0 ended with"), "{what}: {done}");
        }
    }
}

#[test]
fn a_stack_that_overflows_ends_its_worker_with_an_error() {
    let Some(bench) = Bench::new() else { return };
    let done = bench.run(&["--alone"], &bench.program("overflow", &["-O0"]), &[]);
    assert!(done.code == Some(1), "{done}");
    assert!(done.stderr.contains("coroutine 1 has overflowed its stack"), "{done}");
}

#[test]
fn a_worker_that_is_killed_or_scribbles_ends_alone_and_its_reader_gets_an_error() {
    let Some(bench) = Bench::new() else { return };
    let trouble = bench.program("trouble", &["-Wno-unused-result"]);
    for (what, why) in
        [("kill", "signal: 9"), ("scribble", "message box is broken"), ("flood", "signal: 14")]
    {
        let done = bench.run(&["--alone", "-s", "2"], &trouble, &[what]);
        assert!(done.code == Some(1), "{what}: {done}");
        assert!(done.stderr.contains("worker 1 ended with") && done.stderr.contains(why), "{done}");
        assert!(done.stdout.contains("last words\nerror 32\n"), "{what}: {done}");
    }
    // A reader whose worker asks for other things all the time is not forgotten over them.
    for what in ["nothing", "busy-read"] {
        let done = bench.run(&["--alone", "-s", "2"], &trouble, &[what]);
        assert!(done.ok && done.stdout.contains("last words\nend\n"), "{what}: {done}");
    }
}

#[test]
fn a_worker_that_ends_among_short_requests_ends_alone_and_its_reader_gets_an_error() {
    let Some(bench) = Bench::new() else { return };
    let trouble = bench.program("trouble", &["-Wno-unused-result"]);
    for _ in 0..3 {
        let done = bench.run(&["--alone", "-s", "2"], &trouble, &["busy-kill"]);
        assert!(done.code == Some(1), "{done}");
        assert!(done.stderr.contains("worker 1 ended with signal: 14"), "{done}");
        assert!(done.stdout.contains("last words\nerror 32\n"), "{done}");
    }
}

#[test]
fn a_worker_that_scribbles_while_it_asks_ends_and_nobody_else_does() {
    let Some(bench) = Bench::new() else { return };
    let trouble = bench.program("trouble", &["-Wno-unused-result"]);
    for seed in ["1", "2", "3", "4", "5", "6"] {
        let done = bench.run(&["--alone", "-s", "2"], &trouble, &["busy-scribble", seed]);
        assert!(done.code == Some(1), "{seed}: {done}");
        assert!(done.stderr.contains("worker 1 ended with"), "{seed}: {done}");
        assert!(!done.stderr.contains("worker 0"), "{seed}: {done}");
        assert!(!done.stderr.contains("panicked"), "{seed}: {done}");
        assert!(done.stdout.contains("last words\nerror 32\n"), "{seed}: {done}");
    }
}

/// What a command of measurements found, as JSON. The programs that it compiles are kept within the test's directory.
fn measured(bench: &Bench, words: &[&str]) -> serde_json::Value {
    let mut command = covey();
    command.env("COVEY_CELL_LIBRARY", &bench.library);
    command.env("XDG_CACHE_HOME", bench.dir.path()).arg("--json").args(words);
    let done = run(command);
    assert!(done.ok, "{done}");
    serde_json::from_str(&done.stdout).expect("JSON")
}

#[test]
fn workers_are_measured_beside_programs_that_do_the_same_by_hand() {
    let Some(bench) = Bench::new() else { return };
    let found = measured(&bench, &["bench", "cell", "--quick"]);
    assert_eq!(found["missing"], serde_json::json!([]));
    let rows = |name: &str| found[name].as_array().expect("rows").clone();
    let workers = |rows: Vec<serde_json::Value>| -> Vec<u64> {
        rows.iter().map(|row| row["workers"].as_u64().expect("a number")).collect()
    };
    assert_eq!(workers(rows("bandwidth")), [1, 2]);
    assert_eq!(workers(rows("matrices")), [1, 2]);
    for what in ["floor_ns", "message_ns", "switch_ns"] {
        assert!(found["trips"][what].as_f64() > Some(0.0), "{found}");
    }
    for row in rows("bandwidth") {
        let rates = row["coroutines"].as_array().expect("rates");
        assert!(rates.len() == 7 && rates.iter().all(|rate| rate.as_f64() > Some(0.0)), "{row}");
    }
}

#[test]
fn the_paper_s_workers_stand_beside_ours() {
    let Some(bench) = Bench::new() else { return };
    let found =
        measured(&bench, &["reproduce", "lanl", "--quick", "--only", "fig4", "--only", "table4"]);
    let parts = found["parts"].as_array().expect("parts");
    let names: Vec<_> = parts.iter().map(|part| part["part"].as_str().expect("a name")).collect();
    assert_eq!(names, ["table4", "fig4"]);
    let beside = |part: usize| parts[part]["beside"].as_array().expect("rows").clone();
    assert_eq!(beside(0).len(), 4, "two numbers of workers, through files and by hand: {found}");
    assert_eq!(beside(0)[0]["theirs"], 17.65);
    assert_eq!(beside(1).len(), 2, "{found}");
}

#[test]
fn when_a_host_is_killed_its_workers_end() {
    let Some(bench) = Bench::new() else { return };
    let trouble = bench.program("trouble", &["-Wno-unused-result"]);
    for what in ["wait", "busy"] {
        let options = ["--alone", "-s", "2"];
        let mut running = Running::start(bench.command(&options, &trouble, &[what]));
        let line = running.line_with("waits");
        let worker = line.trim().rsplit(' ').next().expect("a number");
        assert!(is_running(worker));
        let host = Pid::from_raw(running.child.id() as i32).expect("a process");
        kill_process(host, Signal::KILL).expect("it runs");
        until("the worker has ended", || !is_running(worker));
    }
}

/// Whether a process runs: one that nobody has waited for does not.
pub fn is_running(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

#[test]
fn a_node_shows_its_workers_and_workers_see_the_node_and_a_dead_host_takes_its_files_along() {
    let Some(bench) = Bench::new() else { return };
    let cluster = Cluster::up(2);
    let client = |node: &str, verb: &str, path: &str| {
        let mut command = covey();
        let address = format!("unix!{}", cluster.socket(node).display());
        command.args(["9p", verb, &address, path]);
        run(command)
    };
    let program = bench.program("everything", &[]);
    let start = || {
        let mut command = bench.command(&["--node", "io1"], &program, &[]);
        command.env("COVEY_CONFIG", cluster.config());
        let mut running = Running::start(command);
        let first = running.line();
        assert_eq!(first, "in the file system\n");
        assert_eq!(running.line(), "ready\n");
        running
    };
    let mut running = start();
    assert_eq!(client("io1", "ls", "/cell").stdout, "R\nU\nctl\nl\np\nr\n");
    assert_eq!(client("io1", "cat", "/cell/r/board").stdout, "from the worker\n");
    assert_eq!(client("io2", "cat", "/n/io1/cell/r/board").stdout, "from the worker\n");
    assert_eq!(client("meta", "cat", "/fs/result").stdout, "in the file system\n");
    let file = bench.path("order");
    fs::write(&file, "march\n").unwrap();
    let mut order = covey();
    let address = format!("unix!{}", cluster.socket("io2").display());
    order.args(["9p", "write", &address, "/n/io1/cell/p/orders"]);
    order.stdin(fs::File::open(&file).unwrap());
    assert!(order.status().unwrap().success());
    assert_eq!(running.line(), "order: march\n");
    assert!(running.child.wait().unwrap().success());
    until("the node shows no more", || client("io1", "ls", "/cell/r").stdout.is_empty());

    let mut running = start();
    let host = Pid::from_raw(running.child.id() as i32).expect("a process");
    kill_process(host, Signal::KILL).expect("it runs");
    running.child.wait().unwrap();
    until("the node shows no more", || client("io1", "ls", "/cell/r").stdout.is_empty());
    assert_eq!(client("io1", "cat", "/fs/result").stdout, "in the file system\n");
}
