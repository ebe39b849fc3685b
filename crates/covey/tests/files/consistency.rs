//! The consistency modes on real mounts: what each promises, and that all of POSIX is right in each.

use crate::support::bytes::{assert_same, noise};
use crate::support::preload::compile;
use crate::support::{Cluster, open, run, until};
use covey_io::os::ofd::{LockKind, Range, try_lock};
use rustix::fs::{
    FallocateFlags, FlockOperation, Mode, OFlags, SeekFrom, XattrFlags, copy_file_range, fallocate,
    flock, getxattr, listxattr, removexattr, seek, setxattr,
};
use rustix::io::Errno;
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

const MODES: [&str; 3] = ["strict", "close-to-open", "job-scratch"];

/// Two mounts in a mode.
fn two_mounts(mode: &str) -> Option<(Cluster, PathBuf, PathBuf)> {
    let mut cluster = Cluster::up(3);
    let one = cluster.mount_with(&["--consistency", mode])?;
    let two = cluster.mount_with(&["--consistency", mode])?;
    Some((cluster, one, two))
}

/// A mount in a mode, and a strict one.
fn beside_strict(mode: &str) -> Option<(Cluster, PathBuf, PathBuf)> {
    let mut cluster = Cluster::up(3);
    let one = cluster.mount_with(&["--consistency", mode])?;
    let two = cluster.mount()?;
    Some((cluster, one, two))
}

fn o_sync() -> i32 {
    OFlags::SYNC.bits() as i32
}

fn read(file: &File, at: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, at).expect("a read");
    bytes
}

#[test]
fn what_was_closed_on_one_mount_is_seen_by_who_opens_on_the_other() {
    let Some((_cluster, one, two)) = two_mounts("close-to-open") else { return };
    // With the metadata, on one I/O server, and on all.
    for length in [700, 90_000, 5 << 20] {
        let name = format!("f{length}");
        for round in 0..12_u64 {
            let (writer, reader) = if round % 2 == 0 { (&one, &two) } else { (&two, &one) };
            let mut bytes = noise(round, length);
            // Now the same size, now another one.
            bytes.truncate(length - (round as usize / 3) * 100);
            let file = open(&writer.join(&name));
            file.set_len(bytes.len() as u64).unwrap();
            for (at, piece) in bytes.chunks(4096).enumerate() {
                file.write_all_at(piece, at as u64 * 4096).unwrap();
            }
            drop(file);
            let found = fs::read(reader.join(&name)).unwrap();
            assert_same(&found, &bytes, &format!("round {round} of {length}"));
            assert_eq!(fs::metadata(reader.join(&name)).unwrap().len(), bytes.len() as u64);
            // A bare overwrite, whose news the metadata server has only from the close.
            let file = open(&reader.join(&name));
            file.write_all_at(b"overwritten", 300).unwrap();
            drop(file);
            bytes[300..311].copy_from_slice(b"overwritten");
            let found = fs::read(writer.join(&name)).unwrap();
            assert_same(&found, &bytes, &format!("overwritten in round {round} of {length}"));
        }
    }
}

#[test]
fn names_are_seen_at_once_in_close_to_open() {
    let Some((_cluster, one, two)) = two_mounts("close-to-open") else { return };
    for round in 0..20 {
        let (maker, looker) = if round % 2 == 0 { (&one, &two) } else { (&two, &one) };
        assert!(!looker.join("new").exists());
        fs::write(maker.join("new"), format!("round {round}")).unwrap();
        assert_eq!(fs::read_to_string(looker.join("new")).unwrap(), format!("round {round}"));
        fs::write(looker.join("other"), "moved over it").unwrap();
        fs::rename(looker.join("other"), looker.join("new")).unwrap();
        assert_eq!(fs::read_to_string(maker.join("new")).unwrap(), "moved over it");
        fs::remove_file(maker.join("new")).unwrap();
    }
}

