//! `covey mount --takeover`: a mount passes from process to process while programs use it.

use crate::support::bytes::{assert_same, noise};
use crate::support::command::as_stranger;
use crate::support::preload::compile;
use crate::support::{Cluster, Finished, covey, has_program, is_root, open, run, until};
use covey_io::os::process::Process;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// The process that a mount's pid file names.
fn process_of(cluster: &Cluster, mountpoint: &Path) -> Process {
    let name = mountpoint.to_str().unwrap().replace('/', "%");
    let file = cluster.dir.join("run").join(format!("mount-{name}.pid"));
    Process::read(&file).expect("a mount has a pid file")
}

fn try_take_over(cluster: &Cluster, mountpoint: &Path, options: &[&str]) -> Finished {
    let path = mountpoint.to_str().unwrap();
    cluster.try_covey(&[&["mount", "--takeover", path], options].concat())
}

#[track_caller]
fn take_over(cluster: &Cluster, mountpoint: &Path, options: &[&str]) {
    let before = process_of(cluster, mountpoint);
    let done = try_take_over(cluster, mountpoint, options);
    assert!(done.ok, "{done}");
    until("the end of the process before", || !before.is_alive());
    let after = process_of(cluster, mountpoint);
    assert!(after.is_alive() && after.pid != before.pid, "{} after {}", after.pid, before.pid);
}

/// The socket at which a mount's process listens. Asks the kernel only.
fn socket_of(mountpoint: &Path) -> PathBuf {
    let device =
        covey_io::os::mount::mounted_at(mountpoint).unwrap().expect("it is mounted").device;
    let uid = rustix::process::geteuid().as_raw();
    let runtime = std::env::var("XDG_RUNTIME_DIR").unwrap_or(format!("/run/user/{uid}"));
    let dirs = match uid {
        0 => vec!["/run/covey-mounts".to_owned()],
        _ => vec![format!("{runtime}/covey-mounts"), format!("/tmp/covey-mounts-{uid}")],
    };
    let paths = dirs.into_iter().map(|dir| Path::new(&dir).join(&device));
    paths.into_iter().find(|path| path.exists()).expect("it listens")
}

/// Locks in other processes, which hold or wait until they are let go.
struct Locks(PathBuf);

impl Locks {
    /// What was said, and the process, which holds a lock if it got one.
    fn try_lock(&self, file: &Path, start: u64) -> (String, Child) {
        let mut command = Command::new(&self.0);
        command.arg("try").arg(file).args([start.to_string(), "12".into()]);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it runs");
        let mut said = String::new();
        let stdout = child.stdout.as_mut().expect("a pipe");
        BufReader::new(stdout).read_line(&mut said).expect("a line");
        (said.trim().to_owned(), child)
    }

    /// A process that waits for a lock, counts and ends.
    fn wait(&self, file: &Path, start: u64) -> Child {
        let mut command = Command::new(&self.0);
        command.arg("count").arg(file).args([start.to_string(), "1".into()]);
        command.spawn().expect("it runs")
    }

    #[track_caller]
    fn assert_held(&self, file: &Path, start: u64) {
        let (said, child) = self.try_lock(file, start);
        let_go(child);
        assert_eq!(said, "busy");
    }
}

fn let_go(mut child: Child) {
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

/// Whether a process sleeps in a call of the file system.
fn is_waiting(child: &Child) -> bool {
    let state = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
    state.contains(") S ") || state.contains(") D ")
}

/// Programs that use a mount until they are told to stop. Each panics at the first error or wrong byte.
struct Workload<'a> {
    dir: &'a Path,
    stop: &'a AtomicBool,
    /// Rounds of each, so that a takeover meets all of them.
    rounds: [AtomicUsize; 6],
}

