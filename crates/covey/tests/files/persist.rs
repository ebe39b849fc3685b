//! What a cluster keeps when it is stopped, and what it refuses before it could do damage. Each
//! refusal must say why and what to do, and everything must be there afterwards.

use crate::support::bytes::{describe, hash, make_tree, noise};
use crate::support::network::Network;
use crate::support::{Cluster, covey, is_root, run, skip, until};
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A cluster with a tree in it, to be found again.
struct Kept {
    cluster: Cluster,
    source: PathBuf,
}

impl Kept {
    fn new(io_servers: usize) -> Kept {
        let cluster = Cluster::up(io_servers);
        let source = cluster.scratch("source");
        make_tree(&source);
        cluster.covey(&["cp", "-rp", text(&source), ":/kept"]);
        let kept = Kept { cluster, source };
        kept.is_whole();
        kept
    }

    /// Everything is still there, compared byte for byte.
    #[track_caller]
    fn is_whole(&self) {
        let copy = self.cluster.scratch("copy");
        let _ = fs::remove_dir_all(&copy);
        self.cluster.covey(&["cp", "-rp", ":/kept", text(&copy)]);
        assert_eq!(describe(&copy), describe(&self.source));
    }

    /// `covey up` refuses with these words; when the reason is gone, everything is there.
    #[track_caller]
    fn refuses(
        &mut self,
        words: &[&str],
        spoil: impl FnOnce(&Cluster),
        repair: impl FnOnce(&Cluster),
    ) {
        self.cluster.down();
        spoil(&self.cluster);
        let up = self.cluster.start(&[]);
        up.says(words);
        repair(&self.cluster);
        self.cluster.restart();
        self.is_whole();
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("scratch directories have plain names")
}

/// Writes down one more I/O server, and makes its store.
fn list_io3(cluster: &Cluster) {
    let io3 = format!(
        "\n[[node]]\nname = \"io3\"\nroles = [\"data\"]\nlisten = [\"unix!{}\"]\nstore = {:?}\n",
        cluster.socket("io3").display(),
        cluster.store("io3"),
    );
    let config = fs::read_to_string(cluster.config()).unwrap();
    let config = config.replace("nodes = 3", "nodes = 4") + &io3;
    fs::write(cluster.config(), config).unwrap();
    cluster.covey(&["init", "--node", "io3"]);
}

/// Files are read that lie on the old servers, and new ones lie on all.
fn uses_io3(cluster: &Cluster, mnt: &Path, old: &[u8]) {
    let new = noise(2, 5_000_000);
    fs::write(mnt.join("new"), &new).unwrap();
    assert!(fs::read(mnt.join("new")).unwrap() == new, "what lies on the new server is read");
    assert!(fs::read(mnt.join("old")).unwrap() == old, "what was there before is there");
    let used = |path: &str| {
        let layout = cluster.covey(&["layout", path]);
        let row = layout.lines().find(|row| row.starts_with("io3")).map(str::to_owned);
        row.is_some_and(|row| !row.contains(" 0.0%"))
    };
    assert!(used("/new") && !used("/old"));
}

#[test]
fn a_mount_that_runs_uses_an_io_server_that_is_added() {
    let mut cluster = Cluster::up(2);
    let Some(mnt) = cluster.mount() else { return };
    let old = noise(1, 5_000_000);
    fs::write(mnt.join("old"), &old).unwrap();
    list_io3(&cluster);
    cluster.kill("meta");
    cluster.restart();
    uses_io3(&cluster, &mnt, &old);
}

#[test]
fn an_io_server_is_added_while_the_metadata_server_and_a_mount_run() {
    let mut cluster = Cluster::up(2);
    let Some(mnt) = cluster.mount() else { return };
    let old = noise(1, 5_000_000);
    fs::write(mnt.join("old"), &old).unwrap();
    cluster.refused(&["server", "add", "io3"]).says(&["lists no I/O server of that name"]);
    let listed = fs::read_to_string(cluster.config()).unwrap();
    list_io3(&cluster);
    let refused = cluster.refused(&["server", "add", "io3"]);
    refused.says(&["cannot add io3", "covey init --node io3"]);
    // Starts what does not run.
    cluster.restart();
    cluster.covey(&["server", "add", "io3"]);
    uses_io3(&cluster, &mnt, &old);
    cluster.covey(&["server", "add", "io3"]);
    assert!(cluster.covey(&["server", "ls"]).contains("io3"));
    assert_eq!(cluster.covey(&["server", "chains"]).matches("serving").count(), 3 * 16);
    cluster.covey(&["fsck"]);

    // It is one of them whatever happens now; a configuration without it is refused.
    cluster.kill("meta");
    cluster.restart();
    uses_io3(&cluster, &mnt, &old);
    cluster.down();
    let now = fs::read_to_string(cluster.config()).unwrap();
    fs::write(cluster.config(), listed).unwrap();
    cluster.start(&[]).says(&["io1, io2, io3"]);
    fs::write(cluster.config(), now).unwrap();
    cluster.restart();
    cluster.covey(&["fsck"]);
}

#[test]
fn a_cluster_that_went_down_comes_up_with_everything_in_it() {
    let mut kept = Kept::new(3);
    for _ in 0..2 {
        kept.cluster.down();
        kept.cluster.restart();
        kept.is_whole();
    }
    // And it goes on from there.
    kept.cluster.covey(&["rm", "-r", "/kept/a/b"]);
    kept.cluster.covey(&["cp", text(&kept.source.join("a/size-65537")), ":/kept/again"]);
    kept.cluster.down();
    kept.cluster.restart();
    assert!(kept.cluster.covey(&["ls", "/kept/a"]).lines().all(|name| name != "b"));
    let again = kept.cluster.scratch("again");
    kept.cluster.covey(&["cp", ":/kept/again", text(&again)]);
    assert_eq!(hash(&fs::read(&again).unwrap()), hash(&noise(6, 65_537)));
}

#[test]
fn every_server_killed_at_once_loses_nothing_that_was_acknowledged() {
    let kept = Kept::new(3);
    for node in ["io1", "meta", "io3", "io2"] {
        kept.cluster.kill(node);
    }
    kept.cluster.restart();
    kept.is_whole();
}

#[test]
fn a_store_of_a_newer_format_is_refused_and_left_alone() {
    let mut kept = Kept::new(2);
    let identity = kept.cluster.store("io1").join("covey.store");
    let ours = fs::read_to_string(&identity).unwrap();
    let newer = ours.replace("format 1", "format 99");
    assert_ne!(ours, newer, "{ours}");
    kept.refuses(
        &["io1", "format 99"],
        |_| fs::write(&identity, &newer).unwrap(),
        |_| {
            assert_eq!(fs::read_to_string(&identity).unwrap(), newer, "it was written to");
            fs::write(&identity, &ours).unwrap();
        },
    );
}

#[test]
fn a_store_of_another_node_or_cluster_is_refused() {
    let mut kept = Kept::new(2);
    let swap = |cluster: &Cluster| {
        let (one, two) = (cluster.store("io1"), cluster.store("io2"));
        let aside = cluster.dir.join("aside");
        fs::rename(&one, &aside).unwrap();
        fs::rename(&two, &one).unwrap();
        fs::rename(&aside, &two).unwrap();
    };
    kept.refuses(&["io1", "io2"], swap, swap);
    let stranger = Cluster::up(2);
    let (ours, theirs) = (kept.cluster.store("io1"), stranger.store("io1"));
    let aside = kept.cluster.dir.join("aside");
    kept.refuses(
        &["io1", "cluster"],
        |_| {
            fs::rename(&ours, &aside).unwrap();
            copy_dir(&theirs, &ours);
        },
        |_| {
            fs::remove_dir_all(&ours).unwrap();
            fs::rename(&aside, &ours).unwrap();
        },
    );
}

fn copy_dir(from: &Path, to: &Path) {
    let mut command = Command::new("cp");
    command.arg("-a").arg(from).arg(to);
    let done = run(command);
    assert!(done.ok, "cp: {done}");
}

#[test]
fn a_store_that_is_missing_is_not_made_anew() {
    let mut kept = Kept::new(2);
    let (store, aside) = (kept.cluster.store("io2"), kept.cluster.dir.join("aside"));
    kept.refuses(
        &["io2"],
        |_| fs::rename(&store, &aside).unwrap(),
        |_| {
            let _ = fs::remove_dir_all(&store);
            fs::rename(&aside, &store).unwrap();
        },
    );
}

#[test]
fn a_store_in_use_is_refused_to_a_second_server() {
    let kept = Kept::new(2);
    let config = fs::read_to_string(kept.cluster.config()).unwrap();
    let second = kept.cluster.scratch("second.toml");
    // The same stores, other sockets: only the lock in the store can tell.
    fs::write(&second, config.replace(".sock\"", ".sock2\"")).unwrap();
    let mut command = covey();
    command.arg("--config").arg(&second).args(["serve", "--node", "io1"]);
    let serve = run(command);
    serve.says(&["io1", "use"]);
    kept.is_whole();
}

#[test]
fn a_truncated_configuration_is_refused_by_every_command() {
    let kept = Kept::new(2);
    let whole = fs::read_to_string(kept.cluster.config()).unwrap();
    // Cut at every line, and within lines: a half file must never pass for a smaller cluster.
    let cuts: Vec<usize> = (1..whole.len() - 1).step_by(37).collect();
    for cut in cuts {
        fs::write(kept.cluster.config(), &whole[..cut]).unwrap();
        let check = kept.cluster.try_covey(&["config", "check"]);
        assert_eq!(check.code, Some(2), "cut at {cut}: {check}\n{}", &whole[..cut]);
    }
    fs::write(kept.cluster.config(), &whole[..whole.len() / 2]).unwrap();
    for command in [&["ping"][..], &["ls", "/"], &["status"], &["serve", "--node", "io1"]] {
        let refused = kept.cluster.refused(command);
        refused.says(&["covey.toml"]);
        assert_eq!(refused.code, Some(2), "{refused}");
    }
    kept.cluster.start(&[]).says(&["covey.toml"]);
    fs::write(kept.cluster.config(), &whole).unwrap();
    kept.is_whole();
}

#[test]
fn a_port_in_use_is_refused_and_nothing_is_left_running() {
    let mut kept = Kept::new(2);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let config = fs::read_to_string(kept.cluster.config()).unwrap();
    kept.cluster.down();
    let up = kept.cluster.start(&["--tcp", &port.to_string()]);
    up.says(&["in use", &port.to_string()]);
    assert!(kept.cluster.try_covey(&["ping"]).code == Some(1), "something runs");
    drop(taken);
    fs::write(kept.cluster.config(), config).unwrap();
    kept.cluster.restart();
    kept.is_whole();
}

/// A small file system of its own for a cluster; root only.
struct Small {
    dir: PathBuf,
}

impl Small {
    fn new(dir: PathBuf, mebibytes: usize) -> Option<Small> {
        if !is_root() {
            skip("needs root to mount a small tmpfs");
            return None;
        }
        fs::create_dir(&dir).unwrap();
        let small = Small { dir };
        let mounted = small.mount(&["-t", "tmpfs", "-o", &format!("size={mebibytes}m"), "tmpfs"]);
        mounted.map_err(|why| skip(format!("needs a small tmpfs: {why}"))).ok().map(|()| small)
    }

