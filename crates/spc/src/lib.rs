//! `libcovey-cell.so`: what the program of a worker calls, from C (`covey_cell.h`) and from Rust ([`api`]), and what starts it.
//!
//! ```text
//!   host ── socket ──► covey_cell_work ──► Worker ──► coroutines of the program
//!                                             ▲            │ spc_read, mkcor, yield ...
//!                                             └────────────┘ on the small stack: no more than to ask
//! ```
//!
//! Every exported function is fenced: no panic passes into C. That of a program in Rust ends its worker.

#![deny(missing_docs, unsafe_op_in_unsafe_fn)]

pub mod api;
mod boundary;
mod calls;
mod ground;
mod work;

#[doc(hidden)]
pub use api::Words;
pub use calls::*;
pub use work::covey_cell_work;
