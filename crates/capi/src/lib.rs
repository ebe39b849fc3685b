//! `libcovey.so`: Covey's layouts and message engine for programs in C and for whatever calls C.
//!
//! `include/covey.h` is the contract; a test holds the two together, name by name and type by type.
//! Nothing here decides anything: an entry point checks its pointers, calls the library, and
//! turns what it answers into a number and a text.
//!
//! ```text
//!   covey_pack(plan, memory, at, into, bytes)          C
//!        │ fence: a panic is COVEY_ERR_INTERNAL        boundary
//!        ▼
//!   Plan::pack(View, at, &mut [u8])                    covey-layout
//! ```
//!
//! What always holds: no entry point unwinds into C; a refusal has touched nothing; the text of
//! the last refusal is the thread's own; a layout, a plan or a target may be used by several threads at once,
//! an endpoint by one at a time.

#![deny(unsafe_op_in_unsafe_fn)]

mod boundary;
mod endpoint;
mod layouts;
mod meeting;
mod moves;
mod operations;
mod results;

#[cfg(test)]
mod tests;
