//! Engines of real processes over shared memory. The other process is this test again, which
//! [`answers_in_another_process`] makes an echo.

use covey_io::os::own::Own;
use covey_io::os::shm::{Patience, Settings, Shm, Waiter};
use covey_layout::{Element, Layout, Op};
use covey_uzura::{
    Completion, Config, Engine, Fault, Key, Local, Remote, Rights, Rule, Source, Started, Tag,
};
use covey_wire::transport::PUBLISHED_MAX;
use covey_wire::{Memory, Peer, Span, Transport};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const SIDE: usize = 100;
const QUIT: u64 = 99;
const KEYS: u64 = 100;
const REVOKE: u64 = 101;
const STOPS: u64 = 102;
const LENGTH_MAX: usize = 1 << 20;
const WHERE: &str = "COVEY_UZURA_ANSWERS_AT";

/// One process.
struct End {
    engine: Engine<Shm, Own>,
    waiter: Waiter,
}

impl End {
    fn new(shm: Shm, memory: Own) -> End {
        let engine = Engine::new(shm, memory, Config { seed: 7, ..Config::default() });
        End { engine, waiter: Waiter::new(Patience::default()) }
    }

    /// Waits for the end of what was begun last.
    fn end(&mut self, started: Result<Started, Fault>) -> Result<Completion, Fault> {
        let completion = match started? {
            Started::Done(completion) => completion,
            Started::Pending(_) => self.next(),
        };
        completion.result.map(|()| completion)
    }

    fn next(&mut self) -> Completion {
        let begun = Instant::now();
        loop {
            if let Some(completion) = self.engine.completion() {
                self.waiter.reset();
                return completion;
            }
            if self.engine.poll() == 0 {
                let may_sleep = self.engine.is_idle();
                self.waiter.wait(self.engine.transport(), may_sleep);
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "nothing happened for a minute");
        }
    }

    fn write(&mut self, span: Span, bytes: &[u8]) {
        let part = span.part(0, bytes.len() as u64).expect("it is long enough");
        self.engine.memory().write(part, |into| into.copy_from_slice(bytes)).expect("it is ours");
    }

    fn bytes(&mut self, span: Span, bytes: usize) -> Vec<u8> {
        let part = span.part(0, bytes as u64).expect("it is long enough");
        self.engine.memory().read(part, <[u8]>::to_vec).expect("it is ours")
    }
}

/// The other process.
struct Other {
    end: End,
    child: Ends,
    peer: Peer,
    _folder: tempfile::TempDir,
}

/// A process that ends with what it was started for.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(settings: Settings) -> Other {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let socket = folder.path().join("meet");
    let mut shm = Shm::new(settings.clone()).expect("shared memory");
    let memory = shm.memory().expect("the first time");
    let (child, peer) = answers(&mut shm, &settings, &socket);
    Other { end: End::new(shm, memory), child, peer, _folder: folder }
}

