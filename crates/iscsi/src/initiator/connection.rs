//! One connection of a session, as a machine.

use super::commands::{Commands, DataIn};
use super::login::{FIRST_CMD_SN, Failure, Login, Next};
use super::{Found, Session};
use crate::chap::CHALLENGE_BYTES;
use crate::digest::{DIGEST_BYTES, crc32c, padding};
use crate::message::{HEADER_BYTES, Header, Lengths, NO_TAG, event, flags};
use crate::negotiate::Parameters;
use crate::pdu::{self, Digests, Limits, Pdu};
use crate::text::{Collected, Text};
use covey_wire::{Blame, BytesMut, Deposit, Landing, Machine, Payload, Segments};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// How long a login may take.
const LOGIN_PATIENCE: Duration = Duration::from_secs(15);
/// Silence after which the target is pinged.
const PING_AFTER: Duration = Duration::from_secs(5);
/// Silence that ends the connection.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most pings of a target that takes no answer.
const PINGS_MAX: u32 = 1024;
/// Most bytes of the answer to SendTargets.
const TARGETS_BYTES_MAX: usize = 1 << 20;

/// A connection to one of the target's portals.
///
/// It is driven as every [`Machine`]. When it ends, the session's commands wait for the next one;
/// [`Session::take_refusal`] says whether there is any use in it.
pub struct Connection {
    session: Session,
    phase: Phase,
    out: Segments,
    digests: Digests,
    limits: Limits,
    parameters: Parameters,
    commands: Commands,
    cmd_sn: u32,
    max_cmd_sn: u32,
    exp_stat_sn: u32,
    last_heard: Instant,
    /// Answers to the target's pings that wait to be sent.
    pings_owed: u32,
    is_pinged: bool,
    /// Data that lands, how many bytes of it were in the input already.
    landing: Option<(DataIn, usize, End)>,
    /// What follows data that has landed: padding and digest.
    trailer: Option<Trailer>,
    texts: Collected,
}

enum Phase {
    Login(Box<Login>),
    Full,
    /// A logout was sent.
    Leaving,
}

/// The status of a command, where it comes with its last data.
#[derive(Clone, Copy)]
struct End(Option<u8>);

struct Trailer {
    bytes: usize,
    digest: Option<[u8; DIGEST_BYTES]>,
    itt: u32,
    end: End,
}

impl Connection {
    /// A connection that has just been made. Of the challenge nobody must know anything before.
    pub fn new(session: &Session, challenge: [u8; CHALLENGE_BYTES], now: Instant) -> Connection {
        let mut login = Login::new(session.config.clone(), challenge);
        let (bits, text) = login.begin();
        let limits = Limits {
            data_bytes_max: Parameters::DEFAULT.segment_bytes_max,
            digests: Digests::default(),
        };
        let mut connection = Connection {
            session: session.clone(),
            phase: Phase::Login(Box::new(login)),
            out: Segments::new(),
            digests: Digests::default(),
            limits,
            parameters: Parameters::DEFAULT,
            commands: Commands::default(),
            cmd_sn: FIRST_CMD_SN,
            max_cmd_sn: FIRST_CMD_SN,
            exp_stat_sn: 0,
            last_heard: now,
            pings_owed: 0,
            is_pinged: false,
            landing: None,
            trailer: None,
            texts: Collected::default(),
        };
        connection.request_login(bits, &text);
        connection
    }

    fn request_login(&mut self, bits: u8, text: &Text) {
        let Phase::Login(login) = &self.phase else { return };
        let data = text.to_bytes();
        let header = login.header(bits, self.exp_stat_sn, &data);
        pdu::put_with_data(&header, true, &data.into(), Digests::default(), &mut self.out);
    }

    fn put(&mut self, header: &Header, data: &Payload) {
        pdu::put_with_data(header, true, data, self.digests, &mut self.out);
    }

