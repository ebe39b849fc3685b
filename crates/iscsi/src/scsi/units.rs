//! The units of one target: the device that a port sees.

use super::call::{Good, Task};
use super::sense::{Key, Sense, code};
use super::unit::Unit;
use super::{Command, Completion, Device, Function, Input, Nexus, Step, inquiry, report, status};
use crate::store::{Answer, Request};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};

/// Logical units by their numbers, which may come and go.
#[derive(Default)]
pub struct Units(RwLock<BTreeMap<u16, Arc<Unit>>>);

impl Units {
    /// A target with one unit, number 0.
    pub fn of(unit: Arc<Unit>) -> Units {
        let units = Units::default();
        units.insert(0, unit);
        units
    }

    /// Puts a unit at a number, in place of the one that was there.
    pub fn insert(&self, number: u16, unit: Arc<Unit>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(number, unit);
    }

    /// Takes a unit away. Tasks that it has go on to their end.
    pub fn remove(&self, number: u16) -> Option<Arc<Unit>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&number)
    }

    fn get(&self, lun: u64) -> Option<Arc<Unit>> {
        let number = number_of(lun)?;
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&number).cloned()
    }

    fn each(&self, act: impl FnMut(&Arc<Unit>)) {
        self.0.read().unwrap_or_else(PoisonError::into_inner).values().for_each(act);
    }

    /// What is answered in the name of the target, or where there is no unit.
    fn absent(&self, command: &Command) -> Completion {
        let allocation = super::fields::be(&command.cdb, 3, 2);
        let unsupported = Sense::new(Key::IllegalRequest, code::LOGICAL_UNIT_NOT_SUPPORTED);
        let outcome = match command.cdb.first() {
            Some(0x12) if command.cdb.get(1).is_some_and(|byte| byte & 1 == 0) => {
                inquiry::absent(allocation)
            }
            Some(0x03) => {
                let data = unsupported.encode(command.cdb.get(1).is_some_and(|byte| byte & 1 != 0));
                Good::data(data.to_vec(), super::fields::be(&command.cdb, 4, 1))
            }
            _ => Err(unsupported.into()),
        };
        ended(outcome)
    }

    fn report(&self, command: &Command) -> Completion {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let luns: Vec<u64> = all.keys().map(|number| lun_of(*number)).collect();
        ended(report::luns(&command.cdb, &luns))
    }
}

fn ended(outcome: super::call::Outcome) -> Completion {
    match outcome {
        Ok(Good { data_in, in_bytes, out_bytes, .. }) => {
            Completion { data_in, in_bytes, out_bytes, ..Completion::default() }
        }
        Err(super::call::End::Sense(sense)) => Completion {
            status: status::CHECK_CONDITION,
            sense: sense.encode(false),
            ..Completion::default()
        },
        Err(super::call::End::Conflict) => {
            Completion { status: status::RESERVATION_CONFLICT, ..Completion::default() }
        }
    }
}

impl Device for Units {
    type Task = Task;

    fn start(&self, lun: u64, nexus: &Nexus, command: Command) -> (Task, Step) {
        if command.cdb.first() == Some(&REPORT_LUNS) {
            return Task::ended(self.report(&command));
        }
        match self.get(lun) {
            Some(unit) => Task::start(unit, nexus, command),
            None => Task::ended(self.absent(&command)),
        }
    }

    fn next(&self, task: &mut Task, input: Input) -> Step {
        task.next(input)
    }

    fn ask(&self, task: &Task, request: Request) -> Answer {
        task.ask(request)
    }

    fn turn(&self, task: &Task) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        task.turn()
    }

    fn plain(&self, lun: u64) -> u64 {
        number_of(lun).map_or(lun, lun_of)
    }

    fn has_unit(&self, lun: u64) -> bool {
        self.get(lun).is_some()
    }

    fn manage(&self, lun: u64, nexus: &Nexus, function: Function) {
        match function {
            Function::TargetReset => self.each(|unit| unit.reset(code::POWER_ON_OR_RESET)),
            Function::LogicalUnitReset => {
                self.get(lun).iter().for_each(|unit| unit.reset(code::LOGICAL_UNIT_RESET));
            }
            Function::ClearTaskSet => {
                let code = code::COMMANDS_CLEARED_BY_ANOTHER_INITIATOR;
                self.get(lun).iter().for_each(|unit| unit.tell_others(code, nexus));
            }
        }
    }

    fn lost(&self, nexus: &Nexus) {
        self.each(|unit| unit.lost(nexus.number));
    }
}

/// The unit that eight bytes name (SAM-5, 4.7): by peripheral or by flat addressing, on the first level.
fn number_of(lun: u64) -> Option<u16> {
    let first = (lun >> 48) as u16;
    match (first >> 14, first & 0x3fff, lun << 16) {
        (0, number @ 0..=0xff, 0) | (1, number, 0) => Some(number),
        _ => None,
    }
}

fn lun_of(number: u16) -> u64 {
    let first = if number < 0x100 { number } else { 0x4000 | number };
    u64::from(first) << 48
}

const REPORT_LUNS: u8 = 0xa0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_found_by_either_addressing() {
        for number in [0, 1, 255, 256, 0x3fff] {
            assert_eq!(number_of(lun_of(number)), Some(number));
        }
        assert_eq!(number_of(0x4001_0000_0000_0000), Some(1));
        assert_eq!(number_of(0x0001_0000_0000_0001), None);
        assert_eq!(number_of(0xc101_0000_0000_0000), None);
    }
}
