//! Small files that the kernel reads from its pages: without a request, and never as they were.

use crate::support::two_mounts;
use std::fs::{self, File, FileTimes};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longer than a lease lasts.
const OVER: Duration = Duration::from_millis(1300);

/// How many requests of a kind this user has sent to a mount.
fn sent(mount: &Path, kind: &str) -> u64 {
    let mut value = vec![0; 65536];
    let length = rustix::fs::getxattr(mount, "user.covey.stats", &mut value[..]).unwrap();
    let text = String::from_utf8(value[..length].to_vec()).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("op {kind} count ")));
    line.map_or(0, |rest| rest.split(' ').next().unwrap().parse().unwrap())
}

fn content(at: usize, version: u8) -> Vec<u8> {
    let mut content = vec![b'a' + version; 40 + 100 * at];
    content[0] = at as u8;
    content
}

/// A directory of small files.
fn make(dir: &Path, files: usize) {
    fs::create_dir(dir).unwrap();
    for at in 0..files {
        fs::write(dir.join(format!("f{at:02}")), content(at, 0)).unwrap();
    }
}

/// Walks over a directory and reads all files; whether what the last ones hold came with what was before.
fn read_all(mount: &Path, dir: &Path, files: usize) -> bool {
    let before = sent(mount, "read");
    let mut listed: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|f| f.unwrap().path()).collect();
    listed.sort();
    for (at, path) in listed.iter().enumerate() {
        assert!(fs::read(path).unwrap() == content(at, 0), "file {at}");
    }
    assert_eq!(listed.len(), files);
    sent(mount, "read") - before < files as u64 / 2
}

#[test]
fn small_files_that_are_read_in_turn_need_no_request_to_be_read() {
    let Some((_cluster, one, two)) = two_mounts(2) else { return };
    make(&one.join("d"), 30);
    // One walk may be held up for longer than a lease lasts.
    let read = (0..10).any(|_| read_all(&two, &two.join("d"), 30));
    assert!(read, "{} READs", sent(&two, "read"));
}

/// A file of a directory that was just read, open, and read from the kernel's pages.
fn open_in_pages(mount: &Path, path: &Path) -> File {
    for _ in 0..20 {
        read_all(mount, path.parent().unwrap(), 8);
        let (file, before) = (File::open(path).unwrap(), sent(mount, "read"));
        assert_eq!(start_of(&file), start(0));
        if sent(mount, "read") == before {
            return file;
        }
    }
    panic!("it was never read from pages");
}

/// Bytes within the file: the kernel need not ask where it ends.
fn start_of(file: &File) -> [u8; 8] {
    let mut start = [0; 8];
    file.read_exact_at(&mut start, 1).unwrap();
    start
}

fn start(version: u8) -> [u8; 8] {
    [b'a' + version; 8]
}

/// The size and the time of the last change stay.
fn change(path: &Path, version: u8) {
    let file = File::options().write(true).open(path).unwrap();
    let before = file.metadata().unwrap().modified().unwrap();
    file.write_all_at(&content(7, version)[1..], 1).unwrap();
    file.set_times(FileTimes::new().set_modified(before)).unwrap();
}

#[test]
fn what_the_kernel_has_of_a_small_file_is_never_read_after_it_has_changed() {
    let Some((_cluster, one, two)) = two_mounts(2) else { return };
    for round in 0..12 {
        let dir = format!("d{round}");
        make(&one.join(&dir), 8);
        let name = format!("{dir}/f07");
        let file = open_in_pages(&two, &two.join(&name));
        let is_late = round % 3 == 2;
        if is_late {
            std::thread::sleep(OVER);
        }
        for version in 1..4 {
            let changer = if (round + version) % 2 == 0 { &one } else { &two };
            change(&changer.join(&name), version as u8);
            assert_eq!(start_of(&file), start(version as u8), "round {round}");
            let again = File::open(two.join(&name)).unwrap();
            assert_eq!(start_of(&again), start(version as u8), "round {round}, opened again");
        }
    }
}

#[test]
fn sendfile_sends_a_small_file_as_it_is_long_after_the_open() {
    let Some((_cluster, one, two)) = two_mounts(2) else { return };
    make(&one.join("d"), 8);
    let name = "d/f07";
    let file = open_in_pages(&two, &two.join(name));
    std::thread::sleep(OVER);
    change(&one.join(name), 1);
    let (into, path) = (tempfile_in_memory(), &mut 1);
    assert_eq!(rustix::fs::sendfile(&into, &file, Some(path), 8).unwrap(), 8);
    let mut sent = [0; 8];
    into.read_exact_at(&mut sent, 0).unwrap();
    assert_eq!(sent, start(1));
}

