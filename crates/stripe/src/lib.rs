//! The striped parallel file system.
#![forbid(unsafe_code)]
pub mod client;
pub mod kv;
pub mod meta;
pub mod ops;
