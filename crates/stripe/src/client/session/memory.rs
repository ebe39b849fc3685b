//! What a client remembers of its session: numbers, opens and locks, to be told to a server that
//! has lost them.

use super::handover::{Handover, Held};
use super::{Error, call, unexpected};
use crate::client::Result;
use crate::meta::access;
use crate::ops::{Caller, Id, Op, RangeLock, Reply, Request};
use covey_ninep::client::Conn;
use covey_ninep::message::Message;
use covey_ninep::tree::Errno;
use covey_wire::{List, Name};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

/// Most opens that one message tells of.
const OPENS_TOLD_MAX: usize = 32 * 1024;
/// Most appends under way: a Hello tells of all of them.
const APPENDS_MAX: usize = 4096;
/// Most closes that one message tells of.
const CLOSES_TOLD_MAX: usize = 4096;
/// Bytes of a Hello around its opens and appends.
const HELLO_BYTES: u32 = 1024;

/// What a restarted server must be told again.
pub(super) struct Memory {
    name: String,
    state: Mutex<State>,
}

/// Whose the session is to speak for, while a process hands it over to another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Standing {
    /// This process's.
    #[default]
    Own,
    /// This process's once the other one has let go of it. It has greeted the server, and says nothing of its own accord: not
    /// even that it has closed a file, should it fail.
    Borrowed,
    /// Another process's: a greeting from here would take it back.
    Lent,
}

#[derive(Default)]
struct State {
    standing: Standing,
    session: u64,
    /// The server's start counter, and the start of its machine, as it said last.
    boot: u64,
    machine: u64,
    /// The session, and the server's start counter, that know our locks.
    locks_known_to: Option<(u64, u64)>,
    /// How many greetings have begun: each tells of the opens that there are then.
    greetings: u64,
    seq_next: u64,
    seqs_open: BTreeSet<u64>,
    /// Those of them that are Reserves.
    reserves_open: BTreeSet<u64>,
    opens: BTreeMap<Id, u32>,
    /// Those of them that the server has yet to be told, by the number that each was given.
    untold: BTreeMap<u64, Untold>,
    untold_next: u64,
    locks: Vec<(Id, RangeLock)>,
    /// Files of which one open less is to be told, with the next that minds or soon.
    closed: Vec<Id>,
    /// What is to be said before the next request.
    owed: Vec<Op>,
}

/// An open under a lease.
struct Untold {
    id: Id,
    /// A greeting that began since has told of it.
    until_greeting: u64,
}

impl Memory {
    pub fn new(name: &str) -> Memory {
        Memory { name: name.to_owned(), state: Mutex::default() }
    }

    /// Of a session that this process has had before it became another program.
    pub fn resumed(name: &str, before: &Handover) -> Memory {
        let mut state = State {
            session: before.session,
            boot: before.boot,
            locks_known_to: Some((before.session, before.boot)),
            seq_next: before.seq_next,
            ..State::default()
        };
        for id in &before.opens {
            *state.opens.entry(*id).or_default() += 1;
        }
        state.locks = before.held.iter().map(|held| (held.id, held.lock.clone())).collect();
        before.owed.iter().for_each(|gone| state.owe_unlock(gone.id, gone.lock.clone()));
        Memory { name: name.to_owned(), state: Mutex::new(state) }
    }

    /// What the next program must know of the session: all but its opens.
    pub fn hand_over(&self) -> Handover {
        let state = self.lock();
        let held = |(id, lock): &(Id, RangeLock)| Held { id: *id, lock: lock.clone() };
        let owed = |op: &Op| match op {
            Op::Unlock { id, lock } => Some(Held { id: *id, lock: lock.clone() }),
            _ => None,
        };
        Handover {
            session: state.session,
            boot: state.boot,
            seq_next: state.seq_next,
            opens: Vec::new(),
            held: state.locks.iter().map(held).collect(),
            owed: state.owed.iter().filter_map(owed).collect(),
        }
    }

    /// Says from now on what is to be said, or holds it back.
    pub fn stand(&self, standing: Standing) {
        self.lock().standing = standing;
    }

    /// Mutations that are not answered yet.
    pub fn under_way(&self) -> usize {
        self.lock().seqs_open.len()
    }

    pub fn next_seq(&self) -> u64 {
        let mut state = self.lock();
        state.seq_next += 1;
        let seq = state.seq_next;
        state.seqs_open.insert(seq);
        seq
    }

    /// The mutation of this number takes a place for an append; it is open until the append is over.
    pub fn reserves(&self, seq: u64) -> Result<()> {
        let mut state = self.lock();
        if state.reserves_open.len() >= APPENDS_MAX {
            let reason = format!("this client has {APPENDS_MAX} appends under way");
            return Err(Error::because(Errno::EAGAIN, reason));
        }
        state.reserves_open.insert(seq);
        Ok(())
    }

