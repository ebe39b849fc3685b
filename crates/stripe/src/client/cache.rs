//! What a client remembers under leases: attributes, and names in directories.
//!
//! Nothing here is older than its lease, which the metadata server takes back before it lets anybody
//! else change the file ([`crate::meta::lease`]). So an answer from here is as good as the server's
//! own. Three things could still make it wrong, and each has its guard:
//!
//! - an answer that was on its way while the lease was taken back: its grant's number is below the
//!   revocation's, and it is not remembered;
//! - this client's own changes, which take nothing back from itself: each is announced
//!   ([`Cache::sending`]) and closed ([`Cache::learn`], [`Cache::failed`]), and no answer that was
//!   asked for before, or that arrives between, is remembered for the files concerned;
//! - a lease that ran out and was granted anew: what was known before goes.
//!
//! What was not used for a while is forgotten: all is in two generations, and the older one goes.

mod ahead;
mod known;
mod learn;
mod scope;
mod walk;

use crate::meta::lease::LEASE_TIME;
use crate::meta::{NAME_BYTES_MAX, access, is_dots, may};
use crate::ops::{Answer, Caller, Id, Inode, Lease, Op, TABLE, step};
use covey_ninep::tree::Errno;
use covey_wire::{Bytes, Name};
use known::{Found, Known};
use learn::Learning;
use scope::Scope;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};
use walk::Walk;

/// What a client may answer from memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Caching {
    /// Nothing: each question goes to the server. For programs that ask each thing once.
    #[default]
    Nothing,
    /// What is under a lease, so that nobody can tell the difference: mode `strict`.
    Leases,
}

/// What lies with a file's inode: of a small file, all that it holds.
pub struct Held {
    pub version: u64,
    pub size: u64,
    pub content: Bytes,
}

/// What is remembered of one file system.
pub struct Cache {
    caching: Caching,
    state: Mutex<State>,
    /// How often the lease on the table of chains was taken back.
    table_revocations: AtomicU64,
}

struct State {
    /// The last revocation that was heard of.
    revoked: u64,
    /// Counts the beginnings and ends of this client's own changes.
    clock: u64,
    /// When something changed of which it is not known what: attributes from before are not exact.
    all_changed: u64,
    slots: Vec<Slot>,
    young: HashMap<Id, Known>,
    old: HashMap<Id, Known>,
    turned_at: Option<Instant>,
    walk: Walk,
    /// The server does not know listings with what files hold until then.
    lists_refused_until: Option<Instant>,
    /// Bytes of content that came since.
    content_bytes: usize,
}

/// Own changes of the files that share a slot.
#[derive(Clone, Copy, Default)]
struct Slot {
    changed: u64,
    under_way: u32,
}

/// A request that was sent, and what was known of own changes then.
pub struct Sent {
    at: Instant,
    clock: u64,
    scope: Scope,
    /// The files that may be gone when it is done, so that it makes a difference whether they are open; None where that
    /// is not known.
    pub loses: Option<Vec<Id>>,
}

impl Sent {
    /// One more change goes with it.
    fn join(&mut self, clock: u64, scope: Scope, loses: Option<Vec<Id>>) {
        self.clock = clock;
        self.scope.join(scope);
        match (&mut self.loses, loses) {
            (Some(all), Some(more)) => all.extend(more),
            (all, _) => *all = None,
        }
    }
}

impl Cache {
    /// Nothing is known.
    pub fn new(caching: Caching) -> Cache {
        let state = State {
            revoked: 0,
            clock: 1,
            all_changed: 0,
            slots: vec![Slot::default(); SLOTS],
            young: HashMap::new(),
            old: HashMap::new(),
            turned_at: None,
            walk: Walk::default(),
            lists_refused_until: None,
            content_bytes: 0,
        };
        Cache { caching, state: Mutex::new(state), table_revocations: AtomicU64::default() }
    }

    /// Whether anything is ever remembered.
    pub fn is_on(&self) -> bool {
        self.caching == Caching::Leases
    }

    /// A file's attributes.
    pub fn inode(&self, id: Id, now: Instant) -> Option<Inode> {
        if !self.is_on() {
            return None;
        }
        self.lock().exact(id, now).map(|known| known.inode.clone())
    }

    /// The epoch of a file whose attributes are known.
    pub fn epoch(&self, id: Id, now: Instant) -> Option<u32> {
        self.lock().exact(id, now).map(|known| known.inode.epoch)
    }

