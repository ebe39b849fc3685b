//! The parts of the `covey` binary that its tests reach into. Not a public interface.

#![forbid(unsafe_code)]

pub mod mount;
