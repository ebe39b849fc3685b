//! The SCSI commands of one connection: from their PDU by way of the device and its store to their end.

mod coming;

use super::connection::Wire;
use super::credit::Turn;
use super::data_in::{self, Expected};
use super::data_out::{Arrived, DataOut};
use super::full_feature::Link;
use super::lent::Lent;
use super::request;
use super::session::{Busy, Entry};
use super::{Device, Room};
use crate::message::{Header, Lengths, flags, reject};
use crate::pdu::Pdu;
use crate::scsi::{Completion, Input, Step};
use crate::store::{Answer, Reply, Request};
use covey_wire::Bytes;
use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::collections::{HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

/// How much data of initiators is asked for at a time on one connection, as long as more than one command wants some.
const COLLECT_BYTES_MAX: u64 = 32 << 20;
/// How much data for the initiator one connection has in memory, as long as more than one command has some.
const READ_BYTES_MAX: u64 = 32 << 20;
/// How much one task reads of a store that answers at once before others have their turn.
const AT_ONCE_BYTES_MAX: u64 = 4 << 20;
/// What a device must not collect: more than any command of ours takes.
const COLLECT_BYTES_LIMIT: u64 = 256 << 20;

/// The commands under way.
pub(super) struct Tasks<D: Device> {
    running: HashMap<u32, Running<D>>,
    waits: FuturesUnordered<Wait>,
    /// Who collects data, in the order in which they began.
    collecting: VecDeque<u32>,
    /// Who takes its data as it comes and may have some.
    ready: VecDeque<u32>,
    /// Whether they wait for output to be sent first.
    is_late: bool,
    /// Bytes asked for that have not been handed to the device.
    asked_bytes: u64,
    /// When the rate permits to ask again, while somebody waits for that.
    turn: Turn,
    is_waiting_for_turn: bool,
    /// Reads that wait for memory.
    parked: VecDeque<(u32, u64, Request)>,
    /// Bytes that stores are reading.
    reading_bytes: u64,
    /// The initiator's data that has come for commands under way.
    come_bytes: u64,
    /// What of that stores still have of commands that are no more, by their serial number.
    orphans: HashMap<u64, u64>,
    /// How much memory there is.
    pub room: Room,
    /// Tasks that wait for others to be aborted.
    pub aborting: Vec<(u32, u64, Vec<u64>)>,
    lent: Lent,
    next_serial: u64,
    next_ttt: u32,
}

impl<D: Device> Default for Tasks<D> {
    fn default() -> Self {
        let (running, waits, collecting, parked) = Default::default();
        let (asked_bytes, reading_bytes, come_bytes, aborting) = Default::default();
        let (room, lent, next_serial, next_ttt) = Default::default();
        let (turn, is_waiting_for_turn, ready, is_late, orphans) = Default::default();
        Tasks {
            running,
            waits,
            collecting,
            ready,
            is_late,
            asked_bytes,
            turn,
            is_waiting_for_turn,
            parked,
            reading_bytes,
            come_bytes,
            orphans,
            room,
            aborting,
            lent,
            next_serial,
            next_ttt,
        }
    }
}

/// A command under way.
struct Running<D: Device> {
    task: D::Task,
    /// Unlike its tag, never another task's.
    serial: u64,
    lun: u64,
    expected: Expected,
    out: DataOut,
    /// Bytes asked for by R2T.
    asked_bytes: u64,
    /// Bytes that have come.
    come_bytes: u64,
    /// Whether its store has not answered.
    is_asked: bool,
    state: State,
}

enum State {
    /// The initiator's data is awaited.
    Collecting,
    /// The same, and it takes what has come, in blocks of so many bytes.
    Streaming(u64),
    /// The store, or others, are awaited.
    Waiting,
    /// It is over, but data that nobody wants still comes.
    Draining(Completion),
}

/// A store's answer on its way: to which task, and how many bytes it reads.
type Wait = Pin<Box<dyn Future<Output = (u32, u64, u64, Reply)> + Send>>;

impl<D: Device> Tasks<D> {
    /// The tags of all commands.
    pub fn tags(&self) -> impl Iterator<Item = u32> {
        self.running.keys().copied()
    }

    /// What is held of the initiator's data, and for it.
    pub fn bytes(&self) -> u64 {
        self.come_bytes + self.reading_bytes
    }

    /// How much memory there is from now on. False where none is, and data must come before any is given back.
    pub fn set_room(&mut self, room: Room) -> bool {
        self.room = room;
        room != Room::None || self.collecting.is_empty()
    }

    /// Whether memory must be given back before more comes.
    pub fn is_full(&self) -> bool {
        self.room == Room::None && self.collecting.is_empty()
    }

    /// How much of `most` there is room for, as long as more than one command wants some.
    fn at_most(&self, most: u64) -> u64 {
        if self.room == Room::Ample { most } else { 0 }
    }

    /// Begins a SCSI command. An error is the reason of a Reject.
    pub fn command(&mut self, link: &Link<D>, wire: &mut Wire, pdu: &Pdu) -> Result<(), u8> {
        let Ok(Header::ScsiCommand { flags: bits, lun, itt, expected_bytes, cmd_sn, cdb, .. }) =
            &pdu.header
        else {
            return Err(reject::PROTOCOL);
        };
        let target = link.session.target.as_ref().ok_or(reject::PROTOCOL)?;
        let extra = request::Extra::parse(&pdu.ahs)?;
        let expected = request::expectation(*bits, *expected_bytes, &extra);
        let is_final = bits & flags::FINAL != 0;
        let data = pdu.data.clone();
        let come_bytes = data.len() as u64;
        let out = DataOut::begin(expected.bytes_out, data, is_final, &link.parameters)?;
        let cmd_sn = (!pdu.is_immediate).then_some(*cmd_sn);
        let lun_plain = target.device.plain(*lun);
        let entry =
            Entry { lun: lun_plain, cid: link.cid, serial: link.serial, cmd_sn, is_aborted: false };
        link.session.begin(*itt, link.serial, entry).map_err(|busy| match busy {
            Busy::Tag => reject::TASK_IN_PROGRESS,
            Busy::TooMany => reject::IMMEDIATE,
        })?;
        let command = request::command(pdu, &cdb.0, *bits, &extra, &expected);
        let (task, step) = target.device.start(*lun, &link.session.nexus, command);
        self.next_serial += 1;
        let (serial, state) = (self.next_serial, State::Waiting);
        let (asked_bytes, is_asked, lun) = (0, false, *lun);
        let running =
            Running { task, serial, lun, expected, out, asked_bytes, come_bytes, is_asked, state };
        self.come_bytes += come_bytes;
        self.running.insert(*itt, running);
        self.step(link, wire, *itt, step);
        Ok(())
    }

    /// Does what a task needs next, as far as that is possible now.
    fn step(&mut self, link: &Link<D>, wire: &mut Wire, itt: u32, mut step: Step) {
        let target = link.session.target.as_ref().expect("a task has a target");
        let mut at_once_bytes = 0;
        loop {
            let Some(running) = self.running.get_mut(&itt) else { return };
            let input = match step {
                Step::Collect { bytes } if bytes > COLLECT_BYTES_LIMIT => {
                    return self.end(link, wire, itt, broken());
                }
                Step::Collect { bytes } => {
                    running.out.want(bytes.min(running.expected.bytes_out));
                    if !running.out.is_complete() {
                        running.state = State::Collecting;
                        self.collecting.push_back(itt);
                        return self.ask_for_data(link, wire);
                    }
                    if running.out.is_broken() {
                        return self.end(link, wire, itt, broken());
                    }
                    Input::Data(running.out.collect())
                }
                Step::Stream { to, block_bytes, .. } => {
                    running.out.want(to.min(running.expected.bytes_out));
                    running.state = State::Streaming(block_bytes);
                    if !running.out.is_complete() && !self.collecting.contains(&itt) {
                        self.collecting.push_back(itt);
                    }
                    return self.more_has_come(link, wire, itt);
                }
                Step::Store(request) => {
                    at_once_bytes += read_bytes(&request);
                    match self.ask(link, wire, itt, request) {
                        Some(reply) if at_once_bytes > AT_ONCE_BYTES_MAX => {
                            return self.put_off(itt, reply);
                        }
                        Some(reply) => Input::Stored(reply),
                        None => return,
                    }
                }
                Step::Turn => {
                    running.state = State::Waiting;
                    let (serial, turn) = (running.serial, target.device.turn(&running.task));
                    let wait = turn.map(move |()| (itt, serial, 0, Reply::Done));
                    return self.waits.push(Box::pin(wait));
                }
                Step::Abort(nexuses) => {
                    running.state = State::Waiting;
                    self.aborting.push((itt, target.device.plain(running.lun), nexuses));
                    return;
                }
                Step::End(completion) => return self.end(link, wire, itt, completion),
            };
            let Some(running) = self.running.get_mut(&itt) else { return };
            step = target.device.next(&mut running.task, input);
        }
    }

    /// Goes on with a task when others of this thread have had their turn.
    fn put_off(&mut self, itt: u32, reply: Reply) {
        let Some(running) = self.running.get_mut(&itt) else { return };
        running.state = State::Waiting;
        let serial = running.serial;
        let mut has_had_turn = false;
        self.waits.push(Box::pin(async move {
            poll_fn(|context| {
                if std::mem::replace(&mut has_had_turn, true) {
                    return Poll::Ready(());
                }
                context.waker().wake_by_ref();
                Poll::Pending
            })
            .await;
            (itt, serial, 0, reply)
        }));
    }

    /// Goes on with a task that had to wait.
    fn go_on(&mut self, link: &Link<D>, wire: &mut Wire, itt: u32, input: Input) {
        if link.session.is_aborted(itt) {
            return self.remove(link, itt);
        }
        let target = link.session.target.as_ref().expect("a task has a target");
        let Some(running) = self.running.get_mut(&itt) else { return };
        running.is_asked = false;
        let step = target.device.next(&mut running.task, input);
        self.step(link, wire, itt, step);
    }

    /// What a task waited for has been aborted.
    pub fn aborted(&mut self, link: &Link<D>, wire: &mut Wire, itt: u32) {
        self.go_on(link, wire, itt, Input::Aborted);
    }

    /// Asks the store; `None` where the answer comes later.
    fn ask(
        &mut self,
        link: &Link<D>,
        wire: &mut Wire,
        itt: u32,
        mut request: Request,
    ) -> Option<Reply> {
        let most = self.at_most(READ_BYTES_MAX);
        let running = self.running.get_mut(&itt)?;
        running.state = State::Waiting;
        let serial = running.serial;
        if let Request::Read { may_lend, .. } = &mut request {
            *may_lend &= !wire.digests.data && self.lent.has_room();
        }
        let bytes = read_bytes(&request);
        let held = self.reading_bytes + wire.out.len() as u64;
        if bytes > 0 && held > 0 && held + bytes > most {
            self.parked.push_back((itt, serial, request));
            return None;
        }
        let target = link.session.target.as_ref()?;
        match target.device.ask(&running.task, request) {
            Answer::Now(reply) => Some(reply),
            Answer::Later(future) => {
                self.reading_bytes += bytes;
                if let Some(running) = self.running.get_mut(&itt) {
                    running.is_asked = true;
                }
                self.waits.push(Box::pin(async move { (itt, serial, bytes, future.await) }));
                None
            }
        }
    }

    /// Goes on with reads that waited for memory.
    pub fn resume(&mut self, link: &Link<D>, wire: &mut Wire) {
        while let Some((itt, serial, request)) = self.parked.pop_front() {
            if !self.is_running(itt, serial) {
                continue;
            }
            let waiting = self.parked.len();
            if let Some(reply) = self.ask(link, wire, itt, request) {
                self.go_on(link, wire, itt, Input::Stored(reply));
            }
            // It has been put back, behind the others: in front it was, in front it stays.
            if self.parked.len() > waiting {
                self.parked.rotate_right(1);
                return;
            }
        }
    }

    fn is_running(&self, itt: u32, serial: u64) -> bool {
        self.running.get(&itt).is_some_and(|running| running.serial == serial)
    }

    /// Takes the answers of stores.
    pub fn poll(&mut self, context: &mut Context<'_>, link: &Link<D>, wire: &mut Wire) {
        loop {
            self.take_answers(context, link, wire);
            let asked = self.waits.len();
            if !self.parked.is_empty() {
                self.resume(link, wire);
            }
            let has_handed = self.hand_over(link, wire);
            // What the store was asked meanwhile wakes nobody before it has been looked at.
            if !has_handed && self.waits.len() == asked {
                return;
            }
        }
    }

    fn take_answers(&mut self, context: &mut Context<'_>, link: &Link<D>, wire: &mut Wire) {
        while !self.waits.is_empty() {
            let Poll::Ready(Some(answer)) = self.waits.poll_next_unpin(context) else { return };
            let (itt, serial, bytes, reply) = answer;
            self.reading_bytes -= bytes;
            self.come_bytes -= self.orphans.remove(&serial).unwrap_or(0);
            if self.is_running(itt, serial) {
                self.go_on(link, wire, itt, Input::Stored(reply));
            }
        }
    }

    /// Whether something is left for the next turn.
    pub fn has_left(&self) -> bool {
        !self.ready.is_empty()
    }

    /// A task is over, but for data that is still on its way.
    fn end(&mut self, link: &Link<D>, wire: &mut Wire, itt: u32, completion: Completion) {
        // It may have failed before all of its data was there, and another has waited for its turn to send.
        let was_asked = self.stop_collecting(itt);
        let Some(running) = self.running.get_mut(&itt) else { return };
        if running.out.is_owed() {
            running.out.want(0);
            running.state = State::Draining(completion);
        } else {
            self.finish(link, wire, itt, completion);
        }
        if was_asked {
            self.ask_for_data(link, wire);
        }
    }

    fn finish(&mut self, link: &Link<D>, wire: &mut Wire, itt: u32, completion: Completion) {
        let Some(running) = self.take(itt) else { return };
        let (window, is_answered) = link.session.end(itt);
        if !is_answered {
            return;
        }
        let expected = Expected { r2t_count: running.out.r2t_count(), ..running.expected };
        let out_bytes = completion.out_bytes.min(expected.bytes_out) as usize;
        let lent = completion.lent.clone();
        let sent = data_in::send(wire, &link.parameters, itt, expected, completion, window);
        link.session.counts.add(sent, out_bytes);
        self.lent.add(wire.stat_sn, lent);
    }

    /// Whether the initiator may not have all that was lent to it.
    pub fn has_lent(&self) -> bool {
        !self.lent.is_empty()
    }

    /// What the initiator has of what was lent to it.
    pub fn lent(&mut self) -> &mut Lent {
        &mut self.lent
    }

    fn take(&mut self, itt: u32) -> Option<Running<D>> {
        let running = self.running.remove(&itt)?;
        self.come_bytes -= running.come_bytes;
        Some(running)
    }

    /// A task is no more, and has no answer. Its store may still have its data.
    fn remove(&mut self, link: &Link<D>, itt: u32) {
        self.stop_collecting(itt);
        let Some(running) = self.take(itt) else { return };
        if running.is_asked && running.come_bytes > 0 {
            self.come_bytes += running.come_bytes;
            self.orphans.insert(running.serial, running.come_bytes);
        }
        link.session.end(itt);
    }

    /// Removes what has been aborted.
    pub fn sweep(&mut self, link: &Link<D>, wire: &mut Wire) {
        let itts: Vec<u32> = self.tags().filter(|itt| link.session.is_aborted(*itt)).collect();
        itts.into_iter().for_each(|itt| self.remove(link, itt));
        self.ask_for_data(link, wire);
    }

    /// Removes everything.
    pub fn clear(&mut self, link: &Link<D>) {
        let itts: Vec<u32> = self.tags().collect();
        itts.into_iter().for_each(|itt| self.remove(link, itt));
    }
}

/// How many bytes of memory a request asks for.
fn read_bytes(request: &Request) -> u64 {
    match request {
        Request::Read { bytes, .. } => *bytes,
        _ => 0,
    }
}

fn next_tag(tag: u32) -> u32 {
    match tag.wrapping_add(1) {
        crate::message::NO_TAG => 0,
        tag => tag,
    }
}

/// The end of a command whose data did not come whole: aborted command, protocol service CRC error (11.4.7.2).
fn broken() -> Completion {
    const CHECK_CONDITION: u8 = 2;
    let mut sense = [0; 18];
    (sense[0], sense[2], sense[7]) = (0x70, 0x0b, 10);
    (sense[12], sense[13]) = (0x47, 0x05);
    let sense = Bytes::copy_from_slice(&sense);
    Completion { status: CHECK_CONDITION, sense, ..Completion::default() }
}

fn put_r2t<D: Device>(
    link: &Link<D>,
    wire: &mut Wire,
    lun: u64,
    itt: u32,
    r2t: &super::data_out::R2t,
) {
    let window = link.session.window();
    wire.put(&Header::R2t {
        flags: flags::FINAL,
        reserved: Default::default(),
        lengths: Lengths::default(),
        lun,
        itt,
        ttt: r2t.ttt,
        //= rfc7143#11.8.3
        // The StatSN of an R2T is the next one, which it does not count.
        stat_sn: wire.stat_sn,
        exp_cmd_sn: window.exp_cmd_sn,
        max_cmd_sn: window.max_cmd_sn,
        r2t_sn: r2t.sn,
        offset: r2t.offset as u32,
        desired_bytes: (r2t.end - r2t.offset) as u32,
    });
}
