//! Quotas.

use super::{Fs, Result, session::unexpected};
use crate::ops::{Caller, Op, Quota, Reply};

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

    /// What users and groups own and may own, as far as the caller may see it; whether all files are counted.
    pub async fn quotas(&self, who: &Caller) -> Result<(Vec<Quota>, bool)> {
        match self.ask(who, Op::Quotas {}).await? {
            Reply::Quotas { quotas, is_whole } => Ok((quotas.0, is_whole)),
            other => Err(unexpected(&other)),
        }
    }
}
