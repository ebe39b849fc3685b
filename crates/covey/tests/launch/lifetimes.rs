//! What is left of sessions when they, their clients or their nodes end, and what clients can do to a node.

use crate::nine::{Nine, O_RDONLY, O_RDWR, O_WRONLY, ROOT};
use crate::run::{Beside, cluster};
use crate::support::{Cluster, is_root, skip, until};
use covey_ninep::message::Message;
use covey_wire::{List, Name};
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

const EACCES: u32 = 13;
const EDQUOT: u32 = 122;
const EFBIG: u32 = 27;
const E2BIG: u32 = 7;

/// A client of a node's sessions.
struct Client(Nine);

impl Client {
    fn new(cluster: &Cluster, node: &str, uid: u32) -> Client {
        Client(Nine::attach(&socket(cluster, node), "/xcpu", uid))
    }

    fn own(cluster: &Cluster, node: &str) -> Client {
        Client::new(cluster, node, rustix::process::geteuid().as_raw())
    }

    fn walk(&mut self, path: &str, fid: u32) -> Result<(), u32> {
        let names: Vec<Name> = path.split('/').map(Name::from).collect();
        let count = names.len();
        match self.0.call(Message::Twalk { fid: ROOT, newfid: fid, names: List(names) })? {
            Message::Rwalk { qids } if qids.0.len() == count => Ok(()),
            _ => Err(2),
        }
    }

    fn open(&mut self, path: &str, fid: u32, flags: u32) -> Result<(), u32> {
        self.walk(path, fid)?;
        let opened = self.0.call(Message::Tlopen { fid, flags }).map(drop);
        if opened.is_err() {
            self.0.clunk(fid);
        }
        opened
    }