#[test]
fn what_was_read_is_read_again_from_memory_in_weaker_modes() {
    for mode in ["close-to-open", "job-scratch"] {
        let Some((cluster, one, _two)) = two_mounts(mode) else { return };
        let bytes = noise(3, 3 << 20);
        fs::write(one.join("f"), &bytes).unwrap();
        let file = open(&one.join("f"));
        assert_same(&read(&file, 0, bytes.len()), &bytes, "from the servers");
        for node in ["io1", "io2", "io3"] {
            cluster.signal(node, Signal::STOP);
        }
        assert_same(&read(&file, 0, bytes.len()), &bytes, "from memory");
        // Opened once more: nobody has changed it.
        assert_same(&read(&open(&one.join("f")), 0, bytes.len()), &bytes, "opened again");
        for node in ["io1", "io2", "io3"] {
            cluster.signal(node, Signal::CONT);
        }
    }
}

#[test]
fn a_job_reads_what_it_wrote_itself_from_memory() {
    let Some((cluster, one, two)) = beside_strict("job-scratch") else { return };
    let bytes = noise(4, 3 << 20);
    fs::write(one.join("f"), &bytes).unwrap();
    assert_same(&fs::read(two.join("f")).unwrap(), &bytes, "closed, so seen elsewhere");
    for node in ["io1", "io2", "io3"] {
        cluster.signal(node, Signal::STOP);
    }
    assert_same(&read(&open(&one.join("f")), 0, bytes.len()), &bytes, "from memory");
    for node in ["io1", "io2", "io3"] {
        cluster.signal(node, Signal::CONT);
    }
}

#[test]
fn what_is_not_closed_is_seen_elsewhere_after_an_fsync_or_within_seconds() {
    for mode in ["close-to-open", "job-scratch"] {
        let Some((_cluster, one, two)) = beside_strict(mode) else { return };
        let (file, seen) = (open(&one.join("f")), open(&two.join("f")));
        file.write_all_at(b"first", 0).unwrap();
        file.sync_all().unwrap();
        assert_eq!(read(&seen, 0, 5), b"first");
        for (at, byte) in noise(5, 100).iter().enumerate() {
            file.write_all_at(&[*byte], 5 + at as u64).unwrap();
        }
        let now = File::options().write(true).custom_flags(o_sync()).open(one.join("f")).unwrap();
        now.write_all_at(b"FIRST", 0).unwrap();
        assert_eq!(read(&seen, 0, 5), b"FIRST", "O_SYNC is seen at once");
        // It sees itself at once.
        assert_eq!(file.metadata().unwrap().len(), 105);
        file.write_all_at(b"more", 105).unwrap();
        until("the sight of what was written", || seen.metadata().unwrap().len() == 109);
        assert_eq!(read(&seen, 105, 4), b"more");
    }
}

#[test]
fn a_mount_sees_its_own_writes_whatever_way_it_looks() {
    for mode in ["close-to-open", "job-scratch"] {
        let Some((_cluster, one, two)) = beside_strict(mode) else { return };
        fs::create_dir(one.join("d")).unwrap();
        let file = open(&one.join("d/f"));
        let mut wanted = Vec::new();
        for round in 0..40_u64 {
            let piece = noise(round, 1000 + round as usize);
            file.write_all_at(&piece, wanted.len() as u64).unwrap();
            wanted.extend_from_slice(&piece);
            let size = wanted.len() as u64;
            match round % 5 {
                0 => assert_eq!(fs::metadata(one.join("d/f")).unwrap().len(), size),
                1 => assert_eq!(fs::read(one.join("d/f")).unwrap().len() as u64, size),
                2 => {
                    let entry = fs::read_dir(one.join("d")).unwrap().next().unwrap().unwrap();
                    assert_eq!(entry.metadata().unwrap().len(), size);
                }
                3 => assert_eq!(seek(&file, SeekFrom::End(0)).unwrap(), size),
                _ => {}
            }
        }
        assert_same(&fs::read(one.join("d/f")).unwrap(), &wanted, "read beside it");
        fs::rename(one.join("d/f"), one.join("d/g")).unwrap();
        fs::remove_file(one.join("d/g")).unwrap();
        assert_same(&read(&file, 0, wanted.len()), &wanted, "unlinked");
        drop(file);
        assert_eq!(fs::read_dir(two.join("d")).unwrap().count(), 0);
    }
}

