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
use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::pin::Pin;
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
#[inline(always)]
pub fn enter<S: Shared>(memory: &S, worker: u32, ticket: Ticket) -> Option<Access<'_, S>> {
    let at = header_at(ticket.index);
    memory.store(box_at(worker) + ACCESS_AT, ticket.index + 1);
    memory.fence_light();
    let generation = memory.load(at + GENERATION);
    let access = Access { memory, worker, view: glance(memory, ticket) };
    let holds = generation.is_multiple_of(2) && memory.load(at + EPOCH) == ticket.epoch;
    holds.then_some(access)
}

/// What a line says now, for what needs no right to copy: it may be wrong at once.
#[inline(always)]
pub fn glance(memory: &impl Shared, ticket: Ticket) -> View {
    let at = header_at(ticket.index);
    let place = Place {
        mapping: memory.load(at + MAPPING),
        pointer: memory.load_wide(at + POINTER),
        capacity: memory.load_wide(at + CAPACITY),
    };
    // Never more than lies there, whatever the line says.
    View { size: memory.load_wide(at + SIZE).min(place.capacity), place }
}

/// What becomes of the time while a worker copies.
pub enum Pause {
    /// It has passed: look again.
    Passed,
    /// It passes until this is done. Others are served meanwhile.
    Passes(Pin<Box<dyn Future<Output = ()>>>),
    /// Too much of it has passed.
    Over,
}

/// The host's lines.
pub struct Headers<S> {
    memory: Rc<S>,
    workers: u32,
    free: RefCell<Vec<u32>>,
    /// Workers that were waited for in vain, and the access word that each has had ever since.
    stuck: RefCell<BTreeMap<u32, u32>>,
    /// Lines of files that are gone, from which a worker still copied, and what is to be kept until it has.
    retiring: RefCell<Vec<(Ticket, Box<dyn Any>)>>,
    /// Lets time pass while a worker copies, as often as the count says.
    wait: Box<dyn Fn(u32) -> Pause>,
}

impl<S: Shared> Headers<S> {
    /// All of them free. `wait` is called with a count while a worker copies.
    pub fn new(memory: Rc<S>, workers: u32, wait: impl Fn(u32) -> Pause + 'static) -> Headers<S> {
        let free = RefCell::new((0..HEADERS).rev().collect());
        let (stuck, retiring) = Default::default();
        Headers { memory, workers, free, stuck, retiring, wait: Box::new(wait) }
    }

    /// A line for a file; `None` when all are in use, and the file is used by messages only.
    pub fn publish(&self, view: View) -> Option<Ticket> {
        self.sweep();
        let index = self.free.borrow_mut().pop()?;
        let epoch = self.memory.load(header_at(index) + EPOCH).wrapping_add(1);
        self.memory.store(header_at(index) + EPOCH, epoch);
        self.put(index, view);
        Some(Ticket { index, epoch })
    }

    /// Lets nobody begin to copy by a line. Who copies already is waited for by [`quiet`](Headers::quiet).
    pub fn close(&self, ticket: Ticket) {
        let at = header_at(ticket.index) + GENERATION;
        self.memory.store(at, self.memory.load(at) | 1);
        self.memory.fence_heavy();
    }

    /// Says what holds from now on by a line that was closed.
    pub fn open(&self, ticket: Ticket, view: View) {
        self.put(ticket.index, view);
        let at = header_at(ticket.index) + GENERATION;
        self.memory.store(at, (self.memory.load(at) | 1).wrapping_add(1));
    }

    /// Waits until nobody copies by a closed line. EBUSY where a worker does not let go of it, for which the next one waits no
    /// longer than a copy takes, until that worker's access word has changed.
    pub async fn quiet(self: Rc<Self>, ticket: Ticket) -> Result<()> {
        let word = ticket.index + 1;
        for worker in 0..self.workers {
            let is_stuck = self.is_stuck(worker);
            let mut rounds = 0;
            while self.access(worker) == word {
                match (self.wait)(rounds) {
                    Pause::Passed => {}
                    Pause::Passes(time) if !is_stuck => time.await,
                    Pause::Passes(_) | Pause::Over => {
                        self.stuck.borrow_mut().insert(worker, word);
                        let what = format!("worker {worker} does not stop copying from the file");
                        return Err(Errno::because(Errno::EBUSY, what));
                    }
                }
                rounds += 1;
            }
            self.is_stuck(worker);
        }
        Ok(())
    }

