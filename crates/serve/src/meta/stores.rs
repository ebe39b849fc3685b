//! Which store each I/O server serves from. A server that comes with another one than it had has lost
//! its objects, and every byte that lay there would read as zero: it is kept from serving, and the
//! loss is for a person to accept.
//!
//! What tells a server that was never used from one that lost everything before it was first met is the
//! metadata: a store without objects is taken for new only when no file has bytes there.

use super::Meta;
use covey_io::task;
use covey_ninep::tree::{Errno, Outcome, Result};
use covey_stripe::check::bytes_on;
use covey_stripe::client::data_call;
use covey_stripe::objects::{DataOp, DataReply, Doomed};
use covey_stripe::ops::check::{Page, table};
use covey_stripe::ops::{Id, Inode, Op, Reply};
use covey_wire::{List, Name};
use std::rc::Rc;
use std::time::Duration;

/// How long after a failure a server is met again.
const RETRY: Duration = Duration::from_millis(200);
/// Inodes looked at with one request.
const PAGE_ROWS: u32 = 2048;
/// Objects that a server is told to be lost with one request: each makes a file.
const LOSE_MAX: usize = 512;

/// What is known of an I/O server's store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Standing {
    /// It has not been met since the start.
    #[default]
    Unmet,
    /// It may serve.
    Known,
    /// It may not: the store found, and why. `owner`: the other metadata server that it belongs to, or empty; such a
    /// store is adopted, or it serves nothing.
    Unknown { found: Name, why: String, owner: Name },
}

impl Meta {
    /// Meets an I/O server each time it comes, for as long as this server lives.
    pub(super) async fn meet_each(self: Rc<Self>, server: u16) {
        let Ok(link) = self.link(server) else { return };
        loop {
            if self.has_left(server).await {
                return;
            }
            let Ok((_, conn)) = link.conn(link.now()).await else {
                task::sleep(RETRY).await;
                continue;
            };
            let closed = conn.closed();
            drop(conn);
            match self.meet(server).await {
                Ok(()) => {
                    self.saw(server, true);
                    closed.await;
                    self.saw(server, false);
                }
                Err(error) => {
                    tracing::warn!("{}: its store was not admitted: {error}", link.server());
                    task::sleep(RETRY).await;
                }
            }
        }
    }