#[test]
fn who_lists_a_directory_takes_nothing_back_from_who_writes_in_it() {
    let mut cluster = Cluster::up(3);
    let options = ["--consistency", "job-scratch", "--threads", "2"];
    let Some(mount) = cluster.mount_with(&options) else { return };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    for entry in fs::read_dir(&mount).unwrap() {
                        let _ = entry.unwrap().metadata();
                    }
                }
            });
        }
        let mut sizes = [0_u64; 4];
        for round in 0..400_u64 {
            let which = round as usize % 4;
            let path = mount.join(format!("f{which}"));
            let file = open(&path);
            let piece = noise(round, 700 + round as usize);
            file.write_all_at(&piece, sizes[which]).unwrap();
            let (from, length) = (sizes[which], piece.len());
            sizes[which] += length as u64;
            if round % 3 == 0 {
                assert_eq!(file.metadata().unwrap().len(), sizes[which], "round {round}");
            }
            drop(file);
            let file = open(&path);
            assert_same(&read(&file, from, length), &piece, &format!("round {round}"));
            assert_eq!(file.metadata().unwrap().len(), sizes[which], "round {round}");
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn names_in_a_job_s_directory_are_seen_elsewhere_within_half_a_minute() {
    let Some((_cluster, one, two)) = beside_strict("job-scratch") else { return };
    fs::write(one.join("there"), "x").unwrap();
    assert!(!one.join("new").exists());
    fs::write(two.join("new"), "x").unwrap();
    fs::remove_file(two.join("there")).unwrap();
    // What it does itself it sees at once.
    fs::write(one.join("own"), "x").unwrap();
    assert!(one.join("own").exists() && two.join("own").exists());
    until("the sight of a new name", || one.join("new").exists());
    until("the end of an old one", || !one.join("there").exists());
}

#[test]
fn a_name_that_leads_elsewhere_by_now_is_never_an_error_on_a_job_s_mount() {
    let Some((_cluster, one, two)) = beside_strict("job-scratch") else { return };
    for round in 0..6 {
        fs::write(two.join("new"), format!("{round}")).unwrap();
        fs::rename(two.join("new"), two.join("f")).unwrap();
        let _ = fs::remove_dir_all(two.join("d"));
        fs::create_dir(two.join("d")).unwrap();
        fs::write(two.join("d/f"), format!("{round}")).unwrap();
        if round == 0 {
            until("the first sight", || one.join("f").exists() && one.join("d/f").exists());
        }
        for name in ["f", "d/f"] {
            let found: i32 = fs::read_to_string(one.join(name)).unwrap().parse().unwrap();
            assert!(found <= round, "{name}");
            assert!(fs::metadata(one.join(name)).is_ok(), "{name}");
        }
        assert_eq!(fs::read_dir(one.join("d")).unwrap().count(), 1);
    }
}

#[test]
fn a_directory_s_own_mode_wins_over_the_mount_s() {
    let Some((cluster, one, two)) = two_mounts("job-scratch") else { return };
    fs::create_dir_all(one.join("exact/below")).unwrap();
    cluster.covey(&["consistency", "set", "-R", "strict", "/exact"]);
    let told = cluster.covey(&["consistency", "/exact", "/exact/below", "/"]);
    assert_eq!(told, "/exact: strict\n/exact/below: strict\n/: mount\n");
    // A mount hears of the mode when it looks at the directory; both have not for long enough.
    until("the news of the mode", || {
        [&one, &two].iter().all(|mount| {
            let name = mount.join("exact/below/is-it-strict");
            let absent = !name.exists();
            let other = if *mount == &one { &two } else { &one };
            fs::write(other.join("exact/below/is-it-strict"), "x").unwrap();
            let seen = name.exists();
            fs::remove_file(other.join("exact/below/is-it-strict")).unwrap();
            absent && seen && !name.exists()
        })
    });
    fs::create_dir(one.join("exact/below/inherits")).unwrap();
    let (left, right) = (one.join("exact/below/inherits/f"), two.join("exact/below/inherits/f"));
    let (left, right) = (open(&left), open(&right));
    for round in 0..40_u64 {
        let (from, to) = if round % 2 == 0 { (&left, &right) } else { (&right, &left) };
        from.write_all_at(&noise(round, 500), round % 3 * 100).unwrap();
        assert_eq!(read(to, round % 3 * 100, 500), noise(round, 500), "round {round}");
    }
}

#[test]
fn a_mode_is_an_attribute_on_mounts() {
    let Some((cluster, one, two)) = two_mounts("strict") else { return };
    fs::create_dir(one.join("d")).unwrap();
    let name = "user.covey.consistency";
    let get = |path: &Path| {
        let mut value = [0; 64];
        getxattr(path, name, &mut value).map(|length| value[..length].to_vec())
    };
    assert_eq!(get(&one.join("d")), Err(Errno::NODATA));
    assert_eq!(removexattr(one.join("d"), name), Err(Errno::NODATA));
    setxattr(one.join("d"), name, b"job-scratch", XattrFlags::CREATE).unwrap();
    assert_eq!(get(&two.join("d")).unwrap(), b"job-scratch");
    let wrong = setxattr(one.join("d"), name, b"eventual", XattrFlags::empty());
    assert_eq!(wrong, Err(Errno::INVAL));
    let again = setxattr(two.join("d"), name, b"strict", XattrFlags::CREATE);
    assert_eq!(again, Err(Errno::EXIST));
    fs::write(two.join("d/f"), "x").unwrap();
    assert_eq!(cluster.covey(&["consistency", "/d/f"]), "/d/f: job-scratch\n");
    removexattr(two.join("d/f"), name).unwrap();
    assert_eq!(cluster.covey(&["consistency", "/d/f"]), "/d/f: mount\n");
    // Copies of all attributes leave it where it is.
    let mut names = [0; 64];
    assert_eq!(listxattr(one.join("d"), &mut names[..]), Ok(0));
}

#[test]
fn a_mode_that_does_not_exist_is_refused() {
    let Some((cluster, one, _two)) = two_mounts("strict") else { return };
    fs::write(one.join("f"), "x").unwrap();
    let wrong = cluster.refused(&["consistency", "set", "eventual", "/f"]);
    assert!(wrong.stderr.contains("strict, close-to-open, job-scratch and mount"), "{wrong}");
    cluster.covey(&["consistency", "set", "close-to-open", "/f"]);
    assert_eq!(cluster.covey(&["consistency", "/f"]), "/f: close-to-open\n");
    cluster.covey(&["consistency", "set", "mount", "/f"]);
    assert_eq!(cluster.covey(&["consistency", "/f"]), "/f: mount\n");
    cluster.refused(&["consistency", "set", "strict", "/missing"]);
}

#[test]
fn a_weaker_directory_on_a_strict_mount_gathers_writes_and_a_strict_one_does_not() {
    let mut cluster = Cluster::up(2);
    let (Some(one), Some(two)) = (cluster.mount(), cluster.mount()) else { return };
    fs::create_dir(one.join("scratch")).unwrap();
    cluster.covey(&["consistency", "set", "job-scratch", "/scratch"]);
    let file = open(&one.join("scratch/f"));
    let strict = open(&one.join("f"));
    let servers = ["io1", "io2"];
    file.write_all_at(&noise(1, 150_000), 0).unwrap();
    file.sync_all().unwrap();
    servers.iter().for_each(|node| cluster.signal(node, Signal::STOP));
    // An overwrite beyond what lies with the metadata: nobody is asked for now.
    file.write_all_at(b"later", 100_000).unwrap();
    servers.iter().for_each(|node| cluster.signal(node, Signal::CONT));
    drop(file);
    assert_eq!(read(&open(&two.join("scratch/f")), 100_000, 5), b"later");
    strict.write_all_at(b"now", 0).unwrap();
    assert_eq!(read(&open(&two.join("f")), 0, 3), b"now");
}

#[test]
fn counting_under_a_lock_misses_nothing_in_any_mode() {
    for mode in MODES {
        let Some((cluster, one, two)) = two_mounts(mode) else { return };
        let Some(program) = compile(&cluster, "support/rangelock.c", "cc") else { return };
        const TIMES: usize = 40;
        let counter = one.join("counter");
        fs::write(&counter, "0".repeat(12)).unwrap();
        let start = |mount: &PathBuf| -> Child {
            let mut command = Command::new(&program);
            command.arg("count").arg(mount.join("counter")).args(["0", &TIMES.to_string()]);
            command.spawn().expect("it runs")
        };
        let counting: Vec<Child> = [&one, &two, &one, &two].map(start).into();
        for mut child in counting {
            assert!(child.wait().unwrap().success(), "{mode}");
        }
        let found = fs::read_to_string(two.join("counter")).unwrap();
        assert_eq!(found.parse::<usize>().unwrap(), 4 * TIMES, "{mode}");
    }
}

#[test]
fn a_flock_hands_over_what_was_written_under_it_in_any_mode() {
    for mode in MODES {
        let Some((_cluster, one, two)) = two_mounts(mode) else { return };
        let (left, right) = (open(&one.join("f")), open(&two.join("f")));
        left.write_all_at(&noise(0, 200_000), 0).unwrap();
        left.sync_all().unwrap();
        for round in 1..30_u64 {
            let (from, to) = if round % 2 == 0 { (&left, &right) } else { (&right, &left) };
            // The reader has old pages.
            read(to, 0, 200_000);
            flock(from, FlockOperation::LockExclusive).unwrap();
            let length = 150_000 + round as usize * 1000;
            from.write_all_at(&noise(round, length), round * 10).unwrap();
            flock(from, FlockOperation::Unlock).unwrap();
            flock(to, FlockOperation::LockShared).unwrap();
            let found = read(to, round * 10, length);
            assert_same(&found, &noise(round, length), &format!("{mode}, round {round}"));
            flock(to, FlockOperation::Unlock).unwrap();
        }
    }
}

#[test]
fn appends_from_two_mounts_lose_nothing_in_any_mode() {
    for mode in MODES {
        let Some((_cluster, one, two)) = two_mounts(mode) else { return };
        const LINES: usize = 150;
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let path = if writer % 2 == 0 { &one } else { &two }.join("log");
                scope.spawn(move || {
                    let mut log = File::options().append(true).create(true).open(path).unwrap();
                    for line in 0..LINES {
                        log.write_all(format!("writer {writer} line {line}\n").as_bytes()).unwrap();
                    }
                });
            }
        });
        for mount in [&one, &two] {
            let text = fs::read_to_string(mount.join("log")).expect("whole lines");
            let mut found: Vec<&str> = text.lines().collect();
            found.sort_unstable();
            let all = (0..4).flat_map(|writer| (0..LINES).map(move |line| (writer, line)));
            let mut wanted: Vec<_> =
                all.map(|(writer, line)| format!("writer {writer} line {line}")).collect();
            wanted.sort_unstable();
            assert_eq!(found, wanted, "{mode}");
        }
    }
}