/// Starts a process that answers, and meets it.
fn answers(shm: &mut Shm, settings: &Settings, socket: &Path) -> (Ends, Peer) {
    shm.listen(socket).expect("a socket");
    let way = format!("{}:{}:{}", settings.one_copy, settings.view, socket.display());
    let child = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "answers_in_another_process", "--nocapture"])
        .env(WHERE, way)
        .spawn()
        .expect("this test runs");
    loop {
        match shm.accept().expect("they meet") {
            Some(peer) => return (Ends(child), peer),
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

fn matrix() -> Vec<u8> {
    (0..SIDE * SIDE).flat_map(|at| (at as f32).to_le_bytes()).collect()
}

fn transposed() -> Vec<u8> {
    let at = |at: usize| (at % SIDE * SIDE + at / SIDE) as f32;
    (0..SIDE * SIDE).flat_map(|index| at(index).to_le_bytes()).collect()
}

fn columns() -> Layout {
    let column = Layout::vector(SIDE as u64, 1, SIDE as i64, &Layout::element(Element::F32));
    Layout::hvector(SIDE as u64, 1, 4, &column.expect("a column")).expect("columns")
}

/// Not a test of its own: the other process of the tests below. It sends back what it gets, and shares two matrices.
#[test]
fn answers_in_another_process() {
    let Ok(way) = std::env::var(WHERE) else { return };
    let mut parts = way.splitn(3, ':');
    let mut flag = || parts.next() == Some("true");
    let settings = Settings { one_copy: flag(), view: flag(), ..Settings::default() };
    answer(settings, &PathBuf::from(parts.next().expect("a path")));
}

fn answer(settings: Settings, socket: &Path) {
    let mut shm = Shm::new(settings).expect("shared memory");
    let memory = shm.memory().expect("the first time");
    let peer = shm.connect(socket).expect("they meet");
    let shared = shm.allocate((SIDE * SIDE * 4) as u64).expect("there is room");
    let mut end = End::new(shm, memory);
    let own = end.engine.memory().block(SIDE * SIDE * 4);
    let buffer = end.engine.memory().block(LENGTH_MAX);
    let keys = [shared, own].map(|span| {
        end.write(span, &matrix());
        end.engine.register(span, Rights::ALL).expect("there is room")
    });
    let numbers: Vec<u8> = keys.iter().flat_map(|key| key.0.to_le_bytes()).collect();
    end.write(buffer, &numbers);
    let told = end.engine.send(peer, KEYS, Local::bytes(buffer.part(0, 16).expect("16")), 0);
    end.end(told).expect("the keys are told");
    loop {
        let got = end.engine.receive(Source::Any, Tag::ANY, Local::bytes(buffer), 0);
        let Ok(got) = end.end(got) else { return };
        if got.tag == QUIT {
            return;
        }
        if got.tag == REVOKE {
            keys.iter().for_each(|key| end.engine.revoke(*key).expect("it is registered"));
        }
        if got.tag == STOPS {
            let key = end.bytes(buffer, 8).try_into().map(u64::from_le_bytes).expect("a key");
            let engine = end.engine.transport();
            let entered = (0..PUBLISHED_MAX).any(|slot| engine.enter(got.peer, slot, key).is_ok());
            assert!(entered, "it is published");
            signal(std::process::id(), rustix::process::Signal::STOP);
            // Another thread may take the signal: this one stops a little later.
            std::thread::sleep(Duration::from_millis(20));
            engine.leave(got.peer);
        }
        let back = Local::bytes(buffer.part(0, got.bytes).expect("it fitted"));
        let sent = end.engine.send(got.peer, got.tag, back, 0);
        end.end(sent).expect("it goes back");
    }
}

impl Other {
    /// A second one, whose keys were told.
    fn another(&mut self, socket: &Path) -> (Ends, Peer) {
        let (child, peer) = answers(self.end.engine.transport(), &NOT_MAPPED(), socket);
        let into = Local::bytes(self.end.engine.memory().block(16));
        let got = self.end.engine.receive(Source::From(peer), Tag::exact(KEYS), into, 0);
        self.end.end(got).expect("the keys come");
        (child, peer)
    }

    fn keys(&mut self) -> [Key; 2] {
        let into = self.end.engine.memory().block(16);
        let got = self.end.engine.receive(
            Source::From(self.peer),
            Tag::exact(KEYS),
            Local::bytes(into),
            0,
        );
        self.end.end(got).expect("the keys come");
        let numbers = self.end.bytes(into, 16);
        let (first, rest) = numbers.split_first_chunk::<8>().expect("eight bytes");
        let (second, _) = rest.split_first_chunk::<8>().expect("eight more");
        [first, second].map(|bytes| Key(u64::from_le_bytes(*bytes)))
    }

    fn echo(&mut self, what: Span, into: Span, tag: u64) {
        let posted = self.end.engine.receive(
            Source::From(self.peer),
            Tag::exact(tag),
            Local::bytes(into),
            1,
        );
        let Ok(Started::Pending(_)) = posted else { panic!("{posted:?} before it was sent") };
        let sent = self.end.engine.send(self.peer, tag, Local::bytes(what), 2);
        let mut left = match sent.expect("it goes") {
            Started::Done(_) => 1,
            Started::Pending(_) => 2,
        };
        while left > 0 {
            let completion = self.end.next();
            assert_eq!(completion.result, Ok(()), "{completion:?}");
            assert_eq!(completion.bytes, what.bytes);
            left -= 1;
        }
    }
}

fn ways() -> [Settings; 4] {
    let way = |one_copy, view| Settings { one_copy, view, ..Settings::default() };
    [way(true, true), way(true, false), way(false, true), way(false, false)]
}

#[test]
fn messages_of_every_length_come_back_as_they_went() {
    for settings in ways() {
        let text = format!("{settings:?}");
        let mut other = start(settings);
        other.keys();
        let shm = other.end.engine.transport();
        let shared = shm.allocate(2 * LENGTH_MAX as u64).expect("there is room");
        let own = other.end.engine.memory().block(2 * LENGTH_MAX);
        let lengths = [0, 1, 8, 39, 40, 47, 48, 49, 64, 1000, 4096, 4097, 40_000, LENGTH_MAX];
        for (tag, length) in lengths.into_iter().enumerate() {
            let bytes: Vec<u8> = (0..length).map(|at| (at * 7 + at / 251 + tag) as u8).collect();
            for memory in [shared, own] {
                let what = memory.part(0, length as u64).expect("it is long enough");
                let into = memory.part(LENGTH_MAX as u64, length as u64).expect("it is");
                other.end.write(what, &bytes);
                other.echo(what, into, tag as u64);
                assert!(other.end.bytes(into, length) == bytes, "{length} bytes, {text}");
            }
        }
    }
}

#[test]
fn a_matrix_of_another_process_is_got_and_put_transposed() {
    for settings in ways() {
        let text = format!("{settings:?}");
        let is_direct = settings.view || settings.one_copy;
        let mut other = start(settings);
        let keys = other.keys();
        let form = other.end.engine.commit(&columns(), 1).expect("it is well made");
        let bytes = SIDE * SIDE * 4;
        let into = other.end.engine.memory().block(bytes);
        for (key, place) in keys.into_iter().zip(["shared", "own"]) {
            let remote = Remote { peer: other.peer, key, at: 0, form: Some(form) };
            let before = other.end.engine.stats().direct;
            let got = other.end.engine.get(Local::bytes(into), remote, 0);
            other.end.end(got).expect("it is got");
            assert!(other.end.bytes(into, bytes) == transposed(), "{place}, {text}");
            // What came transposed goes back transposed: then it is as it was.
            let put = other.end.engine.put(Local::bytes(into), remote, 0);
            other.end.end(put).expect("it is put");
            let plain = Remote { form: None, ..remote };
            let got = other.end.engine.get(Local::laid(into, form), plain, 0);
            other.end.end(got).expect("it is got");
            assert!(other.end.bytes(into, bytes) == transposed(), "{place}, {text}");
            let direct = other.end.engine.stats().direct - before;
            let is_mapped = place == "shared" || text.contains("one_copy: true");
            assert_eq!(direct == 3, is_direct && is_mapped, "{direct} of 3, {place}, {text}");
        }
    }
}

#[test]
fn counters_of_another_process_are_added_to_and_compared() {
    let mut other = start(Settings::default());
    let [key, _] = other.keys();
    let form = other.end.engine.commit(&Layout::element(Element::U64), 1).expect("well made");
    let memory = other.end.engine.memory().block(32);
    let part = |at| Local::bytes(memory.part(at, 8).expect("it is"));
    let remote = Remote { peer: other.peer, key, at: 0, form: Some(form) };
    other.end.write(memory, &[5, 0, 0, 0, 0, 0, 0, 0]);
    let put = other.end.engine.put(part(0), remote, 0);
    other.end.end(put).expect("it is put");
    let fetch = other.end.engine.fetch(Op::Sum, part(0), part(8), remote, 0);
    other.end.end(fetch).expect("it is added");
    let swap = other.end.engine.compare_swap(part(8), part(16), part(24), remote, 0);
    other.end.end(swap).expect("it is compared");
    let seen = other.end.bytes(memory, 32);
    assert_eq!((seen[8], seen[24]), (5, 10), "before the sum; at the comparison");
}

#[test]
fn a_revoked_key_a_wrong_one_and_a_reach_too_far_end_one_operation_each() {
    let mut other = start(Settings::default());
    let [key, _] = other.keys();
    let into = other.end.engine.memory().block(64);
    let get = |other: &mut Other, key, at| {
        let remote = Remote { peer: other.peer, key, at, form: None };
        let started = other.end.engine.get(Local::bytes(into), remote, 0);
        other.end.end(started).map(drop)
    };
    assert_eq!(get(&mut other, key, 0), Ok(()));
    assert_eq!(get(&mut other, Key(key.0 ^ 1 << 60), 0), Err(Fault::WrongKey));
    assert_eq!(get(&mut other, key, (SIDE * SIDE * 4 - 63) as u64), Err(Fault::OutOfRange));
    let word = into.part(0, 8).expect("it is");
    other.echo(word, into.part(8, 8).expect("it is"), REVOKE);
    assert_eq!(get(&mut other, key, 0), Err(Fault::Revoked));
    other.echo(word, into.part(8, 8).expect("it is"), 3);
}

#[test]
fn a_killed_process_ends_what_was_begun_with_it_and_nothing_else() {
    let mut dying = start(Settings::default());
    let [key, _] = dying.keys();
    let into = dying.end.engine.memory().block(64);
    let waiting =
        dying.end.engine.receive(Source::From(dying.peer), Tag::exact(55), Local::bytes(into), 55);
    assert!(matches!(waiting, Ok(Started::Pending(_))), "{waiting:?}");
    let anybody = dying.end.engine.receive(Source::Any, Tag::ANY, Local::bytes(into), 56);
    let Ok(Started::Pending(anybody)) = anybody else { panic!("{anybody:?}") };
    dying.child.0.kill().expect("it is there");
    dying.child.0.wait().expect("it ends");
    let completion = dying.end.next();
    assert_eq!((completion.context, completion.result), (55, Err(Fault::PeerDead)));
    let remote = Remote { peer: dying.peer, key, at: 0, form: None };
    assert_eq!(dying.end.engine.get(Local::bytes(into), remote, 0), Err(Fault::PeerDead));
    assert_eq!(dying.end.engine.send(dying.peer, 1, Local::bytes(into), 0), Err(Fault::PeerDead));
    assert!(dying.end.engine.cancel(anybody), "it waits for others");
    assert_eq!(dying.end.next().result, Err(Fault::Cancelled));
}

/// Long messages, to and fro, in memory that is not mapped: both ends copy them.
struct Echoes {
    what: Span,
    into: Span,
    bytes: Vec<u8>,
}

impl Echoes {
    fn new(end: &mut End) -> Echoes {
        let bytes: Vec<u8> = (0..LENGTH_MAX).map(|at| (at * 7 + at / 251) as u8).collect();
        let [what, into] = [0, 1].map(|_| end.engine.memory().block(LENGTH_MAX));
        end.write(what, &bytes);
        Echoes { what, into, bytes }
    }

    /// Begins one. Its completions have this context.
    fn begin(&self, end: &mut End, peer: Peer, context: u64) -> Result<(), Fault> {
        end.write(self.into, &vec![0xee; LENGTH_MAX]);
        let (from, into) = (Source::From(peer), Local::bytes(self.into));
        end.engine.receive(from, Tag::exact(1), into, context).map(drop)?;
        end.engine.send(peer, 1, Local::bytes(self.what), context).map(drop)
    }

    /// Ends one whose message was announced and whose answer comes.
    fn end(&self, end: &mut End, context: u64) -> Result<(), Fault> {
        for _ in 0..2 {
            let completion = end.next();
            assert_eq!(completion.context, context);
            completion.result?;
        }
        assert!(end.bytes(self.into, LENGTH_MAX) == self.bytes);
        Ok(())
    }
}

fn signal(child: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(child as i32).expect("a process");
    rustix::process::kill_process(pid, signal).expect("it is ours");
}

const NOT_MAPPED: fn() -> Settings = || Settings { view: false, ..Settings::default() };

#[test]
fn who_is_killed_while_both_ends_copy_writes_nothing_after_the_receive_has_ended() {
    let (mut round, mut helped) = (0, 0);
    // On a busy machine the two seldom run at once: some more rounds, then.
    while round < 12 || helped == 0 && round < 40 {
        let mut dying = start(NOT_MAPPED());
        dying.keys();
        let echoes = Echoes::new(&mut dying.end);
        let child = dying.child.0.id();
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(3000 + 531 * (round % 12)));
            signal(child, rustix::process::Signal::KILL);
        });
        let fault = loop {
            let begun = echoes.begin(&mut dying.end, dying.peer, 1);
            if let Err(fault) = begun.and_then(|()| echoes.end(&mut dying.end, 1)) {
                break fault;
            }
        };
        assert_eq!(fault, Fault::PeerDead);
        killer.join().expect("it is killed");
        dying.end.write(echoes.into, &vec![0xdd; LENGTH_MAX]);
        std::thread::sleep(Duration::from_millis(3));
        assert!(dying.end.bytes(echoes.into, LENGTH_MAX).iter().all(|byte| *byte == 0xdd));
        helped += dying.end.engine.transport().helped_bytes();
        round += 1;
    }
}

