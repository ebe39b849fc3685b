//! Scenes of the striping client: lost connections, servers that start anew, futures that are dropped.

use crate::lab::*;
use covey_ninep::tree::{Errno, Removal, SetAttr, SetTime, Time};
use covey_stripe::client::Taken::{Open, Refuse};
use covey_stripe::client::access::BOTH;
use covey_stripe::client::{File, Fs};
use covey_stripe::distribution::{self, INLINE_BYTES_DEFAULT};
use covey_stripe::ops::{Id, Inode, Op, ROOT, RangeLock, Reply, StripingHint};
use covey_stripe::view::View;
use covey_wire::List;
use futures_util::future::{join, join_all};
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

fn create(world: &mut World, fs: &Fs, text: &str) -> (Inode, File) {
    let (who, name) = (root(), name(text));
    world.run(fs.create(&who, ROOT, &name, 0o644, Refuse, BOTH)).unwrap()
}

fn read(world: &mut World, file: &File) -> Vec<u8> {
    world.run(file.read_at(0, 1 << 20)).unwrap().into_bytes().to_vec()
}

/// Polls a future for so many rounds and drops it then.
pub async fn for_rounds<F: Future>(rounds: usize, future: F) -> Option<F::Output> {
    let mut future = Box::pin(future);
    let mut left = rounds;
    poll_fn(move |context| {
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Some(output));
        }
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

fn lock(start: u64, end: u64) -> RangeLock {
    RangeLock { exclusive: true, whole: false, start, end, owner: 7, pid: 7 }
}

#[test]
fn a_lost_connection_is_dialled_once() {
    let mut world = World::new(1);
    let fs = world.client(false);
    let (_, file) = create(&mut world, &fs, "f");
    world.run(file.write_at(0, vec![1; 4 * STRIP].into())).unwrap();
    let before: Vec<usize> = (0..SERVERS).map(|at| world.net.dials(&data_name(at))).collect();
    world.plan([(3, Event::RestartData(0)), (4, Event::RestartData(1))]);
    let reads = (0..20).map(|_| file.read_at(0, 4 * STRIP));
    world.run(join_all(reads)).into_iter().for_each(|read| drop(read.unwrap()));
    world.rest(Duration::from_secs(2));
    let after: Vec<usize> = (0..SERVERS).map(|at| world.net.dials(&data_name(at))).collect();
    assert_eq!(after, [before[0] + 1, before[1] + 1, before[2]]);
}

#[test]
fn a_server_that_fell_silent_is_refused_at_once_until_it_is_back() {
    let mut world = World::new(2);
    let fs = world.client(false);
    let (_, file) = create(&mut world, &fs, "f");
    world.run(file.write_at(0, vec![1; 4 * STRIP].into())).unwrap();
    world.net.set_mute("io0", true);
    world.net.set_mute("io1", true);
    world.net.set_mute("io2", true);
    assert_eq!(world.run(file.read_at(0, 10)).unwrap_err().code(), Errno::EIO);
    let begun = world.net.now_time();
    for _ in 0..5 {
        assert_eq!(world.run(file.read_at(0, 10)).unwrap_err().code(), Errno::EIO);
    }
    assert_eq!(world.net.now_time(), begun);
    (0..SERVERS).for_each(|at| world.net.set_mute(&data_name(at), false));
    world.rest(Duration::from_secs(8));
    assert_eq!(read(&mut world, &file).len(), 4 * STRIP);
}

#[test]
fn a_request_waits_for_a_server_that_is_down_no_longer_than_since_it_went() {
    let mut world = World::new(3);
    let fs = world.client(false);
    let (_, file) = create(&mut world, &fs, "f");
    world.run(file.write_at(0, vec![1; 3 * STRIP].into())).unwrap();
    for at in 0..SERVERS {
        world.net.set_down(&data_name(at), true);
        world.cut_all(&data_name(at));
    }
    world.rest(Duration::from_millis(2000));
    let begun = world.net.now_time();
    assert_eq!(world.run(file.read_at(0, 10)).unwrap_err().code(), Errno::EIO);
    assert!(world.net.now_time() - begun <= Duration::from_millis(1100));
}

#[test]
fn a_mutation_of_a_forgotten_session_fails_rather_than_run_twice() {
    let mut world = World::new(4);
    let fs = world.client(true);
    let (who, text) = (root(), name("f"));
    // It arrives, its answer does not, and the session is gone when the client is back.
    let conns = world.conn_count("meta");
    assert_eq!(conns, 1);
    world.net.set_down("meta", true);
    let mkdir = fs.make(&who, ROOT, &text, 0o040755, 0, name(""));
    let result = {
        let mut mkdir = Box::pin(mkdir);
        assert!(world.run(for_rounds(0, mkdir.as_mut())).is_none());
        world.event(Event::Cut { conn: 0, delivered: true });
        world.meta.forget_sessions();
        world.net.set_down("meta", false);
        world.run(mkdir)
    };
    let made = world.meta.log.borrow().iter().filter(|op| **op == "Create").count();
    assert_eq!(made, 1, "it was sent once");
    assert_eq!(result.unwrap_err().code(), Errno::EIO);
}

#[test]
fn a_mutation_whose_answer_was_lost_is_answered_again() {
    let mut world = World::new(5);
    let fs = world.client(false);
    let (who, text) = (root(), name("f"));
    for restart in [false, true] {
        let mut mkdir = Box::pin(fs.make(&who, ROOT, &text, 0o040755, 0, name("")));
        assert!(world.run(for_rounds(0, mkdir.as_mut())).is_none());
        world.event(Event::Cut { conn: 0, delivered: true });
        if restart {
            world.event(Event::RestartMeta);
        }
        world.run(mkdir).unwrap();
        world.run(fs.unlink(&who, ROOT, &text, Removal::Directory)).unwrap();
    }
}

#[test]
fn an_open_that_is_dropped_on_the_way_is_given_back() {
    for rounds in 0..12 {
        let mut world = World::new(6 + rounds as u64);
        let fs = world.client(true);
        let (inode, file) = create(&mut world, &fs, "f");
        drop(file);
        world.rest(Duration::from_millis(1));
        let who = root();
        let opened = world.run(for_rounds(rounds, fs.open(&who, inode.id, 4)));
        drop(opened);
        let made = name("g");
        let created =
            world.run(for_rounds(rounds, fs.create(&who, ROOT, &made, 0o644, Refuse, BOTH)));
        drop(created);
        world.rest(Duration::from_millis(100));
        assert_eq!(world.meta.open_files(), 0, "after {rounds} rounds");
    }
}

#[test]
fn an_append_that_is_dropped_on_the_way_holds_nobody_up() {
    for rounds in 0..30 {
        let mut world = World::new(100 + rounds as u64);
        let (a, b) = (world.client(true), world.client(true));
        let (inode, ours) = create(&mut world, &a, "f");
        let theirs = world.run(b.open(&root(), inode.id, 6)).unwrap();
        let mine = world.run(for_rounds(rounds, ours.append(vec![1; 5000].into())));
        let offset = world.run(theirs.append(vec![2; 10].into())).unwrap();
        world.rest(Duration::from_millis(100));
        let content = read(&mut world, &theirs);
        let at = offset as usize;
        assert_eq!(content[at..at + 10], [2; 10], "after {rounds} rounds");
        let rest: Vec<u8> = [&content[..at], &content[at + 10..]].concat();
        assert!(rest.is_empty() || rest == vec![1; 5000], "whole or not at all");
        assert!(mine.is_none() || !rest.is_empty());
    }
}

#[test]
fn an_append_whose_place_was_granted_unheard_holds_nobody_up() {
    let mut world = World::new(9);
    let (a, b) = (world.client(false), world.client(false));
    let (inode, ours) = create(&mut world, &a, "f");
    let theirs = world.run(b.open(&root(), inode.id, 6)).unwrap();
    // The server hears the request, and then nothing is heard of it for longer than anyone waits.
    let mut append = Box::pin(ours.append(vec![1; 10].into()));
    assert!(world.run(for_rounds(1, append.as_mut())).is_none());
    world.net.set_down("meta", true);
    (0..2).for_each(|_| world.event(Event::Cut { conn: 0, delivered: true }));
    assert_eq!(world.run(append).unwrap_err().code(), Errno::EIO);
    world.net.set_down("meta", false);
    world.rest(Duration::from_secs(1));
    world.run(theirs.append(vec![2; 10].into())).unwrap();
    // Nobody may take what was not written for lost.
    let inode = world.run(b.inode(inode.id)).unwrap();
    assert_eq!((inode.size, inode.sparse), (20, true));
}

#[test]
fn an_append_that_meets_a_server_behind_the_truncation_leaves_no_hole() {
    let mut world = World::new(10);
    let (a, b) = (world.client(false), world.client(false));
    let (inode, ours) = create(&mut world, &a, "f");
    world.run(ours.write_at(0, vec![9; 3 * STRIP].into())).unwrap();
    let theirs = world.run(b.open(&root(), inode.id, 6)).unwrap();
    world.meta.holds_cuts.set(true);
    let who = root();
    let cut = SetAttr { size: Some(0), ..SetAttr::default() };
    let mut truncate = Box::pin(a.setattr(&who, inode.id, cut));
    assert!(world.run(for_rounds(20, truncate.as_mut())).is_none());
    let meta = world.meta.clone();
    let release = async {
        for_rounds(200, std::future::pending::<()>()).await;
        meta.holds_cuts.set(false);
    };
    let (offset, ()) = world.run(join(theirs.append(vec![2; 10].into()), release));
    assert_eq!(offset.unwrap(), 0);
    world.run(truncate).unwrap();
    assert_eq!(read(&mut world, &theirs), [2; 10]);
}

#[test]
fn a_restarted_server_is_told_what_is_open_and_locked() {
    let mut world = World::new(11);
    let (a, b) = (world.client(false), world.client(false));
    let (inode, file) = create(&mut world, &a, "f");
    world.run(file.write_at(0, vec![5; 100].into())).unwrap();
    world.run(a.unlink(&root(), ROOT, &name("f"), Removal::File)).unwrap();
    let (other, _held) = create(&mut world, &a, "g");
    world.run(a.lock(other.id, lock(0, 9), false)).unwrap();
    world.event(Event::RestartMeta);
    world.rest(Duration::from_secs(30));
    assert_eq!(read(&mut world, &file), [5; 100]);
    let refused = world.run(b.lock(other.id, lock(5, 5), false)).unwrap_err();
    assert_eq!(refused.code(), Errno::EAGAIN);
    world.run(a.unlock(other.id, lock(0, u64::MAX))).unwrap();
    world.run(b.lock(other.id, lock(5, 5), false)).unwrap();
    drop(file);
    world.rest(Duration::from_millis(100));
    assert!(world.data.iter().all(|data| !data.has(inode.id)), "reclaimed with the last close");
}

#[test]
fn a_client_with_more_opens_than_one_message_holds_comes_back() {
    const OPENS: usize = 3000;
    let mut world = World::new(5);
    world.msize = 8192;
    let fs = world.client(true);
    let (inode, file) = create(&mut world, &fs, "f");
    let who = root();
    let mut files = Vec::new();
    while files.len() < OPENS {
        let some = world.run(join_all((0..1000).map(|_| fs.open(&who, inode.id, 6))));
        files.extend(some.into_iter().map(|file| file.unwrap()));
        world.run(fs.sync(ROOT)).unwrap();
    }
    world.event(Event::RestartMeta);
    world.run(file.write_at(0, vec![1; 10].into())).unwrap();
    assert_eq!(world.meta.log.borrow().iter().filter(|op| **op == "StillOpen").count(), 3);
    drop(files);
    world.run(fs.unlink(&who, ROOT, &name("f"), Removal::File)).unwrap();
    world.rest(Duration::from_secs(1));
    assert_eq!(read(&mut world, &file), [1; 10]);
    drop(file);
    world.rest(Duration::from_secs(20)); // others who had it open might be on their way
    assert!(world.data.iter().all(|data| !data.has(inode.id)));
}

#[test]
fn a_close_while_the_connection_is_lost_counts_once() {
    for rounds in 0..40 {
        let mut world = World::new(200 + rounds as u64);
        let fs = world.client(false);
        let (inode, one) = create(&mut world, &fs, "f");
        let two = world.run(fs.open(&root(), inode.id, 6)).unwrap();
        world.run(two.write_at(0, vec![5; 100].into())).unwrap();
        world.run(fs.unlink(&root(), ROOT, &name("f"), Removal::File)).unwrap();
        let delivered = rounds % 2 == 0;
        world.plan([(rounds, Event::Cut { conn: 0, delivered })]);
        let drop_it = async {
            for_rounds(20, std::future::pending::<()>()).await;
            drop(one);
        };
        world.run(drop_it);
        world.rest(Duration::from_secs(1));
        assert_eq!(world.meta.open_files(), 1);
        assert_eq!(read(&mut world, &two), [5; 100]);
        drop(two);
        world.rest(Duration::from_secs(1));
        assert_eq!(world.meta.open_files(), 0);
    }
}

#[test]
fn a_wait_for_a_lock_that_is_dropped_holds_no_lock() {
    for rounds in 0..20 {
        let mut world = World::new(300 + rounds as u64);
        let (a, b) = (world.client(true), world.client(true));
        let (inode, _file) = create(&mut world, &a, "f");
        world.run(a.lock(inode.id, lock(0, 9), false)).unwrap();
        let waits = for_rounds(rounds, b.lock(inode.id, lock(0, 99), true));
        let free = for_rounds(rounds, a.unlock(inode.id, lock(0, 9)));
        let (waited, _) = world.run(join(waits, free));
        world.rest(Duration::from_millis(100));
        let taken = world.run(a.lock(inode.id, lock(0, 99), false));
        let is_held = matches!(waited, Some(Ok(())));
        assert_eq!(taken.is_err(), is_held, "after {rounds} rounds");
    }
}

#[test]
fn fsync_covers_what_was_written_before_the_file_was_opened() {
    let mut world = World::new(12);
    let fs = world.client(false);
    let (inode, file) = create(&mut world, &fs, "f");
    world.run(file.write_at(0, vec![1; 3 * STRIP].into())).unwrap();
    drop(file);
    world.rest(Duration::from_millis(10));
    let again = world.run(fs.open(&root(), inode.id, 4)).unwrap();
    world.run(again.fsync()).unwrap();
    for data in &world.data {
        assert!(data.writes.get() > 0);
        assert_eq!(data.synced.get(), data.writes.get());
    }
}

#[test]
fn fsync_covers_a_write_that_another_fsync_has_overtaken() {
    for rounds in 0..30 {
        let mut world = World::new(400 + rounds as u64);
        let fs = world.client(false);
        let (_, file) = create(&mut world, &fs, "f");
        let write = file.write_at(0, vec![1; 3 * STRIP].into());
        let sync = for_rounds(rounds, file.fsync());
        let (written, _) = world.run(join(write, sync));
        written.unwrap();
        world.run(file.fsync()).unwrap();
        for data in &world.data {
            assert_eq!(data.synced.get(), data.writes.get(), "after {rounds} rounds");
        }
    }
}

#[test]
fn a_time_that_is_set_after_a_write_stays() {
    let mut world = World::new(13);
    let fs = world.client(false);
    let (inode, file) = create(&mut world, &fs, "f");
    world.run(file.write_at(0, vec![1; 100].into())).unwrap();
    for wait in [0, 1500] {
        world.rest(Duration::from_millis(wait));
        world.run(file.write_at(0, vec![2; 100].into())).unwrap();
        let mtime = Some(SetTime::To(Time { sec: 77, nsec: 0 }));
        let set = SetAttr { mtime, ..SetAttr::default() };
        world.run(fs.setattr(&root(), inode.id, set)).unwrap();
        world.run(file.flush()).unwrap();
        world.rest(Duration::from_millis(10));
        assert_eq!(world.run(fs.inode(inode.id)).unwrap().mtime, 77_000_000_000);
    }
}

#[test]
fn objects_are_let_go_with_the_last_handle() {
    let mut world = World::new(14);
    let fs = world.client(false);
    let (inode, file) = create(&mut world, &fs, "f");
    world.run(file.write_at(0, vec![1; 3 * STRIP].into())).unwrap();
    for _ in 0..3 {
        let cut = SetAttr { size: Some(100), ..SetAttr::default() };
        world.run(fs.setattr(&root(), inode.id, cut)).unwrap();
        world.run(file.write_at(STRIP as u64, vec![1; 3 * STRIP].into())).unwrap();
    }
    drop(file);
    world.rest(Duration::from_millis(10));
    assert!(world.data.iter().all(|data| data.fids.get() == 0));
}

#[test]
fn a_write_that_fits_no_file_is_refused() {
    let mut world = World::new(15);
    let fs = world.client(false);
    let (inode, file) = create(&mut world, &fs, "f");
    let end = i64::MAX as u64;
    for offset in [end, end - 1, u64::MAX - 1] {
        let refused = world.run(file.write_at(offset, vec![1; 2].into())).unwrap_err();
        assert_eq!(refused.code(), Errno::EFBIG);
    }
    assert_eq!(world.run(file.read_at(u64::MAX, 10)).unwrap().len(), 0);
    world.run(file.write_at(end, Vec::new().into())).unwrap();
    assert_eq!(stat_size(&world, inode.id), 0);
    assert_eq!(world.run(file.append(Vec::new().into())).unwrap(), 0);
}

fn stat_size(world: &World, id: Id) -> u64 {
    match world.meta.ask(Op::Getattr { id }) {
        Reply::Node { inode } => inode.size,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_view_reaches_each_server_as_one_request() {
    let mut world = World::new(31);
    let fs = world.client(false);
    let (_, file) = create(&mut world, &fs, "f");
    let views =
        |world: &World| world.data.iter().map(|data| data.views.get()).collect::<Vec<usize>>();
    let count = 6 * STRIP as u64 / 256;
    let column = View::column(100, 8, 256, count).unwrap();
    let data: Vec<u8> = (0..column.bytes()).map(|at| at as u8).collect();
    world.run(file.write_view(&column, data.clone().into())).unwrap();
    assert_eq!(views(&world), [1, 1, 1]);
    assert_eq!(world.run(file.read_view(&column)).unwrap(), data);
    assert_eq!(views(&world), [2, 2, 2]);
    // The file ends with the last piece; what lies between the pieces are zeros.
    let all = read(&mut world, &file);
    assert_eq!(all.len() as u64, 100 + 256 * (count - 1) + 8);
    let sum = |bytes: &[u8]| bytes.iter().map(|&byte| u64::from(byte)).sum::<u64>();
    assert_eq!(sum(&all), sum(&data));
}

#[test]
fn a_view_ends_at_the_end_of_the_file() {
    let mut world = World::new(32);
    let fs = world.client(false);
    let (_, file) = create(&mut world, &fs, "f");
    world.run(file.write_at(0, vec![7; STRIP + 10].into())).unwrap();
    let column = View::column(0, 4, STRIP as u64 - 1, 4).unwrap();
    assert_eq!(world.run(file.read_view(&column)).unwrap(), [7; 8][..]);
    let backwards = View::of_ranges([(STRIP as u64 + 8, 4), (3, 2)]).unwrap();
    assert_eq!(world.run(file.read_view(&backwards)).unwrap(), [7, 7, 0, 0, 7, 7][..]);
    let mut into = [1; 6];
    assert_eq!(world.run(file.read_view_into(&backwards, &mut into)).unwrap(), 6);
    let error = world.run(file.read_view_into(&backwards, &mut into[1..])).unwrap_err();
    assert_eq!(error.code(), Errno::EINVAL);
    assert_eq!(world.run(file.write_view(&backwards, vec![1].into())).unwrap_err().code(), 22);
    assert!(world.run(file.read_view(&View::of_ranges([]).unwrap())).unwrap().is_empty());
}

/// A hint of each kind, small enough that a few strips go round.
fn hints() -> Vec<StripingHint> {
    let strip = STRIP as u32;
    let of = |kind, params: &[u32]| StripingHint {
        kind,
        strip_bytes: strip,
        server_count: 0,
        params: List(params.to_vec()),
    };
    vec![
        of(distribution::SIMPLE_STRIPE, &[]),
        of(distribution::BASIC, &[]),
        of(distribution::VARSTRIP, &[0, 700, 2, strip, 0, 1]),
        of(distribution::TWOD_STRIPE, &[2, 2]),
        of(distribution::PROGRESSIVE, &[1000, 3 * strip]),
        of(distribution::PROGRESSIVE, &[0, 0]),
        StripingHint::progressive(strip, 0),
    ]
}

#[test]
fn a_view_is_written_and_read_over_every_kind_of_striping() {
    for (seed, hint) in hints().into_iter().enumerate() {
        let kind = hint.kind;
        let mut world = World::with_hint(60 + seed as u64, hint);
        let fs = world.client(false);
        let (_, file) = create(&mut world, &fs, "f");
        let mut toy: Vec<u8> = (0..20_000u32).map(|at| (at / 7) as u8).collect();
        world.run(file.write_at(0, toy.clone().into())).unwrap();
        let column = View::column(90, 9, 250, 90).unwrap();
        let data: Vec<u8> = (0..column.bytes()).map(|at| at as u8).collect();
        world.run(file.write_view(&column, data.clone().into())).unwrap();
        for row in 0..90 {
            let at = 90 + row * 250;
            toy.resize(toy.len().max(at + 9), 0);
            toy[at..at + 9].copy_from_slice(&data[row * 9..row * 9 + 9]);
        }
        assert_eq!(world.run(file.read_view(&column)).unwrap(), data, "kind {kind}");
        assert!(read(&mut world, &file) == toy, "kind {kind}");
        assert_eq!(world.run(file.append(vec![5; 3000].into())).unwrap(), toy.len() as u64);
        toy.resize(toy.len() + 3000, 5);
        // Cut to each part of the striping, and grown again.
        for size in [9000, 4500, 600] {
            let set = SetAttr { size: Some(size as u64), ..SetAttr::default() };
            world.run(fs.setattr(&root(), file.id(), set)).unwrap();
            toy.truncate(size);
            world.run(file.write_at(size as u64 + 50, vec![9; 700].into())).unwrap();
            toy.resize(size + 50, 0);
            toy.resize(size + 750, 9);
            assert!(read(&mut world, &file) == toy, "kind {kind} cut to {size}");
        }
    }
}

#[test]
fn a_small_file_costs_one_request_to_make_and_one_to_read() {
    let mut world = World::with_hint(70, StripingHint::progressive(STRIP as u32, 0));
    let fs = world.client(false);
    let (who, text) = (root(), name("f"));
    let data: Vec<u8> = (0..INLINE_BYTES_DEFAULT).map(|at| at as u8).collect();
    world.meta.log.borrow_mut().clear();
    let made = fs.create_write(&who, ROOT, &text, 0o644, Refuse, BOTH, data.clone().into());
    let made = world.run(made).unwrap();
    world.run(made.file.flush()).unwrap();
    let names = std::slice::from_ref(&text);
    let opened = world.run(fs.open_read(&who, ROOT, names, 4, u32::MAX)).unwrap();
    assert!(opened.is_whole() && opened.data == data);
    assert_eq!(*world.meta.log.borrow(), ["CreateWrite", "OpenRead"]);
    let writes: usize = world.data.iter().map(|data| data.writes.get()).sum();
    assert_eq!(writes, 0);
    // One byte more is on an I/O server, too.
    let text = name("g");
    let more = [&data[..], b"x"].concat();
    let made = fs.create_write(&who, ROOT, &text, 0o644, Refuse, BOTH, more.clone().into());
    let made = world.run(made).unwrap();
    assert_eq!(read(&mut world, &made.file), more);
    let opened = fs.open_read(&who, ROOT, std::slice::from_ref(&text), 4, u32::MAX);
    let opened = world.run(opened).unwrap();
    assert!(!opened.is_whole() && opened.data == data);
    // What is there is found, and not written.
    let again = fs.create_write(&who, ROOT, &text, 0o644, Open, BOTH, b"new".to_vec().into());
    let again = world.run(again).unwrap();
    assert!(!again.is_new && read(&mut world, &again.file) == more);
}

#[test]
fn small_appends_and_cuts_stay_with_the_metadata() {
    let mut world = World::with_hint(71, StripingHint::progressive(STRIP as u32, 0));
    let fs = world.client(false);
    let (_, file) = create(&mut world, &fs, "f");
    world.meta.log.borrow_mut().clear();
    assert_eq!(world.run(file.append(b"abc".to_vec().into())).unwrap(), 0);
    assert_eq!(world.run(file.append(b"def".to_vec().into())).unwrap(), 3);
    let set = SetAttr { size: Some(4), ..SetAttr::default() };
    let stat = world.run(fs.setattr(&root(), file.id(), set)).unwrap();
    assert_eq!((stat.inode.size, stat.inode.epoch, stat.blocks), (4, 0, 8));
    assert_eq!(*world.meta.log.borrow(), ["AppendInline", "AppendInline", "Setattr"]);
    assert_eq!(read(&mut world, &file), b"abcd");
    // Over the edge it takes a place.
    let long = vec![7; INLINE_BYTES_DEFAULT as usize];
    assert_eq!(world.run(file.append(long.clone().into())).unwrap(), 4);
    assert_eq!(read(&mut world, &file), [b"abcd", &long[..]].concat());
}

#[test]
fn servers_that_take_small_messages_only_are_given_small_ones() {
    for (seed, msize) in [(80, 4096), (81, 9000), (82, 70_000)] {
        let mut world = World::with_hint(seed, StripingHint::progressive(STRIP as u32, 0));
        let fs = world.client(false);
        let (who, text) = (root(), name("f"));
        // The first connections take large ones, those after a restart do not.
        let data: Vec<u8> = (0..300_000u32).map(|at| (at / 3) as u8).collect();
        let made =
            fs.create_write(&who, ROOT, &text, 0o644, Refuse, BOTH, data[..1000].to_vec().into());
        let file = world.run(made).unwrap().file;
        world.run(file.write_at(0, data.clone().into())).unwrap();
        world.msize = msize;
        world.event(Event::RestartMeta);
        (0..SERVERS).for_each(|at| world.event(Event::RestartData(at)));
        assert!(read(&mut world, &file) == data, "msize {msize}");
        let other: Vec<u8> = data.iter().rev().copied().collect();
        world.run(file.write_at(0, other.clone().into())).unwrap();
        assert!(read(&mut world, &file) == other, "msize {msize}");
        let column = View::column(7, 100, 211, 1000).unwrap();
        let list = world.run(file.read_view(&column)).unwrap();
        let rows = (0..1000).flat_map(|row| other[7 + row * 211..][..100].to_vec());
        assert!(list == rows.collect::<Vec<u8>>(), "msize {msize}");
        world.run(file.write_view(&column, list.clone())).unwrap();
        assert!(read(&mut world, &file) == other, "msize {msize}");
    }
}

#[test]
fn nobody_waits_for_the_leases_of_who_has_said_goodbye() {
    let mut world = World::new(15);
    let (one, two) = (world.client(false), world.client(false));
    let who = root();
    let (_, file) = create(&mut world, &one, "f");
    drop(file);
    let known = world.run(one.lookup(&who, ROOT, &name("f"))).unwrap();
    let begun = world.net.now_time();
    world.run(one.bye());
    world.run(two.unlink(&who, ROOT, &name("f"), Removal::File)).unwrap();
    assert_eq!(world.net.now_time(), begun, "nothing but time would have ended the lease");
    let gone = world.run(one.inode(known.id)).map_err(|error| error.code());
    assert!(gone.is_err(), "nothing is answered from memory after the end");
}

#[test]
fn a_file_opened_under_a_lease_outlives_its_name_wherever_that_is_removed() {
    let mut world = World::new(16);
    let (one, two) = (world.client(false), world.client(false));
    let who = root();
    let (inode, file) = create(&mut world, &one, "f");
    world.run(file.write_at(0, vec![1; 100].into())).unwrap();
    drop(file);
    world.rest(Duration::from_millis(50));
    {
        let remover = &two;
        world.run(one.lookup(&who, ROOT, &name("f"))).unwrap();
        assert_eq!(world.meta.open_files(), 0);
        let file = world.run(one.open(&who, inode.id, 4)).unwrap();
        assert_eq!(world.meta.open_files(), 0, "it need not know yet");
        world.run(remover.link(&who, inode.id, ROOT, &name("g"))).unwrap();
        world.run(remover.unlink(&who, ROOT, &name("f"), Removal::File)).unwrap();
        world.run(remover.unlink(&who, ROOT, &name("g"), Removal::File)).unwrap();
        assert_eq!(read(&mut world, &file), vec![1; 100]);
        world.rest(Duration::from_secs(3));
        assert_eq!(read(&mut world, &file), vec![1; 100]);
        drop(file);
        world.rest(Duration::from_millis(50));
        assert_eq!(world.meta.open_files(), 0);
        assert!(world.run(two.inode(inode.id)).is_err(), "it goes with the last that has it open");
    }
}

#[test]
fn an_open_that_lasts_and_a_close_are_told_soon() {
    let mut world = World::new(17);
    let fs = world.client(false);
    let (inode, file) = create(&mut world, &fs, "f");
    assert_eq!(world.meta.open_files(), 1);
    drop(file);
    world.rest(Duration::from_millis(50));
    assert_eq!(world.meta.open_files(), 0);
    let (who, name) = (root(), name("f"));
    world.run(fs.lookup(&who, ROOT, &name)).unwrap();
    let file = world.run(fs.open(&who, inode.id, 6)).unwrap();
    assert_eq!(world.meta.open_files(), 0, "most are closed at once");
    world.rest(Duration::from_millis(50));
    assert_eq!(world.meta.open_files(), 1);
    drop(file);
    world.rest(Duration::from_millis(50));
    assert_eq!(world.meta.open_files(), 0);
}

#[test]
fn opens_that_were_not_told_are_told_to_a_server_that_starts_anew() {
    let mut world = World::new(18);
    let fs = world.client(false);
    let (inode, file) = create(&mut world, &fs, "f");
    drop(file);
    let (who, name) = (root(), name("f"));
    world.run(fs.lookup(&who, ROOT, &name)).unwrap();
    let kept = world.run(fs.open(&who, inode.id, 6)).unwrap();
    let closed = world.run(fs.open(&who, inode.id, 6)).unwrap();
    world.event(Event::RestartMeta);
    world.rest(Duration::from_secs(1));
    assert_eq!(world.meta.open_files(), 1);
    drop(closed);
    world.rest(Duration::from_millis(50));
    assert_eq!(world.meta.open_files(), 1, "the other handle has it open");
    drop(kept);
    world.rest(Duration::from_millis(50));
    assert_eq!(world.meta.open_files(), 0);
}

#[test]
fn what_a_small_file_holds_is_forgotten_before_somebody_else_changes_it() {
    let mut world = World::progressive(19);
    let (one, two) = (world.client(false), world.client(false));
    let who = root();
    let (inode, file) = create(&mut world, &one, "f");
    let theirs = world.run(two.open(&who, inode.id, 6)).unwrap();
    for round in 1..20u8 {
        let (writer, reader) = if round % 3 == 0 { (&theirs, &file) } else { (&file, &theirs) };
        world.run(writer.write_at(0, vec![round; 60].into())).unwrap();
        assert_eq!(read(&mut world, reader), vec![round; 60]);
        assert_eq!(read(&mut world, writer), vec![round; 60]);
        if round % 4 == 0 {
            world.rest(Duration::from_millis(1500));
        }
    }
    let cut = SetAttr { size: Some(7), ..SetAttr::default() };
    world.run(two.setattr(&who, inode.id, cut)).unwrap();
    assert_eq!(read(&mut world, &file).len(), 7);
    world.run(theirs.append(vec![9; 3].into())).unwrap();
    assert_eq!(read(&mut world, &file)[7..], [9; 3]);
}

#[test]
fn what_small_files_hold_comes_with_their_names_when_they_are_read() {
    let mut world = World::progressive(20);
    let (one, two) = (world.client(false), world.client(false));
    let who = root();
    let texts: Vec<String> = (0..60).map(|at| format!("f{at:02}")).collect();
    for (at, text) in texts.iter().enumerate() {
        let (data, called) = (vec![at as u8; 50 + at], name(text));
        world.run(one.create_write(&who, ROOT, &called, 0o644, Refuse, BOTH, data.into())).unwrap();
    }
    for round in 0..2 {
        world.meta.log.borrow_mut().clear();
        for (at, text) in texts.iter().enumerate() {
            let inode = world.run(two.lookup(&who, ROOT, &name(text))).unwrap();
            let file = world.run(two.open(&who, inode.id, 4)).unwrap();
            assert_eq!(read(&mut world, &file), vec![at as u8; 50 + at]);
        }
        let asked = world.meta.log.borrow().len();
        // The first round finds out that they are read.
        assert!(asked < [50, 10][round], "{asked} requests in round {round}");
    }
}
