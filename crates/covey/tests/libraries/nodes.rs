//! Workers of several nodes: what one reaches of the others, and views that show them as one set.

use crate::cell::{Bench, Running};
use crate::nine::{Nine, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY, ROOT};
use crate::support::libraries::source;
use crate::support::{Cluster, Finished, covey, has_program, is_root, run, skip, until};
use covey_ninep::message::Message;
use covey_wire::List;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A cluster whose nodes start programs, too, with more in its file.
fn cluster(io_servers: usize, more: &str) -> Cluster {
    let mut cluster = Cluster::up(io_servers);
    let file = cluster.config();
    let text = fs::read_to_string(&file).unwrap();
    cluster.down();
    let mut text = text + more;
    if !text.contains("\"launch\"") {
        for role in ["meta", "data"] {
            let (one, two) = (format!("roles = [\"{role}\"]"), format!("[\"{role}\", \"launch\"]"));
            text = text.replace(&one, &format!("roles = {two}"));
        }
    }
    fs::write(&file, text).unwrap();
    cluster.restart();
    cluster
}

/// A program on io1 that has regions and pipes, and waits for orders.
fn home(bench: &Bench, cluster: &Cluster) -> Running {
    let mut command = bench.command(&["--node", "io1"], &bench.program("home", &[]), &[]);
    command.env("COVEY_CONFIG", cluster.config());
    let mut home = Running::start(command);
    assert_eq!(home.line(), "ready\n");
    home
}

#[test]
fn a_worker_reaches_files_regions_pipes_and_jobs_of_another_node_by_the_same_calls() {
    let Some(bench) = Bench::new() else { return };
    let cluster = cluster(2, "");
    let on = |node: &str, program: &Path, words: &[&str]| {
        let mut command = bench.command(&["--node", node], program, words);
        command.env("COVEY_CONFIG", cluster.config());
        Running::start(command)
    };
    let mut home = on("io2", &bench.program("home", &[]), &[]);
    assert_eq!(home.line(), "ready\n");
    let mut abroad = on("io1", &bench.program("abroad", &[]), &["/n/io2"]);
    let mut said = String::new();
    while !said.ends_with("done\n") {
        let line = abroad.line();
        assert!(!line.is_empty(), "after {said}");
        said += &line;
    }
    let lines: Vec<&str> =
        said.lines().map(|line| line.split_once(": ").map_or(line, |l| l.1)).collect();
    let expected =
        ["file system", "from home, at rest", "marched", "a job with input", "768", "done"];
    assert_eq!(lines, expected, "{said}");
    assert_eq!(home.line(), "order: march\n");
    assert_eq!(home.line(), "order: rest\n");
    assert_eq!(home.line(), "board: from home, awake!!\n");
}

#[test]
fn another_user_changes_nothing_of_what_workers_hold_and_shows_nothing_that_is_not_his() {
    const ALICE: u32 = 61_001;
    const EACCES: u32 = 13;
    const ENOENT: u32 = 2;
    let Some(bench) = Bench::new() else { return };
    let cluster = cluster(1, "");
    let mut home = home(&bench, &cluster);
    let attach = |tree: &str, uid| Nine::attach(&cluster.socket("io1"), tree, uid);
    // Of a host of root's everybody sees what its files' modes permit; of others' nothing.
    let refused = if is_root() { EACCES } else { ENOENT };
    let mut regions = attach("/cell/r", ALICE);
    assert_eq!(regions.open("board", O_RDWR), Err(refused));
    assert_eq!(regions.open("board", O_WRONLY), Err(refused));
    assert_eq!(regions.open("board", O_RDONLY | O_TRUNC), Err(refused));
    assert!(regions.create("board", O_RDWR, 0o666).is_err(), "the name is taken");
    assert_eq!(attach("/cell/p", ALICE).open("orders", O_WRONLY), Err(refused));
    let names = List(vec!["etc".into(), "passwd".into()]);
    let walked = attach("/cell/U", ALICE).call(Message::Twalk { fid: ROOT, newfid: 9, names });
    assert!(matches!(walked, Err(EACCES | ENOENT)), "{walked:?}");
    // A host that is not hers, a file that is no socket, and no path at all.
    let mut ctl = covey();
    let address = format!("unix!{}", cluster.socket("io1").display());
    ctl.args(["9p", "cat", &address, "/cell/ctl"]);
    let hosts = run(ctl).stdout;
    let host = hosts.lines().next().and_then(|line| line.strip_prefix("host ")).expect("a host");
    let mut control = attach("/cell", ALICE);
    let ctl = control.open("ctl", O_WRONLY).expect("everybody may announce a host");
    for socket in [host, "/etc/passwd", "run/host", "/nowhere/host"] {
        let line = format!("host '{socket}'\n");
        let answer = control.write(ctl, 0, line.as_bytes());
        assert!(answer.is_err(), "{socket}: {answer:?}");
    }
    // Nothing of this has reached the worker.
    let mut own = attach("/cell/p", rustix::process::geteuid().as_raw());
    let orders = own.open("orders", O_WRONLY).expect("its own user may");
    own.write(orders, 0, b"march\n").unwrap();
    assert_eq!(home.line(), "order: march\n");
    own.write(orders, 0, b"rest\n").unwrap();
    assert_eq!(home.line(), "order: rest\n");
    assert_eq!(home.line(), "board: from home, at rest\n");
}