    /// Where a name leads, or that it leads nowhere, as `who` would be told.
    pub fn lookup(
        &self,
        who: &Caller,
        parent: Id,
        name: &Name,
        now: Instant,
    ) -> Option<Result<Inode, Errno>> {
        if !self.is_on() || !is_ordinary(name) {
            return None;
        }
        let mut state = self.lock();
        let dir = state.find(parent, now)?;
        if !dir.inode.is_dir() || !may(who, &dir.inode, access::EXECUTE) {
            return None;
        }
        let Some(id) = dir.names.find(name)? else {
            return Some(Err(Errno::because(Errno::ENOENT, "known under a lease")));
        };
        let found = state.exact(id, now).map(|known| {
            known.found = Some(Found::new(parent, name));
            known.inode.clone()
        });
        if let (true, Some(dir)) = (found.is_some(), state.find(parent, now)) {
            dir.names.ahead.found();
        }
        found.map(Ok)
    }

    /// The file that a name leads to, whatever is known of that.
    pub fn leads_to(&self, parent: Id, name: &Name, now: Instant) -> Option<Id> {
        if !self.is_on() {
            return None;
        }
        self.lock().id_of(parent, name, now).flatten()
    }

    /// How many entries to ask for beside a name that is not known, as Lookup does, and whether with what they hold.
    pub fn ahead(&self, parent: Id, name: &Name, now: Instant) -> (u32, bool) {
        if !self.is_on() {
            return (0, false);
        }
        let mut state = self.lock();
        let Some(dir) = state.find(parent, now) else { return (0, false) };
        let content = dir.names.ahead.wants_content();
        (dir.names.ahead.next(name), content)
    }

    /// All that lies with a file's inode. Asked for a file that is read there: whether files are decides on what is asked
    /// ahead.
    pub fn content(&self, id: Id, now: Instant) -> Option<Held> {
        if !self.is_on() {
            return None;
        }
        let mut state = self.lock();
        let all_changed = state.all_changed;
        let known = state.find(id, now)?;
        let content = known.content().filter(|_| known.is_exact(all_changed)).cloned();
        let Inode { version, size, .. } = known.inode;
        let content = content.map(|content| Held { version, size, content });
        let found = known.found.as_mut();
        let found = found.map(|found| (found.dir, std::mem::replace(&mut found.is_read, true)));
        if let Some((dir, was_read)) = found {
            if !was_read {
                state.walk.read(dir);
            }
            if let Some(dir) = state.find(dir, now) {
                dir.names.ahead.read(was_read, content.is_some());
            }
        }
        content
    }

    /// Whether what small files hold is wanted with a listing.
    pub fn wants_contents(&self, now: Instant) -> bool {
        if !self.is_on() {
            return false;
        }
        let state = self.lock();
        state.walk.wants_content() && state.lists_refused_until.is_none_or(|until| until <= now)
    }

    /// The server knows no such listings.
    pub fn refuses_contents(&self, until: Instant) {
        self.lock().lists_refused_until = Some(until);
    }

    /// The directory and name of a file whose content is wanted and not known, and how many entries to ask for with it,
    /// where the content of others there will be wanted, too.
    pub fn content_ahead(&self, id: Id, now: Instant) -> Option<(Id, Name, u32)> {
        if !self.is_on() {
            return None;
        }
        let mut state = self.lock();
        let known = state.find(id, now)?;
        let Found { dir, name, .. } = known.found.clone().filter(|_| known.has_content())?;
        let ahead = &mut state.find(dir, now)?.names.ahead;
        let ahead = ahead.next_content(&name)?;
        Some((dir, name, ahead))
    }

    /// How much longer a file's attributes hold without being asked for again, and a directory's
    /// name.
    pub fn time_left(&self, id: Id, now: Instant) -> (Duration, Duration) {
        if !self.is_on() {
            return Default::default();
        }
        let mut state = self.lock();
        let all_changed = state.all_changed;
        let Some(known) = state.known(id) else { return Default::default() };
        let left = |until: Option<Instant>| {
            until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
        };
        let is_exact = known.is_exact(all_changed);
        (left(known.until.filter(|_| is_exact)), left(known.place_until))
    }

    /// Whether a name may lead to a directory: not where it is known to lead elsewhere, or nowhere.
    pub fn may_be_dir(&self, dir: Id, name: &Name, now: Instant) -> bool {
        let mut state = self.lock();
        match state.id_of(dir, name, now) {
            Some(Some(id)) => state.find(id, now).is_none_or(|known| known.inode.is_dir()),
            Some(None) => false,
            None => true,
        }
    }

    /// How much longer the names in a directory hold that are known.
    pub fn names_left(&self, id: Id, now: Instant) -> Duration {
        let mut state = self.lock();
        let until = state.known(id).and_then(|known| known.until);
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }

    /// A request is about to be sent. A change is under way until [`Cache::learn`] or
    /// [`Cache::failed`] is told.
    pub fn sending(&self, op: &Op, now: Instant) -> Sent {
        if !self.is_on() {
            return Sent { at: now, clock: 0, scope: Scope::default(), loses: None };
        }
        let mut state = self.lock();
        let loses = state.loses(op, now);
        let scope = scope::of(op, &mut |dir, name| state.id_of(dir, name, now));
        state.begin(&scope);
        Sent { at: now, clock: state.clock, scope, loses }
    }