#[test]
fn who_is_stopped_while_both_ends_copy_holds_up_nothing_but_its_own_message() {
    let mut other = start(NOT_MAPPED());
    other.keys();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (second, peer) = other.another(&folder.path().join("meet"));
    let [ours, theirs] = [0, 1].map(|_| Echoes::new(&mut other.end));
    for round in 0..60 {
        ours.begin(&mut other.end, peer, 1).expect("it is there");
        for _ in 0..round * 4 {
            other.end.engine.poll();
        }
        signal(second.0.id(), rustix::process::Signal::STOP);
        theirs.begin(&mut other.end, other.peer, 2).expect("it is there");
        let (mut first, mut left) = (0, 2);
        while left > 0 {
            let completion = other.end.next();
            assert_eq!(completion.result, Ok(()), "{completion:?}");
            first += u32::from(completion.context == 1);
            left -= u32::from(completion.context == 2);
        }
        assert!(other.end.bytes(theirs.into, LENGTH_MAX) == theirs.bytes);
        signal(second.0.id(), rustix::process::Signal::CONT);
        while first < 2 {
            let completion = other.end.next();
            assert_eq!((completion.context, completion.result), (1, Ok(())));
            first += 1;
        }
        assert!(other.end.bytes(ours.into, LENGTH_MAX) == ours.bytes);
    }
}

