//! A chain that goes to another I/O server.
//!
//! ```text
//!   mover:  copies, until little has changed ─► HoldChain ─► copies the rest, settles it ─► SwitchChain
//!                                                  │                                            │
//!   here:         leases on the table taken back, the old server serves the chain no more       │
//!                          logged: the new server has it, at the next generation ◄──────────────┘
//!                          the new server serves it, and the old one forgets it
//! ```
//!
//! Until the change is logged the old server has the chain, and serves it again whatever fails, as after a start of this
//! server, which remembers nothing of it. Clients that are refused meanwhile ask for the table until they are not.
//! What is left on the old server is remembered in the store until that server has dropped it.

use super::Meta;
use super::leases::Claims;
use covey_io::task;
use covey_ninep::tree::{Errno, Outcome, Result};
use covey_stripe::client::data_call;
use covey_stripe::meta::{Applied, place};
use covey_stripe::objects::{ChainCopy, DataOp, DataReply};
use covey_stripe::ops::{Op, Reply};
use covey_wire::Name;
use futures_util::future::join_all;
use std::rc::Rc;
use std::time::Duration;

/// A chain that nobody serves for a moment.
pub(super) struct Hold {
    chain: u16,
    /// Where it is to go, and in which stay it is put together there.
    to: (u16, u32),
    /// Tells one hold from the next.
    number: u64,
    _claims: Claims,
}

impl Meta {
    /// Whether nobody is to serve a chain now.
    pub(super) fn is_held_back(&self, chain: u16) -> bool {
        self.hold.borrow().as_ref().is_some_and(|hold| hold.chain == chain)
    }

    /// Takes a chain from the server that has it: from the answer on it changes no more. It is given back if nothing
    /// follows soon. ESTALE where it is not at the generation at which its mover began to copy: it may have been elsewhere since.
    pub(super) fn hold_chain(
        self: &Rc<Self>,
        chain: u16,
        copied_at: u32,
        to: (u16, u32),
    ) -> Outcome<Reply> {
        let meta = self.clone();
        Outcome::later(async move {
            // It goes on when its mover is gone: what it has begun it ends.
            let holding = task::spawn(async move { meta.hold(chain, copied_at, to).await });
            let (generation, hold) = holding.await??;
            Ok(Reply::Held { generation, hold })
        })
    }

    async fn hold(
        self: Rc<Self>,
        chain: u16,
        copied_at: u32,
        to: (u16, u32),
    ) -> Result<(u32, u64)> {
        self.store_is_here().await;
        let op = self.to_switch(chain, copied_at, to.0)?;
        let claims = self.claim(0, &op).await?;
        // One step from here: others may have come first.
        let Op::MoveChain { generation, .. } = self.to_switch(chain, copied_at, to.0)? else {
            return Err(Errno::EPROTO.into());
        };
        if self.hold.borrow().is_some() {
            return Err(Errno::because(Errno::EAGAIN, "another chain is being moved"));
        }
        // None that an earlier process gave out: a switch that comes late must not be taken for one of a later hold.
        let number = (self.holds.get() + 1).max(task::wall().as_nanos() as u64);
        self.holds.set(number);
        let hold = Hold { chain, to, number, _claims: claims };
        self.hold.replace(Some(hold));
        let held = task::timeout(HOLD_WAIT, self.stop_serving(chain)).await;
        match held.unwrap_or_else(|| Err(Errno::because(Errno::EBUSY, SLOW))) {
            Ok(()) => {
                let meta = self.clone();
                task::spawn(async move {
                    task::sleep(HOLD).await;
                    meta.release(number).await;
                });
                Ok((generation, number))
            }
            Err(error) => {
                self.release(number).await;
                Err(error)
            }
        }
    }

    async fn stop_serving(self: &Rc<Self>, chain: u16) -> Result<()> {
        for server in self.members(chain)? {
            let not_there = || Errno::because(Errno::EIO, "the I/O server of the chain is away");
            let store = self.store_serving(server).await.ok_or_else(not_there)?;
            self.tell_chains(server, &store).await?;
        }
        Ok(())
    }

