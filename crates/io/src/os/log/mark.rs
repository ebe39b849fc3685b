//! Marks between the records: how far the log was on the disk when the mark was written.
//!
//! A power cut may leave any part of what was not synced, so what is behind a bad record may be good
//! and still be the torn tail. A mark tells the two apart: a bad record before the place up to which the
//! log was synced is damage, and what follows it was acknowledged as durable.

use super::HEADER_BYTES;

/// A mark's length field: this bit, which no record's has, and the bytes of its payload.
pub const MARK: u32 = 1 << 31 | PAYLOAD_BYTES as u32;
/// Where the mark stands, and up to where the log was on the disk.
const PAYLOAD_BYTES: usize = 16;
/// A mark with its header.
pub const MARK_BYTES: u64 = HEADER_BYTES + PAYLOAD_BYTES as u64;

/// Adds a mark that will stand at `at` of the log.
pub fn put(at: u64, synced: u64, out: &mut Vec<u8>) {
    let payload = [at.to_le_bytes(), synced.to_le_bytes()].concat();
    out.extend_from_slice(&MARK.to_le_bytes());
    out.extend_from_slice(&crc32fast::hash(&payload).to_le_bytes());
    out.extend_from_slice(&payload);
}

/// The furthest place that marks in `rest`, the log from `start` on, say to have been synced; 0 for none.
pub fn furthest(rest: &[u8], start: u64) -> u64 {
    let marks = rest.windows(MARK_BYTES as usize).enumerate();
    let synced = marks.filter_map(|(at, bytes)| synced_by(bytes, start + at as u64));
    synced.max().unwrap_or(0)
}

/// What a mark at this place says; None where there is none.
fn synced_by(bytes: &[u8], place: u64) -> Option<u64> {
    let (length, rest) = bytes.split_first_chunk()?;
    if u32::from_le_bytes(*length) != MARK {
        return None;
    }
    let (crc, payload) = rest.split_first_chunk()?;
    let (at, rest) = payload.split_first_chunk()?;
    let is_right = crc32fast::hash(payload) == u32::from_le_bytes(*crc);
    let is_here = u64::from_le_bytes(*at) == place;
    (is_right && is_here).then_some(u64::from_le_bytes(*rest.first_chunk()?))
}
