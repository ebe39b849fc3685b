//! The initiator's data of one command: immediate, unsolicited, and asked for (RFC 7143, sections 4.2.5.2, 11.7 and 11.8).
//!
//! Both sides have agreed on order (DataPDUInOrder, DataSequenceInOrder), so what comes is always what follows. Its pieces
//! stay in the buffers that they came in, but for small ones, which would keep buffers much larger than they are.

use crate::message::{NO_TAG, reject};
use crate::negotiate::Parameters;
use covey_wire::{Bytes, BytesMut, Payload};
use std::collections::VecDeque;

/// The data of a command, as far as it has come.
#[derive(Debug, Default)]
pub(super) struct DataOut {
    pieces: Vec<Bytes>,
    /// Small pieces that follow those.
    small: BytesMut,
    /// Bytes that have come, from the first one on, kept or not.
    received: u64,
    /// Where the unsolicited data ends at the latest.
    first_burst_end: u64,
    /// Whether unsolicited data is still to come.
    is_open: bool,
    unsolicited_sn: u32,
    r2ts: VecDeque<R2t>,
    r2t_sn: u32,
    /// How far data has been asked for, or has come.
    solicited: u64,
    /// How much is of use, once that is known.
    wanted: Option<u64>,
    /// How much the device has.
    handed: u64,
    /// Something of it was lost: the command fails when the rest has come.
    is_broken: bool,
}

/// Data that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct R2t {
    pub ttt: u32,
    pub sn: u32,
    /// What comes next of it.
    pub offset: u64,
    pub end: u64,
    data_sn: u32,
}

/// A Data-Out PDU.
#[derive(Clone, Debug)]
pub(super) struct Arrived {
    pub ttt: u32,
    pub data_sn: u32,
    pub offset: u64,
    pub data: Bytes,
    pub is_final: bool,
    /// Whether its digest was right.
    pub is_sound: bool,
}

impl DataOut {
    /// The data of a command that expects to send `expected` bytes; an error is the reason of a Reject.
    pub fn begin(
        expected: u64,
        immediate: Bytes,
        is_final: bool,
        parameters: &Parameters,
    ) -> Result<DataOut, u8> {
        let bytes = immediate.len() as u64;
        //= rfc7143#4.2.5.2
        // Immediate data, and all unsolicited data together, MUST NOT be longer than FirstBurstLength, nor come at all
        // where it was not agreed on.
        let first_burst_end = expected.min(parameters.first_burst_bytes_max.into());
        let is_forbidden = bytes > 0 && !parameters.immediate_data;
        if is_forbidden || bytes > first_burst_end || (!is_final && parameters.initial_r2t) {
            return Err(reject::PROTOCOL);
        }
        // A command without the F bit has data to follow, unless there is no room for any.
        let is_open = !is_final && bytes < first_burst_end;
        let pieces = Some(immediate).filter(|data| !data.is_empty()).into_iter().collect();
        let (received, solicited) = (bytes, bytes);
        Ok(DataOut { pieces, received, solicited, first_burst_end, is_open, ..DataOut::default() })
    }

    /// Only the first `bytes` are of use.
    pub fn want(&mut self, bytes: u64) {
        self.wanted = Some(bytes);
        if bytes == 0 {
            self.pieces.clear();
            self.small = BytesMut::new();
        }
    }

    /// Whether all has come that is to come, and what was wanted is among it.
    pub fn is_complete(&self) -> bool {
        let has_all = self.is_broken || self.wanted.is_some_and(|wanted| self.received >= wanted);
        has_all && !self.is_open && self.r2ts.is_empty()
    }

    /// Whether something of it was lost.
    pub fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Bytes that were asked for and have not come.
    pub fn outstanding(&self) -> u64 {
        self.solicited.saturating_sub(self.received)
    }

    /// How many R2Ts have been made.
    pub fn r2t_count(&self) -> u32 {
        self.r2t_sn
    }

    /// Whether data is still to come, asked for or not.
    pub fn is_owed(&self) -> bool {
        self.is_open || !self.r2ts.is_empty()
    }

    /// The wanted bytes that the device does not have.
    pub fn collect(&mut self) -> Payload {
        self.collect_at_most(u64::MAX)
    }

