//! The operational keys: what each side wants, and what both agree on (RFC 7143, sections 6.2 and 13).

use crate::text::{IRRELEVANT, NOT_UNDERSTOOD, REJECT};
use std::ops::RangeInclusive;

/// Values of the operational keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// HeaderDigest: CRC32C, and whether this side insists.
    pub header_digest: Digest,
    /// DataDigest: CRC32C, and whether this side insists.
    pub data_digest: Digest,
    /// MaxConnections of a session.
    pub connections_max: u32,
    /// InitialR2T: data that is not immediate waits to be asked for.
    pub initial_r2t: bool,
    /// ImmediateData: commands carry data.
    pub immediate_data: bool,
    /// MaxRecvDataSegmentLength of who declares it, in bytes.
    pub segment_bytes_max: u32,
    /// MaxBurstLength, in bytes.
    pub burst_bytes_max: u32,
    /// FirstBurstLength: unsolicited data of a command, in bytes.
    pub first_burst_bytes_max: u32,
    /// DefaultTime2Wait, in seconds.
    pub time2wait: u32,
    /// DefaultTime2Retain, in seconds.
    pub time2retain: u32,
    /// MaxOutstandingR2T of a command.
    pub r2t_max: u32,
    /// DataPDUInOrder.
    pub pdu_in_order: bool,
    /// DataSequenceInOrder.
    pub sequence_in_order: bool,
    /// ErrorRecoveryLevel.
    pub error_recovery_level: u32,
}

/// How much a digest is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Digest {
    /// None.
    No,
    /// CRC32C where the peer wants it.
    Allowed,
    /// CRC32C, rather than none where the peer has a choice.
    Preferred,
    /// CRC32C or nothing.
    Required,
}

impl Parameters {
    /// What holds where nothing is said (section 13).
    pub const DEFAULT: Parameters = Parameters {
        header_digest: Digest::No,
        data_digest: Digest::No,
        connections_max: 1,
        initial_r2t: true,
        immediate_data: true,
        segment_bytes_max: 8192,
        burst_bytes_max: 262_144,
        first_burst_bytes_max: 65_536,
        time2wait: 2,
        time2retain: 20,
        r2t_max: 1,
        pdu_in_order: true,
        sequence_in_order: true,
        error_recovery_level: 0,
    };

    /// What this project's target agrees to. A session is never kept for a connection that is lost: at level 0 nobody
    /// could go on with it.
    pub const TARGET: Parameters = Parameters {
        header_digest: Digest::Allowed,
        data_digest: Digest::Allowed,
        connections_max: 8,
        initial_r2t: false,
        immediate_data: true,
        segment_bytes_max: 1 << 20,
        burst_bytes_max: 16_776_192,
        first_burst_bytes_max: 1 << 20,
        time2wait: 0,
        time2retain: 0,
        r2t_max: 8,
        pdu_in_order: true,
        sequence_in_order: true,
        error_recovery_level: 0,
    };

    /// What this project's initiator proposes.
    pub const INITIATOR: Parameters = Parameters { connections_max: 1, ..Parameters::TARGET };

    /// Whether headers carry digests.
    pub fn has_header_digest(&self) -> bool {
        self.header_digest == Digest::Required
    }

    /// Whether data carries digests.
    pub fn has_data_digest(&self) -> bool {
        self.data_digest == Digest::Required
    }
}

