//! Who serves an image besides the first server, and who reads from whom.
//!
//! A volunteer registers by a file that it keeps open, a reader has a place at a source by another. The choice
//! goes by what helps all: first a volunteer that is as far as the reader, the one with the fewest readers, in
//! turn, and none at the end of a long chain; then the first server; then a volunteer that is behind; last one about which somebody has complained.
//! All but the first server at last are chosen only while they have fewer than [`Limits::readers`]. Nobody is sent
//! to one who waits, by however many steps, for himself.
//!
//! A volunteer is dropped when two machines complain about it: one alone may be the liar itself.

use super::Source;
use covey_ninep::tree::{Errno, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// What a first server allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How many read from one source at a time: each passes on as much as it receives, and half of it to each of
    /// two.
    pub readers: usize,
    /// Most volunteers of one image.
    pub volunteers: usize,
    /// Most of them at one address; sixteen times as many on the server's own machine.
    pub volunteers_per_host: usize,
    /// How long a registration holds at most without being renewed.
    pub lease: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            readers: 2,
            volunteers: 4096,
            volunteers_per_host: 16,
            lease: Duration::from_secs(10),
        }
    }
}

/// Who is connected, as far as a choice depends on it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Party {
    /// The connection: what volunteers and reads by the same one is the same machine.
    pub peer: String,
    /// Its address, as the connection came from.
    pub host: String,
    /// The address leads to the server's own machine only.
    pub is_local: bool,
}

/// What a volunteer writes: "PORT SECONDS [BYTES]".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Where it listens.
    pub port: u16,
    /// For how long it will serve.
    pub time: Duration,
    /// How much of the image it has.
    pub bytes: u64,
}

impl Offer {
    /// Reads what a volunteer writes.
    pub fn parse(text: &str) -> Result<Offer> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
        let port = number(0).and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
        match (port, number(1), number(2), words.len()) {
            (Some(port), Some(seconds), bytes, 2..=3) if bytes.is_some() || words.len() == 2 => {
                let time = Duration::from_secs(seconds.min(86400));
                Ok(Offer { port, time, bytes: bytes.unwrap_or(0) })
            }
            _ => {
                let what = format!("{text:.60?} is not PORT SECONDS [BYTES]");
                Err(Errno::because(Errno::EINVAL, what))
            }
        }
    }
}

/// Volunteers and readers of one image.
#[derive(Debug)]
pub struct Roster {
    limits: Limits,
    /// Length of the image.
    bytes: u64,
    last: u64,
    volunteers: BTreeMap<u64, Volunteer>,
    readers: BTreeMap<u64, Reader>,
    /// Numbers of readers by their connection, of volunteers by theirs.
    readers_of: BTreeMap<String, BTreeSet<u64>>,
    volunteers_of: BTreeMap<String, BTreeSet<u64>>,
    /// Volunteers with fewer readers than the limit.
    free: BTreeSet<u64>,
    readers_of_first: usize,
    /// Who has complained, by the one about whom.
    complaints: BTreeMap<String, BTreeSet<String>>,
}

#[derive(Debug)]
struct Volunteer {
    party: Party,
    port: u16,
    until: Instant,
    bytes: u64,
    readers: usize,
    /// When it was chosen last, as a count of choices.
    chosen: u64,
}

#[derive(Debug)]
struct Reader {
    party: Party,
    at: At,
    /// How many pass on what it gets, as it was when it was sent there.
    depth: usize,
    /// What it has complained about.
    avoids: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Nowhere,
    First,
    Volunteer(u64),
}

impl Roster {
    /// Nobody yet, for an image of so many bytes.
    pub fn new(bytes: u64, limits: Limits) -> Roster {
        Roster {
            limits,
            bytes,
            last: 0,
            volunteers: BTreeMap::new(),
            readers: BTreeMap::new(),
            readers_of: BTreeMap::new(),
            volunteers_of: BTreeMap::new(),
            free: BTreeSet::new(),
            readers_of_first: 0,
            complaints: BTreeMap::new(),
        }
    }

