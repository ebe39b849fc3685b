//! Data files: reads and writes that never make the thread wait, and others that may.
//!
//! A server's thread serves many clients, so it touches a file itself only where that cannot block:
//! on memory file systems, which have the data by definition, and elsewhere for reads that the page
//! cache can answer (`RWF_NOWAIT`). Everything else goes to the blocking pool. A file system that
//! refuses `RWF_NOWAIT` (overlay, FUSE) is asked once per file and not again.

use crate::task::blocking;
mod list;
mod map;
mod range;
mod receive;
mod send;
mod window;

pub use range::range_blocking;
pub(crate) use range::{read_range, read_range_into};
pub use receive::Received;
pub(crate) use receive::receive;
pub(crate) use send::{front, send_some};
pub(crate) use window::MappedRange;

use bytes::Bytes;
use rustix::fs::fstatfs;
use rustix::io::{Errno, pwritev};
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Where a file's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// tmpfs or ramfs: in memory, so nothing blocks.
    Memory,
    /// Anything else.
    Other,
}

impl FileKind {
    /// The kind of the file system that `file` is on. One system call: keep the answer.
    pub fn of(file: impl AsFd) -> io::Result<FileKind> {
        Ok(match fstatfs(file)?.f_type as u64 {
            TMPFS_MAGIC | RAMFS_MAGIC => FileKind::Memory,
            _ => FileKind::Other,
        })
    }
}

/// An open data file: cheap to clone, closed with its last clone.
#[derive(Clone, Debug)]
pub struct DataFile {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    file: File,
    kind: FileKind,
    /// The file system does not know `RWF_NOWAIT`.
    refuses_nowait: AtomicBool,
    mapping: map::Mapping,
    window: window::Window,
}

impl DataFile {
    /// Takes an open file; looks up its kind.
    pub fn new(file: File) -> io::Result<DataFile> {
        let kind = FileKind::of(&file)?;
        Ok(DataFile::of_kind(file, kind))
    }

    /// Takes an open file of a known kind.
    pub fn of_kind(file: File, kind: FileKind) -> DataFile {
        let (refuses_nowait, mapping, window) = Default::default();
        DataFile { inner: Arc::new(Inner { file, kind, refuses_nowait, mapping, window }) }
    }

    /// The file itself.
    pub fn file(&self) -> &File {
        &self.inner.file
    }

    /// Where its bytes are.
    pub fn kind(&self) -> FileKind {
        self.inner.kind
    }

    /// Up to `length` bytes from `offset`, fewer only at the end of the file; `None` when the disk
    /// would have to be waited for.
    pub fn read_now(&self, offset: u64, length: usize) -> io::Result<Option<Bytes>> {
        let mut buffer = Vec::new();
        Ok(self.append_now(offset, length, &mut buffer)?.then(|| trimmed(buffer, length)))
    }

    /// Like `read_now`, but appends to `out`; false when the disk would have to be waited for, and
    /// then, as after an error, `out` is as it was.
    pub fn append_now(&self, offset: u64, length: usize, out: &mut Vec<u8>) -> io::Result<bool> {
        let flags = match self.inner.kind {
            FileKind::Memory => 0,
            FileKind::Other if self.inner.refuses_nowait.load(Ordering::Relaxed) => {
                return Ok(false);
            }
            FileKind::Other => libc::RWF_NOWAIT,
        };
        let before = out.len();
        let error = match append_full(self.as_fd(), offset, length, out, flags) {
            Ok(()) => return Ok(true),
            Err(error) => error,
        };
        out.truncate(before);
        match (self.inner.kind, error) {
            (FileKind::Other, Errno::AGAIN) => Ok(false),
            (FileKind::Other, Errno::OPNOTSUPP) => {
                self.inner.refuses_nowait.store(true, Ordering::Relaxed);
                Ok(false)
            }
            _ => Err(error.into()),
        }
    }

