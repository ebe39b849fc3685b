//! Servers that are killed, stopped or cut off: what it costs, to whom, for how long, and what is
//! left afterwards. Waits are bounded by generous limits that tell hanging from failing; how long
//! an error really took is told by `make demo` and `make bench`.

use crate::support::bytes::{assert_same, hash, noise};
use crate::support::network::Network;
use crate::support::{Cluster, run_within, until};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Far above the 3 s after which a server counts as dead, far below what a hang would take.
const SOON: Duration = Duration::from_secs(20);

/// Beyond what is on one server, by more than four strips: it has bytes on every server.
const STRIPED: usize = 6 << 20;
/// More than what lies with the metadata, and on one server.
const SMALL: usize = 100_000;
const SMALL_FILES: u64 = 12;

/// Files whose bytes are acknowledged by fsync.
struct Files {
    dir: PathBuf,
}

impl Files {
    fn write(dir: &Path) -> Files {
        fs::create_dir(dir).unwrap();
        let files = Files { dir: dir.to_owned() };
        for (name, bytes) in files.wanted() {
            let file = File::create(dir.join(&name)).unwrap();
            file.write_all_at(&bytes, 0).unwrap();
            file.sync_all().unwrap();
        }
        files
    }

    fn wanted(&self) -> Vec<(String, Vec<u8>)> {
        let mut wanted = vec![("striped".to_owned(), noise(77, STRIPED))];
        wanted
            .extend((0..SMALL_FILES).map(|index| (format!("small-{index}"), noise(index, SMALL))));
        wanted
    }

    /// How many of the small files can be read; one that can must be right.
    fn readable(&self) -> usize {
        let wanted = self.wanted();
        let small = wanted.iter().filter(|(name, _)| name != "striped");
        small
            .filter(|(name, bytes)| match read_afresh(&self.dir.join(name)) {
                Ok(found) => {
                    assert_same(&found, bytes, name);
                    true
                }
                Err(error) => {
                    assert_eq!(error.raw_os_error(), Some(libc::EIO), "{name}: {error}");
                    false
                }
            })
            .count()
    }

    fn striped(&self) -> io::Result<Vec<u8>> {
        read_afresh(&self.dir.join("striped"))
    }

    fn are_whole(&self) {
        for (name, bytes) in self.wanted() {
            assert_same(&read_afresh(&self.dir.join(&name)).unwrap(), &bytes, &name);
        }
    }
}

