//! What this machine does alone: the latency that no emulated network can go below, and the rate that
//! none can exceed.
//!
//! One node answers, another asks, on cables without rate or delay: one byte each way over TCP, many times,
//! then as much as goes for a while. What is measured is the hosts' own work, the hand-over to the keeper
//! and the wake-ups between them. The measurement is that of `covey tune net`.

use crate::error::{Cannot, Result};
use crate::tune::probe;
use serde::{Deserialize, Serialize};
use std::net::{SocketAddr, TcpListener};

/// Where the answering node listens.
pub const PORT: u16 = 5639;

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Floor {
    /// Half of the median round trip of one byte.
    pub latency_ns: u64,
    /// TCP payload of a long transfer.
    pub bits_per_s: f64,
}

/// Answers one peer.
pub fn serve() -> Result<()> {
    let listener =
        TcpListener::bind(("0.0.0.0", PORT)).cannot(|| format!("listen at port {PORT}"))?;
    probe::serve(&listener, true)
}

/// Measures against a node that answers.
pub fn measure(peer: SocketAddr) -> Result<Floor> {
    let (latency_s, bits_per_s) = probe::alone(peer)?;
    Ok(Floor { latency_ns: (latency_s * 1e9) as u64, bits_per_s })
}
