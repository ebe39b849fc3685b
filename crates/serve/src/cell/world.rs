//! What the devices of a host need of Linux: memory in the area, and files.

use super::log::LogQueue;
use super::mappings::{Lent, Mappings};
use covey_cell::devices::{Backing, Host};
use covey_cell::header::Place;
use covey_io::os::file::DataFile;
use covey_io::os::shm::area::{Area, AreaHeap, HUGE_PAGE_BYTES};
use covey_io::task;
use covey_ninep::message::Qid;
use covey_ninep::tree::{Attr, Errno, Outcome, Result, S_IFMT, S_IFREG, Time};
use covey_wire::{Bytes, Name, Shared};
use rustix::fs::OFlags;
use std::cell::{Cell, RefCell};
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The world of one host.
pub(super) struct World {
    pool: Pool,
    owner: (u32, u32),
    /// Files that workers map.
    pub mappings: Rc<Mappings>,
    /// What workers write to the log.
    pub log: LogQueue,
}

/// What files in memory are made of.
#[derive(Clone)]
pub(super) struct Pool {
    pub area: Rc<Area>,
    pub heap: Rc<RefCell<AreaHeap>>,
    /// Large files are made of huge pages.
    pub is_huge: bool,
}

impl World {
    pub fn new(pool: Pool, owner: (u32, u32), log: LogQueue) -> World {
        World { pool, owner, mappings: Rc::default(), log }
    }

    fn part(&self) -> Rc<Part> {
        let [at, capacity, size, huge] = [0; 4].map(Cell::new);
        Rc::new(Part { pool: self.pool.clone(), at, capacity, size, huge })
    }
}

impl Host for World {
    fn now(&self) -> Time {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Time { sec: now.as_secs(), nsec: now.subsec_nanos().into() }
    }

    fn owner(&self) -> (u32, u32) {
        self.owner
    }

    fn memory(&self) -> Result<Rc<dyn Backing>> {
        Ok(self.part())
    }

    fn open(&self, path: &str, may_write: bool) -> Outcome<Rc<dyn Backing>> {
        let (mappings, path) = (self.mappings.clone(), host_path(path).to_owned());
        Outcome::later(async move {
            let found = task::blocking(move || Found::open(&path, may_write)).await?;
            Ok(Rc::new(OnDisk::new(found, &mappings)) as Rc<dyn Backing>)
        })
    }

    fn private(&self, path: &str) -> Outcome<Rc<dyn Backing>> {
        let (part, path) = (self.part(), host_path(path).to_owned());
        Outcome::later(async move {
            let opened = task::blocking(move || {
                let file = File::open(path)?;
                let bytes = file.metadata()?.len();
                Ok((Arc::new(file), bytes))
            });
            let (file, bytes) = opened.await?;
            part.resize(bytes)?;
            let mut at = 0;
            loop {
                let file = file.clone();
                let block = task::blocking(move || {
                    let mut block = vec![0; BLOCK_BYTES];
                    let count = file.read_at(&mut block, at)?;
                    block.truncate(count);
                    Ok(block)
                });
                let block = block.await?;
                if block.is_empty() {
                    return Ok(part as Rc<dyn Backing>);
                }
                part.write(at, &block)?;
                at += block.len() as u64;
            }
        })
    }

    fn attrs(&self, paths: Vec<String>) -> Outcome<Vec<Result<Attr>>> {
        apart(move || {
            let attr = |path: &String| std::fs::metadata(host_path(path)).map(|found| attr(&found));
            Ok(paths.iter().map(attr).collect::<Vec<io::Result<Attr>>>())
        })
        .map(|attrs| attrs.into_iter().map(|attr| attr.map_err(Errno::from)).collect())
    }

    fn list(&self, path: &str) -> Outcome<Vec<Name>> {
        let path = host_path(path).to_owned();
        apart(move || {
            let entries = std::fs::read_dir(path)?;
            let mut names: Vec<Vec<u8>> = entries
                .take(ENTRIES_MAX)
                .filter_map(|entry| Some(entry.ok()?.file_name().into_vec()))
                .collect();
            // A listing goes on by its numbers: the same order each time.
            names.sort();
            Ok(names)
        })
        .map(|names| names.iter().map(|name| Name::from(&name[..])).collect())
    }

    fn make(&self, path: &str, mode: u32) -> Outcome<()> {
        let path = host_path(path).to_owned();
        apart(move || {
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(mode).open(path).map(drop)
        })
    }

