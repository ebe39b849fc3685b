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
