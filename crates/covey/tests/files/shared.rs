//! 9P between processes of one machine through shared memory: `shm!PATH`.

use crate::support::command::copy_program;
use crate::support::{Finished, covey, run, skip, until};
use covey_cluster::net;
use covey_io::os::net::Address;
use covey_ninep::client::{CallError, Conn, Fid};
use covey_ninep::message::Message;
use covey_wire::{BytesMut, List, Name};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// An export of a directory in memory.
struct Export {
    dir: TempDir,
    socket: PathBuf,
    server: Child,
}

impl Export {
    fn new() -> Export {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let served = dir.path().join("served");
        fs::create_dir(&served).unwrap();
        for path in [dir.path(), &served] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let socket = dir.path().join("socket");
        let mut export = covey();
        export.arg("export").arg(&served).arg("--listen").arg(format!("unix!{}", socket.display()));
        let server = export.stdout(Stdio::null()).spawn().unwrap();
        until("the export", || UnixStream::connect(&socket).is_ok());
        Export { dir, socket, server }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join("served").join(name)
    }

    /// The address, by one way or the other.
    fn at(&self, how: &str) -> String {
        format!("{how}!{}", self.socket.display())
    }

    fn run(&self, how: &str, verb: &[&str], path: &str) -> Finished {
        let mut command = covey();
        command.arg("9p").args(verb).arg(self.at(how)).arg(path);
        run(command)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.server), signal).unwrap();
    }

    /// What the server has open and mapped for shared memory.
    fn shared(&self) -> usize {
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.server.id())).unwrap();
        maps.lines().filter(|line| line.contains("memfd:covey-uzura")).count()
    }

    fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.server.id())).unwrap().count()
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn noise(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 % 253) as u8).collect()
}

#[test]
fn one_socket_serves_both_ways() {
    let export = Export::new();
    let bytes = noise(5_000_003);
    fs::write(export.file("large"), &bytes).unwrap();
    fs::write(export.file("small"), "hello\n").unwrap();
    for how in ["shm", "unix"] {
        assert_eq!(export.run(how, &["ls"], "/").stdout, "large\nsmall\n", "{how}");
        assert_eq!(export.run(how, &["cat"], "/small").stdout, "hello\n", "{how}");
        let cat = covey().args(["9p", "cat", &export.at(how), "/large"]).output().unwrap();
        assert!(cat.status.success() && cat.stdout == bytes, "{how}");
        let mut write = covey();
        write.args(["9p", "write", "--create", &export.at(how), "/written"]);
        let mut child = write.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(&bytes).unwrap();
        assert!(child.wait().unwrap().success(), "{how}");
        assert!(fs::read(export.file("written")).unwrap() == bytes, "{how}");
        assert!(export.run(how, &["rm"], "/written").ok, "{how}");
        export.run(how, &["cat"], "/missing").says(&["no such file or directory"]);
    }
}

async fn dial(address: &Address) -> (Conn, Fid) {
    let conn = net::dial(address, "/", None, &tokio::runtime::Handle::current()).await.unwrap();
    let fid = Fid::new(&conn);
    let names = List(vec![Name::from("large")]);
    conn.call(Message::Twalk { fid: 0, newfid: fid.number(), names }).await.unwrap();
    conn.call(Message::Tlopen { fid: fid.number(), flags: 0 }).await.unwrap();
    (conn, fid)
}

#[test]
fn reads_into_the_callers_buffers_are_the_same_both_ways() {
    let export = Export::new();
    let bytes = noise(5_000_003);
    fs::write(export.file("large"), &bytes).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for address in
            [Address::Shared(export.socket.clone()), Address::Unix(export.socket.clone())]
        {
            let (conn, fid) = dial(&address).await;
            // Of many sizes, several at a time, and other calls between them; some are dropped on their way.
            for round in 0..20_usize {
                let reads: Vec<_> = (0..6)
                    .map(|index| {
                        let offset = (round * 251_003 + index * 700_001) % bytes.len();
                        let length = [1, 5000, 20_000, 300_001, 900_000, 1 << 20][index];
                        let length = length.min(conn.payload_max() as usize);
                        let buffer = BytesMut::zeroed(length);
                        (offset, conn.read_into(fid.number(), offset as u64, buffer))
                    })
                    .collect();
                let small = conn.call(Message::Tgetattr { fid: fid.number(), request_mask: 1 });
                for (index, (offset, read)) in reads.into_iter().enumerate() {
                    if (index + round) % 5 == 0 {
                        drop(read);
                        continue;
                    }
                    let got = read.await.unwrap();
                    let end = bytes.len().min(offset + got.capacity());
                    assert!(!got.is_empty() || offset == end, "{address} {round} {index}");
                    assert!(got == bytes[offset..][..got.len()], "{address} {round} {index}");
                }
                assert!(matches!(small.await.unwrap(), Message::Rgetattr { .. }));
            }
        }
    });
}

