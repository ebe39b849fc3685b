//! Tables of chains that change under a client.

use crate::lab::*;
use covey_ninep::tree::Errno;
use covey_stripe::chain::{Chain, Member, State};
use covey_stripe::client::fallocate::{KEEP_SIZE, PUNCH_HOLE};
use covey_stripe::client::{File, Fs, Taken, access};
use covey_stripe::objects::Hop;
use covey_stripe::ops::{Op, ROOT};
use covey_wire::{List, Name};
use std::time::Duration;

/// A file of three strips, one on each server.
fn made(world: &mut World, fs: &Fs, text: &str) -> File {
    let (who, text) = (root(), name(text));
    let made = fs.create(&who, ROOT, &text, 0o644, Taken::Refuse, access::BOTH);
    let file = world.run(made).unwrap().1;
    world.run(file.write_at(0, pattern(1).into())).unwrap();
    file
}

fn pattern(seed: usize) -> Vec<u8> {
    (0..SERVERS * STRIP).map(|at| (at * 7 + seed * 31 + at / 251) as u8).collect()
}

fn read(world: &mut World, file: &File) -> Vec<u8> {
    world.run(file.read_at(0, SERVERS * STRIP)).unwrap().into_bytes().to_vec()
}

fn refused(world: &World) -> usize {
    world.data.iter().map(|data| data.refused.get()).sum()
}

fn asked(world: &World) -> usize {
    world.meta.log.borrow().iter().filter(|name| **name == "Chains").count()
}

#[test]
fn a_generation_that_has_risen_is_asked_for_once_it_is_refused() {
    let mut world = World::new(3);
    let fs = world.client(false);
    let file = made(&mut world, &fs, "f");
    let writes = world.data[1].writes.get();
    let before = asked(&world);
    world.event(Event::RaiseChain(1));
    world.meta.tell_chains();
    world.run(file.write_at(0, pattern(2).into())).unwrap();
    assert_eq!(read(&mut world, &file), pattern(2));
    assert_eq!((refused(&world), asked(&world) - before), (1, 1));
    assert_eq!(world.data[1].writes.get(), writes + 1, "it was written once");
}

#[test]
fn who_holds_the_lease_on_the_table_is_never_refused() {
    let mut world = World::new(5);
    let fs = world.client(false);
    let file = made(&mut world, &fs, "f");
    // By now the client listens.
    world.run(fs.chains()).unwrap();
    let before = asked(&world);
    let meta = world.meta.clone();
    world.run(meta.ask_in_turn(Op::RaiseChain { chain: 0 }));
    meta.tell_chains();
    world.run(file.write_at(0, pattern(2).into())).unwrap();
    assert_eq!(refused(&world), 0);
    assert!(asked(&world) > before);
}

#[test]
fn a_server_that_has_not_heard_of_a_change_is_waited_for() {
    let mut world = World::new(7);
    let fs = world.client(false);
    let file = made(&mut world, &fs, "f");
    world.meta.holds_chains.set(true);
    world.event(Event::RaiseChain(2));
    // The client hears of it first.
    world.run(fs.chains()).unwrap();
    let failed = world.run(file.write_at(0, pattern(2).into())).unwrap_err();
    assert_eq!(failed.code(), Errno::EIO, "{failed}");
    assert!(failed.to_string().contains("chain 2"), "{failed}");
    let read = world.run(file.read_at(0, SERVERS * STRIP)).unwrap_err();
    assert_eq!(read.code(), Errno::EIO, "{read}");
    world.meta.holds_chains.set(false);
    world.run(file.write_at(0, pattern(3).into())).unwrap();
}

fn member(server: u16, state: State) -> Member {
    Member { server, store: Name::EMPTY, state: state as u8 }
}

/// The objects of chain 1 come to server 0, which takes its place: files that are open follow.
pub fn moves(world: &World, file: &File) {
    moves_to(world, file, 1, 0);
}

/// The same from any server to any.
pub fn moves_to(world: &World, file: &File, from: usize, to: usize) {
    let mut table = world.meta.table();
    let members = vec![member(from as u16, State::Stale), member(to as u16, State::Serving)];
    let (from, to) = (&world.data[from], &world.data[to]);
    let hop = Hop { generation: table[1].generation + 1, machine: from.machine() };
    table[1] = Chain { generation: hop.generation, members: List(members) };
    *to.hops.borrow_mut() = [&from.hops.borrow()[..], &[hop]].concat();
    *world.meta.other_table.borrow_mut() = Some(table);
    let bytes = from.bytes(file.id());
    to.put(file.id(), bytes);
    world.meta.tell_chains();
}

