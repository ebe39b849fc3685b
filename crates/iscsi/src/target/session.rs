//! A session: what the connections of one nexus share, whatever threads they run on.
//!
//! Commands are numbered through all connections of a session (RFC 7143, 4.2.2.1), and a task management function that comes on
//! one of them concerns tasks of the others. Everything else of a connection is its own.

use super::{Arrival, Credentials, Device, Target};
use crate::message::NO_TAG;
use crate::scsi::Nexus;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// Commands that an initiator may have under way: MaxCmdSN follows from it.
pub const WINDOW: u32 = 128;
/// Commands for immediate delivery that may be under way besides.
const IMMEDIATE_MAX: usize = 32;
/// The same of a discovery session, which asks one thing after the other.
const DISCOVERY_WINDOW: u32 = 4;

/// What the connections of one session share.
pub struct Session<D: Device> {
    /// Whose session it is; none in a discovery session.
    pub target: Option<Arc<Target<D>>>,
    /// Initiator port and target port.
    pub nexus: Nexus,
    /// Where its first connection has come in.
    pub entered: Entered,
    /// The target's number of the session.
    pub tsih: u16,
    /// Most connections.
    pub connections_max: u32,
    /// What it has done.
    pub counts: Counts,
    state: Mutex<State>,
}

/// Where a session has begun.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entered {
    pub(super) portal: u64,
    pub(super) arrival: Arrival,
    /// One of these it has proved to know.
    pub(super) chap: Vec<Credentials>,
    /// `HOST:PORT` of the address that the initiator has come to.
    pub address: String,
}

/// What a session has done since it began.
#[derive(Debug, Default)]
pub struct Counts {
    /// SCSI commands ended.
    pub commands: AtomicU64,
    /// Bytes sent to the initiator as data.
    pub bytes_in: AtomicU64,
    /// Bytes of the initiator's data.
    pub bytes_out: AtomicU64,
}

impl Counts {
    pub(super) fn add(&self, bytes_in: usize, bytes_out: usize) {
        self.commands.fetch_add(1, Ordering::Relaxed);
        self.bytes_in.fetch_add(bytes_in as u64, Ordering::Relaxed);
        self.bytes_out.fetch_add(bytes_out as u64, Ordering::Relaxed);
    }
}

struct State {
    exp_cmd_sn: u32,
    /// How many commands may be under way.
    window: u32,
    /// Numbered SCSI commands that are under way: the window is smaller by so many.
    under_way: u32,
    connections: BTreeMap<u16, Mailbox>,
    tasks: HashMap<u32, Entry>,
    /// Who waits for aborted tasks to be gone.
    watchers: Vec<Waker>,
    serial: u64,
    is_over: bool,
    /// Connections that have not left, replaced ones among them.
    holders: usize,
}

/// What others tell a connection.
struct Mailbox {
    /// Of which connection of this number: the one that has replaced it has another.
    serial: u64,
    waker: Option<Waker>,
    order: Option<Order>,
    /// Whether some of its tasks have been aborted.
    has_aborted: bool,
}

/// What a connection is told to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// To end at once.
    Close(&'static str),
    /// To ask the initiator for a logout within so many seconds, and to end then.
    AskLogout(u16),
}

/// A task, as the other connections see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub lun: u64,
    pub cid: u16,
    /// That of its connection.
    pub serial: u64,
    pub cmd_sn: Option<u32>,
    pub is_aborted: bool,
}

/// When a numbered command is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Now.
    Now,
    /// When those before it have come.
    Later,
    /// Never: it is outside the window, or has been executed.
    Never,
}

/// ExpCmdSN and MaxCmdSN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub exp_cmd_sn: u32,
    pub max_cmd_sn: u32,
}

impl State {
    fn window(&self) -> Window {
        let room = self.window - self.under_way.min(self.window);
        let max_cmd_sn = self.exp_cmd_sn.wrapping_add(room).wrapping_sub(1);
        Window { exp_cmd_sn: self.exp_cmd_sn, max_cmd_sn }
    }

    /// Whether a connection has not been replaced or ended by others.
    fn is_current(&self, cid: u16, serial: u64) -> bool {
        let is_its_own = |mail: &Mailbox| mail.serial == serial;
        !self.is_over && self.connections.get(&cid).is_some_and(is_its_own)
    }

    fn ring(&mut self, cid: u16) {
        if let Some(waker) = self.connections.get_mut(&cid).and_then(|mail| mail.waker.take()) {
            waker.wake();
        }
    }
}

/// Whether `one` comes before `other` in serial number arithmetic (RFC 1982, as 4.2.2.1 wants).
pub(super) fn is_before(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) < 0
}

