//! Blocks to and fro over TCP between two hosts.
//!
//! The one that asks connects, says which version it speaks, and then for each measurement sends a header of
//! 13 bytes: how many bytes, how many rounds, and what to do with them. For blocks to and fro both send the
//! block in turn; for a long transfer one of them sends all. The one that answers ends each with how many
//! segments it has had to send again. Both ends block in the kernel while they wait, as ordinary
//! programs do, and never delay a small segment (TCP_NODELAY), unless it is asked what happens then.
//! At last the one that answers may be asked about itself.

mod alone;
mod apart;
mod end;
mod held;
pub mod machine;
mod serve;
mod stream;
mod talk;

pub use alone::alone;
pub use apart::{APART_SIZES, written_apart};
pub use end::{here, taken, tell, with_usage};
pub use held::held;
pub use serve::serve;
pub use stream::{Streams, streams};
pub use talk::{Talked, talk};

use crate::error::{Cannot, Error, Result};
use covey_io::os::tcp;
use covey_tune::diagnose::{Stall, packets_to_try};
use covey_tune::{Curve, Point, sizes};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Where one listens that answers.
pub const PORT_DEFAULT: u16 = 5641;
/// Said by both at the beginning.
const HELLO: [u8; 8] = *b"COVEYTN3";
/// No block is longer.
pub const BYTES_MAX: u64 = 256 << 20;
/// No size is tried more often at a time.
pub(crate) const ROUNDS_MAX: u64 = 200;
/// Each size is tried so often at least, in each pass.
pub(crate) const ROUNDS_MIN: u64 = 3;
/// All sizes are gone through so often: what disturbs for a while then does not hit one size alone.
pub(crate) const PASSES: u64 = 3;
/// A size whose least rounds take so many times its share of the budget is the last.
pub(crate) const SLICES_MAX: f64 = 6.0;
/// After so many times the budget no further size is begun.
pub(crate) const OVERDRAFT: u32 = 3;
/// Lone packets are sent so often before it is asked whether they are enough.
const LONE_ROUNDS: u64 = 100;
/// Round trips before anything is measured.
pub(crate) const WARM_UP: u64 = 50;
/// How long the other end may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The same when it did not answer the last time: enough for TCP to have tried four times.
const PATIENCE_AGAIN: Duration = Duration::from_secs(3);

/// A connection, and how many segments both ends have sent again until now.
struct Link {
    stream: TcpStream,
    retransmits: u64,
}

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The longest block in bytes.
    pub up_to_bytes: u64,
    /// How far beside each size its neighbours lie.
    pub perturbation: u64,
    /// How long all of it may take, roughly.
    pub budget: Duration,
}

/// What was measured.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// All that there is, also when it ended early.
    pub curve: Curve,
    /// Why it ended before its time.
    pub failure: Option<String>,
    /// The size that never passed, if that was why.
    pub stalled: Option<Stall>,
    /// TCP payload of a full segment.
    pub segment_bytes: u64,
}

const HEADER_BYTES: usize = 13;
const ECHO: u8 = 0;
const TO_YOU: u8 = 1;
const TO_ME: u8 = 2;
/// Echo, but header and body are written apart and without TCP_NODELAY.
const APART: u8 = 3;
/// Tell of yourself: a length of four bytes, then an `End` as JSON.
const TELL: u8 = 4;
/// A transfer of which little is under way at a time.
const HELD_TO_YOU: u8 = 5;
const HELD_TO_ME: u8 = 6;
/// Its pieces are not longer.
const PIECE_BYTES_MAX: u64 = 1 << 20;

fn header(bytes: u64, rounds: u64, what: u8) -> [u8; HEADER_BYTES] {
    let mut header = [what; HEADER_BYTES];
    header[..8].copy_from_slice(&bytes.to_le_bytes());
    header[8..12].copy_from_slice(&(rounds as u32).to_le_bytes());
    header
}

fn read_header(header: [u8; HEADER_BYTES]) -> (u64, u64, u8) {
    let bytes = u64::from_le_bytes(header[..8].try_into().expect("eight bytes"));
    let rounds = u32::from_le_bytes(header[8..12].try_into().expect("four bytes"));
    (bytes, rounds.into(), header[12])
}

/// The address that a person wrote: `HOST` or `HOST:PORT`.
pub fn resolve(peer: &str) -> Result<SocketAddr> {
    let with_port = match peer.rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_ok() => peer.to_string(),
        _ => format!("{peer}:{PORT_DEFAULT}"),
    };
    let mut found = with_port.to_socket_addrs().map_err(|error| {
        Error::user(format!("cannot find host {peer}: {}", crate::error::reason(&error)))
            .hint("name a host, an address, or two nodes of a lab")
    })?;
    found.next().ok_or_else(|| Error::user(format!("cannot find host {peer}: it has no address")))
}