    /// One more change is to be sent with those of a request that is about to be.
    pub fn sending_too(&self, sent: &mut Sent, op: &Op, now: Instant) {
        if !self.is_on() {
            return;
        }
        let mut state = self.lock();
        let loses = state.loses(op, now);
        let mut scope = scope::of(op, &mut |dir, name| state.id_of(dir, name, now));
        scope.ids.retain(|id| !sent.scope.ids.contains(id));
        state.begin(&scope);
        sent.join(state.clock, scope, loses);
    }

    /// The same for a request that was announced by itself.
    pub fn join(&self, sent: &mut Sent, more: Sent) {
        if !self.is_on() {
            return;
        }
        // What was over before either is sent is told of by the answer.
        sent.join(self.lock().clock, more.scope, more.loses);
    }

    /// Up to so many files in a directory, by their numbers, from this one on: those of which all is known.
    pub fn files_in(&self, dir: Id, from: Id, count: usize, now: Instant) -> Vec<Id> {
        let mut state = self.lock();
        let Some(known) = state.find(dir, now) else { return Vec::new() };
        let mut ids: Vec<Id> = known.names.ids().filter(|&id| id >= from).collect();
        ids.sort_unstable();
        ids.dedup();
        let is_file = |id: &Id| state.exact(*id, now).is_some_and(|known| !known.inode.is_dir());
        ids.into_iter().filter(is_file).take(count).collect()
    }

    /// A request was answered.
    pub fn learn(&self, sent: Sent, op: &Op, answer: &Answer, now: Instant) {
        if !self.is_on() {
            return;
        }
        let mut state = self.lock();
        // Of a file that is new there is no other change; of a directory, whatever else changed.
        let mut made = match op {
            Op::Make { id, .. } => vec![*id],
            Op::Names { dirs, .. } => dirs.0.clone(),
            _ => Vec::new(),
        };
        made.retain(|id| state.is_alone_with(*id, sent.clock));
        let alone = state.is_alone(&sent);
        let met = state.end(&sent.scope);
        let until = sent.at + LEASE_TIME;
        let lease = Learning { until, clock: sent.clock, now, alone, made, met };
        let grant = answer.grant;
        let is_granted = grant > 0 && grant >= state.revoked && lease.until > now;
        if is_granted {
            state.turn_over(now);
            state.learn(&lease, &sent.scope, op, &answer.reply);
            let dir = answer.dir.iter();
            dir.for_each(|dir| state.learn_own(&lease, &sent.scope, dir));
        }
    }

    /// A request was refused, or its answer never came.
    pub fn failed(&self, sent: Sent) {
        if self.is_on() {
            drop(self.lock().end(&sent.scope));
        }
    }

    /// These leases are over.
    pub fn revoke(&self, number: u64, leases: &[Lease]) {
        let mut state = self.lock();
        state.revoked = state.revoked.max(number);
        if leases.iter().any(|lease| lease.id == TABLE) {
            self.table_revocations.fetch_add(1, Ordering::AcqRel);
        }
        for lease in leases {
            if lease.place {
                state.known(lease.id).into_iter().for_each(Known::forget_place)
            } else {
                state.known(lease.id).into_iter().for_each(Known::forget)
            }
        }
    }

    /// How often the lease on the table of chains was taken back: what was asked for before the last time is old.
    pub fn table_revocations(&self) -> u64 {
        self.table_revocations.load(Ordering::Acquire)
    }

    /// Nothing is known any more. No answer may be on its way.
    pub fn forget_all(&self) {
        let mut state = self.lock();
        (state.young, state.old) = Default::default();
    }

    /// All leases are given back: nothing is known, and nothing will be.
    pub fn close(&self) {
        let mut state = self.lock();
        (state.young, state.old) = Default::default();
        state.revoked = u64::MAX;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }
}

impl State {
    fn slot(&mut self, id: Id) -> &mut Slot {
        let hash = id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &mut self.slots[hash as usize % SLOTS]
    }

    /// What is known of a file, whether or not its lease is over. It is young again.
    fn known(&mut self, id: Id) -> Option<&mut Known> {
        if let Some(known) = self.old.remove(&id) {
            self.young.insert(id, known);
        }
        self.young.get_mut(&id)
    }

    fn find(&mut self, id: Id, now: Instant) -> Option<&mut Known> {
        self.known(id).filter(|known| known.is_held(now))
    }

    /// One of which all attributes are known.
    fn exact(&mut self, id: Id, now: Instant) -> Option<&mut Known> {
        let all_changed = self.all_changed;
        self.find(id, now).filter(|known| known.is_exact(all_changed))
    }

