//! Which store each I/O server keeps its objects in. A server whose store is another one has lost what
//! it held: see `docs/design` on the identity of stores.

use super::fault::{Fault, refuse};
use super::{Applied, Store, done, keys};
use crate::kv::Kv;
use crate::ops::{Reply, StoreState};
use covey_ninep::tree::Errno;
use covey_wire::{List, Name};

impl<K: Kv> Store<K> {
    /// The store that an I/O server is known by; None before the first meeting.
    pub fn store_of(&self, server: u16) -> Result<Option<Name>, Errno> {
        let stores: List<Name> = keys::row(&self.kv, keys::STORES)?.unwrap_or_default();
        Ok(stores.0.into_iter().nth(server.into()).filter(|store| !store.is_empty()))
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
        Ok(done())
    }

    pub(super) fn store_states(&self) -> Result<Applied, Fault> {
        let stores: List<Name> = self.row(keys::STORES)?.unwrap_or_default();
        let known = stores.0.into_iter().chain(std::iter::repeat(Name::EMPTY));
        let servers = self.servers().iter().cloned();
        let state = |(server, known)| StoreState { server, known, ..StoreState::default() };
        let stores = List(servers.zip(known).map(state).collect());
        Ok(Applied::Reply(Reply::Stores { stores }))
    }
}
