//! Peers before they have proven anything: floods of them, servers that are others' processes,
//! configurations that others have written, and keys that change.

use crate::attack::attack;
use crate::support::{Cluster, Finished, covey, is_root, no_fuse, run, skip, until};
use covey_io::os::credentials::{Identity, act_as};
use std::fs;
use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// A user of this machine whom nobody has asked for.
const MALLORY: u32 = 61_003;
/// What strangers may cost a server at most, in bytes of memory: see docs/manual/security.md.
const STRANGERS_BYTES_MAX: u64 = 64 << 20;

/// A process that ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.local_addr().expect("it has an address").port()
}

/// One server that wants the key, though it is on this machine.
struct Keyed {
    cluster: Cluster,
    port: u16,
    server: Option<Process>,
}

impl Keyed {
    fn up() -> Keyed {
        let (cluster, port) = (Cluster::planned(), free_port());
        for name in ["run", "log", "store"] {
            fs::create_dir_all(cluster.dir.join(name)).expect("directories");
        }
        fs::write(cluster.dir.join("lock"), "").expect("a file");
        let dir = cluster.dir.display();
        let (file, id) = (cluster.config(), std::process::id());
        // A name that only the resolver knows for loopback: a server cannot tell that it is.
        let text = format!(
            "version = 1\n[cluster]\nname = \"keyed\"\nid = \"{id:032x}\"\nkey_file = \"{dir}/key\"\n\
             [[node]]\nname = \"one\"\nroles = [\"meta\", \"data\"]\nlisten = [\"tcp!127.1!{port}\"]\n\
             store = \"{dir}/store/one\"\n"
        );
        fs::write(file, &text).expect("a file");
        // What the server has and what is found by clients can differ, as between machines.
        let servers = text.replace("/key\"", "/server-key\"");
        fs::write(cluster.dir.join("server.toml"), servers).expect("a file");
        cluster.covey(&["keygen"]);
        cluster.covey(&["init", "--all"]);
        let mut keyed = Keyed { cluster, port, server: None };
        fs::copy(keyed.key(), keyed.server_key()).expect("it can be copied");
        keyed.start();
        until("the server's answer", || keyed.cluster.try_covey(&["ping"]).ok);
        keyed
    }

