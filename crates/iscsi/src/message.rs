//! The table of iSCSI's protocol data units: the 48 bytes of each basic header segment, RFC 7143, section 11.
//!
//! Numbers are the opcodes, without the bit of immediate delivery; fields stand in the order of the wire, behind the byte of the
//! opcode. Integers are big-endian. What follows a header (additional headers, digests, data) is cut by [`crate::pdu`].

use covey_wire::{BigEndian, Blame, Field, Reader, messages};

/// Bytes of a basic header segment (RFC 7143, 11.2.1).
pub const HEADER_BYTES: usize = 48;
/// The bit of the first byte that asks for immediate delivery (11.2.1.1).
pub const IMMEDIATE: u8 = 0x40;
/// The bits of the first byte that are the opcode (11.2.1.2).
pub const OPCODE: u8 = 0x3f;
/// What a task tag or transfer tag holds when there is none (11.2.1.8, 11.7.4).
pub const NO_TAG: u32 = 0xffff_ffff;

messages! {
    /// A basic header segment.
    pub enum Header for BigEndian {
        /// from the initiator: a ping, or the answer to one (11.18)
        0x00 NopOut {
            flags: u8, reserved: Zero<2>, lengths: Lengths, lun: u64, itt: u32, ttt: u32,
            cmd_sn: u32, exp_stat_sn: u32, reserved_2: Zero<16>,
        },
        /// a SCSI command (11.3)
        0x01 ScsiCommand {
            flags: u8, reserved: Zero<2>, lengths: Lengths, lun: u64, itt: u32, expected_bytes: u32,
            cmd_sn: u32, exp_stat_sn: u32, cdb: Array<16>,
        },
        /// a task management function (11.5)
        0x02 TaskRequest {
            function: u8, reserved: Zero<2>, lengths: Lengths, lun: u64, itt: u32, referenced_itt: u32,
            cmd_sn: u32, exp_stat_sn: u32, ref_cmd_sn: u32, exp_data_sn: u32, reserved_2: Zero<8>,
        },
        /// asks to log in (11.12)
        0x03 LoginRequest {
            flags: u8, version_max: u8, version_min: u8, lengths: Lengths, isid: Array<6>, tsih: u16, itt: u32,
            cid: u16, reserved: Zero<2>, cmd_sn: u32, exp_stat_sn: u32, reserved_2: Zero<16>,
        },
        /// keys and values (11.10)
        0x04 TextRequest {
            flags: u8, reserved: Zero<2>, lengths: Lengths, lun: u64, itt: u32, ttt: u32,
            cmd_sn: u32, exp_stat_sn: u32, reserved_2: Zero<16>,
        },
        /// data of the initiator (11.7)
        0x05 DataOut {
            flags: u8, reserved: Zero<2>, lengths: Lengths, lun: u64, itt: u32, ttt: u32, reserved_2: Zero<4>,
            exp_stat_sn: u32, reserved_3: Zero<4>, data_sn: u32, offset: u32, reserved_4: Zero<4>,
        },
        /// ends a session or a connection (11.14)
        0x06 LogoutRequest {
            reason: u8, reserved: Zero<2>, lengths: Lengths, reserved_2: Zero<8>, itt: u32, cid: u16,
            reserved_3: Zero<2>, cmd_sn: u32, exp_stat_sn: u32, reserved_4: Zero<16>,
        },
        /// asks for something again, or acknowledges data (11.16)
        0x10 Snack {
            flags: u8, reserved: Zero<2>, lengths: Lengths, lun: u64, itt: u32, ttt: u32, reserved_2: Zero<4>,
            exp_stat_sn: u32, reserved_3: Zero<8>, begin: u32, run: u32,
        },
        /// from the target: a ping, or the answer to one (11.19)
        0x20 NopIn {
            flags: u8, reserved: Zero<2>, lengths: Lengths, lun: u64, itt: u32, ttt: u32,
            stat_sn: u32, exp_cmd_sn: u32, max_cmd_sn: u32, reserved_2: Zero<12>,
        },
        /// how a SCSI command ended (11.4)
        0x21 ScsiResponse {
            flags: u8, response: u8, status: u8, lengths: Lengths, reserved: Zero<8>, itt: u32, snack_tag: u32,
            stat_sn: u32, exp_cmd_sn: u32, max_cmd_sn: u32, exp_data_sn: u32, bidi_residual: u32, residual: u32,
        },
        /// how a task management function ended (11.6)
        0x22 TaskResponse {
            flags: u8, response: u8, reserved: Zero<1>, lengths: Lengths, reserved_2: Zero<8>, itt: u32,
            reserved_3: Zero<4>, stat_sn: u32, exp_cmd_sn: u32, max_cmd_sn: u32, reserved_4: Zero<12>,
        },
        /// how far a login got (11.13)
        0x23 LoginResponse {
            flags: u8, version_max: u8, version_active: u8, lengths: Lengths, isid: Array<6>, tsih: u16, itt: u32,
            reserved: Zero<4>, stat_sn: u32, exp_cmd_sn: u32, max_cmd_sn: u32, status: u16, reserved_2: Zero<10>,
        },
        /// keys and values (11.11)
        0x24 TextResponse {
            flags: u8, reserved: Zero<2>, lengths: Lengths, lun: u64, itt: u32, ttt: u32,
            stat_sn: u32, exp_cmd_sn: u32, max_cmd_sn: u32, reserved_2: Zero<12>,
        },
        /// data for the initiator, with the status where it is the last (11.7)
        0x25 DataIn {
            flags: u8, reserved: Zero<1>, status: u8, lengths: Lengths, lun: u64, itt: u32, ttt: u32,
            stat_sn: u32, exp_cmd_sn: u32, max_cmd_sn: u32, data_sn: u32, offset: u32, residual: u32,
        },
        /// a session or a connection ends (11.15)
        0x26 LogoutResponse {
            flags: u8, response: u8, reserved: Zero<1>, lengths: Lengths, reserved_2: Zero<8>, itt: u32,
            reserved_3: Zero<4>, stat_sn: u32, exp_cmd_sn: u32, max_cmd_sn: u32, reserved_4: Zero<4>,
            time2wait: u16, time2retain: u16, reserved_5: Zero<4>,
        },
        /// asks for data of the initiator: ready to transfer (11.8)
        0x31 R2t {
            flags: u8, reserved: Zero<2>, lengths: Lengths, lun: u64, itt: u32, ttt: u32,
            stat_sn: u32, exp_cmd_sn: u32, max_cmd_sn: u32, r2t_sn: u32, offset: u32, desired_bytes: u32,
        },
        /// something happened that nobody asked about (11.9)
        0x32 Async {
            flags: u8, reserved: Zero<2>, lengths: Lengths, lun: u64, itt: u32, reserved_2: Zero<4>,
            stat_sn: u32, exp_cmd_sn: u32, max_cmd_sn: u32, event: u8, vendor_code: u8,
            parameter_1: u16, parameter_2: u16, parameter_3: u16, reserved_3: Zero<4>,
        },
        /// a PDU is refused; its header follows as data (11.17)
        0x3f Reject {
            flags: u8, reason: u8, reserved: Zero<1>, lengths: Lengths, reserved_2: Zero<8>, itt: u32,
            reserved_3: Zero<4>, stat_sn: u32, exp_cmd_sn: u32, max_cmd_sn: u32, data_sn: u32, reserved_4: Zero<8>,
        },
    }
}

