//! Long transfers one way, and both ways at once: what round trips cannot tell apart.

use super::{TO_ME, TO_YOU, connect, header};
use crate::error::{Cannot, Result};
use covey_tune::diagnose::End;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

/// How long each transfer lasts, roughly.
const SECONDS: f64 = 0.4;
/// The fastest of so many counts: what disturbs makes slower only.
const REPETITIONS: usize = 2;
/// How much is handed over at a time.
const PIECE_BYTES: usize = 256 << 10;
/// No transfer is longer.
pub(super) const STREAM_BYTES_MAX: u64 = 1 << 30;

/// Rates in bits per second.
#[derive(Clone, Debug, PartialEq)]
pub struct Streams {
    /// There, then back, each alone.
    pub alone: [f64; 2],
    /// There and back at the same time, over two connections.
    pub together: [f64; 2],
    /// How the two ends are, as far as they told: the one that asked and the one that answered.
    pub ends: Vec<End>,
}

/// Measures them on a link that carries roughly so much.
pub fn streams(peer: SocketAddr, bits_per_s: f64) -> Result<Streams> {
    let bytes = ((bits_per_s * SECONDS / 8.0) as u64).clamp(64 << 10, STREAM_BYTES_MAX);
    let what = || format!("transfer {bytes} bytes to {peer} and back");
    let (mut one, mut other) = (connect(peer)?, connect(peer)?);
    let mut found = Streams { alone: [0.0; 2], together: [0.0; 2], ends: Vec::new() };
    for _ in 0..REPETITIONS {
        let there = there(&mut one, bytes).cannot(what)?;
        let back = back(&mut one, bytes).cannot(what)?;
        found.alone = [found.alone[0].max(there), found.alone[1].max(back)];
        let together = together(&mut one, &mut other, bytes).cannot(what)?;
        if together.iter().sum::<f64>() > found.together.iter().sum::<f64>() {
            found.together = together;
        }
    }
    found.ends.push(super::here(&one));
    found.ends.extend(super::tell(&one));
    Ok(found)
}

fn together(one: &mut TcpStream, other: &mut TcpStream, bytes: u64) -> std::io::Result<[f64; 2]> {
    std::thread::scope(|scope| {
        let going = scope.spawn(|| there(one, bytes));
        let back = back(other, bytes)?;
        let there = going.join().map_err(|_| std::io::Error::other("a thread failed"))??;
        Ok([there, back])
    })
}

pub(super) fn there(stream: &mut TcpStream, bytes: u64) -> std::io::Result<f64> {
    let begin = Instant::now();
    stream.write_all(&header(bytes, 1, TO_YOU))?;
    give(stream, bytes)?;
    end(stream, bytes, begin)
}

fn back(stream: &mut TcpStream, bytes: u64) -> std::io::Result<f64> {
    let begin = Instant::now();
    stream.write_all(&header(bytes, 1, TO_ME))?;
    take(stream, bytes)?;
    end(stream, bytes, begin)
}

/// The other end has everything, or has sent everything, when it says so.
fn end(stream: &mut TcpStream, bytes: u64, begin: Instant) -> std::io::Result<f64> {
    let mut retransmits = [0; 4];
    stream.read_exact(&mut retransmits)?;
    Ok(bytes as f64 * 8.0 / begin.elapsed().as_secs_f64())
}

/// Sends so many bytes.
pub(super) fn give(mut stream: &TcpStream, bytes: u64) -> std::io::Result<()> {
    allowed(bytes)?;
    let piece = vec![0; PIECE_BYTES];
    let mut left = bytes as usize;
    while left > 0 {
        let now = left.min(PIECE_BYTES);
        stream.write_all(&piece[..now])?;
        left -= now;
    }
    Ok(())
}

/// Receives `bytes` bytes and drops them.
pub(super) fn take(mut stream: &TcpStream, bytes: u64) -> std::io::Result<()> {
    allowed(bytes)?;
    let mut piece = vec![0; PIECE_BYTES];
    let mut left = bytes as usize;
    while left > 0 {
        let now = left.min(PIECE_BYTES);
        match stream.read(&mut piece[..now])? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            read => left -= read,
        }
    }
    Ok(())
}

fn allowed(bytes: u64) -> std::io::Result<()> {
    if bytes <= STREAM_BYTES_MAX {
        Ok(())
    } else {
        Err(std::io::Error::other(format!("a transfer of {bytes} bytes was asked for")))
    }
}