impl<D: Device> Session<D> {
    /// A session without connections, whose first command has the number `exp_cmd_sn`.
    pub(super) fn new(
        target: Option<Arc<Target<D>>>,
        nexus: Nexus,
        entered: Entered,
        tsih: u16,
        connections_max: u32,
        exp_cmd_sn: u32,
    ) -> Session<D> {
        let state = Mutex::new(State {
            exp_cmd_sn,
            window: if target.is_some() { WINDOW } else { DISCOVERY_WINDOW },
            under_way: 0,
            connections: BTreeMap::new(),
            tasks: HashMap::new(),
            watchers: Vec::new(),
            serial: 0,
            is_over: false,
            holders: 0,
        });
        let counts = Counts::default();
        Session { target, nexus, entered, tsih, connections_max, counts, state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many connections it has.
    pub fn connections(&self) -> usize {
        self.state().connections.len()
    }

    /// How many tasks are under way.
    pub fn tasks(&self) -> usize {
        self.state().tasks.len()
    }

    /// Tells all connections.
    pub fn order(&self, order: Order) {
        let mut state = self.state();
        for mail in state.connections.values_mut() {
            mail.order = Some(order.clone());
            mail.waker.take().into_iter().for_each(Waker::wake);
        }
    }

    /// The session is replaced or ended: its connections end and answer nothing more, and none can join any more.
    pub(super) fn close(&self, why: &'static str) {
        self.state().is_over = true;
        self.order(Order::Close(why));
    }

    /// Adds a connection; its serial, and the tasks of one that it replaces, which must be gone before it begins. `None`
    /// where there is no room, or the session has ended.
    pub(super) fn join(&self, cid: u16) -> Option<(u64, Vec<u32>)> {
        let mut state = self.state();
        let has_room = (state.connections.len() as u32) < self.connections_max
            || state.connections.contains_key(&cid);
        if state.is_over || !has_room {
            return None;
        }
        //= rfc7143#6.3.4
        // A login with a CID in use reinstates the connection: the old one is closed first, and its tasks are aborted.
        let mut replaced = Vec::new();
        for (itt, task) in state.tasks.iter_mut().filter(|(_, task)| task.cid == cid) {
            task.is_aborted = true;
            replaced.push(*itt);
        }
        if let Some(old) = state.connections.remove(&cid) {
            old.waker.into_iter().for_each(Waker::wake);
        }
        state.holders += 1;
        state.serial += 1;
        let serial = state.serial;
        let mail = Mailbox { serial, waker: None, order: None, has_aborted: false };
        state.connections.insert(cid, mail);
        Some((serial, replaced))
    }

    /// A connection is gone, and with it its tasks; whether the session is, too.
    fn leave(&self, cid: u16, serial: u64) -> bool {
        let mut state = self.state();
        let is_its_own = |entry: &Entry| entry.cid == cid && entry.serial == serial;
        let mut numbered = 0;
        state.tasks.retain(|_, entry| {
            let goes = is_its_own(entry);
            numbered += u32::from(goes && entry.cmd_sn.is_some());
            !goes
        });
        state.under_way -= numbered;
        state.holders -= 1;
        if let (0, Some(target)) = (state.holders, &self.target) {
            // A command that ran while the session was replaced may have left something with the unit: it goes before whoever
            // waits for the session's end goes on.
            target.device.lost(&self.nexus);
        }
        state.watchers.drain(..).for_each(Waker::wake);
        if state.connections.get(&cid).is_some_and(|mail| mail.serial == serial) {
            state.connections.remove(&cid);
        }
        state.is_over |= state.connections.is_empty();
        state.connections.is_empty()
    }

    /// What a connection has been told, and whether tasks of it were aborted. `None` where it was replaced.
    pub(super) fn mail(
        &self,
        cid: u16,
        serial: u64,
        waker: &Waker,
    ) -> Option<(Option<Order>, bool)> {
        let mut state = self.state();
        let mail = state.connections.get_mut(&cid).filter(|mail| mail.serial == serial)?;
        match &mut mail.waker {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        Some((mail.order.take(), std::mem::take(&mut mail.has_aborted)))
    }

    /// Whether a connection is its own still: what comes on another is not heard any more.
    pub(super) fn has(&self, cid: u16, serial: u64) -> bool {
        self.state().is_current(cid, serial)
    }

    /// The window as it is now.
    pub(super) fn window(&self) -> Window {
        self.state().window()
    }

    /// Whether it has connections still. Wakes whoever asks when one goes.
    pub(super) fn has_connections(&self, waker: &Waker) -> bool {
        let mut state = self.state();
        let has = state.holders > 0;
        if has && !state.watchers.iter().any(|known| known.will_wake(waker)) {
            state.watchers.push(waker.clone());
        }
        has
    }

    /// A numbered command has come on the connection `cid`.
    pub(super) fn turn(&self, cid: u16, serial: u64, cmd_sn: u32) -> Turn {
        let mut state = self.state();
        let window = state.window();
        // What was on its way when the connection or the session was replaced comes too late.
        if !state.is_current(cid, serial) {
            return Turn::Never;
        }
        //= rfc7143#4.2.2.1
        // The target MUST silently ignore any non-immediate command outside of this range or non-immediate duplicates
        // within the range.
        if is_before(cmd_sn, window.exp_cmd_sn) || is_before(window.max_cmd_sn, cmd_sn) {
            return Turn::Never;
        }
        if cmd_sn != window.exp_cmd_sn {
            return Turn::Later;
        }
        state.exp_cmd_sn = cmd_sn.wrapping_add(1);
        // Another connection may have the next one.
        let others: Vec<u16> = match state.connections.len() {
            0 | 1 => Vec::new(),
            _ => state.connections.keys().copied().filter(|other| *other != cid).collect(),
        };
        others.into_iter().for_each(|other| state.ring(other));
        Turn::Now
    }

    /// Begins a task; false where its tag is in use, or too many are under way.
    pub(super) fn begin(&self, itt: u32, serial: u64, entry: Entry) -> Result<(), Busy> {
        let mut state = self.state();
        if !state.is_current(entry.cid, serial) {
            return Err(Busy::TooMany);
        }
        if itt == NO_TAG || state.tasks.contains_key(&itt) {
            return Err(Busy::Tag);
        }
        if entry.cmd_sn.is_none() && state.tasks.len() >= WINDOW as usize + IMMEDIATE_MAX {
            return Err(Busy::TooMany);
        }
        state.under_way += u32::from(entry.cmd_sn.is_some());
        state.tasks.insert(itt, entry);
        Ok(())
    }

    /// Ends a task; the window that follows, and whether the task still has an answer.
    pub(super) fn end(&self, itt: u32) -> (Window, bool) {
        let mut state = self.state();
        let entry = state.tasks.remove(&itt);
        let is_answered = !state.is_over && entry.is_some_and(|entry| !entry.is_aborted);
        if let Some(entry) = entry {
            state.under_way -= u32::from(entry.cmd_sn.is_some());
            if entry.is_aborted {
                state.watchers.drain(..).for_each(Waker::wake);
            }
        }
        (state.window(), is_answered)
    }

    /// Whether a task has been aborted.
    pub(super) fn is_aborted(&self, itt: u32) -> bool {
        self.state().tasks.get(&itt).is_none_or(|entry| entry.is_aborted)
    }

    /// Aborts the tasks that `which` names; their tags. Each is gone when its connection has noticed.
    pub(super) fn abort(&self, which: impl Fn(u32, &Entry) -> bool) -> Vec<u32> {
        let mut state = self.state();
        let mut itts = Vec::new();
        let mut cids = Vec::new();
        for (itt, entry) in &mut state.tasks {
            if which(*itt, entry) {
                entry.is_aborted = true;
                itts.push(*itt);
                cids.push(entry.cid);
            }
        }
        for cid in cids {
            if let Some(mail) = state.connections.get_mut(&cid) {
                mail.has_aborted = true;
            }
            state.ring(cid);
        }
        itts
    }

    /// Whether aborted tasks with these tags are still there. Wakes whoever asks when one goes.
    pub(super) fn has_aborted(&self, itts: &[u32], waker: &Waker) -> bool {
        let mut state = self.state();
        let is_there = |itt| state.tasks.get(itt).is_some_and(|entry| entry.is_aborted);
        let has = itts.iter().any(is_there);
        if has && !state.watchers.iter().any(|known| known.will_wake(waker)) {
            state.watchers.push(waker.clone());
        }
        has
    }

    /// The task of this tag.
    pub(super) fn task(&self, itt: u32) -> Option<Entry> {
        self.state().tasks.get(&itt).copied()
    }

    /// A command that has not come and will not: it counts as come.
    pub(super) fn skip(&self, cid: u16, serial: u64, cmd_sn: u32) -> bool {
        let is_next = self.window().exp_cmd_sn == cmd_sn;
        is_next && self.turn(cid, serial, cmd_sn) == Turn::Now
    }
}

/// A connection's place in its session, given back where it is dropped.
pub(super) struct Place<D: Device> {
    pub session: Arc<Session<D>>,
    pub cid: u16,
    pub serial: u64,
}

impl<D: Device> Drop for Place<D> {
    fn drop(&mut self) {
        let is_last = self.session.leave(self.cid, self.serial);
        if let (true, Some(target)) = (is_last, &self.session.target) {
            target.end(&self.session);
        }
    }
}

/// Why a task does not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Busy {
    /// Its tag is another one's.
    Tag,
    /// There are too many.
    TooMany,
}
