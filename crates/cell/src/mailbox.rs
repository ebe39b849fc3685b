//! The message box: how 9P messages pass between a worker and its host.
//!
//! A box has 16 slots of memory and two rings of 16 words of 32 bits. The worker writes a message into a free slot and then
//! a *doorbell word* into the ring of requests: which slot, how many bytes, and in which round of the ring it was
//! written. The host answers in the same slot, with a word in the ring of replies. A word is never cleared: its round
//! says whether it is new. So each side polls one line of memory, and no counter is shared.
//!
//! ```text
//!   word   31..28 slot   27..18 round   17..0 bytes of the message; 0: the slot is free and has no message
//! ```
//!
//! What always holds:
//!
//! - Each slot has one owner at a time. A worker posts into slots that are free; the host answers a slot once.
//! - What the other side writes is checked before it is used: a word that names a slot which is not due, or a length that is
//!   not that of the message, is [`Broken`], and the box is used no more.
//! - Who is about to sleep says so in a word and then looks once more; who has posted looks at that word after it. So one
//!   of the two sees the other ([`WorkerBox::prepare_sleep`]).
//! - A word that somebody else has overwritten may never be seen by whom it was for. So both sides look from time to time
//!   whether the words that they have stored are still there; if not, the box is [`Broken`].

use crate::memory::Shared;
use crate::plan::{
    HOST_SLEEPS_AT, REPLIES_AT, REQUESTS_AT, SLOT_BYTES, SLOTS, WORKER_SLEEPS_AT, box_at, slot_at,
};
use std::fmt;
use std::rc::Rc;

/// Why nothing was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// All slots are in use: a reply comes first.
    Full,
    /// The message has no length field of its own length, or is longer than a slot.
    NoMessage,
}

/// What the other side has written is no use of a box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken(pub String);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "message box is broken: {}", self.0)
    }
}

impl std::error::Error for Broken {}

/// Whether the other side is to be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a side that sleeps is woken by its bell only"]
pub enum Wake {
    /// It polls.
    No,
    /// It sleeps: ring its bell.
    Ring,
}

/// One ring of doorbell words, as its writer or its reader sees it.
#[derive(Clone, Copy, Debug)]
struct Ring {
    at: u64,
    count: u32,
}

/// The ring that a side writes, and what it has stored there.
#[derive(Debug)]
struct Written {
    ring: Ring,
    words: [u32; SLOTS],
}

/// A doorbell word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Word {
    slot: usize,
    bytes: u32,
}

impl Ring {
    fn place(self) -> u64 {
        self.at + u64::from(self.count) % SLOTS as u64 * 4
    }

    /// Never what the place held a round before, and not 0 in the first one.
    fn round(self) -> u32 {
        (self.count / SLOTS as u32).wrapping_add(1) & ROUND_MAX
    }

    fn peek(self, memory: &impl Shared) -> Option<Word> {
        let word = memory.load(self.place());
        let is_new = word >> 18 & ROUND_MAX == self.round();
        is_new.then_some(Word { slot: (word >> 28) as usize, bytes: word & BYTES_MAX })
    }
}

impl Written {
    fn new(ring: Ring) -> Written {
        Written { ring, words: [0; SLOTS] }
    }

    #[inline]
    fn put(&mut self, memory: &impl Shared, word: Word) {
        let ring = &mut self.ring;
        let word = (word.slot as u32) << 28 | ring.round() << 18 | word.bytes;
        self.words[ring.count as usize % SLOTS] = word;
        memory.store(ring.place(), word);
        ring.count = ring.count.wrapping_add(1);
    }

    /// That all words are there as they were stored.
    fn check(&self, memory: &impl Shared) -> Result<(), Broken> {
        let places = (self.ring.at..).step_by(4);
        if places.zip(self.words).all(|(place, word)| memory.load(place) == word) {
            return Ok(());
        }
        Err(Broken("a word in it is not the one that was stored there".into()))
    }
}

const ROUND_MAX: u32 = 0x3ff;
const BYTES_MAX: u32 = 0x3_ffff;

/// The worker's end.
#[derive(Debug)]
pub struct WorkerBox<S> {
    memory: Rc<S>,
    worker: u32,
    requests: Written,
    replies: Ring,
    /// A bit for each slot that is in use.
    used: u16,
}

impl<S: Shared> WorkerBox<S> {
    /// The end of this worker, of a box that nobody has used.
    pub fn new(memory: Rc<S>, worker: u32) -> WorkerBox<S> {
        let (requests, replies) = rings(worker);
        WorkerBox { memory, worker, requests: Written::new(requests), replies, used: 0 }
    }

    /// Whether a message can be posted.
    pub fn has_room(&self) -> bool {
        self.used != u16::MAX
    }

    /// Messages that are not answered.
    pub fn in_flight(&self) -> u32 {
        self.used.count_ones()
    }

