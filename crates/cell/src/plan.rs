//! Where things lie in the memory that host and workers share.
//!
//! ```text
//!   0       magic, version, workers                           4096 bytes
//!   4096    headers of mapped files, a line each              HEADERS lines
//!   69632   boxes, one for each worker                        BOX_BYTES each
//!   ...     heap: the content of files in memory
//! ```

use crate::memory::Shared;

/// Requests of one worker that may be on their way at once.
pub const SLOTS: usize = 16;
/// Bytes of a slot: the longest message.
pub const SLOT_BYTES: u64 = 16 << 10;
/// Files that may be mapped at once.
pub const HEADERS: u32 = 1024;
/// Bytes of a header, and of everything that one side writes and the other polls.
pub const LINE: u64 = 64;
/// Most workers of one host.
pub const WORKERS_MAX: u32 = 256;

/// How large the memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Workers at most.
    pub workers: u32,
    /// Bytes for the content of files.
    pub heap_bytes: u64,
}

impl Plan {
    /// All of it.
    pub fn bytes(self) -> u64 {
        self.heap_at() + self.heap_bytes
    }

    /// Where the heap begins: at a page.
    pub fn heap_at(self) -> u64 {
        (box_at(self.workers)).next_multiple_of(PAGE)
    }

    /// Writes down what the memory is.
    pub fn sign(self, memory: &impl Shared) {
        memory.store_wide(MAGIC_AT, MAGIC);
        memory.store(VERSION_AT, VERSION);
        memory.store(WORKERS_AT, self.workers);
        memory.store_wide(HEAP_BYTES_AT, self.heap_bytes);
    }

    /// Reads what the memory is; `None` when it is none of ours, or does not fit in `bytes`.
    pub fn of(memory: &impl Shared, bytes: u64) -> Option<Plan> {
        if bytes < PAGE || memory.load_wide(MAGIC_AT) != MAGIC || memory.load(VERSION_AT) != VERSION
        {
            return None;
        }
        let workers = memory.load(WORKERS_AT);
        let plan = Plan { workers, heap_bytes: memory.load_wide(HEAP_BYTES_AT) };
        let fits = |plan: &Plan| {
            plan.workers <= WORKERS_MAX
                && plan.heap_at().checked_add(plan.heap_bytes).is_some_and(|all| all <= bytes)
        };
        Some(plan).filter(fits)
    }
}

/// A worker's box.
pub(crate) fn box_at(worker: u32) -> u64 {
    HEADERS_AT + u64::from(HEADERS) * LINE + u64::from(worker) * BOX_BYTES
}

/// A header's line.
pub(crate) fn header_at(index: u32) -> u64 {
    HEADERS_AT + u64::from(index) * LINE
}

/// A slot of a worker's box.
pub(crate) fn slot_at(worker: u32, slot: usize) -> u64 {
    box_at(worker) + SLOTS_AT + slot as u64 * SLOT_BYTES
}

/// In a box: what the worker has posted.
pub(crate) const REQUESTS_AT: u64 = 0;
/// In a box: what the host has answered.
pub(crate) const REPLIES_AT: u64 = LINE;
/// In a box: the worker sleeps until its bell rings.
pub(crate) const WORKER_SLEEPS_AT: u64 = 2 * LINE;
/// In a box: the host sleeps until its bell rings.
pub(crate) const HOST_SLEEPS_AT: u64 = 3 * LINE;
/// In a box: one more than the number of the header whose file the worker copies now.
pub(crate) const ACCESS_AT: u64 = 4 * LINE;

const SLOTS_AT: u64 = PAGE;
const BOX_BYTES: u64 = SLOTS_AT + SLOTS as u64 * SLOT_BYTES;
const HEADERS_AT: u64 = PAGE;
const PAGE: u64 = 4096;

const MAGIC_AT: u64 = 0;
const VERSION_AT: u64 = 8;
const WORKERS_AT: u64 = 12;
const HEAP_BYTES_AT: u64 = 16;
/// `COVEYCEL`.
const MAGIC: u64 = 0x4c45_4359_4556_4f43;
const VERSION: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Flat;

    #[test]
    fn a_plan_comes_back_from_memory_that_is_signed_and_large_enough() {
        let plan = Plan { workers: 2, heap_bytes: 8192 };
        let memory = Flat::new(plan.bytes());
        assert_eq!(Plan::of(&memory, plan.bytes()), None);
        plan.sign(&memory);
        assert_eq!(Plan::of(&memory, plan.bytes()), Some(plan));
        assert_eq!(Plan::of(&memory, plan.bytes() - 1), None);
        memory.store(WORKERS_AT, WORKERS_MAX + 1);
        assert_eq!(Plan::of(&memory, u64::MAX), None);
    }

    #[test]
    fn the_places_are_those_of_the_page() {
        assert_eq!(&MAGIC.to_le_bytes(), b"COVEYCEL");
        assert_eq!((header_at(0), header_at(1)), (4096, 4160));
        assert_eq!((box_at(0), box_at(1)), (69632, 69632 + 266240));
        assert_eq!((slot_at(0, 0), slot_at(0, 1)), (73728, 73728 + 16384));
    }
}
