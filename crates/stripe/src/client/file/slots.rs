//! Requests on the objects: fids, deadlines, and another try on a new connection.

use super::OpenFile;
use super::tries::Behind;
use crate::chain::Served;
use crate::client::chain::Head;
use crate::client::data::data_call_by;
use crate::client::servers::Refused;
use crate::client::{Error, Link, Result, Shared, Start, UnsyncedSlot};
use crate::objects::{self, DataOp, DataReply, LOST_WITH_DISK, Object};
use crate::ops::Id;
use covey_ninep::client::{Call, CallError, Conn, Fid};
use covey_ninep::message::Message;
use covey_ninep::tree::Errno;
use covey_wire::List;
use futures_util::future::{Either, join, select};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What is held on one I/O server.
#[derive(Default)]
pub(super) struct Slot {
    pub fid: Option<ObjectFid>,
    /// Writes that are over, done or not, and how many of them are on stable storage. What was
    /// written before the file was opened counts as one.
    pub written: u64,
    pub synced: u64,
    /// The start of the server's machine in which what is not synced was written.
    machine: Option<u64>,
    /// When the file was opened, if something was written before and no answer has told yet in which
    /// start: then one that was later may have lost it.
    unmet_since: Option<Instant>,
    /// The server that it was; the one that was to be asked as long as none has answered.
    server: Option<Arc<Link>>,
    /// Some of it was written in an earlier one, and may be lost.
    is_lost: bool,
}

/// A fid of one connection, good for one epoch and one generation of the chain; dropping it clunks it.
pub(super) struct ObjectFid {
    generation: u64,
    epoch: u32,
    chain: Option<Served>,
    fid: Fid,
}

impl OpenFile {
    /// What was written of an object up to now reaches stable storage.
    pub(super) async fn sync_slot(&self, fs: &Shared, slot: usize, written: u64) -> Result<()> {
        let mut behind = Behind::default();
        loop {
            let epoch = self.lock().epoch;
            let sync = |fid| Message::Tfsync { fid, datasync: 0 };
            match self.io(fs, slot, epoch, sync).await {
                // What a truncation has left is to be synced all the same.
                Err(Error::Stale(_)) => {
                    self.learn_epoch(fs, epoch, &mut behind).await?;
                }
                Err(error) => return Err(error),
                Ok(_) => break,
            }
        }
        let mut state = self.lock();
        let held = &mut state.slots[slot];
        if std::mem::take(&mut held.is_lost) {
            // Told once, as by Linux: the next fsync speaks of what is written from now on.
            return Err(Error::Unsynced {
                server: Some(self.chains[slot].link().server().to_owned()),
            });
        }
        held.synced = written.max(held.synced);
        Ok(())
    }

    /// A request that depends on what the server holds unsynced was answered on a connection.
    pub(super) async fn note_machine(&self, slot: usize, link: &Arc<Link>, start: Option<Start>) {
        // None: nobody could look in time, so the next answer tells.
        let Some(start) = start else { return };
        let before = {
            let mut state = self.lock();
            let held = &mut state.slots[slot];
            let before = held.server.replace(link.clone());
            match before.filter(|before| !Arc::ptr_eq(before, link)) {
                None => return held.met(start),
                Some(before) => before,
            }
        };
        // The chain was moved, with all that was written and not lost before: on stable storage.
        let then = match before.conn(before.now()).await {
            Ok((generation, _)) => before.machine(generation),
            Err(_) => None,
        };
        self.lock().slots[slot].moved(then, start);
    }