/// Measures against a host that answers. `progress` hears of each size in each pass.
pub fn measure(peer: SocketAddr, plan: &Plan, mut progress: impl FnMut(&Point)) -> Result<Outcome> {
    let mut link = Link { stream: connect(peer)?, retransmits: 0 };
    let mut points = Vec::new();
    let outcome = run(&mut link, plan, &mut points, &mut progress);
    let segment_bytes = tcp::info(&link.stream).map_or(0, |info| info.segment_bytes.into());
    let outcome = outcome.and_then(|()| lone_packets(&mut link, plan, segment_bytes, &mut points));
    let failure = outcome.err();
    let curve = Curve::new(points);
    let is_silence = |error: &std::io::Error| {
        matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
    };
    let stalled = match &failure {
        Some((bytes, error)) if is_silence(error) => stall(peer, &curve, *bytes),
        _ => None,
    };
    let failure = failure.map(|(bytes, error)| {
        let why = match error.kind() {
            _ if is_silence(&error) => format!("no answer within {} s", PATIENCE.as_secs()),
            std::io::ErrorKind::UnexpectedEof => "the other end has gone".to_string(),
            _ => crate::error::reason(&error),
        };
        format!("{why} at {bytes} bytes")
    });
    Ok(Outcome { curve, failure, stalled, segment_bytes })
}

/// Tries on a new connection whether it is this size that does not pass. None when nothing passes any more:
/// then the way is gone, which no size explains.
fn stall(peer: SocketAddr, curve: &Curve, bytes: u64) -> Option<Stall> {
    let passed =
        curve.points.iter().map(|point| point.bytes).filter(|passed| *passed < bytes).max();
    let passed_bytes = passed?;
    let stream = connect(peer).ok()?;
    let _ = stream.set_read_timeout(Some(PATIENCE_AGAIN));
    let mut link = Link { stream, retransmits: 0 };
    let mut block = Vec::new();
    round_trips(&mut link, passed_bytes, ROUNDS_MIN, &mut block).ok()?;
    let confirmed = round_trips(&mut link, bytes, 1, &mut block).is_err();
    Some(Stall { bytes, passed_bytes, confirmed })
}

