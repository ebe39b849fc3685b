//! On whose behalf a client changes files that several of its users have open.

use crate::lab::*;
use covey_ninep::tree::SetAttr;
use covey_stripe::client::{File, Fs, Taken, access};
use covey_stripe::ops::{Caller, Id, ROOT};
use covey_stripe::view::View;
use covey_wire::List;
use std::time::Duration;

const PLAIN: u32 = 0o100_777;
const PRIVILEGED: u32 = 0o106_777;

fn user(uid: u32) -> Caller {
    Caller { uid, gid: uid, groups: List(vec![uid]) }
}

/// A program of root's that everybody may write, larger than what lies with its metadata.
fn program(world: &mut World, fs: &Fs) -> Id {
    let (who, name) = (root(), name("program"));
    let (inode, file) =
        world.run(fs.create(&who, ROOT, &name, 0o777, Taken::Refuse, access::BOTH)).unwrap();
    world.run(file.write_at(0, vec![1; 4 * STRIP].into())).unwrap();
    inode.id
}

fn chmod(world: &mut World, fs: &Fs, id: Id) {
    let mode = SetAttr { mode: Some(0o6777), ..SetAttr::default() };
    assert_eq!(world.run(fs.setattr(&root(), id, mode)).unwrap().inode.mode, PRIVILEGED);
}

fn mode(world: &mut World, fs: &Fs, id: Id) -> u32 {
    world.run(fs.inode(id)).unwrap().mode
}

fn open(world: &mut World, fs: &Fs, id: Id, who: &Caller) -> File {
    world.run(fs.open(who, id, 6)).unwrap()
}

#[test]
fn a_write_takes_privilege_away_at_once_unless_root_writes() {
    let mut world = World::new(31);
    let fs = world.client(false);
    let id = program(&mut world, &fs);
    let own = open(&mut world, &fs, id, &root());
    chmod(&mut world, &fs, id);
    world.run(own.write_at(STRIP as u64, vec![2; 10].into())).unwrap();
    world.run(own.append(vec![2; 10].into())).unwrap();
    world.run(own.flush()).unwrap();
    assert_eq!(mode(&mut world, &fs, id), PRIVILEGED);
    let other = open(&mut world, &fs, id, &user(7));
    // Within the size, where only the I/O servers are asked; at the end; in pieces; space alone.
    chmod(&mut world, &fs, id);
    world.run(other.write_at(STRIP as u64, vec![3; 10].into())).unwrap();
    assert_eq!(mode(&mut world, &fs, id), PLAIN);
    chmod(&mut world, &fs, id);
    world.run(other.append(vec![3; 10].into())).unwrap();
    assert_eq!(mode(&mut world, &fs, id), PLAIN);
    chmod(&mut world, &fs, id);
    let view = View::column(5, 3, 5, 2).unwrap();
    world.run(other.write_view(&view, vec![3; 6].into())).unwrap();
    assert_eq!(mode(&mut world, &fs, id), PLAIN);
    chmod(&mut world, &fs, id);
    world.run(other.fallocate(&user(7), 0, 0, 10)).unwrap();
    assert_eq!(mode(&mut world, &fs, id), PLAIN);
}

#[test]
fn privilege_that_another_client_gave_goes_with_the_close_at_the_latest() {
    let mut world = World::new(32);
    let (fs, two) = (world.client(false), world.client(false));
    let id = program(&mut world, &fs);
    let other = open(&mut world, &fs, id, &user(7));
    world.run(other.write_at(STRIP as u64, vec![3; 10].into())).unwrap();
    world.rest(Duration::from_millis(10));
    chmod(&mut world, &two, id);
    world.run(other.write_at(STRIP as u64, vec![4; 10].into())).unwrap();
    world.run(other.flush()).unwrap();
    assert_eq!(mode(&mut world, &two, id), PLAIN);
}

#[test]
fn what_several_users_write_is_told_for_none_who_may_more_than_another() {
    let mut world = World::new(33);
    let fs = world.client(false);
    let id = program(&mut world, &fs);
    let set = SetAttr { gid: Some(7), mode: Some(0o2767), ..SetAttr::default() };
    world.run(fs.setattr(&root(), id, set)).unwrap();
    let (own, other) = (open(&mut world, &fs, id, &user(7)), open(&mut world, &fs, id, &user(8)));
    world.run(own.write_at(STRIP as u64, vec![3; 10].into())).unwrap();
    assert_eq!(mode(&mut world, &fs, id), 0o102_767, "it stays for the group");
    world.run(other.write_at(STRIP as u64, vec![3; 10].into())).unwrap();
    assert_eq!(mode(&mut world, &fs, id), 0o100_767);
}

#[test]
fn writes_that_take_no_privilege_away_do_not_ask_the_metadata_server() {
    let mut world = World::new(34);
    let fs = world.client(false);
    let id = program(&mut world, &fs);
    let set = SetAttr { gid: Some(7), mode: Some(0o2766), ..SetAttr::default() };
    world.run(fs.setattr(&root(), id, set)).unwrap();
    let own = open(&mut world, &fs, id, &user(7));
    world.rest(Duration::from_secs(3));
    let touches = |world: &World| {
        let log = world.meta.log.borrow();
        log.iter().filter(|op| **op == "Touch").count()
    };
    let before = touches(&world);
    for _ in 0..20 {
        world.run(own.write_at(STRIP as u64, vec![3; 10].into())).unwrap();
    }
    assert!(touches(&world) <= before + 1, "its time is told now and then: {}", touches(&world));
    assert_eq!(mode(&mut world, &fs, id), 0o102_766);
    // Another group's file is another matter.
    let set = SetAttr { gid: Some(8), mode: Some(0o2766), ..SetAttr::default() };
    world.run(fs.setattr(&root(), id, set)).unwrap();
    world.run(own.write_at(STRIP as u64, vec![3; 10].into())).unwrap();
    assert_eq!(mode(&mut world, &fs, id), 0o100_766);
}