    /// How many volunteers and readers there are.
    pub fn counts(&self) -> (usize, usize) {
        (self.volunteers.len(), self.readers.len())
    }

    /// For how long help is wanted, while it is.
    pub fn wanted(&self) -> Option<Duration> {
        (self.volunteers.len() < self.limits.volunteers).then_some(self.limits.lease)
    }

    /// Registers a volunteer; answers its number. EUSERS-like refusals are EDQUOT, of one that was dropped EACCES.
    pub fn register(&mut self, now: Instant, party: &Party, offer: Offer) -> Result<u64> {
        self.expire(now);
        if party.host.is_empty() {
            let what = "a volunteer is reached at the address of its connection: connect by TCP";
            return Err(Errno::because(Errno::EINVAL, what));
        }
        self.check_record(&record(party, offer.port))?;
        let same_host = |volunteer: &&Volunteer| volunteer.party.host == party.host;
        let count = self.volunteers.values().filter(same_host).count();
        let most = self.limits.volunteers_per_host * if party.is_local { 16 } else { 1 };
        if count >= most || self.volunteers.len() >= self.limits.volunteers {
            let all = self.volunteers.len();
            let what = format!("{count} volunteers at {}, {all} in all: enough", party.host);
            return Err(Errno::because(Errno::EDQUOT, what));
        }
        let number = self.number();
        let Offer { port, time, bytes } = offer;
        let until = now + time.min(self.limits.lease);
        let volunteer =
            Volunteer { party: party.clone(), port, until, bytes, readers: 0, chosen: 0 };
        self.volunteers_of.entry(party.peer.clone()).or_default().insert(number);
        self.volunteers.insert(number, volunteer);
        self.free.insert(number);
        Ok(number)
    }

    /// Renews a registration. ESTALE when it has expired or was dropped.
    pub fn renew(&mut self, now: Instant, number: u64, offer: Offer) -> Result<()> {
        self.expire(now);
        let lease = self.limits.lease;
        let volunteer = self.volunteers.get_mut(&number).ok_or_else(|| {
            Errno::because(Errno::ESTALE, "the registration has expired; hint: open avail anew")
        })?;
        volunteer.until = now + offer.time.min(lease);
        volunteer.bytes = offer.bytes;
        Ok(())
    }

    /// A volunteer is gone.
    pub fn unregister(&mut self, number: u64) {
        let Some(gone) = self.volunteers.remove(&number) else { return };
        self.free.remove(&number);
        forget(&mut self.volunteers_of, &gone.party.peer, number);
    }

    /// Somebody wants to read.
    pub fn enter(&mut self, party: &Party) -> u64 {
        let number = self.number();
        let reader =
            Reader { party: party.clone(), at: At::Nowhere, depth: 0, avoids: BTreeSet::new() };
        self.readers_of.entry(party.peer.clone()).or_default().insert(number);
        self.readers.insert(number, reader);
        number
    }

    /// A reader is done, or gone.
    pub fn leave(&mut self, number: u64) {
        self.place(number, At::Nowhere);
        let Some(gone) = self.readers.remove(&number) else { return };
        forget(&mut self.readers_of, &gone.party.peer, number);
    }

    /// Gives back a reader's place: it asks for another. Answers what `choose` is to pass over.
    pub fn vacate(&mut self, number: u64) -> Option<Source> {
        let source = self.source(number);
        self.place(number, At::Nowhere);
        source
    }

    /// A source for a reader, or None while all are busy. `previous`, which it comes from, is taken only
    /// where there is no other.
    pub fn choose(
        &mut self,
        now: Instant,
        number: u64,
        previous: Option<&Source>,
    ) -> Option<Source> {
        self.expire(now);
        let at = self.best(self.readers.get(&number)?, previous)?;
        self.last += 1;
        if let At::Volunteer(chosen) = at {
            self.volunteers.get_mut(&chosen)?.chosen = self.last;
        }
        let depth = self.depth(at);
        self.readers.get_mut(&number)?.depth = depth;
        self.place(number, at);
        self.source(number)
    }