    fn handle(&mut self, pdu: Pdu) -> Result<(), Blame> {
        let Ok(header) = pdu.header else {
            return Err(Blame::Violation("the target sends a PDU that there is not".into()));
        };
        if !pdu.is_sound {
            //= rfc7143#7.8
            // At level 0 nothing is asked for again: the session begins anew.
            return Err(Blame::Malformed("the digest of data is wrong".into()));
        }
        self.note_numbers(&header);
        match &mut self.phase {
            Phase::Login(login) => {
                let next = login.handle(&header, &pdu.data);
                self.log_in(next)
            }
            _ => self.full_feature(header, &pdu.data),
        }
    }

    /// Takes StatSN and the command window out of a header.
    fn note_numbers(&mut self, header: &Header) {
        let (stat_sn, max_cmd_sn) = match *header {
            Header::ScsiResponse { stat_sn, max_cmd_sn, .. }
            | Header::TaskResponse { stat_sn, max_cmd_sn, .. }
            | Header::LoginResponse { stat_sn, max_cmd_sn, .. }
            | Header::TextResponse { stat_sn, max_cmd_sn, .. }
            | Header::LogoutResponse { stat_sn, max_cmd_sn, .. }
            | Header::Async { stat_sn, max_cmd_sn, .. }
            | Header::Reject { stat_sn, max_cmd_sn, .. } => (Some(stat_sn), max_cmd_sn),
            Header::NopIn { itt, stat_sn, max_cmd_sn, .. } => {
                ((itt != NO_TAG).then_some(stat_sn), max_cmd_sn)
            }
            Header::DataIn { flags: bits, stat_sn, max_cmd_sn, .. } => {
                ((bits & flags::STATUS != 0).then_some(stat_sn), max_cmd_sn)
            }
            Header::R2t { max_cmd_sn, .. } => (None, max_cmd_sn),
            _ => return,
        };
        if let Some(stat_sn) = stat_sn {
            self.exp_stat_sn = stat_sn.wrapping_add(1);
        }
        //= rfc7143#4.2.2.1
        // A MaxCmdSN that is lower than the one before is of a PDU that was overtaken.
        if (max_cmd_sn.wrapping_sub(self.max_cmd_sn) as i32) > 0 {
            self.max_cmd_sn = max_cmd_sn;
        }
    }

    fn log_in(&mut self, next: Result<Next, Failure>) -> Result<(), Blame> {
        match next {
            Ok(Next::Send(bits, text)) => self.request_login(bits, &text),
            Ok(Next::Done(parameters)) => self.enter(parameters),
            Err(Failure::Broken(blame)) => return Err(blame),
            Err(Failure::Refused(refusal)) => {
                let what = format!("the login came to {refusal:?}");
                self.session.shared().refusal = Some(refusal);
                return Err(Blame::Violation(what));
            }
        }
        Ok(())
    }

    fn enter(&mut self, parameters: Parameters) {
        let digests =
            Digests { header: parameters.has_header_digest(), data: parameters.has_data_digest() };
        self.digests = digests;
        let data_bytes_max = self.session.config.parameters.segment_bytes_max;
        self.limits = Limits { data_bytes_max, digests };
        self.parameters = parameters;
        self.phase = Phase::Full;
        let mut shared = self.session.shared();
        shared.is_logged_in = true;
        shared.watchers.drain(..).for_each(std::task::Waker::wake);
        drop(shared);
        if self.session.config.target.is_none() {
            self.send_targets(NO_TAG);
        }
    }

    fn send_targets(&mut self, ttt: u32) {
        let mut text = Text::default();
        if ttt == NO_TAG {
            text.push("SendTargets", "All");
        }
        let data = Payload::from(text.to_bytes());
        let header = Header::TextRequest {
            flags: flags::FINAL,
            reserved: Default::default(),
            lengths: pdu::lengths(&data),
            lun: 0,
            itt: TEXT_TAG,
            ttt,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            reserved_2: Default::default(),
        };
        self.put(&header, &data);
    }

