//! Pipes whose readers and writers come, go and are lost.

use super::super::tests::toy;
use super::*;

const READ: u32 = 0;
const WRITE: u32 = 1;
const BOTH: u32 = 2;

struct Rig {
    pipes: Rc<Pipes>,
    pipe: Rc<Pipe>,
    user: Rc<User>,
}

type Answer = Option<std::result::Result<usize, u32>>;

const NOTHING: Answer = None;
const END: Answer = Some(Ok(0));
const BROKEN: Answer = Some(Err(Errno::EPIPE));

fn answer(outcome: Option<Result<usize>>) -> Answer {
    outcome.map(|outcome| outcome.map_err(|error| error.code))
}

impl Rig {
    fn new() -> Rig {
        let (pipes, user) = (toy(1).pipes, User { uid: 0, gid: 0, groups: Vec::new() });
        let pipe = pipes.add(&user, Name::from("a"), 0o600).unwrap();
        Rig { pipes, pipe, user: Rc::new(user) }
    }

    fn open(&self, flags: u32) -> Node {
        self.pipes.opened(self.pipe.clone(), flags).node
    }

    fn writers<const COUNT: usize>(&self) -> [Node; COUNT] {
        [(); COUNT].map(|()| self.open(WRITE))
    }

    fn lose(&self, node: Node) {
        self.pipes.cut(&self.user, node);
    }

    fn close(&self, node: Node) {
        self.pipes.clunk(&self.user, node);
    }
}

fn put(node: &Node, bytes: usize) -> Answer {
    let put = node.end().unwrap().put(&vec![7; bytes]);
    answer(put.map(|put| put.map(|count| count as usize)))
}

fn take(node: &Node) -> Answer {
    let taken = node.end().unwrap().take(PIPE_BYTES);
    answer(taken.map(|taken| taken.map(|bytes| bytes.len())))
}

#[test]
fn who_waits_for_room_hears_that_the_last_reader_was_lost() {
    let rig = Rig::new();
    let (one, other, writer) = (rig.open(READ), rig.open(READ), rig.open(WRITE));
    assert_eq!(put(&writer, PIPE_BYTES), Some(Ok(PIPE_BYTES)));
    assert_eq!(put(&writer, 1), NOTHING);
    rig.lose(one);
    assert_eq!(put(&writer, 1), NOTHING, "there is another reader");
    rig.lose(other);
    assert_eq!(put(&writer, 1), BROKEN);
    // One that comes anew takes what is there.
    let reader = rig.open(READ);
    assert_eq!(put(&writer, 1), NOTHING);
    assert_eq!(take(&reader), Some(Ok(PIPE_BYTES)));
    assert_eq!(put(&writer, 1), Some(Ok(1)));
    // One that ends in good order leaves what is written to the next, as one that never came does.
    rig.close(reader);
    assert_eq!(put(&writer, 1), Some(Ok(1)));
    rig.close(writer);
}

#[test]
fn who_could_read_as_well_hears_that_the_last_other_reader_was_lost() {
    let rig = Rig::new();
    let (writer, reader) = (rig.open(BOTH), rig.open(BOTH));
    assert_eq!(put(&writer, PIPE_BYTES), Some(Ok(PIPE_BYTES)));
    rig.lose(reader);
    assert_eq!(put(&writer, 1), BROKEN);
    let _next = rig.open(READ);
    assert_eq!(put(&writer, 1), NOTHING);
}

#[test]
fn whoever_writes_after_all_are_gone_waits_for_a_reader_as_ever() {
    let rig = Rig::new();
    let both = rig.open(BOTH);
    rig.lose(both);
    assert_eq!(put(&rig.open(WRITE), 1), Some(Ok(1)));
}

