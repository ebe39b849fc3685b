//! The table of chains (see [`crate::chain`]): one row for each, changed by operations of the log only.
//!
//! A store of a version that knew no chains has no rows: its chains are those of one server, in the order of the servers, and
//! stripings of before mean the same. They get rows at the first start. A row that names another store than is known of
//! the server was left by such a version in between: it is corrected at a start, and its generation raised. A row that
//! cannot be read is made anew where the chain's number says which server it was made for: one to which it does not lead any more
//! refuses it. Any other ends the start: nobody else knows where the chain is, and in the wrong place its files would read as zeros.

use super::fault::{Fault, refuse};
use super::keys::Superblock;
use super::{Applied, FORMATS, Store, done, keys, place};
use crate::chain::{Chain, Dropped, SKIPPED, Served};
use crate::kv::Kv;
use crate::ops::{Op, Reply};
use covey_ninep::tree::Errno;
use covey_wire::{List, Name};
use std::ops::{Deref, DerefMut};

/// The chains of a store with so many servers.
pub(super) fn load<K: Kv>(kv: &K, servers: usize) -> Result<Kept, Errno> {
    let mut chains = Vec::new();
    for index in 0..=u16::MAX {
        match whole_row(kv, index, servers) {
            Ok(Some(chain)) => chains.push(chain),
            Ok(None) if chains.len() >= servers => break,
            Ok(None) => chains.push(Chain::of_one(index)),
            Err(_) if chains.len() < servers => {
                let mut chain = Chain::of_one(index);
                chain.skip(SKIPPED);
                chains.push(chain);
            }
            Err(why) => return Err(unknown(index, &why)),
        }
    }
    if let Ok(after) = u16::try_from(chains.len()) {
        let mut is_later = false;
        kv.scan(&keys::chain(after), &mut |key, _| {
            is_later = keys::chain_of(key).is_some();
            false
        })?;
        if is_later {
            return Err(unknown(after, "it is missing, and later ones are there"));
        }
    }
    Ok(Kept { by_head: by_head(&chains), all: chains })
}

/// A chain's row, or why it cannot be one.
fn whole_row<K: Kv>(kv: &K, index: u16, servers: usize) -> Result<Option<Chain>, String> {
    let row = keys::row::<Chain>(kv, &keys::chain(index)).map_err(|error| error.to_string())?;
    let Some(chain) = row else { return Ok(None) };
    if chain.head().is_none() {
        return Err(NOBODY.to_owned());
    }
    match chain.members.0.iter().find(|member| usize::from(member.server) >= servers) {
        None => Ok(Some(chain)),
        Some(member) => {
            Err(format!("it names I/O server {}, and there are {servers}", member.server))
        }
    }
}

fn unknown(index: u16, why: &str) -> Errno {
    let what = format!(
        "the row of chain {index} in the metadata store cannot be used: {why}; nobody else knows which I/O server has the \
         chain; hint: bring the metadata back from a copy, or read the I/O servers' stores with `covey salvage`"
    );
    Errno::because(Errno::EIO, what)
}

/// Gives each server of a store that was just formatted so many chains, and each that is added later; fewer where servers are many.
///
/// The first ones are numbered like the servers, as where each has one. With several the store is of another format: versions that
/// know of one alone refuse it.
pub fn format_chains<K: Kv>(kv: &mut K, servers: usize, each: u16) -> Result<(), Errno> {
    let each = each.min((CHAINS_MAX / servers.max(1)) as u16).max(1);
    if each > 1 {
        let superblock = keys::row::<Superblock>(kv, keys::SUPER)?.ok_or(Errno::ENODATA)?;
        keys::put_row(kv, keys::SUPER, &Superblock { format: *FORMATS.end(), ..superblock })?;
    }
    keys::put_row(kv, keys::CHAINS_EACH, &each)?;
    for index in 0..servers * usize::from(each) {
        let chain = Chain::of_one((index % servers) as u16);
        keys::put_row(kv, &keys::chain(index as u16), &chain)?;
    }
    Ok(())
}

/// The table as a store keeps it in memory.
pub(super) struct Kept {
    all: Vec<Chain>,
    /// The chains that lead to each server, by its index.
    pub by_head: Vec<Vec<u16>>,
}

impl Deref for Kept {
    type Target = Vec<Chain>;

    fn deref(&self) -> &Vec<Chain> {
        &self.all
    }
}