    fn mount(&self, options: &[&str]) -> Result<(), String> {
        let mut command = Command::new("mount");
        command.args(options).arg(&self.dir);
        let done = run(command);
        if done.ok { Ok(()) } else { Err(done.stderr) }
    }

    fn remount(&self, mode: &str) {
        self.mount(&["-o", &format!("remount,{mode}")]).unwrap();
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.dir).status();
    }
}

#[test]
fn a_full_disk_refuses_writes_keeps_what_is_there_and_lets_things_be_removed() {
    let scratch = tempfile::tempdir().unwrap();
    // Dropped after the cluster: what is declared first goes last.
    let Some(small) = Small::new(scratch.path().join("disk"), 400) else { return };
    let cluster = Cluster::within(small.dir.join("c"), tempfile::tempdir().unwrap());
    let up = cluster.start(&["-n", "2"]);
    assert!(up.ok, "{up}");
    let piece = cluster.scratch("piece");
    fs::write(&piece, noise(8, 40 << 20)).unwrap();
    let put = |index: usize| cluster.try_covey(&["cp", text(&piece), &format!(":/piece-{index}")]);
    let full = (0..30).map(&put).enumerate().find(|(_, done)| !done.ok);
    let (fitted, refused) = full.expect("400 MiB were not enough for 1200");
    assert!(fitted >= 1, "{refused}");
    refused.says(&["no space left"]);
    assert!(cluster.try_covey(&["ping"]).ok, "a server did not survive a full disk");
    let back = cluster.scratch("back");
    let whole = |index: usize| {
        cluster.covey(&["cp", &format!(":/piece-{index}"), text(&back)]);
        assert_eq!(hash(&fs::read(&back).unwrap()), hash(&fs::read(&piece).unwrap()), "{index}");
    };
    (0..fitted).for_each(whole);
    // Removing needs space too, and gives it back.
    cluster.covey(&["rm", "-f", &format!("/piece-{fitted}"), "/piece-0"]);
    crate::support::until("space for another file", || put(100).ok);
    whole(100);
    drop(cluster);
    drop(small);
}

