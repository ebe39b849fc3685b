//! Requests on the objects: fids, deadlines, and another try on a new connection.

use super::OpenFile;
use super::space::odd;
use super::tries::Behind;
use crate::chain::Served;
use crate::client::chain::Head;
use crate::client::data::data_call_by;
use crate::client::servers::{Origin, Refused};
use crate::client::{Error, Result, Shared};
use crate::objects::{self, DataOp, DataReply, LOST_WITH_DISK, Object};
use crate::ops::Id;
use covey_ninep::client::{Call, CallError, Conn, Fid};
use covey_ninep::message::Message;
use covey_ninep::tree::Errno;
use covey_wire::List;
use futures_util::future::{Either, join, select};
use std::pin::pin;
use std::time::Duration;

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
        Box::pin(self.settle_left(fs, slot)).await?;
        let mut state = self.lock();
        if state.slots[slot].takes_loss() {
            // Told once, as by Linux: the next fsync speaks of what is written from now on.
            return Err(Error::Unsynced {
                server: Some(self.chains[slot].link().server().to_owned()),
            });
        }
        let held = &mut state.slots[slot];
        held.synced = written.max(held.synced);
        Ok(())
    }

    /// A request that depends on what the server holds unsynced was answered.
    pub(super) async fn note_machine(&self, fs: &Shared, slot: usize, from: &Origin) {
        // None: nobody could look in time, so the next answer tells.
        let Some(start) = from.start else { return };
        let has_left = {
            let mut state = self.lock();
            state.slots[slot].has_met(&from.head, start);
            state.slots[slot].has_left()
        };
        if has_left {
            // What cannot be found out now an fsync has to.
            let _ = Box::pin(self.settle_left(fs, slot)).await;
        }
    }

    /// Finds out whether what was written where the chain of a slot was is on stable storage.
    async fn settle_left(&self, fs: &Shared, slot: usize) -> Result<()> {
        let left = self.lock().slots[slot].left();
        if left.is_empty() {
            return Ok(());
        }
        let hops = match self.data_op(fs, slot, DataOp::Hops {}).await {
            Ok((DataReply::Hops { hops }, _)) => hops.0,
            Ok((other, _)) => return Err(odd(&other)),
            // A server of an older version remembers nothing.
            Err(error) if error.code() == Errno::EINVAL => Vec::new(),
            Err(error) => return Err(error),
        };
        for left in left {
            let given_away = objects::left_in(&hops, left.generation());
            let is_lost = match left.machine {
                Some(machine) => given_away != Some(machine),
                None => left.has_started(fs, given_away).await,
            };
            self.lock().slots[slot].settle(&left, is_lost);
        }
        Ok(())
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
        fs.session.is_made(self.id).await?;
        let mut patience = self.chains[slot].link().patience();
        let mut refused = Refused::default();
        loop {
            fs.data.freshen(&fs.session).await;
            let head = self.chains[slot].head();
            let link = &head.link;
            let chain = &self.chains[slot];
            let reached = fs.data.reach(&fs.session, chain, &head, patience.since).await?;
            let Some((generation, conn)) = reached else {
                link.is_answered(&mut patience);
                continue;
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
                        self.note_machine(fs, slot, &Origin { head, start }).await;
                    }
                    return Ok(reply);
                }
                Err(CallError::Lost(_)) if link.goes_on(&mut patience) => {
                    refused = Refused::default()
                }
                Err(CallError::Lost(_))
                    if fs.data.is_elsewhere(&fs.session, chain, &head).await => {}
                Err(CallError::Lost(why)) => return Err(link.lost(why)),
                Err(error) => {
                    let error = Error::from(error);
                    if matches!(error.code(), Errno::ESTALE | Errno::EBADF | Errno::EREMCHG) {
                        self.forget_fid(slot, fid);
                    }
                    if error.code() == Errno::EREMCHG {
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
