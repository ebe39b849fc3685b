//! A connection to a portal, as a machine: the phases of its life, and what all of them share.

use super::full_feature::FullFeature;
use super::login::{Answer, LOGIN_DATA_BYTES_MAX, Login, Progress, Success};
use super::security::Challenge;
use super::session::Session;
use super::{Device, Portal};
use crate::chap::CHALLENGE_BYTES;
use crate::message::login as status;
use crate::pdu::{self, Digests, Limits, Pdu};
use crate::scsi::Nexus;
use covey_wire::{Blame, BytesMut, Machine, Payload, Segments};
use std::any::Any;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// How long a login may take.
const LOGIN_PATIENCE: Duration = Duration::from_secs(15);

/// Random bytes for one connection, of which nobody must know anything before.
pub type Seed = [u8; CHALLENGE_BYTES + 1];

/// One connection of an initiator.
///
/// It is driven as every [`Machine`]. What the device's stores answer later comes by way of
/// [`poll_user`](Machine::poll_user), and so does what other connections have to tell.
pub struct Connection<D: Device> {
    phase: Phase<D>,
    wire: Wire,
    deadline: Instant,
    /// What is held until the peer has logged in.
    ticket: Option<Box<dyn Any + Send>>,
}

enum Phase<D: Device> {
    Login(Box<Login<D>>),
    Full(Box<FullFeature<D>>),
    /// What is said is said.
    Over,
}

/// What goes out, in all phases.
pub(super) struct Wire {
    pub out: Segments,
    /// What the peer is sent.
    pub digests: Digests,
    /// What the peer may send.
    pub limits: Limits,
    pub stat_sn: u32,
}

impl Wire {
    /// The number of a status that is sent.
    pub fn next_stat_sn(&mut self) -> u32 {
        let number = self.stat_sn;
        self.stat_sn = number.wrapping_add(1);
        number
    }

    /// Puts a PDU without data.
    pub fn put(&mut self, header: &crate::message::Header) {
        pdu::put(header, false, self.digests, &mut self.out);
    }

    /// Puts a PDU with data.
    pub fn put_with_data(&mut self, header: &crate::message::Header, data: &Payload) {
        pdu::put_with_data(header, false, data, self.digests, &mut self.out);
    }
}

impl<D: Device> Connection<D> {
    /// A connection that has just been accepted at `local`, the address that the initiator has come to (`HOST:PORT`, an IPv6
    /// address in brackets).
    pub fn new(portal: Arc<Portal<D>>, local: String, seed: Seed, now: Instant) -> Connection<D> {
        let (id, bytes) = (seed[0], seed[1..].try_into().expect("a seed has one byte more"));
        let login = Login::new(portal, local, Challenge { id, bytes });
        let digests = Digests::default();
        let limits = Limits { data_bytes_max: LOGIN_DATA_BYTES_MAX, digests };
        let wire = Wire { out: Segments::new(), digests, limits, stat_sn: 1 };
        Connection {
            phase: Phase::Login(Box::new(login)),
            wire,
            deadline: now + LOGIN_PATIENCE,
            ticket: None,
        }
    }

    /// The same, holding something until the peer has logged in: a place among strangers.
    pub fn with_ticket(self, ticket: Box<dyn Any + Send>) -> Connection<D> {
        Connection { ticket: Some(ticket), ..self }
    }

    /// The session, once there is one.
    pub fn session(&self) -> Option<&Arc<Session<D>>> {
        match &self.phase {
            Phase::Full(full) => Some(full.session()),
            _ => None,
        }
    }

    fn handle(&mut self, now: Instant, pdu: Pdu) -> Result<(), Blame> {
        match &mut self.phase {
            Phase::Login(login) => {
                let progress = login.handle(&pdu)?;
                self.progress(now, progress)
            }
            Phase::Full(full) => full.handle(now, &mut self.wire, pdu),
            Phase::Over => Ok(()),
        }
    }

    fn progress(&mut self, now: Instant, progress: Progress<D>) -> Result<(), Blame> {
        match progress {
            Progress::Answer(answer) => {
                self.answer(&answer, answer.cmd_sn, answer.cmd_sn);
                Ok(())
            }
            Progress::Failed(answer) => self.fail(&answer),
            Progress::Done(success) => self.enter(now, *success),
        }
    }

    fn answer(&mut self, answer: &Answer, exp_cmd_sn: u32, max_cmd_sn: u32) {
        let data = answer.text.to_bytes();
        //= rfc7143#11.13.4
        // A response whose class is not 0 has no StatSN that counts.
        let stat_sn = self.wire.next_stat_sn();
        let header = answer.header(stat_sn, exp_cmd_sn, max_cmd_sn, &data);
        self.wire.put_with_data(&header, &data.into());
    }

