//! `libcovey-preload.so`: real programs on Covey's files without any mount.

use crate::support::preload::{PREFIX, compile, library, preloaded, worked};
use crate::support::{Cluster, has_program, run, skip};
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

fn here(file: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/preload").join(file)
}

/// Runs a program on a local directory and on one of Covey's; answers what each said.
fn on_both(cluster: &Cluster, program: &str, script: Option<&str>, name: &str) -> [String; 2] {
    let local = cluster.scratch(name);
    fs::create_dir(&local).expect("a directory");
    let ours = format!("{PREFIX}/{name}");
    cluster.covey(&["mkdir", &format!("/{name}")]);
    let mut plain = Command::new(program);
    plain.env("LC_ALL", "C").current_dir("/");
    let on = |mut command: Command, directory: &Path| {
        command.args(script.map(here)).arg(directory);
        worked(&run(command)).to_owned()
    };
    [on(plain, &local), on(preloaded(cluster, program), ours.as_ref())]
}

#[track_caller]
fn assert_alike([local, ours]: [String; 2]) {
    for (number, (local, ours)) in local.lines().zip(ours.lines()).enumerate() {
        assert_eq!(ours, local, "line {} of the output, left ours, right local", number + 1);
    }
    assert_eq!(ours.lines().count(), local.lines().count());
}

#[test]
fn every_call_answers_as_on_a_local_directory() {
    let cluster = Cluster::up(3);
    let Some(program) = compile(&cluster, "preload/calls.c", "cc") else { return };
    let said = on_both(&cluster, program.to_str().expect("a plain name"), None, "calls");
    assert!(said[0].ends_with("end\n"), "{}", said[0]);
    assert_alike(said);
}

#[test]
fn locks_and_open_files_outlive_an_exec_and_one_that_fails_takes_nothing() {
    let cluster = Cluster::up(2);
    let Some(program) = compile(&cluster, "preload/exec.c", "cc") else { return };
    let said = on_both(&cluster, program.to_str().expect("a plain name"), None, "exec");
    assert!(said[0].contains("after execs that failed: all\n"), "{}", said[0]);
    assert!(said[0].ends_with("a description's lock, closed: free\n"), "{}", said[0]);
    assert_alike(said);
}

#[test]
fn a_handler_is_served_whatever_call_its_signal_meets() {
    let cluster = Cluster::up(2);
    let Some(program) = compile(&cluster, "preload/handlers.c", "cc") else { return };
    let said = on_both(&cluster, program.to_str().expect("a plain name"), None, "handlers");
    assert!(said[0].ends_with("default: ended\n"), "{}", said[0]);
    assert_alike(said);
}

#[test]
fn a_thread_that_is_cancelled_in_a_call_of_libc_ends_alone() {
    let cluster = Cluster::up(2);
    let Some(program) = compile(&cluster, "preload/cancel.c", "cc") else { return };
    let said = on_both(&cluster, program.to_str().expect("a plain name"), None, "cancel");
    assert!(said[0].ends_with("end\n"), "{}", said[0]);
    assert_alike(said);
}

#[test]
fn to_cut_a_file_that_is_opened_for_reading_needs_the_right_to_write_it() {
    if !rustix::process::geteuid().is_root() {
        return skip("needs root, to be somebody else");
    }
    if !has_program("python3") {
        return skip("needs python3");
    }
    let cluster = Cluster::up(1);
    // Root's program that acts for somebody else is that one's, as far as files go.
    let text = "import os, sys\n\
        top = sys.argv[1]\n\
        os.chmod(top, 0o755)\n\
        os.chdir(top)\n\
        for name, mode in (('theirs', 0o644), ('open', 0o666)):\n\
        \topen(name, 'w').write('text')\n\
        \tos.chmod(name, mode)\n\
        os.setegid(65534)\n\
        os.seteuid(65534)\n\
        for name in ('theirs', 'open', '.'):\n\
        \ttry:\n\
        \t\tos.close(os.open(name, os.O_RDONLY | os.O_TRUNC))\n\
        \t\tprint(name, 'cut')\n\
        \texcept OSError as error:\n\
        \t\tprint(name, error.strerror)\n\
        \tif name != '.':\n\
        \t\tprint(os.stat(name).st_size)\n";
    let script = cluster.scratch("cut.py");
    fs::write(&script, text).expect("written");
    let said = on_both(&cluster, "python3", script.to_str(), "cut");
    assert!(said[0].starts_with("theirs Permission denied\n4\nopen cut\n0\n"), "{}", said[0]);
    assert_alike(said);
}

