//! Commands that nobody may see half done: COMPARE AND WRITE, ORWRITE, WRITE ATOMIC. They have their blocks for themselves.

use super::call::{Call, Good, Outcome};
use super::medium::{
    Extent, check_protection, first_difference, is_durable, look, miscompare, offered, put,
};
use super::ranges::Access;
use super::sense::{Key, Sense, code};

/// The most blocks of a COMPARE AND WRITE: what the byte in its CDB can say.
pub(super) const COMPARE_BLOCKS_MAX: u64 = 255;
/// The most bytes of a WRITE ATOMIC.
pub(super) const ATOMIC_BYTES_MAX: u64 = 1 << 20;

pub(super) async fn compare_and_write(call: &Call) -> Outcome {
    check_protection(call)?;
    let extent = Extent::of(call, call.field(2, 8), call.field(13, 1))?;
    let bytes = extent.bytes();
    match (bytes, call.data_out) {
        (0, 0) => return Good::nothing(),
        // More blocks than the CDB can say.
        (0, _) => return Err(Sense::cdb(13).into()),
        _ => {}
    }
    if call.data_out != 2 * bytes {
        let sense = Sense::new(Key::IllegalRequest, code::INVALID_FIELD_IN_INFORMATION_UNIT);
        return Ok(Good { out_bytes: 2 * bytes, but: Some(sense), ..Good::default() });
    }
    let mut expected = call.collect(2 * bytes).await.into_bytes();
    let new = expected.split_off(bytes as usize);
    call.claim(extent.lbas(), Access::Exclusive);
    let found = look(call, extent.offset(), bytes).await?;
    if let Some(at) = first_difference(&found, &expected) {
        return Err(miscompare(at as u64).into());
    }
    put(call, extent.offset(), new.into(), is_durable(call)).await?;
    Good::took(2 * bytes)
}

pub(super) async fn or_write(call: &Call) -> Outcome {
    check_protection(call)?;
    let extent = Extent::of_cdb(call)?;
    match offered(call, extent.bytes()) {
        Err(refused) => Ok(refused),
        Ok(0) => Good::took(extent.bytes()),
        Ok(bytes) => {
            let mask = call.collect(bytes).await.into_bytes();
            call.claim(extent.lbas(), Access::Exclusive);
            let found = look(call, extent.offset(), bytes).await?;
            let both: Vec<u8> = found.iter().zip(&mask).map(|(old, set)| old | set).collect();
            put(call, extent.offset(), both.into(), is_durable(call)).await?;
            Good::took(extent.bytes())
        }
    }
}

pub(super) async fn write_atomic(call: &Call) -> Outcome {
    check_protection(call)?;
    let extent = Extent::of(call, call.field(2, 8), call.field(12, 2))?;
    if extent.bytes() > ATOMIC_BYTES_MAX {
        return Err(Sense::cdb(12).into());
    }
    if extent.bytes() == 0 {
        return Good::nothing();
    }
    if call.data_out < extent.bytes() {
        // Part of it would not be what was asked for.
        let sense = Sense::new(Key::IllegalRequest, code::INVALID_FIELD_IN_INFORMATION_UNIT);
        return Ok(Good { out_bytes: extent.bytes(), but: Some(sense), ..Good::default() });
    }
    let data = call.collect(extent.bytes()).await;
    call.claim(extent.lbas(), Access::Exclusive);
    put(call, extent.offset(), data, is_durable(call)).await?;
    Good::took(extent.bytes())
}
