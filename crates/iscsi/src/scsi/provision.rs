//! Commands about what is behind the blocks: UNMAP, WRITE SAME, GET LBA STATUS, SANITIZE.

use super::call::{Call, Good, Outcome};
use super::fields::be;
use super::medium::{Extent, check_protection, is_durable};
use super::ranges::Access;
use super::sense::{Key, Sense, code};
use super::unit::{SANITIZING, SAVING, Sanitizing, save};
use crate::store::{Failure, Reply, Request};
use bytes::{BufMut, Bytes};
use std::ops::Range;
use std::sync::Arc;

/// The most blocks that one WRITE SAME writes.
pub(super) const SAME_BLOCKS_MAX: u64 = 32_768;
/// The most blocks that one UNMAP forgets.
pub(super) const UNMAP_BLOCKS_MAX: u64 = 1 << 20;
/// The most ranges of one UNMAP.
pub(super) const UNMAP_RANGES_MAX: usize = 256;

pub(super) async fn unmap(call: &Call) -> Outcome {
    let length = call.field(7, 2);
    let list = call.parameters(length, UNMAP_LIST_MAX).await?;
    if list.is_empty() {
        return Good::nothing();
    }
    let ranges = unmap_ranges(call, &list)?;
    let (Some(first), Some(last)) =
        (ranges.iter().map(|one| one.lba).min(), ranges.iter().map(|one| one.lbas().end).max())
    else {
        return Good::took(length);
    };
    call.claim(first..last, Access::Shared);
    for range in ranges {
        discard(call, range.byte_range()).await?;
    }
    Good::took(length)
}

fn unmap_ranges(call: &Call, list: &[u8]) -> Result<Vec<Extent>, Sense> {
    if list.len() < 8 {
        return Err(Sense::new(Key::IllegalRequest, code::PARAMETER_LIST_LENGTH_ERROR));
    }
    let bytes = usize::min(be(list, 2, 2) as usize, list.len() - 8) / 16 * 16;
    let descriptors = list[8..8 + bytes].chunks_exact(16);
    if descriptors.len() > UNMAP_RANGES_MAX {
        return Err(Sense::parameter(2));
    }
    let filled = descriptors.filter(|one| be(one, 8, 4) != 0);
    let ranges: Vec<Extent> = filled
        .map(|one| Extent::of(call, be(one, 0, 8), be(one, 8, 4)))
        .collect::<Result<_, _>>()?;
    if ranges.iter().map(|one| one.blocks).sum::<u64>() > UNMAP_BLOCKS_MAX {
        Err(Sense::parameter(8))
    } else {
        Ok(ranges)
    }
}

/// Forgets a range, on stable storage if there is no write cache.
async fn discard(call: &Call, range: Range<u64>) -> Result<(), Sense> {
    call.ask(Request::Discard { range }).await?;
    settle(call).await
}

/// Brings to stable storage what was done, if a write would have been.
async fn settle(call: &Call) -> Result<(), Sense> {
    if is_durable(call) {
        call.ask(Request::Flush).await?;
    }
    Ok(())
}

/// WRITE SAME: one block everywhere. With UNMAP, zeros need no place.
pub(super) async fn write_same(call: &Call) -> Outcome {
    check_protection(call)?;
    let is_long = call.field(0, 1) == 0x93;
    let (lba, blocks, at) = if is_long {
        (call.field(2, 8), call.field(10, 4), 10)
    } else {
        (call.field(2, 4), call.field(7, 2), 7)
    };
    let unmaps = call.bit(1, 0x08);
    let has_no_data = is_long && call.bit(1, 0x01);
    if call.bit(1, 0x10) {
        // ANCHOR: nothing is anchored here.
        return Err(Sense::cdb(1).into());
    }
    let extent = Extent::of(call, lba, blocks)?;
    if blocks == 0 || blocks > SAME_BLOCKS_MAX {
        return Err(Sense::cdb(at).into());
    }
    let block = if has_no_data {
        vec![0; call.unit.block_bytes() as usize].into()
    } else {
        match one_block(call).await? {
            Ok(block) => block,
            Err(refused) => return Ok(refused),
        }
    };
    call.claim(extent.lbas(), Access::Shared);
    let range = extent.byte_range();
    let is_zero = block.iter().all(|byte| *byte == 0);
    let request = match (is_zero, unmaps) {
        (true, true) => Request::Discard { range },
        (true, false) => Request::Zero { range },
        (false, _) => Request::Fill { range, pattern: block },
    };
    call.ask(request).await?;
    if !call.unit.lock().mode.write_cache {
        call.ask(Request::Flush).await?;
    }
    Good::took(if has_no_data { 0 } else { call.unit.block_bytes() })
}