/// Memory of ours, and its key, in whose middle the other process is stopped.
fn stopped_within(other: &mut Other) -> (Span, Key) {
    let end = &mut other.end;
    let memory = end.engine.memory().block(8);
    let key = end.engine.register(memory, Rights::ALL).expect("there is room");
    end.write(memory, &key.0.to_le_bytes());
    let sent = end.engine.send(other.peer, STOPS, Local::bytes(memory), 0);
    end.end(sent).expect("it is told");
    let is_stopped = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", other.child.0.id()));
        stat.expect("it is there").rsplit(')').next().is_some_and(|rest| rest.starts_with(" T"))
    };
    while !is_stopped() {
        std::thread::sleep(Duration::from_millis(1));
    }
    (memory, key)
}

#[test]
fn who_is_stopped_within_an_access_does_not_hold_up_a_revocation_without_end() {
    let mut other = start(Settings::default());
    other.keys();
    let (memory, key) = stopped_within(&mut other);
    let engine = &mut other.end.engine;
    assert_eq!(engine.revoke(key), Err(Fault::InUse));
    // It is taken back all the same, and its key is nobody else's until nobody accesses the memory.
    assert_eq!(engine.register_as(key, memory, Rights::READ), Err(Fault::KeyTaken));
    signal(other.child.0.id(), rustix::process::Signal::CONT);
    let got = engine.receive(Source::Any, Tag::exact(STOPS), Local::bytes(memory), 0);
    other.end.end(got).expect("it goes on");
    let engine = &mut other.end.engine;
    // Whoever registers memory under the key again finds that nobody has it, and need not have asked before.
    assert_eq!(engine.register_as(key, memory, Rights::READ), Ok(()));
    assert_eq!(engine.revoke(key), Ok(()));
    assert_eq!(engine.revoke(key), Err(Fault::Revoked));
    let (_, key) = stopped_within(&mut other);
    let engine = &mut other.end.engine;
    assert_eq!(engine.revoke_within(key, Duration::ZERO), Err(Fault::InUse));
    signal(other.child.0.id(), rustix::process::Signal::CONT);
    let got = engine.receive(Source::Any, Tag::exact(STOPS), Local::bytes(memory), 0);
    other.end.end(got).expect("it goes on");
    let engine = &mut other.end.engine;
    assert_eq!(engine.revoke(key), Ok(()));
    // One that is killed accesses nothing any more.
    let (_, key) = stopped_within(&mut other);
    signal(other.child.0.id(), rustix::process::Signal::KILL);
    other.child.0.wait().expect("it ends");
    assert_eq!(other.end.engine.revoke(key), Ok(()));
}

