//! Quotas.

use super::{Fs, Result, session::unexpected};
use crate::check::each_name;
use crate::ops::{Caller, Id, Op, Project, Quota, Reply};
use covey_ninep::tree::Errno;
use futures_util::stream::{self, StreamExt, TryStreamExt};

/// Owners asked for at once.
const PAGE: u16 = 4096;
/// Files that are told at once that they belong to a project.
const AT_ONCE: usize = 32;

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

    /// Makes a directory that of a project, to which all belongs that comes to be in it; what is there already is for
    /// [`Fs::gather`]. One that is a project's already stays what it is. EPERM as for [`Fs::set_quota`], EINVAL where it lies in
    /// such a directory, or has one below it.
    pub async fn make_project(&self, who: &Caller, dir: Id) -> Result<Project> {
        match self.change(who, Op::MakeProject { dir }).await? {
            Reply::Projects { projects } if projects.0.len() == 1 => Ok(projects.0[0]),
            other => Err(unexpected(&other)),
        }
    }

    /// All below a directory belongs to this project from now on, 0: to none; and the directory itself. How many files that
    /// are. Others may work there meanwhile; each directory is held in memory.
    pub async fn gather(&self, who: &Caller, dir: Id, project: u32) -> Result<u64> {
        let (mut left, mut count) = (vec![dir], 0);
        while let Some(dir) = left.pop() {
            self.belongs_to(who, dir, project).await?;
            let mut files = Vec::new();
            each_name(self, dir, |entry| {
                if entry.is_dir() {
                    left.push(entry.id);
                } else {
                    files.push(entry.id);
                }
            })
            .await?;
            count += 1 + files.len() as u64;
            let told = files.into_iter().map(|id| self.belongs_to(who, id, project));
            stream::iter(told).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        }
        Ok(count)
    }

    async fn belongs_to(&self, who: &Caller, id: Id, project: u32) -> Result<()> {
        match self.change(who, Op::SetProject { id, project }).await {
            // Removed since.
            Err(error) if error.code() == Errno::ESTALE => Ok(()),
            other => other.map(drop),
        }
    }

    /// All below a project's directory was gone through: its limits hold (`whole`), or it is no project any more.
    pub async fn end_project(&self, who: &Caller, number: u32, whole: bool) -> Result<()> {
        self.change(who, Op::EndProject { number, whole }).await.map(drop)
    }

    /// The project directories; none where the metadata server is of a version before them.
    pub async fn projects(&self, who: &Caller) -> Result<Vec<Project>> {
        match self.ask(who, Op::Projects {}).await {
            Ok(Reply::Projects { projects }) => Ok(projects.0),
            Ok(other) => Err(unexpected(&other)),
            Err(error) if error.code() == Errno::EINVAL => Ok(Vec::new()),
            Err(error) => Err(error),
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
