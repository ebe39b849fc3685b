//! mmap(2) beside direct I/O.
//!
//! Only other processes map: the end of a mapping writes it back with the memory of the whole
//! process locked, and a server in the same process would wait for that lock as soon as it
//! allocates.

use crate::mounted::Mounted;
use crate::process::{Deed, finish, start};
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

const BYTES: usize = 3 * 4096;

/// A shared mapping of a file's first bytes.
struct Mapping {
    at: *mut u8,
}

impl Mapping {
    fn of(file: &File) -> Self {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choosing disturbs no other memory.
        let at = unsafe {
            mmap(std::ptr::null_mut(), BYTES, access, MapFlags::SHARED, file, 0).expect("mmap")
        };
        Mapping { at: at.cast() }
    }

    fn read(&self, index: usize) -> u8 {
        assert!(index < BYTES);
        // SAFETY: within the mapping, which lives as long as `self`; the file is long enough.
        unsafe { self.at.add(index).read_volatile() }
    }

    fn write(&mut self, index: usize, byte: u8) {
        assert!(index < BYTES);
        // SAFETY: as for `read`; only this thread writes through the mapping.
        unsafe { self.at.add(index).write_volatile(byte) }
    }

    fn sync(&self) {
        // SAFETY: the range is the whole mapping; msync changes no memory.
        unsafe { msync(self.at.cast(), BYTES, MsyncFlags::SYNC).expect("msync") }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `of` with this length, and nothing refers to it any more.
        unsafe { munmap(self.at.cast(), BYTES).expect("munmap") }
    }
}

/// Calls and a mapping of one file, which begins as dots.
pub fn map_and_call(path: &Path) {
    let file = OpenOptions::new().read(true).write(true).open(path).expect("open");
    let mut mapping = Mapping::of(&file);
    assert_eq!(mapping.read(5000), b'.');
    let mut byte = [0];

    mapping.write(5000, b'm');
    mapping.sync();
    file.read_exact_at(&mut byte, 5000).expect("read");
    assert_eq!(byte, *b"m");

    file.write_all_at(b"w", 5001).expect("write");
    assert_eq!((mapping.read(5000), mapping.read(5001)), (b'm', b'w'));

    // Not synced: a read of the same mount has the kernel write it back first.
    mapping.write(9000, b'u');
    file.read_exact_at(&mut byte, 9000).expect("read");
    assert_eq!(byte, *b"u");
}

/// A mapping of a file that is open to be appended to.
pub fn map_what_is_appended_to(path: &Path) {
    let file = OpenOptions::new().read(true).append(true).open(path).expect("open");
    let mut mapping = Mapping::of(&file);
    mapping.write(10, b'm');
    mapping.sync();
}

/// A mapping whose file is closed before it is written through.
pub fn map_past_the_close(path: &Path) {
    let file = OpenOptions::new().read(true).write(true).open(path).expect("open");
    let mut mapping = Mapping::of(&file);
    drop(file);
    mapping.write(5000, b'm');
}

#[test]
fn a_shared_mapping_and_the_calls_see_each_other() {
    let Some(mut mounted) = Mounted::new() else { return };
    let path = mounted.path("mapped");
    fs::write(&path, vec![b'.'; BYTES]).expect("write");
    finish(start(Deed::MapAndCall, &path));
    let content = fs::read(&path).expect("read");
    assert_eq!((content.len(), content[5000], content[9000]), (BYTES, b'm', b'u'));
    mounted.unmount();
}

#[test]
fn a_mapped_append_only_file_is_written_back_in_place() {
    let Some(mut mounted) = Mounted::new() else { return };
    let path = mounted.path("mapped");
    fs::write(&path, vec![b'.'; BYTES]).expect("write");
    finish(start(Deed::MapWhatIsAppendedTo, &path));
    let content = fs::read(&path).expect("read");
    assert_eq!((content.len(), content[10]), (BYTES, b'm'));
    mounted.unmount();
}