    /// The file is gone: its line is another's next. `kept` is dropped when no worker copies from it any more.
    pub fn retire(&self, ticket: Ticket, kept: Box<dyn Any>) {
        self.close(ticket);
        self.retiring.borrow_mut().push((ticket, kept));
        self.sweep();
    }

    /// A worker is gone: it copies nothing any more.
    pub fn bury(&self, worker: u32) {
        self.memory.store(box_at(worker) + ACCESS_AT, 0);
        self.sweep();
    }

    /// Frees lines of files that are gone, where nobody copies.
    fn sweep(&self) {
        let is_busy = |(ticket, _): &mut (Ticket, Box<dyn Any>)| {
            (0..self.workers).any(|worker| self.access(worker) == ticket.index + 1)
        };
        let gone: Vec<_> = self.retiring.borrow_mut().extract_if(.., |one| !is_busy(one)).collect();
        for (ticket, _kept) in gone {
            self.open(ticket, View { size: 0, place: Place::default() });
            let at = header_at(ticket.index) + EPOCH;
            self.memory.store(at, ticket.epoch.wrapping_add(1));
            self.free.borrow_mut().push(ticket.index);
        }
    }

    fn access(&self, worker: u32) -> u32 {
        self.memory.load(box_at(worker) + ACCESS_AT)
    }

    /// Whether a worker that was waited for in vain has not moved since. One that has has its time again.
    fn is_stuck(&self, worker: u32) -> bool {
        let mut stuck = self.stuck.borrow_mut();
        let Some(word) = stuck.get(&worker) else { return false };
        let is_stuck = *word == self.access(worker);
        if !is_stuck {
            stuck.remove(&worker);
        }
        is_stuck
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
    use std::task::{Context, Poll, Waker};

    fn headers(patience: u32) -> (Rc<Flat>, Rc<Headers<Flat>>) {
        let memory = Rc::new(Flat::new(Plan { workers: 2, heap_bytes: 0 }.bytes()));
        let wait = move |rounds| if rounds < patience { Pause::Passed } else { Pause::Over };
        (memory.clone(), Rc::new(Headers::new(memory, 2, wait)))
    }

    /// Changes a line as a host does, where nobody waits for anything.
    fn change(
        headers: &Rc<Headers<Flat>>,
        ticket: Ticket,
        before: View,
        act: impl FnOnce() -> View,
    ) -> Result<()> {
        headers.close(ticket);
        let quiet = std::pin::pin!(headers.clone().quiet(ticket));
        let Poll::Ready(quiet) = quiet.poll(&mut Context::from_waker(Waker::noop())) else {
            panic!("nobody waits")
        };
        headers.open(ticket, if quiet.is_ok() { act() } else { before });
        quiet
    }

    fn view(size: u64) -> View {
        View { size, place: Place { mapping: 0, pointer: 4096, capacity: 100 } }
    }

    #[test]
    fn a_worker_sees_what_the_host_says_and_never_more_than_lies_there() {
        let (memory, headers) = headers(3);
        let ticket = headers.publish(view(70)).unwrap();
        assert_eq!(enter(&*memory, 1, ticket).unwrap().view, view(70));
        change(&headers, ticket, view(70), || view(7000)).unwrap();
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
            view(1)
        };
        let refused = change(&headers, ticket, view(70), act).unwrap_err();
        assert_eq!(refused.code, Errno::EBUSY);
        assert!(!acted.get());
        assert_eq!(enter(&*memory, 1, ticket).unwrap().view.size, 70);
        drop(access);
        change(&headers, ticket, view(70), act).unwrap();
        assert_eq!(enter(&*memory, 1, ticket).unwrap().view.size, 1);
    }