/// The header of a 9P Rread: size, type, tag, count.
fn rread(count: u32) -> Vec<u8> {
    let size = (count + 11).to_le_bytes();
    [&size[..], &[117, 5, 0], &count.to_le_bytes()].concat()
}

#[test]
fn a_payload_behind_a_header_comes_to_its_place_with_one_copy() {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("a pair of sockets");
    let bytes = LENGTH_MAX as u64;
    let sender = std::thread::spawn(move || {
        let mut shm = Shm::new(Settings::default()).expect("shared memory");
        let memory = shm.memory().expect("the first time");
        let peer = shm.meet(theirs).expect("they meet");
        let what = shm.allocate(bytes).expect("there is room");
        let mut end = End::new(shm, memory);
        end.write(what, &[42; LENGTH_MAX]);
        let header = rread(LENGTH_MAX as u32);
        let sent = end.engine.send_headed(peer, 9, &header, Local::bytes(what), 0);
        end.end(sent).expect("it is sent");
        end.engine.stats()
    });
    let mut shm = Shm::new(Settings::default()).expect("shared memory");
    let memory = shm.memory().expect("the first time");
    let peer = shm.meet(ours).expect("they meet");
    let mut end = End::new(shm, memory);
    let (header, payload) = (end.engine.memory().block(11), end.engine.memory().block(LENGTH_MAX));
    let (mut mask, mut value) = ([0; 11], [0; 11]);
    mask[4..7].fill(0xff);
    value[4..7].copy_from_slice(&[117, 5, 0]);
    let rule = Rule {
        from: Source::From(peer),
        tag: Tag::exact(9),
        mask: &mask,
        value: &value,
        header,
        payload: Local::bytes(payload),
    };
    let placed = end.engine.place(&rule, 0);
    end.end(placed).expect("it comes");
    assert_eq!(end.bytes(header, 11), rread(LENGTH_MAX as u32));
    assert!(end.bytes(payload, LENGTH_MAX) == [42; LENGTH_MAX]);
    let (here, there) = (end.engine.stats(), sender.join().expect("it ended well"));
    assert_eq!((here.bytes_copied, here.bytes_held), (bytes, 0));
    assert_eq!((there.bytes_copied, there.bytes_held), (0, 0));
}
