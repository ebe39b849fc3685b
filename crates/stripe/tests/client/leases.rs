//! Scenes of a client that remembers under leases: when what it knows is no longer so.

use crate::lab::*;
use covey_stripe::client::{Taken, access};
use covey_stripe::ops::{Op, ROOT, Reply};
use std::task::Poll;
use std::time::Duration;

#[test]
fn what_is_asked_right_after_a_write_in_place_is_not_remembered_without_its_time() {
    let mut world = World::new(1);
    let (fs, other) = (world.client(true), world.client(true));
    let (who, f, g) = (root(), name("f"), name("g"));
    let (inode, file) =
        world.run(fs.create(&who, ROOT, &f, 0o644, Taken::Refuse, access::BOTH)).unwrap();
    world.run(file.write_at(0, vec![1; 100].into())).unwrap();
    world.rest(Duration::from_secs(3));
    // With a lease of somebody else's, changes take their turn, and questions overtake them.
    world.run(other.lookup(&who, ROOT, &g)).unwrap_err();
    let write_and_ask = async {
        file.write_at(0, vec![2; 100].into()).await.unwrap();
        fs.inode(inode.id).await.unwrap()
    };
    world.run(write_and_ask);
    world.rest(Duration::from_millis(100));
    let known = world.run(fs.inode(inode.id)).unwrap();
    let said = world.meta.ask(Op::Getattr { id: inode.id });
    assert_eq!(Reply::Node { inode: known }, said);
}

#[test]
fn an_answer_that_is_given_again_tells_of_then_and_not_of_now() {
    for rounds in 1..40 {
        let mut world = World::new(rounds);
        let (fs, other) = (world.client(true), world.client(true));
        let (who, d, x) = (root(), name("d"), name("x"));
        let mut mkdir = Box::pin(fs.make(&who, ROOT, &d, 0o040_755, 0, name("")));
        let mut first = mkdir.as_mut();
        let sent = std::future::poll_fn(|context| {
            Poll::Ready(std::future::Future::poll(first.as_mut(), context).is_ready())
        });
        assert!(!world.run(sent));
        world.event(Event::Cut { conn: 0, delivered: true });
        let made = world.run(other.lookup(&who, ROOT, &d)).expect("it was made").id;
        world.run(other.create(&who, made, &x, 0o644, Taken::Refuse, access::BOTH)).unwrap();
        // The client that made it comes back, and listens for what is taken back from it. The other's leases are over
        // by then: while they rest nothing is granted anyway.
        world.rest(Duration::from_millis(2000 + 10 * rounds));
        let inode = world.run(mkdir).unwrap();
        assert_eq!(inode.id, made);
        // Asked first: a look at the directory would bring its attributes, too.
        let said = world.meta.ask(Op::Getattr { id: made });
        let known = world.run(fs.inode(made)).unwrap();
        assert_eq!(Reply::Node { inode: known }, said);
        world.run(fs.lookup(&who, made, &x)).expect("the other has made it");
    }
}
