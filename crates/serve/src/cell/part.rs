//! A file in the memory that a host shares with its workers: a piece of the area, which is another one when the file has grown.
//!
//! Zeros lie behind the end always. What takes long, to copy a large file to a larger piece or to give pages back, is done by
//! another thread, through the area's file. A large piece that is given back is nobody's until its pages are gone.

use covey_cell::devices::Backing;
use covey_cell::header::Place;
use covey_io::os::shm::area::{Area, AreaHeap, HUGE_PAGE_BYTES};
use covey_io::task;
use covey_ninep::tree::{Errno, Outcome, Result};
use covey_wire::Shared;
use rustix::fs::{FallocateFlags, fallocate};
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// What files in memory are made of.
#[derive(Clone)]
pub(super) struct Pool {
    pub area: Rc<Area>,
    pub heap: Rc<RefCell<AreaHeap>>,
    /// The area as a file: what takes long is done through it.
    pub file: Arc<File>,
    /// Large files are made of huge pages.
    pub is_huge: bool,
    /// Pieces that other threads give back.
    pub leaving: Arc<Leaving>,
}

/// Pieces whose pages go back to the system on other threads.
#[derive(Default)]
pub(super) struct Leaving {
    pieces: Mutex<Pieces>,
    gone: Condvar,
}

#[derive(Default)]
struct Pieces {
    /// How many still have pages.
    left: usize,
    /// Where those lie that have none any more, and how large they are.
    empty: Vec<(u64, u64)>,
}

/// A piece that is given back. Dropped, it is empty, or emptied by who takes it back.
struct Leave {
    leaving: Arc<Leaving>,
    piece: (u64, u64),
}

/// A file in the area.
pub(super) struct Part {
    pool: Pool,
    lies: Rc<Lies>,
    /// What it is a copy of: its number, which is no other file's while it is open.
    original: Option<(u64, Arc<File>)>,
}

/// Where it lies.
#[derive(Default)]
struct Lies {
    at: Cell<u64>,
    capacity: Cell<u64>,
    size: Cell<u64>,
    /// Bytes from the beginning on that were asked to be huge pages.
    huge: Cell<u64>,
}

impl Part {
    /// An empty file.
    pub fn new(pool: Pool) -> Part {
        Part { pool, lies: Rc::default(), original: None }
    }

    /// The file is a copy of another one.
    pub fn copy_of(mut self, number: u64, original: Arc<File>) -> Part {
        self.original = Some((number, original));
        self
    }

    /// A piece for so many bytes: where, and how large.
    fn piece(&self, bytes: u64) -> Result<(u64, u64)> {
        let full = || Errno::because(Errno::ENOSPC, "the memory of the workers' host is full");
        let room = bytes.checked_next_power_of_two().ok_or_else(full)?.max(PART_BYTES_MIN);
        // Room to grow, or what is needed if there is no more.
        let exact = bytes.next_multiple_of(PART_BYTES_MIN);
        self.pool.take_back();
        loop {
            let mut heap = self.pool.heap.borrow_mut();
            let roomy = heap.allocate(room).map(|at| (at, room));
            let found = roomy.or_else(|| heap.allocate(exact).map(|at| (at, exact)));
            drop(heap);
            // Full only when nothing is about to be free.
            if found.is_some() || !self.pool.wait_for_one() {
                return found.ok_or_else(full);
            }
        }
    }

    /// Has room for so many bytes, and they are its size then.
    fn grow(&self, bytes: u64) -> Outcome<()> {
        let new = match self.piece(bytes) {
            Ok(new) => new,
            Err(error) => return Outcome::Now(Err(error)),
        };
        let (pool, lies) = (self.pool.clone(), self.lies.clone());
        let size = lies.size.get();
        if size <= AT_ONCE_BYTES {
            let mut block = vec![0; size as usize];
            pool.area.read(lies.at.get(), &mut block);
            pool.area.write(new.0, &block);
            let old = lies.move_to(new);
            pool.release(old);
            lies.size.set(bytes);
            pool.ask_huge(&lies, bytes);
            return Ok(()).into();
        }
        Outcome::later(async move {
            let (file, from) = (pool.file.clone(), lies.at.get());
            if let Err(error) = task::blocking(move || copy(&file, from, new.0, size)).await {
                pool.release(new);
                return Err(error.into());
            }
            let old = lies.move_to(new);
            lies.size.set(bytes);
            pool.ask_huge(&lies, bytes);
            pool.release(old);
            Ok(())
        })
    }

    fn cut(&self, size: u64) -> Outcome<()> {
        let lies = &self.lies;
        let cut = lies.size.replace(size).saturating_sub(size);
        lies.huge.set(lies.huge.get().min(size - size % HUGE_PAGE_BYTES));
        let (file, at) = (self.pool.file.clone(), lies.at.get() + size);
        // What is behind the end is zeros, and its pages are gone.
        let act = move || punch(&file, at, cut);
        if cut <= AT_ONCE_BYTES {
            return act().map_err(Errno::from).into();
        }
        Outcome::later(async move { Ok(task::blocking(act).await?) })
    }
}