/// How the values of two sides become one.
#[derive(Clone, Copy)]
enum Rule {
    /// A list, of which the first that both know counts.
    Digest(fn(&mut Parameters) -> &mut Digest),
    /// Yes where both say so.
    And(fn(&mut Parameters) -> &mut bool),
    /// Yes where one says so.
    Or(fn(&mut Parameters) -> &mut bool),
    /// The smaller one.
    Least(fn(&mut Parameters) -> &mut u32, Range),
    /// The larger one.
    Most(fn(&mut Parameters) -> &mut u32, Range),
    /// Each side has its own.
    Declared(fn(&mut Parameters) -> &mut u32, Range),
    /// Gone from the protocol: only this answer is left.
    Obsolete(&'static str),
    /// Choosing RFC 3720's way of reporting tasks is all we do.
    TaskReporting,
}

#[derive(Clone, Copy)]
struct Range(u32, u32);

impl Range {
    fn holds(self) -> RangeInclusive<u32> {
        self.0..=self.1
    }
}

struct Key {
    name: &'static str,
    rule: Rule,
    /// Whether it means something in a discovery session.
    in_discovery: bool,
}

const fn key(name: &'static str, rule: Rule) -> Key {
    Key { name, rule, in_discovery: false }
}

const fn common(name: &'static str, rule: Rule) -> Key {
    Key { name, rule, in_discovery: true }
}

/// A length in bytes (13.12 to 13.14).
const LENGTH: Range = Range(512, 0x00ff_ffff);
/// Seconds (13.15, 13.16).
const SECONDS: Range = Range(0, 3600);
/// A count (13.2, 13.17).
const COUNT: Range = Range(1, 65_535);

const KEYS: [Key; 19] = [
    common("HeaderDigest", Rule::Digest(|p| &mut p.header_digest)),
    common("DataDigest", Rule::Digest(|p| &mut p.data_digest)),
    key("MaxConnections", Rule::Least(|p| &mut p.connections_max, COUNT)),
    key("InitialR2T", Rule::Or(|p| &mut p.initial_r2t)),
    key("ImmediateData", Rule::And(|p| &mut p.immediate_data)),
    common("MaxRecvDataSegmentLength", Rule::Declared(|p| &mut p.segment_bytes_max, LENGTH)),
    key("MaxBurstLength", Rule::Least(|p| &mut p.burst_bytes_max, LENGTH)),
    key("FirstBurstLength", Rule::Least(|p| &mut p.first_burst_bytes_max, LENGTH)),
    common("DefaultTime2Wait", Rule::Most(|p| &mut p.time2wait, SECONDS)),
    common("DefaultTime2Retain", Rule::Least(|p| &mut p.time2retain, SECONDS)),
    key("MaxOutstandingR2T", Rule::Least(|p| &mut p.r2t_max, COUNT)),
    key("DataPDUInOrder", Rule::Or(|p| &mut p.pdu_in_order)),
    key("DataSequenceInOrder", Rule::Or(|p| &mut p.sequence_in_order)),
    //= rfc7143#13.20
    // The smaller level counts, so that who wants 1 or 2 is answered 0.
    common("ErrorRecoveryLevel", Rule::Least(|p| &mut p.error_recovery_level, Range(0, 2))),
    key("TaskReporting", Rule::TaskReporting),
    //= rfc7143#13.25
    // Markers may be answered No; their intervals MUST be answered Reject.
    common("IFMarker", Rule::Obsolete("No")),
    common("OFMarker", Rule::Obsolete("No")),
    common("IFMarkInt", Rule::Obsolete(REJECT)),
    common("OFMarkInt", Rule::Obsolete(REJECT)),
];

/// One side's part in a negotiation.
#[derive(Clone, Debug)]
pub struct Negotiation {
    ours: Parameters,
    /// What has been agreed on; `segment_bytes_max` is the peer's.
    agreed: Parameters,
    is_discovery: bool,
    /// Keys that the peer has named: none twice (6.2).
    named: Vec<&'static str>,
}

impl Negotiation {
    /// Before anything is said.
    pub fn new(ours: Parameters, is_discovery: bool) -> Negotiation {
        Negotiation { ours, agreed: Parameters::DEFAULT, is_discovery, named: Vec::new() }
    }

    /// What has been agreed on so far; `segment_bytes_max` is the peer's.
    pub fn agreed(&self) -> Parameters {
        self.agreed
    }

    /// Answers what the peer proposes: the value to send back, or none for what is only declared. `Err` where the peer
    /// may not say this again.
    pub fn answer(&mut self, name: &str, value: &str) -> Result<Option<String>, Repeated> {
        let Some(key) = KEYS.iter().find(|key| key.name == name) else {
            //= rfc7143#6.2
            // A key that is not understood MUST be answered so.
            return Ok(Some(NOT_UNDERSTOOD.into()));
        };
        //= rfc7143#6.2
        // Neither side may declare or negotiate a parameter more than once in a login.
        if self.named.contains(&key.name) {
            return Err(Repeated);
        }
        self.named.push(key.name);
        if self.is_discovery && !key.in_discovery {
            return Ok(Some(IRRELEVANT.into()));
        }
        Ok(settle(key.rule, value, &mut self.ours, &mut self.agreed))
    }

