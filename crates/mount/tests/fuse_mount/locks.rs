//! fcntl and flock locks between processes.

use crate::mounted::{Mounted, until};
use crate::process::{Deed, await_done, finish, start};
use covey_io::os::ofd::{LockKind, Range, try_lock};
use rustix::fs::{FlockOperation, fcntl_lock, flock};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::path::Path;
use std::time::Duration;

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
    for deed in [Deed::KeepFcntl, Deed::KeepFlock, Deed::KeepOfd] {
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

/// Files of the mount, each with something in it, opened to be read and closed by one process in turn.
fn read_in_turn(mounted: &Mounted, count: usize) {
    for number in 0..count {
        let path = mounted.path(&format!("read-{number}"));
        if !path.exists() {
            fs::write(&path, b"x").expect("write");
        }
        drop(File::open(&path).expect("open"));
    }
}

#[test]
fn the_close_of_who_reads_in_turn_is_not_asked_about() {
    let Some(mut mounted) = Mounted::new() else { return };
    let ends = || {
        until(|| mounted.model.state().is_all_closed(), "the ends of handles");
        mounted.model.state().flushes
    };
    read_in_turn(&mounted, 3);
    let mut before = ends();
    read_in_turn(&mounted, 3);
    assert_eq!(ends(), before + 3);
    // Where this machine has stopped for two seconds it is not in turn.
    let is_quiet = (0..5).any(|_| {
        read_in_turn(&mounted, 20);
        before = ends();
        read_in_turn(&mounted, 20);
        ends() == before
    });
    assert!(is_quiet);
    // Who writes is asked.
    let writer = open(&mounted.path("read-0"));
    before = mounted.model.state().flushes;
    drop(writer.try_clone().expect("dup"));
    assert_eq!(mounted.model.state().flushes, before + 1);
    drop(writer);
    mounted.unmount();
}

#[test]
fn a_lock_by_a_quiet_descriptor_ends_with_it_and_later_ones_as_posix_has_it() {
    let Some(mut mounted) = Mounted::new() else { return };
    let path = mounted.path("read-3");
    let locks = || mounted.model.state().lock_count();
    read_in_turn(&mounted, 20);
    let file = File::open(&path).expect("open");
    fcntl_lock(&file, FlockOperation::LockShared).expect("lock");
    // Not sooner than POSIX has it, and no later than the last copy.
    let copy = file.try_clone().expect("dup");
    drop(file);
    assert_eq!(locks(), 1);
    drop(copy);
    until(|| locks() == 0, "the lock's end");
    // The process is known to take locks.
    read_in_turn(&mounted, 20);
    for name in ["read-3", "read-9"] {
        let path = mounted.path(name);
        let file = File::open(&path).expect("open");
        fcntl_lock(&file, FlockOperation::LockShared).expect("lock");
        drop(File::open(&path).expect("open"));
        assert_eq!(locks(), 0, "{name}");
    }
    mounted.unmount();
}

/// The kernel tells of the close when it is over, and of the next lock by the same owner right after that.
#[test]
fn a_lock_is_not_given_back_with_those_that_a_quiet_close_ends() {
    let Some(mut mounted) = Mounted::new() else { return };
    read_in_turn(&mounted, 20);
    let path = mounted.path("read-3");
    let locks = || mounted.model.state().lock_count();
    let [first, second] = [(); 2].map(|()| File::open(&path).expect("open"));
    fcntl_lock(&first, FlockOperation::LockShared).expect("lock");
    mounted.model.state().slow_unlocks = true;
    drop(first);
    std::thread::sleep(Duration::from_millis(20));
    fcntl_lock(&second, FlockOperation::LockShared).expect("lock");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(locks(), 1);
    drop(second);
    until(|| locks() == 0, "the lock's end");
    mounted.unmount();
}

const ALL: Range = Range { start: 0, length: 0 };

#[test]
fn a_lock_of_an_open_file_goes_with_its_last_descriptor_and_not_before() {
    let Some(mut mounted) = Mounted::new() else { return };
    let path = mounted.path("file");
    fs::write(&path, b"x").expect("write");
    let (file, other) = (open(&path), open(&path));
    let at = |start, length| Range { start, length };
    assert!(try_lock(&file, LockKind::Write, at(0, 5)).expect("ask"));
    assert!(try_lock(&file, LockKind::Read, at(10, 5)).expect("ask"));
    assert!(!try_lock(&other, LockKind::Read, ALL).expect("ask"));
    // Neither another descriptor of it nor one of another open file ends it.
    drop(file.try_clone().expect("dup"));
    drop(open(&path));
    assert_eq!(mounted.model.state().lock_count(), 2);
    drop(file);
    until(|| mounted.model.state().lock_count() == 0, "the locks' end");
    assert!(try_lock(&other, LockKind::Write, ALL).expect("ask"));
    drop(other);
    until(|| mounted.model.state().lock_count() == 0, "the lock's end");
    mounted.unmount();
}

#[test]
fn the_end_of_one_open_file_leaves_the_locks_of_others() {
    let Some(mut mounted) = Mounted::new() else { return };
    let path = mounted.path("file");
    fs::write(&path, b"x").expect("write");
    let at = |start| Range { start, length: 5 };
    let (file, other) = (open(&path), open(&path));
    assert!(try_lock(&file, LockKind::Write, at(0)).expect("ask"));
    assert!(try_lock(&other, LockKind::Write, at(5)).expect("ask"));
    // A flock of the same open file has the same owner.
    flock(&other, FlockOperation::NonBlockingLockExclusive).expect("flock");
    drop(file);
    until(|| mounted.model.state().lock_count() == 2, "the one lock's end");
    let mut process = start(Deed::KeepFcntl, &path);
    mounted.await_waiting(1);
    drop(other);
    await_done(&mut process);
    finish(process);
    until(|| mounted.model.state().lock_count() == 0, "the locks' end");
    mounted.unmount();
}
