//! What the devices of a host need of Linux: memory in the area, files, and their handing over.

use covey_cell::devices::{Backing, Host};
use covey_cell::header::Place;
use covey_io::os::shm::area::{Area, AreaHeap, hand_over};
use covey_ninep::message::Qid;
use covey_ninep::tree::{Attr, Errno, Result, S_IFMT, Time};
use covey_wire::{Name, Shared};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fs::{File, Metadata, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The world of one host.
pub(super) struct World {
    area: Rc<Area>,
    heap: Rc<RefCell<AreaHeap>>,
    owner: (u32, u32),
    /// Files by the number of their mapping, less one.
    mappings: RefCell<Vec<Option<Mapping>>>,
    /// The socket of each worker that lives.
    pub sockets: RefCell<Vec<Option<UnixStream>>>,
    log: LogSink,
}

/// What is given the lines of the log.
type LogSink = Box<dyn Fn(&[u8])>;

struct Mapping {
    file: Rc<File>,
    bytes: u64,
    /// Workers that have it.
    given: BTreeSet<u32>,
}

impl World {
    pub fn new(
        area: Rc<Area>,
        heap: AreaHeap,
        owner: (u32, u32),
        log: impl Fn(&[u8]) + 'static,
    ) -> World {
        World {
            area,
            heap: Rc::new(RefCell::new(heap)),
            owner,
            mappings: RefCell::default(),
            sockets: RefCell::default(),
            log: Box::new(log),
        }
    }

    /// A number for a file that may be mapped; None when too many are.
    fn number(&self, file: &Rc<File>, bytes: u64) -> Option<u32> {
        let mut mappings = self.mappings.borrow_mut();
        // Numbers are not used again: a worker may still have what it was given.
        let number =
            u32::try_from(mappings.len() + 1).ok().filter(|number| *number < MAPPINGS_MAX)?;
        mappings.push(Some(Mapping { file: file.clone(), bytes, given: BTreeSet::new() }));
        Some(number)
    }
}

/// Files that are mapped in the life of a host; later ones are used by messages.
const MAPPINGS_MAX: u32 = 512;

impl Host for World {
    fn now(&self) -> Time {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Time { sec: now.as_secs(), nsec: now.subsec_nanos().into() }
    }

    fn owner(&self) -> (u32, u32) {
        self.owner
    }

    fn memory(&self) -> Result<Rc<dyn Backing>> {
        let (area, heap) = (self.area.clone(), self.heap.clone());
        let none = Cell::new(0);
        Ok(Rc::new(Part { area, heap, at: none.clone(), capacity: none.clone(), size: none }))
    }

    fn open(&self, path: &str, may_write: bool) -> Result<Rc<dyn Backing>> {
        let file = OpenOptions::new().read(true).write(may_write).open(host_path(path))?;
        let size = file.metadata()?.len();
        let file = Rc::new(file);
        let room = size.saturating_mul(2).max(ROOM_MIN);
        let mapping = self.number(&file, room);
        let place = mapping.map(|mapping| Place { mapping, pointer: 0, capacity: room });
        Ok(Rc::new(OnDisk { file, size: Cell::new(size), place }))
    }

    fn private(&self, path: &str) -> Result<Rc<dyn Backing>> {
        let mut file = File::open(host_path(path))?;
        let part = self.memory()?;
        part.resize(file.metadata()?.len())?;
        let (mut block, mut at) = (vec![0; 1 << 20], 0);
        loop {
            let count = std::io::Read::read(&mut file, &mut block)?;
            if count == 0 {
                return Ok(part);
            }
            part.write(at, &block[..count])?;
            at += count as u64;
        }
    }

    fn attr(&self, path: &str) -> Result<Attr> {
        Ok(attr(&std::fs::metadata(host_path(path))?))
    }

    fn list(&self, path: &str) -> Result<Vec<Name>> {
        use std::os::unix::ffi::OsStrExt;
        let entries = std::fs::read_dir(host_path(path))?;
        let mut names: Vec<Name> = entries
            .take(ENTRIES_MAX)
            .filter_map(|entry| Some(Name::from(entry.ok()?.file_name().as_bytes())))
            .collect();
        // A listing goes on by its numbers: the same order each time.
        names.sort();
        Ok(names)
    }

    fn make(&self, path: &str, mode: u32) -> Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(mode).open(host_path(path))?;
        Ok(())
    }

    fn remove(&self, path: &str) -> Result<()> {
        Ok(std::fs::remove_file(host_path(path))?)
    }

    fn share(&self, mapping: u32, worker: u32) -> Result<()> {
        let mut mappings = self.mappings.borrow_mut();
        let known = mappings.get_mut((mapping as usize).wrapping_sub(1)).and_then(Option::as_mut);
        let known = known.ok_or(Errno::EINVAL)?;
        let sockets = self.sockets.borrow();
        let socket = sockets.get(worker as usize).and_then(Option::as_ref).ok_or(Errno::ESTALE)?;
        if known.given.insert(worker) {
            hand_over(socket, mapping, known.bytes, &known.file)?;
        }
        Ok(())
    }

    fn log(&self, text: &[u8]) {
        (self.log)(text);
    }
}