#[test]
fn unaligned_records_of_writers_on_two_mounts_are_all_right_in_any_mode() {
    const RECORD: usize = 1001;
    const RECORDS: usize = 800;
    for mode in MODES {
        let Some((_cluster, one, two)) = two_mounts(mode) else { return };
        let wanted = noise(1, RECORD * RECORDS);
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let file = open(&if writer % 2 == 0 { &one } else { &two }.join("records"));
                let wanted = &wanted;
                scope.spawn(move || {
                    for record in (0..RECORDS).filter(|record| record % 4 == writer) {
                        let at = record * RECORD;
                        file.write_all_at(&wanted[at..at + RECORD], at as u64).expect("a write");
                        if record % 37 == 0 {
                            // It sees its own at once, whoever else writes beside it.
                            assert_eq!(read(&file, at as u64, RECORD), wanted[at..at + RECORD]);
                        }
                    }
                });
            }
        });
        let found = fs::read(one.join("records")).unwrap();
        match mode {
            // Both have written it: the other's bytes are seen half a minute after the next open.
            "job-scratch" => assert_eq!(found.len(), wanted.len()),
            _ => assert_same(&found, &wanted, mode),
        }
        let how = OFlags::DIRECT | OFlags::RDONLY;
        let direct = File::from(rustix::fs::open(two.join("records"), how, Mode::empty()).unwrap());
        assert_same(&read(&direct, 0, wanted.len()), &wanted, "what the servers have");
    }
}

