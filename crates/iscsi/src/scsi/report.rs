//! What a unit reports of itself: capacity, defects, commands, port groups.

use super::call::{Call, End, Good, Outcome};
use super::fields::be;
use super::opcodes::{self, Opcode};
use super::sense::Sense;
use bytes::BufMut;

pub(super) fn read_capacity_10(call: &Call) -> Outcome {
    if !call.bit(8, 0x01) && call.field(2, 4) != 0 {
        return Err(Sense::cdb(2).into());
    }
    let last = call.unit.blocks() - 1;
    let mut data = Vec::with_capacity(8);
    data.put_u32(u32::try_from(last).unwrap_or(u32::MAX));
    data.put_u32(call.unit.config.block_bytes);
    Good::data(data, 8)
}

pub(super) fn read_capacity_16(call: &Call) -> Outcome {
    if !call.bit(14, 0x01) && call.field(2, 8) != 0 {
        return Err(Sense::cdb(2).into());
    }
    let mut data = Vec::with_capacity(32);
    data.put_u64(call.unit.blocks() - 1);
    data.put_u32(call.unit.config.block_bytes);
    // No protection; a block is a block. LBPME and LBPRZ: what is unmapped reads as zeros.
    data.put_u16(0);
    data.put_u16(0xc000);
    data.resize(32, 0);
    Good::data(data, call.field(10, 4))
}

/// READ DEFECT DATA: there is no list of either kind, whatever its format.
pub(super) fn read_defect_data(call: &Call) -> Outcome {
    let is_long = call.field(0, 1) == 0xb7;
    let asked = call.field(if is_long { 1 } else { 2 }, 1) as u8 & 0x1f;
    let mut data = vec![0, asked];
    if is_long {
        data.extend([0; 6])
    } else {
        data.extend([0; 2])
    }
    Good::data(data, if is_long { call.field(6, 4) } else { call.field(7, 2) })
}

pub(super) fn target_port_groups(call: &Call) -> Outcome {
    let is_extended = match call.field(1, 1) >> 5 {
        0 => false,
        1 => true,
        _ => return Err(Sense::cdb(1).into()),
    };
    let mut groups = Vec::new();
    for group in &call.unit.config.portal_groups {
        // Active and optimized; no other state is supported.
        groups.extend([0x00, 0x01]);
        groups.put_u16(*group);
        groups.extend([0, 0, 0, 1, 0, 0]);
        groups.put_u16(*group);
    }
    let mut data = Vec::new();
    if is_extended {
        data.put_u32(4 + groups.len() as u32);
        data.extend([0x10, 0, 0, 0]);
    } else {
        data.put_u32(groups.len() as u32)
    }
    data.extend(groups);
    Good::data(data, call.field(6, 4))
}

pub(super) fn supported_opcodes(call: &Call) -> Outcome {
    let allocation = call.field(6, 4);
    let with_timeouts = call.bit(2, 0x80);
    let (opcode, action) = (call.field(3, 1) as u8, call.field(4, 2) as u16);
    match call.field(2, 1) & 0x07 {
        0 => Good::data(all_opcodes(call, with_timeouts), allocation),
        1 => match of_opcode(opcode).next() {
            Some(one) if one.action.is_some() => Err(Sense::cdb(2).into()),
            found => Good::data(
                one_opcode(found.filter(|one| is_known(call, one)), with_timeouts),
                allocation,
            ),
        },
        2 => {
            if of_opcode(opcode).any(|one| one.action.is_none()) {
                return Err(Sense::cdb(2).into());
            }
            by_action(call, opcode, action, with_timeouts, allocation)
        }
        3 => by_action(call, opcode, action, with_timeouts, allocation),
        _ => Err(End::Sense(Sense::cdb(2))),
    }
}

fn by_action(
    call: &Call,
    opcode: u8,
    action: u16,
    with_timeouts: bool,
    allocation: u64,
) -> Outcome {
    let mut those = of_opcode(opcode);
    let found = those.find(|one| one.action.unwrap_or(0) == action && is_known(call, one));
    Good::data(one_opcode(found, with_timeouts), allocation)
}

fn of_opcode(opcode: u8) -> impl Iterator<Item = &'static Opcode> {
    opcodes::TABLE.iter().filter(move |one| one.opcode == opcode)
}

/// A unit whose medium cannot be ejected does not know PREVENT ALLOW MEDIUM REMOVAL.
fn is_known(call: &Call, one: &Opcode) -> bool {
    call.unit.config.removable || one.verb != opcodes::Verb::PreventAllow
}

fn all_opcodes(call: &Call, with_timeouts: bool) -> Vec<u8> {
    let mut list = Vec::new();
    for one in opcodes::TABLE.iter().filter(|one| is_known(call, one)) {
        list.extend([one.opcode, 0]);
        list.put_u16(one.action.unwrap_or(0));
        let timeouts = if with_timeouts { 0x02 } else { 0 };
        list.extend([0, timeouts | u8::from(one.action.is_some())]);
        list.put_u16(one.usage.len() as u16);
        if with_timeouts {
            list.extend(TIMEOUTS);
        }
    }
    let mut data = Vec::with_capacity(4 + list.len());
    data.put_u32(list.len() as u32);
    data.extend(list);
    data
}

fn one_opcode(found: Option<&Opcode>, with_timeouts: bool) -> Vec<u8> {
    let Some(one) = found else { return vec![0, 0x01, 0, 0] };
    let mut data = vec![0, 0x03 | if with_timeouts { 0x80 } else { 0 }];
    data.put_u16(one.usage.len() as u16);
    data.extend(one.usage);
    if let Some(action) = one.action {
        // The service action is what it is.
        data[5] = (data[5] & !0x1f) | action as u8;
    }
    if with_timeouts {
        data.extend(TIMEOUTS);
    }
    data
}

/// REPORT LUNS, which the target answers: `luns` are those that it has.
pub(super) fn luns(cdb: &[u8], luns: &[u64]) -> Outcome {
    let allocation = be(cdb, 6, 4);
    let shown = match be(cdb, 2, 1) {
        0x00 | 0x02 => luns,
        // Well-known units only: there are none.
        0x01 => &[],
        _ => return Err(Sense::cdb(2).into()),
    };
    let mut data = Vec::with_capacity(8 + 8 * shown.len());
    data.put_u32(8 * shown.len() as u32);
    data.put_u32(0);
    shown.iter().for_each(|lun| data.put_u64(*lun));
    Good::data(data, allocation)
}

/// A timeouts descriptor that names no time.
const TIMEOUTS: [u8; 12] = [0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
