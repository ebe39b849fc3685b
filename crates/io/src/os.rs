//! The real world: Linux.

pub mod file;
pub mod kv;
pub mod lock;
pub mod log;
pub mod net;
pub mod run;
