//! Volumes as files of this machine: our own initiator behind a mount, and file systems on it.

use crate::initiator::{export, free_address};
use crate::support::bytes::noise;
use crate::support::{Cluster, Finished, has_program, is_root, no_fuse, skip, until};
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;

/// A volume that is attached as a file in a directory; taken away with this.
pub struct Attached<'a> {
    cluster: &'a Cluster,
    place: PathBuf,
    name: String,
    is_detached: bool,
}

impl<'a> Attached<'a> {
    pub fn new(cluster: &'a Cluster, name: &str, options: &[&str]) -> Attached<'a> {
        let place = cluster.scratch(&format!("at-{name}"));
        std::fs::create_dir_all(&place).unwrap();
        let words = ["volume", "attach", name, place.to_str().unwrap()];
        cluster.covey(&[&words, options].concat());
        Attached { cluster, place, name: name.to_owned(), is_detached: false }
    }

    pub fn file(&self) -> PathBuf {
        self.place.join(&self.name)
    }

    pub fn open(&self) -> File {
        File::options().read(true).write(true).open(self.file()).unwrap()
    }

    pub fn detach(mut self) {
        self.is_detached = true;
        self.cluster.covey(&["volume", "detach", self.place.to_str().unwrap()]);
        assert!(std::fs::read_dir(&self.place).unwrap().next().is_none());
    }
}

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        if !self.is_detached {
            let place = self.place.to_str().unwrap();
            let _ = self.cluster.try_covey(&["volume", "detach", "--lazy", place]);
        }
    }
}

/// Whether FUSE may be used here; says so where it may not.
pub fn may_mount() -> bool {
    match no_fuse() {
        None => true,
        Some(why) => {
            skip(why);
            false
        }
    }
}

fn with_volume(create: &[&str]) -> Cluster {
    let cluster = Cluster::up(2);
    let begin = ["volume", "create", "disk", "--size", "64M"];
    cluster.covey(&[&begin, create].concat());
    cluster
}

#[test]
fn a_volume_is_a_file_that_is_read_and_written_anywhere() {
    if !may_mount() {
        return;
    }
    let cluster = with_volume(&["--block", "4096"]);
    cluster.refused(&["volume", "attach", "disk", "/nowhere/x"]).says(&["not exported", "export"]);
    export(&cluster, "disk", &free_address());
    let attached = Attached::new(&cluster, "disk", &[]);
    let file = attached.open();
    assert_eq!(file.metadata().unwrap().len(), 64 << 20);
    let mut model = vec![0u8; 4 * MIB];
    for (turn, (offset, length)) in
        [(0, 5000), (4095, 2), (4096, 8192), (MIB - 1, MIB + 7), (3 * MIB + 11, 1)]
            .into_iter()
            .enumerate()
    {
        let data = noise(turn as u64, length);
        file.write_all_at(&data, offset as u64).unwrap();
        model[offset..offset + length].copy_from_slice(&data);
    }
    file.sync_all().unwrap();
    let mut found = vec![0; model.len()];
    file.read_exact_at(&mut found, 0).unwrap();
    assert!(found == model);
    // It ends where it ends.
    assert_eq!(file.read_at(&mut [0; 10], 64 << 20).unwrap(), 0);
    let beyond = file.write_at(&[1], 64 << 20).unwrap_err();
    assert_eq!(beyond.kind(), std::io::ErrorKind::StorageFull);
    assert!(file.set_len(5).is_err());
    // A larger one is seen when it is opened again.
    cluster.covey(&["volume", "resize", "disk", "80M"]);
    assert_eq!(attached.open().metadata().unwrap().len(), 80 << 20);
    drop(file);
    attached.detach();
    // As a file by itself, which nobody may change.
    let place = cluster.scratch("alone");
    let place = place.to_str().unwrap();
    cluster.covey(&["volume", "attach", "disk", place, "--read-only"]);
    let alone = std::fs::read(place).unwrap();
    assert!(alone.len() == 80 << 20 && alone[..model.len()] == model[..]);
    assert!(File::options().write(true).open(place).is_err());
    cluster.covey(&["volume", "detach", place]);
    assert_eq!(std::fs::metadata(place).unwrap().len(), 0);
}

