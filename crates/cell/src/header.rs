//! The header of a mapped file: one line of memory that says how large the file is and where its bytes lie, so that a worker
//! reads and writes it without any message.
//!
//! ```text
//!   0  generation u32  even: the line holds; odd: the host is changing it
//!   4  mapping u32     0: the bytes lie in the shared memory itself; n: in the n-th file that the host has handed over;
//!                      0xffffffff: they lie where the worker cannot reach them, and are used by messages
//!   8  size u64        bytes of the file
//!   16 pointer u64     where byte 0 lies in that memory
//!   24 capacity u64    bytes that lie there
//!   32 epoch u32       which file uses this line
//! ```
//!
//! A worker that copies says so in its *access word* and looks at the generation after it; the host that moves or shortens a
//! file makes the generation odd and then waits until no access word names the file. One of the two always sees the
//! other, so nothing is copied from or to memory that is no longer the file's. A file grows only at the host: a worker that
//! would write behind the end asks by message, so no two workers ever disagree about the size.

use crate::memory::Shared;
use crate::plan::{ACCESS_AT, HEADERS, LINE, box_at, header_at};
use covey_ninep::tree::{Errno, Result};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Where the bytes of a file lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// 0 for the shared memory, else the number of a file that the host hands over.
    pub mapping: u32,
    /// Of byte 0, in that memory.
    pub pointer: u64,
    /// Bytes there.
    pub capacity: u64,
}

impl Place {
    /// The mapping of a file whose bytes lie where no worker reaches them for now: it is used by messages.
    pub const NOWHERE: u32 = u32::MAX;
}

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// Bytes of the file.
    pub size: u64,
    /// Where they lie.
    pub place: Place,
}

/// How a worker finds a line again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticket {
    /// Which line.
    pub index: u32,
    /// Which file's it was.
    pub epoch: u32,
}

impl Ticket {
    /// The answer to the call that maps a file: index, epoch, mapping.
    pub fn encode(self, mapping: u32) -> Vec<u8> {
        [self.index, self.epoch, mapping].iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// The ticket and the mapping of such an answer.
    pub fn decode(bytes: &[u8]) -> Option<(Ticket, u32)> {
        let (words, rest) = bytes.as_chunks::<4>();
        let &[index, epoch, mapping] = words else { return None };
        let [index, epoch, mapping] = [index, epoch, mapping].map(u32::from_le_bytes);
        (rest.is_empty() && index < HEADERS).then_some((Ticket { index, epoch }, mapping))
    }
}

/// A worker's right to copy, for as long as it is held: the host changes nothing.
#[derive(Debug)]
pub struct Access<'a, S: Shared> {
    memory: &'a S,
    worker: u32,
    /// What the line says meanwhile.
    pub view: View,
}

impl<S: Shared> Drop for Access<'_, S> {
    #[inline]
    fn drop(&mut self) {
        self.memory.store(box_at(self.worker) + ACCESS_AT, 0);
    }
}

/// Lets a worker copy; `None` while the host changes the line, or when the line is another file's by now.
#[inline]
pub fn enter<S: Shared>(memory: &S, worker: u32, ticket: Ticket) -> Option<Access<'_, S>> {
    let at = header_at(ticket.index);
    memory.store(box_at(worker) + ACCESS_AT, ticket.index + 1);
    memory.fence_light();
    let generation = memory.load(at + GENERATION);
    let place = Place {
        mapping: memory.load(at + MAPPING),
        pointer: memory.load_wide(at + POINTER),
        capacity: memory.load_wide(at + CAPACITY),
    };
    // Never more than lies there, whatever the line says.
    let size = memory.load_wide(at + SIZE).min(place.capacity);
    let access = Access { memory, worker, view: View { size, place } };
    let holds = generation.is_multiple_of(2) && memory.load(at + EPOCH) == ticket.epoch;
    holds.then_some(access)
}

/// What a line says now, for what needs no right to copy: it may be wrong at once.
#[inline]
pub fn glance(memory: &impl Shared, ticket: Ticket) -> Place {
    let at = header_at(ticket.index);
    Place {
        mapping: memory.load(at + MAPPING),
        pointer: memory.load_wide(at + POINTER),
        capacity: memory.load_wide(at + CAPACITY),
    }
}