impl Workload<'_> {
    fn each_round(&self, who: usize, mut round: impl FnMut(u64)) {
        let mut number = 0;
        while !self.stop.load(Ordering::Relaxed) {
            round(number);
            number += 1;
            self.rounds[who].fetch_add(1, Ordering::Relaxed);
        }
    }

    fn writer(&self) {
        let file = open(&self.dir.join("written"));
        let mut wanted = vec![0; 3 << 20];
        file.write_all_at(&wanted, 0).unwrap();
        self.each_round(0, |round| {
            let record = noise(round, 1 + (round as usize * 7919) % 70_000);
            let at = (round as usize * 104_729) % (wanted.len() - record.len());
            file.write_all_at(&record, at as u64).unwrap();
            wanted[at..at + record.len()].copy_from_slice(&record);
            let mut found = vec![0; record.len()];
            file.read_exact_at(&mut found, at as u64).unwrap();
            assert_same(&found, &record, "what was just written");
        });
        assert_same(&fs::read(self.dir.join("written")).unwrap(), &wanted, "written");
    }

    fn appender(&self) {
        let path = self.dir.join("log");
        let mut file = File::options().append(true).create(true).open(&path).unwrap();
        let mut wanted = String::new();
        self.each_round(1, |round| {
            let line = format!("line {round}\n");
            file.write_all(line.as_bytes()).unwrap();
            wanted.push_str(&line);
        });
        assert_same(&fs::read(path).unwrap(), wanted.as_bytes(), "the log");
    }

    fn maker(&self) {
        self.each_round(2, |round| {
            let (path, other) = (self.dir.join("new"), self.dir.join("newer"));
            let bytes = noise(round, 1 + (round as usize * 31) % 9000);
            let mut file = File::create(&path).unwrap();
            file.write_all(&bytes).unwrap();
            assert_eq!(file.metadata().unwrap().len(), bytes.len() as u64);
            drop(file);
            fs::rename(&path, &other).unwrap();
            assert!(!path.exists());
            assert_same(&fs::read(&other).unwrap(), &bytes, "a renamed file");
            fs::remove_file(&other).unwrap();
        });
    }

    /// Each listing takes many calls, and a takeover comes between.
    fn lister(&self) {
        let dir = self.dir.join("many");
        self.each_round(3, |_| {
            let mut names = Vec::new();
            for entry in fs::read_dir(&dir).unwrap() {
                names.push(entry.unwrap().file_name().into_string().unwrap());
            }
            names.sort_unstable();
            let wanted: Vec<String> = (0..NAMES).map(|number| format!("{number:05}")).collect();
            assert!(names == wanted, "{} names of {NAMES}", names.len());
        });
    }

    fn reader_of_the_unlinked(&self, file: &File, wanted: &[u8]) {
        self.each_round(4, |round| {
            let at = (round as usize * 4093) % (wanted.len() - 100);
            let mut found = [0; 100];
            file.read_exact_at(&mut found, at as u64).unwrap();
            assert_same(&found, &wanted[at..at + 100], "an unlinked file");
            assert_eq!(file.metadata().unwrap().nlink(), 0);
        });
    }

    /// Pages of a mapping, which are dropped and read again.
    fn mapper(&self) {
        if !has_program("python3") {
            return self.each_round(5, |_| std::thread::sleep(Duration::from_millis(1)));
        }
        let mut command = Command::new("python3");
        command.arg("-c").arg(MAPPER).arg(self.dir.join("mapped"));
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it runs");
        let mut said = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut asks = child.stdin.take().expect("a pipe");
        self.each_round(5, |_| {
            asks.write_all(b"\n").unwrap();
            let mut line = String::new();
            said.read_line(&mut line).unwrap();
            assert_eq!(line, "right\n");
        });
        drop(asks);
        assert!(child.wait().unwrap().success());
    }

    /// Every program has gone on.
    fn all_go_on(&self) {
        let now = || self.rounds.each_ref().map(|rounds| rounds.load(Ordering::Relaxed));
        let before = now();
        until("a round of each program", || {
            now().iter().zip(before).all(|(now, before)| *now >= before + 2)
        });
    }
}

const NAMES: usize = 3000;

const MAPPER: &str = r#"
import mmap, sys
with open(sys.argv[1], "rb") as file:
    pages = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
for line in sys.stdin:
    pages.madvise(mmap.MADV_DONTNEED)
    wrong = [at for at in range(0, len(pages), 4096) if pages[at] != (at >> 12) % 251]
    print("wrong" if wrong else "right", flush=True)
