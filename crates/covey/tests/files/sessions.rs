//! Sessions with nothing but reads and writes of files: through a mount of a node, and through one node to
//! another.

use crate::namespace::{Mounted, address};
use crate::support::{Cluster, is_root, run, skip, until};
use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A session in a mounted tree, held by its open `clone`.
struct Session {
    _clone: fs::File,
    dir: PathBuf,
}

impl Session {
    fn begin(xcpu: &Path) -> Session {
        let mut clone = fs::File::open(xcpu.join("clone")).unwrap();
        let mut number = String::new();
        clone.read_to_string(&mut number).unwrap();
        Session { _clone: clone, dir: xcpu.join(number.trim()) }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    #[track_caller]
    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let written = fs::write(self.file(name), text);
        assert!(written.is_ok(), "{name}: {written:?}: {:?}", fs::read_to_string(self.file("ctl")));
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.file(name)).unwrap()
    }

    /// What is said of a write that must fail.
    fn refused(&self, command: &str) -> String {
        fs::write(self.file("ctl"), command).unwrap_err();
        self.read("ctl")
    }

    fn shell(&self, script: &str) {
        self.write("argv", format!("sh -c '{}'", script.replace('\'', "''")));
        self.write("ctl", "exec /bin/sh\n");
    }
}

fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

/// A line of what a program writes, without waiting for its end.
fn line(file: &Path) -> String {
    let mut bytes = [0; 200];
    let count = fs::File::open(file).unwrap().read(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes[..count]).into_owned()
}

