//! A job that runs already: its parts on all nodes.

use super::pick;
use super::tree::{FoundPart, NodeTree};
use crate::cmd::Context;
use crate::config::Config;
use crate::error::{Cannot, Error, Result};
use covey_io::os::users;
use covey_launch::job::{Part, is_name};
use futures_util::future::join_all;
use std::collections::BTreeSet;
use std::rc::Rc;

/// A session of the job.
pub struct Found {
    /// Where.
    pub node: Rc<NodeTree>,
    /// Which session, and which part.
    pub part: FoundPart,
}

/// The parts of a job of one user, in the order of their ranks. Nodes that cannot be reached are reported: parts may be
/// there. Whoever may see the sessions of others means an own job by its name, else the only one that is called so.
pub async fn parts(
    config: &Config,
    context: &Context,
    job: &str,
    user: Option<&str>,
) -> Result<Vec<Found>> {
    if !is_name(job) {
        return Err(Error::user(format!("cannot look for job `{job}`: that is no job's name"))
            .hint("`covey ps` shows the jobs"));
    }
    let user = user.map(number_of).transpose()?;
    let mut found = all(config, context).await?;
    found.retain(|found| found.part.job == job);
    let owners: BTreeSet<u32> = found.iter().map(|found| found.part.owner).collect();
    let Some(owner) = owner(&owners, user, rustix::process::geteuid().as_raw()) else {
        if user.is_none() && !owners.is_empty() {
            let names: Vec<String> = owners.iter().map(|uid| name_of(*uid)).collect();
            let names = names.join(", ");
            return Err(Error::user(format!("{} users have a job {job}: {names}", owners.len()))
                .hint("--user says whose is meant"));
        }
        return Err(Error::work(format!("cannot find job {job}: no node has a part of it"))
            .hint("`covey ps` shows the jobs; a job that was not detached ends with its command"));
    };
    found.retain(|found| found.part.owner == owner);
    found.sort_by_key(|found| found.part.part);
    Ok(found)
}

/// Refuses a name that a job of this user has: nobody could tell the parts of the one from those of the other. Nodes that
/// cannot be reached are not asked; if the job wants them, it says so itself.
pub async fn check_free(config: &Config, job: &str) -> Result<()> {
    let names = pick::nodes(config, None, true)?;
    let own = rustix::process::geteuid().as_raw();
    let reached = pick::reach_each(config, &names).await;
    let looks = reached.iter().flatten().map(|tree| async move {
        let parts = tree.parts().await.unwrap_or_default();
        let is_there = parts.iter().any(|part| part.owner == own && part.job == job);
        is_there.then(|| tree.name.clone())
    });
    let there: Vec<String> = join_all(looks).await.into_iter().flatten().collect();
    if there.is_empty() {
        return Ok(());
    }
    let there = there.join(", ");
    Err(Error::user(format!("cannot start job {job}: a job of this name is there, on {there}"))
        .hint(format!("`covey wait {job}` waits for it, `covey attach {job}` ends with it; without --job a free name is chosen")))
}

/// Whose job is meant, of those who have one of this name.
fn owner(owners: &BTreeSet<u32>, asked: Option<u32>, own: u32) -> Option<u32> {
    if let Some(asked) = asked {
        return owners.contains(&asked).then_some(asked);
    }
    match owners.first() {
        _ if owners.contains(&own) => Some(own),
        Some(only) if owners.len() == 1 => Some(*only),
        _ => None,
    }
}

/// A user's number, from a name or a number.
fn number_of(user: &str) -> Result<u32> {
    if let Ok(uid) = user.parse() {
        return Ok(uid);
    }
    let account = users::by_name(user).cannot(|| format!("look for user {user}"))?;
    let account = account.ok_or_else(|| Error::user(format!("this machine has no user {user}")))?;
    Ok(account.uid)
}

fn name_of(uid: u32) -> String {
    let account = users::by_uid(uid).ok().flatten();
    account.map_or_else(|| uid.to_string(), |account| account.name.clone())
}

/// The parts of all jobs.
pub async fn all(config: &Config, context: &Context) -> Result<Vec<Found>> {
    let names = pick::nodes(config, None, true)?;
    let reached = pick::reach_each(config, &names).await;
    let mut trees = Vec::new();
    for tree in reached {
        match tree {
            Ok(tree) => trees.push(tree),
            Err(error) => context.output.say(format!("warning: {}", error.message)),
        }
    }
    let parts = join_all(trees.iter().map(|tree| tree.parts())).await;
    let mut found = Vec::new();
    for (node, parts) in trees.iter().zip(parts) {
        match parts {
            Ok(parts) => {
                found.extend(parts.into_iter().map(|part| Found { node: node.clone(), part }));
            }
            Err(error) => {
                context
                    .output
                    .say(format!("warning: cannot list the sessions of {}: {error}", node.name));
            }
        }
    }
    Ok(found)
}

/// The number of a rank.
pub fn rank(part: Part) -> Option<u32> {
    match part {
        Part::Rank(rank) => Some(rank),
        Part::Starter(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_means_an_own_job_first() {
        let of = |owners: &[u32], asked| owner(&owners.iter().copied().collect(), asked, 7);
        assert_eq!(of(&[], None), None);
        assert_eq!(of(&[7, 8], None), Some(7));
        assert_eq!(of(&[8], None), Some(8));
        assert_eq!(of(&[8, 9], None), None);
        assert_eq!(of(&[7, 8], Some(8)), Some(8));
        assert_eq!(of(&[7], Some(8)), None);
    }
}