impl DerefMut for Kept {
    fn deref_mut(&mut self) -> &mut Vec<Chain> {
        &mut self.all
    }
}

fn by_head(chains: &[Chain]) -> Vec<Vec<u16>> {
    let mut by_head: Vec<Vec<u16>> = Vec::new();
    for (index, chain) in chains.iter().enumerate() {
        let Some(head) = chain.head() else { continue };
        let server = usize::from(head.server);
        if by_head.len() <= server {
            by_head.resize(server + 1, Vec::new());
        }
        by_head[server].push(index as u16);
    }
    by_head
}

impl<K: Kv> Store<K> {
    /// All chains, by index.
    pub fn chains(&self) -> &[Chain] {
        &self.chains
    }

    /// The chains that a server takes part in, whatever its state.
    pub fn chains_on(&self, server: u16) -> Vec<u16> {
        let is_on = |chain: &Chain| chain.member(server).is_some();
        let chains = self.chains.iter().enumerate().filter(|(_, chain)| is_on(chain));
        chains.map(|(index, _)| index as u16).collect()
    }

    /// What a server is to serve now: the chains in whose changes it takes part.
    pub fn served_by(&self, server: u16) -> Vec<Served> {
        let chains = self.chains.iter().enumerate();
        let is_there = !self.is_removed(server);
        let served = chains.filter(|(_, chain)| is_there && chain.written().any(|at| at == server));
        let served = served.map(|(index, chain)| (index as u16, chain.generation));
        served.map(|(chain, generation)| Served { chain, generation }).collect()
    }

    /// Gives every server that has none its chains, and every chain its row. One that is closed has given its chains away.
    pub(super) fn settle_chains(&mut self) -> Result<(), Fault> {
        let each: u16 = self.row(keys::CHAINS_EACH)?.unwrap_or(1);
        for server in 0..self.servers().len() as u16 {
            if self.chains_on(server).is_empty() && self.may_get_chains(server) {
                let room = CHAINS_MAX.saturating_sub(self.chains.len()).max(1);
                let new = usize::from(each).min(room);
                self.chains.extend((0..new).map(|_| Chain::of_one(server)));
            }
            if let Some(store) = self.store_of(server).map_err(Fault::Broken)? {
                self.change_chains(|chain| chain.has_store(server, &store))?;
            }
        }
        self.chains.by_head = by_head(&self.chains);
        for index in 0..self.chains.len() as u16 {
            let known = Some(&self.chains[usize::from(index)]);
            // A row that is damaged is as good as none.
            if self.row::<Chain>(&keys::chain(index)).ok().flatten().as_ref() != known {
                self.save_chain(index)?;
            }
        }
        Ok(())
    }

    /// A server keeps its objects in this store from now on, and serves.
    pub(super) fn chains_have_store(&mut self, server: u16, store: &Name) -> Result<(), Fault> {
        self.change_chains(|chain| {
            let is_other = chain.has_store(server, store);
            chain.is_back(server) || is_other
        })
    }

    /// A server has come or gone, as its place says.
    pub(super) fn chains_see(&mut self, server: u16, state: u8) -> Result<(), Fault> {
        self.change_chains(|chain| sees(chain, server, state))
    }

    /// Whether requests that are sent with the table as it is go elsewhere, or are refused, after an operation: then clients
    /// are to hear of it. Who is away and which store a server has is nothing to them as long as the heads stay.
    pub(super) fn moves_heads(&self, op: &Op) -> bool {
        let change = |chain: &mut Chain| match op {
            Op::Place { server, state } => _ = sees(chain, *server, *state),
            Op::KnowStore { server, store } => _ = chain.has_store(*server, store),
            Op::Restored {} | Op::RaiseChain { .. } | Op::MoveChain { .. } => chain.raise(),
            _ => {}
        };
        let is_other = match op {
            Op::AddServer { .. } => true,
            Op::Place { state, .. } => state & place::REMOVED != 0,
            _ => false,
        };
        let is_moved = |before: &Chain| {
            let mut after = before.clone();
            change(&mut after);
            let head = |chain: &Chain| chain.head().map(|head| head.server);
            after.generation != before.generation || head(&after) != head(before)
        };
        is_other || self.chains.iter().any(is_moved)
    }

