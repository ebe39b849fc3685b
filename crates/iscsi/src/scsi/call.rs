//! A command while it runs: a future that stops wherever it needs its port or its store.
//!
//! The commands are written as straight-line code. Nothing here waits by itself: [`Call::collect`], [`Call::ask`] and
//! [`Call::abort`] put down what is needed, the task gives it out as a [`Step`], and its answer lets the command go on.

use super::order::Place;
use super::ranges::{Access, Claim};
use super::sense::{Key, Sense, code};
use super::unit::Unit;
use super::unsynced::Syncing;
use super::{Command, Completion, Input, Nexus, Step, status};
use crate::store::{Answer, Failure, Held, Hold, Reply, Request};
use bytes::Bytes;
use covey_wire::Payload;
use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

/// How a command ends that does not end well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Sense(Sense),
    /// RESERVATION CONFLICT.
    Conflict,
}

impl From<Sense> for End {
    fn from(sense: Sense) -> End {
        End::Sense(sense)
    }
}

/// What a command that ends well has for the initiator, and how much it would take and give had the initiator room.
#[derive(Debug, Default)]
pub(super) struct Good {
    pub(super) data_in: Payload,
    pub(super) in_bytes: u64,
    pub(super) out_bytes: u64,
    /// How it ends after all, where the bytes that it takes are to be told.
    pub(super) but: Option<Sense>,
}

pub(super) type Outcome = Result<Good, End>;

impl Good {
    /// Nothing but GOOD.
    pub(super) fn nothing() -> Outcome {
        Ok(Good::default())
    }

    /// Parameter data, cut to the allocation length.
    pub(super) fn data(mut data: Vec<u8>, allocation: u64) -> Outcome {
        data.truncate(usize::try_from(allocation).unwrap_or(usize::MAX));
        let in_bytes = data.len() as u64;
        Ok(Good { data_in: data.into(), in_bytes, ..Good::default() })
    }

    /// It took so many bytes.
    pub(super) fn took(out_bytes: u64) -> Outcome {
        Ok(Good { out_bytes, ..Good::default() })
    }
}

/// One command of one nexus on one unit.
pub(super) struct Call {
    pub(super) unit: Arc<Unit>,
    pub(super) nexus: Nexus,
    pub(super) cdb: Bytes,
    pub(super) data_out: u64,
    pub(super) data_in: u64,
    talk: Arc<Talk>,
}

/// Where a command puts down what it needs and finds what it gets.
#[derive(Default)]
struct Talk {
    exchange: Mutex<Exchange>,
    /// The blocks that it works on.
    claim: Mutex<Option<(Arc<Claim>, Hold)>>,
    /// Whether what it asked for last changes the medium.
    changes: AtomicBool,
}

#[derive(Default)]
enum Exchange {
    #[default]
    Idle,
    Asked(Step),
    Answered(Input),
}

impl Held for Claim {}

impl Call {
    /// A field of the CDB.
    pub(super) fn field(&self, at: usize, width: usize) -> u64 {
        super::fields::be(&self.cdb, at, width)
    }

    /// Whether a bit of the CDB is set.
    pub(super) fn bit(&self, at: usize, mask: u8) -> bool {
        self.cdb.get(at).is_some_and(|byte| byte & mask != 0)
    }

    /// Claims blocks: what is asked of the store from here on waits until it has them, and keeps them.
    pub(super) fn claim(&self, blocks: Range<u64>, access: Access) {
        self.heed(access);
        let claim = Arc::new(self.unit.ranges.claim(blocks, access));
        let hold = Hold::new(claim.clone());
        *lock(&self.talk.claim) = Some((claim, hold));
    }

    /// A unit with commands that must be atomic lends no more of its file: what was lent before is waited for.
    fn heed(&self, access: Access) {
        if access == Access::Exclusive {
            self.unit.lends_no_more();
        }
    }

    /// The same, and the store keeps `held` with it.
    pub(super) fn claim_with(
        &self,
        blocks: Range<u64>,
        access: Access,
        held: impl FnOnce(Arc<Claim>) -> Arc<dyn Held>,
    ) {
        self.heed(access);
        let claim = Arc::new(self.unit.ranges.claim(blocks, access));
        let hold = Hold::new(held(claim.clone()));
        *lock(&self.talk.claim) = Some((claim, hold));
    }

    /// Lets go of what was claimed.
    pub(super) fn release(&self) {
        *lock(&self.talk.claim) = None;
    }