/// Who opens a file for synchronous writes calls no fsync: each write is on stable storage when it returns.
#[test]
fn synchronous_writes_are_brought_to_stable_storage() {
    if !may_mount() {
        return;
    }
    let cluster = with_volume(&[]);
    export(&cluster, "disk", &free_address());
    let attached = Attached::new(&cluster, "disk", &[]);
    let flushes = || {
        let text = cluster.covey(&["--json", "volume", "stats", "disk"]);
        let stats: serde_json::Value = serde_json::from_str(&text).expect("JSON was asked for");
        stats["counts"]["flushes"].as_u64().expect("a number")
    };
    for (flag, expected) in [(0, 0), (libc::O_DSYNC, 1), (libc::O_SYNC, 2)] {
        let mut options = File::options();
        let file = options.write(true).custom_flags(flag).open(attached.file()).unwrap();
        file.write_all_at(&[7; 4096], 8192).unwrap();
        assert_eq!(flushes(), expected, "{flag:o}");
    }
    attached.detach();
}

/// Nothing goes through TCP that does not leave the machine, unless an address is named; what TCP would ask for is asked for
/// there, too.
#[test]
fn a_node_of_this_machine_is_logged_in_to_by_its_own_socket() {
    if !may_mount() {
        return;
    }
    let cluster = with_volume(&[]);
    let (address, other) = (free_address(), free_address());
    export(&cluster, "disk", &address);
    export(&cluster, "disk", &other);
    let come_to = || {
        let text = cluster.covey(&["--json", "volume", "stats", "disk"]);
        let stats: serde_json::Value = serde_json::from_str(&text).expect("JSON was asked for");
        let sessions = stats["sessions"].as_array().expect("a list").iter();
        sessions.map(|one| one["address"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let attached = Attached::new(&cluster, "disk", &["--portal", &address]);
    assert_eq!(come_to(), std::slice::from_ref(&address));
    attached.detach();
    let attached = Attached::new(&cluster, "disk", &["--patience", "2"]);
    assert_eq!(come_to(), ["unix"]);
    let disk = attached.open();
    disk.write_all_at(&vec![5; 3 * MIB], 4096).unwrap();
    cluster.covey(&["volume", "unexport", "disk", "--listen", &address]);
    assert_eq!(come_to(), ["unix"]);
    // Who is not on the list any more is put out of there, too.
    let allow = ["volume", "acl", "disk", "--allow", "iqn.2026-01.org.example:you"];
    cluster.covey(&allow);
    disk.read_exact_at(&mut [0; 512], 0).unwrap_err();
    assert!(come_to().is_empty());
    cluster.covey(&["volume", "acl", "disk", "--deny", "iqn.2026-01.org.example:you"]);
    until("the file's return", || disk.read_exact_at(&mut [0; 512], 0).is_ok());
    cluster.covey(&["volume", "unexport", "disk"]);
    disk.read_exact_at(&mut [0; 512], 0).unwrap_err();
    assert!(come_to().is_empty());
    drop(disk);
    attached.detach();
}

/// A secret is needed, and a wrong one is told at once.
#[test]
fn who_attaches_proves_who_it_is() {
    if !may_mount() {
        return;
    }
    let cluster = with_volume(&[]);
    let secrets = ["right", "wrong"].map(|name| cluster.scratch(name));
    std::fs::write(&secrets[0], "not-very-secret\n").unwrap();
    std::fs::write(&secrets[1], "not-the-secret-no\n").unwrap();
    let [right, wrong] = secrets.each_ref().map(|path| path.to_str().unwrap());
    cluster.covey(&["volume", "acl", "disk", "--chap", "alice", "--secret-file", right]);
    export(&cluster, "disk", &free_address());
    let place = cluster.scratch("place");
    std::fs::create_dir(&place).unwrap();
    let words = ["volume", "attach", "disk", place.to_str().unwrap()];
    cluster.refused(&words).says(&["the target"]);
    let proof = |file| ["--chap", "alice", "--secret-file", file];
    cluster.refused(&[&words[..], &proof(wrong)].concat()).says(&["wrong name or secret"]);
    let attached = Attached::new(&cluster, "disk", &proof(right));
    attached.open().write_all_at(b"abc", 7).unwrap();
    attached.detach();
}

/// The node is killed while it is written to and started again: programs see nothing of it but time, and what was synced is
/// there. One that stays away costs errors, not waits without end; when it is back the file works again.
#[test]
fn a_target_that_dies_is_waited_for_and_not_for_ever() {
    if !may_mount() {
        return;
    }
    let file = |cluster: &Cluster| cluster.scratch("disk.img").to_str().unwrap().to_owned();
    let cluster = Cluster::up(1);
    let image = file(&cluster);
    let create = ["volume", "create", "disk", "--size", "32M", "--file", &image, "--node", "io1"];
    cluster.covey(&create);
    export(&cluster, "disk", &free_address());
    let attached = Attached::new(&cluster, "disk", &["--patience", "20"]);
    let disk = attached.open();
    for turn in 0..24u8 {
        if turn % 8 == 3 {
            cluster.kill("io1");
            cluster.restart();
        }
        disk.write_all_at(&vec![turn + 1; MIB], u64::from(turn) << 20).unwrap();
        disk.sync_data().unwrap();
    }
    let mut found = vec![0; 24 * MIB];
    disk.read_exact_at(&mut found, 0).unwrap();
    assert!(found.chunks(MIB).zip(1..).all(|(part, turn)| part.iter().all(|byte| *byte == turn)));
    drop(disk);
    attached.detach();

    let attached = Attached::new(&cluster, "disk", &["--patience", "2"]);
    let disk = attached.open();
    cluster.kill("io1");
    let begun = Instant::now();
    disk.write_all_at(&[7; 4096], 0).unwrap_err();
    disk.sync_data().unwrap_err();
    disk.read_exact_at(&mut [0; 512], 0).unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(60));
    cluster.restart();
    until("the file's return", || disk.write_all_at(&[8; 4096], 0).is_ok());
    disk.sync_data().unwrap();
    drop(disk);
    attached.detach();
}

/// A file system on a volume, by a loop device.
#[test]
fn a_file_system_on_a_volume_is_mounted_and_keeps_its_files() {
    if !may_mount() {
        return;
    }
    if !is_root() || !has_program("mkfs.ext4") || !has_program("losetup") {
        return skip("needs root, e2fsprogs and mount");
    }
    if !Path::new("/dev/loop-control").exists() {
        return skip("needs loop devices");
    }
    let cluster = with_volume(&[]);
    export(&cluster, "disk", &free_address());
    let place = cluster.scratch("fs");
    let place = place.to_str().unwrap();
    let words = ["volume", "attach", "disk", place, "--fs", "ext4"];
    cluster.refused(&words).says(&["no file system", "--format"]);
    cluster.covey(&[&words[..], &["--format"]].concat());
    let data = noise(5, 3 * MIB);
    std::fs::write(Path::new(place).join("file"), &data).unwrap();
    cluster.refused(&words).says(&["attached there"]);
    // However the place is written; and a file system is mounted once, wherever.
    let (link, around) = (cluster.scratch("link"), cluster.scratch("other"));
    std::os::unix::fs::symlink(place, &link).unwrap();
    std::fs::create_dir(&around).unwrap();
    let around = format!("{}/../fs", around.display());
    for same in [link.to_str().unwrap(), &around] {
        let words = ["volume", "attach", "disk", same, "--fs", "ext4"];
        cluster.refused(&words).says(&["attached there"]);
    }
    let elsewhere = cluster.scratch("elsewhere");
    let again = ["volume", "attach", "disk", elsewhere.to_str().unwrap(), "--fs", "ext4"];
    cluster.refused(&again).says(&["disk is in use here", "/dev/loop"]);
    cluster.covey(&["volume", "detach", &around]);
    assert!(std::fs::read_dir(place).unwrap().next().is_none());
    // What it has now is not made anew.
    cluster.covey(&[&words[..], &["--format"]].concat());
    assert!(std::fs::read(Path::new(place).join("file")).unwrap() == data);
    // Whoever unmounts it as any other leaves the volume attached.
    assert!(Command::new("umount").arg(place).status().unwrap().success());
    cluster.refused(&words).says(&["attached there", "detach"]);
    cluster.covey(&["volume", "detach", place]);
    cluster.refused(&["volume", "detach", place]).says(&["nothing is attached there"]);
    let attached = Attached::new(&cluster, "disk", &[]);
    let mut fsck = Command::new("fsck.ext4");
    fsck.args(["-fn"]).arg(attached.file());
    let checked: Finished = crate::support::run(fsck);
    assert!(checked.ok, "{checked}");
    attached.detach();
}

/// A machine whose mounts are its own, as a node of a lab or a container is.
struct Machine(std::process::Child);

impl Machine {
    fn start() -> Machine {
        let machine = Command::new("unshare").args(["--mount", "sleep", "600"]).spawn().unwrap();
        let mounts = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
        let pid = machine.id().to_string();
        until("the machine", || mounts(&pid) != mounts("self"));
        Machine(machine)
    }

    fn run(&self, words: &[&str]) -> Finished {
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--target", &self.0.id().to_string(), "--"]).args(words);
        crate::support::run(command)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The process behind what is attached.
fn initiator(cluster: &Cluster) -> Option<String> {
    let mut files = std::fs::read_dir(cluster.dir.join("run")).unwrap().flatten();
    let name = |file: &std::fs::DirEntry| file.file_name().into_string().unwrap();
    let file = files.find(|file| name(file).starts_with("mount-"))?;
    let text = std::fs::read_to_string(file.path()).ok()?;
    Some(text.split_whitespace().next()?.to_owned())
}

/// Whether a process is over, or only waits for its parent to look.
fn has_ended(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
}

fn kill(pid: &str, signal: &str) {
    assert!(Command::new("kill").args([signal, pid]).status().unwrap().success());
}

/// Everything in a machine is killed, its initiator last: the file system that the initiator carries has something left to
/// write, and nobody who would take it.
#[test]
fn an_initiator_that_is_killed_with_its_machine_ends() {
    if !may_mount() {
        return;
    }
    let programs = ["mkfs.ext4", "losetup", "unshare", "nsenter"];
    if !is_root() || !programs.into_iter().all(has_program) {
        return skip("needs root, e2fsprogs, mount and util-linux");
    }
    if !Path::new("/dev/loop-control").exists() {
        return skip("needs loop devices");
    }
    let cluster = with_volume(&[]);
    export(&cluster, "disk", &free_address());
    let machine = Machine::start();
    let place = cluster.scratch("fs");
    let (place, config) = (place.to_str().unwrap(), cluster.config());
    let covey = env!("CARGO_BIN_EXE_covey");
    let attach =
        ["--config", config.to_str().unwrap(), "--json", "volume", "attach", "disk", place];
    let attached = machine.run(&[&[covey][..], &attach, &["--fs", "ext4", "--format"]].concat());
    assert!(attached.ok, "{attached}");
    let attached: serde_json::Value = serde_json::from_str(&attached.stdout).unwrap();
    let device = attached["device"].as_str().unwrap().trim_start_matches("/dev/").to_owned();
    let file = format!("of={place}/file");
    let written = machine.run(&["dd", "if=/dev/urandom", &file, "bs=1M", "count=8", "status=none"]);
    assert!(written.ok, "{written}");
    let pid = initiator(&cluster).expect("somebody serves it");
    drop(machine);
    kill(&pid, "-KILL");
    until("the initiator's end", || has_ended(&pid));
    let backing = format!("/sys/block/{device}/loop/backing_file");
    until("the loop device's end", || !Path::new(&backing).exists());
}

/// The initiator is not among the mounts that it serves, and takes its own away all the same.
#[test]
fn an_initiator_that_is_asked_to_end_takes_its_mount_away() {
    if !may_mount() {
        return;
    }
    let cluster = with_volume(&[]);
    export(&cluster, "disk", &free_address());
    let attached = Attached::new(&cluster, "disk", &[]);
    let pid = initiator(&cluster).expect("somebody serves it");
    kill(&pid, "-TERM");
    until("the initiator's end", || has_ended(&pid));
    assert!(std::fs::read_dir(&attached.place).unwrap().next().is_none());
}