    fn full_feature(&mut self, header: Header, data: &[u8]) -> Result<(), Blame> {
        match header {
            Header::DataIn { itt, status, flags: bits, offset, data_sn, .. } => {
                let (offset, bytes) = (offset as usize, data.len());
                self.commands.take(&DataIn { itt, offset, bytes, data_sn }, data)?;
                if bits & flags::STATUS != 0 {
                    self.commands.end(itt, status, Default::default())?;
                }
            }
            Header::ScsiResponse { itt, response, status, .. } => {
                if response != 0 {
                    return Err(Blame::Io(format!("the target fails with response {response}")));
                }
                self.commands.end(itt, status, sense(data))?;
            }
            Header::R2t { .. } => {
                let (parameters, digests) = (self.parameters, self.digests);
                let exp_stat_sn = self.exp_stat_sn;
                self.commands.r2t(&header, &parameters, exp_stat_sn, digests, &mut self.out)?;
            }
            Header::NopIn { ttt, lun, .. } if ttt != NO_TAG => {
                self.pings_owed += 1;
                if self.pings_owed > PINGS_MAX {
                    let what =
                        format!("the target has pinged {PINGS_MAX} times and takes no answer");
                    return Err(Blame::Violation(what));
                }
                self.nop(lun, NO_TAG, ttt);
            }
            Header::NopIn { .. } => {}
            Header::Async { event, .. } => self.event(event)?,
            Header::TextResponse { ttt, .. } => self.targets(ttt, data)?,
            Header::LogoutResponse { .. } => {
                self.session.close("logged out");
                return Err(Blame::Io("logged out".into()));
            }
            Header::Reject { reason, .. } => {
                return Err(Blame::Io(format!(
                    "the target rejects a PDU, for reason {reason:#04x}"
                )));
            }
            other => return Err(Blame::Violation(format!("the target sends {}", other.name()))),
        }
        Ok(())
    }

    fn event(&mut self, event: u8) -> Result<(), Blame> {
        match event {
            //= rfc7143#11.9.1
            // The initiator MUST log out when it is asked to: the commands go on elsewhere.
            event::LOGOUT => {
                self.log_out();
                Err(Blame::Io("the target asks for a logout".into()))
            }
            event::CONNECTION_DROPPED | event::SESSION_DROPPED => {
                Err(Blame::Io("the target drops the connection".into()))
            }
            _ => Ok(()),
        }
    }

    fn targets(&mut self, ttt: u32, data: &[u8]) -> Result<(), Blame> {
        let text = self.texts.add(data, ttt != NO_TAG, TARGETS_BYTES_MAX)?;
        let Some(text) = text else {
            self.send_targets(ttt);
            return Ok(());
        };
        let mut found: Vec<Found> = Vec::new();
        for (key, value) in text.pairs() {
            match (key, found.last_mut()) {
                ("TargetName", _) => {
                    found.push(Found { name: value.to_owned(), addresses: Vec::new() });
                }
                ("TargetAddress", Some(last)) => last.addresses.push(value.to_owned()),
                _ => {}
            }
        }
        self.session.shared().targets = Some(found);
        self.session.log_out();
        Ok(())
    }

    fn nop(&mut self, lun: u64, itt: u32, ttt: u32) {
        let header = Header::NopOut {
            flags: flags::FINAL,
            reserved: Default::default(),
            lengths: Lengths::default(),
            lun,
            itt,
            ttt,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            reserved_2: Default::default(),
        };
        self.put(&header, &Payload::default());
    }

    fn log_out(&mut self) {
        const CLOSE_SESSION: u8 = 0x80;
        let header = Header::LogoutRequest {
            reason: CLOSE_SESSION,
            reserved: Default::default(),
            lengths: Lengths::default(),
            reserved_2: Default::default(),
            itt: TEXT_TAG,
            cid: 0,
            reserved_3: Default::default(),
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            reserved_4: Default::default(),
        };
        self.put(&header, &Payload::default());
    }

