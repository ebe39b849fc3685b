//! The process's heap.

/// Has the allocator keep the large buffers that are freed, up to a limit. Left alone, glibc gives a
/// buffer of a megabyte back to the system, and each new one costs 256 page faults, which is more
/// than filling it. To be called before any other thread runs.
pub fn keep_freed_buffers() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt sets numbers of the allocator, and takes its lock; no memory of ours is touched.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES_MAX);
    }
}

/// Gives the system back what was freed of the heap, wherever it lies, but for as much as is kept anyway. The heap is
/// locked for that time: some 60 ms for 1 GiB.
pub fn give_back_freed_buffers() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes the allocator's lock; no memory in use is touched.
    unsafe {
        libc::malloc_trim(KEPT_BYTES_MAX as usize);
    }
}

/// Allocations from here on are given back at once: the largest value that glibc takes.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES_MIN: libc::c_int = 32 << 20;
/// Most free memory at the end of the heap.
#[cfg(target_env = "gnu")]
const KEPT_BYTES_MAX: libc::c_int = 64 << 20;
