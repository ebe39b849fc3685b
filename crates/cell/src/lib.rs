//! CellFS: workers with a small local store that reach everything as files.
//!
//! A host serves *message boxes*; a worker posts 9P messages there and is notified of replies. Files that lie in memory
//! are read and written without any message, through one line of memory each. A worker's program consists of coroutines
//! that are switched only where they do I/O, in a fixed order, so that it needs no locks and runs the same way each time.
//! The crate opens no file, maps no memory, starts no thread and reads no clock: you bring the memory that both sides
//! reach ([`Shared`]), the world of the host ([`devices::Host`]) and that of the worker ([`worker::Ground`]).
//!
//! ```text
//!   coroutines ──request──► Worker ──copy──────────────────────────► memory of a file
//!        ▲                    │  └─9P──► WorkerBox ══slots══ HostBox ──► Session ──► r U R p l
//!        └──────answer────────┘
//! ```
//!
//! A message goes from a worker to its host and back, over memory that is a vector here:
//!
//! ```
//! use covey_cell::{mailbox::{HostBox, WorkerBox}, memory::Flat, Plan};
//! use std::rc::Rc;
//!
//! let plan = Plan { workers: 1, heap_bytes: 0 };
//! let memory = Rc::new(Flat::new(plan.bytes()));
//! let mut worker = WorkerBox::new(memory.clone(), 0);
//! let mut host = HostBox::new(memory, 0);
//!
//! let flush = [9, 0, 0, 0, 108, 7, 0, 0xff, 0xff]; // Tflush, tag 7
//! worker.post(&flush).unwrap();
//! let mut message = Vec::new();
//! assert!(host.take(&mut message).unwrap());
//! assert_eq!(message, flush);
//! host.reply(&[7, 0, 0, 0, 109, 7, 0]).unwrap();
//! assert!(worker.take(&mut message).unwrap());
//! assert_eq!(message[4], 109);
//! ```
//!
//! The memory is described byte by byte in `docs/protocol/cell.md`.

#![deny(missing_docs, unsafe_op_in_unsafe_fn)]
#![deny(clippy::big_endian_bytes, clippy::host_endian_bytes)]

pub mod coroutine;
pub mod devices;
pub mod header;
pub mod mailbox;
pub mod memory;
mod plan;
pub mod store;
pub mod trace;
pub mod worker;

pub use memory::Shared;
pub use plan::{HEADERS, Plan, SLOT_BYTES, SLOTS};
