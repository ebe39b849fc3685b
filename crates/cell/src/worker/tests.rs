//! Workers over a host in the same thread: what programs do, in which order, and that it is always the same.

mod liar;
mod quick;
mod transfers;

use super::*;
use crate::coroutine::suspend;
use crate::devices::tests::{Toy, toy};
use crate::mailbox::HostBox;
use crate::memory::Flat;
use covey_ninep::namespace::Namespace;
use covey_ninep::server::{self, Alone, Session};
use covey_ninep::tree::Peer;
use covey_wire::{BytesMut, Machine, Rng, Segments};
use std::cell::RefCell;
use std::result::Result as StdResult;
use std::task::{Context, Waker};

/// A host that answers when it likes.
struct ToyServer {
    mailbox: HostBox<Flat>,
    session: Option<Session<Namespace>>,
    ready: Vec<Vec<u8>>,
    rng: Rng,
    lie: Option<liar::Lie>,
    lies: u32,
}

impl ToyServer {
    fn new(toy: &Toy, worker: u32, seed: u64) -> ToyServer {
        let peer = Peer { name: "worker".into(), uid: Some(7), has_key: false };
        let session = Session::new(toy.names.clone(), peer, server::Config::default());
        let mailbox = HostBox::new(toy.host.memory.clone(), worker);
        let (session, rng) = (Some(session), Rng::new(seed));
        ToyServer { mailbox, session, ready: Vec::new(), rng, lie: None, lies: 0 }
    }

    /// Takes some requests and lets some replies go, in any order.
    fn step(&mut self) {
        let mut message = Vec::new();
        while self.rng.index(3) > 0 {
            let taken = self.mailbox.take(&mut message);
            // Who has been lied to may do what the host does not expect.
            assert!(taken.is_ok() || self.lies > 0, "{taken:?}");
            if taken != Ok(true) {
                break;
            }
            let session = self.session.as_mut().expect("it is alive");
            if self.rng.index(2) == 0 && session.begin_alone(&message) != Alone::Not {
                continue;
            }
            let mut input = BytesMut::from(&message[..]);
            session.handle_input(Instant::now(), &mut input).expect("9P");
        }
        let session = self.session.as_mut().expect("it is alive");
        let _ = session.poll_user(&mut Context::from_waker(Waker::noop()));
        let mut out = Segments::new();
        while session.poll_output(&mut out, 1 << 20) {}
        let bytes: Vec<u8> = out.runs().flatten().copied().collect();
        let mut rest = &bytes[..];
        while let Some(size) = rest.first_chunk::<4>() {
            let (reply, after) = rest.split_at(u32::from_le_bytes(*size) as usize);
            self.ready.push(reply.to_vec());
            rest = after;
        }
        while !self.ready.is_empty() && self.rng.index(3) > 0 {
            let index = self.rng.index(self.ready.len());
            // What a flush forgets is answered before the flush, or never.
            let index =
                if self.ready[..=index].iter().any(|reply| reply[4] == 109) { 0 } else { index };
            let reply = self.ready.remove(index);
            self.answer(reply);
        }
    }
}

/// A worker's world: its local store is a vector, which coroutines name by offsets.
struct ToyGround {
    memory: Rc<Flat>,
    local: Rc<RefCell<Vec<u8>>>,
    servers: Rc<RefCell<Vec<ToyServer>>>,
    waits: u32,
    limits: Rc<Limits>,
}

/// What the memory of files takes, and what it was asked for.
#[derive(Default)]
struct Limits {
    /// The longest copy.
    longest: std::cell::Cell<u64>,
    /// Copies that are done before the disk is full.
    left: std::cell::Cell<Option<u32>>,
}

impl Limits {
    fn refuse(&self, bytes: u64) -> bool {
        self.longest.set(self.longest.get().max(bytes));
        let left = self.left.get();
        self.left.set(left.map(|left| left.saturating_sub(1)));
        left == Some(0)
    }
}

