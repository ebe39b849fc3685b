//! Files that are to move to other servers.

use crate::lab::*;
use covey_stripe::check::each_name;
use covey_stripe::client::{Fs, Moved, Pace, Taken, access};
use covey_stripe::ops::{Id, Op, ROOT};
use std::cell::Cell;
use std::time::Duration;

fn made(world: &mut World) -> (Fs, Id) {
    let (fs, who, text) = (world.client(false), root(), name("f"));
    let made = fs.create(&who, ROOT, &text, 0o644, Taken::Refuse, access::BOTH);
    let (inode, file) = world.run(made).unwrap();
    world.run(file.write_at(0, vec![1; 3 * STRIP].into())).unwrap();
    drop(file);
    world.rest(Duration::from_secs(1));
    assert_eq!(world.meta.open_files(), 0);
    (fs, inode.id)
}

fn unlinked() -> Op {
    Op::Unlink { parent: ROOT, name: name("f"), dir: false }
}

#[test]
fn of_a_file_that_was_removed_there_is_nothing_to_move() {
    let mut world = World::new(1);
    let (fs, id) = made(&mut world);
    world.meta.ask(unlinked());
    let pace = Pace::default();
    let moved = world.run(fs.move_file(id, |_| panic!("nobody has to choose"), &pace));
    assert_eq!(moved.unwrap(), Moved::Nothing);
}

#[test]
fn nor_of_one_that_is_removed_once_it_was_looked_at() {
    let mut world = World::new(2);
    let (fs, id) = made(&mut world);
    let (pace, meta) = (Pace::default(), world.meta.clone());
    let is_there = Cell::new(true);
    let choose = |_: &_| {
        if is_there.take() {
            meta.ask(unlinked());
        }
        Some(vec![0])
    };
    let moved = world.run(fs.move_file(id, choose, &pace));
    assert_eq!(moved.unwrap(), Moved::Nothing);
    assert!(!is_there.get());
}

#[test]
fn a_directory_that_is_removed_while_all_are_gone_through_has_no_names() {
    let mut world = World::new(3);
    let (fs, who) = (world.client(false), root());
    let text = name("d");
    let made = fs.make(&who, ROOT, &text, 0o040755, 0, name(""));
    let dir = world.run(made).unwrap().id;
    world.meta.ask(Op::Unlink { parent: ROOT, name: name("d"), dir: true });
    world.run(each_name(&fs, dir, |_| panic!("there is none"))).unwrap();
}
