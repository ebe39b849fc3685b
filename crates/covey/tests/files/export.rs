//! What `covey export` answers when requests are sent without waiting: in the order in which they were sent,
//! whatever becomes of the files meanwhile.

use crate::support::bytes::{assert_same, noise};
use crate::support::command::copy_program;
use crate::support::{covey, until};
use covey_ninep::message::{Dialect, Message, NOFID, NOTAG, Number};
use covey_wire::{Bytes, List, Segments};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tempfile::TempDir;

/// A file system in memory, whose files are mapped when they are read from often.
const IN_MEMORY: &str = "/dev/shm";
const FILE_BYTES: usize = 4 << 20;
const FID: u32 = 1;

/// A directory with one file, served until the end of the test.
struct Export {
    dir: TempDir,
    address: String,
    child: Child,
}

impl Export {
    fn new(place: &Path, content: &[u8]) -> Export {
        let dir = tempfile::Builder::new().prefix("covey-e2e-export").tempdir_in(place).unwrap();
        fs::write(dir.path().join("file"), content).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = format!("127.0.0.1:{port}");
        let mut command = covey();
        let listen = format!("tcp!127.0.0.1!{port}");
        command.arg("export").arg(dir.path()).args(["--listen", &listen]).stdout(Stdio::null());
        let child = command.spawn().unwrap();
        until("the export", || TcpStream::connect(&address).is_ok());
        Export { dir, address, child }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("file")
    }

