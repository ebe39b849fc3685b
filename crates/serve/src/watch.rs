//! How long everything takes, always on: counts and latencies of each operation and each client, and a
//! log of the slow ones.
//!
//! What is answered at once costs two looks at the clock and a few additions. The numbers are read as
//! text through the node's `/stats` and `/slow`; `/ctl` sets what counts as slow.

mod accounts;
mod files;
mod histogram;

pub use accounts::{OTHERS, account};
pub use histogram::{Detail, Histogram, end_of_doubling, quantile_ns, top_ns};

use super::stats::Counter;
use accounts::{Accounts, Standing, Sums};
use covey_ninep::tree::{Data, Outcome, Result};
use covey_wire::Bytes;
use files::{Files, Who};
use histogram::put;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::hash::RandomState;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// What counts as slow until someone says otherwise.
const SLOW_DEFAULT: Duration = Duration::from_secs(1);
/// Slow requests that are kept.
const SLOW_KEPT: usize = 256;
/// The longest name of a client that is kept: each slow request repeats it.
const NAME_CHARS_MAX: usize = 255;

/// The watch over one part of a node.
pub struct Watch {
    /// The part's name, before those of its operations.
    part: &'static str,
    ops: RefCell<Vec<Option<Rc<Op>>>>,
    clients: RefCell<Vec<Rc<Client>>>,
    accounts: RefCell<Accounts>,
    files: RefCell<Files>,
    /// Tells accounts apart: no client can choose a name that is taken for another one.
    hashing: RandomState,
    slow: Cell<Option<Duration>>,
    slow_log: RefCell<VecDeque<String>>,
    slow_count: Counter,
}

/// One operation's numbers.
pub struct Op {
    name: &'static str,
    errors: Counter,
    bytes: Counter,
    times: Histogram,
}

/// One client's numbers.
pub struct Client {
    name: RefCell<String>,
    /// Its account, as files have it.
    who: RefCell<Who>,
    standing: Cell<Standing>,
    requests: Counter,
    bytes: Counter,
    /// Of those, what its reads and its writes of data have carried.
    bytes_read: Counter,
    bytes_written: Counter,
    times: Histogram,
}

/// A request that is watched.
pub struct Request {
    op: Rc<Op>,
    client: Option<Rc<Client>>,
    begun: Instant,
    /// What it is about: a file.
    id: u64,
    carries: Carries,
    /// What it waits for when it is not answered at once.
    waits_for: &'static str,
}

/// The bytes of data that a request carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Carries {
    /// None.
    #[default]
    Nothing,
    /// To the client.
    Read(u64),
    /// From the client.
    Written(u64),
}

impl Watch {
    /// A watch over the part of this name.
    pub fn new(part: &'static str) -> Rc<Watch> {
        Rc::new(Watch {
            part,
            ops: RefCell::new(vec![None; 256]),
            clients: RefCell::default(),
            accounts: RefCell::default(),
            files: RefCell::default(),
            hashing: RandomState::new(),
            slow: Cell::new(Some(SLOW_DEFAULT)),
            slow_log: RefCell::default(),
            slow_count: Counter::default(),
        })
    }

    /// A new client.
    pub fn client(&self, name: &str) -> Rc<Client> {
        let client = Rc::new(Client {
            name: RefCell::new(short(name)),
            who: RefCell::new(Who::of(name, &self.hashing)),
            standing: Cell::default(),
            requests: Counter::default(),
            bytes: Counter::default(),
            bytes_read: Counter::default(),
            bytes_written: Counter::default(),
            times: Histogram::default(),
        });
        self.part_with_ended();
        self.clients.borrow_mut().push(client.clone());
        client
    }

    /// What a client calls itself is known by now. What it did before stays with its name of then.
    pub fn rename(&self, client: &Client, name: &str) {
        let before = client.name.replace(short(name));
        if client.name.borrow().as_str() != before {
            let standing = client.standing.take();
            self.accounts.borrow_mut().leave(&before, standing, client.sums());
            client.who.replace(Who::of(name, &self.hashing));
            client.reset();
        }
    }