    /// One request on the object of `slot`, repeated on a new connection while there is time. A server that is away and a chain
    /// that nobody serves for a moment are waited for one after the other, each for its own time.
    pub(super) async fn io(
        &self,
        fs: &Shared,
        slot: usize,
        epoch: u32,
        message: impl Fn(u32) -> Message,
    ) -> Result<Message> {
        let mut patience = self.chains[slot].link().patience();
        let mut refused = Refused::default();
        loop {
            fs.data.freshen(&fs.session).await;
            let head = self.chains[slot].head();
            let link = &head.link;
            let (generation, conn) = match link.conn(patience.since).await {
                Err(_) if self.chains[slot].has_changed(&head) => {
                    link.is_answered(&mut patience);
                    continue;
                }
                conn => conn?,
            };
            let start = link.machine(generation);
            let says_chains = start.is_some_and(|start| start.says_chains);
            let name = (epoch, head.served);
            let (fid, opening) = self.object_fid(slot, generation, name, says_chains, &conn);
            let message = message(fid);
            if let Message::Tread { count, .. } = message
                && count > conn.payload_max()
            {
                // It would be cut short by the server, which looks like the end of the object.
                return Err(Errno::E2BIG.into());
            }
            let deadline = match &message {
                Message::Tfsync { .. } => None,
                _ => link.io_deadline(),
            };
            let is_read = matches!(message, Message::Tread { .. });
            let call = conn.call(message);
            let answer = pin!(async {
                match opening {
                    None => call.await,
                    Some(opening) => self.open_and(slot, fid, opening, call).await,
                }
            });
            let result = match deadline {
                None => answer.await,
                Some(time) => match select(answer, fs.net.sleep(time)).await {
                    Either::Left((result, _)) => result,
                    Either::Right(_) => {
                        return Err(link.slow(time));
                    }
                },
            };
            match result {
                Ok(reply) => {
                    if !is_read {
                        self.note_machine(slot, link, start).await;
                    }
                    return Ok(reply);
                }
                Err(CallError::Lost(_)) if link.goes_on(&mut patience) => {
                    refused = Refused::default()
                }
                Err(CallError::Lost(_)) if self.chains[slot].has_changed(&head) => {}
                Err(CallError::Lost(why)) => return Err(link.lost(why)),
                Err(error) => {
                    let error = Error::from(error);
                    if matches!(error.code(), Errno::ESTALE | Errno::EBADF | Errno::EREMCHG) {
                        self.forget_fid(slot, fid);
                    }
                    if error.code() == Errno::EREMCHG {
                        let chain = &self.chains[slot];
                        fs.data.learn(&fs.session, chain, &head, &mut refused).await?;
                        link.is_answered(&mut patience);
                        continue;
                    }
                    if error.code() == Errno::EIO {
                        return Err(explained(fs, &head, self.id, error).await);
                    }
                    // EBADF: someone else's opening of this fid failed. Ours may not, and a program
                    // must not hear that its own descriptor is bad.
                    if error.code() != Errno::EBADF {
                        return Err(error);
                    }
                    if link.is_over(patience.since) {
                        return Err(link.lost("the object was not opened in time".into()));
                    }
                }
            }
        }
    }

    /// The fid of the object, and the calls that open it when it is new: they are queued before
    /// whatever the caller sends next, so nobody waits for them first.
    fn object_fid(
        &self,
        slot: usize,
        generation: u64,
        (epoch, chain): (u32, Option<Served>),
        says_chains: bool,
        conn: &Conn,
    ) -> (u32, Option<[Call; 2]>) {
        let mut state = self.lock();
        let held = &mut state.slots[slot].fid;
        if let Some(known) = held
            && known.generation == generation
            && (known.epoch, known.chain) == (epoch, chain)
        {
            return (known.fid.number(), None);
        }
        let new = Fid::new(conn);
        let fid = new.number();
        *held = Some(ObjectFid { generation, epoch, chain, fid: new });
        let name = match chain.filter(|_| says_chains) {
            Some(served) => objects::name_in(self.id, epoch, served),
            None => objects::name(self.id, epoch),
        };
        let names = List(vec![name]);
        const O_RDWR: u32 = 2;
        let walk = conn.call(Message::Twalk { fid: 0, newfid: fid, names });
        let open = conn.call(Message::Tlopen { fid, flags: O_RDWR });
        (fid, Some([walk, open]))
    }

    async fn open_and(
        &self,
        slot: usize,
        fid: u32,
        [walk, open]: [Call; 2],
        call: Call,
    ) -> std::result::Result<Message, CallError> {
        let (opened, reply) = join(join(walk, open), call).await;
        let opened = opened.0.and(opened.1);
        if let Err(CallError::Errno(error)) = opened {
            self.forget_fid(slot, fid);
            return Err(CallError::Errno(error));
        }
        reply
    }

    fn forget_fid(&self, slot: usize, fid: u32) {
        let mut state = self.lock();
        let held = &mut state.slots[slot].fid;
        if held.as_ref().is_some_and(|held| held.fid.number() == fid) {
            *held = None;
        }
    }
}

/// Why an object cannot be had: 9P tells a number only.
async fn explained(fs: &Shared, head: &Head, id: Id, error: Error) -> Error {
    let (link, op) = (&head.link, DataOp::Look { ids: List(vec![id]) });
    let look = pin!(data_call_by(link, &op, head.served));
    let time = pin!(fs.net.sleep(EXPLAINED_WITHIN));
    match select(look, time).await {
        Either::Left((Ok((DataReply::Objects { objects }, _)), _))
            if objects.0.iter().any(Object::is_lost) =>
        {
            let text = format!("what {} held of the file {LOST_WITH_DISK}", link.server());
            Error::because(error.code(), text)
        }
        _ => error,
    }
}

/// How long a reason is waited for: a disk that fails may also hang.
const EXPLAINED_WITHIN: Duration = Duration::from_secs(1);

