//! PERSISTENT RESERVE IN and OUT. What they mean is in [`super::reservations`].

use super::call::{Call, Good, Outcome};
use super::fields::be;
use super::ranges::Access;
use super::reservations::{Kind, Port, Registration, Reservations};
use super::sense::{Key, Sense, code};
use super::unit::{SAVING, Unit, save};
use bytes::BufMut;

pub(super) fn reserve_in(call: &Call) -> Outcome {
    let state = call.unit.lock();
    let all = &state.reservations;
    let mut data = Vec::new();
    match call.field(1, 1) & 0x1f {
        0x00 => {
            data.put_u32(all.generation);
            data.put_u32(8 * all.registrations.len() as u32);
            all.registrations.iter().for_each(|one| data.put_u64(one.key));
        }
        0x01 => {
            data.put_u32(all.generation);
            data.put_u32(if all.holder.is_some() { 16 } else { 0 });
            if let Some((holder, kind)) = &all.holder {
                let key = all.key_of(holder).filter(|_| !kind.is_all_registrants());
                data.put_u64(key.unwrap_or(0));
                data.put_u32(0);
                data.extend([0, *kind as u8, 0, 0]);
            }
        }
        0x02 => {
            // They can survive (PTPL_C); whether they would now; the types; which other commands go by is not said.
            data.put_u16(8);
            data.extend([0x01, 0x80 | u8::from(all.persist)]);
            data.extend([0xea, 0x01, 0, 0]);
        }
        _ => {
            let full: Vec<u8> = all
                .registrations
                .iter()
                .flat_map(|one| full_status(all.holder.as_ref(), one, all.is_holder(&one.port)))
                .collect();
            data.put_u32(all.generation);
            data.put_u32(full.len() as u32);
            data.extend(full);
        }
    }
    Good::data(data, call.field(7, 2))
}

fn full_status(holder: Option<&(Port, Kind)>, one: &Registration, holds: bool) -> Vec<u8> {
    let mut data = Vec::new();
    data.put_u64(one.key);
    data.put_u32(0);
    let kind = holder.filter(|_| holds).map_or(0, |(_, kind)| *kind as u8);
    data.extend([u8::from(holds), kind]);
    data.put_u32(0);
    data.put_u16(one.port.portal_group);
    let transport = transport_id(&one.port);
    data.put_u32(transport.len() as u32);
    data.extend(transport);
    data
}

/// The TransportID of an iSCSI initiator port (SPC-5, 7.6.4.6).
fn transport_id(port: &Port) -> Vec<u8> {
    let isid: String = port.isid.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut name = format!("{},i,0x{isid}\0", port.initiator).into_bytes();
    name.resize(name.len().next_multiple_of(4).max(20), 0);
    let mut data = vec![0x45, 0];
    data.put_u16(name.len() as u16);
    data.extend(name);
    data
}

pub(super) async fn reserve_out(call: &Call) -> Outcome {
    let length = call.field(5, 4);
    if length != 24 {
        return Err(Sense::new(Key::IllegalRequest, code::PARAMETER_LIST_LENGTH_ERROR).into());
    }
    let list = call.parameters(length, 24).await?;
    let Changed { gone, before, after } = change(call, &list)?;
    // One at a time: each saves what is true then. Where nothing is to last the store is asked, too: it knows whether another
    // node has the unit by now, at which none of this would be true.
    call.claim(SAVING, Access::Exclusive);
    if let Err(sense) = call.ask(save()).await {
        // What is refused has not happened, unless somebody has changed something since.
        let all = &mut call.unit.lock().reservations;
        if *all == after {
            *all = before;
        }
        return Err(sense.into());
    }
    if call.field(1, 1) & 0x1f == 0x05 {
        call.abort(gone).await;
    }
    Good::took(length)
}

/// What a change was of.
struct Changed {
    /// The nexuses that lost their registration.
    gone: Vec<u64>,
    before: Reservations,
    after: Reservations,
}

/// Changes the reservations. Nobody else does between what was before and what is after.
fn change(call: &Call, list: &[u8]) -> Result<Changed, super::call::End> {
    let (key, new) = (be(list, 0, 8), be(list, 8, 8));
    let action = call.field(1, 1) & 0x1f;
    let is_register = matches!(action, 0x00 | 0x06);
    // SPEC_I_PT and ALL_TG_PT: others are not registered on their behalf.
    if list[20] & 0x0c != 0 || (list[20] & 0x01 != 0 && !is_register) {
        return Err(Sense::parameter(20).into());
    }
    let scope_and_kind = call.field(2, 1) as u8;
    let kind = || match (scope_and_kind >> 4, Kind::of(scope_and_kind & 0xf)) {
        (0, Some(kind)) => Ok(kind),
        _ => Err(Sense::cdb(2)),
    };
    let port = Port::of(&call.nexus);
    let mut state = call.unit.lock();
    let before = state.reservations.clone();
    let all = &mut state.reservations;
    let persist = list[20] & 0x01 != 0;
    let change = match action {
        0x00 => all.register(&port, Some(key), new, persist)?,
        0x06 => all.register(&port, None, new, persist)?,
        0x01 => all.reserve(&port, key, kind()?).map(|()| Default::default())?,
        0x02 => all.release(&port, key, kind()?)?,
        0x03 => all.clear(&port, key)?,
        _ => all.preempt(&port, key, new, kind()?)?,
    };
    let after = state.reservations.clone();
    Ok(Changed { gone: Unit::spread(&mut state, &change), before, after })
}