/// A file may grow to this size, or to twice its size, before it is used by messages.
const ROOM_MIN: u64 = 64 << 20;
/// Names of one directory that are listed.
const ENTRIES_MAX: usize = 1 << 20;

fn host_path(path: &str) -> &str {
    if path.is_empty() { "/" } else { path }
}

fn attr(found: &Metadata) -> Attr {
    let time = |sec: i64, nsec: i64| Time { sec: sec as u64, nsec: nsec as u64 };
    let mtime = time(found.mtime(), found.mtime_nsec());
    let path = found.ino() ^ found.dev().rotate_left(40);
    let attr = Attr::new(path, found.mode(), found.uid(), found.gid(), mtime);
    let version = found.mtime() as u32 ^ found.mtime_nsec() as u32 ^ found.size() as u32;
    Attr {
        qid: Qid { version, ..attr.qid },
        nlink: found.nlink(),
        size: if found.mode() & S_IFMT == covey_ninep::tree::S_IFREG { found.size() } else { 0 },
        blocks: found.blocks(),
        atime: time(found.atime(), found.atime_nsec()),
        ctime: time(found.ctime(), found.ctime_nsec()),
        ..attr
    }
}

/// A file in the area.
struct Part {
    area: Rc<Area>,
    heap: Rc<RefCell<AreaHeap>>,
    at: Cell<u64>,
    capacity: Cell<u64>,
    size: Cell<u64>,
}

impl Part {
    fn reserve(&self, bytes: u64) -> Result<()> {
        if bytes <= self.capacity.get() {
            return Ok(());
        }
        let full = || Errno::because(Errno::ENOSPC, "the memory of the workers' host is full");
        let room = bytes.checked_next_power_of_two().ok_or_else(full)?.max(PART_BYTES_MIN);
        let at = self.heap.borrow_mut().allocate(room).ok_or_else(full)?;
        let (old, old_room) = (self.at.replace(at), self.capacity.replace(room));
        let (mut block, mut done) = (vec![0; 1 << 20], 0);
        while done < self.size.get() {
            let count = (self.size.get() - done).min(block.len() as u64) as usize;
            self.area.read(old + done, &mut block[..count]);
            self.area.write(at + done, &block[..count]);
            done += count as u64;
        }
        if old_room > 0 {
            self.heap.borrow_mut().release(old, old_room);
        }
        Ok(())
    }
}

const PART_BYTES_MIN: u64 = 4096;

impl Backing for Part {
    fn size(&self) -> u64 {
        self.size.get()
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Result<()> {
        self.area.read(self.at.get() + at, out);
        Ok(())
    }

    fn write(&self, at: u64, data: &[u8]) -> Result<()> {
        let end = at.checked_add(data.len() as u64).ok_or(Errno::EFBIG)?;
        self.reserve(end)?;
        self.area.write(self.at.get() + at, data);
        self.size.set(self.size.get().max(end));
        Ok(())
    }

    fn resize(&self, size: u64) -> Result<()> {
        self.reserve(size)?;
        let old = self.size.replace(size);
        // What lies behind the end is zeros always.
        self.heap.borrow().clear(self.at.get() + size, old.saturating_sub(size));
        Ok(())
    }

    fn place(&self) -> Option<Place> {
        if self.capacity.get() == 0 {
            self.reserve(PART_BYTES_MIN).ok()?;
        }
        Some(Place { mapping: 0, pointer: self.at.get(), capacity: self.capacity.get() })
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if self.capacity.get() > 0 {
            self.heap.borrow_mut().release(self.at.get(), self.capacity.get());
        }
    }
}

/// A file of the host.
struct OnDisk {
    file: Rc<File>,
    size: Cell<u64>,
    place: Option<Place>,
}

impl Backing for OnDisk {
    fn size(&self) -> u64 {
        self.size.get()
    }

    fn refresh(&self) -> Result<u64> {
        self.size.set(self.file.metadata()?.len());
        Ok(self.size.get())
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Result<()> {
        Ok(self.file.read_exact_at(out, at)?)
    }

    fn write(&self, at: u64, data: &[u8]) -> Result<()> {
        self.file.write_all_at(data, at)?;
        self.size.set(self.size.get().max(at + data.len() as u64));
        Ok(())
    }

    fn resize(&self, size: u64) -> Result<()> {
        self.file.set_len(size)?;
        self.size.set(size);
        Ok(())
    }

    fn place(&self) -> Option<Place> {
        self.place
    }

    fn sync(&self) -> Result<()> {
        Ok(self.file.sync_all()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn world() -> World {
        let (area, file) = Area::make(64 << 20).expect("memory");
        let heap = AreaHeap::new(&area, 4096, file.as_fd().try_clone_to_owned().expect("a copy"));
        World::new(Rc::new(area), heap.expect("a heap"), (1, 1), |_| ())
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
        let part = world.private(path).expect("read in");
        let mut bytes = vec![0; content.len()];
        part.read(0, &mut bytes).expect("read");
        assert!(bytes == content);
        part.write(0, b"changed").expect("written");
        assert!(std::fs::read(path).expect("read") == content);
    }
}
