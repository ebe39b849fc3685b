//! The local store: how much memory a worker's program may hold.
//!
//! Counted are the program's own segments, the stacks of its coroutines and what it allocates. A stack that lies inside a segment
//! or an allocation is counted once. An allocation is counted as what it takes, in units of [`BLOCK_BYTES`]. Nothing is swapped: what would not fit is refused. So is what would break the program
//! later: a stack that a coroutine runs on already, and giving back memory that was not allocated, or that holds such a
//! stack.

use covey_wire::Span;
use std::fmt;

/// Bytes of a Cell SPE's local store.
pub const BYTES: u64 = 256 << 10;

/// Of which allocations are multiples, and where they begin: transfers of a Cell's are fastest so.
pub const BLOCK_BYTES: u64 = 128;

/// What an allocation of so many bytes takes, also one of none. For more than there are: more than any store has.
pub fn block_bytes(bytes: u64) -> u64 {
    bytes.max(1).checked_next_multiple_of(BLOCK_BYTES).unwrap_or(u64::MAX)
}

/// What a program holds.
#[derive(Clone, Debug)]
pub struct LocalStore {
    limit: u64,
    used: u64,
    segments: Vec<Span>,
    /// Allocations.
    blocks: Vec<Span>,
    /// Of coroutines that have not ended.
    stacks: Vec<Stack>,
}

#[derive(Clone, Copy, Debug)]
struct Stack {
    span: Span,
    /// It lies in no other memory that is counted.
    is_counted: bool,
}

/// The program would hold more than the store has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overfull {
    /// What did not fit.
    pub what: &'static str,
    /// Its bytes.
    pub bytes: u64,
    /// Bytes in use already.
    pub used: u64,
    /// Bytes there are.
    pub limit: u64,
}

impl fmt::Display for Overfull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Overfull { what, bytes, used, limit } = self;
        write!(f, "local store is full: {what} of {bytes} bytes, {used} of {limit} are in use")
    }
}

impl std::error::Error for Overfull {}

/// Why memory is no stack of a new coroutine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoStack {
    /// Another coroutine runs on some of it: give each its own.
    InUse(Span),
    /// It does not fit: use a smaller one, or end others first.
    Overfull(Overfull),
}

impl fmt::Display for NoStack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoStack::InUse(Span { address, bytes }) => {
                write!(f, "a coroutine runs on this stack, at {address:#x}, {bytes} bytes")
            }
            NoStack::Overfull(full) => full.fmt(f),
        }
    }
}

impl std::error::Error for NoStack {}

/// Why memory is not given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotReleased {
    /// No allocation begins there.
    Unknown(u64),
    /// A coroutine runs on a stack within it: free it after the coroutine's end.
    InUse(u64),
}

impl fmt::Display for NotReleased {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotReleased::Unknown(address) => write!(f, "{address:#x} is not allocated"),
            NotReleased::InUse(address) => {
                write!(f, "a coroutine runs on a stack in the allocation at {address:#x}")
            }
        }
    }
}

impl std::error::Error for NotReleased {}

