//! Small files in the weaker modes: what is stored in the kernel's pages by an open, written around them, or closed before the
//! servers have heard of it.

use crate::support::Cluster;
use crate::support::bytes::{assert_same, noise};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const WEAKER: [&str; 2] = ["close-to-open", "job-scratch"];

/// A mount in a mode, and a strict one.
fn beside_strict(mode: &str) -> Option<(Cluster, PathBuf, PathBuf)> {
    let mut cluster = Cluster::up(3);
    let one = cluster.mount_with(&["--consistency", mode])?;
    let two = cluster.mount()?;
    Some((cluster, one, two))
}

/// Reads until a read finds the end, and asks for nothing else.
fn read_to_the_end(path: &Path) -> Vec<u8> {
    let mut file = File::open(path).unwrap();
    let (mut all, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        match file.read(&mut piece).unwrap() {
            0 => return all,
            count => all.extend(&piece[..count]),
        }
    }
}

#[test]
fn a_file_that_another_mount_has_rewritten_ends_where_it_ends_in_weaker_modes() {
    for mode in WEAKER {
        let Some((_cluster, one, two)) = beside_strict(mode) else { return };
        for (round, length) in [12_000, 5_000, 16_000, 4_096, 1, 0, 9_000].into_iter().enumerate() {
            let bytes = noise(round as u64, length);
            fs::write(two.join("f"), &bytes).unwrap();
            for what in ["first", "second"] {
                let found = read_to_the_end(&one.join("f"));
                assert_same(&found, &bytes, &format!("{mode}, {length} bytes, {what} time"));
            }
            // Longer than a lease: nobody tells the mount of the next change.
            std::thread::sleep(Duration::from_millis(1200));
        }
    }
}

#[test]
fn who_reads_a_file_that_is_being_written_on_the_same_mount_sees_each_write() {
    for mode in WEAKER {
        let Some((_cluster, one, _two)) = beside_strict(mode) else { return };
        for length in [3_000, 200_000] {
            let path = one.join(format!("f{length}"));
            let mut writer = File::create_new(&path).unwrap();
            let reader = File::open(&path).unwrap();
            let mut written = Vec::new();
            for (at, piece) in noise(1, length).chunks(length / 10).enumerate() {
                writer.write_all(piece).unwrap();
                written.extend(piece);
                let mut found = vec![0; written.len()];
                reader.read_exact_at(&mut found, 0).unwrap();
                assert_same(&found, &written, &format!("{mode}, {length} bytes, piece {at}"));
                // What is in the reader's pages by now is written again.
                let again = [at as u8; 7];
                writer.write_all_at(&again, 5).unwrap();
                written[5..12].copy_from_slice(&again);
                let mut found = [0; 20];
                reader.read_exact_at(&mut found, 0).unwrap();
                assert_same(&found, &written[..20], &format!("{mode}, {length} bytes, again {at}"));
            }
            drop(writer);
            assert_same(&read_to_the_end(&path), &written, &format!("{mode}, {length} bytes"));
        }
    }
}

#[test]
fn a_mount_that_is_killed_takes_files_along_that_were_closed_in_the_last_milliseconds_only() {
    for mode in WEAKER {
        let Some((cluster, one, two)) = beside_strict(mode) else { return };
        let bytes = noise(2, 100_000);
        let sizes = [0, 10, 3_000, 16_000, 100_000];
        for at in 0..200 {
            let piece = &bytes[..sizes[at % sizes.len()]];
            fs::write(one.join(format!("closed{at}")), piece).unwrap();
        }
        // Seen elsewhere at once, killed after a while.
        assert_same(&fs::read(two.join("closed198")).unwrap(), &bytes[..16_000], mode);
        std::thread::sleep(Duration::from_millis(100));
        cluster.kill_mount(&one);
        for at in 0..200 {
            let found = fs::read(two.join(format!("closed{at}"))).unwrap();
            let wanted = &bytes[..sizes[at % sizes.len()]];
            assert_same(&found, wanted, &format!("{mode}, file {at}"));
        }
    }
}

#[test]
fn a_name_that_a_link_gave_is_seen_on_the_other_mount_at_once() {
    let Some((cluster, one, two)) = beside_strict("strict") else { return };
    fs::create_dir(one.join("d")).unwrap();
    for at in 0..100 {
        let (first, name) = (format!("d/tmp_{at}"), format!("d/object_{at}"));
        fs::write(one.join(&first), format!("content of {at}")).unwrap();
        fs::hard_link(one.join(&first), one.join(&name)).unwrap();
        fs::remove_file(one.join(&first)).unwrap();
        if at % 10 == 9 {
            assert_eq!(fs::read_to_string(two.join(&name)).unwrap(), format!("content of {at}"));
            assert!(!two.join(&first).exists());
        }
    }
    let names = || fs::read_dir(two.join("d")).unwrap().count();
    assert_eq!(names(), 100);
    File::open(one.join("d")).unwrap().sync_all().unwrap();
    cluster.kill_mount(&one);
    assert_eq!(names(), 100);
    for at in 0..100 {
        let found = fs::read_to_string(two.join(format!("d/object_{at}"))).unwrap();
        assert_eq!(found, format!("content of {at}"));
    }
}
