//! PMI-1 on the wire, as the ranks of an MPICH program speak it with whoever has started them: lines of
//! `key=value` words, one question and one answer at a time.
//!
//! A [`Server`] answers the ranks of one node. What ranks put is shared with the other nodes at each barrier,
//! through whoever drives the machine:
//!
//! ```text
//!   rank ──► "cmd=put key=a value=b"  ──► Server ──► "cmd=put_result rc=0 msg=success"
//!   rank ──► "cmd=barrier_in"         ──► Server ──► Event::Fence(entries), when all ranks of the node are in
//!                       fenced(everybody's entries) ──► "cmd=barrier_out" to each
//! ```
//!
//! The protocol is MPICH's simple PMI (`src/pmi/simple` there, and the wiki page "PMI v1 Wire Protocol"): the
//! rank connects to the port that `PMI_PORT` names and says which one it is, `PMI_ID`.

mod entries;
mod line;
mod server;

pub use server::{Event, Server};

/// The longest line that a rank may send, with its end.
pub const LINE_BYTES_MAX: usize = 16 << 10;
/// The longest name of a key space, key and value: what `get_maxes` answers.
pub const KVSNAME_BYTES_MAX: usize = 256;
/// See [`KVSNAME_BYTES_MAX`].
pub const KEY_BYTES_MAX: usize = 64;
/// See [`KVSNAME_BYTES_MAX`].
pub const VALUE_BYTES_MAX: usize = 1024;
/// What a job's key space may hold, in bytes of keys and values.
pub const KVS_BYTES_MAX: usize = 64 << 20;
