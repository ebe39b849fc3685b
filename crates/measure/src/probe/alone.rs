//! Latency and rate at a glance, without any curve: what a lab measures of the machine it is on.

use super::{Link, connect, round_trips, stream};
use crate::error::{Cannot, Result};
use covey_tune::Pick;
use std::net::SocketAddr;

/// Round trips before measuring: connections start slowly, caches are cold.
const WARM_UP: u64 = 200;
/// Round trips that count.
const ROUNDS: u64 = 1000;
/// A first transfer says how much goes in the time of the second.
const FIRST_BYTES: u64 = 1 << 20;
/// How long the second lasts, roughly, in seconds.
const SECONDS: f64 = 0.2;

/// Half of the median round trip of one byte in seconds, and a long transfer in bits per second.
pub fn alone(peer: SocketAddr) -> Result<(f64, f64)> {
    let what = || format!("measure the way to {peer}");
    let mut link = Link { stream: connect(peer)?, retransmits: 0 };
    let mut block = Vec::new();
    round_trips(&mut link, 1, WARM_UP, &mut block).cannot(what)?;
    let point = round_trips(&mut link, 1, ROUNDS, &mut block).cannot(what)?;
    let first = stream::there(&mut link.stream, FIRST_BYTES).cannot(what)?;
    let bytes = ((first * SECONDS / 8.0) as u64).clamp(FIRST_BYTES, stream::STREAM_BYTES_MAX);
    let bits_per_s = stream::there(&mut link.stream, bytes).cannot(what)?;
    Ok((point.time_s(Pick::Typical), bits_per_s))
}
