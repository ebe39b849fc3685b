//! A store in memory, and a port that brings commands to their end.

#![allow(dead_code, reason = "every test program uses a part of it")]

use bytes::Bytes;
use covey_iscsi::scsi::{
    Command, Completion, Config, Device, Input, Nexus, Step, TaskAttribute, Unit, Units,
};
use covey_iscsi::store::{Answer, Failure, Hold, Reply, Request, Store};
use covey_wire::{FileRange, Payload};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

/// Bytes in memory, of which those of whole pages that were discarded are not allocated.
pub struct Memory {
    pub state: Mutex<State>,
    bytes: AtomicU64,
}

#[derive(Default)]
pub struct State {
    pub data: Vec<u8>,
    pub allocated: Vec<bool>,
    /// What was saved last.
    pub saved: Option<String>,
    /// What was asked for, by name.
    pub log: Vec<&'static str>,
    /// What the next request ends with.
    pub failure: Option<Failure>,
    /// Syncs that have failed.
    pub losses: u64,
    /// Reads that may be lent are.
    pub lends: bool,
    /// Changes go on after their answer, until what they hold is taken from here.
    pub works_on: Option<Vec<Hold>>,
}

impl Memory {
    pub fn new(bytes: u64) -> Arc<Memory> {
        let state = State {
            data: vec![0; bytes as usize],
            allocated: vec![false; (bytes / PAGE) as usize],
            ..State::default()
        };
        Arc::new(Memory { state: Mutex::new(state), bytes: AtomicU64::new(bytes) })
    }

    pub fn grow(&self, bytes: u64) {
        let mut state = self.state.lock().unwrap();
        state.data.resize(bytes as usize, 0);
        state.allocated.resize((bytes / PAGE) as usize, false);
        self.bytes.store(bytes, Ordering::SeqCst);
    }

    pub fn fail_next(&self, failure: Failure) {
        self.state.lock().unwrap().failure = Some(failure);
    }

    /// What was asked for since the last question.
    pub fn log(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.state.lock().unwrap().log)
    }

    pub fn saved(&self) -> String {
        self.state.lock().unwrap().saved.clone().unwrap_or_default()
    }
}

impl State {
    fn put(&mut self, offset: u64, data: &[u8]) {
        self.data[offset as usize..][..data.len()].copy_from_slice(data);
        let pages = offset / PAGE..(offset + data.len() as u64).div_ceil(PAGE);
        pages.for_each(|page| self.allocated[page as usize] = true);
    }

    fn zero(&mut self, range: &Range<u64>) {
        self.data[range.start as usize..range.end as usize].fill(0);
    }

    fn answer(&mut self, request: Request) -> Reply {
        if let Some(failure) = self.failure.take() {
            let is_sync = matches!(request, Request::Flush | Request::Write { fua: true, .. });
            self.losses += u64::from(is_sync);
            return Reply::Failed(failure);
        }
        match request {
            Request::Read { offset, bytes, may_lend: true } if self.lends => {
                self.log.push("lend");
                let (file, length) = (Arc::new(()), bytes as usize);
                return Reply::Data(Payload::of_file(FileRange { file, offset, length }));
            }
            Request::Read { offset, bytes, .. } => {
                self.log.push("read");
                let data = &self.data[offset as usize..][..bytes as usize];
                return Reply::Data(Payload::from(data.to_vec()));
            }
            Request::Write { offset, data, fua, continues } => {
                self.log.push(match (fua, continues) {
                    (true, _) => "write fua",
                    (false, true) => "write on",
                    (false, false) => "write",
                });
                self.put(offset, &data.into_bytes());
            }
            Request::Flush => self.log.push("flush"),
            Request::Discard { range } => {
                self.log.push("discard");
                self.zero(&range);
                let whole = range.start.div_ceil(PAGE)..range.end / PAGE;
                whole.for_each(|page| self.allocated[page as usize] = false);
            }
            Request::Zero { range } => {
                self.log.push("zero");
                self.put(range.start, &vec![0; (range.end - range.start) as usize]);
            }
            Request::Fill { range, pattern } => {
                self.log.push("fill");
                let data: Vec<u8> = pattern
                    .iter()
                    .copied()
                    .cycle()
                    .take((range.end - range.start) as usize)
                    .collect();
                self.put(range.start, &data);
            }
            Request::Save { state } => {
                self.log.push("save");
                self.saved = Some(String::from_utf8(state.to_vec()).unwrap());
            }
            Request::Allocated { range } => {
                self.log.push("allocated");
                let ends = (range.start / PAGE..range.end.div_ceil(PAGE)).map(|page| {
                    (((page + 1) * PAGE).min(range.end), self.allocated[page as usize])
                });
                return Reply::Extents(ends.collect());
            }
        }
        Reply::Done
    }
}

