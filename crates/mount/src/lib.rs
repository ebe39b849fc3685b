//! The FUSE mount: our own transport on the kernel's device, and the striping client behind it.
//!
//! ```text
//!   kernel ── transport (device, tasks, interrupts) ── handlers (one per message) ── Files ── Fs
//!                └── abi (message table)
//! ```
//!
//! Each thread has its own clone of the device and its own runtime; handlers are async, so a request
//! that waits for a dead server costs no thread, and a signal ends the wait.

//!
//! It asks the file system only through [`Files`], so any implementation can be mounted; the cluster's is the
//! richest ([`mount_cluster`]). A tree of 9P is mounted as it is ([`serve_tree`]). It serves nothing but the device, and prints nothing.

#![forbid(unsafe_code)]

pub mod abi;
mod any;
mod behind;
mod cluster;
mod counts;
mod device;
mod files;
mod handlers;
mod kernel;
mod takeover;
mod transport;

pub use any::serve_tree;
pub use cluster::{Options, Successor, mount_cluster, take_over_cluster};
pub use counts::STATS;
pub use device::{Groups, LAZY_GRACE, MountOptions, Unmounter, attach, local_runtime, serve};
pub use files::Files;
pub use takeover::{cluster_of, server_of};
pub use transport::End;