    /// Posts a message.
    pub fn post(&mut self, message: &[u8]) -> Result<Wake, Refused> {
        if message_bytes(message) != Some(message.len()) || message.len() as u64 > SLOT_BYTES {
            return Err(Refused::NoMessage);
        }
        let draft = self.draft().ok_or(Refused::Full)?;
        draft.write(0, message);
        Ok(draft.post(message.len() as u32))
    }

    /// A free slot, in which a message is put together; `None` when all are in use.
    #[inline]
    pub fn draft(&mut self) -> Option<Draft<'_, S>> {
        let slot = self.used.trailing_ones() as usize;
        (slot < SLOTS).then_some(Draft { mailbox: self, slot })
    }

    /// Whether a reply is there.
    pub fn has_news(&self) -> bool {
        self.replies.peek(&*self.memory).is_some()
    }

    /// Takes the next reply into `message`, which is empty where a slot came back without one; false when there is none.
    pub fn take(&mut self, message: &mut Vec<u8>) -> Result<bool, Broken> {
        self.take_slot(message).map(|slot| slot.is_some())
    }

    /// The same, and the slot that is free now.
    #[inline]
    pub fn take_slot(&mut self, message: &mut Vec<u8>) -> Result<Option<usize>, Broken> {
        let Some(word) = self.replies.peek(&*self.memory) else { return Ok(None) };
        if self.used & 1 << word.slot == 0 {
            return Err(Broken(format!("host answered slot {}, which is not in use", word.slot)));
        }
        match word.bytes {
            0 => message.clear(),
            _ => copy_out(&*self.memory, self.worker, word, message)?,
        }
        self.replies.count = self.replies.count.wrapping_add(1);
        self.used &= !(1 << word.slot);
        Ok(Some(word.slot))
    }

    /// Says that this side is about to sleep. False when there is news after all: then it does not. An error where a request
    /// is not as it was stored: the host does not see it.
    pub fn prepare_sleep(&self) -> Result<bool, Broken> {
        self.requests.check(&*self.memory)?;
        let sleeps = box_at(self.worker) + WORKER_SLEEPS_AT;
        Ok(prepare(&*self.memory, sleeps, || self.has_news()))
    }

    /// Polls again.
    pub fn woke(&self) {
        self.memory.store(box_at(self.worker) + WORKER_SLEEPS_AT, 0);
    }
}

/// A slot of a message that is not posted yet. Dropped, it is free.
#[derive(Debug)]
pub struct Draft<'a, S> {
    mailbox: &'a mut WorkerBox<S>,
    slot: usize,
}

impl<S: Shared> Draft<'_, S> {
    /// Where in the shared memory the message is put: [`SLOT_BYTES`] at most.
    #[inline]
    pub fn at(&self) -> u64 {
        slot_at(self.mailbox.worker, self.slot)
    }

    /// Which slot it is.
    #[inline]
    pub fn slot(&self) -> usize {
        self.slot
    }

    /// Puts a part of the message at an offset of it.
    #[inline]
    pub fn write(&self, offset: u64, part: &[u8]) {
        self.mailbox.memory.write(self.at() + offset, part);
    }

    /// Posts the message, which has so many bytes.
    #[inline]
    pub fn post(self, bytes: u32) -> Wake {
        let Draft { mailbox, slot } = self;
        mailbox.used |= 1 << slot;
        mailbox.requests.put(&*mailbox.memory, Word { slot, bytes });
        wake(&*mailbox.memory, box_at(mailbox.worker) + HOST_SLEEPS_AT)
    }
}

/// The host's end.
#[derive(Debug)]
pub struct HostBox<S> {
    memory: Rc<S>,
    worker: u32,
    requests: Ring,
    replies: Written,
    /// The tag of the request in each slot that is to be answered, and the tag that it flushes.
    due: [Option<Due>; SLOTS],
}

#[derive(Clone, Copy, Debug)]
struct Due {
    tag: u16,
    flushes: Option<u16>,
}

impl<S: Shared> HostBox<S> {
    /// The host's end of this worker's box, which nobody has used.
    pub fn new(memory: Rc<S>, worker: u32) -> HostBox<S> {
        let (requests, replies) = rings(worker);
        HostBox { memory, worker, requests, replies: Written::new(replies), due: [None; SLOTS] }
    }

    /// Whether a request is there.
    #[inline]
    pub fn has_news(&self) -> bool {
        self.requests.peek(&*self.memory).is_some()
    }

    /// Takes the next request into `message`; false when there is none.
    pub fn take(&mut self, message: &mut Vec<u8>) -> Result<bool, Broken> {
        let Some(word) = self.requests.peek(&*self.memory) else { return Ok(false) };
        if self.due[word.slot].is_some() {
            return Err(Broken(format!("worker posted slot {}, which is not free", word.slot)));
        }
        copy_out(&*self.memory, self.worker, word, message)?;
        let tag = field(message, TAG_AT);
        if self.due.iter().flatten().any(|due| due.tag == tag) {
            return Err(Broken(format!("worker posted tag {tag}, which is in use")));
        }
        let flushes = (message[TYPE_AT] == TFLUSH && message.len() >= OLDTAG_AT + 2)
            .then(|| field(message, OLDTAG_AT));
        self.due[word.slot] = Some(Due { tag, flushes });
        self.requests.count = self.requests.count.wrapping_add(1);
        Ok(true)
    }

