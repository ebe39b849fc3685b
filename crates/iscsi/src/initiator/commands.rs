//! Commands under way on one connection: their data out, their data in, their end.

use super::{Done, Job, Lost};
use crate::message::{Header, NO_TAG, flags};
use crate::negotiate::Parameters;
use crate::pdu;
use bytes::BytesMut;
use covey_wire::{Blame, Bytes, Landing, Payload, Segments};
use std::collections::BTreeMap;

/// A command that has been sent.
pub(super) struct Sent {
    pub job: Job,
    /// How many bytes its buffer has.
    expected: usize,
    /// What of its buffer is behind the place where data is landing.
    behind: Option<BytesMut>,
    /// The end of the data that has come.
    received: usize,
    data_sn: u32,
    r2t_sn: u32,
    /// How much of the data has been sent.
    given: usize,
}

/// All that were sent, by tag; tags count up, so this is their order, too.
#[derive(Default)]
pub(super) struct Commands {
    sent: BTreeMap<u32, Sent>,
    next_itt: u32,
    /// Expected bytes of data-in of all of them that are worth a place of their own.
    pub landings: usize,
    pub landed: u64,
    pub copied: u64,
    pub answered: u64,
}

/// Data-in of at least so many bytes is received straight into its buffer.
const LANDING_BYTES_MIN: usize = 16 << 10;

/// The fields of a Data-In or its like.
pub(super) struct DataIn {
    pub itt: u32,
    pub offset: usize,
    pub bytes: usize,
    pub data_sn: u32,
}

fn odd(what: String) -> Blame {
    Blame::Violation(what)
}

impl Commands {
    /// How many are under way.
    pub fn len(&self) -> usize {
        self.sent.len()
    }

    /// Sends a command with as much of its data as may come unasked.
    pub fn send(
        &mut self,
        mut job: Job,
        parameters: &Parameters,
        cmd_sn: u32,
        exp_stat_sn: u32,
        digests: pdu::Digests,
        out: &mut Segments,
    ) {
        let itt = self.next_itt;
        self.next_itt = itt.wrapping_add(1) & 0x7fff_ffff;
        let request = &job.request;
        let total = request.data_out.len();
        let unasked = total.min(parameters.first_burst_bytes_max as usize);
        let immediate = if parameters.immediate_data {
            unasked.min(parameters.segment_bytes_max as usize)
        } else {
            0
        };
        // Without InitialR2T the rest of the first burst follows unasked.
        let follows = !parameters.initial_r2t && immediate < unasked;
        let data = request.data_out.select(&[(0, immediate as u64)]);
        let direction = match (total, request.data_in.len()) {
            (0, 0) => 0,
            (0, _) => flags::READ,
            _ => flags::WRITE,
        };
        let final_flag = if follows { 0 } else { flags::FINAL };
        let header = Header::ScsiCommand {
            flags: final_flag | direction | SIMPLE,
            reserved: Default::default(),
            lengths: pdu::lengths(&data),
            lun: request.lun,
            itt,
            expected_bytes: total.max(request.data_in.len()) as u32,
            cmd_sn,
            exp_stat_sn,
            cdb: crate::message::Array(request.cdb),
        };
        pdu::put_with_data(&header, false, &data, digests, out);
        job.was_sent = true;
        let expected = job.request.data_in.len();
        let given = if follows { unasked } else { immediate };
        let sent = Sent { job, expected, behind: None, received: 0, data_sn: 0, r2t_sn: 0, given };
        if follows {
            sent.data_out(itt, NO_TAG, immediate..unasked, parameters, exp_stat_sn, digests, out);
        }
        self.landings += usize::from(sent.is_worth_landing());
        self.sent.insert(itt, sent);
    }

    /// Answers an R2T.
    pub fn r2t(
        &mut self,
        header: &Header,
        parameters: &Parameters,
        exp_stat_sn: u32,
        digests: pdu::Digests,
        out: &mut Segments,
    ) -> Result<(), Blame> {
        let Header::R2t { itt, ttt, r2t_sn, offset, desired_bytes, .. } = *header else {
            return Err(odd("no R2T".into()));
        };
        let Some(sent) = self.sent.get_mut(&itt) else {
            return Err(odd(format!("an R2T for task {itt}, which is none")));
        };
        let (offset, bytes) = (offset as usize, desired_bytes as usize);
        let end = offset + bytes;
        //= rfc7143#11.8
        // What is asked for must lie within the data, be something, and be no longer than MaxBurstLength.
        // It asks for what follows, as both sides agreed (DataSequenceInOrder): nothing is sent twice.
        let is_sound = bytes > 0
            && offset == sent.given
            && end <= sent.job.request.data_out.len()
            && bytes <= parameters.burst_bytes_max as usize
            && r2t_sn == sent.r2t_sn;
        if !is_sound {
            return Err(odd(format!("R2T {r2t_sn} for {bytes} bytes from {offset} of task {itt}")));
        }
        sent.r2t_sn += 1;
        sent.given = end;
        sent.data_out(itt, ttt, offset..end, parameters, exp_stat_sn, digests, out);
        Ok(())
    }

