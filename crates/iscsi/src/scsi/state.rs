//! Commands about the unit's own state: TEST UNIT READY, REQUEST SENSE, RESERVE and RELEASE, START STOP UNIT, PREVENT ALLOW.

use super::call::{Call, End, Good, Outcome};
use crate::store::Request;

/// Whatever could be wrong was found before.
pub(super) fn test_unit_ready() -> Outcome {
    Good::nothing()
}

pub(super) fn request_sense(call: &Call) -> Outcome {
    let sense = call.unit.take_attention(&call.nexus).unwrap_or_else(|| call.unit.condition());
    Good::data(sense.encode(call.bit(1, 0x01)).to_vec(), call.field(4, 1))
}

/// RESERVE, as SPC-2 has it: for this nexus, until it releases the unit or is no more.
pub(super) fn reserve(call: &Call) -> Outcome {
    let mut state = call.unit.lock();
    if !state.reservations.registrations.is_empty() {
        return Err(End::Conflict);
    }
    state.reserved = Some(call.nexus.number);
    Good::nothing()
}

/// RELEASE: of no effect for who does not hold the unit.
pub(super) fn release(call: &Call) -> Outcome {
    let mut state = call.unit.lock();
    if !state.reservations.registrations.is_empty() {
        return Err(End::Conflict);
    }
    state.reserved = state.reserved.filter(|holder| *holder != call.nexus.number);
    Good::nothing()
}

pub(super) fn prevent_allow(call: &Call) -> Outcome {
    if !call.unit.config.removable {
        let code = super::sense::code::INVALID_OPERATION_CODE;
        return Err(super::sense::Sense::new(super::sense::Key::IllegalRequest, code).into());
    }
    call.unit.lock().prevent(&call.nexus, call.bit(4, 0x03));
    Good::nothing()
}

/// START STOP UNIT. What was written is on stable storage before the medium goes; power conditions change nothing here.
pub(super) async fn start_stop(call: &Call) -> Outcome {
    let (start, load_eject) = (call.bit(4, 0x01), call.bit(4, 0x02));
    if call.field(4, 1) & 0xf0 != 0 {
        return Good::nothing();
    }
    if load_eject && !call.unit.config.removable {
        return Err(super::sense::Sense::cdb(4).into());
    }
    if !start && !call.bit(4, 0x04) {
        call.ask(Request::Flush).await?;
    }
    call.unit.lock().start_stop(&call.nexus, start, load_eject)?;
    Good::nothing()
}