    /// Takes the peer's answer to what this side proposed. False where it is none that fits.
    pub fn settle(&mut self, name: &str, value: &str) -> bool {
        let Some(key) = KEYS.iter().find(|key| key.name == name) else { return false };
        if matches!(value, IRRELEVANT | NOT_UNDERSTOOD | REJECT) {
            return matches!(key.rule, Rule::TaskReporting | Rule::Obsolete(_))
                || self.is_discovery;
        }
        // The answer is within what was proposed: then settling once more changes nothing.
        let answer = settle(key.rule, value, &mut self.ours, &mut self.agreed);
        answer.is_none_or(|same| same == value)
    }

    /// Appends what an initiator proposes.
    pub fn propose(&mut self, out: &mut crate::text::Text) {
        for key in KEYS.iter().filter(|key| key.in_discovery || !self.is_discovery) {
            let value = match key.rule {
                Rule::Digest(field) => match field(&mut self.ours) {
                    Digest::No => "None".into(),
                    Digest::Allowed => "None,CRC32C".into(),
                    Digest::Preferred => "CRC32C,None".into(),
                    Digest::Required => "CRC32C".into(),
                },
                Rule::And(field) | Rule::Or(field) => yes_no(*field(&mut self.ours)).into(),
                Rule::Least(field, _) | Rule::Most(field, _) | Rule::Declared(field, _) => {
                    field(&mut self.ours).to_string()
                }
                Rule::Obsolete(_) | Rule::TaskReporting => continue,
            };
            out.push(key.name, value);
        }
    }
}

/// The peer named a key twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeated;

fn settle(
    rule: Rule,
    value: &str,
    ours: &mut Parameters,
    agreed: &mut Parameters,
) -> Option<String> {
    let answer = match rule {
        Rule::Digest(field) => digest(value, *field(ours)).map(|chosen| {
            *field(agreed) = if chosen { Digest::Required } else { Digest::No };
            if chosen { "CRC32C".to_owned() } else { "None".to_owned() }
        }),
        Rule::And(field) => boolean(value).map(|theirs| {
            *field(agreed) = theirs && *field(ours);
            yes_no(*field(agreed)).to_owned()
        }),
        Rule::Or(field) => boolean(value).map(|theirs| {
            *field(agreed) = theirs || *field(ours);
            yes_no(*field(agreed)).to_owned()
        }),
        Rule::Least(field, range) => number(value, range).map(|theirs| {
            *field(agreed) = theirs.min(*field(ours));
            field(agreed).to_string()
        }),
        Rule::Most(field, range) => number(value, range).map(|theirs| {
            *field(agreed) = theirs.max(*field(ours));
            field(agreed).to_string()
        }),
        Rule::Declared(field, range) => match number(value, range) {
            Some(theirs) => {
                *field(agreed) = theirs;
                return None;
            }
            None => None,
        },
        Rule::Obsolete(answer) => Some(answer.to_owned()),
        Rule::TaskReporting => {
            let knows = value.split(',').any(|method| method == "RFC3720");
            knows.then(|| "RFC3720".to_owned())
        }
    };
    //= rfc7143#6.2
    // An offer that cannot be accepted is answered Reject, and what held before goes on.
    Some(answer.unwrap_or_else(|| REJECT.to_owned()))
}

/// Whether CRC32C is chosen from the peer's list; `None` where nothing in it will do.
fn digest(offered: &str, ours: Digest) -> Option<bool> {
    let takes = |choice: &str| match choice {
        "CRC32C" => (ours != Digest::No).then_some(true),
        "None" => (ours != Digest::Required).then_some(false),
        _ => None,
    };
    //= rfc7143#6.2.1
    // The responder MUST answer with the first value that it supports.
    offered.split(',').find_map(takes)
}

fn boolean(value: &str) -> Option<bool> {
    match value {
        "Yes" => Some(true),
        "No" => Some(false),
        _ => None,
    }
}

fn yes_no(value: bool) -> &'static str {
    if value { "Yes" } else { "No" }
}

/// A number, decimal or hexadecimal (6.1), within `range`.
fn number(value: &str, range: Range) -> Option<u32> {
    let hexadecimal = value.strip_prefix("0x").or_else(|| value.strip_prefix("0X"));
    let (digits, radix) = hexadecimal.map_or((value, 10), |digits| (digits, 16));
    let is_number = digits.starts_with(|digit: char| digit.is_digit(radix));
    let number = u32::from_str_radix(digits, radix).ok().filter(|_| is_number)?;
    range.holds().contains(&number).then_some(number)
}

#[cfg(test)]
mod tests;