    fn remove(&self, path: &str) -> Outcome<()> {
        let path = host_path(path).to_owned();
        apart(move || std::fs::remove_file(path))
    }

    fn share(&self, mapping: u32, worker: u32) -> Result<()> {
        self.mappings.share(mapping, worker)
    }

    fn log(&self, text: Bytes) -> Outcome<()> {
        self.log.put(text)
    }
}

/// What may take time: others are served meanwhile.
fn apart<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> Outcome<T> {
    Outcome::later(async move { Ok(task::blocking(work).await?) })
}

/// A file may grow to this size, or to twice its size, before it is used by messages.
const ROOM_MIN: u64 = 64 << 20;
/// Of a file that is read in for `#R`, at once.
const BLOCK_BYTES: usize = 1 << 20;
/// proc, sysfs, cgroup (two), debugfs, tracefs, securityfs: a file there says that it has no bytes, or a page of them.
const WITHOUT_SIZE: [i64; 7] =
    [0x9fa0, 0x6265_6572, 0x0027_e0eb, 0x6367_7270, 0x6462_6720, 0x7472_6163, 0x7363_6673];
/// Names of one directory that are listed.
const ENTRIES_MAX: usize = 1 << 20;

fn host_path(path: &str) -> &str {
    if path.is_empty() { "/" } else { path }
}

/// The number of a file among all of the machine.
fn number(found: &Metadata) -> u64 {
    found.ino() ^ found.dev().rotate_left(40)
}

fn attr(found: &Metadata) -> Attr {
    let time = |sec: i64, nsec: i64| Time { sec: sec as u64, nsec: nsec as u64 };
    let mtime = time(found.mtime(), found.mtime_nsec());
    let attr = Attr::new(number(found), found.mode(), found.uid(), found.gid(), mtime);
    let version = found.mtime() as u32 ^ found.mtime_nsec() as u32 ^ found.size() as u32;
    Attr {
        qid: Qid { version, ..attr.qid },
        nlink: found.nlink(),
        size: if found.mode() & S_IFMT == S_IFREG { found.size() } else { 0 },
        blocks: found.blocks(),
        atime: time(found.atime(), found.atime_nsec()),
        ctime: time(found.ctime(), found.ctime_nsec()),
        ..attr
    }
}

/// A file in the area.
struct Part {
    pool: Pool,
    at: Cell<u64>,
    capacity: Cell<u64>,
    size: Cell<u64>,
    /// Bytes from the beginning on that were asked to be huge pages.
    huge: Cell<u64>,
}

impl Part {
    fn reserve(&self, bytes: u64) -> Result<()> {
        if bytes <= self.capacity.get() {
            return Ok(());
        }
        let full = || Errno::because(Errno::ENOSPC, "the memory of the workers' host is full");
        let room = bytes.checked_next_power_of_two().ok_or_else(full)?.max(PART_BYTES_MIN);
        // Room to grow, or what is needed if there is no more.
        let exact = bytes.next_multiple_of(PART_BYTES_MIN);
        let mut heap = self.pool.heap.borrow_mut();
        let roomy = heap.allocate(room).map(|at| (at, room));
        let found = roomy.or_else(|| heap.allocate(exact).map(|at| (at, exact)));
        drop(heap);
        let (at, room) = found.ok_or_else(full)?;
        let (old, old_room) = (self.at.replace(at), self.capacity.replace(room));
        self.huge.set(0);
        self.ask_huge(bytes);
        let (mut block, mut done) = (vec![0; BLOCK_BYTES], 0);
        while done < self.size.get() {
            let count = (self.size.get() - done).min(block.len() as u64) as usize;
            self.pool.area.read(old + done, &mut block[..count]);
            self.pool.area.write(at + done, &block[..count]);
            done += count as u64;
        }
        if old_room > 0 {
            self.pool.heap.borrow_mut().release(old, old_room);
        }
        Ok(())
    }

    /// Huge pages up to this end, as far as the system has any, and no more at a time than are made soon.
    fn ask_huge(&self, end: u64) {
        if !self.pool.is_huge {
            return;
        }
        let end = end.checked_next_multiple_of(HUGE_PAGE_BYTES).unwrap_or(0);
        let (from, end) = (self.huge.get(), end.min(self.capacity.get()));
        if self.capacity.get() >= HUGE_PAGE_BYTES && from < end {
            self.huge.set(end);
            let bytes = (end - from).min(HUGE_BYTES_MAX);
            // Where there are none small ones do.
            let _ = self.pool.area.make_huge(self.at.get() + from, bytes);
        }
    }
}

