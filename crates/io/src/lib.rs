//! Where the world is: sockets, files, clocks, the key-value store and the loop that runs a machine.
//!
//! Protocols are pure state machines ([`covey_wire::Machine`]); this crate brings them the bytes and
//! the time. It knows no protocol, so nothing here can be wrong about one. `unsafe` code of the
//! system's servers lives here and nowhere else, each block with its reason.
//!
//! ```text
//!   TcpStream, UnixStream ──bytes──► run() ──► Machine::handle_input
//!           ▲                          │
//!           └────one gathered write────┴────── Machine::poll_output
//! ```
//!
//! What lives under [`os`] talks to a real Linux: [`net`](os::net) listens and dials, on TCP and unix
//! sockets, and says who a peer is; [`file`](os::file) reads and writes without blocking the loop;
//! [`kv`](os::kv) and [`log`](os::log) keep the metadata; [`directory`](os::directory) says whose a
//! store is; [`mount`](os::mount) opens FUSE's device.
//!
//! What the libraries for C have in common, above all that no panic reaches C, is in [`boundary`].
//!
//! A fast [`lane`] for short packets may lie beside a stream: raw Ethernet beside TCP.
//!
//! What servers ask of their [`disk`] and of the runtime their [tasks](task) run on can also be answered by
//! a simulated world, [`sim`].
//!
//! A machine that sends back what it gets, over a real pair of sockets:
//!
//! ```
//! use covey_io::run;
//! use covey_wire::{Blame, BytesMut, Machine, Segments};
//! use std::time::Instant;
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! #[derive(Default)]
//! struct Echo(Vec<u8>);
//!
//! impl Machine for Echo {
//!     fn handle_input(&mut self, _: Instant, input: &mut BytesMut) -> Result<(), Blame> {
//!         self.0.extend_from_slice(&input.split());
//!         Ok(())
//!     }
//!     fn handle_timeout(&mut self, _: Instant) -> Result<(), Blame> {
//!         Ok(())
//!     }
//!     fn poll_output(&mut self, out: &mut Segments, _bytes_max: usize) -> bool {
//!         let bytes = std::mem::take(&mut self.0);
//!         out.small(|out| out.extend_from_slice(&bytes));
//!         !bytes.is_empty()
//!     }
//!     fn poll_deadline(&self) -> Option<Instant> {
//!         None
//!     }
//!     fn bytes_wanted(&self, _input: &[u8]) -> usize {
//!         1
//!     }
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let (mut ours, theirs) = tokio::net::UnixStream::pair().unwrap();
//! let served = async { run(Echo::default(), theirs).await.unwrap() };
//! let asked = async {
//!     ours.write_all(b"quail").await.unwrap();
//!     ours.shutdown().await.unwrap();
//!     let mut back = String::new();
//!     ours.read_to_string(&mut back).await.unwrap();
//!     assert_eq!(back, "quail");
//! };
//! tokio::join!(served, asked);
//! # });
//! ```
//!
//! Who may import whom, and why the protocols and this crate never meet but in the binary, is tested
//! by `crates/covey/tests/cli/layers.rs`.

#![deny(missing_docs)]
#![deny(unsafe_op_in_unsafe_fn)]

#[cfg(test)]
#[macro_use]
extern crate covey_harness_macro;

pub mod boundary;
pub mod disk;
pub mod lane;
pub mod os;
pub mod place;
pub mod sim;
pub mod task;

pub use os::run::{Stream, run};

#[cfg(test)]
fn main() {
    covey_harness::run()
}
