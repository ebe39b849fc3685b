//! EXTENDED COPY (LID1) within one unit, block to block, and RECEIVE COPY RESULTS.

use super::call::{Call, End, Good, Outcome};
use super::fields::be;
use super::inquiry::is_designated;
use super::medium::{Extent, is_durable, look, pieces, put};
use super::ranges::Access;
use super::sense::{Key, Sense, code};
use super::unit::Copied;
use bytes::BufMut;

/// One segment: from block to block.
struct Segment {
    from: Extent,
    to: Extent,
}

pub(super) async fn extended_copy(call: &Call) -> Outcome {
    let length = call.field(10, 4);
    if length == 0 {
        return Good::nothing();
    }
    let list = call.parameters(length, 16 + LIST_BYTES_MAX).await?;
    let (id, keeps) = (list[0], list.get(1).copied().unwrap_or(0) & 0x18 != 0x18);
    let parts = split(&list)?;
    let result = copy(call, &parts).await;
    if keeps {
        let (is_good, segments, bytes) = match &result {
            Ok(done) => (true, done.0, done.1),
            Err(_) => (false, 0, 0),
        };
        call.unit.lock().note_copy(&call.nexus, id, Copied { is_good, segments, bytes });
    }
    result.map_err(End::Sense)?;
    Good::took(length)
}

/// The target and the segment descriptors of a parameter list.
struct Parts<'a> {
    targets: &'a [u8],
    segments: Vec<&'a [u8]>,
}

fn split(list: &[u8]) -> Result<Parts<'_>, Sense> {
    let wrong_length = Sense::new(Key::IllegalRequest, code::PARAMETER_LIST_LENGTH_ERROR);
    if list.len() < 16 {
        return Err(wrong_length);
    }
    let (targets, segments, inline) = (be(list, 2, 2), be(list, 8, 4), be(list, 12, 4));
    let whole = 16 + targets + segments + inline;
    if whole > list.len() as u64 || targets + segments > LIST_BYTES_MAX {
        return Err(wrong_length);
    }
    let rest = &list[16..];
    let (targets, rest) = rest.split_at(targets as usize);
    if targets.len() / TARGET_BYTES > TARGETS_MAX {
        return Err(Sense::new(Key::IllegalRequest, code::TOO_MANY_TARGET_DESCRIPTORS));
    }
    let mut rest = &rest[..segments as usize];
    let mut segments = Vec::new();
    while !rest.is_empty() {
        let bytes = 4 + be(rest, 2, 2) as usize;
        if rest[0] != BLOCK_TO_BLOCK {
            let code = code::UNSUPPORTED_SEGMENT_DESCRIPTOR;
            return Err(Sense::new(Key::IllegalRequest, code));
        }
        if bytes != SEGMENT_BYTES || rest.len() < bytes {
            return Err(wrong_length);
        }
        segments.push(&rest[..bytes]);
        rest = &rest[bytes..];
    }
    if segments.len() > SEGMENTS_MAX {
        Err(Sense::new(Key::IllegalRequest, code::TOO_MANY_SEGMENT_DESCRIPTORS))
    } else {
        Ok(Parts { targets, segments })
    }
}

/// Copies all segments: how many there were, and how many bytes.
async fn copy(call: &Call, parts: &Parts<'_>) -> Result<(u16, u64), Sense> {
    let targets = parts.targets.chunks(TARGET_BYTES);
    let known = targets.map(|one| is_this_unit(call, one)).collect::<Result<Vec<_>, _>>()?;
    let mut bytes = 0;
    for segment in &parts.segments {
        let segment = checked(call, segment, &known)?;
        let both = segment.from.lba.min(segment.to.lba)
            ..segment.from.lbas().end.max(segment.to.lbas().end);
        call.claim(both, Access::Exclusive);
        copy_segment(call, &segment)
            .await
            .map_err(|sense| Sense { key: Key::CopyAborted, ..sense })?;
        bytes += segment.from.bytes();
    }
    Ok((parts.segments.len() as u16, bytes))
}

