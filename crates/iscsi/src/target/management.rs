//! Task management: aborts and resets (RFC 7143, sections 4.2.3, 11.5 and 11.6).
//!
//! A function is answered when all tasks that it concerns are gone, on whatever connections and threads they are.

use super::Device;
use super::connection::Wire;
use super::full_feature::{FullFeature, Link};
use super::session::{Entry, Session, is_before};
use super::tasks::Tasks;
use crate::message::{Header, Lengths, flags};
use crate::pdu::Pdu;
use crate::scsi::Function;
use std::sync::Arc;
use std::task::Context;

/// Functions that are not answered yet.
pub(super) struct Management<D: Device> {
    pending: Vec<Pending<D>>,
}

impl<D: Device> Default for Management<D> {
    fn default() -> Self {
        Management { pending: Vec::new() }
    }
}

struct Pending<D: Device> {
    then: Then,
    /// Tasks that must be gone before.
    tasks: Vec<(Arc<Session<D>>, Vec<u32>)>,
}

#[derive(Clone, Copy)]
enum Then {
    /// The function is done to the device, if it is one of its, and answered.
    Answer { itt: u32, function: Option<(u64, Function)> },
    /// A command that aborted others goes on.
    Resume { itt: u32 },
}

/// Answers (11.6.1).
const COMPLETE: u8 = 0;
const NO_TASK: u8 = 1;
const NO_UNIT: u8 = 2;
const NO_REASSIGNMENT: u8 = 4;
const NOT_SUPPORTED: u8 = 5;

/// Functions (11.5.1).
const ABORT_TASK: u8 = 1;
const ABORT_TASK_SET: u8 = 2;
const CLEAR_TASK_SET: u8 = 4;
const LOGICAL_UNIT_RESET: u8 = 5;
const TARGET_WARM_RESET: u8 = 6;
const TASK_REASSIGN: u8 = 8;

/// The fields of a request.
struct Request {
    function: u8,
    lun: u64,
    itt: u32,
    referenced_itt: u32,
    ref_cmd_sn: u32,
    cmd_sn: u32,
}

impl<D: Device> FullFeature<D> {
    /// Begins a task management function.
    pub(super) fn manage(&mut self, wire: &mut Wire, pdu: &Pdu) {
        let Ok(Header::TaskRequest {
            function, lun, itt, referenced_itt, ref_cmd_sn, cmd_sn, ..
        }) = pdu.header
        else {
            return;
        };
        let function = function & 0x7f;
        let request = Request { function, lun, itt, referenced_itt, ref_cmd_sn, cmd_sn };
        match self.begin(&request) {
            Ok(pending) => {
                // Our own are gone at once.
                self.tasks.sweep(&self.link, wire);
                self.management.pending.push(pending);
            }
            Err(response) => put_response(&self.link, wire, itt, response),
        }
    }

    fn begin(&self, request: &Request) -> Result<Pending<D>, u8> {
        let session = &self.link.session;
        let target = session.target.as_ref().ok_or(NOT_SUPPORTED)?;
        let (itt, lun) = (request.itt, target.device.plain(request.lun));
        let concerns_unit =
            matches!(request.function, ABORT_TASK_SET | CLEAR_TASK_SET | LOGICAL_UNIT_RESET);
        if concerns_unit && !target.device.has_unit(lun) {
            return Err(NO_UNIT);
        }
        let mine = |itts| vec![(session.clone(), itts)];
        let all = |which: &dyn Fn(&Entry) -> bool| {
            let sessions = target.sessions().into_iter();
            sessions
                .map(|session| (session.clone(), session.abort(|_, entry| which(entry))))
                .collect()
        };
        let (function, tasks) = match request.function {
            ABORT_TASK => (None, mine(self.abort_task(request, lun)?)),
            //= rfc7143#4.2.3.3
            // The tasks with a lower CmdSN are those that the function concerns.
            ABORT_TASK_SET => {
                let is_older =
                    |entry: &Entry| entry.cmd_sn.is_none_or(|sn| is_before(sn, request.cmd_sn));
                (None, mine(session.abort(|_, entry| entry.lun == lun && is_older(entry))))
            }
            CLEAR_TASK_SET => (Some(Function::ClearTaskSet), all(&|entry| entry.lun == lun)),
            LOGICAL_UNIT_RESET => {
                (Some(Function::LogicalUnitReset), all(&|entry| entry.lun == lun))
            }
            TARGET_WARM_RESET => (Some(Function::TargetReset), all(&|_| true)),
            //= rfc7143#11.6.1
            // Below level 2 the allegiance of a task is not reassigned.
            TASK_REASSIGN => return Err(NO_REASSIGNMENT),
            _ => return Err(NOT_SUPPORTED),
        };
        let then = Then::Answer { itt, function: function.map(|function| (lun, function)) };
        Ok(Pending { then, tasks })
    }

