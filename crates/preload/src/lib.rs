//! `libcovey-preload.so`: programs that know nothing of Covey reach its files without any mount.
//!
//! Loaded with LD_PRELOAD it stands before libc. Calls on paths below a prefix (`/covey`, or what
//! COVEY_PRELOAD_PREFIX names) and on descriptors that such calls gave are served by the striping
//! client inside the process; everything else goes straight on to libc. It refuses what it cannot do
//! right, such as shared mappings, and keeps the promises of a mount: a completed write is seen by
//! every later read of any client.
//!
//! ```text
//!   open("/covey/a")  read(fd)  stat("/etc/passwd")        the program's threads
//!        │               │             │
//!    place: ours?    table: ours?      └──────► real: the next definition of the name, libc's
//!        └───────┬───────┘
//!      walk, open file ─► client::wait ─► Fs, File        (polled on the caller's thread)
//!                                            │
//!                              thread `covey`: tokio, connections to all servers
//! ```
//!
//! What always holds:
//! - a descriptor of ours is a real one of the kernel, so its number never clashes; used behind our
//!   back it gives EBADF, never wrong bytes (`open`);
//! - no entry point unwinds into C, holds a lock while it waits for a server, or recurses into
//!   itself: what our own code asks of libc is let through (`boundary`);
//! - after a fork the child has its own client and session (`client`).
//!
//! `docs/manual/preload.md` is for those who use it.

#![deny(unsafe_op_in_unsafe_fn)]
// Tests of the parts export nothing: else they would stand before their own libc.
#![cfg_attr(test, allow(dead_code))]

mod aio;
mod boundary;
mod client;
mod copy;
mod cwd;
mod data;
mod descriptors;
mod directories;
mod exec;
mod handover;
mod lists;
mod locks;
mod map;
mod names;
mod open;
mod opening;
mod place;
mod real;
mod report;
mod seat;
mod settings;
mod signals;
mod start;
mod stats;
mod stdio;
mod table;
mod temporary;
mod views;
mod walk;
mod xattrs;
