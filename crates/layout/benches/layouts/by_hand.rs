//! The floor: a transposition as one writes it for this one case, 8 x 8 tiles of f32 with AVX.

use std::arch::x86_64::*;

/// Transposes a square matrix of at least 8 rows. The CPU has AVX.
pub fn transpose(from: &[f32], to: &mut [f32], side: usize) {
    assert!(from.len() == side * side && to.len() == side * side && side >= 8);
    // SAFETY: both sides have all elements, and the caller has looked for AVX.
    unsafe { run(from.as_ptr(), to.as_mut_ptr(), side) }
}

#[target_feature(enable = "avx")]
unsafe fn run(from: *const f32, to: *mut f32, side: usize) {
    let tops = || (0..side).step_by(8).map(|at| at.min(side - 8));
    for column in tops() {
        for row in tops() {
            // SAFETY: the tile lies within both matrices.
            unsafe { tile(from.add(row * side + column), to.add(column * side + row), side) };
        }
    }
}

#[inline]
#[target_feature(enable = "avx")]
unsafe fn tile(from: *const f32, to: *mut f32, side: usize) {
    let mut rows = [_mm256_setzero_ps(); 8];
    for (at, row) in rows.iter_mut().enumerate() {
        // SAFETY: as the caller promises.
        *row = unsafe { _mm256_loadu_ps(from.add(at * side)) };
    }
    let pairs: [[__m256; 4]; 2] = [0, 4].map(|half| {
        let [a, b, c, d] = [rows[half], rows[half + 1], rows[half + 2], rows[half + 3]];
        let (ab, cd) = (_mm256_unpacklo_ps(a, b), _mm256_unpacklo_ps(c, d));
        let (above, below) = (_mm256_unpackhi_ps(a, b), _mm256_unpackhi_ps(c, d));
        [
            _mm256_shuffle_ps::<0x44>(ab, cd),
            _mm256_shuffle_ps::<0xee>(ab, cd),
            _mm256_shuffle_ps::<0x44>(above, below),
            _mm256_shuffle_ps::<0xee>(above, below),
        ]
    });
    let [tops, bottoms] = pairs;
    for (at, (top, bottom)) in tops.into_iter().zip(bottoms).enumerate() {
        // SAFETY: as the caller promises.
        unsafe {
            let near = _mm256_permute2f128_ps::<0x20>(top, bottom);
            _mm256_storeu_ps(to.add(at * side), near);
            let far = _mm256_permute2f128_ps::<0x31>(top, bottom);
            _mm256_storeu_ps(to.add((at + 4) * side), far);
        }
    }
}