/// The one block of data that there must be, no more and no less.
async fn one_block(call: &Call) -> Result<Result<Bytes, Good>, Sense> {
    let bytes = call.unit.block_bytes();
    if call.data_out != bytes {
        let sense = Sense::new(Key::IllegalRequest, code::INVALID_FIELD_IN_INFORMATION_UNIT);
        return Ok(Err(Good { out_bytes: bytes, but: Some(sense), ..Good::default() }));
    }
    Ok(Ok(call.collect(bytes).await.into_bytes()))
}

/// GET LBA STATUS: from the block named on, as far as the initiator has room.
pub(super) async fn lba_status(call: &Call) -> Outcome {
    let (lba, allocation) = (call.field(2, 8), call.field(10, 4));
    let capacity = call.unit.blocks();
    if lba >= capacity {
        let sense = Sense::new(Key::IllegalRequest, code::LBA_OUT_OF_RANGE);
        return Err(sense.with_information(lba).into());
    }
    let block = call.unit.block_bytes();
    call.claim(lba..capacity, Access::Shared);
    let range = lba * block..capacity * block;
    let Reply::Extents(extents) = call.ask(Request::Allocated { range }).await? else {
        return Err(Sense::new(Key::HardwareError, code::INTERNAL_TARGET_FAILURE).into());
    };
    let room = usize::try_from(allocation.saturating_sub(8) / 16).unwrap_or(usize::MAX);
    let runs = block_runs(lba, capacity, block, &extents);
    let runs = &runs[..runs.len().min(room.clamp(1, STATUS_RUNS_MAX))];
    let mut data = Vec::with_capacity(8 + 16 * runs.len());
    data.put_u32(4 + 16 * runs.len() as u32);
    data.put_u32(0);
    for (first, blocks, is_mapped) in runs {
        data.put_u64(*first);
        data.put_u32(*blocks);
        data.put_u32(if *is_mapped { 0 } else { 0x0100_0000 });
    }
    Good::data(data, allocation)
}

/// Extents as runs of blocks: where each begins, its length, and whether any of it is allocated.
fn block_runs(
    lba: u64,
    capacity: u64,
    block: u64,
    extents: &[(u64, bool)],
) -> Vec<(u64, u32, bool)> {
    let mut runs: Vec<(u64, u32, bool)> = Vec::new();
    let mut at = lba;
    for &(end, is_mapped) in extents {
        // A block that is allocated in part is mapped.
        let end = if is_mapped { end.div_ceil(block) } else { end / block }.min(capacity);
        while at < end {
            match runs.last_mut() {
                Some((first, blocks, same))
                    if *same == is_mapped && *first + u64::from(*blocks) == at =>
                {
                    let more = (end - at).min(u64::from(u32::MAX - *blocks));
                    *blocks += more as u32;
                    at += more;
                    if more > 0 {
                        continue;
                    }
                }
                _ => {}
            }
            let blocks = (end - at).min(u64::from(u32::MAX));
            runs.push((at, blocks as u32, is_mapped));
            at += blocks;
        }
    }
    runs
}

