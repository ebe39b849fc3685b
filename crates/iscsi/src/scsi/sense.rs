//! Sense data (SPC-5, 4.4): why a command did not end well, or what a nexus must be told first.

use bytes::{BufMut, Bytes};

/// What is said with CHECK CONDITION.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sense {
    pub(super) key: Key,
    /// Additional sense code and its qualifier.
    pub(super) code: u16,
    /// INFORMATION: a block or an offset.
    pub(super) information: Option<u64>,
    /// SENSE-KEY SPECIFIC.
    pub(super) specific: Option<Specific>,
}

/// What the sense-key specific bytes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Specific {
    /// The byte of the CDB in which the first error is.
    Cdb(u16),
    /// The byte of the parameter list in which the first error is.
    Parameter(u16),
    /// How far an operation is, in 65536ths.
    Progress(u16),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(dead_code, reason = "the specification's table is whole")]
pub(super) enum Key {
    NoSense = 0x0,
    RecoveredError = 0x1,
    NotReady = 0x2,
    MediumError = 0x3,
    HardwareError = 0x4,
    IllegalRequest = 0x5,
    UnitAttention = 0x6,
    DataProtect = 0x7,
    CopyAborted = 0xa,
    AbortedCommand = 0xb,
    Miscompare = 0xe,
}

impl Sense {
    pub(super) const fn new(key: Key, code: u16) -> Sense {
        Sense { key, code, information: None, specific: None }
    }

    /// A unit attention.
    pub(super) const fn attention(code: u16) -> Sense {
        Sense::new(Key::UnitAttention, code)
    }

    /// INVALID FIELD IN CDB, in this byte.
    pub(super) const fn cdb(byte: u16) -> Sense {
        Sense {
            specific: Some(Specific::Cdb(byte)),
            ..Sense::new(Key::IllegalRequest, code::INVALID_FIELD_IN_CDB)
        }
    }

    /// INVALID FIELD IN PARAMETER LIST, in this byte.
    pub(super) const fn parameter(byte: u16) -> Sense {
        Sense {
            specific: Some(Specific::Parameter(byte)),
            ..Sense::new(Key::IllegalRequest, code::INVALID_FIELD_IN_PARAMETER_LIST)
        }
    }

    pub(super) const fn with_information(self, information: u64) -> Sense {
        Sense { information: Some(information), ..self }
    }

    /// As bytes, in fixed or in descriptor format.
    pub(super) fn encode(&self, is_descriptor: bool) -> Bytes {
        if is_descriptor { self.descriptors() } else { self.fixed() }
    }

    fn fixed(&self) -> Bytes {
        let information = self.information.and_then(|value| u32::try_from(value).ok());
        let mut out = Vec::with_capacity(18);
        out.put_u8(if information.is_some() { 0xf0 } else { 0x70 });
        out.put_u8(0);
        out.put_u8(self.key as u8);
        out.put_u32(information.unwrap_or(0));
        out.put_u8(10);
        out.put_u32(0);
        out.put_u16(self.code);
        out.put_u8(0);
        out.extend(self.specific_bytes());
        out.into()
    }

    fn descriptors(&self) -> Bytes {
        let mut out = vec![0x72, self.key as u8];
        out.put_u16(self.code);
        out.extend([0; 4]);
        if let Some(information) = self.information {
            out.extend([0x00, 0x0a, 0x80, 0x00]);
            out.put_u64(information);
        }
        if self.specific.is_some() {
            out.extend([0x02, 0x06, 0, 0]);
            out.extend(self.specific_bytes());
            out.put_u8(0);
        }
        out[7] = u8::try_from(out.len() - 8).expect("a few descriptors");
        out.into()
    }

    fn specific_bytes(&self) -> [u8; 3] {
        let (first, value) = match self.specific {
            None => (0, 0),
            Some(Specific::Cdb(byte)) => (0xc0, byte),
            Some(Specific::Parameter(byte)) => (0x80, byte),
            Some(Specific::Progress(part)) => (0x80, part),
        };
        [first, (value >> 8) as u8, value as u8]
    }
}