    async fn meet(self: &Rc<Self>, server: u16) -> Result<()> {
        let link = &self.link(server)?;
        let (store, meta, is_new) = match data_call(link, DataOp::Meet {}).await {
            Ok(DataReply::Met { store, meta, is_empty, formatted }) => {
                (store, meta, is_empty.then_some(formatted))
            }
            Ok(_) => return Err(Errno::because(Errno::EPROTO, "an odd answer to Meet")),
            // An older version, whose stores cannot be told apart. It is used from now on.
            Err(error) if error.code() == Errno::EINVAL => {
                if self.is_unused(server).await? {
                    self.know(server, Name::EMPTY).await?;
                }
                self.stand(server, Standing::Known);
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let is_foreign = !meta.is_empty() && meta != *self.journal.identity();
        let known = self.store_known(server).await?;
        let name = link.server();
        let why = match known {
            _ if is_foreign => format!(
                "the store of {name} holds objects of another metadata server; hint: put that one's \
                 disk back, or read the I/O servers' stores with `covey salvage`; if this metadata is an older \
                 copy of that server's, `covey fsck --adopt {name}`"
            ),
            Some(known) if known == store => {
                return self.let_serve(server, store).await;
            }
            None if self.is_unused(server).await? || !self.has_lost(server, is_new).await? => {
                return self.take_in(server, store).await;
            }
            _ => format!(
                "the store of {name} is not the one that held its objects; hint: put that disk back, \
                 or, if it is lost, `covey server replace {name}`"
            ),
        };
        tracing::error!("{why}");
        let reason = Name::from(why.as_str());
        let owner = if is_foreign { meta } else { Name::EMPTY };
        self.stand(server, Standing::Unknown { found: store, why, owner });
        data_call(link, DataOp::Refuse { reason }).await?;
        Ok(())
    }

    /// The loss of what the server held before is accepted: it serves from the store that it has.
    pub(super) fn accept_store(self: &Rc<Self>, server: u16) -> Outcome<Reply> {
        let store = match self.stranger(server) {
            Ok(store) => store,
            Err(error) => return Outcome::Now(Err(error)),
        };
        let meta = self.clone();
        Outcome::later(async move {
            meta.take_in(server, store).await?;
            Ok(Reply::Done {})
        })
    }

    /// The server serves from the store that it has; reads and writes of objects that it held before fail.
    pub(super) fn replace_store(self: &Rc<Self>, server: u16) -> Outcome<Reply> {
        let store = match self.stranger(server) {
            Ok(store) => store,
            Err(error) => return Outcome::Now(Err(error)),
        };
        let meta = self.clone();
        Outcome::later(async move {
            meta.lose(server, &store).await?;
            meta.take_in(server, store).await?;
            Ok(Reply::Done {})
        })
    }

    /// Tells a server which objects are lost. If a file is emptied or removed after its page was read, the cut or removal that
    /// is pending for the server ends its mark. One that was emptied before, while the server was away, and has grown since, is
    /// marked although nothing of it was lost: it has the epoch of the cut already.
    async fn lose(&self, server: u16, store: &Name) -> Result<()> {
        let link = &self.link(server)?;
        let (begun, _) = link.conn(link.now()).await?;
        let mut after = Name::EMPTY;
        loop {
            let page = self.held_page(after).await?;
            // What is told of epochs must not be lost here with the power.
            self.journal.sync().await?;
            let chains = self.chains_on(server).await;
            for &chain in &chains {
                let lost = |inode: &Inode| {
                    bytes_on(inode, chain).map(|_| Doomed { id: inode.id, epoch: inode.epoch })
                };
                let objects: Vec<Doomed> = page.files.0.iter().filter_map(lost).collect();
                for chunk in objects.chunks(LOSE_MAX) {
                    self.must_be_stranger(server, store)?;
                    let (store, objects) = (store.clone(), List(chunk.to_vec()));
                    let lose = DataOp::Lose { store, objects, end: false };
                    self.ask_chain(server, chain, lose).await?;
                }
            }
            if page.end {
                for &chain in &chains {
                    let (store, objects) = (store.clone(), List::default());
                    let end = DataOp::Lose { store, objects, end: true };
                    self.ask_chain(server, chain, end).await?;
                }
                // Of marks that were made before a restart nobody knows whether they are on the disk.
                return match link.conn(link.now()).await? {
                    (ended, _) if ended == begun => Ok(()),
                    _ => Err(Errno::because(
                        Errno::EAGAIN,
                        "it has reconnected meanwhile; run the command again",
                    )),
                };
            }
            after = page.next;
            // Others want to be answered, too.
            task::sleep(Duration::ZERO).await;
        }
    }

    /// The store of a server that is not the one that it had; EINVAL when there is none such.
    fn stranger(&self, server: u16) -> Result<Name> {
        let standing = self.stores.borrow().get(usize::from(server)).cloned();
        let what = match standing {
            Some(Standing::Unknown { found, owner, .. }) if owner.is_empty() => return Ok(found),
            Some(Standing::Unknown { why, .. }) => why,
            Some(Standing::Known) => "its store is the one that is known".into(),
            Some(Standing::Unmet) => "it has not been met: it does not run".into(),
            None => "there is no such I/O server".into(),
        };
        Err(Errno::because(Errno::EINVAL, what))
    }

    /// EINVAL when somebody else has decided meanwhile, or the server has come with another store.
    fn must_be_stranger(&self, server: u16, store: &Name) -> Result<()> {
        if self.stranger(server)? == *store {
            Ok(())
        } else {
            Err(Errno::because(Errno::EINVAL, "it has come with another store"))
        }
    }

    /// The store that the server has is this metadata server's, although it names another: the metadata came back from a
    /// copy that does not know who it was. What the objects have more than it knows is not mixed with what comes: see
    /// [`Op::Restored`].
    pub(super) fn adopt_store(self: &Rc<Self>, server: u16) -> Outcome<Reply> {
        let standing = self.stores.borrow().get(usize::from(server)).cloned();
        let refuse = |what: &str| Outcome::Now(Err(Errno::because(Errno::EINVAL, what)));
        let (store, before) = match standing {
            Some(Standing::Unknown { found, owner, .. }) if !owner.is_empty() => (found, owner),
            _ => return refuse("its store is not another metadata server's, or it does not run"),
        };
        let meta = self.clone();
        Outcome::later(async move {
            let own = meta.journal.identity().clone();
            meta.apply_claimed(Op::Restored {}).await?;
            // All chains have another generation, also those of the servers that serve already.
            meta.store_is_here().await;
            meta.tell_of_changes();
            meta.know(server, store.clone()).await?;
            let adopt = DataOp::Adopt { store: store.clone(), meta: own, before };
            data_call(&meta.link(server)?, adopt).await?;
            meta.let_serve(server, store).await?;
            Ok(Reply::Done {})
        })
    }

    /// What is known of all stores.
    pub(super) fn store_states(&self) -> Outcome<Reply> {
        let mut reply = self.ask_own(Op::Stores {});
        if let Reply::Stores { stores } = &mut reply {
            for (state, standing) in stores.0.iter_mut().zip(&*self.stores.borrow()) {
                if let Standing::Unknown { found, why, .. } = standing {
                    (state.found, state.why) = (found.clone(), Name::from(why.as_str()));
                }
            }
        }
        Outcome::Now(Ok(reply))
    }

    /// The store that a server serves from now.
    pub(super) async fn store_serving(&self, server: u16) -> Option<Name> {
        self.store_is_here().await;
        let is_serving = self.may_serve(usize::from(server));
        self.store_mut().store_of(server).ok().flatten().filter(|_| is_serving)
    }

    /// Whether there is anything to ask of the objects of a server.
    pub(super) fn may_serve(&self, server: usize) -> bool {
        self.stores.borrow().get(server) == Some(&Standing::Known)
    }

    /// Whether it is not known yet what the server serves from: this server has just started, or that one does not run.
    pub(super) fn is_unmet(&self, server: usize) -> bool {
        self.stores.borrow().get(server) == Some(&Standing::Unmet)
    }

    pub(super) fn stand(&self, server: u16, standing: Standing) {
        self.stores.borrow_mut()[usize::from(server)] = standing;
    }

    /// The server keeps its objects in this store from now on, and serves.
    async fn take_in(self: &Rc<Self>, server: u16, store: Name) -> Result<()> {
        self.know(server, store.clone()).await?;
        self.let_serve(server, store).await
    }

    async fn let_serve(&self, server: u16, store: Name) -> Result<()> {
        let meta = self.journal.identity().clone();
        let link = &self.link(server)?;
        // The chains first: nobody is to be admitted at a generation that is over.
        self.tell_chains(server, &store).await?;
        data_call(link, DataOp::Admit { store, meta }).await?;
        self.stand(server, Standing::Known);
        Ok(())
    }

    async fn store_known(&self, server: u16) -> Result<Option<Name>> {
        self.store_is_here().await;
        self.store_mut().store_of(server)
    }

    async fn is_unused(&self, server: u16) -> Result<bool> {
        self.store_is_here().await;
        self.store_mut().is_unused(server)
    }

    /// From now on the server keeps its objects in this store: on stable storage before it serves.
    async fn know(self: &Rc<Self>, server: u16, store: Name) -> Result<()> {
        self.apply_claimed(Op::KnowStore { server, store }).await?;
        self.journal.sync().await
    }

    /// Whether a server that was never met has lost what it held: it holds nothing since it was
    /// formatted, and a file should have bytes there. One that may have holes there counts only
    /// when it is older than the store.
    async fn has_lost(&self, server: u16, formatted: Option<u64>) -> Result<bool> {
        let Some(formatted) = formatted else { return Ok(false) };
        let chains = self.chains_on(server).await;
        let mut after = Name::EMPTY;
        loop {
            let page = self.held_page(after).await?;
            let List(files) = page.files;
            let is_lost = |inode: &Inode| {
                let is_there = |&chain: &u16| bytes_on(inode, chain).is_some();
                (!inode.sparse || inode.btime < formatted) && chains.iter().any(is_there)
            };
            if files.iter().any(is_lost) {
                return Ok(true);
            }
            if page.end {
                return Ok(false);
            }
            after = page.next;
            // Others want to be answered, too.
            task::sleep(Duration::ZERO).await;
        }
    }

    /// Files that are laid out on I/O servers, some at a time.
    pub(super) async fn held_page(&self, after: Name) -> Result<Page> {
        self.store_is_here().await;
        let (low, high, rows_max) = (0, Id::MAX, PAGE_ROWS);
        match self.ask_own(Op::Check { table: table::HELD, after, rows_max, low, high }) {
            Reply::Checked { page } => Ok(page),
            _ => Err(Errno::because(Errno::EIO, "the store does not say what files hold")),
        }
    }
}
