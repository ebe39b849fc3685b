//! Texts of the full feature phase: which targets there are (RFC 7143, sections 11.10, 11.11 and appendix C).

use super::connection::Wire;
use super::full_feature::Link;
use super::{Access, Arrival, Device, Portal, Target};
use crate::message::{Header, NO_TAG, flags, reject};
use crate::negotiate::Negotiation;
use crate::pdu::{self, Pdu};
use crate::text::{Collected, NOT_UNDERSTOOD, REJECT, Text};
use covey_wire::{Bytes, Payload};
use std::sync::Arc;

/// Most bytes of one text.
const TEXT_BYTES_MAX: usize = 16 << 10;

/// The texts of a connection.
pub(super) struct Texts<D: Device> {
    portal: Arc<Portal<D>>,
    arrival: Arrival,
    parts: Collected,
    /// What of the answer has not been sent.
    rest: Bytes,
    itt: u32,
}

impl<D: Device> Texts<D> {
    pub fn new(portal: Arc<Portal<D>>, arrival: Arrival) -> Texts<D> {
        let (parts, rest) = Default::default();
        Texts { portal, arrival, parts, rest, itt: NO_TAG }
    }

    /// Answers a text. An error is the reason of a Reject.
    pub fn handle(&mut self, link: &mut Link<D>, wire: &mut Wire, pdu: &Pdu) -> Result<(), u8> {
        let Ok(Header::TextRequest { flags: bits, itt, ttt, .. }) = pdu.header else {
            return Err(reject::PROTOCOL);
        };
        let is_continued = bits & flags::CONTINUE != 0;
        if is_continued && bits & flags::FINAL != 0 {
            return Err(reject::PROTOCOL);
        }
        //= rfc7143#11.10.4
        // A text with a reserved transfer tag begins anew: what was under way is forgotten.
        if ttt == NO_TAG {
            (self.parts, self.rest, self.itt) = (Collected::default(), Bytes::new(), itt);
        } else if itt != self.itt {
            return Err(reject::PROTOCOL);
        }
        if self.rest.is_empty() {
            let text = self.parts.add(&pdu.data, is_continued, TEXT_BYTES_MAX);
            if let Some(text) = text.map_err(|_| reject::PROTOCOL)? {
                //= rfc7143#6.1
                // The same key MUST NOT be sent twice: the answer would be many times the question.
                if text.repeated().is_some() {
                    return Err(reject::PROTOCOL);
                }
                self.rest = self.answer(link, &text).to_bytes();
            }
        }
        self.send(link, wire, is_continued);
        Ok(())
    }

    fn answer(&self, link: &mut Link<D>, text: &Text) -> Text {
        let mut out = Text::default();
        for (key, value) in text.pairs() {
            match key {
                "SendTargets" => self.send_targets(link, value, &mut out),
                //= rfc7143#13.12
                // What this side may be sent in one PDU can change at any time.
                "MaxRecvDataSegmentLength" => {
                    let mut negotiation = Negotiation::new(link.parameters, false);
                    match negotiation.answer(key, value) {
                        Ok(None) => {
                            link.parameters.segment_bytes_max =
                                negotiation.agreed().segment_bytes_max;
                        }
                        _ => out.push(key, REJECT),
                    }
                }
                _ => out.push(key, NOT_UNDERSTOOD),
            }
        }
        out
    }

    fn send_targets(&self, link: &Link<D>, which: &str, out: &mut Text) {
        let initiator = &link.session.nexus.initiator;
        let own = link.session.target.as_ref();
        //= rfc7143#appendix-C
        // All targets are named in discovery sessions only; elsewhere nothing but the session's own.
        let named = match (which, own) {
            ("All", None) => self.portal.targets(),
            ("All", Some(_)) => return out.push("SendTargets", REJECT),
            ("", own) => own.into_iter().cloned().collect(),
            (name, None) => self.portal.target(name).into_iter().collect(),
            (name, Some(own)) => {
                own.name.eq_ignore_ascii_case(name).then(|| own.clone()).into_iter().collect()
            }
        };
        let is_admitted = |access: &Access| access.admits(initiator, &self.arrival);
        for target in named.iter().filter(|target| target.look(|it| is_admitted(&it.access))) {
            self.describe(target, out);
        }
    }

    fn describe(&self, target: &Target<D>, out: &mut Text) {
        out.push("TargetName", &target.name);
        let group = target.portal_group;
        let mut addresses = target.look(|it| it.addresses.clone());
        //= rfc7143#appendix-C
        // A target without an address is at the one that the initiator has come to: so it is where that cannot be said.
        if addresses.is_empty() && !self.arrival.local.is_empty() {
            addresses.push(self.arrival.local.clone());
        }
        for address in addresses {
            out.push("TargetAddress", format!("{address},{group}"));
        }
    }

    /// Sends as much of the answer as fits into one PDU.
    fn send(&mut self, link: &Link<D>, wire: &mut Wire, wants_more: bool) {
        let most = self.rest.len().min(link.parameters.segment_bytes_max as usize);
        let data = Payload::from(self.rest.split_to(most));
        let has_more = !self.rest.is_empty();
        let window = link.session.window();
        //= rfc7143#11.11.4
        // While the text is not over, a transfer tag is to be copied into the next request.
        let is_over = !has_more && !wants_more;
        let header = Header::TextResponse {
            flags: if has_more {
                flags::CONTINUE
            } else if is_over {
                flags::FINAL
            } else {
                0
            },
            reserved: Default::default(),
            lengths: pdu::lengths(&data),
            lun: 0,
            itt: self.itt,
            ttt: if is_over { NO_TAG } else { self.itt & 0x7fff_ffff },
            stat_sn: wire.next_stat_sn(),
            exp_cmd_sn: window.exp_cmd_sn,
            max_cmd_sn: window.max_cmd_sn,
            reserved_2: Default::default(),
        };
        wire.put_with_data(&header, &data);
    }
}