/// Additional sense codes and qualifiers, by the specification's names.
pub(super) mod code {
    pub const NONE: u16 = 0x0000;
    pub const SANITIZE_IN_PROGRESS: u16 = 0x041b;
    pub const UNREACHABLE_COPY_TARGET: u16 = 0x0804;
    pub const WRITE_ERROR: u16 = 0x0c00;
    pub const INVALID_FIELD_IN_INFORMATION_UNIT: u16 = 0x0e03;
    pub const UNRECOVERED_READ_ERROR: u16 = 0x1100;
    pub const PARAMETER_LIST_LENGTH_ERROR: u16 = 0x1a00;
    pub const MISCOMPARE_DURING_VERIFY: u16 = 0x1d00;
    pub const INVALID_OPERATION_CODE: u16 = 0x2000;
    pub const LBA_OUT_OF_RANGE: u16 = 0x2100;
    pub const LOGICAL_UNIT_NOT_SUPPORTED: u16 = 0x2500;
    pub const INVALID_FIELD_IN_CDB: u16 = 0x2400;
    pub const INVALID_FIELD_IN_PARAMETER_LIST: u16 = 0x2600;
    pub const TOO_MANY_TARGET_DESCRIPTORS: u16 = 0x2606;
    pub const UNSUPPORTED_TARGET_DESCRIPTOR: u16 = 0x2607;
    pub const TOO_MANY_SEGMENT_DESCRIPTORS: u16 = 0x2608;
    pub const UNSUPPORTED_SEGMENT_DESCRIPTOR: u16 = 0x2609;
    pub const INVALID_RELEASE_OF_PERSISTENT_RESERVATION: u16 = 0x2604;
    pub const HARDWARE_WRITE_PROTECTED: u16 = 0x2701;
    pub const SOFTWARE_WRITE_PROTECTED: u16 = 0x2702;
    pub const SPACE_ALLOCATION_FAILED: u16 = 0x2707;
    pub const MEDIUM_MAY_HAVE_CHANGED: u16 = 0x2800;
    pub const POWER_ON_OR_RESET: u16 = 0x2900;
    pub const LOGICAL_UNIT_RESET: u16 = 0x2903;
    pub const MODE_PARAMETERS_CHANGED: u16 = 0x2a01;
    pub const RESERVATIONS_PREEMPTED: u16 = 0x2a03;
    pub const RESERVATIONS_RELEASED: u16 = 0x2a04;
    pub const REGISTRATIONS_PREEMPTED: u16 = 0x2a05;
    pub const CAPACITY_DATA_HAS_CHANGED: u16 = 0x2a09;
    pub const COMMANDS_CLEARED_BY_ANOTHER_INITIATOR: u16 = 0x2f00;
    pub const SANITIZE_FAILED: u16 = 0x3103;
    pub const MEDIUM_NOT_PRESENT: u16 = 0x3a00;
    pub const INTERNAL_TARGET_FAILURE: u16 = 0x4400;
    pub const LOGICAL_UNIT_COMMUNICATION_FAILURE: u16 = 0x0800;
    pub const MEDIUM_REMOVAL_PREVENTED: u16 = 0x5302;
    pub const INSUFFICIENT_REGISTRATION_RESOURCES: u16 = 0x5504;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_sense_says_where_the_error_is() {
        let sense = Sense::cdb(2).encode(false);
        assert_eq!(sense[..], [0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x24, 0, 0, 0xc0, 0, 2]);
        let sense =
            Sense::new(Key::Miscompare, code::MISCOMPARE_DURING_VERIFY).with_information(0x102);
        assert_eq!(sense.encode(false)[..8], [0xf0, 0, 0xe, 0, 0, 1, 2, 10]);
    }

    #[test]
    fn descriptor_sense_has_a_descriptor_for_each_thing_said() {
        let sense = Sense::parameter(7).with_information(1 << 40).encode(true);
        assert_eq!(
            sense[..],
            [
                0x72, 5, 0x26, 0, 0, 0, 0, 20, 0, 10, 0x80, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2, 6, 0, 0,
                0x80, 0, 7, 0
            ]
        );
    }
}
