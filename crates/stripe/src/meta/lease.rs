//! Leases: what other clients may remember of the store, and how it is taken back from them.
//!
//! An answer to a session that listens comes with a lease on the files it tells of: for
//! [`LEASE_TIME`] from when it asked, the session may use what it was told without asking again. An
//! operation of another session that changes such a file first takes the leases back: the holders
//! are told, and the operation is applied when all have answered, or when their time is over. So
//! nobody ever sees an old state after somebody has seen the new one.
//!
//! ```text
//!   holder  ◄── answer, grant n ──  grant                            other session
//!   holder  ◄── Revoked(m, files) ─ claim ◄── wants to change ────────────┘
//!   holder  ─── Revokes(m) ───────► acked ──► nobody holds it: apply, answer
//! ```
//!
//! Grants and revocations carry numbers of one count, so that a holder can tell an answer that was
//! on its way while the lease was taken back: its number is below the revocation's.
//!
//! A session that has just made a file may be *alone* with it: then others are not told of the file
//! either before that is taken back, and the session may say late what it did to it.
//!
//! All of this is volatile. After a start nobody knows who holds what: changes wait until every
//! lease from before is over.

mod scope;

pub use scope::told;

use crate::ops::{Id, Lease};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

/// How long a holder may use what it was told, from when it asked.
pub const LEASE_TIME: Duration = Duration::from_secs(1);

/// How much longer the server waits for a holder that does not answer. The holder's time begins
/// earlier, when it asks; this is for clocks that do not run at the same speed.
const MARGIN: Duration = Duration::from_millis(50);

/// A file whose lease was taken back twice within this time is not leased again for so long: where
/// clients take turns, leases would only cost.
const REST: Duration = Duration::from_secs(1);

/// So many leased files are known at once. Beyond, nothing more is granted.
const FILES_MAX: usize = 1 << 20;
/// Leases that one message takes back; the rest is told with the next.
const REVOKED_MAX: usize = 4096;

/// Who holds what.
pub struct Leases {
    /// The last number that was given to a revocation.
    number: u64,
    quiet_until: Option<Instant>,
    held: HashMap<Lease, Held>,
    /// Leases to be looked at, when they may be over.
    ends: VecDeque<(Instant, Lease)>,
    listeners: HashMap<u64, Listener>,
    /// How much each session holds, for the common case that there is only one.
    holders: HashMap<u64, usize>,
    /// Files with the session that is alone with them, for as long as it holds their leases.
    alone: HashMap<Id, u64>,
    /// Claims begun so far, and how many of them are under way.
    turns: u64,
    claims: usize,
}

#[derive(Default)]
struct Held {
    by: Vec<Holder>,
    /// When it was taken back last.
    taken_at: Option<Instant>,
    /// Nothing is granted before.
    rests_until: Option<Instant>,
    /// Operations that wait for it, by their turn.
    claims: Vec<u64>,
}

struct Holder {
    session: u64,
    until: Instant,
    is_told: bool,
}

/// A session that can be told.
#[derive(Default)]
struct Listener {
    is_here: bool,
    due: Vec<Lease>,
    sent: Option<(u64, Vec<Lease>)>,
}

/// What an operation takes back before it is applied. To be given to [`Leases::end_claim`].
#[derive(Debug)]
pub struct Claim {
    leases: BTreeSet<Lease>,
    session: u64,
    turn: u64,
}

impl Claim {
    /// Whose operation takes them back.
    pub fn session(&self) -> u64 {
        self.session
    }
}

impl Leases {
    /// No leases. `boot` counts the server's starts; `quiet_until` is set when there may be leases
    /// from before this one.
    pub fn new(boot: u64, quiet_until: Option<Instant>) -> Leases {
        Leases {
            number: boot << 40,
            quiet_until,
            held: HashMap::new(),
            ends: VecDeque::new(),
            listeners: HashMap::new(),
            holders: HashMap::new(),
            alone: HashMap::new(),
            turns: 0,
            claims: 0,
        }
    }