    /// Clients that nobody but this has any more are gone: what they have done is their accounts'.
    fn part_with_ended(&self) {
        let mut accounts = self.accounts.borrow_mut();
        self.clients.borrow_mut().retain(|client| {
            let is_there = Rc::strong_count(client) > 1;
            if !is_there {
                accounts.leave(&client.name.borrow(), client.standing.get(), client.sums());
            }
            is_there
        });
    }

    /// All that clients have done is about to be read: each that has done anything is on an account.
    fn settle(&self) {
        let mut accounts = self.accounts.borrow_mut();
        accounts.read();
        for client in self.clients.borrow().iter().filter(|client| !client.sums().is_nothing()) {
            let name = client.name.borrow();
            if client.standing.get() == Standing::New {
                client.standing.set(accounts.enter(&name));
            }
            accounts.reads(&name, client.standing.get(), client.sums());
        }
    }

    /// A request has come: number and name of its operation.
    pub fn begin(&self, number: u8, name: &'static str, client: Option<&Rc<Client>>) -> Request {
        let mut ops = self.ops.borrow_mut();
        let new = || Rc::new(Op::new(name));
        let op = ops[usize::from(number)].get_or_insert_with(new).clone();
        let (client, begun) = (client.cloned(), Instant::now());
        Request { op, client, begun, id: 0, carries: Carries::Nothing, waits_for: "" }
    }