    /// Answers the request with the tag of this reply. What a reply flushes is given back without an answer.
    pub fn reply(&mut self, message: &[u8]) -> Result<Wake, Refused> {
        if message_bytes(message) != Some(message.len()) || message.len() as u64 > SLOT_BYTES {
            return Err(Refused::NoMessage);
        }
        let tag = field(message, TAG_AT);
        let slot = self.slot_of(tag).ok_or(Refused::NoMessage)?;
        let flushed = self.due[slot].and_then(|due| due.flushes).filter(|oldtag| *oldtag != tag);
        if let Some(old) = flushed.and_then(|oldtag| self.slot_of(oldtag)) {
            self.due[old] = None;
            self.replies.put(&*self.memory, Word { slot: old, bytes: 0 });
        }
        self.due[slot] = None;
        self.memory.write(slot_at(self.worker, slot), message);
        self.replies.put(&*self.memory, Word { slot, bytes: message.len() as u32 });
        Ok(wake(&*self.memory, box_at(self.worker) + WORKER_SLEEPS_AT))
    }

    fn slot_of(&self, tag: u16) -> Option<usize> {
        self.due.iter().position(|due| due.is_some_and(|due| due.tag == tag))
    }

    /// That the words of the replies are as they were stored. The worker does not see those that are not.
    pub fn check(&self) -> Result<(), Broken> {
        self.replies.check(&*self.memory)
    }

    /// Says that this side is about to sleep. False when there is news after all: then it does not.
    pub fn prepare_sleep(&self) -> bool {
        let sleeps = box_at(self.worker) + HOST_SLEEPS_AT;
        prepare(&*self.memory, sleeps, || self.has_news())
    }

    /// Polls again.
    pub fn woke(&self) {
        self.memory.store(box_at(self.worker) + HOST_SLEEPS_AT, 0);
    }
}

/// What only a host that lies does.
#[cfg(test)]
impl<S: Shared> HostBox<S> {
    pub(crate) fn slot_of_tag(&self, tag: u16) -> Option<usize> {
        self.slot_of(tag)
    }

    /// Answers in a slot, whatever is due there, with a word that says so many bytes.
    pub(crate) fn forge(&mut self, slot: usize, message: &[u8], bytes: u32) {
        self.due[slot] = None;
        self.memory.write(slot_at(self.worker, slot), message);
        self.replies.put(&*self.memory, Word { slot, bytes });
    }
}

fn rings(worker: u32) -> (Ring, Ring) {
    let at = box_at(worker);
    (Ring { at: at + REQUESTS_AT, count: 0 }, Ring { at: at + REPLIES_AT, count: 0 })
}

fn wake(memory: &impl Shared, sleeps: u64) -> Wake {
    memory.fence();
    if memory.load(sleeps) == 0 { Wake::No } else { Wake::Ring }
}

fn prepare(memory: &impl Shared, sleeps: u64, has_news: impl Fn() -> bool) -> bool {
    memory.store(sleeps, 1);
    memory.fence();
    let may_sleep = !has_news();
    if !may_sleep {
        memory.store(sleeps, 0);
    }
    may_sleep
}

/// Copied first and checked then: the other side may go on writing.
fn copy_out(
    memory: &impl Shared,
    worker: u32,
    word: Word,
    message: &mut Vec<u8>,
) -> Result<(), Broken> {
    let bytes = word.bytes as usize;
    if !(MESSAGE_BYTES_MIN..=SLOT_BYTES as usize).contains(&bytes) {
        let what = format!("slot {} is said to hold {bytes} bytes", word.slot);
        return Err(Broken(what));
    }
    // What is there already is overwritten, so it need not be zeros.
    message.resize(bytes, 0);
    memory.read(slot_at(worker, word.slot), message);
    match message_bytes(message) {
        Some(said) if said == bytes => Ok(()),
        _ => Err(Broken(format!("slot {} holds no message of {bytes} bytes", word.slot))),
    }
}

/// What the message says of its length.
fn message_bytes(message: &[u8]) -> Option<usize> {
    let size = message.first_chunk::<4>().map(|size| u32::from_le_bytes(*size) as usize);
    size.filter(|size| *size >= MESSAGE_BYTES_MIN)
}

fn field(message: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([message[at], message[at + 1]])
}

const TYPE_AT: usize = 4;
const TAG_AT: usize = 5;
const OLDTAG_AT: usize = 7;
const MESSAGE_BYTES_MIN: usize = 7;
const TFLUSH: u8 = 108;

#[cfg(test)]
mod tests;
