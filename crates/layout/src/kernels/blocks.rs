//! Blocks of equal size at equal distances.

use super::joint::Pace;

/// Copies `pace.count` blocks of `bytes`.
///
/// # Safety
///
/// Every block can be read, and written, and the two sides do not overlap.
pub(super) unsafe fn copy(bytes: usize, pace: Pace, from: *const u8, to: *mut u8) {
    // SAFETY: as the caller promises.
    unsafe {
        match bytes {
            1 => each::<1>(pace, from, to),
            2 => each::<2>(pace, from, to),
            4 => each::<4>(pace, from, to),
            8 => each::<8>(pace, from, to),
            12 => each::<12>(pace, from, to),
            16 => each::<16>(pace, from, to),
            24 => each::<24>(pace, from, to),
            32 => each::<32>(pace, from, to),
            64 => each::<64>(pace, from, to),
            9..=31 if bytes >= 16 => ends::<16>(bytes, pace, from, to),
            33..=63 => ends::<32>(bytes, pace, from, to),
            65..=127 => ends::<64>(bytes, pace, from, to),
            5..=7 => ends::<4>(bytes, pace, from, to),
            9..=15 => ends::<8>(bytes, pace, from, to),
            _ => any(bytes, pace, from, to),
        }
    }
}

/// Blocks of a size that the compiler knows.
unsafe fn each<const N: usize>(pace: Pace, mut from: *const u8, mut to: *mut u8) {
    for _ in 0..pace.count {
        // SAFETY: as the caller of `copy` promises.
        unsafe { to.cast::<[u8; N]>().write(from.cast::<[u8; N]>().read()) };
        from = from.wrapping_offset(pace.from);
        to = to.wrapping_offset(pace.to);
    }
}

/// Blocks of `N` to `2 N` bytes: their first and last `N`, which may overlap.
unsafe fn ends<const N: usize>(bytes: usize, pace: Pace, mut from: *const u8, mut to: *mut u8) {
    for _ in 0..pace.count {
        // SAFETY: as the caller of `copy` promises; `bytes` is at least `N`.
        unsafe {
            let head = from.cast::<[u8; N]>().read();
            let tail = from.add(bytes - N).cast::<[u8; N]>().read();
            to.cast::<[u8; N]>().write(head);
            to.add(bytes - N).cast::<[u8; N]>().write(tail);
        }
        from = from.wrapping_offset(pace.from);
        to = to.wrapping_offset(pace.to);
    }
}

unsafe fn any(bytes: usize, pace: Pace, mut from: *const u8, mut to: *mut u8) {
    for _ in 0..pace.count {
        // SAFETY: as the caller of `copy` promises.
        unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
        from = from.wrapping_offset(pace.from);
        to = to.wrapping_offset(pace.to);
    }
}