impl Store for Memory {
    fn ask(&self, request: Request, hold: Hold) -> Answer {
        let mut state = self.state.lock().unwrap();
        if let (true, Some(working)) = (request.changes(), &mut state.works_on) {
            working.push(hold);
            return Answer::Later(Box::pin(std::future::pending()));
        }
        Answer::Now(state.answer(request))
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::SeqCst)
    }

    fn losses(&self) -> u64 {
        self.state.lock().unwrap().losses
    }
}

pub fn config() -> Config {
    Config {
        name: "disk".into(),
        serial: "0123456789abcdef".into(),
        target: "iqn.2026-01.example:disk".into(),
        block_bytes: 512,
        read_only: false,
        removable: false,
        write_cache: true,
        portal_groups: vec![1],
    }
}

/// A target with one unit, and what is behind it.
pub struct Bench {
    pub units: Units,
    pub store: Arc<Memory>,
}

impl Bench {
    pub fn new() -> Bench {
        Bench::with(config(), 1 << 20)
    }

    pub fn with(config: Config, bytes: u64) -> Bench {
        let store = Memory::new(bytes);
        let unit = Unit::new(config, store.clone(), "").unwrap();
        Bench { units: Units::of(Arc::new(unit)), store }
    }

    /// The same store under a unit that begins anew.
    pub fn restart(self) -> Bench {
        let saved = self.store.saved();
        let unit = Unit::new(config(), self.store.clone(), &saved).unwrap();
        Bench { units: Units::of(Arc::new(unit)), store: self.store }
    }

    /// Runs a command to its end.
    pub fn run(&self, nexus: &Nexus, cdb: &[u8], out: &[u8], data_in: u64) -> Completion {
        let (mut task, mut step) =
            self.units.start(0, nexus, command(cdb, out.len() as u64, data_in));
        loop {
            let input = match step {
                Step::Collect { bytes } => Input::Data(out[..bytes as usize].to_vec().into()),
                Step::Stream { from, to, block_bytes } => {
                    // A part that is no round number of anything but blocks.
                    let to = to.min(from + 129 * block_bytes);
                    Input::Data(out[from as usize..to as usize].to_vec().into())
                }
                Step::Store(request) => Input::Stored(wait(self.units.ask(&task, request))),
                Step::Turn => panic!("one command at a time has its turn at once"),
                Step::Abort(_) => Input::Aborted,
                Step::End(completion) => return completion,
            };
            step = self.units.next(&mut task, input);
        }
    }

    /// A command that ends well, and the data that it has.
    pub fn good(&self, nexus: &Nexus, cdb: &[u8], out: &[u8], data_in: u64) -> Bytes {
        let completion = self.run(nexus, cdb, out, data_in);
        assert_eq!(
            completion.status,
            0,
            "{cdb:02x?}: {completion:?} {:02x?}",
            &completion.sense[..]
        );
        completion.data_in.into_bytes()
    }

    /// A command that ends with CHECK CONDITION: sense key, and additional sense code with its qualifier.
    pub fn sense(&self, nexus: &Nexus, cdb: &[u8], out: &[u8], data_in: u64) -> (u8, u16) {
        let completion = self.run(nexus, cdb, out, data_in);
        assert_eq!(completion.status, 2, "{cdb:02x?}: {completion:?}");
        sense(&completion)
    }

    /// A nexus that has been told of everything so far.
    pub fn visitor(&self, number: u64) -> Nexus {
        let nexus = nexus(number);
        while self.run(&nexus, &[0; 6], &[], 0).status == 2 {}
        nexus
    }
}

pub fn sense(completion: &Completion) -> (u8, u16) {
    let sense = &completion.sense;
    (sense[2], u16::from(sense[12]) << 8 | u16::from(sense[13]))
}

pub fn command(cdb: &[u8], data_out: u64, data_in: u64) -> Command {
    let mut cdb = cdb.to_vec();
    cdb.resize(cdb.len().max(16), 0);
    Command { cdb: cdb.into(), attribute: TaskAttribute::Simple, data_out, data_in }
}

pub fn nexus(number: u64) -> Nexus {
    let initiator = format!("iqn.2026-01.example:client{number}").into();
    Nexus { number, initiator, isid: [0x80, 0, 0, 0, 0, number as u8], portal_group: 1 }
}

/// The answer of a store that never waits for long.
pub fn wait(answer: Answer) -> Reply {
    match answer {
        Answer::Now(reply) => reply,
        Answer::Later(mut later) => {
            match later.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(reply) => reply,
                Poll::Pending => panic!("nobody is there who would wake this"),
            }
        }
    }
}

const PAGE: u64 = 4096;
