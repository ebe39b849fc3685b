//! What a node serves.

pub mod export;
pub mod serve;
