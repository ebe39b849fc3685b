//! Servers that are away more than once while one request waits: each time is waited for by itself.

use crate::lab::*;
use covey_ninep::tree::{Errno, SetAttr};
use covey_stripe::client::{File, Fs, Net, Taken, access};
use covey_stripe::ops::{Op, ROOT, RangeLock};
use futures_util::future::{Either, select};
use std::pin::Pin;
use std::time::Duration;

/// A file of three strips, one on each server.
fn made(world: &mut World, fs: &Fs) -> File {
    let (who, text) = (root(), name("f"));
    let made = fs.create(&who, ROOT, &text, 0o644, Taken::Refuse, access::BOTH);
    let file = world.run(made).unwrap().1;
    world.run(file.write_at(0, vec![1; SERVERS * STRIP].into())).unwrap();
    file
}

fn lock() -> RangeLock {
    RangeLock { exclusive: true, whole: false, start: 0, end: 9, owner: 7, pid: 7 }
}

/// The request goes on for so long and is not over.
fn waits<F: Future>(world: &mut World, mut request: Pin<&mut F>, seconds: u64) {
    let time = world.net.sleep(Duration::from_secs(seconds));
    assert!(matches!(world.run(select(request.as_mut(), time)), Either::Right(_)));
}

#[test]
fn a_wait_for_a_lock_outlasts_a_start_of_the_server() {
    let mut world = World::new(1);
    let (a, b) = (world.client(false), world.client(false));
    let file = made(&mut world, &a);
    world.run(a.lock(file.id(), lock(), false)).unwrap();
    let mut waiting = Box::pin(b.lock(file.id(), lock(), true));
    // Longer than a server that is away is waited for.
    waits(&mut world, waiting.as_mut(), 10);
    for _ in 0..3 {
        world.event(Event::RestartMeta);
        waits(&mut world, waiting.as_mut(), 2);
    }
    waits(&mut world, waiting.as_mut(), 60);
    world.run(a.unlock(file.id(), lock())).unwrap();
    world.run(waiting).unwrap();
}

#[test]
fn a_server_that_ends_again_and_again_is_not_waited_for_for_ever() {
    let mut world = World::new(3);
    let fs = world.client(false);
    let file = made(&mut world, &fs);
    world.meta.holds_cuts.set(true);
    let (who, cut) = (root(), SetAttr { size: Some(0), ..SetAttr::default() });
    let mut waiting = Box::pin(fs.setattr(&who, file.id(), cut));
    for starts in 0..100 {
        let time = world.net.sleep(Duration::from_secs(2));
        match world.run(select(waiting.as_mut(), time)) {
            Either::Left((failed, _)) => {
                assert_eq!(failed.unwrap_err().code(), Errno::EIO);
                assert!(starts > 3, "two starts in a row are no outage: {starts}");
                return;
            }
            Either::Right(_) => world.event(Event::RestartMeta),
        }
    }
    panic!("it is waited for for ever");
}

#[test]
fn a_chain_that_nobody_serves_is_waited_for_after_its_server_was_away() {
    let mut world = World::new(4);
    let fs = world.client(false);
    let file = made(&mut world, &fs);
    world.meta.holds_chains.set(true);
    world.event(Event::RaiseChain(1));
    world.run(fs.chains()).unwrap();
    world.net.set_down(&data_name(1), true);
    world.cut_all(&data_name(1));
    let mut reading = Box::pin(file.read_at(0, SERVERS * STRIP));
    waits(&mut world, reading.as_mut(), 2);
    world.net.set_down(&data_name(1), false);
    waits(&mut world, reading.as_mut(), 2);
    world.meta.holds_chains.set(false);
    world.meta.ask(Op::RaiseChain { chain: 2 });
    world.meta.tell_chains();
    assert_eq!(world.run(reading).unwrap().len(), SERVERS * STRIP);
}

#[test]
fn the_time_that_the_metadata_server_is_away_is_not_the_chains() {
    let mut world = World::new(5);
    let fs = world.client(false);
    let file = made(&mut world, &fs);
    world.meta.holds_chains.set(true);
    world.event(Event::RaiseChain(1));
    world.run(fs.chains()).unwrap();
    let mut reading = Box::pin(file.read_at(0, SERVERS * STRIP));
    for _ in 0..2 {
        world.net.set_down("meta", true);
        world.cut_all("meta");
        waits(&mut world, reading.as_mut(), 2);
        world.net.set_down("meta", false);
        waits(&mut world, reading.as_mut(), 1);
    }
    world.meta.holds_chains.set(false);
    world.meta.ask(Op::RaiseChain { chain: 2 });
    world.meta.tell_chains();
    assert_eq!(world.run(reading).unwrap().len(), SERVERS * STRIP);
}
