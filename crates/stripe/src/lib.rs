//! The striped parallel file system: its metadata, its distributions, and the client that joins them.
//!
//! The crate decides what every operation on names, sizes, locks and stripings means, where each byte
//! of a file lies, and how a client reaches many servers at once and lives through the death of one.
//! It opens no socket and no file, reads no clock, starts no thread and names no runtime: the store
//! stands on a map that you bring ([`kv::Kv`]), the client on a network that you bring
//! ([`client::Net`]). It knows nothing of FUSE, and keeps no copies of data.
//!
//! ```text
//!                    ┌─ Tcall: ops ──────► meta::Store ──► Kv      names, sizes, sessions, locks
//!   client::Fs ──────┤
//!     (async)        └─ Tread, Twrite ───► objects, one for each server of the file's striping
//!                             │
//!                       distribution: which server has which byte
//! ```
//!
//! A file is created on a metadata store in memory, and its bytes are found:
//!
//! ```
//! use covey_stripe::distribution::{self, Distribution};
//! use covey_stripe::kv::MemoryKv;
//! use covey_stripe::meta::{Applied, Store};
//! use covey_stripe::ops::{Caller, StripingHint, Op, ROOT, Reply, Request};
//!
//! let mut map = MemoryKv::default();
//! let servers = ["io1", "io2", "io3"].map(String::from);
//! let hint = StripingHint::simple_stripe(65536, 0);
//! Store::format(&mut map, "cluster", &servers, hint, 0, (0, 0))?;
//! let mut store = Store::open(map)?;
//!
//! let op = Op::Create {
//!     parent: ROOT, name: "big".into(), mode: 0o100644, gid: 0, rdev: 0, target: "".into(),
//!     exclusive: true, open: false, access: 0,
//! };
//! let caller = Caller::default();
//! let request = Request { session: 0, seq: 0, seq_done: 0, now: 1, caller, op };
//! let Applied::Reply(Reply::Created { inode, .. }) = store.apply(&request) else { panic!() };
//!
//! // The fourth strip is the second one of the server that has the first.
//! let striping = inode.striping.unwrap();
//! let map = distribution::of(&striping)?;
//! let (first, fourth) = (map.locate(0), map.locate(3 * 65536));
//! assert_eq!(striping.servers.0[first.slot], striping.servers.0[fourth.slot]);
//! assert_eq!(fourth.physical, 65536);
//! # Ok::<(), covey_ninep::tree::Errno>(())
//! ```
//!
//! What the parts say to each other is in `docs/protocol/metadata.md`, what a program may rely on in
//! `docs/semantics.md`; `docs/design/` tells why epochs, sessions and the journal are as they are.

#![forbid(unsafe_code)]
#![deny(missing_docs, clippy::big_endian_bytes, clippy::host_endian_bytes)]

pub mod chain;
pub mod check;
pub mod client;
pub mod distribution;
mod error;
pub mod kv;
pub mod meta;
pub mod objects;
pub mod ops;
pub mod view;
