//! Scattered data described once: a column of a matrix, a subarray, a strided view of a file.
//!
//! A [`Layout`] says which bytes of a buffer are meant, and in which order, in the words of MPI's derived
//! types. It is checked when it is made, sent to a peer in a few dozen bytes, and run there: the
//! peer needs no types of its own. The crate moves bytes between slices; it does no I/O, keeps no registry of types,
//! and never makes a buffer as large as the data.
//!
//! ```text
//!   Layout ──encode──► bytes ──decode──► Layout            what is meant
//!      │ normal form
//!      ▼
//!    Plan ──pack──► packed bytes ──unpack──► Target        how it is moved
//!      │ runs(range), .rev()             ▲
//!      └───────────── copy ──────────────┘
//!   Signature: which elements the packed bytes are (byte order, accumulate)
//! ```
//!
//! A column-wise view of a matrix of 3 rows, packed and put back:
//!
//! ```
//! use covey_layout::{Element, Layout, Plan, Target};
//! let row = Layout::vector(3, 1, 4, &Layout::element(Element::U8))?; // one column
//! let columns = Layout::hvector(4, 1, 1, &row)?; // all of them
//! let matrix = *b"abcdefghijkl";
//! let mut packed = [0; 12];
//! Plan::new(&columns, 1)?.pack(&matrix[..], 0, &mut packed)?;
//! assert_eq!(&packed, b"aeibfjcgkdhl");
//! let mut back = [0; 12];
//! Target::new(&columns, 1)?.unpack(&packed, 0, &mut back[..])?;
//! assert_eq!(back, matrix);
//! # Ok::<(), covey_layout::Error>(())
//! ```
//!
//! What can be wrong with a description that a stranger sent is found before a byte is touched, and
//! [`Error`] says what and by how much: see `docs/protocol/layout.md` for the encoding and the limits.

#![deny(unsafe_code)]
#![deny(missing_docs)]

mod accumulate;
mod bounds;
mod describe;
mod element;
mod error;
#[allow(unsafe_code)]
mod kernels;
mod layout;
mod normal;
mod order;
mod overlap;
mod pieces;
mod plan;
mod program;
mod runs;
mod shape;
mod signature;
mod strips;
mod target;
mod wire;

pub use accumulate::Op;
pub use bounds::{Bounds, OFFSET_MAX};
pub use element::Element;
pub use error::Error;
pub use kernels::{Level, View, ViewMut, transpose};
pub use layout::{Axis, Block, DEPTH_MAX, ENTRIES_MAX, Layout, Member, Order};
pub use order::ByteOrder;
pub use overlap::PIECES_CHECKED_MAX;
pub use plan::Plan;
pub use runs::{Run, Runs};
pub use shape::Shape;
pub use signature::Signature;
pub use strips::{Strip, Strips};
pub use target::Target;
pub use wire::{VERSION, WIRE_BYTES_MAX};
