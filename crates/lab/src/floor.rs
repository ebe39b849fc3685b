//! What this machine does alone: the latency that no emulated network can go below, and the rate that
//! none can exceed.
//!
//! One node answers, another asks, on cables without rate or delay: one byte each way over TCP, many times,
//! then as much as goes for a while. What is measured is the hosts' own work, the hand-over to the keeper
//! and the wake-ups between them. `covey lab up` has it measured as `covey tune net` measures, and the keeper
//! keeps it: here is only the record.

use serde::{Deserialize, Serialize};

/// Where the answering node listens.
pub const PORT: u16 = 5639;

/// What this machine reaches through a lab without rate or delay.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Floor {
    /// Half of the median round trip of one byte.
    pub latency_ns: u64,
    /// TCP payload of a long transfer.
    pub bits_per_s: f64,
}
