//! What the metadata server knows of the I/O servers: the records of Stores and Places.

use covey_wire::{Name, record};

record! {
    /// An I/O server's store as the metadata server sees it.
    #[derive(Clone, Debug, PartialEq, Eq, Default)]
    pub struct StoreState for () {
        /// The I/O server's name.
        pub server: Name,
        /// The store that holds its objects; empty before the first meeting.
        pub known: Name,
        /// A store that was found in its place; empty when none was.
        pub found: Name,
        /// Why it serves nothing; empty when it serves, or was not met.
        pub why: Name,
    }
}

record! {
    /// Whether an I/O server gets new files.
    #[derive(Clone, Debug, PartialEq, Eq, Default)]
    pub struct Place for () {
        /// The I/O server's name.
        pub server: Name,
        /// Why it gets none: bits of [`crate::meta::place`].
        pub state: u8,
        /// Whether it answers and serves from its store, as far as has been seen.
        pub is_serving: bool,
        /// Bytes of its disk, and those that can still be had; 0 where nobody has asked it yet.
        pub bytes_total: u64,
        /// Bytes that can still be had.
        pub bytes_available: u64,
    }
}
