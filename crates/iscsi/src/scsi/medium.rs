//! Commands that read and write blocks as they are: READ, WRITE, VERIFY, WRITE AND VERIFY, PRE-FETCH, SYNCHRONIZE CACHE.

use super::call::{Call, Good, Outcome};
use super::ranges::Access;
use super::sense::{Key, Sense, code};
use crate::store::{Reply, Request};
use covey_wire::Payload;
use std::ops::Range;

/// The most that one command moves.
pub(super) const TRANSFER_BYTES_MAX: u64 = 8 << 20;

/// Some blocks of a unit.
#[derive(Clone, Debug)]
pub(super) struct Extent {
    pub(super) lba: u64,
    pub(super) blocks: u64,
    block_bytes: u64,
}

impl Extent {
    /// Blocks that are there; LOGICAL BLOCK ADDRESS OUT OF RANGE otherwise.
    pub(super) fn of(call: &Call, lba: u64, blocks: u64) -> Result<Extent, Sense> {
        let capacity = call.unit.blocks();
        match lba.checked_add(blocks) {
            Some(end) if end <= capacity => {
                Ok(Extent { lba, blocks, block_bytes: call.unit.block_bytes() })
            }
            _ => Err(Sense::new(Key::IllegalRequest, code::LBA_OUT_OF_RANGE)
                .with_information(lba.max(capacity))),
        }
    }

    /// The blocks that a READ, WRITE or their like is about: address and length are where the opcode's group has them.
    pub(super) fn of_cdb(call: &Call) -> Result<Extent, Sense> {
        let (lba, blocks, at) = match call.field(0, 1) >> 5 {
            0 => {
                let blocks = call.field(4, 1);
                (call.field(1, 3) & 0x1f_ffff, if blocks == 0 { 256 } else { blocks }, 4)
            }
            1 | 2 => (call.field(2, 4), call.field(7, 2), 7),
            4 => (call.field(2, 8), call.field(10, 4), 10),
            _ => (call.field(2, 4), call.field(6, 4), 6),
        };
        let extent = Extent::of(call, lba, blocks)?;
        if extent.bytes() > TRANSFER_BYTES_MAX { Err(Sense::cdb(at)) } else { Ok(extent) }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.blocks * self.block_bytes
    }

    pub(super) fn offset(&self) -> u64 {
        self.lba * self.block_bytes
    }

    pub(super) fn byte_range(&self) -> Range<u64> {
        self.offset()..self.offset() + self.bytes()
    }

    pub(super) fn lbas(&self) -> Range<u64> {
        self.lba..self.lba + self.blocks
    }
}

/// Protection information is asked for in the top bits of byte 1, and there is none.
pub(super) fn check_protection(call: &Call) -> Result<(), Sense> {
    if call.field(1, 1) & 0xe0 != 0 && call.field(0, 1) >= 0x20 {
        Err(Sense::cdb(1))
    } else {
        Ok(())
    }
}

/// How much of `bytes` the initiator has in whole blocks. Part of a block cannot be written: what it would take is told with
/// the error.
pub(super) fn offered(call: &Call, bytes: u64) -> Result<u64, Good> {
    let offered = bytes.min(call.data_out);
    match offered % call.unit.block_bytes() {
        0 => Ok(offered),
        _ => {
            let sense = Sense::new(Key::AbortedCommand, code::INVALID_FIELD_IN_INFORMATION_UNIT);
            let sense = Sense { key: Key::IllegalRequest, ..sense };
            Err(Good { out_bytes: bytes, but: Some(sense), ..Good::default() })
        }
    }
}

/// Whether what this command writes must be on stable storage when it ends: FUA, or no write cache.
pub(super) fn is_durable(call: &Call) -> bool {
    let asked = call.field(0, 1) >= 0x20 && call.bit(1, 0x08);
    asked || !call.unit.lock().mode.write_cache
}

pub(super) async fn read(call: &Call) -> Outcome {
    check_protection(call)?;
    let extent = Extent::of_cdb(call)?;
    let bytes = extent.bytes().min(call.data_in);
    let data_in = match bytes {
        0 => Payload::default(),
        _ => {
            call.claim(extent.lbas(), Access::Shared);
            read_bytes(call, extent.offset(), bytes).await?
        }
    };
    Ok(Good { data_in, in_bytes: extent.bytes(), ..Good::default() })
}

