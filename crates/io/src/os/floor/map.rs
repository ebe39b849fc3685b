//! Memory that two processes share, and the words in it.

use super::{LOOKS, PATIENCE};
use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Words lie so far apart that no two share what the hardware moves at once: two lines of 64 bytes.
const APART: usize = 128;
const HEAD_BYTES: usize = 4096;

/// What the words are for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Word {
    Asked,
    Question,
    First,
    Second,
    Ready,
    Failed,
    Result,
    Process,
    Ping,
    Pong,
}

/// A head of words, then bytes.
#[derive(Debug)]
pub(super) struct Map {
    base: *mut u8,
    data_bytes: usize,
    file: File,
}

// SAFETY: the memory belongs to the process, not to a thread; what is shared of it is atomic, or handed out under
// the rules of `data`.
unsafe impl Send for Map {}

impl Map {
    pub fn new(data_bytes: usize) -> io::Result<Map> {
        let file = File::from(rustix::fs::memfd_create("covey-floor", MemfdFlags::CLOEXEC)?);
        file.set_len((HEAD_BYTES + data_bytes) as u64)?;
        Map::of(file, data_bytes)
    }

    pub fn open(path: &Path, data_bytes: usize) -> io::Result<Map> {
        let file = File::options().read(true).write(true).open(path)?;
        if file.metadata()?.len() != (HEAD_BYTES + data_bytes) as u64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Map::of(file, data_bytes)
    }

    fn of(file: File, data_bytes: usize) -> io::Result<Map> {
        let (access, bytes) = (ProtFlags::READ | ProtFlags::WRITE, HEAD_BYTES + data_bytes);
        // SAFETY: the kernel chooses where, so nothing that is there is replaced.
        let base =
            unsafe { mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, &file, 0)? };
        Ok(Map { base: base.cast(), data_bytes, file })
    }

    /// Where another process finds it.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()))
    }

    pub fn word(&self, word: Word) -> Cell<'_> {
        let at = word as usize * APART;
        debug_assert!(at + size_of::<AtomicU64>() <= HEAD_BYTES);
        // SAFETY: the head is mapped as long as `self` lives, aligned, and used through atomics only.
        Cell(unsafe { AtomicU64::from_ptr(self.base.add(at).cast()) })
    }

    /// The first of the bytes.
    ///
    /// # Safety
    ///
    /// Nobody writes there meanwhile.
    pub unsafe fn data(&self, bytes: usize) -> &[u8] {
        let bytes = bytes.min(self.data_bytes);
        // SAFETY: they are mapped as long as `self` lives, and the caller promises the rest.
        unsafe { std::slice::from_raw_parts(self.base.add(HEAD_BYTES), bytes) }
    }

    /// The same, to write.
    ///
    /// # Safety
    ///
    /// Nobody else reads or writes there meanwhile.
    pub unsafe fn data_mut(&mut self, bytes: usize) -> &mut [u8] {
        let bytes = bytes.min(self.data_bytes);
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.base.add(HEAD_BYTES), bytes) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: nothing that was handed out outlives `self`.
        let _ = unsafe { munmap(self.base.cast(), HEAD_BYTES + self.data_bytes) };
    }
}

/// A word.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell<'a>(&'a AtomicU64);

impl Cell<'_> {
    pub fn value(self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Writes something that another `set` tells of.
    pub fn put(self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub fn set(self, value: u64) {
        self.0.store(value, Ordering::Release);
    }

    /// Waits awake, and without the CPU's own pause, which is longer than a cache line takes.
    pub fn wait_for(self, value: u64) -> io::Result<()> {
        let mut begin = None;
        loop {
            for _ in 0..LOOKS {
                if self.value() == value {
                    return Ok(());
                }
            }
            // Where there are fewer CPUs than processes the other comes only when this one lets it.
            std::thread::yield_now();
            if begin.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }
}
