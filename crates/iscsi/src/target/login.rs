//! The login phase (RFC 7143, sections 6.3, 11.12 and 11.13).
//!
//! Nothing is known of the peer, so everything is bounded: the bytes of a PDU, of a text, the number of PDUs, and, by the connection,
//! the time.

use super::security::{Challenge, Proof};
use super::{Access, Arrival, Credentials, Device, Elsewhere, Portal, Target};
use crate::message::{Array, Header, Lengths, flags, login as status};
use crate::name::is_name;
use crate::negotiate::{Negotiation, Parameters};
use crate::pdu::Pdu;
use crate::text::{Collected, Text};
use covey_wire::{Blame, Bytes};
use std::sync::Arc;

/// Most bytes of data in one PDU of a login, which is also what holds before anything is negotiated (13.12).
pub(super) const LOGIN_DATA_BYTES_MAX: u32 = 8192;
/// Most bytes of one text.
const TEXT_BYTES_MAX: usize = 16 << 10;
/// Most keys of one text: each may be answered, and the answer is one PDU.
const KEYS_MAX: usize = 64;
/// Most PDUs of a login.
const PDUS_MAX: u32 = 32;

/// Stages, as CSG and NSG have them (11.12.3).
const SECURITY: u8 = 0;
const OPERATIONAL: u8 = 1;
const FULL_FEATURE: u8 = 3;

/// A connection that logs in.
pub(super) struct Login<D: Device> {
    portal: Arc<Portal<D>>,
    arrival: Arrival,
    challenge: Challenge,
    stage: u8,
    pdus: u32,
    parts: Collected,
    known: Option<Known<D>>,
    first: Option<First>,
}

/// What every request of a login repeats.
#[derive(Clone, Copy, PartialEq, Eq)]
struct First {
    isid: [u8; 6],
    tsih: u16,
    itt: u32,
    cid: u16,
}

/// What the first request has said.
struct Known<D: Device> {
    initiator: String,
    /// None in a discovery session.
    target: Option<Arc<Target<D>>>,
    access: Access,
    proof: Proof,
    negotiation: Negotiation,
    /// Whether our own MaxRecvDataSegmentLength has been said.
    has_declared: bool,
}

/// What becomes of a request.
pub(super) enum Progress<D: Device> {
    /// This is answered, and more is to come.
    Answer(Answer),
    /// The peer may go on to the full feature phase: the answer still lacks the session's numbers.
    Done(Box<Success<D>>),
    /// The login has failed. The connection ends behind this answer.
    Failed(Answer),
}

/// A login response without the numbers of its connection.
pub(super) struct Answer {
    pub flags: u8,
    pub isid: [u8; 6],
    pub tsih: u16,
    pub itt: u32,
    pub cmd_sn: u32,
    pub status: u16,
    pub text: Text,
}

impl Answer {
    /// The header of the response.
    pub fn header(&self, stat_sn: u32, exp_cmd_sn: u32, max_cmd_sn: u32, data: &Bytes) -> Header {
        Header::LoginResponse {
            flags: self.flags,
            version_max: 0,
            version_active: 0,
            lengths: Lengths::of_data(data.len()),
            isid: Array(self.isid),
            tsih: self.tsih,
            itt: self.itt,
            reserved: Default::default(),
            stat_sn,
            exp_cmd_sn,
            max_cmd_sn,
            status: self.status,
            reserved_2: Default::default(),
        }
    }
}

/// Who has logged in, and to what.
pub(super) struct Success<D: Device> {
    pub answer: Answer,
    pub initiator: String,
    pub target: Option<Arc<Target<D>>>,
    pub cid: u16,
    pub parameters: Parameters,
    /// One of these the initiator has proved to know, if there are any.
    pub chap: Vec<Credentials>,
    /// What this side declared it takes in one PDU.
    pub takes_bytes_max: u32,
}

/// The parts of a login request that matter.
struct Request {
    flags: u8,
    version_min: u8,
    first: First,
    cmd_sn: u32,
}

impl Request {
    fn of(header: &Header) -> Option<Request> {
        let Header::LoginRequest { flags, version_min, isid, tsih, itt, cid, cmd_sn, .. } = header
        else {
            return None;
        };
        let first = First { isid: isid.0, tsih: *tsih, itt: *itt, cid: *cid };
        Some(Request { flags: *flags, version_min: *version_min, first, cmd_sn: *cmd_sn })
    }

    fn is_transit(&self) -> bool {
        self.flags & flags::TRANSIT != 0
    }

    fn is_continued(&self) -> bool {
        self.flags & flags::CONTINUE != 0
    }

