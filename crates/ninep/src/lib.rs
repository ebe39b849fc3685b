//! 9P2000.L as pure client and server machines over one message table.
#![forbid(unsafe_code)]
pub mod client;
pub mod message;
pub mod tree;
