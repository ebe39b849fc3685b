//! What every program does with files.

use crate::mounted::Mounted;
use rustix::fs::{AtFlags, CWD, Mode, RenameFlags, renameat_with};
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{
    FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink,
};
use std::time::{Duration, SystemTime};

#[test]
fn what_is_written_is_read_back() {
    let Some(mut mounted) = Mounted::new() else { return };
    let path = mounted.path("hello");
    fs::write(&path, b"hello, world").expect("write");
    assert_eq!(fs::read(&path).expect("read"), b"hello, world");
    let meta = fs::metadata(&path).expect("stat");
    assert_eq!(
        (meta.len(), meta.nlink(), meta.ino()),
        (12, 1, mounted.model.state().id_of("hello"))
    );
    mounted.unmount();
}

#[test]
fn missing_and_existing_names_are_told_apart() {
    let Some(mut mounted) = Mounted::new() else { return };
    let path = mounted.path("a");
    assert_eq!(File::open(&path).expect_err("missing").kind(), ErrorKind::NotFound);
    File::create_new(&path).expect("create");
    assert_eq!(File::create_new(&path).expect_err("exists").kind(), ErrorKind::AlreadyExists);
    mounted.unmount();
}

#[test]
fn directories_are_made_moved_and_removed() {
    let Some(mut mounted) = Mounted::new() else { return };
    fs::create_dir_all(mounted.path("a/b/c")).expect("mkdir");
    fs::write(mounted.path("a/b/c/file"), b"x").expect("write");
    let full = fs::remove_dir(mounted.path("a/b")).expect_err("not empty");
    assert_eq!(full.kind(), ErrorKind::DirectoryNotEmpty);
    fs::rename(mounted.path("a/b"), mounted.path("moved")).expect("rename");
    assert_eq!(fs::read(mounted.path("moved/c/file")).expect("read"), b"x");
    assert_eq!(fs::metadata(mounted.path("a")).expect("stat").nlink(), 2);
    fs::remove_dir_all(mounted.path("moved")).expect("rm -r");
    fs::remove_dir(mounted.path("a")).expect("rmdir");
    assert_eq!(mounted.model.state().count(), 1);
    mounted.unmount();
}

#[test]
fn a_rename_replaces_refuses_or_exchanges() {
    let Some(mut mounted) = Mounted::new() else { return };
    let (one, two) = (mounted.path("one"), mounted.path("two"));
    fs::write(&one, b"1").expect("write");
    fs::write(&two, b"2").expect("write");
    let refused = renameat_with(CWD, &one, CWD, &two, RenameFlags::NOREPLACE);
    assert_eq!(refused, Err(rustix::io::Errno::EXIST));
    renameat_with(CWD, &one, CWD, &two, RenameFlags::EXCHANGE).expect("exchange");
    assert_eq!(fs::read(&one).expect("read"), b"2");
    fs::rename(&one, &two).expect("replace");
    assert_eq!(fs::read(&two).expect("read"), b"2");
    assert_eq!(mounted.model.state().count(), 2);
    mounted.unmount();
}

#[test]
fn an_unlinked_open_file_lives_until_it_is_closed() {
    let Some(mut mounted) = Mounted::new() else { return };
    let path = mounted.path("doomed");
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
    let file = file.as_mut().expect("create");
    file.write_all(b"before").expect("write");
    fs::remove_file(&path).expect("unlink");
    file.write_all(b" and after").expect("write");
    assert_eq!(file.metadata().expect("fstat").nlink(), 0);
    let mut back = vec![0; 16];
    file.read_exact_at(&mut back, 0).expect("read");
    assert_eq!(back, b"before and after");
    assert_eq!(mounted.model.state().count(), 2);
    let _ = std::mem::replace(file, File::open("/dev/null").expect("null"));
    crate::mounted::until(|| mounted.model.state().count() == 1, "the file's end");
    mounted.unmount();
}

#[test]
fn hard_and_symbolic_links_lead_to_their_file() {
    let Some(mut mounted) = Mounted::new() else { return };
    fs::write(mounted.path("file"), b"data").expect("write");
    fs::hard_link(mounted.path("file"), mounted.path("hard")).expect("link");
    symlink("hard", mounted.path("soft")).expect("symlink");
    assert_eq!(fs::read(mounted.path("soft")).expect("read"), b"data");
    assert_eq!(fs::read_link(mounted.path("soft")).expect("readlink").as_os_str(), "hard");
    assert_eq!(fs::metadata(mounted.path("file")).expect("stat").nlink(), 2);
    fs::remove_file(mounted.path("file")).expect("unlink");
    assert_eq!(fs::metadata(mounted.path("hard")).expect("stat").nlink(), 1);
    mounted.unmount();
}

