//! `covey run`, `attach`, `ps`, `kill`, `wait`, `nodes` and `push` on a cluster of this machine.

use crate::support::lab::Lab;
use crate::support::{Cluster, Finished, PATIENCE, covey, has_program, is_root, run, skip, until};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// A cluster all of whose nodes start programs: `meta` and some I/O servers.
pub fn cluster(io_servers: usize) -> Cluster {
    let mut cluster = Cluster::up(io_servers);
    let file = cluster.config();
    let text = fs::read_to_string(&file).unwrap();
    if !text.contains("launch") {
        cluster.down();
        let roles = |text: String, role: &str| {
            text.replace(
                &format!("roles = [\"{role}\"]"),
                &format!("roles = [\"{role}\", \"launch\"]"),
            )
        };
        fs::write(&file, roles(roles(text, "meta"), "data")).unwrap();
        cluster.restart();
    }
    cluster
}

/// `covey run` with these words.
pub fn started(cluster: &Cluster, words: &[&str]) -> Finished {
    let words: Vec<&str> = ["run"].iter().chain(words).copied().collect();
    cluster.try_covey(&words)
}

/// One that goes on beside the test, with pipes; it is killed at the end.
pub struct Beside(Child);

impl Beside {
    pub fn covey(cluster: &Cluster, words: &[&str]) -> Beside {
        let mut command = covey();
        command.arg("--config").arg(cluster.config()).args(words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Beside(command.spawn().unwrap())
    }

    /// A program on a node of a lab. What it runs dies with it.
    pub fn on(lab: &Lab, node: &str, words: &[&str]) -> Beside {
        let mut command = covey();
        command.args(["lab", "exec", "--name", lab.name(), node, "--"]).args(words);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Beside(command.spawn().unwrap())
    }

    pub fn line(&mut self) -> String {
        let mut line = String::new();
        let mut one = [0];
        let out = self.0.stdout.as_mut().unwrap();
        while out.read(&mut one).unwrap() == 1 && one != *b"\n" {
            line.push(char::from(one[0]));
        }
        line
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// Kills it, as a power loss would.
    pub fn kill(&mut self) {
        self.0.kill().unwrap();
    }

    /// What it has written to stderr, when it has ended.
    pub fn said(&mut self) -> String {
        let mut text = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        text
    }

    pub fn code(&mut self) -> Option<i32> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.code();
            }
            assert!(begun.elapsed() < PATIENCE, "the command does not end");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_program_runs_on_every_node_and_its_output_is_told_apart() {
    let cluster = cluster(2);
    let done = started(
        &cluster,
        &["--all", "--label", "sh", "-c", "echo $COVEY_NODE $COVEY_RANK/$COVEY_SIZE"],
    );
    assert!(done.ok, "{done}");
    let mut lines: Vec<&str> = done.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["io1: io1 1/3", "io2: io2 2/3", "meta: meta 0/3"]);

    let done = started(
        &cluster,
        &["--all", "--gather", "sh", "-c", "test $COVEY_RANK = 0 && echo first || echo other"],
    );
    let rule = "---------------";
    let expected = format!("{rule}\nmeta\n{rule}\nfirst\n{rule}\nio[1-2] (2)\n{rule}\nother\n");
    assert_eq!(done.stdout, expected, "{done}");

    let done = started(
        &cluster,
        &[
            "-w",
            "io[1-2]",
            "--ppn",
            "2",
            "--label",
            "--local",
            "sh",
            "-c",
            "echo $COVEY_LOCAL_RANK",
        ],
    );
    let mut lines: Vec<&str> = done.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["io1/0: 0", "io1/1: 1", "io2/2: 0", "io2/3: 1"]);
}

