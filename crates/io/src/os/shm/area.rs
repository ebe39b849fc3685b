//! The memory that a host shares with its workers, files that they map, and how both are handed over a socket.
//!
//! ```text
//!   host ── socket ──► worker    a card, the area, the host's bell, the worker's bell
//!        ── socket ──► worker    a number and a file, when a file is mapped
//! ```
//!
//! An area is a sealed file in memory, so nobody can take its pages away. A host's file is not: what another process cuts off
//! raises SIGBUS where it is touched, which is caught: zeros stand for what is gone, and the copy is an error.

use super::arena::{LAST, SEALS};
use super::barrier;
use super::heap::Heap;
use super::meet;
use super::sleep::is_readable;
use covey_wire::{Shared, Span};
use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, Once, PoisonError};

/// Of the pages that a processor finds with one entry fewer.
pub const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// Gives back what was mapped too much.
///
/// # Safety
///
/// Nobody uses these bytes, which are whole pages of a mapping.
unsafe fn trim(at: *mut u8, bytes: usize) {
    if bytes > 0 {
        // SAFETY: promised by the caller.
        let _ = unsafe { rustix::mm::munmap(at.cast(), bytes) };
    }
}

/// Shared memory of a host and its workers.
#[derive(Debug)]
pub struct Area {
    map: Map,
    /// Whether the other side makes this process pass barriers.
    has_barrier: bool,
}

/// A mapping that ends with this.
#[derive(Debug)]
struct Map {
    base: *mut u8,
    bytes: usize,
}

// SAFETY: a mapping is used by several processes at once anyway; its words are atomics, and the protocol over it says
// who may write what else.
unsafe impl Send for Map {}
// SAFETY: its words are atomics, and the protocol over it says who may write what else.
unsafe impl Sync for Map {}

impl Map {
    /// At an address where pages of the file that are huge are huge here, too.
    fn new(file: BorrowedFd<'_>, bytes: usize, protection: ProtFlags) -> io::Result<Map> {
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        let huge = HUGE_PAGE_BYTES as usize;
        let too_large = || io::Error::from(io::ErrorKind::InvalidInput);
        let room = bytes.checked_next_multiple_of(4096).ok_or_else(too_large)?;
        let slack = if bytes >= huge { huge } else { 0 };
        let whole = room.checked_add(slack).ok_or_else(too_large)?;
        // SAFETY: a new mapping at an address that the kernel chooses, in whose place the file's comes, and whose rest goes.
        unsafe {
            let empty = MapFlags::PRIVATE | MapFlags::NORESERVE;
            let null = std::ptr::null_mut();
            let begin = rustix::mm::mmap_anonymous(null, whole, ProtFlags::empty(), empty)?;
            let before = if slack > 0 { begin.cast::<u8>().align_offset(huge) } else { 0 };
            let base = begin.cast::<u8>().add(before);
            let mapped =
                rustix::mm::mmap(base.cast(), bytes, protection, flags | MapFlags::FIXED, file, 0);
            if mapped.is_err() {
                let _ = rustix::mm::munmap(begin, whole);
            } else {
                trim(begin.cast(), before);
                trim(base.add(room), slack - before);
            }
            let _ = mapped?.expose_provenance();
            Ok(Map { base, bytes })
        }
    }

    /// The address of `bytes` bytes from `at` on; `None` when they are not all there.
    fn part(&self, at: u64, bytes: u64) -> Option<*mut u8> {
        let end = at.checked_add(bytes)?;
        // SAFETY: the offset lies within the mapping, or right behind it.
        (end <= self.bytes as u64).then(|| unsafe { self.base.add(at as usize) })
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing refers to it any more.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), self.bytes) };
    }
}