fn connect(peer: SocketAddr) -> Result<TcpStream> {
    let what = || format!("measure the way to {peer}");
    let begin = Instant::now();
    let mut stream = loop {
        match TcpStream::connect_timeout(&peer, PATIENCE) {
            Ok(stream) => break stream,
            // One that is being started listens soon.
            Err(error)
                if error.kind() == std::io::ErrorKind::ConnectionRefused
                    && begin.elapsed() < Duration::from_secs(1) =>
            {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => {
                return Err(Error::work(format!(
                    "cannot {}: {}",
                    what(),
                    crate::error::reason(&error)
                ))
                .hint("`covey tune serve` must run there; a node of a lab needs nothing"));
            }
        }
    };
    stream.set_nodelay(true).cannot(what)?;
    stream.set_read_timeout(Some(PATIENCE)).cannot(what)?;
    stream.set_write_timeout(Some(PATIENCE)).cannot(what)?;
    let mut hello = [0; 8];
    stream.write_all(&HELLO).and_then(|()| stream.read_exact(&mut hello)).cannot(what)?;
    if hello == HELLO {
        Ok(stream)
    } else {
        Err(Error::work(format!("cannot {}: another program answers", what()))
            .hint("`covey tune serve` must run there, of this version"))
    }
}

type Failure = (u64, std::io::Error);

/// Some round trips, with what both ends had to send again of them.
fn settled(
    link: &mut Link,
    bytes: u64,
    rounds: u64,
    block: &mut Vec<u8>,
) -> std::result::Result<Point, Failure> {
    let failed = |error| (bytes, error);
    let mut point = round_trips(link, bytes, rounds, block).map_err(failed)?;
    // What the other end has to send again of its last block is known to it only afterwards.
    point.retransmits += round_trips(link, 1, 1, block).map_err(failed)?.retransmits;
    Ok(point)
}

/// Where packets are lost but too few were sent to say which, more are, for as long again at most.
fn lone_packets(
    link: &mut Link,
    plan: &Plan,
    segment_bytes: u64,
    points: &mut Vec<Point>,
) -> std::result::Result<(), Failure> {
    let mut block = Vec::new();
    let begin = Instant::now();
    while begin.elapsed() < plan.budget {
        let Some(sizes) = packets_to_try(&Curve::new(points.clone()), segment_bytes) else { break };
        for bytes in sizes {
            points.push(settled(link, bytes, LONE_ROUNDS, &mut block)?);
        }
    }
    Ok(())
}

fn run(
    link: &mut Link,
    plan: &Plan,
    points: &mut Vec<Point>,
    progress: &mut impl FnMut(&Point),
) -> std::result::Result<(), Failure> {
    let mut block = Vec::new();
    round_trips(link, 1, WARM_UP, &mut block).map_err(|error| (1, error))?;
    let mut sizes = sizes(plan.up_to_bytes, plan.perturbation);
    let slice_s = plan.budget.as_secs_f64() / (PASSES * sizes.len().max(1) as u64) as f64;
    let begin = Instant::now();
    for _ in 0..PASSES {
        let mut round_s = points.first().map_or(100e-6, |first: &Point| 2.0 * first.times_s[0]);
        for index in 0..sizes.len() {
            // A link that loses much takes long over everything, and is known well enough by then.
            if begin.elapsed() > OVERDRAFT * plan.budget {
                return Ok(());
            }
            let bytes = sizes[index];
            let rounds = (slice_s / round_s).ceil().min(ROUNDS_MAX as f64) as u64;
            let point = settled(link, bytes, rounds.max(ROUNDS_MIN), &mut block)?;
            let typical_s = point.time_s(covey_tune::Pick::Typical);
            round_s = 2.0 * typical_s;
            progress(&point);
            points.push(point);
            if ROUNDS_MIN as f64 * round_s > SLICES_MAX * slice_s {
                sizes.truncate(index + 1);
                break;
            }
        }
    }
    Ok(())
}

fn round_trips(
    link: &mut Link,
    bytes: u64,
    rounds: u64,
    block: &mut Vec<u8>,
) -> std::io::Result<Point> {
    let stream = &mut link.stream;
    stream.write_all(&header(bytes, rounds, ECHO))?;
    block.resize(bytes as usize, 0);
    let mut times = Vec::with_capacity(rounds as usize);
    for _ in 0..rounds {
        let begin = Instant::now();
        stream.write_all(block)?;
        stream.read_exact(block)?;
        times.push(begin.elapsed().as_secs_f64() / 2.0);
    }
    let mut theirs = [0; 4];
    stream.read_exact(&mut theirs)?;
    let both = u64::from(u32::from_le_bytes(theirs)) + u64::from(tcp::info(&*stream)?.retransmits);
    let mut point = Point::new(bytes, times);
    point.retransmits = both.saturating_sub(std::mem::replace(&mut link.retransmits, both));
    Ok(point)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn server() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || serve(&listener, true));
        address
    }

    fn plan() -> Plan {
        Plan { up_to_bytes: 4096, perturbation: 3, budget: Duration::from_millis(300) }
    }

    #[test]
    fn every_size_is_measured_in_every_pass() {
        let mut heard = 0;
        let outcome = measure(server(), &plan(), |_| heard += 1).unwrap();
        assert_eq!(outcome.failure, None);
        let found: Vec<u64> = outcome.curve.points.iter().map(|point| point.bytes).collect();
        assert_eq!(found, sizes(4096, 3));
        assert_eq!(heard, PASSES as usize * found.len());
        let least = (PASSES * ROUNDS_MIN) as usize;
        assert!(outcome.curve.points.iter().all(|point| point.times_s.len() >= least));
    }

    #[test]
    fn a_peer_that_leaves_in_mid_run_leaves_what_there_was() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut hello = [0; 8];
            stream.read_exact(&mut hello).unwrap();
            stream.write_all(&HELLO).unwrap();
            let mut block = vec![0; 4096];
            // The warm-up, and three sizes with the byte after each.
            for _ in 0..7 {
                let mut asked = [0; HEADER_BYTES];
                stream.read_exact(&mut asked).unwrap();
                let (bytes, rounds, _) = read_header(asked);
                for _ in 0..rounds {
                    stream.read_exact(&mut block[..bytes as usize]).unwrap();
                    stream.write_all(&block[..bytes as usize]).unwrap();
                }
                stream.write_all(&0u32.to_le_bytes()).unwrap();
            }
        });
        let outcome = measure(address, &plan(), |_| {}).unwrap();
        assert_eq!(outcome.curve.points.len(), 3);
        assert!(outcome.failure.unwrap().contains("at 4 bytes"));
    }

    #[test]
    fn a_server_survives_nonsense() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || serve(&listener, false));
        let mut stranger = TcpStream::connect(address).unwrap();
        stranger.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let mut greedy = TcpStream::connect(address).unwrap();
        greedy.write_all(&HELLO).unwrap();
        greedy.write_all(&header(u64::MAX, 1, ECHO)).unwrap();
        let mut rest = Vec::new();
        let _ = greedy.read_to_end(&mut rest);
        assert!(measure(address, &plan(), |_| {}).unwrap().failure.is_none());
    }

    #[test]
    fn another_program_is_told_apart() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.write_all(b"220 mail ready\r\n");
            std::thread::sleep(Duration::from_millis(200));
        });
        let error = measure(address, &plan(), |_| {}).unwrap_err();
        assert!(error.message.contains("another program answers"), "{error}");
    }
}
