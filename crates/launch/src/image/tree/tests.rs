use super::*;
use crate::image::{Content, Limits, Sum, Summer};
use covey_ninep::tree::Peer;
use std::task::{Context, Poll, Waker};

struct Still(Instant);

impl World for Still {
    fn now(&self) -> Instant {
        self.0
    }

    fn sleep(&self, _: Duration) -> LocalFuture<()> {
        Box::pin(std::future::pending())
    }

    fn report(&self, _: &str) {}
}

struct Memory(Bytes);

impl Content for Memory {
    fn read(&self, read: Read<'_>) -> Data {
        read.of(&self.0)
    }

    fn write(&self, _: u64, _: Vec<Bytes>) -> LocalFuture<Result<()>> {
        unreachable!("nothing is written")
    }

    fn sync(&self) -> LocalFuture<Result<()>> {
        unreachable!("nothing is written")
    }
}

fn sum() -> (Sum, Bytes) {
    let data: Bytes = (0..200_000u32).map(|n| (n % 251) as u8).collect::<Vec<_>>().into();
    let mut summer = Summer::new(data.len() as u64);
    summer.update(&data);
    (summer.finish(), data)
}

fn tree_of(image: &Rc<Image>) -> Images {
    let archs = [(Name::from("any"), image.clone())].into_iter().collect();
    let catalogue: Catalogue = [(Name::from("disk"), archs)].into_iter().collect();
    Images::new(Still(Instant::now()), Rc::new(catalogue))
}

fn whole() -> (Images, Rc<Image>) {
    let (sum, data) = sum();
    let image = Image::whole(1, sum, Rc::new(Memory(data)), Limits::default());
    (tree_of(&image), image)
}

fn done<T>(outcome: Outcome<T>) -> Result<T> {
    match outcome {
        Outcome::Now(result) => result,
        Outcome::Later(_) => panic!("it waits"),
    }
}

/// Somebody who comes by TCP from a machine.
struct Guest<'a> {
    tree: &'a Images,
    user: Rc<User>,
    root: Node,
}