    /// Checks a Data-In; the command that it belongs to.
    fn data_in(&mut self, data: &DataIn) -> Result<&mut Sent, Blame> {
        let Some(sent) = self.sent.get_mut(&data.itt) else {
            return Err(odd(format!("data for task {}, which is none", data.itt)));
        };
        let has_room = data.offset + data.bytes <= sent.expected;
        //= rfc7143#11.7.5
        // Data comes in order, as both sides agreed; what is missing at level 0 ends the connection.
        if data.offset != sent.received || data.data_sn != sent.data_sn || !has_room {
            let DataIn { itt, offset, bytes, data_sn } = data;
            return Err(odd(format!(
                "data {data_sn}, {bytes} bytes from {offset}, for task {itt}"
            )));
        }
        Ok(sent)
    }

    /// Takes a Data-In that lies in the input.
    pub fn take(&mut self, data: &DataIn, bytes: &[u8]) -> Result<(), Blame> {
        let sent = self.data_in(data)?;
        sent.job.request.data_in[data.offset..][..bytes.len()].copy_from_slice(bytes);
        sent.came(bytes.len());
        self.copied += bytes.len() as u64;
        Ok(())
    }

    /// The place of a Data-In that has begun.
    pub fn landing(&mut self, data: &DataIn) -> Option<Landing> {
        let sent = self.data_in(data).ok().filter(|sent| sent.is_worth_landing())?;
        let mut place = sent.job.request.data_in.split_off(data.offset);
        sent.behind = Some(place.split_off(data.bytes));
        Some(Landing::new(place, data.bytes))
    }

    /// A Data-In has landed; how its bytes hash, where that is wanted.
    pub fn landed(
        &mut self,
        data: &DataIn,
        landing: Landing,
        copied: usize,
        digest: impl FnOnce(&[u8]),
    ) -> Result<(), Blame> {
        let place = landing.into_buffer();
        digest(&place);
        let Some(sent) = self.sent.get_mut(&data.itt) else { return Ok(()) };
        // They lie behind one another still: nothing is copied.
        sent.job.request.data_in.unsplit(place);
        sent.behind.take().into_iter().for_each(|rest| sent.job.request.data_in.unsplit(rest));
        sent.came(data.bytes);
        self.landed += (data.bytes - copied) as u64;
        self.copied += copied as u64;
        Ok(())
    }

    /// A command has ended.
    pub fn end(&mut self, itt: u32, status: u8, sense: Bytes) -> Result<(), Blame> {
        let Some(sent) = self.sent.remove(&itt) else {
            return Err(odd(format!("the end of task {itt}, which is none")));
        };
        self.landings -= usize::from(sent.is_worth_landing());
        let Sent { mut job, received, .. } = sent;
        let mut data_in = std::mem::take(&mut job.request.data_in);
        data_in.truncate(received);
        self.answered += u64::from(!is_attention(status, &sense));
        job.finish(Ok(Done { status, sense, data_in }));
        Ok(())
    }

    /// The connection is lost: what is to be sent again, in its order.
    pub fn lose(&mut self) -> Vec<Job> {
        let mut again = Vec::new();
        for (_, sent) in std::mem::take(&mut self.sent) {
            let Sent { mut job, expected, .. } = sent;
            // A part of the buffer may have been lost where it was landing.
            job.request.data_in.resize(expected, 0);
            let is_wanted = !super::lock(&job.slot).is_given_up;
            if !job.request.is_repeatable {
                job.finish(Err(Lost::Unknown));
            } else if is_wanted {
                again.push(job);
            }
        }
        again
    }
}

impl Sent {
    fn is_worth_landing(&self) -> bool {
        self.expected >= LANDING_BYTES_MIN
    }

    fn came(&mut self, bytes: usize) {
        self.received += bytes;
        self.data_sn += 1;
    }

    /// Sends a part of the data, in PDUs that the target takes.
    #[allow(clippy::too_many_arguments, reason = "a PDU has as many fields")]
    fn data_out(
        &self,
        itt: u32,
        ttt: u32,
        range: std::ops::Range<usize>,
        parameters: &Parameters,
        exp_stat_sn: u32,
        digests: pdu::Digests,
        out: &mut Segments,
    ) {
        let (mut offset, mut data_sn) = (range.start, 0);
        while offset < range.end {
            let next = range.end.min(offset + parameters.segment_bytes_max as usize);
            let part = (offset as u64, (next - offset) as u64);
            let data: Payload = self.job.request.data_out.select(&[part]);
            let header = Header::DataOut {
                flags: if next == range.end { flags::FINAL } else { 0 },
                reserved: Default::default(),
                lengths: pdu::lengths(&data),
                lun: self.job.request.lun,
                itt,
                ttt,
                reserved_2: Default::default(),
                exp_stat_sn,
                reserved_3: Default::default(),
                data_sn,
                offset: offset as u32,
                reserved_4: Default::default(),
            };
            pdu::put_with_data(&header, false, &data, digests, out);
            (offset, data_sn) = (next, data_sn + 1);
        }
    }
}

/// Whether a command was not looked at, because there was something to be told: so does every new session begin.
fn is_attention(status: u8, sense: &[u8]) -> bool {
    const CHECK_CONDITION: u8 = 2;
    const UNIT_ATTENTION: u8 = 6;
    status == CHECK_CONDITION && sense.get(2).is_some_and(|key| key & 0xf == UNIT_ATTENTION)
}

/// The attribute of a simple task (11.3.1).
const SIMPLE: u8 = 1;
