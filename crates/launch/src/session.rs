//! Sessions: the processes of a node as a tree of files, after XCPU.
//!
//! ```text
//!   clone          opened: makes a session; read: its number
//!   arch uname     Linux/x86_64          env    what every program's environment begins with
//!   procs          the node's processes  state  a word about the node       ctl  what concerns all
//!   N/ctl          commands: exec, clone, signal, type, id, close, wipe, ...
//!   N/exec         the program           N/argv N/env   quoted words
//!   N/fs/          the session's directory, where its program starts
//!   N/stdin N/stdout N/stderr N/stdio    N/wait  the wait status         N/id   the job it belongs to
//! ```
//!
//! What always holds:
//!
//! - A session belongs to the user who opened `clone`. Nobody else uses its files but the node's managers,
//!   and its program runs as its owner, whoever starts it.
//! - A session lives as long as some fid has `clone` or one of its files open; a persistent one until it is
//!   wiped. Its processes end with it. So a client that is lost cleans up after itself.
//! - It goes `initializing` → `starting` → `running` → `finished`, and from anywhere to `wiped`. Reads of its
//!   output, writes of its input and reads of `wait` wait for the state that answers them.
//! - Output is not kept here: what nobody reads stays in the pipe, and then the program waits.
//! - Everything that a user can make grow has a limit.
//!
//! What is done in the world is asked of a [`Host`].

mod buffer;
mod commands;
mod files;
mod host;
mod root;
pub mod signals;
mod state;
mod transfer;
pub mod words;

pub use host::{Ended, Host, Job, Output, Place, Program, Size, Which};
pub use root::{Limits, Xcpu};
pub use state::{Session, State};

/// Longest id of a job in bytes.
pub const ID_BYTES_MAX: usize = 256;
