//! The UZURA engine: messages and one-sided operations with a layout on both sides, over any transport; and the
//! [`model`] of the paper's network card that it is named after.
//!
//! An [`Engine`] is one endpoint. It keeps tags, buffers, keys and layouts; a
//! [`Transport`](covey_wire::Transport) brings the packets and, where it can, reaches into a peer's
//! memory; a [`Memory`](covey_wire::Memory) lends the bytes that operations are about. It opens no socket, maps no
//! memory, reads no clock and starts no thread: it goes on when it is polled.
//!
//! ```text
//!   send, receive, put, get ──► Engine ──► Completion
//!                               │    ▲
//!                Transport::send│    │Sink::packet        Memory::{read, write, both}
//!                               ▼    │
//!                             Transport
//! ```
//!
//! The packets are in `docs/protocol/uzura.md`.
//!
//! The paper: Nakashima et al., "Toward an Implementation of High Performance Communication Offload
//! Engine UZURA". Its 4.03 us and 1.02 GB/s are themselves predictions from the times of components; the model
//! makes the same ones, says where each number comes from, and what would follow from others.
//!
//! ```
//! use covey_uzura::model::{Nic, Way, message, rdma};
//!
//! let (nic, way) = (Nic::paper(), Way::paper());
//! assert_eq!(message(&nic, &way, 64).unwrap().arrival_ps, 4_030_000);
//! let rate = rdma(&nic, &way, 4096).unwrap().bytes_per_s;
//! assert_eq!(format!("{:.2}", rate / 1e9), "1.02");
//! ```

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod api;
mod atomics;
mod core;
mod direct;
mod engine;
mod envelope;
mod fault;
mod forms;
mod matching;
pub mod model;
mod numbers;
mod ops;
mod order;
mod packet;
mod peers;
mod serve;
mod table;

pub use api::{
    Access, Claim, Completion, Config, Done, End, Form, HEADER_BYTES_MAX, Key, Local, Match,
    Message, OpId, Probe, Remote, Rights, Rule, Short, Source, Started, Stats, Tag,
};
pub use atomics::Compare;
pub use engine::Engine;
pub use fault::Fault;