/// The host's lines.
pub struct Headers<S> {
    memory: Rc<S>,
    workers: u32,
    free: RefCell<Vec<u32>>,
    /// Workers that were waited for in vain, and have copied the same ever since.
    stuck: RefCell<BTreeSet<u32>>,
    /// Lets time pass while a worker copies; false when that has taken too long.
    wait: Box<dyn Fn(u32) -> bool>,
}

impl<S: Shared> Headers<S> {
    /// All of them free. `wait` is called with a count while a worker copies, and says whether to go on waiting.
    pub fn new(memory: Rc<S>, workers: u32, wait: impl Fn(u32) -> bool + 'static) -> Headers<S> {
        let free = RefCell::new((0..HEADERS).rev().collect());
        let stuck = RefCell::default();
        Headers { memory, workers, free, stuck, wait: Box::new(wait) }
    }

    /// A line for a file; `None` when all are in use, and the file is used by messages only.
    pub fn publish(&self, view: View) -> Option<Ticket> {
        let index = self.free.borrow_mut().pop()?;
        let epoch = self.memory.load(header_at(index) + EPOCH).wrapping_add(1);
        self.memory.store(header_at(index) + EPOCH, epoch);
        self.put(index, view);
        Some(Ticket { index, epoch })
    }

    /// Changes a file and its line while no worker copies. EBUSY, with nothing changed, when a worker copied for too long.
    pub fn change(&self, ticket: Ticket, act: impl FnOnce() -> Result<View>) -> Result<()> {
        let at = header_at(ticket.index);
        let generation = self.memory.load(at + GENERATION) | 1;
        self.memory.store(at + GENERATION, generation);
        self.memory.fence_heavy();
        let result = self.quiet(ticket.index).and_then(|()| act());
        if let Ok(view) = &result {
            self.put(ticket.index, *view);
        }
        self.memory.store(at + GENERATION, generation.wrapping_add(1));
        result.map(drop)
    }

    /// The file is gone: its line is another's next.
    pub fn retire(&self, ticket: Ticket) {
        let gone = View { size: 0, place: Place::default() };
        // A line that a worker does not let go of is not used again.
        if self.change(ticket, || Ok(gone)).is_ok() {
            let at = header_at(ticket.index) + EPOCH;
            self.memory.store(at, ticket.epoch.wrapping_add(1));
            self.free.borrow_mut().push(ticket.index);
        }
    }

    /// A worker is gone: it copies nothing any more.
    pub fn bury(&self, worker: u32) {
        self.memory.store(box_at(worker) + ACCESS_AT, 0);
    }

    /// Waits until nobody copies from the file. For a worker that does not stop, once: the others would wait as well.
    fn quiet(&self, index: u32) -> Result<()> {
        for worker in 0..self.workers {
            let copies = || self.memory.load(box_at(worker) + ACCESS_AT) == index + 1;
            if !copies() {
                self.stuck.borrow_mut().remove(&worker);
                continue;
            }
            let is_stuck = self.stuck.borrow().contains(&worker);
            let mut rounds = 0;
            while copies() {
                if is_stuck || !(self.wait)(rounds) {
                    self.stuck.borrow_mut().insert(worker);
                    let what = format!("worker {worker} does not stop copying from the file");
                    return Err(Errno::because(Errno::EBUSY, what));
                }
                rounds += 1;
            }
        }
        Ok(())
    }

    fn put(&self, index: u32, view: View) {
        let (memory, at) = (&self.memory, header_at(index));
        memory.store(at + MAPPING, view.place.mapping);
        memory.store_wide(at + SIZE, view.size);
        memory.store_wide(at + POINTER, view.place.pointer);
        memory.store_wide(at + CAPACITY, view.place.capacity);
    }
}

