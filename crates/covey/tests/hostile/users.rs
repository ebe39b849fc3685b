//! Several users of one node's `/fs`. They share the node's session on the metadata server, and must not
//! share their rights.
//!
//! The test's user, whom the servers run as, attaches for all of them.

use crate::nine::{F_RDLCK, F_UNLCK, F_WRLCK, Nine, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY};
use crate::support::{Cluster, until};

const EACCES: u32 = 13;
const EBADF: u32 = 9;
const ALICE: u32 = 61_001;
const BOB: u32 = 61_002;

/// A cluster whose root everybody may write.
fn shared() -> Cluster {
    let cluster = Cluster::up(2);
    cluster.covey(&["chmod", "777", ":/"]);
    cluster
}

fn fs(cluster: &Cluster, node: &str, uid: u32) -> Nine {
    Nine::attach(&cluster.socket(node), "/fs", uid)
}

/// A file of alice's with ten bytes and a mode, and her fid that is open for writing.
fn of_alice(alice: &mut Nine, name: &str, mode: u32) -> u32 {
    let fid = alice.create(name, O_RDWR, mode).unwrap();
    alice.write(fid, 0, b"0123456789").unwrap();
    fid
}

#[test]
fn what_one_user_has_open_for_writing_another_may_not_cut() {
    let cluster = shared();
    let (mut alice, mut bob) = (fs(&cluster, "io1", ALICE), fs(&cluster, "io1", BOB));
    let own = of_alice(&mut alice, "secret", 0o600);
    let secret = bob.walk("secret");
    assert_eq!(bob.cut(secret, 0), Err(EACCES));
    assert_eq!(bob.cut(secret, 20), Err(EACCES));
    assert_eq!(bob.open("secret", O_RDONLY | O_TRUNC), Err(EACCES));
    assert_eq!(bob.create("secret", O_RDONLY | O_TRUNC, 0o600), Err(EACCES));
    assert_eq!(alice.stat(own).1, 10);
    // Her own fid, and with it her other fids, permit it whatever the mode says.
    alice.chmod(own, 0o444).unwrap();
    alice.cut(own, 5).unwrap();
    let walked = alice.walk("secret");
    alice.cut(walked, 4).unwrap();
    alice.clunk(own);
    assert_eq!(alice.cut(walked, 0), Err(EACCES), "it was the open that permitted it");
    assert_eq!(alice.stat(walked).1, 4);
}

#[test]
fn who_may_read_alone_cuts_nothing_by_creating_it() {
    let cluster = shared();
    let (mut alice, mut bob) = (fs(&cluster, "io1", ALICE), fs(&cluster, "io1", BOB));
    let own = of_alice(&mut alice, "log", 0o644);
    assert_eq!(bob.create("log", O_RDONLY | O_TRUNC, 0o644), Err(EACCES));
    assert_eq!(bob.open("log", O_RDONLY | O_TRUNC), Err(EACCES));
    assert_eq!(alice.stat(own).1, 10);
    let read = bob.open("log", O_RDONLY).unwrap();
    assert_eq!(bob.cut(read, 0), Err(EACCES));
    // A file that is new is its maker's, whatever its mode.
    let made = bob.create("mine", O_WRONLY | O_TRUNC, 0o444).unwrap();
    bob.write(made, 0, b"x").unwrap();
    bob.cut(made, 7).unwrap();
    assert_eq!(bob.stat(made).1, 7);
}

#[test]
fn after_a_restart_of_the_metadata_server_what_is_open_permits_no_more_than_before() {
    let cluster = shared();
    // The names are on a node of their own; the session of this one outlives that.
    let (mut alice, mut bob) = (fs(&cluster, "io2", ALICE), fs(&cluster, "io2", BOB));
    let own = of_alice(&mut alice, "log", 0o644);
    let read = bob.open("log", O_RDONLY).unwrap();
    cluster.kill("meta");
    cluster.restart();
    until("the metadata server", || alice.write(own, 0, b"x").is_ok());
    assert_eq!(bob.cut(read, 0), Err(EACCES));
    let walked = bob.walk("log");
    assert_eq!(bob.cut(walked, 0), Err(EACCES));
    assert_eq!(alice.stat(own).1, 10);
    alice.chmod(own, 0o444).unwrap();
    alice.cut(own, 5).unwrap();
}

#[test]
fn a_lock_is_released_by_nobody_who_only_says_that_it_is_his() {
    let cluster = shared();
    let (mut alice, mut bob) = (fs(&cluster, "io1", ALICE), fs(&cluster, "io1", BOB));
    let own = of_alice(&mut alice, "log", 0o666);
    let his = bob.open("log", O_RDWR).unwrap();
    assert_eq!(alice.lock(own, F_WRLCK, 7), Ok(true));
    assert_eq!(bob.lock(his, F_WRLCK, 7), Ok(false));
    assert_eq!(bob.lock(his, F_UNLCK, 7), Ok(true), "there is nothing to give back");
    assert_eq!(bob.lock(his, F_RDLCK, 7), Ok(false));
    assert_eq!(bob.getlock(his, 7), Ok(F_WRLCK));
    // Nor by a fid of his that goes.
    bob.clunk(his);
    let his = bob.open("log", O_RDWR).unwrap();
    assert_eq!(bob.lock(his, F_RDLCK, 7), Ok(false));
    alice.clunk(own);
    until("a lock that goes with its fid", || bob.lock(his, F_WRLCK, 7) == Ok(true));
}

#[test]
fn locks_need_a_file_that_is_open() {
    let cluster = shared();
    let (mut alice, mut bob) = (fs(&cluster, "io1", ALICE), fs(&cluster, "io1", BOB));
    of_alice(&mut alice, "secret", 0o600);
    let walked = bob.walk("secret");
    assert_eq!(bob.lock(walked, F_RDLCK, 1), Err(EBADF));
    assert_eq!(bob.lock(walked, F_UNLCK, 1), Err(EBADF));
    assert_eq!(bob.getlock(walked, 1), Err(EBADF));
}

#[test]
fn a_write_takes_anothers_privilege_from_a_program() {
    let cluster = shared();
    let (mut alice, mut bob) = (fs(&cluster, "io1", ALICE), fs(&cluster, "io1", BOB));
    let own = of_alice(&mut alice, "program", 0o777);
    // More than lies with the metadata: the rest is written past the metadata server.
    let bytes = vec![7; 100_000];
    alice.write(own, 0, &bytes).unwrap();
    alice.clunk(own);
    let (walked, his) = (alice.walk("program"), bob.open("program", O_RDWR).unwrap());
    for (offset, size) in [(90_000, 10), (0, 10), (100_000, 10)] {
        alice.chmod(walked, 0o6777).unwrap();
        assert_eq!(alice.stat(walked).0 & 0o7777, 0o6777);
        bob.write(his, offset, &bytes[..size]).unwrap();
        assert_eq!(alice.stat(walked).0 & 0o7777, 0o777, "a write at {offset}");
    }
    alice.chmod(walked, 0o6777).unwrap();
    bob.cut(his, 80_000).unwrap();
    assert_eq!(alice.stat(walked).0 & 0o7777, 0o777, "a cut");
}