#[test]
fn special_files_keep_their_type_and_number() {
    let Some(mut mounted) = Mounted::new() else { return };
    let device = rustix::fs::makedev(259, 70_000);
    let kind = rustix::fs::FileType::CharacterDevice;
    let path = mounted.path("device");
    rustix::fs::mknodat(CWD, &path, kind, Mode::from_raw_mode(0o600), device).expect("mknod");
    let meta = fs::symlink_metadata(&path).expect("stat");
    assert!(meta.file_type().is_char_device());
    assert_eq!(meta.rdev(), device);
    let plain = mounted.path("plain");
    let kind = rustix::fs::FileType::RegularFile;
    rustix::fs::mknodat(CWD, &plain, kind, Mode::from_raw_mode(0o600), 0).expect("mknod");
    assert!(fs::metadata(&plain).expect("stat").is_file());
    mounted.unmount();
}

#[test]
fn truncation_cuts_and_extends_by_name_by_descriptor_and_at_open() {
    let Some(mut mounted) = Mounted::new() else { return };
    let path = mounted.path("file");
    fs::write(&path, b"0123456789").expect("write");
    let file = OpenOptions::new().write(true).open(&path).expect("open");
    file.set_len(4).expect("cut");
    assert_eq!(fs::read(&path).expect("read"), b"0123");
    file.set_len(6).expect("extend");
    assert_eq!(fs::read(&path).expect("read"), b"0123\0\0");
    File::create(&path).expect("open with O_TRUNC");
    assert_eq!(fs::metadata(&path).expect("stat").len(), 0);
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 100).expect("fallocate");
    assert_eq!(fs::metadata(&path).expect("stat").len(), 100);
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 50).expect("fallocate");
    assert_eq!(fs::metadata(&path).expect("stat").len(), 100);
    drop(file);
    mounted.unmount();
}

#[test]
fn modes_owners_and_times_are_set() {
    let Some(mut mounted) = Mounted::new() else { return };
    let path = mounted.path("file");
    let file = File::create(&path).expect("create");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("chmod");
    std::os::unix::fs::chown(&path, Some(7), Some(8)).expect("chown");
    let then = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    file.set_modified(then).expect("utimens");
    let meta = fs::metadata(&path).expect("stat");
    assert_eq!((meta.mode() & 0o7777, meta.uid(), meta.gid()), (0o640, 7, 8));
    assert_eq!(meta.modified().expect("mtime"), then);
    let now = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
    let times = rustix::fs::Timestamps { last_access: now, last_modification: now };
    rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty()).expect("touch");
    assert!(fs::metadata(&path).expect("stat").modified().expect("mtime") > then);
    drop(file);
    mounted.unmount();
}

#[test]
fn appends_go_to_the_end_wherever_the_kernel_thinks_it_is() {
    let Some(mut mounted) = Mounted::new() else { return };
    let path = mounted.path("log");
    let open = || OpenOptions::new().append(true).create(true).open(&path).expect("open");
    let (mut one, mut two) = (open(), open());
    for _ in 0..3 {
        one.write_all(b"1").expect("append");
        two.write_all(b"2").expect("append");
    }
    assert_eq!(fs::read(&path).expect("read"), b"121212");
    assert_eq!(mounted.model.state().appends, 6);
    drop((one, two));
    mounted.unmount();
}

#[test]
fn a_mebibyte_is_one_request_each_way() {
    let Some(mut mounted) = Mounted::new() else { return };
    let path = mounted.path("big");
    // Aligned, as a mapping is: 1 MiB across 257 pages does not fit into one request.
    let aligned = vec![0x5a; (1 << 20) + 4096];
    let skip = aligned.as_ptr().align_offset(4096);
    let data = &aligned[skip..skip + (1 << 20)];
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
    let file = file.expect("create");
    file.write_all_at(data, 0).expect("write");
    let mut back = vec![0; (1 << 20) + 4096];
    let skip = back.as_ptr().align_offset(4096);
    file.read_exact_at(&mut back[skip..skip + (1 << 20)], 0).expect("read");
    assert_eq!(&back[skip..skip + (1 << 20)], data);
    let state = mounted.model.state();
    assert_eq!(
        (state.writes.as_slice(), state.reads.as_slice()),
        ([1 << 20].as_slice(), [1 << 20].as_slice())
    );
    drop((state, file));
    mounted.unmount();
}

