//! A job that runs already: its parts on all nodes.

use super::pick;
use super::tree::{FoundPart, NodeTree};
use crate::cmd::Context;
use crate::config::Config;
use crate::error::{Error, Result};
use covey_launch::job::{Part, is_name};
use futures_util::future::join_all;
use std::rc::Rc;

/// A session of the job.
pub struct Found {
    /// Where.
    pub node: Rc<NodeTree>,
    /// Which session, and which part.
    pub part: FoundPart,
}

/// The parts of a job, in the order of their ranks. Nodes that cannot be reached are reported: parts may be there.
pub async fn parts(config: &Config, context: &Context, job: &str) -> Result<Vec<Found>> {
    if !is_name(job) {
        return Err(Error::user(format!("cannot look for job `{job}`: that is no job's name"))
            .hint("`covey ps` shows the jobs"));
    }
    let mut found = all(config, context).await?;
    found.retain(|found| found.part.job == job);
    found.sort_by_key(|found| found.part.part);
    match found.is_empty() {
        true => Err(Error::work(format!("cannot find job {job}: no node has a part of it"))
            .hint("`covey ps` shows the jobs; a job that was not detached ends with its command")),
        false => Ok(found),
    }
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