    /// [`Sent::loses`]. Only the first of two removals that meet knows that the file has another name.
    fn loses(&mut self, op: &Op, now: Instant) -> Option<Vec<Id>> {
        let (dir, name) = match op {
            Op::Names { steps, ids, .. } => {
                let named = steps.0.iter().zip(&ids.0);
                let gone = named.filter(|(step, _)| **step == step::UNLINK);
                return Some(gone.map(|(_, id)| *id).collect());
            }
            Op::Unlink { parent, name, .. } => (*parent, name),
            Op::Rename { to, to_name, .. } => (*to, to_name),
            _ => return None,
        };
        let Some(id) = self.id_of(dir, name, now)? else { return Some(Vec::new()) };
        let all_changed = self.all_changed;
        let known = self.find(id, now).filter(|known| known.is_exact(all_changed));
        let has_others = known.is_some_and(|known| !known.inode.is_dir() && known.inode.nlink > 1);
        Some(if has_others { Vec::new() } else { vec![id] })
    }

    /// Where a name leads, or that it leads nowhere.
    fn id_of(&mut self, dir: Id, name: &Name, now: Instant) -> Option<Option<Id>> {
        self.find(dir, now)?.names.find(name)
    }

    fn begin(&mut self, scope: &Scope) {
        if scope.is_empty() {
            return;
        }
        self.clock += 1;
        let clock = self.clock;
        for &id in &scope.ids {
            let slot = self.slot(id);
            slot.changed = clock;
            slot.under_way += 1;
            let forget = if scope.forgets { Known::forget } else { Known::forget_exact };
            self.known(id).into_iter().for_each(forget);
        }
        if scope.changes_unknown {
            self.all_changed = clock;
        }
        for (dir, name) in &scope.names {
            if let Some(dir) = self.known(*dir) {
                dir.names.begin(name);
            }
        }
    }

    /// The change is over; its names of which another change was under way.
    fn end(&mut self, scope: &Scope) -> Vec<Name> {
        let mut met = Vec::new();
        if scope.is_empty() {
            return met;
        }
        self.clock += 1;
        let clock = self.clock;
        for &id in &scope.ids {
            let slot = self.slot(id);
            slot.changed = clock;
            slot.under_way = slot.under_way.saturating_sub(1);
            let forget = if scope.forgets { Known::forget } else { Known::forget_exact };
            self.known(id).into_iter().for_each(forget);
        }
        if scope.changes_unknown {
            self.all_changed = clock;
        }
        for (dir, name) in &scope.names {
            if let Some(dir) = self.known(*dir)
                && dir.names.end(name)
            {
                met.push(name.clone());
            }
        }
        let mut dirs: Vec<Id> = scope.names.iter().map(|(dir, _)| *dir).collect();
        dirs.dedup();
        for dir in dirs {
            self.known(dir).into_iter().for_each(|dir| dir.names.ended());
        }
        met
    }

    fn held(&mut self, now: Instant, bytes: usize) {
        self.content_bytes += bytes;
        if self.content_bytes >= CONTENT_BYTES_MAX {
            self.turn(now);
        }
    }

    /// Whether no other own change has met this one.
    fn is_alone(&mut self, sent: &Sent) -> bool {
        sent.scope.ids.iter().all(|&id| self.is_alone_with(id, sent.clock))
    }

    fn is_alone_with(&mut self, id: Id, clock: u64) -> bool {
        let slot = self.slot(id);
        slot.under_way <= 1 && slot.changed <= clock
    }

    /// Forgets what was not used since the last turn.
    fn turn_over(&mut self, now: Instant) {
        let turned_at = *self.turned_at.get_or_insert(now);
        if self.young.len() >= FILES_MAX || now.duration_since(turned_at) >= TURN {
            self.turn(now);
        }
    }

    fn turn(&mut self, now: Instant) {
        self.old = std::mem::take(&mut self.young);
        (self.turned_at, self.content_bytes) = (Some(now), 0);
    }
}

/// Whether this can be a name of an entry: all else is for the server to refuse, or to follow.
fn is_ordinary(name: &Name) -> bool {
    let bytes = name.as_bytes();
    let is_word = !bytes.iter().any(|byte| matches!(byte, 0 | b'/'));
    (1..=NAME_BYTES_MAX).contains(&bytes.len()) && is_word && !matches!(bytes, b"." | b"..")
}

/// Bytes of content of one generation.
const CONTENT_BYTES_MAX: usize = 64 << 20;

/// Own changes are told apart by so many slots.
const SLOTS: usize = 1024;

/// Files of one generation.
const FILES_MAX: usize = 32 * 1024;

/// A generation's time: nothing that is older than a lease is good for anything.
const TURN: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests;