impl Ground for ToyGround {
    type Memory = Flat;

    fn memory(&self) -> &Rc<Flat> {
        &self.memory
    }

    fn wait(&mut self, _: &WorkerBox<Flat>) -> std::result::Result<(), String> {
        self.waits += 1;
        if self.waits > 10_000 {
            return Err("nothing has come for 10,000 steps".into());
        }
        self.servers.borrow_mut().iter_mut().for_each(ToyServer::step);
        Ok(())
    }

    fn reset(&mut self) {
        self.waits = 0;
    }

    fn ring(&mut self) {}

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn adopt(&mut self, _: u32) -> Result<()> {
        Ok(())
    }

    fn fetch(&self, mapping: u32, pointer: u64, to: Span) -> Copied {
        assert_eq!(mapping, 0);
        if self.limits.refuse(to.bytes) {
            return Copied::Refused;
        }
        let mut bytes = vec![0; to.bytes as usize];
        self.memory.read(pointer, &mut bytes);
        self.give(to, &bytes);
        Copied::Whole
    }

    fn put(&self, from: Span, mapping: u32, pointer: u64) -> Copied {
        assert_eq!(mapping, 0);
        if self.limits.refuse(from.bytes) {
            return Copied::Refused;
        }
        self.memory.write(pointer, &self.take(from));
        Copied::Whole
    }

    fn prefetch(&self, _: u32, _: u64, _: u64) {}

    fn take(&self, from: Span) -> Bytes {
        let at = from.address as usize;
        Bytes::copy_from_slice(&self.local.borrow()[at..at + from.bytes as usize])
    }

    fn give(&self, to: Span, bytes: &[u8]) {
        let at = to.address as usize;
        self.local.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn allocate(&mut self, bytes: u64) -> Option<Span> {
        Some(Span::new(1 << 30, bytes))
    }

    fn release(&mut self, _: Span) {}
}

/// What a coroutine of these tests has.
#[derive(Clone)]
struct Me(Rc<RefCell<Vec<u8>>>);

impl Me {
    /// Transfers are those that a coroutine does by itself, where it may.
    fn ask(&self, request: Request) -> StdResult<i64, u32> {
        // SAFETY: the coroutines of these tests are those of workers of this world.
        let done = unsafe {
            match request {
                Request::Read { fd, to, at } => read::<ToyGround>(fd, to, at),
                Request::Write { fd, from, at } => write::<ToyGround>(fd, from, at),
                request => Err(request),
            }
        };
        let request = match done {
            Ok(count) => return Ok(count as i64),
            Err(request) => request,
        };
        // SAFETY: the same.
        unsafe { suspend::<Request, Answer>(request) }.expect("in a coroutine").result()
    }

