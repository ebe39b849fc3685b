//! Memory that two processes share: words by which they take turns, and bytes that one of them writes.
//!
//! One [makes](Words::new) it, the other [opens](Words::open) it. A word is an atomic number on cache
//! lines of its own. The bytes have no lock: the words say whose turn it is, and only the process whose
//! turn it is touches them. One that breaks this reads bytes of which some are old and some are new.

use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a word is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// So many looks go by between two looks at the clock.
const LOOKS: u32 = 1 << 16;
/// Words lie so far apart that no two share what the hardware moves at once: two lines of 64 bytes.
const APART: usize = 128;
const HEAD_BYTES: usize = 4096;

/// A head of words, then bytes.
#[derive(Debug)]
pub struct Words {
    base: *mut u8,
    data_bytes: usize,
    file: File,
}

// SAFETY: the memory belongs to the process, not to a thread; what is shared of it is atomic, or handed out under
// the rules of `data`.
unsafe impl Send for Words {}

impl Words {
    /// How many words there are.
    pub const COUNT: usize = HEAD_BYTES / APART;

    /// Makes it, with so many bytes behind the words.
    pub fn new(data_bytes: usize) -> io::Result<Words> {
        let file = File::from(rustix::fs::memfd_create("covey-words", MemfdFlags::CLOEXEC)?);
        file.set_len((HEAD_BYTES + data_bytes) as u64)?;
        Words::of(file, data_bytes)
    }

    /// Opens what another process has made with as many bytes.
    pub fn open(path: &Path, data_bytes: usize) -> io::Result<Words> {
        let file = File::options().read(true).write(true).open(path)?;
        if file.metadata()?.len() != (HEAD_BYTES + data_bytes) as u64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Words::of(file, data_bytes)
    }

    fn of(file: File, data_bytes: usize) -> io::Result<Words> {
        let (access, bytes) = (ProtFlags::READ | ProtFlags::WRITE, HEAD_BYTES + data_bytes);
        // SAFETY: the kernel chooses where, so nothing that is there is replaced.
        let base =
            unsafe { mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, &file, 0)? };
        Ok(Words { base: base.cast(), data_bytes, file })
    }

    /// Where another process finds it.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()))
    }

    /// A word by its index, below [`COUNT`](Words::COUNT).
    pub fn word(&self, index: usize) -> Word<'_> {
        assert!(index < Words::COUNT, "word {index} of {}", Words::COUNT);
        let at = index * APART;
        // SAFETY: the head is mapped as long as `self` lives, aligned, and used through atomics only.
        Word(unsafe { AtomicU64::from_ptr(self.base.add(at).cast()) })
    }

    /// The first of the bytes, as long as it is this process's turn.
    pub fn data(&self, bytes: usize) -> &[u8] {
        let bytes = bytes.min(self.data_bytes);
        // SAFETY: they are mapped as long as `self` lives; here only `data_mut` writes them, which takes
        // `self` exclusively, and the other process does so in its turn only.
        unsafe { std::slice::from_raw_parts(self.base.add(HEAD_BYTES), bytes) }
    }

    /// The same, to write.
    pub fn data_mut(&mut self, bytes: usize) -> &mut [u8] {
        let bytes = bytes.min(self.data_bytes);
        // SAFETY: they are mapped as long as `self` lives, which is held exclusively; the other process
        // touches them in its turn only.
        unsafe { std::slice::from_raw_parts_mut(self.base.add(HEAD_BYTES), bytes) }
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: nothing that was handed out outlives `self`.
        let _ = unsafe { munmap(self.base.cast(), HEAD_BYTES + self.data_bytes) };
    }
}

/// A word.
#[derive(Clone, Copy, Debug)]
pub struct Word<'a>(&'a AtomicU64);

impl Word<'_> {
    /// What it holds, with all that was written before it was [set](Word::set).
    #[inline]
    pub fn value(self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Writes something that another `set` tells of.
    #[inline]
    pub fn put(self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Writes it, and with it all that was written before.
    #[inline]
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
