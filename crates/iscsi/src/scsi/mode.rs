//! MODE SENSE and MODE SELECT: four pages, of which three bits can be changed.

use super::call::{Call, Good, Outcome};
use super::fields::be;
use super::sense::{Key, Sense, code};
use super::unit::Mode;
use crate::store::Request;
use bytes::BufMut;

/// What of a page is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Values {
    Current,
    Changeable,
    Default,
}

pub(super) fn sense(call: &Call) -> Outcome {
    let values = match call.field(2, 1) >> 6 {
        0 => Values::Current,
        1 => Values::Changeable,
        2 => Values::Default,
        // Nothing can be saved.
        _ => return Err(Sense::new(Key::IllegalRequest, SAVING_PARAMETERS_NOT_SUPPORTED).into()),
    };
    let (page, subpage) = (call.field(2, 1) & 0x3f, call.field(3, 1));
    let is_long = call.field(0, 1) == 0x5a;
    let current = call.unit.lock().mode;
    let mode = match values {
        Values::Default => Mode {
            write_cache: call.unit.config.write_cache,
            write_protect: false,
            descriptor_sense: false,
        },
        _ => current,
    };
    let all = [0x01, 0x08, 0x0a, 0x1c];
    let wanted = all.into_iter().filter(|one| page == 0x3f || page == *one);
    let pages: Vec<u8> = wanted.flat_map(|one| one_page(one, values, &mode)).collect();
    if pages.is_empty() || !(subpage == 0 || (subpage == 0xff && page == 0x3f)) {
        return Err(Sense::cdb(if pages.is_empty() { 2 } else { 3 }).into());
    }
    let block = if call.bit(1, 0x08) {
        Vec::new()
    } else {
        block_descriptor(call, is_long && call.bit(1, 0x10))
    };
    let is_protected = call.unit.config.read_only || current.write_protect;
    let device = 0x10 | if is_protected { 0x80 } else { 0 };
    let mut data = Vec::new();
    if is_long {
        data.put_u16((6 + block.len() + pages.len()) as u16);
        data.extend([0, device, u8::from(block.len() == 16), 0]);
        data.put_u16(block.len() as u16);
    } else {
        data.extend([(3 + block.len() + pages.len()) as u8, 0, device, block.len() as u8]);
    }
    data.extend(block);
    data.extend(pages);
    Good::data(data, if is_long { call.field(7, 2) } else { call.field(4, 1) })
}

fn block_descriptor(call: &Call, is_long: bool) -> Vec<u8> {
    let (blocks, bytes) = (call.unit.blocks(), call.unit.config.block_bytes);
    let mut data = Vec::with_capacity(16);
    if is_long {
        data.put_u64(blocks);
        data.put_u32(0);
    } else {
        data.put_u32(u32::try_from(blocks).unwrap_or(u32::MAX))
    }
    data.put_u32(bytes);
    data
}

fn one_page(page: u64, values: Values, mode: &Mode) -> Vec<u8> {
    let is_mask = values == Values::Changeable;
    let flag = |is_set: bool, bit: u8| if is_mask || is_set { bit } else { 0 };
    match page {
        // Read-write error recovery: nothing is retried that the store does not retry.
        0x01 => vec![0x01, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        0x08 => {
            let mut data = vec![0x08, 18, flag(mode.write_cache, 0x04)];
            data.resize(20, 0);
            data
        }
        0x0a => {
            let protects = flag(mode.write_protect, 0x08);
            // QUEUE ALGORITHM MODIFIER 1: what may be reordered is.
            let order = if is_mask { 0 } else { 0x10 };
            let sense = flag(mode.descriptor_sense, 0x04);
            vec![0x0a, 10, sense, order, protects, 0, 0, 0, 0, 0, 0, 0]
        }
        _ => vec![0x1c, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    }
}

pub(super) async fn select(call: &Call) -> Outcome {
    if call.bit(1, 0x01) {
        return Err(Sense::cdb(1).into());
    }
    let is_long = call.field(0, 1) == 0x55;
    let length = if is_long { call.field(7, 2) } else { call.field(4, 1) };
    let list = call.parameters(length, LIST_BYTES_MAX).await?;
    if list.is_empty() {
        return Good::nothing();
    }
    let short = Sense::new(Key::IllegalRequest, code::PARAMETER_LIST_LENGTH_ERROR);
    let (header, block) =
        if is_long { (8, be(&list, 6, 2) as usize) } else { (4, be(&list, 3, 1) as usize) };
    let pages = list.get(header + block..).ok_or(short)?;
    check_block_descriptor(call, &list[header..header + block], header)?;
    // All pages are good before one is put into effect.
    let before = call.unit.lock().mode;
    let after = selected(before, pages, header + block)?;
    if put_into_effect(call, after).write_cache && !after.write_cache {
        // Nobody syncs a disk without a cache: what was written before is on stable storage when this is answered, and what
        // is under way sees to it itself.
        call.ask(Request::Flush).await?;
    }
    Good::took(length)
}

/// Changes the mode, and tells others; as it was before.
fn put_into_effect(call: &Call, after: Mode) -> Mode {
    let mut state = call.unit.lock();
    let before = std::mem::replace(&mut state.mode, after);
    if after != before {
        state.tell(code::MODE_PARAMETERS_CHANGED, Some(call.nexus.number));
    }
    before
}

/// A block descriptor may repeat what is; nothing in it can be changed.
fn check_block_descriptor(call: &Call, block: &[u8], at: usize) -> Result<(), Sense> {
    let bytes = u64::from(call.unit.config.block_bytes);
    match block.len() {
        0 => Ok(()),
        8 if matches!(be(block, 5, 3), 0) || be(block, 5, 3) == bytes => Ok(()),
        16 if matches!(be(block, 12, 4), 0) || be(block, 12, 4) == bytes => Ok(()),
        _ => Err(Sense::parameter(at as u16)),
    }
}

fn selected(mode: Mode, mut pages: &[u8], mut at: usize) -> Result<Mode, Sense> {
    let mut after = mode;
    while !pages.is_empty() {
        let wrong = |offset: usize| Sense::parameter((at + offset) as u16);
        let page = u64::from(pages[0] & 0x3f);
        if !matches!(page, 0x01 | 0x08 | 0x0a | 0x1c) || pages[0] & 0x40 != 0 {
            return Err(wrong(0));
        }
        let has = one_page(page, Values::Current, &mode);
        let mask = one_page(page, Values::Changeable, &mode);
        if pages.len() < has.len() {
            return Err(Sense::new(Key::IllegalRequest, code::PARAMETER_LIST_LENGTH_ERROR));
        }
        if pages[1] != has[1] {
            return Err(wrong(1));
        }
        let changed = |index: &usize| (pages[*index] ^ has[*index]) & !mask[*index] != 0;
        if let Some(index) = (2..has.len()).find(changed) {
            return Err(wrong(index));
        }
        match page {
            0x08 => after.write_cache = pages[2] & 0x04 != 0,
            0x0a => {
                after.descriptor_sense = pages[2] & 0x04 != 0;
                after.write_protect = pages[4] & 0x08 != 0;
            }
            _ => {}
        }
        at += has.len();
        pages = &pages[has.len()..];
    }
    Ok(after)
}

const SAVING_PARAMETERS_NOT_SUPPORTED: u16 = 0x3900;
/// The longest parameter list: all pages are shorter.
const LIST_BYTES_MAX: u64 = 4096;
