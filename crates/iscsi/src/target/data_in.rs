//! The end of a command: its data for the initiator, its status, its residual (RFC 7143, sections 11.4 and 11.7).

use super::connection::Wire;
use super::session::Window;
use crate::message::{Header, Lengths, flags};
use crate::negotiate::Parameters;
use crate::pdu;
use crate::scsi::Completion;
use covey_wire::Payload;

/// The statuses that may come with the last data, because no sense goes with them (11.7.3).
const WITHOUT_SENSE: [u8; 2] = [GOOD, CONDITION_MET];
const GOOD: u8 = 0x00;
const CONDITION_MET: u8 = 0x04;

/// What a command expected.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Expected {
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// Data goes both ways.
    pub is_bidirectional: bool,
    pub is_write: bool,
    /// R2Ts that were sent for it.
    pub r2t_count: u32,
}

/// A residual: its flag, and how many bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Residual {
    pub flag: u8,
    pub bytes: u32,
}

impl Residual {
    /// Of a command that moves `actual` bytes where `expected` were.
    pub fn of(expected: u64, actual: u64) -> Residual {
        let bytes = |difference: u64| u32::try_from(difference).unwrap_or(u32::MAX);
        //= rfc7143#11.4.1
        // The bits of overflow and underflow MUST NOT both be set; without one the count is 0.
        match expected.cmp(&actual) {
            std::cmp::Ordering::Less => {
                Residual { flag: flags::OVERFLOW, bytes: bytes(actual - expected) }
            }
            std::cmp::Ordering::Equal => Residual::default(),
            std::cmp::Ordering::Greater => {
                Residual { flag: flags::UNDERFLOW, bytes: bytes(expected - actual) }
            }
        }
    }
}

/// Sends how a command ended; how many bytes of data that were.
pub(super) fn send(
    wire: &mut Wire,
    parameters: &Parameters,
    itt: u32,
    expected: Expected,
    completion: Completion,
    window: Window,
) -> usize {
    let Completion { status, sense, data_in, in_bytes, out_bytes, lent: _ } = completion;
    let most = usize::try_from(expected.bytes_in).unwrap_or(usize::MAX);
    let total = data_in.len().min(most);
    let residual = if expected.is_write {
        Residual::of(expected.bytes_out, out_bytes)
    } else {
        Residual::of(expected.bytes_in, in_bytes.max(data_in.len() as u64))
    };
    let collapses = WITHOUT_SENSE.contains(&status) && !expected.is_bidirectional && total > 0;
    let end = End { itt, status, residual, window };
    let data_count = send_data(wire, parameters, &end, &data_in, total, collapses);
    if !collapses {
        let bidirectional = if expected.is_bidirectional {
            Residual::of(expected.bytes_in, in_bytes)
        } else {
            Residual::default()
        };
        let exp_data_sn = data_count + expected.r2t_count;
        send_response(wire, &end, bidirectional, exp_data_sn, &sense);
    }
    total
}

struct End {
    itt: u32,
    status: u8,
    residual: Residual,
    window: Window,
}

/// Sends the first `total` bytes of the data; how many PDUs that took.
fn send_data(
    wire: &mut Wire,
    parameters: &Parameters,
    end: &End,
    data: &Payload,
    total: usize,
    collapses: bool,
) -> u32 {
    let segment = parameters.segment_bytes_max as usize;
    let burst = parameters.burst_bytes_max as usize;
    let (mut offset, mut data_sn) = (0, 0);
    while offset < total {
        //= rfc7143#11.7.1
        // A sequence MUST NOT be longer than MaxBurstLength; its last PDU has the F bit.
        let burst_end = (offset / burst + 1) * burst;
        let next = (offset + segment).min(burst_end).min(total);
        let is_last = next == total && collapses;
        let part = part(data, offset, next);
        let (status, residual, stat_sn) = if is_last {
            (end.status, end.residual, wire.next_stat_sn())
        } else {
            Default::default()
        };
        let ends_burst = next == total || next == burst_end;
        let final_flag = if ends_burst { flags::FINAL } else { 0 };
        let status_flag = if is_last { flags::STATUS } else { 0 };
        let header = Header::DataIn {
            flags: final_flag | status_flag | residual.flag,
            reserved: Default::default(),
            status,
            lengths: pdu::lengths(&part),
            lun: 0,
            itt: end.itt,
            ttt: crate::message::NO_TAG,
            stat_sn,
            exp_cmd_sn: end.window.exp_cmd_sn,
            max_cmd_sn: end.window.max_cmd_sn,
            data_sn,
            offset: offset as u32,
            residual: residual.bytes,
        };
        wire.put_with_data(&header, &part);
        (offset, data_sn) = (next, data_sn + 1);
    }
    data_sn
}

fn part(data: &Payload, from: usize, to: usize) -> Payload {
    match (from, to == data.len()) {
        (0, true) => data.clone(),
        _ => data.select(&[(from as u64, (to - from) as u64)]),
    }
}

fn send_response(
    wire: &mut Wire,
    end: &End,
    bidirectional: Residual,
    exp_data_sn: u32,
    sense: &[u8],
) {
    let data = match sense {
        [] => Payload::default(),
        //= rfc7143#11.4.7
        // Sense comes behind its length.
        sense => {
            let [a, b] = [(sense.len() >> 8) as u8, sense.len() as u8];
            Payload::from([&[a, b], sense].concat())
        }
    };
    let header = Header::ScsiResponse {
        flags: flags::FINAL | end.residual.flag | bidirectional.flag << 2,
        response: COMPLETED,
        status: end.status,
        lengths: if data.is_empty() { Lengths::default() } else { pdu::lengths(&data) },
        reserved: Default::default(),
        itt: end.itt,
        snack_tag: 0,
        stat_sn: wire.next_stat_sn(),
        exp_cmd_sn: end.window.exp_cmd_sn,
        max_cmd_sn: end.window.max_cmd_sn,
        exp_data_sn,
        bidi_residual: bidirectional.bytes,
        residual: end.residual.bytes,
    };
    wire.put_with_data(&header, &data);
}

/// The target has done the command, whatever its status (11.4.3).
const COMPLETED: u8 = 0;