    /// Changes the table as an operation says.
    pub(super) fn change_table(&mut self, op: &Op) -> Result<Applied, Fault> {
        match op {
            Op::RaiseChain { chain } => self.raise_chain(*chain),
            Op::MoveChain { chain, server, generation, store } => {
                self.move_chain(*chain, (*server, store), *generation)
            }
            &Op::ChainDropped { chain, server, generation } => {
                self.chain_dropped(Dropped { chain, server, generation })
            }
            _ => refuse(Errno::EINVAL, "it is not of chains"),
        }
    }

    fn raise_chain(&mut self, index: u16) -> Result<Applied, Fault> {
        let count = self.chains.len();
        let Some(chain) = self.chains.get_mut(usize::from(index)) else {
            return refuse(Errno::EINVAL, format!("no chain has index {index}: there are {count}"));
        };
        chain.raise();
        self.save_chain(index)?;
        Ok(done())
    }

    /// A chain goes to another server, which has all of it.
    fn move_chain(
        &mut self,
        index: u16,
        (server, store): (u16, &Name),
        generation: u32,
    ) -> Result<Applied, Fault> {
        let known = self.store_of(server).map_err(Fault::Broken)?;
        let place = self.places().get(usize::from(server)).copied();
        let count = self.chains.len();
        let Some(chain) = self.chains.get_mut(usize::from(index)) else {
            return refuse(Errno::EINVAL, format!("no chain has index {index}: there are {count}"));
        };
        let is_next = chain.generation.checked_add(1) == Some(generation);
        let is_there = place.is_some_and(|place| place & (place::LEAVING | place::REMOVED) == 0);
        if !is_next || !is_there || known.as_ref() != Some(store) || chain.member(server).is_some()
        {
            return refuse(Errno::ESTALE, format!("chain {index} has changed meanwhile"));
        }
        let Some(before) = chain.head().map(|head| head.server) else {
            return refuse(Errno::EIO, NOBODY);
        };
        chain.moves_to(server, store.clone(), generation);
        self.save_chain(index)?;
        let mut drops = self.drops().map_err(Fault::Broken)?;
        // What it had left there before is the chain itself by now.
        drops.retain(|drop| (drop.chain, drop.server) != (index, server));
        drops.push(Dropped { chain: index, server: before, generation });
        self.put_row(keys::DROPS, &List(drops))?;
        Ok(done())
    }

    /// What chains have left on servers, and is not known to be removed.
    pub fn drops(&self) -> Result<Vec<Dropped>, Errno> {
        let List(drops) = keys::row(&self.kv, keys::DROPS)?.unwrap_or_default();
        Ok(drops)
    }

    fn chain_dropped(&mut self, done_now: Dropped) -> Result<Applied, Fault> {
        let mut drops = self.drops().map_err(Fault::Broken)?;
        drops.retain(|drop| *drop != done_now);
        self.put_row(keys::DROPS, &List(drops))?;
        Ok(done())
    }

    /// Generations may have been given out that are not remembered.
    pub(super) fn skip_generations(&mut self) -> Result<(), Fault> {
        self.change_chains(|chain| {
            chain.skip(SKIPPED);
            true
        })
    }

    pub(super) fn chain_table(&self) -> Applied {
        let name = |(at, name): (usize, &Name)| {
            if self.is_removed(at as u16) { Name::EMPTY } else { name.clone() }
        };
        let servers = self.servers().iter().enumerate().map(name).collect();
        let chains = self.chains.all.clone();
        Applied::Reply(Reply::Chains { servers: List(servers), chains: List(chains) })
    }

    fn change_chains(&mut self, mut change: impl FnMut(&mut Chain) -> bool) -> Result<(), Fault> {
        for index in 0..self.chains.len() {
            if change(&mut self.chains[index]) {
                self.save_chain(index as u16)?;
            }
        }
        Ok(())
    }

    fn save_chain(&mut self, index: u16) -> Result<(), Fault> {
        self.chains.by_head = by_head(&self.chains);
        let chain = self.chains[usize::from(index)].clone();
        self.put_row(&keys::chain(index), &chain)
    }
}

/// What a server's place says of it; whether that changes anything.
fn sees(chain: &mut Chain, server: u16, state: u8) -> bool {
    match state & place::AWAY {
        0 => chain.is_back(server),
        _ => chain.has_left(server),
    }
}

/// More chains than this are made only for servers that would have none: 256 servers have sixteen each.
const CHAINS_MAX: usize = 4096;

/// A chain has always a member that has everything.
const NOBODY: &str = "a chain has no member with all that was written";
