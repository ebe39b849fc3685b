//! A small file in memory.

use covey_ninep::tree::{Errno, Result};

/// Writes at `offset`. E2BIG beyond [`BYTES_MAX`].
pub(super) fn write(text: &mut Vec<u8>, offset: u64, data: &[u8]) -> Result<u32> {
    let end = offset.saturating_add(data.len() as u64);
    check(end)?;
    if text.len() < end as usize {
        text.resize(end as usize, 0);
    }
    text[offset as usize..end as usize].copy_from_slice(data);
    Ok(data.len() as u32)
}

/// Cuts or extends it.
pub(super) fn truncate(text: &mut Vec<u8>, bytes: u64) -> Result<()> {
    check(bytes)?;
    text.resize(bytes as usize, 0);
    Ok(())
}

/// E2BIG beyond [`BYTES_MAX`].
pub(super) fn check(bytes: u64) -> Result<()> {
    if bytes <= BYTES_MAX {
        Ok(())
    } else {
        Err(Errno::because(
            Errno::E2BIG,
            format!("arguments and environment have at most {BYTES_MAX} bytes each"),
        ))
    }
}

/// More than this Linux does not hand to a program with its usual limits.
pub(super) const BYTES_MAX: u64 = 1 << 20;
