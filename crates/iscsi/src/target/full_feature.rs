//! The full feature phase: numbered commands in their order, pings, logout, and what is refused (RFC 7143, sections 4.2.2 and 11).

use super::connection::Wire;
use super::credit::Credit;
use super::discovery::Texts;
use super::management::Management;
use super::session::{Order, Place, Session, Turn, is_before};
use super::tasks::Tasks;
use super::{Arrival, Device, Portal, Room};
use crate::message::{Header, Lengths, NO_TAG, event, flags, reject};
use crate::negotiate::Parameters;
use crate::pdu::{self, Pdu};
use covey_wire::{Blame, Payload};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Silence after which the initiator is pinged.
const PING_AFTER: Duration = Duration::from_secs(15);
/// Silence after a ping that ends the connection.
const PONG_WITHIN: Duration = Duration::from_secs(15);

/// Silence after which an initiator is asked whether it has what was lent to it: others may wait for that.
const ASK_AFTER: Duration = Duration::from_millis(200);

/// A connection in its full feature phase.
pub(super) struct FullFeature<D: Device> {
    pub link: Link<D>,
    pub tasks: Tasks<D>,
    pub management: Management<D>,
    texts: Texts<D>,
    /// Commands that have come before their turn, by CmdSN.
    held: BTreeMap<u32, Pdu>,
    /// Their data. Where it is too much nothing is read until their turn has come.
    held_bytes: usize,
    /// Since when it is too much.
    full_since: Option<Instant>,
    last_heard: Instant,
    is_pinged: bool,
    /// When the connection is ended, whoever is still there.
    end_at: Option<Instant>,
    /// How long the initiator has from now on, once it is known when that is.
    end_within: Option<Duration>,
}

/// What the parts of a connection share.
pub(super) struct Link<D: Device> {
    pub session: Arc<Session<D>>,
    pub cid: u16,
    pub serial: u64,
    pub parameters: Parameters,
    /// What may be asked for.
    pub credit: Arc<Credit>,
    /// Held, not looked at.
    _place: Place<D>,
}

impl<D: Device> Link<D> {
    pub fn new(place: Place<D>, parameters: Parameters, credit: Arc<Credit>) -> Link<D> {
        let Place { session, cid, serial } = &place;
        let (session, cid, serial) = (session.clone(), *cid, *serial);
        Link { session, cid, serial, parameters, credit, _place: place }
    }
}

impl<D: Device> FullFeature<D> {
    pub fn new(
        portal: Arc<Portal<D>>,
        arrival: Arrival,
        link: Link<D>,
        now: Instant,
    ) -> FullFeature<D> {
        let is_discovery = link.session.target.is_none();
        FullFeature {
            texts: Texts::new(portal, arrival),
            link,
            tasks: Tasks::default(),
            management: Management::default(),
            held: BTreeMap::new(),
            held_bytes: 0,
            full_since: None,
            last_heard: now,
            is_pinged: false,
            // It has one question.
            end_at: is_discovery.then(|| now + DISCOVERY_PATIENCE),
            end_within: None,
        }
    }

    /// Whether nothing more can be taken.
    pub fn is_full(&self) -> bool {
        self.holds_too_much() || self.tasks.is_full()
    }

    fn holds_too_much(&self) -> bool {
        self.held_bytes > HELD_BYTES_MAX
    }

    /// What is held of the initiator's data, and for it.
    pub fn bytes(&self) -> u64 {
        self.held_bytes as u64 + self.tasks.bytes()
    }

    /// How much memory there is.
    pub fn room(&self) -> Room {
        self.tasks.room
    }

    /// How much memory there is from now on. False where it is not enough to go on: what is awaited needs some.
    pub fn set_room(&mut self, room: Room) -> bool {
        self.tasks.set_room(room)
    }

    pub fn session(&self) -> &Arc<Session<D>> {
        &self.link.session
    }

    /// Takes a PDU.
    pub fn handle(&mut self, now: Instant, wire: &mut Wire, pdu: Pdu) -> Result<(), Blame> {
        let header = match &pdu.header {
            Ok(header) => header,
            Err(_) => {
                self.reject(wire, &pdu, reject::UNSUPPORTED);
                return Ok(());
            }
        };
        if let Some(number) = exp_stat_sn(header) {
            self.tasks.lent().acknowledged(number);
        }
        let cmd_sn = cmd_sn(header);
        //= rfc7143#7.8
        // A PDU whose data digest is wrong MUST be answered with a Reject and discarded.
        if !pdu.is_sound {
            self.reject(wire, &pdu, reject::DATA_DIGEST);
        }
        match (header, cmd_sn) {
            (Header::DataOut { .. }, _) => self.data_out(wire, &pdu),
            _ if !pdu.is_sound => {}
            (_, Some(cmd_sn)) if !pdu.is_immediate => {
                return self.numbered(now, wire, cmd_sn, pdu);
            }
            (_, Some(_)) => return self.execute(now, wire, pdu),
            _ => self.unnumbered(wire, &pdu),
        }
        Ok(())
    }