#[test]
fn a_log_being_read_on_the_mount_that_appends_to_it_is_right_in_any_mode() {
    for mode in MODES {
        let Some((_cluster, one, two)) = two_mounts(mode) else { return };
        let reader = open(&one.join("log"));
        let mut here = File::options().append(true).open(one.join("log")).unwrap();
        let mut there = File::options().append(true).open(two.join("log")).unwrap();
        let mut wanted = Vec::new();
        for round in 0..60_u64 {
            let line = noise(round, 900 + round as usize * 3);
            if round % 3 == 1 { &mut there } else { &mut here }.write_all(&line).unwrap();
            wanted.extend_from_slice(&line);
            if round % 3 == 0 {
                // What this mount has appended last it sees.
                let mut end = vec![0; line.len()];
                let at = wanted.len() - line.len();
                reader.read_exact_at(&mut end, at as u64).expect("the end is there");
                assert_same(&end, &line, &format!("{mode}, round {round}"));
            }
        }
        drop((reader, here, there));
        assert_same(&fs::read(one.join("log")).unwrap(), &wanted, mode);
    }
}

#[test]
fn direct_io_goes_around_what_is_kept_in_any_mode() {
    for mode in MODES {
        let Some((_cluster, one, two)) = two_mounts(mode) else { return };
        let direct = |path: PathBuf| {
            let how = OFlags::DIRECT | OFlags::RDWR | OFlags::CREATE;
            File::from(rustix::fs::open(path, how, Mode::from(0o644)).unwrap())
        };
        let (left, right) = (direct(one.join("f")), direct(two.join("f")));
        let cached = open(&one.join("f"));
        for round in 0..20_u64 {
            let (from, to) = if round % 2 == 0 { (&left, &right) } else { (&right, &left) };
            let bytes = noise(round, 4096 * (1 + round as usize % 5));
            from.write_all_at(&bytes, 4096 * (round % 7)).unwrap();
            let found = read(to, 4096 * (round % 7), bytes.len());
            assert_same(&found, &bytes, &format!("{mode}, round {round}"));
            if round % 2 == 0 {
                // The same mount's other descriptors see it too.
                let found = read(&cached, 4096 * (round % 7), bytes.len());
                assert_same(&found, &bytes, &format!("{mode}, cached, round {round}"));
            }
            // And what is gathered there is not passed by.
            cached.write_all_at(b"gathered", 150_000).unwrap();
            assert_eq!(read(&left, 150_000, 8), b"gathered");
        }
    }
}