    /// Puts bytes at an offset of the local store.
    fn put(&self, at: u64, bytes: &[u8]) -> Span {
        self.0.borrow_mut()[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
        Span::new(at, bytes.len() as u64)
    }

    fn get(&self, at: u64, bytes: usize) -> Vec<u8> {
        self.0.borrow()[at as usize..at as usize + bytes].to_vec()
    }

    /// Paths lie at the end of the store, one for each coroutine.
    fn open(&self, path: &str, mode: u32) -> i32 {
        let id = self.ask(Request::Id).unwrap() as u64;
        let path = self.put(60_000 + id * 64, path.as_bytes());
        self.ask(Request::Open { path, mode }).expect("it opens") as i32
    }

    fn spawn(&self, body: impl FnOnce(Me) + 'static) -> StdResult<i64, u32> {
        let me = self.clone();
        self.ask(Request::Spawn(Box::new(new(move || body(me)))))
    }
}

fn new(body: impl FnOnce() + 'static) -> Spawn {
    thread_local!(static STACKS: std::cell::Cell<u64> = const { std::cell::Cell::new(1) });
    let cor = Cor::new(64 << 10, body).expect("a stack");
    let at = STACKS.replace(STACKS.get() + 1) << 40;
    Spawn { cor, stack: Span::new(at, 4096) }
}

/// Runs a program on worker 0 and answers how it ended, and its trace.
fn run(
    toy: &Toy,
    seed: u64,
    trace: Trace,
    body: impl FnOnce(Me) + 'static,
) -> (std::result::Result<(), Ended>, String) {
    let servers = Rc::new(RefCell::new(vec![ToyServer::new(toy, 0, seed)]));
    let mut worker = worker(toy, 0, &servers, trace);
    let me = Me(worker.ground().local.clone());
    worker.start(new(move || body(me))).unwrap();
    let ended = worker.run();
    (ended, worker.trace().text().to_owned())
}

fn worker(
    toy: &Toy,
    number: u32,
    servers: &Rc<RefCell<Vec<ToyServer>>>,
    trace: Trace,
) -> Worker<ToyGround> {
    let ground = ToyGround {
        memory: toy.host.memory.clone(),
        local: Rc::new(RefCell::new(vec![0; 64 << 10])),
        servers: servers.clone(),
        waits: 0,
        limits: Rc::default(),
    };
    Worker::new(ground, number, 7, LocalStore::default(), trace).expect("a host")
}

/// Sixteen coroutines that read and write memory and host files with overlapping transfers, aligned and not.
fn overlapping(me: Me) {
    let shared = me.open("#r/all", mode::ANY);
    for cor in 0..16_u64 {
        me.spawn(move |me| {
            let own = me.open(&format!("#r/own{}", cor % 5), mode::ANY);
            let file = me.open("#U/in", mode::READ);
            for step in 0..4_u64 {
                let at = cor * 1024 + step * 64;
                let from = me.put(at, &[cor as u8 + 1; 64]);
                me.ask(Request::Write { fd: shared, from, at: Some(at + step % 2) }).unwrap();
                me.ask(Request::Read { fd: file, to: Span::new(at, 48), at: None }).unwrap();
                me.ask(Request::Write { fd: own, from, at: Some(step * 64) }).unwrap();
                if step == cor % 4 {
                    me.ask(Request::Yield).unwrap();
                }
            }
            me.ask(Request::Close { fd: own }).unwrap();
        })
        .unwrap();
    }
}

fn with_input(toy: &Toy) {
    let bytes = (0..300).map(|number| number as u8).collect();
    toy.host.files.borrow_mut().insert("/in".into(), bytes);
}

#[test]
fn a_thousand_runs_of_sixteen_coroutines_give_one_trace() {
    let mut first = None;
    for seed in 0..1000 {
        let toy = toy(1);
        with_input(&toy);
        let (ended, trace) = run(&toy, seed * 7919 + 1, Trace::record(), overlapping);
        ended.unwrap();
        let first = first.get_or_insert_with(|| trace.clone());
        assert!(*first == trace, "seed {seed}");
    }
    assert!(first.unwrap().lines().count() > 400);
}

#[test]
fn a_path_that_ends_early_is_refused_with_the_reason_of_its_last_step() {
    let toy = toy(1);
    with_input(&toy);
    let (ended, _) = run(&toy, 5, Trace::off(), |me| {
        let ask = |path: &str| {
            let path = me.put(0, path.as_bytes());
            me.ask(Request::Open { path, mode: mode::READ })
        };
        me.open("#r/file", mode::ANY);
        assert_eq!(ask("#r/file/below"), Err(Errno::ENOTDIR));
        assert_eq!(ask("#U/nothing"), Err(Errno::ENOENT));
    });
    ended.unwrap();
}

#[test]
fn a_file_is_written_by_message_and_read_without() {
    let toy = toy(1);
    let (ended, _) = run(&toy, 3, Trace::off(), |me| {
        let fd = me.open("#r/a", mode::ANY);
        let from = me.put(16, b"0123456789abcdef0123456789abcdef");
        // Behind the end: the host lets it grow.
        assert_eq!(me.ask(Request::Write { fd, from, at: None }), Ok(32));
        assert_eq!(me.ask(Request::Seek { fd, offset: -16, whence: 1 }), Ok(16));
        assert_eq!(me.ask(Request::Read { fd, to: Span::new(160, 64), at: None }), Ok(16));
        assert_eq!(me.get(160, 16), b"0123456789abcdef");
        assert_eq!(me.ask(Request::Read { fd, to: Span::new(160, 64), at: None }), Ok(0));
        assert_eq!(me.ask(Request::Seek { fd, offset: -2, whence: 2 }), Ok(30));
        assert_eq!(me.ask(Request::Read { fd, to: Span::new(161, 5), at: None }), Ok(2));
        assert_eq!(me.get(161, 2), b"ef");
        let path = me.put(0, b"#r/a");
        assert_eq!(me.ask(Request::Remove { path }), Ok(0));
        assert_eq!(me.ask(Request::Open { path, mode: 0 }), Err(Errno::ENOENT));
        let bytes = me.ask(Request::ErrorText { into: Span::new(0, 12) }).unwrap();
        assert!(bytes > 12);
        assert_eq!(me.get(0, 12), b"no such file");
    });
    ended.unwrap();
}

#[test]
fn two_coroutines_that_read_one_descriptor_get_each_block_once() {
    let toy = toy(1);
    toy.host.files.borrow_mut().insert("/in".into(), (0..64).collect());
    let (ended, _) = run(&toy, 5, Trace::off(), |me| {
        let fd = me.open("#U/in", mode::READ);
        for cor in 0..4_u64 {
            me.spawn(move |me| {
                me.ask(Request::Read { fd, to: Span::new(cor * 16, 16), at: None }).unwrap();
                assert_eq!(me.get(cor * 16, 1), [cor as u8 * 16]);
            })
            .unwrap();
        }
    });
    ended.unwrap();
}

#[test]
fn a_pipe_passes_bytes_between_coroutines_in_whatever_order_they_come() {
    for seed in 0..50 {
        let toy = toy(1);
        let (ended, trace) = run(&toy, seed, Trace::record(), through_pipe);
        ended.unwrap();
        // The same arrivals, however else the host answers.
        let (ended, again) = run(&self::toy(1), seed + 99, Trace::replay(&trace), through_pipe);
        ended.unwrap();
        assert_eq!(trace, again);
    }
}

fn through_pipe(me: Me) {
    let ends = [("#p/a", 0_u64), ("#p/b", 1)].map(|(path, end)| (me.open(path, mode::ANY), end));
    for (fd, end) in ends {
        me.spawn(move |me| {
            let to = Span::new(end * 64, 32);
            assert_eq!(me.ask(Request::Read { fd, to, at: None }), Ok(5));
            assert_eq!(me.get(end * 64, 5), b"quail");
        })
        .unwrap();
        me.spawn(move |me| {
            me.ask(Request::Yield).unwrap();
            let from = me.put(1024, b"quail");
            assert_eq!(me.ask(Request::Write { fd, from, at: None }), Ok(5));
        })
        .unwrap();
    }
}

#[test]
fn a_replay_of_another_program_stops_at_the_first_difference() {
    let (_, trace) =
        run(&toy(1), 1, Trace::record(), |me| assert!(me.open("#r/a", mode::ANY) >= 0));
    let replay = Trace::replay(&trace);
    let (ended, _) = run(&toy(1), 1, replay, |me| assert!(me.open("#r/b", mode::ANY) >= 0));
    let Err(Ended::Diverged(what)) = ended else { panic!("{ended:?}") };
    assert!(what.recorded.contains("#r/a") && what.happened.contains("#r/b"), "{what}");
}

#[test]
fn coroutines_run_in_the_order_in_which_they_were_made() {
    let toy = toy(1);
    let order = Rc::new(RefCell::new(Vec::new()));
    let seen = order.clone();
    let (ended, _) = run(&toy, 1, Trace::off(), move |me| {
        for cor in 0..3 {
            let order = order.clone();
            me.spawn(move |me| {
                for turn in 0..2 {
                    order.borrow_mut().push((turn, cor));
                    me.ask(Request::Yield).unwrap();
                }
            })
            .unwrap();
        }
    });
    ended.unwrap();
    assert_eq!(*seen.borrow(), [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]);
}

#[test]
fn a_transfer_is_done_once_whoever_gives_way_afterwards() {
    let toy = toy(1);
    let (ended, _) = run(&toy, 1, Trace::off(), |me| {
        let fd = me.open("#r/all", mode::ANY);
        let from = me.put(0, &[1; 64]);
        assert_eq!(me.ask(Request::Write { fd, from, at: Some(0) }), Ok(64));
        for cor in 1..4_u64 {
            me.spawn(move |me| {
                let to = Span::new(cor * 64, 64);
                for step in 0..20 {
                    assert_eq!(me.ask(Request::Read { fd, to, at: Some(0) }), Ok(64));
                    let own = [cor as u8 + 1; 64];
                    me.put(to.address, &own);
                    for _ in 0..(step + cor) % 3 {
                        if !crate::coroutine::give_way() {
                            me.ask(Request::Yield).unwrap();
                        }
                        assert_eq!(me.get(to.address, 64), own, "coroutine {cor}, step {step}");
                    }
                }
            })
            .unwrap();
        }
    });
    ended.unwrap();
}

/// Who has done what, in a program of coroutines that mostly write.
fn writers(trace: Trace) -> Vec<u64> {
    let toy = toy(1);
    let order = Rc::new(RefCell::new(Vec::new()));
    let seen = order.clone();
    let (ended, _) = run(&toy, 1, trace, move |me| {
        let fd = me.open("#r/all", mode::ANY);
        let from = me.put(0, &[1; 64]);
        assert_eq!(me.ask(Request::Write { fd, from, at: Some(0) }), Ok(64));
        for cor in 0..3_u64 {
            let order = order.clone();
            me.spawn(move |me| {
                for step in 0..40 {
                    order.borrow_mut().push(cor);
                    let from = Span::new(cor * 64, 16);
                    assert_eq!(me.ask(Request::Write { fd, from, at: Some(16) }), Ok(16));
                    if step % 11 == cor {
                        me.ask(Request::Yield).unwrap();
                    }
                    if cor == 1 && step % 3 == 0 {
                        let to = Span::new(1024, 16);
                        assert_eq!(me.ask(Request::Read { fd, to, at: Some(0) }), Ok(16));
                    }
                }
            })
            .unwrap();
        }
    });
    ended.unwrap();
    seen.take()
}

#[test]
fn who_only_writes_goes_on_for_a_while_and_then_gives_way() {
    let order = writers(Trace::off());
    let runs: Vec<usize> = order.chunk_by(|one, next| one == next).map(<[u64]>::len).collect();
    assert!(runs.len() > 12 && runs[0] == 1, "{order:?}");
    assert!(runs[..runs.len() - 1].iter().all(|run| *run <= 17), "{order:?}");
    assert!(runs.contains(&11), "{order:?}");
    assert_eq!(order, writers(Trace::record()), "a trace changes nothing");
}

#[test]
fn what_does_not_fit_in_the_local_store_is_refused() {
    let toy = toy(1);
    let (ended, _) = run(&toy, 1, Trace::off(), |me| {
        let used = 4096;
        let left = crate::store::BYTES - used;
        assert_eq!(me.ask(Request::Allocate { bytes: left + 1 }), Err(Errno::ENOMEM));
        let at = me.ask(Request::Allocate { bytes: left }).unwrap();
        let refused = me.spawn(|_| ());
        assert_eq!(refused, Err(Errno::ENOMEM));
        me.ask(Request::Release { address: at as u64 }).unwrap();
        assert_eq!(me.ask(Request::Release { address: at as u64 }), Err(Errno::EINVAL));
        assert_eq!(me.spawn(|_| ()), Ok(1));
    });
    ended.unwrap();
}

#[test]
fn what_makes_no_sense_is_an_error_of_the_request_only() {
    let toy = toy(1);
    let (ended, _) = run(&toy, 1, Trace::off(), |me| {
        let to = Span::new(0, 16);
        assert_eq!(me.ask(Request::Read { fd: 3, to, at: None }), Err(Errno::EBADF));
        assert_eq!(me.ask(Request::Close { fd: -1 }), Err(Errno::EBADF));
        let path = me.put(0, b"#x/a");
        assert_eq!(me.ask(Request::Open { path, mode: 0 }), Err(Errno::ENODEV));
        let path = me.put(0, "/a".repeat(20).as_bytes());
        assert_eq!(me.ask(Request::Open { path, mode: 0 }), Err(Errno::ENAMETOOLONG));
        let fd = me.open("#r/a", mode::ANY);
        let seek = |offset, whence| me.ask(Request::Seek { fd, offset, whence });
        assert_eq!(seek(-1, 0), Err(Errno::EINVAL));
        assert_eq!(seek(0, 9), Err(Errno::EINVAL));
        for _ in 1..FILES_MAX {
            me.open("#r/a", mode::READ);
        }
        let path = me.put(0, b"#r/a");
        assert_eq!(me.ask(Request::Open { path, mode: 0 }), Err(Errno::EMFILE));
    });
    ended.unwrap();
}

#[test]
fn the_log_reaches_the_host_in_the_order_of_the_program() {
    let toy = toy(1);
    let (ended, _) = run(&toy, 11, Trace::off(), |me| {
        for word in [&b"one\n"[..], b"two\n", b"three\n"] {
            let text = me.put(0, word);
            me.ask(Request::Log { text }).unwrap();
        }
    });
    ended.unwrap();
    assert_eq!(*toy.host.logged.borrow(), b"one\ntwo\nthree\n");
}

#[test]
fn a_host_that_is_gone_ends_the_worker_with_an_error() {
    let toy = toy(1);
    let servers = Rc::new(RefCell::new(vec![ToyServer::new(&toy, 0, 1)]));
    let mut worker = worker(&toy, 0, &servers, Trace::off());
    let (me, died) = (Me(worker.ground().local.clone()), servers.clone());
    worker
        .start(new(move || {
            died.borrow_mut().clear();
            me.open("#r/a", mode::ANY);
        }))
        .unwrap();
    assert!(matches!(worker.run(), Err(Ended::Host(_))));
    worker.stop();
}

#[test]
fn the_reader_of_a_pipe_whose_writer_was_killed_gets_an_error_after_the_last_bytes() {
    let toy = toy(2);
    let servers =
        Rc::new(RefCell::new(vec![ToyServer::new(&toy, 0, 1), ToyServer::new(&toy, 1, 2)]));
    let mut reader = worker(&toy, 0, &servers, Trace::off());
    let mut writer = worker(&toy, 1, &servers, Trace::off());
    let me = Me(writer.ground().local.clone());
    writer
        .start(new(move || {
            let fd = me.open("#p/a", mode::ANY);
            let from = me.put(0, b"last words");
            me.ask(Request::Write { fd, from, at: None }).unwrap();
        }))
        .unwrap();
    writer.run().unwrap();
    let (me, killed) = (Me(reader.ground().local.clone()), servers.clone());
    reader
        .start(new(move || {
            let fd = me.open("#p/a", mode::READ);
            let read = || me.ask(Request::Read { fd, to: Span::new(0, 64), at: None });
            assert_eq!(read(), Ok(10));
            killed.borrow_mut()[1].session = None;
            killed.borrow_mut().pop();
            assert_eq!(read(), Err(Errno::EPIPE));
        }))
        .unwrap();
    reader.run().unwrap();
}

#[test]
fn a_file_that_is_shortened_is_shorter_for_a_worker_that_has_it_mapped() {
    let toy = toy(1);
    let (ended, _) = run(&toy, 1, Trace::off(), |me| {
        let fd = me.open("#r/a", mode::ANY);
        let from = me.put(0, &[9; 64]);
        me.ask(Request::Write { fd, from, at: Some(0) }).unwrap();
        let to = Span::new(128, 64);
        assert_eq!(me.ask(Request::Read { fd, to, at: Some(0) }), Ok(64));
        me.open("#r/a", mode::BOTH | mode::TRUNCATE);
        assert_eq!(me.ask(Request::Read { fd, to, at: Some(0) }), Ok(0));
        let from = Span::new(0, 16);
        me.ask(Request::Write { fd, from, at: Some(48) }).unwrap();
        assert_eq!(me.ask(Request::Read { fd, to, at: Some(0) }), Ok(64));
        assert_eq!(me.get(128, 48), [0; 48]);
        assert_eq!(me.get(176, 16), [9; 16]);
    });
    ended.unwrap();
    let _ = &toy.headers;
}

#[test]
fn transfers_of_one_message_and_of_two_are_whole() {
    let toy = toy(1);
    let (ended, _) = run(&toy, 1, Trace::off(), |me| {
        let fd = me.open("#r/a", mode::ANY);
        let most = crate::SLOT_BYTES as usize - 24;
        for bytes in [1, 7, most - 1, most, most + 1, most + 2, 2 * most + 1] {
            let data: Vec<u8> = (0..bytes).map(|at| (at * 7 + bytes) as u8).collect();
            let from = me.put(1, &data);
            assert_eq!(me.ask(Request::Write { fd, from, at: Some(1) }), Ok(bytes as i64));
            me.put(1, &vec![0; bytes]);
            assert_eq!(me.ask(Request::Read { fd, to: from, at: Some(1) }), Ok(bytes as i64));
            assert!(me.get(1, bytes) == data, "{bytes}");
        }
    });
    ended.unwrap();
}

#[test]
fn far_behind_its_end_a_file_has_no_bytes_and_takes_none() {
    let toy = toy(1);
    with_input(&toy);
    let (ended, _) = run(&toy, 1, Trace::off(), |me| {
        let memory = me.open("#r/a", mode::ANY);
        let from = me.put(1, b"quail");
        assert_eq!(me.ask(Request::Write { fd: memory, from, at: Some(3) }), Ok(5));
        for fd in [memory, me.open("#U/in", mode::BOTH)] {
            for at in [1 << 20, 1 << 40, 1 << 63, u64::MAX - 3, u64::MAX] {
                for bytes in [7, 16, 40_000] {
                    let to = Span::new(1, bytes);
                    assert_eq!(me.ask(Request::Read { fd, to, at: Some(at) }), Ok(0), "{at}");
                    let wrote = me.ask(Request::Write { fd, from: to, at: Some(at) });
                    assert!(wrote.is_err(), "{at}: {wrote:?}");
                }
            }
        }
    });
    ended.unwrap();
}

#[test]
fn an_answer_is_a_number_or_an_error_and_fits_a_register() {
    assert_eq!(size_of::<StdResult<Answer, ()>>(), 8);
    for number in [0, 1, 8192, i64::MAX - 1] {
        assert_eq!(Answer::number(number as u64).result(), Ok(number));
    }
    assert_eq!(Answer::number(u64::MAX).result(), Ok(i64::MAX - 1));
    for code in [0, 5, u32::MAX] {
        assert_eq!(Answer::error(code).result(), Err(code));
    }
}