#[test]
fn an_open_file_follows_a_chain_whose_head_is_another_server() {
    let mut world = World::with_hint(9, one_strip());
    let fs = world.client(false);
    // The number of a file decides where it lies.
    let files: Vec<File> = ["a", "b", "c"].iter().map(|text| one(&mut world, &fs, text)).collect();
    let lies = |file: &&File| world.data[1].has(file.id());
    let file = files.iter().find(lies).expect("they are dealt over all");
    moves(&world, file);
    world.run(file.write_at(0, vec![9; 100].into())).unwrap();
    let all = world.run(file.read_at(0, STRIP)).unwrap().into_bytes();
    assert_eq!((all[99], all[100], all.len()), (9, pattern(1)[100], STRIP));
    world.run(file.fallocate(&root(), PUNCH_HOLE | KEEP_SIZE, 0, 50)).unwrap();
    assert_eq!(world.data[0].bytes(file.id())[..100], [[0; 50], [9; 50]].concat());
    assert_eq!(world.data[1].bytes(file.id()), &pattern(1)[..STRIP], "nobody writes where it lay");
    world.run(file.fsync()).unwrap();
    let writes = world.data[0].writes.get();
    assert_eq!(world.data[0].synced.get(), writes, "where it lies by now it is synced");
}

pub fn one_strip() -> covey_stripe::ops::StripingHint {
    covey_stripe::ops::StripingHint::simple_stripe(STRIP as u32, 1)
}

pub fn one(world: &mut World, fs: &Fs, text: &str) -> File {
    let (who, text) = (root(), name(text));
    let made = fs.create(&who, ROOT, &text, 0o644, Taken::Refuse, access::BOTH);
    let file = world.run(made).unwrap().1;
    world.run(file.write_at(0, pattern(1)[..STRIP].to_vec().into())).unwrap();
    file
}

#[test]
fn a_chain_that_nobody_serves_is_an_error_and_not_zeros() {
    let mut world = World::new(11);
    let fs = world.client(false);
    let file = made(&mut world, &fs, "f");
    let mut table = world.meta.table();
    let members = List(vec![member(1, State::Stale)]);
    table[1] = Chain { generation: table[1].generation + 1, members };
    *world.meta.other_table.borrow_mut() = Some(table);
    world.meta.tell_chains();
    let failed = world.run(file.read_at(0, SERVERS * STRIP)).unwrap_err();
    assert_eq!(failed.code(), Errno::EIO, "{failed}");
}

#[test]
fn servers_of_before_chains_are_asked_as_before() {
    let mut world = World::new(13);
    world.data.iter().for_each(|data| *data.served.borrow_mut() = None);
    let fs = world.client(false);
    let file = made(&mut world, &fs, "f");
    world.event(Event::RaiseChain(1));
    world.run(fs.chains()).unwrap();
    world.run(file.write_at(0, pattern(2).into())).unwrap();
    world.run(file.fallocate(&root(), PUNCH_HOLE | KEEP_SIZE, 0, 10)).unwrap();
    // One of them is upgraded, then another.
    for at in 0..2 {
        *world.data[at].served.borrow_mut() = Some(Vec::new());
        world.meta.tell_chains();
        world.event(Event::RestartData(at));
        world.run(file.write_at(0, pattern(3 + at).into())).unwrap();
        assert_eq!(read(&mut world, &file), pattern(3 + at));
    }
    world.rest(Duration::from_secs(1));
    assert_eq!(read(&mut world, &file), pattern(4));
}

#[test]
fn a_metadata_server_of_before_chains_gives_servers_as_before() {
    let mut world = World::new(17);
    world.meta.knows_no_chains.set(true);
    world.data.iter().for_each(|data| *data.served.borrow_mut() = Some(vec![9; 3]));
    world.meta.holds_chains.set(true);
    let fs = world.client(false);
    assert!(world.run(fs.chains()).unwrap().is_empty());
    let file = made(&mut world, &fs, "f");
    assert_eq!(read(&mut world, &file), pattern(1));
    // It is upgraded: the client finds out when it asks again.
    world.meta.knows_no_chains.set(false);
    world.meta.holds_chains.set(false);
    world.meta.tell_chains();
    assert_eq!(world.run(fs.chains()).unwrap().len(), SERVERS);
    world.run(file.write_at(0, pattern(2).into())).unwrap();
    assert_eq!((read(&mut world, &file), refused(&world)), (pattern(2), 0));
}