    /// Sends what waits, as far as the window is open.
    fn send_waiting(&mut self) {
        while (self.max_cmd_sn.wrapping_sub(self.cmd_sn) as i32) >= 0 {
            let job = loop {
                match self.session.shared().queue.pop_front() {
                    Some(job) if super::lock(&job.slot).is_given_up => {}
                    job => break job,
                }
            };
            let Some(job) = job else { break };
            let (parameters, digests) = (self.parameters, self.digests);
            let (cmd_sn, exp_stat_sn) = (self.cmd_sn, self.exp_stat_sn);
            self.cmd_sn = cmd_sn.wrapping_add(1);
            self.commands.send(job, &parameters, cmd_sn, exp_stat_sn, digests, &mut self.out);
        }
    }

    /// Takes what follows data that has landed; whether it was all there.
    fn take_trailer(&mut self, input: &mut BytesMut) -> Result<bool, Blame> {
        let Some(trailer) = &self.trailer else { return Ok(true) };
        if input.len() < trailer.bytes {
            return Ok(false);
        }
        let bytes = input.split_to(trailer.bytes);
        let Some(Trailer { digest, itt, end, .. }) = self.trailer.take() else { return Ok(true) };
        if let Some(digest) = digest
            && bytes[bytes.len() - DIGEST_BYTES..] != digest
        {
            return Err(Blame::Malformed("the digest of data is wrong".into()));
        }
        if let Some(status) = end.0 {
            self.commands.end(itt, status, Default::default())?;
        }
        Ok(true)
    }

    /// The header of a Data-In at the front of `input` whose data is not all there.
    fn begun_data(&self, input: &[u8]) -> Option<(Header, DataIn, usize)> {
        const DATA_IN: u8 = 0x25;
        let is_data =
            self.landing.is_none() && self.trailer.is_none() && input.first() == Some(&DATA_IN);
        let head_bytes = HEADER_BYTES + if self.digests.header { DIGEST_BYTES } else { 0 };
        if !is_data || input.len() < head_bytes || input[4] != 0 {
            return None;
        }
        let raw = input[..HEADER_BYTES].to_vec();
        if self.digests.header && crc32c([&raw[..]]) != input[HEADER_BYTES..head_bytes] {
            return None;
        }
        let (_, header) = Header::take(raw.into()).ok()?;
        let Header::DataIn { itt, offset, data_sn, lengths, .. } = header else { return None };
        let bytes = lengths.data as usize;
        let is_begun =
            input.len() < head_bytes + bytes && lengths.data <= self.limits.data_bytes_max;
        let data = DataIn { itt, offset: offset as usize, bytes, data_sn };
        is_begun.then_some((header, data, head_bytes))
    }
}

fn sense(data: &[u8]) -> covey_wire::Bytes {
    let Some((&[a, b], rest)) = data.split_first_chunk() else { return Default::default() };
    let length = usize::from(a) << 8 | usize::from(b);
    covey_wire::Bytes::copy_from_slice(&rest[..length.min(rest.len())])
}

/// The tag of texts and logouts, which no command has.
const TEXT_TAG: u32 = 0x8000_0000;
/// The tag of our pings.
const PING_TAG: u32 = 0x8000_0001;

impl Machine for Connection {
    fn handle_input(&mut self, now: Instant, input: &mut BytesMut) -> Result<(), Blame> {
        (self.last_heard, self.is_pinged) = (now, false);
        if self.landing.is_some() {
            return Ok(());
        }
        while self.take_trailer(input)? {
            let Some(pdu) = pdu::next(input, self.limits)? else { break };
            self.handle(pdu)?;
        }
        Ok(())
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), Blame> {
        if now < self.poll_deadline().unwrap_or(now) {
            return Ok(());
        }
        if matches!(self.phase, Phase::Login(_)) {
            let what = format!("no login within {} s", LOGIN_PATIENCE.as_secs());
            return Err(Blame::Io(what));
        }
        if self.is_pinged {
            let what = format!("the target has said nothing for {} s", PATIENCE.as_secs());
            return Err(Blame::Io(what));
        }
        self.is_pinged = true;
        self.nop(0, PING_TAG, NO_TAG);
        Ok(())
    }