"#;

fn prepare(one: &Path) {
    fs::create_dir(one.join("many")).unwrap();
    for number in 0..NAMES {
        File::create(one.join("many").join(format!("{number:05}"))).unwrap();
    }
    let mapped: Vec<u8> = (0..1 << 20).map(|at: usize| ((at >> 12) % 251) as u8).collect();
    fs::write(one.join("mapped"), mapped).unwrap();
    fs::write(one.join("ranges"), "0".repeat(200)).unwrap();
}

/// All of it on one mount, taken over several times with these options each.
fn nobody_notices(how: &[&str], takeovers: &[&[&str]]) {
    let mut cluster = Cluster::up(3);
    let Some(one) = cluster.mount_with(how) else { return };
    let Some(two) = cluster.mount_with(how) else { return };
    let Some(program) = compile(&cluster, "support/rangelock.c", "cc") else { return };
    let locks = Locks(program);
    prepare(&one);
    let content = noise(7, 300_000);
    let gone = open(&one.join("gone"));
    gone.write_all_at(&content, 0).unwrap();
    fs::remove_file(one.join("gone")).unwrap();
    let flocked = open(&one.join("flocked"));
    flocked.lock().unwrap();
    let (said, holder) = locks.try_lock(&one.join("ranges"), 0);
    assert_eq!(said, "locked");
    let (said, elsewhere) = locks.try_lock(&two.join("ranges"), 100);
    assert_eq!(said, "locked");
    // One waits on the other mount for what is held here, one here for what is held there.
    let mut waits = [locks.wait(&two.join("ranges"), 0), locks.wait(&one.join("ranges"), 100)];
    until("processes that wait", || waits.iter().all(is_waiting));

    let stop = AtomicBool::new(false);
    let load = Workload { dir: &one, stop: &stop, rounds: Default::default() };
    std::thread::scope(|scope| {
        // Whatever fails, the others end.
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let _stop = Stop(&stop);
        let load = &load;
        scope.spawn(|| load.writer());
        scope.spawn(|| load.appender());
        scope.spawn(|| load.maker());
        scope.spawn(|| load.lister());
        scope.spawn(|| load.reader_of_the_unlinked(&gone, &content));
        scope.spawn(|| load.mapper());
        for options in takeovers {
            load.all_go_on();
            take_over(&cluster, &one, options);
            locks.assert_held(&two.join("ranges"), 0);
            locks.assert_held(&one.join("ranges"), 100);
            assert!(open(&two.join("flocked")).try_lock().is_err(), "its flock is gone");
        }
        load.all_go_on();
    });
    assert!(waits.iter_mut().all(|child| child.try_wait().unwrap().is_none()), "they wait");
    let_go(holder);
    let_go(elsewhere);
    for mut child in waits {
        assert!(child.wait().unwrap().success(), "a wait for a lock has failed");
    }
    drop(flocked);
    until("the flock's end", || open(&two.join("flocked")).try_lock().is_ok());
    drop(gone);
    for name in ["written", "log", "mapped", "ranges"] {
        let (here, there) = (fs::read(one.join(name)).unwrap(), fs::read(two.join(name)).unwrap());
        assert_same(&here, &there, name);
    }
    let ranges = fs::read_to_string(two.join("ranges")).unwrap();
    assert_eq!((&ranges[..12], &ranges[100..112]), ("000000000001", "000000000001"));
    let socket = socket_of(&one);
    cluster.umount(&one);
    until("the socket's end", || !socket.exists());
    let checked = cluster.covey(&["fsck"]);
    assert!(!checked.contains("error"), "{checked}");
}

#[test]
fn programs_notice_nothing_of_several_takeovers() {
    nobody_notices(&[], &[&[], &[], &["--threads", "3"], &[], &["--threads", "1"], &[]]);
}

#[test]
fn programs_notice_nothing_where_new_files_are_told_at_once() {
    nobody_notices(&["--no-delegations", "--threads", "2"], &[&[], &[], &[]]);
}

#[test]
fn programs_notice_nothing_where_writes_are_gathered() {
    nobody_notices(&["--consistency", "close-to-open"], &[&[], &[], &[]]);
}