    /// A client that has opened the file for reading and writing, and read so much that it is mapped.
    fn client(&self) -> Client {
        let mut client = Client { stream: TcpStream::connect(&self.address).unwrap() };
        let version = Message::Tversion { msize: 1 << 20, version: "9P2000.L".into() };
        client.send(&[(NOTAG, version)]);
        client.replies(1);
        let n_uname = Number(rustix::process::geteuid().as_raw());
        let (uname, aname) = ("".into(), "/".into());
        let attach = Message::Tattach { fid: 0, afid: NOFID, uname, aname, n_uname };
        let walk = Message::Twalk { fid: 0, newfid: FID, names: List(vec!["file".into()]) };
        client.send(&[(1, attach), (2, walk), (3, Message::Tlopen { fid: FID, flags: 2 })]);
        client.replies(3);
        let reads: Vec<_> = (0..200).map(|tag| (tag, read(0, 4096))).collect();
        client.send(&reads);
        client.replies(200);
        client
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Client {
    stream: TcpStream,
}

impl Client {
    /// Sends all in one write.
    fn send(&mut self, requests: &[(u16, Message)]) {
        self.stream.write_all(&bytes_of(requests)).unwrap();
    }

    /// So many replies, none of them an error.
    fn replies(&mut self, count: usize) -> Vec<(u16, Message)> {
        (0..count).map(|_| self.reply()).collect()
    }

    fn reply(&mut self) -> (u16, Message) {
        let mut size = [0; 4];
        self.stream.read_exact(&mut size).expect("the connection holds");
        let mut frame = size.to_vec();
        frame.resize(u32::from_le_bytes(size) as usize, 0);
        self.stream.read_exact(&mut frame[4..]).expect("the message is whole");
        let reply = Message::get(frame.into(), Dialect::Linux).expect("it is a message");
        assert!(!matches!(reply.1, Message::Rlerror { .. }), "{reply:?}");
        reply
    }

    /// The data of the next `count` replies, by tag; other replies have none.
    fn data(&mut self, count: usize) -> Vec<(u16, Bytes)> {
        let data = |message| match message {
            Message::Rread { data } => data.into_bytes(),
            _ => Bytes::new(),
        };
        self.replies(count).into_iter().map(|(tag, reply)| (tag, data(reply))).collect()
    }
}

fn bytes_of(requests: &[(u16, Message)]) -> Vec<u8> {
    let mut out = Segments::new();
    requests.iter().for_each(|(tag, request)| request.put(*tag, Dialect::Linux, &mut out));
    out.runs().flatten().copied().collect()
}

fn read(offset: usize, count: u32) -> Message {
    Message::Tread { fid: FID, offset: offset as u64, count }
}

fn write(offset: usize, data: Vec<u8>) -> Message {
    Message::Twrite { fid: FID, offset: offset as u64, data: data.into() }
}

fn cut(size: u64) -> Message {
    const SIZE: u32 = 8;
    let (mode, uid, gid) = (0, 0, 0);
    let (atime_sec, atime_nsec, mtime_sec, mtime_nsec) = (0, 0, 0, 0);
    let valid = SIZE;
    Message::Tsetattr {
        fid: FID,
        valid,
        mode,
        uid,
        gid,
        size,
        atime_sec,
        atime_nsec,
        mtime_sec,
        mtime_nsec,
    }
}

/// Where files are in memory, and where they may not be.
fn places() -> [PathBuf; 2] {
    [IN_MEMORY.into(), env!("CARGO_TARGET_TMPDIR").into()]
}

#[test]
fn reads_and_writes_that_overlap_keep_their_order_however_many_are_sent_at_once() {
    for place in places() {
        let mut model = noise(1, FILE_BYTES);
        let export = Export::new(&place, &model);
        let mut client = export.client();
        let (mut requests, mut wanted) = (Vec::new(), Vec::new());
        // 900 at the same few places: reads of one and two pages around writes of any size.
        for tag in 0..900 {
            let place = usize::from(tag) * 37 % 11 * 1000;
            if tag % 3 == 1 {
                let data = noise(tag.into(), 1 + usize::from(tag) * 13 % 5000);
                model[place..place + data.len()].copy_from_slice(&data);
                requests.push((tag, write(place, data)));
                wanted.push(Bytes::new());
            } else {
                let count = if tag % 2 == 0 { 4096 } else { 8192 };
                requests.push((tag, read(place, count)));
                wanted.push(Bytes::copy_from_slice(&model[place..place + count as usize]));
            }
        }
        // Nothing is taken until all has been sent: the server has to keep what it cannot send.
        client.send(&requests);
        let mut replies = client.data(requests.len());
        replies.sort_by_key(|(tag, _)| *tag);
        for ((tag, got), wanted) in replies.iter().zip(&wanted) {
            assert!(got == wanted, "{}: answer {tag} is of another time", place.display());
        }
        assert_same(&fs::read(export.path()).unwrap(), &model, "the file in the end");
    }
}

#[test]
fn large_writes_are_whole_in_order_and_told_to_the_file_system() {
    for place in places() {
        let mut model = noise(5, FILE_BYTES);
        let export = Export::new(&place, &model);
        let mut client = export.client();
        let before = fs::metadata(export.path()).unwrap();
        let (mut requests, mut wanted) = (Vec::new(), Vec::new());
        // Large writes in a row, which go straight into the file, over one another, over the end, and
        // with reads and short writes among them.
        for tag in 0..200u16 {
            let n = usize::from(tag);
            let place = n * 7919 * 13 % (FILE_BYTES + 100_000);
            if n % 10 == 7 {
                let place = place.min(FILE_BYTES - 4096);
                requests.push((tag, read(place, 4096)));
                wanted.push(model[place..place + 4096].to_vec());
                continue;
            }
            let data = noise(n as u64, if n % 10 == 3 { 100 } else { 20_000 + n * 1001 });
            model.resize(model.len().max(place + data.len()), 0);
            model[place..place + data.len()].copy_from_slice(&data);
            requests.push((tag, write(place, data)));
            wanted.push(Vec::new());
        }
        let bytes = bytes_of(&requests);
        let mut sender = client.stream.try_clone().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                // In pieces that have nothing to do with the messages.
                for piece in bytes.chunks(300_007) {
                    sender.write_all(piece).unwrap();
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
            });
            for (tag, got) in client.data(requests.len()) {
                assert!(got == wanted[usize::from(tag)], "{}: answer {tag}", place.display());
            }
        });
        assert_same(&fs::read(export.path()).unwrap(), &model, "the file in the end");
        let after = fs::metadata(export.path()).unwrap();
        assert!(after.modified().unwrap() > before.modified().unwrap());
    }
}

#[test]
fn of_a_write_that_is_cut_off_nothing_is_written() {
    let content = noise(6, FILE_BYTES);
    let export = Export::new(Path::new(IN_MEMORY), &content);
    let mut client = export.client();
    // The second is expected to be large, too.
    client.send(&[(1, write(0, content[..100_000].to_vec()))]);
    client.replies(1);
    let bytes = bytes_of(&[(2, write(200_000, vec![b'x'; 100_000]))]);
    client.stream.write_all(&bytes[..60_000]).unwrap();
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut rest = Vec::new();
    let _ = client.stream.read_to_end(&mut rest);
    assert!(rest.is_empty(), "it is not answered");
    assert_same(&fs::read(export.path()).unwrap(), &content, "the file");
}