    /// What the store is to keep while it works for this command.
    pub(super) fn hold(&self) -> Hold {
        lock(&self.talk.claim).as_ref().map(|(_, hold)| hold.clone()).unwrap_or_default()
    }

    /// The first `bytes` of the initiator's data.
    pub(super) async fn collect(&self, bytes: u64) -> Payload {
        debug_assert!(bytes <= self.data_out, "no more is collected than there is");
        if bytes == 0 {
            return Payload::default();
        }
        match self.step(Step::Collect { bytes }).await {
            Input::Data(data) => data,
            _ => Payload::default(),
        }
    }

    /// What has come of the initiator's data between these bytes, one block at least.
    pub(super) async fn collect_more(&self, from: u64, to: u64) -> Result<Payload, Sense> {
        let block_bytes = self.unit.block_bytes();
        match self.step(Step::Stream { from, to, block_bytes }).await {
            Input::Data(data) if !data.is_empty() => Ok(data),
            _ => Err(Sense::new(Key::HardwareError, code::INTERNAL_TARGET_FAILURE)),
        }
    }

    /// Parameters, all in one place: no more than `bytes_max` of them.
    pub(super) async fn parameters(&self, bytes: u64, bytes_max: u64) -> Result<Bytes, Sense> {
        if bytes > bytes_max || bytes > self.data_out {
            return Err(Sense::new(Key::IllegalRequest, code::PARAMETER_LIST_LENGTH_ERROR));
        }
        Ok(self.collect(bytes).await.into_bytes())
    }

    /// Asks the store; its failures are sense data.
    pub(super) async fn ask(&self, request: Request) -> Result<Reply, Sense> {
        match request {
            Request::Flush => self.sync().await,
            Request::Write { fua: true, .. } => self.answer_of(request).await,
            request if request.changes() => {
                let noted = self.unit.writes(&self.nexus);
                let reply = self.answer_of(request).await;
                self.unit.wrote(&self.nexus, noted);
                reply
            }
            request => self.answer_of(request).await,
        }
    }

    /// Brings everything to stable storage. An error, too, where what this nexus wrote was lost when another asked.
    async fn sync(&self) -> Result<Reply, Sense> {
        let syncing = Syncing::begin(&self.unit, &self.nexus);
        let reply = self.answer_of(Request::Flush).await;
        if syncing.end(reply.is_ok()) { reply } else { reply.and(Err(sense_of(Failure::Write))) }
    }

    async fn answer_of(&self, request: Request) -> Result<Reply, Sense> {
        match self.step(Step::Store(request)).await {
            Input::Stored(Reply::Failed(failure)) => Err(sense_of(failure)),
            Input::Stored(reply) => Ok(reply),
            _ => Err(Sense::new(Key::HardwareError, code::INTERNAL_TARGET_FAILURE)),
        }
    }

    /// Has all tasks of these nexuses on this unit aborted.
    pub(super) async fn abort(&self, nexuses: Vec<u64>) {
        if !nexuses.is_empty() {
            self.step(Step::Abort(nexuses)).await;
        }
    }

