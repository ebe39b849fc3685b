//! The table of chains, kept true on the I/O servers (see `covey_stripe::chain`).
//!
//! A change is logged, and on stable storage, before an I/O server hears of it. It serves the new generations and no others
//! from then on, so whoever still has the table of before is refused there, and asks.

use super::Meta;
use covey_io::task;
use covey_ninep::tree::{Errno, Outcome, Result};
use covey_stripe::chain::Served;
use covey_stripe::client::data_call;
use covey_stripe::meta::Applied;
use covey_stripe::objects::{DataOp, DataReply, of_chain};
use covey_stripe::ops::{Op, Reply, Striping};
use covey_wire::{List, Name};
use std::cell::RefCell;
use std::rc::Rc;
use tokio::sync::Mutex;

/// What an I/O server was told to serve.
#[derive(Default)]
pub(super) struct Told {
    /// It is told one table after the other: none that is older may arrive last, be it sent again on another connection.
    turn: Mutex<()>,
    /// The last that it has answered; None while that is not known.
    chains: RefCell<Option<Vec<Served>>>,
}

/// A part of a file on a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub slot: usize,
    pub chain: u16,
    pub server: u16,
}

impl Meta {
    /// The servers of a chain that take part in changes of its objects; none where it was removed. EIO for a chain that there is not, EAGAIN while a
    /// checkpoint has the store: nothing is done on no server.
    pub(super) fn members(&self, chain: u16) -> Result<Vec<u16>> {
        let store = self.store.borrow();
        let Some(store) = store.as_ref() else { return Err(Errno::EAGAIN.into()) };
        match store.chains().get(usize::from(chain)) {
            Some(chain) => Ok(chain.written().filter(|&at| !store.is_removed(at)).collect()),
            None => Err(Errno::because(Errno::EIO, format!("no chain has the index {chain}"))),
        }
    }

    /// Those of all chains of a striping.
    pub(super) fn members_of(&self, striping: &Striping) -> Result<Vec<Part>> {
        let mut members = Vec::new();
        for (slot, &chain) in striping.servers.0.iter().enumerate() {
            let part = |server| Part { slot, chain, server };
            members.extend(self.members(chain)?.into_iter().map(part));
        }
        Ok(members)
    }

    /// An operation on the objects of a chain on a server.
    pub(super) async fn ask_chain(&self, server: u16, chain: u16, op: DataOp) -> Result<DataReply> {
        Ok(data_call(&self.link(server)?, of_chain(server, chain, op)).await?)
    }

    /// The chains that a server is a member of.
    pub(super) async fn chains_on(&self, server: u16) -> Vec<u16> {
        self.store_is_here().await;
        self.store_mut().chains_on(server)
    }

    /// Applies one of the server's own operations when nobody else remembers what it changes.
    pub(super) async fn apply_claimed(self: &Rc<Self>, op: Op) -> Result<()> {
        // The store is here with the claims, and what follows is one step.
        let claims = self.claim(0, &op).await?;
        let applied = self.apply(super::own_request(op)).0;
        drop(claims);
        match applied {
            Applied::Fatal(error) => self.give_up(&format!("the metadata store failed: {error}")),
            Applied::Reply(Reply::Error { code, reason }) => {
                Err(Errno::because(code, reason.lossy().into_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Tells a server which chains it serves. One of a version that knows none serves whoever comes.
    pub(super) async fn tell_chains(&self, server: u16, store: &Name) -> Result<()> {
        let told = self.told(usize::from(server));
        let _turn = told.turn.lock().await;
        told.chains.take();
        self.store_is_here().await;
        let mut chains = self.store_mut().served_by(server);
        chains.retain(|one| !self.is_held_back(one.chain));
        let is_plain = self.is_plain(server, &chains);
        // A generation that a loss of power takes back must not be known elsewhere.
        self.journal.sync().await?;
        let link = self.link(server)?;
        let (store, own, list) = (store.clone(), server, List(chains.clone()));
        let serve_as = DataOp::ServeAs { store: store.clone(), own, chains: list.clone() };
        match data_call(&link, serve_as).await {
            // One of an older version, which serves one chain, or none that it knows of.
            Err(error) if error.code() == Errno::EINVAL && is_plain => {
                match data_call(&link, DataOp::Serve { store, chains: list }).await {
                    Err(error) if error.code() == Errno::EINVAL => {
                        tracing::debug!("{} is not told of chains: {error}", link.server());
                    }
                    answer => drop(answer?),
                }
            }
            answer => drop(answer?),
        }
        told.chains.replace(Some(chains));
        Ok(())
    }

    /// Whether a server that knows of no other chain than its own serves all that it is to serve.
    fn is_plain(&self, server: u16, chains: &[Served]) -> bool {
        chains.iter().all(|one| one.chain == server)
    }

    fn told(&self, server: usize) -> Rc<Told> {
        self.told.borrow()[server].clone()
    }

    /// Tells the I/O servers that serve, and have not heard of the table as it is now. The store must be here.
    pub(super) fn tell_of_changes(self: &Rc<Self>) {
        for server in 0..self.servers_known() {
            let told = self.told(server);
            let mut chains = self.store_mut().served_by(server as u16);
            chains.retain(|one| !self.is_held_back(one.chain));
            let is_told = told.chains.borrow().as_ref() == Some(&chains);
            if is_told || !self.is_serving(server) || told.turn.try_lock().is_err() {
                continue;
            }
            let meta = self.clone();
            task::spawn(async move {
                let Some(store) = meta.store_serving(server as u16).await else { return };
                if let Err(error) = meta.tell_chains(server as u16, &store).await {
                    tracing::warn!(
                        "I/O server {server} has not heard which chains it serves: {error}"
                    );
                }
            });
        }
    }

    /// Raises the generation of a chain, and answers when its servers refuse all that was sent at the one before. EIO where one
    /// does not answer, be it that its disk hangs under what was sent before.
    pub(super) fn fence_chain(self: &Rc<Self>, chain: u16) -> Outcome<Reply> {
        let meta = self.clone();
        Outcome::later(async move {
            meta.apply_claimed(Op::RaiseChain { chain }).await?;
            meta.journal.sync().await?;
            meta.store_is_here().await;
            for server in meta.members(chain)? {
                // One that was not met since this server's start may serve what it served before.
                let not_told = || Errno::because(Errno::EIO, NOT_TOLD);
                let store = meta.store_serving(server).await.ok_or_else(not_told)?;
                let told = meta.tell_chains(server, &store);
                task::timeout(meta.options.dead_after, told)
                    .await
                    .unwrap_or_else(|| Err(not_told()))?;
            }
            Ok(Reply::Done {})
        })
    }
}

/// What is left to be done when a chain's server does not answer.
const NOT_TOLD: &str = "the generation is raised, but an I/O server of the chain does not answer: it may still do what was sent \
                        before";
