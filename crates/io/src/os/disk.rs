//! The system's disk.

use super::file::DataFile;
use crate::disk::{Disk, DiskFile, FileStat, Flush, Open, Piece, Space};
use bytes::Bytes;
use covey_wire::FileRange;
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, fsync, seek, statvfs};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Files of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsDisk;

impl Disk for OsDisk {
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600);
        options.create(how != Open::Existing).truncate(how == Open::Truncate);
        Ok(Arc::new(DataFile::new(options.open(path)?)?))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        fs::create_dir_all(dir)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        match fs::remove_dir(dir) {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty
                ) =>
            {
                Ok(())
            }
            removed => removed,
        }
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name())).collect()
    }

    fn stat(&self, path: &Path) -> io::Result<FileStat> {
        Ok(stat_of(&fs::metadata(path)?))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        Ok(fsync(File::open(dir)?)?)
    }

    fn space(&self, dir: &Path) -> io::Result<Space> {
        let space = statvfs(dir)?;
        Ok(Space {
            unit: space.f_frsize,
            units: space.f_blocks,
            free: space.f_bfree,
            available: space.f_bavail,
            files: space.f_files,
            files_free: space.f_ffree,
            id: space.f_fsid,
            name_bytes_max: space.f_namemax,
        })
    }

    fn machine_start(&self, dir: &Path) -> u64 {
        self.machine_boot() ^ mount_number(dir).unwrap_or(0).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn machine_boot(&self) -> u64 {
        // A random number of the kernel's, in text; a kernel that has none cannot be told from others.
        let text = fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let digits = text.iter().filter_map(|byte| char::from(*byte).to_digit(16));
        digits.take(16).fold(0, |number, digit| number << 4 | u64::from(digit))
    }

    fn mark(&self) -> io::Result<[u8; 16]> {
        super::random::bytes()
    }

    fn machine_age(&self) -> Duration {
        // Seconds with two decimals, which leave out the rest.
        let text = fs::read_to_string("/proc/uptime").unwrap_or_default();
        let seconds = text.split(' ').next().and_then(|seconds| seconds.parse().ok());
        let age = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        age.unwrap_or(Duration::MAX)
    }
}

impl DiskFile for DataFile {
    fn read_now(&self, offset: u64, length: usize) -> io::Result<Option<Bytes>> {
        DataFile::read_now(self, offset, length)
    }

    fn append_now(&self, offset: u64, length: usize, out: &mut Vec<u8>) -> io::Result<bool> {
        DataFile::append_now(self, offset, length, out)
    }

    fn range(&self, offset: u64, length: usize) -> io::Result<Option<FileRange>> {
        DataFile::range(self, offset, length)
    }

    fn range_by_copy(&self, offset: u64, length: usize) -> io::Result<Option<FileRange>> {
        DataFile::range_by_copy(self, offset, length)
    }

    fn write_now(&self, offset: u64, slices: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        DataFile::write_now(self, offset, slices)
    }

    fn read_blocking(&self, offset: u64, length: usize) -> io::Result<Bytes> {
        DataFile::read_blocking(self, offset, length)
    }

    fn write_all_blocking(&self, offset: u64, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        DataFile::write_all_blocking(self, offset, slices)
    }

    fn read_list_now(&self, pieces: &[Piece]) -> io::Result<Option<Bytes>> {
        DataFile::read_list_now(self, pieces)
    }

    fn read_list_blocking(&self, pieces: &[Piece]) -> io::Result<Bytes> {
        DataFile::read_list_blocking(self, pieces)
    }

    fn write_list_now(&self, pieces: &[Piece], data: &[u8]) -> io::Result<Option<usize>> {
        DataFile::write_list_now(self, pieces, data)
    }

    fn write_list_blocking(&self, pieces: &[Piece], data: &[u8]) -> io::Result<usize> {
        DataFile::write_list_blocking(self, pieces, data)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.file().set_len(length)
    }

    fn reserve(&self, offset: u64, length: u64) -> io::Result<()> {
        Ok(fallocate(self.file(), FallocateFlags::KEEP_SIZE, offset, length)?)
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        Ok(fallocate(self.file(), FallocateFlags::empty(), offset, length)?)
    }

    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(self.file(), punch, offset, length)?)
    }

    fn extent(&self, offset: u64) -> io::Result<Option<(u64, u64)>> {
        let next = |whence| match seek(self.file(), whence) {
            Ok(at) => Ok(Some(at)),
            Err(Errno::NXIO) => Ok(None),
            Err(error) => Err(io::Error::from(error)),
        };
        let Some(data) = next(SeekFrom::Data(offset))? else { return Ok(None) };
        let hole = next(SeekFrom::Hole(data))?.unwrap_or(data);
        // Cut in between: there is nothing any more.
        Ok((hole > data).then_some((data, hole)))
    }

    fn check_written_back(&self) -> io::Result<()> {
        let (fd, wait) = (self.file().as_raw_fd(), libc::SYNC_FILE_RANGE_WAIT_BEFORE);
        // A range where no file has pages: nothing is waited for. A failure is reported wherever in the file it was.
        // SAFETY: the descriptor is the file's, which is open, and the rest are numbers.
        let checked = unsafe { libc::sync_file_range(fd, 1 << 62, 1, wait) };
        if checked == 0 {
            return Ok(());
        }
        match io::Error::last_os_error() {
            // A file system, or a sandbox, that has nothing to say.
            error if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS)) => Ok(()),
            error => Err(error),
        }
    }

    fn sync_blocking(&self, what: Flush) -> io::Result<()> {
        match what {
            Flush::Data => self.file().sync_data(),
            Flush::All => self.file().sync_all(),
        }
    }

    fn stat(&self) -> io::Result<FileStat> {
        Ok(stat_of(&self.file().metadata()?))
    }
}

/// A number that changes when the file system of a directory is mounted anew, in this start of the
/// machine: of the directory that ext4, XFS and F2FS make for each mounted disk in /sys/fs/TYPE/DISK. The
/// kernel gives no such inode number twice. The numbers of mounts would not do: a service that is
/// restarted in a mount namespace of its own has others, and has lost nothing. None where there is no such
/// directory.
fn mount_number(dir: &Path) -> Option<u64> {
    let device = fs::metadata(dir).ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let disk = fs::read_link(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    let disk = disk.file_name()?;
    let types = fs::read_dir("/sys/fs").ok()?;
    let mounted = types.filter_map(|kind| fs::metadata(kind.ok()?.path().join(disk)).ok());
    mounted.map(|meta| meta.ino()).next()
}

fn stat_of(meta: &Metadata) -> FileStat {
    let seconds = u64::try_from(meta.mtime()).unwrap_or(0);
    FileStat {
        bytes: meta.len(),
        blocks: meta.blocks(),
        modified: Duration::new(seconds, meta.mtime_nsec() as u32),
    }
}