#[test]
fn space_and_copies_are_right_beside_writes_that_are_gathered() {
    for mode in MODES {
        let Some((_cluster, one, two)) = two_mounts(mode) else { return };
        let file = open(&one.join("f"));
        let bytes = noise(1, 600_000);
        for (at, piece) in bytes.chunks(5000).enumerate() {
            file.write_all_at(piece, at as u64 * 5000).unwrap();
        }
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&file, punch, 100_000, 200_000).unwrap();
        let mut wanted = bytes.clone();
        wanted[100_000..300_000].fill(0);
        file.write_all_at(b"in the hole", 200_000).unwrap();
        wanted[200_000..200_011].copy_from_slice(b"in the hole");
        let data = seek(&file, SeekFrom::Data(150_000)).unwrap();
        assert!((196_608..=200_000).contains(&data), "{mode}: data at {data}");
        assert_eq!(seek(&file, SeekFrom::Hole(400_000)).unwrap(), 600_000, "{mode}");

        let copy = open(&one.join("copy"));
        copy.write_all_at(b"begin", 0).unwrap();
        file.write_all_at(b"last", 599_996).unwrap();
        wanted[599_996..].copy_from_slice(b"last");
        let (mut from, mut to) = (0, 5);
        while copy_file_range(&file, Some(&mut from), &copy, Some(&mut to), 1 << 30).unwrap() > 0 {}
        file.write_all_at(b"cut off", 599_000).unwrap();
        file.set_len(300_000).unwrap();
        file.set_len(301_000).unwrap();
        assert_eq!(read(&file, 300_000, 1000), vec![0; 1000], "{mode}");
        drop((file, copy));
        assert_same(&fs::read(two.join("copy")).unwrap()[5..], &wanted, "the copy");
        wanted.truncate(300_000);
        wanted.resize(301_000, 0);
        assert_same(&fs::read(two.join("f")).unwrap(), &wanted, "the file");
    }
}