/// A successor that a test plays, as far as it likes: by a process of its own, since one that is late is ended.
struct Player(Child);

const MAGIC: u64 = u64::from_le_bytes(*b"covey/to");
const BEGIN: u8 = 4;
const READY: u8 = 6;
const MINE: u8 = 8;

impl Drop for Player {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Player {
    fn say(&mut self, number: u8, body: &[u8]) {
        let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
        bytes.push(number);
        bytes.extend_from_slice(body);
        self.send(&bytes);
    }

    /// It may have been thrown out already.
    fn send(&mut self, bytes: &[u8]) {
        let _ = self.0.stdin.as_mut().expect("a pipe").write_all(bytes);
    }

    fn hello(&mut self, magic: u64, oldest: u16, newest: u16) {
        let mut body = magic.to_le_bytes().to_vec();
        body.extend([oldest, newest, 4].iter().flat_map(|number| number.to_le_bytes()));
        body.extend_from_slice(b"test");
        self.say(1, &body);
    }

    /// A message's name and body; `Nothing` where the other end has closed.
    fn hear(&mut self) -> (&'static str, Vec<u8>) {
        let said = self.0.stdout.as_mut().expect("a pipe");
        let mut head = [0; 5];
        if said.read_exact(&mut head).is_err() {
            return ("Nothing", Vec::new());
        }
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        let mut body = vec![0; length as usize];
        said.read_exact(&mut body).expect("a body");
        let names = ["", "", "Welcome", "Refused", "", "State", "", "Go"];
        (names[usize::from(head[4])], body)
    }

    fn refused(&mut self) -> String {
        let (name, body) = self.hear();
        assert_eq!(name, "Refused");
        String::from_utf8_lossy(&body[2..]).into_owned()
    }
}

/// A mount with something that a failed takeover could break.
struct Fragile {
    cluster: Cluster,
    one: PathBuf,
    two: PathBuf,
    locks: Locks,
    relay: PathBuf,
    gone: File,
    content: Vec<u8>,
    process: Process,
    holder: Child,
    waiter: Child,
    elsewhere: Child,
}

impl Fragile {
    fn new(how: &[&str]) -> Option<Fragile> {
        let mut cluster = Cluster::up(2);
        let one = cluster.mount_with(how)?;
        let two = cluster.mount_with(how)?;
        let locks = Locks(compile(&cluster, "support/rangelock.c", "cc")?);
        let relay = compile(&cluster, "support/relay.c", "cc")?;
        fs::write(one.join("ranges"), "0".repeat(200)).unwrap();
        let content = noise(3, 100_000);
        let gone = open(&one.join("gone"));
        gone.write_all_at(&content, 0).unwrap();
        fs::remove_file(one.join("gone")).unwrap();
        let (said, holder) = locks.try_lock(&one.join("ranges"), 0);
        assert_eq!(said, "locked");
        let (said, elsewhere) = locks.try_lock(&two.join("ranges"), 100);
        assert_eq!(said, "locked");
        let waiter = locks.wait(&one.join("ranges"), 100);
        until("a process that waits", || is_waiting(&waiter));
        let process = process_of(&cluster, &one);
        Some(Fragile {
            cluster,
            one,
            two,
            locks,
            relay,
            gone,
            content,
            process,
            holder,
            waiter,
            elsewhere,
        })
    }

    fn successor(&self) -> Player {
        let mut relay = Command::new(&self.relay);
        let relay = relay.arg(socket_of(&self.one)).stdin(Stdio::piped()).stdout(Stdio::piped());
        Player(relay.spawn().expect("it runs"))
    }

    fn greeted(&self) -> Player {
        let mut player = self.successor();
        player.hello(MAGIC, 1, 1);
        assert_eq!(player.hear().0, "Welcome");
        player
    }