/// Bytes of the store, which may be in a file.
pub(super) async fn read_bytes(call: &Call, offset: u64, bytes: u64) -> Result<Payload, Sense> {
    match call.ask(Request::Read { offset, bytes, may_lend: call.unit.lends() }).await? {
        Reply::Data(data) if data.len() as u64 == bytes => Ok(data),
        _ => Err(Sense::new(Key::HardwareError, code::INTERNAL_TARGET_FAILURE)),
    }
}

/// Bytes of the store, to be looked at.
pub(super) async fn look(call: &Call, offset: u64, bytes: u64) -> Result<bytes::Bytes, Sense> {
    match call.ask(Request::Read { offset, bytes, may_lend: false }).await? {
        Reply::Data(data) if data.len() as u64 == bytes => Ok(data.into_bytes()),
        _ => Err(Sense::new(Key::HardwareError, code::INTERNAL_TARGET_FAILURE)),
    }
}

pub(super) async fn write(call: &Call) -> Outcome {
    check_protection(call)?;
    let extent = Extent::of_cdb(call)?;
    match offered(call, extent.bytes()) {
        Err(refused) => Ok(refused),
        Ok(0) => Good::took(extent.bytes()),
        Ok(bytes) => {
            let must_last = is_durable(call);
            if bytes >= STREAM_BYTES_MIN && !must_last {
                stream(call, &extent, bytes).await?;
                outlast(call).await?;
            } else {
                let data = call.collect(bytes).await;
                call.claim(extent.lbas(), Access::Shared);
                put(call, extent.offset(), data, must_last).await?;
            }
            Good::took(extent.bytes())
        }
    }
}

/// Writes data as it comes: the initiator sends the next while this is written, and what was just received is still near. No
/// blocks are claimed while the initiator is waited for, because nobody knows how long that takes.
async fn stream(call: &Call, extent: &Extent, bytes: u64) -> Result<(), Sense> {
    let mut done = 0;
    while done < bytes {
        let data = call.collect_more(done, bytes).await?;
        let (begin, length) = (extent.offset() + done, data.len() as u64);
        let blocks = begin / extent.block_bytes..(begin + length) / extent.block_bytes;
        call.claim(blocks, Access::Shared);
        let continues = done > 0;
        call.ask(Request::Write { offset: begin, data, fua: false, continues }).await?;
        call.release();
        done += length;
    }
    Ok(())
}

pub(super) async fn put(call: &Call, offset: u64, data: Payload, fua: bool) -> Result<(), Sense> {
    call.ask(Request::Write { offset, data, fua, continues: false }).await?;
    if fua { Ok(()) } else { outlast(call).await }
}

/// Behind a write that need not last: an initiator may have turned the cache off meanwhile.
async fn outlast(call: &Call) -> Result<(), Sense> {
    if is_durable(call) {
        call.ask(Request::Flush).await?;
    }
    Ok(())
}

/// VERIFY: that the medium can be read (BYTCHK 0), or that it has what the initiator says (1), or in every block the same (3).
pub(super) async fn verify(call: &Call) -> Outcome {
    check_protection(call)?;
    let check = call.field(1, 1) >> 1 & 3;
    let extent = Extent::of_cdb_unbounded(call, check)?;
    let bytes = match check {
        0 => return verify_readable(call, &extent).await,
        1 => extent.bytes(),
        3 => call.unit.block_bytes().min(extent.bytes()),
        _ => return Err(Sense::cdb(1).into()),
    };
    match offered(call, bytes) {
        Err(refused) => Ok(refused),
        Ok(0) => Good::took(bytes),
        Ok(offered) => {
            let expected = call.collect(offered).await.into_bytes();
            call.claim(extent.lbas(), Access::Shared);
            match check {
                1 => compare(call, extent.offset(), &expected).await?,
                _ => compare_same(call, &extent, &expected).await?,
            }
            Good::took(bytes)
        }
    }
}

impl Extent {
    /// As [`Extent::of_cdb`]; where nothing is moved any length will do.
    fn of_cdb_unbounded(call: &Call, check: u64) -> Result<Extent, Sense> {
        if check == 1 {
            return Extent::of_cdb(call);
        }
        let (lba, blocks) = match call.field(0, 1) >> 5 {
            1 => (call.field(2, 4), call.field(7, 2)),
            4 => (call.field(2, 8), call.field(10, 4)),
            _ => (call.field(2, 4), call.field(6, 4)),
        };
        Extent::of(call, lba, blocks)
    }
}

