//! Byte-range locks, as Tlock and Tgetlock have them.

use covey_wire::Name;

/// A byte-range lock, asked for or held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    /// F_RDLCK 0, F_WRLCK 1, F_UNLCK 2.
    pub kind: u8,
    /// First byte.
    pub start: u64,
    /// Number of bytes; 0 is to the end of the file.
    pub length: u64,
    /// The process, as its node numbers it.
    pub proc_id: u32,
    /// The node, or whatever else tells owners apart.
    pub client_id: Name,
    /// Whether its owner waits for it (F_SETLKW): of a lock that is asked for.
    pub wait: bool,
}

/// The answer to Tlock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockStatus {
    /// The lock is held.
    Success = 0,
    /// Another holds it: the client asks again.
    Blocked = 1,
    /// It cannot be had.
    Error = 2,
    /// The server is recovering.
    Grace = 3,
}
