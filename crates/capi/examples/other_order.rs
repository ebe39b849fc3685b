//! Two engines over TCP, one of them on a machine of the other byte order, or on a processor that is emulated: numbers that
//! one side writes are read by the other, in messages and in registered memory.
//!
//! ```text
//! other_order qemu-s390x-static -L /usr/s390x-linux-gnu PATH/other_order     this side, and what it starts
//! other_order --meet 127.0.0.1:4000                                        what that does
//! ```
//!
//! `scripts/big-endian` builds both and runs this.

use covey_io::os::own::Own;
use covey_io::os::packets::{Options, Tcp};
use covey_layout::{ByteOrder, Element, Layout, Member, Op};
use covey_uzura::{
    Completion, Config, Engine, Fault, Form, Key, Local, Remote, Rights, Source, Started, Tag,
};
use covey_wire::{Memory, Peer, Span};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

type Failure = Box<dyn std::error::Error>;

const OTHER: Peer = Peer(0);
const COUNTS: [usize; 3] = [3, 400, 60_000];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.split_first() {
        Some((first, [address])) if first == "--meet" => meet(address),
        Some((program, rest)) => begin(program, rest),
        None => Err("which program is the other side? See the head of the source".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{:?}: {error}", ByteOrder::NATIVE);
            ExitCode::FAILURE
        }
    }
}

/// Listens, starts the other side, and does half of the script.
fn begin(program: &str, arguments: &[String]) -> Result<(), Failure> {
    let mut tcp = Tcp::new(Options::default())?;
    let address = tcp.listen()?;
    let mut other = Command::new(program);
    let mut other = other.args(arguments).args(["--meet", &address.to_string()]).spawn()?;
    let done = Side::new(tcp, 0).and_then(|mut side| side.script());
    if done.is_err() {
        other.kill()?;
    }
    let ended = other.wait()?;
    done?;
    if ended.success() { Ok(()) } else { Err(format!("the other side: {ended}").into()) }
}

fn meet(address: &str) -> Result<(), Failure> {
    let mut tcp = Tcp::new(Options::default())?;
    tcp.connect(address.parse()?)?;
    Side::new(tcp, 1)?.script()
}

/// One side: both do the same script.
struct Side {
    engine: Engine<Tcp, Own>,
    me: usize,
    checked: usize,
}

impl Side {
    fn new(tcp: Tcp, me: usize) -> Result<Side, Failure> {
        let engine = Engine::new(tcp, Own::default(), Config::default());
        let mut side = Side { engine, me, checked: 0 };
        side.until(|engine| engine.is_alive(OTHER).then_some(()))?;
        Ok(side)
    }

    fn script(&mut self) -> Result<(), Failure> {
        for count in COUNTS {
            for from in [0, 1] {
                self.messages(from, count)?;
                self.memory(from, count)?;
            }
        }
        self.compare(0)?;
        self.compare(1)?;
        println!(
            "{:?}-endian: {} values were what the other side wrote",
            ByteOrder::NATIVE,
            self.checked
        );
        Ok(())
    }

    /// Records of several types, as the one side has them, to a side that has them too, to one that has them in a
    /// row, and as bytes.
    fn messages(&mut self, from: usize, count: usize) -> Result<(), Failure> {
        let record = self.engine.commit(&record(), count as u64)?;
        let memory = self.engine.memory().block(count * RECORD_BYTES);
        let row = self.engine.memory().block(count * PACKED_BYTES);
        if self.me == from {
            self.write(memory, &records(count))?;
            for _ in 0..2 {
                self.send(Local::laid(memory, record))?;
            }
            self.write(row, &noise(count))?;
            return self.send(Local::bytes(row));
        }
        self.receive(Local::laid(memory, record))?;
        let found = self.read(memory)?;
        self.check("records", count, same_records(&found, &records(count)))?;
        self.receive(Local::bytes(row))?;
        let found = self.read(row)?;
        self.check("records in a row", count, found == packed(&records(count)))?;
        self.receive(Local::bytes(row))?;
        let found = self.read(row)?;
        self.check("bytes", count, found == noise(count))
    }