async fn verify_readable(call: &Call, extent: &Extent) -> Outcome {
    call.claim(extent.lbas(), Access::Shared);
    for (offset, bytes) in pieces(extent.byte_range(), STEP_BYTES) {
        look(call, offset, bytes).await?;
    }
    Good::nothing()
}

/// MISCOMPARE where the medium differs, with the offset of the first byte that does.
pub(super) async fn compare(call: &Call, offset: u64, expected: &[u8]) -> Result<(), Sense> {
    let mut done = 0;
    while done < expected.len() {
        let step = (expected.len() - done).min(STEP_BYTES as usize);
        let found = look(call, offset + done as u64, step as u64).await?;
        if let Some(at) = first_difference(&found, &expected[done..done + step]) {
            return Err(miscompare((done + at) as u64));
        }
        done += step;
    }
    Ok(())
}

async fn compare_same(call: &Call, extent: &Extent, block: &[u8]) -> Result<(), Sense> {
    for (offset, bytes) in pieces(extent.byte_range(), STEP_BYTES) {
        let found = look(call, offset, bytes).await?;
        let differs = |part: &[u8]| first_difference(part, block);
        let mut parts = found.chunks(block.len()).enumerate();
        if let Some((index, at)) = parts.find_map(|(index, part)| Some((index, differs(part)?))) {
            let before = offset - extent.offset() + (index * block.len()) as u64;
            return Err(miscompare(before + at as u64));
        }
    }
    Ok(())
}

pub(super) fn miscompare(offset: u64) -> Sense {
    Sense::new(Key::Miscompare, code::MISCOMPARE_DURING_VERIFY).with_information(offset)
}

pub(super) fn first_difference(left: &[u8], right: &[u8]) -> Option<usize> {
    if left == right {
        None
    } else {
        left.iter().zip(right).position(|(left, right)| left != right)
    }
}

/// A range in pieces of at most `step` bytes: where each begins and how long it is.
pub(super) fn pieces(range: Range<u64>, step: u64) -> impl Iterator<Item = (u64, u64)> {
    let end = range.end;
    range.step_by(step as usize).map(move |from| (from, step.min(end - from)))
}

/// WRITE AND VERIFY: written, on stable storage, and read back.
pub(super) async fn write_and_verify(call: &Call) -> Outcome {
    check_protection(call)?;
    if call.field(1, 1) >> 1 & 3 >= 2 {
        return Err(Sense::cdb(1).into());
    }
    let extent = Extent::of_cdb(call)?;
    match offered(call, extent.bytes()) {
        Err(refused) => Ok(refused),
        Ok(0) => Good::took(extent.bytes()),
        Ok(bytes) => {
            let data = call.collect(bytes).await.into_bytes();
            call.claim(extent.lbas(), Access::Exclusive);
            put(call, extent.offset(), data.clone().into(), true).await?;
            compare(call, extent.offset(), &data).await?;
            Good::took(extent.bytes())
        }
    }
}

/// PRE-FETCH: the blocks are there; what is read ahead is the store's own affair.
pub(super) fn prefetch(call: &Call) -> Outcome {
    extent_or_rest(call)?;
    Good::nothing()
}

/// SYNCHRONIZE CACHE. All that was written before comes to stable storage, whichever blocks are named.
pub(super) async fn synchronize_cache(call: &Call) -> Outcome {
    extent_or_rest(call)?;
    if call.bit(1, 0x02) {
        // IMMED: it is begun, and its end concerns nobody. A loss is told to those who had written when they synchronize next.
        drop(call.unit.ask(Request::Flush, call.hold()));
        return Good::nothing();
    }
    call.ask(Request::Flush).await?;
    Good::nothing()
}

/// The blocks of a command for which no blocks means all from the address on.
fn extent_or_rest(call: &Call) -> Result<Extent, Sense> {
    let (lba, blocks) = match call.field(0, 1) >> 5 {
        1 => (call.field(2, 4), call.field(7, 2)),
        _ => (call.field(2, 8), call.field(10, 4)),
    };
    Extent::of(call, lba, blocks)
}

/// Shorter writes are made at once.
const STREAM_BYTES_MIN: u64 = 128 << 10;
/// How much is compared at a time.
const STEP_BYTES: u64 = 1 << 20;
