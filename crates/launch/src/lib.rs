//! Starting programs on many nodes, as pure machines.
//!
//! A node offers its processes as a tree of files, after XCPU: who wants to run something makes a session,
//! copies a program into it, and reads its output. A session is spread to other nodes down a tree whose inner
//! nodes pass on what they are still receiving. The crate starts no process and opens no socket or file: what
//! must be done in the world it asks of a trait, and the node that serves it answers.
//!
//! ```text
//!   session  9P requests on /xcpu ──► Xcpu ──► Host: make a place, start a program, read its output
//!   spawn    destinations, fan-out ──► groups: who gets a copy from here, and whom it serves in turn
//! ```
//!
//! ```
//! let groups: Vec<_> = covey_launch::spawn::groups(&["a", "b", "c", "d", "e"], 2).collect();
//! assert_eq!(groups, [(&"a", &["b", "c"][..]), (&"d", &["e"][..])]);
//! ```
//!
//! The tree and its commands are described in `docs/manual/jobs.md`.

#![forbid(unsafe_code)]
#![deny(missing_docs, clippy::big_endian_bytes, clippy::host_endian_bytes)]

pub mod exchange;
pub mod image;
pub mod job;
pub mod output;
pub mod pmi;
pub mod session;
pub mod spawn;
