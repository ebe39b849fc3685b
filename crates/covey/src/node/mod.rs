//! What a node serves.

pub mod export;