impl Area {
    /// An area of so many zeros, and the file that others map it by. Pages that are not used take none.
    pub fn make(bytes: u64) -> io::Result<(Area, OwnedFd)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("covey-cell", flags)?;
        rustix::fs::ftruncate(&file, bytes)?;
        rustix::fs::fcntl_add_seals(&file, SEALS | LAST)?;
        Ok((Area::open(file.as_fd())?, file))
    }

    /// Maps the area of a host. Refuses one that could shrink.
    pub fn open(file: BorrowedFd<'_>) -> io::Result<Area> {
        if !rustix::fs::fcntl_get_seals(file)?.contains(SEALS) {
            let what = "shared memory is not sealed";
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        let bytes = usize::try_from(rustix::fs::fstat(file)?.st_size).unwrap_or(0);
        let map = Map::new(file, bytes, ProtFlags::READ | ProtFlags::WRITE)?;
        Ok(Area { map, has_barrier: false })
    }

    /// Has the kernel make this process pass barriers that the host asks for, if the host can: copies need none of their own
    /// then.
    fn rely_on_barriers(&mut self, host_can: bool) {
        self.has_barrier = host_can && barrier::register();
    }

    /// Bytes of it.
    pub fn bytes(&self) -> u64 {
        self.map.bytes as u64
    }

    /// Makes huge pages of a part, whatever it holds: whole ones, at multiples of [`HUGE_PAGE_BYTES`]. An error where the
    /// system has none. Unlike advice this works where the system gives shared memory none by itself.
    pub fn make_huge(&self, at: u64, bytes: u64) -> io::Result<()> {
        let part = self.map.part(at, bytes).ok_or(io::ErrorKind::InvalidInput)?;
        // Only pages that are there become one.
        for advice in [MADV_POPULATE_WRITE, MADV_COLLAPSE] {
            // SAFETY: it changes no byte of a mapping of ours.
            if unsafe { libc::madvise(part.cast(), bytes as usize, advice) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }

    /// The addresses of a part; `None` when it is not all there.
    pub fn span(&self, at: u64, bytes: u64) -> Option<Span> {
        self.map.part(at, bytes).map(|address| Span::new(address as u64, bytes))
    }

    /// A part with room for a word; panics where there is none, which is a mistake of ours.
    #[inline]
    fn word<T>(&self, at: u64) -> *mut T {
        assert!(at.is_multiple_of(size_of::<T>() as u64), "{at} is no place of a word");
        self.map.part(at, size_of::<T>() as u64).expect("words lie in the area").cast()
    }
}

/// `madvise(2)`, since Linux 5.14 and 6.1.
const MADV_POPULATE_WRITE: libc::c_int = 23;
const MADV_COLLAPSE: libc::c_int = 25;

/// Why shared memory of this system has no huge pages; none where it has: one is made and thrown away.
pub fn huge_pages() -> io::Result<()> {
    let (area, _) = Area::make(HUGE_PAGE_BYTES)?;
    area.make_huge(0, HUGE_PAGE_BYTES)
}

impl Shared for Area {
    #[inline]
    fn load(&self, at: u64) -> u32 {
        // SAFETY: within the mapping, aligned, used as an atomic by everyone.
        let word = unsafe { &*self.word::<AtomicU32>(at) };
        u32::from_le(word.load(Ordering::Acquire))
    }

    #[inline]
    fn store(&self, at: u64, value: u32) {
        // SAFETY: the word lies within the mapping, is aligned, and everyone uses it as an atomic.
        unsafe { &*self.word::<AtomicU32>(at) }.store(value.to_le(), Ordering::Release);
    }

    #[inline]
    fn load_wide(&self, at: u64) -> u64 {
        // SAFETY: the word lies within the mapping, is aligned, and everyone uses it as an atomic.
        let word = unsafe { &*self.word::<AtomicU64>(at) };
        u64::from_le(word.load(Ordering::Acquire))
    }

    #[inline]
    fn store_wide(&self, at: u64, value: u64) {
        // SAFETY: the word lies within the mapping, is aligned, and everyone uses it as an atomic.
        unsafe { &*self.word::<AtomicU64>(at) }.store(value.to_le(), Ordering::Release);
    }

    #[inline]
    fn fence(&self) {
        fence(Ordering::SeqCst);
    }

    #[inline]
    fn fence_light(&self) {
        barrier::light(self.has_barrier);
    }

    fn fence_heavy(&self) {
        barrier::heavy();
    }

    fn read(&self, at: u64, into: &mut [u8]) {
        let from = self.map.part(at, into.len() as u64).expect("what is read lies in the area");
        // SAFETY: within the mapping. Others may write there meanwhile: what is copied is checked after it.
        unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
    }

    fn write(&self, at: u64, from: &[u8]) {
        let to = self.map.part(at, from.len() as u64).expect("what is written lies in the area");
        // SAFETY: within the mapping; that nobody else writes there is settled by the protocol.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
    }
}

/// A part of an area that is given out in pieces, which are zeros.
#[derive(Debug)]
pub struct AreaHeap {
    heap: Heap,
    base: u64,
    file: OwnedFd,
}

impl AreaHeap {
    /// The part of `area` from `at` on.
    pub fn new(area: &Area, at: u64, file: OwnedFd) -> Option<AreaHeap> {
        let span = area.span(at, area.bytes().checked_sub(at)?)?;
        Some(AreaHeap { heap: Heap::new(span), base: span.address - at, file })
    }

    /// So many zeros; their offset.
    pub fn allocate(&mut self, bytes: u64) -> Option<u64> {
        // At huge pages' beginnings where there may be some.
        let align = if bytes >= HUGE_PAGE_BYTES { HUGE_PAGE_BYTES } else { 0 };
        self.heap.allocate_at(bytes, align).map(|span| span.address - self.base)
    }

    /// Gives a piece back, and its pages to the system.
    pub fn release(&mut self, at: u64, bytes: u64) {
        self.clear(at, bytes);
        self.heap.release(self.base + at);
    }

    /// Makes zeros of a range; whole pages go back to the system.
    pub fn clear(&self, at: u64, bytes: u64) {
        use rustix::fs::{FallocateFlags, fallocate};
        if bytes > 0 {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // A file in memory has holes; that it might not is not worth a failure of who frees.
            let _ = fallocate(&self.file, flags, at, bytes);
        }
    }
}

/// What a worker gets first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Card {
    /// Its number.
    pub worker: u32,
    /// Workers of its host.
    pub workers: u32,
    /// Bytes of its local store.
    pub store_bytes: u64,
    /// The user that it is.
    pub uid: u32,
    /// Whether to ask for huge pages.
    pub is_huge: bool,
}

impl Card {
    fn encode(self) -> [u8; CARD_BYTES] {
        let mut bytes = [0; CARD_BYTES];
        let can_barrier = if barrier::register() { FLAG_BARRIER } else { 0 };
        let flags = can_barrier | u32::from(self.is_huge);
        let words = [self.worker, self.workers, self.uid, flags];
        for (place, word) in bytes[8..24].as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *place = word.to_le_bytes();
        }
        bytes[..8].copy_from_slice(MAGIC);
        bytes[24..].copy_from_slice(&self.store_bytes.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; CARD_BYTES]) -> Option<(Card, bool)> {
        let (magic, rest) = bytes.split_first_chunk::<8>()?;
        let (words, store) = rest.split_at(16);
        let [worker, workers, uid, flags] =
            <[[u8; 4]; 4]>::try_from(words.as_chunks().0).ok()?.map(u32::from_le_bytes);
        let store_bytes = u64::from_le_bytes(store.try_into().ok()?);
        let card = Card { worker, workers, store_bytes, uid, is_huge: flags & 1 == 1 };
        (magic == MAGIC).then_some((card, flags & FLAG_BARRIER != 0))
    }
}

