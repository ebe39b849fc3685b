//! A connection to a portal, as a machine: the phases of its life, and what all of them share.

use super::batch::Batch;
use super::credit::Credit;
use super::full_feature::{FullFeature, Link};
use super::login::{Answer, LOGIN_DATA_BYTES_MAX, Login, Progress, Success};
use super::security::Challenge;
use super::session::{Entered, Place, Session};
use super::{Arrival, Device, Portal, Room, Ticket, unique_number};
use crate::chap::CHALLENGE_BYTES;
use crate::message::login as status;
use crate::pdu::{self, Digests, Limits, Pdu};
use crate::scsi::Nexus;
use covey_wire::{Blame, Bytes, BytesMut, Machine, Payload, Segments};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
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
    /// When something was last heard.
    now: Instant,
    ticket: Option<Box<dyn Ticket>>,
    /// What the loop holds of a message that has begun, and of output.
    outside: Outside,
    /// What was last said to the ticket, in units.
    held_units: u64,
    /// Whole PDUs wait in the input until what they follow has been answered.
    has_left: bool,
    credit: Arc<Credit>,
    batch: Batch,
}

/// Bytes of a connection that are not in its machine.
#[derive(Clone, Copy, Debug, Default)]
struct Outside {
    input_bytes: u64,
    output_bytes: u64,
}

enum Phase<D: Device> {
    Login(Box<Login<D>>),
    /// Logged in, and not answered yet: what the connection replaces must be gone before.
    Entering(Box<Entering<D>>),
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
    /// As the machine was told last.
    pub now: Instant,
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
    /// address in brackets; empty where it has come through something else, such as a unix socket).
    pub fn new(portal: Arc<Portal<D>>, local: String, seed: Seed, now: Instant) -> Connection<D> {
        let (id, bytes) = (seed[0], seed[1..].try_into().expect("a seed has one byte more"));
        let arrival = Arrival { local, is_vouched_for: false };
        let login = Login::new(portal, arrival, Challenge { id, bytes });
        let digests = Digests::default();
        let limits = Limits { data_bytes_max: LOGIN_DATA_BYTES_MAX, digests };
        let wire = Wire { out: Segments::new(), digests, limits, stat_sn: 1, now };
        Connection {
            phase: Phase::Login(Box::new(login)),
            wire,
            deadline: now + LOGIN_PATIENCE,
            now,
            ticket: None,
            outside: Outside::default(),
            held_units: 0,
            has_left: false,
            credit: Arc::default(),
            batch: Batch::default(),
        }
    }

    /// The same with a credit that others set.
    pub fn with_credit(self, credit: Arc<Credit>) -> Connection<D> {
        Connection { credit, ..self }
    }

    /// The same, with a place that it holds.
    pub fn with_ticket(self, ticket: Box<dyn Ticket>) -> Connection<D> {
        Connection { ticket: Some(ticket), ..self }
    }

    /// The same, of a peer that whoever accepted it knows: it need not prove who it is where nobody is asked for a secret.
    pub fn vouched_for(mut self) -> Connection<D> {
        if let Phase::Login(login) = &mut self.phase {
            login.vouch();
        }
        self
    }

    /// The session, once there is one.
    pub fn session(&self) -> Option<&Arc<Session<D>>> {
        match &self.phase {
            Phase::Full(full) => Some(full.session()),
            _ => None,
        }
    }

