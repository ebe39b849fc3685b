//! What this machine does alone, for a lab: see [`covey_lab::floor`].

use crate::error::{Cannot, Result};
use covey_lab::floor::{Floor, PORT};
use std::net::{SocketAddr, TcpListener};

/// Answers one peer.
pub fn serve() -> Result<()> {
    let listener =
        TcpListener::bind(("0.0.0.0", PORT)).cannot(|| format!("listen at port {PORT}"))?;
    super::serve(&listener, true)
}

/// Measures against a node that answers.
pub fn measure(peer: SocketAddr) -> Result<Floor> {
    let (latency_s, bits_per_s) = super::alone(peer)?;
    Ok(Floor { latency_ns: (latency_s * 1e9) as u64, bits_per_s })
}