    /// Writes what can be written without waiting: `None` when nothing can. The count is short only
    /// when the file system is full.
    pub fn write_now(&self, offset: u64, slices: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        match self.inner.kind {
            FileKind::Memory => self.write_all_blocking(offset, slices).map(Some),
            FileKind::Other => Ok(None),
        }
    }

    /// Like `read_now`, but waits.
    pub fn read_blocking(&self, offset: u64, length: usize) -> io::Result<Bytes> {
        read_at(self, offset, length)
    }

    /// Writes all of `slices`; the count is short only when something failed after a part was
    /// written. Whoever writes the rest gets the error.
    pub fn write_all_blocking(&self, offset: u64, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(write_full(self.as_fd(), offset, slices)?)
    }

    /// Reads on the blocking pool.
    pub async fn read(&self, offset: u64, length: usize) -> io::Result<Bytes> {
        let file = self.clone();
        blocking(move || file.read_blocking(offset, length)).await
    }

    /// Writes on the blocking pool.
    pub async fn write(&self, offset: u64, data: Vec<Bytes>) -> io::Result<usize> {
        let file = self.clone();
        blocking(move || {
            let slices: Vec<_> = data.iter().map(|piece| IoSlice::new(piece)).collect();
            file.write_all_blocking(offset, &slices)
        })
        .await
    }

    /// Brings the file to the disk, on the blocking pool.
    pub async fn sync(&self, data_only: bool) -> io::Result<()> {
        let file = self.clone();
        let sync = move || if data_only { file.file().sync_data() } else { file.file().sync_all() };
        blocking(sync).await
    }
}

impl AsFd for DataFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.file.as_fd()
    }
}

/// Up to `length` bytes from `offset` of any file, fewer only at its end. May wait.
pub fn read_at(file: impl AsFd, offset: u64, length: usize) -> io::Result<Bytes> {
    let mut buffer = Vec::new();
    append_full(file.as_fd(), offset, length, &mut buffer, 0)?;
    Ok(trimmed(buffer, length))
}

/// Appends until `length` bytes have come or the file ends.
fn append_full(
    file: BorrowedFd<'_>,
    offset: u64,
    length: usize,
    out: &mut Vec<u8>,
    flags: i32,
) -> Result<(), Errno> {
    let start = out.len();
    out.reserve(length);
    while out.len() - start < length {
        let done = out.len() - start;
        match read_some(file, offset + done as u64, out, length - done, flags) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A large allocation must not be held for a few bytes at the end of a file.
fn trimmed(buffer: Vec<u8>, length: usize) -> Bytes {
    if buffer.len() < length / 2 { Bytes::copy_from_slice(&buffer) } else { Bytes::from(buffer) }
}

/// One read into the spare room of `buffer`, of up to `length` bytes.
fn read_some(
    file: BorrowedFd<'_>,
    offset: u64,
    buffer: &mut Vec<u8>,
    length: usize,
    flags: i32,
) -> Result<usize, Errno> {
    let filled = buffer.len();
    let spare = buffer.spare_capacity_mut();
    let count = spare.len().min(length);
    let slice = libc::iovec { iov_base: spare.as_mut_ptr().cast(), iov_len: count };
    let offset = i64::try_from(offset).map_err(|_| Errno::INVAL)?;
    // SAFETY: `slice` describes `count` bytes of the vector's own spare room, borrowed until after
    // the call; the kernel only writes there, so that it is not initialised does not matter.
    let got = unsafe {
        match flags {
            // The list of one costs a fortieth of a small read.
            0 => libc::pread(file.as_raw_fd(), slice.iov_base, count, offset),
            flags => libc::preadv2(file.as_raw_fd(), &slice, 1, offset, flags),
        }
    };
    let Ok(got) = usize::try_from(got) else {
        return Err(last_errno());
    };
    // SAFETY: the kernel has filled `got <= count` bytes behind the first `filled`.
    unsafe { buffer.set_len(filled + got) };
    Ok(got)
}

fn last_errno() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Writes until all is written. After a part, an error is left to the next write.
fn write_full(file: BorrowedFd<'_>, offset: u64, slices: &[IoSlice<'_>]) -> Result<usize, Errno> {
    let total: usize = slices.iter().map(|slice| slice.len()).sum();
    let mut done = 0;
    let mut rest: Vec<IoSlice<'_>>;
    let mut left = &slices[..slices.len().min(SLICES_MAX)];
    while done < total {
        match pwritev(file, left, offset + done as u64) {
            Ok(0) => return if done > 0 { Ok(done) } else { Err(Errno::IO) },
            Ok(count) => done += count,
            Err(Errno::INTR) => continue,
            Err(_) if done > 0 => return Ok(done),
            Err(error) => return Err(error),
        }
        if done < total {
            rest = behind(slices, done);
            left = &rest[..rest.len().min(SLICES_MAX)];
        }
    }
    Ok(done)
}

/// The slices without their first `done` bytes.
fn behind<'a>(slices: &[IoSlice<'a>], done: usize) -> Vec<IoSlice<'a>> {
    let mut all = slices.to_vec();
    let mut rest = &mut all[..];
    IoSlice::advance_slices(&mut rest, done);
    rest.to_vec()
}