/// Reads a file as a program that opens it does, without what this client may have kept of it.
fn read_afresh(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    let mut bytes = vec![0; file.metadata()?.len() as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// One server of four does not answer: its requests fail, everything else goes on.
fn others_go_on(files: &Files, mount: &Path) {
    let error = files.striped().expect_err("a quarter of the file cannot be reached");
    assert_eq!(error.raw_os_error(), Some(libc::EIO), "{error}");
    let readable = files.readable();
    assert!((1..SMALL_FILES as usize).contains(&readable), "{readable} of {SMALL_FILES} readable");
    let mut list = Command::new("ls");
    list.arg("-l").arg(&files.dir);
    let listed = run_within(list, SOON);
    assert!(listed.ok, "ls -l: {listed}");
    assert_eq!(listed.stdout.lines().count(), 2 + SMALL_FILES as usize);
    let name = mount.join("made-meanwhile");
    fs::create_dir(&name).unwrap();
    fs::rename(&name, mount.join("renamed-meanwhile")).unwrap();
    fs::remove_dir(mount.join("renamed-meanwhile")).unwrap();
    assert!(rustix::fs::statvfs(mount).unwrap().f_blocks > 0);
}

#[test]
fn a_killed_io_server_costs_only_its_requests_and_loses_nothing_that_was_fsynced() {
    let mut cluster = Cluster::up(4);
    let Some(mount) = cluster.mount() else { return };
    let files = Files::write(&mount.join("files"));
    cluster.kill("io2");
    others_go_on(&files, &mount);
    cluster.restart();
    until("the way back to the restarted server", || files.striped().is_ok());
    files.are_whole();
    fs::remove_dir_all(mount.join("files")).unwrap();
    until("the end of all objects", || cluster.objects() == 0);
}

#[test]
fn an_io_server_killed_during_a_copy_costs_only_its_own_requests() {
    let mut cluster = Cluster::up(4);
    let Some(mount) = cluster.mount() else { return };
    let kept = Files::write(&mount.join("kept"));
    fs::create_dir(mount.join("copy")).unwrap();
    let done = AtomicBool::new(false);
    let mut acknowledged = Vec::new();
    std::thread::scope(|scope| {
        let copier = scope.spawn(|| {
            let mut acknowledged = Vec::new();
            let mut index = 0;
            while !done.load(Ordering::Relaxed) || index < 30 {
                let path = mount.join(format!("copy/{index}"));
                let bytes = noise(1000 + index, 150_000);
                let written = File::create(&path).and_then(|file| {
                    file.write_all_at(&bytes, 0)?;
                    file.sync_all()
                });
                if written.is_ok() {
                    acknowledged.push((path, hash(&bytes)));
                }
                index += 1;
            }
            acknowledged
        });
        for _ in 0..2 {
            std::thread::sleep(Duration::from_millis(300));
            cluster.kill("io3");
            std::thread::sleep(Duration::from_millis(300));
            cluster.restart();
        }
        until("the way back to the restarted server", || kept.striped().is_ok());
        done.store(true, Ordering::Relaxed);
        acknowledged = copier.join().unwrap();
    });
    assert!(!acknowledged.is_empty(), "nothing was copied");
    for (path, wanted) in &acknowledged {
        assert_eq!(hash(&read_afresh(path).unwrap()), *wanted, "{}", path.display());
    }
    kept.are_whole();
    for name in ["kept", "copy"] {
        fs::remove_dir_all(mount.join(name)).unwrap();
    }
    until("the end of all objects", || cluster.objects() == 0);
}

#[test]
fn a_stopped_io_server_is_treated_like_a_dead_one_and_umount_returns() {
    let mut cluster = Cluster::up(4);
    let Some(mount) = cluster.mount() else { return };
    let Some(second) = cluster.mount() else { return };
    let files = Files::write(&mount.join("files"));
    cluster.signal("io1", Signal::STOP);
    others_go_on(&files, &mount);
    let mut umount = crate::support::covey();
    umount.arg("umount").arg(&second);
    let done = run_within(umount, SOON);
    assert!(done.ok, "umount beside a stopped server: {done}");
    cluster.signal("io1", Signal::CONT);
    until("the way back to the server", || files.striped().is_ok());
    files.are_whole();
}

#[test]
fn a_write_to_a_stopped_server_fails_and_the_same_write_works_when_it_goes_on() {
    let mut cluster = Cluster::up(2);
    let Some(mount) = cluster.mount() else { return };
    let file = File::create_new(mount.join("f")).unwrap();
    file.write_all_at(&noise(1, STRIPED), 0).unwrap();
    cluster.signal("io2", Signal::STOP);
    let bytes = noise(2, STRIPED);
    let failed = file.write_all_at(&bytes, 0).and_then(|()| file.sync_all());
    assert!(failed.is_err(), "a write was acknowledged that nobody has taken");
    // The program is told a number. Why is in the mount's log.
    let logs = fs::read_dir(cluster.dir.join("log")).unwrap().map(|entry| entry.unwrap().path());
    let log: String = logs.map(|path| fs::read_to_string(path).unwrap()).collect();
    let why = log.lines().find(|line| line.contains("a program gets an error"));
    assert!(why.is_some_and(|why| why.contains("io2")), "{log}");
    cluster.signal("io2", Signal::CONT);
    until("the way back to the server", || file.write_all_at(&bytes, 0).is_ok());
    file.sync_all().unwrap();
    assert_same(&read_afresh(&mount.join("f")).unwrap(), &bytes, "after the second write");
}

#[test]
fn a_hard_mount_waits_for_its_server_and_a_signal_ends_the_wait() {
    let mut cluster = Cluster::up(2);
    let Some(mount) = cluster.mount_with(&["--hard"]) else { return };
    let bytes = noise(5, STRIPED);
    fs::write(mount.join("f"), &bytes).unwrap();
    File::open(mount.join("f")).unwrap().sync_all().unwrap();
    rustix::fs::fadvise(
        File::open(mount.join("f")).unwrap(),
        0,
        None,
        rustix::fs::Advice::DontNeed,
    )
    .unwrap();
    cluster.kill("io1");
    let read = || {
        let mut command = Command::new("cat");
        command.arg(mount.join("f")).stdout(std::process::Stdio::null());
        command.spawn().expect("cat runs")
    };
    let (mut patient, mut impatient) = (read(), read());
    // Longer than any soft mount would wait: they must still be at it.
    std::thread::sleep(Duration::from_secs(5));
    assert!(patient.try_wait().unwrap().is_none(), "a hard mount gave up");
    let pid = rustix::process::Pid::from_child(&impatient);
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    until("the end of the program that got a signal", || impatient.try_wait().unwrap().is_some());
    assert!(patient.try_wait().unwrap().is_none(), "a hard mount gave up");
    cluster.restart();
    until("the end of the wait", || patient.try_wait().unwrap().is_some());
    assert!(patient.wait().unwrap().success(), "the read failed although its server came back");
    assert_same(&fs::read(mount.join("f")).unwrap(), &bytes, "f");
}

#[test]
fn a_killed_metadata_server_comes_back_with_every_name_and_open_files_go_on() {
    let mut cluster = Cluster::up(3);
    let Some(mount) = cluster.mount() else { return };
    let files = Files::write(&mount.join("files"));
    let open = File::options().read(true).write(true).open(files.dir.join("small-0")).unwrap();
    cluster.kill("meta");
    assert!(fs::create_dir(mount.join("meanwhile")).is_err(), "nobody could have made it");
    cluster.restart();
    until("the way back to the metadata server", || fs::create_dir(mount.join("d")).is_ok());
    files.are_whole();
    open.write_all_at(b"through the old descriptor", SMALL as u64).unwrap();
    assert_eq!(fs::metadata(files.dir.join("small-0")).unwrap().len(), SMALL as u64 + 26);
    fs::remove_dir_all(&files.dir).unwrap();
    drop(open);
    until("the end of all objects", || cluster.objects() == 0);
}

#[test]
fn a_client_that_is_killed_leaves_no_lock_and_no_unlinked_file_behind() {
    let mut cluster = Cluster::up(2);
    let Some(doomed) = cluster.mount() else { return };
    let Some(mount) = cluster.mount() else { return };
    let file = File::create_new(doomed.join("unlinked")).unwrap();
    file.write_all_at(&noise(1, STRIPED), 0).unwrap();
    fs::remove_file(doomed.join("unlinked")).unwrap();
    let locked = File::create_new(doomed.join("locked")).unwrap();
    locked.lock().unwrap();
    let other = File::options().read(true).write(true).open(mount.join("locked")).unwrap();
    assert!(other.try_lock().is_err(), "the lock is held");
    cluster.kill_mount(&doomed);
    until("the end of a dead client's lock", || other.try_lock().is_ok());
    until("the end of a dead client's unlinked file", || cluster.objects() == 0);
    drop((file, locked));
}

#[test]
fn a_server_whose_packets_are_dropped_is_like_a_dead_one() {
    let Some(network) = Network::new() else { return };
    let mut cluster = Cluster::planned();
    let _servers = network.spread(&cluster);
    let Some(mount) = cluster.mount() else { return };
    let files = Files::write(&mount.join("files"));
    network.cut();
    others_go_on(&files, &mount);
    network.join().unwrap();
    until("the way back to the server", || files.striped().is_ok());
    files.are_whole();
    network.cut();
    cluster.umount(&mount);
}
