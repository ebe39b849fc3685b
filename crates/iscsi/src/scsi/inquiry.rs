//! INQUIRY: what the unit is, and its vital product data.

use super::atomic::{ATOMIC_BYTES_MAX, COMPARE_BLOCKS_MAX};
use super::call::{Call, Good, Outcome};
use super::fields::padded;
use super::medium::TRANSFER_BYTES_MAX;
use super::provision::{SAME_BLOCKS_MAX, UNMAP_BLOCKS_MAX, UNMAP_RANGES_MAX};
use super::sense::Sense;
use super::unit::Config;
use bytes::BufMut;
use covey_wire::fnv1a;

pub(super) fn inquiry(call: &Call) -> Outcome {
    let (page, allocation) = (call.field(2, 1) as u8, call.field(3, 2));
    let config = &call.unit.config;
    if !call.bit(1, 0x01) {
        return match page {
            0 => Good::data(standard(config), allocation),
            _ => Err(Sense::cdb(2).into()),
        };
    }
    let body = match page {
        0x00 => PAGES.to_vec(),
        0x80 => config.serial.as_bytes().to_vec(),
        0x83 => identification(config, call.nexus.portal_group),
        0x86 => extended(),
        0xb0 => block_limits(u64::from(config.block_bytes)),
        0xb1 => characteristics(),
        0xb2 => provisioning(),
        _ => return Err(Sense::cdb(2).into()),
    };
    let mut data = vec![0, page];
    data.put_u16(body.len() as u16);
    data.extend(body);
    Good::data(data, allocation)
}

/// What INQUIRY says where there is no unit.
pub(super) fn absent(allocation: u64) -> Outcome {
    let config = Config {
        name: "no unit".into(),
        serial: String::new(),
        target: "".into(),
        block_bytes: 512,
        read_only: false,
        removable: false,
        write_cache: false,
        portal_groups: Vec::new(),
    };
    let mut data = standard(&config);
    // No device can be there.
    data[0] = 0x7f;
    Good::data(data, allocation)
}

fn standard(config: &Config) -> Vec<u8> {
    let mut data = vec![0, if config.removable { 0x80 } else { 0 }];
    // SPC-4; LUNs are hierarchical, and the data has this format.
    data.extend([0x06, 0x12, 91]);
    // Target port groups are reported, and none can be set; third-party copies; no protection. CMDQUE.
    data.extend([0x18, 0x10, 0x02]);
    data.extend(padded(VENDOR, 8));
    data.extend(padded(&config.name, 16));
    data.extend(padded(env!("CARGO_PKG_VERSION"), 4));
    data.resize(58, 0);
    // SAM-5, iSCSI, SPC-4, SBC-3.
    for descriptor in [0x00a0, 0x0960, 0x0460, 0x04c0] {
        data.put_u16(descriptor);
    }
    data.resize(96, 0);
    data
}

fn identification(config: &Config, portal_group: u16) -> Vec<u8> {
    let mut data = Vec::new();
    let mut designate = |kind: [u8; 2], body: &[u8]| {
        data.extend([kind[0], kind[1], 0, body.len() as u8]);
        data.extend(body);
    };
    let mut name = padded(VENDOR, 8);
    name.extend(config.serial.bytes().take(32));
    // The unit: by vendor, and by a number that is assigned locally (NAA 3).
    designate([0x02, 0x01], &name);
    designate([0x01, 0x03], &naa(&config.serial));
    // The port through which it is seen, and its group.
    let port = [0, 0, (portal_group >> 8) as u8, portal_group as u8];
    designate([0x51, 0x94], &port);
    designate([0x51, 0x95], &port);
    // The port's name and the device's.
    designate([0x53, 0x98], &text(&format!("{},t,0x{portal_group:04x}", config.target)));
    designate([0x53, 0xa8], &text(&config.target));
    data
}

/// A name as designators have it: it ends in a NUL and is filled up to four bytes.
fn text(name: &str) -> Vec<u8> {
    let mut text: Vec<u8> = name.bytes().take(240).collect();
    text.push(0);
    text.resize(text.len().next_multiple_of(4), 0);
    text
}

/// Sixty bits made of the serial number, behind the 3 that says who assigned them. Initiators know
/// the unit by them, so they never change.
fn naa(serial: &str) -> [u8; 8] {
    let number = 0x3 << 60 | fnv1a(serial.as_bytes()) & (u64::MAX >> 4);
    std::array::from_fn(|index| (number >> (8 * (7 - index))) as u8)
}

/// Whether `designator`, as an EXTENDED COPY names a unit, is this one.
pub(super) fn is_designated(config: &Config, kind: u8, body: &[u8]) -> bool {
    match kind & 0x0f {
        0x01 => {
            let mut name = padded(VENDOR, 8);
            name.extend(config.serial.bytes().take(32));
            // A descriptor has room for 20 bytes.
            !body.is_empty()
                && body.len() >= name.len().min(20)
                && name.starts_with(&body[..body.len().min(20)])
        }
        0x03 => body == naa(&config.serial),
        _ => false,
    }
}

fn extended() -> Vec<u8> {
    let mut data = vec![0, 0x07];
    // HEADSUP and SIMPSUP, ORDSUP; a write cache (V_SUP), LU reset clears attentions one by one.
    data[1] = 0x07;
    data.push(0x01);
    data.resize(60, 0);
    data
}

fn block_limits(block: u64) -> Vec<u8> {
    let blocks = |bytes: u64| (bytes / block) as u32;
    // WSNZ: a WRITE SAME names its length.
    let mut data = vec![0x01, COMPARE_BLOCKS_MAX as u8];
    data.put_u16(blocks(GRAIN_BYTES).max(1) as u16);
    data.put_u32(blocks(TRANSFER_BYTES_MAX));
    data.put_u32(blocks(OPTIMAL_BYTES));
    data.put_u32(0);
    data.put_u32(UNMAP_BLOCKS_MAX as u32);
    data.put_u32(UNMAP_RANGES_MAX as u32);
    data.put_u32(blocks(GRAIN_BYTES).max(1));
    data.put_u32(0);
    data.put_u64(SAME_BLOCKS_MAX);
    // WRITE ATOMIC: how much; anywhere, of any length.
    data.put_u32(blocks(ATOMIC_BYTES_MAX));
    data.put_u32(0);
    data.put_u32(0);
    data.resize(60, 0);
    data
}

fn characteristics() -> Vec<u8> {
    // Nothing turns. A block that was erased reads as zeros (WABEREQ 1).
    let mut data = vec![0, 1, 0, 0x40];
    data.resize(60, 0);
    data
}

fn provisioning() -> Vec<u8> {
    // UNMAP and both WRITE SAMEs unmap, and what is unmapped reads as zeros; thin.
    vec![0, 0xe4, 0x02, 0]
}

const PAGES: &[u8] = &[0x00, 0x80, 0x83, 0x86, 0xb0, 0xb1, 0xb2];
const VENDOR: &str = "COVEY";
/// What the stores allocate in.
const GRAIN_BYTES: u64 = 4096;
/// A transfer that a store serves well.
const OPTIMAL_BYTES: u64 = 1 << 20;
