//! mmap(2) beside direct I/O.

use crate::mounted::Mounted;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;

const BYTES: usize = 3 * 4096;

/// A shared mapping of a file's first bytes.
pub struct Mapping {
    at: *mut u8,
}

impl Mapping {
    pub fn of(file: &File) -> Self {
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

    pub fn write(&mut self, index: usize, byte: u8) {
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

#[test]
fn a_shared_mapping_and_the_calls_see_each_other() {
    let Some(mut mounted) = Mounted::new() else { return };
    let path = mounted.path("mapped");
    fs::write(&path, vec![b'.'; BYTES]).expect("write");
    let file = OpenOptions::new().read(true).write(true).open(&path).expect("open");
    let mut mapping = Mapping::of(&file);
    assert_eq!(mapping.read(5000), b'.');

    mapping.write(5000, b'm');
    mapping.sync();
    assert_eq!(fs::read(&path).expect("read")[5000], b'm');

    file.write_all_at(b"w", 5001).expect("write");
    assert_eq!((mapping.read(5000), mapping.read(5001)), (b'm', b'w'));

    // Not synced: a read of the same mount has the kernel write it back first.
    mapping.write(9000, b'u');
    let mut byte = [0];
    file.read_exact_at(&mut byte, 9000).expect("read");
    assert_eq!(byte, *b"u");

    drop((mapping, file));
    assert_eq!(fs::metadata(&path).expect("stat").len(), BYTES as u64);
    mounted.unmount();
}

#[test]
fn a_mapped_append_only_file_is_written_back_in_place() {
    let Some(mut mounted) = Mounted::new() else { return };
    let path = mounted.path("mapped");
    fs::write(&path, vec![b'.'; BYTES]).expect("write");
    let file = OpenOptions::new().read(true).append(true).open(&path).expect("open");
    let mut mapping = Mapping::of(&file);
    mapping.write(10, b'm');
    mapping.sync();
    let content = fs::read(&path).expect("read");
    assert_eq!((content.len(), content[10]), (BYTES, b'm'));
    drop((mapping, file));
    mounted.unmount();
}
