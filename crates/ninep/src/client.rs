//! The client machine and its handle.

/// A handle on a connection: clones share it. (The machine behind it is being written.)
#[derive(Clone)]
pub struct Conn {}
