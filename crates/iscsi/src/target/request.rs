//! What a SCSI Command PDU asks for (RFC 7143, 11.3).

use super::data_in::Expected;
use crate::message::{flags, reject};
use crate::pdu::Pdu;
use crate::scsi::{Command, TaskAttribute};
use covey_wire::Bytes;

/// The command for the device.
pub(super) fn command(
    pdu: &Pdu,
    cdb: &[u8],
    bits: u8,
    extra: &Extra,
    expected: &Expected,
) -> Command {
    let cdb = if extra.cdb.is_empty() {
        pdu.raw.slice(CDB_AT..)
    } else {
        [cdb, &extra.cdb].concat().into()
    };
    let attribute = attribute(bits);
    Command { cdb, attribute, data_out: expected.bytes_out, data_in: expected.bytes_in }
}

/// The additional headers of a command (11.2.2).
#[derive(Default)]
pub(super) struct Extra {
    /// What follows the 16 bytes of the CDB.
    pub cdb: Bytes,
    /// How many bytes come back from a command that goes both ways.
    pub bytes_in: Option<u32>,
}

impl Extra {
    pub fn parse(ahs: &Bytes) -> Result<Extra, u8> {
        const EXTENDED_CDB: u8 = 1;
        const BIDIRECTIONAL: u8 = 2;
        let (mut extra, mut rest) = (Extra::default(), ahs.clone());
        while let Some(&[a, b, kind]) = rest.first_chunk() {
            // The length counts what follows the type, of which the first byte is reserved.
            let length = usize::from(a) << 8 | usize::from(b);
            if length == 0 || rest.len() < 3 + length {
                return Err(reject::INVALID);
            }
            let body = rest.slice(4..3 + length);
            match (kind & 0x3f, body.first_chunk()) {
                (EXTENDED_CDB, _) => extra.cdb = body,
                (BIDIRECTIONAL, Some(&[a, b, c, d])) => {
                    let bytes =
                        [a, b, c, d].into_iter().fold(0, |sum, byte| sum << 8 | u32::from(byte));
                    extra.bytes_in = Some(bytes);
                }
                _ => {}
            }
            rest = rest.slice((3 + length).next_multiple_of(4).min(rest.len())..);
        }
        Ok(extra)
    }
}

/// What the initiator has for the device and takes from it.
pub(super) fn expectation(bits: u8, expected_bytes: u32, extra: &Extra) -> Expected {
    let bytes = u64::from(expected_bytes);
    let (is_read, is_write) = (bits & flags::READ != 0, bits & flags::WRITE != 0);
    let (bytes_in, bytes_out) = match (is_read, is_write) {
        (true, true) => (extra.bytes_in.unwrap_or(0).into(), bytes),
        (_, true) => (0, bytes),
        (_, false) => (bytes, 0),
    };
    let is_bidirectional = is_read && is_write;
    Expected { bytes_in, bytes_out, is_bidirectional, is_write, r2t_count: 0 }
}

fn attribute(bits: u8) -> TaskAttribute {
    match bits & 7 {
        1 => TaskAttribute::Simple,
        2 => TaskAttribute::Ordered,
        3 => TaskAttribute::HeadOfQueue,
        4 => TaskAttribute::Aca,
        _ => TaskAttribute::Untagged,
    }
}

/// Where the CDB begins in a header.
const CDB_AT: usize = 32;