/// Zeros for these take some tenths of a second, for which other workers wait.
const HUGE_BYTES_MAX: u64 = 1 << 30;
const PART_BYTES_MIN: u64 = 4096;

impl Backing for Part {
    fn size(&self) -> u64 {
        self.size.get()
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Result<usize> {
        self.pool.area.read(self.at.get() + at, out);
        Ok(out.len())
    }

    fn write(&self, at: u64, data: &[u8]) -> Result<()> {
        let end = at.checked_add(data.len() as u64).ok_or(Errno::EFBIG)?;
        self.reserve(end)?;
        self.ask_huge(end);
        self.pool.area.write(self.at.get() + at, data);
        self.size.set(self.size.get().max(end));
        Ok(())
    }

    fn resize(&self, size: u64) -> Result<()> {
        self.reserve(size)?;
        self.ask_huge(size);
        let cut = self.size.replace(size).saturating_sub(size);
        // What lies behind the end is zeros always, and its pages are gone.
        self.pool.heap.borrow().clear(self.at.get() + size, cut);
        if cut > 0 {
            self.huge.set(self.huge.get().min(size - size % HUGE_PAGE_BYTES));
        }
        Ok(())
    }

    fn place(&self) -> Option<Place> {
        if self.capacity.get() == 0 {
            self.reserve(PART_BYTES_MIN).ok()?;
        }
        Some(Place { mapping: 0, pointer: self.at.get(), capacity: self.capacity.get() })
    }

    fn sync(&self) -> Outcome<()> {
        Ok(()).into()
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if self.capacity.get() > 0 {
            self.pool.heap.borrow_mut().release(self.at.get(), self.capacity.get());
        }
    }
}

/// A file of the host that has just been opened.
struct Found {
    file: DataFile,
    number: u64,
    size: u64,
    has_size: bool,
}

impl Found {
    fn open(path: &str, may_write: bool) -> io::Result<Found> {
        let mut options = OpenOptions::new();
        options.read(true).write(may_write).custom_flags(OFlags::NONBLOCK.bits() as i32);
        let file = options.open(path)?;
        let found = file.metadata()?;
        if found.mode() & S_IFMT != S_IFREG {
            // It was one when it was walked to.
            return Err(rustix::io::Errno::PERM.into());
        }
        let system = rustix::fs::fstatfs(&file)?;
        let has_size = !WITHOUT_SIZE.contains(&(system.f_type as i64));
        let (number, size) = (number(&found), found.len());
        Ok(Found { file: DataFile::new(file)?, number, size, has_size })
    }
}

/// A file of the host.
struct OnDisk {
    file: DataFile,
    number: u64,
    size: Cell<u64>,
    has_size: bool,
    /// Bytes that are mapped of it.
    room: u64,
    /// None for one that is used by messages.
    lent: Option<Lent>,
}

impl OnDisk {
    fn new(found: Found, mappings: &Rc<Mappings>) -> OnDisk {
        let Found { file, number, size, has_size } = found;
        let room = size.saturating_mul(2).max(ROOM_MIN);
        let lent = if has_size { mappings.lend(&file, room) } else { None };
        OnDisk { file, number, size: Cell::new(size), has_size, room, lent }
    }
}

impl Backing for OnDisk {
    fn number(&self) -> u64 {
        self.number
    }

    fn size(&self) -> u64 {
        self.size.get()
    }

    fn refresh(&self) -> Result<u64> {
        self.size.set(self.file.file().metadata()?.len());
        Ok(self.size.get())
    }