    /// Counts a request when it is answered.
    pub fn outcome<T: 'static>(
        self: &Rc<Self>,
        request: Request,
        outcome: Outcome<T>,
    ) -> Outcome<T> {
        self.outcome_as(request, outcome, |_, _| {})
    }

    /// The same, where the answer says more of what the request was about.
    pub fn outcome_as<T: 'static>(
        self: &Rc<Self>,
        mut request: Request,
        outcome: Outcome<T>,
        learn: impl FnOnce(&mut Request, &T) + 'static,
    ) -> Outcome<T> {
        match outcome {
            Outcome::Now(result) => {
                if let Ok(answer) = &result {
                    learn(&mut request, answer);
                }
                self.end(&request, Duration::ZERO, &result);
                Outcome::Now(result)
            }
            Outcome::Later(later) => {
                let (watch, before) = (self.clone(), request.begun.elapsed());
                Outcome::later(async move {
                    let result = later.await;
                    if let Ok(answer) = &result {
                        learn(&mut request, answer);
                    }
                    watch.end(&request, before, &result);
                    result
                })
            }
        }
    }

    /// Counts a read when it is answered.
    pub fn data(self: &Rc<Self>, request: Request, data: Data) -> Data {
        match data {
            Data::Later(later) => self.outcome(request, Outcome::Later(later)).into(),
            Data::Failed(error) => self.outcome::<Bytes>(request, Err(error).into()).into(),
            done => {
                self.end(&request, Duration::ZERO, &Ok(()));
                done
            }
        }
    }

    /// Counts a request that was answered; `before` is how long it took until it began to wait.
    pub fn end<T>(&self, request: &Request, before: Duration, result: &Result<T>) {
        let took = request.begun.elapsed();
        request.op.times.add(took);
        let (read, written) = request.carries.bytes();
        request.op.bytes.add(read + written);
        if result.is_err() {
            request.op.errors.add(1);
        }
        if let Some(client) = &request.client {
            client.requests.add(1);
            client.bytes.add(read + written);
            client.bytes_read.add(read);
            client.bytes_written.add(written);
            client.times.add(took);
            let carries = request.carries != Carries::Nothing;
            if result.is_ok() && request.id != 0 && carries {
                let who = client.who.borrow();
                self.files.borrow_mut().note(request.id, &who, request.carries, request.begun);
            }
        }
        if self.slow.get().is_some_and(|limit| took >= limit) {
            let error = result.as_ref().err().map(ToString::to_string);
            self.note_slow(request, before, took, error);
        }
    }

    fn note_slow(
        &self,
        request: &Request,
        before: Duration,
        took: Duration,
        error: Option<String>,
    ) {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let (read, written) = request.carries.bytes();
        let who = request.client.as_ref().map_or("-".to_owned(), |one| one.name.borrow().clone());
        let (waited, place) = match before {
            Duration::ZERO => (Duration::ZERO, "-"),
            before => (took - before, request.waits_for),
        };
        let line = format!(
            "at {:.3} {}.{} of {who:?} file {:016x} {} bytes took {:.3} ms: {:.3} here, {:.3} {place}{}",
            jiff::Timestamp::now(),
            self.part,
            request.op.name,
            request.id,
            read + written,
            ms(took),
            ms(took - waited),
            ms(waited),
            error.map_or(String::new(), |error| format!("; {error}")),
        );
        self.slow_count.add(1);
        let mut log = self.slow_log.borrow_mut();
        log.push_back(line);
        if log.len() > SLOW_KEPT {
            log.pop_front();
        }
    }

    /// Sets what counts as slow; None for nothing.
    pub fn set_slow(&self, limit: Option<Duration>) {
        self.slow.set(limit);
    }

    /// What counts as slow.
    pub fn slow(&self) -> Option<Duration> {
        self.slow.get()
    }

    /// Begins all counts and times anew.
    pub fn reset(&self) {
        self.ops.borrow_mut().iter_mut().for_each(|op| *op = None);
        self.part_with_ended();
        self.accounts.borrow_mut().reset();
        self.files.take();
        self.clients.borrow().iter().for_each(|client| client.reset());
        self.slow_count.reset();
    }

    /// The slow requests that are kept, oldest first.
    pub fn slow_text(&self) -> String {
        self.slow_log.borrow().iter().map(|line| format!("{line}\n")).collect()
    }

    /// The numbers: a line for each operation, each client, and each of the busiest files. With all details also one for each account of clients that
    /// have ended, and on whose account a client is if not on its own.
    pub fn text(&self, detail: Detail) -> String {
        let mut out = String::new();
        for op in self.ops.borrow().iter().flatten() {
            let (part, name) = (self.part, op.name);
            let (errors, bytes) = (op.errors.value(), op.bytes.value());
            put(&mut out, format_args!("op {part}.{name} errors {errors} bytes {bytes} "));
            op.times.write(&mut out, detail);
            out.push('\n');
        }
        self.part_with_ended();
        if detail == Detail::Buckets {
            self.settle();
        }
        for client in self.clients.borrow().iter().filter(|client| client.requests.value() > 0) {
            client.write(&mut out, self.part, detail);
        }
        if detail == Detail::Buckets {
            out += &self.accounts.borrow().text(self.part);
        }
        out += &self.files.borrow().text(self.part);
        out + &format!("{}.slow {}\n", self.part, self.slow_count.value())
    }
}

fn short(name: &str) -> String {
    name.chars().take(NAME_CHARS_MAX).collect()
}

impl Op {
    fn new(name: &'static str) -> Op {
        let (errors, bytes, times) = Default::default();
        Op { name, errors, bytes, times }
    }
}

impl Client {
    /// Its line.
    fn write(&self, out: &mut String, part: &str, detail: Detail) {
        let name = self.name.borrow();
        let (bytes, read) = (self.bytes.value(), self.bytes_read.value());
        let written = self.bytes_written.value();
        put(out, format_args!("client {part} {name:?} bytes {bytes} "));
        put(out, format_args!("bytes_read {read} bytes_written {written} "));
        self.times.write(out, detail);
        if detail == Detail::Buckets && self.standing.get() == Standing::Others {
            put(out, format_args!(" account {OTHERS}"));
        }
        out.push('\n');
    }

