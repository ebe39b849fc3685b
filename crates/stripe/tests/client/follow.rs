//! A chain was moved, and the server that it was on is switched off: files that are open or were idle meanwhile go on, and tell what
//! was lost before, and nothing else.

use crate::chains::{moves, moves_to, one, one_strip};
use crate::lab::*;
use covey_ninep::tree::Errno;
use covey_stripe::client::fallocate::{KEEP_SIZE, PUNCH_HOLE};
use covey_stripe::client::{Error, File, Fs, Net, access};
use futures_util::future::{Either, join, join_all, select};
use std::time::Duration;

/// A file on server 1 that is not synced, of a client that has not used it for a while.
fn unsynced(world: &mut World, fs: &Fs) -> File {
    let files = ["a", "b", "c"].map(|text| one(world, fs, text));
    world.rest(Duration::from_secs(5));
    let lies = |file: &File| world.data[1].has(file.id());
    files.into_iter().find(lies).expect("they are dealt over all")
}

fn is_switched_off(world: &mut World) {
    world.net.set_down(&data_name(1), true);
    world.cut_all(&data_name(1));
}

fn loses_power(world: &mut World) {
    world.data[1].losses.set(world.data[1].losses.get() + 1);
    world.cut_all(&data_name(1));
}

fn tells_a_loss(world: &mut World, file: &File) -> bool {
    match world.run(file.fsync()) {
        Ok(()) => false,
        Err(Error::Unsynced { .. }) => true,
        Err(error) => panic!("{error}"),
    }
}

fn two_writes(world: &mut World, file: &File) {
    let both = join(file.write_at(0, vec![2; 8].into()), file.write_at(8, vec![3; 8].into()));
    let (first, second) = world.run(both);
    first.and(second).unwrap();
}

#[test]
fn who_was_idle_while_a_chain_has_left_finds_it_when_the_old_server_is_switched_off() {
    for (seed, hard) in [(21, false), (22, true)] {
        let mut world = World::with_hint(seed, one_strip());
        let fs = world.client(hard);
        let file = unsynced(&mut world, &fs);
        moves(&world, &file);
        is_switched_off(&mut world);
        assert_eq!(world.run(file.read_at(0, STRIP)).unwrap().len(), STRIP);
        // What is no 9P read goes another way.
        let other = unsynced_too(&mut world, hard, &file);
        world.run(other.fallocate(&root(), PUNCH_HOLE | KEEP_SIZE, 0, 50)).unwrap();
    }
}

/// The same file through a client that believes that the chain is where it was.
fn unsynced_too(world: &mut World, hard: bool, file: &File) -> File {
    let table = world.meta.other_table.take();
    let fs = world.client(hard);
    let opened = world.run(fs.open(&root(), file.id(), access::BOTH)).unwrap();
    world.rest(Duration::from_secs(5));
    *world.meta.other_table.borrow_mut() = table;
    opened
}

#[test]
fn a_server_that_is_dead_is_asked_for_in_the_table_once_a_second() {
    let mut world = World::with_hint(23, one_strip());
    let fs = world.client(false);
    let file = unsynced(&mut world, &fs);
    is_switched_off(&mut world);
    let asked =
        |world: &World| world.meta.log.borrow().iter().filter(|op| **op == "Chains").count();
    let before = asked(&world);
    world.run(file.read_at(0, STRIP)).unwrap_err();
    for _ in 0..100 {
        world.run(file.read_at(0, STRIP)).unwrap_err();
    }
    let now = asked(&world) - before;
    assert!((1..6).contains(&now), "{now}");
}

#[test]
fn an_old_server_may_be_switched_off_once_its_chains_are_elsewhere() {
    let mut world = World::with_hint(24, one_strip());
    let fs = world.client(false);
    let file = unsynced(&mut world, &fs);
    moves(&world, &file);
    is_switched_off(&mut world);
    assert!(!tells_a_loss(&mut world, &file));
}

#[test]
fn a_loss_before_the_chain_has_left_is_told_after_the_old_server_is_gone() {
    let mut world = World::with_hint(25, one_strip());
    let fs = world.client(false);
    let file = unsynced(&mut world, &fs);
    loses_power(&mut world);
    moves(&world, &file);
    is_switched_off(&mut world);
    assert!(tells_a_loss(&mut world, &file));
    assert!(!tells_a_loss(&mut world, &file), "once");
}

#[test]
fn a_loss_after_the_chain_has_left_is_none() {
    let mut world = World::with_hint(26, one_strip());
    let fs = world.client(false);
    let file = unsynced(&mut world, &fs);
    moves(&world, &file);
    loses_power(&mut world);
    assert!(!tells_a_loss(&mut world, &file));
}

#[test]
fn a_chain_of_which_nobody_knows_how_it_left_may_have_lost_something() {
    let mut world = World::with_hint(27, one_strip());
    let fs = world.client(false);
    let file = unsynced(&mut world, &fs);
    moves(&world, &file);
    world.data[0].hops.borrow_mut().clear();
    is_switched_off(&mut world);
    assert!(tells_a_loss(&mut world, &file));
}