    /// The session can be told from now on. It has forgotten what revocation `acked` named;
    /// answers whether that lets anybody go on.
    pub fn listen(&mut self, session: u64, acked: u64) -> bool {
        let news = self.acked(session, acked);
        let listener = self.listeners.entry(session).or_default();
        listener.is_here = true;
        // What was sent and is not acknowledged did not arrive.
        if let Some((_, leases)) = listener.sent.take() {
            listener.due.extend(leases);
        }
        news
    }

    /// Whether the session can be told.
    pub fn listens(&self, session: u64) -> bool {
        self.listeners.get(&session).is_some_and(|listener| listener.is_here)
    }

    /// The session is over, by its client's own word or long after it could be heard: it holds
    /// nothing any more. Answers whether that lets anybody go on.
    pub fn end_session(&mut self, session: u64) -> bool {
        self.listeners.remove(&session);
        if self.holders.remove(&session).is_none() {
            return false;
        }
        for held in self.held.values_mut() {
            held.by.retain(|holder| holder.session != session);
        }
        self.alone.retain(|_, holder| *holder != session);
        true
    }

    /// The session's connection is lost: nothing more is granted, and what it holds runs out.
    pub fn leave(&mut self, session: u64) {
        if let Some(listener) = self.listeners.remove(&session) {
            // Should it come back in time, it is told again.
            let told = listener.sent.into_iter().flat_map(|(_, leases)| leases);
            let due: Vec<Lease> = told.chain(listener.due).collect();
            if !due.is_empty() {
                self.listeners.insert(session, Listener { due, ..Listener::default() });
            }
        }
    }

    /// Grants `leases` to a session, all or none; the grant's number, or 0.
    pub fn grant(&mut self, session: u64, leases: &[Lease], now: Instant) -> u64 {
        self.forget_ended(now);
        let listens = self.listens(session);
        let is_free = |lease| self.held.get(lease).is_none_or(|held| held.is_free(session, now));
        if !listens || self.held.len() >= FILES_MAX || !leases.iter().all(is_free) {
            return 0;
        }
        leases.iter().for_each(|lease| self.grant_one(session, *lease, now));
        self.number.max(1)
    }

    fn grant_one(&mut self, session: u64, lease: Lease, now: Instant) {
        let until = now + LEASE_TIME + MARGIN;
        let is_new = !self.held.contains_key(&lease);
        let held = self.held.entry(lease).or_default();
        if is_new {
            self.ends.push_back((until, lease));
        }
        match held.by.iter_mut().find(|holder| holder.session == session) {
            Some(holder) => {
                let before = std::mem::replace(&mut holder.until, until);
                // One that was over has ended what went with it.
                if before <= now {
                    self.is_over(session, lease);
                }
            }
            None => {
                held.by.push(Holder { session, until, is_told: false });
                *self.holders.entry(session).or_default() += 1;
            }
        }
    }

    /// The session has made this file, and was granted its lease: it is left alone with it until
    /// somebody else asks for it, the lease is over, or [`Leases::open_to_all`].
    pub fn leave_alone(&mut self, session: u64, id: Id) {
        self.alone.insert(id, session);
    }

    /// The session has said all that it did to a file.
    pub fn open_to_all(&mut self, session: u64, id: Id) {
        if self.alone.get(&id) == Some(&session) {
            self.alone.remove(&id);
        }
    }

    /// A session has this lease no longer: that on what a file is and holds is what it was alone with it by.
    fn is_over(&mut self, session: u64, lease: Lease) {
        if !lease.place {
            self.open_to_all(session, lease.id);
        }
    }

    /// How many files sessions are alone with.
    pub fn alone_count(&self) -> usize {
        self.alone.len()
    }

    /// Whether any session is alone with a file.
    pub fn is_any_alone(&self) -> bool {
        !self.alone.is_empty()
    }

    /// Whether a session is alone with a file. Then nobody else holds a lease on it, and what it does
    /// to it needs no claim: those who wait for it wait for just that.
    pub fn is_alone(&self, session: u64, id: Id, now: Instant) -> bool {
        self.alone.get(&id) == Some(&session) && self.holds(session, id, now)
    }