#[test]
fn a_read_only_directory_is_refused_and_nothing_is_damaged() {
    let scratch = tempfile::tempdir().unwrap();
    let Some(small) = Small::new(scratch.path().join("disk"), 300) else { return };
    let mut cluster = Cluster::within(small.dir.join("c"), tempfile::tempdir().unwrap());
    let up = cluster.start(&["-n", "2"]);
    assert!(up.ok, "{up}");
    let source = cluster.scratch("f");
    fs::write(&source, noise(8, 3 << 20)).unwrap();
    cluster.covey(&["cp", text(&source), ":/f"]);
    cluster.down();
    small.remount("ro");
    cluster.start(&[]).says(&["read-only"]);
    small.remount("rw");
    cluster.restart();
    let back = cluster.scratch("back");
    cluster.covey(&["cp", ":/f", text(&back)]);
    assert_eq!(hash(&fs::read(&back).unwrap()), hash(&fs::read(&source).unwrap()));
    drop(cluster);
    drop(small);
}

#[test]
fn between_machines_only_the_right_key_opens_anything() {
    let Some(network) = Network::new() else { return };
    let cluster = Cluster::planned();
    let servers = network.spread(&cluster);
    let source = cluster.scratch("f");
    fs::write(&source, noise(8, 3 << 20)).unwrap();
    cluster.covey(&["cp", text(&source), ":/f"]);
    let with = |config: &Path, arguments: &[&str]| {
        let mut command = network.covey_there();
        command.arg("--config").arg(config).args(arguments);
        run(command)
    };
    let theirs = with(&cluster.config(), &["cat", "/f"]);
    assert!(theirs.ok, "the right key from the other machine: {}", theirs.stderr);

    let config = fs::read_to_string(cluster.config()).unwrap();
    let (key, other_config) = (cluster.dir.join("key"), cluster.scratch("other.toml"));
    let wrong = cluster.scratch("wrong-key");
    let mut keygen = covey();
    keygen.arg("keygen").arg(&wrong);
    assert!(run(keygen).ok);
    fs::write(&other_config, config.replace(text(&key), text(&wrong))).unwrap();
    for arguments in [&["cat", "/f"][..], &["ls", "/"], &["ping"], &["rm", "/f"]] {
        let refused = with(&other_config, arguments);
        refused.says(&[]);
        // `ping` tells it in its table.
        let told = format!("{}{}", refused.stdout, refused.stderr);
        assert!(told.contains("key"), "{refused}");
        // The servers live, they only do not let us in.
        let is_ping = arguments == ["ping"];
        assert!(!is_ping || told.contains("refused") && !told.contains("dead"), "{refused}");
    }
    // No key at all: neither a client nor a server gets anywhere.
    fs::remove_file(&wrong).unwrap();
    with(&other_config, &["cat", "/f"]).says(&["key"]);
    with(&other_config, &["serve", "--node", "io4"]).says(&["key"]);
    let address = format!("tcp!{}!5701", network.here);
    let plain = with(&other_config, &["9p", "ls", &address, "/data"]);
    assert!(!plain.ok && plain.stdout.is_empty(), "a plain client saw objects: {plain}");
    let back = cluster.scratch("back");
    cluster.covey(&["cp", ":/f", text(&back)]);
    assert_eq!(hash(&fs::read(&back).unwrap()), hash(&fs::read(&source).unwrap()));
    drop(servers);
}

