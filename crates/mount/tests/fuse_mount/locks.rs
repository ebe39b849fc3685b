//! fcntl and flock locks between processes.

use crate::mounted::{Mounted, until};
use crate::process::{Deed, await_done, finish, start};
use rustix::fs::{FlockOperation, fcntl_lock, flock};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::path::Path;

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).expect("open")
}

#[test]
fn an_fcntl_lock_keeps_another_process_out_until_it_is_given_back() {
    let Some(mut mounted) = Mounted::new() else { return };
    let path = mounted.path("file");
    fs::write(&path, b"x").expect("write");
    let file = open(&path);
    fcntl_lock(&file, FlockOperation::LockExclusive).expect("the first lock");
    let mut other = start(Deed::KeepFcntl, &path);
    mounted.await_waiting(1);
    fcntl_lock(&file, FlockOperation::Unlock).expect("unlock");
    await_done(&mut other);
    let refused = fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive);
    assert_eq!(refused, Err(Errno::AGAIN));
    finish(other);
    fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).expect("the other is gone");
    drop(file);
    mounted.unmount();
}

#[test]
fn closing_any_descriptor_of_a_file_gives_up_the_process_s_fcntl_locks() {
    let Some(mut mounted) = Mounted::new() else { return };
    let path = mounted.path("file");
    fs::write(&path, b"x").expect("write");
    let file = open(&path);
    fcntl_lock(&file, FlockOperation::LockExclusive).expect("lock");
    assert_eq!(mounted.model.state().lock_count(), 1);
    drop(open(&path));
    assert_eq!(mounted.model.state().lock_count(), 0);
    drop(file);
    mounted.unmount();
}

#[test]
fn a_killed_process_leaves_no_lock_behind() {
    let Some(mut mounted) = Mounted::new() else { return };
    let path = mounted.path("file");
    fs::write(&path, b"x").expect("write");
    for deed in [Deed::KeepFcntl, Deed::KeepFlock] {
        let mut other = start(deed, &path);
        await_done(&mut other);
        assert_eq!(mounted.model.state().lock_count(), 1, "{deed:?}");
        other.kill().expect("kill");
        other.wait().expect("it is gone");
        until(|| mounted.model.state().lock_count() == 0, "the lock's end");
    }
    mounted.unmount();
}

#[test]
fn a_flock_belongs_to_the_open_file_and_goes_with_it() {
    let Some(mut mounted) = Mounted::new() else { return };
    let path = mounted.path("file");
    fs::write(&path, b"x").expect("write");
    let file = open(&path);
    flock(&file, FlockOperation::LockShared).expect("shared");
    let second = open(&path);
    flock(&second, FlockOperation::LockShared).expect("shared with it");
    let refused = flock(&second, FlockOperation::NonBlockingLockExclusive);
    assert_eq!(refused, Err(Errno::AGAIN));
    // Another descriptor of the same open file: the lock stays.
    drop(file.try_clone().expect("dup"));
    assert_eq!(mounted.model.state().lock_count(), 2);
    let mut other = start(Deed::KeepFlock, &path);
    mounted.await_waiting(1);
    drop((file, second));
    await_done(&mut other);
    finish(other);
    until(|| mounted.model.state().lock_count() == 0, "the lock's end");
    mounted.unmount();
}

#[test]
fn fcntl_locks_and_flocks_do_not_meet() {
    let Some(mut mounted) = Mounted::new() else { return };
    let path = mounted.path("file");
    fs::write(&path, b"x").expect("write");
    let file = open(&path);
    flock(&file, FlockOperation::LockExclusive).expect("flock");
    let mut other = start(Deed::KeepFcntl, &path);
    await_done(&mut other);
    assert_eq!(mounted.model.state().lock_count(), 2);
    finish(other);
    drop(file);
    mounted.unmount();
}
