//! Whether a command may run, and which code it is.

use super::call::{Call, End, Outcome};
use super::opcodes::{self, Found, Needs, Opcode, Verb};
use super::reservations::Effect;
use super::sense::{Key, Sense, code};
use super::{atomic, copy, inquiry, medium, mode, persistent, provision, report, state};

/// What a command needs of its unit, and what may stand in its way.
pub(super) struct Need {
    /// It is not begun while its nexus has something to be told.
    pub(super) heeds_attention: bool,
    /// Another nexus' RESERVE keeps it out.
    pub(super) heeds_spc2: bool,
    /// What persistent reservations go by.
    pub(super) effect: Effect,
    /// It does not run while the unit is sanitized.
    pub(super) calm: bool,
    /// It needs a medium.
    pub(super) medium: bool,
    /// It writes.
    pub(super) writable: bool,
    /// It would mend a failed sanitize.
    pub(super) sanitizes: bool,
}

impl Need {
    fn of(opcode: &Opcode, call: &Call) -> Need {
        let verb = opcode.verb;
        let always = matches!(verb, Verb::Inquiry | Verb::ReportLuns | Verb::RequestSense);
        let effect = match verb {
            // SBC-4, table 14: to start is harmless, and so is to allow.
            Verb::StartStopUnit if call.bit(4, 0x01) && call.field(4, 1) & 0xf0 == 0 => {
                Effect::Harmless
            }
            Verb::PreventAllow if call.bit(4, 0x03) => Effect::Writes,
            _ => opcode.effect,
        };
        let allows = verb == Verb::PreventAllow && !call.bit(4, 0x03);
        Need {
            heeds_attention: !always,
            heeds_spc2: !(always || allows || matches!(verb, Verb::Release6 | Verb::Release10)),
            effect,
            calm: opcode.needs != Needs::Nothing,
            medium: matches!(opcode.needs, Needs::Medium | Needs::Writable),
            writable: opcode.needs == Needs::Writable,
            sanitizes: verb == Verb::Sanitize,
        }
    }
}

/// Runs a command from its first check to its end.
pub(super) async fn run(call: &Call) -> Outcome {
    let opcode = match opcodes::find(&call.cdb) {
        Found::Known(opcode) => opcode,
        Found::NoAction => return Err(Sense::cdb(1).into()),
        Found::Unknown => {
            return Err(Sense::new(Key::IllegalRequest, code::INVALID_OPERATION_CODE).into());
        }
    };
    call.unit.admit(&call.nexus, &Need::of(opcode, call))?;
    match opcode.reserved_bit(&call.cdb) {
        Some(byte) => Err(End::Sense(Sense::cdb(byte))),
        None => dispatch(call, opcode.verb).await,
    }
}

async fn dispatch(call: &Call, verb: Verb) -> Outcome {
    match verb {
        Verb::CompareAndWrite => atomic::compare_and_write(call).await,
        Verb::ExtendedCopy => copy::extended_copy(call).await,
        Verb::GetLbaStatus => provision::lba_status(call).await,
        Verb::Inquiry => inquiry::inquiry(call),
        Verb::ModeSelect6 | Verb::ModeSelect10 => mode::select(call).await,
        Verb::ModeSense6 | Verb::ModeSense10 => mode::sense(call),
        Verb::OrWrite => atomic::or_write(call).await,
        Verb::PersistentReserveIn => persistent::reserve_in(call),
        Verb::PersistentReserveOut => persistent::reserve_out(call).await,
        Verb::Prefetch => medium::prefetch(call),
        Verb::PreventAllow => state::prevent_allow(call),
        Verb::Read => medium::read(call).await,
        Verb::ReadCapacity10 => report::read_capacity_10(call),
        Verb::ReadCapacity16 => report::read_capacity_16(call),
        Verb::ReadDefectData10 | Verb::ReadDefectData12 => report::read_defect_data(call),
        Verb::ReceiveCopyResults => copy::receive_copy_results(call),
        Verb::Release6 | Verb::Release10 => state::release(call),
        // The target answers it: it knows its units.
        Verb::ReportLuns => {
            Err(Sense::new(Key::IllegalRequest, code::INVALID_OPERATION_CODE).into())
        }
        Verb::ReportSupportedOpcodes => report::supported_opcodes(call),
        Verb::ReportTargetPortGroups => report::target_port_groups(call),
        Verb::RequestSense => state::request_sense(call),
        Verb::Reserve6 | Verb::Reserve10 => state::reserve(call),
        Verb::Sanitize => provision::sanitize(call).await,
        Verb::StartStopUnit => state::start_stop(call).await,
        Verb::SynchronizeCache => medium::synchronize_cache(call).await,
        Verb::TestUnitReady => state::test_unit_ready(),
        Verb::Unmap => provision::unmap(call).await,
        Verb::Verify => medium::verify(call).await,
        Verb::Write => medium::write(call).await,
        Verb::WriteAtomic => atomic::write_atomic(call).await,
        Verb::WriteSame => provision::write_same(call).await,
        Verb::WriteVerify => medium::write_and_verify(call).await,
    }
}
