//! 9P2000, 9P2000.u, 9P2000.L and Covey's small extension of it, as pure client and server machines.
//!
//! The crate turns bytes into requests on a file tree and back: it negotiates, keeps fids and tags,
//! orders and flushes requests, proves the cluster key, and notices a dead peer. It does no I/O,
//! reads no clock, starts no thread, makes no random number and knows no runtime: you bring the
//! sockets, the time and the nonces, and a loop that drives a [`Machine`](covey_wire::Machine).
//! One [`Tree`](tree::Tree) is served in every dialect.
//!
//! ```text
//!   your code ──► Conn ─ Client ──► bytes ──► Session ──► your Tree
//!              ◄── Call    (machine)  ◄──    (machine)  ◄── Outcome::Now or Later
//! ```
//!
//! Trees that know nothing of each other become one in a [`namespace`], other servers' trees among them
//! ([`import`]); [`text`] and [`control`] files are trees, too.
//!
//! A tree is a type with a few methods; [`memory`] is a complete one. A loop moves bytes between
//! the two machines; here it is three lines, over sockets it is the one in the `io` crate:
//!
//! ```
//! use covey_ninep::{client, memory::MemoryTree, message::Message, server, tree::Peer};
//! use covey_wire::{BytesMut, Machine, Segments};
//! use std::{future::Future, pin::pin, rc::Rc, task::{Context, Poll, Waker}, time::Instant};
//!
//! fn pass(from: &mut impl Machine, to: &mut impl Machine) {
//!     let mut out = Segments::new();
//!     while from.poll_output(&mut out, 1 << 20) {}
//!     let mut bytes: BytesMut = out.runs().flatten().copied().collect::<Vec<u8>>()[..].into();
//!     to.handle_input(Instant::now(), &mut bytes).unwrap();
//! }
//!
//! let (conn, mut client) = client::pair(client::Config::default(), Instant::now());
//! let tree = Rc::new(MemoryTree::default());
//! let mut session = server::Session::new(tree, Peer::default(), server::Config::default());
//!
//! let mut work = pin!(async {
//!     conn.version().await?;
//!     conn.auth_and_attach(0, "me", None, "", None, [0; 32]).await?;
//!     // These leave in one write. A call is on its way when it is made.
//!     let made = conn.call(Message::Tlcreate {
//!         fid: 0, name: "greeting".into(), flags: 2, mode: 0o644, gid: 0,
//!     });
//!     let data = b"hello".to_vec().into();
//!     let written = conn.call(Message::Twrite { fid: 0, offset: 0, data });
//!     made.await?;
//!     written.await
//! });
//! let mut context = Context::from_waker(Waker::noop());
//! let reply = loop {
//!     if let Poll::Ready(reply) = work.as_mut().poll(&mut context) { break reply }
//!     pass(&mut client, &mut session);
//!     pass(&mut session, &mut client);
//! };
//! assert_eq!(reply, Ok(Message::Rwrite { count: 5 }));
//! ```
//!
//! The dialect, the order rules, the proof of the key and the heartbeat are in
//! `docs/protocol/9p.md`. The
//! specification is section 5 of the Plan 9 manual, and for .L diod's `protocol.md`.

#![forbid(unsafe_code)]
#![deny(missing_docs, clippy::big_endian_bytes, clippy::host_endian_bytes)]

pub mod auth;
pub mod brief;
pub mod client;
pub mod control;
mod frame;
pub mod import;
pub mod memory;
pub mod message;
pub mod namespace;
pub mod server;
pub mod text;
pub mod tree;