impl Lies {
    /// It lies there from now on. Where it was.
    fn move_to(&self, (at, capacity): (u64, u64)) -> (u64, u64) {
        self.huge.set(0);
        (self.at.replace(at), self.capacity.replace(capacity))
    }
}

impl Pool {
    /// Gives a piece back that nobody uses any more: a large one on another thread, where there are any.
    fn release(&self, piece: (u64, u64)) {
        let (at, bytes) = piece;
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) if bytes > AT_ONCE_BYTES => {
                let (leave, file) = (Leaving::begin(&self.leaving, piece), self.file.clone());
                runtime.spawn_blocking(move || {
                    let _leave = leave;
                    // What stays is given back by who takes the piece back.
                    let _ = punch(&file, at, bytes);
                });
            }
            _ if bytes > 0 => self.heap.borrow_mut().release(at, bytes),
            _ => {}
        }
    }

    /// Takes back what has become empty.
    fn take_back(&self) {
        let empty = std::mem::take(&mut self.leaving.pieces().empty);
        let mut heap = self.heap.borrow_mut();
        empty.into_iter().for_each(|(at, bytes)| heap.release(at, bytes));
    }

    /// Waits until a piece has become empty, and takes it back. False where there is none.
    fn wait_for_one(&self) -> bool {
        let is_none_empty = |pieces: &mut Pieces| pieces.left > 0 && pieces.empty.is_empty();
        let waited = self.leaving.gone.wait_while(self.leaving.pieces(), is_none_empty);
        let is_there = !waited.unwrap_or_else(PoisonError::into_inner).empty.is_empty();
        self.take_back();
        is_there
    }

    /// Huge pages up to this end, as far as the system has any, and no more at a time than are made soon.
    fn ask_huge(&self, lies: &Lies, end: u64) {
        if !self.is_huge {
            return;
        }
        let (end, capacity) = (end.checked_next_multiple_of(HUGE_PAGE_BYTES), lies.capacity.get());
        let (from, end) = (lies.huge.get(), end.unwrap_or(0).min(capacity));
        if capacity >= HUGE_PAGE_BYTES && from < end {
            lies.huge.set(end);
            let bytes = (end - from).min(HUGE_BYTES_MAX);
            // Where there are none small ones do.
            let _ = self.area.make_huge(lies.at.get() + from, bytes);
        }
    }
}

impl Leaving {
    fn pieces(&self) -> MutexGuard<'_, Pieces> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(leaving: &Arc<Leaving>, piece: (u64, u64)) -> Leave {
        leaving.pieces().left += 1;
        Leave { leaving: leaving.clone(), piece }
    }
}

impl Drop for Leave {
    fn drop(&mut self) {
        let mut pieces = self.leaving.pieces();
        pieces.left -= 1;
        pieces.empty.push(self.piece);
        self.leaving.gone.notify_one();
    }
}

/// Copies within a file.
fn copy(file: &File, from: u64, to: u64, bytes: u64) -> io::Result<()> {
    let (mut block, mut done) = (vec![0; AT_ONCE_BYTES as usize], 0);
    while done < bytes {
        let count = (bytes - done).min(AT_ONCE_BYTES) as usize;
        file.read_exact_at(&mut block[..count], from + done)?;
        file.write_all_at(&block[..count], to + done)?;
        done += count as u64;
    }
    Ok(())
}

/// Makes zeros of a range; whole pages go back to the system.
fn punch(file: &File, at: u64, bytes: u64) -> io::Result<()> {
    if bytes > 0 {
        fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, bytes)?;
    }
    Ok(())
}

/// Zeros for these take some tenths of a second, for which other workers wait.
const HUGE_BYTES_MAX: u64 = 1 << 30;
const PART_BYTES_MIN: u64 = 4096;
/// So many are copied, or given back, on the host's own thread.
const AT_ONCE_BYTES: u64 = 1 << 20;

impl Backing for Part {
    fn number(&self) -> u64 {
        self.original.as_ref().map_or(0, |(number, _)| *number)
    }

