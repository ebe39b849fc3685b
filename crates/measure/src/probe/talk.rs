//! One of several that talk to one: short blocks to and fro for a while.

use super::{Link, connect, round_trips};
use crate::error::Result;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Fits into one packet of any network, so that no queue is too short for it.
const BYTES: u64 = 512;
/// How many round trips between two looks at the clock.
const ROUNDS: u64 = 4;
/// Round trips before the first one that is measured.
const WARM_UP: u64 = 10;

/// Round trips, segments sent again by both ends, how long it took, why it ended early.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Talked {
    /// Round trips.
    pub rounds: u64,
    /// Segments sent again, both ends together.
    pub retransmits: u64,
    /// In seconds.
    pub seconds: f64,
    /// Why it ended early.
    pub failure: Option<String>,
}

/// Talks for so long.
pub fn talk(peer: SocketAddr, time: Duration) -> Result<Talked> {
    let mut link = Link { stream: connect(peer)?, retransmits: 0 };
    let mut block = Vec::new();
    let mut talked = Talked::default();
    let begin = Instant::now();
    let mut first = Some(WARM_UP);
    while begin.elapsed() < time {
        let rounds = first.take().unwrap_or(ROUNDS);
        match round_trips(&mut link, BYTES, rounds, &mut block) {
            Ok(point) => {
                talked.rounds += rounds;
                talked.retransmits += point.retransmits;
            }
            Err(error) => {
                talked.failure = Some(crate::error::reason(&error));
                break;
            }
        }
    }
    talked.seconds = begin.elapsed().as_secs_f64();
    Ok(talked)
}