    pub fn unique(&self) -> u64 {
        let state = self.lock();
        state.boot << 32 | state.session & 0xffff_ffff
    }

    pub fn starts(&self) -> (u64, u64) {
        (self.unique(), self.lock().machine)
    }

    pub fn close_seq(&self, seq: u64) {
        let mut state = self.lock();
        state.seqs_open.remove(&seq);
        state.reserves_open.remove(&seq);
    }

    /// A request in the session of now, and how many greetings have begun.
    pub fn request(&self, seq: u64, caller: &Caller, op: Op) -> (Request, u64) {
        let state = self.lock();
        let seq_done = state.seqs_open.first().copied().unwrap_or(state.seq_next + 1);
        let session = state.session;
        let request = Request { session, seq, seq_done, now: 0, caller: caller.clone(), op };
        (request, state.greetings)
    }

    /// How many greetings have begun.
    pub fn greetings(&self) -> u64 {
        self.lock().greetings
    }

    /// Counts an open that was granted; false when a greeting has begun since it was asked for.
    pub fn opened(&self, id: Id, greetings: u64) -> bool {
        let mut state = self.lock();
        if state.greetings == greetings {
            *state.opens.entry(id).or_default() += 1;
        }
        state.greetings == greetings
    }

    /// Counts an open that the server need not know yet; its number.
    pub fn opened_untold(&self, id: Id) -> u64 {
        let mut state = self.lock();
        state.untold_next += 1;
        let (number, until_greeting) = (state.untold_next, state.greetings);
        *state.opens.entry(id).or_default() += 1;
        state.untold.insert(number, Untold { id, until_greeting });
        number
    }

    /// Tells the server of all opens and closes that it has not heard of; false when some of that could
    /// not be said. The opens were granted under a lease, so that nothing is asked: not even whether
    /// the mode still permits it.
    pub fn say_opens(&self, conn: &Conn) -> bool {
        self.pay(conn);
        let mut state = self.lock();
        if state.standing != Standing::Own {
            return true;
        }
        let (session, greetings) = (state.session, state.greetings);
        while let Some((number, open)) = state.untold.pop_first() {
            if open.until_greeting != greetings {
                continue;
            }
            if !say(conn, session, Op::Open { id: open.id, access: access::READ }) {
                state.untold.insert(number, open);
                return false;
            }
        }
        let most = conn.payload_max().saturating_sub(HELLO_BYTES) as usize / size_of::<Id>();
        state.tell_closed(most, |ids| say(conn, session, Op::Close { ids }))
    }

    /// The same where the server has not heard of an open or close of one of these files.
    pub fn say_opens_of(&self, files: &[Id], conn: &Conn) -> bool {
        let is_due = {
            let state = self.lock();
            let is_opened = || state.untold.values().any(|open| files.contains(&open.id));
            !files.is_empty() && (is_opened() || state.closed.iter().any(|id| files.contains(id)))
        };
        !is_due || self.say_opens(conn)
    }

    /// Whether the file is open.
    pub fn is_open(&self, id: Id) -> bool {
        self.lock().opens.contains_key(&id)
    }

    /// Counts an open given back; the server is to be told, unless it has not heard of it: then that
    /// goes without saying. `untold`: the number that the open was given. Answers how many closes the
    /// server is to be told of.
    pub fn released(&self, id: Id, untold: Option<u64>) -> usize {
        let mut state = self.lock();
        let greetings = state.greetings;
        let untold = untold.and_then(|number| state.untold.remove(&number));
        let is_known = untold.is_none_or(|open| open.until_greeting != greetings);
        state.one_less(id);
        if is_known {
            state.closed.push(id);
        }
        state.closed.len()
    }

    /// Remembers a lock that was granted; false when a greeting has begun since it was asked for.
    pub fn locked(&self, id: Id, lock: &RangeLock, greetings: u64) -> bool {
        self.unlocked(id, lock);
        let mut state = self.lock();
        state.locks.push((id, lock.clone()));
        state.greetings == greetings
    }

    /// Forgets what an unlock gives back; the rest of a lock that was cut stays.
    pub fn unlocked(&self, id: Id, gone: &RangeLock) {
        let mut state = self.lock();
        let locks = std::mem::take(&mut state.locks);
        for (held_id, held) in locks {
            if held_id != id || !meets(&held, gone) {
                state.locks.push((held_id, held));
                continue;
            }
            if held.start < gone.start {
                state.locks.push((id, RangeLock { end: gone.start - 1, ..held.clone() }));
            }
            if gone.end < held.end {
                state.locks.push((id, RangeLock { start: gone.end + 1, ..held }));
            }
        }
    }