#[test]
fn writes_side_by_side_after_a_move_are_no_loss() {
    let mut world = World::with_hint(28, one_strip());
    let fs = world.client(false);
    let file = unsynced(&mut world, &fs);
    moves(&world, &file);
    two_writes(&mut world, &file);
    assert!(!tells_a_loss(&mut world, &file));
}

#[test]
fn requests_side_by_side_find_a_chain_that_has_left_a_dead_server() {
    let mut world = World::with_hint(29, one_strip());
    let fs = world.client(false);
    let file = unsynced(&mut world, &fs);
    is_switched_off(&mut world);
    // Now whoever asks is refused at once.
    world.rest(Duration::from_secs(10));
    moves(&world, &file);
    let read = || file.read_at(0, STRIP);
    let all = world.run(join_all([read(), read(), read()]));
    assert!(all.iter().all(|read| read.as_ref().is_ok_and(|read| read.len() == STRIP)));
}

#[test]
fn a_chain_is_found_whose_old_server_falls_silent_in_the_middle_of_a_request() {
    for (seed, hard) in [(30, false), (31, true)] {
        let mut world = World::with_hint(seed, one_strip());
        let fs = world.client(hard);
        let file = unsynced(&mut world, &fs);
        // The connection is there, as far as anybody knows.
        world.net.set_mute(&data_name(1), true);
        world.net.set_down(&data_name(1), true);
        moves(&world, &file);
        world.run(file.fallocate(&root(), PUNCH_HOLE | KEEP_SIZE, 0, 50)).unwrap();
    }
}

#[test]
fn a_chain_that_comes_back_to_a_server_that_has_started_anew_has_lost_nothing() {
    let mut world = World::with_hint(32, one_strip());
    let fs = world.client(false);
    let file = unsynced(&mut world, &fs);
    moves(&world, &file);
    loses_power(&mut world);
    moves_to(&world, &file, 0, 1);
    assert!(!tells_a_loss(&mut world, &file));
    // What is written there now is lost with the next power.
    world.run(file.write_at(0, vec![7; 8].into())).unwrap();
    loses_power(&mut world);
    assert!(tells_a_loss(&mut world, &file));
    // And what was lost before it has left is lost when it is back.
    world.run(file.write_at(0, vec![8; 8].into())).unwrap();
    loses_power(&mut world);
    moves(&world, &file);
    moves_to(&world, &file, 0, 1);
    assert!(tells_a_loss(&mut world, &file));
}

#[test]
fn a_server_that_cannot_say_how_a_chain_came_is_asked_again_by_the_next_fsync() {
    let mut world = World::with_hint(33, one_strip());
    let fs = world.client(false);
    let file = unsynced(&mut world, &fs);
    moves(&world, &file);
    is_switched_off(&mut world);
    world.data[0].fails_hops.set(Errno::EIO);
    world.run(file.write_at(0, vec![7; 8].into())).unwrap();
    for _ in 0..2 {
        let failed = world.run(file.fsync()).unwrap_err();
        assert!(!matches!(failed, Error::Unsynced { .. }), "{failed}");
    }
    world.data[0].fails_hops.set(0);
    assert!(!tells_a_loss(&mut world, &file));
    // What was written meanwhile is lost with the new server's power.
    world.data[0].fails_hops.set(Errno::EIO);
    world.run(file.write_at(0, vec![7; 8].into())).unwrap();
    world.data[0].losses.set(1);
    world.cut_all(&data_name(0));
    assert!(tells_a_loss(&mut world, &file));
}

#[test]
fn a_server_of_a_version_that_remembers_no_moves_makes_a_file_tell_one_loss() {
    let mut world = World::with_hint(34, one_strip());
    let fs = world.client(false);
    let file = unsynced(&mut world, &fs);
    world.data[0].fails_hops.set(Errno::EINVAL);
    moves(&world, &file);
    assert!(tells_a_loss(&mut world, &file));
    assert!(!tells_a_loss(&mut world, &file));
}

#[test]
fn a_chain_is_found_while_the_metadata_server_is_slow() {
    let mut world = World::with_hint(35, one_strip());
    let fs = world.client(false);
    let file = unsynced(&mut world, &fs);
    is_switched_off(&mut world);
    world.rest(Duration::from_millis(1500));
    moves(&world, &file);
    let mut reads = Box::pin(join(file.read_at(0, STRIP), file.read_at(0, STRIP)));
    // It is asked meanwhile, and the time for the old server ends before it answers.
    for (until, is_mute) in [(900, true), (800, false)] {
        let time = world.net.sleep(Duration::from_millis(until));
        assert!(matches!(world.run(select(reads.as_mut(), time)), Either::Right(_)));
        world.net.set_mute("meta", is_mute);
    }
    let (first, second) = world.run(reads);
    assert_eq!((first.unwrap().len(), second.unwrap().len()), (STRIP, STRIP));
}

#[test]
fn a_write_after_a_move_hangs_on_nothing_that_was_synced_before() {
    let mut world = World::with_hint(36, one_strip());
    let fs = world.client(false);
    let file = unsynced(&mut world, &fs);
    world.run(file.fsync()).unwrap();
    // Nobody has written there since it has started anew.
    loses_power(&mut world);
    world.rest(Duration::from_secs(5));
    moves(&world, &file);
    two_writes(&mut world, &file);
    assert!(!tells_a_loss(&mut world, &file));
}
