//! Quotas.

use super::{Fs, Result, session::unexpected};
use crate::ops::{Caller, Op, Quota, Reply};

/// Owners asked for at once.
const PAGE: u16 = 4096;

impl Fs {
    /// Sets the limits of a user or a group; what it owns is not looked at. EPERM for others than root and the owner
    /// of the root directory.
    pub async fn set_quota(&self, who: &Caller, quota: Quota) -> Result<()> {
        self.change(who, Op::SetQuota { quota }).await.map(|_| ())
    }

    /// Counts anew what everybody owns, in the metadata server; it goes on when this has returned.
    pub async fn recount(&self, who: &Caller) -> Result<()> {
        self.change(who, Op::Recount {}).await.map(|_| ())
    }

    /// What a user or a group owns and may own; none where nothing is known of it, or the caller may not see it.
    pub async fn quota(&self, who: &Caller, (kind, id): (u8, u32)) -> Result<Option<Quota>> {
        let (quotas, _) = self.quotas_from(who, (kind, id), 1).await?;
        Ok(quotas.into_iter().find(|quota| (quota.kind, quota.id) == (kind, id)))
    }

    /// What users and groups own and may own, as far as the caller may see it; whether all files are counted.
    pub async fn quotas(&self, who: &Caller) -> Result<(Vec<Quota>, bool)> {
        let (mut all, mut from) = (Vec::new(), (0, 0));
        loop {
            let (page, is_whole) = self.quotas_from(who, from, PAGE).await?;
            let Some(last) = page.last() else { return Ok((all, is_whole)) };
            from = match last.id.checked_add(1) {
                Some(id) => (last.kind, id),
                None => (last.kind + 1, 0),
            };
            all.extend(page);
        }
    }

    async fn quotas_from(
        &self,
        who: &Caller,
        (kind, id): (u8, u32),
        count_max: u16,
    ) -> Result<(Vec<Quota>, bool)> {
        match self.ask(who, Op::Quotas { kind, id, count_max }).await? {
            Reply::Quotas { quotas, is_whole } => Ok((quotas.0, is_whole)),
            other => Err(unexpected(&other)),
        }
    }
}
