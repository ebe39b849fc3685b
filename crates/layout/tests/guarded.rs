//! Kernels beside memory that nobody may touch: one byte too far, read or written, ends the test.
#![cfg(target_os = "linux")]

use covey_layout::{Layout, Level, Target, View, ViewMut, transpose};

/// Memory between two pages that cannot be touched.
struct Guarded {
    start: *mut u8,
    bytes: usize,
}

const PAGE_BYTES: usize = 4096;

impl Guarded {
    fn new(bytes: usize) -> Guarded {
        let bytes = bytes.next_multiple_of(PAGE_BYTES);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let whole = bytes + 2 * PAGE_BYTES;
        // SAFETY: a new mapping, of which the middle is made accessible.
        let start = unsafe {
            let map = libc::mmap(std::ptr::null_mut(), whole, libc::PROT_NONE, flags, -1, 0);
            assert_ne!(map, libc::MAP_FAILED);
            let start = map.cast::<u8>().add(PAGE_BYTES);
            let access = libc::PROT_READ | libc::PROT_WRITE;
            assert_eq!(libc::mprotect(start.cast(), bytes, access), 0);
            start
        };
        Guarded { start, bytes }
    }

    /// The first or the last bytes.
    fn part(&mut self, bytes: usize, is_last: bool) -> &mut [u8] {
        assert!(bytes <= self.bytes);
        let skipped = if is_last { self.bytes - bytes } else { 0 };
        // SAFETY: all of it is mapped, for as long as self is borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(skipped), bytes) }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let whole = self.bytes + 2 * PAGE_BYTES;
        // SAFETY: what `new` mapped.
        unsafe { libc::munmap(self.start.sub(PAGE_BYTES).cast(), whole) };
    }
}

fn fill(memory: &mut [u8]) {
    memory.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at * 7 + at / 251) as u8);
}

#[test]
fn a_transposition_touches_nothing_outside_of_its_sides() {
    let (mut from, mut to) = (Guarded::new(150_000), Guarded::new(150_000));
    let sides = [1, 2, 3, 5, 8, 15, 16, 17, 31, 33, 64, 65, 96];
    for element in [1, 2, 4, 8, 16] {
        for rows in sides {
            for columns in sides {
                let bytes = rows * columns * element;
                for is_last in [false, true] {
                    let (from, to) = (from.part(bytes, is_last), to.part(bytes, is_last));
                    fill(from);
                    for level in Level::ALL {
                        transpose(level, element, from, to, [rows, columns]);
                        let last = (rows * columns - 1) * element;
                        assert_eq!(to[last..], from[last..], "{level:?}");
                    }
                }
            }
        }
    }
}

/// Every size of block, the first or the last byte of the buffer among them.
#[test]
fn blocks_touch_nothing_outside_of_their_sides() {
    let (mut memory, mut packed) = (Guarded::new(1 << 16), Guarded::new(1 << 15));
    for block in 1..=140 {
        for (count, stride) in [(1, block), (7, block + 1), (7, -block - 1), (9, 3 * block)] {
            let inner = Layout::bytes(block as u64).expect("it is small");
            let layout = Layout::hvector(count, 1, stride, &inner).expect("it is small");
            let target = Target::new(&layout, 1).expect("no overlap");
            let (low, high) = target.plan().hull();
            for is_last in [false, true] {
                let packed = packed.part(target.plan().size() as usize, is_last);
                let memory = memory.part((high - low) as usize, is_last);
                fill(memory);
                let before = memory.to_vec();
                let view = View::at(memory, -low as usize).expect("within");
                target.plan().pack(view, 0, packed).expect("it fits");
                for run in target.plan().runs(0..target.plan().size()).expect("all") {
                    memory[(run.offset - low) as usize..][..run.bytes as usize].fill(0);
                }
                let view = ViewMut::at(memory, -low as usize).expect("within");
                target.unpack(packed, 0, view).expect("it fits");
                assert!(memory == before, "{count} blocks of {block} every {stride}");
            }
        }
    }
}
