//! What a SCSI target port asks of the device behind it, and what it gets back.
//!
//! A port (here: iSCSI) parses commands, moves their data and reports their end. A [`Device`] knows what the
//! commands mean. Neither does any I/O: what is to be read or written is asked of a [`store`](mod@crate::store).
//!
//! ```text
//!   port ── start(lun, nexus, command) ──► device          Step::Collect ──► port brings data-out ──► next(Input::Data)
//!        ◄──────────────── Step ──────────                  Step::Store   ──► ask(task, request)   ──► next(Input::Stored)
//!                                                           Step::End     ──► data-in, status, sense
//! ```
//!
//! A device is shared by the connections of a target, which run on several threads; a task belongs to the connection that
//! its command came on.

mod admit;
mod atomic;
mod call;
mod copy;
mod fields;
mod inquiry;
mod medium;
mod mode;
mod opcodes;
mod order;
mod persistent;
mod provision;
mod ranges;
mod report;
mod reservations;
mod sense;
mod state;
mod unit;
mod units;
mod unsynced;

pub use call::Task;
pub use unit::{ClosedRange, Config, Unfit, Unit};
pub use units::Units;

use crate::store;
use bytes::Bytes;
use covey_wire::Payload;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// An initiator port together with a target port: who asks. Reservations and unit attentions are kept per nexus.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Nexus {
    /// Unique among all nexuses since the process began: another login of the same initiator port is another nexus.
    pub number: u64,
    /// The initiator's iSCSI name.
    pub initiator: Arc<str>,
    /// The initiator's part of the session's identity: with the name it is the initiator port, as TransportIDs have it.
    pub isid: [u8; 6],
    /// The portal group that it logged in to: the relative target port identifier.
    pub portal_group: u16,
}

/// The order in which a command may be executed (SAM-5, 8.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskAttribute {
    /// Not said by the initiator: as `Simple`.
    Untagged,
    /// In any order.
    Simple,
    /// After all before it, before all after it.
    Ordered,
    /// Before all others.
    HeadOfQueue,
    /// Only to clear an auto contingent allegiance, which this project does not have.
    Aca,
}

/// One SCSI command of one nexus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The command descriptor block: at least 16 bytes, padded with zeros.
    pub cdb: Bytes,
    /// Its place among other commands.
    pub attribute: TaskAttribute,
    /// How many bytes the initiator has for the device.
    pub data_out: u64,
    /// How many bytes the initiator takes from the device.
    pub data_in: u64,
}

/// What a task needs next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The first `bytes` of the initiator's data, answered by [`Input::Data`]. No more than `Command::data_out`; asked once.
    Collect {
        /// How many, from the start.
        bytes: u64,
    },
    /// What has come of the initiator's data, in whole blocks and a good deal at a time, answered by [`Input::Data`] with at
    /// least a block. Asked again and again, until the task has all of its first `to` bytes; instead of `Collect`.
    Stream {
        /// How many the task has.
        from: u64,
        /// How many it takes in all, in whole blocks: no more than `Command::data_out`.
        to: u64,
        /// The size of a block.
        block_bytes: u64,
    },
    /// Something of the store ([`Device::ask`]), answered by [`Input::Stored`].
    Store(store::Request),
    /// Its turn, because of commands that are ORDERED ([`Device::turn`]), answered by [`Input::Stored`] with [`store::Reply::Done`].
    Turn,
    /// That all tasks of these nexuses ([`Nexus::number`]) on the same unit are aborted, answered by [`Input::Aborted`].
    Abort(Vec<u64>),
    /// Nothing: it is over.
    End(Completion),
}

/// What a task gets for its step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The data collected. Never in files.
    Data(Payload),
    /// The store's answer.
    Stored(store::Reply),
    /// The tasks are no more.
    Aborted,
}

/// The end of a task.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Completion {
    /// The SCSI status: 0 GOOD, 2 CHECK CONDITION, 0x18 RESERVATION CONFLICT, ...
    pub status: u8,
    /// Sense data, with CHECK CONDITION.
    pub sense: Bytes,
    /// Data for the initiator: what goes beyond `Command::data_in` is cut off by the port.
    pub data_in: Payload,
    /// How many bytes of data-in the command makes, had the initiator room for all of them: residuals follow from it. At
    /// least `data_in.len()`.
    pub in_bytes: u64,
    /// How many bytes of data-out the command takes by its CDB, had the initiator that many.
    pub out_bytes: u64,
    /// Where data-in is in a file, what the port keeps until the initiator has said that it has the data: as long as that,
    /// the file could still change under it.
    pub lent: store::Hold,
}

/// A task management function that concerns units, not single tasks (SAM-5, 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// The unit forgets SPC-2 reservations and mode changes, and every nexus gets a unit attention.
    LogicalUnitReset,
    /// The same for every unit of the device.
    TargetReset,
    /// The tasks of all nexuses were cleared on behalf of one: the others get a unit attention.
    ClearTaskSet,
}

/// A SCSI target device: several units, shared by all its ports and their threads.
pub trait Device: Send + Sync + 'static {
    /// A command on its way. Dropped where it is aborted, between steps only.
    type Task: Send;

    /// Begins a command for the unit `lun`, eight bytes as on the wire; there need not be such a unit.
    fn start(&self, lun: u64, nexus: &Nexus, command: Command) -> (Self::Task, Step);

    /// Goes on with what the last step asked for. Not called after [`Step::End`].
    fn next(&self, task: &mut Self::Task, input: Input) -> Step;

    /// Asks the store of the task's unit what [`Step::Store`] said.
    fn ask(&self, task: &Self::Task, request: store::Request) -> store::Answer;

    /// Until it is the turn of a task that said [`Step::Turn`].
    fn turn(&self, task: &Self::Task) -> Pin<Box<dyn Future<Output = ()> + Send>>;

    /// The one number of the unit that `lun` names: there are several ways to write it, and a task is found by any of them.
    fn plain(&self, lun: u64) -> u64 {
        lun
    }

    /// Whether there is such a unit.
    fn has_unit(&self, lun: u64) -> bool;

    /// Does `function`, after the tasks it concerns have been aborted.
    fn manage(&self, lun: u64, nexus: &Nexus, function: Function);

    /// The nexus is no more: its connections are lost or logged out (SAM-5, 6.3.4). Called once more where a command of it
    /// could still have run after that.
    fn lost(&self, nexus: &Nexus);
}

/// SCSI statuses that commands end with.
pub(crate) mod status {
    pub(crate) const CHECK_CONDITION: u8 = 0x02;
    pub(crate) const RESERVATION_CONFLICT: u8 = 0x18;
}