    /// The mount is served by the process that had it, and nothing is lost.
    #[track_caller]
    fn is_as_it_was(&self, after: &str) {
        let mut found = vec![0; self.content.len()];
        self.gone.read_exact_at(&mut found, 0).unwrap_or_else(|error| panic!("{after}: {error}"));
        assert_same(&found, &self.content, after);
        let path = self.one.join(after.replace('/', " "));
        fs::write(&path, after).unwrap_or_else(|error| panic!("{after}: {error}"));
        assert_eq!(fs::read_to_string(&path).unwrap(), after);
        self.locks.assert_held(&self.two.join("ranges"), 0);
        assert!(self.process.is_alive(), "{after}: its process has ended");
        assert_eq!(process_of(&self.cluster, &self.one), self.process, "{after}");
    }

    /// It can still be taken over, and whoever waits gets what it waits for.
    fn ends_well(mut self) {
        take_over(&self.cluster, &self.one, &[]);
        let mut found = vec![0; self.content.len()];
        self.gone.read_exact_at(&mut found, 0).unwrap();
        assert_same(&found, &self.content, "the unlinked file");
        assert!(self.waiter.try_wait().unwrap().is_none());
        self.locks.assert_held(&self.two.join("ranges"), 0);
        let_go(self.elsewhere);
        assert!(self.waiter.wait().unwrap().success());
        let_go(self.holder);
    }
}

#[test]
fn a_successor_that_lies_or_goes_away_leaves_the_mount_as_it_was() {
    let Some(fragile) = Fragile::new(&[]) else { return };
    for (magic, oldest, newest, why) in [
        (MAGIC ^ 1, 1, 1, "Hello"),
        (MAGIC, 2, 9, "formats 1 to 1, the successor takes 2 to 9"),
        (MAGIC, 0, 0, "formats"),
    ] {
        let mut player = fragile.successor();
        player.hello(magic, oldest, newest);
        let refused = player.refused();
        assert!(refused.contains(why), "{refused}");
    }
    for bytes in
        [&b"\xff\xff\xff\xff\x01"[..], b"\x01\0\0\0\x63x", b"\0\0\0\0\x04", b"\x03\0\0\0\x01abc"]
    {
        let mut player = fragile.successor();
        player.send(bytes);
        player.refused();
    }
    drop(fragile.successor());
    drop(fragile.greeted());
    fragile.is_as_it_was("words before it begins");

    let mut player = fragile.greeted();
    player.say(READY, &[]);
    player.refused();
    let mut player = fragile.greeted();
    player.say(BEGIN, &[]);
    drop(player);
    fragile.is_as_it_was("a successor that goes when it has asked");
    let mut player = fragile.greeted();
    player.say(BEGIN, &[]);
    assert_eq!(player.hear().0, "State");
    drop(player);
    fragile.is_as_it_was("a successor that goes when it has the state");
    let mut player = fragile.greeted();
    player.say(BEGIN, &[]);
    assert_eq!(player.hear().0, "State");
    player.say(MINE, &[]);
    player.refused();
    fragile.is_as_it_was("a successor that is not ready");
    let mut player = fragile.greeted();
    player.say(BEGIN, &[]);
    assert_eq!(player.hear().0, "State");
    player.say(READY, &[]);
    assert_eq!(player.hear().0, "Go");
    drop(player);
    fragile.is_as_it_was("a successor that goes when it is ready");
    fragile.ends_well();
}

/// What a State ends with: the session's handover, after its length.
fn session_in(state: &[u8]) -> covey_stripe::client::Handover {
    let found = (0..state.len() - 4).rev().find_map(|at| {
        let (length, rest) = state[at..].split_first_chunk::<4>()?;
        let is_it = u32::from_le_bytes(*length) as usize == rest.len();
        is_it.then(|| covey_stripe::client::Handover::decode(rest.to_vec().into()).ok())?
    });
    found.expect("a session")
}

#[test]
fn a_successor_that_dies_in_the_session_leaves_it_to_the_mount() {
    let Some(fragile) = Fragile::new(&[]) else { return };
    let config = covey_cluster::config::load(&fragile.cluster.config()).unwrap();
    for has_said_so in [false, true] {
        let mut player = fragile.greeted();
        player.say(BEGIN, &[]);
        let (name, state) = player.hear();
        assert_eq!(name, "State");
        let session = session_in(&state);
        assert!(session.opens.len() >= 3 && !session.held.is_empty(), "{session:?}");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let forget =
                Box::new(|_: &[covey_stripe::ops::Lease]| -> covey_stripe::client::BoxFuture<()> {
                    Box::pin(async {})
                });
            let options = covey_stripe::client::Options {
                caching: covey_stripe::client::Caching::Leases,
                ..Default::default()
            };
            let borrowed = covey_cluster::borrow(&config, options, &session, forget).await;
            let (fs, opened) = borrowed.unwrap_or_else(|error| panic!("{}", error.message));
            fs.inode_now(opened[0].id()).await.expect("the session is its own");
            if has_said_so {
                player.say(READY, &[]);
                assert_eq!(player.hear().0, "Go");
            }
            // It cleans up in good order, and closes nothing in the mount's name.
            drop((fs, opened));
            tokio::time::sleep(Duration::from_millis(50)).await;
        });
        drop(runtime);
        drop(player);
        fragile.is_as_it_was("a successor that dies in the session");
    }
    fragile.ends_well();
}