impl LocalStore {
    /// An empty one of `limit` bytes.
    pub fn new(limit: u64) -> LocalStore {
        let (segments, blocks, stacks) = (Vec::new(), Vec::new(), Vec::new());
        LocalStore { limit, used: 0, segments, blocks, stacks }
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Bytes there are.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    fn check(&self, what: &'static str, bytes: u64) -> Result<(), Overfull> {
        match self.used.checked_add(bytes) {
            Some(all) if all <= self.limit => Ok(()),
            _ => Err(Overfull { what, bytes, used: self.used, limit: self.limit }),
        }
    }

    /// Counts a segment of the program.
    pub fn hold_segment(&mut self, segment: Span) -> Result<(), Overfull> {
        self.check("a segment of the program", segment.bytes)?;
        self.used += segment.bytes;
        self.segments.push(segment);
        Ok(())
    }

    /// Whether an allocation of so many bytes would fit.
    pub fn check_block(&self, bytes: u64) -> Result<(), Overfull> {
        self.check("an allocation", bytes)
    }

    /// Counts an allocation.
    pub fn hold_block(&mut self, block: Span) -> Result<(), Overfull> {
        self.check_block(block.bytes)?;
        self.used += block.bytes;
        self.blocks.push(block);
        Ok(())
    }

    /// The allocation that begins there.
    pub fn block(&self, address: u64) -> Option<Span> {
        self.blocks.iter().find(|block| block.address == address).copied()
    }

    /// Gives back the allocation that begins there.
    pub fn release_block(&mut self, address: u64) -> Result<Span, NotReleased> {
        let at = self.blocks.iter().position(|block| block.address == address);
        let at = at.ok_or(NotReleased::Unknown(address))?;
        let block = self.blocks[at];
        if self.stacks.iter().any(|stack| stack.span.overlaps(block)) {
            return Err(NotReleased::InUse(address));
        }
        self.blocks.swap_remove(at);
        self.used -= block.bytes;
        Ok(block)
    }

    /// Whether a coroutine may run on this memory.
    pub fn check_stack(&self, span: Span) -> Result<(), NoStack> {
        if let Some(taken) = self.stacks.iter().find(|stack| stack.span.overlaps(span)) {
            return Err(NoStack::InUse(taken.span));
        }
        if self.is_held(span) {
            return Ok(());
        }
        self.check("a stack", span.bytes).map_err(NoStack::Overfull)
    }

    /// Counts a stack, unless it lies in memory that is counted.
    pub fn hold_stack(&mut self, span: Span) -> Result<(), NoStack> {
        self.check_stack(span)?;
        let is_counted = !self.is_held(span);
        self.used += if is_counted { span.bytes } else { 0 };
        self.stacks.push(Stack { span, is_counted });
        Ok(())
    }

    /// The coroutine on this stack has ended.
    pub fn release_stack(&mut self, span: Span) {
        let at = self.stacks.iter().position(|stack| stack.span == span);
        if let Some(stack) = at.map(|at| self.stacks.swap_remove(at))
            && stack.is_counted
        {
            self.used -= span.bytes;
        }
    }

    /// Whether memory lies inside a segment or an allocation.
    fn is_held(&self, span: Span) -> bool {
        let Some(end) = span.end() else { return false };
        let mut held = self.segments.iter().chain(&self.blocks);
        held.any(|held| {
            span.address >= held.address && held.end().is_some_and(|held_end| end <= held_end)
        })
    }
}

impl Default for LocalStore {
    fn default() -> LocalStore {
        LocalStore::new(BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_byte_fits_and_the_one_after_it_is_refused() {
        let mut store = LocalStore::new(100);
        store.hold_segment(Span::new(1000, 60)).unwrap();
        let error = store.hold_block(Span::new(2000, 41)).unwrap_err();
        assert_eq!((error.used, error.limit), (60, 100));
        assert!(error.to_string().contains("an allocation of 41 bytes"), "{error}");
        store.hold_block(Span::new(2000, 40)).unwrap();
        assert_eq!(store.used(), 100);
        store.check_block(u64::MAX).unwrap_err();
    }

    #[test]
    fn what_an_allocation_takes_is_never_nothing() {
        let taken = [0, 1, 127, 128, 129, u64::MAX - 1].map(block_bytes);
        assert_eq!(taken, [128, 128, 128, 128, 256, u64::MAX]);
    }

    #[test]
    fn a_stack_inside_a_segment_is_counted_once() {
        let mut store = LocalStore::new(100);
        store.hold_segment(Span::new(1000, 60)).unwrap();
        let (inside, beyond, apart) =
            (Span::new(1010, 50), Span::new(1010, 51), Span::new(3000, 40));
        store.hold_stack(inside).unwrap();
        assert_eq!(store.used(), 60);
        store.release_stack(inside);
        let NoStack::Overfull(full) = store.hold_stack(beyond).unwrap_err() else { panic!() };
        assert_eq!(full.used, 60);
        store.hold_stack(apart).unwrap();
        assert_eq!(store.used(), 100);
        store.release_stack(apart);
        assert_eq!(store.used(), 60);
        store.release_stack(apart);
        assert_eq!(store.used(), 60);
    }

    #[test]
    fn a_stack_that_a_coroutine_runs_on_is_nobody_else_s() {
        let mut store = LocalStore::new(1000);
        store.hold_segment(Span::new(1000, 600)).unwrap();
        store.hold_stack(Span::new(1100, 100)).unwrap();
        for (address, bytes) in [(1100, 100), (1000, 101), (1199, 50), (1150, 10), (1050, 300)] {
            let error = store.hold_stack(Span::new(address, bytes)).unwrap_err();
            assert_eq!(error, NoStack::InUse(Span::new(1100, 100)), "{address}");
        }
        store.hold_stack(Span::new(1000, 100)).unwrap();
        store.hold_stack(Span::new(1200, 100)).unwrap();
        store.release_stack(Span::new(1100, 100));
        store.hold_stack(Span::new(1100, 100)).unwrap();
        assert_eq!(store.used(), 600);
    }

    #[test]
    fn only_allocations_are_given_back_and_none_that_a_coroutine_runs_on() {
        let mut store = LocalStore::new(1000);
        store.hold_segment(Span::new(1000, 100)).unwrap();
        store.hold_stack(Span::new(3000, 100)).unwrap();
        store.hold_block(Span::new(2000, 100)).unwrap();
        store.hold_stack(Span::new(2010, 50)).unwrap();
        for (address, why) in [
            (1000, NotReleased::Unknown(1000)),
            (3000, NotReleased::Unknown(3000)),
            (2001, NotReleased::Unknown(2001)),
            (2000, NotReleased::InUse(2000)),
        ] {
            assert_eq!(store.release_block(address), Err(why));
        }
        assert_eq!(store.used(), 300);
        store.release_stack(Span::new(2010, 50));
        assert_eq!(store.release_block(2000), Ok(Span::new(2000, 100)));
        assert_eq!(store.release_block(2000), Err(NotReleased::Unknown(2000)));
        assert_eq!(store.used(), 200);
    }
}
