//! The output of many ranks as one stream: whole lines, labelled or folded.
//!
//! What ranks write arrives in pieces that end anywhere. A line leaves in one piece, when it is complete or its
//! rank has ended, so nothing is ever interleaved inside a line.
//!
//! ```text
//!   rank 0 "a\nb" ──► Lines ──► "a\n"         "b" waits for its end
//!   rank 1 "x\n"  ──► Lines ──► "x\n"
//!   Gather: kept until the ranks end, and equal output is written once under the names of all who wrote it
//! ```

mod fold;
mod gather;
mod lines;

pub use fold::fold;
pub use gather::Gather;
pub use lines::{LINE_BYTES_MAX, Lines};
