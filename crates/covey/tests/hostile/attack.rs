//! What somebody does who can reach a server's socket and has no key: many connections, and whatever
//! bytes may cost the server most.
//!
//! Shared by the suite and by `examples/strangers.rs`.

use covey_wire::Rng;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// What was done.
#[derive(Debug, Default)]
pub struct Tally {
    pub connections: u64,
    pub bytes: u64,
    /// Connections that could not be made.
    pub refused: u64,
}

/// Attacks until `end` in all ways by turns; `seed` makes threads differ.
pub fn attack(server: SocketAddr, end: Instant, seed: u64) -> Tally {
    let mut tally = Tally::default();
    let mut rng = Rng::new(seed);
    let mut held = Vec::new();
    let ways: [fn(&mut Rng) -> Vec<u8>; 6] = [nothing, long_auths, short_auths, noise, huge, mute];
    for turn in seed as usize.. {
        if Instant::now() >= end {
            return tally;
        }
        let Ok(mut stream) = TcpStream::connect_timeout(&server, Duration::from_secs(1)) else {
            tally.refused += 1;
            // Perhaps this process has too many files open.
            held.clear();
            continue;
        };
        tally.connections += 1;
        let _ = stream.set_write_timeout(Some(Duration::from_millis(20)));
        let bytes = ways[turn % ways.len()](&mut rng);
        // Piece by piece, as packets come.
        for piece in bytes.chunks(1 << 16) {
            match stream.write(piece) {
                Ok(count) => tally.bytes += count as u64,
                Err(_) => break,
            }
        }
        held.push(stream);
        if held.len() >= 200 {
            held.swap_remove(rng.index(200));
        }
    }
    tally
}

fn nothing(_: &mut Rng) -> Vec<u8> {
    Vec::new()
}

fn long_auths(rng: &mut Rng) -> Vec<u8> {
    let mut out = version();
    (0..40).for_each(|afid| auth(&mut out, afid, 20_000 + rng.index(45_000)));
    out
}

fn short_auths(_: &mut Rng) -> Vec<u8> {
    let mut out = version();
    (0..60_000).for_each(|afid| auth(&mut out, afid, 4));
    out
}

fn noise(rng: &mut Rng) -> Vec<u8> {
    let mut out = if rng.index(2) == 0 { version() } else { Vec::new() };
    let bytes = 1 + rng.index(1 << 16);
    out.extend((0..bytes).map(|_| rng.index(256) as u8));
    out
}

/// A message of a megabyte of which all comes but the end.
fn huge(_: &mut Rng) -> Vec<u8> {
    let (mut out, size) = (version(), 1_u32 << 20);
    message(&mut out, 118, &vec![7; size as usize - 7]);
    out.truncate(out.len() - 1);
    out
}

/// Requests whose answers are never read.
fn mute(_: &mut Rng) -> Vec<u8> {
    version().repeat(4096)
}

fn version() -> Vec<u8> {
    let mut body = ((1_u32 << 20) + 4096).to_le_bytes().to_vec();
    string(&mut body, b"9P2000.L");
    let mut out = Vec::new();
    message(&mut out, 100, &body);
    out
}

fn auth(out: &mut Vec<u8>, afid: u32, name_bytes: usize) {
    let mut body = afid.to_le_bytes().to_vec();
    string(&mut body, &vec![b'n'; name_bytes.min(65_000)]);
    string(&mut body, b"");
    body.extend(u32::MAX.to_le_bytes());
    message(out, 102, &body);
}

fn string(out: &mut Vec<u8>, text: &[u8]) {
    out.extend((text.len() as u16).to_le_bytes());
    out.extend(text);
}

fn message(out: &mut Vec<u8>, number: u8, body: &[u8]) {
    out.extend((body.len() as u32 + 7).to_le_bytes());
    out.extend([number, 1, 0]);
    out.extend(body);
}
