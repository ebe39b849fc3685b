//! Over what a library's endpoint talks: shared memory of this machine, met at a path, or TCP, met at an
//! address. Shared memory gives out memory that peers map; TCP's has [`Blocks`].

use std::alloc::Layout;
use std::collections::HashMap;
use std::ffi::{CStr, OsStr, c_void};
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The place where processes of this machine meet.
pub fn path(name: &CStr) -> &Path {
    Path::new(OsStr::from_bytes(name.to_bytes()))
}

/// The place where machines meet, such as `127.0.0.1:4000`; none where the name is no address.
pub fn address(name: &CStr) -> Option<SocketAddr> {
    name.to_str().ok()?.parse().ok()
}

/// Memory given out where no peer can map it, by its address.
#[derive(Debug, Default)]
pub struct Blocks(HashMap<usize, Layout>);

impl Blocks {
    /// Zeroed memory of at least a byte; none where there is not so much.
    pub fn allocate(&mut self, bytes: u64) -> Option<*mut c_void> {
        let bytes = usize::try_from(bytes).ok()?.max(1);
        let layout = Layout::from_size_align(bytes, PAGE_BYTES).ok()?;
        // SAFETY: the layout has a size.
        let block = unsafe { std::alloc::alloc_zeroed(layout) };
        if block.is_null() {
            return None;
        }
        self.0.insert(block.expose_provenance(), layout);
        Some(block.cast())
    }

    /// Frees memory that was given out; false when it was not.
    pub fn release(&mut self, memory: *mut c_void) -> bool {
        let Some(layout) = self.0.remove(&memory.addr()) else { return false };
        // SAFETY: it was allocated with this layout, and is forgotten.
        unsafe { std::alloc::dealloc(memory.cast(), layout) };
        true
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        for (address, layout) in self.0.drain() {
            // SAFETY: allocated with this layout; the endpoint is gone, and its memory with it.
            unsafe { std::alloc::dealloc(std::ptr::with_exposed_provenance_mut(address), layout) };
        }
    }
}

const PAGE_BYTES: usize = 4096;