/// Wherever the server is stopped, its part of a copy is waited for.
#[test]
fn a_server_that_is_stopped_and_goes_on_leaves_no_byte_out() {
    let export = Export::new();
    let bytes = noise(8 << 20);
    fs::write(export.file("large"), &bytes).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let pid = Pid::from_child(&export.server);
    let stopper = std::thread::spawn(move || {
        for round in 0..60 {
            std::thread::sleep(Duration::from_micros(round * 37 % 1000));
            kill_process(pid, Signal::STOP).unwrap();
            std::thread::sleep(Duration::from_micros(round * 53 % 3000));
            kill_process(pid, Signal::CONT).unwrap();
        }
    });
    runtime.block_on(async {
        let (conn, fid) = dial(&Address::Shared(export.socket.clone())).await;
        let mut buffer = BytesMut::zeroed(1 << 20);
        let mut index = 0;
        while !stopper.is_finished() || index < 8 {
            let offset = index % 8 * (1 << 20);
            buffer.fill(0xff);
            buffer = conn.read_into(fid.number(), offset as u64, buffer).await.unwrap();
            assert!(buffer == bytes[offset..][..1 << 20], "read {index}");
            index += 1;
        }
    });
    stopper.join().unwrap();
}

/// A wait on a socket that has a time limit is interrupted there.
#[test]
fn a_server_that_is_stopped_while_they_meet_is_met_when_it_goes_on() {
    let export = Export::new();
    fs::write(export.file("large"), b"little").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let pid = Pid::from_child(&export.server);
    let stopper = std::thread::spawn(move || {
        for round in 0..300 {
            std::thread::sleep(Duration::from_micros(round * 37 % 1000));
            kill_process(pid, Signal::STOP).unwrap();
            kill_process(pid, Signal::CONT).unwrap();
        }
    });
    runtime.block_on(async {
        while !stopper.is_finished() {
            dial(&Address::Shared(export.socket.clone())).await;
        }
    });
    stopper.join().unwrap();
}

#[test]
fn reads_from_a_server_that_is_killed_end_with_an_error() {
    let export = Export::new();
    fs::write(export.file("large"), noise(8 << 20)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (conn, fid) = dial(&Address::Shared(export.socket.clone())).await;
        let read = |index: u64| {
            let (fid, offset) = (fid.number(), (index % 8) << 20);
            conn.call(Message::Tread { fid, offset, count: 1 << 20 })
        };
        let first: Vec<_> = (0..8).map(read).collect();
        for read in first {
            read.await.expect("the server is there");
        }
        // It is stopped, so that it cannot answer what is asked now.
        export.signal(Signal::STOP);
        let reads: Vec<_> = (0..50).map(read).collect();
        tokio::task::yield_now().await;
        export.signal(Signal::KILL);
        let mut lost = 0;
        for read in reads {
            match read.await {
                Err(CallError::Lost(_)) => lost += 1,
                Ok(_) => {}
                Err(other) => panic!("{other}"),
            }
        }
        assert!(lost > 0);
        assert!(matches!(read(0).await, Err(CallError::Lost(_))));
    });
}

#[test]
fn a_server_lets_go_of_a_client_that_was_killed() {
    let export = Export::new();
    fs::write(export.file("large"), noise(64 << 20)).unwrap();
    let descriptors = export.descriptors();
    let cat = |stdout| {
        let mut command = covey();
        command.args(["9p", "cat", &export.at("shm"), "/large"]).stdout(stdout).spawn().unwrap()
    };
    for _ in 0..3 {
        let mut client = cat(Stdio::piped());
        // In the middle of it: nobody takes the rest.
        client.stdout.as_mut().unwrap().read_exact(&mut [0; 1000]).unwrap();
        assert!(export.shared() > 0, "it is through shared memory");
        client.kill().unwrap();
        client.wait().unwrap();
        until("the server lets go", || export.shared() == 0 && export.descriptors() == descriptors);
    }
    assert!(cat(Stdio::null()).wait().unwrap().success(), "others are served on");
}

#[test]
fn another_users_process_is_refused_and_served_by_the_socket() {
    if !rustix::process::geteuid().is_root() {
        return skip("needs root, to be another user");
    }
    const NOBODY: u32 = 65_534;
    let export = Export::new();
    fs::write(export.file("small"), "hello\n").unwrap();
    // Where everybody may run it.
    let program = export.dir.path().join("covey");
    copy_program(&program);
    let cat = |how: &str| {
        let mut command = Command::new(&program);
        command.args(["9p", "cat", &export.at(how), "/small"]).current_dir("/").uid(NOBODY);
        run(command)
    };
    cat("shm").says(&["does not share memory", "unix!PATH works"]);
    let plain = cat("unix");
    assert_eq!(plain.stdout, "hello\n", "{plain}");
}

#[test]
fn a_server_that_knows_no_shared_memory_is_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let listener = UnixListener::bind(&socket).unwrap();
    let server = std::thread::spawn(move || {
        // As servers do whose first four bytes are a length that they do not take.
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; 4]).unwrap();
    });
    let mut command = covey();
    command.args(["9p", "ls", &format!("shm!{}", socket.display()), "/"]);
    run(command).says(&["cannot connect to shm!"]);
    server.join().unwrap();
}