    fn has_size(&self) -> bool {
        self.has_size
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Result<usize> {
        let bytes = self.file.read_blocking(at, out.len())?;
        out[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }

    fn write(&self, at: u64, data: &[u8]) -> Result<()> {
        self.file.file().write_all_at(data, at)?;
        if self.has_size {
            self.size.set(self.size.get().max(at + data.len() as u64));
        }
        Ok(())
    }

    fn fetch(&self, at: u64, count: usize) -> Option<Outcome<Bytes>> {
        match self.file.read_now(at, count) {
            Ok(Some(bytes)) => Some(Ok(bytes).into()),
            Err(error) => Some(Err(error.into()).into()),
            Ok(None) => {
                let file = self.file.clone();
                Some(Outcome::later(async move { Ok(file.read(at, count).await?) }))
            }
        }
    }

    fn store(&self, at: u64, data: &Bytes) -> Option<Outcome<()>> {
        let (file, data) = (self.file.clone(), data.clone());
        Some(apart(move || file.file().write_all_at(&data, at)))
    }

    fn resize(&self, size: u64) -> Result<()> {
        self.file.file().set_len(size)?;
        self.size.set(size);
        Ok(())
    }

    fn place(&self) -> Option<Place> {
        let mapping = self.lent.as_ref()?.number();
        Some(Place { mapping, pointer: 0, capacity: self.room })
    }

    fn sync(&self) -> Outcome<()> {
        let file = self.file.clone();
        Outcome::later(async move { Ok(file.sync(false).await?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn pool() -> Pool {
        let (area, file) = Area::make(64 << 20).expect("memory");
        let heap = AreaHeap::new(&area, 4096, file.as_fd().try_clone_to_owned().expect("a copy"));
        let heap = Rc::new(RefCell::new(heap.expect("a heap")));
        Pool { area: Rc::new(area), heap, is_huge: false }
    }

    fn world() -> World {
        World::new(pool(), (1, 1), LogQueue::new(|_| ()).expect("a thread"))
    }

    #[test]
    fn huge_pages_change_no_byte() {
        let log = LogQueue::new(|_| ()).expect("a thread");
        let world = World::new(Pool { is_huge: true, ..pool() }, (1, 1), log);
        let part = world.memory().expect("memory");
        part.write(5 << 20, b"quail").expect("written");
        part.write(12 << 20, b"end").expect("written, elsewhere");
        let mut bytes = [1; 6];
        part.read(5 << 20, &mut bytes).expect("read");
        assert_eq!(&bytes, b"quail\0");
        part.resize(5 << 20).expect("cut");
        part.resize(9 << 20).expect("grown");
        part.read(5 << 20, &mut bytes).expect("read");
        assert_eq!(bytes, [0; 6]);
    }

    #[test]
    fn a_file_in_memory_grows_and_keeps_its_bytes_and_has_zeros_behind_a_cut() {
        let world = world();
        let part = world.memory().expect("memory");
        part.write(0, b"quail").expect("written");
        let before = part.place().expect("a place");
        part.write(1 << 20, b"end").expect("written");
        assert_ne!(part.place().expect("a place").pointer, before.pointer);
        let mut bytes = [1; 6];
        part.read(0, &mut bytes).expect("read");
        assert_eq!(&bytes, b"quail\0");
        part.resize(2).expect("cut");
        part.resize(6).expect("grown");
        part.read(0, &mut bytes).expect("read");
        assert_eq!(&bytes, b"qu\0\0\0\0");
        assert_eq!(part.resize(1 << 40).unwrap_err().code, Errno::ENOSPC);
        assert_eq!(part.size(), 6);
        // The next power of two is more than there is.
        let large = world.memory().expect("memory");
        large.resize(40 << 20).expect("it fits");
        assert_eq!(large.place().expect("a place").capacity, 40 << 20);
    }

    #[test]
    fn memory_that_is_no_longer_used_is_used_again() {
        let world = world();
        for _ in 0..100 {
            let part = world.memory().expect("memory");
            part.resize(16 << 20).expect("room for each in turn");
            part.write(0, b"x").expect("written");
        }
    }

    #[test]
    fn a_private_file_has_the_bytes_of_its_original_and_keeps_them_from_it() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let content: Vec<u8> = (0..3_000_000_u32).map(|number| number as u8).collect();
        std::fs::write(file.path(), &content).expect("written");
        let world = world();
        let path = file.path().to_str().expect("a path");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let part = runtime.block_on(world.private(path).wait()).expect("read in");
        let mut bytes = vec![0; content.len()];
        part.read(0, &mut bytes).expect("read");
        assert!(bytes == content);
        part.write(0, b"changed").expect("written");
        assert!(std::fs::read(path).expect("read") == content);
    }

    #[test]
    fn files_that_the_kernel_makes_up_are_read_though_they_have_no_size() {
        let world = world();
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let opened = world.open("/proc/self/status", false).wait();
        let file = runtime.block_on(opened).expect("open");
        let read = |at| runtime.block_on(file.fetch(at, 16 << 10).expect("not at once").wait());
        let bytes = read(0).expect("read");
        assert!(bytes.starts_with(b"Name:"), "{}", bytes.len());
        assert_eq!((file.has_size(), file.place()), (false, None));
        assert!(read(bytes.len() as u64).expect("the end").is_empty());
    }
}
