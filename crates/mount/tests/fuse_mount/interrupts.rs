//! Waits that a signal ends.

use crate::mounted::{Mounted, until};
use crate::process::{Deed, start};
use covey_mount::MountOptions;
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, OpenOptions};
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::time::Duration;

fn terminate(child: &mut Child) {
    let pid = Pid::from_child(child);
    kill_process(pid, Signal::TERM).expect("kill");
    let status = child.wait().expect("it ends");
    assert_eq!(status.signal(), Some(Signal::TERM.as_raw()));
}

#[test]
fn a_signal_ends_a_wait_for_a_lock_and_the_lock_is_not_taken() {
    let Some(mut mounted) = Mounted::new() else { return };
    let path = mounted.path("file");
    fs::write(&path, b"x").expect("write");
    let file = OpenOptions::new().read(true).write(true).open(&path).expect("open");
    fcntl_lock(&file, FlockOperation::LockExclusive).expect("lock");
    let mut other = start(Deed::KeepFcntl, &path);
    mounted.await_waiting(1);
    terminate(&mut other);
    until(|| mounted.model.state().waiting == 0, "the wait's end");
    fcntl_lock(&file, FlockOperation::Unlock).expect("unlock");
    assert_eq!(mounted.model.state().lock_count(), 0);
    drop(file);
    mounted.unmount();
}

#[test]
fn a_signal_ends_a_read_from_a_server_that_is_gone() {
    let grace = MountOptions {
        fsname: "covey-test".into(),
        interrupt_grace: Duration::from_millis(10),
        ..MountOptions::default()
    };
    let Some(mut mounted) = Mounted::with(grace) else { return };
    let path = mounted.path("file");
    fs::write(&path, b"x").expect("write");
    let id = mounted.model.state().id_of("file");
    mounted.model.state().stuck.insert(id);
    // More of them than threads: waiting requests do not use the mount up.
    let mut readers: Vec<Child> = (0..8).map(|_| start(Deed::Read, &path)).collect();
    mounted.await_waiting(8);
    fs::write(mounted.path("other"), b"goes on").expect("write");
    for reader in &mut readers {
        terminate(reader);
    }
    until(|| mounted.model.state().waiting == 0, "the reads' end");
    mounted.unmount();
}

#[test]
fn an_unmount_by_force_ends_every_wait() {
    let Some(mut mounted) = Mounted::new() else { return };
    let path = mounted.path("file");
    fs::write(&path, b"x").expect("write");
    let id = mounted.model.state().id_of("file");
    mounted.model.state().stuck.insert(id);
    let reader = std::thread::spawn({
        let path = path.clone();
        move || fs::read(path)
    });
    mounted.await_waiting(1);
    let busy = rustix::mount::unmount(mounted.root(), rustix::mount::UnmountFlags::FORCE);
    assert_eq!(busy, Err(rustix::io::Errno::BUSY));
    let error = reader.join().expect("no panic").expect_err("cut off");
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::CONNABORTED.raw_os_error()));
    let _ = covey_io::os::mount::umount(mounted.root());
    mounted.join();
}
