//! Two FUSE mounts of one cluster, used at the same time by threads and by real programs.

use crate::support::bytes::{assert_same, describe, make_tree, noise};
use crate::support::preload::compile;
use crate::support::{Cluster, no_fuse, open, run, skip, two_mounts, until};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::time::{Duration, SystemTime};

#[test]
fn unaligned_records_of_four_writers_on_two_mounts_are_all_right() {
    let Some((_cluster, one, two)) = two_mounts(4) else { return };
    // Odd: record boundaries fall everywhere within pages and strips.
    const RECORD: usize = 1001;
    const RECORDS: usize = 2400;
    const WRITERS: usize = 4;
    let wanted = noise(1, RECORD * RECORDS);
    let start = Barrier::new(WRITERS);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let file = open(&if writer % 2 == 0 { &one } else { &two }.join("records"));
            let (start, wanted) = (&start, &wanted);
            scope.spawn(move || {
                start.wait();
                // From both ends, so that writers extend the file in different places.
                let mine = (0..RECORDS).filter(|record| record % WRITERS == writer);
                let order: Vec<usize> =
                    if writer < 2 { mine.collect() } else { mine.rev().collect() };
                for record in order {
                    let at = record * RECORD;
                    file.write_all_at(&wanted[at..at + RECORD], at as u64).expect("a write");
                }
            });
        }
    });
    for mount in [&one, &two] {
        assert_same(&fs::read(mount.join("records")).unwrap(), &wanted, "records");
    }
}

/// As many as it takes until the mount looks where the caller runs: exec closes them, and nobody can look at a process in
/// exec on some kernels, until all of them are closed.
const EXECUTES: &str = r#"
import os, sys
for number in range(300):
    file = os.open(f"{sys.argv[1]}/{number}", os.O_CREAT | os.O_RDWR)
    os.write(file, b"x")
os.execv("/bin/true", ["true"])
"#;

#[test]
fn a_program_that_executes_another_with_many_files_open_goes_on() {
    let mut cluster = Cluster::up(1);
    let Some(mount) = cluster.mount() else { return };
    for _ in 0..3 {
        let program = Command::new("python3").args(["-c", EXECUTES]).arg(&mount).spawn();
        let Ok(mut program) = program else { return skip("needs python3") };
        until("the end of the program", || program.try_wait().unwrap().is_some());
        assert!(program.wait().unwrap().success());
    }
}

#[test]
fn a_record_written_on_one_mount_is_read_on_the_other_at_once() {
    let Some((_cluster, one, two)) = two_mounts(3) else { return };
    let (left, right) = (open(&one.join("ping")), open(&two.join("ping")));
    for round in 0..150_u64 {
        // Back and forth, growing the file half of the time and overwriting it the other half.
        let (from, to) = if round % 2 == 0 { (&left, &right) } else { (&right, &left) };
        let record = noise(round, 700 + round as usize);
        let at = if round % 4 < 2 { round * 1000 } else { 0 };
        from.write_all_at(&record, at).expect("a write");
        let mut found = vec![0; record.len()];
        to.read_exact_at(&mut found, at).expect("a read of what was just written");
        assert_same(&found, &record, &format!("round {round}"));
        assert_eq!(to.metadata().unwrap().len(), from.metadata().unwrap().len(), "round {round}");
    }
}

#[test]
fn appends_from_two_mounts_lose_no_line() {
    let Some((_cluster, one, two)) = two_mounts(3) else { return };
    const LINES: usize = 60;
    let script =
        r#"i=0; while [ $i -lt $2 ]; do echo "writer $0 line $i" >>"$1"; i=$((i+1)); done"#;
    let writers: Vec<Child> = (0..4)
        .map(|writer| {
            let log = if writer % 2 == 0 { &one } else { &two }.join("log");
            let mut command = Command::new("sh");
            command.arg("-c").arg(script).arg(writer.to_string()).arg(log).arg(LINES.to_string());
            command.spawn().expect("sh runs")
        })
        .collect();
    for mut writer in writers {
        assert!(writer.wait().unwrap().success());
    }
    let text = fs::read_to_string(one.join("log")).expect("whole lines");
    let mut found: Vec<&str> = text.lines().collect();
    found.sort_unstable();
    let line = |writer: usize, line: usize| format!("writer {writer} line {line}");
    let mut wanted: Vec<String> =
        (0..4).flat_map(|writer| (0..LINES).map(move |number| line(writer, number))).collect();
    wanted.sort_unstable();
    assert_eq!(found, wanted);
}

