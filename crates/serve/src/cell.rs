//! Workers and their host: the boxes served, the processes started, and where a node shows them.
//!
//! ```text
//!   covey cell run ── Host ──┬── memory, bells, sockets ── worker processes or threads
//!                            ├── devices r U R p l ◄── unix socket ── the node's /cell (registry)
//!                            └── node ──► the node's own namespace, for all other paths
//! ```
//!
//! A host is a process of the user who runs the workers: whatever becomes of it, the node goes on. What a host serves appears
//! below the node's `/cell` for as long as the host lives.

mod disk;
mod ending;
mod host;
mod log;
mod mappings;
mod part;
mod registry;
mod rounds;
mod start;
mod world;

pub use ending::Ending;
pub use host::{Host, Outcome, Wish};
pub use registry::bind;
pub use start::{library, work};