/// How long the turns of a process are, as Linux lists it since it can be chosen.
fn turns(list: &str) -> Option<String> {
    let line = list.lines().find(|line| line.starts_with("se.slice"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

#[test]
fn programs_have_their_usual_turns_and_their_node_makes_way_for_them() {
    let of = |file: &str| turns(&fs::read_to_string(file).ok()?);
    let Some(usual) = of("/proc/self/sched") else {
        return skip("needs a kernel that lists in /proc/PID/sched how long turns are");
    };
    let cluster = cluster(1);
    let node = format!("/proc/{}/sched", cluster.pid("io1").as_raw_nonzero());
    let done = started(&cluster, &["-w", "io1", "cat", "/proc/self/sched"]);
    assert_eq!(turns(&done.stdout), Some(usual.clone()), "{done}");
    if can_choose_turns() {
        assert_ne!(of(&node), Some(usual));
    }
}

/// Whether nodes ask for turns of another length: since Linux 6.12, and where there are CPUs to choose from.
fn can_choose_turns() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split('.').map_while(|word| word.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(12))
        && std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1)
}

#[test]
fn what_follows_the_program_is_its_own() {
    let cluster = cluster(1);
    let words = ["--label", "-g", "--verbose", "--json", "--", "-n", "2"];
    let done = cluster.covey(&[&["run", "-w", "io1", "--local", "echo"], &words[..]].concat());
    assert_eq!(done, format!("{}\n", words.join(" ")));
}

#[test]
fn the_program_is_copied_and_starts_where_it_is_told() {
    let cluster = cluster(1);
    let program = cluster.scratch("hello");
    fs::write(&program, "#!/bin/sh\necho $0 $1; pwd; echo $GREETING; ls -A | wc -l\n").unwrap();
    let refused = started(&cluster, &["-w", "io1", program.to_str().unwrap()]);
    refused.says(&["not executable"]);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let program = program.to_str().unwrap();
    let done = started(&cluster, &["-w", "io1", "-e", "GREETING=it's me", program, "two words"]);
    assert!(done.ok, "{done}");
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert!(lines[0].ends_with("two words"), "{done}");
    assert!(lines[1] != "/" && lines[2] == "it's me" && lines[3].trim() == "0", "{done}");
    let done = started(&cluster, &["-w", "io1", "-C", "/usr", program]);
    assert!(done.stdout.contains("\n/usr\n"), "{done}");
}

#[test]
fn exit_codes_and_signals_come_back() {
    let cluster = cluster(2);
    for (script, code, words) in [
        ("exit 0", 0, ""),
        ("exit $COVEY_RANK", 2, "io1: ended with exit code 1"),
        ("kill -SEGV $$", 139, "io[1-2],meta: was ended by signal 11 (SIGSEGV)"),
    ] {
        let done = started(&cluster, &["--all", "--local", "sh", "-c", script]);
        assert_eq!(done.code, Some(code), "{script}: {done}");
        assert!(done.stderr.contains(words), "{script}: {done}");
    }
    started(&cluster, &["--all", "/no/such/program"]).says(&["/no/such/program", "no such file"]);
    let done = started(&cluster, &["--all", "--local", "/no/such/program"]);
    assert!(!done.ok && done.stderr.contains("/no/such/program"), "{done}");
    started(&cluster, &["-w", "io9", "true"]).says(&["io9"]);
    started(&cluster, &["-w", "io1", "-n", "3", "--ppn", "2", "true"]).says(&["do not fit"]);
}

#[test]
fn a_signal_that_the_system_refuses_is_an_error_of_the_command() {
    if !is_root() || !has_program("setpriv") {
        return skip("needs root and setpriv, for a daemon without CAP_KILL");
    }
    let cluster = Cluster::planned();
    let mut up = Command::new("setpriv");
    up.args(["--bounding-set", "-kill", env!("CARGO_BIN_EXE_covey"), "up", "-n", "1", "--dir"]);
    up.arg(&cluster.dir).env_remove("COVEY_CONFIG").current_dir("/");
    let up = run(up);
    assert!(up.ok, "{up}");
    let script = "trap 'echo heard' USR1; echo ready; read word; exit 7";
    let words =
        ["run", "-w", "io1", "--job", "deaf", "--local", "--", "setpriv", "--reuid", "12345"];
    let words = [&words[..], &["--clear-groups", "sh", "-c", script]].concat();
    let mut beside = Beside::covey(&cluster, &words);
    assert_eq!(beside.line(), "ready");
    let refused = cluster.refused(&["kill", "-s", "USR1", "deaf"]);
    assert_eq!(refused.code, Some(1), "{refused}");
    for words in ["on io1", "signal 10", "not permitted", "hint: ", "CAP_KILL"] {
        assert!(refused.stderr.contains(words), "{words}: {refused}");
    }
    drop(beside.0.stdin.take());
    assert_eq!(beside.code(), Some(7));
}

#[test]
fn input_goes_to_one_rank_to_all_or_to_none() {
    let cluster = cluster(2);
    for (whom, expected) in [
        ("1", ["io1: 4", "io2: 0", "meta: 0"]),
        ("all", ["io1: 4", "io2: 4", "meta: 4"]),
        ("none", ["io1: 0", "io2: 0", "meta: 0"]),
    ] {
        let mut beside = Beside::covey(
            &cluster,
            &["run", "--all", "--label", "--stdin", whom, "--local", "wc", "-c"],
        );
        beside.0.stdin.take().unwrap().write_all(b"abc\n").unwrap();
        let out = BufReader::new(beside.0.stdout.take().unwrap());
        let mut lines: Vec<String> = out.lines().map(|line| line.unwrap()).collect();
        lines.sort_unstable();
        assert_eq!(
            (beside.code(), &lines[..]),
            (Some(0), &expected.map(str::to_owned)[..]),
            "{whom}"
        );
    }
}

#[test]
fn much_output_of_many_ranks_is_never_mixed_inside_a_line() {
    let cluster = cluster(2);
    let script = "i=0; while [ $i -lt 3000 ]; do printf '%s' $COVEY_RANK-aaaaaaaaaa; printf '%s\\n' bbbbbbbbbb-$i; i=$((i+1)); done";
    let done = started(&cluster, &["--all", "--ppn", "2", "--local", "sh", "-c", script]);
    assert!(done.ok, "{}", done.stderr);
    let mut seen = std::collections::BTreeMap::new();
    for line in done.stdout.lines() {
        let (rank, rest) =
            line.split_once("-aaaaaaaaaabbbbbbbbbb-").unwrap_or_else(|| panic!("{line}"));
        let next = seen.entry(rank.to_owned()).or_insert(0);
        assert_eq!(rest.parse(), Ok(*next), "rank {rank}");
        *next += 1;
    }
    assert_eq!(seen.into_values().collect::<Vec<_>>(), [3000; 6]);
}

#[test]
fn an_interrupt_asks_and_a_second_one_kills() {
    let cluster = cluster(1);
    let script = "trap 'echo asked; exit 5' INT; echo ready; while :; do sleep 0.1; done";
    let mut beside = Beside::covey(&cluster, &["run", "-w", "io1", "--local", "sh", "-c", script]);
    assert_eq!(beside.line(), "ready");
    beside.signal(Signal::INT);
    assert_eq!((beside.line().as_str(), beside.code()), ("asked", Some(5)));

    let stubborn = "trap '' INT; echo ready; while :; do sleep 0.1; done";
    let mut beside =
        Beside::covey(&cluster, &["run", "-w", "io1", "--local", "sh", "-c", stubborn]);
    assert_eq!(beside.line(), "ready");
    beside.signal(Signal::INT);
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(beside.0.try_wait().unwrap().is_none(), "it was only asked");
    beside.signal(Signal::INT);
    assert_eq!(beside.code(), Some(137));
}

#[test]
fn when_the_command_is_killed_so_is_the_program() {
    let cluster = cluster(1);
    let script = "echo $$; exec sleep 1000";
    let mut beside = Beside::covey(&cluster, &["run", "-w", "io1", "--local", "sh", "-c", script]);
    let pid: u32 = beside.line().parse().unwrap();
    assert!(fs::exists(format!("/proc/{pid}")).unwrap());
    beside.0.kill().unwrap();
    until("the program is gone", || !fs::exists(format!("/proc/{pid}")).unwrap());
}

#[test]
fn a_detached_job_is_seen_waited_for_attached_to_and_killed() {
    let cluster = cluster(2);
    let script = "echo one; read line < /dev/null; while [ ! -e $0 ]; do sleep 0.1; done; echo two; exit $COVEY_RANK";
    let flag = cluster.scratch("go");
    let words = [
        "run",
        "--all",
        "--detach",
        "--job",
        "night",
        "--local",
        "sh",
        "-c",
        script,
        flag.to_str().unwrap(),
    ];
    assert_eq!(cluster.covey(&words), "night\n");
    let again = cluster.refused(&["run", "-w", "io2", "--job", "night", "--local", "true"]);
    again.says(&["night", "io1", "meta", "covey wait night"]);
    let shown = cluster.covey(&["ps"]);
    for part in ["night/0", "night/1", "night/2"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let early = cluster.try_covey(&["wait", "--timeout", "1", "night"]);
    assert!(!early.ok && early.stderr.contains("not ended"), "{early}");
    fs::write(&flag, "").unwrap();
    assert_eq!(cluster.try_covey(&["wait", "night"]).code, Some(2));
    let attached = cluster.try_covey(&["attach", "--gather", "night"]);
    assert_eq!(attached.code, Some(2), "{attached}");
    assert!(
        attached.stdout.contains("io[1-2],meta (3)") && attached.stdout.contains("one\ntwo\n"),
        "{attached}"
    );
    cluster.refused(&["attach", "night"]).says(&["night", "no node has a part"]);

    cluster.covey(&["run", "--all", "--detach", "--job", "day", "--local", "sleep", "1000"]);
    // Each is shown by its own node, though every node sees all processes of this machine.
    let shown = cluster.covey(&["ps", "-j", "day"]);
    assert_eq!(shown.matches("sleep 1000").count(), 3, "{shown}");
    cluster.covey(&["kill", "day"]);
    until("the job is gone", || !cluster.covey(&["ps"]).contains("day/"));
    cluster.refused(&["kill", "day"]).says(&["day"]);
}

#[test]
fn nodes_are_listed_and_files_are_pushed_to_them() {
    let cluster = cluster(2);
    assert_eq!(cluster.covey(&["nodes", "--list"]), "io[1-2],meta\n");
    let table = cluster.covey(&["nodes"]);
    assert!(table.contains(&format!("Linux/{}", std::env::consts::ARCH)), "{table}");

    let file = cluster.scratch("file");
    let bytes: Vec<u8> = (0..3_000_000u32).map(|at| (at * 7 % 251) as u8).collect();
    fs::write(&file, &bytes).unwrap();
    let to = cluster.scratch("copy");
    cluster.covey(&["push", "--to", to.to_str().unwrap(), file.to_str().unwrap(), "io1"]);
    assert_eq!(fs::read(&to).unwrap(), bytes);
    let refused =
        cluster.refused(&["push", "--to", "/no/such/dir/x", file.to_str().unwrap(), "io[1-2]"]);
    refused.says(&["io1", "io2", "/no/such/dir"]);
}

/// Each block of gathered output: whose, and what.
fn blocks(text: &str) -> Vec<(String, String)> {
    let rule = "---------------\n";
    let mut parts = text.split(rule).skip(1);
    let mut found = Vec::new();
    while let (Some(nodes), Some(body)) = (parts.next(), parts.next()) {
        found.push((nodes.to_owned(), body.to_owned()));
    }
    found.sort_unstable();
    found
}

#[test]
fn gathered_output_is_folded_as_clush_folds_it() {
    if !has_program("clush") {
        return skip("needs clush");
    }
    let cluster = cluster(3);
    let script = "case $0 in meta) echo one; echo; echo two;; *) echo other;; esac";
    let here = format!("sh -c '{script}' $COVEY_NODE");
    let ours = started(&cluster, &["--all", "--gather", "--local", "sh", "-c", &here]);
    let mut clush = std::process::Command::new("clush");
    clush.args(["-R", "exec", "-b", "-w", "io[1-3],meta", &format!("sh -c '{script}' %h")]);
    let theirs = crate::support::run(clush);
    assert_eq!(blocks(&ours.stdout), blocks(&theirs.stdout), "{ours}{theirs}");
    assert_eq!(blocks(&ours.stdout).len(), 2, "{ours}");
}

#[test]
fn what_is_pushed_is_an_ordinary_file_and_replaces_nothing_else() {
    let cluster = cluster(1);
    let file = cluster.scratch("file");
    fs::write(&file, "content").unwrap();
    let (dir, there) = (cluster.scratch("dir"), cluster.scratch("there"));
    fs::create_dir(&dir).unwrap();
    fs::write(&there, "kept").unwrap();
    let push = |from: &str, to: &Path| {
        cluster.refused(&["push", "--to", to.to_str().unwrap(), from, "io1"])
    };
    let from = file.to_str().unwrap();
    push(from, &dir).says(&["io1", "it is a directory there"]);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
    let link = cluster.scratch("link");
    std::os::unix::fs::symlink("/dev/null", &link).unwrap();
    push(from, &link).says(&["no ordinary file there"]);
    for odd in ["/dev/zero", "/proc/cpuinfo"] {
        push(odd, &there).says(&[odd, "no ordinary file"]);
    }
    assert_eq!(fs::read_to_string(&there).unwrap(), "kept");
}

#[test]
fn output_that_cannot_be_written_is_an_error_and_an_attached_job_stays() {
    let cluster = cluster(1);
    let into_full = |words: &[&str]| {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = covey();
        command.arg("--config").arg(cluster.config()).args(words).stdin(Stdio::null());
        let done = command.stdout(full).stderr(Stdio::piped()).output().unwrap();
        (done.status.code(), String::from_utf8(done.stderr).unwrap())
    };
    for words in [&["--local"][..], &["--local", "--label"], &["--local", "-n", "2", "--gather"]] {
        let (code, said) = into_full(&[&["run", "-w", "io1"], words, &["seq", "10000"]].concat());
        assert!(code == Some(1) && said.contains("o space left"), "{words:?}: {code:?} {said}");
    }
    let script = "seq 10000; [ $0 = short ] || sleep 1000";
    for length in ["short", "long"] {
        let words = ["--job", length, "--local", "sh", "-c", script, length];
        cluster.covey(&[&["run", "-w", "io1", "--detach"][..], &words].concat());
        let (code, said) = into_full(&["attach", length]);
        assert!(code == Some(1) && said.contains("o space left"), "{length}: {code:?} {said}");
    }
    assert!(cluster.covey(&["ps"]).contains("long/0"), "it goes on");
    cluster.covey(&["kill", "long"]);
    // What was read is gone; the job is not.
    cluster.covey(&["attach", "short"]);
}

#[test]
fn in_an_allocation_of_slurm_its_nodes_are_taken() {
    let cluster = cluster(2);
    let mut command = covey();
    command
        .arg("--config")
        .arg(cluster.config())
        .args(["run", "--gather", "--local", "echo", "here"]);
    command.env("SLURM_JOB_NODELIST", "io[1-2]");
    let done = crate::support::run(command);
    assert!(done.ok && done.stdout.contains("\nio[1-2] (2)\n"), "{done}");
}

#[test]
fn a_node_that_is_down_is_reported_and_the_others_run() {
    let cluster = cluster(2);
    cluster.kill("io2");
    let done = started(&cluster, &["--all", "--label", "--local", "echo", "here"]);
    let mut lines: Vec<&str> = done.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!((done.code, &lines[..]), (Some(254), &["io1: here", "meta: here"][..]), "{done}");
    assert!(done.stderr.contains("io2: was not started"), "{done}");
    let nodes = cluster.refused(&["nodes"]);
    assert!(nodes.stdout.contains("down"), "{nodes}");
}
