//! What is kept of attributes: nothing that another mount could have changed.

use crate::mounted::Mounted;
use covey_mount::MountOptions;
use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::Command;

#[test]
fn what_another_mount_writes_is_seen_at_once_by_name_and_by_descriptor() {
    let Some(mut mounted) = Mounted::new() else { return };
    let path = mounted.path("file");
    fs::write(&path, b"x").expect("write");
    let id = mounted.model.state().id_of("file");
    for size in 2..300u64 {
        // The kernel has just been told the size, by LOOKUP, before the file is opened.
        assert_eq!(fs::metadata(&path).expect("stat").len(), size - 1);
        let mut file = File::open(&path).expect("open");
        mounted.model.state().write_elsewhere(id, size - 1, b"x");
        assert_eq!(file.metadata().expect("fstat").len(), size);
        assert_eq!(file.seek(SeekFrom::End(0)).expect("lseek"), size);
        assert_eq!(fs::metadata(&path).expect("stat").len(), size);
    }
    mounted.unmount();
}

#[test]
fn a_stat_by_name_of_a_file_that_is_not_open_asks_once() {
    let options = MountOptions {
        fsname: "covey-test".into(),
        // Else the kernel asks about the directory too, to check permission.
        default_permissions: false,
        ..MountOptions::default()
    };
    let Some(mut mounted) = Mounted::with(options) else { return };
    let path = mounted.path("file");
    fs::write(&path, b"x").expect("write");
    crate::mounted::until(|| mounted.model.state().is_closed("file"), "the close");
    let before = mounted.model.state().stats;
    for _ in 0..200 {
        fs::metadata(&path).expect("stat");
    }
    // A clock tick may come between the two questions, now and then.
    let asked = mounted.model.state().stats - before;
    assert!(asked < 100, "{asked} questions for 200 stats");
    mounted.unmount();
}

#[test]
fn a_write_by_another_user_takes_set_user_id_away() {
    let Some(mut mounted) = Mounted::new() else { return };
    let path = mounted.path("file");
    fs::write(&path, b"x").expect("write");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).expect("chmod");
    let mode = || fs::metadata(&path).expect("stat").mode() & 0o7777;
    let root = OpenOptions::new().append(true).open(&path).expect("open");
    std::io::Write::write_all(&mut &root, b"root").expect("write");
    assert_eq!(mode(), 0o6777);
    let mut other = Command::new("/bin/sh");
    other.arg("-c").arg(format!("echo nobody >> {}", path.display()));
    assert!(other.uid(65534).gid(65534).status().expect("sh").success());
    assert_eq!(mode(), 0o0777);
    drop(root);
    mounted.unmount();
}