const GENERATION: u64 = 0;
const MAPPING: u64 = 4;
const SIZE: u64 = 8;
const POINTER: u64 = 16;
const CAPACITY: u64 = 24;
const EPOCH: u64 = 32;
const _: () = assert!(EPOCH + 4 <= LINE);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Plan, memory::Flat};
    use std::cell::Cell;

    fn headers(patience: u32) -> (Rc<Flat>, Headers<Flat>) {
        let memory = Rc::new(Flat::new(Plan { workers: 2, heap_bytes: 0 }.bytes()));
        (memory.clone(), Headers::new(memory, 2, move |rounds| rounds < patience))
    }

    fn view(size: u64) -> View {
        View { size, place: Place { mapping: 0, pointer: 4096, capacity: 100 } }
    }

    #[test]
    fn a_worker_sees_what_the_host_says_and_never_more_than_lies_there() {
        let (memory, headers) = headers(3);
        let ticket = headers.publish(view(70)).unwrap();
        assert_eq!(enter(&*memory, 1, ticket).unwrap().view, view(70));
        headers.change(ticket, || Ok(view(7000))).unwrap();
        assert_eq!(enter(&*memory, 1, ticket).unwrap().view.size, 100);
    }

    #[test]
    fn nothing_changes_under_a_worker_that_copies_and_nobody_waits_for_ever() {
        let (memory, headers) = headers(3);
        let ticket = headers.publish(view(70)).unwrap();
        let access = enter(&*memory, 0, ticket).unwrap();
        let acted = Cell::new(false);
        let act = || {
            acted.set(true);
            Ok(view(1))
        };
        assert_eq!(headers.change(ticket, act).unwrap_err().code, Errno::EBUSY);
        assert!(!acted.get());
        assert_eq!(enter(&*memory, 1, ticket).unwrap().view.size, 70);
        drop(access);
        headers.change(ticket, act).unwrap();
        assert_eq!(enter(&*memory, 1, ticket).unwrap().view.size, 1);
    }

    #[test]
    fn a_worker_that_never_lets_go_is_waited_for_once() {
        let memory = Rc::new(Flat::new(Plan { workers: 2, heap_bytes: 0 }.bytes()));
        let waited = Rc::new(Cell::new(0));
        let count = waited.clone();
        let headers = Headers::new(memory.clone(), 2, move |rounds| {
            count.set(count.get() + 1);
            rounds < 100
        });
        let ticket = headers.publish(view(70)).unwrap();
        let access = enter(&*memory, 0, ticket).unwrap();
        for _ in 0..10 {
            let error = headers.change(ticket, || Ok(view(1))).unwrap_err();
            assert_eq!(error.code, Errno::EBUSY);
        }
        assert_eq!(waited.get(), 101);
        // One that has let go has its time again.
        drop(access);
        headers.change(ticket, || Ok(view(2))).unwrap();
        let _again = enter(&*memory, 0, ticket).unwrap();
        headers.change(ticket, || Ok(view(3))).unwrap_err();
        assert_eq!(waited.get(), 202);
    }

    #[test]
    fn nobody_enters_while_the_host_changes_the_line() {
        let (memory, headers) = headers(3);
        let ticket = headers.publish(view(70)).unwrap();
        headers
            .change(ticket, || {
                assert!(enter(&*memory, 0, ticket).is_none());
                Ok(view(60))
            })
            .unwrap();
        assert_eq!(memory.load(box_at(0) + ACCESS_AT), 0);
    }

    #[test]
    fn a_line_that_another_file_uses_is_not_mistaken_for_the_old_one() {
        let (memory, headers) = headers(3);
        let old = headers.publish(view(70)).unwrap();
        headers.retire(old);
        assert!(enter(&*memory, 0, old).is_none());
        let new = headers.publish(view(5)).unwrap();
        assert_eq!(new.index, old.index);
        assert!(enter(&*memory, 0, old).is_none());
        assert_eq!(enter(&*memory, 0, new).unwrap().view.size, 5);
    }

    #[test]
    fn a_worker_that_died_while_it_copied_holds_nobody_up() {
        let (memory, headers) = headers(3);
        let ticket = headers.publish(view(70)).unwrap();
        std::mem::forget(enter(&*memory, 0, ticket).unwrap());
        headers.bury(0);
        headers.change(ticket, || Ok(view(1))).unwrap();
    }

    #[test]
    fn a_ticket_comes_back_as_it_went() {
        let ticket = Ticket { index: 7, epoch: 9 };
        assert_eq!(Ticket::decode(&ticket.encode(3)), Some((ticket, 3)));
        assert_eq!(Ticket::decode(&ticket.encode(3)[1..]), None);
        assert_eq!(Ticket::decode(&Ticket { index: HEADERS, epoch: 0 }.encode(0)), None);
    }
}