fn tempfile_in_memory() -> File {
    File::from(rustix::fs::memfd_create("sent", rustix::fs::MemfdFlags::CLOEXEC).unwrap())
}

/// All that a file holds, by reads of a small buffer.
fn in_pieces(file: &File) -> Vec<u8> {
    let (mut all, mut piece) = (Vec::new(), [0; 10_240]);
    loop {
        match file.read_at(&mut piece, all.len() as u64).unwrap() {
            0 => return all,
            count => all.extend_from_slice(&piece[..count]),
        }
    }
}

#[test]
fn a_small_file_that_is_open_and_grows_is_read_as_it_is() {
    let Some((_cluster, one, two)) = two_mounts(2) else { return };
    make(&one.join("d"), 8);
    let file = open_in_pages(&two, &two.join("d/f07"));
    let writer = File::options().write(true).open(one.join("d/f07")).unwrap();
    // More than lies with its inode.
    let mut holds: Vec<u8> = (0..160_000usize).map(|at| (at / 1000) as u8).collect();
    writer.write_all_at(&holds, 0).unwrap();
    assert!(in_pieces(&file) == holds, "it has grown");
    for round in 0..10 {
        // Only the I/O servers hear of it.
        holds[150_000..150_100].fill(200 + round);
        writer.write_all_at(&holds[150_000..150_100], 150_000).unwrap();
        assert!(in_pieces(&file) == holds, "round {round}");
    }
    for round in 0..20 {
        writer.write_all_at(&[round; 100], holds.len() as u64).unwrap();
        holds.extend([round; 100]);
        for again in 0..2 {
            let mut read = vec![0; 200_000];
            let count = file.read_at(&mut read, 0).unwrap();
            assert_eq!(count, holds.len(), "longer, {round}.{again}");
            assert!(read[..count] == holds, "longer, {round}.{again}");
        }
    }
    // sendfile(2) does not ask whether that has changed: soon is what it can be.
    std::thread::sleep(OVER);
    holds[150_000..150_100].fill(250);
    writer.write_all_at(&holds[150_000..150_100], 150_000).unwrap();
    std::thread::sleep(Duration::from_millis(600));
    let (into, at) = (tempfile_in_memory(), &mut 150_000);
    assert_eq!(rustix::fs::sendfile(&into, &file, Some(at), 100).unwrap(), 100);
    let mut sent = [0; 100];
    into.read_exact_at(&mut sent, 0).unwrap();
    assert_eq!(sent, [250; 100]);
    // What lies with the inode again.
    writer.set_len(500).unwrap();
    holds.truncate(500);
    for _ in 0..2 {
        let read = in_pieces(&file);
        assert!(read == holds, "cut, and {} bytes are read", read.len());
    }
}

#[test]
fn one_read_of_a_small_file_that_is_open_brings_all_that_another_mount_has_written() {
    let Some((_cluster, one, two)) = two_mounts(2) else { return };
    make(&one.join("d"), 8);
    let file = open_in_pages(&two, &two.join("d/f07"));
    let writer = File::options().write(true).open(one.join("d/f07")).unwrap();
    let mut holds = content(7, 0);
    let all = |case: &str, holds: &[u8]| {
        let mut read = vec![0; 20_000];
        let count = file.read_at(&mut read, 0).unwrap();
        assert_eq!(count, holds.len(), "{case}");
        assert!(read[..count] == *holds, "{case}");
    };
    for round in 0..12u8 {
        if round % 4 == 3 {
            std::thread::sleep(OVER);
        }
        writer.write_all_at(&[round; 300], holds.len() as u64).unwrap();
        holds.extend([round; 300]);
        all(&format!("longer, {round}"), &holds);
        // Neither the size nor the time of change tells of it.
        let before = writer.metadata().unwrap().modified().unwrap();
        holds[10..20].fill(100 + round);
        writer.write_all_at(&[100 + round; 10], 10).unwrap();
        writer.set_times(FileTimes::new().set_modified(before)).unwrap();
        all(&format!("changed, {round}"), &holds);
        holds.truncate(holds.len() - 100);
        writer.set_len(holds.len() as u64).unwrap();
        all(&format!("cut, {round}"), &holds);
    }
}
