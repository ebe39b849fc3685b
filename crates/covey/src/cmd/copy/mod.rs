//! Moving bytes and trees between this machine and the file system: what `cp` and `cat` share.
//!
//! ```text
//!   Copier ── jobs, N at a time ──► tree: a directory makes more jobs, a file goes to data
//!   data: one file, several blocks in flight        stream: stdin, stdout, sizes not known
//! ```
//!
//! Local disks are used from the blocking pool only: a disk that stalls must not keep the
//! connections from answering the servers.

mod attributes;
mod beside;
mod data;
mod entries;
mod links;
mod local;
mod meta;
mod stream;
mod tree;

pub use beside::Beside;
pub use data::{Sink, Source};
pub use stream::{in_from_stdin, out_to_stdout};
pub use tree::{Copier, Job, Options, Place};

/// Bytes of one request.
pub const BLOCK_BYTES: u64 = 2 << 20;
/// Requests in flight for one file.
pub const BLOCKS_IN_FLIGHT: usize = 6;
