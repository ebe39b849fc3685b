//! A tile of a transposition, for any width of vector and any size of element.
//!
//! A vector has one to four lanes of 16 bytes. A tile is as many columns as a lane has elements (`N`), and as many
//! rows as a vector has. Lane `k` of vector `i` is loaded with the 16 bytes of row `k N + i`, so that
//! transposing within the lanes is all there is to do, and each vector is then 16 to 64
//! contiguous bytes of a row of the target. Within lanes, log2 N rounds of interleaving the first half of
//! the vectors with the second transpose N vectors of N elements.

/// A vector of 16-byte lanes.
///
/// Its functions are made for being inlined where the instructions they need are enabled.
pub(super) trait Wide: Copy {
    /// Lanes of 16 bytes.
    const LANES: usize;

    /// Loads a lane each from `from` on, `stride` bytes apart.
    ///
    /// # Safety
    ///
    /// The bytes can be read, and the CPU has the instructions.
    unsafe fn load(from: *const u8, stride: isize) -> Self;

    /// Stores all lanes next to each other.
    ///
    /// # Safety
    ///
    /// The bytes can be written, and the CPU has the instructions.
    unsafe fn store(self, to: *mut u8);

    /// The elements of `E` bytes of the first halves of each lane, taken in turn.
    ///
    /// # Safety
    ///
    /// The CPU has the instructions.
    unsafe fn low<const E: usize>(self, other: Self) -> Self;

    /// The elements of `E` bytes of the second halves of each lane, taken in turn.
    ///
    /// # Safety
    ///
    /// The CPU has the instructions.
    unsafe fn high<const E: usize>(self, other: Self) -> Self;
}

/// Transposes `N` columns and `N * W::LANES` rows of elements of `E` bytes.
///
/// # Safety
///
/// The tile lies within both sides, which do not overlap, and the CPU has the instructions.
#[inline(always)]
pub(super) unsafe fn tile<W: Wide, const E: usize, const N: usize>(
    from: *const u8,
    from_pitch: isize,
    to: *mut u8,
    to_pitch: isize,
) {
    // SAFETY: as the caller promises: row `i + k N` has the 16 bytes of its N columns.
    unsafe {
        let mut rows = [W::load(from, N as isize * from_pitch); N];
        let mut i = 1;
        while i < N {
            rows[i] = W::load(from.offset(i as isize * from_pitch), N as isize * from_pitch);
            i += 1;
        }
        let mut round = 1;
        while round < N {
            let mut mixed = rows;
            let mut i = 0;
            while i < N / 2 {
                mixed[2 * i] = rows[i].low::<E>(rows[i + N / 2]);
                mixed[2 * i + 1] = rows[i].high::<E>(rows[i + N / 2]);
                i += 1;
            }
            rows = mixed;
            round *= 2;
        }
        let mut i = 0;
        while i < N {
            rows[i].store(to.offset(i as isize * to_pitch));
            i += 1;
        }
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) mod x86 {
    //! The vectors of x86-64.

    use super::Wide;
    use std::arch::x86_64::*;

    macro_rules! wide {
        ($(#[$doc:meta])* $name:ident $vector:ty, $lanes:literal,
         low $l1:ident $l2:ident $l4:ident $l8:ident, high $h1:ident $h2:ident $h4:ident $h8:ident,
         load |$from:ident, $stride:ident| $load:expr, store |$vec:ident, $to:ident| $store:expr) => {
            $(#[$doc])*
            #[derive(Clone, Copy)]
            pub(in super::super) struct $name($vector);

            impl Wide for $name {
                const LANES: usize = $lanes;

                #[inline(always)]
                unsafe fn load($from: *const u8, $stride: isize) -> Self {
                    // SAFETY: as the caller promises.
                    unsafe { $name($load) }
                }

                #[inline(always)]
                unsafe fn store(self, $to: *mut u8) {
                    let $vec = self.0;
                    // SAFETY: as the caller promises.
                    unsafe { $store }
                }

                #[inline(always)]
                unsafe fn low<const E: usize>(self, other: Self) -> Self {
                    // SAFETY: as the caller promises.
                    unsafe {
                        $name(match E {
                            1 => $l1(self.0, other.0),
                            2 => $l2(self.0, other.0),
                            4 => $l4(self.0, other.0),
                            _ => $l8(self.0, other.0),
                        })
                    }
                }

                #[inline(always)]
                unsafe fn high<const E: usize>(self, other: Self) -> Self {
                    // SAFETY: as the caller promises.
                    unsafe {
                        $name(match E {
                            1 => $h1(self.0, other.0),
                            2 => $h2(self.0, other.0),
                            4 => $h4(self.0, other.0),
                            _ => $h8(self.0, other.0),
                        })
                    }
                }
            }
        };
    }

    #[inline(always)]
    unsafe fn lane(from: *const u8, stride: isize, index: isize) -> __m128i {
        // SAFETY: as the caller of `load` promises.
        unsafe { _mm_loadu_si128(from.offset(index * stride).cast()) }
    }

    wide! {
        /// One lane: every x86-64 has it.
        Sse2 __m128i, 1,
        low _mm_unpacklo_epi8 _mm_unpacklo_epi16 _mm_unpacklo_epi32 _mm_unpacklo_epi64,
        high _mm_unpackhi_epi8 _mm_unpackhi_epi16 _mm_unpackhi_epi32 _mm_unpackhi_epi64,
        load |from, stride| lane(from, stride, 0),
        store |vec, to| _mm_storeu_si128(to.cast(), vec)
    }

    wide! {
        /// Two lanes.
        Avx2 __m256i, 2,
        low _mm256_unpacklo_epi8 _mm256_unpacklo_epi16 _mm256_unpacklo_epi32 _mm256_unpacklo_epi64,
        high _mm256_unpackhi_epi8 _mm256_unpackhi_epi16 _mm256_unpackhi_epi32 _mm256_unpackhi_epi64,
        load |from, stride| {
            let first = _mm256_castsi128_si256(lane(from, stride, 0));
            _mm256_inserti128_si256::<1>(first, lane(from, stride, 1))
        },
        store |vec, to| _mm256_storeu_si256(to.cast(), vec)
    }

    wide! {
        /// Four lanes.
        Avx512 __m512i, 4,
        low _mm512_unpacklo_epi8 _mm512_unpacklo_epi16 _mm512_unpacklo_epi32 _mm512_unpacklo_epi64,
        high _mm512_unpackhi_epi8 _mm512_unpackhi_epi16 _mm512_unpackhi_epi32 _mm512_unpackhi_epi64,
        load |from, stride| {
            let first = _mm512_castsi128_si512(lane(from, stride, 0));
            let second = _mm512_inserti32x4::<1>(first, lane(from, stride, 1));
            let third = _mm512_inserti32x4::<2>(second, lane(from, stride, 2));
            _mm512_inserti32x4::<3>(third, lane(from, stride, 3))
        },
        store |vec, to| _mm512_storeu_si512(to.cast(), vec)
    }
}