#[test]
fn a_read_before_a_truncation_is_whole_and_one_after_it_is_cut() {
    for place in places() {
        let content = noise(2, FILE_BYTES);
        let export = Export::new(&place, &content);
        let mut client = export.client();
        let at = 2 << 20;
        let requests = [
            (1, read(at, 4096)),
            (2, cut(at as u64 + 1000)),
            (3, read(at, 4096)),
            (4, cut(0)),
            (5, read(at, 4096)),
            (6, cut(FILE_BYTES as u64)),
            (7, read(at, 4096)),
        ];
        client.send(&requests);
        let mut replies = client.data(requests.len());
        replies.sort_by_key(|(tag, _)| *tag);
        let of = |tag: usize| &replies[tag - 1].1[..];
        assert_same(of(1), &content[at..at + 4096], "before");
        assert_same(of(3), &content[at..at + 1000], "after the first cut");
        assert_same(of(5), &[], "of nothing");
        assert_same(of(7), &[0; 4096], "of a hole");
    }
}

#[test]
fn a_file_that_others_cut_all_the_time_is_answered_in_whole_messages() {
    let content: Vec<u8> = noise(3, FILE_BYTES).iter().map(|byte| byte | 1).collect();
    let export = Export::new(Path::new(IN_MEMORY), &content);
    let mut client = export.client();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = File::options().write(true).open(export.path()).unwrap();
            for round in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let left = round * 7919 * 1001 % FILE_BYTES;
                file.set_len(left as u64).unwrap();
                file.write_all_at(&content[left..], left as u64).unwrap();
            }
        });
        let (mut lost, mut cut_short) = (0, 0);
        for round in 0..300 {
            let place =
                |tag: u16| (usize::from(tag) * 4096 * 9 + round * 512) % (FILE_BYTES - 8192);
            let requests: Vec<_> = (0..64).map(|tag| (tag, read(place(tag), 4096))).collect();
            client.send(&requests);
            for (tag, got) in client.data(64) {
                let was = &content[place(tag)..][..got.len()];
                // A byte is what it was or, where the file was cut meanwhile, zero.
                assert!(
                    got.iter().zip(was).all(|(got, was)| got == was || *got == 0),
                    "read {tag}"
                );
                lost += usize::from(got.contains(&0));
                cut_short += usize::from(got.len() < 4096);
            }
        }
        is_over.store(true, Ordering::Relaxed);
        println!("{lost} of 19200 replies have zeros, {cut_short} are short");
    });
}

#[test]
fn to_read_a_hole_takes_no_memory() {
    let export = Export::new(Path::new(IN_MEMORY), &noise(4, FILE_BYTES));
    let file = File::options().write(true).open(export.path()).unwrap();
    let mut client = export.client();
    file.set_len(4096).unwrap();
    file.set_len(FILE_BYTES as u64).unwrap();
    let blocks = file.metadata().unwrap().blocks();
    let requests: Vec<_> = (0..500).map(|tag| (tag, read(usize::from(tag) * 8192, 4096))).collect();
    client.send(&requests[1..]);
    assert!(client.data(499).iter().all(|(_, got)| got[..] == [0; 4096]));
    assert_eq!(file.metadata().unwrap().blocks(), blocks);
}

/// Root may read everything, so it is another user that tries.
#[test]
fn a_directory_that_cannot_be_read_is_refused_at_the_start() {
    let dir = tempfile::tempdir().expect("a directory");
    let (covey, closed) = (dir.path().join("covey"), dir.path().join("closed"));
    copy_program(&covey);
    fs::create_dir(&closed).expect("a directory");
    for (path, mode) in [(dir.path(), 0o755), (&covey, 0o755), (&closed, 0o000)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
    }
    for mode in [0o000, 0o744] {
        fs::set_permissions(&closed, fs::Permissions::from_mode(mode)).expect("it is ours");
        if !crate::support::is_root() && mode != 0 {
            continue;
        }
        let mut command = std::process::Command::new(&covey);
        command
            .arg("export")
            .arg(&closed)
            .args(["--listen", "unix!/nowhere/socket"])
            .current_dir("/");
        if crate::support::is_root() {
            command.uid(65_534).gid(65_534);
        }
        let done = crate::support::run_within(command, Duration::from_secs(20));
        assert!(!done.ok && done.stderr.contains("ermission denied"), "{done}");
        assert!(done.stderr.contains("hint: run as its owner"), "{done}");
        assert!(done.stderr.contains(closed.to_str().expect("text")), "{done}");
    }
}