    #[test]
    fn a_worker_that_never_lets_go_is_waited_for_once_whatever_else_is_changed() {
        let memory = Rc::new(Flat::new(Plan { workers: 2, heap_bytes: 0 }.bytes()));
        let waited = Rc::new(Cell::new(0));
        let count = waited.clone();
        let headers = Headers::new(memory.clone(), 2, move |rounds| match rounds {
            0..3 => Pause::Passed,
            3..100 => {
                let count = count.clone();
                Pause::Passes(Box::pin(async move { count.set(count.get() + 1) }))
            }
            _ => Pause::Over,
        });
        let headers = Rc::new(headers);
        let [ticket, other] = [(); 2].map(|()| headers.publish(view(70)).unwrap());
        let access = enter(&*memory, 0, ticket).unwrap();
        for _ in 0..10 {
            let error = change(&headers, ticket, view(70), || view(1)).unwrap_err();
            assert_eq!(error.code, Errno::EBUSY);
            change(&headers, other, view(70), || view(70)).unwrap();
        }
        assert_eq!(waited.get(), 97);
        // One that has let go has its time again.
        drop(access);
        change(&headers, ticket, view(70), || view(2)).unwrap();
        let _again = enter(&*memory, 0, ticket).unwrap();
        change(&headers, ticket, view(2), || view(3)).unwrap_err();
        assert_eq!(waited.get(), 194);
    }

    #[test]
    fn others_are_served_while_a_worker_copies_for_long() {
        let memory = Rc::new(Flat::new(Plan { workers: 2, heap_bytes: 0 }.bytes()));
        let wait = |_| Pause::Passes(Box::pin(tick()));
        let headers = Rc::new(Headers::new(memory.clone(), 2, wait));
        let ticket = headers.publish(view(70)).unwrap();
        let access = enter(&*memory, 1, ticket).unwrap();
        headers.close(ticket);
        let mut quiet = Box::pin(headers.clone().quiet(ticket));
        let context = &mut Context::from_waker(Waker::noop());
        for _ in 0..100 {
            assert!(quiet.as_mut().poll(context).is_pending());
        }
        drop(access);
        assert!(matches!(quiet.as_mut().poll(context), Poll::Ready(Ok(()))));
    }

    /// Passes when it is looked at for the second time.
    fn tick() -> impl Future<Output = ()> {
        let mut is_over = false;
        std::future::poll_fn(move |_| {
            if std::mem::replace(&mut is_over, true) { Poll::Ready(()) } else { Poll::Pending }
        })
    }

    #[test]
    fn nobody_enters_while_the_host_changes_the_line() {
        let (memory, headers) = headers(3);
        let ticket = headers.publish(view(70)).unwrap();
        let act = || {
            assert!(enter(&*memory, 0, ticket).is_none());
            view(60)
        };
        change(&headers, ticket, view(70), act).unwrap();
        assert_eq!(memory.load(box_at(0) + ACCESS_AT), 0);
    }

    #[test]
    fn a_line_that_another_file_uses_is_not_mistaken_for_the_old_one() {
        let (memory, headers) = headers(3);
        let old = headers.publish(view(70)).unwrap();
        headers.retire(old, Box::new(()));
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
        change(&headers, ticket, view(70), || view(1)).unwrap();
    }

    #[test]
    fn memory_of_a_file_that_is_gone_is_kept_from_others_while_a_worker_copies_there() {
        let (memory, headers) = headers(3);
        let ticket = headers.publish(view(70)).unwrap();
        std::mem::forget(enter(&*memory, 0, ticket).unwrap());
        let kept = Rc::new(());
        headers.retire(ticket, Box::new(kept.clone()));
        assert!(enter(&*memory, 1, ticket).is_none());
        assert_ne!(headers.publish(view(5)).unwrap().index, ticket.index);
        assert_eq!(Rc::strong_count(&kept), 2);
        headers.bury(0);
        assert_eq!(Rc::strong_count(&kept), 1);
        assert_eq!(headers.publish(view(5)).unwrap().index, ticket.index);
    }

    #[test]
    fn a_ticket_comes_back_as_it_went() {
        let ticket = Ticket { index: 7, epoch: 9 };
        assert_eq!(Ticket::decode(&ticket.encode(3)), Some((ticket, 3)));
        assert_eq!(Ticket::decode(&ticket.encode(3)[1..]), None);
        assert_eq!(Ticket::decode(&Ticket { index: HEADERS, epoch: 0 }.encode(0)), None);
    }
}