    /// Files that sessions other than `session` are alone with.
    pub fn alone_elsewhere(&self, session: u64, now: Instant) -> impl Iterator<Item = Id> {
        self.alone.keys().copied().filter(move |&id| self.is_alone_elsewhere(session, id, now))
    }

    /// Whether a session other than `session` is alone with a file.
    pub fn is_alone_elsewhere(&self, session: u64, id: Id, now: Instant) -> bool {
        let holder = self.alone.get(&id).filter(|holder| **holder != session);
        holder.is_some_and(|holder| self.holds(*holder, id, now))
    }

    fn holds(&self, session: u64, id: Id, now: Instant) -> bool {
        let held = self.held.get(&Lease { id, place: false });
        let is_it = |holder: &Holder| holder.session == session && now < holder.until;
        held.is_some_and(|held| held.by.iter().any(is_it))
    }

    /// Whether an operation of `session` that changes something has to ask, by a claim.
    pub fn concern_others(&self, session: u64, now: Instant) -> bool {
        let alone = self.holders.len() == 1 && self.holders.contains_key(&session);
        self.claims > 0 || !(alone || self.holders.is_empty()) || self.is_quiet(now)
    }

    /// Leases from before the start may not be over yet: nothing is changed until they are.
    fn is_quiet(&self, now: Instant) -> bool {
        self.quiet_until.is_some_and(|until| now < until)
    }

    /// An operation of `session` takes its turn. What it changes is told with [`Leases::add`].
    pub fn begin_claim(&mut self, session: u64) -> Claim {
        self.turns += 1;
        self.claims += 1;
        Claim { leases: BTreeSet::new(), session, turn: self.turns }
    }

    /// Takes `leases` back from all others than the claim's session, as far as that was not done
    /// for the claim before. False when nobody else holds one or waits for one: then the operation
    /// may be applied. Otherwise the holders are to be told, nothing of it is granted until
    /// [`Leases::end_claim`], and the operation waits while it is [`Leases::in_the_way`].
    pub fn add(&mut self, claim: &mut Claim, leases: &[Lease], now: Instant) -> bool {
        let (mut is_in_the_way, is_quiet) = (false, self.is_quiet(now));
        self.number += 1;
        for lease in leases {
            let concerns = self.held.get(lease).is_some_and(|held| held.concerns(claim, now));
            if claim.leases.contains(lease) || !(is_quiet || concerns) {
                continue;
            }
            is_in_the_way = true;
            claim.leases.insert(*lease);
            self.take_back(claim, *lease, now);
        }
        is_in_the_way
    }

    fn take_back(&mut self, claim: &Claim, lease: Lease, now: Instant) {
        let is_new = !self.held.contains_key(&lease);
        let held = self.held.entry(lease).or_default();
        if is_new {
            self.ends.push_back((now + REST, lease));
        }
        held.claims.push(claim.turn);
        for holder in held.by.iter_mut().filter(|h| h.session != claim.session && !h.is_told) {
            holder.is_told = true;
            self.listeners.entry(holder.session).or_default().due.push(lease);
        }
    }

    /// When to look again at the latest, while holders or earlier operations are waited for.
    pub fn in_the_way(&self, claim: &Claim, now: Instant) -> Option<Instant> {
        let held = claim.leases.iter().filter_map(|lease| self.held.get(lease));
        let held = held.filter_map(|held| {
            let others = held.by.iter().filter(|holder| holder.session != claim.session);
            let until = others.map(|holder| holder.until).filter(|&until| now < until).max();
            if held.claims.iter().all(|&turn| turn >= claim.turn) {
                until
            } else {
                // Operations on one file keep their order.
                until.max(Some(now + LEASE_TIME))
            }
        });
        held.max().max(self.quiet_until.filter(|&until| now < until))
    }

