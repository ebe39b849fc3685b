//! mmap(2) of a file of ours: private mappings get a copy of the bytes; shared ones are refused, since
//! nobody could keep them coherent.

use crate::boundary::{Inside, export, serve, set_errno};
use crate::data;
use crate::{real, table};
use libc::{c_int, c_void, off_t, size_t};

export! { failing(libc::MAP_FAILED) fn mmap | mmap64(
    at: *mut c_void, length: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t
) -> *mut c_void {
    // SAFETY: the program's own arguments.
    let pass = |protection, flags, fd, offset| unsafe {
        real::mmap()(at, length, protection, flags, fd, offset)
    };
    if flags & libc::MAP_ANONYMOUS != 0 || fd < 0 || !table::is_ours(fd) {
        return pass(protection, flags, fd, offset);
    }
    if flags & libc::MAP_TYPE != libc::MAP_PRIVATE {
        set_errno(libc::ENODEV);
        return libc::MAP_FAILED;
    }
    let Some(open) = table::find(fd) else { return pass(protection, flags, fd, offset) };
    let memory = pass(libc::PROT_READ | libc::PROT_WRITE, flags | libc::MAP_ANONYMOUS, -1, 0);
    if memory == libc::MAP_FAILED {
        return memory;
    }
    // SAFETY: the mapping was just made, as long as that.
    let filled = serve(|| unsafe { data::fill(&open, memory.cast(), length, offset) });
    let _inside = Inside::enter();
    // SAFETY: the mapping is ours until it is answered.
    unsafe {
        if filled < 0 || libc::mprotect(memory, length, protection) != 0 {
            libc::munmap(memory, length);
            return libc::MAP_FAILED;
        }
    }
    memory
} }