    fn abort_task(&self, request: &Request, lun: u64) -> Result<Vec<u32>, u8> {
        let session = &self.link.session;
        match session.task(request.referenced_itt) {
            Some(entry) if entry.lun == lun => {
                Ok(session.abort(|itt, _| itt == request.referenced_itt))
            }
            //= rfc7143#11.6.1
            // A command that has not come, and whose number is the next one, counts as come: the function is complete.
            None if session.skip(self.link.cid, self.link.serial, request.ref_cmd_sn) => {
                Ok(Vec::new())
            }
            _ => Err(NO_TASK),
        }
    }
}

impl<D: Device> Management<D> {
    /// Goes on with what has waited long enough.
    pub fn poll(
        &mut self,
        context: &mut Context<'_>,
        link: &Link<D>,
        tasks: &mut Tasks<D>,
        wire: &mut Wire,
    ) {
        for (itt, lun, nexuses) in std::mem::take(&mut tasks.aborting) {
            self.pending.push(abort_nexuses(link, itt, lun, &nexuses));
            tasks.sweep(link, wire);
        }
        let pending = std::mem::take(&mut self.pending);
        for one in pending {
            let waits = |(session, itts): &(Arc<Session<D>>, Vec<u32>)| {
                session.has_aborted(itts, context.waker())
            };
            // All of them are asked, so that each knows whom to wake.
            if one.tasks.iter().filter(|tasks| waits(tasks)).count() > 0 {
                self.pending.push(one);
                continue;
            }
            match one.then {
                Then::Resume { itt } => tasks.aborted(link, wire, itt),
                Then::Answer { itt, function } => {
                    if let (Some((lun, function)), Some(target)) = (function, &link.session.target)
                    {
                        target.device.manage(lun, &link.session.nexus, function);
                    }
                    put_response(link, wire, itt, COMPLETE);
                }
            }
        }
    }
}

/// Aborts the tasks of other nexuses for a command of this one.
fn abort_nexuses<D: Device>(link: &Link<D>, itt: u32, lun: u64, nexuses: &[u64]) -> Pending<D> {
    let sessions = link.session.target.iter().flat_map(|target| target.sessions());
    let named = sessions.filter(|session| nexuses.contains(&session.nexus.number));
    let is_mine = |session: &Arc<Session<D>>| Arc::ptr_eq(session, &link.session);
    let tasks = named.map(|session| {
        let itts =
            session.abort(|other, entry| entry.lun == lun && !(is_mine(&session) && other == itt));
        (session, itts)
    });
    Pending { then: Then::Resume { itt }, tasks: tasks.collect() }
}

fn put_response<D: Device>(link: &Link<D>, wire: &mut Wire, itt: u32, response: u8) {
    if !link.session.has(link.cid, link.serial) {
        return;
    }
    let window = link.session.window();
    wire.put(&Header::TaskResponse {
        flags: flags::FINAL,
        response,
        reserved: Default::default(),
        lengths: Lengths::default(),
        reserved_2: Default::default(),
        itt,
        reserved_3: Default::default(),
        stat_sn: wire.stat_sn,
        exp_cmd_sn: window.exp_cmd_sn,
        max_cmd_sn: window.max_cmd_sn,
        reserved_4: Default::default(),
    });
    wire.next_stat_sn();
}