    fn numbered(
        &mut self,
        now: Instant,
        wire: &mut Wire,
        cmd_sn: u32,
        pdu: Pdu,
    ) -> Result<(), Blame> {
        match self.link.session.turn(self.link.cid, self.link.serial, cmd_sn) {
            Turn::Never => Ok(()),
            Turn::Later => {
                if let Entry::Vacant(place) = self.held.entry(cmd_sn) {
                    self.held_bytes += pdu.data.len();
                    place.insert(pdu);
                }
                if self.holds_too_much() {
                    self.full_since.get_or_insert(now);
                }
                Ok(())
            }
            Turn::Now => {
                self.execute(now, wire, pdu)?;
                self.execute_held(now, wire)
            }
        }
    }

    /// Executes commands whose turn has come.
    fn execute_held(&mut self, now: Instant, wire: &mut Wire) -> Result<(), Blame> {
        while !self.held.is_empty() {
            let next = self.link.session.window().exp_cmd_sn;
            self.held.retain(|cmd_sn, _| !is_before(*cmd_sn, next));
            let pdu = self.held.remove(&next);
            self.held_bytes = self.held.values().map(|pdu| pdu.data.len()).sum();
            let Some(pdu) = pdu else { break };
            if self.link.session.turn(self.link.cid, self.link.serial, next) == Turn::Now {
                self.execute(now, wire, pdu)?;
            }
        }
        if !self.holds_too_much() {
            self.full_since = None;
        }
        Ok(())
    }

    /// Executes a command.
    fn execute(&mut self, now: Instant, wire: &mut Wire, pdu: Pdu) -> Result<(), Blame> {
        if !self.link.session.has(self.link.cid, self.link.serial) {
            return Ok(());
        }
        match pdu.header.as_ref().expect("a command has a number") {
            Header::ScsiCommand { .. } => {
                if let Err(reason) = self.tasks.command(&self.link, wire, &pdu) {
                    self.reject(wire, &pdu, reason);
                }
            }
            Header::TaskRequest { .. } => self.manage(wire, &pdu),
            Header::NopOut { .. } => self.pong(wire, &pdu),
            Header::TextRequest { .. } => {
                let answered = self.texts.handle(&mut self.link, wire, &pdu);
                if let Err(reason) = answered {
                    self.reject(wire, &pdu, reason);
                }
            }
            Header::LogoutRequest { reason, itt, cid, .. } => {
                let (reason, itt, cid) = (*reason, *itt, *cid);
                return self.logout(now, wire, reason, itt, cid);
            }
            _ => self.reject(wire, &pdu, reject::PROTOCOL),
        }
        Ok(())
    }

    fn unnumbered(&mut self, wire: &mut Wire, pdu: &Pdu) {
        let reason = match pdu.header.as_ref() {
            // The answer to a ping: that it came is all it says.
            Ok(Header::NopOut { .. }) => return,
            //= rfc7143#11.16
            // Without recovery there is nothing to be sent again: at level 0 a SNACK MUST be rejected.
            Ok(Header::Snack { .. }) => reject::SNACK,
            _ => reject::PROTOCOL,
        };
        self.reject(wire, pdu, reason);
    }

    fn data_out(&mut self, wire: &mut Wire, pdu: &Pdu) {
        if let Err(reason) = self.tasks.data_out(&self.link, wire, pdu) {
            self.reject(wire, pdu, reason);
        }
    }

    /// Refuses a PDU.
    fn reject(&mut self, wire: &mut Wire, pdu: &Pdu, reason: u8) {
        let window = self.link.session.window();
        //= rfc7143#11.17
        // The complete header of the PDU that is rejected MUST be in the data.
        let data = Payload::from(pdu.raw.clone());
        let header = Header::Reject {
            flags: flags::FINAL,
            reason,
            reserved: Default::default(),
            lengths: pdu::lengths(&data),
            reserved_2: Default::default(),
            itt: NO_TAG,
            reserved_3: Default::default(),
            stat_sn: wire.next_stat_sn(),
            exp_cmd_sn: window.exp_cmd_sn,
            max_cmd_sn: window.max_cmd_sn,
            data_sn: 0,
            reserved_4: Default::default(),
        };
        wire.put_with_data(&header, &data);
    }