    /// One side reaches into memory of the other, which knows nothing of the layout.
    fn memory(&mut self, origin: usize, count: usize) -> Result<(), Failure> {
        let numbers = |factor: u64| {
            (0..count as u64).map(|at| number(at) * factor).flat_map(native).collect::<Vec<u8>>()
        };
        let bytes = count * 8;
        if self.me != origin {
            let memory = self.engine.memory().block(2 * bytes);
            let key = self.engine.register(memory, Rights::ALL)?;
            self.tell(key.0)?;
            self.barrier()?;
            let found = self.read(memory)?;
            let every_other: Vec<u8> =
                found.chunks(16).flat_map(|pair| pair[..8].to_vec()).collect();
            return self.check("numbers that were put and added", count, every_other == numbers(3));
        }
        let key = Key(self.hear()?);
        let every_other = Layout::vector(count as u64, 1, 2, &Layout::element(Element::U64))?;
        let form = Some(self.engine.commit(&every_other, 1)?);
        let remote = Remote { peer: OTHER, key, at: 0, form };
        let [ours, theirs] = [0, 1].map(|_| self.engine.memory().block(bytes));
        let local = Local::bytes(ours);
        self.write(ours, &numbers(1))?;
        let begun = self.engine.put(local, remote, 0);
        self.end(begun)?;
        let begun = self.engine.accumulate(Op::Sum, local, remote, 0);
        self.end(begun)?;
        let begun = self.engine.fetch(Op::Sum, local, Local::bytes(theirs), remote, 0);
        self.end(begun)?;
        let found = self.read(theirs)?;
        self.check("numbers that were fetched", count, found == numbers(2))?;
        let begun = self.engine.get(Local::bytes(theirs), remote, 0);
        self.end(begun)?;
        let found = self.read(theirs)?;
        self.check("numbers that were got", count, found == numbers(3))?;
        self.barrier()
    }

    fn compare(&mut self, origin: usize) -> Result<(), Failure> {
        if self.me != origin {
            let memory = self.engine.memory().block(8);
            self.write(memory, &native(7))?;
            let key = self.engine.register(memory, Rights::ATOMIC)?;
            self.tell(key.0)?;
            self.barrier()?;
            let found = self.read(memory)?;
            return self.check("a number that was replaced", 1, found == native(8));
        }
        let key = Key(self.hear()?);
        let form = Some(self.number_form()?);
        let remote = Remote { peer: OTHER, key, at: 0, form };
        let [expected, new, before] = [0, 1, 2].map(|_| self.engine.memory().block(8));
        self.write(expected, &native(7))?;
        self.write(new, &native(8))?;
        for there in [7, 8] {
            let [expected, new, before] = [expected, new, before].map(Local::bytes);
            let begun = self.engine.compare_swap(expected, new, before, remote, 0);
            self.end(begun)?;
            let found = self.read(before.span)?;
            self.check("a number that was compared", 1, found == native(there))?;
        }
        self.barrier()
    }

    fn number_form(&mut self) -> Result<Form, Failure> {
        Ok(self.engine.commit(&Layout::element(Element::U64), 1)?)
    }

    /// Sends a number, and receives one.
    fn tell(&mut self, number: u64) -> Result<(), Failure> {
        let (form, span) = (self.number_form()?, self.engine.memory().block(8));
        self.write(span, &native(number))?;
        self.send(Local::laid(span, form))
    }

    fn hear(&mut self) -> Result<u64, Failure> {
        let span = self.engine.memory().block(8);
        self.receive(Local::bytes(span))?;
        let bytes = self.read(span)?;
        Ok((0..64).map(|bit| 1 << bit).filter(|bit| has_bit(&bytes, *bit)).sum())
    }

    fn barrier(&mut self) -> Result<(), Failure> {
        let nothing = Local::bytes(self.engine.memory().block(0));
        self.send(nothing)?;
        self.receive(nothing)
    }

    fn send(&mut self, what: Local) -> Result<(), Failure> {
        let begun = self.engine.send(OTHER, 1, what, 0);
        self.end(begun).map(drop)
    }