    async fn step(&self, step: Step) -> Input {
        *lock(&self.talk.exchange) = Exchange::Asked(step);
        poll_fn(|_| {
            let mut exchange = lock(&self.talk.exchange);
            match std::mem::take(&mut *exchange) {
                Exchange::Answered(input) => Poll::Ready(input),
                other => {
                    *exchange = other;
                    Poll::Pending
                }
            }
        })
        .await
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the initiator is told of a store that failed.
fn sense_of(failure: Failure) -> Sense {
    match failure {
        Failure::Read => Sense::new(Key::MediumError, code::UNRECOVERED_READ_ERROR),
        Failure::Write => Sense::new(Key::MediumError, code::WRITE_ERROR),
        Failure::Full => Sense::new(Key::DataProtect, code::SPACE_ALLOCATION_FAILED),
        Failure::Unreachable => {
            Sense::new(Key::HardwareError, code::LOGICAL_UNIT_COMMUNICATION_FAILURE)
        }
    }
}

/// A command on its way.
pub struct Task {
    unit: Option<Arc<Unit>>,
    /// Given up at its end, not only when it is dropped.
    place: Option<Arc<Place>>,
    talk: Arc<Talk>,
    /// `None` once it has ended.
    work: Option<Pin<Box<dyn Future<Output = Completion> + Send>>>,
}

impl Task {
    /// Begins `command`.
    pub(super) fn start(unit: Arc<Unit>, nexus: &Nexus, command: Command) -> (Task, Step) {
        let talk = Arc::new(Talk::default());
        let (data_out, data_in) = (command.data_out, command.data_in);
        let call = Call {
            unit: unit.clone(),
            nexus: nexus.clone(),
            cdb: command.cdb,
            data_out,
            data_in,
            talk: talk.clone(),
        };
        let place = Arc::new(unit.order.enter(command.attribute));
        let has_turn = place.may_begin();
        let work = async move {
            if !has_turn {
                call.step(Step::Turn).await;
            }
            let outcome = super::admit::run(&call).await;
            completion(&call.unit, outcome)
        };
        let mut task =
            Task { unit: Some(unit), place: Some(place), talk, work: Some(Box::pin(work)) };
        let step = task.go_on();
        (task, step)
    }

    /// A task that is over before it began.
    pub(super) fn ended(completion: Completion) -> (Task, Step) {
        (Task { unit: None, place: None, talk: Arc::default(), work: None }, Step::End(completion))
    }

    /// Goes on with what the last step asked for.
    pub(super) fn next(&mut self, input: Input) -> Step {
        *lock(&self.talk.exchange) = Exchange::Answered(input);
        self.go_on()
    }

    /// Until commands before it have ended, as far as their order says so.
    pub(super) fn turn(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let place = self.place.as_ref().map(Arc::downgrade);
        Box::pin(poll_fn(move |context| {
            // One that is no more has no turn to wait for.
            let place = place.as_ref().and_then(Weak::upgrade);
            place.map_or(Poll::Ready(()), |place| place.poll(context))
        }))
    }

    /// Asks the store on behalf of this task: as soon as it has the blocks that it claims.
    pub(super) fn ask(&self, request: Request) -> Answer {
        let Some(unit) = self.unit.clone() else {
            return Answer::Now(Reply::Failed(Failure::Unreachable));
        };
        self.talk.changes.store(request.changes(), Ordering::Relaxed);
        let (claim, hold) = match &*lock(&self.talk.claim) {
            Some((claim, hold)) if !claim.is_granted() => (claim.clone(), hold.clone()),
            Some((_, hold)) => return unit.ask(request, hold.clone()),
            None => return unit.ask(request, Hold::default()),
        };
        let talk = Arc::downgrade(&self.talk);
        Answer::Later(Box::pin(async move {
            poll_fn(|context| claim.poll(context)).await;
            if talk.strong_count() == 0 {
                // It was aborted before it began.
                return Reply::Failed(Failure::Unreachable);
            }
            match unit.ask(request, hold) {
                Answer::Now(reply) => reply,
                Answer::Later(later) => later.await,
            }
        }))
    }

    fn go_on(&mut self) -> Step {
        let work = self.work.as_mut().expect("nothing comes after the end");
        match work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(mut completion) => {
                (self.work, self.place) = (None, None);
                let claim = lock(&self.talk.claim).take();
                if let (Some((_, hold)), true) = (claim, completion.data_in.is_in_files()) {
                    completion.lent = hold;
                }
                Step::End(completion)
            }
            Poll::Pending => match std::mem::take(&mut *lock(&self.talk.exchange)) {
                Exchange::Asked(step) => step,
                _ => unreachable!("a command waits for nothing but its steps"),
            },
        }
    }
}

impl Drop for Task {
    //= rfc7143#4.2.3.3
    // An aborted task, or one whose session is gone, has no effect after that was answered. The store may be at work: what
    // comes later to the same blocks waits for it.
    fn drop(&mut self) {
        let Some((claim, _hold)) = lock(&self.talk.claim).take() else { return };
        if self.work.is_some() && self.talk.changes.load(Ordering::Relaxed) && claim.is_granted() {
            claim.orphan();
        }
    }
}

fn completion(unit: &Unit, outcome: Outcome) -> Completion {
    let check = |sense: Sense| Completion {
        status: status::CHECK_CONDITION,
        sense: sense.encode(unit.has_descriptor_sense()),
        ..Completion::default()
    };
    match outcome {
        Ok(Good { but: Some(sense), in_bytes, out_bytes, .. }) => {
            Completion { in_bytes, out_bytes, ..check(sense) }
        }
        Ok(Good { data_in, in_bytes, out_bytes, but: None }) => {
            Completion { data_in, in_bytes, out_bytes, ..Completion::default() }
        }
        Err(End::Sense(sense)) => check(sense),
        Err(End::Conflict) => {
            Completion { status: status::RESERVATION_CONFLICT, ..Completion::default() }
        }
    }
}