/// The host makes registered processes pass barriers.
const FLAG_BARRIER: u32 = 2;
const MAGIC: &[u8; 8] = b"cell\0\0\0\x01";
const CARD_BYTES: usize = 32;

/// Sends a worker what it needs.
pub fn greet(
    socket: &UnixStream,
    card: Card,
    area: BorrowedFd<'_>,
    host: &super::Bell,
    worker: &super::Bell,
) -> io::Result<()> {
    meet::send(socket, &card.encode(), &[area, host.as_fd(), worker.as_fd()])
}

/// What a worker was sent: its card, the area, the host's bell and its own. Waits for it.
pub fn greeted(socket: &UnixStream) -> io::Result<(Card, Area, super::Bell, super::Bell)> {
    let refuse = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let (bytes, fds) = meet::receive::<CARD_BYTES>(socket)?;
    let (card, can_barrier) =
        Card::decode(&bytes).ok_or_else(|| refuse("host is of another version"))?;
    let [area, host, worker] = <[OwnedFd; 3]>::try_from(fds)
        .map_err(|_| refuse("no memory came over, or this process may open no more files"))?;
    let mut area = Area::open(area.as_fd())?;
    area.rely_on_barriers(can_barrier);
    Ok((card, area, host.into(), worker.into()))
}

/// Hands a file over under a number.
pub fn hand_over(socket: &UnixStream, number: u32, bytes: u64, file: &File) -> io::Result<()> {
    let mut message = [0; HAND_BYTES];
    message[..4].copy_from_slice(&number.to_le_bytes());
    message[8..].copy_from_slice(&bytes.to_le_bytes());
    meet::send(socket, &message, &[file.as_fd()])
}

/// Takes a file back: its number may be another's next.
pub fn take_back(socket: &UnixStream, number: u32) -> io::Result<()> {
    let mut message = [0; HAND_BYTES];
    message[..4].copy_from_slice(&number.to_le_bytes());
    meet::send(socket, &message, &[])
}

/// What a host has sent.
#[derive(Debug)]
pub enum Handed {
    /// A file, under this number, or why it could not be mapped.
    File(u32, io::Result<MappedFile>),
    /// The file under this number is no longer lent.
    Back(u32),
}

/// The next of what was handed over; none if nothing has come.
pub fn handed(socket: &UnixStream) -> io::Result<Option<Handed>> {
    if is_readable(socket.as_fd()) { handed_over(socket).map(Some) } else { Ok(None) }
}