fn is_this_unit(call: &Call, target: &[u8]) -> Result<bool, Sense> {
    let unsupported = Sense::new(Key::IllegalRequest, code::UNSUPPORTED_TARGET_DESCRIPTOR);
    if target.len() != TARGET_BYTES || target[0] != IDENTIFICATION || target[1] & 0x1f != 0 {
        return Err(unsupported);
    }
    let body = target.get(8..8 + usize::from(target[7]).min(20)).ok_or(unsupported)?;
    let is_same_block = be(target, 29, 3) == call.unit.block_bytes();
    Ok(is_same_block && is_designated(&call.unit.config, target[5], body))
}

fn checked(call: &Call, segment: &[u8], known: &[bool]) -> Result<Segment, Sense> {
    let unreachable = Sense::new(Key::CopyAborted, code::UNREACHABLE_COPY_TARGET);
    let is_known = |at| known.get(be(segment, at, 2) as usize).copied().unwrap_or(false);
    if !is_known(4) || !is_known(6) {
        return Err(unreachable);
    }
    let blocks = be(segment, 10, 2);
    // SPC-4, 6.4.3: an address out of range ends the copy.
    let extent = |at| {
        Extent::of(call, be(segment, at, 8), blocks)
            .map_err(|_| Sense::new(Key::CopyAborted, code::NONE))
    };
    Ok(Segment { from: extent(12)?, to: extent(20)? })
}

/// From the front or from the back, so that what overlaps is read before it is written.
async fn copy_segment(call: &Call, segment: &Segment) -> Result<(), Sense> {
    let mut steps: Vec<(u64, u64)> = pieces(segment.from.byte_range(), STEP_BYTES).collect();
    if segment.to.lba > segment.from.lba {
        steps.reverse();
    }
    for (from, bytes) in steps {
        let data = look(call, from, bytes).await?;
        let to = segment.to.offset() + (from - segment.from.offset());
        put(call, to, data.into(), is_durable(call)).await?;
    }
    Ok(())
}

pub(super) fn receive_copy_results(call: &Call) -> Outcome {
    let allocation = call.field(10, 4);
    match call.field(1, 1) & 0x1f {
        0x00 => copy_status(call, allocation),
        _ => Good::data(parameters(), allocation),
    }
}

fn copy_status(call: &Call, allocation: u64) -> Outcome {
    let list = call.field(2, 1) as u8;
    let Some(copied) = call.unit.lock().take_copy(&call.nexus, list) else {
        return Err(Sense::cdb(2).into());
    };
    let mut data = Vec::with_capacity(12);
    data.put_u32(8);
    data.put_u8(if copied.is_good { 0x01 } else { 0x02 });
    data.put_u16(copied.segments);
    // Transferred bytes, in kibibytes where they are too many.
    match u32::try_from(copied.bytes) {
        Ok(bytes) => {
            data.put_u8(0);
            data.put_u32(bytes);
        }
        Err(_) => {
            data.put_u8(1);
            data.put_u32((copied.bytes >> 10) as u32);
        }
    }
    Good::data(data, allocation)
}

/// OPERATING PARAMETERS.
fn parameters() -> Vec<u8> {
    let mut data = Vec::with_capacity(46);
    data.put_u32(42);
    data.extend([0; 4]);
    data.put_u16(TARGETS_MAX as u16);
    data.put_u16(SEGMENTS_MAX as u16);
    data.put_u32(LIST_BYTES_MAX as u32);
    data.put_u32(u32::MAX);
    data.extend([0; 4]);
    data.extend([0; 4]);
    data.extend([0; 4]);
    data.extend([0, 0]);
    data.put_u16(1);
    data.extend([1, 9, 0, 0]);
    data.extend([0, 0, 0, 2]);
    data.extend([BLOCK_TO_BLOCK, IDENTIFICATION]);
    data
}

const BLOCK_TO_BLOCK: u8 = 0x02;
const IDENTIFICATION: u8 = 0xe4;
const TARGET_BYTES: usize = 32;
const SEGMENT_BYTES: usize = 28;
const TARGETS_MAX: usize = 8;
const SEGMENTS_MAX: usize = 8;
/// Of descriptors: as many as there may be.
const LIST_BYTES_MAX: u64 = (TARGETS_MAX * TARGET_BYTES + SEGMENTS_MAX * SEGMENT_BYTES) as u64;
/// How much is read before it is written.
const STEP_BYTES: u64 = 1 << 20;