/// SANITIZE: OVERWRITE (1), BLOCK ERASE (2), EXIT FAILURE MODE (31). Once begun it goes on whatever becomes of its initiator,
/// and until it is over the unit does nothing else.
pub(super) async fn sanitize(call: &Call) -> Outcome {
    let length = call.field(7, 2);
    let action = call.field(1, 1) & 0x1f;
    let pattern = match action {
        0x01 => Some(overwrite_pattern(call, length).await?),
        _ if length != 0 => return Err(Sense::cdb(7).into()),
        0x1f => {
            call.unit.forget_failed_sanitize();
            call.claim(SAVING, Access::Exclusive);
            call.ask(save()).await?;
            return Good::nothing();
        }
        _ => None,
    };
    if !call.unit.begin_sanitize() {
        return Err(SANITIZING.into());
    }
    let unit = call.unit.clone();
    let mut sanitizing = None;
    call.claim_with(0..u64::MAX, Access::Exclusive, |claim| {
        sanitizing.insert(Arc::new(Sanitizing::new(unit, claim))).clone()
    });
    let range = 0..call.unit.blocks() * call.unit.block_bytes();
    let request = match pattern {
        Some(pattern) => Request::Fill { range, pattern },
        None => Request::Discard { range },
    };
    // Everything else has left the medium when this is answered. That it did not get there is a failure of the sanitizing,
    // also where the store has told of it before: one that failed is not undone by trying again.
    must(call, Request::Flush).await?;
    // A restart on the way must not look as if it had been done.
    call.ask(save()).await?;
    if call.bit(1, 0x80) {
        // When the store lets go of what it holds, that is brought to stable storage.
        drop(call.unit.ask(request, call.hold()));
        return Good::took(length);
    }
    must(call, request).await?;
    must(call, Request::Flush).await?;
    sanitizing.iter().for_each(|sanitizing| sanitizing.synced());
    Good::took(length)
}

/// Asks the store for a part of a sanitizing, which has failed where this does.
async fn must(call: &Call, request: Request) -> Result<(), Sense> {
    let asked = call.ask(request).await;
    asked.map(drop).inspect_err(|_| call.hold().fail(Failure::Write))
}

async fn overwrite_pattern(call: &Call, length: u64) -> Result<Bytes, Sense> {
    let block = call.unit.block_bytes();
    if length < 5 || length > block + 4 || length > call.data_out {
        return Err(Sense::cdb(7));
    }
    let list = call.collect(length).await.into_bytes();
    let (count, bytes) = (list[0] & 0x1f, be(&list, 2, 2));
    if count == 0 || list[0] & 0x60 != 0 {
        return Err(Sense::parameter(0));
    }
    if bytes == 0 || bytes > block || bytes != length - 4 {
        return Err(Sense::parameter(2));
    }
    // INVERT: the complement between passes, so that an even number of them ends in the complement.
    let inverts = list[0] & 0x80 != 0 && count.is_multiple_of(2);
    let pattern = list[4..].iter().map(|byte| if inverts { !byte } else { *byte });
    Ok(pattern.collect::<Vec<u8>>().into())
}

/// The longest parameter list of UNMAP.
const UNMAP_LIST_MAX: u64 = 8 + 16 * 4095;
/// The most runs that one GET LBA STATUS tells.
const STATUS_RUNS_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_is_allocated_in_part_is_mapped() {
        let extents = [(1024, false), (1500, true), (4096, false)];
        assert_eq!(block_runs(0, 8, 512, &extents), [(0, 2, false), (2, 1, true), (3, 5, false)]);
        assert_eq!(block_runs(1, 8, 512, &[(4096, true)]), [(1, 7, true)]);
    }

    #[test]
    fn a_run_that_a_descriptor_cannot_say_is_two() {
        let blocks = u64::from(u32::MAX) + 5;
        let runs = block_runs(0, blocks, 512, &[(blocks * 512, false)]);
        assert_eq!(runs, [(0, u32::MAX, false), (u64::from(u32::MAX), 5, false)]);
    }
}