    fn fail(&mut self, answer: &Answer) -> Result<(), Blame> {
        self.answer(answer, answer.cmd_sn, answer.cmd_sn);
        self.phase = Phase::Over;
        Err(Blame::Violation(format!("the login failed with status {:#06x}", answer.status)))
    }

    /// Into the full feature phase.
    fn enter(&mut self, now: Instant, mut success: Success<D>) -> Result<(), Blame> {
        let Phase::Login(login) = &self.phase else { unreachable!("only a login is done") };
        let joined = join(login.portal(), &success);
        let (session, serial) = match joined {
            Ok(joined) => joined,
            Err(status) => {
                (success.answer.status, success.answer.flags) = (status, 0);
                return self.fail(&success.answer);
            }
        };
        let (portal, local) = (login.portal().clone(), login.local().to_owned());
        success.answer.tsih = session.tsih;
        let window = session.window();
        self.answer(&success.answer, window.exp_cmd_sn, window.max_cmd_sn);
        let parameters = success.parameters;
        let digests =
            Digests { header: parameters.has_header_digest(), data: parameters.has_data_digest() };
        //= rfc7143#13.1
        // Digests begin with the first PDU of the full feature phase.
        self.wire.digests = digests;
        self.wire.limits = Limits { data_bytes_max: success.takes_bytes_max, digests };
        let full = FullFeature::new(portal, local, session, success.cid, serial, parameters, now);
        self.phase = Phase::Full(Box::new(full));
        self.ticket = None;
        Ok(())
    }
}

/// Finds or makes the session; its connection's serial.
fn join<D: Device>(
    portal: &Portal<D>,
    success: &Success<D>,
) -> Result<(Arc<Session<D>>, u64), u16> {
    let Answer { isid, tsih, cmd_sn, .. } = success.answer;
    let initiator: Arc<str> = success.initiator.as_str().into();
    let portal_group = success.target.as_ref().map_or(0, |target| target.portal_group);
    let nexus = Nexus { number: portal.number(), initiator, isid, portal_group };
    let connections_max = success.parameters.connections_max;
    let session = match (&success.target, tsih) {
        (None, _) => Arc::new(Session::new(None, nexus, DISCOVERY_TSIH, 1, cmd_sn)),
        (Some(target), 0) => target.begin(nexus, connections_max, cmd_sn)?,
        (Some(target), tsih) => {
            target.session(tsih, &success.initiator, isid).ok_or(status::NO_SESSION)?
        }
    };
    match session.join(success.cid) {
        Some(serial) => Ok((session, serial)),
        None if tsih == 0 => Err(status::TARGET_ERROR),
        None => Err(status::TOO_MANY_CONNECTIONS),
    }
}

/// The number of every discovery session: none can be joined.
const DISCOVERY_TSIH: u16 = 1;

impl<D: Device> Machine for Connection<D> {
    fn handle_input(&mut self, now: Instant, input: &mut BytesMut) -> Result<(), Blame> {
        while let Some(pdu) = pdu::next(input, self.wire.limits)? {
            self.handle(now, pdu)?;
        }
        if let Phase::Full(full) = &mut self.phase {
            full.heard(now);
        }
        Ok(())
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), Blame> {
        match &mut self.phase {
            Phase::Login(_) => {
                let what = format!("no login within {} s", LOGIN_PATIENCE.as_secs());
                Err(Blame::Violation(what))
            }
            Phase::Full(full) => full.handle_timeout(now, &mut self.wire),
            Phase::Over => Ok(()),
        }
    }

    fn poll_output(&mut self, out: &mut Segments, bytes_max: usize) -> bool {
        if let (true, Phase::Full(full)) = (self.wire.out.is_empty(), &mut self.phase) {
            full.resume(&mut self.wire);
        }
        let has_output = !self.wire.out.is_empty();
        out.take_from(&mut self.wire.out, bytes_max);
        has_output
    }

    fn poll_deadline(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Login(_) => Some(self.deadline),
            Phase::Full(full) => Some(full.deadline()),
            Phase::Over => None,
        }
    }

    fn poll_user(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Blame>> {
        match &mut self.phase {
            Phase::Full(full) => full.poll(context, &mut self.wire),
            _ => Poll::Pending,
        }
    }

    fn bytes_wanted(&self, input: &[u8]) -> usize {
        pdu::bytes_wanted(input, self.wire.limits)
    }
}
