//! Which I/O servers new files are dealt to: not those that are closed, away or nearly full, as long as others are
//! left. Files that exist lie where they lie.
//!
//! What the server has seen of the I/O servers is an operation of the log like any other, so that a replay deals as
//! the first time.

use super::fault::{Fault, refuse};
use super::{Applied, Store, done, keys};
use crate::chain::Chain;
use crate::distribution;
use crate::kv::Kv;
use crate::ops::{Id, Place, Reply, Striping, StripingHint};
use covey_ninep::tree::Errno;
use covey_wire::List;

/// Why an I/O server gets no new files: bits.
pub mod place {
    /// Somebody has said so.
    pub const CLOSED: u8 = 1;
    /// It does not serve.
    pub const AWAY: u8 = 2;
    /// Its disk is nearly full.
    pub const FULL: u8 = 4;
    /// It is being taken out of the cluster: nothing new comes there, whatever else is left.
    pub const LEAVING: u8 = 8;
    /// It was taken out, and does not come back: its index stays, and is never given to another.
    pub const REMOVED: u8 = 16;
}

/// Nothing comes to lie there.
const GONE: u8 = place::LEAVING | place::REMOVED;

/// What keeps a server from being chosen, from the first choice to the last: where all are closed, those are better than
/// one that does not answer.
const CHOICES: [u8; 3] =
    [place::CLOSED | place::AWAY | place::FULL, place::CLOSED | place::AWAY, place::AWAY];

impl<K: Kv> Store<K> {
    /// Why each I/O server gets no new files, by index: bits of [`place`].
    pub fn places(&self) -> Vec<u8> {
        let of = |at| self.places.get(at).copied().unwrap_or(0);
        (0..self.servers().len()).map(of).collect()
    }

    /// Whether an I/O server was taken out of the cluster.
    pub fn is_removed(&self, server: u16) -> bool {
        self.places.get(usize::from(server)).is_some_and(|place| place & place::REMOVED != 0)
    }

    /// The I/O servers that files may come to lie on.
    pub fn server_count(&self) -> usize {
        self.places().into_iter().filter(|place| place & GONE == 0).count()
    }

    /// Refuses a new file in a directory whose layout was set when there were more servers, if it cannot do with those left.
    pub(super) fn must_be_laid_out(&self, hint: Option<&StripingHint>) -> Result<(), Fault> {
        let Some(hint) = hint else { return Ok(()) };
        let has_lost_some = self.places.iter().any(|place| place & GONE != 0);
        if has_lost_some && distribution::check_fewer(hint, self.server_count()).is_err() {
            return refuse(
                Errno::EINVAL,
                "the directory's layout names I/O servers that were removed",
            );
        }
        Ok(())
    }

    /// Whether the head of a chain is in none of these places.
    fn is_out_of(&self, chain: u16, mask: u8) -> bool {
        let head = self.chains().get(usize::from(chain)).and_then(Chain::head);
        let place = |server: u16| self.places.get(usize::from(server)).copied().unwrap_or(0);
        head.map_or(place::AWAY, |head| place(head.server)) & mask == 0
    }

    /// Whether there is such a chain, of a server that was not removed.
    pub(super) fn is_there(&self, chain: u16) -> bool {
        usize::from(chain) < self.chains().len() && self.is_out_of(chain, place::REMOVED)
    }

    /// Whether anything may come to lie on a chain.
    pub(super) fn takes_files(&self, chain: u16) -> bool {
        self.is_out_of(chain, GONE)
    }

    pub(super) fn set_place(&mut self, server: u16, state: u8) -> Result<Applied, Fault> {
        let (at, mut places) = (usize::from(server), self.places());
        let count = places.len();
        let Some(place) = places.get_mut(at) else {
            let text = format!("no I/O server has index {server}: there are {count}");
            return refuse(Errno::EINVAL, text);
        };
        *place = state;
        self.put_row(keys::PLACES, &List(places.clone()))?;
        self.places = places;
        self.chains_see(server, state)?;
        // One that had given its chains away and is open again gets new ones.
        if self.chains_on(server).is_empty() && self.may_get_chains(server) {
            self.settle_chains()?;
        }
        Ok(done())
    }

    /// What of it the store knows; the rest is for the server to fill in.
    pub(super) fn place_states(&self) -> Applied {
        let place = |(server, state): (&covey_wire::Name, u8)| Place {
            server: server.clone(),
            state,
            ..Place::default()
        };
        let places = List(self.servers().iter().zip(self.places()).map(place).collect());
        Applied::Reply(Reply::Places { places })
    }

    /// Whether a server that has no chain is to get some.
    pub(super) fn may_get_chains(&self, server: u16) -> bool {
        let place = self.places.get(usize::from(server)).copied().unwrap_or(0);
        place & (place::CLOSED | GONE) == 0
    }

    /// Files begin on different servers, so that small ones spread, and take the chains of a server in turn. No two parts of a
    /// file lie on one server.
    pub(super) fn striping_for(&self, id: Id, hint: &StripingHint) -> Striping {
        let open = self.dealt_to(hint);
        let (all, count) = (open.len(), distribution::server_count(hint, open.len()));
        let first = (id % all as u64) as usize;
        let turn = (id / all as u64) as usize;
        let chain = |index: usize| {
            let chains = &self.chains.by_head[usize::from(open[(first + index) % all])];
            chains[turn % chains.len()]
        };
        Striping {
            kind: hint.kind,
            strip_bytes: hint.strip_bytes,
            params: hint.params.clone(),
            servers: List((0..count).map(chain).collect()),
        }
    }

    /// The servers that a new file of this hint may lie on: the best that it can be laid out on.
    fn dealt_to(&self, hint: &StripingHint) -> Vec<u16> {
        let leads =
            |at: &u16| self.chains.by_head.get(usize::from(*at)).is_some_and(|own| !own.is_empty());
        let all = (0..self.servers().len() as u16).filter(leads);
        if self.places.iter().all(|&place| place == 0) {
            return all.collect();
        }
        let place = |at: u16| self.places.get(usize::from(at)).copied().unwrap_or(0);
        let any: Vec<u16> = all.collect();
        let all: Vec<u16> = any.iter().copied().filter(|&at| place(at) & GONE == 0).collect();
        if all.is_empty() {
            return any;
        }
        let open = |mask: u8| -> Vec<u16> {
            all.iter().copied().filter(|&at| place(at) & mask == 0).collect()
        };
        let fits = |servers: &Vec<u16>| {
            !servers.is_empty() && distribution::check_fewer(hint, servers.len()).is_ok()
        };
        CHOICES.into_iter().map(open).find(fits).unwrap_or_else(|| all.clone())
    }
}
