//! Transfers that are long, that fail, or that a full disk refuses.

use super::*;
use crate::worker::copies::COPY_BYTES_MAX;

/// Runs a program on worker 0 with a local store of so many bytes, and limits of the files' memory.
fn run_within(toy: &Toy, bytes: usize, body: impl FnOnce(Me, Rc<Limits>) + 'static) {
    let servers = Rc::new(RefCell::new(vec![ToyServer::new(toy, 0, 3)]));
    let mut worker = worker(toy, 0, &servers, Trace::off());
    let ground = worker.ground();
    ground.local.borrow_mut().resize(bytes, 0);
    let (me, limits) = (Me(ground.local.clone()), ground.limits.clone());
    worker.start(new(move || body(me, limits))).unwrap();
    worker.run().unwrap();
}

#[test]
fn a_long_transfer_lets_go_of_its_file_again_and_again() {
    const BYTES: usize = 2 * COPY_BYTES_MAX as usize + 4096;
    run_within(&toy(1), 4 * BYTES, |me, limits| {
        let fd = me.open("#r/a", mode::ANY);
        let data: Vec<u8> = (0..BYTES).map(|at| (at * 7 / 3) as u8).collect();
        let (from, to) = (me.put(128 << 10, &data), Span::new(2 * BYTES as u64, BYTES as u64));
        // Behind the end by message, and then without.
        for _ in 0..2 {
            me.ask(Request::Seek { fd, offset: 0, whence: 0 }).unwrap();
            assert_eq!(me.ask(Request::Write { fd, from, at: None }), Ok(BYTES as i64));
        }
        me.ask(Request::Seek { fd, offset: 0, whence: 0 }).unwrap();
        assert_eq!(me.ask(Request::Read { fd, to, at: None }), Ok(BYTES as i64));
        assert!(me.get(to.address, BYTES) == data);
        assert_eq!(me.ask(Request::Seek { fd, offset: 0, whence: 1 }), Ok(BYTES as i64));
        assert_eq!(limits.longest.get(), COPY_BYTES_MAX);
        // One that ends in the middle of a part.
        me.ask(Request::Seek { fd, offset: 4096, whence: 0 }).unwrap();
        assert_eq!(me.ask(Request::Read { fd, to, at: None }), Ok(BYTES as i64 - 4096));
        assert_eq!(me.ask(Request::Seek { fd, offset: 0, whence: 1 }), Ok(BYTES as i64));
    });
}

#[test]
fn what_the_memory_of_a_file_does_not_take_goes_by_message() {
    const BYTES: u64 = 2 * COPY_BYTES_MAX;
    let toy = toy(1);
    let host = toy.host.clone();
    run_within(&toy, 4 * BYTES as usize, move |me, limits| {
        let fd = me.open("#r/a", mode::ANY);
        let from = me.put(128 << 10, &vec![1; BYTES as usize]);
        assert_eq!(me.ask(Request::Write { fd, from, at: Some(0) }), Ok(BYTES as i64));
        // The second part goes to a page for which there is no block.
        let from = me.put(128 << 10, &vec![2; BYTES as usize]);
        limits.left.set(Some(1));
        assert_eq!(me.ask(Request::Write { fd, from, at: None }), Ok(BYTES as i64));
        let to = Span::new(2 * BYTES, BYTES);
        limits.left.set(Some(1));
        assert_eq!(me.ask(Request::Read { fd, to, at: Some(0) }), Ok(BYTES as i64));
        assert!(me.get(2 * BYTES, BYTES as usize).iter().all(|byte| *byte == 2));
        // The host has no block for it either: what was copied counts, and then comes the error.
        host.is_full.set(true);
        limits.left.set(Some(1));
        me.ask(Request::Seek { fd, offset: 0, whence: 0 }).unwrap();
        let half = COPY_BYTES_MAX as i64;
        assert_eq!(me.ask(Request::Write { fd, from, at: None }), Ok(half));
        limits.left.set(Some(0));
        assert_eq!(me.ask(Request::Write { fd, from, at: None }), Err(Errno::ENOSPC));
        assert_eq!(me.ask(Request::Seek { fd, offset: 0, whence: 1 }), Ok(half));
    });
}

#[test]
fn a_transfer_that_fails_leaves_its_descriptor_where_it_was() {
    let toy = toy(1);
    let host = toy.host.clone();
    let (ended, _) = run(&toy, 1, Trace::off(), move |me| {
        let fd = me.open("#r/a", mode::ANY);
        host.is_full.set(true);
        let here = || me.ask(Request::Seek { fd, offset: 0, whence: 1 });
        // One message, several, and what would be a copy if it did not end behind the file.
        for bytes in [7, 40_000, 16] {
            let from = Span::new(16, bytes);
            assert_eq!(me.ask(Request::Write { fd, from, at: None }), Err(Errno::ENOSPC));
            assert_eq!(here(), Ok(0), "{bytes}");
        }
        host.is_full.set(false);
        assert_eq!(me.ask(Request::Write { fd, from: Span::new(16, 7), at: None }), Ok(7));
        assert_eq!(here(), Ok(7));
    });
    ended.unwrap();
}
