//! Byte cursors, the message table macro, blame-first errors, and two contracts: of a protocol machine, and
//! of what carries a message engine's packets ([`transport`]).
//!
//! Every protocol of Covey stands on this crate. It holds no protocol, does no I/O, reads no clock
//! and starts no thread: bytes and times are arguments.
//!
//! ```text
//!   Bytes ──► Reader ──► message (owned fields, payload shared) ──► Machine ──► Segments
//! ```
//!
//! A message is declared once, in a table, and gets its codec, log name and size from there. The table's context
//! ([`Context`]) gives the byte order: `()` is little-endian, [`BigEndian`] is network byte order.
//!
//! ```
//! use covey_wire::{messages, Field, Reader};
//! messages! {
//!     /// A two-message protocol.
//!     pub enum Tiny for () {
//!         /// asks for the sum
//!         1 Task { left: u32, right: u32 },
//!         /// answers
//!         2 Rsum { sum: u64 },
//!     }
//! }
//! let mut out = Vec::new();
//! Tiny::Task { left: 1, right: 2 }.put_body((), &mut out);
//! assert_eq!(out, [1, 0, 0, 0, 2, 0, 0, 0]);
//! let back = Tiny::take_body(1, (), &mut Reader::new(out.into())).unwrap();
//! assert_eq!(back.name(), "Task");
//! ```

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod blame;
mod cursor;
mod fnv;
mod landing;
mod loan;
mod machine;
mod memory;
mod payload;
mod rng;
mod segments;
mod shared;
mod table;
pub mod transport;

pub use blame::Blame;
pub use bytes::{Bytes, BytesMut};
pub use cursor::{BigEndian, Context, Field, List, Name, Order, Reader};
pub use fnv::{fnv1a, fnv1a_from};
pub use landing::Landing;
pub use loan::{Lender, Loan};
pub use machine::{Deposit, Machine};
pub use memory::{Memory, NoMemory, Span, copy_short};
pub use payload::Payload;
pub use rng::Rng;
pub use segments::{FileRange, Piece, RANGE_BYTES_MIN, Segments};
pub use shared::Shared;
#[doc(hidden)]
pub use table::in_field;
pub use transport::{Peer, Transport};
