//! Memory that two sides use at once, named by offsets from its beginning.

/// Memory that two sides use at once. Words are little-endian and aligned to their size.
///
/// A load sees what the other side has stored before, and everything that it had written before that (acquire, release).
/// An offset outside the memory is a mistake of the caller: implementations panic.
pub trait Shared {
    /// A word of 32 bits.
    fn load(&self, at: u64) -> u32;
    /// Stores a word of 32 bits.
    fn store(&self, at: u64, value: u32);
    /// A word of 64 bits.
    fn load_wide(&self, at: u64) -> u64;
    /// Stores a word of 64 bits.
    fn store_wide(&self, at: u64, value: u64);
    /// No later load is done before an earlier store is seen by the other side.
    fn fence(&self);
    /// The same between a side that does this often and one that calls [`Shared::fence_heavy`] where this side would fence:
    /// that may be made to cost all of it.
    fn fence_light(&self) {
        self.fence();
    }
    /// The other end of [`Shared::fence_light`].
    fn fence_heavy(&self) {
        self.fence();
    }
    /// Copies bytes out.
    fn read(&self, at: u64, into: &mut [u8]);
    /// Copies bytes in.
    fn write(&self, at: u64, from: &[u8]);
}