    /// The operation is applied, or given up.
    pub fn end_claim(&mut self, claim: Claim, now: Instant) {
        self.claims -= 1;
        for lease in claim.leases {
            let Some(held) = self.held.get_mut(&lease) else { continue };
            held.claims.retain(|&turn| turn != claim.turn);
            let is_contended = held.taken_at.is_some_and(|at| now < at + REST);
            held.taken_at = Some(now);
            if is_contended {
                held.rests_until = Some(now + REST);
            }
        }
    }

    /// What a session that listens is to be told now: a number to be acknowledged, and leases it
    /// has no more. One such message is on its way at a time.
    pub fn take_revocation(&mut self, session: u64) -> Option<(u64, Vec<Lease>)> {
        let number = self.number;
        let listener = self.listeners.get_mut(&session).filter(|listener| listener.is_here)?;
        if listener.sent.is_some() || listener.due.is_empty() {
            return None;
        }
        let told = listener.due.len().min(REVOKED_MAX);
        let leases: Vec<Lease> = listener.due.drain(..told).collect();
        listener.sent = Some((number, leases.clone()));
        Some((number, leases))
    }

    fn acked(&mut self, session: u64, number: u64) -> bool {
        let Some(listener) = self.listeners.get_mut(&session) else { return false };
        let Some((_, leases)) = listener.sent.take_if(|(sent, _)| *sent == number) else {
            return false;
        };
        leases.iter().for_each(|lease| self.drop_holder(*lease, session));
        true
    }

    fn drop_holder(&mut self, lease: Lease, session: u64) {
        let Some(held) = self.held.get_mut(&lease) else { return };
        let before = held.by.len();
        // One that was granted anew since is not what the session was told of.
        held.by.retain(|holder| holder.session != session || !holder.is_told);
        let gone = before - held.by.len();
        if gone > 0 {
            self.is_over(session, lease);
        }
        (0..gone).for_each(|_| self.uncount(session));
    }

    fn uncount(&mut self, session: u64) {
        if let Some(count) = self.holders.get_mut(&session) {
            *count -= 1;
            if *count == 0 {
                self.holders.remove(&session);
            }
        }
    }

    /// Forgets leases that are over: a few at each grant, which is more than come.
    fn forget_ended(&mut self, now: Instant) {
        for _ in 0..LOOKS {
            let Some((_, lease)) = self.ends.pop_front_if(|(end, _)| *end <= now) else { return };
            let Some(held) = self.held.get_mut(&lease) else { continue };
            let mut gone = Vec::new();
            held.by.retain(|holder| {
                let is_over = holder.until <= now;
                if is_over {
                    gone.push(holder.session);
                }
                !is_over
            });
            match held.end(now) {
                None => drop(self.held.remove(&lease)),
                Some(end) => self.ends.push_back((end, lease)),
            }
            for session in gone {
                self.is_over(session, lease);
                self.uncount(session);
            }
        }
    }
}

impl Held {
    /// Whether it can be granted to the session.
    fn is_free(&self, session: u64, now: Instant) -> bool {
        let is_told = self.by.iter().any(|holder| holder.session == session && holder.is_told);
        self.claims.is_empty() && !is_told && self.rests_until.is_none_or(|end| end <= now)
    }

    /// Whether another session than the claim's holds it, or somebody waits for it since before.
    fn concerns(&self, claim: &Claim, now: Instant) -> bool {
        let is_other = |holder: &Holder| holder.session != claim.session && now < holder.until;
        self.claims.iter().any(|&turn| turn < claim.turn) || self.by.iter().any(is_other)
    }

    /// When to look again whether it can be forgotten; None when it can.
    fn end(&self, now: Instant) -> Option<Instant> {
        let holders = self.by.iter().map(|holder| holder.until);
        let taken = self.taken_at.map(|at| at + REST).filter(|&end| now < end);
        let rest = self.rests_until.filter(|&end| now < end);
        let claimed = (!self.claims.is_empty()).then_some(now + REST);
        holders.chain(taken).chain(rest).chain(claimed).max()
    }
}

/// How many leases are looked at in a grant, which may be over.
const LOOKS: usize = 4;