/// The next of what is handed over. Waits for it.
pub fn handed_over(socket: &UnixStream) -> io::Result<Handed> {
    let (message, fds) = meet::receive::<HAND_BYTES>(socket)?;
    let (number, rest) = message.split_first_chunk::<4>().expect("it is longer");
    let number = u32::from_le_bytes(*number);
    let bytes = u64::from_le_bytes(*rest.last_chunk::<8>().expect("it is longer"));
    if bytes == 0 && fds.is_empty() {
        return Ok(Handed::Back(number));
    }
    let [file] = <[OwnedFd; 1]>::try_from(fds)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "no file was handed over"))?;
    Ok(Handed::File(number, MappedFile::new(file.as_fd(), bytes)))
}

const HAND_BYTES: usize = 16;

/// A file of the host, mapped with room to grow.
#[derive(Debug)]
pub struct MappedFile {
    map: Map,
    watch: usize,
}

impl MappedFile {
    /// Maps `bytes` bytes of a file, which may have fewer by now: read-only if it is open so.
    pub fn new(file: BorrowedFd<'_>, bytes: u64) -> io::Result<MappedFile> {
        let bytes = usize::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        let access = rustix::fs::fcntl_getfl(file)? & rustix::fs::OFlags::RWMODE;
        let protection = if access == rustix::fs::OFlags::RDONLY {
            ProtFlags::READ
        } else {
            ProtFlags::READ | ProtFlags::WRITE
        };
        let map = Map::new(file, bytes, protection)?;
        let watch = watch(&map)?;
        Ok(MappedFile { map, watch })
    }

    /// The addresses of a part; `None` when it is not all mapped, or when the file has lost bytes under us.
    #[inline]
    pub fn span(&self, at: u64, bytes: u64) -> Option<Span> {
        let part = self.map.part(at, bytes).filter(|_| self.is_whole());
        part.map(|address| Span::new(address as u64, bytes))
    }

    /// Whether everything that was touched was there. Once it was not, the mapping is no use.
    #[inline]
    pub fn is_whole(&self) -> bool {
        WATCHES[self.watch].lost.load(Ordering::Relaxed) == 0
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        let watch = &WATCHES[self.watch];
        watch.begin.store(0, Ordering::SeqCst);
        watch.end.store(0, Ordering::SeqCst);
    }
}

/// A range of addresses where SIGBUS means that a file has become shorter.
struct Watch {
    begin: AtomicUsize,
    end: AtomicUsize,
    lost: AtomicI32,
}

const WATCHES_MAX: usize = 1024;
static WATCHES: [Watch; WATCHES_MAX] = [const {
    Watch { begin: AtomicUsize::new(0), end: AtomicUsize::new(0), lost: AtomicI32::new(0) }
}; WATCHES_MAX];
static TAKING: Mutex<()> = Mutex::new(());
static CATCH: Once = Once::new();

fn watch(map: &Map) -> io::Result<usize> {
    CATCH.call_once(catch);
    let _one = TAKING.lock().unwrap_or_else(PoisonError::into_inner);
    let free = WATCHES.iter().position(|watch| watch.begin.load(Ordering::SeqCst) == 0);
    let free = free.ok_or_else(|| {
        let what = format!("{WATCHES_MAX} files are mapped, the limit of a process");
        io::Error::new(io::ErrorKind::QuotaExceeded, what)
    })?;
    let begin = map.base.expose_provenance();
    WATCHES[free].lost.store(0, Ordering::SeqCst);
    WATCHES[free].end.store(begin + map.bytes, Ordering::SeqCst);
    WATCHES[free].begin.store(begin, Ordering::SeqCst);
    Ok(free)
}

fn catch() {
    // SAFETY: the handler does nothing that a handler may not; the action is a plain structure.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_bus as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
    }
}

/// A page that a watched file has lost becomes zeros. Any other fault is as deadly as without us.
extern "C" fn on_bus(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel gives a valid structure.
    let address = unsafe { (*info).si_addr() } as usize;
    let hit = WATCHES.iter().find(|watch| {
        let (begin, end) = (watch.begin.load(Ordering::SeqCst), watch.end.load(Ordering::SeqCst));
        begin != 0 && (begin..end).contains(&address)
    });
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let page = address & !(PAGE - 1);
    // SAFETY: it replaces one page of a mapping of ours, which its file has lost.
    let is_mended = hit.is_some()
        && unsafe {
            let at = std::ptr::with_exposed_provenance_mut(page);
            libc::mmap(at, PAGE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
                != libc::MAP_FAILED
        };
    match hit {
        Some(watch) if is_mended => watch.lost.store(1, Ordering::SeqCst),
        // SAFETY: the next touch of the same byte ends the process as if there were no handler.
        _ => unsafe {
            libc::signal(libc::SIGBUS, libc::SIG_DFL);
        },
    }
}

const PAGE: usize = 4096;

#[cfg(test)]
mod tests;
