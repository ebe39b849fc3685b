//! Appends of several clients to one log: none may be lost, torn or laid over another.

use super::{Role, Run, repeat, root};
use crate::sim::lab::Lab;
use covey_io::task;
use covey_stripe::client::{File, Fs};
use covey_stripe::ops::Id;
use covey_wire::Payload;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The log and what was acknowledged of it.
pub struct Log {
    pub id: Id,
    records: RefCell<Vec<Record>>,
    losses: RefCell<Vec<Instant>>,
    numbers: Cell<u64>,
}

struct Record {
    number: u64,
    client: usize,
    offset: u64,
    length: u64,
    began: Instant,
    ended: Instant,
    synced: Option<Instant>,
    is_forfeit: bool,
}

/// One who appends.
pub struct Appends {
    pub client: usize,
    pub log: Rc<Log>,
    pub left: Cell<u64>,
}

impl Log {
    pub fn new(id: Id) -> Rc<Log> {
        let (records, losses) = (RefCell::default(), RefCell::default());
        Rc::new(Log { id, records, losses, numbers: Cell::new(0) })
    }

    fn bytes(number: u64, length: u64) -> Vec<u8> {
        (0..length).map(|at| (number.wrapping_mul(37) + at * 11) as u8 | 1).collect()
    }

    fn is_certain(&self, record: &Record, asked: Instant) -> bool {
        let lost = |loss: &Instant| *loss >= record.began;
        record.ended <= asked
            && (record.synced.is_some_and(|at| at <= asked)
                || !self.losses.borrow().iter().any(lost))
    }

    /// Nobody has it open any more who could say that a loss of power has taken something.
    fn forfeit(&self, client: usize) {
        let losses = self.losses.borrow();
        for record in self.records.borrow_mut().iter_mut().filter(|one| one.client == client) {
            let in_doubt = losses.iter().any(|loss| *loss >= record.began);
            record.is_forfeit |= record.synced.is_none() && in_doubt;
        }
    }

    /// What a read of the whole log must hold.
    fn check(&self, content: &[u8], asked: Instant) -> Result<(), String> {
        for record in self.records.borrow().iter().filter(|one| self.is_certain(one, asked)) {
            let range = record.offset as usize..(record.offset + record.length) as usize;
            let wanted = Log::bytes(record.number, record.length);
            if content.get(range) != Some(&wanted[..]) {
                return Err(format!(
                    "append #{} of client{} is not whole at {}+{}, the log has {} bytes",
                    record.number,
                    record.client,
                    record.offset,
                    record.length,
                    content.len()
                ));
            }
        }
        Ok(())
    }

    /// An append was acknowledged. One that power was lost in the middle of may have been answered before,
    /// and its place given to another since: its next fsync has to tell.
    fn took(&self, record: Record) -> Result<(), String> {
        let clash = {
            let (records, now) = (self.records.borrow(), task::now());
            let is_certain = self.is_certain(&record, now);
            let overlaps = |other: &&Record| {
                is_certain
                    && self.is_certain(other, now)
                    && other.offset < record.offset + record.length
                    && record.offset < other.offset + other.length
            };
            records.iter().find(overlaps).map(|other| other.number)
        };
        if let Some(other) = clash {
            return Err(format!("append #{} lies over append #{other}", record.number));
        }
        self.records.borrow_mut().push(record);
        Ok(())
    }
}

impl Role for Appends {
    fn run(self: Rc<Self>, lab: Rc<Lab>, fs: Fs) -> Run {
        Box::pin(async move {
            let file = loop {
                let opened = lab.attempt("open log".into(), fs.open(&root(), self.log.id, 6)).await;
                if let (_, Some(file)) = opened {
                    break file;
                }
                lab.pause(Duration::from_millis(700)).await;
            };
            self.log.forfeit(self.client);
            let step = async || match lab.below(10) {
                0..7 => self.append(&lab, &file).await,
                7 => self.fsync(&lab, &file).await,
                _ => self.read(&lab, &file).await,
            };
            repeat(&lab, &self.left, Duration::from_millis(700), step).await;
        })
    }

    fn is_done(&self) -> bool {
        self.left.get() == 0
    }

    fn power_lost(&self, _: bool) {
        self.log.losses.borrow_mut().push(task::now());
    }

    fn settle(self: Rc<Self>, lab: Rc<Lab>, fs: Fs) -> Run {
        Box::pin(async move {
            let opened = lab.attempt("open log".into(), fs.open(&root(), self.log.id, 6)).await;
            if let (_, Some(file)) = opened {
                self.read(&lab, &file).await;
                // Nobody is in the middle of an append any more: a new one must not wait for any.
                self.append(&lab, &file).await;
            }
        })
    }
}

impl Appends {
    async fn append(&self, lab: &Lab, file: &File) {
        let number = self.log.numbers.get();
        self.log.numbers.set(number + 1);
        let length = 1 + lab.below(if lab.chance(900) { 300 } else { 9000 });
        let data = Payload::from(Log::bytes(number, length));
        let what = format!("append #{number} of {length}");
        if let (span, Some(offset)) = lab.attempt(what.clone(), file.append(data)).await {
            let client = self.client;
            let (began, ended) = (span.began, span.ended);
            let (synced, is_forfeit) = (None, false);
            let record =
                Record { number, client, offset, length, began, ended, synced, is_forfeit };
            lab.check(&what, self.log.took(record));
        }
    }

    async fn read(&self, lab: &Lab, file: &File) {
        const ALL: usize = 1 << 20;
        let what = "read log".to_owned();
        if let (span, Some(read)) = lab.attempt(what.clone(), file.read_at(0, ALL)).await {
            lab.check(&what, self.log.check(&read.into_bytes(), span.began));
        }
    }

    async fn fsync(&self, lab: &Lab, file: &File) {
        let (span, synced) = lab.attempt("fsync log".into(), file.fsync()).await;
        if synced.is_none() {
            return self.log.forfeit(self.client);
        }
        for record in self.log.records.borrow_mut().iter_mut() {
            if record.client == self.client && record.ended <= span.began && !record.is_forfeit {
                record.synced.get_or_insert(span.ended);
            }
        }
    }
}