    /// Answers a ping with its own data.
    fn pong(&mut self, wire: &mut Wire, pdu: &Pdu) {
        let Ok(Header::NopOut { itt, lun, .. }) = &pdu.header else { return };
        //= rfc7143#11.18.1
        // A NOP-Out whose tag is reserved asks for no answer.
        if *itt == NO_TAG {
            return;
        }
        //= rfc7143#11.19.2
        // The data is returned, no more of it than the initiator takes in one PDU.
        let most = self.link.parameters.segment_bytes_max as usize;
        let data = Payload::from(pdu.data.slice(..pdu.data.len().min(most)));
        let stat_sn = wire.next_stat_sn();
        self.nop_in(wire, *lun, *itt, stat_sn, &data);
    }

    fn nop_in(&mut self, wire: &mut Wire, lun: u64, itt: u32, stat_sn: u32, data: &Payload) {
        let window = self.link.session.window();
        let header = Header::NopIn {
            flags: flags::FINAL,
            reserved: Default::default(),
            lengths: pdu::lengths(data),
            lun,
            itt,
            //= rfc7143#11.19.1
            // A ping of the target's own has a transfer tag, and the reserved task tag.
            ttt: if itt == NO_TAG { PING_TAG } else { NO_TAG },
            stat_sn,
            exp_cmd_sn: window.exp_cmd_sn,
            max_cmd_sn: window.max_cmd_sn,
            reserved_2: Default::default(),
        };
        wire.put_with_data(&header, data);
    }

    fn logout(
        &mut self,
        now: Instant,
        wire: &mut Wire,
        reason: u8,
        itt: u32,
        cid: u16,
    ) -> Result<(), Blame> {
        let (response, ends_this) = match reason {
            CLOSE_SESSION => {
                self.tasks.clear(&self.link);
                self.link.session.close("the initiator has closed the session");
                (LOGGED_OUT, true)
            }
            CLOSE_CONNECTION if cid == self.link.cid => (LOGGED_OUT, true),
            CLOSE_CONNECTION => (CID_NOT_FOUND, false),
            //= rfc7143#11.15.1
            // Connections are not removed for recovery below level 2.
            _ => (NO_RECOVERY, false),
        };
        let window = self.link.session.window();
        wire.put(&Header::LogoutResponse {
            flags: flags::FINAL,
            response,
            reserved: Default::default(),
            lengths: Lengths::default(),
            reserved_2: Default::default(),
            itt,
            reserved_3: Default::default(),
            stat_sn: wire.stat_sn,
            exp_cmd_sn: window.exp_cmd_sn,
            max_cmd_sn: window.max_cmd_sn,
            reserved_4: Default::default(),
            time2wait: 0,
            time2retain: 0,
            reserved_5: Default::default(),
        });
        wire.next_stat_sn();
        self.last_heard = now;
        //= rfc7143#11.14
        // Behind the response nothing is sent; the connection is closed.
        if ends_this { Err(Blame::Io("the initiator has logged out".into())) } else { Ok(()) }
    }

    /// Something has come.
    pub fn heard(&mut self, now: Instant) {
        (self.last_heard, self.is_pinged) = (now, false);
        self.tasks.lent().heard(now);
    }

    pub fn deadline(&self) -> Instant {
        let ping_after = if self.tasks.has_lent() { ASK_AFTER } else { PING_AFTER };
        let patience = if self.is_pinged { PING_AFTER + PONG_WITHIN } else { ping_after };
        let silence = self.last_heard + patience;
        if self.end_within.is_some() {
            // At once: whoever calls then says what time it is.
            return self.last_heard;
        }
        let end = self.end_at.map_or(silence, |end| end.min(silence));
        let end = self.full_since.map_or(end, |since| end.min(since + FULL_PATIENCE));
        self.tasks.turn().map_or(end, |turn| turn.min(end))
    }

    pub fn handle_timeout(&mut self, now: Instant, wire: &mut Wire) -> Result<(), Blame> {
        self.tasks.take_turn(&self.link, wire);
        if let Some(within) = self.end_within.take() {
            self.end_at = Some(now + within);
        }
        if self.end_at.is_some_and(|end| end <= now) {
            let why = match self.link.session.target {
                Some(_) => "the initiator did not log out when it was asked to",
                None => "the discovery session lasts too long",
            };
            return Err(Blame::Io(why.into()));
        }
        self.check_held(now)?;
        if now < self.deadline() {
            return Ok(());
        }
        if self.is_full() {
            // It is not listened to, so its silence says nothing.
            (self.last_heard, self.is_pinged) = (now, false);
            return Ok(());
        }
        if self.is_pinged {
            let seconds = (PING_AFTER + PONG_WITHIN).as_secs();
            return Err(Blame::Io(format!("the initiator has said nothing for {seconds} s")));
        }
        self.is_pinged = true;
        //= rfc7143#11.19.4
        // Such a ping has the next StatSN, and does not count it.
        let stat_sn = wire.stat_sn;
        self.nop_in(wire, 0, NO_TAG, stat_sn, &Payload::default());
        Ok(())
    }

