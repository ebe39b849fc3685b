//! That a panic anywhere in a function that C calls is that call's failure.

use super::*;
use crate::{cwd, data, descriptors, directories, exec, lists, map, names, signals};
use std::ptr::{null, null_mut};

thread_local! {
    static FALLS: Cell<bool> = const { Cell::new(false) };
}

/// Panics in the next function that C calls on this thread.
pub fn fall() {
    assert!(!FALLS.take(), "planted");
}

/// What a call answers that panics at its first line, and errno after it.
fn fallen<R>(call: impl FnOnce() -> R) -> (R, i32) {
    set_errno(0);
    FALLS.set(true);
    let answer = call();
    assert!(!FALLS.take(), "the call is outside of the fence");
    (answer, errno())
}

export! { fn half_way(count: i32) -> i32 {
    let kept = [0_u8; 3];
    i32::from(kept[count as usize])
} }

#[test]
fn a_panic_before_anything_is_served_is_the_calls_failure_with_eio() {
    set_errno(7);
    // SAFETY: no pointers.
    unsafe {
        assert_eq!((half_way(2), errno()), (0, 7));
        assert_eq!((half_way(3), errno()), (-1, libc::EIO));
    }
}

#[test]
fn a_panic_while_a_call_is_served_lets_the_thread_out() {
    let served = || serve(|| -> Result<i32> { panic!("planted") });
    assert_eq!((fenced(served, || -1), errno()), (-1, libc::EIO));
    assert!(!is_inside());
}

#[test]
fn every_kind_of_call_fails_as_c_knows_it() {
    const EIO: i32 = libc::EIO;
    // SAFETY: no call comes as far as to its arguments.
    unsafe {
        assert_eq!(fallen(|| data::read(-1, null_mut(), 0)), (-1, EIO));
        assert_eq!(fallen(|| data::lseek64(-1, 0, 0)), (-1, EIO));
        assert_eq!(fallen(|| descriptors::close(-1)), (-1, EIO));
        assert_eq!(fallen(|| descriptors::fcntl(-1, 0, 0)), (-1, EIO));
        assert_eq!(fallen(|| descriptors::closefrom(1 << 30)), ((), EIO));
        assert_eq!(fallen(|| names::unlink(null())), (-1, EIO));
        assert_eq!(fallen(|| exec::execve(null(), null(), null())), (-1, EIO));
        assert_eq!(fallen(|| directories::opendir(null())), (null_mut(), EIO));
        assert_eq!(fallen(|| cwd::current_dir_name()), (null_mut(), EIO));
        let memory = fallen(|| map::mmap(null_mut(), 0, 0, 0, -1, 0));
        assert_eq!(memory, (libc::MAP_FAILED, EIO));
        let handler = fallen(|| signals::signal(libc::SIGUSR1, libc::SIG_IGN));
        assert_eq!(handler, (libc::SIG_ERR, EIO));
        assert_eq!(fallen(|| lists::covey_is_ours(0)), (0, EIO));
    }
}

#[test]
fn a_call_that_answers_an_error_number_answers_eio() {
    // SAFETY: no call comes as far as to its arguments.
    unsafe {
        assert_eq!(fallen(|| data::posix_fallocate(-1, 0, 0)).0, libc::EIO);
        let found = fallen(|| directories::readdir_r(null_mut(), null_mut(), null_mut()));
        assert_eq!(found.0, libc::EIO);
        let spawned =
            fallen(|| exec::posix_spawn(null_mut(), null(), null(), null(), null(), null()));
        assert_eq!(spawned.0, libc::EIO);
    }
}

#[test]
fn what_libc_calls_back_does_not_unwind_into_it() {
    fallen(|| exec::before_fork());
    // No fork was prepared: nothing is held, and nothing is forgotten.
    exec::after_fork_in_parent();
    fallen(|| exec::after_fork_in_child());
}

#[test]
fn a_call_that_cannot_return_ends_the_process_all_the_same() {
    const CODE: i32 = 77;
    const ENDS: &str = "COVEY_TEST_ENDS";
    if std::env::var_os(ENDS).is_some() {
        FALLS.set(true);
        // SAFETY: no pointers.
        unsafe { exec::_exit(CODE) };
    }
    let program = std::env::current_exe().expect("the test's own program");
    let name = "boundary::tests::a_call_that_cannot_return_ends_the_process_all_the_same";
    let ended = std::process::Command::new(program).args(["--exact", name]).env(ENDS, "1").output();
    assert_eq!(ended.expect("the test runs again").status.code(), Some(CODE));
}