/// The C program that takes byte-range locks.
fn rangelock(cluster: &Cluster) -> Option<PathBuf> {
    compile(cluster, "support/rangelock.c", "cc")
}

/// Tries to lock a range from another process; answers what it said and the process that holds it.
fn try_lock(program: &Path, file: &Path, start: u64, length: u64) -> (String, Child) {
    let mut command = Command::new(program);
    command.arg("try").arg(file).args([start.to_string(), length.to_string()]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it runs");
    let mut said = String::new();
    let mut letter = [0];
    let stdout = child.stdout.as_mut().expect("stdout is a pipe");
    while stdout.read(&mut letter).expect("a pipe") == 1 && letter[0] != b'\n' {
        said.push(char::from(letter[0]));
    }
    (said, child)
}

fn let_go(mut child: Child) {
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_lock_on_one_mount_keeps_others_out_on_another() {
    let Some((cluster, one, two)) = two_mounts(2) else { return };
    let Some(program) = rangelock(&cluster) else { return };
    fs::write(one.join("ranges"), vec![b'0'; 100]).unwrap();
    let file = two.join("ranges");
    let (said, holder) = try_lock(&program, &one.join("ranges"), 10, 10);
    assert_eq!(said, "locked");
    for (start, length, wanted) in
        [(10, 10, "busy"), (19, 5, "busy"), (0, 11, "busy"), (0, 0, "busy")]
    {
        let (said, child) = try_lock(&program, &file, start, length);
        assert_eq!(said, wanted, "range {start}+{length}");
        let_go(child);
    }
    // Thresholds from the other side: the neighbours of the range are free.
    for (start, length) in [(0, 10), (20, 0)] {
        let (said, child) = try_lock(&program, &file, start, length);
        assert_eq!(said, "locked", "range {start}+{length}");
        let_go(child);
    }
    let_go(holder);
    until("a lock whose holder has ended", || {
        let (said, child) = try_lock(&program, &file, 10, 10);
        let_go(child);
        said == "locked"
    });
}

#[test]
fn a_counter_under_a_lock_loses_no_increment_of_four_processes_on_two_mounts() {
    let Some((cluster, one, two)) = two_mounts(2) else { return };
    let Some(program) = rangelock(&cluster) else { return };
    fs::write(one.join("counter"), "000000000000").unwrap();
    let children: Vec<Child> = (0..4)
        .map(|index| {
            let file = if index % 2 == 0 { &one } else { &two }.join("counter");
            Command::new(&program)
                .arg("count")
                .arg(file)
                .args(["0", "40"])
                .spawn()
                .expect("it runs")
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(fs::read_to_string(two.join("counter")).unwrap(), "000000000160");
}

#[test]
fn whole_file_locks_exclude_across_mounts() {
    let Some((_cluster, one, two)) = two_mounts(2) else { return };
    let (left, right) = (open(&one.join("flock")), open(&two.join("flock")));
    left.lock().unwrap();
    assert!(right.try_lock().is_err(), "an exclusive lock lets another in");
    assert!(right.try_lock_shared().is_err(), "an exclusive lock lets a reader in");
    left.unlock().unwrap();
    right.try_lock_shared().expect("the lock was given back");
    left.try_lock_shared().expect("readers do not exclude each other");
    assert!(left.try_lock().is_err(), "a reader lets a writer in");
    drop(right);
    until("a lock whose file was closed", || left.try_lock().is_ok());
}

#[test]
fn an_unlinked_file_lives_until_it_is_closed() {
    let Some((cluster, one, two)) = two_mounts(3) else { return };
    let before = cluster.objects();
    let bytes = noise(3, 1 << 20);
    let mut file = open(&one.join("gone"));
    file.write_all(&bytes).unwrap();
    fs::remove_file(two.join("gone")).unwrap();
    assert!(!two.join("gone").exists());
    until("the name's end on the other mount", || !one.join("gone").exists());
    file.write_all_at(b"still here", 1 << 20).unwrap();
    let mut found = Vec::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_end(&mut found).unwrap();
    assert_same(&found, &[&bytes[..], b"still here"].concat(), "the unlinked file");
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    assert!(cluster.objects() > before, "its objects went while it was open");
    drop(file);
    until("the end of the objects of an unlinked file", || cluster.objects() == before);
}

#[test]
fn a_hole_reads_as_zeros_and_takes_no_blocks() {
    let Some((_cluster, one, two)) = two_mounts(4) else { return };
    let file = open(&one.join("sparse"));
    file.write_all_at(b"x", 300 << 20).unwrap();
    file.sync_all().unwrap();
    let meta = fs::metadata(two.join("sparse")).unwrap();
    assert_eq!(meta.len(), (300 << 20) + 1);
    assert!(meta.blocks() * 512 <= 1 << 20, "{} blocks for one byte", meta.blocks());
    let mut hole = vec![1; 100_000];
    open(&two.join("sparse")).read_exact_at(&mut hole, 123_456_789).unwrap();
    assert!(hole.iter().all(|byte| *byte == 0), "a hole reads as zeros");
    let dense = open(&one.join("dense"));
    dense.write_all_at(&noise(1, 2 << 20), 0).unwrap();
    dense.sync_all().unwrap();
    let blocks = fs::metadata(two.join("dense")).unwrap().blocks() * 512;
    assert!(blocks >= 2 << 20, "tar would take a file with {blocks} bytes of blocks for sparse");
}

#[test]
fn truncate_cuts_and_grows_with_zeros_as_seen_from_both_mounts() {
    let Some((_cluster, one, two)) = two_mounts(3) else { return };
    let (left, right) = (open(&one.join("cut")), open(&two.join("cut")));
    let bytes = noise(4, 700_000);
    left.write_all_at(&bytes, 0).unwrap();
    right.set_len(65_537).unwrap();
    assert_same(&fs::read(one.join("cut")).unwrap(), &bytes[..65_537], "after the cut");
    left.set_len(400_000).unwrap();
    let wanted = [&bytes[..65_537], &vec![0; 400_000 - 65_537][..]].concat();
    assert_same(&fs::read(two.join("cut")).unwrap(), &wanted, "after growing again");
    right.write_all_at(b"end", 399_998).unwrap();
    assert_eq!(left.metadata().unwrap().len(), 400_001);
    fs::write(two.join("cut"), b"short").unwrap();
    assert_eq!(fs::read(one.join("cut")).unwrap(), b"short");
}

#[test]
fn names_change_on_both_mounts_together() {
    let Some((_cluster, one, two)) = two_mounts(2) else { return };
    fs::create_dir_all(one.join("d/sub")).unwrap();
    fs::write(one.join("d/a"), "one").unwrap();
    fs::rename(two.join("d/a"), two.join("d/sub/b")).unwrap();
    assert_eq!(fs::read_to_string(one.join("d/sub/b")).unwrap(), "one");
    assert!(!one.join("d/a").exists());
    // A rename replaces a file, but no directory that holds something.
    fs::write(two.join("other"), "two").unwrap();
    fs::rename(one.join("other"), one.join("d/sub/b")).unwrap();
    assert_eq!(fs::read_to_string(two.join("d/sub/b")).unwrap(), "two");
    fs::create_dir(one.join("e")).unwrap();
    assert!(fs::rename(one.join("e"), one.join("d")).is_err(), "d is not empty");
    assert!(fs::rename(one.join("d"), one.join("d/sub/in")).is_err(), "into itself");
    assert!(fs::remove_dir(two.join("d")).is_err(), "d is not empty");

    fs::hard_link(two.join("d/sub/b"), two.join("hard")).unwrap();
    let (left, right) =
        (fs::metadata(one.join("hard")).unwrap(), fs::metadata(two.join("d/sub/b")).unwrap());
    assert_eq!((left.nlink(), left.ino()), (2, right.ino()));
    fs::remove_file(one.join("d/sub/b")).unwrap();
    assert_eq!(fs::read_to_string(two.join("hard")).unwrap(), "two");
    assert_eq!(fs::metadata(two.join("hard")).unwrap().nlink(), 1);

    symlink("hard", one.join("soft")).unwrap();
    assert_eq!(fs::read_link(two.join("soft")).unwrap(), Path::new("hard"));
    assert_eq!(fs::read_to_string(two.join("soft")).unwrap(), "two");
    let long = "n".repeat(255);
    fs::write(one.join(&long), "").unwrap();
    assert!(two.join(&long).exists());
    assert!(fs::write(one.join("n".repeat(256)), "").is_err());
}

#[test]
fn modes_owners_and_times_are_kept_and_seen_on_the_other_mount() {
    let Some((_cluster, one, two)) = two_mounts(2) else { return };
    let file = open(&one.join("f"));
    file.write_all_at(b"bytes", 0).unwrap();
    fs::set_permissions(one.join("f"), fs::Permissions::from_mode(0o640)).unwrap();
    let then = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    file.set_modified(then).unwrap();
    drop(file);
    let meta = fs::metadata(two.join("f")).unwrap();
    assert_eq!(meta.mode() & 0o7777, 0o640);
    assert_eq!(meta.modified().unwrap(), then);
    // A write moves the time forward again.
    open(&two.join("f")).write_all_at(b"more", 3).unwrap();
    until("the new time", || fs::metadata(one.join("f")).unwrap().modified().unwrap() > then);
    if crate::support::is_root() {
        std::os::unix::fs::chown(two.join("f"), Some(1234), Some(2345)).unwrap();
        let meta = fs::metadata(one.join("f")).unwrap();
        assert_eq!((meta.uid(), meta.gid()), (1234, 2345));
    }
}

#[test]
fn a_directory_of_thousands_of_files_is_listed_whole_once_each() {
    let Some((_cluster, one, two)) = two_mounts(2) else { return };
    const FILES: usize = 3000;
    fs::create_dir(one.join("many")).unwrap();
    for index in 0..FILES {
        File::create(one.join(format!("many/file-{index:05}"))).unwrap();
    }
    let names = |mount: &Path| {
        let entries = fs::read_dir(mount.join("many")).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let wanted: Vec<_> =
        (0..FILES).map(|i| format!("file-{i:05}").into()).collect::<Vec<std::ffi::OsString>>();
    assert_eq!(names(&two), wanted);
    // Removing while listing must not skip any.
    for entry in fs::read_dir(two.join("many")).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    assert!(names(&one).is_empty(), "{} are left", names(&one).len());
    fs::remove_dir(one.join("many")).unwrap();
}

#[test]
fn a_tree_copied_by_cp_on_one_mount_is_the_same_on_the_other() {
    let Some((cluster, one, two)) = two_mounts(4) else { return };
    let source = cluster.scratch("source");
    make_tree(&source);
    let mut copy = Command::new("cp");
    copy.arg("-a").arg(&source).arg(one.join("tree"));
    let done = run(copy);
    assert!(done.ok, "cp: {done}");
    assert_eq!(describe(&two.join("tree")), describe(&source));
    let objects = cluster.objects();
    assert!(objects > 0);
    fs::remove_dir_all(two.join("tree")).unwrap();
    until("the end of the tree's objects", || cluster.objects() == 0);
}

#[test]
fn statfs_adds_up_the_stores() {
    let Some((_cluster, one, two)) = two_mounts(2) else { return };
    for mount in [&one, &two] {
        let space = rustix::fs::statvfs(mount).unwrap();
        assert!(space.f_blocks > 0 && space.f_bfree <= space.f_blocks);
        assert!(space.f_bavail <= space.f_bfree);
        assert_eq!(space.f_namemax, 255);
    }
    File::create(one.join("a")).unwrap().write_all(b"a").unwrap();
    assert!(rustix::fs::statvfs(&two).unwrap().f_files > 0);
}

#[test]
fn a_mount_in_the_foreground_is_refused_where_there_is_no_directory() {
    if let Some(reason) = no_fuse() {
        return skip(reason);
    }
    let cluster = Cluster::up(1);
    let file = cluster.scratch("file");
    fs::write(&file, "kept").unwrap();
    let refused = cluster.refused(&["mount", "--foreground", file.to_str().unwrap()]);
    assert_eq!(refused.code, Some(2), "{refused}");
    refused.says(&["it is not a directory", "name a directory"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
}