#[test]
fn large_unaligned_transfers_come_back_byte_for_byte() {
    let Some(mut mounted) = Mounted::new() else { return };
    let path = mounted.path("big");
    let data: Vec<u8> =
        (0..5_000_007u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    fs::write(&path, &data).expect("write");
    let mut file = File::open(&path).expect("open");
    file.seek(SeekFrom::Start(1_234_567)).expect("seek");
    let mut tail = Vec::new();
    file.read_to_end(&mut tail).expect("read");
    assert!(tail == data[1_234_567..], "the tail differs");
    assert!(fs::read(&path).expect("read") == data, "the whole differs");
    drop(file);
    mounted.unmount();
}

#[test]
fn fsync_and_o_dsync_ask_for_stable_storage() {
    let Some(mut mounted) = Mounted::new() else { return };
    let path = mounted.path("file");
    let mut file = File::create(&path).expect("create");
    file.write_all(b"x").expect("write");
    assert_eq!(mounted.model.state().fsyncs, 0);
    file.sync_all().expect("fsync");
    assert_eq!(mounted.model.state().fsyncs, 1);
    drop(file);
    let flag = rustix::fs::OFlags::DSYNC.bits() as i32;
    let mut file = OpenOptions::new().write(true).custom_flags(flag).open(&path).expect("open");
    file.write_all(b"y").expect("write");
    assert_eq!(mounted.model.state().fsyncs, 2);
    File::open(mounted.root()).expect("open").sync_all().expect("fsync of a directory");
    assert_eq!(mounted.model.state().fsyncs, 3);
    drop(file);
    mounted.unmount();
}

#[test]
fn holes_and_data_are_found_by_seeking() {
    let Some(mut mounted) = Mounted::new() else { return };
    let path = mounted.path("file");
    fs::write(&path, b"0123").expect("write");
    let file = File::open(&path).expect("open");
    let seek = |at| rustix::fs::seek(&file, at);
    assert_eq!(seek(rustix::fs::SeekFrom::Hole(1)), Ok(4));
    assert_eq!(seek(rustix::fs::SeekFrom::Data(1)), Ok(1));
    assert_eq!(seek(rustix::fs::SeekFrom::Data(4)), Err(rustix::io::Errno::NXIO));
    drop(file);
    mounted.unmount();
}

#[test]
fn the_size_of_the_file_system_is_told() {
    let Some(mut mounted) = Mounted::new() else { return };
    let space = rustix::fs::statvfs(mounted.root()).expect("statvfs");
    assert_eq!(space.f_blocks * space.f_frsize, 1 << 40);
    assert_eq!(space.f_bfree * space.f_frsize, 1 << 39);
    assert_eq!(space.f_bavail * space.f_frsize, 1 << 38);
    assert_eq!(space.f_namemax, 255);
    mounted.unmount();
}

#[test]
fn what_the_mount_does_not_have_is_refused_and_not_hung() {
    let Some(mut mounted) = Mounted::new() else { return };
    let path = mounted.path("file");
    let file = File::create(&path).expect("create");
    let mut value = [0u8; 16];
    let xattr = rustix::fs::getxattr(&path, "system.posix_acl_access", &mut value[..]);
    assert_eq!(xattr, Err(rustix::io::Errno::OPNOTSUPP));
    assert_eq!(rustix::fs::ioctl_getflags(&file).map(|_| ()), Err(rustix::io::Errno::NOTTY));
    let long = File::create(mounted.path(&"n".repeat(256))).expect_err("a name of 256 bytes");
    assert_eq!(long.raw_os_error(), Some(rustix::io::Errno::NAMETOOLONG.raw_os_error()));
    let insert = rustix::fs::FallocateFlags::INSERT_RANGE;
    let inserted = rustix::fs::fallocate(&file, insert, 0, 4096);
    assert_eq!(inserted, Err(rustix::io::Errno::OPNOTSUPP));
    drop(file);
    mounted.unmount();
}

#[test]
fn a_lazy_unmount_leaves_open_files_working_and_ends_with_the_last() {
    let Some(mut mounted) = Mounted::new() else { return };
    let path = mounted.path("file");
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
    let file = file.as_mut().expect("create");
    covey_io::os::mount::umount(mounted.root()).expect("unmount");
    assert!(!path.exists());
    file.write_all(b"still here").expect("write");
    file.rewind().expect("seek");
    let mut back = String::new();
    file.read_to_string(&mut back).expect("read");
    assert_eq!(back, "still here");
    let _ = std::mem::replace(file, File::open("/dev/null").expect("null"));
    mounted.join();
}

#[test]
fn a_handler_that_panics_costs_its_caller_eio_and_nobody_else_anything() {
    let Some(mut mounted) = Mounted::new() else { return };
    fs::write(mounted.path("file"), b"content").expect("write");
    for name in ["panics", "panics later", "panics"] {
        let error = fs::metadata(mounted.path(name)).expect_err("it panics");
        assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()), "{name}");
        assert_eq!(fs::read(mounted.path("file")).expect("read"), b"content");
    }
    mounted.unmount();
}