    /// A connection that is full of commands whose turn has not come is not read: what they wait for can no more come on it
    /// than the news that its peer has gone.
    fn check_held(&self, now: Instant) -> Result<(), Blame> {
        if self.full_since.is_none_or(|since| now < since + FULL_PATIENCE) {
            return Ok(());
        }
        let (missing, held) = (self.link.session.window().exp_cmd_sn, self.held_bytes);
        Err(Blame::Violation(format!(
            "the command with CmdSN {missing} has not come for {} s, while {held} bytes of later ones wait for it, \
             limit {HELD_BYTES_MAX}",
            FULL_PATIENCE.as_secs()
        )))
    }

    /// Goes on with what waited for output to be taken.
    pub fn resume(&mut self, wire: &mut Wire) {
        self.tasks.resume(&self.link, wire);
    }

    /// Takes orders of others and answers of stores.
    pub fn poll(&mut self, context: &mut Context<'_>, wire: &mut Wire) -> Poll<Result<(), Blame>> {
        let had = wire.out.len();
        let link = &self.link;
        let Some((order, has_aborted)) = link.session.mail(link.cid, link.serial, context.waker())
        else {
            return Poll::Ready(Err(Blame::Io("the connection was reinstated".into())));
        };
        if let Some(order) = order {
            self.obey(order, wire)?;
        }
        if has_aborted {
            self.tasks.sweep(&self.link, wire);
        }
        self.execute_held(self.last_heard, wire)?;
        self.tasks.poll(context, &self.link, wire);
        self.management.poll(context, &self.link, &mut self.tasks, wire);
        let has_acted = wire.out.len() != had || self.tasks.has_left();
        if has_acted { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn obey(&mut self, order: Order, wire: &mut Wire) -> Result<(), Blame> {
        let seconds = match order {
            Order::Close(why) => return Err(Blame::Io(why.into())),
            Order::AskLogout(seconds) => seconds,
        };
        self.end_within = Some(Duration::from_secs(seconds.into()));
        let window = self.link.session.window();
        wire.put(&Header::Async {
            flags: flags::FINAL,
            reserved: Default::default(),
            lengths: Lengths::default(),
            lun: 0,
            itt: NO_TAG,
            reserved_2: Default::default(),
            stat_sn: wire.stat_sn,
            exp_cmd_sn: window.exp_cmd_sn,
            max_cmd_sn: window.max_cmd_sn,
            event: event::LOGOUT,
            vendor_code: 0,
            parameter_1: 0,
            parameter_2: 0,
            parameter_3: seconds,
            reserved_3: Default::default(),
        });
        wire.next_stat_sn();
        Ok(())
    }
}

/// The CmdSN of a request that has one (4.2.2.1).
fn cmd_sn(header: &Header) -> Option<u32> {
    match header {
        Header::NopOut { itt: NO_TAG, .. } => None,
        Header::NopOut { cmd_sn, .. }
        | Header::ScsiCommand { cmd_sn, .. }
        | Header::TaskRequest { cmd_sn, .. }
        | Header::TextRequest { cmd_sn, .. }
        | Header::LogoutRequest { cmd_sn, .. } => Some(*cmd_sn),
        _ => None,
    }
}

/// The ExpStatSN of a request (4.2.2.2).
fn exp_stat_sn(header: &Header) -> Option<u32> {
    match header {
        Header::NopOut { exp_stat_sn, .. }
        | Header::ScsiCommand { exp_stat_sn, .. }
        | Header::TaskRequest { exp_stat_sn, .. }
        | Header::TextRequest { exp_stat_sn, .. }
        | Header::DataOut { exp_stat_sn, .. }
        | Header::LogoutRequest { exp_stat_sn, .. } => Some(*exp_stat_sn),
        _ => None,
    }
}

/// How long a discovery session may last.
const DISCOVERY_PATIENCE: Duration = Duration::from_secs(15);
/// How long a connection may be full of commands that wait for one of another connection.
const FULL_PATIENCE: Duration = Duration::from_secs(30);
/// How much data of commands whose turn has not come one connection holds.
const HELD_BYTES_MAX: usize = 1 << 20;
/// The transfer tag of our pings. One is under way at a time.
const PING_TAG: u32 = 0;
/// Reasons of a logout (11.14.1), with the bit that is always set.
const CLOSE_SESSION: u8 = 0x80;
const CLOSE_CONNECTION: u8 = 0x81;
/// Answers to a logout (11.15.1).
const LOGGED_OUT: u8 = 0;
const CID_NOT_FOUND: u8 = 1;
const NO_RECOVERY: u8 = 2;