#[test]
fn one_who_could_write_as_well_hears_that_the_other_writer_was_lost() {
    let rig = Rig::new();
    let (reader, writer) = (rig.open(BOTH), rig.open(WRITE));
    assert_eq!(put(&writer, 3), Some(Ok(3)));
    assert_eq!(take(&reader), Some(Ok(3)));
    assert_eq!(take(&reader), NOTHING);
    rig.lose(writer);
    assert_eq!(take(&reader), BROKEN);
    let next = rig.open(WRITE);
    assert_eq!(take(&reader), NOTHING, "there is somebody again");
    // The end of a writer in good order is no end for one who may write itself.
    rig.close(next);
    assert_eq!(take(&reader), NOTHING);
}

#[test]
fn the_last_of_three_writers_ends_the_pipe() {
    let rig = Rig::new();
    let (reader, [a, b, c]) = (rig.open(READ), rig.writers());
    for writer in [&a, &b, &c] {
        assert_eq!(put(writer, 1), Some(Ok(1)));
    }
    rig.close(a);
    assert_eq!(take(&reader), Some(Ok(3)));
    rig.close(b);
    assert_eq!(take(&reader), NOTHING);
    rig.close(c);
    assert_eq!((take(&reader), take(&reader)), (END, END));
}

#[test]
fn one_of_three_writers_that_is_lost_is_an_error_behind_what_the_others_write() {
    for lost in 0..3 {
        let rig = Rig::new();
        let (reader, mut writers) = (rig.open(READ), rig.writers::<3>().to_vec());
        put(&writers[lost], 2);
        rig.lose(writers.remove(lost));
        assert_eq!((take(&reader), take(&reader)), (Some(Ok(2)), NOTHING));
        put(&writers[0], 1);
        rig.close(writers.remove(0));
        // One that comes in between, with the pipe empty, makes nothing good.
        assert_eq!(take(&reader), Some(Ok(1)));
        writers.push(rig.open(WRITE));
        put(&writers[1], 1);
        writers.drain(..).for_each(|writer| rig.close(writer));
        assert_eq!(take(&reader), Some(Ok(1)));
        assert_eq!((take(&reader), take(&reader)), (BROKEN, BROKEN));
        // Whoever comes now begins anew, for who has heard it and for who has not been there.
        let next = rig.open(WRITE);
        let late = rig.open(READ);
        put(&next, 1);
        rig.close(next);
        assert_eq!((take(&late), take(&late), take(&reader)), (Some(Ok(1)), END, END));
    }
}

#[test]
fn a_lost_writer_is_heard_of_though_another_began_before_anybody_read() {
    let rig = Rig::new();
    let (reader, writer) = (rig.open(READ), rig.open(WRITE));
    rig.lose(writer);
    let next = rig.open(WRITE);
    rig.close(next);
    assert_eq!(take(&reader), BROKEN);
}

#[test]
fn an_end_is_read_though_another_writer_came_before_and_wrote_nothing() {
    let rig = Rig::new();
    let (reader, [a, b]) = (rig.open(READ), rig.writers());
    put(&a, 1);
    assert_eq!(take(&reader), Some(Ok(1)));
    rig.close(a);
    let c = rig.open(WRITE);
    rig.close(b);
    rig.close(c);
    assert_eq!(take(&reader), END);
    // Nobody has written for who comes now.
    let next = rig.open(WRITE);
    let late = rig.open(READ);
    rig.close(next);
    assert_eq!(take(&late), NOTHING);
}

#[test]
fn of_two_who_could_write_each_hears_of_a_lost_writer_when_the_other_has_ended() {
    let rig = Rig::new();
    let (one, other, writer) = (rig.open(BOTH), rig.open(BOTH), rig.open(WRITE));
    rig.lose(writer);
    assert_eq!((take(&one), take(&other)), (NOTHING, NOTHING));
    rig.close(other);
    assert_eq!(take(&one), BROKEN);
}

#[test]
fn a_pipe_without_a_name_counts_as_long_as_somebody_has_it() {
    let rig = Rig::new();
    let end = rig.open(WRITE);
    rig.pipes.names.borrow_mut().remove(&Name::from("a")).unwrap();
    let Rig { pipes, pipe, user } = rig;
    drop(pipe);
    assert_eq!(pipes.count.get(), 1);
    pipes.clunk(&user, end);
    assert_eq!(pipes.count.get(), 0);
}
