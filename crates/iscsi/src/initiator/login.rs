//! The login phase, seen from the initiator (RFC 7143, sections 6.3, 11.12 and 12).

use super::{Config, Refusal};
use crate::chap::{Algorithm, CHALLENGE_BYTES, decode, encode, is_same};
use crate::message::{Array, Header, Lengths, flags};
use crate::negotiate::{Negotiation, Parameters};
use crate::text::{Collected, Text};
use covey_wire::{Blame, Bytes};
use std::sync::Arc;

/// Most bytes of a text of the target.
const TEXT_BYTES_MAX: usize = 16 << 10;
/// Most requests of a login.
const REQUESTS_MAX: u32 = 16;
const OPERATIONAL: u8 = 1;
const FULL_FEATURE: u8 = 3;

/// A login under way.
pub(super) struct Login {
    config: Arc<Config>,
    challenge: [u8; CHALLENGE_BYTES],
    negotiation: Negotiation,
    step: Step,
    parts: Collected,
    requests: u32,
    proposed: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// AuthMethod was said.
    Method,
    /// CHAP_A was said.
    Algorithms,
    /// Our response was sent, made with this.
    Proof(Algorithm),
    /// Nothing is left but to leave the stage.
    Leaving,
    /// The operational keys were said.
    Operational,
}

/// What comes next.
pub(super) enum Next {
    /// This is sent.
    Send(u8, Text),
    /// Logged in: what was agreed on, the peer's limit of data in one PDU among it.
    Done(Parameters),
}

/// A login that fails.
pub(super) enum Failure {
    Refused(Refusal),
    Broken(Blame),
}

impl From<Blame> for Failure {
    fn from(blame: Blame) -> Failure {
        Failure::Broken(blame)
    }
}

fn odd(what: &str) -> Failure {
    Failure::Broken(Blame::Violation(format!("in the login: {what}")))
}

impl Login {
    pub fn new(config: Arc<Config>, challenge: [u8; CHALLENGE_BYTES]) -> Login {
        let negotiation = Negotiation::new(config.parameters, config.target.is_none());
        let (parts, proposed) = Default::default();
        Login { config, challenge, negotiation, step: Step::Method, parts, requests: 0, proposed }
    }

    /// The first request: flags and text.
    pub fn begin(&mut self) -> (u8, Text) {
        let mut text = Text::default();
        text.push("InitiatorName", &self.config.initiator);
        match &self.config.target {
            Some(target) => {
                text.push("TargetName", target);
                text.push("SessionType", "Normal");
            }
            None => text.push("SessionType", "Discovery"),
        }
        if self.config.chap.is_none() {
            return self.propose(text);
        }
        let methods = if self.config.mutual.is_some() { "CHAP" } else { "CHAP,None" };
        text.push("AuthMethod", methods);
        (0, text)
    }

    fn propose(&mut self, mut text: Text) -> (u8, Text) {
        self.step = Step::Operational;
        let before = text.pairs().count();
        self.negotiation.propose(&mut text);
        self.proposed = text.pairs().skip(before).map(|(key, _)| key.to_owned()).collect();
        (flags::TRANSIT | OPERATIONAL << 2 | FULL_FEATURE, text)
    }

    /// Takes a response.
    pub fn handle(&mut self, header: &Header, data: &[u8]) -> Result<Next, Failure> {
        let Header::LoginResponse { flags: bits, status, version_active, .. } = header else {
            return Err(odd("the target says something else"));
        };
        let text = self.parts.add(data, bits & flags::CONTINUE != 0, TEXT_BYTES_MAX)?;
        match status >> 8 {
            0 => {}
            1 => return Err(self.moved(text.unwrap_or_default())),
            2 => return Err(Failure::Refused(Refusal::Refused(*status))),
            _ => return Err(odd(&format!("the target fails with status {status:#06x}"))),
        }
        if *version_active != 0 {
            return Err(odd("the target speaks another version"));
        }
        self.requests += 1;
        if self.requests > REQUESTS_MAX {
            return Err(odd("it never ends"));
        }
        match text {
            None => Ok(Next::Send(self.stage() << 2, Text::default())),
            Some(text) => self.step(bits & flags::TRANSIT != 0, text),
        }
    }

    fn moved(&self, text: Text) -> Failure {
        match text.value("TargetAddress") {
            Some(address) => Failure::Refused(Refusal::Elsewhere(address.to_owned())),
            None => odd("the target is elsewhere, and does not say where"),
        }
    }

    fn stage(&self) -> u8 {
        if self.step == Step::Operational { OPERATIONAL } else { 0 }
    }

