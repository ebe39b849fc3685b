//! A barrier that one process makes others pass, so that they need none where they are fast.
//!
//! Who is about to sleep says so and then looks once more; who sends writes and then looks whether to wake. Without a
//! barrier between the two steps on both sides, each could miss the other. The sleeper has time: it calls the kernel,
//! which has every registered process pass a barrier.

use std::sync::atomic::{Ordering, compiler_fence, fence};

/// Registers this process. False where the kernel has no such barrier.
pub(super) fn register() -> bool {
    call(REGISTER_GLOBAL_EXPEDITED)
}

/// Makes all registered processes pass a barrier.
pub(super) fn heavy() {
    fence(Ordering::SeqCst);
    call(GLOBAL_EXPEDITED);
}

/// The other side's barrier: none at all where the first one is made for it.
#[inline]
pub(super) fn light(is_made_for_us: bool) {
    if is_made_for_us { compiler_fence(Ordering::SeqCst) } else { fence(Ordering::SeqCst) }
}

fn call(command: libc::c_int) -> bool {
    // SAFETY: the call takes numbers.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

const GLOBAL_EXPEDITED: libc::c_int = 1 << 1;
const REGISTER_GLOBAL_EXPEDITED: libc::c_int = 1 << 2;