    /// The same in whole blocks, as soon as there is enough for one go.
    pub fn collect_some(&mut self, block_bytes: u64) -> Option<Payload> {
        if self.is_broken {
            return None;
        }
        if self.is_complete() {
            return Some(self.collect());
        }
        let bytes = self.received - self.handed;
        (bytes >= STREAM_BYTES_MIN).then(|| self.collect_at_most(bytes - bytes % block_bytes))
    }

    fn collect_at_most(&mut self, most: u64) -> Payload {
        self.join_small();
        let whole = Payload::gather(std::mem::take(&mut self.pieces));
        let left = self.wanted.map_or(u64::MAX, |wanted| wanted - self.handed);
        let (bytes, come) = (left.min(most), whole.len() as u64);
        if bytes >= come {
            self.handed += come;
            return whole;
        }
        self.handed += bytes;
        self.pieces = whole.select(&[(bytes, come - bytes)]).pieces().to_vec();
        whole.select(&[(0, bytes)])
    }

    /// How many bytes the next R2T would ask for; none where nothing is to be asked for now.
    pub fn next_r2t_bytes(&self, parameters: &Parameters) -> Option<u64> {
        let may_ask = !self.is_open && !self.is_broken;
        //= rfc7143#11.8
        // An initiator MUST NOT be given more R2Ts at a time than MaxOutstandingR2T.
        let has_room = (self.r2ts.len() as u64) < parameters.r2t_max.into();
        let rest = self.wanted?.saturating_sub(self.solicited);
        //= rfc7143#11.8.4
        // The desired length MUST NOT be 0, nor exceed MaxBurstLength.
        (may_ask && has_room && rest > 0).then(|| rest.min(parameters.burst_bytes_max.into()))
    }

    /// Makes an R2T of so many bytes.
    pub fn ask(&mut self, ttt: u32, bytes: u64) -> R2t {
        let (offset, end) = (self.solicited, self.solicited + bytes);
        let r2t = R2t { ttt, sn: self.r2t_sn, offset, end, data_sn: 0 };
        self.solicited = end;
        self.r2t_sn += 1;
        self.r2ts.push_back(r2t);
        r2t
    }

    /// Takes a Data-Out. An error is the reason of a Reject, where it belongs to nothing.
    pub fn take(&mut self, arrived: Arrived) -> Result<(), u8> {
        let (expected_sn, end) = match arrived.ttt {
            NO_TAG if self.is_open => (&mut self.unsolicited_sn, self.first_burst_end),
            NO_TAG => return Err(reject::PROTOCOL),
            ttt => {
                let front = self.r2ts.front_mut().filter(|r2t| r2t.ttt == ttt);
                let r2t = front.ok_or(reject::INVALID)?;
                (&mut r2t.data_sn, r2t.end)
            }
        };
        let bytes = arrived.data.len() as u64;
        let begins = arrived.offset == self.received && arrived.data_sn == *expected_sn;
        let ends = self.received + bytes <= end;
        *expected_sn = expected_sn.wrapping_add(1);
        //= rfc7143#7.9
        // At level 0 what is missing is not asked for again: the command fails, once the sequence has ended.
        self.is_broken |= !(arrived.is_sound && begins && ends);
        if !self.is_broken {
            self.keep(arrived.data);
        }
        self.close(arrived.ttt, arrived.is_final, end);
        Ok(())
    }

    fn keep(&mut self, data: Bytes) {
        let is_wanted = self.wanted.is_none_or(|wanted| self.received < wanted);
        self.received += data.len() as u64;
        if !is_wanted {
            return;
        }
        if data.len() < SMALL_BYTES {
            self.small.extend_from_slice(&data);
        } else {
            self.join_small();
            self.pieces.push(data);
        }
    }

    fn join_small(&mut self) {
        if !self.small.is_empty() {
            self.pieces.push(std::mem::take(&mut self.small).freeze());
        }
    }

    /// Ends the sequence that a PDU was of, if that was its last.
    fn close(&mut self, ttt: u32, is_final: bool, end: u64) {
        if !is_final {
            return;
        }
        if ttt == NO_TAG {
            self.is_open = false;
            self.solicited = self.received;
            return;
        }
        self.r2ts.pop_front();
        //= rfc7143#11.8
        // An R2T MUST be answered with exactly what it asks for.
        self.is_broken |= self.received != end;
    }
}

/// How much is worth a write of its own.
const STREAM_BYTES_MIN: u64 = 64 << 10;
/// Pieces of fewer bytes are copied together.
const SMALL_BYTES: usize = 4096;

#[cfg(test)]
mod tests;
