//! The local store: how much memory a worker's program may hold.
//!
//! Counted are the program's own segments, the stacks of its coroutines and what it allocates. A stack that lies inside a segment
//! or an allocation is counted once. Nothing is swapped: what would not fit is refused.

use covey_wire::Span;
use std::fmt;

/// Bytes of a Cell SPE's local store.
pub const BYTES: u64 = 256 << 10;

/// What a program holds.
#[derive(Clone, Debug)]
pub struct LocalStore {
    limit: u64,
    used: u64,
    /// Memory that is counted.
    spans: Vec<Span>,
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

impl LocalStore {
    /// An empty one of `limit` bytes.
    pub fn new(limit: u64) -> LocalStore {
        LocalStore { limit, used: 0, spans: Vec::new() }
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Bytes there are.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Whether so much more would fit.
    pub fn check(&self, what: &'static str, bytes: u64) -> Result<(), Overfull> {
        match self.used.checked_add(bytes) {
            Some(all) if all <= self.limit => Ok(()),
            _ => Err(Overfull { what, bytes, used: self.used, limit: self.limit }),
        }
    }

    /// Counts memory: a segment or an allocation.
    pub fn hold(&mut self, what: &'static str, span: Span) -> Result<(), Overfull> {
        self.check(what, span.bytes)?;
        self.used += span.bytes;
        self.spans.push(span);
        Ok(())
    }

    /// Counts a stack, unless it lies in memory that is counted. Says whether it was counted.
    pub fn hold_stack(&mut self, span: Span) -> Result<bool, Overfull> {
        let is_inside = self.spans.iter().any(|held| {
            span.address >= held.address && span.end().is_some_and(|end| Some(end) <= held.end())
        });
        if is_inside {
            return Ok(false);
        }
        self.hold("a stack", span).map(|()| true)
    }

    /// The memory that begins there; `None` when no such memory is counted.
    pub fn held(&self, address: u64) -> Option<Span> {
        self.spans.iter().find(|span| span.address == address).copied()
    }

    /// Gives back memory that begins there; `None` when no such memory is counted.
    pub fn release(&mut self, address: u64) -> Option<Span> {
        let at = self.spans.iter().position(|span| span.address == address)?;
        let span = self.spans.swap_remove(at);
        self.used -= span.bytes;
        Some(span)
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
        store.hold("a segment", Span::new(1000, 60)).unwrap();
        let error = store.hold("an allocation", Span::new(2000, 41)).unwrap_err();
        assert_eq!((error.used, error.limit), (60, 100));
        assert!(error.to_string().contains("an allocation of 41 bytes"), "{error}");
        store.hold("an allocation", Span::new(2000, 40)).unwrap();
        assert_eq!(store.used(), 100);
        store.check("more", u64::MAX).unwrap_err();
    }

    #[test]
    fn a_stack_inside_a_segment_is_counted_once() {
        let mut store = LocalStore::new(100);
        store.hold("a segment", Span::new(1000, 60)).unwrap();
        assert_eq!(store.hold_stack(Span::new(1010, 50)), Ok(false));
        assert_eq!(store.hold_stack(Span::new(1010, 51)).unwrap_err().used, 60);
        assert_eq!(store.hold_stack(Span::new(3000, 40)), Ok(true));
        assert_eq!(store.release(3000), Some(Span::new(3000, 40)));
        assert_eq!((store.used(), store.release(3000)), (60, None));
    }
}