    /// The first server, however busy.
    pub fn choose_first(&mut self, number: u64) -> Source {
        self.place(number, At::First);
        Source::First
    }

    /// A reader says that its source is no good. Answers about whom that is, if it is a volunteer, and whether
    /// it is dropped for it.
    pub fn complain(&mut self, number: u64) -> Option<(Source, bool)> {
        let source = self.source(number)?;
        let reader = self.readers.get_mut(&number)?;
        let At::Volunteer(accused) = reader.at else { return None };
        let volunteer = self.volunteers.get(&accused)?;
        let record = record(&volunteer.party, volunteer.port);
        if reader.avoids.len() < AVOIDS_MAX {
            reader.avoids.insert(record.clone());
        }
        let voter = if reader.party.is_local {
            reader.party.peer.clone()
        } else {
            reader.party.host.clone()
        };
        if self.complaints.len() >= COMPLAINTS_MAX && !self.complaints.contains_key(&record) {
            self.complaints.pop_first();
        }
        let voters = self.complaints.entry(record).or_default();
        if voters.len() < VOTES_TO_DROP {
            voters.insert(voter);
        }
        let is_dropped = voters.len() >= VOTES_TO_DROP;
        if is_dropped {
            self.unregister(accused);
        }
        Some((source, is_dropped))
    }

    /// When the next registration ends.
    pub fn next_end(&self) -> Option<Instant> {
        self.volunteers.values().map(|volunteer| volunteer.until).min()
    }

    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn expire(&mut self, now: Instant) {
        let over =
            |(number, volunteer): (&u64, &Volunteer)| (volunteer.until <= now).then_some(*number);
        let gone: Vec<u64> = self.volunteers.iter().filter_map(over).collect();
        gone.into_iter().for_each(|number| self.unregister(number));
    }

    fn check_record(&self, record: &str) -> Result<()> {
        match self.complaints.get(record) {
            Some(voters) if voters.len() >= VOTES_TO_DROP => {
                let what = format!("{record} was dropped: what it sent was no good");
                Err(Errno::because(Errno::EACCES, what))
            }
            _ => Ok(()),
        }
    }

    /// Moves a reader to another source.
    fn place(&mut self, number: u64, to: At) {
        let Some(reader) = self.readers.get_mut(&number) else { return };
        let from = std::mem::replace(&mut reader.at, to);
        self.count(from, |readers| readers.saturating_sub(1));
        self.count(to, |readers| readers + 1);
    }

    fn count(&mut self, at: At, change: impl FnOnce(usize) -> usize) {
        match at {
            At::Nowhere => {}
            At::First => self.readers_of_first = change(self.readers_of_first),
            At::Volunteer(number) => {
                let Some(volunteer) = self.volunteers.get_mut(&number) else { return };
                volunteer.readers = change(volunteer.readers);
                if volunteer.readers < self.limits.readers {
                    self.free.insert(number)
                } else {
                    self.free.remove(&number)
                };
            }
        }
    }

    fn source(&self, number: u64) -> Option<Source> {
        match self.readers.get(&number)?.at {
            At::Nowhere => None,
            At::First => Some(Source::First),
            At::Volunteer(number) => self.volunteers.get(&number).map(Volunteer::source),
        }
    }