#[test]
fn times_that_are_set_after_writes_stay_in_any_mode() {
    for mode in MODES {
        let Some((_cluster, one, two)) = two_mounts(mode) else { return };
        let file = open(&one.join("f"));
        file.write_all_at(&noise(1, 100_000), 0).unwrap();
        let then = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1 << 30);
        file.set_modified(then).unwrap();
        drop(file);
        assert_eq!(fs::metadata(two.join("f")).unwrap().modified().unwrap(), then, "{mode}");
        assert_eq!(fs::metadata(one.join("f")).unwrap().modified().unwrap(), then, "{mode}");
    }
}

#[test]
fn an_error_of_a_write_that_was_gathered_is_told_by_the_close_or_before() {
    let Some((cluster, one, _two)) = two_mounts("job-scratch") else { return };
    let mut file = open(&one.join("f"));
    file.write_all_at(&noise(1, 200_000), 0).unwrap();
    file.sync_all().unwrap();
    for node in ["io1", "io2", "io3"] {
        cluster.kill(node);
    }
    file.write_all_at(b"nobody takes it", 160_000).unwrap();
    assert!(file.sync_all().is_err(), "it is not there");
    // Told once.
    cluster.restart();
    until("the return of the servers", || file.sync_all().is_ok());
    file.write_all(b"again").unwrap();
    file.sync_all().unwrap();
    let mut text = String::new();
    open(&one.join("f")).take(5).read_to_string(&mut text).unwrap();
    assert_eq!(text, "again");
}

#[test]
fn a_client_that_dies_takes_with_it_only_what_it_had_gathered() {
    for mode in ["close-to-open", "job-scratch"] {
        let Some((cluster, one, two)) = beside_strict(mode) else { return };
        let bytes = noise(1, 700_000);
        for (at, piece) in bytes.chunks(10_000).enumerate() {
            fs::write(one.join(format!("closed{at}")), piece).unwrap();
        }
        let synced = open(&one.join("synced"));
        synced.write_all_at(&bytes, 0).unwrap();
        synced.sync_all().unwrap();
        synced.write_all_at(b"gathered", 300_000).unwrap();
        cluster.kill_mount(&one);
        for (at, piece) in bytes.chunks(10_000).enumerate() {
            let found = fs::read(two.join(format!("closed{at}"))).unwrap();
            assert_same(&found, piece, &format!("{mode}, file {at}"));
        }
        let mut found = fs::read(two.join("synced")).unwrap();
        // That may be there or not.
        found[300_000..300_008].copy_from_slice(&bytes[300_000..300_008]);
        assert_same(&found, &bytes, mode);
    }
}

