//! Walks over a tree: the listings of the next directories are there before they are wanted, and are what they would
//! be if they were asked for.

use crate::lab::*;
use covey_ninep::tree::{Errno, Removal, SetAttr};
use covey_stripe::client::{Fs, Listing, Taken, access};
use covey_stripe::ops::{Caller, Id, Op, ROOT, Reply};
use std::time::Duration;

const DIRS: usize = 24;

/// Directories in the root, with two files each and a directory in the first of them; who walks has not made them.
fn tree(world: &mut World) -> (Fs, Vec<Id>) {
    let (fs, who) = (world.client(true), root());
    let mut dirs = Vec::new();
    for at in 0..DIRS {
        let called = name(&format!("d{at}"));
        let made = world.run(fs.make(&who, ROOT, &called, 0o040_755, 0, name("")));
        dirs.push(made.unwrap().id);
    }
    let inner = world.run(fs.make(&who, dirs[0], &name("inner"), 0o040_755, 0, name("")));
    dirs.push(inner.unwrap().id);
    for &dir in &dirs {
        for file in ["f", "g"] {
            make(world, &fs, dir, file);
        }
    }
    world.rest(Duration::from_secs(3));
    (fs, dirs)
}

fn make(world: &mut World, fs: &Fs, dir: Id, file: &str) {
    let (who, file) = (root(), name(file));
    world.run(fs.create(&who, dir, &file, 0o644, Taken::Refuse, access::BOTH)).unwrap();
}

fn asked(world: &World) -> usize {
    world.meta.log.borrow().iter().filter(|name| **name == "Readdir").count()
}

async fn names(fs: &Fs, who: &Caller, dir: Id) -> Result<Vec<String>, u32> {
    let page = fs.readdir(who, dir, 0, 0, 1 << 15, Listing::Inodes).await;
    let page = page.map_err(|error| error.code())?;
    let names = page.entries.iter().map(|entry| entry.name.lossy().into_owned());
    Ok(names.filter(|name| !name.starts_with('.')).collect())
}

fn list(world: &mut World, fs: &Fs, dir: Id) -> Vec<String> {
    world.run(names(fs, &root(), dir)).unwrap()
}

#[test]
fn each_directory_of_a_walk_is_asked_for_once_and_most_before_they_are_wanted() {
    let mut world = World::new(5);
    let (_, dirs) = tree(&mut world);
    let fs = world.client(true);
    assert_eq!(list(&mut world, &fs, ROOT).len(), DIRS);
    world.rest(Duration::from_millis(1));
    assert_eq!(asked(&world), 1, "who lists one directory may want no other");
    let mut waited_for = 0;
    let walk = [dirs[0], dirs[DIRS]].into_iter().chain(dirs[1..DIRS].iter().copied());
    for dir in walk {
        let before = asked(&world);
        let found = list(&mut world, &fs, dir);
        assert_eq!(found.len(), if dir == dirs[0] { 3 } else { 2 });
        // The next one is wanted while those ahead may be on their way.
        if dir == dirs[0] {
            waited_for += asked(&world) - before;
        }
    }
    world.rest(Duration::from_millis(50));
    assert_eq!(waited_for, 1);
    assert_eq!(asked(&world), 1 + dirs.len(), "none is asked for twice");
    world.meta.log.borrow_mut().clear();
    for &dir in &dirs {
        assert!(list(&mut world, &fs, dir).len() >= 2);
    }
    assert_eq!(asked(&world), 0, "they are remembered");
}

#[test]
fn what_is_listed_ahead_is_what_another_client_has_made_of_it_meanwhile() {
    let mut world = World::new(6);
    let (other, dirs) = tree(&mut world);
    let (fs, who) = (world.client(true), root());
    list(&mut world, &fs, ROOT);
    list(&mut world, &fs, dirs[0]);
    world.rest(Duration::from_millis(20));
    assert!(asked(&world) > 10, "the next ones are here");
    make(&mut world, &other, dirs[1], "new");
    world.run(other.unlink(&who, dirs[2], &name("f"), Removal::File)).unwrap();
    let id = world.run(other.lookup(&who, dirs[3], &name("g"))).unwrap().id;
    let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    world.run(other.setattr(&who, id, mode)).unwrap();
    assert_eq!(list(&mut world, &fs, dirs[1]), ["f", "g", "new"]);
    assert_eq!(list(&mut world, &fs, dirs[2]), ["g"]);
    let listing = fs.readdir(&who, dirs[3], 0, 0, 1 << 15, Listing::Inodes);
    let page = world.run(listing).unwrap();
    let inode = page.entries.last().and_then(|entry| entry.inode.clone()).unwrap();
    assert_eq!(Reply::Node { inode }, world.meta.ask(Op::Getattr { id }));
}

#[test]
fn a_listing_ahead_is_for_those_who_may_have_it() {
    let mut world = World::new(7);
    let (other, dirs) = tree(&mut world);
    let (fs, user) = (world.client(true), Caller { uid: 1000, gid: 1000, ..Caller::default() });
    for dir in [dirs[2], dirs[9]] {
        let mode = SetAttr { mode: Some(0o700), ..SetAttr::default() };
        world.run(other.setattr(&root(), dir, mode)).unwrap();
    }
    world.rest(Duration::from_secs(3));
    // Whom those ahead are asked for makes no difference.
    for first in [root(), user.clone()] {
        world.run(names(&fs, &first, ROOT)).unwrap();
        world.run(names(&fs, &first, dirs[0])).unwrap();
        world.rest(Duration::from_millis(20));
        for at in [1, 2, 9] {
            let expected = if at == 1 { Ok(2) } else { Err(Errno::EACCES) };
            let found = world.run(names(&fs, &user, dirs[at]));
            assert_eq!(found.map(|names| names.len()), expected, "{at}");
            assert_eq!(list(&mut world, &fs, dirs[at]).len(), 2);
        }
        world.rest(Duration::from_secs(3));
    }
}

#[test]
fn a_connection_that_is_lost_takes_no_listing_with_it() {
    for round in 1..30 {
        let mut world = World::new(round);
        let (_, dirs) = tree(&mut world);
        let fs = world.client(true);
        list(&mut world, &fs, ROOT);
        let delivered = round.is_multiple_of(2);
        world.plan([(round as usize, Event::Cut { conn: 1, delivered })]);
        for &dir in &dirs[..DIRS] {
            assert!(list(&mut world, &fs, dir).len() >= 2);
        }
    }
}
