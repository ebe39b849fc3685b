//! A long transfer of which never more than a little is under way: the receiver says for each piece that it
//! has it, and the sender is at most four pieces ahead.
//!
//! Such a transfer is as fast as any on a short way, but fills no queue. What it loses, a queue did not.

use super::{HELD_TO_ME, HELD_TO_YOU, PIECE_BYTES_MAX, connect, header};
use crate::error::{Cannot, Result};
use covey_io::os::tcp;
use covey_tune::diagnose::Held;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

/// How many pieces are under way at most.
const AHEAD: u64 = 4;
/// How long it lasts each way, roughly, in seconds.
const SECONDS: f64 = 0.15;
/// A link that loses nearly everything must not take for ever over it.
const PIECES_MAX: u64 = 4000;

/// Measures it both ways on a link that carries roughly so much.
pub fn held(peer: SocketAddr, window_bytes: u64, bits_per_s: f64) -> Result<Held> {
    let piece = (window_bytes / AHEAD).clamp(1, PIECE_BYTES_MAX);
    let pieces = ((bits_per_s * SECONDS / 8.0) as u64 / piece).clamp(4 * AHEAD, PIECES_MAX);
    let what = || format!("transfer {pieces} pieces of {piece} bytes to {peer} and back");
    let stream = connect(peer)?;
    let mut bits = [0.0; 2];
    let mut theirs = 0;
    for (way, question) in [HELD_TO_YOU, HELD_TO_ME].into_iter().enumerate() {
        let begin = Instant::now();
        let passed = ask(&stream, piece, pieces, question);
        theirs = passed.cannot(what)?;
        bits[way] = (piece * pieces * 8) as f64 / begin.elapsed().as_secs_f64();
    }
    let info = tcp::info(&stream).cannot(what)?;
    let segments = 2 * pieces * piece.div_ceil(u64::from(info.segment_bytes.max(1)));
    let retransmits = u64::from(theirs) + u64::from(info.retransmits);
    Ok(Held { window_bytes, bits_per_s: bits, segments, retransmits })
}

fn ask(mut stream: &TcpStream, piece: u64, pieces: u64, question: u8) -> std::io::Result<u32> {
    stream.write_all(&header(piece, pieces, question))?;
    if question == HELD_TO_YOU {
        give(stream, piece, pieces)?
    } else {
        take(stream, piece, pieces)?
    }
    let mut theirs = [0; 4];
    stream.read_exact(&mut theirs)?;
    Ok(u32::from_le_bytes(theirs))
}

/// Sends so many pieces.
pub(super) fn give(mut stream: &TcpStream, piece: u64, pieces: u64) -> std::io::Result<()> {
    let block = vec![0; piece as usize];
    for number in 0..pieces + AHEAD {
        if number >= AHEAD {
            stream.read_exact(&mut [0])?;
        }
        if number < pieces {
            stream.write_all(&block)?;
        }
    }
    Ok(())
}

/// Receives `pieces` of `piece` bytes each.
pub(super) fn take(mut stream: &TcpStream, piece: u64, pieces: u64) -> std::io::Result<()> {
    let mut block = vec![0; piece as usize];
    for _ in 0..pieces {
        stream.read_exact(&mut block)?;
        stream.write_all(&[0])?;
    }
    Ok(())
}