const TMPFS_MAGIC: u64 = 0x0102_1994;
const RAMFS_MAGIC: u64 = 0x8584_58f6;
/// Slices per write: Linux's IOV_MAX.
const SLICES_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn in_dir(dir: &str) -> DataFile {
        DataFile::new(tempfile::tempfile_in(dir).unwrap()).unwrap()
    }

    #[test]
    fn on_tmpfs_reads_and_writes_are_answered_now() {
        let file = in_dir("/dev/shm");
        assert_eq!(file.kind(), FileKind::Memory);
        let slices = [IoSlice::new(b"hello "), IoSlice::new(b"world")];
        assert_eq!(file.write_now(3, &slices).unwrap(), Some(11));
        assert_eq!(file.read_now(0, 100).unwrap().unwrap(), &b"\0\0\0hello world"[..]);
        assert_eq!(file.read_now(9, 3).unwrap().unwrap(), &b"wor"[..]);
        assert_eq!(file.read_now(14, 3).unwrap().unwrap(), &b""[..]);
    }

    #[test]
    fn elsewhere_a_read_is_whole_or_not_now() {
        let file = in_dir(env!("CARGO_MANIFEST_DIR"));
        assert_eq!(file.write_now(0, &[IoSlice::new(b"x")]).unwrap(), None);
        let data = vec![5; 100_000];
        assert_eq!(file.write_all_blocking(0, &[IoSlice::new(&data)]).unwrap(), data.len());
        if let Some(read) = file.read_now(0, 200_000).unwrap() {
            assert!(read == data);
        }
        assert!(file.read_blocking(1, 200_000).unwrap() == data[1..]);
    }

    #[test]
    fn the_pool_reads_and_writes_pieces() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let file = in_dir("/dev/shm");
        runtime.block_on(async {
            let pieces = (0..3000u32).map(|n| Bytes::from(n.to_le_bytes().to_vec())).collect();
            assert_eq!(file.write(1, pieces).await.unwrap(), 12_000);
            let read = file.read(1 + 2999 * 4, 100).await.unwrap();
            assert_eq!(read, &2999u32.to_le_bytes()[..]);
            file.sync(true).await.unwrap();
        });
    }

    #[test]
    fn slices_go_on_in_the_middle_of_one() {
        let slices = [IoSlice::new(b"abc"), IoSlice::new(b"def")];
        let rest = behind(&slices, 4);
        assert_eq!(rest.iter().map(|slice| slice.to_vec()).collect::<Vec<_>>(), [b"ef"]);
    }

    #[test]
    fn an_offset_beyond_the_largest_file_is_invalid() {
        let file = in_dir("/dev/shm");
        let error = file.read_now(u64::MAX - 5, 3).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    }
}
