//! Writes that end in the middle.

mod client_lab;

use client_lab::*;
use covey_ninep::tree::Errno;
use covey_stripe::client::Net;
use covey_stripe::list::Run;
use covey_stripe::ops::{Op, ROOT, Reply};
use futures_util::future::{Either, select};
use std::time::Duration;

#[test]
fn a_write_that_does_not_reach_every_server_leaves_no_size() {
    for (mut world, is_list) in [
        (World::new(1), false),
        (World::new(2), true),
        (World::progressive(3), false),
        (World::progressive(4), true),
    ] {
        let fs = world.client(false);
        let made = world.run(fs.create(&root(), ROOT, &name("f"), 0o644, true, 6));
        let file = made.unwrap().1;
        world.net.set_mute("io1", true);
        let bytes = INLINE + SINGLE + 3 * STRIP;
        let written = match is_list {
            false => world.run(file.write_at(0, vec![1; bytes].into())),
            true => {
                let half = bytes as u64 / 2;
                let runs = [0, half].map(|offset| Run::one(offset, half));
                world.run(file.write_list(&runs, vec![1; 2 * half as usize].into()))
            }
        };
        assert_eq!(written.unwrap_err().code, Errno::EIO);
        let Reply::Node { inode } = world.meta.ask(Op::Getattr { id: file.id() }) else {
            panic!("no such file");
        };
        assert_eq!(inode.size, 0, "{} strips are not there", bytes / STRIP);
    }
}

#[test]
fn an_append_whose_session_was_given_up_is_not_taken_for_done() {
    let mut world = World::new(5);
    let fs = world.client(true);
    let made = world.run(fs.create(&root(), ROOT, &name("f"), 0o644, true, 6));
    let file = made.unwrap().1;
    // It has its place, and its data is on the way, when the session and with it the place are gone.
    (0..SERVERS).for_each(|at| world.net.set_down(&data_name(at), true));
    let mut append = Box::pin(file.append(vec![1; 10].into()));
    let while_down = world.net.sleep(Duration::from_millis(200));
    assert!(matches!(world.run(select(append.as_mut(), while_down)), Either::Right(_)));
    assert!(world.meta.log.borrow().contains(&"Reserve"));
    world.meta.forget_sessions();
    world.cut_all("meta");
    (0..SERVERS).for_each(|at| world.net.set_down(&data_name(at), false));
    assert_eq!(world.run(append).unwrap_err().code, Errno::EIO);
}
