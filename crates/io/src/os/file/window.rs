//! Files in memory, mapped, so that another process can copy from there.
//!
//! Nobody here looks at a mapping: a file may become shorter at any time.

use super::range::file_of;
use super::{FileKind, Inner};
use covey_wire::{FileRange, Span};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// The part of a file that was mapped last.
pub(super) type Window = Mutex<Option<Arc<Map>>>;

/// A part of a file in this process's addresses.
#[derive(Debug)]
pub(super) struct Map {
    address: usize,
    /// Its first byte in the file: a multiple of [`WINDOW_BYTES`].
    start: u64,
}

/// What is mapped at a time. More would take long to let go of.
const WINDOW_BYTES: u64 = 64 << 20;

impl Map {
    fn new(file: &Inner, start: u64) -> io::Result<Map> {
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        let null = std::ptr::null_mut();
        // SAFETY: a new mapping at an address that the kernel chooses.
        let at = unsafe {
            mmap(null, WINDOW_BYTES as usize, ProtFlags::READ, flags, &file.file, start)?
        };
        Ok(Map { address: at.expose_provenance(), start })
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        let at = std::ptr::with_exposed_provenance_mut(self.address);
        // SAFETY: the mapping is ours, and nobody here has a reference into it.
        let _ = unsafe { munmap(at, WINDOW_BYTES as usize) };
    }
}

/// A range of a file, mapped as long as this lives.
#[derive(Debug)]
pub(crate) struct MappedRange {
    range: FileRange,
    map: Arc<Map>,
}

impl MappedRange {
    /// Maps a range. `None` when its file is not in memory, or it does not lie well.
    pub fn new(range: &FileRange) -> Option<MappedRange> {
        let file = file_of(range).ok().filter(|file| file.kind == FileKind::Memory)?;
        let start = range.offset / WINDOW_BYTES * WINDOW_BYTES;
        if range.offset.checked_add(range.length as u64)? > start.checked_add(WINDOW_BYTES)? {
            return None;
        }
        let mut window = file.window.lock().unwrap_or_else(PoisonError::into_inner);
        let map = match window.take().filter(|map| map.start == start) {
            Some(map) => map,
            None => Arc::new(Map::new(file, start).ok()?),
        };
        *window = Some(map.clone());
        Some(MappedRange { range: range.clone(), map })
    }

    /// Where it lies in this process.
    pub fn span(&self) -> Span {
        let at = self.map.address as u64 + (self.range.offset - self.map.start);
        Span::new(at, self.range.length as u64)
    }

    /// Whether its file has become shorter since.
    pub fn is_cut(&self) -> bool {
        let end = file_of(&self.range).and_then(|file| Ok(file.file.metadata()?.len()));
        end.is_ok_and(|end| end < self.range.offset + self.range.length as u64)
    }
}
