//! A logical unit: what it is, what it remembers, and what all who use it share.
//!
//! The medium is the store's. Here is only what SCSI adds to it: reservations, unit attentions of each nexus, mode
//! parameters, whether a medium is in. All of it is behind one lock that is held for a few lines, never while the store works.

use super::admit::Need;
use super::order::Order;
use super::ranges::{Access, Claim, Ranges};
use super::reservations::{Change, Effect, Port, Reservations};
use super::sense::{Key, Sense, Specific, code};
use super::unsynced::{Noted, Unsynced};
use super::{Nexus, call::End};
use crate::store::{Answer, Failure, Held, Hold, Reply, Request, Store};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a unit is.
#[derive(Clone, Debug)]
pub struct Config {
    /// What people call it: up to 16 characters of it are the product's name.
    pub name: String,
    /// What tells it from all other units, whatever it is called: letters and digits, at least 8.
    pub serial: String,
    /// The name of the target that it belongs to.
    pub target: Arc<str>,
    /// Bytes of a block: 512 or 4096.
    pub block_bytes: u32,
    /// Whether nobody may write.
    pub read_only: bool,
    /// Whether its medium can be ejected.
    pub removable: bool,
    /// Whether what is written is at first in a cache that a power loss empties. If not, every write is on stable storage
    /// before it is answered. An initiator may change it.
    pub write_cache: bool,
    /// The portal groups of the target, all of which reach it equally well.
    pub portal_groups: Vec<u16>,
}

/// A logical unit, shared by all tasks on it.
pub struct Unit {
    pub(super) config: Config,
    store: Arc<dyn Store>,
    pub(super) ranges: Arc<Ranges>,
    pub(super) order: Arc<Order>,
    state: Mutex<State>,
    /// Whether what is read may be sent from the store's file, where later writes change it on its way.
    lends: AtomicBool,
}

/// What a unit remembers.
pub(super) struct State {
    visitors: BTreeMap<u64, Visitor>,
    pub(super) reservations: Reservations,
    /// Who has written since it last brought everything to stable storage.
    pub(super) unsynced: Unsynced,
    /// The nexus that holds it in the way of SPC-2.
    pub(super) reserved: Option<u64>,
    pub(super) mode: Mode,
    medium: Medium,
    sanitize: Sanitize,
    /// The capacity that its users know, in blocks.
    blocks: u64,
}

/// What a unit remembers of a nexus.
struct Visitor {
    port: Port,
    /// What it must be told before anything else.
    attentions: VecDeque<u16>,
    /// It has forbidden to eject the medium.
    prevents: bool,
    /// The last copies that it had made, by their list identifier.
    copies: VecDeque<(u8, Copied)>,
}

/// How a copy ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Copied {
    pub(super) is_good: bool,
    pub(super) segments: u16,
    pub(super) bytes: u64,
}

/// Mode parameters that may be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mode {
    /// WCE.
    pub(super) write_cache: bool,
    /// SWP.
    pub(super) write_protect: bool,
    /// D_SENSE.
    pub(super) descriptor_sense: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Medium {
    Ready,
    Ejected,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sanitize {
    No,
    Running,
    Failed,
}

/// A unit cannot be made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unfit {
    /// Blocks have 512 or 4096 bytes.
    BlockBytes(u32),
    /// The store is smaller than one block.
    Empty,
    /// What was saved of its reservations cannot be read. Whoever decides that they are void gives an empty text.
    Reservations,
}

impl std::fmt::Display for Unfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unfit::BlockBytes(bytes) => {
                write!(f, "blocks of {bytes} bytes are not supported: 512 or 4096 are")
            }
            Unfit::Empty => f.write_str("the store is smaller than one block"),
            Unfit::Reservations => f.write_str("the saved reservations cannot be read"),
        }
    }
}

impl std::error::Error for Unfit {}

impl Unit {
    /// A unit of `store`, with what it last saved ([`Request::Save`]); empty if it never did.
    pub fn new(config: Config, store: Arc<dyn Store>, saved: &str) -> Result<Unit, Unfit> {
        if !matches!(config.block_bytes, 512 | 4096) {
            return Err(Unfit::BlockBytes(config.block_bytes));
        }
        let blocks = store.bytes() / u64::from(config.block_bytes);
        if blocks == 0 {
            return Err(Unfit::Empty);
        }
        // What began to be destroyed may be there still: nobody is to believe that it is gone.
        let (sanitize, saved) = match saved.strip_suffix(SANITIZE_BEGUN) {
            Some(rest) => (Sanitize::Failed, rest),
            None => (Sanitize::No, saved),
        };
        let state = State {
            visitors: BTreeMap::new(),
            reservations: Reservations::restore(saved).ok_or(Unfit::Reservations)?,
            unsynced: Unsynced::default(),
            reserved: None,
            mode: Mode::default_of(&config),
            medium: Medium::Ready,
            sanitize,
            blocks,
        };
        let (state, lends) = (Mutex::new(state), AtomicBool::new(true));
        let (ranges, order) = Default::default();
        Ok(Unit { config, store, ranges, order, state, lends })
    }