    /// The operation that would give a chain to a server, as things are now. The store must be here.
    fn to_switch(&self, chain: u16, copied_at: u32, server: u16) -> Result<Op> {
        let store = self.store_mut();
        let refuse = |what: String| Err(Errno::because(Errno::EINVAL, what));
        let Some(now) = store.chains().get(usize::from(chain)) else {
            return refuse(format!(
                "no chain has index {chain}: there are {}",
                store.chains().len()
            ));
        };
        if now.member(server).is_some() {
            return refuse(format!("chain {chain} is on that server already"));
        }
        if now.members.0.len() != 1 {
            return refuse(format!("chain {chain} has more than one member"));
        }
        if now.generation != copied_at {
            let what = format!(
                "chain {chain} is at generation {}: it has changed since its copying began",
                now.generation
            );
            return Err(Errno::because(Errno::ESTALE, what));
        }
        let places = store.places();
        let is_open = places.get(usize::from(server)).is_some_and(|at| at & CLOSED == 0);
        if is_open && self.is_unmet(usize::from(server)) {
            return Err(Errno::because(Errno::EAGAIN, "the I/O server has not been met yet"));
        }
        if !is_open || !self.may_serve(usize::from(server)) {
            return Err(Errno::because(
                Errno::EIO,
                "the I/O server takes no chain: it is closed or away",
            ));
        }
        let known = store.store_of(server)?.ok_or_else(|| {
            Errno::because(Errno::EIO, "the I/O server is of a version that takes no chains")
        })?;
        let generation = now.generation.saturating_add(1);
        Ok(Op::MoveChain { chain, server, store: known, generation })
    }

    /// The server that had the chain serves it again.
    async fn release(self: &Rc<Self>, number: u64) {
        let is_this = self.hold.borrow().as_ref().is_some_and(|hold| hold.number == number);
        if !is_this {
            return;
        }
        self.hold.take();
        self.store_is_here().await;
        self.tell_of_changes();
    }

    /// The mover gives up.
    pub(super) fn release_chain(self: &Rc<Self>, number: u64) -> Outcome<Reply> {
        let meta = self.clone();
        Outcome::later(async move {
            meta.release(number).await;
            Ok(Reply::Done {})
        })
    }

    /// The new server has everything: it serves the chain from now on.
    pub(super) fn switch_chain(
        self: &Rc<Self>,
        chain: u16,
        (generation, number): (u32, u64),
        to: (u16, u32),
        store: Name,
    ) -> Outcome<Reply> {
        let meta = self.clone();
        Outcome::later(async move {
            let op = Op::MoveChain { chain, server: to.0, store, generation };
            let switching = task::spawn(async move { meta.switch(chain, number, to, op).await });
            switching.await??;
            Ok(Reply::Done {})
        })
    }

    async fn switch(self: Rc<Self>, chain: u16, number: u64, to: (u16, u32), op: Op) -> Result<()> {
        self.store_is_here().await;
        let server = to.0;
        let is_held = |hold: &mut Hold| (hold.number, hold.chain, hold.to) == (number, chain, to);
        let hold = self.hold.borrow_mut().take_if(is_held);
        let Some(hold) = hold else {
            return Err(Errno::because(Errno::ESTALE, "the chain was given back meanwhile"));
        };
        let applied = self.apply(super::own_request(op)).0;
        drop(hold);
        if let Applied::Fatal(error) = applied {
            self.give_up(&format!("the metadata store failed: {error}"));
        }
        if let Applied::Reply(Reply::Error { code, reason }) = applied {
            self.tell_of_changes();
            return Err(Errno::because(code, reason.lossy().into_owned()));
        }
        self.journal.sync().await?;
        if let Some(store) = self.store_serving(server).await {
            // Whatever fails now is done again when the server is met.
            if let Err(error) = self.tell_chains(server, &store).await {
                tracing::warn!(
                    "I/O server {server} has not heard that it serves chain {chain}: {error}"
                );
            }
        }
        self.store_is_here().await;
        self.tell_of_changes();
        tracing::info!("chain {chain} was moved to I/O server {server}");
        task::spawn(self.clone().tidy_chains());
        Ok(())
    }

