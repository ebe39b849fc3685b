//! The lab: a cluster of machines that are namespaces of this one, and the network between them.
//!
//! ```text
//!   n1 (network, host name, mounts)          n2                      n3
//!   └─ eth0 ── TAP ──┐          ┌── TAP ── eth0          ┌── TAP ── eth0
//!                    │          │                        │
//!            ┌───────▼──────────▼────────────────────────▼───────┐
//!            │ keeper: cards, cables and switches (`fabric`)     │──── control.sock
//!            └───────────────────────────────────────────────────┘
//! ```
//!
//! One process, the keeper, holds it all: it is the first process of the lab's process namespace, has the
//! nodes' namespaces open, and is the network itself, moving every frame from card to card with the
//! delays, rates and losses of the cables between them. Whatever kills it therefore ends every process
//! in the lab and every card and namespace, by the kernel's own rules; all that remains is a
//! directory, which `covey lab down` and the next `covey lab up` remove.
//!
//! The kernel's own shapers are not used: a token bucket lets small messages pass for free, netem
//! is missing in many kernels, and neither says when it was late. The keeper does ([`keeper::Timing`]).
//!
//! The lab measures nothing: what this machine does alone ([`floor`]) is found by `covey_measure` and only
//! kept here. It prints nothing; what runs in it is this program, started again.

#![forbid(unsafe_code)]

pub mod control;
pub mod down;
pub mod enter;
pub mod fabric;
pub mod floor;
pub mod keeper;
pub mod plan;
pub mod profile;
pub mod state;
pub mod units;

use covey_cluster::{config, error};
