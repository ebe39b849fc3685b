//! What this machine does alone: the latency that no emulated network can go below, and the rate that
//! none can exceed.
//!
//! One node answers, another asks, on cables without rate or delay: one byte each way over TCP, many times,
//! then as much as goes for a while. What is measured is the hosts' own work, the hand-over to the keeper
//! and the wake-ups between them.

use crate::error::{Cannot, Error, Result};
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Round trips before measuring: connections start slowly, caches are cold.
const WARM_UP: usize = 200;
/// Round trips that count.
const ROUNDS: usize = 1000;
/// What ends the round trips.
const STREAM: u8 = 1;
/// How long the long transfer lasts.
const STREAM_TIME: Duration = Duration::from_millis(200);
/// How much is written at a time.
const PIECE_BYTES: usize = 256 << 10;
/// Where the answering node listens.
pub const PORT: u16 = 5639;
/// How long all of it may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Floor {
    /// Half of the median round trip of one byte.
    pub latency_ns: u64,
    /// TCP payload of a long transfer.
    pub bits_per_s: f64,
}

/// Answers one peer: echoes its bytes until it says `STREAM`, then counts what comes.
pub fn serve() -> Result<()> {
    let listener =
        TcpListener::bind(("0.0.0.0", PORT)).cannot(|| format!("listen at port {PORT}"))?;
    let (mut stream, _) = listener.accept().cannot(|| "accept")?;
    stream.set_nodelay(true).cannot(|| "talk")?;
    let mut byte = [0];
    while matches!(stream.read(&mut byte), Ok(1)) && byte[0] != STREAM {
        stream.write_all(&byte).cannot(|| "talk")?;
    }
    let mut buffer = vec![0; PIECE_BYTES];
    let mut bytes = 0u64;
    while let Ok(some @ 1..) = stream.read(&mut buffer) {
        bytes += some as u64;
    }
    stream.write_all(&bytes.to_le_bytes()).cannot(|| "talk")
}

/// Measures against a node that answers.
pub fn measure(peer: SocketAddr) -> Result<Floor> {
    let what = || format!("measure the way to {peer}");
    let mut stream = connect(peer)?;
    stream.set_nodelay(true).cannot(what)?;
    stream.set_read_timeout(Some(PATIENCE)).cannot(what)?;
    stream.set_write_timeout(Some(PATIENCE)).cannot(what)?;
    let latency_ns = latency(&mut stream).cannot(what)?;
    let bits_per_s = rate(&mut stream).cannot(what)?;
    Ok(Floor { latency_ns, bits_per_s })
}

fn latency(stream: &mut TcpStream) -> std::io::Result<u64> {
    let mut rounds = Vec::with_capacity(WARM_UP + ROUNDS);
    let begin = Instant::now();
    while rounds.len() < WARM_UP + ROUNDS && begin.elapsed() < PATIENCE {
        let from = Instant::now();
        let mut byte = [0];
        stream.write_all(&byte)?;
        stream.read_exact(&mut byte)?;
        rounds.push(from.elapsed().as_nanos() as u64);
    }
    let mut counted = rounds.split_off(WARM_UP.min(rounds.len() / 2));
    counted.sort_unstable();
    Ok(counted[counted.len() / 2] / 2)
}

fn rate(stream: &mut TcpStream) -> std::io::Result<f64> {
    stream.write_all(&[STREAM])?;
    let piece = vec![0; PIECE_BYTES];
    let begin = Instant::now();
    while begin.elapsed() < STREAM_TIME {
        stream.write_all(&piece)?;
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut bytes = [0; 8];
    stream.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes) as f64 * 8.0 / begin.elapsed().as_secs_f64())
}

fn connect(peer: SocketAddr) -> Result<TcpStream> {
    let begin = Instant::now();
    loop {
        match TcpStream::connect_timeout(&peer, Duration::from_secs(1)) {
            Ok(stream) => return Ok(stream),
            Err(error) if begin.elapsed() > PATIENCE => {
                return Err(Error::work(format!("cannot reach {peer}: {error}")));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}