#[test]
fn a_program_is_run_fed_and_read_through_files_of_this_node_and_of_another() {
    let cluster = Cluster::up(2);
    let Some(mounted) = Mounted::at(&cluster, "io1", &[]) else { return };
    for tree in ["xcpu", "n/io2/xcpu"] {
        let xcpu = mounted.path(tree);
        let arch = fs::read_to_string(xcpu.join("arch")).unwrap();
        assert!(arch.starts_with("/Linux/"), "{arch}");
        let session = Session::begin(&xcpu);
        let names: Vec<_> = fs::read_dir(&session.dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        for name in
            ["ctl", "exec", "argv", "env", "fs", "stdin", "stdout", "stderr", "stdio", "wait", "id"]
        {
            assert!(names.iter().any(|found| found == name), "{name}: {names:?}");
        }
        // A copy of a real program, its arguments, environment, and a file in its directory.
        fs::copy("/bin/sh", session.file("exec")).unwrap();
        session.write(
            "argv",
            "sh -c 'read a; echo $a $WORD $(cat note); cat; echo oops >&2; exit 7'\n",
        );
        session.write("env", "'WORD=two words'\n");
        session.write("fs/note", "from fs\n");
        session.write("id", "17/3\n");
        session.write("ctl", "exec\n");
        session.write("stdin", "hello\n");
        session.write("stdin", "more\n");
        session.write("ctl", "close\n");
        assert_eq!(session.read("stdout"), "hello two words from fs\nmore\n", "{tree}");
        assert_eq!(session.read("stderr"), "oops\n");
        assert_eq!(session.read("wait"), format!("{}\n", 7 << 8));
        assert_eq!(session.read("wait"), format!("{}\n", 7 << 8), "any number of readers");
        let ctl = session.read("ctl");
        assert!(ctl.contains("# state finished 1792\n") && ctl.contains("# id 17/3"), "{ctl}");
        let dir = session.dir.clone();
        drop(session);
        until("the session is gone", || !dir.exists());
    }
}

#[test]
fn a_command_that_cannot_be_done_says_why() {
    let cluster = Cluster::up(1);
    let Some(mounted) = Mounted::at(&cluster, "io1", &[]) else { return };
    let session = Session::begin(&mounted.path("xcpu"));
    for (command, why) in [
        ("exec\n", "nothing was written to exec"),
        ("exec /no/such/program\n", "/no/such/program: no such file"),
        ("signal TERM\n", "no program runs"),
        ("signal FOO\n", "there is no signal \"FOO\""),
        ("type odd\n", "normal or persistent"),
        ("frobnicate\n", "there is no command \"frobnicate\""),
        ("exec a b\n", "usage: exec [PATH | in NAME]"),
    ] {
        let text = session.refused(command);
        assert!(text.contains("# last error: ") && text.contains(why), "{command}: {text}");
    }
    session.write("argv", "'open quote");
    assert!(session.refused("exec /bin/true\n").contains("a quote is not closed"));
    let huge = vec![b'x'; (1 << 20) + 1];
    for name in ["argv", "env"] {
        assert!(fs::write(session.file(name), &huge).is_err(), "{name} has a limit");
    }
    session.write("argv", "");
    session.write("env", "");
    fs::write(session.file("fs/../../../etc"), "x").unwrap_err();
    session.write("ctl", "exec /bin/true\n");
    assert_eq!(session.read("wait"), "0\n");
    assert!(session.refused("exec /bin/true\n").contains("make another one"));
}

#[test]
fn a_session_and_all_that_it_started_end_with_who_holds_it() {
    let cluster = Cluster::up(2);
    let Some(mounted) = Mounted::at(&cluster, "io1", &[]) else { return };
    for tree in ["xcpu", "n/io2/xcpu"] {
        let xcpu = mounted.path(tree);
        let session = Session::begin(&xcpu);
        // It leaves its group, its session and its parent.
        session.shell("setsid sh -c 'trap \"\" TERM; echo $$; while :; do sleep 1; done' & wait");
        let pid = line(&session.file("stdout"));
        assert!(is_alive(&pid), "{pid:?}");
        session.write("ctl", "signal TERM\n");
        assert_eq!(session.read("wait"), "15\n");
        assert!(is_alive(&pid));
        drop(session);
        until("nothing of it is left", || !is_alive(&pid));

        let kept = Session::begin(&xcpu);
        kept.shell("echo $$; exec sleep 1000");
        let pid = line(&kept.file("stdout"));
        kept.write("ctl", "type persistent\n");
        let dir = kept.dir.clone();
        drop(kept);
        // Somebody who comes later finds it, and ends it.
        assert!(fs::read_to_string(dir.join("ctl")).unwrap().contains("# type persistent"));
        assert!(is_alive(&pid));
        fs::write(dir.join("ctl"), "wipe\n").unwrap();
        until("it is wiped", || !is_alive(&pid) && !dir.exists());
    }
}

#[test]
fn a_client_that_is_killed_takes_its_programs_along_and_so_does_a_node() {
    for (tree, ends) in [("/xcpu", "client"), ("/n/io2/xcpu", "client"), ("/n/io2/xcpu", "node")] {
        let cluster = Cluster::up(2);
        let Some(mounted) = Mounted::at(&cluster, "io1", &[]) else { return };
        let session = Session::begin(&mounted.path(&tree[1..]));
        session.shell("echo $$; exec sleep 1000");
        let pid = line(&session.file("stdout"));
        assert!(is_alive(&pid));
        match ends {
            "client" => mounted.kill(),
            _ => cluster.kill("io2"),
        }
        until("the program is gone", || !is_alive(&pid));
        drop(session);
    }
}

#[test]
fn a_program_runs_as_the_user_who_attached_and_nobody_else_uses_its_session() {
    if !is_root() {
        return skip("needs root to be other users");
    }
    const STRANGER: u32 = 54321;
    let cluster = Cluster::up(2);
    let program = crate::namespace::for_strangers(&cluster);
    let at = address(&cluster, "io1");
    let Some(mounted) = Mounted::at(&cluster, "io1", &[]) else { return };
    for node in ["", "/n/io2"] {
        let session = Session::begin(&mounted.path(&format!("{node}/xcpu")[1..]));
        let path = format!("{node}/xcpu/{}", session.dir.file_name().unwrap().display());
        for name in ["ctl", "stdout", "argv", "wait", "fs"] {
            let mut command = Command::new(&program);
            let verb = if name == "fs" { "ls" } else { "cat" };
            command.args(["9p", verb, &at, &format!("{path}/{name}")]).uid(STRANGER).gid(STRANGER);
            let refused = run(command);
            assert!(!refused.ok, "{name}: {refused}");
            let why = refused.stderr.to_lowercase();
            assert!(why.contains("permission denied"), "{name}: {refused}");
        }
    }
}

/// With nothing but a shell, `cat` and `echo`.
#[test]
fn a_user_runs_programs_as_itself_on_its_own_node_and_on_others() {
    if !is_root() {
        return skip("needs root to be other users");
    }
    // One that fusermount3 finds in /etc/passwd: nobody.
    const STRANGER: u32 = 65534;
    let cluster = Cluster::up(2);
    let program = crate::namespace::for_strangers(&cluster);
    let mut command = Command::new(&program);
    command.uid(STRANGER).gid(STRANGER);
    let Some(mounted) = Mounted::by(command, &cluster, "io1", &[]) else { return };
    for tree in ["xcpu", "n/io2/xcpu"] {
        let script = "cd $1; exec 3< clone; read n <&3; cd $n
            cp /usr/bin/id exec; echo id -u > argv; echo exec > ctl; cat stdout wait
            exec 3<&-; exec 3< ../clone; read n <&3; cd ../$n
            echo \"sh -c 'id -u; id -G; touch mine; stat -c %u mine'\" > argv
            echo exec /bin/sh > ctl; cat stdout";
        let mut shell = Command::new("sh");
        shell.args(["-c", script, "sh"]).arg(mounted.path(tree)).uid(STRANGER).gid(STRANGER);
        let said = shell.output().unwrap();
        let expected = "65534\n0\n65534\n65534\n65534\n";
        assert_eq!(String::from_utf8_lossy(&said.stdout), expected, "{tree}: {said:?}");
    }
}

#[test]
fn a_terminal_has_a_size_and_is_told_another() {
    let cluster = Cluster::up(1);
    let Some(mounted) = Mounted::at(&cluster, "io1", &[]) else { return };
    if fs::File::open("/dev/ptmx").is_err() {
        return skip("needs /dev/ptmx");
    }
    let session = Session::begin(&mounted.path("xcpu"));
    session.write("ctl", "tty 7 77\n");
    session.shell("stty size; read a; stty size; echo got $a");
    assert_eq!(line(&session.file("stdout")), "7 77\r\n");
    session.write("ctl", "winsize 8 88\n");
    session.write("stdin", "quail\n");
    let said = session.read("stdout");
    assert!(said.ends_with("8 88\r\ngot quail\r\n"), "{said:?}");
}

#[test]
fn the_processes_of_a_node_are_listed_with_their_sessions() {
    let cluster = Cluster::up(1);
    let Some(mounted) = Mounted::at(&cluster, "io1", &[]) else { return };
    let session = Session::begin(&mounted.path("xcpu"));
    session.write("id", "job7/0");
    session.shell("echo $$; sleep 1000");
    let pid = line(&session.file("stdout"));
    let procs = fs::read_to_string(mounted.path("xcpu/procs")).unwrap();
    assert!(procs.starts_with("(pid cmdline state "), "{procs}");
    let number = session.dir.file_name().unwrap().to_str().unwrap();
    let own = procs.lines().find(|line| line.starts_with(&format!("({} (", pid.trim())));
    let own = own.unwrap_or_else(|| panic!("{pid} in {procs}"));
    assert!(own.ends_with(&format!(" {number} job7/0 )")), "{own}");
}

#[test]
fn sessions_have_a_limit_for_each_user_and_leave_nothing_behind() {
    let cluster = Cluster::up(1);
    let Some(mounted) = Mounted::at(&cluster, "io1", &[]) else { return };
    let xcpu = mounted.path("xcpu");
    let mut held = Vec::new();
    let refused = loop {
        match fs::File::open(xcpu.join("clone")) {
            Ok(clone) => held.push(clone),
            Err(error) => break error,
        }
        assert!(held.len() < 5000, "there is a limit");
    };
    assert_eq!(refused.raw_os_error(), Some(libc::EDQUOT));
    assert_eq!(held.len(), 1024);
    drop(held);
    until("all are gone", || fs::read_dir(&xcpu).unwrap().count() == ROOT_NAMES);
    for _ in 0..100 {
        let session = Session::begin(&xcpu);
        session.write("ctl", "exec /bin/true\n");
        assert_eq!(session.read("wait"), "0\n");
    }
    until("all are gone", || fs::read_dir(&xcpu).unwrap().count() == ROOT_NAMES);
}

#[test]
fn who_reads_nothing_holds_up_nobody_else() {
    let cluster = Cluster::up(1);
    let Some(mounted) = Mounted::at(&cluster, "io1", &[]) else { return };
    let session = Session::begin(&mounted.path("xcpu"));
    session.shell("echo $$ >&2; yes | head -c 10000000");
    let pid = line(&session.file("stderr"));
    let other = Session::begin(&mounted.path("xcpu"));
    // Readers that wait, on the same connection.
    let path = other.file("stdout");
    let reader = std::thread::spawn(move || fs::read_to_string(path).unwrap());
    other.shell("cat");
    other.write("stdin", "through\n");
    other.write("ctl", "close\n");
    assert_eq!(reader.join().unwrap(), "through\n");
    assert!(is_alive(&pid), "the pipe is full, and the program waits");
    assert_eq!(session.read("stdout").len(), 10_000_000);
    assert_eq!(session.read("wait"), "0\n");
}

/// The number of a session.
fn number(session: &Session) -> &str {
    session.dir.file_name().unwrap().to_str().unwrap()
}

#[test]
fn a_session_is_spread_down_a_tree_of_nodes_and_who_fails_is_named() {
    let cluster = Cluster::up(4);
    let Some(mounted) = Mounted::at(&cluster, "io1", &[]) else { return };
    let first = Session::begin(&mounted.path("xcpu"));
    // Longer than a few chunks, and not a multiple of their length.
    let long = crate::support::bytes::noise(14, 1_500_001);
    fs::copy("/bin/sh", first.file("exec")).unwrap();
    first.write("fs/long", &long);
    fs::create_dir(first.file("fs/d")).unwrap();
    first.write("fs/d/note", "quail");
    std::os::unix::fs::symlink("d/note", first.file("fs/link")).unwrap();
    first.write("argv", "sh -c 'cat link; cksum < long; ls -l d | wc -l'");
    first.write("env", "A=b");
    let nodes = ["meta", "io2", "io3", "io4"];
    let begin = |node: &&str| Session::begin(&mounted.path(&format!("n/{node}/xcpu")));
    let sessions: Vec<Session> = nodes.iter().map(begin).collect();
    let to = |nodes: &[&str]| {
        let all = nodes.iter().zip(&sessions);
        let all: Vec<_> =
            all.map(|(node, session)| format!("{node}/{}", number(session))).collect();
        all.join(",")
    };
    // Two branches, so that two nodes pass on what they receive.
    first.write("ctl", format!("clone 2 {}\nexec\n", to(&nodes)));
    let said = first.read("stdout");
    assert!(said.starts_with("quail") && said.contains("1500001"), "{said:?}");
    for (node, session) in nodes.iter().zip(&sessions) {
        session.write("ctl", "exec\n");
        assert_eq!(session.read("stdout"), said, "{node}");
        assert_eq!(session.read("wait"), "0\n");
        assert_eq!(session.read("env"), "A=b");
        assert!(fs::read(session.file("fs/long")).unwrap() == long, "{node}");
    }
    drop(sessions);

    // The head of a branch is dead: whom it was to serve is served by others.
    let again = Session::begin(&mounted.path("xcpu"));
    fs::copy("/bin/true", again.file("exec")).unwrap();
    let sessions: Vec<Session> = nodes.iter().map(begin).collect();
    let to: Vec<_> =
        nodes.iter().zip(&sessions).map(|(node, one)| format!("{node}/{}", number(one))).collect();
    cluster.kill("io2");
    let list = format!("{},{},{},{}", to[1], to[0], to[2], to[3]);
    let refused = again.refused(&format!("clone 1 {list}\n"));
    assert!(
        refused.contains("1 of 4 got no copy") && refused.contains("# failed io2/"),
        "{refused}"
    );
    for at in [0, 2, 3] {
        sessions[at].write("ctl", "exec\n");
        assert_eq!(sessions[at].read("wait"), "0\n", "{}", nodes[at]);
    }
}

/// clone arch uname env procs state ctl
const ROOT_NAMES: usize = 7;