    fn read(&mut self, fid: u32) -> String {
        match self.0.call(Message::Tread { fid, offset: 0, count: 4096 }) {
            Ok(Message::Rread { data }) => String::from_utf8(data.into_bytes().to_vec()).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    /// Makes a session, which `fid` holds; its number.
    fn make(&mut self, fid: u32) -> Result<String, u32> {
        self.open("clone", fid, O_RDONLY)?;
        Ok(self.read(fid).trim().to_owned())
    }

    fn write(&mut self, path: &str, fid: u32, data: &[u8]) -> Result<(), u32> {
        self.open(path, fid, O_WRONLY)?;
        let written = self.0.write(fid, 0, data);
        self.0.clunk(fid);
        written
    }

    /// How many sessions the node says that it has.
    fn sessions(&mut self) -> usize {
        self.open("ctl", 9000, O_RDONLY).unwrap();
        let text = self.read(9000);
        self.0.clunk(9000);
        text.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

fn socket(cluster: &Cluster, node: &str) -> PathBuf {
    cluster.config().with_file_name("run").join(format!("{node}.sock"))
}

/// Open files of a node's process, and its children and theirs.
fn resources(cluster: &Cluster, node: &str) -> (usize, usize) {
    let pid = cluster.pid(node).as_raw_nonzero();
    let files = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    (files, family(pid.get() as u32))
}

fn family(pid: u32) -> usize {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    children.split_whitespace().map(|child| 1 + family(child.parse().unwrap())).sum()
}

fn scratch(cluster: &Cluster, node: &str) -> Vec<PathBuf> {
    let pid = cluster.pid(node).as_raw_nonzero();
    let user = rustix::process::geteuid().as_raw();
    let name = |number| format!("covey-xcpu-{user}-{node}-{pid}-{number}");
    let above = [std::env::temp_dir(), PathBuf::from("/dev/shm")];
    let places = above.iter().flat_map(|above| (0..3).map(|number| above.join(name(number))));
    places.filter(|place| place.exists()).collect()
}

/// COVEY_SESSIONS=10000 runs it at full length.
#[test]
fn sessions_in_a_loop_leave_no_process_no_file_and_nothing_open() {
    let cluster = cluster(1);
    let count = std::env::var("COVEY_SESSIONS").map_or(200, |count| count.parse().unwrap());
    let mut client = Client::own(&cluster, "io1");
    let one = |client: &mut Client, round: usize| {
        let number = client.make(10).unwrap();
        client.write(&format!("{number}/argv"), 11, b"sh -c 'echo x; exit 3'").unwrap();
        let command: &[u8] =
            if round.is_multiple_of(2) { b"exec /bin/sh\n" } else { b"type normal\n" };
        client.write(&format!("{number}/ctl"), 11, command).unwrap();
        if round.is_multiple_of(2) {
            client.open(&format!("{number}/stdout"), 12, O_RDONLY).unwrap();
            assert_eq!(client.read(12), "x\n");
            client.open(&format!("{number}/wait"), 13, O_RDONLY).unwrap();
            assert_eq!(client.read(13).trim(), "768");
            client.0.clunk(12);
            client.0.clunk(13);
        }
        client.0.clunk(10);
    };
    (0..4).for_each(|round| one(&mut client, round));
    until("the first sessions are gone", || {
        scratch(&cluster, "io1").iter().all(|dir| fs::read_dir(dir).unwrap().count() == 0)
    });
    let before = resources(&cluster, "io1");
    (0..count).for_each(|round| one(&mut client, round));
    assert_eq!(client.sessions(), 0);
    until("nothing is left of them", || {
        let is_empty = |dir: &PathBuf| fs::read_dir(dir).unwrap().count() == 0;
        let now = resources(&cluster, "io1");
        scratch(&cluster, "io1").iter().all(is_empty) && now.0 <= before.0 && now.1 <= before.1
    });
}

#[test]
fn the_sessions_of_a_killed_command_end_on_every_node() {
    let cluster = cluster(3);
    let script = "sleep 7913 & echo $$; exec sleep 7913";
    let words = ["run", "--all", "--local", "--ppn", "2", "sh", "-c", script];
    let mut beside = Beside::covey(&cluster, &words);
    let pids: Vec<String> = (0..8).map(|_| beside.line()).collect();
    let nodes = ["meta", "io1", "io2", "io3"];
    let mut clients = nodes.map(|node| Client::own(&cluster, node));
    assert_eq!(clients.each_mut().map(Client::sessions), [2; 4]);
    beside.kill();
    let killed = Instant::now();
    until("all are gone", || {
        pids.iter().all(|pid| !fs::exists(format!("/proc/{pid}")).unwrap())
            && clients.each_mut().map(Client::sessions) == [0; 4]
    });
    println!("gone on four nodes after {:?}", killed.elapsed());
}

#[test]
fn when_a_node_is_killed_the_rest_of_the_job_is_told_of_and_goes_on() {
    let cluster = cluster(3);
    let flag = cluster.scratch("go");
    let script = "echo $$; while [ ! -e $0 ]; do sleep 0.1; done; exit 4";
    let words = ["run", "-w", "io[1-3]", "--local", "sh", "-c", script, flag.to_str().unwrap()];
    let mut beside = Beside::covey(&cluster, &words);
    let pids: Vec<String> = (0..3).map(|_| beside.line()).collect();
    cluster.kill("io2");
    until("what the killed node ran is gone", || {
        pids.iter().filter(|pid| fs::exists(format!("/proc/{pid}")).unwrap()).count() == 2
    });
    fs::write(&flag, "").unwrap();
    assert_eq!(beside.code(), Some(254));
    let said = beside.said();
    assert!(said.contains("io2") && said.contains("io1,io3") || said.contains("io[1,3]"), "{said}");
}

#[test]
fn a_user_gets_so_many_sessions_and_no_more() {
    let cluster = cluster(1);
    let tries = std::env::var("COVEY_TRIES").map_or(3_000, |tries| tries.parse().unwrap());
    let mut client = Client::own(&cluster, "io1");
    let mut made = 0;
    for at in 0..tries {
        match client.make(10_000 + at) {
            Ok(_) => made += 1,
            Err(error) => assert_eq!(error, EDQUOT),
        }
    }
    assert_eq!((made, client.sessions()), (1024, 1024));
    // They end with whoever asked for them.
    drop(client);
    let mut client = Client::own(&cluster, "io1");
    until("all are gone", || client.sessions() == 0);
    client.make(10).unwrap();
}

#[test]
fn what_is_too_long_or_leads_out_is_refused() {
    let cluster = cluster(1);
    let mut client = Client::own(&cluster, "io1");
    let number = client.make(10).unwrap();
    for file in ["argv", "env"] {
        client.open(&format!("{number}/{file}"), 11, O_WRONLY).unwrap();
        let block = [b'x'; 100_000];
        let refused = (0..20u64).find_map(|at| client.0.write(11, at * 100_000, &block).err());
        assert!(matches!(refused, Some(EFBIG | E2BIG)), "{file}: {refused:?}");
        let far = client.0.write(11, u64::MAX - 5, b"x").err();
        assert!(far.is_some(), "{file}");
        client.0.clunk(11);
    }
    // What a user's sessions hold together is bounded, too.
    let (mut held, block) = (0, [b'x'; 100_000]);
    let refused = (0..200).find_map(|at| {
        let number = client.make(100 + at).unwrap();
        client.open(&format!("{number}/env"), 11, O_WRONLY).unwrap();
        let refused = (0..5).find_map(|at| client.0.write(11, at * 100_000, &block).err());
        client.0.clunk(11);
        held += 5 * block.len();
        refused
    });
    assert_eq!(refused, Some(EDQUOT), "{held} bytes are held");
    assert!(held > 32 << 20, "refused after {held} bytes");
    client.write(&format!("{number}/argv"), 11, b"").unwrap();
    // A link that the user has made, to where the node's own rights would lead.
    client.walk(&format!("{number}/fs"), 12).unwrap();
    let link =
        Message::Tsymlink { dfid: 12, name: "out".into(), target: "/etc".into(), gid: u32::MAX };
    client.0.call(link).unwrap();
    assert!(client.walk(&format!("{number}/fs/out/passwd"), 13).is_err());
    // Above fs is the session, and above the root nothing.
    client.walk(&format!("{number}/fs/../argv"), 14).unwrap();
    client.walk(&format!("{number}/fs/../../../../../arch"), 15).unwrap();
    for path in ["../etc/passwd", "/bin/sh", "a//b", ""] {
        let command = format!("exec in '{path}'\n");
        assert!(client.write(&format!("{number}/ctl"), 16, command.as_bytes()).is_err(), "{path}");
    }
    client.open(&format!("{number}/ctl"), 17, O_RDWR).unwrap();
    assert!(client.read(17).contains("names below fs/ are wanted"));
}

#[test]
fn another_user_s_session_is_closed_to_all_but_root() {
    if !is_root() {
        return skip("needs root, to be several users");
    }
    let cluster = cluster(1);
    let (mut one, mut other) =
        (Client::new(&cluster, "io1", 1234), Client::new(&cluster, "io1", 4321));
    let number = one.make(10).unwrap();
    for file in ["argv", "env", "ctl", "exec", "stdin", "stdout", "wait", "id"] {
        for flags in [O_RDONLY, O_WRONLY] {
            let refused = other.open(&format!("{number}/{file}"), 11, flags);
            assert_eq!(refused, Err(EACCES), "{file}");
        }
    }
    assert!(other.open(&format!("{number}/fs"), 12, O_RDONLY).is_err());
    assert!(other.write("ctl", 13, format!("wipe {number}\n").as_bytes()).is_err());
    assert!(other.write("env", 14, b"LD_PRELOAD=/tmp/x").is_err());
    assert_eq!(Client::new(&cluster, "io1", 0).sessions(), 1);
}

/// Readers that never read, and writers whose programs never read: others are served meanwhile.
#[test]
fn clients_that_only_wait_hold_up_nobody_else() {
    let cluster = cluster(1);
    let count = std::env::var("COVEY_WAITERS").map_or(60, |count| count.parse().unwrap());
    let pid = cluster.pid("io1").as_raw_nonzero();
    let memory = || {
        let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
    };
    let mut client = Client::own(&cluster, "io1");
    let before = memory();
    let mut waiting = Vec::new();
    let (tell, opened) = std::sync::mpsc::channel();
    for at in 0..count {
        let number = client.make(100 + 2 * at).unwrap();
        client.write(&format!("{number}/ctl"), 11, b"").unwrap();
        client.write(&format!("{number}/argv"), 11, b"sleep 7914").unwrap();
        client.write(&format!("{number}/ctl"), 11, b"exec /bin/sleep\n").unwrap();
        // A connection for each 64, which is what a user may have many of.
        let (socket, tell) = (socket(&cluster, "io1"), tell.clone());
        waiting.push(std::thread::spawn(move || {
            let uid = rustix::process::geteuid().as_raw();
            let mut client = Client(Nine::attach(&socket, "/xcpu", uid));
            client.open(&format!("{number}/stdin"), 1, O_WRONLY).unwrap();
            tell.send(()).unwrap();
            // The pipe takes 64 KiB; the rest waits until the session is gone.
            let block = vec![b'x'; 100_000];
            let mut refused = None;
            while refused.is_none() {
                refused = client.0.write(1, 0, &block).err();
            }
            refused
        }));
    }
    // A program beside them goes from its beginning to its end.
    let mut other = Client::own(&cluster, "io1");
    let number = other.make(10).unwrap();
    other.write(&format!("{number}/argv"), 11, b"echo here").unwrap();
    other.write(&format!("{number}/ctl"), 11, b"exec /bin/echo\n").unwrap();
    other.open(&format!("{number}/stdout"), 12, O_RDONLY).unwrap();
    assert_eq!(other.read(12), "here\n");
    let more = memory().saturating_sub(before);
    assert!(more < 300 * u64::from(count) + 32_768, "{more} KiB more for {count} writers");
    // Who comes after the sessions are gone has nothing to open.
    let limit = std::time::Duration::from_secs(60);
    assert!((0..count).all(|_| opened.recv_timeout(limit).is_ok()), "not all have opened");
    drop(client);
    let wiped = format!("wipe {}\n", "all");
    other.write("ctl", 14, wiped.as_bytes()).unwrap();
    assert!(waiting.into_iter().all(|one| one.join().unwrap().is_some()));
}

/// Whoever calls a session of theirs like somebody else's job is no part of it.
#[test]
fn a_stranger_s_session_is_no_part_of_a_job_of_the_same_name() {
    if !is_root() {
        return skip("needs root, to be several users");
    }
    let cluster = cluster(1);
    let job = ["run", "-w", "io1", "--detach", "--job", "night", "--local", "sh", "-c", "exit 3"];
    cluster.covey(&job);
    let mut stranger = Client::new(&cluster, "io1", 4321);
    for (fid, id) in [(10, "night/1"), (11, "night/4294967295")] {
        let number = stranger.make(fid).unwrap();
        stranger.write(&format!("{number}/id"), 20, id.as_bytes()).unwrap();
    }
    let waited = cluster.try_covey(&["wait", "--timeout", "60", "night"]);
    assert_eq!(waited.code, Some(3), "{waited}");
    assert_eq!(cluster.try_covey(&["attach", "night"]).code, Some(3));
    // Root's own is gone: the name means the only other one now.
    cluster.covey(&["kill", "--user", "4321", "night"]);
    cluster.refused(&["kill", "--user", "4321", "night"]).says(&["night"]);
    let number = stranger.make(12).unwrap();
    stranger.write(&format!("{number}/id"), 20, b"day/0").unwrap();
    let mut other = Client::new(&cluster, "io1", 1234);
    let number = other.make(10).unwrap();
    other.write(&format!("{number}/id"), 20, b"day/0").unwrap();
    cluster.refused(&["kill", "day"]).says(&["2 users", "1234", "4321", "--user"]);
}

#[test]
fn a_session_that_is_copied_to_itself_stays_as_it_was() {
    let cluster = cluster(1);
    let mut client = Client::own(&cluster, "io1");
    let number = client.make(10).unwrap();
    client.write(&format!("{number}/exec"), 11, b"#!/bin/sh\nexit 7\n").unwrap();
    client.write(&format!("{number}/argv"), 11, b"seven").unwrap();
    let clone = format!("clone . io1/{number}\n");
    assert!(client.write(&format!("{number}/ctl"), 11, clone.as_bytes()).is_err());
    client.write(&format!("{number}/ctl"), 11, b"exec\n").unwrap();
    client.open(&format!("{number}/wait"), 12, O_RDONLY).unwrap();
    assert_eq!(client.read(12).trim(), (7 << 8).to_string());
}