#[test]
fn ordinary_programs_do_without_a_mount_what_they_do_on_a_local_directory() {
    let cluster = Cluster::up(3);
    for (program, script) in
        [("sh", "programs.sh"), ("bash", "programs.sh"), ("python3", "programs.py")]
    {
        if has_program(program) {
            assert_alike(on_both(&cluster, program, Some(script), program))
        } else {
            skip(format!("needs {program}"))
        }
    }
}

#[test]
fn forks_amid_threads_leave_parent_and_children_alive() {
    if !has_program("python3") {
        return skip("needs python3");
    }
    let cluster = Cluster::up(2);
    let said = on_both(&cluster, "python3", Some("forks.py"), "forks");
    assert_eq!(said[1], "[] 12\n");
    assert_alike(said);
}

#[test]
fn a_database_without_a_mount_keeps_its_journal_and_its_integrity() {
    if !has_program("sqlite3") {
        return skip("needs sqlite3");
    }
    let cluster = Cluster::up(2);
    assert_alike(on_both(&cluster, "sh", Some("sql.sh"), "sql"));
}

#[test]
fn what_is_written_without_a_mount_is_seen_on_a_mount_at_once_and_locks_hold_between_them() {
    let mut cluster = Cluster::up(2);
    let Some(mount) = cluster.mount() else { return };
    let mut write = preloaded(&cluster, "sh");
    write.args(["-c", "echo from the library > /covey/f; cat /covey/f"]);
    assert_eq!(worked(&run(write)), "from the library\n");
    assert_eq!(fs::read(mount.join("f")).expect("it is there"), b"from the library\n");
    fs::write(mount.join("f"), "from the mount").expect("it can be written");
    let mut read = preloaded(&cluster, "cat");
    read.arg("/covey/f");
    assert_eq!(worked(&run(read)), "from the mount");
    // flock(1) holds the lock in one world; the other must be refused.
    let held = fs::File::open(mount.join("f")).expect("a file");
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).expect("a lock");
    let try_lock = || {
        let mut lock = preloaded(&cluster, "flock");
        lock.args(["-n", "/covey/f", "true"]);
        run(lock).ok
    };
    assert!(!try_lock(), "the mount's lock is not seen without a mount");
    drop(held);
    assert!(try_lock(), "a lock that was given back is still in the way");
}

#[test]
fn a_dead_server_gives_a_program_without_a_mount_an_error_and_no_hang() {
    let cluster = Cluster::up(2);
    let mut fill = preloaded(&cluster, "dd");
    fill.args(["if=/dev/zero", "of=/covey/f", "bs=65536", "count=8"]);
    worked(&run(fill));
    cluster.signal("io1", Signal::STOP);
    let mut read = preloaded(&cluster, "cat");
    read.arg("/covey/f");
    let done = run(read);
    cluster.signal("io1", Signal::CONT);
    assert!(!done.ok && done.stderr.contains("Input/output error"), "{done}");
    let mut read = preloaded(&cluster, "cat");
    read.arg("/covey/f");
    assert_eq!(worked(&run(read)).len(), 8 * 65536);
}

#[test]
fn a_program_without_the_library_gets_errors_from_inherited_descriptors_and_never_wrong_bytes() {
    let cluster = Cluster::up(1);
    let mut inherit = preloaded(&cluster, "sh");
    inherit.args(["-c", "echo text > /covey/f; env -u LD_PRELOAD cat < /covey/f"]);
    let done = run(inherit);
    assert!(!done.ok && done.stdout.is_empty(), "{done}");
    assert!(done.stderr.contains("Bad file descriptor"), "{done}");
}

