//! 9P2000.L as pure client and server machines over one message table.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod auth;
pub mod client;
mod frame;
pub mod memory;
pub mod message;
pub mod server;
pub mod tree;