/// A write on its way to a slot.
pub(super) struct Counted<'a> {
    pub file: &'a OpenFile,
    pub slot: usize,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.file.lock().slots[self.slot].written += 1;
    }
}

impl Slot {
    /// A slot of a file just opened: whether there is anything that somebody may have written, and
    /// the start of the server's machine that was heard of last. What was written before is synced
    /// with the rest, so its loss from now on is to be told as well.
    pub fn opened(is_written: bool, link: &Arc<Link>) -> Slot {
        let slot = Slot::written_before(is_written, link.last_machine(), link.now());
        // Its chain may be elsewhere before anything is written.
        Slot { server: Some(link.clone()), ..slot }
    }

    fn written_before(is_written: bool, machine: Option<u64>, now: Instant) -> Slot {
        let machine = machine.filter(|_| is_written);
        let unmet_since = (is_written && machine.is_none()).then_some(now);
        Slot { written: is_written.into(), machine, unmet_since, ..Slot::default() }
    }

    pub fn is_dirty(&self) -> bool {
        self.written > self.synced
    }

    /// For another process to go on with.
    pub fn unsynced(&self) -> UnsyncedSlot {
        let (is_dirty, machine, is_lost) = (self.is_dirty(), self.machine, self.is_lost);
        UnsyncedSlot { is_dirty, machine, is_lost }
    }

    /// What another process has written. Where it has met the machine there is nothing to guess.
    pub fn owe(&mut self, before: &UnsyncedSlot) {
        (self.written, self.synced) = (before.is_dirty.into(), 0);
        self.is_lost |= before.is_lost;
        if before.machine.is_some() {
            (self.machine, self.unmet_since) = (before.machine, None);
        }
    }

    /// Another server has answered; the machine of the one before it has this start now, if that is known. Where it is not the
    /// one in which something was written, that may have been lost before it was moved.
    fn moved(&mut self, before: Option<Start>, start: Start) {
        if self.is_dirty() {
            match before {
                Some(before) => self.met(before),
                None => self.is_lost |= self.machine.is_some(),
            }
        }
        (self.machine, self.unmet_since) = (Some(start.machine), None);
    }

    /// The server has answered in this start of its machine.
    fn met(&mut self, Start { machine, at, .. }: Start) {
        let unmet_since = self.unmet_since.take();
        self.is_lost |= match self.machine.replace(machine) {
            Some(before) => before != machine,
            None => unmet_since.zip(at).is_some_and(|(opened, at)| at >= opened),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_machine_that_has_started_since_the_opening_may_have_lost_what_was_written_before() {
        let opened = Instant::now();
        let (before, since) = (opened.checked_sub(Duration::from_millis(1)), Some(opened));
        let is_lost = |is_written, known, at| {
            let mut slot = Slot::written_before(is_written, known, opened);
            slot.met(Start { machine: 2, at, says_chains: true });
            slot.is_lost
        };
        assert!(is_lost(true, None, since));
        assert!(!is_lost(true, None, before), "it was lost before the file was opened");
        assert!(!is_lost(true, None, None));
        assert!(!is_lost(false, None, since), "there was nothing to lose");
        assert!(is_lost(true, Some(1), None));
        assert!(!is_lost(true, Some(2), since));
    }

    #[test]
    fn what_a_chain_has_lost_before_it_was_moved_is_told_and_nothing_else_is() {
        let opened = Instant::now();
        let start = |machine, at| Start { machine, at, says_chains: true };
        let is_lost = |is_written, known, before| {
            let mut slot = Slot::written_before(is_written, known, opened);
            slot.moved(before, start(9, None));
            slot.met(start(9, None));
            slot.is_lost
        };
        assert!(!is_lost(true, Some(1), Some(start(1, Some(opened)))));
        assert!(is_lost(true, Some(1), Some(start(2, None))));
        assert!(is_lost(true, Some(1), None), "nobody knows");
        assert!(!is_lost(false, Some(1), Some(start(2, None))), "there was nothing to lose");
        // Nobody had met its machine before.
        assert!(is_lost(true, None, Some(start(2, Some(opened)))));
        assert!(!is_lost(true, None, Some(start(2, None))));
    }

    #[test]
    fn only_the_first_answer_is_held_against_the_time_of_the_opening() {
        let opened = Instant::now();
        let mut slot = Slot::written_before(true, None, opened);
        slot.met(Start { machine: 2, ..Start::default() });
        slot.met(Start { machine: 2, at: Some(opened), says_chains: true });
        assert!(!slot.is_lost);
        slot.met(Start { machine: 3, ..Start::default() });
        assert!(slot.is_lost);
    }
}