    pub(super) fn lends(&self) -> bool {
        self.lends.load(Ordering::SeqCst)
    }

    pub(super) fn lends_no_more(&self) {
        self.lends.store(false, Ordering::SeqCst);
    }

    /// What it is.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// How many blocks it has.
    pub fn blocks(&self) -> u64 {
        self.store.bytes() / self.block_bytes()
    }

    pub(super) fn block_bytes(&self) -> u64 {
        u64::from(self.config.block_bytes)
    }

    pub(super) fn ask(&self, request: Request, hold: Hold) -> Answer {
        match request {
            // Of several changes whoever comes to save saves the last: one at a time does, by its claim.
            Request::Save { .. } => {
                let state = self.lock().text().into_bytes().into();
                self.store.ask(Request::Save { state }, hold)
            }
            request => self.store.ask(request, hold),
        }
    }

    /// Makes all reservations void, the saved ones, too. All who held or were registered are told.
    pub async fn forget_reservations(&self) -> Result<(), Failure> {
        {
            let mut state = self.lock();
            state.reserved = None;
            let change = state.reservations.forget();
            Unit::spread(&mut state, &change);
        }
        let claim = Arc::new(self.ranges.claim(SAVING, Access::Exclusive));
        poll_fn(|context| claim.poll(context)).await;
        let reply = match self.ask(save(), Hold::new(claim)) {
            Answer::Now(reply) => reply,
            Answer::Later(reply) => reply.await,
        };
        match reply {
            Reply::Failed(failure) => Err(failure),
            _ => Ok(()),
        }
    }

    /// Waits until no command is at work on the blocks from `lba` on, and keeps them off until what this answers is dropped:
    /// for who cuts off these blocks, which the store refuses by then.
    pub async fn close_from(&self, lba: u64) -> ClosedRange {
        let claim = self.ranges.claim(lba..SAVING.start, Access::Exclusive);
        poll_fn(|context| claim.poll(context)).await;
        ClosedRange { _claim: claim }
    }

