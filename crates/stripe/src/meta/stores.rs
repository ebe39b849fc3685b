//! Which store each I/O server keeps its objects in. A server whose store is another one has lost what
//! it held: see `docs/design` on the identity of stores.

use super::fault::{Fault, refuse};
use super::{Applied, SERVERS_MAX, Store, done, keys};
use crate::kv::Kv;
use crate::ops::{Reply, StoreState};
use covey_ninep::tree::Errno;
use covey_wire::{List, Name};

impl<K: Kv> Store<K> {
    /// Takes in I/O servers that were added at the end of the cluster's list; how many there were.
    /// New files are dealt over them too. To be called after the log was replayed: what it holds was
    /// decided with the old list.
    ///
    /// EINVAL when the list does not begin with the servers that files lie on already.
    pub fn adopt_servers(&mut self, servers: &[String]) -> Result<usize, Errno> {
        let added = self.servers_added(servers)?;
        let (before, count) = (self.servers().len(), added.len());
        if count > 0 {
            let names = added.iter().map(|name| Name::from(name.as_str()));
            self.superblock.servers.0.extend(names);
            keys::put_row(&mut self.kv, keys::SUPER, &self.superblock)?;
            let stores = self.stores_with_unused(before)?;
            keys::put_row(&mut self.kv, keys::STORES, &stores)?;
        }
        self.settle_chains().map_err(Fault::into_errno)?;
        Ok(count)
    }

    /// What the servers' stores are, with those from this index on never used.
    fn stores_with_unused(&self, before: usize) -> Result<List<Name>, Errno> {
        let mut stores: List<Name> = keys::row(&self.kv, keys::STORES)?.unwrap_or_default();
        stores.0.resize(before, Name::EMPTY);
        stores.0.resize(self.servers().len(), Name::from(UNUSED));
        Ok(stores)
    }

    /// One more I/O server while the metadata server runs.
    pub(super) fn add_server(&mut self, name: &Name) -> Result<Applied, Fault> {
        let before = self.servers().len();
        if before >= SERVERS_MAX || name.is_empty() || self.servers().contains(name) {
            let what = format!("{} cannot be added", name.lossy());
            return refuse(Errno::EINVAL, what);
        }
        let mut superblock = self.superblock.clone();
        superblock.servers.0.push(name.clone());
        self.put_row(keys::SUPER, &superblock)?;
        self.superblock = superblock;
        let stores = self.stores_with_unused(before).map_err(Fault::Broken)?;
        self.put_row(keys::STORES, &stores)?;
        self.settle_chains()?;
        Ok(done())
    }

    /// Those that a configuration lists after the known ones, of which removed ones may be missing. EINVAL where it does not list
    /// these in their order, or one that was removed once more.
    pub fn servers_added<'a>(&self, servers: &'a [String]) -> Result<&'a [String], Errno> {
        let known = self.servers();
        let Some(added) = self.added_by(servers) else {
            let is_left = |at: usize| !self.is_removed(at as u16);
            let left = known.iter().enumerate().filter(|(at, _)| is_left(*at));
            let left: Vec<_> = left.map(|(_, name)| name.lossy()).collect();
            let text = format!(
                "files lie on the I/O servers {}, in this order, but the configuration lists {}",
                left.join(", "),
                servers.join(", ")
            );
            return Err(Errno::because(Errno::EINVAL, text));
        };
        let back =
            added.iter().find(|name| known.iter().any(|known| known.as_bytes() == name.as_bytes()));
        if let Some(name) = back {
            let text = format!(
                "the I/O server {name} was removed; hint: a server that is added needs a name of its own"
            );
            return Err(Errno::because(Errno::EINVAL, text));
        }
        Ok(added)
    }

    /// Those that a configuration lists after the known ones, of which removed ones may be missing; None where it does not
    /// list these in their order.
    fn added_by<'a>(&self, servers: &'a [String]) -> Option<&'a [String]> {
        let (mut rest, known) = (servers, self.servers());
        for (at, known) in known.iter().enumerate() {
            match rest.split_first() {
                Some((name, others)) if name.as_bytes() == known.as_bytes() => rest = others,
                _ if self.is_removed(at as u16) => {}
                _ => return None,
            }
        }
        (known.len() + rest.len() <= SERVERS_MAX).then_some(rest)
    }

    /// The store that an I/O server is known by; None before the first meeting.
    pub fn store_of(&self, server: u16) -> Result<Option<Name>, Errno> {
        let store = self.store_row(server)?;
        Ok(store.filter(|store| !store.is_empty() && store.as_bytes() != UNUSED.as_bytes()))
    }

    /// Whether an I/O server was added and has not been met since: whatever its store is, it has lost nothing.
    pub fn is_unused(&self, server: u16) -> Result<bool, Errno> {
        Ok(self.store_row(server)?.is_some_and(|store| store.as_bytes() == UNUSED.as_bytes()))
    }

    fn store_row(&self, server: u16) -> Result<Option<Name>, Errno> {
        let stores: List<Name> = keys::row(&self.kv, keys::STORES)?.unwrap_or_default();
        Ok(stores.0.into_iter().nth(server.into()))
    }

    pub(super) fn know_store(&mut self, server: u16, store: &Name) -> Result<Applied, Fault> {
        let (at, count) = (usize::from(server), self.servers().len());
        if at >= count {
            let text = format!("no I/O server has index {server}: there are {count}");
            return refuse(Errno::EINVAL, text);
        }
        let mut stores: List<Name> = self.row(keys::STORES)?.unwrap_or_default();
        let length = stores.0.len().max(at + 1);
        stores.0.resize(length, Name::EMPTY);
        stores.0[at] = store.clone();
        self.put_row(keys::STORES, &stores)?;
        self.chains_have_store(server, store)?;
        Ok(done())
    }

    /// The metadata came back from a copy: files, sizes and truncations made since are on the I/O servers only. As after
    /// a loss of power no number is given again, and every file is in doubt.
    pub(super) fn restored(&mut self) -> Result<Applied, Fault> {
        self.counters.id_next += NUMBERS_SKIPPED;
        self.counters.session_next += NUMBERS_SKIPPED;
        self.losses += 1;
        self.machine = self.machine.wrapping_add(1);
        let losses = self.losses;
        self.put_row(keys::LOSSES, &losses)?;
        self.skip_generations()?;
        Ok(done())
    }

    pub(super) fn store_states(&self) -> Result<Applied, Fault> {
        let stores: List<Name> = self.row(keys::STORES)?.unwrap_or_default();
        let known = stores
            .0
            .into_iter()
            .map(|store| if store.as_bytes() == UNUSED.as_bytes() { Name::EMPTY } else { store });
        let known = known.chain(std::iter::repeat(Name::EMPTY));
        let servers = self.servers().iter().cloned();
        let state = |(server, known)| StoreState { server, known, ..StoreState::default() };
        let stores = List(servers.zip(known).map(state).collect());
        Ok(Applied::Reply(Reply::Stores { stores }))
    }
}

/// More numbers than were given since the copy was made, however old it is.
const NUMBERS_SKIPPED: u64 = 1 << 32;

/// Stands for the store of an I/O server that was added and not met yet. No store is called so.
const UNUSED: &str = "unused";
