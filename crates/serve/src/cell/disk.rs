//! A file of the host, open: its bytes are read and written, its size changed, and it is closed, by other threads than the
//! host's own, which serves all workers.

use super::mappings::{Lent, Mappings};
use covey_cell::devices::{Access, Backing};
use covey_cell::header::Place;
use covey_io::os::file::DataFile;
use covey_io::task;
use covey_ninep::tree::{Outcome, Result, S_IFMT, S_IFREG};
use covey_wire::Bytes;
use rustix::fs::OFlags;
use std::cell::Cell;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::ops::Deref;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::rc::Rc;

/// The number of a file among all of the machine.
pub(super) fn number(found: &Metadata) -> u64 {
    found.ino() ^ found.dev().rotate_left(40)
}

/// An open file that another thread closes: that may take as long as its file system likes.
pub(super) struct Closed(Option<DataFile>);

impl Closed {
    pub fn new(file: DataFile) -> Closed {
        Closed(Some(file))
    }
}

impl Deref for Closed {
    type Target = DataFile;

    fn deref(&self) -> &DataFile {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        let file = self.0.take();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn_blocking(move || drop(file));
        }
    }
}

/// A file of the host that has just been opened.
pub(super) struct Found {
    file: DataFile,
    number: u64,
    size: u64,
    has_size: bool,
    access: Access,
}

impl Found {
    /// May block.
    pub fn open(path: &str, access: Access) -> io::Result<Found> {
        let (file, access) = open_as(path, access)?;
        let found = file.metadata()?;
        if found.mode() & S_IFMT != S_IFREG {
            // It was one when it was walked to.
            return Err(rustix::io::Errno::PERM.into());
        }
        let system = rustix::fs::fstatfs(&file)?;
        let has_size = !WITHOUT_SIZE.contains(&(system.f_type as i64));
        let (number, size) = (number(&found), found.len());
        Ok(Found { file: DataFile::new(file)?, number, size, has_size, access })
    }
}

/// Memory that is written can be read: what is opened for writing is opened for both if that may be.
fn open_as(path: &str, access: Access) -> io::Result<(File, Access)> {
    let open = |does_read, does_write| {
        let mut options = OpenOptions::new();
        options.read(does_read).write(does_write);
        options.custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)
    };
    match access {
        Access::Read => Ok((open(true, false)?, access)),
        Access::Both => Ok((open(true, true)?, access)),
        Access::Write => match open(true, true) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                Ok((open(false, true)?, access))
            }
            both => Ok((both?, Access::Both)),
        },
    }
}

/// A file of the host.
pub(super) struct OnDisk {
    /// None for one that is used by messages.
    lent: Option<Lent>,
    file: Closed,
    number: u64,
    size: Rc<Cell<u64>>,
    has_size: bool,
    access: Access,
    /// Bytes that are mapped of it.
    room: u64,
}

impl OnDisk {
    pub fn new(found: Found, mappings: &Rc<Mappings>) -> OnDisk {
        let Found { file, number, size, has_size, access } = found;
        let room = size.saturating_mul(2).max(ROOM_MIN);
        let is_lent = has_size && access != Access::Write;
        let lent = if is_lent { mappings.lend(&file, room) } else { None };
        let (file, size) = (Closed::new(file), Rc::new(Cell::new(size)));
        OnDisk { lent, file, number, size, has_size, access, room }
    }
}

impl Backing for OnDisk {
    fn number(&self) -> u64 {
        self.number
    }

    fn access(&self) -> Access {
        self.access
    }

    fn size(&self) -> u64 {
        self.size.get()
    }

    fn measure(&self) -> Outcome<u64> {
        let file = self.file.clone();
        Outcome::later(
            async move { Ok(task::blocking(move || file.file().metadata()).await?.len()) },
        )
    }

    fn settle(&self, size: u64) {
        self.size.set(size);
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
        Ok(self.file.file().write_all_at(data, at)?)
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
        Some(Outcome::later(async move {
            Ok(task::blocking(move || file.file().write_all_at(&data, at)).await?)
        }))
    }

    fn resize(&self, size: u64) -> Outcome<()> {
        let (file, kept) = (self.file.clone(), self.size.clone());
        Outcome::later(async move {
            task::blocking(move || file.file().set_len(size)).await?;
            kept.set(size);
            Ok(())
        })
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

/// A file may grow to this size, or to twice its size, before it is used by messages.
const ROOM_MIN: u64 = 64 << 20;
/// proc, sysfs, cgroup (two), debugfs, tracefs, securityfs: a file there says that it has no bytes, or a page of them.
const WITHOUT_SIZE: [i64; 7] =
    [0x9fa0, 0x6265_6572, 0x0027_e0eb, 0x6367_7270, 0x6462_6720, 0x7472_6163, 0x7363_6673];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::part::tests::done;

    #[test]
    fn what_asks_a_file_system_is_done_by_another_thread() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), b"as it was").expect("written");
        let path = file.path().to_str().expect("a path");
        let found = Found::open(path, Access::Both).expect("open");
        let disk = OnDisk::new(found, &Rc::default());
        let asked = [disk.measure().map(drop), disk.resize(4), disk.sync()];
        for outcome in asked {
            assert!(matches!(outcome, Outcome::Later(_)));
            done(outcome).expect("done");
        }
        assert_eq!((disk.size(), file.path().metadata().expect("found").len()), (4, 4));
    }

    #[test]
    fn a_file_is_open_for_writing_alone_only_where_it_must_be_and_lies_in_no_memory_then() {
        use std::os::unix::fs::PermissionsExt;
        let file = tempfile::NamedTempFile::new().expect("a file");
        let path = file.path().to_str().expect("a path").to_owned();
        let open =
            || Found::open(&path, Access::Write).map(|found| OnDisk::new(found, &Rc::default()));
        let both = open().expect("open");
        assert_eq!((both.access(), both.place().is_some()), (Access::Both, true));
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o200)).expect("changed");
        let written = open().expect("open");
        // Root may read it all the same.
        let is_root = rustix::process::geteuid().is_root();
        assert_eq!(written.access() == Access::Write, !is_root);
        assert_eq!(written.place().is_some(), is_root);
        done(written.store(0, &Bytes::from_static(b"new")).expect("later")).expect("written");
        assert_eq!(done(written.measure()).expect("measured"), 3);
    }
}