    /// The server is to unlock what of the range is not known to be held.
    pub fn owe_unlocks(&self, id: Id, range: &RangeLock) {
        let mut state = self.lock();
        let of_file = state.locks.iter().filter(|(held_id, _)| *held_id == id);
        let mut held: Vec<(u64, u64)> = of_file
            .filter(|(_, held)| meets(held, range))
            .map(|(_, held)| (held.start, held.end))
            .collect();
        held.sort_unstable();
        let mut from = Some(range.start);
        for (start, end) in held {
            if let Some(from) = from.filter(|&from| from < start) {
                state.owe_unlock(id, RangeLock { start: from, end: start - 1, ..range.clone() });
            }
            from = end.checked_add(1);
        }
        if let Some(start) = from.filter(|&from| from <= range.end) {
            state.owe_unlock(id, RangeLock { start, ..range.clone() });
        }
    }

    /// Says what is owed.
    pub fn pay(&self, conn: &Conn) {
        // Under the lock, so that nobody's request comes between.
        let mut state = self.lock();
        if state.standing != Standing::Own {
            return;
        }
        let session = state.session;
        let mut owed = std::mem::take(&mut state.owed).into_iter();
        for op in owed.by_ref() {
            if !say(conn, session, op.clone()) {
                // There are too many on their way: the rest is said with what comes next.
                state.owed.push(op);
                break;
            }
        }
        state.owed.extend(owed);
    }

    /// Opens the session, or comes back to it, on a fresh connection.
    pub async fn greet(&self, conn: &Conn) -> Result<()> {
        let (files, appends): (Vec<Id>, Vec<u64>) = {
            let mut state = self.lock();
            if state.standing == Standing::Lent {
                return Err(Error::because(Errno::EAGAIN, "the session is handed over"));
            }
            state.greetings += 1;
            // What is closed is not among them.
            state.closed.clear();
            let opens = state.opens.iter();
            let files = opens.flat_map(|(&id, &count)| (0..count).map(move |_| id)).collect();
            (files, state.reserves_open.iter().copied().collect())
        };
        let beside = HELLO_BYTES + (appends.len() * size_of::<u64>()) as u32;
        let files = self.tell_opens(conn, &files, beside).await?;
        let nobody = Caller::default();
        let (mut request, _) = self.request(0, &nobody, Op::Bye {});
        let name = Name::from(self.name.as_str());
        let (files, appends) = (List(files.to_vec()), List(appends));
        request.op = Op::Hello { session: request.session, files, appends, name };
        let knows = match call(conn, &request).await?.reply {
            Reply::Session { session, boot, machine, .. } => {
                let mut state = self.lock();
                (state.session, state.boot, state.machine) = (session, boot, machine);
                (session, boot)
            }
            Reply::Error { code, reason } => {
                return Err(Error::because(code, reason.lossy().into_owned()));
            }
            other => return Err(unexpected(&other)),
        };
        if self.lock().locks_known_to != Some(knows) {
            self.tell_locks(conn).await?;
            self.lock().locks_known_to = Some(knows);
        }
        self.pay(conn);
        Ok(())
    }

    /// Tells of all opens but the last ones, for which a Hello has room with so many bytes `beside`.
    async fn tell_opens<'a>(
        &self,
        conn: &Conn,
        mut files: &'a [Id],
        beside: u32,
    ) -> Result<&'a [Id]> {
        let most = conn.payload_max().saturating_sub(beside) as usize / size_of::<Id>();
        let most = most.clamp(1, OPENS_TOLD_MAX);
        while let Some((now, rest)) =
            files.split_at_checked(most).filter(|(_, rest)| !rest.is_empty())
        {
            let told = Op::StillOpen { files: List(now.to_vec()) };
            let (request, _) = self.request(0, &Caller::default(), told);
            match call(conn, &request).await?.reply {
                Reply::Done {} => files = rest,
                Reply::Error { code, reason } => {
                    return Err(Error::because(code, reason.lossy().into_owned()));
                }
                other => return Err(unexpected(&other)),
            }
        }
        Ok(files)
    }

    async fn tell_locks(&self, conn: &Conn) -> Result<()> {
        let locks = self.lock().locks.clone();
        for (id, lock) in locks {
            let op = Op::Lock { id, lock: lock.clone(), wait: false, again: true };
            let (request, _) = self.request(0, &Caller::default(), op);
            if let Reply::Error { .. } = call(conn, &request).await?.reply {
                // Somebody else has it by now, or the file is gone.
                self.unlocked(id, &lock);
            }
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }
}

impl State {
    /// Tells of all closes, of so many with one message; false when some could not be said.
    fn tell_closed(&mut self, most: usize, mut say: impl FnMut(List<Id>) -> bool) -> bool {
        while !self.closed.is_empty() {
            let told = self.closed.len().min(most.clamp(1, CLOSES_TOLD_MAX));
            if !say(List(self.closed[..told].to_vec())) {
                return false;
            }
            self.closed.drain(..told);
        }
        true
    }

