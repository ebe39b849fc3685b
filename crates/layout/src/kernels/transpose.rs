//! Transposition of a matrix of small elements.

use super::joint::Pace;
#[cfg(target_arch = "x86_64")]
use super::tile::{Wide, tile, x86};

/// What the CPU can do, from the least to the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing of its own: what the compiler makes of loops.
    Portable,
    /// Vectors of 16 bytes.
    Sse2,
    /// Vectors of 32 bytes.
    Avx2,
    /// Vectors of 64 bytes, with operations on bytes.
    Avx512,
}

impl Level {
    /// All levels.
    pub const ALL: [Level; 4] = [Level::Portable, Level::Sse2, Level::Avx2, Level::Avx512];

    /// The most that this CPU can do.
    pub fn best() -> Level {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
                return Level::Avx512;
            }
            if is_x86_feature_detected!("avx2") {
                return Level::Avx2;
            }
            Level::Sse2
        }
        #[cfg(not(target_arch = "x86_64"))]
        Level::Portable
    }
}

/// A matrix to be transposed: `to[column][row] = from[row][column]`.
#[derive(Clone, Copy, Debug)]
struct Matrix {
    from: *const u8,
    /// Bytes from one row of the source to the next.
    from_pitch: isize,
    to: *mut u8,
    /// Bytes from one row of the target to the next.
    to_pitch: isize,
    rows: usize,
    columns: usize,
}

/// Transposes a matrix of elements of `element` bytes, whose rows follow each other: `rows` by `columns` in the
/// source. Uses no more than `level`, nor than the CPU has.
///
/// # Panics
///
/// When a side has not `rows * columns` elements, or an element is not of 1, 2, 4, 8 or 16 bytes.
pub fn transpose(level: Level, element: usize, from: &[u8], to: &mut [u8], shape: [usize; 2]) {
    let [rows, columns] = shape;
    let bytes = rows.checked_mul(columns).and_then(|count| count.checked_mul(element));
    assert_eq!(Some(from.len()), bytes, "source of {rows} by {columns}");
    assert_eq!(Some(to.len()), bytes, "target of {rows} by {columns}");
    assert!(is_element(element), "element of {element} bytes");
    let matrix = Matrix {
        from: from.as_ptr(),
        from_pitch: (columns * element) as isize,
        to: to.as_mut_ptr(),
        to_pitch: (rows * element) as isize,
        rows,
        columns,
    };
    // SAFETY: both sides have all elements, and are different slices.
    unsafe { matrix.run(level.min(Level::best()), element) }
}

/// Whether there is a kernel for elements of this size.
pub(super) fn is_element(bytes: usize) -> bool {
    matches!(bytes, 1 | 2 | 4 | 8 | 16)
}

/// Transposes: `column` walks along the source, `row` along the target.
///
/// # Safety
///
/// Every element lies within its side, and the sides do not overlap.
pub(super) unsafe fn run(bytes: usize, column: Pace, row: Pace, from: *const u8, to: *mut u8) {
    let matrix = Matrix {
        from,
        from_pitch: row.from,
        to,
        to_pitch: column.to,
        rows: row.count,
        columns: column.count,
    };
    // SAFETY: as the caller promises.
    unsafe { matrix.run(Level::best(), bytes) }
}

impl Matrix {
    /// # Safety
    ///
    /// Every element lies within its side, the sides do not overlap, and the CPU has the level.
    unsafe fn run(self, level: Level, bytes: usize) {
        // SAFETY: as the caller promises.
        unsafe {
            match bytes {
                1 => self.sized::<1, 16>(level),
                2 => self.sized::<2, 8>(level),
                4 => self.sized::<4, 4>(level),
                8 => self.sized::<8, 2>(level),
                _ => self.sized::<16, 1>(level),
            }
        }
    }