#[test]
fn the_report_says_what_was_served_and_a_wrong_configuration_why_nothing_is() {
    let cluster = Cluster::up(1);
    let mut copy = preloaded(&cluster, "cp");
    copy.args(["/etc/passwd", "/covey/p"]).env("COVEY_PRELOAD_REPORT", "1");
    let done = run(copy);
    assert!(done.ok && done.stderr.contains("writes of "), "{done}");
    let mut list = Command::new("ls");
    list.arg("/covey").env("LD_PRELOAD", library()).env("COVEY_CONFIG", "/no/such/file");
    let done = run(list);
    assert!(done.stderr.contains("covey-preload: cannot read /no/such/file"), "{done}");
    assert!(done.stderr.contains("hint: "), "{done}");
}

/// How many writes an I/O server was asked for.
fn writes(cluster: &Cluster, node: &str) -> u32 {
    let socket = format!("unix!{}", cluster.socket(node).display());
    let stats = cluster.covey(&["9p", "cat", &socket, "/stats"]);
    let line = stats.lines().find_map(|line| line.strip_prefix("data.writes "));
    line.and_then(|count| count.trim().parse().ok()).expect("a count of writes")
}

#[test]
fn lists_of_pieces_reach_the_file_by_readx_and_writex_and_by_lio_listio() {
    let cluster = Cluster::up(3);
    let Some(program) = compile(&cluster, "preload/lists.c", "cc") else { return };
    let mut lists = preloaded(&cluster, program);
    lists.arg("/covey/f").env("COVEY_PRELOAD_REPORT", "1");
    let done = run(lists);
    assert_eq!(worked(&done), "right\n", "{done}");
    assert!(done.stderr.contains("4 list requests of 4000 pieces"), "{done}");
    // Two lists were written, one message for each to each server that has some of it: a file of
    // less than 4 MiB lies on one, and its beginning with the metadata.
    let written: u32 = ["io1", "io2", "io3"].iter().map(|node| writes(&cluster, node)).sum();
    assert!((2..=9).contains(&written), "{written} writes at the servers");
    let copy = cluster.scratch("copy");
    cluster.covey(&["cp", ":/f", copy.to_str().expect("a plain name")]);
    assert_eq!(fs::metadata(copy).expect("copied").len(), 999 * 4099 + 1000);
}

#[test]
fn a_killed_child_and_a_closed_range_of_descriptors_leave_the_client_alive() {
    let cluster = Cluster::up(1);
    // bash closes what it does not know; daemons close everything.
    let text = "import os\n\
        open('/covey/a', 'w').write('a')\n\
        kept = os.open('/covey/a', os.O_RDONLY)\n\
        os.closerange(kept + 1, 2000)\n\
        child = os.fork()\n\
        if child == 0:\n\
        \topen('/covey/b', 'w').write('b')\n\
        \tos.kill(os.getpid(), 9)\n\
        os.waitpid(child, 0)\n\
        print(os.read(kept, 9), open('/covey/b').read(), sorted(os.listdir('/covey')))\n";
    if !has_program("python3") {
        return skip("needs python3");
    }
    let mut python = preloaded(&cluster, "python3");
    python.args(["-c", text]).stdin(Stdio::null());
    assert_eq!(worked(&run(python)), "b'a' b ['a', 'b']\n");
}

#[test]
fn a_place_that_cannot_be_one_is_told_once() {
    for (place, why) in [("covey", "does not begin with a slash"), ("/", "is the whole file")] {
        let mut command = Command::new("true");
        command.env("LD_PRELOAD", library()).env("COVEY_PRELOAD_PREFIX", place).current_dir("/");
        let done = run(command);
        assert!(done.ok && done.stderr.matches("covey-preload: ").count() == 1, "{done}");
        assert!(done.stderr.contains(why) && done.stderr.contains("/covey is used"), "{done}");
    }
}