/// Bits of the second byte, named after the PDU that has them.
pub mod flags {
    /// The last PDU of a sequence (11.2.1.3, 11.7.1).
    pub const FINAL: u8 = 0x80;
    /// Text and login: more of the same text follows (11.10.2, 11.12.2).
    pub const CONTINUE: u8 = 0x40;
    /// Login: to the next stage (11.12.1).
    pub const TRANSIT: u8 = 0x80;
    /// SCSI Command: data comes from the target (11.3.1).
    pub const READ: u8 = 0x40;
    /// SCSI Command: data goes to the target (11.3.1).
    pub const WRITE: u8 = 0x20;
    /// Data-In: data is to be acknowledged (11.7.2).
    pub const ACKNOWLEDGE: u8 = 0x40;
    /// SCSI Response and Data-In: more bytes than the initiator has room for (11.4.1).
    pub const OVERFLOW: u8 = 0x04;
    /// SCSI Response and Data-In: fewer bytes than the initiator expected (11.4.1).
    pub const UNDERFLOW: u8 = 0x02;
    /// Data-In: a status stands in it (11.7.3).
    pub const STATUS: u8 = 0x01;
}

/// TotalAHSLength and DataSegmentLength (11.2.1.5, 11.2.1.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lengths {
    /// Four-byte words of additional headers.
    pub ahs_words: u8,
    /// Bytes of data, without padding: 24 bits.
    pub data: u32,
}

impl Lengths {
    /// No additional headers, and so many bytes of data.
    pub fn of_data(bytes: usize) -> Lengths {
        assert!(bytes < 1 << 24, "a data segment of {bytes} bytes");
        Lengths { ahs_words: 0, data: bytes as u32 }
    }
}

