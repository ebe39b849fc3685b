//! The striped parallel file system.
#![forbid(unsafe_code)]
pub mod client;
pub mod distribution;
pub mod kv;
pub mod meta;
pub mod objects;
pub mod ops;