    /// When something is due in this phase.
    fn due(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Login(_) | Phase::Entering(_) => Some(self.deadline),
            Phase::Full(full) => Some(full.deadline()),
            Phase::Over => None,
        }
    }

    /// Tells the ticket what is held, where that has changed by much. An error ends the connection: there is no memory for
    /// what its initiator would have to send next.
    fn account(&mut self) -> Result<(), Blame> {
        let (Phase::Full(full), Some(ticket)) = (&mut self.phase, &mut self.ticket) else {
            return Ok(());
        };
        let Outside { input_bytes, output_bytes } = self.outside;
        let held = full.bytes() + self.wire.out.len() as u64 + input_bytes + output_bytes;
        // Where there was little, others may have given some back.
        if held / UNIT_BYTES == self.held_units && full.room() == Room::Ample {
            return Ok(());
        }
        self.held_units = held / UNIT_BYTES;
        let room = ticket.hold(self.held_units * UNIT_BYTES);
        // A little is everybody's.
        let room = if held <= FREE_BYTES { room.min(Room::Scarce) } else { room };
        if full.set_room(room) {
            return Ok(());
        }
        let what = format!("{held} bytes are held for the initiator, and more may not be");
        Err(Blame::Violation(what))
    }

    /// Takes what has come, `first` before it.
    fn turn(
        &mut self,
        now: Instant,
        first: Option<Pdu>,
        input: &mut BytesMut,
    ) -> Result<(), Blame> {
        (self.now, self.wire.now) = (now, now);
        let (mut count, mut next) = (0, first);
        self.batch.begin();
        while count < TURN_PDUS {
            let pdu = match next.take() {
                Some(pdu) => Some(pdu),
                None => pdu::next(input, self.wire.limits)?,
            };
            let Some(pdu) = pdu else { break };
            self.batch.take(&pdu);
            self.handle(now, pdu)?;
            count += 1;
        }
        self.has_left = count == TURN_PDUS && pdu::bytes_wanted(input, self.wire.limits) == 0;
        self.batch.end(now, self.wire.stat_sn);
        if let Phase::Full(full) = &mut self.phase {
            full.heard(now);
        }
        self.outside.input_bytes = input.len() as u64;
        self.account()
    }

    fn handle(&mut self, now: Instant, pdu: Pdu) -> Result<(), Blame> {
        match &mut self.phase {
            Phase::Login(login) => {
                let progress = login.handle(&pdu)?;
                self.progress(progress)
            }
            //= rfc7143#6.3
            // Nothing is sent before the login is answered.
            Phase::Entering(_) => Err(Blame::Violation("a PDU before the end of the login".into())),
            Phase::Full(full) => full.handle(now, &mut self.wire, pdu),
            Phase::Over => Ok(()),
        }
    }

    fn progress(&mut self, progress: Progress<D>) -> Result<(), Blame> {
        match progress {
            Progress::Answer(answer) => {
                self.answer(&answer, answer.cmd_sn, answer.cmd_sn);
                Ok(())
            }
            Progress::Failed(answer) => self.fail(&answer),
            Progress::Done(success) => self.enter(*success),
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

    /// The login is over, but what it replaces may have to end yet.
    fn enter(&mut self, mut success: Success<D>) -> Result<(), Blame> {
        let Phase::Login(login) = &self.phase else { unreachable!("only a login is done") };
        let (portal, arrival) = (login.portal().clone(), login.arrival().clone());
        let entered = Entered {
            portal: portal.number,
            address: arrival.local.clone(),
            arrival: arrival.clone(),
            chap: std::mem::take(&mut success.chap),
        };
        // Who only asks which targets there are stays a stranger.
        let has_place =
            success.target.is_none() || self.ticket.as_mut().is_none_or(|ticket| ticket.admit());
        let joined = if has_place {
            join(&portal, &success, entered)
        } else {
            Err(status::OUT_OF_RESOURCES)
        };
        match joined {
            Ok(joined) => {
                success.answer.tsih = joined.place.session.tsih;
                let entering = Entering { success, joined, portal, arrival };
                self.phase = Phase::Entering(Box::new(entering));
                Ok(())
            }
            Err(status) => {
                (success.answer.status, success.answer.flags) = (status, 0);
                self.fail(&success.answer)
            }
        }
    }

    /// Into the full feature phase, once nothing is left of what is replaced.
    fn poll_entering(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Blame>> {
        let Phase::Entering(entering) = &self.phase else { return Poll::Pending };
        if entering.joined.is_waiting(context.waker()) {
            return Poll::Pending;
        }
        let Phase::Entering(entering) = std::mem::replace(&mut self.phase, Phase::Over) else {
            return Poll::Pending;
        };
        let Entering { success, joined, portal, arrival } = *entering;
        let window = joined.place.session.window();
        self.answer(&success.answer, window.exp_cmd_sn, window.max_cmd_sn);
        let parameters = success.parameters;
        let digests =
            Digests { header: parameters.has_header_digest(), data: parameters.has_data_digest() };
        //= rfc7143#13.1
        // Digests begin with the first PDU of the full feature phase.
        self.wire.digests = digests;
        self.wire.limits = Limits { data_bytes_max: success.takes_bytes_max, digests };
        let link = Link::new(joined.place, parameters, self.credit.clone());
        let full = FullFeature::new(portal, arrival, link, self.now);
        self.phase = Phase::Full(Box::new(full));
        Poll::Ready(Ok(()))
    }
}

/// How many PDUs are taken before what they were answered is sent: initiator and target work at the same time then, instead of
/// in turn.
const TURN_PDUS: usize = 8;
/// What is held is told in units of so many bytes: small commands need not tell of each.
const UNIT_BYTES: u64 = 64 << 10;
/// What a connection may always hold: a command's worth.
const FREE_BYTES: u64 = 1 << 20;

/// A login that has succeeded.
struct Entering<D: Device> {
    success: Success<D>,
    joined: Joined<D>,
    portal: Arc<Portal<D>>,
    arrival: Arrival,
}

/// A place in a session, and what must go before it is taken.
struct Joined<D: Device> {
    place: Place<D>,
    /// Sessions that must have ended.
    old: Vec<Arc<Session<D>>>,
    /// Tasks of the connection replaced, which must be gone.
    tasks: Vec<u32>,
}

impl<D: Device> Joined<D> {
    //= rfc7143#6.3.5
    // What is replaced is ended first: none of its commands may take effect after the login was answered.
    fn is_waiting(&self, waker: &Waker) -> bool {
        // All are asked, so that each knows whom to wake.
        let sessions = self.old.iter().filter(|old| old.has_connections(waker)).count();
        sessions > 0 || self.place.session.has_aborted(&self.tasks, waker)
    }
}

/// Finds or makes the session.
fn join<D: Device>(
    portal: &Portal<D>,
    success: &Success<D>,
    entered: Entered,
) -> Result<Joined<D>, u16> {
    let Answer { isid, tsih, cmd_sn, .. } = success.answer;
    let initiator: Arc<str> = success.initiator.as_str().into();
    let portal_group = success.target.as_ref().map_or(0, |target| target.portal_group);
    let nexus = Nexus { number: unique_number(), initiator, isid, portal_group };
    let connections_max = success.parameters.connections_max;
    let (session, old) = match (&success.target, tsih) {
        (None, _) => {
            let session = Session::new(None, nexus, entered, DISCOVERY_TSIH, 1, cmd_sn);
            (Arc::new(session), Vec::new())
        }
        (Some(target), 0) => {
            portal.enter(target, || target.begin(nexus, entered, connections_max, cmd_sn))?
        }
        (Some(target), tsih) => {
            let who = (success.initiator.as_str(), isid);
            (portal.enter(target, || target.session(tsih, who, &entered))?, Vec::new())
        }
    };
    match session.join(success.cid) {
        Some((serial, tasks)) => {
            let place = Place { session, cid: success.cid, serial };
            Ok(Joined { place, old, tasks })
        }
        None if tsih == 0 => Err(status::TARGET_ERROR),
        None => Err(status::TOO_MANY_CONNECTIONS),
    }
}

/// The number of every discovery session: none can be joined.
const DISCOVERY_TSIH: u16 = 1;

impl<D: Device> Machine for Connection<D> {
    fn handle_input(&mut self, now: Instant, input: &mut BytesMut) -> Result<(), Blame> {
        self.turn(now, None, input)
    }

    fn handle_placed(
        &mut self,
        now: Instant,
        input: &mut BytesMut,
        placed: Bytes,
    ) -> Result<(), Blame> {
        let pdu = pdu::next_placed(input, &placed, self.wire.limits)?;
        if pdu.is_none() {
            input.extend_from_slice(&placed);
        }
        self.turn(now, pdu, input)
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), Blame> {
        self.wire.now = now;
        if self.batch.ring(now) && self.due().is_some_and(|due| now < due) {
            return Ok(());
        }
        match &mut self.phase {
            Phase::Login(_) | Phase::Entering(_) => {
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
        self.outside.output_bytes = out.len() as u64;
        has_output
    }

    fn poll_deadline(&self) -> Option<Instant> {
        self.due().into_iter().chain(self.batch.deadline()).min()
    }

    fn low_water(&self) -> usize {
        self.batch.low_water()
    }

    fn poll_user(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Blame>> {
        match &mut self.phase {
            Phase::Full(full) => {
                let acted = full.poll(context, &mut self.wire)?;
                self.account()?;
                acted.map(Ok)
            }
            Phase::Entering(_) => self.poll_entering(context),
            _ => Poll::Pending,
        }
    }

    fn has_left(&self) -> bool {
        self.has_left
    }

    fn is_full(&self) -> bool {
        matches!(&self.phase, Phase::Full(full) if full.is_full())
    }

    fn bytes_wanted(&self, input: &[u8]) -> usize {
        pdu::bytes_wanted(input, self.wire.limits)
    }
}
