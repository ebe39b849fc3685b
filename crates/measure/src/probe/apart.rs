//! Blocks as many programs write them: a header, then the body, in two writes and without TCP_NODELAY.
//!
//! Nagle's algorithm keeps the second write back until the first is acknowledged, and the receiver delays
//! the acknowledgement for 40 ms because it hopes for data to send along. Neither is a fault of the
//! network: any pair of Linux hosts does it, so it is looked for only when asked.

use super::{APART, Link, connect, header};
use crate::error::{Cannot, Result};
use covey_io::os::tcp;
use covey_tune::Point;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

/// The sizes that are tried.
pub const APART_SIZES: [u64; 3] = [32, 128, 512];
/// A new connection acknowledges at once for a while.
const WARM_UP: usize = 3;
/// Round trips that count.
const ROUNDS: usize = 5;
/// What goes ahead of each body.
const HEAD: [u8; 8] = [0; 8];

/// The times of such blocks.
pub fn written_apart(peer: SocketAddr) -> Result<Vec<Point>> {
    let mut link = Link { stream: connect(peer)?, retransmits: 0 };
    let measured = APART_SIZES.iter().map(|bytes| round_trips(&mut link, *bytes));
    measured.collect::<std::io::Result<_>>().cannot(|| format!("measure short writes to {peer}"))
}

fn round_trips(link: &mut Link, bytes: u64) -> std::io::Result<Point> {
    let stream = &mut link.stream;
    stream.write_all(&header(bytes, (WARM_UP + ROUNDS) as u64, APART))?;
    stream.set_nodelay(false)?;
    let mut block = vec![0; bytes as usize];
    let mut times = Vec::with_capacity(WARM_UP + ROUNDS);
    for _ in 0..WARM_UP + ROUNDS {
        let begin = Instant::now();
        write(stream, &block)?;
        read(stream, &mut block)?;
        times.push(begin.elapsed().as_secs_f64() / 2.0);
    }
    stream.set_nodelay(true)?;
    let mut theirs = [0; 4];
    stream.read_exact(&mut theirs)?;
    let both = u64::from(u32::from_le_bytes(theirs)) + u64::from(tcp::info(&*stream)?.retransmits);
    let mut point = Point::new(bytes, times.split_off(WARM_UP));
    point.retransmits = both.saturating_sub(std::mem::replace(&mut link.retransmits, both));
    Ok(point)
}

/// Answers such blocks in the same way.
pub(super) fn echo(stream: &TcpStream, block: &mut [u8], rounds: u64) -> std::io::Result<()> {
    stream.set_nodelay(false)?;
    for _ in 0..rounds {
        read(stream, block)?;
        write(stream, block)?;
    }
    stream.set_nodelay(true)
}

fn write(mut stream: &TcpStream, body: &[u8]) -> std::io::Result<()> {
    stream.write_all(&HEAD)?;
    stream.write_all(body)
}

fn read(mut stream: &TcpStream, body: &mut [u8]) -> std::io::Result<()> {
    stream.read_exact(&mut HEAD.clone())?;
    stream.read_exact(body)
}
