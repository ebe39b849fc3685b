//! An I/O server that leaves the cluster for good.
//!
//! It is first said, in the log, that nothing new comes there; then all files are looked at, and if none is laid out there
//! it is said that the server is gone. Its index and its name stay and are never given to another, since late requests
//! may name them. Whoever ends in between leaves a server that gets no files until it is opened, or removed again.

use super::Meta;
use super::stores::Standing;
use covey_io::task;
use covey_ninep::tree::{Errno, Outcome, Result};
use covey_stripe::client::data_call;
use covey_stripe::meta::{NUMBERS_OVER, place};
use covey_stripe::objects::DataOp;
use covey_stripe::ops::{Id, Inode, Op, Reply};
use covey_wire::Name;
use std::rc::Rc;
use std::time::Duration;

impl Meta {
    /// Takes a server out of the cluster; EBUSY where a file is laid out there, or no other one gets new files.
    pub(super) fn remove_server(self: &Rc<Self>, server: u16) -> Outcome<Reply> {
        let meta = self.clone();
        Outcome::later(async move {
            meta.remove(server).await?;
            Ok(Reply::Done {})
        })
    }

    async fn remove(self: &Rc<Self>, server: u16) -> Result<()> {
        self.store_is_here().await;
        let before = self.may_be_removed(server)?;
        if before & place::REMOVED != 0 {
            return Ok(());
        }
        let leaving = before | place::CLOSED | place::LEAVING;
        self.apply_claimed(Op::Place { server, state: leaving }).await?;
        // Who makes files late has layouts from before.
        task::sleep(NUMBERS_OVER).await;
        if let Some(id) = self.laid_out_there(server).await? {
            // What has been seen of it meanwhile stays.
            self.store_is_here().await;
            let now = self.store_mut().places()[usize::from(server)];
            let state = now & !(place::CLOSED | place::LEAVING) | before & place::CLOSED;
            self.apply_claimed(Op::Place { server, state }).await?;
            let what = format!("file {id} is laid out there");
            return Err(Errno::because(Errno::EBUSY, what));
        }
        self.store_is_here().await;
        let now = self.store_mut().places()[usize::from(server)];
        if now & place::LEAVING == 0 {
            return Err(Errno::because(Errno::EBUSY, "it was opened to new files meanwhile"));
        }
        self.apply_claimed(Op::Place { server, state: now | place::REMOVED }).await?;
        self.journal.sync().await?;
        tracing::info!("{} was removed", self.link(server)?.server());
        self.stand(server, Standing::Unmet);
        self.saw(server, false);
        task::spawn(self.clone().say_goodbye(server));
        Ok(())
    }

    /// What is said of its place now.
    fn may_be_removed(&self, server: u16) -> Result<u8> {
        let places = self.store_mut().places();
        let count = places.len();
        let Some(&before) = places.get(usize::from(server)) else {
            let text = format!("no I/O server has index {server}: there are {count}");
            return Err(Errno::because(Errno::EINVAL, text));
        };
        let is_other =
            |(at, place): (usize, &u8)| at != usize::from(server) && place & place::CLOSED == 0;
        if !places.iter().enumerate().any(is_other) {
            let text = "no other I/O server is open to new files";
            return Err(Errno::because(Errno::EBUSY, text));
        }
        Ok(before)
    }

    /// A file that is laid out on a server, with bytes there or without.
    async fn laid_out_there(&self, server: u16) -> Result<Option<Id>> {
        let chains = self.chains_on(server).await;
        let is_there = |inode: &&Inode| {
            let slots = inode.striping.iter().flat_map(|striping| &striping.servers.0);
            slots.into_iter().any(|chain| chains.contains(chain))
        };
        let mut after = Name::EMPTY;
        loop {
            let page = self.held_page(after).await?;
            if let Some(inode) = page.files.0.iter().find(is_there) {
                return Ok(Some(inode.id));
            }
            if page.end {
                return Ok(None);
            }
            after = page.next;
            // Others want to be answered, too.
            task::sleep(Duration::ZERO).await;
        }
    }

    /// So that it serves nobody any more who has not heard of it. It finds no one to ask when it starts the next time.
    async fn say_goodbye(self: Rc<Self>, server: u16) {
        let reason = Name::from(
            "this I/O server was removed from the cluster; hint: take it out of covey.toml",
        );
        let Ok(link) = self.link(server) else { return };
        let refused = data_call(&link, DataOp::Refuse { reason });
        if let Some(Err(error)) = task::timeout(GOODBYE, refused).await {
            tracing::debug!("{} was not told that it is removed: {error}", link.server());
        }
    }

    /// Whether a server was taken out of the cluster.
    pub(super) async fn has_left(&self, server: u16) -> bool {
        self.store_is_here().await;
        self.store_mut().is_removed(server)
    }
}

/// How long a server that leaves is tried to be told.
const GOODBYE: Duration = Duration::from_secs(3);
