//! A metadata store that nobody serves, opened to be checked, repaired or dumped.
//!
//! The last checkpoint and the log are put together as at a server's start. Nothing is written back
//! unless [`Offline::save`] is called.

use super::journal::{self, Media, Rows};
use anyhow::Context;
use covey_io::os::log::Log;
use covey_ninep::tree::Errno;
use covey_stripe::check::{Access, Result};
use covey_stripe::client::Error;
use covey_stripe::meta::{Applied, Store};
use covey_stripe::objects::{DataOp, DataReply};
use covey_stripe::ops::{Caller, Op, Reply, Request};
use std::cell::RefCell;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A store without a server.
pub struct Offline {
    store: RefCell<Store<Rows>>,
    log: Log,
}

impl Offline {
    /// Opens the store of a node, or its `meta` directory. Fails while a server has it.
    pub fn open(dir: &Path) -> anyhow::Result<Offline> {
        let below = dir.join("meta");
        let dir = if below.is_dir() { &below } else { dir };
        if !dir.join("data.mdb").exists() {
            anyhow::bail!("{} holds no metadata store", dir.display());
        }
        let Media { dir, disk, map } = Media::open(dir)?;
        let generation = journal::generation(&map)?.unwrap_or(0);
        let mut store = Store::open(map)?;
        journal::replay(&mut store, &disk, &dir, |_, _| Ok(()))?;
        let log = Log::open(disk, &dir, generation)?;
        Ok(Offline { store: RefCell::new(store), log })
    }

    /// Brings what was changed to the disk.
    pub fn save(mut self) -> anyhow::Result<()> {
        journal::commit(&mut self.store.borrow_mut(), &mut self.log, None)
            .context("cannot save the store")
    }

    fn apply(&self, op: Op) -> Result<Reply> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (now, caller) = (since.as_nanos() as u64, Caller::default());
        let request = Request { session: 0, seq: 0, seq_done: 0, now, caller, op };
        let applied = self.store.borrow_mut().apply(&request);
        // What is to be done on I/O servers is pending in the store until a server does it.
        self.store.borrow_mut().take_work();
        match applied {
            Applied::Reply(Reply::Error { code, reason }) => {
                Err(Error::because(code, reason.lossy().into_owned()))
            }
            Applied::Reply(reply) | Applied::AfterCut { reply, .. } => Ok(reply),
            Applied::Fatal(error) => Err(error.into()),
            Applied::Wait(_) => Err(Errno::EAGAIN.into()),
        }
    }
}

impl Access for Offline {
    async fn ask(&self, op: Op) -> Result<Reply> {
        self.apply(op)
    }

    async fn change(&self, op: Op) -> Result<Reply> {
        self.apply(op)
    }

    async fn data(&self, _: u16, _: DataOp) -> Result<DataReply> {
        Err(Error::because(Errno::EIO, "no I/O server is asked"))
    }

    fn servers(&self) -> Vec<String> {
        Vec::new()
    }

    async fn sleep(&self, _: Duration) {}
}
