//! An allocator that ends the program when an input makes it ask for too much.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// Most bytes in one piece.
const PIECE_MAX: usize = 128 << 20;
/// Most bytes more than before the input came.
const GROWTH_MAX: usize = 512 << 20;

struct Watch;

#[global_allocator]
static WATCH: Watch = Watch;
static IS_WATCHING: AtomicBool = AtomicBool::new(false);
static LIVE: AtomicUsize = AtomicUsize::new(0);
static START: AtomicUsize = AtomicUsize::new(0);

/// Runs one input under the limits.
pub fn watched(run: impl FnOnce()) {
    START.store(LIVE.load(Relaxed), Relaxed);
    IS_WATCHING.store(true, Relaxed);
    run();
    IS_WATCHING.store(false, Relaxed);
}

fn check(asked: usize) {
    let live = LIVE.fetch_add(asked, Relaxed) + asked;
    if IS_WATCHING.load(Relaxed)
        && (asked > PIECE_MAX || live.saturating_sub(START.load(Relaxed)) > GROWTH_MAX)
    {
        IS_WATCHING.store(false, Relaxed);
        panic!("the input asked for {asked} bytes, {live} in all");
    }
}

// SAFETY: everything is the system allocator's; only counters are kept beside it.
unsafe impl GlobalAlloc for Watch {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        check(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        check(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, old: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        check(new_size);
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(old, layout, new_size) }
    }
    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(old, layout) }
    }
}