#[test]
fn a_mount_with_a_request_that_waits_for_a_server_is_not_handed_over() {
    let Some(fragile) = Fragile::new(&["--hard"]) else { return };
    let file = open(&fragile.one.join("data"));
    file.write_all_at(&noise(1, 1 << 20), 0).unwrap();
    for node in ["io1", "io2"] {
        fragile.cluster.signal(node, rustix::process::Signal::STOP);
    }
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut found = vec![0; 1 << 20];
            file.read_exact_at(&mut found, 0).map(|()| found)
        });
        std::thread::sleep(Duration::from_millis(200));
        let refused = try_take_over(&fragile.cluster, &fragile.one, &[]);
        for node in ["io1", "io2"] {
            fragile.cluster.signal(node, rustix::process::Signal::CONT);
        }
        assert!(!refused.ok, "{refused}");
        refused.says(&["cannot take over", "do not answer", "goes on as before"]);
        let found = reader.join().unwrap().expect("the read goes on");
        assert_same(&found, &noise(1, 1 << 20), "data");
    });
    fragile.is_as_it_was("a request that waits");
    fragile.ends_well();
}

#[test]
fn only_the_user_of_a_mount_may_take_it_over() {
    let mut cluster = Cluster::up(1);
    let Some(one) = cluster.mount_with(if is_root() { &["--allow-other"] } else { &[] }) else {
        return;
    };
    let Some(mut stranger) = as_stranger(&cluster) else { return };
    stranger.arg("--config").arg(cluster.config()).args(["mount", "--takeover", "--foreground"]);
    let refused = run({
        stranger.arg(&one);
        stranger
    });
    assert!(!refused.ok, "{refused}");
    refused.says(&["no process of this user listens"]);
    fs::write(one.join("file"), "x").unwrap();
    take_over(&cluster, &one, &[]);
    assert_eq!(fs::read_to_string(one.join("file")).unwrap(), "x");
}

#[test]
fn what_is_no_mount_of_covey_is_not_taken_over() {
    let mut cluster = Cluster::up(1);
    let dir = cluster.scratch("empty");
    fs::create_dir(&dir).unwrap();
    let refused = cluster.refused(&["mount", "--takeover", dir.to_str().unwrap()]);
    refused.says(&["Covey is not mounted there", "mounts it"]);
    let Some(one) = cluster.mount() else { return };
    let other = Cluster::up(1);
    let mut command = covey();
    command.arg("--config").arg(other.config()).args(["mount", "--takeover"]).arg(&one);
    let refused = run(command);
    assert!(!refused.ok, "{refused}");
    refused.says(&["it is of cluster"]);
    for option in ["--read-only", "--allow-other", "--no-delegations", "--consistency=strict"] {
        let refused = cluster.refused(&["mount", "--takeover", option, one.to_str().unwrap()]);
        assert_eq!(refused.code, Some(2), "{refused}");
    }
    fs::write(one.join("file"), "x").unwrap();
    take_over(&cluster, &one, &[]);
    assert_eq!(fs::read_to_string(one.join("file")).unwrap(), "x");
}
