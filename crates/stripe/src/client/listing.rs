//! Listings, and those that are asked for before anybody wants them.

use super::session::unexpected;
use super::{Fs, Listing, Page, Result, Shared};
use crate::ops::{Caller, Id, Op, Reply};
use futures_channel::oneshot;
use futures_util::future::{FutureExt, Shared as Common, join_all};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Listings that are on their way and nobody has wanted yet.
#[derive(Default)]
pub(super) struct Ahead(Mutex<HashMap<Id, Coming>>);

/// Completes when a listing has come, or will not.
type Coming = Common<oneshot::Receiver<()>>;

impl Ahead {
    fn lock(&self) -> MutexGuard<'_, HashMap<Id, Coming>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters those that are not on their way.
    fn enter(&self, ids: Vec<Id>) -> Vec<(Id, oneshot::Sender<()>)> {
        let mut coming = self.lock();
        let mut entered = Vec::new();
        for id in ids {
            coming.entry(id).or_insert_with(|| {
                let (came, comes) = oneshot::channel();
                entered.push((id, came));
                comes.shared()
            });
        }
        entered
    }
}

impl Fs {
    /// Entries after `cookie` (0: from the start, `.` and `..` first) up to `limit` (0 on the first call).
    pub async fn readdir(
        &self,
        who: &Caller,
        id: Id,
        cookie: u64,
        limit: u64,
        bytes_max: u32,
        listing: Listing,
    ) -> Result<Page> {
        let plus = listing == Listing::Inodes;
        let begins = plus && (cookie, limit) == (0, 0);
        if begins && let Some(page) = self.listed(who, id, bytes_max).await {
            self.list_ahead(who, id);
            return Ok(page);
        }
        let page = self.shared.list(who, id, (cookie, limit), bytes_max, plus).await?;
        if begins && page.end {
            self.list_ahead(who, id);
        }
        Ok(page)
    }

    /// What is known of a listing under leases, or soon will be.
    async fn listed(&self, who: &Caller, id: Id, bytes_max: u32) -> Option<Page> {
        let coming = self.shared.ahead.lock().get(&id).cloned();
        if let Some(coming) = coming {
            let _ = coming.await;
        }
        let (cache, net) = (self.shared.session.cache(), &self.shared.net);
        cache.listing(who, id, bytes_max, net.now())
    }

    /// Asks for the listings that come next where somebody walks over a tree.
    fn list_ahead(&self, who: &Caller, id: Id) {
        let shared = &self.shared;
        let ids = shared.session.cache().list_ahead(id, shared.net.now());
        let entered = shared.ahead.enter(ids);
        if entered.is_empty() {
            return;
        }
        shared.session.cache().asks_ahead(entered.len());
        let (shared, who) = (shared.clone(), who.clone());
        self.shared.net.spawn(Box::pin(async move {
            let asks = entered.into_iter().map(|(id, came)| {
                let (shared, who) = (shared.clone(), who.clone());
                async move {
                    let page = shared.list(&who, id, (0, 0), AHEAD_BYTES, true).await;
                    if page.is_ok() {
                        shared.session.cache().came_ahead(id);
                    }
                    shared.ahead.lock().remove(&id);
                    let _ = came.send(());
                }
            });
            join_all(asks).await;
        }));
    }
}

impl Shared {
    async fn list(
        self: &Arc<Self>,
        who: &Caller,
        id: Id,
        (cookie, limit): (u64, u64),
        bytes_max: u32,
        plus: bool,
    ) -> Result<Page> {
        let op = Op::Readdir { id, cookie, limit, bytes_max, plus };
        match self.session.ask(who, op).await? {
            Reply::Entries { entries, end, limit } => Ok(Page { entries: entries.0, end, limit }),
            other => Err(unexpected(&other)),
        }
    }
}

/// Bytes of a listing that is asked for ahead: what readdir(3) asks for.
const AHEAD_BYTES: u32 = 32 << 10;