    fn receive(&mut self, into: Local) -> Result<(), Failure> {
        let begun = self.engine.receive(Source::From(OTHER), Tag::exact(1), into, 0);
        self.end(begun).map(drop)
    }

    fn end(&mut self, begun: Result<Started, Fault>) -> Result<Completion, Failure> {
        let done = match begun? {
            Started::Done(done) => done,
            Started::Pending(_) => self.until(Engine::completion)?,
        };
        done.result?;
        Ok(done)
    }

    fn until<R>(
        &mut self,
        mut found: impl FnMut(&mut Engine<Tcp, Own>) -> Option<R>,
    ) -> Result<R, Failure> {
        let begun = Instant::now();
        loop {
            self.engine.poll();
            if let Some(found) = found(&mut self.engine) {
                return Ok(found);
            }
            if begun.elapsed() > PATIENCE {
                return Err("the other side does not answer".into());
            }
            std::thread::yield_now();
        }
    }

    fn write(&mut self, span: Span, bytes: &[u8]) -> Result<(), Failure> {
        Ok(self.engine.memory().write(span, |into| into.copy_from_slice(bytes))?)
    }

    fn read(&mut self, span: Span) -> Result<Vec<u8>, Failure> {
        Ok(self.engine.memory().read(span, <[u8]>::to_vec)?)
    }

    fn check(&mut self, what: &str, count: usize, is_right: bool) -> Result<(), Failure> {
        self.checked += count;
        if is_right {
            Ok(())
        } else {
            Err(format!("{what}: {count} are not what was written").into())
        }
    }
}

/// A number of two bytes, one of eight, three bytes, and gaps.
fn record() -> Layout {
    let member = |count, displacement, element| {
        let layout = Layout::element(element);
        Member { count, displacement, layout }
    };
    let members =
        [member(1, 0, Element::I16), member(1, 8, Element::F64), member(3, 16, Element::Byte)];
    let members = Layout::structure(&members).expect("it is small");
    Layout::resized(0, RECORD_BYTES as i64, &members).expect("it is small")
}

/// Records as this machine has them.
fn records(count: usize) -> Vec<u8> {
    let mut all = vec![0; count * RECORD_BYTES];
    for (at, record) in all.chunks_mut(RECORD_BYTES).enumerate() {
        record[..2].copy_from_slice(&native(number(at as u64))[end_of(2)]);
        record[8..16].copy_from_slice(&native((at as f64 * 1.5).to_bits()));
        record[16..19].copy_from_slice(b"abc");
    }
    all
}

fn packed(records: &[u8]) -> Vec<u8> {
    let parts = |record: &[u8]| [&record[..2], &record[8..19]].concat();
    records.chunks(RECORD_BYTES).flat_map(parts).collect()
}

fn same_records(a: &[u8], b: &[u8]) -> bool {
    packed(a) == packed(b)
}

/// Bytes that are the same on every machine.
fn noise(count: usize) -> Vec<u8> {
    (0..count * PACKED_BYTES).map(|at| (at * 31 % 251) as u8).collect()
}

fn number(at: u64) -> u64 {
    0x0102_0304_0506 + 77 * at
}

/// A number as it lies in this machine's memory.
#[expect(clippy::host_endian_bytes, reason = "this is about the bytes of this machine's memory")]
fn native(number: u64) -> [u8; 8] {
    number.to_ne_bytes()
}

fn has_bit(bytes: &[u8], bit: u64) -> bool {
    bytes.iter().zip(native(bit)).any(|(byte, mask)| byte & mask != 0)
}

/// Where the lowest bytes of a number lie.
fn end_of(bytes: usize) -> std::ops::Range<usize> {
    match ByteOrder::NATIVE {
        ByteOrder::Little => 0..bytes,
        ByteOrder::Big => 8 - bytes..8,
    }
}

const RECORD_BYTES: usize = 24;
const PACKED_BYTES: usize = 13;
const PATIENCE: Duration = Duration::from_secs(60);