    fn step(&mut self, transits: bool, mut text: Text) -> Result<Next, Failure> {
        match self.step {
            Step::Method => match text.take("AuthMethod").as_deref() {
                Some("CHAP") => {
                    self.step = Step::Algorithms;
                    let mut out = Text::default();
                    out.push("CHAP_A", Algorithm::OFFER);
                    Ok(Next::Send(0, out))
                }
                Some("None") if self.config.mutual.is_none() => Ok(self.leave(transits)),
                _ => Err(Failure::Refused(Refusal::Impostor)),
            },
            Step::Algorithms => self.prove(&mut text),
            Step::Proof(algorithm) => {
                self.verify(algorithm, &mut text)?;
                Ok(self.leave(transits))
            }
            Step::Leaving => Ok(self.leave(transits)),
            Step::Operational => self.agree(transits, &text),
        }
    }

    /// To the operational stage, once the target has agreed to it.
    fn leave(&mut self, transits: bool) -> Next {
        if !transits {
            self.step = Step::Leaving;
            return Next::Send(flags::TRANSIT | OPERATIONAL, Text::default());
        }
        let (flags, text) = self.propose(Text::default());
        Next::Send(flags, text)
    }

    /// Answers the target's challenge, and makes one of our own where it must prove itself.
    fn prove(&mut self, text: &mut Text) -> Result<Next, Failure> {
        let chap = self.config.chap.as_ref().ok_or_else(|| odd("a challenge unasked"))?;
        let algorithm = text.take("CHAP_A").and_then(|number| Algorithm::choose(&number));
        let id = text.take("CHAP_I").and_then(|id| id.parse::<u8>().ok());
        let challenge = text.take("CHAP_C").and_then(|challenge| decode(&challenge));
        let (Some(algorithm), Some(id), Some(challenge)) = (algorithm, id, challenge) else {
            return Err(odd("the challenge is none"));
        };
        let mut out = Text::default();
        out.push("CHAP_N", &chap.name);
        out.push("CHAP_R", encode(&algorithm.response(id, &chap.secret, &challenge)));
        if self.config.mutual.is_some() {
            out.push("CHAP_I", self.challenge[0].to_string());
            out.push("CHAP_C", encode(&self.challenge));
        }
        self.step = Step::Proof(algorithm);
        Ok(Next::Send(flags::TRANSIT | OPERATIONAL, out))
    }

    /// Checks that the target is who it must be.
    fn verify(&mut self, algorithm: Algorithm, text: &mut Text) -> Result<(), Failure> {
        let Some(mutual) = &self.config.mutual else { return Ok(()) };
        let response = text.take("CHAP_R").and_then(|response| decode(&response));
        let expected = algorithm.response(self.challenge[0], &mutual.secret, &self.challenge);
        let is_named = text.take("CHAP_N").is_some_and(|name| name == mutual.name);
        match response {
            Some(response) if is_named && is_same(&expected, &response) => Ok(()),
            //= rfc7143#12.1.3
            // If the target's response is wrong, the initiator MUST close the connection.
            _ => Err(Failure::Refused(Refusal::Impostor)),
        }
    }

    /// Takes what the target answers and declares.
    fn agree(&mut self, transits: bool, text: &Text) -> Result<Next, Failure> {
        let mut out = Text::default();
        for (key, value) in text.pairs() {
            let was_proposed = self.proposed.iter().any(|known| known == key);
            match key {
                "TargetPortalGroupTag" | "TargetAlias" | "TargetAddress" => {}
                _ if was_proposed => {
                    if !self.negotiation.settle(key, value) {
                        return Err(odd(&format!("{key}={value} was not to be had")));
                    }
                }
                _ => {
                    let answer = self.negotiation.answer(key, value);
                    if let Ok(Some(answer)) = answer {
                        out.push(key, answer);
                    }
                }
            }
        }
        if transits && out.is_empty() {
            Ok(Next::Done(self.negotiation.agreed()))
        } else {
            Ok(Next::Send(flags::TRANSIT | OPERATIONAL << 2 | FULL_FEATURE, out))
        }
    }

    /// The header of a request.
    pub fn header(&self, bits: u8, exp_stat_sn: u32, data: &Bytes) -> Header {
        Header::LoginRequest {
            flags: bits,
            version_max: 0,
            version_min: 0,
            lengths: Lengths::of_data(data.len()),
            isid: Array(self.config.isid),
            tsih: 0,
            itt: 0,
            cid: 0,
            reserved: Default::default(),
            cmd_sn: FIRST_CMD_SN,
            exp_stat_sn,
            reserved_2: Default::default(),
        }
    }
}

/// The number of the first command.
pub(super) const FIRST_CMD_SN: u32 = 1;