    fn poll_output(&mut self, out: &mut Segments, bytes_max: usize) -> bool {
        let has_output = !self.out.is_empty();
        out.take_from(&mut self.out, bytes_max);
        if self.out.is_empty() {
            self.pings_owed = 0;
        }
        has_output
    }

    fn poll_deadline(&self) -> Option<Instant> {
        let patience = match (&self.phase, self.is_pinged) {
            (Phase::Login(_), _) => LOGIN_PATIENCE,
            (_, false) => PING_AFTER,
            (_, true) => PATIENCE,
        };
        Some(self.last_heard + patience)
    }

    fn poll_user(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Blame>> {
        let mut shared = self.session.shared();
        if let Some(why) = &shared.closed {
            return Poll::Ready(Err(Blame::Io(why.clone())));
        }
        shared.waker = Some(context.waker().clone());
        let leaves = shared.wants_logout && shared.queue.is_empty();
        drop(shared);
        if !matches!(self.phase, Phase::Full) {
            return Poll::Pending;
        }
        let had = self.out.len();
        self.send_waiting();
        if leaves && self.commands.len() == 0 {
            self.phase = Phase::Leaving;
            self.log_out();
        }
        if self.out.len() == had { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    fn bytes_wanted(&self, input: &[u8]) -> usize {
        match &self.trailer {
            Some(trailer) if input.len() < trailer.bytes => trailer.bytes - input.len(),
            _ => pdu::bytes_wanted(input, self.limits),
        }
    }

    fn landing(&mut self, input: &mut BytesMut) -> Option<Landing> {
        let (header, data, head_bytes) = self.begun_data(input)?;
        let mut landing = self.commands.landing(&data)?;
        let copied = landing.put(&input[head_bytes..]);
        input.truncate(head_bytes);
        let Header::DataIn { flags: bits, status, .. } = header else { return None };
        let end = End((bits & flags::STATUS != 0).then_some(status));
        self.note_numbers(&header);
        self.landing = Some((data, copied, end));
        Some(landing)
    }

    fn landed(
        &mut self,
        now: Instant,
        input: &mut BytesMut,
        landing: Landing,
    ) -> Result<(), Blame> {
        (self.last_heard, self.is_pinged) = (now, false);
        input.clear();
        let Some((data, copied, end)) = self.landing.take() else { return Ok(()) };
        let zeros = padding(data.bytes);
        let has_digest = self.digests.data;
        let mut digest = None;
        self.commands.landed(&data, landing, copied, |bytes| {
            digest = has_digest.then(|| crc32c([bytes, &[0; 3][..zeros]]));
        })?;
        let bytes = zeros + if has_digest { DIGEST_BYTES } else { 0 };
        self.trailer = Some(Trailer { bytes, digest, itt: data.itt, end });
        self.take_trailer(input).map(|_| ())
    }

    /// While data may come that has a place to go to, headers are received alone.
    fn deposit(&mut self, input: &[u8]) -> Deposit {
        if self.commands.landings == 0 {
            return Deposit::No;
        }
        if let Some(trailer) = &self.trailer {
            return Deposit::UpTo(
                (trailer.bytes + HEADER_BYTES).saturating_sub(input.len()).max(1),
            );
        }
        Deposit::UpTo(pdu::head_bytes_wanted(input, self.limits).max(1))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let again = self.commands.lose();
        let mut shared = self.session.shared();
        shared.landed += self.commands.landed;
        shared.copied += self.commands.copied;
        shared.answered += self.commands.answered;
        shared.is_logged_in = false;
        match shared.closed.clone() {
            None => again.into_iter().rev().for_each(|job| shared.queue.push_front(job)),
            Some(why) => {
                drop(shared);
                let lost = super::Lost::Closed(why);
                again.into_iter().for_each(|job| job.finish(Err(lost.clone())));
            }
        }
    }
}