#[test]
fn a_server_without_a_key_refuses_to_listen_beyond_its_machine() {
    let cluster = Cluster::planned();
    let dir = cluster.dir.display();
    fs::create_dir_all(&cluster.dir).unwrap();
    let config = format!(
        "version = 1\n[cluster]\nname = \"x\"\nid = \"{:032x}\"\n[[node]]\nname = \"n\"\n\
         roles = [\"meta\", \"data\"]\nlisten = [\"tcp!192.0.2.1!5640\"]\nstore = \"{dir}/n\"\n",
        7
    );
    fs::write(cluster.config(), config).unwrap();
    cluster.refused(&["serve", "--node", "n"]).says(&["key"]);
}

#[test]
fn an_io_server_that_lost_a_truncation_with_its_power_is_told_again() {
    let mut cluster = Cluster::up(2);
    let Some(mount) = cluster.mount() else { return };
    let file = mount.join("file");
    fs::write(&file, vec![b'x'; 300_000]).unwrap();
    fs::write(&file, b"new").unwrap();
    // The renames that took the objects to their new epoch had not reached the disk.
    let mut undone = 0;
    for node in ["io1", "io2"] {
        cluster.kill(node);
        for cut in cluster.objects_of(node) {
            assert_eq!(cut.extension().unwrap(), "1");
            fs::rename(&cut, cut.with_extension("")).unwrap();
            undone += 1;
        }
    }
    assert_eq!(undone, 2);
    cluster.restart();
    until("the truncation to be carried out again", || fs::read(&file).is_ok());
    assert_eq!(fs::read(&file).unwrap(), b"new");
}
