//! `covey._covey`: the striping client for Python, as blocking calls.
//!
//! It knows paths, offsets and buffers; what fsspec and numpy want of files is Python code beside it
//! (`covey/fs.py`, `covey/array.py`). It refuses to keep anything back: a write has reached its servers
//! when the call returns, and a read asks them.
//!
//! ```text
//!   covey.fs  covey.array                       Python: fsspec, io, numpy
//!       │          │
//!   Client ──── File                            classes of this module; calls release the GIL
//!       │          │
//!   wait: polled on the caller's thread         a signal's handler runs within 50 ms, and may end it
//!       │
//!   thread `covey`: tokio, connections to all servers
//! ```
//!
//! What always holds:
//! - no lock is held while the GIL is released, so that a fork, which happens under the GIL, never
//!   copies one that is taken;
//! - after a fork the child has a client and a session of its own; files that were open are opened
//!   again by their number at their next use (`connection`).
//!
//! `docs/manual/python.md` is for those who use it.

#![deny(unsafe_code)]

mod client;
mod connection;
mod error;
mod file;
mod many;
#[allow(unsafe_code)]
mod memory;
mod stat;
mod view;
mod walk;

use pyo3::prelude::*;

/// The striping client of Covey.
#[pymodule]
mod _covey {
    #[pymodule_export]
    use super::client::Client;
    #[pymodule_export]
    use super::file::File;
}