#[test]
fn a_node_that_is_started_again_shows_the_workers_that_are_started_then() {
    let Some(bench) = Bench::new() else { return };
    let cluster = cluster(1, "");
    let start = || home(&bench, &cluster);
    let said = |verb: &str, path: &str| {
        let mut client = covey();
        client.args(["9p", verb, &format!("unix!{}", cluster.socket("io1").display()), path]);
        run(client)
    };
    let _first = start();
    cluster.kill("io1");
    cluster.restart();
    // The first host has announced itself to a node that is gone: it goes on, and is not shown.
    until("the node is there", || said("ls", "/cell").ok);
    assert_eq!(said("ls", "/cell/r").stdout, "");
    let _second = start();
    assert_eq!(said("cat", "/cell/r/board").stdout, "from home, at rest\n");
    // A third one uses the same names: both are there, and the one that came first is seen.
    let mut third = start();
    assert_eq!(said("cat", "/cell/r/board").stdout, "from home, at rest\n");
    assert_eq!(said("ls", "/cell/r").stdout, "board\n");
    assert!(third.child.try_wait().unwrap().is_none());
}

#[test]
fn workers_that_were_stopped_for_a_while_are_shown_again() {
    let Some(bench) = Bench::new() else { return };
    let cluster = cluster(1, "");
    let mut home = home(&bench, &cluster);
    let shows = || {
        let mut list = covey();
        let address = format!("unix!{}", cluster.socket("io1").display());
        list.args(["9p", "ls", &address, "/cell/r"]);
        run(list).stdout.contains("board")
    };
    assert!(shows());
    let host = rustix::process::Pid::from_child(&home.child);
    rustix::process::kill_process(host, rustix::process::Signal::STOP).unwrap();
    until("nobody waits for it any more", || !shows());
    rustix::process::kill_process(host, rustix::process::Signal::CONT).unwrap();
    until("it is shown again", shows);
    let mut own =
        Nine::attach(&cluster.socket("io1"), "/cell/p", rustix::process::geteuid().as_raw());
    let orders = own.open("orders", O_WRONLY).unwrap();
    own.write(orders, 0, b"march\n").unwrap();
    assert_eq!(home.line(), "order: march\n");
}

/// A node's tree as a directory.
struct Mounted {
    at: PathBuf,
    server: Child,
}