    fn sums(&self) -> Sums {
        Sums::of(self.bytes.value(), &self.times)
    }

    fn reset(&self) {
        self.requests.reset();
        self.bytes.reset();
        self.bytes_read.reset();
        self.bytes_written.reset();
        self.times.reset();
    }
}

impl Carries {
    /// Bytes read and written.
    fn bytes(self) -> (u64, u64) {
        match self {
            Carries::Nothing => (0, 0),
            Carries::Read(bytes) => (bytes, 0),
            Carries::Written(bytes) => (0, bytes),
        }
    }
}

impl Request {
    /// Which file, and what of it.
    pub fn about(mut self, id: u64, carries: Carries) -> Request {
        (self.id, self.carries) = (id, carries);
        self
    }

    /// The answer says which file it is, and what was read of it.
    pub fn was_about(&mut self, id: u64, carries: Carries) {
        (self.id, self.carries) = (id, carries);
    }

    /// What it carries, as far as it is known.
    pub fn carries(&self) -> Carries {
        self.carries
    }

    /// What it waits for when it is not answered at once.
    pub fn waits_for(mut self, what: &'static str) -> Request {
        self.waits_for = what;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use covey_ninep::tree::Errno;

    #[test]
    fn requests_are_counted_for_their_operation_and_their_client() {
        let watch = Watch::new("data");
        let client = watch.client("unix!pid 7");
        for result in [Ok(1), Ok(2), Err(Errno::from(Errno::EIO))] {
            let request = watch.begin(3, "write", Some(&client)).about(9, Carries::Written(100));
            watch.outcome(request, Outcome::Now(result));
        }
        let text = watch.text(Detail::Summary);
        assert!(text.contains("op data.write errors 1 bytes 300 count 3 "), "{text}");
        assert!(
            text.contains(
                "client data \"unix!pid 7\" bytes 300 bytes_read 0 bytes_written 300 count 3 "
            ),
            "{text}"
        );
        drop(client);
        let told = watch.text(Detail::Summary);
        assert!(!told.contains("client data"), "a client that is gone is not told: {told}");
        let ended = |text: String| text.lines().filter(|line| line.starts_with("ended ")).count();
        let text = watch.text(Detail::Buckets);
        assert!(text.contains("ended data \"unix\" bytes 300 count 3 sum_ns "), "{text}");
        assert_eq!(ended(text), 1);
        watch.reset();
        assert_eq!(ended(watch.text(Detail::Buckets)), 0);
    }

    #[test]
    fn a_client_cannot_fill_the_memory_by_its_name() {
        let watch = Watch::new("meta");
        let client = watch.client("no session yet");
        watch.rename(&client, &"ä".repeat(60_000));
        watch.set_slow(Some(Duration::ZERO));
        watch.end(&watch.begin(1, "Create", Some(&client)), Duration::ZERO, &Ok(()));
        assert!(watch.slow_text().chars().count() < 400, "{}", watch.slow_text());
        assert!(watch.text(Detail::Summary).contains(&format!("meta \"{}\" ", "ä".repeat(255))));
    }

    #[test]
    fn what_is_slow_is_logged_with_who_and_where() {
        let watch = Watch::new("meta");
        watch.set_slow(Some(Duration::ZERO));
        let request =
            watch.begin(1, "Create", Some(&watch.client("job 5"))).about(0x2a, Carries::Nothing);
        watch.end(&request, Duration::ZERO, &Ok(()));
        let text = watch.slow_text();
        assert!(text.contains("meta.Create of \"job 5\" file 000000000000002a"), "{text}");
        let time = text.strip_prefix("at ").and_then(|rest| rest.split(' ').next()).unwrap();
        assert!(time.parse::<jiff::Timestamp>().is_ok() && time.len() == 24, "{text}");
        watch.set_slow(None);
        let request = watch.begin(1, "Create", None);
        watch.end(&request, Duration::ZERO, &Ok(()));
        assert_eq!(watch.slow_text(), text);
    }
}