    /// What chains have left on servers where they were goes, as far as these serve, and copies that were made for nothing. One that
    /// hangs does not keep the others waiting.
    pub(super) async fn tidy_chains(self: Rc<Self>) {
        // One goes round, once more for whoever has asked meanwhile.
        if self.tidies.replace(self.tidies.get() + 1) > 0 {
            return;
        }
        loop {
            let asked = self.tidies.get();
            self.tidy_once().await;
            if self.tidies.get() == asked {
                break;
            }
        }
        self.tidies.set(0);
    }

    async fn tidy_once(self: &Rc<Self>) {
        self.store_is_here().await;
        let drops = self.store_mut().drops().unwrap_or_default();
        let servers = (0..self.servers_known() as u16).map(|server| {
            let (meta, drops) = (self.clone(), &drops);
            async move {
                for drop in drops.iter().filter(|drop| drop.server == server) {
                    let chain = drop.chain;
                    let dropping = meta.drop_chain(chain, server, drop.generation);
                    let what = format!("chain {chain} is not dropped");
                    if !meta.tidy(server, &what, dropping).await {
                        return;
                    }
                }
                meta.tidy(server, "copies are not discarded", meta.discard_copies(server)).await;
            }
        });
        join_all(servers).await;
    }

    /// Whether a server has answered.
    async fn tidy(&self, server: u16, what: &str, work: impl Future<Output = Result<()>>) -> bool {
        let done = task::timeout(self.options.dead_after, work).await;
        match &done {
            Some(Ok(())) => {}
            Some(Err(error)) => tracing::debug!("I/O server {server}: {what} yet: {error}"),
            None => tracing::debug!("I/O server {server}: {what} yet: it does not answer"),
        }
        done.is_some()
    }

    /// Copies that were settled and not switched to go, as their holds are over: no switch to them can come any more.
    async fn discard_copies(self: &Rc<Self>, server: u16) -> Result<()> {
        let Some(store) = self.store_serving(server).await else { return Ok(()) };
        let link = self.link(server)?;
        let copies = match data_call(&link, DataOp::Copies {}).await {
            Ok(DataReply::Copies { copies }) => copies.0,
            Ok(_) => return Err(Errno::because(Errno::EPROTO, "an odd answer to Copies")),
            // An older version, which has none.
            Err(error) if error.code() == Errno::EINVAL => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let mut discarded = Ok(());
        for ChainCopy { chain, stay } in copies {
            self.store_is_here().await;
            // One that it is to serve it takes when it hears of that.
            let is_wanted = self.is_held_back(chain)
                || self.members(chain).is_ok_and(|members| members.contains(&server));
            if is_wanted {
                continue;
            }
            let discard = DataOp::Discard { store: store.clone(), chain, stay };
            if let Err(error) = data_call(&link, discard).await {
                // The others go nevertheless.
                discarded = Err(error.into());
            }
        }
        discarded
    }

    async fn drop_chain(self: &Rc<Self>, chain: u16, server: u16, generation: u32) -> Result<()> {
        let away = || Errno::because(Errno::EIO, "it is away");
        let store = self.store_serving(server).await.ok_or_else(away)?;
        // That it has the chain no more is on stable storage, and it serves it no more.
        self.journal.sync().await?;
        // Before the other one has taken it for good, it is whole here alone.
        for other in self.members(chain)? {
            let store = self.store_serving(other).await.ok_or_else(away)?;
            self.tell_chains(other, &store).await?;
        }
        self.tell_chains(server, &store).await?;
        let link = self.link(server)?;
        data_call(&link, DataOp::Drop { store, chain, generation }).await?;
        self.apply_claimed(Op::ChainDropped { chain, server, generation }).await
    }
}

/// No chain comes to a server in these places.
const CLOSED: u8 = place::CLOSED | place::AWAY | place::LEAVING | place::REMOVED;
/// How long a chain may be held back: clients wait, and give up after three seconds.
const HOLD: Duration = Duration::from_millis(2000);
/// How long its server may take to end what is under way.
const HOLD_WAIT: Duration = Duration::from_millis(700);
const SLOW: &str = "what is under way on the chain's server does not end in time";