    /// Until all that stores do for commands that have come so far is over, whether or not anybody waits for it.
    pub async fn settle(&self) {
        let all = self.ranges.claim(0..u64::MAX, Access::Exclusive);
        poll_fn(|context| all.poll(context)).await;
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn has_descriptor_sense(&self) -> bool {
        self.lock().mode.descriptor_sense
    }

    /// Whether a command of this nexus may run now.
    pub(super) fn admit(&self, nexus: &Nexus, need: &Need) -> Result<(), End> {
        let blocks = self.blocks();
        let mut state = self.lock();
        state.visitor(nexus);
        if blocks != state.blocks {
            state.blocks = blocks;
            state.tell(code::CAPACITY_DATA_HAS_CHANGED, None);
        }
        if need.heeds_attention
            && let Some(code) = state.visitor(nexus).attentions.pop_front()
        {
            return Err(Sense::attention(code).into());
        }
        state.check_reservations(nexus, need)?;
        state.check_ready(&self.config, need)?;
        Ok(())
    }

    /// The next thing that a nexus must be told, taken away.
    pub(super) fn take_attention(&self, nexus: &Nexus) -> Option<Sense> {
        let code = self.lock().visitor(nexus).attentions.pop_front()?;
        Some(Sense::attention(code))
    }

    /// What REQUEST SENSE says when there is nothing to be told.
    pub(super) fn condition(&self) -> Sense {
        match self.lock().sanitize {
            Sanitize::Running => SANITIZING,
            _ => Sense::new(Key::NoSense, code::NONE),
        }
    }

    /// Tells those whom `change` concerns; the numbers of the nexuses that lost their registration.
    pub(super) fn spread(state: &mut State, change: &Change) -> Vec<u64> {
        for (port, code) in &change.attentions {
            state.visitors.values_mut().filter(|one| one.port == *port).for_each(|one| {
                one.attend(*code);
            });
        }
        let removed = state.visitors.iter().filter(|(_, one)| change.removed.contains(&one.port));
        removed.map(|(number, _)| *number).collect()
    }

    /// A reset: SPC-2 reservations, mode parameters and locks of the medium are as at the beginning, and all are told.
    pub(super) fn reset(&self, code: u16) {
        let mut state = self.lock();
        state.reserved = None;
        let had_cache = state.mode.write_cache;
        state.mode = Mode::default_of(&self.config);
        for visitor in state.visitors.values_mut() {
            visitor.prevents = false;
            visitor.attentions.clear();
        }
        state.tell(code, None);
        drop(state);
        if had_cache && !self.config.write_cache {
            // Nobody syncs it any more. It is begun, and nobody waits for it.
            drop(self.ask(Request::Flush, Hold::default()));
        }
    }

    /// A nexus is no more.
    pub(super) fn lost(&self, nexus: u64) {
        let mut state = self.lock();
        state.visitors.remove(&nexus);
        state.unsynced.depart(nexus);
        state.reserved = state.reserved.filter(|holder| *holder != nexus);
    }

    /// Tells all nexuses but one.
    pub(super) fn tell_others(&self, code: u16, but: &Nexus) {
        self.lock().tell(code, Some(but.number));
    }

    /// This nexus writes, and it need not be on stable storage when that is answered.
    pub(super) fn writes(&self, nexus: &Nexus) -> Noted {
        // Before the store is asked: a loss after that may be of these bytes.
        let losses = self.losses();
        self.lock().unsynced.note(nexus, losses)
    }

    /// It has written, or not.
    pub(super) fn wrote(&self, nexus: &Nexus, noted: Noted) {
        self.lock().unsynced.wrote(nexus, noted);
    }

    /// How often the store may have lost what was written.
    pub(super) fn losses(&self) -> u64 {
        self.store.losses()
    }

    /// Begins to sanitize; `false` where it is going on.
    pub(super) fn begin_sanitize(&self) -> bool {
        let mut state = self.lock();
        let idle = state.sanitize != Sanitize::Running;
        state.sanitize = Sanitize::Running;
        idle
    }

    /// EXIT FAILURE MODE; `false` where there is no failure.
    pub(super) fn forget_failed_sanitize(&self) {
        let mut state = self.lock();
        if state.sanitize == Sanitize::Failed {
            state.sanitize = Sanitize::No;
        }
    }
}

/// Blocks that no command works on, as long as this is there.
#[derive(Debug)]
pub struct ClosedRange {
    _claim: Claim,
}

/// Has the unit save what is true when its store is asked.
pub(super) fn save() -> Request {
    Request::Save { state: Bytes::new() }
}

impl State {
    /// What is to be there when the unit begins again.
    fn text(&self) -> String {
        let begun = if self.sanitize == Sanitize::No { "" } else { SANITIZE_BEGUN };
        self.reservations.save() + begun
    }

    fn visitor(&mut self, nexus: &Nexus) -> &mut Visitor {
        self.visitors.entry(nexus.number).or_insert_with(|| Visitor {
            port: Port::of(nexus),
            attentions: VecDeque::from([code::POWER_ON_OR_RESET]),
            prevents: false,
            copies: VecDeque::new(),
        })
    }

    /// Tells all nexuses but one, if so.
    pub(super) fn tell(&mut self, code: u16, but: Option<u64>) {
        let others = self.visitors.iter_mut().filter(|(number, _)| Some(**number) != but);
        others.for_each(|(_, visitor)| visitor.attend(code));
    }

    fn check_reservations(&self, nexus: &Nexus, need: &Need) -> Result<(), End> {
        let is_others = self.reserved.is_some_and(|holder| holder != nexus.number);
        if is_others && need.heeds_spc2 {
            return Err(End::Conflict);
        }
        if need.effect == Effect::Harmless || self.reservations.holder.is_none() {
            return Ok(());
        }
        if self.reservations.allows(&Port::of(nexus), need.effect) {
            Ok(())
        } else {
            Err(End::Conflict)
        }
    }

    fn check_ready(&self, config: &Config, need: &Need) -> Result<(), Sense> {
        match self.sanitize {
            Sanitize::Running if need.calm => return Err(SANITIZING),
            Sanitize::Failed if need.medium && !need.sanitizes => {
                return Err(Sense::new(Key::MediumError, code::SANITIZE_FAILED));
            }
            _ => {}
        }
        if need.medium && self.medium == Medium::Ejected {
            return Err(Sense::new(Key::NotReady, code::MEDIUM_NOT_PRESENT));
        }
        if need.writable && config.read_only {
            return Err(Sense::new(Key::DataProtect, code::HARDWARE_WRITE_PROTECTED));
        }
        if need.writable && self.mode.write_protect {
            return Err(Sense::new(Key::DataProtect, code::SOFTWARE_WRITE_PROTECTED));
        }
        Ok(())
    }

    /// PREVENT ALLOW MEDIUM REMOVAL.
    pub(super) fn prevent(&mut self, nexus: &Nexus, prevents: bool) {
        self.visitor(nexus).prevents = prevents;
    }