    fn size(&self) -> u64 {
        self.lies.size.get()
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Result<usize> {
        self.pool.area.read(self.lies.at.get() + at, out);
        Ok(out.len())
    }

    fn write(&self, at: u64, data: &[u8]) -> Result<()> {
        debug_assert!(at + data.len() as u64 <= self.size());
        self.pool.area.write(self.lies.at.get() + at, data);
        Ok(())
    }

    fn resize(&self, size: u64) -> Outcome<()> {
        let lies = &self.lies;
        match size {
            _ if size < lies.size.get() => self.cut(size),
            _ if size > lies.capacity.get() => self.grow(size),
            _ => {
                lies.size.set(size);
                self.pool.ask_huge(lies, size);
                Ok(()).into()
            }
        }
    }

    fn place(&self) -> Option<Place> {
        let lies = &self.lies;
        if lies.capacity.get() == 0 {
            lies.move_to(self.piece(PART_BYTES_MIN).ok()?);
        }
        Some(Place { mapping: 0, pointer: lies.at.get(), capacity: lies.capacity.get() })
    }

    fn sync(&self) -> Outcome<()> {
        Ok(()).into()
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.pool.release((self.lies.at.get(), self.lies.capacity.get()));
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// 64 MiB.
    pub fn pool() -> Pool {
        let (area, file) = Area::make(64 << 20).expect("memory");
        let file = File::from(file);
        let heap = AreaHeap::new(&area, 4096, file.try_clone().expect("a copy").into());
        let heap = Rc::new(RefCell::new(heap.expect("a heap")));
        Pool {
            area: Rc::new(area),
            heap,
            file: Arc::new(file),
            is_huge: false,
            leaving: Arc::default(),
        }
    }

    /// Waits, as a host does.
    pub fn done<T: 'static>(outcome: Outcome<T>) -> Result<T> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(outcome.wait())
    }

    fn put(part: &Part, at: u64, data: &[u8]) {
        let end = at + data.len() as u64;
        if end > part.size() {
            done(part.resize(end)).expect("grown");
        }
        part.write(at, data).expect("written");
    }

    #[test]
    fn huge_pages_change_no_byte() {
        let part = Part::new(Pool { is_huge: true, ..pool() });
        put(&part, 5 << 20, b"quail");
        put(&part, 12 << 20, b"end");
        let mut bytes = [1; 6];
        part.read(5 << 20, &mut bytes).expect("read");
        assert_eq!(&bytes, b"quail\0");
        done(part.resize(5 << 20)).expect("cut");
        done(part.resize(9 << 20)).expect("grown");
        part.read(5 << 20, &mut bytes).expect("read");
        assert_eq!(bytes, [0; 6]);
    }

    #[test]
    fn a_file_in_memory_grows_and_keeps_its_bytes_and_has_zeros_behind_a_cut() {
        let pool = pool();
        let part = Part::new(pool.clone());
        put(&part, 0, b"quail");
        let before = part.place().expect("a place");
        put(&part, 1 << 20, b"end");
        assert_ne!(part.place().expect("a place").pointer, before.pointer);
        let mut bytes = [1; 6];
        part.read(0, &mut bytes).expect("read");
        assert_eq!(&bytes, b"quail\0");
        done(part.resize(2)).expect("cut");
        done(part.resize(6)).expect("grown");
        part.read(0, &mut bytes).expect("read");
        assert_eq!(&bytes, b"qu\0\0\0\0");
        assert_eq!(done(part.resize(1 << 40)).unwrap_err().code, Errno::ENOSPC);
        assert_eq!(part.size(), 6);
        // The next power of two is more than there is.
        let large = Part::new(pool);
        done(large.resize(40 << 20)).expect("it fits");
        assert_eq!(large.place().expect("a place").capacity, 40 << 20);
    }

    #[test]
    fn a_large_file_is_copied_and_cut_by_another_thread_and_lies_where_it_was_meanwhile() {
        let part = Part::new(pool());
        put(&part, (8 << 20) - 4, b"tail");
        let before = part.place().expect("a place");
        let grown = part.resize((8 << 20) + 1);
        assert!(matches!(grown, Outcome::Later(_)), "the host's own thread does not copy it");
        assert_eq!(part.place(), Some(before));
        done(grown).expect("grown");
        assert_ne!(part.place(), Some(before));
        let mut bytes = [1; 5];
        part.read((8 << 20) - 4, &mut bytes).expect("read");
        assert_eq!(&bytes, b"tail\0");
        let cut = part.resize(1);
        assert!(matches!(cut, Outcome::Later(_)));
        done(cut).expect("cut");
        done(part.resize(8 << 20)).expect("grown");
        part.read((8 << 20) - 5, &mut bytes).expect("read");
        assert_eq!(bytes, [0; 5]);
    }

    #[test]
    fn memory_that_is_no_longer_used_is_used_again() {
        let pool = pool();
        for _ in 0..100 {
            let part = Part::new(pool.clone());
            done(part.resize(16 << 20)).expect("room for each in turn");
            put(&part, 0, b"x");
        }
    }

    #[test]
    fn a_large_file_is_given_back_by_another_thread_and_whoever_needs_its_room_waits_for_that() {
        let pool = pool();
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let _here = runtime.enter();
        let large = Part::new(pool.clone());
        runtime.block_on(large.resize(40 << 20).wait()).expect("it fits");
        large.write((40 << 20) - 4, b"tail").expect("written");
        drop(large);
        let pieces = pool.leaving.pieces();
        assert_eq!(pieces.left + pieces.empty.len(), 1, "the host's own thread gives nothing back");
        drop(pieces);
        let next = Part::new(pool.clone());
        runtime.block_on(next.resize(40 << 20).wait()).expect("there is room again");
        let mut bytes = [1; 4];
        next.read((40 << 20) - 4, &mut bytes).expect("read");
        assert_eq!(bytes, [0; 4]);
        let full = runtime.block_on(Part::new(pool).resize(40 << 20).wait());
        assert_eq!(full.unwrap_err().code, Errno::ENOSPC);
    }
}