/// Thousands of random operations against a copy in memory.
#[test]
fn a_random_tester_finds_no_difference_to_memory_in_any_mode() {
    for mode in MODES {
        let Some((cluster, one, two)) = two_mounts(mode) else { return };
        let Some(program) = compile(&cluster, "../../../workloads/fsx.c", "cc") else { return };
        let fsx = |options: &[&str], paths: &[PathBuf]| {
            let mut command = Command::new(&program);
            let seed = std::process::id().to_string();
            command.args(["-q", "-n", "1500", "-s", &seed]).args(options).args(paths);
            let done = run(command);
            assert!(done.ok, "{mode}: fsx -s {seed} {options:?}: {done}");
        };
        fsx(&[], &[one.join("alone")]);
        if mode != "job-scratch" {
            // Two nodes in turn: whoever comes next opens after the close.
            fsx(&["-c"], &[one.join("shared"), two.join("shared")]);
        }
    }
}

#[test]
fn blocks_and_sizes_are_honest_in_any_mode() {
    for mode in MODES {
        let Some((_cluster, one, _two)) = two_mounts(mode) else { return };
        let file = open(&one.join("f"));
        file.write_all_at(b"x", 10 << 20).unwrap();
        let meta = file.metadata().unwrap();
        assert_eq!(meta.size(), (10 << 20) + 1, "{mode}");
        assert!(meta.blocks() * 512 < 1 << 20, "{mode}: {} blocks", meta.blocks());
    }
}

/// Another process that takes a lock of an open file (F_OFD_SETLKW), as QEMU does. It says when it
/// asks, and what it then finds in the file; it ends when its standard input does.
fn lock_an_open_file(path: &Path) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut command = Command::new("python3");
    command.arg("-c").arg(LOCK_AN_OPEN_FILE).arg(path);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python3");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    assert_eq!(lines.next().expect("it lives").unwrap(), "asks");
    (child, lines)
}

const LOCK_AN_OPEN_FILE: &str = r#"
import fcntl, os, struct, sys
f = os.open(sys.argv[1], os.O_RDWR)
print("asks", flush=True)
fcntl.fcntl(f, fcntl.F_OFD_SETLKW, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
found = os.pread(f, 100, 0).decode()
os.pwrite(f, b"killed", 0)
print("found", found, flush=True)
sys.stdin.read()
"#;

#[test]
fn a_lock_of_an_open_file_ends_with_it_and_lets_others_go_on_in_any_mode() {
    if !crate::support::has_program("python3") {
        return crate::support::skip("needs python3");
    }
    let all = Range { start: 0, length: 0 };
    for mode in MODES {
        let Some((_cluster, one, two)) = two_mounts(mode) else { return };
        fs::write(one.join("f"), "before").unwrap();
        let (file, other) = (open(&one.join("f")), open(&two.join("f")));
        assert_eq!(read(&other, 0, 6), b"before");
        assert!(try_lock(&file, LockKind::Write, all).unwrap());
        assert!(!try_lock(&other, LockKind::Write, all).unwrap(), "{mode}: it is taken");
        let (mut child, mut lines) = lock_an_open_file(&two.join("f"));
        file.write_all_at(b"closed", 0).unwrap();
        drop(file);
        assert_eq!(lines.next().expect("an answer").unwrap(), "found closed", "{mode}");
        assert!(!try_lock(open(&one.join("f")), LockKind::Read, all).unwrap(), "{mode}: taken");
        let (mut next, mut lines) = lock_an_open_file(&one.join("f"));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(lines.next().expect("an answer").unwrap(), "found killed", "{mode}");
        next.wait().unwrap();
        until("the last one's lock to end", || {
            try_lock(&other, LockKind::Write, all).expect("an answer")
        });
    }
}