    fn best(&self, reader: &Reader, previous: Option<&Source>) -> Option<At> {
        let own = self.bytes_of(&reader.party.peer);
        let is_busy = self.readers_of_first >= self.limits.readers;
        let first = (!is_busy && previous != Some(&Source::First)).then_some((
            Rank::First,
            false,
            0,
            0,
            At::First,
        ));
        let mut all: Vec<_> = self
            .free
            .iter()
            .filter_map(|number| Some((*number, self.volunteers.get(number)?)))
            .filter(|(_, one)| one.party.peer != reader.party.peer)
            .filter(|(_, one)| !one.party.is_local || reader.party.is_local)
            .filter(|(_, one)| previous != Some(&one.source()))
            .filter_map(|(number, one)| {
                let record = record(&one.party, one.port);
                let rank = self.rank(one, own, &record);
                let may = !reader.avoids.contains(&record);
                let at = At::Volunteer(number);
                may.then(|| (rank, self.depth(at) > DEPTH, one.readers, one.chosen, at))
            })
            .chain(first)
            .collect();
        all.sort_by_key(|&(rank, is_deep, readers, chosen, _)| (rank, is_deep, readers, chosen));
        all.into_iter().map(|(.., at)| at).find(|at| !self.waits_for(*at, &reader.party.peer))
    }

    /// Through how many hands goes what is read there.
    fn depth(&self, at: At) -> usize {
        let At::Volunteer(number) = at else { return 1 };
        let Some(volunteer) = self.volunteers.get(&number) else { return 1 };
        let own = self.readers_of.get(&volunteer.party.peer).into_iter().flatten();
        own.filter_map(|number| self.readers.get(number)).map(|one| one.depth).min().unwrap_or(0)
            + 1
    }

    fn rank(&self, one: &Volunteer, own: u64, record: &str) -> Rank {
        if self.complaints.contains_key(record) {
            Rank::Doubted
        } else if one.bytes.saturating_add(self.bytes / NEAR) >= own {
            Rank::Ahead
        } else {
            Rank::Behind
        }
    }

    /// What the volunteer of this connection has.
    fn bytes_of(&self, peer: &str) -> u64 {
        let numbers = self.volunteers_of.get(peer).into_iter().flatten();
        numbers
            .filter_map(|number| self.volunteers.get(number))
            .map(|one| one.bytes)
            .max()
            .unwrap_or(0)
    }

    /// Whether what is read at `at` comes, by however many steps, from `peer`.
    fn waits_for(&self, at: At, peer: &str) -> bool {
        let (mut seen, mut ways) = (BTreeSet::new(), vec![at]);
        while let Some(at) = ways.pop() {
            let At::Volunteer(number) = at else { continue };
            let Some(volunteer) = self.volunteers.get(&number) else { continue };
            if volunteer.bytes >= self.bytes || !seen.insert(number) {
                continue;
            }
            if volunteer.party.peer == peer {
                return true;
            }
            let readers = self.readers_of.get(&volunteer.party.peer).into_iter().flatten();
            ways.extend(readers.filter_map(|number| Some(self.readers.get(number)?.at)));
        }
        false
    }
}

/// What is better comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Ahead,
    First,
    Behind,
    Doubted,
}

impl Volunteer {
    fn source(&self) -> Source {
        Source::Volunteer { host: self.party.host.clone(), port: self.port }
    }
}

/// Under what complaints are kept: a machine has as many ports as it likes.
fn record(party: &Party, port: u16) -> String {
    if party.is_local { format!("{}!{port}", party.host) } else { party.host.clone() }
}

fn forget(index: &mut BTreeMap<String, BTreeSet<u64>>, peer: &str, number: u64) {
    if let Some(numbers) = index.get_mut(peer) {
        numbers.remove(&number);
        if numbers.is_empty() {
            index.remove(peer);
        }
    }
}

/// A longer chain is avoided: each hand is a chunk behind the one before, a 256th of the image or so.
const DEPTH: usize = 64;
/// From how many machines complaints must come.
const VOTES_TO_DROP: usize = 2;
/// Most volunteers that one reader passes over.
const AVOIDS_MAX: usize = 1024;
/// Most volunteers about which complaints are kept.
const COMPLAINTS_MAX: usize = 4096;
/// A volunteer that is this part of the image behind is as far: what is known of it is some time old.
const NEAR: u64 = 16;

#[cfg(test)]
mod tests;