    fn current(&self) -> u8 {
        self.flags >> 2 & 3
    }

    fn next(&self) -> u8 {
        self.flags & 3
    }

    fn answer(&self, flags: u8, status: u16, text: Text) -> Answer {
        let First { isid, tsih, itt, .. } = self.first;
        Answer { flags, isid, tsih, itt, cmd_sn: self.cmd_sn, status, text }
    }
}

/// Why a login fails: the status, and where else to try.
struct Refused(u16, Option<Elsewhere>);

impl From<u16> for Refused {
    fn from(status: u16) -> Refused {
        Refused(status, None)
    }
}

impl<D: Device> Login<D> {
    pub fn new(portal: Arc<Portal<D>>, arrival: Arrival, challenge: Challenge) -> Login<D> {
        let (parts, known, first) = Default::default();
        Login { portal, arrival, challenge, stage: SECURITY, pdus: 0, parts, known, first }
    }

    /// Takes a PDU. An error ends the connection without an answer: the peer does not speak iSCSI.
    pub fn handle(&mut self, pdu: &Pdu) -> Result<Progress<D>, Blame> {
        let request = pdu.header.as_ref().ok().and_then(Request::of);
        let Some(request) = request else {
            //= rfc7143#6.3
            // Before the full feature phase nothing but login requests may be sent; the connection is ended.
            return Err(Blame::Violation("the peer says something else before it logs in".into()));
        };
        self.pdus += 1;
        if self.pdus > PDUS_MAX {
            return Err(Blame::Violation(format!("a login of more than {PDUS_MAX} requests")));
        }
        let progress = self.request(&request, &pdu.data);
        Ok(progress.unwrap_or_else(|refused| Progress::Failed(refuse(&request, refused))))
    }

    fn request(&mut self, request: &Request, data: &[u8]) -> Result<Progress<D>, Refused> {
        self.check(request)?;
        let text = self.parts.add(data, request.is_continued(), TEXT_BYTES_MAX);
        let Some(mut text) = text.map_err(|_| status::INITIATOR_ERROR)? else {
            let flags = request.current() << 2;
            return Ok(Progress::Answer(request.answer(flags, status::SUCCESS, Text::default())));
        };
        if text.repeated().is_some() || text.len() > KEYS_MAX {
            return Err(status::INITIATOR_ERROR.into());
        }
        let mut out = Text::default();
        if self.known.is_none() {
            self.known = Some(self.introduce(request, &mut text, &mut out)?);
        }
        self.advance(request, text, out)
    }

    /// Whether the request fits to those before.
    fn check(&mut self, request: &Request) -> Result<(), u16> {
        //= rfc7143#11.12.5
        // The target MUST use a version that both sides have, or end the login.
        if request.version_min > 0 {
            return Err(status::VERSION);
        }
        if *self.first.get_or_insert(request.first) != request.first {
            return Err(status::INVALID);
        }
        if self.pdus == 1 {
            self.stage = request.current();
        }
        //= rfc7143#11.12.2
        // With the C bit, the T bit MUST NOT be set.
        let is_bad_continuation = request.is_continued() && request.is_transit();
        let is_stage =
            matches!(self.stage, SECURITY | OPERATIONAL) && request.current() == self.stage;
        let goes_on =
            matches!(request.next(), OPERATIONAL | FULL_FEATURE) && request.next() > self.stage;
        if is_bad_continuation || !is_stage || (request.is_transit() && !goes_on) {
            return Err(status::INVALID);
        }
        Ok(())
    }