impl Mounted {
    fn new(cluster: &Cluster, node: &str) -> Option<Mounted> {
        let at = cluster.scratch("node");
        fs::create_dir(&at).unwrap();
        let mut command = covey();
        let address = format!("unix!{}", cluster.socket(node).display());
        command.args(["9p", "mount"]).arg(address).arg(&at);
        let server = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut mounted = Mounted { at, server };
        let is_there = |mounted: &Mounted| mounted.at.join("view").exists();
        until("the mount is there or has failed", || {
            is_there(&mounted) || mounted.server.try_wait().unwrap().is_some()
        });
        if is_there(&mounted) {
            return Some(mounted);
        }
        skip("needs a FUSE mount, which is not permitted here");
        None
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.at, rustix::mount::UnmountFlags::DETACH);
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Reads what every worker has that its view shows.
const WHO: &str = "cat \"$0\"/*/cell/r/worker*";
/// Lets them all go on.
const GO: &str = "for pipe in \"$0\"/*/cell/p/go*; do echo go > \"$pipe\"; done";

#[test]
fn one_program_sees_the_workers_of_its_view_as_one_set() {
    let Some(bench) = Bench::new() else { return };
    let views = "\n[[view]]\nname = \"both\"\nnodes = \"io[1-2]\"\n\n\
                 [[view]]\nname = \"accelerators\"\nnodes = \"io2\"\n";
    let cluster = cluster(2, views);
    let Some(mounted) = Mounted::new(&cluster, "io1") else { return };
    // One unchanged program on the workers of both nodes.
    let mut all = covey();
    all.arg("--config").arg(cluster.config()).args(["run", "-w", "io[1-2]", "--local", "--label"]);
    all.args(["-e", &format!("COVEY_CONFIG={}", cluster.config().display())]);
    all.args(["-e", &format!("COVEY_CELL_LIBRARY={}", bench.library.display())]);
    all.args([env!("CARGO_BIN_EXE_covey"), "cell", "run", "-s", "2"]);
    let mut all = Running::start({
        all.arg(bench.program("present", &[]));
        all
    });
    // And one that knows nothing but the directory that it is given.
    let told = |view: &str, script: &str| -> Finished {
        let view = mounted.at.join("view").join(view).display().to_string();
        cluster.try_covey(&["run", "-w", "io1", "--local", "sh", "-c", script, &view])
    };
    let who = |view: &str| {
        let mut lines: Vec<String> = told(view, WHO).stdout.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    let of = |node: &str| [0, 1].map(|number| format!("worker {number} of {node}"));
    let both = [of("io1"), of("io2")].concat();
    let mut both = both;
    both.sort_unstable();
    until("all workers are seen", || who("both") == both);
    assert_eq!(who("accelerators"), of("io2"));
    let done = told("accelerators", GO);
    assert!(done.ok, "{done}");
    let mut seen = vec![all.line(), all.line()];
    assert!(seen.iter().all(|line| line.contains("was seen")), "{seen:?}");
    until("those of one node are left", || who("both") == of("io1"));
    let done = told("both", GO);
    assert!(done.ok, "{done}");
    seen.extend([all.line(), all.line()]);
    assert!(seen.iter().all(|line| line.contains("was seen")), "{seen:?}");
    assert!(all.child.wait().unwrap().success());
}

/// NVIDIA's compiler: the one that NVCC names, or the one in the path. No package of Debian's main part has it.
fn nvcc() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&path).map(|place| place.join("nvcc"));
    std::env::var_os("NVCC").map(PathBuf::from).or_else(|| found.find(|place| place.is_file()))
}

/// Builds the worker that follows `docs/protocol/cell.md` and nothing else.
fn device_worker(bench: &Bench, compiler: &Path, options: &[&str]) -> PathBuf {
    let object = bench.dir.path().join("device.so");
    let mut command = Command::new(compiler);
    command.args(options).arg("-shared").arg("-o").arg(&object);
    command.arg(source("crates/spc/cuda/worker.cu"));
    let done = run(command);
    assert!(done.ok, "{done}");
    object
}

#[test]
fn a_worker_needs_the_page_and_the_shared_memory_only() {
    let Some(bench) = Bench::new() else { return };
    if !has_program("g++") {
        return skip("needs g++");
    }
    let options = ["-x", "c++", "-O2", "-fPIC", "-Wall", "-Wextra", "-Werror"];
    let worker = device_worker(&bench, Path::new("g++"), &options);
    for threads in [&["--alone"][..], &["--alone", "--threads"]] {
        let done = bench.run(threads, &worker, &[]);
        assert!(done.ok && done.stdout == "from the device\n", "{done}");
    }
}

#[test]
fn a_worker_for_cuda_compiles_and_runs_where_a_device_is() {
    let Some(bench) = Bench::new() else { return };
    let Some(nvcc) = nvcc() else { return skip("needs nvcc, in the path or named by NVCC") };
    let worker = device_worker(&bench, &nvcc, &["-Xcompiler", "-fPIC"]);
    let done = bench.run(&["--alone"], &worker, &[]);
    if done.stderr.contains("there is no device") {
        return skip("needs a CUDA device: the worker is compiled, and not run");
    }
    assert!(done.ok && done.stdout == "from the device\n", "{done}");
}
