//! Directory entries, with the file system's own cookies.
//!
//! A cookie is what the kernel calls d_off: it stays good while other entries come and go. The position
//! of the descriptor is shared state, so each call says where it begins, and seeks only when the
//! last call did not end there.

use super::object::{errno, kind, qid_kind, stat_name};
use covey_ninep::message::Qid;
use covey_ninep::tree::{Entry, Errno, Result};
use rustix::fs::{FileType, RawDir, SeekFrom, seek};
use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A directory open for its entries.
pub(super) struct Listing {
    fd: OwnedFd,
    /// The cookie that the kernel's position stands at, where it is known.
    position: Cell<Option<u64>>,
}

impl AsFd for Listing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Listing {
    pub fn new(fd: OwnedFd) -> Self {
        Listing { fd, position: Cell::new(Some(0)) }
    }

    /// Entries after `cookie`, as [`covey_ninep::tree::Tree::readdir`] has it. `path_of` makes a qid
    /// path of a name's inode number.
    pub fn read(
        &self,
        cookie: u64,
        bytes_max: u32,
        path_of: impl Fn(&[u8], u64) -> u64,
    ) -> Result<Vec<Entry>> {
        self.go_to(cookie)?;
        // Large enough for the longest single entry, whatever was asked for.
        let mut buffer = Vec::with_capacity((bytes_max as usize).clamp(READ_MIN, READ_MAX));
        let mut reader = RawDir::new(&self.fd, buffer.spare_capacity_mut());
        let mut entries = Vec::new();
        let mut left = bytes_max as usize;
        let mut end = cookie;
        while let Some(entry) = reader.next() {
            let entry = entry.map_err(errno)?;
            let name = entry.file_name().to_bytes();
            let Some(rest) = left.checked_sub(ENTRY_BYTES + name.len()) else {
                // No entry at all would mean the end of the directory.
                return if entries.is_empty() { Err(Errno::EINVAL.into()) } else { Ok(entries) };
            };
            (left, end) = (rest, entry.next_entry_cookie());
            let path = path_of(name, entry.ino());
            let kind = self.kind_of(entry.file_type(), name);
            let qid = Qid { kind: qid_kind(kind), version: 0, path };
            entries.push(Entry { qid, cookie: end, kind: dirent_type(kind), name: name.into() });
            // One answer, one system call.
            if reader.is_buffer_empty() {
                break;
            }
        }
        self.position.set(Some(end));
        Ok(entries)
    }

    fn go_to(&self, cookie: u64) -> Result<()> {
        // Unknown until the call that begins now has come to its end.
        if self.position.take() == Some(cookie) && cookie != 0 {
            return Ok(());
        }
        seek(&self.fd, SeekFrom::Start(cookie)).map(drop).map_err(errno)
    }

    /// Some file systems leave the type out of the entry.
    fn kind_of(&self, known: FileType, name: &[u8]) -> FileType {
        match known {
            FileType::Unknown => stat_name(&self.fd, name).map_or(known, |stat| kind(&stat)),
            known => known,
        }
    }
}

/// DT_DIR and the like.
fn dirent_type(kind: FileType) -> u8 {
    match kind {
        FileType::Fifo => 1,
        FileType::CharacterDevice => 2,
        FileType::Directory => 4,
        FileType::BlockDevice => 6,
        FileType::RegularFile => 8,
        FileType::Symlink => 10,
        FileType::Socket => 12,
        _ => 0,
    }
}

/// What an entry counts besides its name.
const ENTRY_BYTES: usize = 24;
const READ_MIN: usize = 512;
const READ_MAX: usize = 64 << 10;