    /// Takes the widest vectors that the matrix has room for and that pay. `N` elements of `E` bytes are a
    /// lane.
    ///
    /// Where the rows of the target are not aligned alike, wide stores lie in two lines of the cache each. Then those of
    /// 64 bytes never pay, and those of 32 only while the matrix is near (measured on Sapphire Rapids).
    unsafe fn sized<const E: usize, const N: usize>(self, level: Level) {
        let fits = |lanes: usize| self.rows >= lanes * N && self.columns >= N;
        // SAFETY: as the caller promises.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            {
                let is_even = self.to_pitch.rem_euclid(LINE_BYTES as isize) == 0;
                let is_near = self.columns.saturating_mul(self.rows * E) <= NEAR_BYTES;
                if level >= Level::Avx2 && fits(2) && self.is_scattered::<E>() {
                    return avx2_scattered::<E, N>(self);
                }
                if level >= Level::Avx512 && is_even && fits(4) {
                    return avx512::<E, N>(self);
                }
                if level >= Level::Avx2 && (is_even || is_near) && fits(2) {
                    return avx2::<E, N>(self);
                }
                if level >= Level::Sse2 && fits(1) {
                    return self.tiled::<x86::Sse2, E, N>(STRIP_BYTES / E, false);
                }
            }
            let _ = (level, fits);
            self.portable::<E>();
        }
    }

    /// Element by element, in blocks that stay in the nearest cache.
    unsafe fn portable<const E: usize>(self) {
        const SIDE: usize = 16;
        for top in (0..self.rows).step_by(SIDE) {
            for left in (0..self.columns).step_by(SIDE) {
                for column in left..self.columns.min(left + SIDE) {
                    for row in top..self.rows.min(top + SIDE) {
                        // SAFETY: as the caller promises.
                        unsafe {
                            let element = self.source(row, column * E).cast::<[u8; E]>().read();
                            self.target(column, row * E).cast::<[u8; E]>().write(element);
                        }
                    }
                }
            }
        }
    }

    /// Whether the target is far, and what is written to each of its rows so short that the CPU does not see it coming.
    #[cfg(target_arch = "x86_64")]
    fn is_scattered<const E: usize>(&self) -> bool {
        let reach = self.to_pitch.unsigned_abs().saturating_mul(self.columns);
        self.rows * E <= SHORT_BYTES && reach > FAR_BYTES
    }

    /// Has the CPU fetch rows of the target, to be written to.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn fetch_target<const E: usize>(&self, columns: std::ops::Range<usize>) {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        for column in columns {
            let row = self.to.wrapping_offset(column as isize * self.to_pitch);
            for at in (0..self.rows * E).step_by(LINE_BYTES) {
                // SAFETY: a hint, which touches nothing.
                unsafe { _mm_prefetch::<_MM_HINT_ET0>(row.wrapping_add(at).cast_const().cast()) };
            }
        }
    }

    /// Strips of the source's columns from the top to the bottom, each row of a strip in tiles. The last tiles reach
    /// back over what the ones before have done, which does no harm, and the first one of a column
    /// ahead to where stores are aligned.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn tiled<W: Wide, const E: usize, const N: usize>(self, width: usize, is_ahead: bool) {
        let high = W::LANES * N;
        let ahead = self.to.align_offset(W::LANES * LANE_BYTES).div_ceil(E);
        let first = if (1..high).contains(&ahead) { ahead } else { high };
        let mut left = 0;
        while left < self.columns {
            let right = self.columns.min(left + width);
            if is_ahead {
                let next = if left == 0 { 0 } else { right };
                self.fetch_target::<E>(next..self.columns.min(right + width));
            }
            let mut top = 0;
            while top < self.rows {
                let row = top.min(self.rows - high);
                let mut at = left;
                while at < right {
                    let column = at.min(self.columns - N);
                    // SAFETY: there are at least `high` rows and `N` columns, as the caller of this checked.
                    unsafe {
                        let (from, to) =
                            (self.source(row, column * E), self.target(column, row * E));
                        tile::<W, E, N>(from, self.from_pitch, to, self.to_pitch);
                    }
                    at += N;
                }
                top += if top == 0 { first } else { high };
            }
            left = right;
        }
    }

    /// A byte of a row of the source.
    #[inline(always)]
    unsafe fn source(&self, row: usize, bytes: usize) -> *const u8 {
        // SAFETY: as the caller promises.
        unsafe { self.from.offset(row as isize * self.from_pitch).add(bytes) }
    }

    /// A byte of a row of the target.
    #[inline(always)]
    unsafe fn target(&self, row: usize, bytes: usize) -> *mut u8 {
        // SAFETY: as the caller promises.
        unsafe { self.to.offset(row as isize * self.to_pitch).add(bytes) }
    }
}

/// # Safety
///
/// As [`Matrix::run`], and the CPU has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn avx2<const E: usize, const N: usize>(matrix: Matrix) {
    // SAFETY: as the caller promises.
    unsafe { matrix.tiled::<x86::Avx2, E, N>(STRIP_BYTES / E, false) }
}

/// The same where the target is scattered: a few of its rows at a time, which were fetched while those before were
/// written. Without that a store that misses holds up all that are behind it (measured on Sapphire Rapids: a fifth
/// less time, and no runs of twice the time).
///
/// # Safety
///
/// As [`avx2`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn avx2_scattered<const E: usize, const N: usize>(matrix: Matrix) {
    // SAFETY: as the caller promises.
    unsafe { matrix.tiled::<x86::Avx2, E, N>(2 * N, true) }
}

/// # Safety
///
/// As [`Matrix::run`], and the CPU has AVX-512 F and BW.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn avx512<const E: usize, const N: usize>(matrix: Matrix) {
    // SAFETY: as the caller promises.
    unsafe { matrix.tiled::<x86::Avx512, E, N>(STRIP_BYTES / E, false) }
}

/// What a CPU moves between its caches at once.
#[cfg(target_arch = "x86_64")]
const LINE_BYTES: usize = 64;

/// Of each lane of a vector.
#[cfg(target_arch = "x86_64")]
const LANE_BYTES: usize = 16;

/// Width of a strip of the source: two lines, which are fetched together.
#[cfg(target_arch = "x86_64")]
const STRIP_BYTES: usize = 128;

/// A matrix that stays in the second cache.
#[cfg(target_arch = "x86_64")]
const NEAR_BYTES: usize = 256 << 10;

/// What is written to a row is short up to here.
#[cfg(target_arch = "x86_64")]
const SHORT_BYTES: usize = 512;

/// A target that leaves the second cache.
#[cfg(target_arch = "x86_64")]
const FAR_BYTES: usize = 1 << 20;