    /// START STOP UNIT without a power condition.
    pub(super) fn start_stop(
        &mut self,
        nexus: &Nexus,
        start: bool,
        load_eject: bool,
    ) -> Result<(), Sense> {
        if load_eject && self.visitors.values().any(|one| one.prevents) {
            return Err(Sense::new(Key::IllegalRequest, code::MEDIUM_REMOVAL_PREVENTED));
        }
        let was = self.medium;
        // Without LOEJ nothing moves: there is nothing that turns or could stop.
        self.medium = match (load_eject, start) {
            (true, true) => Medium::Ready,
            (true, false) => Medium::Ejected,
            (false, _) => was,
        };
        if was == Medium::Ejected && self.medium == Medium::Ready {
            self.tell(code::MEDIUM_MAY_HAVE_CHANGED, Some(nexus.number));
        }
        Ok(())
    }

    /// Remembers how a copy ended.
    pub(super) fn note_copy(&mut self, nexus: &Nexus, list: u8, copied: Copied) {
        let copies = &mut self.visitor(nexus).copies;
        copies.retain(|(other, _)| *other != list);
        if copies.len() == COPIES_MAX {
            copies.pop_front();
        }
        copies.push_back((list, copied));
    }

    /// How the copy ended that has this list identifier; it is told once.
    pub(super) fn take_copy(&mut self, nexus: &Nexus, list: u8) -> Option<Copied> {
        let copies = &mut self.visitor(nexus).copies;
        let at = copies.iter().position(|(other, _)| *other == list)?;
        copies.remove(at).map(|(_, copied)| copied)
    }
}

impl Visitor {
    fn attend(&mut self, code: u16) {
        if !self.attentions.contains(&code) {
            self.attentions.push_back(code);
        }
    }
}

impl Mode {
    fn default_of(config: &Config) -> Mode {
        Mode { write_cache: config.write_cache, write_protect: false, descriptor_sense: false }
    }
}

/// Keeps a unit in the state of being sanitized for as long as the store works on it.
pub(super) struct Sanitizing {
    unit: Arc<Unit>,
    /// No other command is on the medium meanwhile.
    claim: Arc<Claim>,
    /// The store's losses when it began.
    losses: u64,
    /// Whether what was done to the medium is on stable storage.
    is_synced: AtomicBool,
}

impl Sanitizing {
    pub(super) fn new(unit: Arc<Unit>, claim: Arc<Claim>) -> Sanitizing {
        let losses = unit.losses();
        Sanitizing { unit, claim, losses, is_synced: AtomicBool::new(false) }
    }

    /// All of it is done, and on stable storage.
    pub(super) fn synced(&self) {
        self.is_synced.store(true, Ordering::Release);
    }

    /// The store has done its work: what that was is brought to stable storage, and then the sanitizing is over. Nobody waits
    /// for that.
    fn sync(&self) {
        let Sanitizing { unit, claim, losses, .. } = self;
        let (unit, claim, is_synced) = (unit.clone(), claim.clone(), AtomicBool::new(true));
        let hold = Hold::new(Arc::new(Sanitizing { unit, claim, losses: *losses, is_synced }));
        let answer = self.unit.ask(Request::Flush, hold.clone());
        if let Answer::Now(Reply::Failed(failure)) = answer {
            hold.fail(failure);
        }
    }
}

impl Held for Sanitizing {
    fn failed(&self, _: Failure) {
        self.unit.lock().sanitize = Sanitize::Failed;
    }
}

impl Drop for Sanitizing {
    fn drop(&mut self) {
        if self.unit.lock().sanitize != Sanitize::Running {
            return;
        }
        if !self.is_synced.load(Ordering::Acquire) {
            return self.sync();
        }
        if self.unit.losses() != self.losses {
            // Another sync met it, and this one had nothing left to say.
            return self.failed(Failure::Write);
        }
        self.unit.lock().sanitize = Sanitize::No;
        // It is begun, and nobody waits for it: if it is lost the unit says that it was not sanitized.
        drop(self.unit.ask(save(), Hold::new(self.claim.clone())));
    }
}

/// SANITIZE IN PROGRESS, of which the progress is not known.
pub(super) const SANITIZING: Sense = Sense {
    specific: Some(Specific::Progress(0)),
    ..Sense::new(Key::NotReady, code::SANITIZE_IN_PROGRESS)
};

/// The last line of what is saved from the beginning to the end of a sanitize.
const SANITIZE_BEGUN: &str = "sanitize\n";

/// Blocks that no unit has: who claims them saves the reservations, one at a time.
pub(super) const SAVING: Range<u64> = u64::MAX - 1..u64::MAX;

/// How many ends of copies are remembered for a nexus.
const COPIES_MAX: usize = 8;
