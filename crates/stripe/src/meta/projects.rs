//! Project directories: what lies below them is counted like what a user owns.
//!
//! Each file says which project it belongs to, as it says who owns it: what is made in a directory belongs to the directory's.
//! What was there before belongs to it when whoever sets the quota has gone through the tree ([`Op::SetProject`]), a directory
//! always before what is in it. So whatever comes to be below a directory that was passed belongs to the project from the
//! start, and nothing that does not comes there from elsewhere: names and files do not cross the border of a project (EXDEV),
//! and mv copies them. Limits hold when the tree was gone through.
//!
//! [`Op::SetProject`]: crate::ops::Op::SetProject

use super::attr::must_own;
use super::fault::{Fault, refuse};
use super::keys::{self, Stored};
use super::owned::owner;
use super::{Applied, Store, done};
use crate::kv::Kv;
use crate::ops::{Id, Project, ROOT, Reply, Request};
use covey_ninep::tree::Errno;
use covey_wire::List;

/// No tree is deeper: parents that do not end here are damage.
const DEPTH_MAX: usize = 1 << 20;
/// Project directories at once.
const PROJECTS_MAX: usize = 10_000;

impl<K: Kv> Store<K> {
    /// All project directories, in the order of their numbers.
    pub(super) fn projects(&self) -> Vec<Project> {
        self.quotas.iter().flat_map(|quotas| quotas.projects.values().copied()).collect()
    }

    /// The project that a file belongs to. One that is over is none.
    fn project_of(&self, stored: &Stored) -> Option<Project> {
        self.quotas.as_ref()?.projects.get(&stored.project.0).copied()
    }

    pub(super) fn project_list(&self) -> Applied {
        Applied::Reply(Reply::Projects { projects: List(self.projects()) })
    }

    /// Makes a directory one of a project; one that is stays as it is. Those below it come next, by `set_project`.
    pub(super) fn make_project(&mut self, request: &Request, dir: Id) -> Result<Applied, Fault> {
        must_own(&request.caller, &self.stored(ROOT)?.inode)?;
        let mut stored = self.dir(dir)?;
        let known = self.projects();
        if let Some(project) = known.iter().find(|project| project.dir == dir) {
            return Ok(Applied::Reply(Reply::Projects { projects: List(vec![*project]) }));
        }
        self.must_not_be_nested(&stored, &known)?;
        if known.len() >= PROJECTS_MAX {
            let text = format!("{PROJECTS_MAX} directories have a quota already");
            return refuse(Errno::ENOSPC, text);
        }
        let quotas = self.quotas.get_or_insert_with(Default::default);
        let number = quotas.project_last.checked_add(1).ok_or(Errno::EOVERFLOW);
        let number = number.map_err(|code| Fault::Refused(code.into()))?;
        let project = Project { number, dir, is_whole: false };
        quotas.project_last = number;
        quotas.projects.insert(number, project);
        self.put_projects()?;
        self.put_passed()?;
        self.belongs_to(&mut stored, number)?;
        Ok(Applied::Reply(Reply::Projects { projects: List(vec![project]) }))
    }

    fn must_not_be_nested(&self, stored: &Stored, known: &[Project]) -> Result<(), Fault> {
        let dir = stored.inode.id;
        if self.project_of(stored).is_some() || self.is_below_one(stored, known)? {
            let text = format!("directory {dir} lies in one that has a quota");
            return refuse(Errno::EINVAL, text);
        }
        let has_dirs = stored.inode.nlink > 2;
        for project in known.iter().filter(|_| has_dirs) {
            if self.is_within(project.dir, dir)? {
                let text = format!("directory {}, which lies in it, has a quota", project.dir);
                return refuse(Errno::EINVAL, text);
            }
        }
        Ok(())
    }

    /// Whether a directory of a project is above this one that was not gone through yet.
    fn is_below_one(&self, stored: &Stored, known: &[Project]) -> Result<bool, Fault> {
        let mut parent = stored.inode.parent;
        for _ in 0..DEPTH_MAX {
            if known.iter().any(|project| project.dir == parent) {
                return Ok(true);
            }
            if parent == ROOT {
                return Ok(false);
            }
            parent = self.stored(parent)?.inode.parent;
        }
        Err(Fault::Broken(Errno::because(Errno::EIO, "parents do not end")))
    }

    /// A file belongs to this project from now on; 0: to none.
    pub(super) fn set_project(
        &mut self,
        request: &Request,
        id: Id,
        project: u32,
    ) -> Result<Applied, Fault> {
        must_own(&request.caller, &self.stored(ROOT)?.inode)?;
        let mut stored = self.stored(id)?;
        if stored.project.0 == project {
            return Ok(done());
        }
        let is_known = |number: u32| {
            self.quotas.as_ref().is_some_and(|quotas| quotas.projects.contains_key(&number))
        };
        if project != 0 && !is_known(project) {
            return refuse(Errno::EINVAL, format!("there is no project {project}"));
        }
        self.belongs_to(&mut stored, project)?;
        Ok(done())
    }

    fn belongs_to(&mut self, stored: &mut Stored, project: u32) -> Result<(), Fault> {
        let before = owner(stored);
        stored.project = keys::Project(project);
        self.owns_instead(before, stored);
        self.save(stored)
    }

    /// All below a project's directory was gone through: its limits hold (`is_whole`), or it is no project any more.
    pub(super) fn end_project(
        &mut self,
        request: &Request,
        number: u32,
        is_whole: bool,
    ) -> Result<Applied, Fault> {
        must_own(&request.caller, &self.stored(ROOT)?.inode)?;
        let quotas = self.quotas.get_or_insert_with(Default::default);
        let Some(project) = quotas.projects.get_mut(&number) else {
            return refuse(Errno::ENOENT, format!("there is no project {number}"));
        };
        project.is_whole = is_whole;
        if !is_whole {
            self.forget_project(number)?;
        }
        self.put_projects()?;
        Ok(done())
    }

    /// The directory of a project is gone, and all that was in it.
    pub(super) fn project_dir_is_gone(&mut self, stored: &Stored) -> Result<(), Fault> {
        let is_it = |project: &Project| project.dir == stored.inode.id;
        let Some(project) = self.project_of(stored).filter(is_it) else { return Ok(()) };
        self.forget_project(project.number)?;
        self.put_projects()
    }

    fn put_projects(&mut self) -> Result<(), Fault> {
        let last = self.quotas.as_ref().map_or(0, |quotas| quotas.project_last);
        let projects = self.projects();
        self.put_row(keys::PROJECTS, &keys::Projects { last, projects: List(projects) })
    }

    /// Refuses (EXDEV) to bring something into a directory of another project: from a directory, or by one more name. What
    /// lies in a directory that was passed and does not say yet that it belongs to the project does not leave: it is about to.
    pub(super) fn must_stay(
        &self,
        from: Option<&Stored>,
        to: &Stored,
        moved: &Stored,
    ) -> Result<(), Fault> {
        if self.quotas.is_none() || self.replaying {
            return Ok(());
        }
        let there = self.project_of(to);
        // The directory of a project lies where a file without a project would.
        let is_top = |project: &Project| project.dir == moved.inode.id;
        let belongs = self.project_of(moved).filter(|project| !is_top(project));
        if belongs == there && from.is_none_or(|from| self.project_of(from) == there) {
            return Ok(());
        }
        refuse(Errno::EXDEV, "the border of a directory that has a quota lies between")
    }
}