    fn start(&mut self) {
        self.server = None;
        let log = fs::File::options().create(true).append(true).open(self.log()).expect("a log");
        let mut command = covey();
        let config = self.cluster.dir.join("server.toml");
        command.arg("--config").arg(config).args(["serve", "--node", "one"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.server = Some(Process(command.spawn().expect("covey runs")));
    }

    fn log(&self) -> PathBuf {
        self.cluster.dir.join("log/one.log")
    }

    fn logged(&self) -> String {
        fs::read_to_string(self.log()).expect("a server has a log")
    }

    fn key(&self) -> PathBuf {
        self.cluster.dir.join("key")
    }

    fn server_key(&self) -> PathBuf {
        self.cluster.dir.join("server-key")
    }

    fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// Bytes of memory that the server has in use.
    fn memory(&self) -> u64 {
        let pid = self.server.as_ref().expect("it runs").0.id();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it still runs");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("it is told");
        let number = line.split_whitespace().nth(1).expect("a number");
        number.parse::<u64>().expect("a number") << 10
    }
}

/// Another key in the place of one.
fn renew(key: &Path) -> Vec<u8> {
    let old = fs::read(key).expect("there is a key");
    fs::remove_file(key).expect("it can be removed");
    let mut command = covey();
    command.arg("keygen").arg(key);
    let made = run(command);
    assert!(made.ok, "covey keygen: {made}");
    assert_ne!(fs::read(key).expect("there is a key"), old);
    old
}

#[test]
fn strangers_take_little_memory_and_keep_nobody_out() {
    if !is_root() {
        return skip("needs root to be several users");
    }
    let keyed = Keyed::up();
    let seconds = std::env::var("COVEY_STRANGERS_SECONDS").ok().and_then(|text| text.parse().ok());
    let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(6));
    let before = keyed.memory();
    let address = keyed.address();
    // Root's own connections need no limit.
    let mallory = Identity { uid: MALLORY, gid: MALLORY, groups: &[] };
    let stranger = |seed| {
        let mallory = mallory.clone();
        std::thread::spawn(move || {
            act_as(&mallory, || attack(address, end, seed)).expect("root can")
        })
    };
    let threads: Vec<_> = (0..4).map(stranger).collect();
    let mut most = 0;
    while Instant::now() < end {
        // A client with the key, on the same machine as the strangers.
        keyed.cluster.covey(&["ping"]);
        most = most.max(keyed.memory());
    }
    let tallies: Vec<_> =
        threads.into_iter().map(|thread| thread.join().expect("it ends")).collect();
    let grown = most.saturating_sub(before);
    println!("{tallies:?}: {} MiB more than {} MiB", grown >> 20, before >> 20);
    assert!(tallies.iter().all(|tally| tally.connections > 10), "{tallies:?}");
    assert!(grown <= STRANGERS_BYTES_MAX, "{grown} bytes more: {tallies:?}");
    let lines = keyed.logged().lines().count() as u64;
    assert!(lines < 200 + seconds.unwrap_or(6), "{lines} lines in the log");
}

#[test]
fn a_connection_that_does_not_attach_is_ended() {
    let keyed = Keyed::up();
    let mut silent = TcpStream::connect(keyed.address()).expect("the server listens");
    assert!(is_ended(&mut silent, Duration::from_secs(60)), "nobody asks it to hurry");
    until("a word in the log", || keyed.logged().contains("no attach"));
}

/// A process of mallory's that serves 9P at an address.
fn impostor(dir: &Path, address: &str) -> Process {
    let mut command = covey();
    command.arg("export").arg(dir).args(["--listen", address]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.uid(MALLORY).gid(MALLORY);
    Process(command.spawn().expect("covey runs"))
}

/// A configuration of one server, here.
fn describe(dir: &Path, address: &str, more: &str) -> PathBuf {
    let file = dir.join("covey.toml");
    let text = format!(
        "version = 1\n[cluster]\nname = \"c\"\nid = \"{:032x}\"\n{more}[[node]]\nname = \"one\"\n\
         roles = [\"meta\", \"data\"]\nlisten = [\"{address}\"]\nstore = \"{}/store\"\n",
        7,
        dir.display()
    );
    fs::write(&file, text).expect("a file");
    file
}

fn with_config(file: &Path, arguments: &[&str]) -> Finished {
    let mut command = covey();
    command.arg("--config").arg(file).args(arguments);
    run(command)
}

#[test]
fn a_process_of_another_user_is_not_taken_for_the_server() {
    if !is_root() {
        return skip("needs root to be several users");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let open = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o777));
    let theirs = dir.path().join("theirs");
    fs::create_dir(&theirs).expect("a directory");
    open(dir.path()).and_then(|()| open(&theirs)).expect("modes can be changed");
    let socket = theirs.join("sock");
    for address in [format!("unix!{}", socket.display()), format!("tcp!127.0.0.1!{}", free_port())]
    {
        let file = describe(dir.path(), &address, "");
        let _impostor = impostor(&theirs, &address);
        until("the impostor's answer", || {
            let mut ls = covey();
            ls.args(["9p", "ls", &address, "/"]);
            run(ls).ok
        });
        for arguments in [&["ping"][..], &["ls", ":/"], &["stats"]] {
            let refused = with_config(&file, arguments);
            let said = format!("{}{}", refused.stdout, refused.stderr);
            assert!(!refused.ok && said.contains("belongs to user 61003"), "{address} {refused}");
        }
        // Whom the file names is believed, and then does not know the cluster.
        let file = describe(dir.path(), &address, "user = \"61003\"\n");
        let asked = with_config(&file, &["ping"]);
        let said = format!("{}{}", asked.stdout, asked.stderr);
        assert!(!asked.ok && !said.contains("belongs to user"), "{address} {asked}");
    }
}

#[test]
fn a_configuration_that_was_only_found_must_be_ones_own_or_roots() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = describe(dir.path(), "unix!/nowhere/sock", "");
    let ping = |more: &[&str]| {
        let mut command = covey();
        command.args(more).arg("ping").current_dir(dir.path());
        run(command)
    };
    let believed = |done: &Finished| done.stdout.contains("/nowhere/sock");
    assert!(believed(&ping(&[])));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).expect("a mode");
    let refused = ping(&[]);
    refused.says(&["cannot trust covey.toml: others may write it", "--config covey.toml"]);
    assert!(believed(&ping(&["--config", "covey.toml"])), "it was named");
    if is_root() {
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("a mode");
        chown(&file, Some(MALLORY), None).expect("an owner");
        ping(&[]).says(&["cannot trust covey.toml: it belongs to user 61003"]);
    }
}

#[test]
fn a_mount_takes_the_new_key_or_says_why_not() {
    if let Some(reason) = no_fuse() {
        return skip(reason);
    }
    let mut keyed = Keyed::up();
    let Some(mount) = keyed.cluster.mount() else { return };
    fs::write(mount.join("before"), "1").expect("the mount works");
    renew(&keyed.server_key());
    keyed.start();
    let log = keyed.cluster.dir.join("log");
    let is_back = |name: &str| fs::write(mount.join(name), name).is_ok();
    until("the mount says why it is refused", || {
        let files = fs::read_dir(&log).expect("logs").map(|entry| entry.expect("a log").path());
        let mut mounts = files.filter(|file| !file.ends_with("one.log"));
        mounts.any(|file| fs::read_to_string(file).is_ok_and(|text| text.contains("refuses us")))
    });
    assert!(!is_back("too soon"), "nobody has brought the new key");
    fs::copy(keyed.server_key(), keyed.key()).expect("it can be copied");
    until("the mount takes the new key", || is_back("after"));
}

#[test]
fn a_wrong_key_is_called_so_here_and_in_the_servers_log() {
    let keyed = Keyed::up();
    renew(&keyed.key());
    let refused = keyed.cluster.refused(&["ping"]);
    assert!(refused.stdout.contains("refused"), "{refused}");
    assert!(refused.stdout.contains("the cluster keys here and at the server differ"), "{refused}");
    assert!(refused.stderr.contains("1 of 1 server is up and refuses us"), "{refused}");
    until("a word in the server's log", || keyed.logged().contains("it has another one, or none"));
    fs::remove_file(keyed.key()).expect("it can be removed");
    let keyless = keyed.cluster.refused(&["ping"]);
    assert_eq!((keyless.stdout.as_str(), keyless.code), ("", Some(2)), "once, not for each server");
    assert!(keyless.stderr.contains("cannot ask 1 server: cannot read the key"), "{keyless}");
}

/// Reads until the server ends the connection; false when it has not within `patience`.
fn is_ended(stream: &mut TcpStream, patience: Duration) -> bool {
    stream.set_read_timeout(Some(patience)).expect("a socket has a time limit");
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                return !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
            }
        }
    }
}