impl Field<BigEndian> for Lengths {
    fn size(&self, _: BigEndian) -> usize {
        4
    }
    fn put(&self, c: BigEndian, out: &mut Vec<u8>) {
        Field::put(&(u32::from(self.ahs_words) << 24 | self.data), c, out);
    }
    fn get(c: BigEndian, from: &mut Reader) -> Result<Self, Blame> {
        let both = <u32 as Field<BigEndian>>::get(c, from)?;
        Ok(Lengths { ahs_words: (both >> 24) as u8, data: both & 0x00ff_ffff })
    }
}

/// Reserved bytes: zero where they are sent, and of no meaning where they come (11.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Zero<const N: usize>;

impl<const N: usize> Field<BigEndian> for Zero<N> {
    fn size(&self, _: BigEndian) -> usize {
        N
    }
    fn put(&self, _: BigEndian, out: &mut Vec<u8>) {
        out.extend_from_slice(&[0; N]);
    }
    fn get(_: BigEndian, from: &mut Reader) -> Result<Self, Blame> {
        from.bytes(N).map(|_| Zero)
    }
}

/// Bytes as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Array<const N: usize>(pub [u8; N]);

impl<const N: usize> Field<BigEndian> for Array<N> {
    fn size(&self, _: BigEndian) -> usize {
        N
    }
    fn put(&self, _: BigEndian, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
    fn get(_: BigEndian, from: &mut Reader) -> Result<Self, Blame> {
        let bytes = from.bytes(N)?;
        Ok(Array(bytes.as_ref().try_into().expect("so many were taken")))
    }
}

impl Header {
    /// Appends the 48 bytes.
    pub fn put(&self, is_immediate: bool, out: &mut Vec<u8>) {
        out.push(self.number() | if is_immediate { IMMEDIATE } else { 0 });
        self.put_body(BigEndian, out);
    }

    /// The header in 48 bytes, and whether it is for immediate delivery.
    pub fn take(bytes: covey_wire::Bytes) -> Result<(bool, Header), Blame> {
        let mut from = Reader::new(bytes);
        let first = from.u8()?;
        let header = Header::take_body(first & OPCODE, BigEndian, &mut from)?;
        from.finish()?;
        Ok((first & IMMEDIATE != 0, header))
    }
}

/// Events of asynchronous messages (11.9.1).
pub mod event {
    /// The target wants a logout within Parameter3 seconds.
    pub const LOGOUT: u8 = 1;
    /// The target has ended a connection.
    pub const CONNECTION_DROPPED: u8 = 2;
    /// The target has ended all connections of the session.
    pub const SESSION_DROPPED: u8 = 3;
}

/// Reasons of a Reject (11.17.1).
pub mod reject {
    /// The data digest is wrong.
    pub const DATA_DIGEST: u8 = 0x02;
    /// The level of error recovery has no SNACK.
    pub const SNACK: u8 = 0x03;
    /// The PDU breaks the protocol.
    pub const PROTOCOL: u8 = 0x04;
    /// This side does not know such a PDU.
    pub const UNSUPPORTED: u8 = 0x05;
    /// Too many commands for immediate delivery.
    pub const IMMEDIATE: u8 = 0x06;
    /// A task of this tag is in progress.
    pub const TASK_IN_PROGRESS: u8 = 0x07;
    /// A field of the PDU is invalid.
    pub const INVALID: u8 = 0x09;
}

/// Statuses of a login response: class and detail (11.13.5).
pub mod login {
    /// On it goes.
    pub const SUCCESS: u16 = 0x0000;
    /// The target is at another address for now.
    pub const MOVED_TEMPORARILY: u16 = 0x0101;
    /// The target is at another address for good.
    pub const MOVED: u16 = 0x0102;
    /// Something of the initiator is wrong.
    pub const INITIATOR_ERROR: u16 = 0x0200;
    /// The initiator is not who it says it is.
    pub const AUTHENTICATION: u16 = 0x0201;
    /// The initiator may not use this target.
    pub const AUTHORIZATION: u16 = 0x0202;
    /// There is no such target.
    pub const NOT_FOUND: u16 = 0x0203;
    /// No version of the protocol is common.
    pub const VERSION: u16 = 0x0205;
    /// The session has as many connections as it may.
    pub const TOO_MANY_CONNECTIONS: u16 = 0x0206;
    /// A name is missing.
    pub const MISSING: u16 = 0x0207;
    /// Nobody is here for this kind of session.
    pub const SESSION_TYPE: u16 = 0x0209;
    /// There is no such session to be joined.
    pub const NO_SESSION: u16 = 0x020a;
    /// A request that does not fit into a login.
    pub const INVALID: u16 = 0x020b;
    /// The target is out of order.
    pub const TARGET_ERROR: u16 = 0x0300;
    /// The target does not serve now.
    pub const UNAVAILABLE: u16 = 0x0301;
    /// Too many sessions.
    pub const OUT_OF_RESOURCES: u16 = 0x0302;
}

#[cfg(test)]
mod tests;