impl<'a> Guest<'a> {
    fn from(tree: &'a Images, machine: u8) -> Guest<'a> {
        let name = format!("tcp!10.0.0.{machine}!77");
        let peer = Peer { name, uid: None, has_key: true };
        let (uname, aname) = (Name::EMPTY, Name::EMPTY);
        let (user, _, root) =
            done(tree.attach(Attach { peer, uname, n_uname: None, aname })).unwrap();
        Guest { tree, user: Rc::new(user), root }
    }

    fn walk(&self, path: &str) -> Result<Node> {
        let names: Vec<Name> = path.split('/').map(Name::from).collect();
        let steps = done(self.tree.walk(&self.user, &self.root, &names))?;
        let last = steps.last().filter(|_| steps.len() == names.len());
        last.map(|(_, node)| node.clone()).ok_or(Errno::ENOENT.into())
    }

    fn open(&self, path: &str, flags: u32) -> Result<Node> {
        let node = self.walk(path)?;
        done(self.tree.open(&self.user, &node, flags)).map(|opened| opened.node)
    }

    fn read(&self, node: &Node) -> Outcome<Bytes> {
        self.tree.read(&self.user, node, Read::bytes(0, 4096)).into_outcome()
    }

    fn write(&self, node: &Node, text: &str) -> Result<u32> {
        let write = Write::bytes(0, Bytes::copy_from_slice(text.as_bytes()));
        done(self.tree.write(&self.user, node, write).into_outcome())
    }
}

fn poll<T>(outcome: &mut Outcome<T>) -> Poll<Result<T>> {
    match outcome {
        Outcome::Now(_) => panic!("it does not wait"),
        Outcome::Later(later) => later.as_mut().poll(&mut Context::from_waker(Waker::noop())),
    }
}

fn text(outcome: &mut Outcome<Bytes>) -> String {
    match poll(outcome) {
        Poll::Ready(Ok(bytes)) => String::from_utf8(bytes.to_vec()).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_image_is_a_directory_of_four_files() {
    let (tree, image) = whole();
    let guest = Guest::from(&tree, 1);
    let names = |path: &str| {
        let node = if path.is_empty() { guest.root.clone() } else { guest.walk(path).unwrap() };
        let entries = done(tree.readdir(&guest.user, &node, 2, 4096)).unwrap();
        entries.iter().map(|entry| entry.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(""), ["log", "disk"]);
    assert_eq!(names("disk"), ["any"]);
    assert_eq!(names("disk/any"), ["data", "avail", "redir", "sum"]);
    assert_eq!(names("disk/any/.."), ["any"]);
    assert_eq!(guest.walk("disk/s390x").err().unwrap().code, Errno::ENOENT);
    assert_eq!(guest.open("disk/any/data", 1).err().unwrap().code, Errno::EROFS);
    let sum = guest.open("disk/any/sum", 0).unwrap();
    assert_eq!(done(guest.read(&sum)).unwrap(), image.sum_text());
    let data = guest.walk("disk/any/data").unwrap();
    assert_eq!(done(tree.getattr(&guest.user, &data)).unwrap().size, 200_000);
}

#[test]
fn a_read_beyond_what_has_arrived_is_held_until_it_arrives() {
    let (sum, data) = sum();
    let image = Image::arriving(sum, Rc::new(Memory(data.clone())));
    let tree = tree_of(&image);
    let guest = Guest::from(&tree, 1);
    let node = guest.walk("disk/any/data").unwrap();
    let opened = done(tree.open(&guest.user, &node, 0)).unwrap();
    assert!(opened.blocking);
    let read = |offset, count| {
        tree.read(&guest.user, &opened.node, Read::bytes(offset, count)).into_outcome()
    };
    let (mut first, mut third) = (read(0, 100), read(131_072, 100));
    assert!(poll(&mut first).is_pending());
    image.has_arrived(65_536);
    assert!(matches!(poll(&mut first), Poll::Ready(Ok(bytes)) if bytes == data[..100]));
    assert!(poll(&mut third).is_pending());
    // What has arrived of a range that is longer.
    assert_eq!(done(read(65_000, 1000)).unwrap(), data[65_000..65_536]);
    assert_eq!(done(read(200_000, 10)).unwrap(), "");
    image.fail(Errno::because(Errno::EIO, "over"));
    assert!(matches!(poll(&mut third), Poll::Ready(Err(error)) if error.code == Errno::EIO));
}

#[test]
fn a_place_is_held_as_long_as_its_file_and_the_next_reader_waits_for_it() {
    let (tree, _) = whole();
    let guests: Vec<_> = (1..=3).map(|machine| Guest::from(&tree, machine)).collect();
    let mut redirs: Vec<_> =
        guests.iter().map(|guest| guest.open("disk/any/redir", 2).unwrap()).collect();
    for at in 0..2 {
        assert_eq!(text(&mut guests[at].read(&redirs[at])), "help 10 me 0\n");
    }
    let mut waiting = guests[2].read(&redirs[2]);
    assert!(poll(&mut waiting).is_pending());
    redirs.remove(0);
    assert_eq!(text(&mut waiting), "help 10 me 0\n");
}

#[test]
fn a_volunteer_is_named_until_it_closes_its_file() {
    let (tree, _) = whole();
    let (one, two) = (Guest::from(&tree, 1), Guest::from(&tree, 2));
    let avail = one.open("disk/any/avail", 1).unwrap();
    assert_eq!(one.write(&avail, "somebody!7000 5\n").unwrap_err().code, Errno::EINVAL);
    one.write(&avail, "7000 5\n").unwrap();
    let redir = two.open("disk/any/redir", 2).unwrap();
    assert_eq!(text(&mut two.read(&redir)), "help 10 10.0.0.1!7000 0\n");
    drop(avail);
    assert_eq!(text(&mut two.read(&redir)), "help 10 me 0\n");
}

#[test]
fn what_is_said_of_a_volunteer_is_in_the_log_and_two_who_say_it_drop_it() {
    let (tree, _) = whole();
    let liar = Guest::from(&tree, 1);
    let avail = liar.open("disk/any/avail", 1).unwrap();
    liar.write(&avail, "7000 5\n").unwrap();
    let ask = |machine: u8| {
        let reader = Guest::from(&tree, machine);
        let redir = reader.open("disk/any/redir", 2).unwrap();
        let source = text(&mut reader.read(&redir));
        (reader, redir, source)
    };
    let complain = |(reader, redir, source): &(Guest<'_>, Node, String)| {
        assert_eq!(source, "help 10 10.0.0.1!7000 0\n");
        assert!(reader.write(redir, "is bad\n").is_err());
        reader.write(redir, "bad chunk 3 has\nanother hash\n").unwrap();
    };
    let first = ask(2);
    complain(&first);
    // Only when the first server is busy is it named again.
    let busy = [ask(3), ask(4)];
    assert!(busy.iter().all(|(.., source)| source == "help 10 me 0\n"));
    complain(&ask(5));
    assert_eq!(liar.write(&avail, "7000 5\n").unwrap_err().code, Errno::ESTALE);
    let log = liar.open("log", 0).unwrap();
    let log = String::from_utf8(done(liar.read(&log)).unwrap().to_vec()).unwrap();
    assert!(log.contains("disk: tcp!10.0.0.2!77: 10.0.0.1!7000 is bad: chunk 3"), "{log}");
    assert!(log.ends_with("another hash; it is dropped\n"), "{log}");
    assert_eq!(log.lines().count(), 2, "{log}");
}

#[test]
fn the_log_keeps_the_last_lines_only() {
    let (tree, _) = whole();
    let guest = Guest::from(&tree, 1);
    let log = guest.open("log", 1).unwrap();
    for number in 0..2000 {
        guest.write(&log, &format!("line {number} \u{1b}[31m\n")).unwrap();
    }
    let lines = tree.inner.log.borrow();
    assert_eq!(lines.len(), LOG_LINES_MAX);
    assert_eq!(lines.back().unwrap(), "tcp!10.0.0.1!77: line 1999 [31m");
    assert_eq!(tree.inner.reported.get().1, 2000);
}
