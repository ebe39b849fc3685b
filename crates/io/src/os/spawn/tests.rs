use super::*;
use rustix::process::Pid;
use std::ffi::CString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(work)
}

fn shell(script: &str) -> Command {
    let words = ["sh", "-c", script];
    let own = crate::os::credentials::own();
    Command {
        program: PathBuf::from("sh"),
        argv: words.map(|word| CString::new(word).unwrap()).into(),
        env: vec![c"PATH=/usr/bin:/bin".into(), c"WORD=quail".into()],
        directory: PathBuf::from("/"),
        uid: own.0,
        gid: own.1,
        groups: vec![own.1],
        processes_max: None,
        stdio: Stdio::Pipes,
        cgroup: None,
    }
}

async fn all(pipe: &Pipe) -> String {
    let mut all = Vec::new();
    loop {
        let more = pipe.read(1 << 20).await.unwrap();
        if more.is_empty() {
            return String::from_utf8(all).unwrap();
        }
        all.extend(more);
    }
}

/// Whether the process is there and has not ended.
fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

async fn until(what: &str, mut is: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is() {
        assert!(begin.elapsed() < Duration::from_secs(30), "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn a_program_reads_writes_and_ends() {
    let starter = Starter::fork().unwrap();
    block_on(async {
        let script = "read line; echo got $line in $(pwd) for $WORD; echo oops >&2; exit 3";
        let started = starter.start(&shell(script)).unwrap();
        assert!(matches!(started.keeper.next().await, Event::Started(_)));
        assert_eq!(started.stdin.write(b"hello\n").await.unwrap(), 6);
        assert_eq!(all(&started.stdout).await, "got hello in / for quail\n");
        assert_eq!(all(started.stderr.as_ref().unwrap()).await, "oops\n");
        assert_eq!(started.keeper.next().await, Event::Ended(3 << 8));
        assert_eq!(started.keeper.next().await, Event::Gone);
    });
}

#[test]
fn what_cannot_be_started_says_why() {
    let starter = Starter::fork().unwrap();
    block_on(async {
        for (change, errno, stage) in [
            (
                (|command| command.program = "/no/such".into()) as fn(&mut Command),
                libc::ENOENT,
                Stage::Program,
            ),
            (|command| command.program = "no-such-program".into(), libc::ENOENT, Stage::Program),
            (|command| command.program = "/etc/passwd".into(), libc::EACCES, Stage::Program),
            (|command| command.directory = "/no/such".into(), libc::ENOENT, Stage::Directory),
        ] {
            let mut command = shell("true");
            change(&mut command);
            let started = starter.start(&command).unwrap();
            assert_eq!(started.keeper.next().await, Event::Failed(errno, stage), "{command:?}");
            assert_eq!(started.keeper.next().await, Event::Gone);
        }
    });
}

#[test]
fn no_descendant_escapes() {
    let starter = Starter::fork().unwrap();
    block_on(async {
        // A daemon: a session of its own, and no parent.
        let script = "setsid sh -c 'trap \"\" TERM HUP; echo $$; while :; do sleep 1; done' & wait";
        for how in ["kill", "drop"] {
            let started = starter.start(&shell(script)).unwrap();
            assert!(matches!(started.keeper.next().await, Event::Started(_)));
            let pid = String::from_utf8(started.stdout.read(100).await.unwrap()).unwrap();
            let signalled = started.keeper.signal(libc::SIGTERM);
            assert_eq!(started.keeper.next().await, Event::Ended(libc::SIGTERM));
            assert!(signalled.await.is_ok());
            assert!(is_alive(&pid), "it has left the group");
            if how == "kill" {
                started.keeper.kill();
                assert_eq!(started.keeper.next().await, Event::Gone);
                assert!(!is_alive(&pid));
            } else {
                drop(started);
            }
            until("the descendant is gone", || !is_alive(&pid)).await;
        }
    });
}

#[test]
fn a_signal_that_the_kernel_refuses_is_an_error() {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    if !crate::os::credentials::can_switch() {
        return covey_harness::skip("to become another user takes root");
    }
    // As under a unit without it. The starter and what comes of it have what this thread has.
    let all = capabilities(None).unwrap();
    let mut fewer = all;
    fewer.effective.remove(CapabilitySet::KILL);
    fewer.permitted.remove(CapabilitySet::KILL);
    let starter = std::thread::spawn(move || {
        set_capabilities(None, fewer).unwrap();
        Starter::fork().unwrap()
    });
    let starter = starter.join().unwrap();
    block_on(async {
        let mut command = shell("read line; exit 3");
        (command.uid, command.gid, command.groups) = (4321, 1234, vec![1234]);
        let started = starter.start(&command).unwrap();
        assert!(matches!(started.keeper.next().await, Event::Started(_)));
        let (first, second) = (started.keeper.signal(libc::SIGTERM), started.keeper.signal(0));
        // Before its end: to signal one that has ended is no error.
        let signalled = tokio::select! {
            signalled = async { [first.await, second.await] } => signalled,
            event = started.keeper.next() => panic!("{event:?}"),
        };
        for signalled in signalled {
            assert_eq!(signalled.unwrap_err().raw_os_error(), Some(libc::EPERM));
        }
        // It is never ended by signals, and goes on by its input.
        started.stdin.write(b"go on\n").await.unwrap();
        assert_eq!(started.keeper.next().await, Event::Ended(3 << 8));
    });
}

#[test]
fn what_cannot_be_killed_is_told_once_and_waited_for() {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    if !crate::os::credentials::can_switch() {
        return covey_harness::skip("to become another user takes root");
    }
    let mut fewer = capabilities(None).unwrap();
    fewer.effective.remove(CapabilitySet::KILL);
    fewer.permitted.remove(CapabilitySet::KILL);
    let starter = std::thread::spawn(move || {
        set_capabilities(None, fewer).unwrap();
        Starter::fork().unwrap()
    });
    let starter = starter.join().unwrap();
    block_on(async {
        let mut command = shell("read line; exit 3");
        (command.uid, command.gid, command.groups) = (4321, 1234, vec![1234]);
        let started = starter.start(&command).unwrap();
        let Event::Started(pid) = started.keeper.next().await else { panic!("it has not started") };
        started.keeper.kill();
        assert_eq!(started.keeper.next().await, Event::Refused(pid));
        started.stdin.write(b"go on\n").await.unwrap();
        assert_eq!(started.keeper.next().await, Event::Ended(3 << 8));
        assert_eq!(started.keeper.next().await, Event::Gone);
    });
}

#[test]
fn a_program_whose_starter_has_lost_its_daemon_ends() {
    let starter = Starter::fork().unwrap();
    block_on(async {
        let started = starter.start(&shell("echo $$; exec sleep 1000")).unwrap();
        let pid = String::from_utf8(started.stdout.read(100).await.unwrap()).unwrap();
        drop(starter);
        assert!(is_alive(&pid), "the keeper is not the starter's");
        // What a daemon's end does: its descriptors close.
        drop(started);
        until("the program is gone", || !is_alive(&pid)).await;
    });
}

#[test]
fn a_program_has_the_user_and_groups_that_were_asked_for() {
    if !crate::os::credentials::can_switch() {
        return covey_harness::skip("to become another user takes root");
    }
    let starter = Starter::fork().unwrap();
    block_on(async {
        let script = "id -u; id -g; id -G; ulimit -c; ulimit -n; grep NoNewPrivs /proc/self/status";
        let mut command = shell(script);
        (command.uid, command.gid, command.groups) = (4321, 1234, vec![1234, 77]);
        let started = starter.start(&command).unwrap();
        let said = all(&started.stdout).await;
        let lines: Vec<_> = said.lines().collect();
        assert_eq!(lines[..4], ["4321", "1234", "1234 77", "0"]);
        assert!(lines[4].parse::<u64>().unwrap() <= 1024, "{said}");
    });
}

#[test]
fn a_program_gets_a_terminal_of_the_size_asked_for() {
    let starter = Starter::fork().unwrap();
    block_on(async {
        let mut command = shell("stty size; read line; stty size; echo got $line");
        command.stdio = Stdio::Terminal(WindowSize { rows: 7, columns: 77 });
        let started = match starter.start(&command) {
            Ok(started) => started,
            Err(error) => return covey_harness::skip(format!("no terminals here: {error}")),
        };
        assert!(started.stderr.is_none());
        assert_eq!(started.stdout.read(100).await.unwrap(), b"7 77\r\n");
        started.stdin.resize(WindowSize { rows: 8, columns: 88 }).unwrap();
        started.stdin.write(b"quail\n").await.unwrap();
        let said = all(&started.stdout).await;
        assert!(said.ends_with("8 88\r\ngot quail\r\n"), "{said:?}");
    });
}

#[test]
fn a_thousand_programs_leave_nothing_behind() {
    let starter = Starter::fork().unwrap();
    block_on(async {
        let files = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let mut before = None;
        for n in 0..200 {
            let started = starter.start(&shell("sleep 1000 & exit 0")).unwrap();
            let keeper = &started.keeper;
            assert!(matches!(keeper.next().await, Event::Started(_)));
            assert_eq!(keeper.next().await, Event::Ended(0));
            keeper.kill();
            assert_eq!(keeper.next().await, Event::Gone);
            drop(started);
            if n == 10 {
                before = Some(files());
            }
        }
        // Other tests run beside this one and hold some.
        assert!(files() < before.unwrap() + 50);
        let mut status = 0;
        // SAFETY: there is a place for the status.
        let left = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
        assert!(left <= 0 || Pid::from_raw(left).is_some());
    });
}