    /// Takes the names of the first text.
    fn introduce(
        &self,
        request: &Request,
        text: &mut Text,
        out: &mut Text,
    ) -> Result<Known<D>, Refused> {
        //= rfc7143#13.4
        // The initiator MUST give its name in the first login request of each connection.
        let initiator = text.take("InitiatorName").filter(|name| !name.is_empty());
        let initiator = initiator.ok_or(status::MISSING)?;
        if !is_name(&initiator) {
            return Err(status::INITIATOR_ERROR.into());
        }
        text.take("InitiatorAlias");
        let is_discovery = match text.take("SessionType").as_deref() {
            None | Some("Normal") => false,
            Some("Discovery") => true,
            Some(_) => return Err(status::SESSION_TYPE.into()),
        };
        let name = text.take("TargetName");
        if is_discovery && request.first.tsih != 0 {
            return Err(status::NO_SESSION.into());
        }
        let (target, access) = if is_discovery {
            (None, self.portal.discovery.read().map(|it| it.clone()).unwrap_or_default())
        } else {
            let name = name.ok_or(status::MISSING)?;
            let target = self.portal.target(&name).ok_or(status::NOT_FOUND)?;
            if let Some(elsewhere) = target.look(|it| it.elsewhere.clone()) {
                return Err(redirect(elsewhere));
            }
            if target.look(|it| it.is_away) {
                return Err(status::UNAVAILABLE.into());
            }
            let access = target.look(|it| it.access.clone());
            (Some(target), access)
        };
        if !access.admits(&initiator, &self.arrival) {
            return Err(status::AUTHORIZATION.into());
        }
        let ours = target.as_ref().map_or(Parameters::TARGET, |target| target.parameters);
        if let Some(target) = &target {
            //= rfc7143#13.9
            // The target MUST return the tag of the portal group with the first login response of a normal session.
            out.push("TargetPortalGroupTag", target.portal_group.to_string());
            target.alias.iter().for_each(|alias| out.push("TargetAlias", alias));
        }
        let negotiation = Negotiation::new(ours, is_discovery);
        let proof = Proof::Unsaid;
        Ok(Known { initiator, target, access, proof, negotiation, has_declared: false })
    }

    fn advance(
        &mut self,
        request: &Request,
        mut text: Text,
        mut out: Text,
    ) -> Result<Progress<D>, Refused> {
        let known = self.known.as_mut().expect("it has introduced itself");
        if self.stage == SECURITY {
            known.proof.step(&known.access, &self.challenge, &mut text, &mut out)?;
        }
        let is_proved = known.access.chap.is_empty() || matches!(known.proof, Proof::Given);
        //= rfc7143#6.3.2
        // An initiator that leaves out the security stage has not proved anything.
        if self.stage == OPERATIONAL && !is_proved {
            return Err(status::AUTHENTICATION.into());
        }
        known.answer_keys(self.stage, &text, &mut out)?;
        let may_leave = self.stage != SECURITY || is_proved;
        if !(request.is_transit() && may_leave) {
            let flags = self.stage << 2;
            return Ok(Progress::Answer(request.answer(flags, status::SUCCESS, out)));
        }
        let flags = flags::TRANSIT | self.stage << 2 | request.next();
        self.stage = request.next();
        let answer = request.answer(flags, status::SUCCESS, out);
        if self.stage != FULL_FEATURE {
            return Ok(Progress::Answer(answer));
        }
        let known = self.known.take().expect("it has introduced itself");
        Ok(Progress::Done(Box::new(known.success(answer, request.first.cid))))
    }

    /// Somebody knows the peer.
    pub fn vouch(&mut self) {
        self.arrival.is_vouched_for = true;
    }

    /// How the initiator has come.
    pub fn arrival(&self) -> &Arrival {
        &self.arrival
    }

    /// The targets of the node.
    pub fn portal(&self) -> &Arc<Portal<D>> {
        &self.portal
    }
}

impl<D: Device> Known<D> {
    /// Answers what is not about security.
    fn answer_keys(&mut self, stage: u8, text: &Text, out: &mut Text) -> Result<(), u16> {
        for (key, value) in text.pairs() {
            let answer = self.negotiation.answer(key, value);
            if let Some(answer) = answer.map_err(|_| status::INITIATOR_ERROR)? {
                out.push(key, answer);
            }
        }
        if stage == OPERATIONAL && !self.has_declared {
            self.has_declared = true;
            let takes = self.takes_bytes_max();
            out.push("MaxRecvDataSegmentLength", takes.to_string());
        }
        Ok(())
    }

    fn takes_bytes_max(&self) -> u32 {
        match (&self.target, self.has_declared) {
            (Some(target), true) => target.parameters.segment_bytes_max,
            _ => LOGIN_DATA_BYTES_MAX,
        }
    }

    fn success(self, answer: Answer, cid: u16) -> Success<D> {
        let (parameters, takes_bytes_max) = (self.negotiation.agreed(), self.takes_bytes_max());
        let (initiator, target, chap) = (self.initiator, self.target, self.access.chap);
        Success { answer, initiator, target, cid, parameters, takes_bytes_max, chap }
    }
}

fn redirect(elsewhere: Elsewhere) -> Refused {
    let status = if elsewhere.for_good { status::MOVED } else { status::MOVED_TEMPORARILY };
    Refused(status, Some(elsewhere))
}

fn refuse(request: &Request, refused: Refused) -> Answer {
    let mut text = Text::default();
    if let Some(elsewhere) = refused.1 {
        text.push("TargetAddress", elsewhere.address);
    }
    request.answer(request.current() << 2, refused.0, text)
}