    fn one_less(&mut self, id: Id) {
        if let Some(count) = self.opens.get_mut(&id) {
            *count -= 1;
            if *count == 0 {
                self.opens.remove(&id);
            }
        }
    }

    fn owe_unlock(&mut self, id: Id, lock: RangeLock) {
        self.owed.push(Op::Unlock { id, lock });
    }
}

/// Sends what needs no answer; false when that cannot be now.
fn say(conn: &Conn, session: u64, op: Op) -> bool {
    let caller = Caller::default();
    let request = Request { session, seq: 0, seq_done: 0, now: 0, caller, op };
    conn.send(Message::Tcall { fid: super::ROOT_FID, body: super::body(&request) })
}

/// Whether both are of one owner and one kind, and overlap.
fn meets(held: &RangeLock, range: &RangeLock) -> bool {
    let same = held.owner == range.owner && held.whole == range.whole;
    same && held.start <= range.end && range.start <= held.end
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn more_closes_than_a_list_may_hold_are_told_in_several_messages() {
        let memory = Memory::new("client");
        let closes = usize::from(u16::MAX) + 5;
        let pending: Vec<usize> = (0..closes).map(|_| memory.released(7, None)).collect();
        assert_eq!(pending.last(), Some(&closes));
        let (mut told, mut messages) = (0, 0);
        let mut say = |ids: List<Id>| {
            let request = memory_request(Op::Close { ids: List(ids.0.clone()) });
            assert!(super::super::body(&request).len() <= 1 << 16, "{} closes", ids.0.len());
            messages += 1;
            told += if messages == 3 { 0 } else { ids.0.len() };
            messages != 3
        };
        let mut state = memory.lock();
        assert!(!state.tell_closed(usize::MAX, &mut say), "one could not be said");
        assert_eq!(state.closed.len(), closes - 2 * CLOSES_TOLD_MAX, "it is kept for later");
        assert!(state.tell_closed(usize::MAX, &mut say));
        assert_eq!((told, state.closed.len()), (closes, 0));
    }

    fn memory_request(op: Op) -> Request {
        Request { session: 1, seq: 0, seq_done: 0, now: 0, caller: Caller::default(), op }
    }

    #[test]
    fn a_resumed_session_has_the_locks_and_numbers_of_the_one_before() {
        let before = Memory::new("client");
        let lock = |start| RangeLock {
            exclusive: true,
            whole: false,
            start,
            end: start,
            owner: 0,
            pid: 1,
        };
        assert!(before.locked(5, &lock(1), 0) && before.locked(6, &lock(2), 0));
        let (first, _) = (before.next_seq(), before.next_seq());
        let mut handover = before.hand_over();
        handover.opens = vec![5, 5];
        handover.keep(|held| held.id == 5);
        let after = Memory::resumed("client", &handover);
        assert_eq!((after.next_seq(), first), (3, 1), "no number is given twice");
        let state = after.lock();
        assert_eq!(state.locks, [(5, lock(1))]);
        assert_eq!(state.owed, [Op::Unlock { id: 6, lock: lock(2) }]);
        assert_eq!(state.opens, BTreeMap::from([(5, 2)]));
    }

    #[test]
    fn a_session_that_is_not_this_process_s_says_nothing() {
        let (conn, _client) = covey_ninep::client::pair(Default::default(), Instant::now());
        let lock = RangeLock::on_all_bytes(1, 2);
        let before =
            Handover { owed: vec![Held { id: 4, lock }], opens: vec![7], ..Handover::default() };
        let memory = Memory::resumed("client", &before);
        for standing in [Standing::Borrowed, Standing::Lent] {
            memory.stand(standing);
            memory.released(7, None);
            assert!(memory.say_opens(&conn), "nothing is due");
        }
        let state = memory.lock();
        assert_eq!((state.closed.len(), state.owed.len()), (2, 1), "it is due later");
    }

    #[test]
    fn one_append_too_many_is_refused_until_another_is_over() {
        let memory = Memory::new("client");
        let seqs: Vec<u64> = (0..APPENDS_MAX).map(|_| memory.next_seq()).collect();
        assert!(seqs.iter().all(|&seq| memory.reserves(seq).is_ok()));
        let late = memory.next_seq();
        let refused = memory.reserves(late).expect_err("there are enough");
        assert_eq!(refused.code(), Errno::EAGAIN);
        assert!(refused.to_string().contains("4096 appends under way"), "{refused}");
        memory.close_seq(seqs[7]);
        assert!(memory.reserves(late).is_ok());
    }
}
