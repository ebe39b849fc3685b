//! How the ranks of a job meet: what nodes tell each other while MPI starts, carried by whoever started the job.
//!
//! On each node a starter serves the MPI library of the ranks there ([`crate::pmi`], or PMIx) and talks with the
//! launcher in frames: a 32-bit length of what follows, the number of the message, its fields, all little-endian. The
//! launcher's [`Hub`] collects what all nodes bring to a fence and gives each of them everything, and passes
//! single questions to the node that knows.
//!
//! ```text
//!   starter of node 0 ── Fence { data a } ──► Hub ──┐ all participants are in
//!   starter of node 1 ── Fence { data b } ──► Hub ──┴─► Fenced { data a b } to both
//!   starter of node 0 ── Ask { rank 5 }   ──► Hub ──► the starter of rank 5's node ── Answer ──► Hub ──► node 0
//! ```

mod frames;
mod hub;
mod message;

pub use frames::{FRAME_BYTES_MAX, Frames, encode};
pub use hub::{Event, FENCE_BYTES_MAX, Hub};
pub use message::{Down, Space, Up};
